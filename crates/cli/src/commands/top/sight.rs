//! One look at all primaries, and the lines that tell it.

use std::collections::BTreeMap;
use std::time::Instant;

use redis::{Connection, RedisResult};
use serde::Serialize;

use crate::commands::stats::{Figures, figures};
use crate::failure::Failure;
use crate::fleet::Fleet;
use crate::output::{shown, table};
use crate::wire::{Counts, Hot, Stats};

/// Keys asked of each node: enough that the sum's hottest are among them.
const KEYS: usize = 50;

#[derive(Clone, Serialize)]
pub struct Sight {
    pub nodes: usize,
    /// Those that answered.
    pub up: usize,
    pub total: Stats,
    pub policies: Vec<(String, Stats)>,
    pub keys: Vec<Hot>,
    pub failed: Vec<Failure>,
    #[serde(skip)]
    at: Instant,
    /// What each node had counted by then: a rate needs the same nodes on both sides.
    #[serde(skip)]
    each: BTreeMap<String, Counts>,
}

/// What one node shows.
fn of_node(connection: &mut Connection) -> RedisResult<(Figures, Vec<Hot>)> {
    let figures = figures(connection, true)?;
    let top = |by: &str, connection: &mut Connection| -> RedisResult<Vec<Hot>> {
        let mut command = redis::cmd("RL.TOP");
        command
            .arg("COUNT")
            .arg(KEYS)
            .arg("BY")
            .arg(by)
            .query(connection)
    };
    let mut keys = top("checks", connection)?;
    // The two lists are counted apart: a key may be in one, in the other, or in both.
    for hot in top("denials", connection)? {
        match keys.iter_mut().find(|other| other.key == hot.key) {
            Some(other) => merge(other, &hot),
            None => keys.push(hot),
        }
    }
    Ok((figures, keys))
}

/// Estimates err on the low side only, so the higher is the better one.
fn merge(into: &mut Hot, other: &Hot) {
    into.checks = into.checks.max(other.checks);
    into.denials = into.denials.max(other.denials);
}

impl Sight {
    pub fn take(fleet: &Fleet) -> Self {
        let answers = fleet.ask(fleet.primaries(), of_node);
        let mut sum = Figures::default();
        let mut sight = Self {
            nodes: answers.len(),
            up: 0,
            total: Stats::default(),
            policies: Vec::new(),
            keys: Vec::new(),
            failed: Vec::new(),
            at: Instant::now(),
            each: BTreeMap::new(),
        };
        for (node, answer) in answers {
            match answer {
                Ok((figures, keys)) => {
                    sight.up += 1;
                    sight.each.insert(node.name.clone(), figures.node.total);
                    sum.add(&figures);
                    sight.keys.extend(keys);
                }
                Err(failure) => sight.failed.push(failure),
            }
        }
        sight.total = sum.node;
        sight.policies = sum.policies.into_iter().collect();
        sight
    }

    /// The most active first.
    pub fn sort(&mut self, by_denials: bool) {
        let rank = |checks, denials| {
            if by_denials {
                (denials, checks)
            } else {
                (checks, denials)
            }
        };
        self.keys.sort_by_cached_key(|hot| {
            (
                std::cmp::Reverse(rank(hot.checks, hot.denials)),
                hot.key.clone(),
            )
        });
        self.policies.sort_by_cached_key(|(name, stats)| {
            let minute = &stats.per_minute;
            let denials = minute.denied + minute.shadow_denied;
            (
                std::cmp::Reverse(rank(minute.checks(), denials)),
                name.clone(),
            )
        });
    }

    pub fn truncate(&mut self, count: usize) {
        self.keys.truncate(count);
        self.policies.truncate(count);
    }

    /// Counted since an earlier look, by the nodes that answered both times; `None` if a node began anew.
    fn since(&self, before: &Self) -> Option<(Counts, f64)> {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        let mut sum = Counts::default();
        for (node, now) in &self.each {
            let Some(was) = before.each.get(node) else {
                continue;
            };
            sum.allowed += now.allowed.checked_sub(was.allowed)?;
            sum.denied += now.denied.checked_sub(was.denied)?;
            sum.shadow_denied += now.shadow_denied.checked_sub(was.shadow_denied)?;
            sum.forced += now.forced.checked_sub(was.forced)?;
            sum.refunded += now.refunded.checked_sub(was.refunded)?;
        }
        (seconds > 0.0).then_some((sum, seconds))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    Title,
    Loud,
    Plain,
}

#[derive(Clone, Debug)]
pub struct Line {
    pub look: Look,
    pub text: String,
}

pub fn lines(
    now: &Sight,
    before: Option<&Sight>,
    by_denials: bool,
    count: usize,
    live: bool,
) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut say = |look, text: String| lines.push(Line { look, text });
    let keys = if live {
        "   q quit  c by checks  d by denials"
    } else {
        ""
    };
    say(
        Look::Title,
        format!(
            " rl top   {} of {} primaries answer{keys}",
            now.up, now.nodes
        ),
    );
    for failure in &now.failed {
        say(
            Look::Loud,
            format!(" no figures from {}", shown(&failure.error)),
        );
    }
    let minute = now.total.per_minute;
    if let Some((counts, seconds)) = before.and_then(|before| now.since(before)) {
        let rate = |count: u64| count as f64 / seconds;
        say(
            Look::Loud,
            rates(" now ", "/s", &counts, |count| {
                format!("{:.1}", rate(count))
            }),
        );
    }
    say(
        Look::Plain,
        rates(" last minute", "", &minute, |count| count.to_string()),
    );
    say(
        Look::Plain,
        rates(" in all", "", &now.total.total, |count| count.to_string()),
    );

    let section = |title: &str,
                   titles: &[&str],
                   rows: Vec<Vec<String>>,
                   say: &mut dyn FnMut(Look, String)| {
        say(Look::Plain, String::new());
        if rows.is_empty() {
            return say(Look::Loud, format!(" no {title} yet"));
        }
        for (n, line) in table(titles, &rows).lines().enumerate() {
            let look = if n == 0 { Look::Loud } else { Look::Plain };
            say(look, format!(" {line}"));
        }
    };
    let policies = now.policies.iter().take(count).map(|(name, stats)| {
        let minute = &stats.per_minute;
        let numbers = [minute.allowed, minute.denied, minute.shadow_denied];
        let mut row = vec![name.clone()];
        row.extend(numbers.map(|number| number.to_string()));
        row.push(share(minute.denied, minute.checks()));
        row
    });
    let titles = [
        "policy",
        ">allowed/min",
        ">denied/min",
        ">shadow/min",
        ">denied",
    ];
    section("policies", &titles, policies.collect(), &mut say);
    let titles = match by_denials {
        true => ["hottest keys by denials", ">checks", ">denials", ">denied"],
        false => ["hottest keys by checks", ">checks", ">denials", ">denied"],
    };
    let keys = now.keys.iter().take(count).map(|hot| {
        let numbers = [hot.checks.to_string(), hot.denials.to_string()];
        let mut row = vec![short(&shown(&hot.key))];
        row.extend(numbers);
        row.push(share(hot.denials, hot.checks));
        row
    });
    section("hot keys", &titles, keys.collect(), &mut say);
    lines
}

fn rates(when: &str, unit: &str, counts: &Counts, show: impl Fn(u64) -> String) -> String {
    let named = [
        (counts.allowed, "allowed"),
        (counts.denied, "denied"),
        (counts.shadow_denied, "shadow-denied"),
        (counts.forced, "forced"),
        (counts.refunded, "refunded"),
    ];
    let named = named.map(|(count, name)| format!("{}{unit} {name}", show(count)));
    format!("{when:<13} {}", named.join("   "))
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return String::new();
    }
    format!("{:.0} %", part.min(whole) as f64 * 100.0 / whole as f64)
}

/// So that the numbers stay on the screen.
fn short(key: &str) -> String {
    const LONGEST: usize = 48;
    if key.chars().count() <= LONGEST {
        return key.to_owned();
    }
    let begin: String = key.chars().take(LONGEST - 1).collect();
    format!("{begin}…")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn counts(allowed: u64, denied: u64) -> Counts {
        Counts {
            allowed,
            denied,
            ..Counts::default()
        }
    }

    fn sight(node: &str, allowed: u64, denied: u64, at: Instant) -> Sight {
        let stats = Stats {
            total: counts(allowed, denied),
            per_minute: counts(60, 20),
            since_ms: 1,
        };
        let hot = |key: &str, checks, denials| Hot {
            key: key.into(),
            checks,
            denials,
        };
        Sight {
            nodes: 1,
            up: 1,
            total: stats.clone(),
            policies: vec![
                ("free".into(), stats.clone()),
                ("pro".into(), Stats::default()),
            ],
            keys: vec![hot("often", 9, 0), hot("de\u{1b}nied", 5, 5)],
            failed: vec![],
            at,
            each: [(node.to_owned(), stats.total)].into(),
        }
    }

    fn text(lines: &[Line]) -> String {
        lines
            .iter()
            .map(|line| format!("{}\n", line.text))
            .collect()
    }

    #[test]
    fn a_rate_is_what_came_between_two_looks() {
        let start = Instant::now();
        let before = sight("a", 100, 10, start);
        let now = sight("a", 300, 20, start + Duration::from_secs(4));
        let shown = text(&lines(&now, Some(&before), false, 10, true));
        assert!(shown.contains("50.0/s allowed   2.5/s denied"), "{shown}");
        assert!(
            shown.contains("free             60          20           0    25 %"),
            "{shown}"
        );
        // A node that was restarted, or was not there, gives no rate rather than a wrong one.
        assert_eq!(before.since(&now), None);
        let other = sight("b", 5000, 0, start + Duration::from_secs(4));
        assert_eq!(
            other.since(&before).map(|(counts, _)| counts),
            Some(Counts::default())
        );
    }

    #[test]
    fn the_order_is_chosen_and_keys_cannot_play_with_the_terminal() {
        let mut now = sight("a", 1, 1, Instant::now());
        now.sort(true);
        assert_eq!(now.keys[0].denials, 5);
        let shown = text(&lines(&now, None, true, 1, false));
        assert!(
            shown.contains("de\\u{1b}nied") && !shown.contains("often"),
            "{shown}"
        );
        now.sort(false);
        assert_eq!(now.keys[0].key, "often");
    }

    #[test]
    fn nodes_that_are_away_are_named() {
        let mut now = sight("a", 1, 1, Instant::now());
        (now.nodes, now.up) = (3, 2);
        now.failed = vec![Failure::new("b:1: connection refused", "")];
        let shown = text(&lines(&now, None, false, 1, false));
        assert!(
            shown.contains("2 of 3 primaries answer") && shown.contains("no figures from b:1"),
            "{shown}"
        );
    }
}

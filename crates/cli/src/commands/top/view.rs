//! A snapshot as lines of text.

use rl_client::commands::{Counts, TopBy};

use crate::output::{shown, table};
use crate::snapshot::Snapshot;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Title,
    Bold,
    Plain,
}

#[derive(Clone, Debug)]
pub struct Line {
    pub style: Style,
    pub text: String,
}

pub fn lines(
    now: &Snapshot,
    before: Option<&Snapshot>,
    by: TopBy,
    count: usize,
    live: bool,
) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut say = |style, text: String| lines.push(Line { style, text });
    let keys = if live {
        "   q quit  c by checks  d by denials"
    } else {
        ""
    };
    say(
        Style::Title,
        format!(
            " rl top   {} of {} primaries reply{keys}",
            now.replied, now.primaries
        ),
    );
    for failure in &now.failed_nodes {
        say(
            Style::Bold,
            format!(" no statistics from {}", shown(&failure.line())),
        );
    }
    let minute = now.all_nodes.per_minute;
    if let Some((counts, seconds)) = before.and_then(|before| now.since(before)) {
        let rate = |count: u64| count as f64 / seconds;
        say(
            Style::Bold,
            rates(" now ", "/s", &counts, |count| {
                format!("{:.1}", rate(count))
            }),
        );
    }
    say(
        Style::Plain,
        rates(" last minute", "", &minute, |count| count.to_string()),
    );
    say(
        Style::Plain,
        rates(" in total", "", &now.all_nodes.total, |count| {
            count.to_string()
        }),
    );

    let section = |title: &str,
                   titles: &[&str],
                   rows: Vec<Vec<String>>,
                   say: &mut dyn FnMut(Style, String)| {
        say(Style::Plain, String::new());
        if rows.is_empty() {
            return say(Style::Bold, format!(" no {title} yet"));
        }
        for (n, line) in table(titles, &rows).lines().enumerate() {
            let style = if n == 0 { Style::Bold } else { Style::Plain };
            say(style, format!(" {line}"));
        }
    };
    let policies = now.policies.iter().take(count).map(|one| {
        let minute = &one.stats.per_minute;
        let numbers = [minute.allowed, minute.denied, minute.shadow_denied];
        let mut row = vec![one.policy.clone()];
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
    let title = match by {
        TopBy::Denials => "hottest keys by denials",
        _ => "hottest keys by checks",
    };
    let titles = [title, ">checks", ">denials", ">denied"];
    let keys = now.keys.iter().flatten().take(count).map(|hot| {
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
        (counts.refunded_units.unwrap_or(0), "refunded units"),
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

/// Shortens a key so that the numbers stay on the screen.
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
    use crate::failure::Failure;
    use crate::snapshot::tests::snapshot;
    use std::time::{Duration, Instant};

    fn text(lines: &[Line]) -> String {
        lines
            .iter()
            .map(|line| format!("{}\n", line.text))
            .collect()
    }

    #[test]
    fn rates_are_computed_from_two_snapshots() {
        let start = Instant::now();
        let before = snapshot("a", 100, 10, start);
        let now = snapshot("a", 300, 20, start + Duration::from_secs(4));
        let shown = text(&lines(&now, Some(&before), TopBy::Checks, 10, true));
        assert!(shown.contains("50.0/s allowed   2.5/s denied"), "{shown}");
        assert!(
            shown.contains("free             60          20           0    25 %"),
            "{shown}"
        );
    }

    #[test]
    fn keys_cannot_control_the_terminal() {
        let mut now = snapshot("a", 1, 1, Instant::now());
        now.sort(TopBy::Denials);
        let shown = text(&lines(&now, None, TopBy::Denials, 1, false));
        assert!(
            shown.contains("de\\u{1b}nied") && !shown.contains("often"),
            "{shown}"
        );
    }

    #[test]
    fn nodes_that_do_not_reply_are_named() {
        let mut now = snapshot("a", 1, 1, Instant::now());
        (now.primaries, now.replied) = (3, 2);
        now.failed_nodes = vec![Failure::new("b:1: connection refused", "")];
        let shown = text(&lines(&now, None, TopBy::Checks, 1, false));
        assert!(
            shown.contains("2 of 3 primaries reply") && shown.contains("no statistics from b:1"),
            "{shown}"
        );
    }
}

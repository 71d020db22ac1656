//! The tables for choosing an algorithm: what each one promises, and what was measured.

use rl_core::Limit;

use crate::adversary;
use crate::contender::{self, Contender, Key, LIMIT, MIDNIGHT_US, WINDOW_US};
use crate::lease;
use crate::random::Random;
use crate::table::{Table, seconds, times};

/// The memory of a key that was called at random times, as often as its limit allows, for three windows.
fn busy_bytes(contender: &Contender, limit: u64) -> usize {
    let mut random = Random::new(2);
    let mut key = Key::new(contender);
    let mut most = 0;
    let mut now_us = MIDNIGHT_US;
    while now_us < MIDNIGHT_US + 3 * WINDOW_US {
        let _ = key.call(now_us);
        most = most.max(key.bytes());
        now_us += random.gap(WINDOW_US as f64 / limit as f64) as u64;
    }
    most
}

pub fn choosing_table() -> Table {
    let mut table = Table::new(&[
        "",
        "state",
        "burst at once",
        "most in any window",
        "seen with an adversary",
        "use it",
    ]);
    for contender in contender::shown() {
        let (burst, most, pick) = match contender.limit {
            Limit::Slide(_) if contender.parts == 1 => (
                "limit",
                "below 2 × limit",
                "for requests per minute, with limits of about 10 and more",
            ),
            Limit::Slide(_) => (
                "limit",
                "1 × limit",
                "for a hard limit in one small key, if units may return up to ⅛ of a window late",
            ),
            Limit::Exact(_) => (
                "limit",
                "1 × limit",
                "where not one call too many is acceptable: logins, codes, payments; and for small limits",
            ),
            Limit::Fixed(_) => (
                "limit",
                "2 × limit, even at one instant",
                "for quotas by the calendar: 10 000 per day or month, from 00:00 UTC",
            ),
            Limit::Bucket(_) => (
                "capacity",
                "capacity + refill",
                "to allow a burst of one size and a steady rate of another",
            ),
            Limit::Leak(_) => (
                "1; the others wait their turn",
                "capacity + rate admitted, 1 × rate released",
                "to smooth what you send: a partner's API, email, a slow backend",
            ),
            // Leases have a row of their own below, and a policy consists of the others.
            Limit::Lease(_) | Limit::Policy(_) => continue,
        };
        let verdict = adversary::attack(&contender).verdict();
        table.row([
            format!("[{}](#{})", contender.name(), contender.anchor()),
            format!("{} B", busy_bytes(&contender, LIMIT)),
            burst.into(),
            most.into(),
            times(verdict.most, LIMIT),
            pick.into(),
        ]);
    }
    table.row([
        "[LEASE](#lease)".into(),
        format!("{} B, {} holders", lease::scene().bytes, lease::LIMIT),
        "limit".into(),
        "limit held at any time".into(),
        times(lease::most(&lease::scene()), lease::LIMIT),
        "for work that takes long: at most five reports at once".into(),
    ]);
    table
}

pub fn precision_table() -> Table {
    let mut table = Table::new(&[
        "PRECISION",
        "part of a 60 s window",
        "units return after at most",
        "most in any window",
        "seen with an adversary",
        "allowed per window, always at the limit of 100",
        "state",
    ]);
    for parts in [2, 4, 8, 16, 32, 60] {
        let contender = contender::slide(parts);
        let part_us = WINDOW_US.div_ceil(parts.into());
        let verdict = adversary::attack(&contender).verdict();
        table.row([
            parts.to_string(),
            seconds(part_us),
            seconds(part_us * u64::from(parts + 1)),
            "1 × limit".into(),
            times(verdict.most, LIMIT),
            allowed_per_window(&contender),
            format!("{} B", busy_bytes(&contender, LIMIT)),
        ]);
    }
    table
}

/// For several limits, how many calls per window a caller gets that always retries when the reply says so.
pub fn small_table() -> Table {
    const LIMITS: [u64; 7] = [1, 2, 3, 5, 10, 50, 100];
    let heads = LIMITS.map(|limit| limit.to_string());
    let mut heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    heads.insert(0, "limit");
    let mut table = Table::new(&heads);
    let contenders: [fn(u64) -> Contender; 3] = [
        |units| contender::slide_of(1, units),
        |units| contender::slide_of(60, units),
        contender::exact,
    ];
    for contender in contenders {
        let name = contender(1).name();
        let cells = LIMITS.map(|limit| allowed_per_window(&contender(limit)));
        let [a, b, c, d, e, f, g] = cells;
        table.row([name, a, b, c, d, e, f, g]);
    }
    table
}

fn allowed_per_window(contender: &Contender) -> String {
    const WINDOWS: u64 = 100;
    // The first windows are different, because the key starts empty.
    let begin_us = MIDNIGHT_US + 4 * WINDOW_US;
    let mut key = Key::new(contender);
    let (mut now_us, mut allowed) = (MIDNIGHT_US, 0);
    while now_us < begin_us + WINDOWS * WINDOW_US {
        let decision = key.call(now_us);
        if !decision.allowed {
            now_us += decision.retry_after_ms as u64 * 1000;
        } else if now_us >= begin_us {
            allowed += 1;
        }
    }
    format!("{:.1}", f64::from(allowed) / WINDOWS as f64)
}

/// The size of EXACT's log for several limits.
pub fn log_table() -> Table {
    let mut table = Table::new(&["EXACT, units per minute", "state", "per unit"]);
    for limit in [10, 100, 1000, 10_000, 100_000] {
        let bytes = busy_bytes(&contender::exact(limit), limit);
        table.row([
            limit.to_string(),
            format!("{bytes} B"),
            format!("{:.1} B", bytes as f64 / limit as f64),
        ]);
    }
    table
}

//! The tables for choosing: what each algorithm promises, and what it was seen to do and to take.

use rl_core::Limit;

use crate::adversary;
use crate::contender::{self, Contender, Key, LIMIT, MIDNIGHT_US, WINDOW_US};
use crate::lease;
use crate::random::Random;
use crate::table::{Table, seconds, times};

/// Memory of a key that was as busy as its limit allows for three windows, at random times.
fn busy_bytes(contender: &Contender, limit: u64) -> usize {
    let mut random = Random::new(2);
    let mut key = Key::new(contender);
    let mut most = 0;
    let mut now_us = MIDNIGHT_US;
    while now_us < MIDNIGHT_US + 3 * WINDOW_US {
        key.call(now_us);
        most = most.max(key.bytes());
        now_us += random.gap(WINDOW_US as f64 / limit as f64) as u64;
    }
    most
}

pub fn choosing_table() -> Table {
    let mut table = Table::new(&[
        "",
        "memory of a state",
        "burst at once",
        "most in any window",
        "seen, by an adversary",
        "pick it",
    ]);
    for contender in contender::shown() {
        let (burst, most, pick) = match contender.limit {
            Limit::Slide(_) if contender.parts == 1 => (
                "limit",
                "below 2 × limit",
                "for almost everything: requests per minute of a client",
            ),
            Limit::Slide(_) => (
                "limit",
                "below 2 × limit; 1 × limit in any ⅞ of a window",
                "where clients time their calls against you, and the limit is large",
            ),
            Limit::Exact(_) => (
                "limit",
                "1 × limit",
                "where each one too many matters and limits are small: logins, codes, payments",
            ),
            Limit::Fixed(_) => (
                "limit",
                "2 × limit, even at one instant",
                "for quotas by the calendar: 10 000 a day from 00:00 UTC",
            ),
            Limit::Bucket(_) => (
                "capacity",
                "capacity + refill",
                "to allow bursts of one size and a flow of another",
            ),
            _ => (
                "1; the rest is told to wait",
                "capacity + rate admitted, 1 × rate released",
                "to smooth what you send: a partner's API, mails, a slow backend",
            ),
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
        "for what takes long: at most five reports at once".into(),
    ]);
    table
}

pub fn precision_table() -> Table {
    let mut table = Table::new(&[
        "PRECISION",
        "part of a 60 s window",
        "limit holds in any",
        "seen: shortest time for limit + 1",
        "most in any window",
        "… if no part has more than its share",
        "seen: most in any window",
        "memory of a state",
    ]);
    for parts in [1, 2, 4, 8, 16, 32, 64] {
        let contender = contender::slide(parts);
        let part_us = WINDOW_US.div_ceil(parts.into());
        let verdict = adversary::attack(&contender).verdict();
        table.row([
            parts.to_string(),
            seconds(part_us),
            match parts {
                1 => "instant".into(),
                _ => seconds(part_us * u64::from(parts - 1)),
            },
            verdict.shortest_us.map_or("—".into(), seconds),
            "below 2×".into(),
            format!("{:.3}×", 1.0 + 1.0 / f64::from(parts)),
            times(verdict.most, LIMIT),
            format!("{} B", busy_bytes(&contender, LIMIT)),
        ]);
    }
    table
}

/// What EXACT keeps, by its limit.
pub fn log_table() -> Table {
    let mut table = Table::new(&["EXACT, units in a minute", "memory of a state", "a unit"]);
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

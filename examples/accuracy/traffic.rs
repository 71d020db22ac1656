//! Traffic on one key. Times are in microseconds.

use crate::contender::{LIMIT, MIDNIGHT_US, WINDOW_US};
use crate::random::Random;

const SECOND_US: u64 = 1_000_000;
const DAY_US: u64 = 86_400 * SECOND_US;

pub struct Traffic {
    pub id: &'static str,
    pub name: &'static str,
    pub calls: Vec<u64>,
}

pub fn all() -> Vec<Traffic> {
    let traffic = |id, name, calls| Traffic { id, name, calls };
    vec![
        traffic("steady", "steady", steady()),
        traffic("poisson", "random bursts", poisson()),
        traffic("edges", "on and off at edges", edges()),
        traffic("minutely", "all on the minute", minutely()),
    ]
}

/// One day with a call every 500 ms: 1.2 times the limit.
fn steady() -> Vec<u64> {
    every(MIDNIGHT_US, MIDNIGHT_US + DAY_US, SECOND_US / 2).collect()
}

/// One day of bursts: on average one every 6 s, of 10 calls 20 ms apart. The average rate equals the limit.
fn poisson() -> Vec<u64> {
    let mut random = Random::new(1);
    let mut calls = Vec::new();
    let mut burst_s = 0.0;
    while burst_s < 86_400.0 {
        let mut call_s = burst_s;
        for _ in 0..random.geometric(10.0) {
            calls.push(at(call_s));
            call_s += random.gap(0.02);
        }
        burst_s += random.gap(6.0);
    }
    calls.sort_unstable();
    calls
}

/// One day with 8 calls per second from 15 s before to 15 s after every full minute.
fn edges() -> Vec<u64> {
    let quarter = WINDOW_US / 4;
    let edges = every(MIDNIGHT_US + WINDOW_US, MIDNIGHT_US + DAY_US, WINDOW_US);
    edges
        .flat_map(|edge| every(edge - quarter, edge + quarter, SECOND_US / 8))
        .collect()
}

/// One day in which the whole limit is called for within the first second of every minute.
fn minutely() -> Vec<u64> {
    let minutes = every(MIDNIGHT_US, MIDNIGHT_US + DAY_US, WINDOW_US);
    minutes
        .flat_map(|minute| every(minute, minute + SECOND_US, SECOND_US / LIMIT))
        .collect()
}

/// The traffic of the figures: calm, a burst across a window boundary, calm, three times the limit, silence.
pub fn scene() -> Vec<u64> {
    let minute = |minutes: u64| MIDNIGHT_US + minutes * WINDOW_US;
    let calm = every(minute(0), minute(2), SECOND_US * 5 / 4);
    let trick = every(
        minute(3) - SECOND_US,
        minute(3) + SECOND_US,
        SECOND_US / LIMIT,
    );
    let flood = every(minute(5), minute(8), SECOND_US / 5);
    calm.chain(trick).chain(flood).collect()
}

fn every(from_us: u64, until_us: u64, step_us: u64) -> impl Iterator<Item = u64> {
    (from_us..until_us).step_by(step_us as usize)
}

/// A number of seconds after midnight.
pub fn at(second: f64) -> u64 {
    MIDNIGHT_US + (second * 1e6) as u64
}

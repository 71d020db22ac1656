//! The circuit breaker: after enough failures in a row the server is left alone, and asked now and then whether
//! it is back. Callers are never the ones to find out.
//!
//! A cluster can fail in parts, so its slots are divided into lanes, each with a breaker of its own.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::key;

/// Enough that a shard's failure spares most lanes of the others, whatever the layout.
const CLUSTER_LANES: u16 = 64;

const CLOSED: u8 = 0;
const OPEN: u8 = 1;
const HALF_OPEN: u8 = 2;

/// When to give up on the server, and how often to ask whether it is back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Failures in a row that open the breaker.
    pub(crate) failures: u32,
    /// The pause before the first probe.
    pub(crate) shortest: Duration,
    /// Pauses double up to this.
    pub(crate) longest: Duration,
}

impl Patience {
    /// The pause before the next probe: `pause`, give or take half, so that a fleet does not probe in step.
    pub(crate) fn jittered(pause: Duration) -> Duration {
        pause.mul_f64(0.5 + fastrand::f64())
    }
}

pub(crate) struct Lanes {
    lanes: Box<[Lane]>,
    failures: u32,
}

struct Lane {
    state: AtomicU8,
    /// In a row.
    failures: AtomicU32,
    opened: Mutex<Option<Instant>>,
    probe_key: String,
}

impl Lanes {
    pub(crate) fn new(cluster: bool, failures: u32) -> Self {
        let count = if cluster { CLUSTER_LANES } else { 1 };
        let lanes = (0..count).map(|lane| Lane {
            state: AtomicU8::new(CLOSED),
            failures: AtomicU32::new(0),
            opened: Mutex::new(None),
            probe_key: probe_key(lane, count),
        });
        Self {
            lanes: lanes.collect(),
            failures: failures.max(1),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lanes.len()
    }

    /// The lane of a key.
    #[inline]
    pub(crate) fn of(&self, key: &[u8]) -> usize {
        match self.lanes.len() {
            1 => 0,
            count => lane_of_slot(key::slot(key), count as u16),
        }
    }

    #[inline]
    pub(crate) fn is_closed(&self, lane: usize) -> bool {
        self.lanes[lane].state.load(Relaxed) == CLOSED
    }

    /// Whether the last call failed.
    pub(crate) fn is_failing(&self, lane: usize) -> bool {
        self.lanes[lane].failures.load(Relaxed) > 0
    }

    /// A key of the lane, to probe with. Nothing is ever stored under it.
    pub(crate) fn probe_key(&self, lane: usize) -> &str {
        &self.lanes[lane].probe_key
    }

    #[inline]
    pub(crate) fn succeeded(&self, lane: usize) {
        let failures = &self.lanes[lane].failures;
        if failures.load(Relaxed) != 0 {
            failures.store(0, Relaxed);
        }
    }

    /// Counts a failure; `fatal` ones need no repetition. True if this one opened the breaker.
    pub(crate) fn failed(&self, lane: usize, fatal: bool) -> bool {
        let row = self.lanes[lane]
            .failures
            .fetch_add(1, Relaxed)
            .saturating_add(1);
        (fatal || row >= self.failures) && self.open(lane)
    }

    /// True if the breaker was closed until now.
    pub(crate) fn open(&self, lane: usize) -> bool {
        let lane = &self.lanes[lane];
        let opened = lane
            .state
            .compare_exchange(CLOSED, OPEN, Relaxed, Relaxed)
            .is_ok();
        if opened {
            *lane.opened.lock() = Some(Instant::now());
        }
        opened
    }

    pub(crate) fn half_open(&self, lane: usize) {
        self.lanes[lane].state.store(HALF_OPEN, Relaxed);
    }

    pub(crate) fn reopen(&self, lane: usize) {
        self.lanes[lane].state.store(OPEN, Relaxed);
    }

    /// How long the breaker was open.
    pub(crate) fn close(&self, lane: usize) -> Duration {
        let lane = &self.lanes[lane];
        lane.failures.store(0, Relaxed);
        lane.state.store(CLOSED, Relaxed);
        lane.opened
            .lock()
            .take()
            .map_or(Duration::ZERO, |opened| opened.elapsed())
    }

    /// How long a lane has been open.
    pub(crate) fn down_for(&self, lane: usize) -> Duration {
        let opened = *self.lanes[lane].opened.lock();
        opened.map_or(Duration::ZERO, |opened| opened.elapsed())
    }

    /// Open lanes, and how long the longest has been open.
    pub(crate) fn down(&self) -> (usize, Option<Duration>) {
        let open = (0..self.len()).filter(|&lane| !self.is_closed(lane));
        let since = self
            .lanes
            .iter()
            .filter_map(|lane| *lane.opened.lock())
            .min();
        (open.count(), since.map(|opened| opened.elapsed()))
    }
}

fn lane_of_slot(slot: u16, lanes: u16) -> usize {
    usize::from(slot / (key::SLOTS / lanes))
}

fn probe_key(lane: u16, lanes: u16) -> String {
    let candidates = (0_u32..).map(|n| format!("rl:probe:{n}"));
    let mut fitting = candidates.filter(|key| {
        lanes == 1 || lane_of_slot(key::slot(key.as_bytes()), lanes) == usize::from(lane)
    });
    fitting.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_open_and_a_success_begins_anew() {
        let lanes = Lanes::new(false, 3);
        assert!(!lanes.failed(0, false) && !lanes.failed(0, false));
        lanes.succeeded(0);
        assert!(!lanes.failed(0, false) && !lanes.failed(0, false));
        assert!(lanes.is_closed(0));
        assert!(lanes.failed(0, false), "the third opens");
        assert!(!lanes.failed(0, false), "it opens only once");
        assert!(!lanes.is_closed(0));
        lanes.half_open(0);
        assert!(!lanes.is_closed(0), "callers wait for the probe");
        lanes.close(0);
        assert!(lanes.is_closed(0) && lanes.down() == (0, None));
    }

    #[test]
    fn a_lost_connection_opens_at_once() {
        let lanes = Lanes::new(false, 3);
        assert!(lanes.failed(0, true));
        assert_eq!(lanes.down().0, 1);
    }

    #[test]
    fn lanes_of_a_cluster_are_probed_where_they_are() {
        let lanes = Lanes::new(true, 3);
        assert_eq!(lanes.len(), usize::from(CLUSTER_LANES));
        for lane in 0..lanes.len() {
            assert_eq!(lanes.of(lanes.probe_key(lane).as_bytes()), lane);
        }
        assert_eq!(lanes.of(b"{u42}:a"), lanes.of(b"{u42}:b"));
    }

    #[test]
    fn pauses_spread() {
        let pause = Duration::from_millis(100);
        for _ in 0..1000 {
            let jittered = Patience::jittered(pause);
            assert!(jittered >= pause / 2 && jittered <= pause * 3 / 2);
        }
    }
}

//! The circuit breaker: after several consecutive failures, calls no longer go to the server, and a background probe
//! finds out when it is back. Callers never wait for that.
//!
//! A cluster can fail in parts, so its slots are divided into groups, each with its own breaker.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use rl_core::cluster::{SLOTS, slot};

/// Enough groups that a failed shard affects few slots of the other shards, whatever the layout.
const CLUSTER_SLOT_GROUPS: u16 = 64;

const CLOSED: u8 = 0;
const OPEN: u8 = 1;
const HALF_OPEN: u8 = 2;

/// When to stop calling the server, and how often to probe it afterwards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    /// Consecutive failures that open the breaker.
    pub(crate) failures: u32,
    /// The pause before the first probe.
    pub(crate) shortest: Duration,
    /// The delay doubles with each probe, up to this.
    pub(crate) longest: Duration,
}

impl Backoff {
    /// The delay before the next probe: `pause` ± 50 %, so that many processes do not probe at the same moment.
    pub(crate) fn jittered(pause: Duration) -> Duration {
        pause.mul_f64(0.5 + fastrand::f64())
    }
}

pub(crate) struct SlotGroups {
    slot_groups: Box<[SlotGroup]>,
    failures: u32,
}

struct SlotGroup {
    state: AtomicU8,
    /// Consecutive failures.
    failures: AtomicU32,
    opened: Mutex<Option<Instant>>,
    probe_key: String,
}

impl SlotGroups {
    pub(crate) fn new(cluster: bool, failures: u32) -> Self {
        let count = if cluster { CLUSTER_SLOT_GROUPS } else { 1 };
        let slot_groups = (0..count).map(|group| SlotGroup {
            state: AtomicU8::new(CLOSED),
            failures: AtomicU32::new(0),
            opened: Mutex::new(None),
            probe_key: probe_key(group, count),
        });
        Self {
            slot_groups: slot_groups.collect(),
            failures: failures.max(1),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slot_groups.len()
    }

    /// The slot group of a key.
    #[inline]
    pub(crate) fn of(&self, key: &[u8]) -> usize {
        match self.slot_groups.len() {
            1 => 0,
            count => group_of_slot(slot(key), count as u16),
        }
    }

    #[inline]
    pub(crate) fn is_closed(&self, group: usize) -> bool {
        self.slot_groups[group].state.load(Relaxed) == CLOSED
    }

    /// Whether the last call failed.
    pub(crate) fn is_failing(&self, group: usize) -> bool {
        self.slot_groups[group].failures.load(Relaxed) > 0
    }

    /// A key in the group, for probes. Nothing is ever stored under it.
    pub(crate) fn probe_key(&self, group: usize) -> &str {
        &self.slot_groups[group].probe_key
    }

    #[inline]
    pub(crate) fn succeeded(&self, group: usize) {
        let failures = &self.slot_groups[group].failures;
        if failures.load(Relaxed) != 0 {
            failures.store(0, Relaxed);
        }
    }

    /// Counts a failure; a `fatal` one opens the breaker immediately. Returns true if this one opened it.
    pub(crate) fn failed(&self, group: usize, fatal: bool) -> bool {
        let row = self.slot_groups[group]
            .failures
            .fetch_add(1, Relaxed)
            .saturating_add(1);
        (fatal || row >= self.failures) && self.open(group)
    }

    /// Returns true if the breaker was closed before.
    pub(crate) fn open(&self, group: usize) -> bool {
        let group = &self.slot_groups[group];
        let opened = group
            .state
            .compare_exchange(CLOSED, OPEN, Relaxed, Relaxed)
            .is_ok();
        if opened {
            *group.opened.lock() = Some(Instant::now());
        }
        opened
    }

    pub(crate) fn half_open(&self, group: usize) {
        self.slot_groups[group].state.store(HALF_OPEN, Relaxed);
    }

    pub(crate) fn reopen(&self, group: usize) {
        self.slot_groups[group].state.store(OPEN, Relaxed);
    }

    /// Closes the breaker and returns how long it was open.
    pub(crate) fn close(&self, group: usize) -> Duration {
        let group = &self.slot_groups[group];
        group.failures.store(0, Relaxed);
        group.state.store(CLOSED, Relaxed);
        group
            .opened
            .lock()
            .take()
            .map_or(Duration::ZERO, |opened| opened.elapsed())
    }

    /// How long a group has been open.
    pub(crate) fn down_for(&self, group: usize) -> Duration {
        let opened = *self.slot_groups[group].opened.lock();
        opened.map_or(Duration::ZERO, |opened| opened.elapsed())
    }

    /// The number of open groups, and how long the longest has been open.
    pub(crate) fn down(&self) -> (usize, Option<Duration>) {
        let open = (0..self.len()).filter(|&group| !self.is_closed(group));
        let since = self
            .slot_groups
            .iter()
            .filter_map(|group| *group.opened.lock())
            .min();
        (open.count(), since.map(|opened| opened.elapsed()))
    }
}

fn group_of_slot(slot: u16, slot_groups: u16) -> usize {
    usize::from(slot / (SLOTS / slot_groups))
}

fn probe_key(group: u16, slot_groups: u16) -> String {
    let candidates = (0_u32..).map(|n| format!("rl:probe:{n}"));
    let mut fitting = candidates.filter(|key| {
        slot_groups == 1 || group_of_slot(slot(key.as_bytes()), slot_groups) == usize::from(group)
    });
    fitting.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_failures_open_and_a_success_resets_the_count() {
        let slot_groups = SlotGroups::new(false, 3);
        assert!(!slot_groups.failed(0, false) && !slot_groups.failed(0, false));
        slot_groups.succeeded(0);
        assert!(!slot_groups.failed(0, false) && !slot_groups.failed(0, false));
        assert!(slot_groups.is_closed(0));
        assert!(slot_groups.failed(0, false), "the third opens");
        assert!(!slot_groups.failed(0, false), "it opens only once");
        assert!(!slot_groups.is_closed(0));
        slot_groups.half_open(0);
        assert!(!slot_groups.is_closed(0), "callers wait for the probe");
        slot_groups.close(0);
        assert!(slot_groups.is_closed(0) && slot_groups.down() == (0, None));
    }

    #[test]
    fn a_lost_connection_opens_at_once() {
        let slot_groups = SlotGroups::new(false, 3);
        assert!(slot_groups.failed(0, true));
        assert_eq!(slot_groups.down().0, 1);
    }

    #[test]
    fn each_slot_group_is_probed_with_one_of_its_own_keys() {
        let slot_groups = SlotGroups::new(true, 3);
        assert_eq!(slot_groups.len(), usize::from(CLUSTER_SLOT_GROUPS));
        for group in 0..slot_groups.len() {
            assert_eq!(
                slot_groups.of(slot_groups.probe_key(group).as_bytes()),
                group
            );
        }
        assert_eq!(slot_groups.of(b"{u42}:a"), slot_groups.of(b"{u42}:b"));
    }

    #[test]
    fn pauses_spread() {
        let pause = Duration::from_millis(100);
        for _ in 0..1000 {
            let jittered = Backoff::jittered(pause);
            assert!(jittered >= pause / 2 && jittered <= pause * 3 / 2);
        }
    }
}

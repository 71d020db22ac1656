//! A denied call copies no log, however the policy has changed since the log was written.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use rl_core::policy::Rules;
use rl_core::{Limit, Mode, State};

use crate::key::Key;
use crate::reservations::{reserve, settle};

const NOW: u64 = 1_700_000_000_123_457;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

/// Counts the bytes that each thread asks for.
struct Counting;

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

pub fn allocated_by(work: impl FnOnce()) -> usize {
    let before = ALLOCATED.get();
    work();
    ALLOCATED.get() - before
}

fn rules(text: &str) -> Rules {
    Rules::parse(&mut text.split(' ').map(str::as_bytes)).unwrap()
}

const ENTRIES: u64 = 300_000;

/// A key that has used a limit of 300 000 to the last unit.
fn full(text: &str) -> State {
    let rules = rules(text);
    let (limit, cost) = (rules.limit().unwrap(), 1);
    let mut state: Option<State> = None;
    for call in 0..ENTRIES {
        let outcome = limit.evaluate(state.as_ref(), NOW + call, cost, Mode::Check);
        let outcome = outcome.unwrap();
        assert!(outcome.decision.allowed);
        match (&mut state, outcome.update.unwrap()) {
            (Some(state), next) => state.apply(next),
            (empty, next) => *empty = next.into_initial(),
        }
    }
    state.unwrap()
}

#[test]
fn a_denied_call_copies_no_log_after_a_policy_change() {
    let one = full("EXACT 300000 1h");
    let several = full("EXACT 300000 1h SLIDE 300000 1h");
    assert!(one.heap_bytes() > 300_000 && several.heap_bytes() > 300_000);
    for (state, text) in [
        (&one, "EXACT 300000 1h SLIDE 9 1h"),
        (&one, "EXACT 7 1h BUCKET 9 1 1h SLIDE 9 1h FIXED 9 1h"),
        (&several, "EXACT 300000 1h"),
        (&several, "EXACT 7 1m"),
        (&several, "EXACT 300000 1h SLIDE 9 2h FIXED 9 1h"),
        (&several, "BUCKET 9 1 1h EXACT 300000 1h"),
        (&several, "SLIDE 9 1h EXACT 9 1h"),
    ] {
        let rules = rules(text);
        let (limit, cost) = (rules.limit().unwrap(), 1);
        assert!(!limit.fits(state), "{text}");
        let bytes = allocated_by(|| {
            let carried_over = limit.carry_over(state).unwrap().unwrap();
            let outcome = carried_over.evaluate(&limit, NOW + ENTRIES, cost, Mode::Check);
            let outcome = outcome.unwrap();
            assert!(!outcome.decision.allowed, "{text}");
            assert_eq!(outcome.update, None, "{text}");
        });
        assert!(bytes < 8192, "{text}: {bytes} bytes");
    }
}

/// What a bucket remembers for reservations is copied only by calls that change it.
#[test]
fn a_call_that_a_marked_bucket_denies_allocates_nothing() {
    let (limit, mut key) = (crate::key::bucket(10, 1, 1000), Key::default());
    let reserved = [0, 1].map(|n| reserve(&mut key, &limit, NOW + n, 5));
    settle(&mut key, &reserved[1], NOW + 2, 3);
    let bytes = allocated_by(|| {
        assert!(!key.peek(&limit, NOW + 2, 5).allowed);
    });
    assert_eq!(bytes, 0);
}

/// Nor does one that is denied by another limit, which has to be written because it drains more slowly now.
#[test]
fn a_denial_that_is_written_is_a_step() {
    let several = full("EXACT 300000 1h BUCKET 300000 300000 1h");
    let rules = rules("EXACT 400000 1h BUCKET 300000 300000 2h");
    let (limit, cost) = (rules.limit().unwrap(), 100);
    assert!(!limit.fits(&several));
    let bytes = allocated_by(|| {
        let carried_over = limit.carry_over(&several).unwrap().unwrap();
        let outcome = carried_over.evaluate(&limit, NOW + ENTRIES, cost, Mode::Check);
        let outcome = outcome.unwrap();
        assert!(!outcome.decision.allowed);
        assert!(outcome.update.is_some());
    });
    assert!(bytes < 8192, "{bytes} bytes");
}

#[test]
fn an_allowed_call_goes_on_with_the_whole_log() {
    let one = full("EXACT 300000 1h");
    let rules = rules("EXACT 300005 1h SLIDE 9 1h");
    let (limit, cost) = (rules.limit().unwrap(), 5);
    let carried_over = limit.carry_over(&one).unwrap().unwrap();
    let outcome = carried_over.evaluate(&limit, NOW + ENTRIES, cost, Mode::Check);
    let outcome = outcome.unwrap();
    assert!(outcome.decision.allowed);
    let mut state = carried_over.into_state().unwrap();
    state.apply(outcome.update.unwrap());
    assert!(limit.fits(&state));
    let denied = limit.evaluate(Some(&state), NOW + ENTRIES, 1, Mode::Check);
    assert_eq!(denied.unwrap().decision.remaining, 0);
    assert_eq!(
        state.refund(NOW + ENTRIES, u64::MAX).unwrap().units,
        300_005
    );
}

/// The blob of a state with a log is written from where the log is kept.
#[test]
fn a_state_is_written_without_a_copy_of_its_log() {
    let several = full("EXACT 300000 1h SLIDE 300000 1h");
    let mut written = 0;
    let bytes = allocated_by(|| written = several.blob().len());
    let log = Limit::Exact(rl_core::ExactLimit::new(1, 1).unwrap());
    assert!(log.carry_over(&several).unwrap().is_some());
    // The log's own blob, the whole, and what growing step by step wastes.
    assert!(bytes < 8 * written, "{bytes} for {written}");
}

//! Defragmentation sees every allocation of a value exactly once, even if it is interrupted after each.

use rl_core::policy::Rules;
use rl_core::policy::{Override, Overrides};
use rl_core::{Mode, Relocate, State};

use crate::key::Key;
use crate::reservations::{reserve, settle};

const NOW: u64 = 1_700_000_000_123_457;

/// Moves everything, and stops after so many pieces.
#[derive(Default)]
struct Mover {
    /// The size of each piece that was moved.
    sizes: Vec<usize>,
    stop_after: usize,
    since: usize,
}

impl Mover {
    fn moved(&mut self, size: usize) {
        self.sizes.push(size);
        self.since += 1;
    }
}

impl Relocate for Mover {
    fn list<T>(&mut self, list: &mut Vec<T>) {
        let mut elsewhere = Vec::with_capacity(list.capacity());
        elsewhere.append(list);
        self.moved(size_of_val(&*elsewhere));
        *list = elsewhere;
    }

    fn slice<T>(&mut self, slice: &mut Box<[T]>) {
        let mut list = std::mem::take(slice).into_vec();
        self.list(&mut list);
        *slice = list.into();
    }

    fn text(&mut self, text: &mut Box<str>) {
        self.moved(text.len());
        *text = text.to_string().into();
    }

    fn value<T>(&mut self, value: &mut Box<T>) {
        self.moved(size_of_val(&**value));
    }

    fn should_stop(&mut self) -> bool {
        self.stop_after > 0 && self.since == self.stop_after
    }
}

/// A key after `calls` calls.
fn key(limits: &str, calls: u64) -> State {
    let rules = Rules::parse(&mut limits.split(' ').map(str::as_bytes)).unwrap();
    let (limit, cost) = (rules.limit().unwrap(), 1);
    let mut state: Option<State> = None;
    for call in 0..calls {
        let outcome = limit.evaluate(state.as_ref(), NOW + call * 1000, cost, Mode::Check);
        match (&mut state, outcome.unwrap().update.unwrap()) {
            (Some(state), next) => state.apply(next),
            (empty, next) => *empty = next.into_initial(),
        }
    }
    state.unwrap()
}

/// A key with three reservations, of which the second is settled.
fn reserved(limits: &str) -> State {
    let rules = Rules::parse(&mut limits.split(' ').map(str::as_bytes)).unwrap();
    let limit = rules.limit().unwrap();
    let mut key = Key::default();
    let reserved: Vec<_> = (0..3)
        .map(|n| reserve(&mut key, &limit, NOW + n, 10))
        .collect();
    settle(&mut key, &reserved[1], NOW + 3, 4);
    key.0.unwrap()
}

#[test]
fn every_piece_is_seen_once() {
    for (limits, calls, pieces) in [
        ("SLIDE 900 1h", 3, 0),
        ("SLIDE 900 1h PRECISION 30", 3, 1),
        // The list of chunks, and each of them.
        ("EXACT 900 1h", 3, 2),
        (
            "EXACT 9000 1h",
            1000,
            1 + key("EXACT 9000 1h", 1000).allocations(),
        ),
        ("SLIDE 900 1h SLIDE 90 1m", 3, 0),
        // The list of rules, the first and its counts, the second, its list and its chunk.
        ("SLIDE 900 1h PRECISION 30 EXACT 900 1h SLIDE 90 1m", 3, 6),
    ] {
        check_pieces(limits, key(limits, calls), pieces);
    }
    for (limits, pieces) in [
        // The mark and its refunds.
        ("BUCKET 900 1 1h", 2),
        ("LEAK 900 1 1h", 2),
        ("SLIDE 900 1h", 0),
        // The list of rules, and each of the last two with its mark and its refunds.
        ("SLIDE 900 1h BUCKET 900 1 1h LEAK 900 1 1h", 7),
    ] {
        let state = reserved(limits);
        check_pieces(limits, state.clone(), pieces);
        let bytes = moved(&mut state.clone()).iter().sum::<usize>();
        assert_eq!(state.heap_bytes(), bytes, "{limits}");
    }
}

/// The sizes of all pieces.
fn moved(state: &mut State) -> Vec<usize> {
    let mut mover = Mover::default();
    assert_eq!(state.relocate(&mut mover, 0), None);
    mover.sizes
}

fn check_pieces(limits: &str, mut state: State, pieces: usize) {
    let before = state.clone();
    let sizes = moved(&mut state);
    assert_eq!(state, before);
    assert_eq!(sizes.len(), pieces, "{limits}");
    assert!(sizes.iter().all(|size| *size > 0));
    // Interrupted after each.
    for stop_after in 1..4 {
        let mut seen = Vec::new();
        let mut from = Some(0);
        while let Some(place) = from {
            let mut some = Mover {
                stop_after,
                ..Mover::default()
            };
            from = state.relocate(&mut some, place);
            assert!(some.sizes.len() <= stop_after);
            seen.extend(some.sizes);
        }
        assert_eq!(seen, sizes, "{limits}");
        assert_eq!(state, before);
    }
}

#[test]
fn leases_are_a_list_and_their_holders() {
    let mut state: Option<State> = None;
    for holder in ["one", "another", "third"] {
        let limit = rl_core::LeaseLimit::new(9, 60_000, holder.as_bytes()).unwrap();
        let limit = rl_core::Limit::Lease(limit);
        let next = limit
            .evaluate(state.as_ref(), NOW, 1, Mode::Check)
            .unwrap()
            .update
            .unwrap();
        match (&mut state, next) {
            (Some(state), next) => state.apply(next),
            (empty, next) => *empty = next.into_initial(),
        }
    }
    let mut state = state.unwrap();
    let before = state.clone();
    let mut mover = Mover::default();
    assert_eq!(state.relocate(&mut mover, 0), None);
    assert_eq!(state, before);
    let mut names = mover.sizes[1..].to_vec();
    names.sort_unstable();
    assert_eq!(names, [3, 5, 7]);
}

#[test]
fn overrides_are_a_list_and_what_each_has() {
    let mut all = Overrides::default();
    for line in ["p SLIDE 5 1h SLIDE 9 1d NOTE hello", "longer BLOCK"] {
        let mut words = line.split(' ').map(str::as_bytes);
        let entry = Override::parse(&mut words, NOW).unwrap();
        all = all.with(entry, NOW).unwrap();
    }
    let before = all.clone();
    let mut mover = Mover::default();
    all.relocate(&mut mover);
    assert_eq!(all, before);
    // Sorted by policy: the list; the second's name and empty note; the first's name, note and limits.
    assert_eq!(mover.sizes[1..5], [6, 0, 1, 5]);
    assert_eq!(mover.sizes.len(), 6);
}

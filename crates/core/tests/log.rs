//! Long logs: several hundred chunks, compact, trimmed little by little, bounded.

use crate::key::{Key, MINUTE, MS, NOW, SECOND, exact, wait};
use rl_core::{FieldValue, MAX_COUNT, MAX_EXACT_LIMIT, MAX_PERIOD_MS, Mode, State, StateField};

fn field(state: &State, name: &str, now_us: u64) -> u64 {
    let fields = state.inspect(now_us);
    match fields.into_iter().find(|field| field.name == name) {
        Some(StateField {
            value: FieldValue::Number(number),
            ..
        }) => number,
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn a_hundred_thousand_entries_are_found_as_in_a_list() {
    let window_ms = 3_600_000;
    let (mut key, mut list, mut now) = (Key::default(), Vec::new(), NOW);
    for call in 0..100_000u64 {
        now += 1 + call * call * 7919 % 20_011;
        let units = if call % 7 == 0 { 1 + call % 1000 } else { 1 };
        key.force(&exact(MAX_EXACT_LIMIT, window_ms), now, units);
        list.push((now, units));
    }
    assert!(key.0.as_ref().unwrap().allocations() > 500);
    // Peeking under shorter windows puts the horizon anywhere in the log.
    for probe in 0..2000u64 {
        let window_ms = 1 + probe * probe * 331 % 1_100_000;
        let window = window_ms * MS;
        let in_window = || list.iter().filter(|&&(at, _)| now - at < window);
        let used: u64 = in_window().map(|(_, units)| units).sum();
        let size = used / (1 + probe % 5);
        let answer = key.peek(&exact(size.min(MAX_EXACT_LIMIT), window_ms), now, 1);
        assert_eq!(
            answer.remaining,
            size.min(MAX_EXACT_LIMIT).saturating_sub(used + 1)
        );
        if size == 0 || size > MAX_EXACT_LIMIT {
            continue;
        }
        // The wait ends when the entry leaves that brings usage down to `size − 1`.
        let mut left = used;
        let makes_room = in_window().find(|(_, units)| {
            left -= units;
            left < size
        });
        let leaves = makes_room.unwrap().0 + window;
        assert_eq!(
            wait(answer) as u64,
            (leaves - now).div_ceil(MS),
            "probe {probe}"
        );
    }
}

#[test]
fn a_wait_ends_with_the_last_entry_in_the_way_wherever_chunks_end() {
    let (limit, mut key) = (exact(600, 60_000), Key::default());
    for call in 0..600 {
        key.call(&limit, NOW + call * MS, 1);
    }
    assert!(key.0.as_ref().unwrap().allocations() > 2);
    let now = NOW + 600 * MS;
    for cost in 1..=600 {
        let leaves = NOW + (cost - 1) * MS + MINUTE;
        let answer = key.peek(&limit, now, cost);
        assert_eq!(wait(answer) as u64, (leaves - now) / MS, "cost {cost}");
    }
}

#[test]
fn an_entry_takes_about_3_bytes_at_1000_calls_a_minute() {
    let (limit, mut key) = (exact(1_000_000, 3_600_000), Key::default());
    for call in 0..60_000 {
        key.call(&limit, NOW + call * 60 * MS + call * 7919 % 40_000, 1);
    }
    let state = key.0.unwrap();
    let bytes = state.heap_bytes() as f64 / 60_000.0;
    assert!(bytes < 4.0, "{bytes} bytes");
    let blob = state.blob().len() as f64 / 60_000.0;
    assert!(blob < 3.2, "{blob} bytes");
    assert_eq!(field(&state, "entry_count", NOW), 60_000);
    assert_eq!(field(&state, "log_bytes", NOW), state.heap_bytes() as u64);
    // Read back, it takes no more.
    let copy = State::decode_blob(&state.blob()).unwrap();
    assert!(copy.heap_bytes() <= state.heap_bytes());
}

#[test]
fn a_small_log_takes_little() {
    let mut key = Key::default();
    key.call(&exact(5, 60_000), NOW, 1);
    assert!(key.0.as_ref().unwrap().heap_bytes() < 100);
    for call in 1..5 {
        key.call(&exact(5, 60_000), NOW + call * SECOND, 1);
    }
    assert!(key.0.unwrap().heap_bytes() < 150);
}

#[test]
fn units_of_one_moment_are_one_entry() {
    let (limit, mut key) = (exact(MAX_EXACT_LIMIT, 1000), Key::default());
    for call in 0..10_000 {
        key.call(&limit, NOW + call / 5000, 1);
    }
    let state = key.0.as_ref().unwrap();
    assert_eq!(field(state, "entry_count", NOW), 2);
    assert_eq!(field(state, "used", NOW + 1), 10_000);
    assert!(state.blob().len() < 40);
    assert_eq!(key.remaining(&limit, NOW + SECOND), MAX_EXACT_LIMIT - 5000);
}

#[test]
fn a_busy_log_forgets_as_fast_as_it_grows() {
    let (limit, mut key) = (exact(MAX_EXACT_LIMIT, 1000), Key::default());
    for call in 0..50_000 {
        key.call(&limit, NOW + call * MS, 1);
        let entries = field(key.0.as_ref().unwrap(), "entry_count", NOW);
        // 1000 are in use; a chunk at most waits for its last entry.
        let in_use = (call + 1).min(1000);
        assert!((in_use..1300).contains(&entries), "{entries}");
    }
}

#[test]
fn what_is_over_goes_a_little_with_every_call_and_counts_no_more() {
    let (limit, mut key) = (exact(MAX_EXACT_LIMIT, 60_000), Key::default());
    for call in 0..50_000 {
        key.call(&limit, NOW + call * MS, 1);
    }
    let mut pieces = key.0.as_ref().unwrap().allocations();
    let later = NOW + 50 * SECOND + MINUTE;
    for call in 0..100 {
        let answer = key.call(&limit, later + call, 1);
        assert_eq!(answer.remaining, MAX_EXACT_LIMIT - call - 1);
        let now = key.0.as_ref().unwrap().allocations();
        assert!(now + 16 >= pieces, "no call frees more than 16 chunks");
        pieces = now;
    }
    assert!(pieces <= 2);
    // Idle for longer than any window, all of it goes at once.
    for call in 0..50_000 {
        key.call(&limit, later + call * MS, 1);
    }
    key.call(&limit, later + 3651 * 24 * 60 * MINUTE, 1);
    assert_eq!(key.0.unwrap().allocations(), 1);
}

#[test]
fn memory_is_that_of_the_chunks_and_of_their_entries() {
    let bytes = |entries: u64| {
        let mut key = Key::default();
        for call in 0..entries {
            key.call(&exact(MAX_EXACT_LIMIT, 60_000), NOW + call, 1);
        }
        let state = key.0.unwrap();
        (state.heap_bytes(), state.allocations())
    };
    // A chunk is 64 bytes; the first list has room for one, and its entries for 8.
    assert_eq!(bytes(1), (64 + 8, 1));
    assert_eq!(bytes(8), (64 + 8, 1));
    assert_eq!(bytes(9), (64 + 16, 1));
    let (two, pieces) = bytes(494);
    assert_eq!((two % 64, pieces), (8, 2));
}

#[test]
fn a_copy_takes_no_more_memory_than_its_chunks_need() {
    // A byte for each entry: 493 of them in a chunk.
    let (limit, mut key) = (exact(MAX_EXACT_LIMIT, 60_000), Key::default());
    for call in 0..21 * 493 {
        key.call(&limit, NOW + call, 1);
    }
    let now = NOW + 21 * 493;
    let blob = key.0.unwrap().blob();
    let mut copy = Key(Some(State::decode_blob(&blob).unwrap()));
    let bytes = |key: &Key| key.0.as_ref().unwrap().heap_bytes();
    assert_eq!(bytes(&copy), 21 * (64 + 493));
    // A refund of whole chunks frees their entries, and leaves the other chunks as they are.
    assert_eq!(copy.refund(now, 2 * 493), 2 * 493);
    assert_eq!(bytes(&copy), 21 * 64 + 19 * 493);
}

#[test]
fn a_log_that_never_ends_counts_on() {
    // 5000 times the largest cost is more than 64 bits hold; only what is in use has to fit.
    let (limit, mut key) = (exact(10, 1), Key::default());
    for call in 0..5000 {
        let now = NOW + call * SECOND;
        key.force(&limit, now, MAX_COUNT);
        assert_eq!(field(key.0.as_ref().unwrap(), "used", now), MAX_COUNT);
    }
    let state = key.0.as_ref().unwrap();
    assert!(state.allocations() < 4, "{}", state.allocations());
    assert_eq!(
        State::decode_blob(&state.blob()).unwrap().blob(),
        state.blob()
    );
    assert_eq!(key.refund(NOW + 4999 * SECOND, u64::MAX), MAX_COUNT);
}

#[test]
fn a_log_that_is_never_idle_counts_on() {
    // 20 000 times this cost is more than 64 bits hold, and there are always units in use.
    let (limit, mut key, cost) = (exact(10, 60_000), Key::default(), 1 << 50);
    for call in 0..20_000 {
        let now = NOW + call * 10 * SECOND;
        key.force(&limit, now, cost);
        let used = field(key.0.as_ref().unwrap(), "used", now);
        assert_eq!(used, (call + 1).min(6) * cost, "call {call}");
    }
}

#[test]
fn a_log_of_many_chunks_that_is_never_idle_counts_on() {
    // 200 calls are in use, in several chunks, when the sums restart after some 256 calls.
    let (limit, mut key, cost) = (exact(10, 200_000), Key::default(), 1 << 48);
    for call in 0..2000 {
        let now = NOW + call * SECOND;
        key.force(&limit, now, cost);
        let state = key.0.as_ref().unwrap();
        assert!(call < 200 || state.allocations() > 3);
        assert_eq!(
            field(state, "used", now),
            (call + 1).min(200) * cost,
            "call {call}"
        );
    }
}

#[test]
fn usage_is_counted_up_to_2_to_the_56() {
    let (limit, mut key) = (exact(10, 60_000), Key::default());
    for call in 0..10 {
        key.force(&limit, NOW + call, MAX_COUNT);
    }
    let used = |key: &Key| field(key.0.as_ref().unwrap(), "used", NOW + 20);
    assert_eq!(used(&key), 1 << 56);
    // What is refunded can be counted again, and no more.
    assert_eq!(key.refund(NOW + 20, 100), 100);
    assert_eq!(used(&key), (1 << 56) - 100);
    key.force(&limit, NOW + 20, 99);
    assert_eq!(used(&key), (1 << 56) - 1);
    key.force(&limit, NOW + 20, 99);
    assert_eq!(used(&key), 1 << 56);
}

#[test]
fn a_refund_leaves_no_empty_chunk() {
    // A byte for each entry: 493 of them in a chunk.
    let (limit, mut key) = (exact(MAX_EXACT_LIMIT, 60_000), Key::default());
    for call in 0..2 * 493 + 7 {
        key.call(&limit, NOW + call, 1);
    }
    let now = NOW + 1000;
    let whole = key.0.unwrap();
    assert_eq!(whole.allocations(), 3);
    for (units, pieces) in [(1, 3), (6, 3), (7, 2), (8, 2), (499, 2), (500, 1), (501, 1)] {
        let mut left = Key(Some(whole.clone()));
        assert_eq!(left.refund(now, units), units);
        let left = left.0.unwrap();
        assert_eq!(left.allocations(), pieces, "{units} units");
        assert_eq!(field(&left, "used", now), 2 * 493 + 7 - units);
        assert_eq!(field(&left, "entry_count", now), 2 * 493 + 7 - units);
        assert_eq!(
            State::decode_blob(&left.blob()).as_ref(),
            Ok(&left),
            "{units} units"
        );
    }
}

#[test]
fn only_after_more_than_the_longest_window_all_of_it_goes_at_once() {
    let (limit, mut key) = (exact(MAX_EXACT_LIMIT, 1000), Key::default());
    for call in 0..20_000 {
        key.call(&limit, NOW + call, 1);
    }
    let chunks = key.0.as_ref().unwrap().allocations();
    assert!(chunks > 30, "{chunks}");
    let last = NOW + 19_999;
    let longest = MAX_PERIOD_MS * MS;
    for (later, left) in [(longest, chunks - 16), (longest + 1, 1)] {
        let mut key = key.clone();
        key.call(&limit, last + later, 1);
        // At the border one chunk more takes the new entry, unless the last one has room for it.
        let pieces = key.0.as_ref().unwrap().allocations();
        assert!((left..=left + 1).contains(&pieces), "{pieces} of {chunks}");
    }
}

#[test]
fn a_million_entries_are_as_many_as_are_kept() {
    let (limit, mut key) = (exact(MAX_EXACT_LIMIT, 3_600_000), Key::default());
    for call in 0..1_002_000 {
        key.store(&limit, NOW + call, 1, Mode::Force);
    }
    let (state, now) = (key.0.as_ref().unwrap(), NOW + 1_002_000);
    // Nothing forced is lost, only its moment is made later.
    assert_eq!(field(state, "used", now), 1_002_000);
    let entries = field(state, "entry_count", now);
    assert!((1_000_000..1_001_000).contains(&entries), "{entries}");
    assert!(state.heap_bytes() < 3_000_000);
    assert!(State::decode_blob(&state.blob()).is_ok());
}

#[test]
fn the_largest_limit_stays_exact_while_its_window_slides() {
    // One unit every microsecond, a million in a second: each that leaves makes room for one.
    let (limit, mut key) = (exact(MAX_EXACT_LIMIT, 1000), Key::default());
    for call in 0..MAX_EXACT_LIMIT {
        assert!(key.call(&limit, NOW + call, 1).allowed);
    }
    for call in MAX_EXACT_LIMIT..MAX_EXACT_LIMIT + 1000 {
        assert!(!key.peek(&limit, NOW + call, 2).allowed);
        assert!(key.call(&limit, NOW + call, 1).allowed, "call {call}");
    }
    // Nothing moved: the thousand leave one by one, a microsecond apart.
    for left in [999, 700, 501, 500, 100, 0] {
        let at = NOW + 2 * MAX_EXACT_LIMIT + 999 - left;
        assert_eq!(key.remaining(&limit, at), MAX_EXACT_LIMIT - left);
    }
}

#[test]
fn refunds_reach_back_over_chunks() {
    let (limit, mut key) = (exact(MAX_EXACT_LIMIT, 60_000), Key::default());
    for call in 0..10_000 {
        key.call(&limit, NOW + call, 1 + call % 2);
    }
    assert_eq!(key.refund(NOW + 10_000, 14_000), 14_000);
    assert_eq!(key.remaining(&limit, NOW + 10_000), MAX_EXACT_LIMIT - 1000);
    let state = key.0.as_ref().unwrap();
    assert_eq!(
        State::decode_blob(&state.blob()).unwrap().blob(),
        state.blob()
    );
    // The first are left, not the last: of 1, 2, 1, 2 … the first 1000 units are 667 entries.
    assert_eq!(field(state, "entry_count", NOW), 667);
    assert_eq!(
        key.remaining(&limit, NOW + MINUTE + 665),
        MAX_EXACT_LIMIT - 1
    );
    assert_eq!(key.remaining(&limit, NOW + MINUTE + 666), MAX_EXACT_LIMIT);
    assert_eq!(
        key.call(&limit, NOW + 10_000, 5).remaining,
        MAX_EXACT_LIMIT - 1005
    );
}

//! Long logs: several hundred chunks, compact, trimmed little by little, bounded.

#![allow(clippy::unwrap_used, missing_docs)]

mod key;

use key::{Key, MINUTE, MS, NOW, SECOND, exact, wait};
use rl_core::exact::MAX_LIMIT;
use rl_core::{Field, Mode, Shown, State};

fn field(state: &State, name: &str, now_us: u64) -> u64 {
    let fields = state.inspect(now_us);
    match fields.into_iter().find(|field| field.name == name) {
        Some(Field {
            value: Shown::Number(number),
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
        key.force(&exact(MAX_LIMIT, window_ms), now, units);
        list.push((now, units));
    }
    assert!(key.0.as_ref().unwrap().pieces() > 500);
    // Peeking under shorter windows puts the horizon anywhere in the log.
    for probe in 0..2000u64 {
        let window_ms = 1 + probe * probe * 331 % 1_100_000;
        let window = window_ms * MS;
        let in_window = || list.iter().filter(|&&(at, _)| now - at < window);
        let used: u64 = in_window().map(|(_, units)| units).sum();
        let size = used / (1 + probe % 5);
        let answer = key.peek(&exact(size.min(MAX_LIMIT), window_ms), now, 1);
        assert_eq!(
            answer.remaining,
            size.min(MAX_LIMIT).saturating_sub(used + 1)
        );
        if size == 0 || size > MAX_LIMIT {
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
    assert_eq!(field(&state, "entries", NOW), 60_000);
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
    let (limit, mut key) = (exact(MAX_LIMIT, 1000), Key::default());
    for call in 0..10_000 {
        key.call(&limit, NOW + call / 5000, 1);
    }
    let state = key.0.as_ref().unwrap();
    assert_eq!(field(state, "entries", NOW), 2);
    assert_eq!(field(state, "used", NOW + 1), 10_000);
    assert!(state.blob().len() < 40);
    assert_eq!(key.remaining(&limit, NOW + SECOND), MAX_LIMIT - 5000);
}

#[test]
fn a_busy_log_forgets_as_fast_as_it_grows() {
    let (limit, mut key) = (exact(MAX_LIMIT, 1000), Key::default());
    let mut most = 0;
    for call in 0..50_000 {
        key.call(&limit, NOW + call * MS, 1);
        most = most.max(field(key.0.as_ref().unwrap(), "entries", NOW));
    }
    // 1000 are in use; a chunk at most waits for its last entry.
    assert!((1000..1300).contains(&most), "{most}");
}

#[test]
fn what_is_over_goes_a_little_with_every_call_and_counts_no_more() {
    let (limit, mut key) = (exact(MAX_LIMIT, 60_000), Key::default());
    for call in 0..50_000 {
        key.call(&limit, NOW + call * MS, 1);
    }
    let mut pieces = key.0.as_ref().unwrap().pieces();
    let later = NOW + 50 * SECOND + MINUTE;
    for call in 0..100 {
        let answer = key.call(&limit, later + call, 1);
        assert_eq!(answer.remaining, MAX_LIMIT - call - 1);
        let now = key.0.as_ref().unwrap().pieces();
        assert!(now + 16 >= pieces, "no call frees more than 16 chunks");
        pieces = now;
    }
    assert!(pieces <= 2);
    // Idle for longer than any window, all of it goes at once.
    for call in 0..50_000 {
        key.call(&limit, later + call * MS, 1);
    }
    key.call(&limit, later + 3651 * 24 * 60 * MINUTE, 1);
    assert_eq!(key.0.unwrap().pieces(), 1);
}

#[test]
fn a_million_entries_are_as_many_as_are_kept() {
    let (limit, mut key) = (exact(MAX_LIMIT, 3_600_000), Key::default());
    for call in 0..1_002_000 {
        key.store(&limit, NOW + call, 1, Mode::Force);
    }
    let (state, now) = (key.0.as_ref().unwrap(), NOW + 1_002_000);
    // Nothing forced is lost, only its moment is made later.
    assert_eq!(field(state, "used", now), 1_002_000);
    let entries = field(state, "entries", now);
    assert!((1_000_000..1_001_000).contains(&entries), "{entries}");
    assert!(state.heap_bytes() < 3_000_000);
    assert!(State::decode_blob(&state.blob()).is_ok());
}

#[test]
fn the_largest_limit_stays_exact_while_its_window_slides() {
    // One unit every microsecond, a million in a second: each that leaves makes room for one.
    let (limit, mut key) = (exact(MAX_LIMIT, 1000), Key::default());
    for call in 0..MAX_LIMIT {
        assert!(key.call(&limit, NOW + call, 1).allowed);
    }
    for call in MAX_LIMIT..MAX_LIMIT + 1000 {
        assert!(!key.peek(&limit, NOW + call, 2).allowed);
        assert!(key.call(&limit, NOW + call, 1).allowed, "call {call}");
    }
    // Nothing moved: the thousand leave one by one, a microsecond apart.
    for left in [999, 700, 501, 500, 100, 0] {
        let at = NOW + 2 * MAX_LIMIT + 999 - left;
        assert_eq!(key.remaining(&limit, at), MAX_LIMIT - left);
    }
}

#[test]
fn refunds_reach_back_over_chunks() {
    let (limit, mut key) = (exact(MAX_LIMIT, 60_000), Key::default());
    for call in 0..10_000 {
        key.call(&limit, NOW + call, 1 + call % 2);
    }
    assert_eq!(key.refund(NOW + 10_000, 14_000), 14_000);
    assert_eq!(key.remaining(&limit, NOW + 10_000), MAX_LIMIT - 1000);
    let state = key.0.as_ref().unwrap();
    assert_eq!(
        State::decode_blob(&state.blob()).unwrap().blob(),
        state.blob()
    );
    // The first are left, not the last: of 1, 2, 1, 2 … the first 1000 units are 667 entries.
    assert_eq!(field(state, "entries", NOW), 667);
    assert_eq!(key.remaining(&limit, NOW + MINUTE + 665), MAX_LIMIT - 1);
    assert_eq!(key.remaining(&limit, NOW + MINUTE + 666), MAX_LIMIT);
    assert_eq!(
        key.call(&limit, NOW + 10_000, 5).remaining,
        MAX_LIMIT - 1005
    );
}

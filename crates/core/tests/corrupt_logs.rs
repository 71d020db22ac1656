//! Corrupt logs and updates, one by one: each is refused, and the valid bytes closest to it are read.

use crate::denied_calls_copy_nothing::allocated_by;
use crate::key::{Key, NOW, exact, lease, parts};
use rl_core::policy::Rules;
use rl_core::{Error, MAX_PERIOD_MS, MAX_TIME_US, Mode, State, Update};

const MAX_USAGE: u64 = 1 << 56;
/// Kinds of states; the number after each is the kind of its updates.
const LOG: u8 = 1;
const LEASES: u8 = 3;
const POLICY: u8 = 5;
const UPDATE: u8 = 1;

/// What bytes are made of: numbers in 7 bits per byte, and bytes as they are.
enum Part {
    N(u64),
    B(Vec<u8>),
}
use Part::{B, N};

fn bytes(parts: &[Part]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        match part {
            B(raw) => bytes.extend(raw),
            N(number) => {
                let mut number = *number;
                while number > 127 {
                    bytes.push(number as u8 | 0x80);
                    number >>= 7;
                }
                bytes.push(number as u8);
            }
        }
    }
    bytes
}

fn blob(kind: u8, parts: &[Part]) -> Vec<u8> {
    let mut blob = vec![1, 0, 0, 0, 0, 0, 0, kind << 4, 0xf0 | kind >> 4];
    blob.extend(bytes(parts));
    blob
}

#[track_caller]
fn refused(kind: u8, parts: &[Part]) {
    let blob = blob(kind, parts);
    assert_eq!(Update::decode_blob(&blob), Err(Error::DamagedState));
}

#[track_caller]
fn read(kind: u8, parts: &[Part]) -> Update<'static> {
    let blob: &'static [u8] = blob(kind, parts).leak();
    let next = Update::decode_blob(blob).unwrap();
    assert_eq!(&next.blob()[..], blob, "written as it was read");
    next
}

#[track_caller]
fn state(kind: u8, parts: &[Part]) -> State {
    match read(kind, parts) {
        Update::Replace(state) => state,
        step => panic!("{step:?}"),
    }
}

fn at(us: u64) -> Part {
    B((us as i64).to_le_bytes().to_vec())
}

/// A log of one chunk, of a window of a second.
fn chunk(first: Part, entries: &[Part]) -> Vec<Part> {
    let entries = bytes(entries);
    vec![N(1000), N(1), first, N(entries.len() as u64), B(entries)]
}

/// An entry so much later than the one before, of one unit.
fn one(delta: u64) -> Part {
    N(delta << 1)
}

/// An entry of several units.
fn some(delta: u64, units: u64) -> Part {
    B(bytes(&[N(delta << 1 | 1), N(units)]))
}

fn used(state: &State, now_us: u64) -> u64 {
    state.refund(now_us, u64::MAX).unwrap().units
}

#[test]
fn a_log_is_read_as_it_was_written() {
    let log = state(LOG, &chunk(at(NOW), &[one(0), some(5, 7), one(1)]));
    assert_eq!(used(&log, NOW + 6), 9);
    assert_eq!(
        log.expire_at_ms(),
        (NOW + 6 + 1_000_000).div_ceil(1_000_000) * 1000
    );
    assert_eq!(used(&log, NOW + 1_000_000), 8);
    assert_eq!(used(&log, NOW + 1_000_005), 1);
    assert_eq!(used(&log, NOW + 1_000_006), 0);
    let mut two = chunk(at(NOW), &[some(0, 2)]);
    two[1] = N(2);
    let second = bytes(&[some(0, 3)]);
    two.extend([at(NOW + 1), N(second.len() as u64), B(second)]);
    assert_eq!(used(&state(LOG, &two), NOW + 1), 5);
}

#[test]
fn a_corrupt_log_is_refused() {
    let good = || chunk(at(NOW), &[one(0), some(5, 7)]);
    read(LOG, &good());
    // A window of nothing, or of more than ten years.
    for window_ms in [0, MAX_PERIOD_MS + 1] {
        let mut log = good();
        log[0] = N(window_ms);
        refused(LOG, &log);
    }
    // No chunk, no entries, more chunks than there are, bytes left over, bytes missing.
    refused(LOG, &[N(1000), N(0)]);
    refused(LOG, &[N(1000), N(1), at(NOW), N(0)]);
    let mut log = good();
    log[1] = N(2);
    refused(LOG, &log);
    log[1] = N(u64::MAX);
    refused(LOG, &log);
    let mut log = good();
    log.push(N(0));
    refused(LOG, &log);
    let mut log = good();
    log[3] = N(4);
    refused(LOG, &log);
    // Half a chunk: its head, its first moment, its length.
    refused(LOG, &[N(1000), N(1), B(vec![0; 7])]);
    refused(LOG, &[N(1000), N(1), at(NOW)]);
    refused(LOG, &[N(1000), N(1), at(NOW), B(vec![0x80])]);
    // An entry of which the units are missing.
    refused(LOG, &chunk(at(NOW), &[one(0), N(3)]));
    // Units that no call takes: none, too many, one in the long form.
    refused(LOG, &chunk(at(NOW), &[some(0, 0)]));
    refused(LOG, &chunk(at(NOW), &[some(0, 1)]));
    read(LOG, &chunk(at(NOW), &[some(0, MAX_USAGE)]));
    refused(LOG, &chunk(at(NOW), &[some(0, MAX_USAGE + 1)]));
    read(LOG, &chunk(at(NOW), &[some(0, MAX_USAGE - 1), one(1)]));
    refused(LOG, &chunk(at(NOW), &[some(0, MAX_USAGE), one(1)]));
    // Two entries of one moment are one.
    refused(LOG, &chunk(at(NOW), &[one(0), one(0)]));
    // A chunk begins later than the one before it ended.
    for (first, ok) in [(NOW + 6, true), (NOW + 5, false), (NOW, false)] {
        let mut two = good();
        two[1] = N(2);
        two.extend([at(first), N(1), one(0)]);
        match ok {
            true => drop(read(LOG, &two)),
            false => refused(LOG, &two),
        }
    }
    // Entries may be from before 1970, after a clock stepped back to there, but by no more than the longest window.
    read(LOG, &chunk(at(MAX_TIME_US), &[one(0)]));
    refused(LOG, &chunk(at(MAX_TIME_US + 1), &[one(0)]));
    let before_1970 = |us: u64| at(us.wrapping_neg());
    read(LOG, &chunk(before_1970(MAX_PERIOD_MS * 1000), &[one(0)]));
    refused(
        LOG,
        &chunk(before_1970(MAX_PERIOD_MS * 1000 + 1), &[one(0)]),
    );
    read(LOG, &chunk(before_1970(1), &[one(0), one(1)]));
    // A moment beyond all numbers.
    refused(LOG, &chunk(at(i64::MAX as u64), &[one(0), one(1)]));
}

#[test]
fn a_log_that_claims_many_chunks_gets_memory_for_few() {
    // A thousand bytes have room for a hundred chunks, of 64 bytes each in memory.
    let claim = blob(LOG, &[N(1000), N(u64::MAX), B(vec![0; 1000])]);
    let allocated = allocated_by(|| {
        assert_eq!(Update::decode_blob(&claim), Err(Error::DamagedState));
    });
    assert!(allocated < 10_000, "{allocated} bytes");
}

#[test]
fn a_chunk_has_between_1_and_512_bytes() {
    for (entries, ok) in [(512, true), (513, false)] {
        let parts: Vec<_> = (0..entries).map(|n| one(u64::from(n > 0))).collect();
        match ok {
            true => assert_eq!(used(&state(LOG, &chunk(at(NOW), &parts)), NOW), 512),
            false => refused(LOG, &chunk(at(NOW), &parts)),
        }
    }
}

#[test]
fn a_log_has_at_most_as_many_entries_as_one_that_is_kept() {
    // 1 000 512 entries in full chunks, and one more.
    let most = 1_000_000 + 512;
    for (entries, ok) in [(most, true), (most + 1, false)] {
        let mut parts = vec![N(MAX_PERIOD_MS), N(u64::div_ceil(entries, 512))];
        let mut now = NOW;
        let mut left = entries;
        while left > 0 {
            let here = left.min(512);
            let chunk: Vec<_> = (0..here).map(|n| one(u64::from(n > 0))).collect();
            parts.extend([at(now), N(here), B(bytes(&chunk))]);
            now += here;
            left -= here;
        }
        let read = Update::decode_blob(&blob(LOG, &parts)).is_ok();
        assert_eq!(read, ok, "{entries} entries");
    }
}

#[test]
fn a_corrupt_step_of_a_log_is_refused() {
    const STEP_OF_LOG: u8 = LOG + UPDATE;
    for (kind, at_us, window_ms, units, ok) in [
        // Take: when, under which window, how many.
        (0, NOW, 1000, 1, true),
        (0, 0, 1000, 1, true),
        (0, MAX_TIME_US, MAX_PERIOD_MS, MAX_USAGE, true),
        (0, MAX_TIME_US + 1, 1000, 1, false),
        (0, NOW, 0, 1, false),
        (0, NOW, MAX_PERIOD_MS + 1, 1, false),
        (0, NOW, 1000, 0, false),
        (0, NOW, 1000, MAX_USAGE + 1, false),
        // Notice: no units.
        (1, NOW, 1000, 0, true),
        (1, NOW, 1000, 1, false),
        (1, NOW, 0, 0, false),
        (1, MAX_TIME_US + 1, 1000, 0, false),
        // Refund: how many, and how many newer ones stay.
        (2, 0, 0, 1, true),
        (2, NOW, 0, MAX_USAGE, true),
        (2, 0, 0, 0, false),
        (2, 0, MAX_USAGE, 1, true),
        (2, 0, MAX_USAGE + 1, 1, false),
        (2, 0, 0, MAX_USAGE + 1, false),
        (2, MAX_TIME_US + 1, 0, 1, false),
        (3, NOW, 1000, 1, false),
    ] {
        let parts = [N(kind), N(at_us), N(window_ms), N(units)];
        match ok {
            true => drop(read(STEP_OF_LOG, &parts)),
            false => refused(STEP_OF_LOG, &parts),
        }
        let more = [&bytes(&parts)[..], &[0]].concat();
        refused(STEP_OF_LOG, &[B(more)]);
        let all = bytes(&parts);
        refused(STEP_OF_LOG, &[B(all[..all.len() - 1].to_vec())]);
    }
}

#[test]
fn a_corrupt_step_of_a_lease_is_refused() {
    const STEP_OF_LEASES: u8 = LEASES + UPDATE;
    let name = |len: usize| B(bytes(&[N(len as u64), B(vec![b'h'; len])]));
    for (kind, at_us, until_us, units, len, ok) in [
        (0, NOW, NOW + 1, 1, 1, true),
        (0, 0, 2 * MAX_TIME_US, MAX_USAGE, 1, true),
        (0, NOW, NOW, 1, 1, false),
        (0, NOW, NOW - 1, 1, 1, false),
        (0, NOW, 2 * MAX_TIME_US + 1, 1, 1, false),
        (0, NOW, NOW + 1, 0, 1, false),
        (0, NOW, NOW + 1, MAX_USAGE + 1, 1, false),
        (0, NOW, NOW + 1, 1, 0, false),
        (1, NOW, 0, 0, 1, true),
        (1, 2 * MAX_TIME_US, 0, 0, 1, true),
        (1, 2 * MAX_TIME_US + 1, 0, 0, 1, false),
        (1, NOW, 1, 0, 1, false),
        (1, NOW, 0, 1, 1, false),
        (1, NOW, 0, 0, 0, false),
        (2, NOW, 0, 0, 0, true),
        (2, 2 * MAX_TIME_US + 1, 0, 0, 0, false),
        (2, NOW, 1, 0, 0, false),
        (2, NOW, 0, 1, 0, false),
        (2, NOW, 0, 0, 1, false),
        (3, NOW, 0, 0, 1, false),
    ] {
        let parts = [N(kind), N(at_us), N(until_us), N(units), name(len)];
        match ok {
            true => drop(read(STEP_OF_LEASES, &parts)),
            false => refused(STEP_OF_LEASES, &parts),
        }
        refused(STEP_OF_LEASES, &[B([&bytes(&parts)[..], &[0]].concat())]);
    }
    // The longest name, and one more.
    read(STEP_OF_LEASES, &[N(1), N(NOW), N(0), N(0), name(256)]);
    refused(STEP_OF_LEASES, &[N(1), N(NOW), N(0), N(0), name(257)]);
    // A name that is longer than what follows.
    refused(
        STEP_OF_LEASES,
        &[N(1), N(NOW), N(0), N(0), N(2), B(vec![b'h'])],
    );
    refused(
        STEP_OF_LEASES,
        &[N(1), N(NOW), N(0), N(0), N(u64::MAX), B(vec![b'h'])],
    );
}

#[test]
fn corrupt_leases_are_refused() {
    let held = |until: u64, units: u64, name: &[u8]| {
        B(bytes(&[
            N(until),
            N(units),
            N(name.len() as u64),
            B(name.to_vec()),
        ]))
    };
    read(LEASES, &[N(NOW), held(NOW + 1, 1, b"a")]);
    read(
        LEASES,
        &[N(NOW), held(NOW + 1, 1, b"a"), held(NOW + 1, 2, b"b")],
    );
    read(
        LEASES,
        &[N(2 * MAX_TIME_US - 1), held(2 * MAX_TIME_US, 1, b"a")],
    );
    // Nobody, over already, no units, too many, no name.
    refused(LEASES, &[N(NOW)]);
    refused(LEASES, &[N(NOW), held(NOW, 1, b"a")]);
    refused(LEASES, &[N(NOW), held(NOW + 1, 0, b"a")]);
    refused(LEASES, &[N(NOW), held(NOW + 1, MAX_USAGE + 1, b"a")]);
    refused(LEASES, &[N(NOW), held(NOW + 1, 1, b"")]);
    refused(LEASES, &[N(NOW), held(2 * MAX_TIME_US + 1, 1, b"a")]);
    refused(LEASES, &[N(2 * MAX_TIME_US + 1), held(NOW + 1, 1, b"a")]);
    // Out of order, twice the same.
    refused(
        LEASES,
        &[N(NOW), held(NOW + 2, 1, b"a"), held(NOW + 1, 1, b"b")],
    );
    refused(
        LEASES,
        &[N(NOW), held(NOW + 1, 1, b"a"), held(NOW + 2, 1, b"a")],
    );
    // As many holders as there may be, and one more.
    for (holders, ok) in [(10_000, true), (10_001, false)] {
        let mut parts = vec![N(NOW)];
        parts.extend((0..holders).map(|n: u64| held(NOW + 1, 1, &n.to_le_bytes())));
        let read = Update::decode_blob(&blob(LEASES, &parts)).is_ok();
        assert_eq!(read, ok, "{holders} holders");
    }
}

fn rules(text: &str) -> Rules {
    Rules::parse(&mut text.split(' ').map(str::as_bytes)).unwrap()
}

/// The state after one call of a cost under some limits.
fn policed(text: &str, cost: u64) -> State {
    let rules = rules(text);
    let limit = rules.limit().unwrap();
    let outcome = limit.evaluate(None, NOW, cost, Mode::Force).unwrap();
    outcome.update.unwrap().into_initial().unwrap()
}

/// A part as long as it says.
fn long(bytes_: &[u8]) -> Part {
    B(bytes(&[N(bytes_.len() as u64), B(bytes_.to_vec())]))
}

#[test]
fn a_corrupt_group_is_refused() {
    let slide = policed("SLIDE 9 1m", 1).blob().to_vec();
    let log = policed("EXACT 9 1m", 1).blob().to_vec();
    let group = policed("SLIDE 9 1m SLIDE 9 1h", 1).blob().to_vec();
    let mut key = Key::default();
    key.call(&lease(2, 1000, b"a"), NOW, 1);
    let leases = key.0.unwrap().blob().to_vec();

    read(POLICY, &[N(1), N(0), long(&slide)]);
    // A bit for each rule that fixes its cost, then those costs.
    read(
        POLICY,
        &[N(2), N(0b11), N(0), N(7), long(&slide), long(&log)],
    );
    let most = rl_core::MAX_COUNT;
    read(POLICY, &[N(2), N(0b10), N(most), N(0), long(&log)]);
    refused(POLICY, &[N(2), N(0b10), N(most + 1), N(0), long(&log)]);
    refused(POLICY, &[N(2), N(0b10), N(0), long(&log)]);
    let sixteen = |count: u64, fixed: u64| {
        let mut parts = vec![N(count), N(fixed)];
        parts.extend((0..fixed.count_ones()).map(|cost| N(cost.into())));
        parts.extend((0..count).map(|_| long(&slide)));
        parts
    };
    read(POLICY, &sixteen(16, 0xffff));
    refused(POLICY, &sixteen(17, 0));
    refused(POLICY, &sixteen(16, 0x1_0000));
    refused(POLICY, &sixteen(3, 0b1000));
    read(POLICY, &sixteen(3, 0b111));
    // No rules at all, or none that has used anything.
    refused(POLICY, &[N(0), N(0)]);
    refused(POLICY, &[N(2), N(0), N(0), N(0)]);
    // States that no rule can have: a lease, another policy, an update, half a state.
    refused(POLICY, &[N(2), N(0), long(&slide), long(&leases)]);
    refused(POLICY, &[N(2), N(0), long(&slide), long(&group)]);
    let step = blob(LOG + UPDATE, &[N(0), N(NOW), N(1000), N(1)]);
    refused(POLICY, &[N(2), N(0), long(&slide), long(&step)]);
    refused(
        POLICY,
        &[N(2), N(0), long(&slide), long(&log[..log.len() - 1])],
    );
    // Too short, too long.
    refused(POLICY, &[N(2), N(0), long(&slide)]);
    refused(POLICY, &[N(1), N(0), long(&slide), N(0)]);
    refused(POLICY, &[N(1), N(0), N(99), B(slide.clone())]);
    refused(POLICY, &[N(1), N(0), N(u64::MAX), B(slide)]);
}

#[test]
fn a_corrupt_step_of_a_group_is_refused() {
    const STEP_OF_POLICY: u8 = POLICY + UPDATE;
    let slide = policed("SLIDE 9 1m", 1).blob().to_vec();
    let group = policed("SLIDE 9 1m SLIDE 9 1h", 1).blob().to_vec();
    let take = bytes(&[N(0), N(NOW), N(1000), N(1)]);
    // One of each: keep, clear, replace, a step of a log.
    let steps = || {
        vec![
            N(1),
            N(4),
            N(0),
            N(0),
            N(1),
            N(2),
            long(&slide),
            N(3),
            long(&take),
        ]
    };
    read(STEP_OF_POLICY, &steps());
    // The whole of a state, which may be empty: a step on the way to one that is not kept.
    read(STEP_OF_POLICY, &[N(0), N(1), N(0), long(&slide)]);
    refused(STEP_OF_POLICY, &[N(0), N(1), N(0), long(&group)]);
    refused(STEP_OF_POLICY, &[N(2), N(1), N(0), long(&slide)]);
    refused(STEP_OF_POLICY, &[N(1), N(1), N(0), N(4)]);
    refused(STEP_OF_POLICY, &[N(1), N(1), N(0), N(2), long(&group)]);
    refused(STEP_OF_POLICY, &[N(1), N(1), N(0), N(3), long(&take[1..])]);
    refused(STEP_OF_POLICY, &[N(1), N(0), N(0)]);
    refused(STEP_OF_POLICY, &[N(1), N(2), N(0), N(0)]);
    refused(STEP_OF_POLICY, &[N(1), N(1), N(2), N(0)]);
    let mut more = steps();
    more.push(N(0));
    refused(STEP_OF_POLICY, &more);
}

#[test]
fn a_forged_step_does_what_it_can_and_no_harm() {
    // An update with another number of rules changes nothing.
    let before = policed("SLIDE 9 1m EXACT 9 1m", 2);
    let mut state = before.clone();
    state.apply(read(POLICY + UPDATE, &[N(1), N(3), N(0), N(0), N(1), N(1)]));
    assert_eq!(state, before);
    // One with the same number does, rule by rule; a refund of a log that is not there changes nothing.
    let refund = bytes(&[N(2), N(0), N(0), N(1)]);
    state.apply(read(
        POLICY + UPDATE,
        &[N(1), N(2), N(0), N(3), long(&refund), N(3), long(&refund)],
    ));
    assert_ne!(state, before);
    assert!(!state.is_empty());
    state.apply(read(
        POLICY + UPDATE,
        &[N(1), N(2), N(0), N(1), N(3), long(&refund)],
    ));
    assert!(state.is_empty());

    // More is given back than there is.
    let mut key = Key::default();
    key.call(&exact(10, 1000), NOW, 3);
    key.take(read(LOG + UPDATE, &[N(2), N(0), N(0), N(99)]));
    assert!(key.0.as_ref().unwrap().is_empty());
    assert_eq!(key.0.unwrap().expire_at_ms(), 1000);

    // Steps that begin nothing.
    for step in [
        read(POLICY + UPDATE, &[N(1), N(2), N(0), N(0), N(1)]),
        read(POLICY + UPDATE, &[N(1), N(1), N(0), N(3), long(&refund)]),
        read(LOG + UPDATE, &[N(1), N(NOW), N(1000), N(0)]),
        read(LEASES + UPDATE, &[N(2), N(NOW), N(0), N(0), N(0)]),
    ] {
        assert_eq!(step.into_initial(), None);
    }
}

#[test]
fn corrupt_fixed_windows_and_debts_are_refused() {
    // Wide: 4 bits of tag, the time; 24 bits of extra, the span in ms; 7 bits of extra, and the counts.
    let wide = |tag: u64, time: u64, extra: u64, low: u128| {
        let extra_low = extra & 0xff_ffff;
        let low = u128::from(extra >> 24) << 121 | low;
        [
            (tag | 8) << 60 | time,
            extra_low << 40 | 60_000,
            (low >> 64) as u64,
            low as u64,
        ]
    };
    let start = NOW - NOW % 60_000_000;
    let ok = |words: [u64; 4]| State::decode(&words).is_ok();
    assert!(ok(wide(3, start, 0, 1 << 55)));
    assert!(ok(wide(3, start, 0, u128::from(MAX_USAGE))));
    assert!(!ok(wide(3, start, 0, u128::from(MAX_USAGE) + 1)));
    assert!(!ok(wide(3, start, 0, 1 << 70)));
    assert!(!ok(wide(3, start, 0, 0)), "nothing in use");
    assert!(!ok(wide(3, start + 1, 0, 1 << 55)), "not aligned");
    assert!(!ok(wide(3, start, 1, 1 << 55)), "something in addition");
    assert!(!ok(wide(3, start, 1 << 24, 1 << 55)));
    // In the wide form though the packed one has room for it: equal states have equal bytes.
    for (low, ok) in [(1_u128 << 57, false), (1 << 55, false), (5, false)] {
        let words = wide(3, start, 0, low);
        let blob: Vec<u8> = [1]
            .into_iter()
            .chain(words.iter().flat_map(|word| word.to_le_bytes()))
            .collect();
        assert_eq!(State::decode_blob(&blob).is_ok(), ok, "{low}");
    }
    // Two windows: both in range, one in use.
    let counts = |current: u64, previous: u64| u128::from(current) << 64 | u128::from(previous);
    assert!(ok(wide(1, NOW, 0, counts(MAX_USAGE, MAX_USAGE))));
    assert!(ok(wide(1, NOW, 0, counts(0, 1 << 40))));
    assert!(ok(wide(1, NOW, 0, counts(1 << 40, 0))));
    assert!(!ok(wide(1, NOW, 0, counts(MAX_USAGE, MAX_USAGE + 1))));
    assert!(!ok(wide(1, NOW, 0, counts(MAX_USAGE + 1, MAX_USAGE))));
    assert!(!ok(wide(1, NOW, 0, counts(0, 0))));
    assert!(!ok(wide(1, NOW, 1, counts(1 << 40, 0))));
    // A debt in parts of a unit: of a minute, 60 000 000 each; its rate, and the step and phase of its expiry.
    let most = u128::from(MAX_USAGE) * 60_000_000;
    for tag in [2, 4] {
        let ok = |phase, debt, rate| {
            let [head, span, high, low] = wide(tag, NOW, phase, debt);
            State::decode(&[head, span, high, low, rate]).is_ok()
        };
        assert!(ok(0, 1, 1));
        assert!(ok(14, most, rl_core::MAX_COUNT));
        assert!(!ok(0, 0, 1), "nothing in use");
        assert!(!ok(0, most + 1, 1));
        assert!(!ok(0, 1, 0), "it would never drain");
        assert!(!ok(0, 1, rl_core::MAX_COUNT + 1));
        assert!(ok(2 << 4 | 14, 1, 1));
        for phase in [15, 1 << 4 | 15, 3 << 4, 1 << 24, (1 << 31) - 1] {
            assert!(!ok(phase, 1, 1), "{phase}");
        }
        let without_rate = wide(tag, NOW, 0, 1);
        assert!(State::decode(&without_rate).is_err());
        // Compact: step and phase, the rate as amount and power of ten, the debt in units of that power.
        let compact = |grid: u128, amount: u128, power: u128, debt: u128| {
            let low = (grid << 12 | amount << 2 | power) << 40 | debt;
            let bits = u128::from(tag) << 124 | u128::from(NOW) << 72 | 60 << 58 | low;
            let mut blob = vec![1];
            blob.extend(((bits >> 64) as u64).to_le_bytes());
            blob.extend((bits as u64).to_le_bytes());
            State::decode_blob(&blob)
        };
        let grids = (0..3).flat_map(|step| (0..15).map(move |phase| step << 4 | phase));
        for grid in grids {
            for power in 0..4 {
                assert!(compact(grid, 7, power, 1).is_ok());
                assert!(compact(grid, 1023, power, (1 << 40) - 1).is_ok());
                assert!(compact(grid, 0, power, 1).is_err(), "it would never drain");
                assert!(compact(grid, 7, power, 0).is_err(), "nothing in use");
                // Equal states have equal bytes: as high a power of ten as there is.
                assert_eq!(compact(grid, 70, power, 10).is_ok(), power == 3);
            }
        }
        assert!(compact(15, 7, 0, 1).is_err(), "a phase that there is not");
        assert!(
            compact(3 << 4, 7, 0, 1).is_err(),
            "a step that there is not"
        );
    }
}

/// A window in parts whose counters are 64 bits wide.
fn in_parts(counts: &[u64]) -> Vec<u64> {
    let shape = 2 << 7 | counts.len() as u64;
    let mut words = vec![7 << 60 | NOW, shape << 40 | 60_000];
    words.extend(counts);
    words
}

#[test]
fn corrupt_parts_are_refused() {
    let wide = 1 << 40;
    for (counts, ok) in [
        (vec![0, wide, 0], true),
        (vec![MAX_USAGE, 0, 0], true),
        (vec![MAX_USAGE + 1, 0, 0], false),
        (vec![1, MAX_USAGE, MAX_USAGE + 1], false),
        (vec![wide; 2], false),
        (vec![wide; 61], true),
        (vec![wide; 62], false),
        // Counters that would fit into fewer bits, and none in use.
        (vec![1, 2, 3], false),
        (vec![0; 3], false),
    ] {
        let read = State::decode(&in_parts(&counts));
        assert_eq!(read.is_ok(), ok, "{counts:?}");
    }
    // In the narrowest form, none in use: four counters of 16 bits in a word.
    let words = |counts: u64| [7 << 60 | NOW, 3 << 40 | 60_000, counts];
    assert!(State::decode(&words(1)).is_ok());
    assert!(State::decode(&words(0)).is_err());
    assert!(State::decode(&words(1 << 48)).is_err(), "a fourth of three");
}

#[test]
fn parts_are_read_as_they_were_written() {
    for precision in [2, 3, 59, 60] {
        for cost in [1, 0xffff, 0x1_0000, 0xffff_ffff, 0x1_0000_0000] {
            let (limit, mut key) = (parts(1 << 50, 60_000, precision), Key::default());
            key.call(&limit, NOW, cost);
            key.call(&limit, NOW + 30_000_000, 1);
            let state = key.0.unwrap();
            let words = state.packed().unwrap();
            assert_eq!(State::decode(words.as_slice()).as_ref(), Ok(&state));
            assert_eq!(State::decode_blob(&state.blob()).as_ref(), Ok(&state));
        }
    }
}

#[test]
fn a_number_has_one_form() {
    // In one byte too many, without an end, beyond 64 bits.
    refused(LOG + UPDATE, &[B(vec![0x80, 0x00]), N(NOW), N(1000), N(1)]);
    refused(LOG + UPDATE, &[B(vec![0xff; 10]), N(NOW), N(1000), N(1)]);
    refused(
        LOG + UPDATE,
        &[B([&[0xff; 9][..], &[0x02]].concat()), N(NOW), N(1000), N(1)],
    );
    refused(LOG + UPDATE, &[N(0), N(NOW), N(1000), B(vec![0x81])]);
}

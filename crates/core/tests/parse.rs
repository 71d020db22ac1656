//! The words of the commands.

#![allow(clippy::unwrap_used, missing_docs)]

mod key;

use key::{bucket, exact, fixed, leak, lease, parts, slide};
use proptest::prelude::*;
use rl_core::parse::{self, Ask, By, MAX_LIMITS, Options, Spec};
use rl_core::{Algorithm, Error, Limit, MAX_COUNT, MAX_PERIOD_MS};

const PEEK: Options = options(true, false);
const FORCE: Options = options(false, true);
const NONE: Options = options(false, false);

const fn options(peek: bool, force: bool) -> Options {
    Options { peek, force }
}

fn words(line: &str) -> Vec<&[u8]> {
    line.split_ascii_whitespace().map(str::as_bytes).collect()
}

fn spec(limit: Limit<'_>, cost: u64) -> Spec<'_> {
    Spec { limit, cost }
}

fn duration(word: &str) -> Result<u64, Error> {
    parse::duration_us(Some(word.as_bytes()), Error::Window)
}

fn count(word: &str) -> Result<u64, Error> {
    parse::count(Some(word.as_bytes()), Error::Limit)
}

fn single(algorithm: Algorithm, line: &str) -> Result<(Spec<'_>, Options), Error> {
    parse::single(algorithm, &mut words(line).into_iter())
}

type Multi<'a> = Result<(Vec<(usize, Spec<'a>)>, Options), Error>;

fn multi<'a>(words: &[&'a [u8]]) -> Multi<'a> {
    let mut specs = Vec::new();
    let options = parse::multi(words.iter().copied(), |position, _, ask| {
        specs.push((position, spec_of(ask)));
        Ok(())
    })?;
    Ok((specs, options))
}

/// A policy stands for a limit of none.
fn spec_of(ask: Ask<'_>) -> Spec<'_> {
    match ask.by {
        By::Spec(spec) => spec,
        By::Policy { cost, .. } => spec(slide(0, 1000), cost),
    }
}

#[test]
fn a_limit_may_come_from_a_policy_and_be_a_shadow() {
    let line =
        "a POLICY pro 5 b SHADOW SLIDE 1 1 1 c shadow policy x 0 SHADOW POLICY SHADOW 1 PEEK";
    let mut asked = Vec::new();
    let all = words(line);
    let options = parse::multi(all.iter().copied(), |position, _, ask| {
        asked.push((position, ask.shadow, matches!(ask.by, By::Policy { .. })));
        Ok(())
    });
    assert_eq!(options, Ok(PEEK));
    let expected = [
        (0, false, true),
        (4, true, false),
        (10, true, true),
        (15, false, true),
    ];
    assert_eq!(asked, expected);
    assert_eq!(multi_keys(&all), [0, 4, 10, 15]);
    for (line, error) in [
        ("a POLICY", Error::IncompleteSpec),
        ("a POLICY pro", Error::IncompleteSpec),
        ("a POLICY pro x", Error::Cost),
        ("a SHADOW", Error::UnknownAlgorithm),
        ("a SHADOW SHADOW SLIDE 1 1 1", Error::UnknownAlgorithm),
    ] {
        assert_eq!(multi(&words(line)), Err(error), "{line}");
    }
}

#[test]
fn a_check_takes_a_cost_and_one_option() {
    let check = |line| parse::check(words(line).into_iter().skip(1));
    assert_eq!(check("x"), Ok((1, NONE)));
    assert_eq!(check("x 7"), Ok((7, NONE)));
    assert_eq!(check("x 7 peek"), Ok((7, PEEK)));
    assert_eq!(check("x FORCE"), Ok((1, FORCE)));
    assert_eq!(check("x 7 8"), Err(Error::UnknownOption));
    assert_eq!(check("x PEEK 8"), Err(Error::UnknownOption));
    assert_eq!(check("x seven"), Err(Error::Cost));
    assert_eq!(check("x 1 PEEK FORCE"), Err(Error::ExclusiveOptions));
}

fn multi_keys(words: &[&[u8]]) -> Vec<usize> {
    let mut keys = Vec::new();
    parse::multi_keys(words.iter().copied(), |position| keys.push(position));
    keys
}

#[test]
fn a_duration_is_seconds_or_has_a_unit() {
    for (word, ms) in [
        ("1", 1000),
        ("60", 60_000),
        ("1ms", 1),
        ("500ms", 500),
        ("90s", 90_000),
        ("15m", 900_000),
        ("24h", 86_400_000),
        ("30d", 2_592_000_000),
        ("3650d", MAX_PERIOD_MS),
        ("87600h", MAX_PERIOD_MS),
        ("315360000", MAX_PERIOD_MS),
        ("315360000000ms", MAX_PERIOD_MS),
    ] {
        assert_eq!(duration(word), Ok(ms * 1000), "{word}");
    }
}

#[test]
fn any_other_duration_is_refused() {
    let wrong = "0 0ms 0d -1 +1 1.5 1e3 ms s d 1x 1M 1S 1MS 1us 1w 1mss m1 01 007s 0x10 １ \
        3651d 315360001 87601h 315360000001ms 9007199254740991d 9007199254740992 \
        18446744073709551617 213503982335d";
    // The last, in milliseconds, is a little more than 2^64.
    for word in wrong.split(' ').chain(["", " 1", "1 ", "1\0"]) {
        assert_eq!(duration(word), Err(Error::Window), "{word}");
    }
    assert_eq!(
        parse::duration_us(None, Error::Window),
        Err(Error::IncompleteSpec)
    );
}

#[test]
fn a_count_is_a_plain_integer_up_to_2_to_the_53_minus_1() {
    for value in [0, 1, 9, 10, 1 << 32, MAX_COUNT] {
        assert_eq!(count(&value.to_string()), Ok(value));
    }
    let wrong = "-0 -1 +1 00 01 1.0 1e3 0x1 1_000 abc 1/ 1: 9007199254740992 9999999999999999 \
        10000000000000000 18446744073709551616 99999999999999999999999999999999999999999999";
    for word in wrong.split(' ').chain(["", " 1", "1 ", "1\0"]) {
        assert_eq!(count(word), Err(Error::Limit), "{word}");
    }
    assert_eq!(parse::count(None, Error::Limit), Err(Error::IncompleteSpec));
}

#[test]
fn an_error_names_the_argument_and_its_range() {
    use Algorithm::{Bucket, Slide};
    for (algorithm, line, error) in [
        (Slide, "x 60", Error::Limit),
        (Slide, "-1 60", Error::Limit),
        (Slide, "100 60x", Error::Window),
        (Slide, "100 60 x", Error::Cost),
        (Slide, "100 60 -1", Error::Cost),
        (Bucket, "x 1 60", Error::Capacity),
        (Bucket, "1 x 60", Error::Refill),
        (Bucket, "1 0 60", Error::Refill),
        (Bucket, "1 1 0", Error::Period),
        (Bucket, "1 1 60 9007199254740992", Error::Cost),
    ] {
        assert_eq!(single(algorithm, line), Err(error), "{line}");
    }
    let text = "ERR window must be a duration between 1ms and 3650d";
    assert_eq!(Error::Window.to_string(), text);
    for error in [Error::Limit, Error::Capacity, Error::Refill, Error::Cost] {
        assert!(error.message().ends_with(&MAX_COUNT.to_string()));
    }
    assert!(
        Error::TooManyLimits
            .message()
            .contains(&MAX_LIMITS.to_string())
    );
}

#[test]
fn a_single_limit_costs_1_unless_told_otherwise() {
    use Algorithm::{Bucket, Slide};
    let minute = slide(100, 60_000);
    assert_eq!(single(Slide, "100 60"), Ok((spec(minute, 1), NONE)));
    assert_eq!(single(Slide, "100 1m 5"), Ok((spec(minute, 5), NONE)));
    assert_eq!(single(Slide, "100 60s 0"), Ok((spec(minute, 0), NONE)));
    assert_eq!(single(Slide, "0 60"), Ok((spec(slide(0, 60_000), 1), NONE)));
    let steady = bucket(200, 1000, 60_000);
    assert_eq!(single(Bucket, "200 1000 1m"), Ok((spec(steady, 1), NONE)));
    assert_eq!(single(Bucket, "200 1000 1m 7"), Ok((spec(steady, 7), NONE)));
}

#[test]
fn options_follow_the_cost_in_any_order_and_case() {
    for (line, cost, expected) in [
        ("100 60 PEEK", 1, PEEK),
        ("100 60 force", 1, FORCE),
        ("100 60 5 Peek", 5, PEEK),
        ("100 60 5 FORCE", 5, FORCE),
        ("100 60 5 FORCE PEEK", 5, options(true, true)),
        ("100 60 PEEK FORCE", 1, options(true, true)),
        ("100 60 PEEK PEEK", 1, PEEK),
    ] {
        let expected = Ok((spec(slide(100, 60_000), cost), expected));
        assert_eq!(single(Algorithm::Slide, line), expected, "{line}");
    }
    for line in [
        "100 60 5 PEAK",
        "100 60 5 5",
        "100 60 PEEK 5",
        "100 60 5 PEEK FORCED",
    ] {
        assert_eq!(
            single(Algorithm::Slide, line),
            Err(Error::UnknownOption),
            "{line}"
        );
    }
}

#[test]
fn a_missing_word_is_said_to_be_missing() {
    use Algorithm::{Bucket, Slide};
    for (algorithm, line) in [
        (Slide, ""),
        (Slide, "100"),
        (Bucket, ""),
        (Bucket, "200"),
        (Bucket, "200 1000"),
    ] {
        assert_eq!(
            single(algorithm, line),
            Err(Error::IncompleteSpec),
            "{line}"
        );
    }
    for line in [
        "",
        "k SLIDE",
        "k SLIDE 100",
        "k SLIDE 100 60",
        "k BUCKET 200 1000 1m",
    ] {
        assert_eq!(multi(&words(line)), Err(Error::IncompleteSpec), "{line}");
    }
}

#[test]
fn an_algorithm_is_named_in_any_case() {
    assert_eq!(Algorithm::from_name(b"slide"), Some(Algorithm::Slide));
    assert_eq!(Algorithm::from_name(b"BuCkEt"), Some(Algorithm::Bucket));
    for other in [&b""[..], b"SLID", b"SLIDES", b"PEEK", b"SLIDE "] {
        assert_eq!(Algorithm::from_name(other), None);
    }
    for &algorithm in Algorithm::ALL {
        assert_eq!(
            Algorithm::from_name(algorithm.name().as_bytes()),
            Some(algorithm)
        );
    }
}

#[test]
fn the_contracts_example_reads_as_it_stands() {
    let line =
        "{u42}:ip SLIDE 100 60 1 {u42}:user SLIDE 1000 1h 1 {u42}:search BUCKET 200 1000 1m 5";
    let specs = vec![
        (0, spec(slide(100, 60_000), 1)),
        (5, spec(slide(1000, 3_600_000), 1)),
        (10, spec(bucket(200, 1000, 60_000), 5)),
    ];
    assert_eq!(multi(&words(line)), Ok((specs, NONE)));
    assert_eq!(multi_keys(&words(line)), [0, 5, 10]);
}

#[test]
fn several_limits_end_with_one_option_at_most() {
    for (end, expected) in [
        ("", Ok(NONE)),
        ("PEEK", Ok(PEEK)),
        ("force", Ok(FORCE)),
        ("PEEK PEEK", Ok(PEEK)),
        ("PEEK FORCE", Err(Error::ExclusiveOptions)),
        ("FORCE PEEK", Err(Error::ExclusiveOptions)),
        // No option, so it is a key, and a limit must follow.
        ("PEAK", Err(Error::UnknownAlgorithm)),
        ("PEEK k", Err(Error::UnknownAlgorithm)),
        ("PEEK SLIDE", Err(Error::IncompleteSpec)),
        ("2 FORCE", Err(Error::UnknownAlgorithm)),
    ] {
        let line = format!("k SLIDE 1 1 1 {end}");
        assert_eq!(
            multi(&words(&line)).map(|(_, options)| options),
            expected,
            "{line}"
        );
    }
    // Without a limit there is nothing to peek at.
    assert_eq!(multi(&words("PEEK")), Err(Error::UnknownAlgorithm));
}

#[test]
fn a_key_may_be_called_like_an_option_or_an_algorithm() {
    let line = "PEEK SLIDE 1 1 1 FORCE SLIDE 2 1 1 SLIDE BUCKET 3 1 1 1 PEEK SLIDE 4 1 1 PEEK";
    let (specs, options) = multi(&words(line)).unwrap();
    let positions: Vec<_> = specs.iter().map(|&(position, _)| position).collect();
    assert_eq!(positions, [0, 5, 10, 16]);
    assert_eq!(options, PEEK);
    assert_eq!(multi_keys(&words(line)), positions);
}

#[test]
fn in_a_spec_the_cost_is_always_given() {
    assert_eq!(multi(&words("k SLIDE 100 60 PEEK")), Err(Error::Cost));
    assert_eq!(
        multi(&words("a SLIDE 100 60 b SLIDE 100 60 1")),
        Err(Error::Cost)
    );
    assert!(Spec::parse(&mut words("SLIDE 100 60 0").into_iter()).is_ok());
    let unfinished = Spec::parse(&mut words("SLIDE 100 60").into_iter());
    assert_eq!(unfinished, Err(Error::IncompleteSpec));
}

#[test]
fn a_call_checks_up_to_128_limits() {
    let line = |limits, end| "k SLIDE 1 1 1 ".repeat(limits) + end;
    for end in ["", "PEEK"] {
        let most = line(MAX_LIMITS, end);
        let (specs, _) = multi(&words(&most)).unwrap();
        assert_eq!(specs.len(), 128);
        assert_eq!(multi(&words(&line(129, end))), Err(Error::TooManyLimits));
    }
}

#[test]
fn a_caller_may_refuse_a_limit() {
    let mut seen = 0;
    let refused = parse::multi(
        words("a SLIDE 1 1 1 a SLIDE 1 1 1 x").into_iter(),
        |_, _, _| {
            seen += 1;
            if seen == 2 {
                Err(Error::RepeatedKey)
            } else {
                Ok(())
            }
        },
    );
    assert_eq!((refused, seen), (Err(Error::RepeatedKey), 2));
}

#[test]
fn keys_are_found_as_far_as_the_words_make_sense() {
    for (line, keys) in [
        ("", &[][..]),
        ("k", &[]),
        ("k NONSENSE 1 1 1", &[]),
        ("k SLIDE", &[0]),
        ("k SLIDE not a limit", &[0]),
        ("k SLIDE 1 1 1 PEEK", &[0]),
        ("k SLIDE 1 1 1 PEEK FORCE", &[0]),
        ("a BUCKET 1 1 1 1 b SLIDE 1 1", &[0, 6]),
        ("a SLIDE 1 1 1 b NONSENSE c SLIDE 1 1 1", &[0]),
    ] {
        assert_eq!(multi_keys(&words(line)), keys, "{line}");
    }
}

#[test]
fn every_algorithm_reads_its_parameters() {
    use Algorithm::{Exact, Fixed, Leak, Lease};
    for (algorithm, line, limit, cost) in [
        (Fixed, "100 1d", fixed(100, 86_400_000), 1),
        (Exact, "100 1m 3", exact(100, 60_000), 3),
        (Leak, "50 10 1s 2", leak(50, 10, 1000), 2),
        (Lease, "5 30 worker-1", lease(5, 30_000, b"worker-1"), 1),
        (Lease, "5 30 worker-1 2", lease(5, 30_000, b"worker-1"), 2),
        // A holder may be called like anything.
        (Lease, "5 30 PEEK", lease(5, 30_000, b"PEEK"), 1),
        (Lease, "5 30 PRECISION 2", lease(5, 30_000, b"PRECISION"), 2),
        (Lease, "5 30 7", lease(5, 30_000, b"7"), 1),
    ] {
        assert_eq!(
            single(algorithm, line),
            Ok((spec(limit, cost), NONE)),
            "{line}"
        );
        let line = format!("k {} {line}", algorithm.name());
        let given = if cost == 1 { " 1" } else { "" };
        let line = line + given;
        assert_eq!(
            multi(&words(&line)),
            Ok((vec![(0, spec(limit, cost))], NONE)),
            "{line}"
        );
        assert_eq!(multi_keys(&words(&line)), [0]);
    }
    for (algorithm, line, error) in [
        (Fixed, "x 60", Error::Limit),
        (Fixed, "1 0", Error::Window),
        (Exact, "x 60", Error::LogLimit),
        (Exact, "1000001 60", Error::LogLimit),
        (Exact, "1 3651d", Error::Window),
        (Leak, "x 1 60", Error::Capacity),
        (Leak, "1 0 60", Error::Rate),
        (Leak, "1 x 60", Error::Rate),
        (Leak, "1 1 0", Error::Period),
        (Lease, "x 60 a", Error::Limit),
        (Lease, "1 0 a", Error::Ttl),
        (Lease, "1 60", Error::IncompleteSpec),
        (Lease, "1 60 a x", Error::Cost),
        (Exact, "1", Error::IncompleteSpec),
        (Leak, "1 1", Error::IncompleteSpec),
    ] {
        assert_eq!(single(algorithm, line), Err(error), "{algorithm:?} {line}");
    }
    let empty = parse::single(Lease, &mut [&b"1"[..], b"60", b""].into_iter());
    assert_eq!(empty, Err(Error::Holder));
    let odd = parse::single(Lease, &mut [&b"1"[..], b"60", b"\0 \xff"].into_iter());
    assert_eq!(odd, Ok((spec(lease(1, 60_000, b"\0 \xff"), 1), NONE)));
}

#[test]
fn a_precision_stands_behind_the_cost_in_any_order() {
    let precise = |cost| spec(parts(100, 60_000, 10), cost);
    for (line, cost, options) in [
        ("100 60 PRECISION 10", 1, NONE),
        ("100 60 5 precision 10", 5, NONE),
        ("100 60 5 PRECISION 10 PEEK", 5, PEEK),
        ("100 60 5 FORCE Precision 10", 5, FORCE),
        ("100 60 PEEK PRECISION 10 FORCE", 1, options(true, true)),
        ("100 60 PRECISION 3 PRECISION 10", 1, NONE),
    ] {
        let expected = Ok((precise(cost), options));
        assert_eq!(single(Algorithm::Slide, line), expected, "{line}");
    }
    for (line, error) in [
        ("100 60 PRECISION", Error::Precision),
        ("100 60 PRECISION 0", Error::Precision),
        ("100 60 PRECISION 65", Error::Precision),
        ("100 60 PRECISION 256", Error::Precision),
        ("100 60 PRECISION 257", Error::Precision),
        ("100 60 PRECISION x", Error::Precision),
        ("100 60 PRECISION PEEK", Error::Precision),
        ("100 60 PRECISION 10 5", Error::UnknownOption),
    ] {
        assert_eq!(single(Algorithm::Slide, line), Err(error), "{line}");
    }
    for algorithm in [Algorithm::Fixed, Algorithm::Exact] {
        let refused = single(algorithm, "100 60 1 PRECISION 10");
        assert_eq!(refused, Err(Error::UnknownOption), "{algorithm:?}");
    }
}

#[test]
fn among_several_limits_a_precision_belongs_to_the_one_before() {
    let line = "a SLIDE 100 60 1 PRECISION 10 b FIXED 5 60 1 c SLIDE 7 60 2 PRECISION 2 PEEK";
    let specs = vec![
        (0, spec(parts(100, 60_000, 10), 1)),
        (7, spec(fixed(5, 60_000), 1)),
        (12, spec(parts(7, 60_000, 2), 2)),
    ];
    assert_eq!(multi(&words(line)), Ok((specs, PEEK)));
    assert_eq!(multi_keys(&words(line)), [0, 7, 12]);
    for (line, error) in [
        ("a SLIDE 1 60 1 PRECISION", Error::Precision),
        ("a SLIDE 1 60 1 PRECISION 65", Error::Precision),
        ("a SLIDE 1 60 1 PRECISION b SLIDE 1 60 1", Error::Precision),
        ("a FIXED 1 60 1 PRECISION 2", Error::UnknownAlgorithm),
        ("a SLIDE 1 60 1 PEEK PRECISION 2", Error::UnknownAlgorithm),
    ] {
        assert_eq!(multi(&words(line)), Err(error), "{line}");
    }
}

#[test]
fn a_key_may_be_called_precision() {
    let line = "PRECISION SLIDE 1 60 1 PRECISION 3 PRECISION SLIDE 2 60 1 PRECISION lease 3 60 h 1 PRECISION EXACT 4 60 1";
    let (specs, _) = multi(&words(line)).unwrap();
    let limits: Vec<_> = specs.iter().map(|(_, spec)| spec.limit).collect();
    let expected = [
        parts(1, 60_000, 3),
        slide(2, 60_000),
        lease(3, 60_000, b"h"),
        exact(4, 60_000),
    ];
    assert_eq!(limits, expected);
    assert_eq!(multi_keys(&words(line)), [0, 7, 12, 18]);
}

/// Words that mean something somewhere, and some that do not.
fn word() -> impl Strategy<Value = Vec<u8>> {
    let known =
        words("SLIDE BUCKET bucket PEEK force 0 1 60s 1m x FIXED LEAK EXACT lease PRECISION 2");
    prop_oneof![
        9 => proptest::sample::select(known).prop_map(<[u8]>::to_vec),
        1 => proptest::collection::vec(any::<u8>(), 0..20),
    ]
}

/// A key, a valid spec, and the limit that it means.
fn limit() -> impl Strategy<Value = (Vec<u8>, Spec<'static>, String)> {
    let number = || prop_oneof![1..1000u64, 1..=MAX_COUNT];
    (
        word(),
        0..7u8,
        number(),
        number(),
        1..=MAX_PERIOD_MS,
        number(),
    )
        .prop_map(|(key, which, size, flow, ms, cost)| {
            let (logged, n) = (size % 1_000_001, 2 + (flow % 63) as u8);
            let (limit, text) = match which {
                0 => (slide(size, ms), format!("Slide {size} {ms}ms {cost}")),
                1 => (
                    parts(size, ms, n),
                    format!("Slide {size} {ms}ms {cost} Precision {n}"),
                ),
                2 => (
                    bucket(size, flow, ms),
                    format!("Bucket {size} {flow} {ms}ms {cost}"),
                ),
                3 => (fixed(size, ms), format!("FIXED {size} {ms}ms {cost}")),
                4 => (
                    leak(size, flow, ms),
                    format!("leak {size} {flow} {ms}ms {cost}"),
                ),
                5 => (exact(logged, ms), format!("Exact {logged} {ms}ms {cost}")),
                _ => (
                    lease(size, ms, b"SLIDE"),
                    format!("LEASE {size} {ms}ms SLIDE {cost}"),
                ),
            };
            (key, spec(limit, cost), text)
        })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn valid_words_are_read_back(
        limits in proptest::collection::vec(limit(), 1..10),
        (end, expected) in proptest::sample::select(vec![("", NONE), ("PEEK", PEEK), ("FORCE", FORCE)]),
    ) {
        let (mut line, mut specs) = (Vec::new(), Vec::new());
        for (key, spec, text) in &limits {
            specs.push((line.len(), *spec));
            line.push(&key[..]);
            line.extend(words(text));
        }
        line.extend(words(end));
        let keys: Vec<_> = specs.iter().map(|&(position, _)| position).collect();
        prop_assert_eq!(multi(&line), Ok((specs, expected)));
        prop_assert_eq!(multi_keys(&line), keys);
    }

    #[test]
    fn any_words_are_read_or_refused(line in proptest::collection::vec(word(), 0..30)) {
        let line: Vec<&[u8]> = line.iter().map(Vec::as_slice).collect();
        for &algorithm in Algorithm::ALL {
            if let Ok((spec, _)) = parse::single(algorithm, &mut line.iter().copied()) {
                prop_assert_eq!(spec.limit.algorithm(), algorithm);
            }
        }
        let keys = multi_keys(&line);
        prop_assert!(keys.iter().all(|&position| position < line.len()));
        if let Ok((specs, _)) = multi(&line) {
            prop_assert!(keys.into_iter().eq(specs.iter().map(|&(position, _)| position)));
        }
    }

    #[test]
    fn any_word_is_a_number_a_duration_or_neither(bytes in "[0-9]{0,20}[a-z]{0,2}|\\PC*") {
        let (count, span) = (count(&bytes), duration(&bytes));
        if let Ok(value) = count {
            prop_assert!(value <= MAX_COUNT);
            prop_assert_eq!(value.to_string(), &bytes[..]);
        }
        if let Ok(us) = span {
            prop_assert!((1000..=MAX_PERIOD_MS * 1000).contains(&us) && us % 1000 == 0);
        }
    }
}

#[test]
fn limits_are_shown_as_they_are_best_written() {
    for (line, shown) in [
        ("SLIDE 100 60 1", "SLIDE 100 1m"),
        ("slide 100 90s 1 PRECISION 1", "SLIDE 100 90s"),
        ("SLIDE 100 24h 1 PRECISION 10", "SLIDE 100 1d PRECISION 10"),
        ("BUCKET 200 1000 120m 5", "BUCKET 200 1000 2h"),
        ("FIXED 0 1500ms 1", "FIXED 0 1500ms"),
        ("EXACT 5 36h 1", "EXACT 5 36h"),
        ("LEAK 3 2 500ms 1", "LEAK 3 2 500ms"),
        ("LEASE 5 30 job:1 1", "LEASE 5 30s job:1"),
    ] {
        let limit = Spec::parse(&mut words(line).into_iter()).unwrap().limit;
        assert_eq!(limit.to_string(), shown);
        let (kept, holder) = limit.detached();
        let holder = String::from_utf8_lossy(holder);
        assert_eq!(format!("{kept} {holder}").trim_end(), shown);
    }
    let limit = lease(5, 1000, b"\0 \xff");
    assert_eq!(limit.to_string(), "LEASE 5 1s \\x00 \\xff");
}

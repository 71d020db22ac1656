//! The words of the commands.

#![allow(clippy::unwrap_used, missing_docs)]

mod key;

use key::{bucket, slide};
use proptest::prelude::*;
use rl_core::parse::{self, MAX_LIMITS, Options, Spec};
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
    let options = parse::multi(words.iter().copied(), |position, spec| {
        specs.push((position, spec));
        Ok(())
    })?;
    Ok((specs, options))
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
        |_, _| {
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

/// Words that mean something somewhere, and some that do not.
fn word() -> impl Strategy<Value = Vec<u8>> {
    let known = words("SLIDE BUCKET bucket PEEK force 0 1 60s 1m x");
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
        any::<bool>(),
        number(),
        number(),
        1..=MAX_PERIOD_MS,
        number(),
    )
        .prop_map(|(key, slides, size, refill, ms, cost)| {
            let (limit, text) = match slides {
                true => (slide(size, ms), format!("Slide {size} {ms}ms {cost}")),
                false => (
                    bucket(size, refill, ms),
                    format!("Bucket {size} {refill} {ms}ms {cost}"),
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

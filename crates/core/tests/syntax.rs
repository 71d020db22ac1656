//! The arguments of the commands.

use crate::key::{bucket, exact, fixed, leak, lease, parts, slide};
use proptest::prelude::*;
use rl_core::syntax::{self, CallOptions, KeySpec, LimitSource, MAX_LIMITS, Spec};
use rl_core::{Algorithm, Error, Limit, MAX_COUNT, MAX_PERIOD_MS};

const PEEK: CallOptions = CallOptions::PEEK;
const FORCE: CallOptions = CallOptions::FORCE;
const NONE: CallOptions = CallOptions::NONE;

fn words(line: &str) -> Vec<&[u8]> {
    line.split_ascii_whitespace().map(str::as_bytes).collect()
}

/// Arguments as redis-cli splits a line: what is in double quotes is one.
fn args(line: &str) -> Vec<&[u8]> {
    let mut args = Vec::new();
    for (place, part) in line.split('"').enumerate() {
        match place % 2 {
            0 => args.extend(words(part)),
            _ => args.push(part.as_bytes()),
        }
    }
    args
}

fn spec(limit: Limit<'_>, cost: u64) -> Spec<'_> {
    Spec { limit, cost }
}

fn duration(word: &str) -> Result<u64, Error> {
    syntax::parse_duration_us(Some(word.as_bytes()), Error::Window)
}

fn count(word: &str) -> Result<u64, Error> {
    syntax::parse_count(Some(word.as_bytes()), Error::Limit)
}

fn single(algorithm: Algorithm, line: &str) -> Result<(Spec<'_>, CallOptions), Error> {
    syntax::one_limit_args(algorithm, &mut words(line).into_iter())
}

type Multi<'a> = Result<(Vec<(usize, Spec<'a>)>, CallOptions), Error>;

fn multi<'a>(words: &[&'a [u8]]) -> Multi<'a> {
    let mut specs = Vec::new();
    let options = syntax::multi_args(words.iter().copied(), |position, _, key_spec| {
        specs.push((position, spec_of(key_spec)));
        Ok(())
    })?;
    Ok((specs, options))
}

/// A policy stands for a limit of none.
fn spec_of(key_spec: KeySpec<'_>) -> Spec<'_> {
    match key_spec.source {
        LimitSource::Spec(spec) => spec,
        LimitSource::Policy { cost, .. } => spec(slide(0, 1000), cost),
    }
}

#[test]
fn a_limit_may_come_from_a_policy_and_be_a_shadow() {
    let line = r#"a "PEEK POLICY pro 5" b "SHADOW SLIDE 1 1 1" c "shadow policy x 0" SHADOW "POLICY SHADOW" POLICY "policy PEEK 2""#;
    let mut asked = Vec::new();
    let all = args(line);
    let options = syntax::multi_args(all.iter().copied(), |position, _, key_spec| {
        asked.push((position, key_spec.shadow, key_spec.source));
        Ok::<_, Error>(())
    });
    assert_eq!(options, Ok(PEEK));
    let policy = |name, cost| LimitSource::Policy { name, cost };
    let expected = [
        (0, false, policy(b"pro", 5)),
        (2, true, LimitSource::Spec(spec(slide(1, 1000), 1))),
        (4, true, policy(b"x", 0)),
        (6, false, policy(b"SHADOW", 1)),
        (8, false, policy(b"PEEK", 2)),
    ];
    assert_eq!(asked, expected);
    for (text, error) in [
        ("POLICY", Error::UnknownAlgorithm),
        ("POLICY pro x", Error::Cost),
        ("POLICY pro -1", Error::Cost),
        ("POLICY pro 9007199254740992", Error::Cost),
        ("POLICY pro 1 2", Error::TrailingWords),
        ("POLICY pro 1 PRECISION 2", Error::TrailingWords),
        ("POLICY pro PEEK", Error::MisplacedOption),
        ("POLICY pro 1 FORCE", Error::MisplacedOption),
        ("SHADOW", Error::UnknownAlgorithm),
        ("SHADOW SHADOW SLIDE 1 1 1", Error::UnknownAlgorithm),
        ("SHADOW PEEK SLIDE 1 1 1", Error::MisplacedOption),
        ("PEEK SHADOW FORCE SLIDE 1 1 1", Error::MisplacedOption),
    ] {
        assert_eq!(multi(&[b"a", text.as_bytes()]), Err(error), "{text}");
    }
}

#[test]
fn a_check_takes_a_cost_and_one_option() {
    let check = |line| syntax::check_args(words(line).into_iter().skip(1));
    assert_eq!(check("x"), Ok((1, NONE)));
    assert_eq!(check("x 7"), Ok((7, NONE)));
    assert_eq!(check("x 7 peek"), Ok((7, PEEK)));
    assert_eq!(check("x FORCE"), Ok((1, FORCE)));
    assert_eq!(check("x 7 8"), Err(Error::UnknownOption));
    assert_eq!(check("x PEEK 8"), Err(Error::UnknownOption));
    assert_eq!(check("x seven"), Err(Error::Cost));
    assert_eq!(check("x 1 PEEK FORCE"), Err(Error::ExclusiveOptions));
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
        syntax::parse_duration_us(None, Error::Window),
        Err(Error::MissingWindow)
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
    assert_eq!(
        syntax::parse_count(None, Error::Limit),
        Err(Error::MissingLimit)
    );
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
    let text = "ERR window must be a duration between 1ms and 3650d (ms, s, m, h, d)";
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
fn a_single_limit_costs_1_by_default() {
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
        ("100 60 PEEK PEEK", 1, PEEK),
    ] {
        let expected = Ok((spec(slide(100, 60_000), cost), expected));
        assert_eq!(single(Algorithm::Slide, line), expected, "{line}");
    }
    for line in ["100 60 5 FORCE PEEK", "100 60 PEEK FORCE"] {
        let refused = single(Algorithm::Slide, line);
        assert_eq!(refused, Err(Error::ExclusiveOptions), "{line}");
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
    for (algorithm, line, missing) in [
        (Slide, "", Error::MissingLimit),
        (Slide, "100", Error::MissingWindow),
        (Bucket, "", Error::MissingCapacity),
        (Bucket, "200", Error::MissingRefill),
        (Bucket, "200 1000", Error::MissingPeriod),
    ] {
        assert_eq!(single(algorithm, line), Err(missing), "{line}");
    }
    for (text, missing) in [
        ("SLIDE 100", Error::MissingWindow),
        ("BUCKET 200", Error::MissingRefill),
        ("BUCKET 200 1000", Error::MissingPeriod),
        ("LEASE 5 30", Error::MissingHolder),
        ("FIXED 1", Error::MissingWindow),
    ] {
        let refused = multi(&[b"k", text.as_bytes()]);
        assert_eq!(refused, Err(missing), "{text}");
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
        r#"{u42}:ip "SLIDE 100 60" {u42}:user "SLIDE 1000 1h" {u42}:search "BUCKET 200 1000 1m 5""#;
    let specs = vec![
        (0, spec(slide(100, 60_000), 1)),
        (2, spec(slide(1000, 3_600_000), 1)),
        (4, spec(bucket(200, 1000, 60_000), 5)),
    ];
    assert_eq!(multi(&args(line)), Ok((specs, NONE)));
}

#[test]
fn options_stand_at_the_start_of_the_first_spec() {
    for (first, expected) in [
        ("SLIDE 1 1 1", Ok(NONE)),
        ("PEEK SLIDE 1 1 1", Ok(PEEK)),
        ("force SLIDE 1 1", Ok(FORCE)),
        ("FORCE SHADOW SLIDE 1 1", Ok(FORCE)),
        ("PEEK PEEK SLIDE 1 1", Ok(PEEK)),
        ("PEEK FORCE SLIDE 1 1", Err(Error::ExclusiveOptions)),
        ("FORCE PEEK SLIDE 1 1", Err(Error::ExclusiveOptions)),
        ("SLIDE 1 1 PEEK", Err(Error::MisplacedOption)),
        ("SLIDE 1 1 1 force", Err(Error::MisplacedOption)),
        ("SLIDE 1 1 PRECISION 2 PEEK", Err(Error::MisplacedOption)),
        ("PEAK SLIDE 1 1", Err(Error::UnknownAlgorithm)),
        ("PEEK", Err(Error::UnknownAlgorithm)),
        ("PEEK PEAK", Err(Error::UnknownAlgorithm)),
        ("PEEK SLIDE", Err(Error::UnknownAlgorithm)),
        ("PEEK SLIDE 1", Err(Error::MissingWindow)),
    ] {
        let call: [&[u8]; 4] = [b"k", first.as_bytes(), b"l", b"FIXED 1 1"];
        let read = multi(&call).map(|(_, options)| options);
        assert_eq!(read, expected, "{first}");
        if first != "SLIDE 1 1 1" {
            let call: [&[u8]; 4] = [b"l", b"FIXED 1 1", b"k", first.as_bytes()];
            let refused = match expected {
                Ok(_) | Err(Error::ExclusiveOptions) => Error::MisplacedOption,
                Err(error) => error,
            };
            assert_eq!(multi(&call), Err(refused), "{first}");
        }
    }
}

#[test]
fn a_peek_has_no_options() {
    let key_spec = |shadow| KeySpec {
        shadow,
        source: LimitSource::Spec(spec(slide(1, 1000), 1)),
    };
    assert_eq!(syntax::peek_spec(b"SLIDE 1 1"), Ok(key_spec(false)));
    assert_eq!(syntax::peek_spec(b"SHADOW SLIDE 1 1"), Ok(key_spec(true)));
    for text in [
        "PEEK SLIDE 1 1",
        "FORCE SLIDE 1 1",
        "PEEK FORCE SLIDE 1 1",
        "SHADOW PEEK SLIDE 1 1",
        "SLIDE 1 1 PEEK",
        "SLIDE 1 1 1 FORCE",
    ] {
        let refused = syntax::peek_spec(text.as_bytes());
        assert_eq!(refused, Err(Error::OptionInPeek), "{text}");
    }
    assert_eq!(
        syntax::peek_spec(b"SLOPE 1 1"),
        Err(Error::UnknownAlgorithm)
    );
}

#[test]
fn a_key_may_be_called_anything() {
    let line = r#"PEEK "SLIDE 1 1" FORCE "SLIDE 2 1" "SLIDE 3 1" "BUCKET 3 1 1" PRECISION "SLIDE 4 1" "" "SLIDE 5 1""#;
    let mut keys = Vec::new();
    let options = syntax::multi_args(args(line).into_iter(), |_, key, _| {
        keys.push(key);
        Ok::<_, Error>(())
    });
    assert_eq!(options, Ok(NONE));
    assert_eq!(
        keys,
        [&b"PEEK"[..], b"FORCE", b"SLIDE 3 1", b"PRECISION", b""]
    );
}

#[test]
fn keys_and_specs_are_pairs() {
    for line in [
        "",
        "k",
        r#"k "SLIDE 1 1" l"#,
        // As it would be written without quotes.
        "k SLIDE 100 60 1",
        "k SLIDE 100 60 1 PEEK PEEK",
    ] {
        assert_eq!(multi(&args(line)), Err(Error::OddArguments), "{line}");
    }
    // Likewise, where the number is even.
    assert_eq!(multi(&args("k SLIDE 1 1")), Err(Error::UnknownAlgorithm));
    assert_eq!(syntax::peek_spec(b"SLIDE"), Err(Error::UnknownAlgorithm));
    assert_eq!(multi(&args("k l")), Err(Error::UnknownAlgorithm));
}

#[test]
fn a_cost_is_1_unless_given() {
    for (text, cost) in [
        ("SLIDE 100 60", 1),
        ("SLIDE 100 60 0", 0),
        ("SLIDE 100 60 7", 7),
        ("SLIDE 100 60 9007199254740991", MAX_COUNT),
    ] {
        let read = Spec::parse(text.as_bytes());
        assert_eq!(read, Ok(spec(slide(100, 60_000), cost)), "{text}");
    }
    for (text, error) in [
        ("SLIDE 100 60 x", Error::Cost),
        ("SLIDE 100 60 -1", Error::Cost),
        ("SLIDE 100 60 01", Error::Cost),
        ("SLIDE 100 60 9007199254740992", Error::Cost),
        ("SLIDE 100 60 1 1", Error::TrailingWords),
        ("SLIDE 100 60 1 b", Error::TrailingWords),
        ("BUCKET 100 60 1 1 1", Error::TrailingWords),
        ("LEASE 5 30 two words", Error::Cost),
    ] {
        assert_eq!(Spec::parse(text.as_bytes()), Err(error), "{text}");
    }
}

#[test]
fn one_space_separates_words_and_nothing_else_does() {
    for (text, error) in [
        ("", Error::UnknownAlgorithm),
        (" ", Error::UnknownAlgorithm),
        (" SLIDE 100 60", Error::UnknownAlgorithm),
        ("PEEK  SLIDE 100 60", Error::UnknownAlgorithm),
        ("SHADOW  SLIDE 100 60", Error::UnknownAlgorithm),
        ("SLIDE ", Error::Limit),
        ("SLIDE  100 60", Error::Limit),
        ("SLIDE 100  60", Error::Window),
        ("SLIDE 100 60 ", Error::Cost),
        ("SLIDE 100 60  5", Error::Cost),
        ("SLIDE 100 60 5 ", Error::TrailingWords),
        ("SLIDE 100 60 5  PRECISION 10", Error::TrailingWords),
        ("SLIDE 100 60 5 PRECISION  10", Error::Precision),
        ("SLIDE 100 60 5 PRECISION 10 ", Error::TrailingWords),
        // An amount that is missing is not taken from the next word.
        ("BUCKET  10 20 30", Error::Capacity),
        ("LEASE 5 60  1", Error::Holder),
        ("LEASE 5 60 a  1", Error::Cost),
        ("POLICY pro ", Error::Cost),
        ("SLIDE\t100 60", Error::UnknownAlgorithm),
        ("SLIDE 100\t60", Error::Limit),
        ("SLIDE 100 60\n", Error::Window),
        ("SLIDE 100 60\r\n", Error::Window),
        ("SLIDE 100 60\0", Error::Window),
        ("SLIDE 100 60 1\u{a0}", Error::Cost),
        ("\"SLIDE 100 60\"", Error::UnknownAlgorithm),
    ] {
        assert_eq!(multi(&[b"k", text.as_bytes()]), Err(error), "{text:?}");
    }
    let key_spec = syntax::peek_spec(b"POLICY ").unwrap();
    let by = LimitSource::Policy { name: b"", cost: 1 };
    assert_eq!(key_spec.source, by, "no policy has this name");
}

#[test]
fn a_call_checks_up_to_128_limits() {
    for first in ["SLIDE 1 1", "PEEK SLIDE 1 1"] {
        let call = |limits| {
            [&b"k"[..], first.as_bytes()]
                .into_iter()
                .chain([&b"k"[..], b"SLIDE 1 1 1"].repeat(limits - 1))
                .collect::<Vec<_>>()
        };
        let (specs, _) = multi(&call(MAX_LIMITS)).unwrap();
        assert_eq!(specs.len(), 128);
        assert_eq!(multi(&call(129)), Err(Error::TooManyLimits));
    }
}

#[test]
fn a_caller_may_refuse_a_limit() {
    let mut seen = 0;
    let line = r#"a "SLIDE 1 1" a "SLIDE 1 1" x y"#;
    let refused = syntax::multi_args(args(line).into_iter(), |_, _, _| {
        seen += 1;
        if seen == 2 {
            Err(Error::TooManyHolders)
        } else {
            Ok(())
        }
    });
    assert_eq!((refused, seen), (Err(Error::TooManyHolders), 2));
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
        let text = format!("{} {line}", algorithm.name());
        assert_eq!(
            multi(&[b"k", text.as_bytes()]),
            Ok((vec![(0, spec(limit, cost))], NONE)),
            "{text}"
        );
    }
    for (algorithm, line, error) in [
        (Fixed, "x 60", Error::Limit),
        (Fixed, "1 0", Error::FixedWindow),
        (Exact, "x 60", Error::ExactLimit),
        (Exact, "1000001 60", Error::ExactLimit),
        (Exact, "1 3651d", Error::Window),
        (Leak, "x 1 60", Error::Capacity),
        (Leak, "1 0 60", Error::Rate),
        (Leak, "1 x 60", Error::Rate),
        (Leak, "1 1 0", Error::Period),
        (Lease, "x 60 a", Error::Limit),
        (Lease, "1 0 a", Error::Ttl),
        (Lease, "1", Error::MissingTtl),
        (Lease, "1 60", Error::MissingHolder),
        (Lease, "1 60 a x", Error::Cost),
        (Exact, "1", Error::MissingWindow),
        (Leak, "1", Error::MissingRate),
        (Leak, "1 1", Error::MissingPeriod),
    ] {
        assert_eq!(single(algorithm, line), Err(error), "{algorithm:?} {line}");
    }
    let empty = syntax::one_limit_args(Lease, &mut [&b"1"[..], b"60", b""].into_iter());
    assert_eq!(empty, Err(Error::Holder));
    let odd = syntax::one_limit_args(Lease, &mut [&b"1"[..], b"60", b"\0 \xff"].into_iter());
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
        ("100 60 PEEK PRECISION 10 PEEK", 1, PEEK),
    ] {
        let expected = Ok((precise(cost), options));
        assert_eq!(single(Algorithm::Slide, line), expected, "{line}");
    }
    for (line, error) in [
        ("100 60 PRECISION", Error::Precision),
        ("100 60 PRECISION 0", Error::Precision),
        ("100 60 PRECISION 1", Error::Precision),
        ("100 60 PRECISION 61", Error::Precision),
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
fn an_option_with_a_value_is_given_once() {
    let slide = single(Algorithm::Slide, "100 60 1 PRECISION 2 peek precision 2");
    assert_eq!(slide, Err(Error::Precision));
    // An offset of 0 is given, too.
    let fixed = single(Algorithm::Fixed, "100 60 OFFSET 0 OFFSET 1");
    assert_eq!(fixed, Err(Error::Offset));
    let spec = multi(&[b"a", b"FIXED 100 60 1 OFFSET 1 offset 1"]);
    assert_eq!(spec, Err(Error::Offset));
}

#[test]
fn in_a_spec_a_precision_stands_last() {
    let line = r#"a "PEEK SLIDE 100 60 1 PRECISION 10" b "FIXED 5 60" c "slide 7 60 precision 2""#;
    let specs = vec![
        (0, spec(parts(100, 60_000, 10), 1)),
        (2, spec(fixed(5, 60_000), 1)),
        (4, spec(parts(7, 60_000, 2), 1)),
    ];
    assert_eq!(multi(&args(line)), Ok((specs, PEEK)));
    for (text, error) in [
        ("SLIDE 1 60 1 PRECISION", Error::Precision),
        ("SLIDE 1 60 PRECISION", Error::Precision),
        ("SLIDE 1 60 1 PRECISION 61", Error::Precision),
        ("SLIDE 1 60 1 PRECISION PEEK", Error::Precision),
        ("SLIDE 1 60 PRECISION 2 1", Error::TrailingWords),
        ("SLIDE 1 60 1 PRECISION 2 PRECISION 2", Error::Precision),
        ("FIXED 1 60 1 PRECISION 2", Error::TrailingWords),
        ("FIXED 1 60 PRECISION 2", Error::TrailingWords),
        ("SLIDE 1 60 1 PEEK PRECISION 2", Error::MisplacedOption),
    ] {
        assert_eq!(multi(&[b"a", text.as_bytes()]), Err(error), "{text}");
    }
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
            let (logged, n) = (size % 1_000_001, 2 + (flow % 59) as u8);
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
    fn valid_calls_are_read_back(
        limits in proptest::collection::vec(limit(), 1..10),
        (start, expected) in proptest::sample::select(vec![("", NONE), ("PEEK ", PEEK), ("Force ", FORCE)]),
    ) {
        let (mut line, mut specs) = (Vec::new(), Vec::new());
        let first = limits.first().map(|(_, _, text)| format!("{start}{text}")).unwrap();
        for (place, (key, spec, text)) in limits.iter().enumerate() {
            specs.push((line.len(), *spec));
            line.push(&key[..]);
            line.push(if place == 0 { first.as_bytes() } else { text.as_bytes() });
        }
        prop_assert_eq!(multi(&line), Ok((specs, expected)));
    }

    #[test]
    fn any_words_are_read_or_refused(line in proptest::collection::vec(word(), 0..30)) {
        let line: Vec<&[u8]> = line.iter().map(Vec::as_slice).collect();
        for &algorithm in Algorithm::ALL {
            if let Ok((spec, _)) = syntax::one_limit_args(algorithm, &mut line.iter().copied()) {
                prop_assert_eq!(spec.limit.algorithm(), algorithm);
            }
        }
        let _ = multi(&line);
    }

    /// A spec is what follows the key in a one-limit command, but for the options.
    #[test]
    fn a_spec_reads_as_its_one_limit_command(line in proptest::collection::vec(word(), 0..7)) {
        for &algorithm in Algorithm::ALL {
            if algorithm == Algorithm::Policy {
                continue;
            }
            // What has spaces is several words of a spec.
            let line: Vec<&[u8]> = line.iter().map(Vec::as_slice).filter(|word| !word.contains(&b' ')).collect();
            let mut text = algorithm.name().as_bytes().to_vec();
            for word in &line {
                text.push(b' ');
                text.extend(*word);
            }
            let alone = syntax::one_limit_args(algorithm, &mut line.iter().copied());
            match Spec::parse(&text) {
                Ok(spec) => prop_assert_eq!(alone, Ok((spec, NONE))),
                Err(error) => {
                    let refused = alone.map_or(true, |(_, options)| options != NONE);
                    prop_assert!(refused, "{:?}", error);
                }
            }
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
        ("slide 100 90s 1 PRECISION 2", "SLIDE 100 90s PRECISION 2"),
        ("SLIDE 100 24h 1 PRECISION 10", "SLIDE 100 1d PRECISION 10"),
        ("BUCKET 200 1000 120m 5", "BUCKET 200 1000 2h"),
        ("FIXED 0 1500ms 1", "FIXED 0 1500ms"),
        ("EXACT 5 36h 1", "EXACT 5 36h"),
        ("LEAK 3 2 500ms 1", "LEAK 3 2 500ms"),
        ("LEASE 5 30 job:1 1", "LEASE 5 30s job:1"),
    ] {
        let limit = Spec::parse(line.as_bytes()).unwrap().limit;
        assert_eq!(limit.to_string(), shown);
        let (kept, holder) = limit.into_owned();
        let holder = String::from_utf8_lossy(holder);
        assert_eq!(format!("{kept} {holder}").trim_end(), shown);
    }
    let limit = lease(5, 1000, b"\0 \xff");
    assert_eq!(limit.to_string(), "LEASE 5 1s \\x00 \\xff");
}

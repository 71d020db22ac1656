//! Policies and overrides as text, as JSON and as bytes.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rl_core::overrides::{Entry, Overrides, What, place_of};
use rl_core::policy::{self, Policy, Rules};
use rl_core::{Error, Scale};

fn words(line: &str) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(' ').map(str::as_bytes)
}

fn parse(line: &str) -> Result<Policy, Error> {
    Policy::parse(&mut words(line))
}

#[test]
fn a_limit_is_shown_in_one_way() {
    for (written, shown) in [
        ("slide 100 60", "SLIDE 100 1m"),
        ("SLIDE 100 90", "SLIDE 100 90s"),
        ("SLIDE 100 86400 COST 1", "SLIDE 100 1d COST 1"),
        (
            "SLIDE 100 1h COST 2 PRECISION 6",
            "SLIDE 100 1h PRECISION 6 COST 2",
        ),
        ("SLIDE 100 1h PRECISION 1", "SLIDE 100 1h"),
        ("BUCKET 200 1000 1500ms", "BUCKET 200 1000 1500ms"),
        ("FIXED 0 24h", "FIXED 0 1d"),
        ("exact 9 500ms", "EXACT 9 500ms"),
        ("LEAK 5 1 3600s", "LEAK 5 1 1h"),
        (
            "SLIDE 60 1m COST 1 SLIDE 90000 1m",
            "SLIDE 60 1m COST 1 SLIDE 90000 1m",
        ),
    ] {
        let policy = parse(written).unwrap();
        assert_eq!(policy.rules().to_string(), shown);
        assert_eq!(parse(shown).unwrap(), policy);
    }
}

#[test]
fn a_policy_is_read_or_refused() {
    let policy = parse("SLIDE 5 1m NOTE x SHADOW").unwrap();
    assert!(policy.shadow);
    assert_eq!(&*policy.note, "x");
    for (line, error) in [
        ("", Error::PolicySyntax),
        ("SHADOW", Error::PolicySyntax),
        ("SLIDE 5", Error::IncompleteSpec),
        ("SLIDE 5 x", Error::Window),
        ("SLIDE 5 1m 1", Error::PolicySyntax),
        ("SLIDE 5 1m COST", Error::IncompleteSpec),
        ("SLIDE 5 1m COST x", Error::FixedCost),
        ("SLIDE 5 1m COST 0", Error::FixedCost),
        ("SLIDE 5 1m COST 1 COST 1", Error::FixedCost),
        ("BUCKET 5 1 1m PRECISION 2", Error::UnknownOption),
        ("SLIDE 5 1m NOTE", Error::PolicySyntax),
        ("LEASE 5 1m me", Error::LeaseInPolicy),
        ("SLIDE 1 1 POLICY x", Error::PolicySyntax),
    ] {
        assert_eq!(parse(line), Err(error), "{line}");
    }
    let long = "x".repeat(1025);
    assert_eq!(parse(&format!("SLIDE 1 1 NOTE {long}")), Err(Error::Note));
    assert_eq!(policy::note(b"\xff"), Err(Error::Note));
    for name in [&b""[..], b"a b", b"\xc3\xa4", b"a\0", b"a\n", &[b'x'; 129]] {
        assert_eq!(policy::name(name), Err(Error::PolicyName));
    }
    assert!(policy::name(&[b'~'; 128]).is_ok());
}

#[test]
fn json_is_strict_and_says_what_is_wrong() {
    let text = r#"{
  "policies": {
    "free": {
      "limits": [
        "SLIDE 100 1m"
      ]
    },
    "pro": {
      "limits": [
        "SLIDE 60 1m COST 1",
        "SLIDE 90000 1m"
      ],
      "shadow": true,
      "note": "a \"note\""
    }
  }
}"#;
    let read = policy::from_json(text.as_bytes()).unwrap();
    assert_eq!(read.len(), 2);
    let written = policy::to_json(read.iter().map(|(name, policy)| (&**name, policy)));
    assert_eq!(written, text);
    for (json, why) in [
        ("", "EOF"),
        ("[]", "invalid type"),
        ("{}", "missing field `policies`"),
        (r#"{"policies":{}} x"#, "trailing characters"),
        (r#"{"policies":{},"more":1}"#, "unknown field `more`"),
        (
            r#"{"policies":{"a":{}}}"#,
            "policy a: missing field `limits`",
        ),
        (
            r#"{"policies":{"a":{"limits":[]}}}"#,
            "policy a: a policy must have",
        ),
        (
            r#"{"policies":{"a":{"limits":["SLIDE 1 1","SLIDE x 1"]}}}"#,
            "policy a: limit must be",
        ),
        (
            r#"{"policies":{"a":{"limits":["SLIDE 1 1 SLIDE 1 2"]}}}"#,
            "policy a: expected a limit",
        ),
        (
            r#"{"policies":{"a":{"limits":["SLIDE 1 1 SHADOW"]}}}"#,
            "policy a: expected a limit",
        ),
        (
            r#"{"policies":{"a":{"limits":["LEASE 1 1 x"]}}}"#,
            "policy a: a policy cannot have a LEASE",
        ),
        (
            r#"{"policies":{"a":{"limits":["SLIDE 1 1"],"oops":1}}}"#,
            "policy a: unknown field `oops`",
        ),
        (
            r#"{"policies":{"a b":{"limits":["SLIDE 1 1"]}}}"#,
            "policy a b: policy name must be",
        ),
        (
            r#"{"policies":{"a":{"limits":["SLIDE 1 1"]},"a":{"limits":["SLIDE 1 1"]}}}"#,
            "policy a: its name comes twice",
        ),
        (
            r#"{"policies":{"a":{"limits":"SLIDE 1 1"}}}"#,
            "policy a: invalid type",
        ),
        (
            r#"{"policies":{"a":[["SLIDE 1 1"],true,"x"]}}"#,
            "policy a: invalid type: sequence, expected an object",
        ),
    ] {
        let error = policy::from_json(json.as_bytes()).unwrap_err();
        assert!(error.contains(why), "{json}: {error}");
    }
    let deep = "[".repeat(1_000_000);
    assert!(policy::from_json(deep.as_bytes()).is_err());
    let many: Vec<String> = (0..10_001)
        .map(|n| format!(r#""p{n}":{{"limits":["SLIDE 1 1"]}}"#))
        .collect();
    let many = format!(r#"{{"policies":{{{}}}}}"#, many.join(","));
    let error = policy::from_json(many.as_bytes()).unwrap_err();
    assert!(error.contains("at most 10000"), "{error}");
}

#[test]
fn scaling_rounds_down_and_leaves_something() {
    let scaled = |line: &str, num, den| {
        let rules = Rules::parse(&mut words(line)).unwrap();
        rules.scaled(Scale::new(num, den).unwrap()).to_string()
    };
    assert_eq!(scaled("SLIDE 100 1m COST 2", 5, 1), "SLIDE 500 1m COST 2");
    assert_eq!(scaled("BUCKET 7 3 1m", 1, 2), "BUCKET 3 1 1m");
    assert_eq!(scaled("BUCKET 7 3 1m", 1, 100), "BUCKET 1 1 1m");
    assert_eq!(scaled("FIXED 0 1m", 9, 1), "FIXED 0 1m");
    assert_eq!(scaled("EXACT 500000 1m", 3, 1), "EXACT 1000000 1m");
    assert_eq!(
        scaled("LEAK 9007199254740991 1 1m", 3, 2),
        "LEAK 9007199254740991 1 1m"
    );
    for (num, den) in [(0, 1), (1, 0), (1_000_001, 1), (1, 1_000_001)] {
        assert_eq!(Scale::new(num, den), Err(Error::Scale));
    }
}

#[test]
fn an_override_is_read_or_refused() {
    let entry = |line: &str| Entry::parse(&mut words(line), 5_000_123);
    let set = entry("pro SLIDE 500 1m SLIDE 9000 1h EX 30m NOTE vip").unwrap();
    assert_eq!(set.what.to_string(), "SLIDE 500 1m SLIDE 9000 1h");
    assert_eq!((set.ends_ms, &*set.note), (1_805_000, "vip"));
    assert!(set.holds(1_804_999_999) && !set.holds(1_805_000_000));
    assert_eq!(set.ends_in_ms(1_804_998_999), Some(2));
    assert_eq!(entry("pro BLOCK").unwrap().ends_in_ms(0), None);
    for (line, error) in [
        ("pro", Error::OverrideSyntax),
        ("pro MAYBE", Error::OverrideSyntax),
        ("pro BLOCK ALLOW", Error::OverrideSyntax),
        ("pro BLOCK EX", Error::OverrideSyntax),
        ("pro BLOCK EX 0", Error::Ends),
        ("pro BLOCK EX 1y", Error::Ends),
        ("pro SCALE 1", Error::IncompleteSpec),
        ("pro SCALE 1 0", Error::Scale),
        ("pro LEASE 1 1 x", Error::LeaseInPolicy),
    ] {
        assert_eq!(entry(line), Err(error), "{line}");
    }
}

#[test]
fn overrides_live_in_the_slot_of_their_key() {
    let place = |key: &str| place_of(key.as_bytes()).map(|place| String::from_utf8(place).unwrap());
    assert_eq!(place("u42").as_deref(), Some("rl:override:{u42}"));
    assert_eq!(
        place("{u42}:ip").as_deref(),
        Some("rl:override:{u42}:{u42}:ip")
    );
    assert_eq!(place("a{b").as_deref(), Some("rl:override:{a{b}"));
    assert_eq!(place("{a}b}").as_deref(), Some("rl:override:{a}:{a}b}"));
    for none in ["", "a}", "a{}b", "}{", "{}"] {
        assert_eq!(place(none), None, "{none}");
    }
}

fn an_entry() -> impl Strategy<Value = Entry> {
    let what = prop_oneof![
        Just(What::Block),
        Just(What::Allow),
        (1_u64..1_000_000, 1_u64..1_000_000)
            .prop_map(|(n, d)| What::Scale(Scale::new(n, d).unwrap())),
        (0_u64..1 << 53, 1_u64..99999, 1_u8..65).prop_map(|(limit, ms, n)| {
            let text = format!("SLIDE {limit} {ms}ms PRECISION {n} COST 3 FIXED 1 1");
            What::parse(&mut words(&text)).unwrap()
        }),
    ];
    ("[!-~]{1,128}", what, 0_u64..1 << 50, "\\PC{0,40}").prop_map(
        |(policy, what, ends_ms, note)| Entry {
            policy: policy.into(),
            what,
            ends_ms,
            note: note.into(),
        },
    )
}

proptest! {
    #[test]
    fn overrides_are_read_as_they_were_written(
        entries in prop::collection::vec(an_entry(), 1..6),
        at in any::<prop::sample::Index>(),
        bit in 0_u8..8,
    ) {
        let mut all = Overrides::default();
        for entry in entries {
            all = all.with(entry, 0).unwrap();
        }
        let mut blob = all.blob();
        prop_assert!(Overrides::is_blob(&blob));
        prop_assert_eq!(Overrides::decode_blob(&blob), Ok(all.clone()));
        prop_assert!(rl_core::Next::decode_blob(&blob).is_err(), "no state has such a blob");
        let at = at.index(blob.len());
        blob[at] ^= 1 << bit;
        if let Ok(other) = Overrides::decode_blob(&blob) {
            prop_assert_ne!(&other, &all);
            prop_assert_eq!(&other.blob()[..], &blob[..]);
        }
    }
}

#[test]
fn a_key_has_overrides_of_64_policies_at_most() {
    let entry =
        |n: usize| Entry::parse(&mut words(&format!("p{n} BLOCK EX {}", n + 1)), 0).unwrap();
    let mut all = Overrides::default();
    for n in 0..64 {
        all = all.with(entry(n), 0).unwrap();
    }
    assert_eq!(all.with(entry(64), 0), Err(Error::TooManyOverrides));
    assert!(all.with(entry(3), 0).is_ok());
    assert_eq!(all.expire_at_ms(), 64_000);
    let later = all.with(entry(64), 1_000_000).unwrap();
    assert!(later.of(b"p0", 0).is_none(), "dropped once it has ended");
    assert_eq!(later.iter(2_500_000).count(), 63);
}

/// As these bytes were written once, they must be read for ever.
#[test]
fn the_encoding_of_overrides_stays_as_it_is() {
    let mut all = Overrides::default();
    for line in [
        "pro SLIDE 500 1m COST 2 EX 30m NOTE vip",
        "free SCALE 5 1",
        "x BLOCK",
    ] {
        all = all
            .with(Entry::parse(&mut words(line), 0).unwrap(), 0)
            .unwrap();
    }
    let blob = all.blob();
    assert_eq!(blob[..9], [2, 0, 0, 0, 0, 0, 0, 0, 0xf0]);
    let text = blob[9..].escape_ascii().to_string();
    assert_eq!(
        text,
        "\\x03\\x00\\x04free\\x00\\tSCALE 5 1\\xc0\\xeem\\x03pro\\x03vip\\x13SLIDE 500 1m COST 2\\x00\\x01x\\x00\\x05BLOCK"
    );
}

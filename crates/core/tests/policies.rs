//! Policies and overrides as text, as JSON and as bytes.

use proptest::prelude::*;
use rl_core::policy::{self, Policy, Rules};
use rl_core::policy::{Override, OverrideAction, Overrides, override_key};
use rl_core::{Error, Scale};

fn words(line: &str) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(' ').map(str::as_bytes)
}

fn parse(line: &str) -> Result<Policy, Error> {
    Policy::parse(&mut words(line))
}

#[test]
fn a_denial_that_is_not_enforced_passes_at_once() {
    let mut decision = rl_core::Decision {
        allowed: false,
        index: 1,
        limit: 10,
        remaining: 0,
        retry_after_ms: 500,
        reset_after_ms: 900,
    };
    decision.allow_in_shadow();
    assert_eq!((decision.allowed, decision.retry_after_ms), (true, 0));
    assert_eq!((decision.limit, decision.reset_after_ms), (10, 900));
}

#[test]
fn the_limit_or_the_capacity_is_what_a_report_shows() {
    for (text, most) in [
        ("SLIDE 11 1m", 11),
        ("SLIDE 12 1m PRECISION 4", 12),
        ("BUCKET 13 5 1m", 13),
        ("FIXED 14 1m", 14),
        ("LEAK 15 5 1m", 15),
        ("EXACT 16 1m", 16),
    ] {
        let mut words = text.split(' ').map(str::as_bytes);
        let rules = rl_core::policy::Rules::parse(&mut words).unwrap();
        assert_eq!(rules.as_slice()[0].limit.limit_value(), most);
    }
    let several = b"SLIDE 1 1 SLIDE 2 2";
    let rules = rl_core::policy::Rules::parse(&mut several.split(|&byte| byte == b' ')).unwrap();
    assert_eq!(rules.limit().unwrap().limit_value(), 0);
}

#[test]
fn a_scale_multiplies_every_amount_and_no_span() {
    let limit = |text: &str| {
        let mut words = text.split(' ').map(str::as_bytes);
        rl_core::policy::Rules::parse(&mut words)
            .unwrap()
            .as_slice()[0]
            .limit
    };
    for (text, doubled, tenth) in [
        ("SLIDE 100 1m", "SLIDE 200 1m", "SLIDE 10 1m"),
        (
            "SLIDE 100 1m PRECISION 4",
            "SLIDE 200 1m PRECISION 4",
            "SLIDE 10 1m PRECISION 4",
        ),
        ("BUCKET 100 50 1m", "BUCKET 200 100 1m", "BUCKET 10 5 1m"),
        ("FIXED 100 1m", "FIXED 200 1m", "FIXED 10 1m"),
        ("LEAK 100 50 1m", "LEAK 200 100 1m", "LEAK 10 5 1m"),
        ("EXACT 100 1m", "EXACT 200 1m", "EXACT 10 1m"),
        // Something stays something, nothing stays nothing, and there is a most.
        ("SLIDE 1 1m", "SLIDE 2 1m", "SLIDE 1 1m"),
        ("SLIDE 0 1m", "SLIDE 0 1m", "SLIDE 0 1m"),
        ("BUCKET 0 1 1m", "BUCKET 0 2 1m", "BUCKET 0 1 1m"),
        ("EXACT 1000000 1m", "EXACT 1000000 1m", "EXACT 100000 1m"),
        (
            "FIXED 9007199254740991 1m",
            "FIXED 9007199254740991 1m",
            "FIXED 900719925474099 1m",
        ),
    ] {
        let scaled = |num, den| limit(text).scaled(rl_core::Scale::new(num, den).unwrap());
        assert_eq!(scaled(2, 1).to_string(), doubled);
        assert_eq!(scaled(1, 10).to_string(), tenth);
        assert_eq!(scaled(7, 7), limit(text));
    }
    let lease = rl_core::Limit::Lease(rl_core::LeaseLimit::new(5, 1000, b"a").unwrap());
    assert_eq!(lease.scaled(rl_core::Scale::new(2, 1).unwrap()), lease);
    for (num, den, ok) in [
        (1, 1, true),
        (1_000_000, 1_000_000, true),
        (0, 1, false),
        (1, 0, false),
        (1_000_001, 1, false),
        (1, 1_000_001, false),
        (1 << 32, 1, false),
    ] {
        assert_eq!(rl_core::Scale::new(num, den).is_ok(), ok, "{num}/{den}");
    }
    assert_eq!(rl_core::Scale::new(3, 2).unwrap().to_string(), "SCALE 3 2");
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
        ("SLIDE 5", Error::MissingWindow),
        ("SLIDE 5 x", Error::Window),
        ("SLIDE 5 1m 1", Error::CostInPolicy),
        ("SLIDE 5 1m COST 2 1", Error::CostInPolicy),
        ("SLIDE 5 1m x", Error::PolicySyntax),
        ("SLIDE 5 1m COST", Error::FixedCost),
        ("SLIDE 5 1m COST x", Error::FixedCost),
        ("SLIDE 5 1m COST 0", Error::FixedCost),
        ("SLIDE 5 1m COST 1 COST 1", Error::FixedCost),
        ("SLIDE 5 1m COST 1 PRECISION 2 COST 1", Error::FixedCost),
        ("SLIDE 5 1m PRECISION 2 PRECISION 2", Error::Precision),
        ("FIXED 5 day OFFSET 0 COST 1 OFFSET 1h", Error::Offset),
        ("BUCKET 5 1 1m PRECISION 2", Error::OptionOfOtherLimit),
        ("SLIDE 5 1m OFFSET 1s", Error::OptionOfOtherLimit),
        ("SLIDE 5 1m NOTE", Error::Note),
        ("SLIDE 5 1m REMARK x", Error::PolicySyntax),
        ("SLIDE 5 1m NOTE x NOTE y", Error::PolicySyntax),
        ("SLIDE 5 1m SHADOW SHADOW", Error::PolicySyntax),
        ("SLIDE 5 1m SHADOW NOTE", Error::Note),
        ("LEASE 5 1m me", Error::LeaseInPolicy),
        ("SLIDE 1 1 POLICY x", Error::PolicySyntax),
    ] {
        assert_eq!(parse(line), Err(error), "{line}");
    }
    let empty_note = [&b"SLIDE"[..], b"5", b"1m", b"NOTE", b"", b"NOTE", b"x"];
    let repeated = Policy::parse(&mut empty_note.into_iter());
    assert_eq!(repeated, Err(Error::PolicySyntax));
    let noted = |len: usize| parse(&format!("SLIDE 1 1 NOTE {}", "x".repeat(len)));
    assert_eq!(noted(1024).map(|policy| policy.note.len()), Ok(1024));
    assert_eq!(noted(1025), Err(Error::Note));
    let limits = |count: usize| parse(&vec!["SLIDE 1 1"; count].join(" "));
    assert_eq!(
        limits(16).map(|policy| policy.rules().as_slice().len()),
        Ok(16)
    );
    assert_eq!(limits(17), Err(Error::LimitCount));
    assert_eq!(policy::check_note(b"\xff"), Err(Error::Note));
    for name in [&b""[..], b"a b", b"\xc3\xa4", b"a\0", b"a\n", &[b'x'; 129]] {
        assert_eq!(policy::check_name(name), Err(Error::PolicyName));
    }
    assert!(policy::check_name(&[b'~'; 128]).is_ok());
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
        (
            r#"{"policies":[]}"#,
            "invalid type: sequence, expected policies by name",
        ),
        (r#"{"policies":{}} x"#, "trailing characters"),
        (r#"{"policies":{},"more":1}"#, "unknown field `more`"),
        (
            r#"{"policies":{"a":{}}}"#,
            "policy \"a\": missing field `limits`",
        ),
        (
            r#"{"policies":{"a":{"limits":[]}}}"#,
            "policy \"a\": a policy must have",
        ),
        (
            r#"{"policies":{"a":{"limits":["SLIDE 1 1","SLIDE x 1"]}}}"#,
            "policy \"a\": limit \"SLIDE x 1\": limit must be",
        ),
        (
            r#"{"policies":{"a":{"limits":["SLIDE 1 1 SLIDE 1 2"]}}}"#,
            "\": expected a limit",
        ),
        (
            r#"{"policies":{"a":{"limits":["SLIDE 1 1 SHADOW"]}}}"#,
            "\": expected a limit",
        ),
        (
            r#"{"policies":{"a":{"limits":["LEASE 1 1 x"]}}}"#,
            "policy \"a\": limit \"LEASE 1 1 x\": a policy cannot contain a LEASE",
        ),
        (
            r#"{"policies":{"a":{"limits":["SLIDE 1 1"],"oops":1}}}"#,
            "policy \"a\": unknown field `oops`",
        ),
        (
            r#"{"policies":{"a b":{"limits":["SLIDE 1 1"]}}}"#,
            "policy \"a b\": policy name must be",
        ),
        (
            r#"{"policies":{"a":{"limits":["SLIDE 1 1"]},"a":{"limits":["SLIDE 1 1"]}}}"#,
            "policy \"a\": the name is used twice",
        ),
        (
            r#"{"policies":{"a":{"limits":"SLIDE 1 1"}}}"#,
            "policy \"a\": invalid type: string \"SLIDE 1 1\", expected a list of limits",
        ),
        (
            r#"{"policies":{"a":[["SLIDE 1 1"],true,"x"]}}"#,
            "policy \"a\": invalid type: sequence, expected an object",
        ),
    ] {
        let error = policy::from_json(json.as_bytes()).unwrap_err();
        assert!(error.message.contains(why), "{json}: {error}");
    }
    let error =
        policy::from_json(b"{\"policies\":{\n \"a\":{\"limits\":[\"SLIDE 5 1y\"]}}}").unwrap_err();
    assert_eq!((error.line, error.column), (2, 29), "{error}");
    assert!(!error.message.contains(" column "), "{error}");
    let deep = "[".repeat(1_000_000);
    assert!(policy::from_json(deep.as_bytes()).is_err());
}

#[test]
fn json_has_as_much_as_is_allowed_and_no_more() {
    let policies = |count: usize| {
        let policy = |n| format!(r#""p{n}":{{"limits":["SLIDE 1 1"]}}"#);
        let all: Vec<String> = (0..count).map(policy).collect();
        policy::from_json(format!(r#"{{"policies":{{{}}}}}"#, all.join(",")).as_bytes())
    };
    assert_eq!(policies(10_000).map(|all| all.len()), Ok(10_000));
    let error = policies(10_001).unwrap_err();
    assert!(error.message.contains("at most 10000"), "{error}");
    let limits = |count: usize| {
        let all = vec![r#""SLIDE 1 1""#; count].join(",");
        policy::from_json(format!(r#"{{"policies":{{"a":{{"limits":[{all}]}}}}}}"#).as_bytes())
    };
    let read = limits(16).unwrap();
    assert_eq!(read[0].1.rules().as_slice().len(), 16);
    let error = limits(17).unwrap_err();
    assert!(
        error.message.contains("policy \"a\": a policy must have"),
        "{error}"
    );
    // An invalid name is shown in one line, and cut.
    let name = format!("a\\n{}", "x".repeat(200));
    let text = format!(r#"{{"policies":{{"{name}":{{"limits":["SLIDE 1 1"]}}}}}}"#);
    let error = policy::from_json(text.as_bytes()).unwrap_err();
    let shown = format!("policy \"a\\n{}\": policy name must be", "x".repeat(125));
    assert!(error.message.contains(&shown), "{error}");
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
    let entry = |line: &str| Override::parse(&mut words(line), 5_000_123);
    let set = entry("pro SLIDE 500 1m SLIDE 9000 1h EX 30m NOTE vip").unwrap();
    assert_eq!(set.action.to_string(), "SLIDE 500 1m SLIDE 9000 1h");
    assert_eq!((set.expires_at_ms, &*set.note), (1_805_000, "vip"));
    assert!(set.is_in_force(1_804_999_999) && !set.is_in_force(1_805_000_000));
    assert_eq!(set.expires_in_ms(1_804_998_999), Some(2));
    assert_eq!(entry("pro BLOCK").unwrap().expires_in_ms(0), None);
    for (line, error) in [
        ("pro", Error::OverrideSyntax),
        ("pro MAYBE", Error::OverrideSyntax),
        ("pro BLOCK ALLOW", Error::OverrideSyntax),
        ("pro BLOCK EX", Error::OverrideExpiry),
        ("pro BLOCK NOTE", Error::Note),
        ("pro SLIDE 5 1m 1", Error::CostInPolicy),
        ("pro BUCKET 5 1", Error::MissingPeriod),
        ("pro BLOCK EX 0", Error::OverrideExpiry),
        ("pro BLOCK EX 1y", Error::OverrideExpiry),
        ("pro BLOCK EX 1 EX 1", Error::OverrideSyntax),
        ("pro BLOCK NOTE x NOTE y", Error::OverrideSyntax),
        ("pro FIXED 5 day OFFSET 1h OFFSET 1h", Error::Offset),
        ("pro FIXED 5 day PRECISION 2", Error::OptionOfOtherLimit),
        ("pro BLOCK REMARK x", Error::OverrideSyntax),
        ("pro BLOCK EX 1 NOTE x UNTIL 1", Error::OverrideSyntax),
        ("pro SCALE 1", Error::Scale),
        ("pro SCALE 1 0", Error::Scale),
        ("pro LEASE 1 1 x", Error::LeaseInPolicy),
    ] {
        assert_eq!(entry(line), Err(error), "{line}");
    }
}

#[test]
fn overrides_live_in_the_slot_of_their_key() {
    let place =
        |key: &str| override_key(key.as_bytes()).map(|place| String::from_utf8(place).unwrap());
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

fn an_entry() -> impl Strategy<Value = Override> {
    let what = prop_oneof![
        Just(OverrideAction::Block),
        Just(OverrideAction::Allow),
        (1_u64..1_000_000, 1_u64..1_000_000)
            .prop_map(|(n, d)| OverrideAction::Scale(Scale::new(n, d).unwrap())),
        (0_u64..1 << 53, 1_u64..99999, 2_u8..61).prop_map(|(limit, ms, n)| {
            let text = format!("SLIDE {limit} {ms}ms PRECISION {n} COST 3 FIXED 1 1");
            OverrideAction::parse(&mut words(&text)).unwrap()
        }),
    ];
    ("[!-~]{1,128}", what, 0_u64..1 << 50, "\\PC{0,40}").prop_map(
        |(policy, action, expires_at_ms, note)| Override {
            policy: policy.into(),
            action,
            expires_at_ms,
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
        prop_assert!(rl_core::Update::decode_blob(&blob).is_err(), "no state has such a blob");
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
        |n: usize| Override::parse(&mut words(&format!("p{n} BLOCK EX {}", n + 1)), 0).unwrap();
    let mut all = Overrides::default();
    for n in 0..64 {
        all = all.with(entry(n), 0).unwrap();
    }
    assert_eq!(all.with(entry(64), 0), Err(Error::TooManyOverrides));
    assert!(all.with(entry(3), 0).is_ok());
    assert_eq!(all.expire_at_ms(), 64_000);
    let later = all.with(entry(64), 1_000_000).unwrap();
    assert!(later.get(b"p0", 0).is_none(), "dropped once it has ended");
    assert_eq!(later.iter(2_500_000).count(), 63);
}

#[test]
fn overrides_are_found_and_dropped_by_policy_and_time() {
    let entry = |line: &str| Override::parse(&mut words(line), 0).unwrap();
    let mut all = Overrides::default();
    assert!(all.is_empty());
    assert_eq!((all.expire_at_ms(), all.heap_bytes()), (0, 0));
    for line in ["b BLOCK EX 10", "a ALLOW", "c SCALE 2 1 EX 20"] {
        all = all.with(entry(line), 0).unwrap();
    }
    let names = |all: &Overrides, now_us| -> Vec<Box<str>> {
        let entries = all.iter(now_us);
        entries.map(|entry| entry.policy.clone()).collect()
    };
    assert_eq!(names(&all, 0), ["a".into(), "b".into(), "c".into()]);
    assert_eq!(names(&all, 10_000_000), ["a".into(), "c".into()]);
    assert_eq!(all.get(b"b", 0).unwrap().action, OverrideAction::Block);
    assert_eq!(all.get(b"b", 10_000_000), None);
    assert_eq!(all.get(b"d", 0), None);
    assert_eq!(all.expire_at_ms(), 0, "a does not expire");
    let ending = all.without(b"a", 0);
    assert_eq!(names(&ending, 0), ["b".into(), "c".into()]);
    assert_eq!(ending.expire_at_ms(), 20_000);
    assert!(ending.without(b"c", 10_000_000).is_empty());
    // Set again: in place of what was set before.
    let again = all.with(entry("b ALLOW"), 0).unwrap();
    assert_eq!(names(&again, 0).len(), 3);
    assert_eq!(again.get(b"b", 0).unwrap().action, OverrideAction::Allow);
}

#[test]
fn the_memory_of_overrides_is_their_list_texts_and_limits() {
    let with = |lines: &[&str]| {
        let add = |all: Overrides, line: &&str| {
            let entry = Override::parse(&mut words(line), 0).unwrap();
            all.with(entry, 0).unwrap()
        };
        // A copy has no room to spare.
        lines.iter().fold(Overrides::default(), add).clone()
    };
    let (one, rule) = (size_of::<Override>(), size_of::<policy::Rule>());
    assert_eq!(with(&["abc BLOCK"]).heap_bytes(), one + 3);
    assert_eq!(with(&["abc BLOCK NOTE 12345"]).heap_bytes(), one + 3 + 5);
    let three = with(&["a BLOCK", "b SLIDE 1 1 SLIDE 2 2", "c SCALE 1 2"]);
    assert_eq!(three.heap_bytes(), 3 * one + 3 + 2 * rule);
}

#[test]
fn damaged_overrides_are_refused() {
    let blob = |entries: &[(u64, &str)]| {
        // The bytes that `Overrides::blob` would write, even for entries that it refuses.
        let mut blob = vec![1, 0, 0, 0, 0, 0, 0, 0x70, 0xf0, entries.len() as u8];
        for &(expires_at_ms, name) in entries {
            let mut rest = expires_at_ms;
            while rest >= 0x80 {
                blob.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            blob.extend([rest as u8, name.len() as u8]);
            blob.extend(name.as_bytes());
            blob.extend(b"\x00\x05BLOCK");
        }
        blob
    };
    let read = |blob: &[u8]| Overrides::decode_blob(blob).map(|all| all.iter(0).count());
    assert_eq!(read(&blob(&[(0, "a"), (9, "b")])), Ok(2));
    let names: Vec<String> = (10..75).map(|n| format!("p{n}")).collect();
    let many: Vec<(u64, &str)> = names.iter().map(|name| (0, &**name)).collect();
    assert_eq!(read(&blob(&many[..64])), Ok(64));
    let latest_ms = rl_core::MAX_TIME_US / 1000;
    assert_eq!(read(&blob(&[(latest_ms, "a")])), Ok(1));
    for (entries, why) in [
        (&[][..], "none"),
        (&many[..], "too many"),
        (&[(0, "b"), (0, "a")], "out of order"),
        (&[(0, "a"), (0, "a")], "twice"),
        (&[(0, "a b")], "no name"),
        (&[(latest_ms + 1, "a")], "expires too late"),
    ] {
        assert_eq!(read(&blob(entries)), Err(Error::DamagedState), "{why}");
    }
    let good = blob(&[(0, "a")]);
    let changed = |at: usize, to: u8| {
        let mut blob = good.clone();
        blob[at] = to;
        Overrides::decode_blob(&blob)
    };
    assert_eq!(changed(0, 2), Err(Error::NewerState));
    assert_eq!(changed(0, 0), Err(Error::DamagedState));
    assert_eq!(changed(1, 1), Err(Error::DamagedState));
    for end in 0..good.len() {
        assert_eq!(read(&good[..end]), Err(Error::DamagedState), "{end} bytes");
    }
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
            .with(Override::parse(&mut words(line), 0).unwrap(), 0)
            .unwrap();
    }
    let blob = all.blob();
    assert_eq!(blob[..9], [1, 0, 0, 0, 0, 0, 0, 0x70, 0xf0]);
    let text = blob[9..].escape_ascii().to_string();
    assert_eq!(
        text,
        "\\x03\\x00\\x04free\\x00\\tSCALE 5 1\\xc0\\xeem\\x03pro\\x03vip\\x13SLIDE 500 1m COST 2\\x00\\x01x\\x00\\x05BLOCK"
    );
}

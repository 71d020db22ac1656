//! Whatever a client sends, the server stays up, replies, and does not leak memory.

use redis::{Connection, ErrorKind, RedisResult, Value};
use rl_core::syntax::Spec;
use rl_core::{Mode, State, Update};
use rl_testkit::{Random, Reply, Server, ask, ask_error, error_text, eventually};
use rstest::{fixture, rstest};

/// Containers with their subcommands: to an unknown one the server itself replies, with an error that repeats its bytes as
/// they are, and the client cannot read what is not UTF-8.
const COMMANDS: [&str; 24] = [
    "RL.SLIDE",
    "RL.BUCKET",
    "RL.FIXED",
    "RL.EXACT",
    "RL.LEAK",
    "RL.LEASE",
    "RL.MULTI",
    "RL.FIRST",
    "RL.RESERVE",
    "RL.SETTLE",
    "RL.PEEK",
    "RL.REFUND",
    "RL.RELEASE",
    "RL.INSPECT",
    "RL.LOAD",
    "RL.CHECK",
    "RL.POLICY SET",
    "RL.POLICY GET",
    "RL.POLICY DEL",
    "RL.POLICY LIST",
    "RL.POLICY LOAD",
    "RL.OVERRIDE SET",
    "RL.OVERRIDE GET",
    "RL.OVERRIDE DEL",
];

fn start(command: &str) -> redis::Cmd {
    let mut words = command.split(' ');
    let mut call = redis::cmd(words.next().unwrap());
    for word in words {
        call.arg(word);
    }
    call
}

#[fixture]
fn server() -> Server {
    Server::start()
}

/// The reply, or the text of an error reply; anything else means that the server is gone. An internal
/// error is a caught panic: the server lives, but the module has a bug.
fn outcome(call: &redis::Cmd, con: &mut Connection) -> Result<Value, String> {
    let reply: RedisResult<Value> = call.query(con);
    reply.map_err(|error| {
        assert!(
            matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension),
            "{error}, after {}",
            brief(call)
        );
        let text = error_text(&error);
        assert!(!text.contains("internal"), "{text}, after {}", brief(call));
        text
    })
}

/// A call for people to read: of each argument what fits.
fn brief(call: &redis::Cmd) -> String {
    let packed = call.get_packed_command();
    let start = &packed[..packed.len().min(2000)];
    start.escape_ascii().to_string()
}

fn now_ms(con: &mut Connection) -> u64 {
    let (seconds, micros): (u64, u64) = ask(con, "TIME");
    seconds * 1000 + micros / 1000
}

fn bytes(random: &mut Random, len: u64) -> Vec<u8> {
    (0..len).map(|_| random.below(256) as u8).collect()
}

/// Words that mean something somewhere, words that nearly do, and noise.
fn word(random: &mut Random) -> Vec<u8> {
    const WORDS: [&str; 45] = [
        "",
        "0",
        "1",
        "2",
        "7",
        "60",
        "1000",
        "-1",
        "-0",
        "+1",
        "01",
        "1.5",
        "1e9",
        "9007199254740991",
        "9007199254740992",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "340282366920938463463374607431768211456",
        "1ms",
        "500ms",
        "90s",
        "15m",
        "24h",
        "3650d",
        "3651d",
        "9007199254740991d",
        "ms",
        "d",
        "nan",
        "inf",
        "SLIDE",
        "slide",
        "BUCKET",
        "PEEK",
        "FORCE",
        "LEASE",
        "EXACT",
        "FIXED",
        "LEAK",
        "PRECISION",
        "64",
        "k",
        "\0",
    ];
    match random.below(12) {
        0 => {
            let len = random.below(40);
            bytes(random, len)
        }
        1 => format!("key{}", random.below(20)).into(),
        _ => WORDS[random.below(WORDS.len() as u64) as usize].into(),
    }
}

/// A limit as in RL.MULTI, of any size from the least to the largest.
fn spec(random: &mut Random) -> Vec<String> {
    let count = |random: &mut Random| (random.below(1 << 53) >> random.below(53)).to_string();
    let name = ["SLIDE", "BUCKET", "FIXED", "EXACT", "LEAK", "LEASE"][random.below(6) as usize];
    let mut words = vec![name.to_owned(), count(random)];
    if name == "EXACT" {
        words[1] = random.below(1_000_001).to_string();
    }
    if ["BUCKET", "LEAK"].contains(&name) {
        words.push(count(random));
    }
    let ms = random.below(3650 * 86_400_000) >> random.below(38);
    words.push(format!("{}ms", ms + 1));
    if name == "LEASE" {
        words.push(format!("holder{}", random.below(5)));
    }
    words.push(count(random));
    if name == "SLIDE" && random.below(3) == 0 {
        words.extend(["PRECISION".into(), (2 + random.below(59)).to_string()]);
    }
    words
}

fn one_limit(random: &mut Random, key: &str) -> redis::Cmd {
    let spec = spec(random);
    let mut call = redis::cmd(&format!("RL.{}", spec[0]));
    call.arg(key).arg(&spec[1..]);
    if random.below(3) == 0 {
        call.arg("FORCE");
    }
    call
}

/// Words of a call in their right places, now and then with another one between them.
fn nearly_right(random: &mut Random) -> redis::Cmd {
    let key = format!("key{}", random.below(20));
    let mut call = match random.below(5) {
        0 | 1 => one_limit(random, &key),
        4 => {
            let name = ["RL.REFUND", "RL.RELEASE", "RL.INSPECT"][random.below(3) as usize];
            let mut call = redis::cmd(name);
            call.arg(key);
            match name {
                "RL.REFUND" => call.arg(random.below(1 << 53) >> random.below(53)),
                "RL.RELEASE" => call.arg(format!("holder{}", random.below(5))),
                _ => &mut call,
            };
            call
        }
        2 => {
            let mut call = redis::cmd("RL.PEEK");
            call.arg(key).arg(spec(random).join(" "));
            call
        }
        _ => {
            let mut call = redis::cmd("RL.MULTI");
            for n in 0..=random.below(12) {
                let mut spec = spec(random);
                let option = ["PEEK", "FORCE", "SHADOW"].get(random.below(12) as usize);
                if let Some(option) = option.filter(|&&word| n == 0 || word == "SHADOW") {
                    spec.insert(0, (*option).to_owned());
                }
                let mut spec = spec
                    .join(if random.below(20) > 0 { " " } else { "  " })
                    .into_bytes();
                if random.below(30) == 0 {
                    spec.push(b' ');
                    spec.extend(word(random));
                }
                call.arg(format!("key{n}")).arg(spec);
                if random.below(40) == 0 {
                    call.arg(word(random));
                }
            }
            call
        }
    };
    if random.below(4) == 0 {
        call.arg(word(random));
    }
    call
}

#[rstest]
fn random_arguments_crash_nothing_and_leave_nothing(server: Server) {
    let (mut con, mut random) = (server.connect(), Random(20_240_601));
    let mut round = |calls: usize| {
        let mut answered = 0;
        for n in 0..calls {
            let call = if n % 2 == 0 {
                let mut call = start(COMMANDS[random.below(COMMANDS.len() as u64) as usize]);
                for _ in 0..random.below(14) {
                    call.arg(word(&mut random));
                }
                call
            } else {
                nearly_right(&mut random)
            };
            answered += usize::from(outcome(&call, &mut con).is_ok());
        }
        assert_eq!(ask::<String>(&mut con, "PING"), "PONG");
        ask::<()>(&mut con, "FLUSHALL SYNC");
        (answered, server.info_number("memory", "used_memory"))
    };
    round(2000);
    let (_, start) = round(2000);
    let (answered, end) = round(20_000);
    assert!(answered > 2000, "some of it made sense: {answered}");
    assert!(end < start + start / 20, "used {start}, later {end}");
}

#[rstest]
fn huge_keys_and_many_arguments_crash_nothing_and_leave_nothing(server: Server) {
    let mut con = server.connect();
    let huge = bytes(&mut Random(3), 1 << 20);
    let mut round = || {
        let mut slide = redis::cmd("RL.SLIDE");
        slide.arg(&huge).arg(5).arg("1h");
        outcome(&slide, &mut con).unwrap();
        for position in 1..8 {
            for command in COMMANDS {
                let mut call = start(command);
                for n in 1..8 {
                    match n == position {
                        true => call.arg(&huge),
                        false => call.arg(["SLIDE", "1"][n % 2]),
                    };
                }
                outcome(&call, &mut con).unwrap_err();
            }
        }
        for command in ["RL.INSPECT", "RL.REFUND", "RL.RELEASE"] {
            let mut call = redis::cmd(command);
            call.arg(b"no such key").arg(&huge);
            outcome(&call, &mut con).unwrap_or(Value::Nil);
            let mut call = redis::cmd(command);
            call.arg(&huge);
            if command != "RL.INSPECT" {
                call.arg(1);
            }
            let _ = outcome(&call, &mut con);
        }
        // Distinct keys of a megabyte, alike until their last byte.
        let mut multi = redis::cmd("RL.MULTI");
        for n in 0..20 {
            let mut key = huge.clone();
            key.push(n);
            multi.arg(key).arg("SLIDE 5 1h");
        }
        outcome(&multi, &mut con).unwrap();

        for command in COMMANDS {
            for words in ["PEEK", "SLIDE", "k", ""] {
                let mut call = start(command);
                call.arg(vec![words; 100_000]);
                outcome(&call, &mut con).unwrap_err();
            }
            let mut call = start(command);
            call.arg(["k", "SLIDE 1 1"].repeat(50_000));
            outcome(&call, &mut con).unwrap_err();
        }
        let mut keys = redis::cmd("COMMAND");
        keys.arg("GETKEYS").arg("RL.MULTI");
        keys.arg(["k", "SLIDE 1 1"].repeat(50_000));
        let keys: Vec<String> = keys.query(&mut con).unwrap();
        assert_eq!(keys.len(), 50_000);
        // Specs of a megabyte: one word, many words, many spaces.
        let slide = "SLIDE 1 1".to_owned();
        for (spec, reads) in [
            (huge.clone(), false),
            ("PEEK ".repeat(200_000).into_bytes(), false),
            (("PEEK ".repeat(200_000) + &slide).into_bytes(), true),
            ((" ".repeat(1 << 20) + &slide).into_bytes(), false),
            ((slide.clone() + &" ".repeat(1 << 20)).into_bytes(), false),
            ((slide + " ").repeat(100_000).into_bytes(), false),
        ] {
            let mut call = redis::cmd("RL.MULTI");
            call.arg("k").arg(spec);
            assert_eq!(outcome(&call, &mut con).is_ok(), reads);
        }
        assert_eq!(ask::<String>(&mut con, "PING"), "PONG");
        ask::<()>(&mut con, "FLUSHALL SYNC");
    };
    round();
    let start = server.info_number("memory", "used_memory");
    for _ in 0..3 {
        round();
    }
    // The query buffer of a connection that just sent megabytes goes back in a while.
    eventually("memory is what it was", || {
        server.info_number("memory", "used_memory") < start + (1 << 20)
    });
}

/// The step that the first call of a limit takes.
fn first_step(spec: &str, now_ms: u64) -> Update<'_> {
    let Spec { limit, cost } = Spec::parse(spec.as_bytes()).unwrap();
    let outcome = limit
        .evaluate(None, now_ms * 1000, cost, Mode::Force)
        .unwrap();
    outcome.update.unwrap()
}

/// A state as it goes over the wire: what the first call of a limit leaves behind.
fn captured(spec: &str, now_ms: u64) -> Vec<u8> {
    let state = first_step(spec, now_ms).into_initial().unwrap();
    state.blob().to_vec()
}

fn load(con: &mut Connection, key: &str, expire_at_ms: u64, blob: &[u8]) -> Result<Value, String> {
    let mut call = redis::cmd("RL.LOAD");
    outcome(call.arg(key).arg(expire_at_ms).arg(blob), con)
}

#[rstest]
fn a_loaded_state_counts_until_its_end(server: Server) {
    let mut con = server.connect();
    let now = now_ms(&mut con);
    // On a new key, then in place of a state of its own kind, of another, and of another size.
    for (spec, left) in [
        ("SLIDE 10 1h 4", 6),
        ("SLIDE 10 1h 7", 3),
        ("BUCKET 10 1 1h 6", 4),
        ("SLIDE 9007199254740991 3650d 9007199254740981", 10),
        ("SLIDE 10 1h 7 PRECISION 7", 3),
        ("EXACT 10 1h 7", 3),
        ("EXACT 10 1h 6", 4),
        ("LEASE 10 1h someone 7", 3),
        ("FIXED 10 3650d 7", 3),
        ("LEASE 10 1h another 6", 4),
        ("LEAK 10 1 1h 7", 3),
    ] {
        let end = now + 7_200_000;
        assert_eq!(
            load(&mut con, "k", end, &captured(spec, now)),
            Ok(Value::Okay)
        );
        let (limit, option) = spec.split_once(" PRECISION").unwrap_or((spec, ""));
        let (limit, _) = limit.rsplit_once(' ').unwrap();
        let option = if option.is_empty() {
            ""
        } else {
            " PRECISION 7"
        };
        let reply: Reply = ask(&mut con, &format!("RL.PEEK k \"{limit} 0{option}\""));
        assert_eq!(reply.2, left, "{spec}");
        assert!((server.expire_at_ms("k") - end as i64).abs() <= 1);
    }
}

#[rstest]
fn a_state_loaded_after_its_end_deletes_the_key(server: Server) {
    let mut con = server.connect();
    let now = now_ms(&mut con);
    let blob = captured("SLIDE 10 1h 4", now);
    for past in [1, now - 1000] {
        let _: Reply = ask(&mut con, "RL.SLIDE k 10 1h");
        assert_eq!(load(&mut con, "k", past, &blob), Ok(Value::Okay));
        assert_eq!(ask::<i64>(&mut con, "EXISTS k"), 0, "{past}");
    }
    let dirty = server.info_number("persistence", "rdb_changes_since_last_save");
    assert_eq!(load(&mut con, "k", 1, &blob), Ok(Value::Okay));
    assert_eq!(
        server.info_number("persistence", "rdb_changes_since_last_save"),
        dirty,
        "nothing to delete, nothing changed"
    );
    assert_eq!(ask::<i64>(&mut con, "DBSIZE"), 0);
}

#[rstest]
fn a_state_loaded_without_an_end_has_none_until_its_own_moves(server: Server) {
    let mut con = server.connect();
    let now = now_ms(&mut con);
    let blob = captured("SLIDE 10 1h 4", now);
    // On a new key, and on one that has an expiry.
    for _ in 0..2 {
        assert_eq!(load(&mut con, "k", 0, &blob), Ok(Value::Okay));
        assert_eq!(server.expire_at_ms("k"), -1);
        assert_eq!(load(&mut con, "k", now + 99_999, &blob), Ok(Value::Okay));
        assert!(server.expire_at_ms("k") > 0);
    }
}

#[rstest]
fn corrupt_states_are_refused_and_change_nothing(server: Server) {
    let (mut con, mut random) = (server.connect(), Random(11));
    let now = now_ms(&mut con);
    let _: Reply = ask(&mut con, "RL.SLIDE k 10 1h 4");
    let before = server.digest("k");
    let blob = captured("SLIDE 10 1h 4", now);
    let mut refused = |blob: &[u8], why: &str| {
        let error = load(&mut con, "k", now + 7_200_000, blob).unwrap_err();
        assert!(error.starts_with("ERR "), "{error}");
        assert!(error.contains("rate-limit state"), "{why}: {error}");
        assert_eq!(server.digest("k"), before, "{why}");
    };
    for len in 0..blob.len() {
        refused(&blob[..len], "too short");
    }
    for more in [1, 7, 8, 16, 100_000] {
        refused(&[&blob[..], &vec![0; more]].concat(), "too long");
    }
    for version in (0..=255).filter(|&version| version != blob[0]) {
        refused(&[&[version], &blob[1..]].concat(), "another version");
    }
    let zeroes = vec![0; blob.len() - 1];
    refused(&[&blob[..1], &zeroes].concat(), "nothing");
    for _ in 0..300 {
        let len = random.below(40);
        let noise = bytes(&mut random, len);
        if State::decode_blob(&noise).is_err() {
            refused(&noise, "noise");
        }
    }
    for spec in [
        "EXACT 10 1h 4",
        "LEASE 10 1h me 4",
        "SLIDE 10 1h 4 PRECISION 3",
        "FIXED 10 1h 4",
        "LEAK 9 1 1h 4",
    ] {
        for blob in [captured(spec, now), first_step(spec, now).blob().to_vec()] {
            for len in 0..blob.len() {
                refused(&blob[..len], spec);
            }
            for more in [1, 8, 100_000] {
                refused(&[&blob[..], &vec![0; more]].concat(), spec);
            }
            refused(&[&[2], &blob[1..]].concat(), spec);
        }
    }
}

/// Steps that no call ever takes: what was not there is given back, and time goes anywhere.
fn odd_step(random: &mut Random, now_us: u64) -> Vec<u8> {
    let at_us = match random.below(4) {
        0 => now_us,
        1 => now_us + random.below(10_000_000),
        2 => now_us - random.below(now_us),
        _ => random.below(1 << 60),
    };
    let units = 1 + (random.below(1 << 56) >> random.below(57));
    let window_us = 1000 * (1 + (random.below(3650 * 86_400_000) >> random.below(38)));
    let holders: [&[u8]; 4] = [b"a", b"b", b"\0", &[7; 256]];
    let holder = holders[random.below(4) as usize];
    let next = match random.below(6) {
        0 => Update::Exact(rl_core::ExactUpdate::Charge {
            at_us,
            window_us,
            units,
        }),
        1 => Update::Exact(rl_core::ExactUpdate::Adjust { at_us, window_us }),
        2 => Update::Exact(rl_core::ExactUpdate::Refund {
            at_us: 0,
            units,
            newer: random.below(1 << 56) >> random.below(57),
        }),
        3 => Update::Lease(rl_core::LeaseUpdate::Hold {
            at_us,
            expires_us: [at_us + window_us, random.below(1 << 60)][random.below(2) as usize],
            units,
            holder,
        }),
        4 => Update::Lease(rl_core::LeaseUpdate::Release { at_us, holder }),
        _ => Update::Lease(rl_core::LeaseUpdate::ClockStepBack { at_us }),
    };
    next.blob().to_vec()
}

#[rstest]
fn any_steps_leave_what_can_be_used_saved_and_loaded(server: Server) {
    let (mut con, mut random) = (server.connect(), Random(13));
    let (now, mut taken) = (now_ms(&mut con), 0);
    for n in 0..6000 {
        let key = format!("key{}", random.below(4));
        let blob = odd_step(&mut random, now * 1000);
        taken += usize::from(load(&mut con, &key, now + 3_600_000, &blob).is_ok());
        if random.below(4) == 0 {
            let _ = outcome(&one_limit(&mut random, &key), &mut con);
        }
        if random.below(4) == 0 {
            let _: Value = ask(&mut con, &format!("RL.INSPECT {key}"));
            let mut refund = redis::cmd("RL.REFUND");
            let _ = outcome(refund.arg(&key).arg(random.below(9)), &mut con);
            let mut release = redis::cmd("RL.RELEASE");
            let _ = outcome(release.arg(&key).arg("a"), &mut con);
        }
        if random.below(40) == 0 {
            ask::<()>(&mut con, &format!("LPUSH list{n} x"));
            ask::<Value>(&mut con, &format!("DEL {key}"));
        }
        if n % 50 == 0 {
            // A state that could not be read again would keep the server from starting.
            let reloaded: RedisResult<Value> = redis::cmd("DEBUG").arg("RELOAD").query(&mut con);
            assert!(reloaded.is_ok(), "after step {n}: {reloaded:?}");
        }
    }
    assert!(taken > 3000, "{taken}");
}

#[rstest]
fn a_step_without_its_state_leaves_other_keys_alone(server: Server) {
    let mut con = server.connect();
    let now = now_ms(&mut con);
    let refund = Update::Exact(rl_core::ExactUpdate::Refund {
        at_us: 0,
        units: 1,
        newer: 0,
    })
    .blob();
    let back = Update::Exact(rl_core::ExactUpdate::Adjust {
        at_us: 1,
        window_us: 1000,
    })
    .blob();
    let holder = b"me";
    let release = Update::Lease(rl_core::LeaseUpdate::Release { at_us: 1, holder }).blob();
    for blob in [refund, back, release] {
        ask::<()>(&mut con, "FLUSHALL");
        let _ = load(&mut con, "missing", now + 1000, &blob);
        assert_eq!(ask::<i64>(&mut con, "DBSIZE"), 0);
        ask::<()>(&mut con, "LPUSH list x");
        let _: Reply = ask(&mut con, "RL.SLIDE slide 9 1h 3");
        let before = server.digest_all();
        let _ = load(&mut con, "list", now + 1000, &blob);
        let _ = load(&mut con, "slide", now + 1000, &blob);
        assert_eq!(
            server.digest_all(),
            before,
            "neither deleted nor changed, as nobody would hear of it"
        );
    }
}

#[rstest]
fn a_key_has_at_most_ten_thousand_holders(server: Server) {
    let mut con = server.connect();
    let mut pipe = redis::pipe();
    for n in 0..10_000 {
        pipe.cmd("RL.LEASE")
            .arg("k")
            .arg(1_000_000)
            .arg("1h")
            .arg(n)
            .ignore();
    }
    pipe.exec(&mut con).unwrap();
    let before = server.digest("k");
    let full = "ERR a key can have at most 10000 holders: use several keys";
    assert_eq!(ask_error(&mut con, "RL.LEASE k 1000000 1h one-more"), full);
    assert_eq!(
        ask_error(&mut con, "RL.LEASE k 1000000 1h one-more 1 FORCE"),
        full
    );
    assert_eq!(
        ask_error(
            &mut con,
            r#"RL.MULTI s "SLIDE 5 1h 1" k "LEASE 1000000 1h one-more 1""#
        ),
        full
    );
    assert_eq!(ask::<i64>(&mut con, "EXISTS s"), 0, "nothing spent");
    assert_eq!(server.digest("k"), before);
    let renewed: Reply = ask(&mut con, "RL.LEASE k 1000000 1h 77 3");
    assert_eq!((renewed.0, renewed.2), (1, 1_000_000 - 10_002));
    assert_eq!(ask::<i64>(&mut con, "RL.RELEASE k 78"), 1);
    let one_more: Reply = ask(&mut con, "RL.LEASE k 1000000 1h one-more");
    assert_eq!(one_more.0, 1);

    // Not by way of RL.LOAD either: what it left could not be loaded again.
    let now = now_ms(&mut con);
    let hold = rl_core::LeaseUpdate::Hold {
        at_us: now * 1000,
        expires_us: (now + 3_600_000) * 1000,
        units: 1,
        holder: b"yet one more",
    };
    let _ = load(&mut con, "k", now + 3_600_000, &Update::Lease(hold).blob());
    let _: () = server.run("DEBUG", &["RELOAD"]);
    assert_eq!(ask::<i64>(&mut con, "EXISTS k"), 1);
}

#[rstest]
fn a_log_is_bounded(server: Server) {
    let mut con = server.connect();
    let reply: Reply = ask(&mut con, "RL.EXACT k 1000000 3650d 1000000");
    assert_eq!((reply.0, reply.2), (1, 0));
    let error = ask_error(&mut con, "RL.EXACT k 1000001 3650d");
    assert!(error.contains("limit of EXACT must be"), "{error}");
    // Any cost may be forced, as often as one likes.
    for _ in 0..200 {
        let reply: Reply = ask(&mut con, "RL.EXACT k 1000000 3650d 9007199254740991 FORCE");
        assert_eq!((reply.0, reply.2), (1, 0));
    }
    let _: () = server.run("DEBUG", &["RELOAD"]);
    let denied: Reply = ask(&mut con, "RL.EXACT k 1000000 3650d");
    assert_eq!((denied.0, denied.2), (0, 0));
    assert!(ask::<u64>(&mut con, "RL.REFUND k 9007199254740991") == 9_007_199_254_740_991);
}

#[rstest]
fn any_state_that_loads_can_be_used(server: Server) {
    // States that no limit ever left behind: from any time, of any size, with bits turned over.
    let (mut con, mut random) = (server.connect(), Random(12));
    let mut loaded = 0;
    for _ in 0..4000 {
        let now = now_ms(&mut con);
        let mut spec = spec(&mut random);
        // Something must have been used, and tokens must flow.
        for word in spec
            .iter_mut()
            .filter(|word| *word == "0" || *word == "0ms")
        {
            *word = "1".into();
        }
        let made_at = [now, random.below(1 << 50)][random.below(2) as usize];
        let spec = spec.join(" ");
        let mut blob = match random.below(2) {
            0 => captured(&spec, made_at),
            _ => first_step(&spec, made_at).blob().to_vec(),
        };
        for _ in 0..random.below(12) {
            let bit = random.below(blob.len() as u64 * 8 - 8) as usize + 8;
            blob[bit / 8] ^= 1 << (bit % 8);
        }
        let end = now + random.below(1 << 50) + 1000;
        let accepted = load(&mut con, "k", end, &blob).is_ok();
        assert_eq!(accepted, Update::decode_blob(&blob).is_ok(), "{blob:?}");
        if accepted {
            loaded += 1;
            for _ in 0..5 {
                let _ = outcome(&one_limit(&mut random, "k"), &mut con);
            }
        }
    }
    assert!((1000..3900).contains(&loaded), "of either kind: {loaded}");
    assert_eq!(ask::<String>(&mut con, "PING"), "PONG");
    assert!(ask_error(&mut con, "RL.SLIDE k").contains("wrong number of arguments"));
}

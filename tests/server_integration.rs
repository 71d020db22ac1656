//! Limits are integrated into the server: described like its own commands, and handled by its own tools.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use redis::{Value, from_redis_value};
use rl_testkit::{
    Deadline, MultiReply, Reply, Server, TempDir, ask, command, error_text, eventually,
    has_directive, module, server_binary, try_ask,
};
use rstest::{fixture, rstest};

#[fixture]
fn server() -> Server {
    Server::start()
}

/// A state of every algorithm and every form.
const STATES: [&str; 11] = [
    "RL.SLIDE slide 10 1h 4",
    "RL.SLIDE wide-slide 9007199254740991 3650d 9007199254740990",
    "RL.SLIDE precise-slide 10 1h 4 PRECISION 10",
    "RL.SLIDE wide-precise-slide 9007199254740991 3650d 9007199254740990 PRECISION 60",
    "RL.BUCKET bucket 10 10 1h 4",
    "RL.BUCKET wide-bucket 9007199254740991 1 3650d 9007199254740990",
    "RL.FIXED fixed 10 3650d 4",
    "RL.EXACT exact 10 1h 4",
    "RL.LEAK leak 10 10 1h 4",
    "RL.LEAK wide-leak 9007199254740991 1 3650d 9007199254740990",
    "RL.LEASE lease 10 1h holder 4",
];

/// The type of a key, as TYPE shows it.
fn type_of(line: &str) -> String {
    let algorithm = line[3..].split(' ').next().unwrap().to_lowercase();
    format!("{:-<9}", format!("rl-{algorithm}"))
}

fn key_of(line: &str) -> &str {
    line.split(' ').nth(1).unwrap()
}

/// Makes the calls, and returns every key with its digest and its expiry.
fn make_states(server: &Server) -> Vec<(&'static str, String, i64)> {
    let mut con = server.connect();
    for line in STATES {
        let reply: Reply = ask(&mut con, line);
        assert_eq!(reply.0, 1, "{line}");
    }
    let snapshot = |line| {
        let key = key_of(line);
        (key, server.digest(key), server.expire_at_ms(key))
    };
    STATES.map(snapshot).to_vec()
}

fn assert_same_state(server: &Server, key: &str, digest: &str, expire_at_ms: i64) {
    assert_eq!(server.digest(key), digest, "state of {key}");
    // Before 7.0 the expiry is computed from two readings of a clock.
    let now = server.expire_at_ms(key);
    assert!(
        (now - expire_at_ms).abs() <= 2,
        "expiry of {key}: {expire_at_ms}, then {now}"
    );
}

// What the server says of the commands.

fn command_info(server: &Server, command: &str) -> Vec<Value> {
    let mut infos: Vec<Vec<Value>> = server.run("COMMAND", &["INFO", command]);
    infos.remove(0)
}

fn has_docs(server: &Server) -> bool {
    server.has_command(&["COMMAND", "DOCS", "PING"])
}

#[rstest]
#[case("RL.SLIDE", -4, &["write", "fast"])]
#[case("RL.BUCKET", -5, &["write", "fast"])]
#[case("RL.FIXED", -4, &["write", "fast"])]
#[case("RL.EXACT", -4, &["write", "fast"])]
#[case("RL.LEAK", -5, &["write", "fast"])]
#[case("RL.LEASE", -5, &["write", "fast"])]
#[case("RL.REFUND", -3, &["write", "fast"])]
#[case("RL.RELEASE", 3, &["write", "fast"])]
#[case("RL.INSPECT", 2, &["readonly", "fast"])]
#[case("RL.MULTI", -3, &["write", "fast"])]
#[case("RL.FIRST", -3, &["write", "fast"])]
#[case("RL.RESERVE", -5, &["write", "fast"])]
#[case("RL.SETTLE", -5, &["write", "fast"])]
#[case("RL.CHECK", -3, &["write", "fast"])]
#[case("RL.PEEK", 3, &["readonly", "fast"])]
#[case("RL.LOAD", 4, &["write", "fast"])]
#[case("RL.STATS", -1, &["readonly", "fast", "loading", "stale"])]
#[case("RL.TOP", -1, &["admin", "loading", "stale"])]
#[case("RL.AUDIT", -2, &["admin", "loading", "stale"])]
fn command_info_reports_arity_flags_and_keys(
    server: Server,
    #[case] command: &str,
    #[case] arity: i64,
    #[case] flags: &[&str],
) {
    let info = command_info(&server, command);
    // Modules can tell their arity where they can publish docs.
    let known = if has_docs(&server) { arity } else { -1 };
    assert_eq!(info[1], Value::Int(known), "arity");
    let mut told: Vec<String> = from_redis_value(info[2].clone()).unwrap();
    // Not all servers tell that a command may replicate.
    told.retain(|flag| flag != "module" && flag != "may_replicate");
    told.sort();
    let mut expected = flags.to_vec();
    expected.sort_unstable();
    assert_eq!(told, expected);
    let keys = match command {
        "RL.STATS" | "RL.TOP" | "RL.AUDIT" => [0; 3],
        "RL.MULTI" | "RL.FIRST" | "RL.RESERVE" | "RL.SETTLE" => [1, -1, 2],
        _ => [1; 3],
    };
    assert_eq!(info[3..6], keys.map(Value::Int), "first, last, step");
}

#[rstest]
#[case(
    "RL.SLIDE",
    "key limit window [cost] [PRECISION precision] [PEEK | FORCE] [TIMES times [ATLEAST at-least]] [BRIEF]"
)]
#[case(
    "RL.BUCKET",
    "key capacity refill period [cost] [PEEK | FORCE] [TIMES times [ATLEAST at-least]] [BRIEF]"
)]
#[case(
    "RL.FIXED",
    "key limit window [cost] [OFFSET offset] [PEEK | FORCE] [TIMES times [ATLEAST at-least]] [BRIEF]"
)]
#[case(
    "RL.EXACT",
    "key limit window [cost] [PEEK | FORCE] [TIMES times [ATLEAST at-least]] [BRIEF]"
)]
#[case(
    "RL.LEAK",
    "key capacity rate period [cost] [PEEK | FORCE] [TIMES times [ATLEAST at-least]] [BRIEF]"
)]
#[case(
    "RL.LEASE",
    "key limit ttl holder [cost] [PEEK | FORCE] [TIMES times [ATLEAST at-least]] [BRIEF]"
)]
#[case("RL.MULTI", "{key spec}...")]
#[case("RL.FIRST", "{key spec}...")]
#[case("RL.PEEK", "key spec")]
#[case(
    "RL.CHECK",
    "key policy [cost] [PEEK | FORCE] [TIMES times [ATLEAST at-least]] [BRIEF]"
)]
#[case("RL.REFUND", "key cost [TIMES calls] [AGE age]")]
#[case("RL.RELEASE", "key holder")]
#[case("RL.INSPECT", "key")]
#[case("RL.LOAD", "key expire-at-ms blob")]
#[case("RL.STATS", "[policy]")]
#[case("RL.TOP", "[COUNT count] [BY CHECKS | DENIALS]")]
#[case("RL.AUDIT", "{GET [count] | LEN | RESET | HELP}")]
fn command_docs_describe_the_syntax(server: Server, #[case] command: &str, #[case] syntax: &str) {
    if !has_docs(&server) {
        // Before 7.0 all there is to know is the info, which has no page behind it.
        assert_eq!(command_info(&server, command).len(), 7);
        let error = server.error("COMMAND", &["DOCS", command]);
        assert!(
            error.to_lowercase().contains("unknown subcommand"),
            "{error}"
        );
        rl_testkit::not_tested("this server has no COMMAND DOCS");
        return;
    }
    let docs: HashMap<String, HashMap<String, Value>> = server.run("COMMAND", &["DOCS", command]);
    let page = docs
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(command))
        .unwrap()
        .1;
    let text = |field: &str| -> String { from_redis_value(page[field].clone()).unwrap() };
    assert!(text("summary").ends_with('.'), "{}", text("summary"));
    assert!(text("complexity").starts_with("O("));
    assert_eq!(
        (text("module"), text("group")),
        ("rl".into(), "module".into())
    );
    assert_eq!(text("since"), "0.1.0");
    assert_eq!(spell(&page["arguments"], " "), syntax);
}

/// A list of arguments as a person writes their syntax.
fn spell(arguments: &Value, between: &str) -> String {
    let arguments: Vec<HashMap<String, Value>> = from_redis_value(arguments.clone()).unwrap();
    let one = |argument: HashMap<String, Value>| {
        let text = |field: &str| -> String {
            let value = argument.get(field).cloned().unwrap_or_default();
            from_redis_value::<Option<String>>(value)
                .unwrap()
                .unwrap_or_default()
        };
        let flags: Vec<String> = argument
            .get("flags")
            .map_or(vec![], |flags| from_redis_value(flags.clone()).unwrap());
        let has = |flag: &str| flags.iter().any(|other| other == flag);
        let spelled = match text("type").as_str() {
            "oneof" => {
                let token = argument.contains_key("token").then(|| text("token") + " ");
                token.unwrap_or_default() + &spell(&argument["arguments"], " | ")
            }
            "block" => spell(&argument["arguments"], " "),
            "pure-token" => text("token"),
            _ if argument.contains_key("token") => format!("{} {}", text("token"), text("name")),
            _ => text("name"),
        };
        match text("type").as_str() {
            _ if has("optional") => format!("[{spelled}]"),
            _ if has("multiple") => format!("{{{spelled}}}..."),
            "oneof" => format!("{{{spelled}}}"),
            _ => spelled,
        }
    };
    arguments
        .into_iter()
        .map(one)
        .collect::<Vec<_>>()
        .join(between)
}

#[rstest]
#[case("RL.SLIDE k 1 1", &["k"])]
#[case("RL.BUCKET k 1 1 1 1 PEEK", &["k"])]
#[case(r#"RL.PEEK k "SLIDE 1 1 1""#, &["k"])]
#[case("RL.LOAD k 1 blob", &["k"])]
#[case("RL.SLIDE k 1 1 1 PRECISION 5", &["k"])]
#[case("RL.FIXED k 1 1", &["k"])]
#[case("RL.EXACT k 1 1", &["k"])]
#[case("RL.LEAK k 1 1 1", &["k"])]
#[case("RL.LEASE k 1 1 holder", &["k"])]
#[case("RL.REFUND k 1", &["k"])]
#[case("RL.RELEASE k holder", &["k"])]
#[case("RL.INSPECT k", &["k"])]
#[case("RL.CHECK k policy 1", &["k"])]
#[case("RL.OVERRIDE SET k policy BLOCK", &["k"])]
#[case("RL.OVERRIDE GET k", &["k"])]
#[case(r#"RL.MULTI a "POLICY p 1" b "SHADOW SLIDE 1 1 1" PRECISION "SHADOW FIXED 1 1 1""#, &["a", "b", "PRECISION"])]
#[case(r#"RL.PEEK k "SLIDE 1 1 1 PRECISION 5""#, &["k"])]
#[case(r#"RL.MULTI a "FIXED 1 1 1" b "EXACT 1 1 1" c "LEAK 1 1 1 1" d "LEASE 1 1 h 1" e "SLIDE 1 1 1""#, &["a", "b", "c", "d", "e"])]
#[case(r#"RL.MULTI a "PEEK SLIDE 1 1 1 PRECISION 5" b "SLIDE 1 1 1 precision 6" c "FIXED 1 1 1""#, &["a", "b", "c"])]
// Keys and holders may have any name.
#[case(r#"RL.MULTI a "SLIDE 1 1 1" PRECISION "FIXED 1 1 1" c "SLIDE 1 1 1 PRECISION 2""#, &["a", "PRECISION", "c"])]
#[case(r#"RL.MULTI PRECISION "SLIDE 1 1 1 PRECISION 2" LEASE "LEASE 1 1 SLIDE 1" b "EXACT 1 1 1""#, &["PRECISION", "LEASE", "b"])]
#[case(r#"RL.MULTI a "SLIDE 1 1 1 PRECISION x" b "SLIDE 1 1 1""#, &["a", "b"])]
#[case(r#"RL.MULTI a "FIXED 1 1 1" PRECISION "SLIDE 1 1 1 PRECISION""#, &["a", "PRECISION"])]
#[case(r#"RL.MULTI k "SLIDE 1 1 1""#, &["k"])]
#[case(r#"RL.MULTI a "SLIDE 1 1 1" b "BUCKET 1 1 1 1" c "SLIDE 1 1 1""#, &["a", "b", "c"])]
#[case(r#"RL.MULTI a "FORCE bucket 1 1 1 1" b "slide 1 1 1""#, &["a", "b"])]
#[case(r#"RL.MULTI PEEK "SLIDE 1 1 1""#, &["PEEK"])]
#[case(r#"RL.MULTI PEEK "PEEK SLIDE 1 1 1" FORCE "BUCKET 1 1 1 1""#, &["PEEK", "FORCE"])]
#[case(r#"RL.MULTI SLIDE "SLIDE 1 1 1" BUCKET "BUCKET 1 1 1 1""#, &["SLIDE", "BUCKET"])]
// What is malformed but has keys names them, for ACLs and clusters to judge.
#[case(r#"RL.MULTI a "SLIDE x y z" b "BUCKET 1 1""#, &["a", "b"])]
#[case(r#"RL.MULTI a "SLIDE 1 1 1" b "SLOPE 1 1 1""#, &["a", "b"])]
#[case(r#"RL.MULTI a "" b "#, &["a", "b"])]
#[case(r#"RL.MULTI a "SLIDE 1 1" b"#, &["a", "b"])]
#[case("RL.MULTI k k k k k", &["k", "k", "k"])]
#[case(r#"RL.MULTI a "TIMES 2 ATLEAST 1 SLIDE 1 1" TIMES "SLIDE 1 1""#, &["a", "TIMES"])]
#[case(r#"RL.FIRST a "TIMES 2 ATLEAST 1 SLIDE 1 1" b "POLICY p" TIMES "SLIDE 1 1""#, &["a", "b", "TIMES"])]
#[case("RL.FIRST k k k", &["k", "k"])]
fn command_getkeys_finds_every_key(server: Server, #[case] line: &str, #[case] keys: &[&str]) {
    let found: Vec<String> = ask(&mut server.connect(), &format!("COMMAND GETKEYS {line}"));
    assert_eq!(found, keys);
}

/// What a command does with its keys, as ACLs and clients see it.
#[rstest]
#[case(r#"RL.MULTI a "PEEK SLIDE 1 1" b "POLICY p" c """#, &["a", "b", "c"], &["RW", "access", "update"])]
#[case(r#"RL.PEEK k "SLIDE 1 1""#, &["k"], &["RO", "access"])]
#[case("RL.SLIDE k 1 1", &["k"], &["RW", "access", "update"])]
fn command_getkeysandflags_says_how_keys_are_used(
    server: Server,
    #[case] line: &str,
    #[case] keys: &[&str],
    #[case] flags: &[&str],
) {
    let mut con = server.connect();
    let line = format!("COMMAND GETKEYSANDFLAGS {line}");
    match try_ask::<Vec<(String, Vec<String>)>>(&mut con, &line) {
        Ok(found) => {
            let flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
            let expected = keys.iter().map(|&key| (key.to_owned(), flags.clone()));
            assert_eq!(found, expected.collect::<Vec<_>>());
        }
        Err(error) => {
            let text = error_text(&error).to_lowercase();
            assert!(text.contains("unknown subcommand"), "{text}");
            rl_testkit::not_tested("before 7.0 the server does not say how keys are used");
        }
    }
}

/// Only a command that the module has to be asked about has keys that move. See docs/upstream.
#[rstest]
fn the_server_finds_every_key_by_itself(server: Server) {
    let all: Vec<Vec<Value>> = server.run("COMMAND", &[]);
    let mut ours = 0;
    for info in all {
        let name: String = from_redis_value(info[0].clone()).unwrap();
        if name.to_lowercase().starts_with("rl.") {
            let flags: Vec<String> = from_redis_value(info[2].clone()).unwrap();
            assert!(
                !flags.iter().any(|flag| flag == "movablekeys"),
                "{name}: {flags:?}"
            );
            ours += 1;
        }
    }
    assert!(ours >= 18, "{ours}");
}

// What the server does with the keys.

#[rstest]
fn type_names_the_algorithm(server: Server) {
    make_states(&server);
    let mut con = server.connect();
    ask::<()>(&mut con, "SET string x");
    for line in STATES {
        let (key, kind) = (key_of(line), type_of(line));
        assert_eq!(server.run::<String>("TYPE", &[key]), kind, "{key}");
        let scan = format!("SCAN 0 COUNT 1000 TYPE {kind}");
        let (_, mut found): (String, Vec<String>) = ask(&mut con, &scan);
        found.sort();
        let of_its_kind = STATES.iter().filter(|line| type_of(line) == kind);
        let mut expected: Vec<_> = of_its_kind.map(|line| key_of(line)).collect();
        expected.sort_unstable();
        assert_eq!(found, expected, "{kind}");
    }
}

#[rstest]
fn object_and_memory_know_the_keys(server: Server) {
    let mut con = server.connect();
    make_states(&server);
    for line in STATES {
        let key = key_of(line);
        let size: i64 = ask(&mut con, &format!("MEMORY USAGE {key}"));
        assert!((16..900).contains(&size), "{key}: {size}");
        assert_eq!(
            ask::<String>(&mut con, &format!("OBJECT ENCODING {key}")),
            "raw"
        );
        assert_eq!(ask::<i64>(&mut con, &format!("OBJECT REFCOUNT {key}")), 1);
        let idle: i64 = ask(&mut con, &format!("OBJECT IDLETIME {key}"));
        assert!((0..60).contains(&idle), "{key}: {idle}");
    }
    let wider = |a: &str, b: &str| {
        server.run::<i64>("MEMORY", &["USAGE", a]) > server.run::<i64>("MEMORY", &["USAGE", b])
    };
    for (large, small) in [
        ("wide-slide", "slide"),
        ("precise-slide", "slide"),
        ("wide-precise-slide", "precise-slide"),
        ("wide-leak", "leak"),
    ] {
        assert!(
            wider(large, small),
            "what the larger form takes is seen: {large}"
        );
    }
    // Logs and lists of holders grow, and are seen to.
    let [log, list] = ["exact", "lease"].map(|key| server.run::<i64>("MEMORY", &["USAGE", key]));
    for n in 0..2000 {
        let _: Reply = ask(&mut con, "RL.EXACT exact 1000000 1h 1");
        let _: Reply = ask(
            &mut con,
            &format!("RL.LEASE lease 1000000 1h another-holder-{n} 1"),
        );
    }
    let entries = {
        let shown: HashMap<String, Value> = ask(&mut con, "RL.INSPECT exact");
        from_redis_value::<i64>(shown["entry_count"].clone()).unwrap()
    };
    let log = server.run::<i64>("MEMORY", &["USAGE", "exact"]) - log;
    let list = server.run::<i64>("MEMORY", &["USAGE", "lease"]) - list;
    assert!(
        (entries..entries * 12 + 2000).contains(&log),
        "{entries} entries in {log} bytes"
    );
    assert!(
        (2000 * 40..2000 * 200).contains(&list),
        "2000 holders in {list} bytes"
    );
    ask::<()>(&mut con, "CONFIG SET maxmemory-policy allkeys-lfu");
    assert!(ask::<i64>(&mut con, "OBJECT FREQ slide") >= 0);
}

#[rstest]
fn copy_copies_usage_and_expiry_to_an_independent_key(server: Server) {
    let mut con = server.connect();
    for (key, digest, expire_at_ms) in make_states(&server) {
        assert_eq!(
            ask::<i64>(&mut con, &format!("COPY {key} copy-of-{key}")),
            1
        );
        assert_same_state(&server, &format!("copy-of-{key}"), &digest, expire_at_ms);
    }
    let of_copy: Reply = ask(&mut con, "RL.SLIDE copy-of-slide 10 1h 6");
    let of_original: Reply = ask(&mut con, "RL.SLIDE slide 10 1h 0");
    assert_eq!((of_copy.0, of_copy.2, of_original.2), (1, 0, 6));
    // What is changed in place is changed in one place only.
    let _: Reply = ask(&mut con, "RL.EXACT copy-of-exact 10 1h 6");
    let of_original: Reply = ask(&mut con, "RL.EXACT exact 10 1h 0");
    assert_eq!(of_original.2, 6);
    assert_eq!(ask::<i64>(&mut con, "RL.RELEASE lease holder"), 1);
    let of_copy: Reply = ask(&mut con, "RL.LEASE copy-of-lease 10 1h other 0");
    assert_eq!(of_copy.2, 6);
}

#[rstest]
fn rename_and_move_keep_usage_and_expiry(server: Server) {
    let mut con = server.connect();
    for (key, digest, expire_at_ms) in make_states(&server) {
        ask::<()>(&mut con, &format!("RENAME {key} renamed"));
        assert_same_state(&server, "renamed", &digest, expire_at_ms);
        assert_eq!(ask::<i64>(&mut con, "MOVE renamed 1"), 1);
        ask::<()>(&mut con, "SELECT 1");
        assert_eq!(
            ask::<Vec<String>>(&mut con, "DEBUG DIGEST-VALUE renamed"),
            [digest]
        );
        assert!(ask::<i64>(&mut con, "PTTL renamed") > 0);
        assert_eq!(ask::<i64>(&mut con, "UNLINK renamed"), 1);
        ask::<()>(&mut con, "SELECT 0");
    }
}

#[rstest]
fn dump_and_restore_keep_the_state(server: Server) {
    let mut con = server.connect();
    for (key, digest, expire_at_ms) in make_states(&server) {
        let dump: Vec<u8> = ask(&mut con, &format!("DUMP {key}"));
        assert_eq!(ask::<i64>(&mut con, &format!("UNLINK {key}")), 1);
        assert_eq!(ask::<i64>(&mut con, &format!("EXISTS {key}")), 0);
        let mut restore = redis::cmd("RESTORE");
        restore.arg(key).arg(expire_at_ms).arg(dump).arg("ABSTTL");
        restore.exec(&mut con).unwrap();
        assert_same_state(&server, key, &digest, expire_at_ms);
    }
    let reply: Reply = ask(&mut con, "RL.SLIDE slide 10 1h 6");
    assert_eq!((reply.0, reply.2), (1, 0));
}

#[rstest]
fn migrate_moves_the_state_to_another_server(server: Server) {
    let other = Server::start();
    for (key, digest, expire_at_ms) in make_states(&server) {
        let port = other.port().to_string();
        let _: () = server.run("MIGRATE", &["127.0.0.1", &port, key, "0", "60000"]);
        assert_eq!(server.run::<i64>("EXISTS", &[key]), 0);
        assert_eq!(other.digest(key), digest, "state of {key}");
        // The remaining time is sent, and counts from the moment of arrival.
        let late = other.expire_at_ms(key) - expire_at_ms;
        assert!(
            (0..60_000).contains(&late),
            "expiry of {key}: {late} ms later"
        );
    }
}

#[rstest]
fn debug_reload_keeps_states_and_expiry(server: Server) {
    let before = make_states(&server);
    let _: () = server.run("DEBUG", &["RELOAD"]);
    for (key, digest, expire_at_ms) in before {
        assert_same_state(&server, key, &digest, expire_at_ms);
    }
}

#[rstest]
fn active_defragmentation_keeps_states(server: Server) {
    let mut con = server.connect();
    if let Err(error) = try_ask::<()>(&mut con, "CONFIG SET activedefrag yes") {
        // A server that was built without it says so; any other refusal is a failure.
        let error = rl_testkit::error_text(&error);
        assert!(
            error.contains("Active defragmentation cannot be enabled: it requires"),
            "{error}"
        );
        rl_testkit::not_tested("this server cannot defragment");
        return;
    }
    for line in [
        "CONFIG SET active-defrag-ignore-bytes 1",
        "CONFIG SET active-defrag-threshold-lower 1",
        "CONFIG SET active-defrag-cycle-min 60",
        "CONFIG SET active-defrag-cycle-max 80",
    ] {
        ask::<()>(&mut con, line);
    }
    // Many values side by side, then holes between those that stay.
    let mut pipe = redis::pipe();
    for n in 0..100_000 {
        let cost = n % 90 + 1;
        let line = match n % 7 {
            0 => format!("RL.SLIDE {n} 100 1h {cost}"),
            1 => format!("RL.BUCKET {n} 100 1 1h {cost}"),
            2 => format!("RL.SLIDE {n} {} 3650d {}", 1_u64 << 50, 1_u64 << 40),
            3 => format!("RL.SLIDE {n} 100 1h {cost} PRECISION 30"),
            4 => format!("RL.EXACT {n} 100 1h {cost}"),
            5 => format!("RL.LEASE {n} 100 1h holder-{n} {cost}"),
            _ => format!("RL.FIXED {n} 100 3650d {cost}"),
        };
        pipe.add_command(command(&line));
    }
    pipe.exec(&mut con).unwrap();
    let kept: Vec<String> = (0..100_000).step_by(10).map(|n| n.to_string()).collect();
    let mut pipe = redis::pipe();
    for n in (0..100_000).filter(|n| n % 10 != 0) {
        pipe.cmd("DEL").arg(n);
    }
    let digests = |con: &mut redis::Connection| -> Vec<String> {
        redis::cmd("DEBUG")
            .arg("DIGEST-VALUE")
            .arg(&kept)
            .query(con)
            .unwrap()
    };
    let before = digests(&mut con);
    pipe.exec(&mut con).unwrap();
    eventually("values were moved", || {
        server.info_number("stats", "active_defrag_hits") > 10_000
    });
    assert!(
        before == digests(&mut con),
        "a state changed when it was moved"
    );
    for (call, cost) in [
        ("RL.SLIDE 70 100 1h 0", 71),
        ("RL.SLIDE 10 100 1h 0 PRECISION 30", 11),
        ("RL.EXACT 60 100 1h 0", 61),
        ("RL.LEASE 40 100 1h other 0", 41),
        ("RL.FIXED 20 100 3650d 0", 21),
    ] {
        let reply: Reply = ask(&mut con, call);
        assert_eq!(reply.2, 100 - cost, "{call}");
    }
    assert_eq!(ask::<i64>(&mut con, "RL.RELEASE 40 holder-40"), 1);
    assert_eq!(ask::<i64>(&mut con, "RL.REFUND 60 61"), 61);
}

// What the server does with the module.

#[rstest]
fn the_module_is_listed_and_cannot_be_unloaded(server: Server) {
    let modules: Vec<HashMap<String, Value>> = server.run("MODULE", &["LIST"]);
    let ours = modules
        .iter()
        .find(|module| module["name"] == Value::BulkString(b"rl".into()))
        .unwrap();
    let version = env!("CARGO_PKG_VERSION").split('.');
    let version = version.fold(0, |sum, part| 100 * sum + part.parse::<i64>().unwrap());
    assert_eq!(ours["ver"], Value::Int(version));

    let _: Reply = server.run("RL.SLIDE", &["k", "3", "1h"]);
    let refused = server.error("MODULE", &["UNLOAD", "rl"]);
    assert!(refused.contains("data types"), "{refused}");
    let twice = server.error("MODULE", &["LOAD", module().to_str().unwrap()]);
    assert!(twice.starts_with("ERR"), "{twice}");
    let reply: Reply = server.run("RL.SLIDE", &["k", "3", "1h"]);
    assert_eq!(reply.2, 1, "and goes on as before");
}

#[rstest]
fn module_arguments_are_refused() {
    let config: &[&str] = match has_directive("enable-module-command") {
        true => &["enable-module-command", "yes"],
        false => &[],
    };
    let server = Server::without_module(config);
    let path = module().to_str().unwrap();
    let refused = server.error("MODULE", &["LOAD", path, "surprise"]);
    assert!(
        refused.starts_with("ERR Error loading the extension"),
        "{refused}"
    );
    eventually("the log says why", || {
        server
            .log()
            .contains("rl: the module argument surprise has no value")
    });
    let unknown = server.error("RL.SLIDE", &["k", "3", "1h"]);
    assert!(unknown.contains("unknown command"), "{unknown}");

    // Corrected, it loads.
    let _: () = server.run("MODULE", &["LOAD", path]);
    let all: MultiReply = server.run("RL.MULTI", &["k", "SLIDE 3 1h"]);
    assert_eq!(all.0, 1);
}

#[rstest]
fn a_server_configured_with_module_arguments_does_not_start() {
    let dir = TempDir::new();
    let mut child = Command::new(server_binary())
        .args(["--port", "0", "--unixsocket", "socket", "--dir"])
        .arg(dir.root())
        .args(["--logfile", "log", "--loadmodule"])
        .arg(module())
        .arg("surprise")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Deadline::start();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if deadline.is_over() => break None,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let _ = child.kill();
    let _ = child.wait();
    let log = std::fs::read_to_string(dir.path("log")).unwrap_or_default();
    let refused = status.map(|status| !status.success());
    assert_eq!(refused, Some(true), "the server started nonetheless");
    assert!(
        log.contains("rl: the module argument surprise has no value"),
        "{log}"
    );
}

//! RL.POLICY and RL.OVERRIDE: servers that know subcommands (7.0 and later) treat each as a command of its own, and every
//! server refuses a subcommand that writes whenever it refuses write commands.

use std::collections::HashMap;
use std::fs;

use redis::{Connection, Value, from_redis_value};
use rl_testkit::{Server, ask, ask_error, error_text, eventually, try_ask};
use rstest::{fixture, rstest};

/// Changes, with what else they need; those that only look; all of them succeed where nothing is wrong.
const CHANGES: [&str; 5] = [
    "RL.POLICY SET new SLIDE 5 1h",
    "RL.POLICY DEL gone",
    r#"RL.POLICY LOAD {"policies":{"p":{"limits":["SLIDE_10_1h"]}}}"#,
    "RL.OVERRIDE SET k p BLOCK",
    "RL.OVERRIDE DEL other p",
];

const LOOKS: [&str; 4] = [
    "RL.POLICY GET p",
    "RL.POLICY LIST",
    "RL.POLICY DUMP",
    "RL.OVERRIDE GET k",
];

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(|word| word.replace('_', " ")).collect()
}

fn run(con: &mut Connection, line: &str) -> Result<Value, String> {
    let words = words(line);
    let reply = redis::cmd(&words[0]).arg(&words[1..]).query(con);
    reply.map_err(|error| error_text(&error))
}

fn has_subcommands(server: &Server) -> bool {
    server.has_command(&["COMMAND", "DOCS", "PING"])
}

fn fill(con: &mut Connection) {
    for line in [
        "RL.POLICY SET p SLIDE 10 1h",
        "RL.POLICY SET gone SLIDE 10 1h",
        "RL.OVERRIDE SET other p SCALE 2 1",
    ] {
        assert_eq!(run(con, line), Ok(Value::Okay), "{line}");
    }
}

#[fixture]
fn server() -> Server {
    let server = Server::start();
    fill(&mut server.connect());
    server
}

/// Every change fails with this code and changes nothing, in a transaction and in a script as well; every look works.
fn assert_refused(server: &Server, code: &str) {
    let mut con = server.connect();
    let state = |con: &mut Connection| {
        let dump: String = ask(con, "RL.POLICY DUMP");
        (dump, server.digest_all())
    };
    let before = state(&mut con);
    for line in CHANGES {
        let error = run(&mut con, line).unwrap_err();
        assert!(error.starts_with(code), "{line}: {error}");
        let script = "return redis.call(unpack(ARGV))";
        let mut eval = redis::cmd("EVAL");
        let error = eval.arg(script).arg(0).arg(words(line)).exec(&mut con);
        let error = error_text(&error.unwrap_err());
        assert!(error.contains(code), "{line} in a script: {error}");
        let mut pipe = redis::pipe();
        let words = words(line);
        pipe.atomic().cmd(&words[0]).arg(&words[1..]);
        assert!(pipe.exec(&mut con).is_err(), "{line} in a transaction");
    }
    assert_eq!(state(&mut con), before);
    for line in LOOKS {
        run(&mut con, line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

fn assert_accepted(server: &Server) {
    let mut con = server.connect();
    for line in CHANGES {
        run(&mut con, line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

#[rstest]
fn changes_need_replicas_where_writes_do(server: Server) {
    let _: () = server.run("CONFIG", &["SET", "min-replicas-to-write", "1"]);
    assert_refused(&server, "NOREPLICAS");
    let replica = Server::start();
    replica.follow(&server);
    eventually("the replica counts", || {
        server.info_number("replication", "min_slaves_good_slaves") == 1
    });
    assert_accepted(&server);
    let _: () = server.run("CONFIG", &["SET", "min-replicas-to-write", "2"]);
    fill_again(&server, "NOREPLICAS");
    let _: () = server.run("CONFIG", &["SET", "min-replicas-to-write", "0"]);
    assert_accepted(&server);
}

fn fill_again(server: &Server, code: &str) {
    let error = run(&mut server.connect(), "RL.POLICY SET p SLIDE 1 1").unwrap_err();
    assert!(error.starts_with(code), "{error}");
}

#[rstest]
fn changes_need_a_disk_that_works_where_writes_do(server: Server) {
    // A folder in the place of the file: not even root can write it.
    fs::create_dir(server.path("dump.rdb")).unwrap();
    let _: () = server.run("CONFIG", &["SET", "save", "3600 100000"]);
    let _: Value = server.run("BGSAVE", &[]);
    eventually("the save has failed", || {
        server.info("persistence", "rdb_last_bgsave_status") == "err"
    });
    assert!(server.error("SET", &["x", "y"]).starts_with("MISCONF"));
    assert_refused(&server, "MISCONF");
    let _: () = server.run("CONFIG", &["SET", "stop-writes-on-bgsave-error", "no"]);
    assert_accepted(&server);
    let _: () = server.run("CONFIG", &["SET", "stop-writes-on-bgsave-error", "yes"]);
    fill_again(&server, "MISCONF");
    let _: () = server.run("CONFIG", &["SET", "save", ""]);
    assert_accepted(&server);
}

#[rstest]
fn replicas_refuse_changes_and_take_those_of_their_primary(server: Server) {
    let replica = Server::start();
    replica.follow(&server);
    assert_refused(&replica, "READONLY");
    // Not even where their own rules would refuse a write.
    let _: () = replica.run("CONFIG", &["SET", "min-replicas-to-write", "3"]);
    let _: () = replica.run("CONFIG", &["SET", "replica-ignore-maxmemory", "no"]);
    let _: () = replica.run("CONFIG", &["SET", "maxmemory", "1"]);
    assert_accepted(&server);
    let mut con = server.connect();
    for line in CHANGES {
        let words = words(line);
        let mut pipe = redis::pipe();
        pipe.atomic().cmd(&words[0]).arg(&words[1..]);
        pipe.exec(&mut con).unwrap();
        let mut eval = redis::cmd("EVAL");
        eval.arg("return redis.call(unpack(ARGV))")
            .arg(0)
            .arg(&words);
        eval.exec(&mut con).unwrap();
    }
    server.wait_for(&replica);
    let dump = |server: &Server| server.run::<String>("RL.POLICY", &["DUMP"]);
    assert_eq!(dump(&replica), dump(&server));
}

#[rstest]
fn the_aof_replays_changes() {
    // With everysec, a slow disk puts writes off, and a kill loses them.
    let mut server = Server::with(&["appendonly", "yes", "appendfsync", "always"]);
    let mut con = server.connect();
    fill(&mut con);
    assert_accepted(&server);
    let dump: String = server.run("RL.POLICY", &["DUMP"]);
    let digest = server.digest_all();
    // What a client would be refused is replayed all the same.
    server.add_config(&["min-replicas-to-write", "3"]);
    server.kill();
    server.start_again();
    assert_eq!(server.run::<String>("RL.POLICY", &["DUMP"]), dump);
    assert_eq!(server.digest_all(), digest);
}

#[rstest]
fn full_memory_refuses_policies_and_not_overrides(server: Server) {
    let mut con = server.connect();
    let _: () = server.run("CONFIG", &["SET", "maxmemory", "1"]);
    for line in [CHANGES[0], CHANGES[2]] {
        let error = run(&mut con, line).unwrap_err();
        assert!(error.starts_with("OOM"), "{line}: {error}");
    }
    for line in [CHANGES[1], CHANGES[3], CHANGES[4]] {
        run(&mut con, line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    let denied: Vec<i64> = ask(&mut con, "RL.CHECK k p");
    assert_eq!(denied[0], 0);
}

/// Name, arity, whether it writes, syntax.
const SUBCOMMANDS: [(&str, &str, i64, bool, &[&str]); 9] = [
    (
        "rl.policy",
        "set",
        -4,
        true,
        &["name", "limit", "shadow", "note"],
    ),
    ("rl.policy", "get", 3, false, &["name"]),
    ("rl.policy", "del", 3, true, &["name"]),
    ("rl.policy", "list", -2, false, &["prefix"]),
    ("rl.policy", "dump", 2, false, &[]),
    ("rl.policy", "load", 3, true, &["json"]),
    (
        "rl.override",
        "set",
        -5,
        true,
        &["key", "policy", "action", "duration", "note"],
    ),
    ("rl.override", "get", 3, false, &["key"]),
    ("rl.override", "del", 4, true, &["key", "policy"]),
];

#[rstest]
fn command_info_and_docs_describe_each(server: Server) {
    if !has_subcommands(&server) {
        rl_testkit::not_tested("this server has no subcommands");
        return;
    }
    let choose: Vec<Value> = server.run("COMMAND", &["INFO", "WAITAOF"]);
    let can_choose = choose[0] != Value::Nil;
    for (container, name, arity, writes, arguments) in SUBCOMMANDS {
        let full = format!("{container}|{name}");
        let info: Vec<Vec<Value>> = server.run("COMMAND", &["INFO", &full]);
        let info = &info[0];
        assert_eq!(info[1], Value::Int(arity), "{full}");
        let mut flags: Vec<String> = from_redis_value(info[2].clone()).unwrap();
        flags.retain(|flag| flag != "module");
        assert_eq!(flags, [if writes { "write" } else { "readonly" }], "{full}");
        let keys = if container == "rl.override" {
            [2, 2, 1]
        } else {
            [0; 3]
        };
        assert_eq!(info[3..6], keys.map(Value::Int), "{full}");
        let mut categories: Vec<String> = from_redis_value(info[6].clone()).unwrap();
        categories.retain(|category| category != "@rl");
        categories.sort();
        let expected: &[&str] = match (can_choose, writes) {
            (false, _) => &[],
            (true, true) => &["@dangerous", "@slow", "@write"],
            (true, false) => &["@read", "@slow"],
        };
        assert_eq!(categories, expected, "{full}");
        let docs: HashMap<String, HashMap<String, Value>> = server.run("COMMAND", &["DOCS", &full]);
        let page = docs.values().next().unwrap();
        let text = |field: &str| -> String { from_redis_value(page[field].clone()).unwrap() };
        assert!(
            text("summary").ends_with('.') && text("complexity").starts_with("O("),
            "{full}"
        );
        let listed: Vec<HashMap<String, Value>> = page
            .get("arguments")
            .map_or(vec![], |list| from_redis_value(list.clone()).unwrap());
        let names: Vec<String> = listed
            .iter()
            .map(|argument| from_redis_value(argument["name"].clone()).unwrap())
            .collect();
        assert_eq!(names, arguments, "{full}");
    }
}

#[rstest]
fn help_lists_every_subcommand(server: Server) {
    let mut con = server.connect();
    for container in ["rl.policy", "rl.override"] {
        let lines: Vec<String> = ask(&mut con, &format!("{container} HELP"));
        assert!(lines[0].starts_with(&container.to_uppercase()), "{lines:?}");
        let mut listed: Vec<_> = lines[1..].chunks(2).collect();
        let help = listed.pop().unwrap();
        assert_eq!(help, ["HELP", "    Shows the syntax of every subcommand."]);
        let expected = SUBCOMMANDS.iter().filter(|(of, ..)| *of == container);
        let expected: Vec<_> = expected.map(|(_, name, ..)| name.to_uppercase()).collect();
        let names = listed
            .iter()
            .map(|lines| lines[0].split(' ').next().unwrap());
        assert_eq!(names.collect::<Vec<_>>(), expected);
        let error = ask_error(&mut con, &format!("{container} HELP me"));
        assert!(error.starts_with("ERR"), "{error}");
    }
    let lines: Vec<String> = ask(&mut con, "RL.OVERRIDE help");
    assert_eq!(
        lines[1],
        "SET key policy (limit [limit ...] | SCALE num den | BLOCK | ALLOW) [EX duration] [NOTE note]"
    );
    // Also for users who may change nothing, and while a server loads or has lost its primary.
    if has_subcommands(&server) {
        let info: Vec<Vec<Value>> = server.run("COMMAND", &["INFO", "rl.override|help"]);
        let mut flags: Vec<String> = from_redis_value(info[0][2].clone()).unwrap();
        flags.retain(|flag| flag != "module");
        flags.sort();
        assert_eq!(flags, ["loading", "stale"]);
        assert_eq!(info[0][3..6], [0; 3].map(Value::Int), "no key");
    }
}

#[rstest]
fn wrong_calls_get_the_servers_errors(server: Server) {
    let mut con = server.connect();
    for (container, name, arity, ..) in SUBCOMMANDS {
        let least = arity.unsigned_abs() as usize;
        let call = |len: usize| {
            let mut words = vec![container, name];
            words.resize(len, "x");
            words.join(" ")
        };
        if least > 2 {
            let error = ask_error(&mut con, &call(least - 1));
            assert!(
                error.starts_with("ERR wrong number of arguments for"),
                "{error}"
            );
        }
        if arity > 0 {
            let error = ask_error(&mut con, &call(least + 1));
            assert!(
                error.starts_with("ERR wrong number of arguments for"),
                "{error}"
            );
        }
    }
    for line in ["RL.POLICY NOPE", "RL.OVERRIDE NOPE k"] {
        let error = ask_error(&mut con, line);
        assert!(
            error.starts_with("ERR unknown subcommand"),
            "{line}: {error}"
        );
    }
    for line in ["RL.POLICY", "RL.OVERRIDE"] {
        let error = ask_error(&mut con, line);
        assert!(
            error.starts_with("ERR wrong number of arguments"),
            "{line}: {error}"
        );
    }
    // Whatever the case.
    assert_eq!(
        ask::<Vec<String>>(&mut con, "rl.policy liST"),
        ["gone", "p"]
    );
}

#[rstest]
fn a_single_subcommand_can_be_permitted(server: Server) {
    let user = |rules: &str| {
        let line = format!("ACL SETUSER someone reset on >secret ~* {rules}");
        ask::<()>(&mut server.connect(), &line);
        let mut con = server.connect();
        ask::<()>(&mut con, "AUTH someone secret");
        con
    };
    let may = |con: &mut Connection, line: &str| match run(con, line) {
        Ok(_) => true,
        Err(error) => !error.starts_with("NOPERM"),
    };
    let mut con = user("+rl.policy|get +rl.override|get +rl.check");
    for line in ["RL.POLICY GET p", "RL.OVERRIDE GET k", "RL.CHECK k p"] {
        assert!(may(&mut con, line), "{line}");
    }
    for line in CHANGES.iter().chain(&["RL.POLICY LIST", "RL.POLICY DUMP"]) {
        assert!(!may(&mut con, line), "{line}");
    }
    if try_ask::<()>(&mut server.connect(), "ACL SETUSER other +@rl").is_err() {
        rl_testkit::not_tested("this server has no category rl");
        return;
    }
    // Permission to check does not include permission to change what is checked.
    let mut con = user("+@rl");
    for line in LOOKS {
        assert!(may(&mut con, line), "{line}");
    }
    for line in CHANGES {
        assert!(!may(&mut con, line), "{line}");
    }
    let mut con = user("+@all -@write");
    for line in LOOKS {
        assert!(may(&mut con, line), "{line}");
    }
    for line in CHANGES {
        assert!(!may(&mut con, line), "{line}");
    }
}

#[rstest]
fn keys_of_overrides_are_subject_to_acls(server: Server) {
    let line = "ACL SETUSER someone reset on >secret ~app:* +rl.override";
    ask::<()>(&mut server.connect(), line);
    let mut con = server.connect();
    ask::<()>(&mut con, "AUTH someone secret");
    assert_eq!(
        run(&mut con, "RL.OVERRIDE SET app:k p BLOCK"),
        Ok(Value::Okay)
    );
    for line in [
        "RL.OVERRIDE SET k p BLOCK",
        "RL.OVERRIDE GET k",
        "RL.OVERRIDE DEL other p",
    ] {
        assert!(
            run(&mut con, line).unwrap_err().starts_with("NOPERM"),
            "{line}"
        );
    }
}

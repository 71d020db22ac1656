//! Settings: by CONFIG if the server supports it for modules, and by module arguments everywhere.

use std::collections::HashMap;

use redis::{Connection, Value, from_redis_value};
use rl_testkit::{Reply, Server, ask, ask_error, base_config, eventually, module, not_tested};
use rstest::{fixture, rstest};

#[fixture]
fn server() -> Server {
    Server::start()
}

/// Modules have settings in CONFIG since 7.0.
fn has_settings(server: &Server) -> bool {
    let all: HashMap<String, String> = server.run("CONFIG", &["GET", "rl.*"]);
    if all.is_empty() {
        assert!(!server.has_command(&["COMMAND", "DOCS", "PING"]));
        not_tested("this server has no CONFIG for modules");
    }
    !all.is_empty()
}

fn deny(con: &mut Connection, count: usize) {
    for n in 0..count {
        let _: Reply = ask(con, &format!("RL.SLIDE key:{n} 0 1h"));
    }
}

fn ids(con: &mut Connection) -> Vec<i64> {
    let entries: Vec<HashMap<String, Value>> = ask(con, "RL.AUDIT GET 1000");
    entries
        .iter()
        .map(|entry| from_redis_value(entry["id"].clone()).unwrap())
        .collect()
}

fn top(con: &mut Connection) -> usize {
    ask::<Vec<Value>>(con, "RL.TOP COUNT 1000").len()
}

#[rstest]
fn settings_have_their_defaults_and_ranges(server: Server) {
    if !has_settings(&server) {
        return;
    }
    let all: HashMap<String, String> = server.run("CONFIG", &["GET", "rl.*"]);
    let expected = [
        ("rl.audit-max-len", "128"),
        ("rl.audit-sample-every", "1"),
        ("rl.audit-stream", ""),
        ("rl.audit-stream-max-len", "10000"),
        ("rl.top-size", "128"),
    ];
    assert_eq!(
        all,
        expected
            .map(|(name, value)| (name.into(), value.into()))
            .into()
    );
    let mut con = server.connect();
    for (name, least, most) in [
        ("rl.audit-max-len", 0, 100_000),
        ("rl.audit-sample-every", 0, 1_000_000_000),
        ("rl.audit-stream-max-len", 1, 1_000_000_000),
        ("rl.top-size", 0, 10_000),
    ] {
        for value in [least, most] {
            ask::<()>(&mut con, &format!("CONFIG SET {name} {value}"));
            let now: (String, i64) = ask(&mut con, &format!("CONFIG GET {name}"));
            assert_eq!(now.1, value);
        }
        for value in ["-1", "1000000001", "x", "1.5"] {
            let error = ask_error(&mut con, &format!("CONFIG SET {name} {value}"));
            assert!(error.contains("CONFIG SET failed"), "{error}");
        }
        let now: (String, i64) = ask(&mut con, &format!("CONFIG GET {name}"));
        assert_eq!(now.1, most);
    }
    ask::<()>(&mut con, "CONFIG SET rl.audit-stream some:key");
    let now: (String, String) = ask(&mut con, "CONFIG GET rl.audit-stream");
    assert_eq!(now.1, "some:key");
}

#[rstest]
fn a_change_takes_effect_at_once(server: Server) {
    if !has_settings(&server) {
        return;
    }
    let mut con = server.connect();
    deny(&mut con, 20);
    ask::<()>(&mut con, "CONFIG SET rl.audit-max-len 5");
    assert_eq!(ids(&mut con), [19, 18, 17, 16, 15], "the newest are kept");
    deny(&mut con, 2);
    assert_eq!(ids(&mut con), [21, 20, 19, 18, 17]);
    ask::<()>(&mut con, "CONFIG SET rl.audit-max-len 7");
    deny(&mut con, 1);
    assert_eq!(ids(&mut con), [22, 21, 20, 19, 18, 17]);
    deny(&mut con, 2);
    assert_eq!(ids(&mut con), [24, 23, 22, 21, 20, 19, 18]);
    ask::<()>(&mut con, "CONFIG SET rl.audit-max-len 6");
    assert_eq!(ids(&mut con), [24, 23, 22, 21, 20, 19]);
    ask::<()>(&mut con, "CONFIG SET rl.audit-max-len 0");
    deny(&mut con, 1);
    assert!(ids(&mut con).is_empty());
    ask::<()>(&mut con, "CONFIG SET rl.audit-max-len 9");
    deny(&mut con, 1);
    assert_eq!(ids(&mut con), [26]);

    ask::<()>(&mut con, "CONFIG SET rl.audit-sample-every 3");
    deny(&mut con, 9);
    assert_eq!(ids(&mut con), [29, 28, 27, 26], "one in three has an id");
    ask::<()>(&mut con, "CONFIG SET rl.audit-sample-every 0");
    deny(&mut con, 9);
    assert_eq!(ids(&mut con).len(), 4);
    assert_eq!(server.info_number("rl", "rl_denied"), 45);

    // What was to be left out by one setting is not left out by the next.
    ask::<()>(&mut con, "CONFIG SET rl.audit-sample-every 1000000");
    deny(&mut con, 2);
    assert_eq!(ids(&mut con)[..2], [30, 29], "the first of a million");
    ask::<()>(&mut con, "CONFIG SET rl.audit-sample-every 2");
    deny(&mut con, 4);
    assert_eq!(ids(&mut con)[..3], [32, 31, 30]);
    assert_eq!(server.info_number("rl", "rl_denied"), 51);

    assert_eq!(top(&mut con), 20);
    ask::<()>(&mut con, "CONFIG SET rl.top-size 0");
    deny(&mut con, 9);
    assert_eq!(top(&mut con), 0);
    ask::<()>(&mut con, "CONFIG SET rl.top-size 4");
    deny(&mut con, 9);
    assert_eq!(top(&mut con), 4, "as many as were asked for");
    ask::<()>(&mut con, "CONFIG SET rl.audit-sample-every 1");
    assert_eq!(top(&mut con), 4, "other settings leave the table alone");
}

#[rstest]
fn smaller_sizes_free_memory(server: Server) {
    if !has_settings(&server) {
        return;
    }
    let mut con = server.connect();
    let used = || server.info_number("memory", "used_memory");
    let before = used();
    ask::<()>(&mut con, "CONFIG SET rl.top-size 10000");
    ask::<()>(&mut con, "CONFIG SET rl.audit-max-len 100000");
    let empty = used() - before;
    assert!((10_000_000..60_000_000).contains(&empty), "{empty}");
    let fill = || {
        let mut con = server.connect();
        for start in (0..100_000).step_by(5_000) {
            let mut pipe = redis::pipe();
            for n in start..start + 5_000 {
                let key = format!("a-key-of-forty-bytes-or-something-{n:06}");
                pipe.cmd("RL.SLIDE").arg(key).arg(&["0", "1h"]).ignore();
            }
            pipe.exec(&mut con).unwrap();
        }
        // Its buffers are memory too.
        drop(con);
        eventually("the connection is gone", || {
            server.info_number("clients", "connected_clients") == 2
        });
    };
    fill();
    let len: i64 = ask(&mut con, "RL.AUDIT LEN");
    let full = used() - before;
    assert_eq!(len, 100_000);
    let entries = full - empty;
    assert!(
        (100 * len..400 * len).contains(&entries),
        "{entries} bytes for {len} entries"
    );
    fill();
    let grown = used() - before - full;
    assert!(grown < 100_000, "{grown} bytes more for as many entries");
    ask::<()>(&mut con, "CONFIG SET rl.top-size 128");
    ask::<()>(&mut con, "CONFIG SET rl.audit-max-len 128");
    assert_eq!(ask::<i64>(&mut con, "RL.AUDIT LEN"), 128);
    let left = used() - before;
    assert!(left < 200_000, "{left}");
}

#[rstest]
fn module_arguments_set_the_same_settings() {
    let server = Server::with_module_args(&[
        "audit-max-len",
        "3",
        "top-size",
        "2",
        "audit-sample-every",
        "2",
        "audit-stream",
        "s",
        "audit-stream-max-len",
        "77",
        "redis-cell-compat",
        "yes",
    ]);
    let mut con = server.connect();
    deny(&mut con, 10);
    assert_eq!(ids(&mut con), [4, 3, 2]);
    assert_eq!(top(&mut con), 2);
    assert_eq!(ask::<i64>(&mut con, "XLEN s"), 5);
    let _: Reply = ask(&mut con, "CL.THROTTLE k 1 1 60");
    if has_settings(&server) {
        let all: HashMap<String, String> = server.run("CONFIG", &["GET", "rl.*"]);
        assert_eq!((&*all["rl.top-size"], &*all["rl.audit-stream"]), ("2", "s"));
        ask::<()>(&mut con, "CONFIG SET rl.audit-sample-every 1");
        deny(&mut con, 1);
        assert_eq!(ids(&mut con), [5, 4, 3]);
    }
}

#[rstest]
fn the_servers_configuration_takes_precedence_over_module_arguments(server: Server) {
    if !has_settings(&server) {
        return;
    }
    let bare = Server::without_module(&base_config());
    let words = [
        "LOADEX",
        module().to_str().unwrap(),
        "CONFIG",
        "rl.top-size",
        "7",
        "ARGS",
        "top-size",
        "9",
        "audit-max-len",
        "11",
    ];
    let _: () = bare.run("MODULE", &words);
    let all: HashMap<String, String> = bare.run("CONFIG", &["GET", "rl.*"]);
    assert_eq!(
        (&*all["rl.top-size"], &*all["rl.audit-max-len"]),
        ("7", "11")
    );
    let from_file = Server::with(&["rl.audit-max-len", "3", "rl.audit-stream", "x"]);
    let all: HashMap<String, String> = from_file.run("CONFIG", &["GET", "rl.*"]);
    assert_eq!(
        (&*all["rl.audit-max-len"], &*all["rl.audit-stream"]),
        ("3", "x")
    );
}

#[rstest]
#[case(&["throttle", "yes"], "the module argument throttle is unknown: there are audit-max-len, ")]
#[case(&["rl.top-size", "1"], "the module argument rl.top-size is unknown")]
#[case(&["redis-cell-compat"], "the module argument redis-cell-compat has no value")]
#[case(&["redis-cell-compat", "maybe"], "the module argument redis-cell-compat must be yes or no")]
#[case(&["top-size", "10001"], "the module argument top-size must be an integer between 0 and 10000")]
#[case(&["top-size", "-1"], "the module argument top-size must be an integer between 0 and 10000")]
#[case(&["audit-max-len", "many"], "the module argument audit-max-len must be an integer between 0 and 100000")]
#[case(&["top-size", "1", "audit-stream-max-len", "0"], "the module argument audit-stream-max-len must be")]
#[case(&["audit-sample-every", ""], "the module argument audit-sample-every must be an integer between 0 and 1000000000")]
#[case(&["audit-stream", "a\0b"], "the module argument audit-stream must not contain a NUL")]
fn a_wrong_argument_is_named_and_the_module_not_loaded(
    #[case] arguments: &[&str],
    #[case] problem: &str,
) {
    let server = Server::without_module(&base_config());
    let mut words = vec!["LOAD", module().to_str().unwrap()];
    words.extend(arguments);
    let error = server.error("MODULE", &words);
    assert!(error.contains("Error loading the extension"), "{error}");
    eventually("the log says why", || server.log().contains(problem));
}

//! What docs/deploy.md tells people to type works, on every server: its lines are read from the page and run.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::Path;

use redis::{Connection, Value};
use rstest::{fixture, rstest};
use support::{Five, Server, ask, ask_error, basics, eventually, knows, module, try_ask};

#[fixture]
fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/deploy.md");
    fs::read_to_string(path).unwrap()
}

/// The blocks that begin with this fence.
fn blocks<'a>(page: &'a str, fence: &str) -> Vec<&'a str> {
    let begins = page.split(fence).skip(1);
    begins
        .map(|rest| rest.split("```").next().unwrap().trim())
        .collect()
}

/// A server with these lines in its configuration file, and the module where they do not load it.
fn with_lines(lines: &str) -> Server {
    let folder = std::env::temp_dir().join(format!("rl-deploy-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let number = lines.len();
    let file = folder.join(format!("{number}.conf"));
    let mut text = lines.replace("/usr/local/lib/librl.so", module().to_str().unwrap());
    if !text.contains("loadmodule") {
        text += &format!("\nloadmodule {}", module().display());
    }
    fs::write(&file, text + "\n").unwrap();
    let mut config = basics();
    config.extend(["include", file.to_str().unwrap()]);
    let server = Server::start_bare(&config, &[]);
    let _ = fs::remove_dir_all(folder);
    server
}

fn in_bytes(value: &str) -> String {
    let gigabytes = value
        .strip_suffix("gb")
        .and_then(|number| number.parse::<u64>().ok());
    gigabytes.map_or(value.to_owned(), |number| (number << 30).to_string())
}

#[rstest]
fn the_lines_for_redis_conf_are_understood(page: String) {
    let blocks = blocks(&page, "```conf");
    assert_eq!(blocks.len(), 3, "{blocks:?}");
    for lines in blocks {
        let server = with_lines(lines);
        for line in lines.lines() {
            let (directive, value) = line.split_once(' ').unwrap();
            if directive != "loadmodule" {
                let set: (String, String) = server.run("CONFIG", &["GET", directive]);
                assert_eq!(set.1, in_bytes(value), "{line}");
            }
        }
        let mut con = server.connect();
        if lines.contains("min-replicas-to-write") {
            let refusal = ask_error(&mut con, "RL.SLIDE user:42 100 60");
            assert!(refusal.starts_with("NOREPLICAS"), "{refusal}");
            let replica = Server::start();
            replica.follow(&server);
            eventually("the replica is heard", || {
                try_ask::<Five>(&mut con, "RL.SLIDE user:42 100 60").is_ok()
            });
        } else if lines.contains("throttle-compat") {
            let five: Five = ask(&mut con, "CL.THROTTLE user:42 15 30 60");
            assert_eq!((five.0, five.1, five.2), (0, 16, 15));
        } else {
            let five: Five = ask(&mut con, "RL.SLIDE user:42 100 60");
            assert_eq!((five.0, five.2), (1, 99));
        }
    }
}

fn refused(con: &mut Connection, line: &str) -> bool {
    try_ask::<Value>(con, line).is_err_and(|error| error.code() == Some("NOPERM"))
}

#[rstest]
fn a_gateway_with_the_rules_of_the_page_may_limit_and_nothing_else(page: String) {
    let rules = blocks(&page, "```acl").concat();
    let rules: Vec<&str> = rules.lines().collect();
    assert_eq!(rules.len(), 2, "{rules:?}");
    let for_clusters = page
        .split('`')
        .find(|code| code.starts_with("+cluster|"))
        .unwrap();
    // As acl.rs says.
    let has_category = knows("hide-user-data-from-log");
    for rule in rules {
        let server = Server::start();
        if rule.contains("+@rl") && !has_category {
            let error = ask_error(&mut server.connect(), rule);
            assert!(error.contains("Unknown command or category"), "{error}");
            continue;
        }
        let _: () = ask(&mut server.connect(), &format!("{rule} {for_clusters}"));
        let mut con = server.connect();
        ask::<()>(&mut con, "AUTH gateway secret");
        for line in [
            "RL.SLIDE limits:a 5 1h",
            "RL.BUCKET limits:b 5 1 1h",
            "RL.MULTI limits:a SLIDE 5 1h 1 limits:b BUCKET 5 1 1h 1",
            "RL.PEEK limits:a SLIDE 5 1h 1",
            "WAIT 0 1",
            "PING",
        ] {
            ask::<Value>(&mut con, line);
        }
        assert!(!refused(&mut con, "CLUSTER SLOTS"));
        for line in [
            "RL.SLIDE other 5 1h",
            "RL.MULTI limits:a SLIDE 5 1h 1 other SLIDE 5 1h 1",
            "RL.LOAD limits:a 99999999999999 x",
            "GET limits:a",
            "SET limits:a x",
            "DEL limits:a",
            "CLUSTER RESET",
            "CONFIG GET *",
            "ACL WHOAMI",
            "PUBLISH x y",
            "KEYS *",
        ] {
            assert!(refused(&mut con, line), "{line} with {rule}");
        }
        let left: Five = ask(&mut con, "RL.PEEK limits:a SLIDE 5 1h 0");
        assert_eq!(left.2, 3, "nothing refused was spent");
    }
}

#[rstest]
fn what_the_page_says_to_watch_is_there(page: String) {
    let server = Server::start();
    let mut con = server.connect();
    let _: Five = ask(&mut con, "RL.SLIDE user:42 100 60");
    // One error of each kind that the page names.
    ask::<()>(&mut con, "SET plain x");
    assert!(ask_error(&mut con, "RL.SLIDE plain 100 60").starts_with("WRONGTYPE"));
    let _: i64 = ask(&mut con, "DEL plain");
    for (setting, error) in [
        ("min-replicas-to-write", "NOREPLICAS"),
        ("maxmemory", "OOM"),
    ] {
        ask::<()>(&mut con, &format!("CONFIG SET {setting} 1"));
        assert!(ask_error(&mut con, "RL.SLIDE new 100 60").starts_with(error));
        ask::<()>(&mut con, &format!("CONFIG SET {setting} 0"));
    }
    let replica = Server::start();
    replica.follow(&server);

    let table = page.split("## What to watch").nth(1).unwrap();
    let table = table.split("##").next().unwrap();
    let mut rows = 0;
    for row in table.lines().filter(|line| line.contains("`INFO ")) {
        let place = row.split('|').nth(2).unwrap();
        let mut code = place.split('`').skip(1).step_by(2);
        let section = code.next().unwrap().strip_prefix("INFO ").unwrap();
        let info: String = server.run("INFO", &[section]);
        for words in code {
            for word in words.split('…') {
                assert!(
                    info.contains(word),
                    "{word} is not in INFO {section}:\n{info}"
                );
            }
        }
        rows += 1;
    }
    assert_eq!(rows, 8);
    assert!(
        server
            .info("keyspace", "db0")
            .starts_with("keys=1,expires=1"),
        "every limit has an expiry"
    );
}

#[rstest]
fn a_server_does_not_let_the_module_go() {
    let error = Server::start().error("MODULE", &["UNLOAD", "rl"]);
    assert!(
        error.contains("one or more module-side data types"),
        "{error}"
    );
}

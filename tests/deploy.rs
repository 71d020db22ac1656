//! The commands in docs/deploy.md work on every server: they are read from the page and run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use redis::{Connection, Value};
use rl_testkit::{
    Reply, Server, TempDir, ask, ask_error, base_config, eventually, has_directive, module, try_ask,
};
use rstest::{fixture, rstest};

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
    let mut text = lines.replace("/usr/local/lib/librl.so", module().to_str().unwrap());
    if !text.contains("loadmodule") {
        text += &format!("\nloadmodule {}", module().display());
    }
    let folder = TempDir::new();
    let file = folder.write("server.conf", text + "\n");
    let mut config = base_config();
    config.extend(["include", &file]);
    Server::without_module(&config)
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
                try_ask::<Reply>(&mut con, "RL.SLIDE user:42 100 60").is_ok()
            });
        } else if lines.contains("redis-cell-compat") {
            let reply: Reply = ask(&mut con, "CL.THROTTLE user:42 15 30 60");
            assert_eq!((reply.0, reply.1, reply.2), (0, 16, 15));
        } else {
            let reply: Reply = ask(&mut con, "RL.SLIDE user:42 100 60");
            assert_eq!((reply.0, reply.2), (1, 99));
        }
    }
}

fn refused(con: &mut Connection, line: &str) -> bool {
    try_ask::<Value>(con, line).is_err_and(|error| error.code() == Some("NOPERM"))
}

#[rstest]
fn a_gateway_with_the_acl_rules_of_the_page_may_check_limits_and_nothing_else(page: String) {
    let [rules, for_rust] = blocks(&page, "```acl").try_into().unwrap();
    assert_eq!(rules.lines().count(), 2, "{rules}");
    let for_clusters = page
        .split('`')
        .find(|code| code.starts_with("+cluster|"))
        .unwrap();
    // As acl.rs says.
    let has_category = has_directive("hide-user-data-from-log");
    for rule in rules.lines() {
        let server = Server::start();
        if rule.contains("+@rl") && !has_category {
            let error = ask_error(&mut server.connect(), rule);
            assert!(error.contains("Unknown command or category"), "{error}");
            continue;
        }
        let _: () = ask(&mut server.connect(), &format!("{rule} {for_clusters}"));
        // What the Rust client does with these is in its own tests.
        let _: () = ask(&mut server.connect(), for_rust);
        let mut con = server.connect();
        ask::<()>(&mut con, "AUTH gateway secret");
        for line in [
            "RL.SLIDE limits:a 5 1h",
            "RL.BUCKET limits:b 5 1 1h",
            r#"RL.MULTI limits:a "SLIDE 5 1h 1" limits:b "BUCKET 5 1 1h 1""#,
            r#"RL.FIRST limits:a "PEEK SLIDE 5 1h 1" limits:b "BUCKET 5 1 1h 1""#,
            r#"RL.PEEK limits:a "SLIDE 5 1h 1""#,
            "WAIT 0 1",
            "PING",
        ] {
            ask::<Value>(&mut con, line);
        }
        assert!(!refused(&mut con, "CLUSTER SLOTS"));
        for line in [
            "RL.SLIDE other 5 1h",
            r#"RL.MULTI limits:a "SLIDE 5 1h 1" other "SLIDE 5 1h 1""#,
            "RL.LOAD limits:a 99999999999999 x",
            "GET limits:a",
            "SET limits:a x",
            "DEL limits:a",
            "CLUSTER RESET",
            "CONFIG GET *",
            "ACL WHOAMI",
            "PUBLISH x y",
            "KEYS *",
            "RL.POLICY DEL p",
        ] {
            assert!(refused(&mut con, line), "{line} with {rule}");
        }
        for (call, permitted) in [
            ("'RL.SLIDE', 'limits:c', 5, '1h'", true),
            ("'RL.SLIDE', 'other', 5, '1h'", false),
            ("'DEL', 'limits:a'", false),
        ] {
            let script = format!(r#"EVAL "return redis.call({call})" 0"#);
            let reply = try_ask::<Value>(&mut con, &script);
            assert_eq!(reply.is_ok(), permitted, "{script}: {reply:?}");
        }
        let left: Reply = ask(&mut con, r#"RL.PEEK limits:a "SLIDE 5 1h 0""#);
        assert_eq!(left.2, 3, "nothing refused was spent");
    }
}

#[rstest]
fn everything_that_the_page_says_to_watch_exists(page: String) {
    let server = Server::start();
    let mut con = server.connect();
    let _: Reply = ask(&mut con, "RL.SLIDE user:42 100 60");
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

    let table = page.split("## Monitoring").nth(1).unwrap();
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
    assert_eq!(rows, 10);
    assert!(
        server
            .info("keyspace", "db0")
            .starts_with("keys=1,expires=1"),
        "every limit has an expiry"
    );
}

/// The names that begin with `rl_`, sorted.
fn fields<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut fields: Vec<&str> = words.filter(|word| word.starts_with("rl_")).collect();
    fields.sort_unstable();
    fields
}

#[rstest]
fn the_page_lists_exactly_the_fields_of_info(page: String) {
    let info: String = Server::start().run("INFO", &["rl"]);
    let sent = fields(info.lines().filter_map(|line| line.split(':').next()));
    let table = page.split("### Fields of `INFO rl`").nth(1).unwrap();
    let table = table.split("\n## ").next().unwrap();
    let first_column = table.lines().filter_map(|row| row.split('|').nth(1));
    let listed = fields(first_column.flat_map(|cell| cell.split('`')));
    assert_eq!(listed, sent);
}

/// The commands of the page, with a redis-cli that finds this server.
fn run_script(server: &Server, script: &str) -> String {
    let redis_cli = server.path("redis-cli");
    let port = server.port();
    fs::write(
        &redis_cli,
        format!("#!/bin/sh\nPATH=$OLD_PATH exec redis-cli -p {port} \"$@\"\n"),
    )
    .unwrap();
    fs::set_permissions(&redis_cli, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let output = std::process::Command::new("bash")
        .args(["-euc", script])
        .current_dir(server.path(""))
        .env("OLD_PATH", &path)
        .env("PATH", format!("{}:{path}", server.path("").display()))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{output:?}");
    assert!(!text.contains("ERR"), "{text}");
    text
}

#[rstest]
fn a_server_starts_without_the_module_after_the_steps_of_the_page(page: String) {
    let section = page.split("## Removing the module").nth(1).unwrap();
    let script = blocks(section, "```sh")[0];
    let mut server = Server::with(&[]);
    let mut con = server.connect();
    ask::<()>(&mut con, "SET plain kept");
    ask::<()>(&mut con, "RL.POLICY SET free SLIDE 5 1h FIXED 9 3650d");
    for line in [
        "RL.SLIDE a 5 1h",
        "RL.BUCKET b 5 5 1h",
        "RL.FIXED c 5 3650d",
        "RL.EXACT d 5 1h",
        "RL.LEAK e 5 5 1h",
        "RL.LEASE f 5 1h me",
        "RL.CHECK g free",
        "RL.OVERRIDE SET g free BLOCK",
    ] {
        ask::<Value>(&mut con, line);
    }
    run_script(&server, script);
    eventually("the AOF is written", || {
        server.info_number("persistence", "aof_rewrite_in_progress") == 0
            && server.info_number("persistence", "aof_rewrite_scheduled") == 0
    });
    let keys: Vec<String> = ask(&mut con, "KEYS *");
    assert_eq!(keys, ["plain"], "all that is the module's is gone");
    server.shutdown("NOSAVE");
    server.replace_config("loadmodule", "appendonly", "yes");
    server.start_again();
    assert_eq!(server.run::<String>("GET", &["plain"]), "kept");
    assert!(!server.has_command(&["RL.SLIDE"]));
}

#[rstest]
fn no_example_opens_a_port_without_a_password(page: String) {
    let lines = page.lines().filter(|line| line.starts_with("docker run"));
    let open = lines.filter(|line| line.contains(" -p ") && !line.contains("--requirepass"));
    assert_eq!(open.count(), 0);
}

#[rstest]
fn the_module_cannot_be_unloaded() {
    let error = Server::start().error("MODULE", &["UNLOAD", "rl"]);
    assert!(
        error.contains("one or more module-side data types"),
        "{error}"
    );
}

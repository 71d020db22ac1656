//! ACLs see every key and every command: who may not touch a key cannot spend from it.

#![allow(clippy::unwrap_used)]

mod support;

use redis::{Connection, Value, from_redis_value};
use rstest::{fixture, rstest};
use support::{Five, Multi, Server, ask, ask_error, error_text, knows, try_ask};

const COMMANDS: [&str; 18] = [
    "rl.slide",
    "rl.bucket",
    "rl.fixed",
    "rl.exact",
    "rl.leak",
    "rl.lease",
    "rl.multi",
    "rl.peek",
    "rl.refund",
    "rl.release",
    "rl.inspect",
    "rl.load",
    "rl.check",
    "rl.policy",
    "rl.override",
    "rl.stats",
    "rl.top",
    "rl.audit",
];

/// What overwrites any key, changes what limits there are, or tells names of any key: it has to be granted by name.
const DANGEROUS: [&str; 5] = ["rl.load", "rl.policy", "rl.override", "rl.top", "rl.audit"];

/// A call of each, in the same order.
const CALLS: [&str; 18] = [
    "RL.SLIDE s 5 1h",
    "RL.BUCKET b 5 1 1h",
    "RL.FIXED f 5 1h",
    "RL.EXACT x 5 1h",
    "RL.LEAK l 5 1 1h",
    "RL.LEASE h 5 1h holder",
    "RL.MULTI s SLIDE 5 1h 1 b BUCKET 5 1 1h 1",
    "RL.PEEK s SLIDE 5 1h 1",
    "RL.REFUND s 1",
    "RL.RELEASE h holder",
    "RL.INSPECT s",
    "RL.LOAD s 99999999999999 not-a-state",
    "RL.CHECK s policy",
    "RL.POLICY LIST",
    "RL.OVERRIDE GET s",
    "RL.STATS",
    "RL.TOP",
    "RL.AUDIT GET",
];

/// Whether a call is let through to the command, which may then complain.
fn may(con: &mut Connection, line: &str) -> bool {
    match try_ask::<Value>(con, line) {
        Ok(_) => true,
        Err(error) => !error_text(&error).starts_with("NOPERM"),
    }
}

#[fixture]
fn server() -> Server {
    Server::start()
}

/// A connection of a user with these rules, given one after the other.
fn user(server: &Server, rules: &str) -> Connection {
    let _: () = ask(
        &mut server.connect(),
        &format!("ACL SETUSER someone on >secret {rules}"),
    );
    let mut con = server.connect();
    ask::<()>(&mut con, "AUTH someone secret");
    con
}

fn assert_refused(con: &mut Connection, line: &str) {
    let error = ask_error(con, line);
    assert!(error.starts_with("NOPERM"), "{line}: {error}");
}

fn acl_categories(server: &Server, command: &str) -> Vec<String> {
    let info: Vec<Vec<Value>> = server.run("COMMAND", &["INFO", command]);
    from_redis_value(info[0][6].clone()).unwrap()
}

#[rstest]
fn a_user_limited_to_some_keys_spends_from_no_others(server: Server) {
    let mut con = user(
        &server,
        &format!(
            "~app:* {}",
            COMMANDS.map(|command| format!("+{command}")).join(" ")
        ),
    );
    let five: Five = ask(&mut con, "RL.SLIDE app:a 5 1h");
    assert_eq!(five.2, 4);
    let all: Multi = ask(
        &mut con,
        "RL.MULTI app:a SLIDE 5 1h 1 app:b BUCKET 5 1 1h 1",
    );
    assert_eq!(all.0, 1);
    let digests = || [server.digest("app:a"), server.digest("app:b")];
    let before = digests();

    for line in [
        "RL.SLIDE other 5 1h",
        "RL.SLIDE other 5 1h 1 PEEK",
        "RL.BUCKET other 5 1 1h",
        "RL.PEEK other SLIDE 5 1h 1",
        "RL.LOAD other 99999999999999 blob",
        "RL.FIXED other 5 1h",
        "RL.EXACT other 5 1h",
        "RL.LEAK other 5 1 1h",
        "RL.LEASE other 5 1h holder",
        "RL.REFUND other 1",
        "RL.RELEASE other holder",
        "RL.INSPECT other",
        "RL.CHECK other policy",
        "RL.OVERRIDE SET other policy BLOCK",
        "RL.OVERRIDE GET other",
        "RL.MULTI app:a POLICY policy 1 other POLICY policy 1",
        "RL.MULTI app:c LEASE 5 1h app:d 1 other LEASE 5 1h app:d 1",
        "RL.MULTI app:a SLIDE 5 1h 1 PRECISION 2 other SLIDE 5 1h 1 PRECISION 2",
        "RL.MULTI app:c EXACT 5 1h 1 PRECISION FIXED 5 1h 1",
        "RL.MULTI other SLIDE 5 1h 1 app:a SLIDE 5 1h 1",
        "RL.MULTI app:a SLIDE 5 1h 1 other SLIDE 5 1h 1",
        "RL.MULTI app:a SLIDE 5 1h 1 app:b BUCKET 5 1 1h 1 other BUCKET 5 1 1h 1",
        "RL.MULTI app:a SLIDE 5 1h 1 app:b BUCKET 5 1 1h 1 other SLIDE 5 1h 1 FORCE",
        "RL.MULTI app:a SLIDE 5 1h 1 PEEK SLIDE 5 1h 1 PEEK",
    ] {
        assert_refused(&mut con, line);
    }
    assert_eq!(digests(), before, "nothing spent");
    assert_eq!(server.run::<i64>("DBSIZE", &[]), 2);
}

#[rstest]
fn a_command_may_be_given_alone(server: Server) {
    for command in COMMANDS {
        let mut con = user(&server, &format!("reset on >secret ~* +{command}"));
        let permitted = CALLS.map(|line| may(&mut con, line));
        assert_eq!(permitted, COMMANDS.map(|other| other == command));
    }
}

#[rstest]
fn the_category_rl_gives_what_applications_need_where_servers_have_it(server: Server) {
    let for_applications = COMMANDS.map(|command| !DANGEROUS.contains(&command));
    // Modules may add a category since Redis 7.4 and Valkey 8.0, which both brought this directive.
    let has_category = knows("hide-user-data-from-log");
    let all: Vec<String> = server.run("ACL", &["CAT"]);
    assert_eq!(all.contains(&"rl".to_owned()), has_category, "{all:?}");
    for (command, given) in COMMANDS.into_iter().zip(for_applications) {
        let categories = acl_categories(&server, command);
        assert_eq!(
            categories.contains(&"@rl".to_owned()),
            has_category && given,
            "{command}: {categories:?}"
        );
    }
    if !has_category {
        let error = server.error("ACL", &["SETUSER", "someone", "+@rl"]);
        assert!(error.contains("Unknown command or category"), "{error}");
        eprintln!("NOT TESTED: this server has no category rl");
        return;
    }
    let mut con = user(&server, "~* +@rl");
    assert_eq!(CALLS.map(|line| may(&mut con, line)), for_applications);
    assert_refused(&mut con, "GET s");
    assert_refused(&mut con, "DEL s");
    let mut con = user(&server, "reset on >secret ~* +@all -@rl");
    assert_eq!(
        CALLS.map(|line| may(&mut con, line)),
        for_applications.map(|given| !given)
    );
    ask::<i64>(&mut con, "DEL s");
}

#[rstest]
fn commands_are_in_the_servers_own_categories_where_modules_can_say_so(server: Server) {
    // 7.2 brought both WAITAOF and the call with which modules choose categories.
    let waitaof: Vec<Value> = server.run("COMMAND", &["INFO", "WAITAOF"]);
    let can_say = waitaof[0] != Value::Nil;
    for command in COMMANDS {
        let mut categories = acl_categories(&server, command);
        categories.retain(|category| category != "@rl");
        categories.sort();
        let expected: &[&str] = match (can_say, command) {
            (false, _) => &[],
            (true, "rl.peek" | "rl.inspect" | "rl.stats") => &["@fast", "@read"],
            (true, "rl.load") => &["@dangerous", "@fast", "@write"],
            (true, "rl.policy" | "rl.override") => &["@dangerous", "@slow", "@write"],
            (true, "rl.top" | "rl.audit") => &["@admin", "@dangerous", "@slow"],
            (true, _) => &["@fast", "@write"],
        };
        assert_eq!(categories, expected, "{command}");
    }
    let mut con = user(&server, "~* +@all -@dangerous");
    let harmless = COMMANDS.map(|command| !DANGEROUS.contains(&command) || !can_say);
    assert_eq!(CALLS.map(|line| may(&mut con, line)), harmless);
}

#[rstest]
fn permission_to_read_a_key_is_permission_to_peek(server: Server) {
    if !server.has_command(&["ACL", "SETUSER", "someone", "%R~ro:*"]) {
        // Before 7.0 keys are all or nothing, and only commands tell reading from writing.
        let mut con = user(&server, "~ro:* +rl.peek");
        ask::<Five>(&mut con, "RL.PEEK ro:a SLIDE 5 1h 1");
        assert_refused(&mut con, "RL.SLIDE ro:a 5 1h");
        eprintln!("NOT TESTED: this server has no read-only key permissions");
        return;
    }
    let _: Five = server.run("RL.SLIDE", &["ro:a", "5", "1h"]);
    let mut con = user(&server, "reset on >secret %R~ro:* ~rw:* %W~wo:* +@all");
    let five: Five = ask(&mut con, "RL.PEEK ro:a SLIDE 5 1h 1");
    assert_eq!((five.0, five.2), (1, 3));
    let all: Multi = ask(&mut con, "RL.MULTI rw:a SLIDE 5 1h 1 rw:b BUCKET 5 1 1h 1");
    assert_eq!(all.0, 1);
    assert!(matches!(ask(&mut con, "RL.INSPECT ro:a"), Value::Array(_)));
    let before = server.digest_all();
    for line in [
        "RL.SLIDE ro:a 5 1h",
        "RL.BUCKET ro:b 5 1 1h",
        "RL.LOAD ro:a 99999999999999 x",
        "RL.EXACT ro:x 5 1h",
        "RL.LEASE ro:h 5 1h holder",
        "RL.REFUND ro:a 1",
        "RL.RELEASE ro:h holder",
        "RL.INSPECT wo:a",
        "RL.REFUND wo:a 1",
        "RL.MULTI ro:a SLIDE 5 1h 1",
        "RL.MULTI rw:a SLIDE 5 1h 1 ro:a SLIDE 5 1h 1",
        "RL.MULTI rw:a SLIDE 5 1h 1 rw:b BUCKET 5 1 1h 1 ro:b BUCKET 5 1 1h 1",
        // A decision tells what is in the key: writing alone is not enough for it.
        "RL.SLIDE wo:a 5 1h",
        "RL.PEEK wo:a SLIDE 5 1h 1",
        "RL.MULTI rw:a SLIDE 5 1h 1 wo:a SLIDE 5 1h 1",
    ] {
        assert_refused(&mut con, line);
    }
    assert_eq!(server.digest_all(), before, "nothing spent");
}

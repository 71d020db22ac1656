//! ACLs cover every key and every command: without permission for a key, a client cannot charge it.

use redis::{Connection, Value, from_redis_value};
use rl_testkit::{
    MultiReply, Reply, Server, ask, ask_error, error_text, has_directive, not_tested, try_ask,
};
use rstest::{fixture, rstest};

const COMMANDS: [&str; 21] = [
    "rl.slide",
    "rl.bucket",
    "rl.fixed",
    "rl.exact",
    "rl.leak",
    "rl.lease",
    "rl.multi",
    "rl.first",
    "rl.reserve",
    "rl.settle",
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

/// Commands that overwrite any key, change limits, or show the names of keys have to be granted by name.
const DANGEROUS: [&str; 5] = ["rl.load", "rl.policy", "rl.override", "rl.top", "rl.audit"];

/// A call of each, in the same order.
const CALLS: [&str; 21] = [
    "RL.SLIDE s 5 1h",
    "RL.BUCKET b 5 1 1h",
    "RL.FIXED f 5 1h",
    "RL.EXACT x 5 1h",
    "RL.LEAK l 5 1 1h",
    "RL.LEASE h 5 1h holder",
    r#"RL.MULTI s "SLIDE 5 1h 1" b "BUCKET 5 1 1h 1""#,
    r#"RL.FIRST s "SLIDE 5 1h 1" b "BUCKET 5 1 1h 1""#,
    r#"RL.RESERVE id 5m s "SLIDE 5 1h 1""#,
    "RL.SETTLE id 1 s 1",
    r#"RL.PEEK s "SLIDE 5 1h 1""#,
    "RL.REFUND s 1",
    "RL.RELEASE h holder",
    "RL.INSPECT s",
    "RL.LOAD s 99999999999999 not-a-state",
    "RL.CHECK s policy",
    "RL.POLICY DEL p",
    "RL.OVERRIDE DEL s p",
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
fn a_user_limited_to_some_keys_charges_no_others(server: Server) {
    let mut con = user(
        &server,
        &format!(
            "~app:* {}",
            COMMANDS.map(|command| format!("+{command}")).join(" ")
        ),
    );
    let reply: Reply = ask(&mut con, "RL.SLIDE app:a 5 1h");
    assert_eq!(reply.2, 4);
    let all: MultiReply = ask(
        &mut con,
        r#"RL.MULTI app:a "SLIDE 5 1h 1" app:b "BUCKET 5 1 1h 1""#,
    );
    assert_eq!(all.0, 1);
    let digests = || [server.digest("app:a"), server.digest("app:b")];
    let before = digests();

    for line in [
        "RL.SLIDE other 5 1h",
        "RL.SLIDE other 5 1h 1 PEEK",
        "RL.BUCKET other 5 1 1h",
        r#"RL.PEEK other "SLIDE 5 1h 1""#,
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
        r#"RL.MULTI app:a "POLICY policy 1" other "POLICY policy 1""#,
        r#"RL.MULTI app:c "LEASE 5 1h app:d 1" other "LEASE 5 1h app:d 1""#,
        r#"RL.MULTI app:a "SLIDE 5 1h 1 PRECISION 2" other "SLIDE 5 1h 1 PRECISION 2""#,
        r#"RL.MULTI app:c "EXACT 5 1h 1" PRECISION "FIXED 5 1h 1""#,
        r#"RL.MULTI other "SLIDE 5 1h 1" app:a "SLIDE 5 1h 1""#,
        r#"RL.MULTI app:a "SLIDE 5 1h 1" other "SLIDE 5 1h 1""#,
        r#"RL.MULTI app:a "SLIDE 5 1h 1" app:b "BUCKET 5 1 1h 1" other "BUCKET 5 1 1h 1""#,
        r#"RL.MULTI app:a "FORCE SLIDE 5 1h 1" app:b "BUCKET 5 1 1h 1" other "SLIDE 5 1h 1""#,
        r#"RL.MULTI app:a "PEEK SLIDE 5 1h 1" PEEK "SLIDE 5 1h 1""#,
        r#"RL.FIRST app:a "SLIDE 5 1h 1" other "SLIDE 5 1h 1""#,
        r#"RL.FIRST app:a "TIMES 2 ATLEAST 1 SLIDE 5 1h 1" app:b "BUCKET 5 1 1h 1" TIMES "SLIDE 5 1h 1""#,
    ] {
        assert_refused(&mut con, line);
    }
    assert_eq!(digests(), before, "nothing spent");
    assert_eq!(server.run::<i64>("DBSIZE", &[]), 2);
}

#[rstest]
fn a_key_that_is_not_permitted_is_found_in_every_position(server: Server) {
    let call = |keys: &[String], con: &mut Connection| {
        let mut call = redis::cmd("RL.MULTI");
        for key in keys {
            call.arg(key).arg("SLIDE 5 1h 1");
        }
        call.query::<MultiReply>(con)
    };
    let mut others = vec!["other"];
    let mut rules = "~app:*".to_owned();
    if server.has_command(&["ACL", "SETUSER", "nobody", "%R~ro:*"]) {
        others.extend(["ro:key", "wo:key"]);
        rules += " %R~ro:* %W~wo:*";
    } else {
        not_tested("this server has no read-only key permissions");
    }
    let mut con = user(&server, &format!("{rules} +rl.multi"));
    for count in [1, 2, 3, 7, 128] {
        let keys: Vec<String> = (0..count).map(|n| format!("app:{n}")).collect();
        for place in 0..count {
            for other in &others {
                let mut keys = keys.clone();
                keys[place] = (*other).to_owned();
                let error = error_text(&call(&keys, &mut con).unwrap_err());
                assert!(error.starts_with("NOPERM"), "{other} in {place}: {error}");
            }
        }
    }
    assert_eq!(server.run::<i64>("DBSIZE", &[]), 0);
    let keys = ["app:1".to_owned(), "app:2".to_owned()];
    assert_eq!(call(&keys, &mut con).unwrap().0, 1);
}

#[rstest]
fn a_single_command_can_be_permitted(server: Server) {
    for command in COMMANDS {
        let mut con = user(&server, &format!("reset on >secret ~* +{command}"));
        let permitted = CALLS.map(|line| may(&mut con, line));
        assert_eq!(permitted, COMMANDS.map(|other| other == command));
    }
}

#[rstest]
fn the_acl_category_rl_permits_what_applications_need(server: Server) {
    let for_applications = COMMANDS.map(|command| !DANGEROUS.contains(&command));
    // Modules may add a category since Redis 7.4 and Valkey 8.0, which both brought this directive.
    let has_category = has_directive("hide-user-data-from-log");
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
        not_tested("this server has no category rl");
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
fn commands_are_in_the_servers_own_acl_categories(server: Server) {
    // 7.2 brought both WAITAOF and the call with which modules choose categories.
    let waitaof: Vec<Value> = server.run("COMMAND", &["INFO", "WAITAOF"]);
    let can_say = waitaof[0] != Value::Nil;
    if !can_say {
        not_tested("modules cannot choose categories on this server: their commands have none");
    }
    for command in COMMANDS {
        let mut categories = acl_categories(&server, command);
        categories.retain(|category| category != "@rl");
        categories.sort();
        let expected: &[&str] = match (can_say, command) {
            (false, _) => &[],
            (true, "rl.peek" | "rl.inspect" | "rl.stats") => &["@fast", "@read"],
            (true, "rl.load") => &["@dangerous", "@fast", "@write"],
            // The subcommands have their own.
            (true, "rl.policy" | "rl.override") => &[],
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
        ask::<Reply>(&mut con, r#"RL.PEEK ro:a "SLIDE 5 1h 1""#);
        assert_refused(&mut con, "RL.SLIDE ro:a 5 1h");
        not_tested("this server has no read-only key permissions");
        return;
    }
    let _: Reply = server.run("RL.SLIDE", &["ro:a", "5", "1h"]);
    let mut con = user(&server, "reset on >secret %R~ro:* ~rw:* %W~wo:* +@all");
    let reply: Reply = ask(&mut con, r#"RL.PEEK ro:a "SLIDE 5 1h 1""#);
    assert_eq!((reply.0, reply.2), (1, 3));
    let all: MultiReply = ask(
        &mut con,
        r#"RL.MULTI rw:a "SLIDE 5 1h 1" rw:b "BUCKET 5 1 1h 1""#,
    );
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
        r#"RL.MULTI ro:a "SLIDE 5 1h 1""#,
        r#"RL.MULTI rw:a "SLIDE 5 1h 1" ro:a "SLIDE 5 1h 1""#,
        r#"RL.MULTI rw:a "SLIDE 5 1h 1" rw:b "BUCKET 5 1 1h 1" ro:b "BUCKET 5 1 1h 1""#,
        // A decision reveals what is in the key, so permission to write is not enough.
        "RL.SLIDE wo:a 5 1h",
        r#"RL.PEEK wo:a "SLIDE 5 1h 1""#,
        r#"RL.MULTI rw:a "SLIDE 5 1h 1" wo:a "SLIDE 5 1h 1""#,
        r#"RL.FIRST rw:a "SLIDE 5 1h 1" wo:a "SLIDE 5 1h 1""#,
    ] {
        assert_refused(&mut con, line);
    }
    assert_eq!(server.digest_all(), before, "nothing spent");
}

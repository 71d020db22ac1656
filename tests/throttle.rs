//! CL.THROTTLE replies as redis-cell does, and converts its keys.

use rl_testkit::{FrozenServer, NOON_US, Reply, Server, ask, ask_error};
use rstest::{fixture, rstest};

#[fixture]
fn server() -> Server {
    Server::with_module_args(&["redis-cell-compat", "yes"])
}

/// Times are in whole seconds, and exact.
#[fixture]
fn frozen() -> FrozenServer {
    FrozenServer::with_module_args(&["redis-cell-compat", "yes"])
}

#[rstest]
fn the_examples_of_redis_cell_reply_the_same(frozen: FrozenServer) {
    if frozen.cannot_be_tested() {
        return;
    }
    let mut con = frozen.server.connect();
    let reply: Reply = ask(&mut con, "CL.THROTTLE user123 15 30 60");
    assert_eq!(reply, (0, 16, 15, -1, 2));
    let reply: Reply = ask(&mut con, "CL.THROTTLE user123 15 30 60 1");
    assert_eq!(reply, (0, 16, 14, -1, 4));
    // Its end-to-end test: one call every two seconds, no burst.
    let call = "CL.THROTTLE once 0 1 2 1";
    assert_eq!(ask::<Reply>(&mut con, call), (0, 1, 0, -1, 2));
    assert_eq!(ask::<Reply>(&mut con, call), (1, 1, 0, 2, 2));
    frozen.set(NOON_US + 2_000_000);
    assert_eq!(ask::<Reply>(&mut con, call), (0, 1, 0, -1, 2));
}

#[rstest]
fn quantities_above_the_limit_and_zero_reply_like_redis_cell(frozen: FrozenServer) {
    if frozen.cannot_be_tested() {
        return;
    }
    let mut con = frozen.server.connect();
    assert_eq!(
        ask::<Reply>(&mut con, "CL.THROTTLE k 4 1 60 6"),
        (1, 5, 5, -1, 0)
    );
    assert_eq!(
        ask::<Reply>(&mut con, "CL.THROTTLE k 4 1 60 0"),
        (0, 5, 5, -1, 0)
    );
    assert_eq!(ask::<i64>(&mut con, "EXISTS k"), 0);
    assert_eq!(
        ask::<Reply>(&mut con, "CL.THROTTLE k 4 1 60 5"),
        (0, 5, 0, -1, 300)
    );
    assert_eq!(
        ask::<Reply>(&mut con, "CL.THROTTLE k 4 1 60 2"),
        (1, 5, 0, 120, 300)
    );
    // The same key by the native command.
    let reply: Reply = ask(&mut con, "RL.BUCKET k 5 1 60s 0");
    assert_eq!(reply.2, 0);
}

#[rstest]
fn keys_of_redis_cell_are_converted_with_their_usage(frozen: FrozenServer) {
    if frozen.cannot_be_tested() {
        return;
    }
    let (server, replica) = (&frozen.server, Server::start());
    replica.follow(server);
    let mut con = server.connect();
    let (seconds, micros): (u64, u64) = ask(&mut con, "TIME");
    // Ten of 16 are owed, at one every two seconds; the last digits are nanoseconds.
    let free_at_ns = (seconds * 1_000_000 + micros) * 1000 + 20_000_000_123;
    let _: () = ask(&mut con, &format!("SET user123 {free_at_ns} PX 20001"));
    frozen.set(NOON_US + 1000);
    assert_eq!(
        ask::<Reply>(&mut con, "CL.THROTTLE user123 15 30 60"),
        (0, 16, 5, -1, 22)
    );
    assert_eq!(ask::<String>(&mut con, "TYPE user123"), "rl-bucket");
    server.wait_for(&replica);
    assert_eq!(server.digest("user123"), replica.digest("user123"));
    // A denied first call takes the key over as well.
    let _: () = ask(
        &mut con,
        &format!("SET other {} PX 40000", free_at_ns + 20_000_000_000),
    );
    let denied: Reply = ask(&mut con, "CL.THROTTLE other 15 30 60");
    assert_eq!((denied.0, denied.2), (1, 0));
    assert!((8..=10).contains(&denied.3), "{denied:?}");
}

#[rstest]
fn other_keys_are_refused_and_left_alone(server: Server) {
    let mut con = server.connect();
    for (set, key) in [
        ("SET s hello", "s"),
        ("SET n 18446744073709551615", "n"),
        ("SET m 5 EX 60", "m"),
        ("RPUSH l 1", "l"),
    ] {
        let _: redis::Value = ask(&mut con, set);
        let before = server.digest(key);
        let error = ask_error(
            &mut con,
            &format!("CL.THROTTLE {key} 15 9007199254740991 1"),
        );
        assert!(error.starts_with("WRONGTYPE "), "{error}");
        assert_eq!(server.digest(key), before);
    }
    let _: Reply = ask(&mut con, "RL.SLIDE slide 5 60");
    let error = ask_error(&mut con, "CL.THROTTLE slide 15 30 60");
    assert!(
        error.starts_with("WRONGTYPE the key holds a SLIDE"),
        "{error}"
    );
    for (call, named) in [
        ("k -1 30 60", "max_burst"),
        ("k 9007199254740991 30 60", "max_burst"),
        ("k 15 0 60", "count"),
        ("k 15 x 60", "count"),
        ("k 15 30 0", "period"),
        ("k 15 30 1m", "period"),
        ("k 15 30 9007199254740991", "period"),
        ("k 15 30 60 -1", "quantity"),
    ] {
        let error = ask_error(&mut con, &format!("CL.THROTTLE {call}"));
        assert!(
            error.starts_with(&format!("ERR {named} must be")),
            "{call}: {error}"
        );
    }
}

#[rstest]
fn without_the_argument_there_is_no_such_command() {
    let server = Server::start();
    let error = server.error("CL.THROTTLE", &["k", "15", "30", "60"]);
    assert!(error.contains("unknown command"), "{error}");
}

//! Limits decide in transactions and scripts as everywhere else, and WATCH sees every change.

use redis::{Connection, RedisResult, Value};
use rl_testkit::{MultiReply, Reply, Server, ask, command, error_text, split_args};
use rstest::{fixture, rstest};

#[fixture]
fn server() -> Server {
    Server::start()
}

fn eval<T: redis::FromRedisValue>(con: &mut Connection, script: &str, keys: &[&str]) -> T {
    try_eval(con, script, keys).unwrap()
}

fn try_eval<T: redis::FromRedisValue>(
    con: &mut Connection,
    script: &str,
    keys: &[&str],
) -> RedisResult<T> {
    let mut call = redis::cmd("EVAL");
    call.arg(script).arg(keys.len()).arg(keys).query(con)
}

/// Each line queued, then EXEC.
fn transaction(con: &mut Connection, lines: &[&str]) -> RedisResult<Vec<RedisResult<Value>>> {
    let mut pipe = redis::pipe();
    pipe.atomic().ignore_errors();
    for line in lines {
        pipe.add_command(command(line));
    }
    pipe.query(con)
}

fn first_of(reply: &RedisResult<Value>) -> &Value {
    match reply {
        Ok(Value::Array(values)) => &values[0],
        other => panic!("{other:?}"),
    }
}

#[rstest]
fn exec_decides_each_call_in_order(server: Server) {
    let mut con = server.connect();
    let replies = transaction(
        &mut con,
        &[
            "RL.SLIDE k 2 1h",
            "RL.SLIDE k 2 1h",
            "RL.SLIDE k 2 1h",
            r#"RL.MULTI b "BUCKET 1 1 1h 1" c "SLIDE 5 1h 5""#,
            r#"RL.MULTI b "BUCKET 1 1 1h 1" c "SLIDE 5 1h 5""#,
            r#"RL.PEEK k "SLIDE 9 1h 1""#,
        ],
    );
    let allowed: Vec<_> = replies.unwrap().iter().map(first_of).cloned().collect();
    assert_eq!(allowed, [1, 1, 0, 1, 0, 1].map(Value::Int));
    let reply: Reply = ask(&mut con, r#"RL.PEEK k "SLIDE 9 1h 0""#);
    assert_eq!(reply.2, 7);
}

#[rstest]
fn a_discarded_transaction_spends_nothing(server: Server) {
    let mut con = server.connect();
    ask::<()>(&mut con, "MULTI");
    let queued: String = ask(&mut con, "RL.SLIDE k 2 1h");
    assert_eq!(queued, "QUEUED");
    ask::<()>(&mut con, "DISCARD");
    assert_eq!(ask::<i64>(&mut con, "EXISTS k"), 0);
}

#[rstest]
fn an_error_inside_exec_leaves_the_other_calls_standing(server: Server) {
    let mut con = server.connect();
    ask::<()>(&mut con, "LPUSH list x");
    let replies = transaction(
        &mut con,
        &[
            "RL.SLIDE a 5 1h",
            "RL.SLIDE list 5 1h",
            "RL.SLIDE a 5 never",
            r#"RL.MULTI a "SLIDE 5 1h 1" list "SLIDE 5 1h 1""#,
            "RL.SLIDE a 5 1h",
        ],
    );
    let replies = replies.unwrap();
    let wrong_type = "WRONGTYPE Operation against a key holding the wrong kind of value";
    let errors: Vec<_> = replies
        .iter()
        .map(|reply| reply.as_ref().err().map(error_text))
        .collect();
    assert_eq!(errors[1].as_deref(), Some(wrong_type));
    assert_eq!(
        errors[2].as_deref(),
        Some("ERR window must be a duration between 1ms and 3650d (ms, s, m, h, d)")
    );
    let in_multi = format!("{wrong_type}: 'list'");
    assert_eq!(errors[3].as_deref(), Some(&*in_multi));
    assert_eq!(
        (&errors[0], &errors[4]),
        (&None, &None),
        "around the errors"
    );
    let reply: Reply = ask(&mut con, r#"RL.PEEK a "SLIDE 5 1h 0""#);
    assert_eq!(
        reply.2, 3,
        "spent by the first and the last, and only by them"
    );
}

#[rstest]
fn too_few_arguments_abort_the_transaction_where_the_server_knows_their_number(server: Server) {
    let mut con = server.connect();
    let info: Vec<Vec<Value>> = ask(&mut con, "COMMAND INFO RL.SLIDE");
    let arity = &info[0][1];
    let replies = transaction(&mut con, &["RL.SLIDE a 5 1h", "RL.SLIDE a"]);
    if arity == &Value::Int(-1) {
        // Before 7.0 a module cannot tell: the call itself fails.
        let replies = replies.unwrap();
        assert!(replies[0].is_ok());
        assert!(replies[1].is_err());
        assert_eq!(ask::<i64>(&mut con, "EXISTS a"), 1);
    } else {
        assert_eq!(arity, &Value::Int(-4));
        assert!(replies.is_err(), "{replies:?}");
        assert_eq!(ask::<i64>(&mut con, "EXISTS a"), 0, "nothing was executed");
    }
}

#[rstest]
fn a_script_sees_integers_and_nested_tables(server: Server) {
    let mut con = server.connect();
    let script = "local reply = redis.call('RL.SLIDE', KEYS[1], 10, '1h', 3)
        local all = redis.call('RL.MULTI', KEYS[1], 'SLIDE 10 1h 2', KEYS[2], 'BUCKET 4 4 1h')
        return {#reply, type(reply[3]), reply[3], #all, #all[3], all[1], all[3][1][3], all[3][2][3]}";
    let seen: (i64, String, i64, i64, i64, i64, i64, i64) =
        eval(&mut con, script, &["{k}a", "{k}b"]);
    assert_eq!(seen, (5, "number".into(), 7, 3, 2, 1, 5, 3));
    let returned: MultiReply = eval(
        &mut con,
        "return redis.call('RL.MULTI', KEYS[1], 'SLIDE 10 1h 6', KEYS[2], 'BUCKET 4 4 1h')",
        &["{k}a", "{k}b"],
    );
    assert_eq!((returned.0, returned.2[0].2, returned.2[1].2), (0, 5, 3));
}

#[rstest]
fn a_script_can_act_on_the_decision(server: Server) {
    let mut con = server.connect();
    let script = "if redis.call('RL.BUCKET', KEYS[1], 7, 1, '30d')[1] == 1 then
        return redis.call('INCR', KEYS[2]) end";
    for _ in 0..50 {
        eval::<Value>(&mut con, script, &["{k}limit", "{k}passed"]);
    }
    assert_eq!(ask::<i64>(&mut con, "GET {k}passed"), 7);
}

#[rstest]
fn a_script_can_raise_or_catch_an_error(server: Server) {
    let mut con = server.connect();
    let raise = "redis.call('RL.SLIDE', KEYS[1], 5, '1h') redis.call('RL.SLIDE', KEYS[1], 5, '')";
    let raised = try_eval::<Value>(&mut con, raise, &["k"]).unwrap_err();
    assert!(
        error_text(&raised).contains("window must be a duration"),
        "{raised}"
    );
    let caught: String = eval(
        &mut con,
        "local e = redis.pcall('RL.MULTI', KEYS[1], 'SLIDE 5 1h x') return e.err",
        &["k"],
    );
    assert!(
        caught.contains("cost must be an integer between 0 and 9007199254740991"),
        "{caught}"
    );
    let reply: Reply = ask(&mut con, r#"RL.PEEK k "SLIDE 5 1h 0""#);
    assert_eq!(reply.2, 4, "the call before the error counts");
}

#[rstest]
fn read_only_scripts_may_peek_and_no_more(server: Server) {
    let mut con = server.connect();
    let eval_ro = |con: &mut Connection, script: &str| -> RedisResult<Reply> {
        let mut call = redis::cmd("EVAL_RO");
        call.arg(script).arg(1).arg("k").query(con)
    };
    let peeked = eval_ro(
        &mut con,
        "return redis.call('RL.PEEK', KEYS[1], 'SLIDE 5 1h 2')",
    );
    let slid = eval_ro(
        &mut con,
        "return redis.call('RL.SLIDE', KEYS[1], 5, '1h', 2)",
    );
    if server.has_command(&["EVAL_RO", "return 1", "0"]) {
        assert_eq!(peeked.unwrap(), (1, 5, 3, 0, 7_200_000));
        let refused = error_text(&slid.unwrap_err());
        assert!(
            refused.contains("Write commands are not allowed"),
            "{refused}"
        );
    } else {
        let unknown = error_text(&peeked.unwrap_err());
        assert!(unknown.contains("unknown command"), "{unknown}");
    }
    assert_eq!(ask::<i64>(&mut con, "EXISTS k"), 0);
}

#[rstest]
#[case::new_key("PING", "RL.SLIDE k 5 1h")]
#[case::used_key("RL.SLIDE k 5 1h", "RL.SLIDE k 5 1h")]
#[case::bucket("RL.BUCKET k 5 1 1h", "RL.BUCKET k 5 1 1h")]
#[case::multi("PING", r#"RL.MULTI other "SLIDE 5 1h 1" k "BUCKET 5 1 1h 1""#)]
#[case::policy("RL.POLICY SET p SLIDE 5 1h", "RL.CHECK k p")]
#[case::forced("RL.SLIDE k 1 1h", "RL.SLIDE k 1 1h 1 FORCE")]
#[case::precise("RL.SLIDE k 5 1h 1 PRECISION 4", "RL.SLIDE k 5 1h 1 PRECISION 4")]
#[case::fixed("RL.FIXED k 5 3650d", "RL.FIXED k 5 3650d")]
#[case::exact("RL.EXACT k 5 1h", "RL.EXACT k 5 1h")]
#[case::leak("RL.LEAK k 5 1 1h", "RL.LEAK k 5 1 1h")]
#[case::lease("RL.LEASE k 5 1h a", "RL.LEASE k 5 1h b")]
#[case::renewed("RL.LEASE k 5 1h a", "RL.LEASE k 5 1h a")]
#[case::released(r#"RL.MULTI k "LEASE 5 1h a 1""#, "RL.RELEASE k a")]
#[case::refunded("RL.EXACT k 5 1h 2", "RL.REFUND k 1")]
#[case::all_refunded("RL.SLIDE k 5 1h", "RL.REFUND k 1")]
fn an_allowed_call_of_another_client_breaks_a_watch(
    server: Server,
    #[case] before: &str,
    #[case] call: &str,
) {
    let (mut watcher, mut other) = (server.connect(), server.connect());
    ask::<Value>(&mut other, before);

    let mut exec_after = |line: &str| -> Value {
        ask::<()>(&mut watcher, "WATCH k");
        ask::<Value>(&mut other, line);
        ask::<()>(&mut watcher, "MULTI");
        ask::<()>(&mut watcher, "INCR done");
        ask(&mut watcher, "EXEC")
    };
    assert_eq!(exec_after("PING"), Value::Array(vec![Value::Int(1)]));
    assert_eq!(exec_after(call), Value::Nil);
    assert_eq!(ask::<i64>(&mut other, "GET done"), 1);
}

#[rstest]
fn every_command_works_in_a_transaction_and_in_a_script(server: Server) {
    let mut con = server.connect();
    let lines = [
        "RL.FIXED f 5 3650d 2",
        "RL.EXACT x 5 1h 2",
        "RL.EXACT x 5 1h 4",
        "RL.LEAK l 5 1 1h 2",
        "RL.LEASE h 5 1h a 2",
        "RL.LEASE h 5 1h a 3",
        "RL.SLIDE p 5 1h 2 PRECISION 3",
        r#"RL.MULTI f "FIXED 5 3650d 1" x "EXACT 5 1h 1" l "LEAK 5 1 1h 1" h "LEASE 5 1h b 1" p "SLIDE 5 1h 1 PRECISION 3""#,
    ];
    let allowed = [1, 1, 0, 1, 1, 1, 1, 1].map(Value::Int);
    let replies = transaction(&mut con, &lines).unwrap();
    assert_eq!(
        replies.iter().map(first_of).cloned().collect::<Vec<_>>(),
        allowed
    );
    let given = transaction(
        &mut con,
        &["RL.REFUND x 1", "RL.RELEASE h b", "RL.RELEASE h b"],
    );
    let given: Vec<_> = given.unwrap().into_iter().map(Result::unwrap).collect();
    assert_eq!(given, [1, 1, 0].map(Value::Int));

    ask::<()>(&mut con, "FLUSHALL");
    for (line, allowed) in lines.iter().zip(allowed) {
        let words: Vec<_> = split_args(line)
            .iter()
            .map(|word| format!("'{word}'"))
            .collect();
        let script = format!("return redis.call({})[1]", words.join(", "));
        assert_eq!(eval::<Value>(&mut con, &script, &[]), allowed, "{line}");
    }
    let script = "local shown = redis.call('RL.INSPECT', KEYS[1])
        return {redis.call('RL.REFUND', KEYS[1], 9), shown[2], redis.call('RL.INSPECT', KEYS[1])}";
    let (given, algorithm, gone): (i64, String, Option<String>) = eval(&mut con, script, &["x"]);
    assert_eq!((given, algorithm.as_str(), gone), (3, "EXACT", None));
}

#[rstest]
fn calls_of_one_transaction_are_counted_separately(server: Server) {
    // They may all have the same time.
    let mut con = server.connect();
    for line in [
        "RL.EXACT k 1000 1h 3",
        "RL.LEAK l 1000 1 1h 3",
        "RL.SLIDE s 1000 1h 3 PRECISION 60",
    ] {
        let replies = transaction(&mut con, &vec![line; 400]).unwrap();
        let allowed = replies
            .iter()
            .filter(|reply| first_of(reply) == &Value::Int(1))
            .count();
        assert_eq!(allowed, 333, "{line}");
    }
    assert_eq!(ask::<i64>(&mut con, "RL.REFUND k 500"), 500);
    let left: Reply = ask(&mut con, r#"RL.PEEK k "EXACT 1000 1h 0""#);
    assert_eq!(left.2, 501);
}

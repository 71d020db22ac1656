//! What charges nothing leaves no trace: denials, peeks, a cost of 0 and errors are not written, replicated, logged or
//! signalled. Each test also shows that it would see the trace of an allowed call.

use std::sync::mpsc;

use redis::{PushKind, RedisResult, Value};
use rl_testkit::{Reply, Server, ask, try_ask};
use rstest::rstest;

/// Every key that the calls below name.
const KEYS: [&str; 3] = ["k", "m", "new"];

/// A server and, if it has receivers, a replica of it.
struct Scene {
    primary: Server,
    replica: Option<Server>,
}

/// What an allowed call leaves behind, in the order in which [`Scene::traces`] looks.
const TRACES: [&str; 7] = [
    "unsaved changes",
    "expiry",
    "state",
    "broken WATCH",
    "client-cache invalidation",
    "replication offset",
    "AOF size",
];
/// Those of a server without AOF and replica.
const UNHEARD_TRACES: usize = 5;

impl Scene {
    /// With everything that could receive a write: an AOF and a replica.
    fn with_receivers() -> Self {
        let primary = Server::with(&[
            "appendonly",
            "yes",
            "appendfsync",
            "always",
            // The primary's own pings move the replication offset too.
            "repl-ping-replica-period",
            "3600",
        ]);
        let replica = Server::start();
        replica.follow(&primary);
        Self {
            primary,
            replica: Some(replica),
        }
    }

    /// Without receivers, where changes take another path.
    fn without_receivers() -> Self {
        Self {
            primary: Server::start(),
            replica: None,
        }
    }

    fn all_traces(&self) -> &'static [&'static str] {
        match self.replica {
            Some(_) => &TRACES,
            None => &TRACES[..UNHEARD_TRACES],
        }
    }
    /// Makes a call, and returns its reply and where a trace of it is found.
    fn traces(&self, line: &str) -> (RedisResult<Value>, Vec<&'static str>) {
        let server = &self.primary;
        let mut watcher = server.connect();
        ask::<()>(&mut watcher, &format!("WATCH {}", KEYS.join(" ")));
        let (pushes, pushed) = mpsc::channel();
        let mut cache = server.connect_resp3();
        cache.set_push_sender(pushes);
        ask::<()>(&mut cache, "CLIENT TRACKING ON");
        for key in KEYS {
            ask::<String>(&mut cache, &format!("TYPE {key}"));
        }

        let look = || {
            (
                server.info_number("persistence", "rdb_changes_since_last_save"),
                KEYS.map(|key| server.expire_at_ms(key)),
                KEYS.map(|key| server.digest(key)),
                server.info_number("replication", "master_repl_offset"),
                // An AOF that is off has no size.
                (self.replica.as_ref())
                    .map(|_| server.info_number("persistence", "aof_current_size")),
            )
        };
        let before = look();
        let reply = try_ask(&mut server.connect(), line);
        let after = look();
        ask::<()>(&mut watcher, "MULTI");
        ask::<()>(&mut watcher, "PING");
        let watch_broken = ask::<Value>(&mut watcher, "EXEC") == Value::Nil;
        // Whatever was pushed comes before this answer.
        ask::<()>(&mut cache, "PING");
        let invalidated = pushed
            .try_iter()
            .any(|push| push.kind == PushKind::Invalidate);

        // Before 7.0 the expiry is computed from two readings of a clock, a millisecond or so apart.
        let moved = |(was, is): (i64, i64)| (was - is).abs() > 2;
        let found = [
            before.0 != after.0,
            before.1.into_iter().zip(after.1).any(moved),
            before.2 != after.2,
            watch_broken,
            invalidated,
            before.3 != after.3,
            before.4 != after.4,
        ];
        let found = TRACES.into_iter().zip(found).filter(|(_, found)| *found);
        (reply, found.map(|(trace, _)| trace).collect())
    }

    /// Each of `lines` answers as it should and leaves no trace, while `allowed` leaves every trace.
    fn check(&self, setup: &str, lines: &[(&str, Outcome)], allowed: &str) {
        let mut con = self.primary.connect();
        ask::<()>(&mut con, "LPUSH list x");
        assert_eq!(Outcome::of(&try_ask(&mut con, setup)), Outcome::Allowed);
        for &(line, expected) in lines {
            let (reply, traces) = self.traces(line);
            assert_eq!(Outcome::of(&reply), expected, "{line}: {reply:?}");
            assert_eq!(traces, [""; 0], "{line}");
        }
        let (reply, traces) = self.traces(allowed);
        assert_eq!(
            Outcome::of(&reply),
            Outcome::Allowed,
            "{allowed}: {reply:?}"
        );
        assert_eq!(traces, self.all_traces(), "{allowed}");
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Allowed,
    Denied,
    /// Nothing was refunded.
    Nothing,
    /// What a key holds.
    Shown,
    Error,
}

impl Outcome {
    fn of(reply: &RedisResult<Value>) -> Self {
        match reply {
            Ok(Value::Array(values)) if matches!(values[0], Value::Int(1..)) => Self::Allowed,
            Ok(Value::Array(values)) if values[0] == Value::Int(0) => Self::Denied,
            Ok(Value::Int(0)) => Self::Nothing,
            // A reply to BRIEF.
            Ok(Value::Int(..0)) => Self::Denied,
            Ok(Value::Int(_)) => Self::Allowed,
            Ok(Value::Nil | Value::Array(_)) => Self::Shown,
            Ok(other) => panic!("neither allowed nor denied: {other:?}"),
            Err(_) => Self::Error,
        }
    }
}

use Outcome::{Allowed, Denied, Error, Nothing, Shown};

#[rstest]
#[case::with_receivers(Scene::with_receivers())]
#[case::without_receivers(Scene::without_receivers())]
fn slide_leaves_no_trace_of_calls_that_charge_nothing(#[case] scene: Scene) {
    scene.check(
        "RL.SLIDE k 10 1h 8",
        &[
            ("RL.SLIDE k 10 1h 3", Denied),
            ("RL.SLIDE k 10 2h 3", Denied),
            ("RL.SLIDE k 10 1h 11", Denied),
            ("RL.SLIDE new 10 1h 11", Denied),
            ("RL.SLIDE new 0 1h", Denied),
            ("RL.SLIDE k 10 2h 2 PEEK", Allowed),
            ("RL.SLIDE k 10 1h 3 PEEK", Denied),
            ("RL.SLIDE k 10 1h 3 PEEK FORCE", Error),
            ("RL.SLIDE new 10 1h 1 PEEK", Allowed),
            (r#"RL.PEEK k "SLIDE 10 2h 1""#, Allowed),
            (r#"RL.PEEK k "SLIDE 10 1h 3""#, Denied),
            (r#"RL.PEEK new "SLIDE 10 1h 3""#, Allowed),
            ("RL.SLIDE k 10 1h 0", Allowed),
            ("RL.SLIDE k 10 2h 0", Allowed),
            ("RL.SLIDE k 10 1h 0 FORCE", Allowed),
            ("RL.SLIDE new 10 1h 0", Allowed),
            ("RL.SLIDE k 10 1h 1 TIMES 3", Denied),
            ("RL.SLIDE k 10 2h 1 TIMES 9 ATLEAST 3", Denied),
            ("RL.SLIDE k 10 1h 3 BRIEF", Denied),
            ("RL.SLIDE new 10 1h 11 BRIEF", Denied),
            ("RL.SLIDE k 10 2h 1 TIMES 2 PEEK", Allowed),
            ("RL.SLIDE k 10 2h 1 TIMES 9 ATLEAST 1 PEEK", Allowed),
            ("RL.SLIDE k 10 2h 0 TIMES 9", Allowed),
            ("RL.SLIDE k 10 1h 1 TIMES 0", Error),
            ("RL.SLIDE k 10 1h 1 TIMES 2 ATLEAST 3", Error),
            ("RL.SLIDE k ten 1h", Error),
            ("RL.SLIDE k 10 1h 1 LOUD", Error),
            ("RL.SLIDE k 10", Error),
            ("RL.SLIDE list 10 1h", Error),
            ("RL.BUCKET k 10 10 1h", Error),
            ("RL.LOAD k 99999999999999 damaged", Error),
            ("RL.LOAD new 0 damaged", Error),
        ],
        // Another window, so that the expiry moves as well.
        "RL.SLIDE k 10 2h 2",
    );
}

#[rstest]
#[case::with_receivers(Scene::with_receivers())]
#[case::without_receivers(Scene::without_receivers())]
fn bucket_leaves_no_trace_of_calls_that_charge_nothing(#[case] scene: Scene) {
    scene.check(
        "RL.BUCKET k 10 1 1h 8",
        &[
            ("RL.BUCKET k 10 1 1h 3", Denied),
            ("RL.BUCKET k 10 1 50m 3", Denied),
            ("RL.BUCKET k 10 1 1h 11", Denied),
            ("RL.BUCKET new 10 1 1h 11", Denied),
            ("RL.BUCKET new 0 1 1h", Denied),
            ("RL.BUCKET k 10 1 1h 2 PEEK", Allowed),
            ("RL.BUCKET k 10 1 1h 3 PEEK", Denied),
            ("RL.BUCKET k 10 1 1h 3 FORCE PEEK", Error),
            ("RL.BUCKET new 10 1 1h 1 PEEK", Allowed),
            (r#"RL.PEEK k "BUCKET 10 2 1h 1""#, Allowed),
            (r#"RL.PEEK k "BUCKET 10 1 1h 3""#, Denied),
            (r#"RL.PEEK new "BUCKET 10 1 1h 3""#, Allowed),
            ("RL.BUCKET k 10 1 1h 0", Allowed),
            ("RL.BUCKET k 10 9 2h 0", Allowed),
            ("RL.BUCKET k 10 1 1h 0 FORCE", Allowed),
            ("RL.BUCKET new 10 1 1h 0", Allowed),
            ("RL.BUCKET k 10 0 1h", Error),
            ("RL.BUCKET list 10 1 1h", Error),
            ("RL.SLIDE k 10 1h", Error),
        ],
        "RL.BUCKET k 10 1 1h 2",
    );
}

#[rstest]
#[case::with_receivers(Scene::with_receivers())]
#[case::without_receivers(Scene::without_receivers())]
fn multi_leaves_no_trace_when_its_last_limit_denies(#[case] scene: Scene) {
    scene.check(
        r#"RL.MULTI k "SLIDE 10 1h 8" m "BUCKET 10 1 1h 9""#,
        &[
            (
                r#"RL.MULTI k "SLIDE 10 2h 1" new "SLIDE 5 1h 1" m "BUCKET 10 1 1h 2""#,
                Denied,
            ),
            (
                r#"RL.MULTI new "SLIDE 5 1h 1" m "BUCKET 10 1 1h 1" k "SLIDE 10 1h 3""#,
                Denied,
            ),
            (
                r#"RL.MULTI k "SLIDE 10 2h 1" new "BUCKET 5 1 1h 6""#,
                Denied,
            ),
            (
                r#"RL.MULTI k "PEEK SLIDE 10 2h 2" m "BUCKET 10 1 1h 1""#,
                Allowed,
            ),
            (
                r#"RL.MULTI k "PEEK SLIDE 10 2h 2" m "BUCKET 10 1 1h 2""#,
                Denied,
            ),
            (
                r#"RL.MULTI k "SLIDE 10 2h 0" m "BUCKET 10 1 1h 0" new "SLIDE 1 1h 0""#,
                Allowed,
            ),
            (
                r#"RL.MULTI k "FORCE SLIDE 10 2h 0" m "BUCKET 10 1 1h 0""#,
                Allowed,
            ),
            (
                r#"RL.MULTI k "SLIDE 10 2h 1" new "SLIDE 5 1h 1" list "SLIDE 5 1h 1""#,
                Error,
            ),
            (
                r#"RL.MULTI k "SLIDE 10 2h 1" new "SLIDE 5 1h 1" m "SLIDE 5 1h 1""#,
                Error,
            ),
            (
                r#"RL.MULTI k "SLIDE 10 2h 1" new "SLIDE 5 1h 1" new "SLIDE 5 1h 1""#,
                Error,
            ),
            (r#"RL.MULTI k "SLIDE 10 2h 1" new "SLIDE 5""#, Error),
            (
                r#"RL.MULTI k "SLIDE 10 2h 1" new "SLIDE 5 1h 1 LOUD""#,
                Error,
            ),
            (
                r#"RL.MULTI k "SLIDE 10 2h 1" new "FORCE SLIDE 5 1h 1""#,
                Error,
            ),
            (r#"RL.MULTI k "SLIDE 10 2h 1" new"#, Error),
            (
                r#"RL.MULTI k "TIMES 2 SLIDE 10 2h" new "FIXED 9 1h" m "BUCKET 10 1 1h""#,
                Denied,
            ),
            (
                r#"RL.MULTI k "TIMES 9 ATLEAST 2 SLIDE 10 2h" new "FIXED 9 1h" m "BUCKET 10 1 1h""#,
                Denied,
            ),
            (
                r#"RL.MULTI k "BRIEF SLIDE 10 2h" new "FIXED 9 1h" m "BUCKET 10 1 1h 2""#,
                Denied,
            ),
            (r#"RL.FIRST k "SLIDE 10 2h 3" m "BUCKET 10 1 1h 2""#, Denied),
            (
                r#"RL.FIRST k "TIMES 9 ATLEAST 3 SLIDE 10 2h" new "FIXED 2 1h""#,
                Denied,
            ),
            (
                r#"RL.FIRST k "BRIEF SLIDE 10 2h 3" new "FIXED 0 1h""#,
                Denied,
            ),
            (
                r#"RL.FIRST k "PEEK SLIDE 10 2h 3" new "FIXED 1 1h""#,
                Allowed,
            ),
            (r#"RL.FIRST k "SLIDE 10 2h 0" new "FIXED 1 1h""#, Allowed),
            (r#"RL.FIRST k "SLIDE 10 2h 3" list "FIXED 1 1h""#, Error),
            (r#"RL.FIRST k "SLIDE 10 2h" k "SLIDE 10 2h""#, Error),
        ],
        r#"RL.MULTI k "SLIDE 10 2h 2" m "BUCKET 10 1 1h 1" new "SLIDE 5 1h 1""#,
    );
}

/// What is the same for all: `spec` is the key's limit without its cost, of which 8 in 10 are used.
#[rstest]
#[case::slide("SLIDE 10 1h", "", "SLIDE 10 2h")]
#[case::precise("SLIDE 10 1h", " PRECISION 8", "SLIDE 10 2h")]
#[case::bucket("BUCKET 10 1 1h", "", "BUCKET 10 1 1h")]
#[case::fixed("FIXED 10 3650d", "", "FIXED 10 3000d")]
#[case::exact("EXACT 10 1h", "", "EXACT 10 2h")]
#[case::leak("LEAK 10 1 1h", "", "LEAK 10 1 1h")]
fn no_algorithm_leaves_a_trace_of_calls_that_charge_nothing(
    #[values(Scene::with_receivers(), Scene::without_receivers())] scene: Scene,
    #[case] spec: &str,
    #[case] option: &str,
    #[case] longer: &str,
) {
    let (algorithm, limit) = spec.split_once(' ').unwrap();
    let call = |key: &str, cost: u64| format!("RL.{algorithm} {key} {limit} {cost}{option}");
    let pair = |key: &str, cost: u64| format!("{key} \"{spec} {cost}{option}\"");
    let lines = [
        (call("k", 3), Denied),
        (call("k", 11), Denied),
        (call("new", 11), Denied),
        (call("k", 2) + " PEEK", Allowed),
        (call("k", 3) + " PEEK", Denied),
        (call("k", 3) + " PEEK FORCE", Error),
        (call("new", 1) + " PEEK", Allowed),
        (call("k", 0), Allowed),
        (call("k", 0) + " FORCE", Allowed),
        (call("new", 0), Allowed),
        (format!("RL.PEEK {}", pair("k", 1)), Allowed),
        (format!("RL.PEEK {}", pair("k", 3)), Denied),
        (format!("RL.PEEK {}", pair("new", 3)), Allowed),
        (format!("RL.MULTI k \"PEEK {spec} 2{option}\""), Allowed),
        (
            format!("RL.MULTI {} new \"EXACT 5 1h 6\"", pair("k", 2)),
            Denied,
        ),
        (
            format!("RL.MULTI {} {}", pair("new", 2), pair("k", 3)),
            Denied,
        ),
        (
            format!(
                "RL.MULTI {} new \"EXACT 5 1h\" list \"SLIDE 1 1h\"",
                pair("k", 2)
            ),
            Error,
        ),
        ("RL.REFUND k 0".into(), Nothing),
        ("RL.REFUND new 5".into(), Nothing),
        ("RL.REFUND list 5".into(), Error),
        ("RL.REFUND k x".into(), Error),
        ("RL.REFUND k 2 AGE 3650d".into(), Nothing),
        ("RL.REFUND k 2 AGE 0".into(), Error),
        ("RL.REFUND k 2 TIMES 0".into(), Error),
        ("RL.RELEASE k holder".into(), Error),
        ("RL.RELEASE new holder".into(), Nothing),
        ("RL.INSPECT k".into(), Shown),
        ("RL.INSPECT new".into(), Shown),
        ("RL.INSPECT list".into(), Error),
        ("RL.LEASE k 5 1h holder".into(), Error),
    ];
    let lines: Vec<_> = lines
        .iter()
        .map(|(line, reply)| (line.as_str(), *reply))
        .collect();
    let allowed = format!("RL.MULTI k \"{longer} 2{option}\"");
    scene.check(&call("k", 8), &lines, &allowed);
}

#[rstest]
fn leases_leave_no_trace_of_what_holds_nothing(
    #[values(Scene::with_receivers(), Scene::without_receivers())] scene: Scene,
) {
    scene.check(
        "RL.LEASE k 10 1h a 8",
        &[
            ("RL.LEASE k 10 1h b 3", Denied),
            ("RL.LEASE k 10 1h a 11", Denied),
            ("RL.LEASE new 10 1h a 11", Denied),
            ("RL.LEASE k 10 2h b 2 PEEK", Allowed),
            ("RL.LEASE k 10 2h a 10 PEEK", Allowed),
            ("RL.LEASE k 10 1h b 3 PEEK", Denied),
            ("RL.LEASE k 10 1h a 0", Allowed),
            ("RL.LEASE k 10 1h b 0 FORCE", Allowed),
            ("RL.LEASE new 10 1h a 0", Allowed),
            (r#"RL.PEEK k "LEASE 10 1h b 1""#, Allowed),
            (r#"RL.PEEK k "LEASE 10 1h b 3""#, Denied),
            (r#"RL.MULTI k "LEASE 10 2h a 9" new "SLIDE 1 1h 2""#, Denied),
            ("RL.RELEASE k b", Nothing),
            ("RL.RELEASE new a", Nothing),
            ("RL.REFUND k 1", Error),
            ("RL.INSPECT k", Shown),
            ("RL.SLIDE k 10 1h", Error),
        ],
        "RL.LEASE k 10 2h b 2",
    );
}

#[rstest]
#[case::slide("RL.SLIDE k 10 1h 8", "RL.REFUND k 3", false)]
#[case::precise("RL.SLIDE k 10 1h 8 PRECISION 8", "RL.REFUND k 3", false)]
#[case::bucket("RL.BUCKET k 10 1 1h 8", "RL.REFUND k 3", true)]
#[case::fixed("RL.FIXED k 10 3650d 8", "RL.REFUND k 3", false)]
#[case::exact("RL.EXACT k 10 1h 8", "RL.REFUND k 3", false)]
#[case::leak("RL.LEAK k 10 1 1h 8", "RL.REFUND k 3", true)]
#[case::all_of_it("RL.EXACT k 10 1h 8", "RL.REFUND k 8", true)]
#[case::lease(r#"RL.MULTI k "LEASE 10 1h a 8""#, "RL.RELEASE k a", true)]
fn a_refund_leaves_every_trace(
    #[values(Scene::with_receivers(), Scene::without_receivers())] scene: Scene,
    #[case] setup: &str,
    #[case] call: &str,
    #[case] moves_expiry: bool,
) {
    ask::<Value>(&mut scene.primary.connect(), setup);
    let (reply, traces) = scene.traces(call);
    assert_eq!(Outcome::of(&reply), Allowed, "{reply:?}");
    let mut expected = scene.all_traces().to_vec();
    expected.retain(|trace| *trace != "expiry" || moves_expiry);
    assert_eq!(traces, expected);
}

#[rstest]
#[case::with_receivers(Scene::with_receivers())]
#[case::without_receivers(Scene::without_receivers())]
fn only_the_consumed_limits_of_a_multi_leave_a_trace(#[case] scene: Scene) {
    let (reply, traces) = scene.traces(r#"RL.MULTI k "SLIDE 10 1h 1" m "BUCKET 10 1 1h 0""#);
    assert_eq!(Outcome::of(&reply), Allowed);
    assert_eq!(traces, scene.all_traces());
    assert_eq!(scene.primary.run::<i64>("EXISTS", &["m"]), 0);
}

#[rstest]
fn a_peek_is_a_read_that_clients_may_cache() {
    let server = Server::start();
    let (pushes, pushed) = mpsc::channel();
    let mut cache = server.connect_resp3();
    cache.set_push_sender(pushes);
    ask::<()>(&mut cache, "CLIENT TRACKING ON");
    let reply: Reply = ask(&mut cache, r#"RL.PEEK k "SLIDE 1 1h 0""#);
    assert_eq!(reply.2, 1);
    let mut invalidated_by = |line: &str| {
        server.run::<Value>("RL.SLIDE", &line.split(' ').collect::<Vec<_>>());
        ask::<()>(&mut cache, "PING");
        pushed
            .try_iter()
            .any(|push| push.kind == PushKind::Invalidate)
    };
    assert!(!invalidated_by("k 1 1h 2"), "denied");
    assert!(invalidated_by("k 1 1h 1"), "allowed");
}

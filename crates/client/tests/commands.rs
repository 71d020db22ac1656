//! The typed commands: async, blocking, pipelined.

use std::time::Duration;

use rl_client::commands::{
    self, BriefDecision, CallOptions, FieldValue, NewOverride, OverrideAction, PolicyDefinition,
    PolicyRule, RefundOptions, Spec, TopBy,
};
use rl_client::{
    AsyncRlCommands, Calendar, DAY, DecidedBy, Decision, HOUR, Limit, MINUTE, MultiDecision,
    Offset, RlCommands, RlPipeline,
};
use rl_testkit::Server;

#[tokio::test]
async fn every_command_works_on_an_async_connection() {
    let server = Server::start();
    let mut con = server
        .client()
        .get_multiplexed_async_connection()
        .await
        .unwrap();

    let slide = con.rl_slide("slide", 100, MINUTE, 30).await.unwrap();
    assert!(slide.allowed);
    assert_eq!((slide.limit, slide.remaining), (100, 70));
    assert_eq!(slide.retry_after, Some(Duration::ZERO));
    assert_eq!(slide.reset_after, 2 * MINUTE);
    let denied = con.rl_slide("slide", 100, MINUTE, 80).await.unwrap();
    assert!(!denied.allowed && denied.retry_after > Some(Duration::ZERO));
    let never = con.rl_slide("slide", 100, MINUTE, 101).await.unwrap();
    assert!(!never.allowed && never.retry_after.is_none());

    let bucket = con
        .rl_bucket("bucket", 200, 1000, MINUTE, 50)
        .await
        .unwrap();
    assert_eq!((bucket.limit, bucket.remaining), (200, 150));
    let fixed = con.rl_fixed("fixed", 10, HOUR, 4).await.unwrap();
    assert_eq!((fixed.limit, fixed.remaining), (10, 6));
    let exact = con.rl_exact("exact", 10, HOUR, 4).await.unwrap();
    assert_eq!((exact.limit, exact.remaining), (10, 6));

    let first = con.rl_leak("leak", 10, 10, MINUTE, 1).await.unwrap();
    assert_eq!(first.retry_after, Some(Duration::ZERO), "goes at once");
    let second = con.rl_leak("leak", 10, 10, MINUTE, 1).await.unwrap();
    assert!(
        second.allowed && second.retry_after > Some(Duration::from_secs(1)),
        "waits its turn"
    );

    assert!(
        con.rl_lease("jobs", 1, MINUTE, "a", 1)
            .await
            .unwrap()
            .allowed
    );
    assert!(
        !con.rl_lease("jobs", 1, MINUTE, "b", 1)
            .await
            .unwrap()
            .allowed
    );
    assert!(con.rl_release("jobs", "a").await.unwrap());
    assert!(!con.rl_release("jobs", "a").await.unwrap());

    assert_eq!(con.rl_refund("slide", 6).await.unwrap(), 6);
    let all = RefundOptions::new().times(1);
    assert_eq!(con.rl_refund_with("slide", 4, all).await.unwrap(), 4);
    let old = RefundOptions::new().age(24 * HOUR);
    assert_eq!(con.rl_refund_with("slide", 4, old).await.unwrap(), 0);
    let limit = Limit::slide(100, MINUTE);
    let peek = con.rl_peek("slide", &limit, 0).await.unwrap();
    assert_eq!(peek.remaining, 80);
    let same = con.rl_check_limit("slide", &limit, 80).await.unwrap();
    assert!(same.allowed && same.remaining == 0);
    let forced = con
        .rl_check_limit_with("slide", &limit, 50, CallOptions::FORCE)
        .await
        .unwrap();
    assert!(forced.allowed && forced.remaining == 0);

    let limits = [
        ("{u}:a", limit.clone(), 1),
        ("{u}:b", Limit::bucket(5, 5, HOUR), 6),
    ];
    let multi = con.rl_multi(&limits).await.unwrap();
    assert!(
        !multi.allowed && multi.retry_after.is_none(),
        "6 of 5 never fit"
    );
    assert!(multi.decisions[0].allowed && !multi.decisions[1].allowed);
    assert_eq!(multi.decisions[0].remaining, 100, "nothing was spent");
}

#[test]
fn every_command_works_on_a_blocking_connection_and_in_a_pipeline() {
    let server = Server::start();
    let mut con = server.connect();
    assert_eq!(con.rl_slide("k", 10, MINUTE, 3).unwrap().remaining, 7);
    assert_eq!(con.rl_refund("k", 2).unwrap(), 2);

    let multi = [("{u}:a", Limit::fixed(10, HOUR), 1)];
    let (slide, refunded, together, released): (Decision, u64, MultiDecision, bool) = redis::pipe()
        .rl_slide("k", 10, MINUTE, 1)
        .rl_refund("k", 1)
        .rl_multi(&multi)
        .rl_release("nobody", "me")
        .query(&mut con)
        .unwrap();
    assert_eq!(slide.remaining, 8);
    assert_eq!(refunded, 1);
    assert_eq!(together.decisions[0].remaining, 9);
    assert!(!released);
}

#[test]
fn keys_are_any_bytes_and_errors_are_the_servers() {
    let server = Server::start();
    let mut con = server.connect();
    assert!(
        con.rl_slide(&b"\xff\x00"[..], 10, MINUTE, 1)
            .unwrap()
            .allowed
    );
    let error = con.rl_slide("k", 10, Duration::ZERO, 1).unwrap_err();
    assert!(error.to_string().contains("window must be"), "{error}");
    let _ = con.rl_slide("k", 10, MINUTE, 1).unwrap();
    let error = con.rl_bucket("k", 10, 10, MINUTE, 1).unwrap_err();
    assert_eq!(error.code(), Some("WRONGTYPE"));
}

#[test]
fn options_and_precision() {
    let server = Server::start();
    let mut con = server.connect();
    let precise = Limit::slide(10, MINUTE).with_precision(4);
    assert_eq!(con.rl_check_limit("p", &precise, 3).unwrap().remaining, 7);
    assert_eq!(con.rl_peek("p", &precise, 1).unwrap().remaining, 6);
    let inspection = con.rl_inspect("p").unwrap().unwrap();
    assert!(
        inspection
            .fields
            .contains(&("precision".to_owned(), FieldValue::Number(4))),
        "{inspection:?}"
    );

    let quota = Limit::fixed_calendar(10, Calendar::Week).with_offset(Offset::Earlier(DAY));
    assert_eq!(con.rl_check_limit("w", &quota, 3).unwrap().remaining, 7);
    assert_eq!(con.rl_peek("w", &quota, 1).unwrap().remaining, 6);
    let multi = con.rl_multi(&[("w", quota, 2)]).unwrap();
    assert_eq!(multi.decisions[0].remaining, 5);

    let limit = Limit::slide(10, MINUTE);
    let mut with = |cost, options| con.rl_check_limit_with("o", &limit, cost, options).unwrap();
    assert_eq!(with(4, CallOptions::PEEK).remaining, 6);
    assert_eq!(with(4, CallOptions::default()).remaining, 6);
    assert_eq!(with(9, CallOptions::FORCE).remaining, 0);
    assert!(!with(1, CallOptions::PEEK).allowed);

    let specs = [
        ("{m}:a", Spec::new(Limit::slide(10, MINUTE), 4)),
        ("{m}:b", Spec::new(Limit::fixed(1, HOUR), 2).shadow()),
    ];
    let mut multi = |options| con.rl_multi_with(&specs, options).unwrap();
    let peeked = multi(CallOptions::PEEK);
    assert!(peeked.allowed, "a SHADOW limit denies nothing");
    assert_eq!(multi(CallOptions::default()).decisions[0].remaining, 6);
    assert_eq!(multi(CallOptions::FORCE).decisions[0].remaining, 2);
}

#[test]
fn several_calls_in_one_step() {
    let server = Server::start();
    let mut con = server.connect();
    let limit = Limit::fixed(10, DAY * 3650);
    let mut with = |options| {
        let decision = con.rl_check_limit_with("k", &limit, 2, options).unwrap();
        (decision.allowed, decision.allowed_calls, decision.remaining)
    };
    assert_eq!(with(CallOptions::default()), (true, 1, 8));
    assert_eq!(with(CallOptions::PEEK.times(5)), (false, 0, 8));
    assert_eq!(with(CallOptions::default().times(2)), (true, 2, 4));
    let some = CallOptions::default().times(64).at_least(1);
    assert_eq!(with(some), (true, 2, 0));
    assert_eq!(with(some), (false, 0, 0));
    assert_eq!(with(CallOptions::FORCE.times(3)), (true, 3, 0));

    let specs = [
        ("{m}:a", Spec::new(Limit::fixed(9, DAY), 2)),
        ("{m}:b", Spec::new(Limit::fixed(5, DAY), 1)),
    ];
    let multi = con.rl_multi_with(&specs, some).unwrap();
    assert_eq!((multi.allowed, multi.allowed_calls), (true, 4));
    let each: Vec<_> = multi
        .decisions
        .iter()
        .map(|one| (one.allowed_calls, one.remaining))
        .collect();
    assert_eq!(each, [(4, 1), (5, 1)]);
}

#[test]
fn the_first_limit_with_room() {
    let server = Server::start();
    let mut con = server.connect();
    let limits = [
        ("{u}:included", Limit::fixed(1, DAY), 1),
        ("{u}:credits", Limit::bucket(1, 1, DAY), 1),
    ];
    for index in [0, 1] {
        let first = con.rl_first(&limits).unwrap();
        assert_eq!((first.index, first.decision.allowed), (index, true));
        assert_eq!(first.decision.decided_by, DecidedBy::Limit(index));
    }
    assert!(!con.rl_first(&limits).unwrap().decision.allowed);
    let specs = limits.map(|(key, limit, cost)| (key, Spec::new(limit, cost)));
    let forced = con
        .rl_first_with(&specs, CallOptions::FORCE.times(2))
        .unwrap();
    assert_eq!((forced.index, forced.decision.allowed_calls), (0, 2));
}

#[test]
fn brief_replies() {
    let server = Server::start();
    let mut con = server.connect();
    let limit = Limit::bucket(3, 1, DAY);
    let mut brief = |cost, options| {
        con.rl_check_limit_brief("b", &limit, cost, options)
            .unwrap()
    };
    assert_eq!(
        brief(1, CallOptions::PEEK),
        BriefDecision::Allowed { value: 2 }
    );
    let two = CallOptions::default().times(2);
    assert_eq!(brief(1, two), BriefDecision::Allowed { value: 1 });
    let BriefDecision::Denied { retry_after } = brief(3, CallOptions::default()) else {
        panic!("allowed")
    };
    assert!(retry_after.is_some_and(|wait| wait > DAY && wait <= DAY * 2));
    let never = BriefDecision::Denied { retry_after: None };
    assert_eq!(brief(4, CallOptions::default()), never);
    assert!(!never.is_allowed());
    assert_eq!(never.as_integer(), -(1 << 53));
    assert_eq!(BriefDecision::Allowed { value: 7 }.as_integer(), 7);
    let text = [("{m}:t", Spec::text("FIXED 9 1d 2").shadow())];
    let brief = con.rl_multi_brief(&text, CallOptions::PEEK).unwrap();
    assert_eq!(brief.as_integer(), 7);

    let specs = [
        ("{m}:a", Spec::new(Limit::fixed(9, DAY), 2)),
        ("{m}:b", Spec::new(Limit::fixed(5, DAY), 1)),
    ];
    let multi = con.rl_multi_brief(&specs, CallOptions::default()).unwrap();
    assert_eq!(multi, BriefDecision::Allowed { value: 4 });
    let first = con.rl_first_brief(&specs, CallOptions::default()).unwrap();
    assert_eq!(first, BriefDecision::Allowed { value: 5 });
    con.rl_policy_set(
        "p",
        &PolicyDefinition::new([PolicyRule::new(Limit::fixed(5, DAY))]),
    )
    .unwrap();
    let policy = con.rl_check_limit_brief("p", &Limit::policy("p"), 1, CallOptions::default());
    assert_eq!(policy.unwrap(), BriefDecision::Allowed { value: 4 });
}

#[test]
fn policies_and_overrides() {
    let server = Server::start();
    let mut con = server.connect();
    let mut policy = PolicyDefinition::new([
        PolicyRule::with_fixed_cost(Limit::slide(60, MINUTE), 1),
        PolicyRule::new(Limit::slide(90_000, MINUTE).with_precision(10)),
    ]);
    policy.note = "requests and tokens".to_owned();
    con.rl_policy_set("llm", &policy).unwrap();
    assert_eq!(con.rl_policy_get("llm").unwrap().as_ref(), Some(&policy));
    assert_eq!(con.rl_policy_get("other").unwrap(), None);
    assert_eq!(con.rl_policy_list(None).unwrap(), ["llm"]);
    assert!(con.rl_policy_list(Some("x")).unwrap().is_empty());
    let dump = con.rl_policy_dump().unwrap();
    assert!(con.rl_policy_del("llm").unwrap());
    assert!(!con.rl_policy_del("llm").unwrap());
    assert_eq!(con.rl_policy_load(&dump).unwrap(), 1);
    assert_eq!(con.rl_policy_get("llm").unwrap(), Some(policy));

    let decision = con.rl_check("k", "llm", 80_000).unwrap();
    assert_eq!(decision.decided_by, DecidedBy::PolicyLimit(0));
    let peeked = con.rl_check_with("k", "llm", 20_000, CallOptions::PEEK);
    assert_eq!(peeked.unwrap().denied_by(), Some(DecidedBy::PolicyLimit(1)));
    // Their replies have no index: only the policy as a whole is known to have decided.
    let llm = Limit::policy("llm");
    let peeked = con.rl_peek("k", &llm, 20_000).unwrap();
    assert_eq!(peeked.denied_by(), Some(DecidedBy::Limit(0)));
    assert_eq!(peeked.limit, 90_000, "the second limit of the policy");
    let multi = con.rl_multi(&[("{k}", Limit::slide(9, HOUR), 1), ("k", llm, 20_000)]);
    let denied_by = |n: usize| multi.as_ref().unwrap().decisions[n].denied_by();
    assert_eq!(
        (denied_by(0), denied_by(1)),
        (None, Some(DecidedBy::Limit(1)))
    );

    let action = OverrideAction::Limits(vec![PolicyRule::new(Limit::slide(7, HOUR))]);
    let new = NewOverride::new(action.clone())
        .expires_in(HOUR)
        .note("a note");
    con.rl_override_set("k", "llm", &new).unwrap();
    let records = con.rl_override_get("k").unwrap();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].action.parse(), Ok(action));
    assert_eq!((&*records[0].policy, &*records[0].note), ("llm", "a note"));
    assert!(records[0].expires_in_ms.is_some_and(|ms| ms <= 3_600_000));
    con.rl_override_set("k", "llm", &NewOverride::new(OverrideAction::Block))
        .unwrap();
    let blocked = con.rl_check("k", "llm", 1).unwrap();
    assert_eq!(blocked.denied_by(), Some(DecidedBy::Override));
    assert_eq!(con.rl_override_get("k").unwrap()[0].expires_in_ms, None);
    assert!(con.rl_override_del("k", "llm").unwrap());
    assert!(!con.rl_override_del("k", "llm").unwrap());
}

#[test]
fn observability() {
    let server = Server::start();
    let mut con = server.connect();
    let policy = PolicyDefinition::new([PolicyRule::new(Limit::slide(2, HOUR))]);
    con.rl_policy_set("free", &policy).unwrap();
    for allowed in [true, true, false] {
        assert_eq!(con.rl_check("k", "free", 1).unwrap().allowed, allowed);
    }
    con.rl_refund("k", 1).unwrap();
    let node = con.rl_stats().unwrap();
    assert_eq!((node.total.allowed, node.total.denied), (2, 1));
    assert_eq!(
        (node.total.checks(), node.total.refunded_units),
        (3, Some(1))
    );
    let policy = con.rl_policy_stats("free").unwrap();
    assert_eq!(policy.total.denied, 1);

    for by in [TopBy::Checks, TopBy::Denials] {
        let top = con.rl_top(5, by).unwrap();
        assert_eq!((&*top[0].key, top[0].checks, top[0].denials), ("k", 3, 1));
    }
    assert_eq!(con.rl_audit_len().unwrap(), 1);
    let denial = &con.rl_audit_get(10).unwrap()[0];
    assert_eq!((&*denial.key, &*denial.policy), ("k", "free"));
    assert_eq!(
        (&*denial.denied_by, denial.limit_index),
        ("SLIDE 2 1h", Some(0))
    );
    con.rl_audit_reset().unwrap();
    assert_eq!(con.rl_audit_len().unwrap(), 0);

    assert_eq!(con.rl_inspect("nobody").unwrap(), None);
    assert!(con.rl_lease("jobs", 5, MINUTE, "a", 2).unwrap().allowed);
    let leases = con.rl_inspect("jobs").unwrap().unwrap();
    assert_eq!(leases.algorithm, "LEASE");
    let Some((_, FieldValue::List(leases))) =
        leases.fields.iter().find(|(name, _)| name == "leases")
    else {
        panic!("{leases:?}")
    };
    assert!(matches!(&leases[..], [FieldValue::Fields(_)]), "{leases:?}");
    let wrong = commands::load("k2", 4_102_444_800_000, "\x01").query(&mut con);
    let error = wrong.unwrap_err().to_string();
    assert!(error.contains("damaged"), "{error}");
}

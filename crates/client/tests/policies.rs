//! The server's policies through the limiter, while the server is available and while it is not.

use std::time::Duration;

use rl_client::commands::{CallOptions, NewOverride, OverrideAction};
use rl_client::{
    DecidedBy, Error, FailureMode, HOUR, Limit, Limiter, RlCommands, Source, tagged_key,
};
use rl_testkit::{PATIENCE, Server, eventually_async};

use crate::support::{LimiterOf, plain_server, remaining};

fn set(server: &Server, name: &str, limits: &str) {
    let mut args = vec!["SET", name];
    args.extend(limits.split(' '));
    server.run::<()>("RL.POLICY", &args);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_checked_by_name_and_a_change_holds_at_the_next_call() {
    let server = Server::start();
    set(&server, "pro", "SLIDE 3 1h SLIDE 100 1d");
    let limiter = server.limiter().build().await.unwrap();
    let check = async || limiter.check_policy("u1", "pro", 1).await.unwrap();

    for left in [2, 1, 0] {
        let decision = check().await;
        assert!(decision.allowed);
        assert_eq!(
            (decision.remaining, decision.decided_by),
            (left, DecidedBy::PolicyLimit(0))
        );
    }
    let denied = check().await;
    assert_eq!(denied.denied_by(), Some(DecidedBy::PolicyLimit(0)));
    assert!(denied.retry_after.unwrap() > Duration::from_secs(60));

    set(&server, "pro", "SLIDE 50 1h SLIDE 4 1d");
    let raised = check().await;
    assert!(
        raised.allowed,
        "no cache stands between a policy and its change"
    );
    assert_eq!(raised.source, Source::Server);
    assert_eq!(
        check().await.denied_by(),
        Some(DecidedBy::PolicyLimit(1)),
        "which limit of the policy"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_override_decides_in_place_of_a_limit() {
    let server = Server::start();
    set(&server, "pro", "SLIDE 3 1h");
    let limiter = server.limiter().build().await.unwrap();
    let mut con = server.connect();
    for (action, allowed) in [
        (OverrideAction::Block, false),
        (OverrideAction::Allow, true),
    ] {
        con.rl_override_set("u1", "pro", &NewOverride::new(action))
            .unwrap();
        let decision = limiter.check_policy("u1", "pro", 1).await.unwrap();
        assert_eq!(decision.allowed, allowed);
        assert_eq!(decision.decided_by, DecidedBy::Override);
        assert_eq!(decision.decided_by.index(), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_policy_is_the_callers_mistake() {
    let server = Server::start();
    let limiter = server
        .limiter()
        .build()
        .await
        .unwrap()
        .with_failure_mode(FailureMode::Open);
    match limiter.check_policy("u1", "nothing", 1).await {
        Err(Error::Rejected(error)) => assert!(error.to_string().contains("no such policy")),
        other => panic!("{other:?}"),
    }
    assert!(limiter.health().ready);
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_and_limits_are_checked_together() {
    let server = Server::start();
    set(&server, "search", "BUCKET 5 5 1h");
    let limiter = server.limiter().build().await.unwrap();
    let both = async |cost| {
        let limits = [
            (tagged_key("u1", "all"), Limit::slide(100, HOUR), 1),
            (tagged_key("u1", "search"), Limit::policy("search"), cost),
        ];
        limiter.check_all(limits).await.unwrap()
    };
    assert!(both(4).await.allowed);
    assert_eq!(both(2).await.denied_by(), Some(DecidedBy::Limit(1)));
    assert_eq!(
        remaining(&server, "{u1}:all", "SLIDE 100 3600"),
        99,
        "a denial spends nothing anywhere"
    );
    let peeked = limiter
        .peek("{u1}:search", Limit::policy("search"), 1)
        .await
        .unwrap();
    assert!(peeked.allowed);
    let charged = limiter
        .charge("{u1}:search", Limit::policy("search"), 9)
        .await
        .unwrap();
    assert_eq!(charged.remaining, 0);
    assert!(!both(1).await.allowed);
}

#[test]
fn typed_commands_cover_policies() {
    let server = Server::start();
    set(&server, "pro", "SLIDE 60 1m COST 1 SLIDE 1000 1h");
    let mut con = server.connect();
    let decision = con.rl_check("u1", "pro", 400).unwrap();
    assert!(decision.allowed);
    assert_eq!(
        (decision.limit, decision.decided_by),
        (60, DecidedBy::PolicyLimit(0))
    );
    let denied = con.rl_check("u1", "pro", 700).unwrap();
    assert_eq!(denied.denied_by(), Some(DecidedBy::PolicyLimit(1)));
    assert!(
        con.rl_check_with("u1", "pro", 700, CallOptions::FORCE)
            .unwrap()
            .allowed
    );
    assert!(!con.rl_peek("u1", &Limit::policy("pro"), 1).unwrap().allowed);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_server_a_share_of_the_last_known_policy_is_allowed_and_charged_later() {
    let server = Server::start();
    set(&server, "pro", "SLIDE 100 1h SLIDE 1000 1d");
    let limiter = Limiter::builder(server.url())
        .timeout(Duration::from_millis(500))
        .breaker_backoff(Duration::from_millis(20), Duration::from_millis(200))
        .build()
        .await
        .unwrap()
        .with_failure_mode(FailureMode::Local { share: 0.2 });
    assert!(limiter.check_policy("u1", "pro", 1).await.unwrap().allowed);
    eventually_async("the policy is asked about", || {
        server.calls("rl.policy") >= 2
    })
    .await;
    // The reply to a call that the server has counted may still be on its way.
    tokio::time::sleep(Duration::from_secs(1)).await;

    server.pause();
    let start = std::time::Instant::now();
    while limiter.health().ready {
        assert!(start.elapsed() < PATIENCE, "the server counts as ready");
        let _ = limiter.check_policy("probe", "pro", 1).await.unwrap();
    }
    let mut allowed = 0;
    for _ in 0..200 {
        let decision = limiter.check_policy("u2", "pro", 1).await.unwrap();
        assert_eq!(decision.source, Source::FailLocal);
        allowed += u32::from(decision.allowed);
    }
    assert_eq!(allowed, 20, "a fifth of the tightest limit");
    let unknown = limiter.check_policy("u2", "unheard-of", 1).await.unwrap();
    assert!(!unknown.allowed, "the policy was never read");
    let open = limiter.with_failure_mode(FailureMode::Open);
    assert!(open.check_policy("u3", "pro", 1).await.unwrap().allowed);

    server.resume();
    eventually_async("the breaker closes", || limiter.health().ready).await;
    eventually_async("the server hears of it", || {
        remaining(&server, "u2", "POLICY pro") == 80
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_without_the_module_say_what_is_missing() {
    let server = plain_server();
    let limiter = server.limiter().build().await.unwrap();
    match limiter.check_policy("u1", "pro", 1).await {
        Err(Error::NeedsModule(what)) => assert_eq!(what, "Limit::policy"),
        other => panic!("{other:?}"),
    }
}

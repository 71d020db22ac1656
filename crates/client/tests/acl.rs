//! The ACL user that docs/deploy.md describes is enough for everything that a limiter does.

use std::fs;
use std::time::Duration;

use rl_client::{FailureMode, HOUR, Limit, Limiter, Source};
use rl_testkit::{Server, eventually_async};

use crate::support::remaining;

/// The page's rules that name every command, which work on all servers, and those for this crate.
fn rules() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/deploy.md");
    let page = fs::read_to_string(path).unwrap();
    let lines = page.lines().filter(|line| line.starts_with("ACL SETUSER"));
    let rules: Vec<String> = lines
        .filter(|line| !line.contains("+@rl"))
        .map(str::to_owned)
        .collect();
    assert_eq!(rules.len(), 2, "{rules:?}");
    rules
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_user_can_do_all_that_the_limiter_needs() {
    let server = Server::start();
    server.run::<()>("RL.POLICY", &["SET", "pro", "SLIDE", "100", "1h"]);
    for rule in rules() {
        let args: Vec<&str> = rule.split(' ').skip(1).collect();
        server.run::<()>("ACL", &args);
    }
    let url = server.url().replace("redis://", "redis://gateway:secret@");
    let limiter = Limiter::builder(url)
        .timeout(Duration::from_secs(1))
        .breaker_backoff(Duration::from_millis(20), Duration::from_millis(200))
        .failure_mode(FailureMode::Closed)
        .build()
        .await
        .unwrap();
    let patient = limiter.with_failure_mode(FailureMode::Local { share: 0.2 });

    // With the server: a limit, several limits, a policy, a budget, a refund, a lease.
    let from_server = async |key: &'static str, limit: Limit| {
        eventually_async("the server decides", || limiter.health().ready).await;
        let decision = limiter.check(key, limit, 1).await.unwrap();
        assert!(decision.allowed, "{key}: {decision:?}");
        assert_eq!(decision.source, Source::Server, "{key}");
    };
    from_server("limits:slide", Limit::slide(100, HOUR)).await;
    from_server("limits:policy", Limit::policy("pro")).await;
    from_server("limits:lease", Limit::lease(5, HOUR, "job")).await;
    limiter.release("limits:lease", "job").await.unwrap();
    limiter.refund("limits:slide", 1).await.unwrap();
    let both = [
        ("limits:a", Limit::slide(100, HOUR), 1),
        ("limits:b", Limit::exact(100, HOUR), 1),
    ];
    assert!(limiter.check_all(both).await.unwrap().allowed);
    let budgeted = limiter.with_budgets();
    let mut from_budget = false;
    for _ in 0..50 {
        let decision = budgeted.check("limits:hot", Limit::slide(10_000, HOUR), 1);
        from_budget |= decision.await.unwrap().source == Source::Budget;
    }
    assert!(from_budget, "units were taken in advance");

    // During an outage: the policy was read before, and what is allowed is charged afterwards.
    server.pause();
    eventually_async("the breaker opens", || !limiter.health().ready).await;
    for limit in [Limit::slide(100, HOUR), Limit::policy("pro")] {
        let decision = patient.check("limits:outage", limit, 1).await.unwrap();
        assert!(decision.allowed, "{decision:?}");
        assert_eq!(decision.source, Source::FailLocal);
    }
    server.resume();
    eventually_async("the breaker closes", || limiter.health().ready).await;
    eventually_async("both calls are charged", || {
        remaining(&server, "limits:outage", "SLIDE 100 1h") == 98
    })
    .await;

    let refused: Vec<redis::Value> = server.run("ACL", &["LOG"]);
    // redis-rs introduces itself and ignores the refusal.
    let refused: Vec<_> = refused
        .iter()
        .map(|entry| format!("{entry:?}").to_lowercase())
        .filter(|entry| !entry.contains("client|setinfo"))
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
}

//! What operators watch.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use rl_client::{FailureMode, HOUR, Limit};
use support::{Server, eventually};

/// One recorder for a process, so one test.
#[tokio::test]
async fn everything_is_counted_and_no_key_is_a_label() {
    let handle = PrometheusBuilder::new().install_recorder().unwrap();
    let mut server = Server::start();
    let limiter = server
        .limiter()
        .breaker_pauses(Duration::from_millis(10), Duration::from_millis(100))
        .build()
        .await
        .unwrap();
    let limit = || Limit::slide(100, HOUR);
    limiter.check("secret-key", limit(), 100).await.unwrap();
    limiter.check("secret-key", limit(), 1).await.unwrap();
    limiter.check("secret-key", limit(), 1).await.unwrap();
    let budgeted = limiter.budgeted();
    for _ in 0..50 {
        budgeted
            .check("secret-hot", Limit::slide(10_000, HOUR), 1)
            .await
            .unwrap();
    }
    let seen = |line: &str| handle.render().lines().any(|have| have == line);
    eventually("the rest of the budget is given back", || {
        handle
            .render()
            .contains(r#"rl_budget_units_total{fate="returned"}"#)
            && !seen(r#"rl_budget_units_total{fate="returned"} 0"#)
    })
    .await;
    server.kill();
    for mode in [
        FailureMode::Open,
        FailureMode::Closed,
        FailureMode::default(),
    ] {
        limiter
            .on_failure(mode)
            .check("secret-key2", limit(), 1)
            .await
            .unwrap();
    }
    assert!(seen("rl_breaker_open 1"));
    server.start_again();
    eventually("the breaker closes", || limiter.health().ready).await;
    eventually("it shows", || seen("rl_breaker_open 0")).await;

    let page = handle.render();
    for line in [
        r#"rl_checks_total{outcome="denied",source="redis"} 1"#,
        r#"rl_checks_total{outcome="denied",source="deny_cache"} 1"#,
        r#"rl_checks_total{outcome="allowed",source="fail_open"} 1"#,
        r#"rl_checks_total{outcome="denied",source="fail_closed"} 1"#,
        r#"rl_checks_total{outcome="allowed",source="fail_local"} 1"#,
        r#"rl_breaker_transitions_total{to="open"} 1"#,
        r#"rl_breaker_transitions_total{to="closed"} 1"#,
        r#"rl_budget_units_total{fate="spent"} 50"#,
    ] {
        assert!(
            page.lines().any(|have| have == line),
            "no {line} in\n{page}"
        );
    }
    for name in [
        "rl_check_duration_seconds",
        r#"rl_faults_total{kind="connection"}"#,
        "rl_settled_units_total",
        r#"fate="taken""#,
    ] {
        assert!(page.contains(name), "no {name} in\n{page}");
    }
    assert!(!page.contains("secret"), "{page}");
}

//! The metrics of a limiter.

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use rl_client::{FailureMode, HOUR, Limit};
use rl_testkit::{Server, eventually_async};

use crate::support::LimiterOf;

#[tokio::test]
async fn everything_is_counted_and_no_key_is_a_label() {
    // Other tests run in this process, on other threads. All tasks of this one run on its own thread.
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let mut server = Server::start();
    let limiter = server
        .limiter()
        .breaker_backoff(Duration::from_millis(10), Duration::from_millis(100))
        .build()
        .await
        .unwrap();
    let limit = || Limit::slide(100, HOUR);
    let _ = limiter.check("secret-key", limit(), 100).await.unwrap();
    let _ = limiter.check("secret-key", limit(), 1).await.unwrap();
    let _ = limiter.check("secret-key", limit(), 1).await.unwrap();
    let budgeted = limiter.with_budgets();
    for _ in 0..50 {
        let _ = budgeted
            .check("secret-hot", Limit::slide(10_000, HOUR), 1)
            .await
            .unwrap();
    }
    let seen = |line: &str| handle.render().lines().any(|have| have == line);
    eventually_async("the rest of the budget is refunded", || {
        handle
            .render()
            .contains(r#"rl_client_budget_units_total{event="refunded"}"#)
            && !seen(r#"rl_client_budget_units_total{event="refunded"} 0"#)
    })
    .await;
    server.kill();
    for mode in [
        FailureMode::Open,
        FailureMode::Closed,
        FailureMode::default(),
    ] {
        let _ = limiter
            .with_failure_mode(mode)
            .check("secret-key2", limit(), 1)
            .await
            .unwrap();
    }
    assert!(seen("rl_client_open_breakers 1"));
    server.start_again_on_same_port();
    eventually_async("the breaker closes", || limiter.health().ready).await;
    eventually_async("it shows", || seen("rl_client_open_breakers 0")).await;

    let page = handle.render();
    for line in [
        r#"rl_client_checks_total{outcome="denied",source="server"} 1"#,
        r#"rl_client_checks_total{outcome="denied",source="deny_cache"} 1"#,
        r#"rl_client_checks_total{outcome="allowed",source="fail_open"} 1"#,
        r#"rl_client_checks_total{outcome="denied",source="fail_closed"} 1"#,
        r#"rl_client_checks_total{outcome="allowed",source="fail_local"} 1"#,
        r#"rl_client_breaker_transitions_total{to="open"} 1"#,
        r#"rl_client_breaker_transitions_total{to="closed"} 1"#,
        r#"rl_client_budget_units_total{event="spent"} 50"#,
    ] {
        assert!(
            page.lines().any(|have| have == line),
            "no {line} in\n{page}"
        );
    }
    for name in [
        "rl_client_check_duration_seconds",
        r#"rl_client_faults_total{kind="connection"}"#,
        "rl_client_reconciled_units_total",
        r#"event="taken""#,
    ] {
        assert!(page.contains(name), "no {name} in\n{page}");
    }
    assert!(!page.contains("secret"), "{page}");
}

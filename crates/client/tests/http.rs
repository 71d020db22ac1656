//! The HTTP layer, tested with a real listener.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::Request;
use axum::routing::get;
use reqwest::{Response, StatusCode};
use rl_client::http::{RateLimitLayer, RequestLimits};
use rl_client::{FailureMode, HOUR, Limit, Limiter, MINUTE};
use rl_testkit::{Server, eventually_async};
use serde_json::{Value, json};

use crate::support::LimiterOf;

/// Each `x-user` has 3 units per minute. Searches cost 2 and `/status` is free; `/login` fails closed and `/open` fails open.
fn rules(request: &Request) -> RequestLimits {
    let header = |name| {
        request
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let user = header("x-user").unwrap_or("nobody").to_owned();
    let cost = match request.uri().path() {
        "/status" => 0,
        "/search" => 2,
        "/huge" => 99,
        _ => 1,
    };
    let rules = RequestLimits::new()
        .limit(
            "user",
            format!("{{{user}}}:minute"),
            Limit::slide(3, MINUTE),
            cost,
        )
        .limit(
            "daily",
            format!("{{{user}}}:hour"),
            Limit::bucket(1000, 1000, HOUR),
            cost,
        );
    match request.uri().path() {
        "/login" => rules.failure_mode(FailureMode::Closed),
        "/open" => rules.failure_mode(FailureMode::Open),
        "/wrong" => RequestLimits::new().limit("wrong", "k", Limit::slide(3, Duration::ZERO), 1),
        _ => rules,
    }
}

struct Gateway {
    url: String,
}

impl Gateway {
    async fn start(limiter: Limiter) -> Self {
        let layer = RateLimitLayer::new(limiter, rules)
            .doc_url("https://example.com/limits")
            .retry_jitter(Duration::from_secs(2));
        let ok = || async { "ok" };
        let app = Router::new()
            .route("/{*any}", get(ok))
            .route("/", get(ok))
            .layer(layer);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url }
    }

    async fn get(&self, path: &str, user: &str) -> Response {
        let request = reqwest::Client::new().get(format!("{}{path}", self.url));
        request.header("x-user", user).send().await.unwrap()
    }
}

fn header(response: &Response, name: &str) -> String {
    let value = response.headers().get(name);
    value
        .unwrap_or_else(|| panic!("no {name} in {response:?}"))
        .to_str()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn responses_have_the_headers_of_the_decision() {
    let server = Server::start();
    let gateway = Gateway::start(server.limiter().build().await.unwrap()).await;

    let first = gateway.get("/", "alice").await;
    assert_eq!(first.status(), StatusCode::OK);
    assert_eq!(header(&first, "x-ratelimit-limit"), "3");
    assert_eq!(header(&first, "x-ratelimit-remaining"), "2");
    let reset: u64 = header(&first, "x-ratelimit-reset").parse().unwrap();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    assert!((now + 60..=now + 121).contains(&reset), "{reset} at {now}");
    assert_eq!(
        header(&first, "ratelimit-policy"),
        r#""user";q=3;w=60, "daily";q=1000;w=3600"#
    );
    assert_eq!(header(&first, "ratelimit"), r#""user";r=2;t=120"#);
    assert!(first.headers().get("retry-after").is_none());
    assert_eq!(first.text().await.unwrap(), "ok");

    let second = gateway.get("/search", "alice").await;
    assert_eq!(header(&second, "x-ratelimit-remaining"), "0");

    let denied = gateway.get("/", "alice").await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    let wait: u64 = header(&denied, "retry-after").parse().unwrap();
    // The wait until two thirds of the second window are left, and up to 2 s of jitter.
    assert!((60..=83).contains(&wait), "{wait}");
    assert_eq!(header(&denied, "x-ratelimit-remaining"), "0");
    assert_eq!(header(&denied, "content-type"), "application/json");
    let body: Value = denied.json().await.unwrap();
    assert_eq!(
        body,
        json!({
            "error": "rate_limited",
            "message": "the limit \"user\" of 3 is used up",
            "retry_after_seconds": wait,
            "doc_url": "https://example.com/limits",
        })
    );

    assert_eq!(
        gateway.get("/", "bob").await.status(),
        StatusCode::OK,
        "another user"
    );
    let free = gateway.get("/status", "alice").await;
    assert_eq!(free.status(), StatusCode::OK, "free of charge");
    assert!(free.headers().get("x-ratelimit-limit").is_none());

    let huge = gateway.get("/huge", "carol").await;
    assert_eq!(huge.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(huge.headers().get("retry-after").is_none(), "no wait helps");
    let body: Value = huge.json().await.unwrap();
    assert_eq!(body["retry_after_seconds"], Value::Null);
}

#[tokio::test]
async fn without_a_server_each_route_keeps_its_mode() {
    let mut server = Server::start();
    let limiter = server
        .limiter()
        .failure_mode(FailureMode::Local { share: 0.5 })
        .build()
        .await
        .unwrap();
    let gateway = Gateway::start(limiter.clone()).await;
    assert_eq!(
        gateway.get("/login", "alice").await.status(),
        StatusCode::OK
    );
    server.kill();

    let closed = gateway.get("/login", "alice").await;
    assert_eq!(closed.status(), StatusCode::SERVICE_UNAVAILABLE);
    let wait: u64 = header(&closed, "retry-after").parse().unwrap();
    assert!((1..=3).contains(&wait), "{wait}");
    let body: Value = closed.json().await.unwrap();
    assert_eq!(body["error"], "limits_unavailable");

    for _ in 0..5 {
        assert_eq!(gateway.get("/open", "dave").await.status(), StatusCode::OK);
    }
    // Half of 3, rounded down, is 1.
    assert_eq!(gateway.get("/", "erin").await.status(), StatusCode::OK);
    assert_eq!(
        gateway.get("/", "erin").await.status(),
        StatusCode::TOO_MANY_REQUESTS
    );

    server.start_again_on_same_port();
    eventually_async("the server is back", || limiter.health().ready).await;
    assert_eq!(
        gateway.get("/login", "alice").await.status(),
        StatusCode::OK
    );
    assert_eq!(
        gateway.get("/", "dave").await.status(),
        StatusCode::TOO_MANY_REQUESTS,
        "charged"
    );
}

#[tokio::test]
async fn wrong_limits_are_not_the_clients_problem() {
    let server = Server::start();
    let limiter = server
        .limiter()
        .failure_mode(FailureMode::Open)
        .build()
        .await
        .unwrap();
    let gateway = Gateway::start(limiter).await;
    assert_eq!(
        gateway.get("/wrong", "alice").await.status(),
        StatusCode::OK
    );
}

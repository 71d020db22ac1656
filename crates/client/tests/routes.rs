//! Routes from a file, tested with a real listener: costs, failure modes, changes while running.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::any;
use reqwest::{Method, StatusCode};
use rl_client::http::routes::{Routes, RoutesError};
use rl_client::http::{RateLimitLayer, RequestLimits};
use rl_client::{FailureMode, Limiter};
use rl_testkit::Server;

use crate::support::CALM;

const FILE: &str = r#"{
  "routes": [
    { "path": "/healthz", "policies": [] },
    { "method": "POST", "path": "/login", "policies": ["login"], "failure": "closed" },
    { "path": "/search/{what}", "policies": ["pro", "search"], "cost": 2, "failure": "open" },
    { "path": "/*", "policies": ["pro"] }
  ]
}"#;

struct Gateway {
    url: String,
    file: PathBuf,
    routes: Routes,
    server: Server,
}

impl Gateway {
    async fn start(name: &str) -> Self {
        let server = Server::start();
        for policy in ["login SLIDE 1 1h", "pro SLIDE 4 1h", "search SLIDE 2 1h"] {
            let words: Vec<_> = ["SET"].into_iter().chain(policy.split(' ')).collect();
            server.run::<()>("RL.POLICY", &words);
        }
        let file =
            std::env::temp_dir().join(format!("rl-routes-{}-{name}.json", std::process::id()));
        fs::write(&file, FILE).unwrap();
        let routes = Routes::watch(&file).unwrap();
        let limiter = Limiter::builder(server.url())
            .timeout(CALM)
            .build()
            .await
            .unwrap()
            .with_failure_mode(FailureMode::Closed);
        let of_request = routes.clone();
        let layer = RateLimitLayer::new(limiter, move |request: &Request| {
            match request
                .headers()
                .get("x-user")
                .and_then(|user| user.to_str().ok())
            {
                Some(user) => of_request.limits(request, user),
                None => RequestLimits::none(),
            }
        });
        let app = Router::new()
            .route("/{*any}", any(|| async { "ok" }))
            .layer(layer);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            url,
            file,
            routes,
            server,
        }
    }

    async fn send(&self, method: Method, path: &str, user: &str) -> reqwest::Response {
        reqwest::Client::new()
            .request(method, format!("{}{path}", self.url))
            .header("x-user", user)
            .send()
            .await
            .unwrap()
    }

    async fn get(&self, path: &str, user: &str) -> StatusCode {
        self.send(Method::GET, path, user).await.status()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

const OK: StatusCode = StatusCode::OK;
const DENIED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

#[tokio::test(flavor = "multi_thread")]
async fn each_route_uses_its_policies_and_cost() {
    let gateway = Gateway::start("routes").await;
    for _ in 0..9 {
        assert_eq!(gateway.get("/healthz", "a").await, OK);
    }
    assert_eq!(gateway.send(Method::POST, "/login", "a").await.status(), OK);
    let denied = gateway.send(Method::POST, "/login", "a").await;
    assert_eq!(denied.status(), DENIED);
    assert_eq!(denied.headers()["ratelimit-policy"], r#""login";q=1"#);
    let body: serde_json::Value = denied.json().await.unwrap();
    assert!(
        body["message"].as_str().unwrap().contains("\"login\""),
        "{body}"
    );

    // A search costs 2 units of `pro` and 2 of `search`.
    assert_eq!(gateway.get("/search/rust", "a").await, OK);
    assert_eq!(gateway.get("/search/redis", "a").await, DENIED);
    assert_eq!(
        gateway.get("/items", "a").await,
        OK,
        "the denial took nothing of pro"
    );
    assert_eq!(gateway.get("/items", "a").await, OK);
    assert_eq!(gateway.get("/items", "a").await, DENIED);
    assert_eq!(
        gateway.get("/items", "b").await,
        OK,
        "each client for itself"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_route_fails_in_its_own_way() {
    let mut gateway = Gateway::start("failures").await;
    gateway.server.kill();
    assert_eq!(gateway.get("/search/rust", "a").await, OK);
    let login = gateway.send(Method::POST, "/login", "a").await.status();
    assert_eq!(login, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(gateway.get("/healthz", "a").await, OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_file_is_loaded_and_an_invalid_one_is_not() {
    let gateway = Gateway::start("changes").await;
    assert_eq!(gateway.send(Method::POST, "/login", "a").await.status(), OK);
    assert_eq!(
        gateway.send(Method::POST, "/login", "a").await.status(),
        DENIED
    );

    // A file with a mistake changes nothing, even after the watcher has read it.
    fs::write(&gateway.file, FILE.replace("\"login\"", "\"lo gin\"")).unwrap();
    match gateway.routes.reload() {
        Err(RoutesError::Route { index: 1, .. }) => {}
        other => panic!("{other:?}"),
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(
        gateway.send(Method::POST, "/login", "a").await.status(),
        DENIED
    );

    // The watcher notices the change without a call of `reload`.
    fs::write(&gateway.file, FILE.replace("[\"login\"]", "[]")).unwrap();
    let mut looks = 0;
    while gateway.send(Method::POST, "/login", "a").await.status() == DENIED {
        looks += 1;
        assert!(looks < 300, "the change is not taken over");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    // A file that disappears, as when it is replaced in two steps, changes nothing.
    fs::remove_file(&gateway.file).unwrap();
    assert!(matches!(
        gateway.routes.reload(),
        Err(RoutesError::File { .. })
    ));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(gateway.send(Method::POST, "/login", "b").await.status(), OK);
    assert_eq!(gateway.send(Method::POST, "/login", "b").await.status(), OK);
}

#[tokio::test]
async fn an_invalid_file_at_the_start_is_an_error() {
    match Routes::watch("/does/not/exist.json") {
        Err(error @ RoutesError::File { .. }) => {
            assert!(error.to_string().contains("/does/not/exist.json"));
        }
        other => panic!("{other:?}"),
    }
}

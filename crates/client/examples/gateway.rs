//! A small API with rate limits, to try with curl.
//!
//! ```sh
//! make run &                                        # a server with the module on port 6379
//! cargo run -p rl-client --example gateway          # REDIS_URL and LISTEN select other addresses,
//!                                                   # REDIS_SENTINELS (a,b,c) and REDIS_SENTINEL_NAME a primary
//! curl -i localhost:8080/search?q=rust -H 'x-api-key: acme' -H 'x-user: alice'
//! ```
//!
//! | route | cost | when the server is unavailable |
//! |---|---|---|
//! | `GET /items` | 1 | open |
//! | `GET /search` | 5 | a fifth of each limit |
//! | `POST /login` | 1, by address and account | closed |
//! | `GET /health`, `/ready`, `/metrics` | free | |

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use metrics_exporter_prometheus::PrometheusBuilder;
use rl_client::http::{RateLimitLayer, RequestLimits, ip_key};
use rl_client::{Builder, FailureMode, HOUR, Limit, Limiter, MINUTE, tagged_key};

const BY_ADDRESS: Limit = Limit::slide(300, MINUTE);
const BY_API_KEY: Limit = Limit::slide(1000, MINUTE);
const BY_USER: Limit = Limit::bucket(20, 60, MINUTE);
const LOGINS_BY_ADDRESS: Limit = Limit::slide(20, HOUR);
const LOGINS_BY_ACCOUNT: Limit = Limit::slide(5, HOUR);

/// The limits of a request, checked in one call: by address, by user and by API key.
fn limits(request: &Request) -> RequestLimits {
    let header = |name| {
        request
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let address = ip_key(peer.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |peer| peer.0.ip()));
    let user = header("x-user").unwrap_or("anonymous");

    // A common hash tag keeps the keys of one call in one slot, in case the server is a cluster.
    let key = |kind: &str, name: &str| tagged_key("api", format_args!("{kind}:{name}"));
    let (cost, mode) = match request.uri().path() {
        "/items" => (1, FailureMode::Open),
        "/search" => (5, FailureMode::Local { share: 0.2 }),
        "/login" => {
            return RequestLimits::new()
                .limit(
                    "login-address",
                    key("login-ip", &address),
                    LOGINS_BY_ADDRESS,
                    1,
                )
                .limit(
                    "login-account",
                    key("login-user", user),
                    LOGINS_BY_ACCOUNT,
                    1,
                )
                .failure_mode(FailureMode::Closed);
        }
        _ => return RequestLimits::none(),
    };
    let rules = RequestLimits::new()
        .limit("address", key("ip", &address), BY_ADDRESS, cost)
        .limit("user", key("user", user), BY_USER, cost)
        .failure_mode(mode);
    match header("x-api-key") {
        Some(api_key) => rules.limit("api-key", key("key", api_key), BY_API_KEY, cost),
        None => rules,
    }
}

/// Whether this gateway should receive traffic.
async fn ready(State(limiter): State<Limiter>) -> (StatusCode, String) {
    let health = limiter.health();
    let status = match health.ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, format!("{health:?}\n"))
}

/// A limiter for the server that the environment variables name.
fn server() -> Result<Builder, Box<dyn std::error::Error>> {
    #[cfg(feature = "sentinel")]
    if let Ok(sentinels) = std::env::var("REDIS_SENTINELS") {
        let name = std::env::var("REDIS_SENTINEL_NAME")?;
        return Ok(Builder::sentinel(sentinels.split(','), &name));
    }
    let redis = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379/".into());
    Ok(Limiter::builder(redis))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let default_level =
        tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or("info".into());
    tracing_subscriber::fmt()
        .with_env_filter(default_level)
        .init();
    // Install it before the limiter, which creates its metrics once.
    let prometheus = PrometheusBuilder::new().install_recorder()?;

    // The gateway starts even if the server is unavailable.
    let limiter = server()?.build_lazy()?;
    let layer =
        RateLimitLayer::new(limiter.clone(), limits).doc_url("https://example.com/docs/limits");

    let app = Router::new()
        .route("/items", get(|| async { "one, two, three\n" }))
        .route("/search", get(|| async { "found nothing\n" }))
        .route("/login", post(|| async { "welcome\n" }))
        .layer(layer)
        .route("/health", get(|| async { "ok\n" }))
        .route("/ready", get(ready))
        .route("/metrics", get(move || async move { prometheus.render() }))
        .with_state(limiter);

    let address = std::env::var("LISTEN").unwrap_or("127.0.0.1:8080".into());
    let listener = tokio::net::TcpListener::bind(address).await?;
    tracing::info!("listening on http://{}", listener.local_addr()?);
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}

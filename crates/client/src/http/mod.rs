//! Rate limits for HTTP services: a [`tower_layer::Layer`] for axum and any other tower service.
//!
//! A function of yours returns the limits of each request; the layer checks them together, all or nothing.
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use rl_client::http::{RateLimitLayer, RequestLimits};
//! use rl_client::{Limit, Limiter, MINUTE};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::builder("redis://127.0.0.1/").build().await?;
//! let limits = RateLimitLayer::new(limiter, |request: &axum::extract::Request| {
//!     let user = request.headers().get("x-user").and_then(|user| user.to_str().ok());
//!     match user {
//!         Some(user) => RequestLimits::new().limit("user", format!("user:{user}"), Limit::slide(100, MINUTE), 1),
//!         None => RequestLimits::none(),
//!     }
//! });
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(limits);
//! # Ok(())
//! # }
//! ```
//!
//! | response | when | with |
//! |---|---|---|
//! | from the service | allowed | `X-RateLimit-Limit`, `-Remaining`, `-Reset` (Unix seconds), `RateLimit`, `RateLimit-Policy` |
//! | 429 | denied | the same, `Retry-After`, and a JSON body |
//! | 503 | the server is unavailable and the mode is [`FailureMode::Closed`] | `Retry-After` and a JSON body |
//!
//! With several limits, the numbers are those of the limit that denied the request or, if it was allowed, of the one that
//! allows the fewest further requests.
//! `RateLimit` and `RateLimit-Policy` follow draft-ietf-httpapi-ratelimit-headers.

mod client_ip;
mod headers;
mod layer;
pub mod routes;

use std::borrow::Cow;

use crate::{Decision, FailureMode, Limit};

pub use client_ip::{forwarded_ip, ip_key, ip_key_with_prefix};
pub use layer::{RateLimit, RateLimitLayer};

/// The limits that apply to one request.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct RequestLimits {
    rules: Vec<Rule>,
    failure: Option<FailureMode>,
}

#[derive(Clone, Debug)]
struct Rule {
    name: Cow<'static, str>,
    key: Vec<u8>,
    limit: Limit,
    cost: u64,
}

impl RequestLimits {
    /// No limits yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// No limits: the request is always allowed.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a limit. Clients see its name, such as `user`, in headers and errors. The key is what is counted; only the server
    /// sees it. A limit with a cost of 0 is not checked.
    pub fn limit(
        mut self,
        name: impl Into<Cow<'static, str>>,
        key: impl Into<Vec<u8>>,
        limit: Limit,
        cost: u64,
    ) -> Self {
        if cost > 0 {
            self.rules.push(Rule {
                name: name.into(),
                key: key.into(),
                limit,
                cost,
            });
        }
        self
    }

    /// Adds the limits of a policy on the server. Clients see its name.
    pub fn policy(self, name: &str, key: impl Into<Vec<u8>>, cost: u64) -> Self {
        self.limit(name.to_owned(), key, Limit::policy(name), cost)
    }

    /// The rule that the numbers of a decision belong to.
    fn decided(&self, decision: &Decision) -> Option<&Rule> {
        match &self.rules[..] {
            // For a single policy, the index refers to its limits.
            [only] => Some(only),
            rules => rules.get(decision.decided_by.index()?),
        }
    }

    /// What happens to this request when the server is unavailable. The default is the limiter's own failure mode.
    pub fn failure_mode(mut self, mode: FailureMode) -> Self {
        self.failure = Some(mode);
        self
    }
}

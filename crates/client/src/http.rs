//! Limits in front of HTTP services: a [`tower_layer::Layer`] for axum and whatever speaks tower.
//!
//! For each request you say which limits apply; the layer checks them together, all or nothing.
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use rl_client::http::{RateLimitLayer, Rules};
//! use rl_client::{Limit, Limiter, MINUTE};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::builder("redis://127.0.0.1/").build().await?;
//! let limits = RateLimitLayer::new(limiter, |request: &axum::extract::Request| {
//!     let user = request.headers().get("x-user").and_then(|user| user.to_str().ok());
//!     match user {
//!         Some(user) => Rules::new().limit("user", format!("user:{user}"), Limit::slide(100, MINUTE), 1),
//!         None => Rules::none(),
//!     }
//! });
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(limits);
//! # Ok(())
//! # }
//! ```
//!
//! | answer | when | with |
//! |---|---|---|
//! | the service's own | allowed | `X-RateLimit-Limit`, `-Remaining`, `-Reset` (Unix seconds), `RateLimit`, `RateLimit-Policy` |
//! | 429 | denied | the same, `Retry-After`, and a JSON body |
//! | 503 | the server is away and the mode is [`FailureMode::Closed`] | `Retry-After` and a JSON body |
//!
//! With several limits, the figures are those of the limit that denied, or of the one with the fewest such requests left.
//! `RateLimit` and `RateLimit-Policy` follow draft-ietf-httpapi-ratelimit-headers.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::future::Future;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use tower_layer::Layer;
use tower_service::Service;

use crate::error::loggable;
use crate::limiter::Check;
use crate::{Decision, Error, FailureMode, Limit, Limiter, Source};

/// The limits that apply to one request.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Rules {
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

impl Rules {
    /// To be filled with limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// The request passes free.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a limit. Its name is what clients read in headers and errors, such as `user`; the key is what is counted, and
    /// stays between you and the server. A cost of 0 is free: the limit is not asked about.
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

    /// Adds whatever the server's policy of this name says; the name is what clients read, too.
    pub fn policy(self, name: &str, key: impl Into<Vec<u8>>, cost: u64) -> Self {
        self.limit(name.to_owned(), key, Limit::policy(name), cost)
    }

    /// The rule that a decision's figures belong to.
    fn decided(&self, decision: &Decision) -> Option<&Rule> {
        match &self.rules[..] {
            // Of one policy, the decision tells which of its limits it was.
            [only] => Some(only),
            rules => rules.get(decision.index),
        }
    }

    /// What happens to this request when the server is away; by default what the limiter was built with.
    pub fn on_failure(mut self, mode: FailureMode) -> Self {
        self.failure = Some(mode);
        self
    }
}

/// Checks limits before a service is called; see the [module's page](self).
pub struct RateLimitLayer<F> {
    settings: Arc<Settings<F>>,
}

struct Settings<F> {
    limiter: Limiter,
    rules: F,
    jitter: Duration,
    doc_url: Option<Cow<'static, str>>,
}

impl<F: Clone> RateLimitLayer<F> {
    /// `rules` says which limits apply to a request.
    pub fn new<B>(limiter: Limiter, rules: F) -> Self
    where
        F: Fn(&Request<B>) -> Rules,
    {
        Self {
            settings: Arc::new(Settings {
                limiter,
                rules,
                jitter: Duration::ZERO,
                doc_url: None,
            }),
        }
    }

    /// Adds up to this much, at random, to `Retry-After`, so that clients denied together do not come back together.
    #[must_use]
    pub fn retry_jitter(mut self, jitter: Duration) -> Self {
        self.change(|settings| settings.jitter = jitter);
        self
    }

    /// Where clients can read about the limits: `doc_url` in the body of a denial.
    #[must_use]
    pub fn doc_url(mut self, url: impl Into<Cow<'static, str>>) -> Self {
        let url = url.into();
        self.change(|settings| settings.doc_url = Some(url));
        self
    }

    fn change(&mut self, change: impl FnOnce(&mut Settings<F>)) {
        let mut settings = Settings {
            limiter: self.settings.limiter.clone(),
            rules: self.settings.rules.clone(),
            jitter: self.settings.jitter,
            doc_url: self.settings.doc_url.clone(),
        };
        change(&mut settings);
        self.settings = Arc::new(settings);
    }
}

impl<F> Clone for RateLimitLayer<F> {
    fn clone(&self) -> Self {
        Self {
            settings: Arc::clone(&self.settings),
        }
    }
}

impl<S, F> Layer<S> for RateLimitLayer<F> {
    type Service = RateLimit<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit {
            inner,
            settings: Arc::clone(&self.settings),
        }
    }
}

/// A service behind limits.
pub struct RateLimit<S, F> {
    inner: S,
    settings: Arc<Settings<F>>,
}

impl<S: Clone, F> Clone for RateLimit<S, F> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            settings: Arc::clone(&self.settings),
        }
    }
}

impl<S, F, B, R> Service<Request<B>> for RateLimit<S, F>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    F: Fn(&Request<B>) -> Rules + Send + Sync + 'static,
    B: Send + 'static,
    R: From<String>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let settings = Arc::clone(&self.settings);
        let rules = (settings.rules)(&request);
        // The one that is ready is the one to call; its clone is kept for the next request.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        Box::pin(async move {
            if rules.rules.is_empty() {
                return inner.call(request).await;
            }
            let decision = settings.decide(&rules).await;
            if !decision.allowed {
                return Ok(settings.refuse(&rules, &decision));
            }
            let mut response = inner.call(request).await?;
            describe(response.headers_mut(), &rules, &decision);
            Ok(response)
        })
    }
}

impl<F> Settings<F> {
    async fn decide(&self, rules: &Rules) -> Decision {
        let limiter = match rules.failure {
            Some(mode) => self.limiter.on_failure(mode),
            None => self.limiter.clone(),
        };
        let checks: Vec<_> = rules
            .rules
            .iter()
            .map(|rule| Check {
                key: &rule.key,
                limit: &rule.limit,
                cost: rule.cost,
            })
            .collect();
        match limiter.decide(&checks).await {
            Ok(decision) => decision,
            // A wrong limit is for the log, not for the client: it gets what it would get without a server.
            Err(error) => {
                let error = match &error {
                    Error::Rejected(error) => loggable(error),
                    error => error.to_string(),
                };
                tracing::error!(error, "limits could not be checked");
                limiter.without_server(&checks)
            }
        }
    }

    fn refuse<R: From<String>>(&self, rules: &Rules, decision: &Decision) -> Response<R> {
        let jitter = self.jitter.mul_f64(fastrand::f64());
        let wait = decision
            .retry_after
            .map(|wait| whole_seconds(wait + jitter).max(1));
        let closed = decision.source == Source::FailClosed;
        let (status, error, message) = if closed {
            let message = "limits cannot be checked at the moment".to_owned();
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "limits_unavailable",
                message,
            )
        } else {
            let name = rules.decided(decision).map_or("", |rule| &rule.name);
            let message = match decision.retry_after {
                Some(_) => format!("the limit \"{name}\" of {} is used up", decision.limit),
                None => format!(
                    "the request costs more than the whole limit \"{name}\" of {}",
                    decision.limit
                ),
            };
            (StatusCode::TOO_MANY_REQUESTS, "rate_limited", message)
        };
        let body = format!(
            r#"{{"error":"{error}","message":{},"retry_after_seconds":{},"doc_url":{}}}"#,
            json(&message),
            wait.map_or_else(|| "null".to_owned(), |wait| wait.to_string()),
            self.doc_url
                .as_ref()
                .map_or_else(|| "null".to_owned(), |url| json(url)),
        );
        let mut response = Response::new(R::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(wait) = wait {
            headers.insert(RETRY_AFTER, HeaderValue::from(wait));
        }
        if !closed {
            describe(headers, rules, decision);
        }
        response
    }
}

/// Adds the figures of a decision.
fn describe(headers: &mut HeaderMap, rules: &Rules, decision: &Decision) {
    let unix = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let reset = whole_seconds(unix.saturating_add(decision.reset_after));
    let number =
        |name: &'static str, value: u64| (HeaderName::from_static(name), HeaderValue::from(value));
    headers.extend([
        number("x-ratelimit-limit", decision.limit),
        number("x-ratelimit-remaining", decision.remaining),
        number("x-ratelimit-reset", reset),
    ]);

    let decided = rules.decided(decision);
    let name = decided.map_or("", |rule| &rule.name);
    let mut policy = String::new();
    for rule in &rules.rules {
        let of_policy = matches!(rule.limit, Limit::Policy { .. });
        // Of a policy only the limit that decided is known, and not its window.
        if of_policy && !decided.is_some_and(|decided| std::ptr::eq(decided, rule)) {
            continue;
        }
        let limit = if of_policy {
            decision.limit
        } else {
            rule.limit.limit()
        };
        let comma = if policy.is_empty() { "" } else { ", " };
        let _ = write!(policy, "{comma}{};q={limit}", quoted(&rule.name));
        let _ = match rule.limit {
            Limit::Policy { .. } => Ok(()),
            Limit::Lease { .. } => write!(policy, ";qu=\"concurrent-requests\""),
            _ => write!(policy, ";w={}", whole_seconds(rule.limit.span())),
        };
    }
    let now = format!(
        "{};r={};t={}",
        quoted(name),
        decision.remaining,
        whole_seconds(decision.reset_after)
    );
    for (name, value) in [("ratelimit-policy", policy), ("ratelimit", now)] {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

/// Rounded up, so that nobody comes back too early.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// A string of structured fields: printable ASCII.
fn quoted(name: &str) -> String {
    let printable = name.chars().filter(|c| matches!(c, ' '..='~'));
    let escaped = printable.flat_map(|c| {
        matches!(c, '"' | '\\')
            .then_some('\\')
            .into_iter()
            .chain([c])
    });
    format!("\"{}\"", escaped.collect::<String>())
}

fn json(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        let _ = match c {
            '"' | '\\' => write!(quoted, "\\{c}"),
            c if c.is_control() => write!(quoted, "\\u{:04x}", u32::from(c)),
            c => write!(quoted, "{c}"),
        };
    }
    quoted + "\""
}

/// What to count a client by, if its address is all there is: IPv4 addresses one by one, IPv6 by their /64, which is
/// what one subscriber is usually given.
///
/// ```
/// use rl_client::http::ip_key;
///
/// assert_eq!(ip_key([192, 0, 2, 7].into()), "192.0.2.7");
/// let addresses: [std::net::IpAddr; 2] = ["2001:db8::1".parse()?, "2001:db8::ffff:2".parse()?];
/// assert_eq!(ip_key(addresses[0]), "2001:db8::/64");
/// assert_eq!(ip_key(addresses[0]), ip_key(addresses[1]));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[must_use]
pub fn ip_key(address: IpAddr) -> String {
    ip_key_by(address, 64)
}

/// The same with another prefix for IPv6: 56 or 48 where providers hand out more.
#[must_use]
pub fn ip_key_by(address: IpAddr, prefix: u32) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let prefix = prefix.min(128);
            let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
            format!("{}/{prefix}", Ipv6Addr::from(u128::from(address) & mask))
        }
    }
}

/// The client's address as proxies report it in `X-Forwarded-For`, of which the last `trusted` hops are yours: the address
/// that the outermost of them saw. What clients write there themselves is not believed.
///
/// ```
/// use http::{HeaderMap, HeaderValue};
/// use rl_client::http::forwarded_ip;
///
/// let mut headers = HeaderMap::new();
/// headers.insert("x-forwarded-for", HeaderValue::from_static("6.6.6.6, 192.0.2.7, 10.0.0.1"));
/// assert_eq!(forwarded_ip(&headers, 2), Some([192, 0, 2, 7].into()));
/// assert_eq!(forwarded_ip(&headers, 4), None);
/// ```
#[must_use]
pub fn forwarded_ip(headers: &HeaderMap, trusted: usize) -> Option<IpAddr> {
    let lines = headers.get_all("x-forwarded-for").into_iter();
    let hops: Vec<&str> = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .collect();
    let outermost = hops.len().checked_sub(trusted.max(1))?;
    hops.get(outermost)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!(whole_seconds(Duration::ZERO), 0);
        assert_eq!(whole_seconds(Duration::from_millis(1)), 1);
        assert_eq!(whole_seconds(Duration::from_secs(7)), 7);
        assert_eq!(whole_seconds(Duration::from_millis(7001)), 8);
    }

    #[test]
    fn names_cannot_break_out_of_headers_or_bodies() {
        assert_eq!(quoted("a\"b\\c\r\nX: é"), r#""a\"b\\cX: ""#);
        assert_eq!(json("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
    }

    #[test]
    fn addresses() {
        let key = |text: &str, prefix| text.parse().map(|ip| ip_key_by(ip, prefix));
        assert_eq!(key("::ffff:192.0.2.7", 64), Ok("192.0.2.7".into()));
        assert_eq!(
            key("2001:db8:1:2ff::1", 56),
            Ok("2001:db8:1:200::/56".into())
        );
        assert_eq!(key("2001:db8::1", 0), Ok("::/0".into()));
        assert_eq!(key("2001:db8::1", 200), Ok("2001:db8::1/128".into()));
    }
}

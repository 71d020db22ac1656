//! Routes in a JSON file: which policies apply, at what cost, and what happens when the server is unavailable. The file is
//! read again when it changes.
//!
//! ```json
//! {
//!   "routes": [
//!     { "path": "/healthz", "policies": [] },
//!     { "method": "POST", "path": "/login", "policies": ["login"], "failure": "closed" },
//!     { "path": "/v1/search", "policies": ["pro", "search"], "cost": 5, "failure": { "local": 0.1 } },
//!     { "path": "/v1/users/{id}/*", "policies": ["pro"] }
//!   ]
//! }
//! ```
//!
//! | field | meaning | default |
//! |---|---|---|
//! | `path` | a literal path; `{name}` matches any one segment, a `*` at the end matches the rest | – |
//! | `method` | `GET`, `POST`, … | any |
//! | `policies` | policies on the server; all of them must allow the request, or none is charged. An empty list: no limits | – |
//! | `cost` | the cost of a request | 1 |
//! | `failure` | `"open"`, `"closed"` or `{"local": share}` | the limiter's own failure mode |
//!
//! The first matching route applies; a request that matches none is not limited. The limits themselves are not in the file
//! but in the server's policies (RL.POLICY), where a change applies to all gateways immediately.
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use rl_client::Limiter;
//! use rl_client::http::{RateLimitLayer, RequestLimits, routes::Routes};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::builder("redis://127.0.0.1/").build().await?;
//! let routes = Routes::watch("routes.json")?;
//! let layer = RateLimitLayer::new(limiter, move |request: &axum::extract::Request| {
//!     match request.headers().get("x-user").and_then(|user| user.to_str().ok()) {
//!         Some(user) => routes.limits(request, user),
//!         None => RequestLimits::none(),
//!     }
//! });
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
//! # Ok(())
//! # }
//! ```

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::{Method, Request};
use parking_lot::{Mutex, RwLock};
use serde::Deserialize;

use super::RequestLimits;
use crate::{FailureMode, tagged_key};

/// How often the file is checked for changes.
const PAUSE: Duration = Duration::from_secs(1);

/// The routes of a file, as last read without an error. Clones share them.
#[derive(Clone)]
pub struct Routes {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    table: RwLock<Arc<Table>>,
    /// The bytes last read, valid or not: an error is logged once.
    read: Mutex<Vec<u8>>,
}

/// Why a file of routes was rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RoutesError {
    /// It cannot be read.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        error: std::io::Error,
    },
    /// It does not have the [format](self); the message says where.
    #[error("{}: {error}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The reason, with line and column.
        #[source]
        error: serde_json::Error,
    },
    /// A route is invalid.
    #[error("{}: route {} ({route}): {reason}", path.display(), index + 1)]
    Route {
        /// The file.
        path: PathBuf,
        /// The index of the route, from 0.
        index: usize,
        /// Its path.
        route: String,
        /// The reason.
        reason: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    routes: Vec<Route>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Route {
    method: Option<String>,
    path: String,
    policies: Vec<String>,
    #[serde(default = "one")]
    cost: u64,
    failure: Option<RouteFailureMode>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RouteFailureMode {
    Open,
    Closed,
    Local(f64),
}

const fn one() -> u64 {
    1
}

impl Routes {
    /// Reads the file, and checks it for changes once per second in the background. A change takes effect with the next
    /// request. A file with an error is logged and ignored; the first one must be valid.
    ///
    /// Must be called within a Tokio runtime.
    pub fn watch(path: impl AsRef<Path>) -> Result<Self, RoutesError> {
        let routes = Self::read(path)?;
        tokio::spawn(watch(Arc::downgrade(&routes.shared)));
        Ok(routes)
    }

    /// Reads the file once; [`Routes::reload`] reads it again.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, RoutesError> {
        let path = path.as_ref().to_owned();
        let bytes = bytes_of(&path)?;
        let table = Arc::new(Table::parse(&path, &bytes)?);
        Ok(Self {
            shared: Arc::new(Shared {
                path,
                table: RwLock::new(table),
                read: Mutex::new(bytes),
            }),
        })
    }

    /// Reads the file again now. A file with an error changes nothing.
    pub fn reload(&self) -> Result<(), RoutesError> {
        let bytes = bytes_of(&self.shared.path)?;
        self.shared.take(bytes)
    }

    /// The limits for a request of `client`: a user, an API key, an address. Each policy counts the client on a key of its
    /// own, `{client}:policy`.
    pub fn limits<B>(&self, request: &Request<B>, client: impl Display) -> RequestLimits {
        let table = Arc::clone(&self.shared.table.read());
        let route = table
            .routes
            .iter()
            .find(|route| route.fits(request.method(), request.uri().path()));
        let Some(route) = route else {
            return RequestLimits::none();
        };
        let mut rules = RequestLimits::new();
        for policy in &route.policies {
            rules = rules.policy(policy, tagged_key(&client, policy), route.cost);
        }
        match route.failure {
            None => rules,
            Some(RouteFailureMode::Open) => rules.failure_mode(FailureMode::Open),
            Some(RouteFailureMode::Closed) => rules.failure_mode(FailureMode::Closed),
            Some(RouteFailureMode::Local(share)) => {
                rules.failure_mode(FailureMode::Local { share })
            }
        }
    }
}

impl Shared {
    fn take(&self, bytes: Vec<u8>) -> Result<(), RoutesError> {
        let table = Table::parse(&self.path, &bytes);
        *self.read.lock() = bytes;
        *self.table.write() = Arc::new(table?);
        Ok(())
    }
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Routes")
            .field("path", &self.shared.path)
            .field("routes", &self.shared.table.read().routes.len())
            .finish_non_exhaustive()
    }
}

async fn watch(shared: Weak<Shared>) {
    let mut missing = false;
    loop {
        tokio::time::sleep(PAUSE).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let path = shared.path.clone();
        let read = tokio::task::spawn_blocking(move || bytes_of(&path)).await;
        match read {
            Ok(Ok(bytes)) => {
                missing = false;
                if bytes == *shared.read.lock() {
                    continue;
                }
                match shared.take(bytes) {
                    Ok(()) => tracing::info!(path = %shared.path.display(), "routes changed"),
                    Err(error) => {
                        tracing::error!(%error, "invalid routes: keeping the last valid ones");
                    }
                }
            }
            Ok(Err(error)) if !missing => {
                missing = true;
                tracing::error!(%error, "cannot read the routes: keeping the last valid ones");
            }
            _ => {}
        }
    }
}

fn bytes_of(path: &Path) -> Result<Vec<u8>, RoutesError> {
    std::fs::read(path).map_err(|error| RoutesError::File {
        path: path.to_owned(),
        error,
    })
}

impl Table {
    fn parse(path: &Path, bytes: &[u8]) -> Result<Self, RoutesError> {
        let table: Self = serde_json::from_slice(bytes).map_err(|error| RoutesError::Json {
            path: path.to_owned(),
            error,
        })?;
        for (index, route) in table.routes.iter().enumerate() {
            if let Some(reason) = route.mistake() {
                return Err(RoutesError::Route {
                    path: path.to_owned(),
                    index,
                    route: route.path.clone(),
                    reason,
                });
            }
        }
        Ok(table)
    }
}

impl Route {
    fn mistake(&self) -> Option<&'static str> {
        let methods = [
            "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT",
        ];
        let known = |method: &str| methods.contains(&method);
        let wrong_name = |policy: &String| rl_core::policy::check_name(policy.as_bytes()).err();
        if !self.path.starts_with('/') {
            Some("path must start with /")
        } else if self.path[..self.path.len() - 1].contains('*') {
            Some("path may contain * only at its end")
        } else if !self.method.as_deref().is_none_or(known) {
            Some("method must be an HTTP method in upper case, such as GET")
        } else if let Some(error) = self.policies.iter().find_map(wrong_name) {
            Some(error.reason())
        } else if matches!(self.failure, Some(RouteFailureMode::Local(share)) if !(0.0..=1.0).contains(&share))
        {
            Some("the local share must be between 0 and 1")
        } else if self.cost > rl_core::MAX_COUNT {
            Some("cost must be at most 9007199254740991")
        } else if (1..self.policies.len()).any(|n| self.policies[..n].contains(&self.policies[n])) {
            Some("a route may name a policy only once")
        } else {
            None
        }
    }

    fn fits(&self, method: &Method, path: &str) -> bool {
        let same = self
            .method
            .as_deref()
            .is_none_or(|wanted| wanted == method.as_str());
        same && path_fits(&self.path, path)
    }
}

fn path_fits(pattern: &str, path: &str) -> bool {
    let (pattern, open) = match pattern.strip_suffix('*') {
        Some(start) => (start, true),
        None => (pattern, false),
    };
    let mut wanted = pattern.split('/');
    let mut given = path.split('/');
    loop {
        match (wanted.next(), given.next()) {
            (Some(last), Some(segment)) if open && wanted.clone().next().is_none() => {
                return segment.starts_with(last);
            }
            (Some(want), Some(segment)) => {
                let any = want.starts_with('{') && want.ends_with('}') && !segment.is_empty();
                if !any && want != segment {
                    return false;
                }
            }
            (None, None) => return true,
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_fit_by_segments() {
        for (pattern, path, fits) in [
            ("/a", "/a", true),
            ("/a", "/a/", false),
            ("/a", "/ab", false),
            ("/a/{id}", "/a/7", true),
            ("/a/{id}", "/a/", false),
            ("/a/{id}", "/a/7/b", false),
            ("/a/{id}/b", "/a/7/b", true),
            ("/a/*", "/a/", true),
            ("/a/*", "/a/b/c", true),
            ("/a/*", "/a", false),
            ("/a*", "/abc/d", true),
            ("/*", "/", true),
            ("/{tenant}/*", "/acme/x/y", true),
            ("/{tenant}/*", "/acme", false),
        ] {
            assert_eq!(path_fits(pattern, path), fits, "{pattern} {path}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let parse = |text: &str| {
            Table::parse(Path::new("routes.json"), text.as_bytes())
                .err()
                .map_or("none".to_owned(), |error| error.to_string())
        };
        let route =
            |fields: &str| format!(r#"{{"routes":[{{"path":"/x","policies":["pro"],{fields}}}]}}"#);
        for (text, says) in [
            ("{".to_owned(), "line 1"),
            (route(r#""costs":2"#), "unknown field `costs`"),
            (route(r#""cost":-1"#), "invalid value"),
            (route(r#""method":"get""#), "route 1 (/x): method must be"),
            (
                route(r#""failure":"sometimes""#),
                "unknown variant `sometimes`",
            ),
            (route(r#""failure":{"local":1.5}"#), "between 0 and 1"),
            (
                r#"{"routes":[{"path":"x","policies":[]}]}"#.to_owned(),
                "start with /",
            ),
            (
                r#"{"routes":[{"path":"/*/x","policies":[]}]}"#.to_owned(),
                "only at its end",
            ),
            (
                r#"{"routes":[{"path":"/","policies":["a b"]}]}"#.to_owned(),
                "printable",
            ),
            (
                r#"{"routes":[{"path":"/","policies":["a","a"]}]}"#.to_owned(),
                "only once",
            ),
            (
                r#"{"routes":[{"path":"/"}]}"#.to_owned(),
                "missing field `policies`",
            ),
        ] {
            let error = parse(&text);
            assert!(error.contains(says), "{text}: {error}");
            assert!(error.starts_with("routes.json: "), "{error}");
        }
        assert_eq!(
            parse(&route(r#""failure":{"local":0.1},"method":"PUT""#)),
            "none"
        );
    }
}

//! The tower layer and its service.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode};
use serde::Serialize;
use tower_layer::Layer;
use tower_service::Service;

use super::RequestLimits;
use super::headers::{describe, whole_seconds};
use crate::error::loggable;
use crate::limiter::Check;
use crate::{Decision, Error, Limiter, Source};

/// Checks limits before it calls a service; see the [module documentation](super).
pub struct RateLimitLayer<F> {
    settings: Arc<Settings<F>>,
}

/// The JSON body of a denial.
#[derive(Serialize)]
struct DenialBody<'a> {
    error: &'a str,
    message: &'a str,
    retry_after_seconds: Option<u64>,
    doc_url: Option<&'a str>,
}

struct Settings<F> {
    limiter: Limiter,
    rules: F,
    jitter: Duration,
    doc_url: Option<Cow<'static, str>>,
}

impl<F: Clone> RateLimitLayer<F> {
    /// `rules` returns the limits that apply to a request.
    pub fn new<B>(limiter: Limiter, rules: F) -> Self
    where
        F: Fn(&Request<B>) -> RequestLimits,
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

    /// Adds up to this much, at random, to `Retry-After`, so that clients that were denied together do not retry together.
    #[must_use]
    pub fn retry_jitter(mut self, jitter: Duration) -> Self {
        self.change(|settings| settings.jitter = jitter);
        self
    }

    /// A page about the limits: `doc_url` in the body of a denial.
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

/// A service protected by limits.
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
    F: Fn(&Request<B>) -> RequestLimits + Send + Sync + 'static,
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
        // Call the instance that is ready; keep its clone for the next request.
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
    async fn decide(&self, rules: &RequestLimits) -> Decision {
        let limiter = match rules.failure {
            Some(mode) => self.limiter.with_failure_mode(mode),
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
            // A wrong limit is logged and hidden from the client, which gets the same response as if the server were unavailable.
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

    fn refuse<R: From<String>>(&self, rules: &RequestLimits, decision: &Decision) -> Response<R> {
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
        let body = DenialBody {
            error,
            message: &message,
            retry_after_seconds: wait,
            doc_url: self.doc_url.as_deref(),
        };
        // Nothing in the body can fail to be written.
        let body = serde_json::to_string(&body).unwrap_or_default();
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

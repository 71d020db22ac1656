//! The limiter: deny cache, budgets, server and failure mode, in this order.

use std::sync::Arc;
use std::time::Duration;

use redis::{FromRedisValue, Value};

use crate::budgets::Budgets;
use crate::deny_cache::DenyCache;
use crate::server::{Failure, Purpose, Request, Server};
use crate::{Builder, Decision, Error, Limit, MultiDecision, Source, key};

/// Checks limits on a server, and keeps its promises when the server does not.
///
/// Cheap to clone; clones share one connection, one deny cache and one breaker.
///
/// ```no_run
/// use rl_client::{FailureMode, Limit, Limiter, HOUR, MINUTE};
///
/// # async fn example() -> Result<(), rl_client::Error> {
/// let limiter = Limiter::builder("redis://127.0.0.1/").build().await?;
///
/// let decision = limiter.check("user:42", Limit::slide(100, MINUTE), 1).await?;
/// if !decision.allowed {
///     println!("429: try again in {:?}", decision.retry_after);
/// }
///
/// // All of them, or none is spent; and where it matters, rather refuse than guess.
/// let strict = limiter.on_failure(FailureMode::Closed);
/// let login = strict
///     .check_all([
///         ("{login}:ip:192.0.2.7", Limit::slide(20, HOUR), 1),
///         ("{login}:account:42", Limit::slide(5, HOUR), 1),
///     ])
///     .await?;
/// println!("denied by limit {:?}", login.denied_by());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Limiter {
    pub(crate) shared: Arc<Shared>,
    failure: FailureMode,
    budgeted: bool,
}

pub(crate) struct Shared {
    pub(crate) server: Arc<Server>,
    pub(crate) denied: DenyCache,
    pub(crate) budgets: Budgets,
}

/// What happens to a call that the server does not answer in time.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum FailureMode {
    /// It passes: for what must stay up at any price.
    Open,
    /// It is refused: for logins and payments.
    Closed,
    /// An in-process limit at a share of the real one decides: bounded, whatever the load.
    Local {
        /// The share of each limit that this process may admit alone, from 0 to 1.
        share: f64,
    },
}

/// [`FailureMode::Local`] with a fifth of each limit.
impl Default for FailureMode {
    fn default() -> Self {
        Self::Local { share: 0.2 }
    }
}

/// What enforces the limits on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// The RL module.
    Module,
    /// Lua scripts, on servers without it.
    Lua,
}

/// How the limiter and its server get along: for readiness probes.
///
/// A node that alone has lost the server should leave the rotation; when all have, the rotation must not run empty:
/// most load balancers have such a rule (a panic threshold), otherwise wait longer than an outage of the server lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Every part of the server answers.
    pub ready: bool,
    /// What enforces the limits; `None` before the first connection.
    pub backend: Option<Backend>,
    /// How long some part of the server has been given up on.
    pub down_for: Option<Duration>,
    /// Parts that are given up on for now, of `parts`.
    pub parts_down: usize,
    /// 1, or for a cluster the number of its slots' groups that fail and recover on their own.
    pub parts: usize,
}

/// One limit to check.
#[derive(Clone, Copy)]
pub(crate) struct Check<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) limit: &'a Limit,
    pub(crate) cost: u64,
}

impl<'a> Check<'a> {
    fn new(key: &'a impl AsRef<[u8]>, limit: &'a Limit, cost: u64) -> Self {
        Self {
            key: key.as_ref(),
            limit,
            cost,
        }
    }
}

impl Limiter {
    /// A limiter on one server: `redis://`, `rediss://` (feature `tls`) or `unix://`.
    pub fn builder(url: impl AsRef<str>) -> Builder {
        Builder::server(url.as_ref())
    }

    pub(crate) fn new(shared: Shared, failure: FailureMode) -> Self {
        Self {
            shared: Arc::new(shared),
            failure,
            budgeted: false,
        }
    }

    /// The same limiter with another failure mode, for a route or a call.
    #[must_use]
    pub fn on_failure(&self, mode: FailureMode) -> Self {
        Self {
            failure: mode,
            ..self.clone()
        }
    }

    /// The same limiter, spending hot keys from budgets: it takes units from the server by the chunk, and most checks cost
    /// nanoseconds. Never more than the limit is admitted in total; see the [crate's page on budgets](crate::budgets).
    #[must_use]
    pub fn budgeted(&self) -> Self {
        Self {
            budgeted: true,
            ..self.clone()
        }
    }

    /// Checks one limit and spends `cost` if it allows.
    ///
    /// Fails only if the call itself is wrong; faults of the server are met by the [`FailureMode`].
    pub async fn check(
        &self,
        key: impl AsRef<[u8]>,
        limit: Limit,
        cost: u64,
    ) -> Result<Decision, Error> {
        let check = Check::new(&key, &limit, cost);
        self.decide(&[check]).await
    }

    /// Checks what the server's policy of this name says now: a change there holds at the next call. Short for
    /// [`Limiter::check`] with [`Limit::policy`].
    ///
    /// Policies are not remembered by the deny cache, nor budgeted. While the server is away,
    /// [`FailureMode::Local`] goes by the policy as last heard (within half a minute), and refuses if nothing was.
    pub async fn check_policy(
        &self,
        key: impl AsRef<[u8]>,
        policy: &str,
        cost: u64,
    ) -> Result<Decision, Error> {
        self.check(key, Limit::policy(policy), cost).await
    }

    /// Checks several limits: all are spent, or none. In a cluster their keys must share a slot; see
    /// [`tagged`](crate::tagged).
    pub async fn check_all<K: AsRef<[u8]>>(
        &self,
        limits: impl IntoIterator<Item = (K, Limit, u64)>,
    ) -> Result<Decision, Error> {
        let limits: Vec<_> = limits.into_iter().collect();
        let checks: Vec<_> = limits
            .iter()
            .map(|(key, limit, cost)| Check::new(key, limit, *cost))
            .collect();
        self.decide(&checks).await
    }

    pub(crate) async fn decide(&self, checks: &[Check<'_>]) -> Result<Decision, Error> {
        if checks.is_empty() {
            return Err(Error::NoLimits);
        }
        let decision = match self.known_denial(checks) {
            Some(denial) => denial,
            None => match self.ask(checks).await {
                Ok(decision) => decision,
                Err(Failure::Fault(_)) => self.without_server(checks),
                Err(Failure::Call(error)) => return Err(error),
            },
        };
        self.shared.server.metrics.decided(&decision);
        Ok(decision)
    }

    #[inline]
    fn known_denial(&self, checks: &[Check<'_>]) -> Option<Decision> {
        let mut each = checks
            .iter()
            .enumerate()
            .filter(|(_, check)| check.cost > 0);
        each.find_map(|(index, check)| {
            let denial = self.shared.denied.get(check.key, check.limit, check.cost)?;
            Some(denial.at(index, Source::DenyCache))
        })
    }

    async fn ask(&self, checks: &[Check<'_>]) -> Result<Decision, Failure> {
        if let ([check], true) = (checks, self.budgeted)
            && let Some(answer) = Budgets::check(&self.shared, check).await
        {
            return answer;
        }
        self.call(checks, Purpose::Check).await
    }

    /// One call to the server, about all limits at once.
    async fn call(&self, checks: &[Check<'_>], purpose: Purpose) -> Result<Decision, Failure> {
        let server = &self.shared.server;
        let lane = self.lane(checks).map_err(Failure::Call)?;
        let request = server.request(checks, purpose).map_err(Failure::Call)?;
        let reply = server.ask(lane, &request, server.timeout).await?;
        let single = matches!(request, Request::Command(_)) && checks.len() == 1;
        let together = read(reply, single)?;
        for (check, decision) in checks.iter().zip(&together.limits) {
            if purpose == Purpose::Check {
                self.shared
                    .denied
                    .learn(check.key, check.limit, check.cost, decision);
            }
        }
        for check in checks {
            if let Limit::Policy { name } = check.limit {
                server.learn_policy(name);
            }
        }
        if let (true, [decision]) = (single, &together.limits[..]) {
            return Ok(*decision);
        }
        let headline = together.headline(checks.iter().map(|check| check.cost));
        headline.ok_or(Failure::Fault(None))
    }

    /// The part of the server that all keys belong to.
    fn lane(&self, checks: &[Check<'_>]) -> Result<usize, Error> {
        let lanes = &self.shared.server.lanes;
        let Some((first, others)) = checks.split_first() else {
            return Ok(0);
        };
        if lanes.len() > 1 {
            let slot = key::slot(first.key);
            let elsewhere = others.iter().position(|check| key::slot(check.key) != slot);
            if let Some(index) = elsewhere {
                return Err(Error::CrossSlot { index: index + 1 });
            }
        }
        Ok(lanes.of(first.key))
    }

    /// What the failure mode says.
    pub(crate) fn without_server(&self, checks: &[Check<'_>]) -> Decision {
        let server = &self.shared.server;
        let decided = match self.failure {
            FailureMode::Open => server.ledger.force(checks),
            FailureMode::Local { share } => server.ledger.check(checks, share),
            FailureMode::Closed => None,
        };
        // Out-of-range numbers cannot be decided locally either.
        let source = match self.failure {
            FailureMode::Open => Source::FailOpen,
            FailureMode::Local { .. } => Source::FailLocal,
            FailureMode::Closed => Source::FailClosed,
        };
        let probed_within = server.patience.longest;
        if let (Some(decision), Some(check)) = (&decided, checks.first())
            && decision.allowed
        {
            server.settle_soon(server.lanes.of(check.key));
        }
        let mut decision = decided.unwrap_or(Decision {
            allowed: source == Source::FailOpen,
            limit: checks.first().map_or(0, |check| check.limit.limit()),
            remaining: 0,
            retry_after: Some(probed_within),
            reset_after: probed_within,
            index: 0,
            source,
        });
        // What is too dear for a share of the limit may pass when the server is back.
        if !decision.allowed && decision.retry_after.is_none() {
            decision.retry_after = Some(probed_within);
        }
        decision
    }

    /// What a check would answer; spends nothing.
    pub async fn peek(
        &self,
        key: impl AsRef<[u8]>,
        limit: Limit,
        cost: u64,
    ) -> Result<Decision, Error> {
        let check = Check::new(&key, &limit, cost);
        Ok(self.call(&[check], Purpose::Peek).await?)
    }

    /// Spends `cost` even past the limit, for costs known only afterwards. When the server is away, it hears of it later.
    pub async fn charge(
        &self,
        key: impl AsRef<[u8]>,
        limit: Limit,
        cost: u64,
    ) -> Result<Decision, Error> {
        let check = Check::new(&key, &limit, cost);
        match self.call(&[check], Purpose::Force).await {
            Err(Failure::Fault(_)) => {
                Ok(self.on_failure(FailureMode::Open).without_server(&[check]))
            }
            answer => Ok(answer?),
        }
    }

    /// Gives units back; the number really given back. Needs the module.
    pub async fn refund(&self, key: impl AsRef<[u8]>, units: u64) -> Result<u64, Error> {
        let mut command = redis::cmd("RL.REFUND");
        command.arg(key.as_ref()).arg(units);
        self.plain(key.as_ref(), command, "refund").await
    }

    /// Ends a lease; whether it was held. Needs the module.
    pub async fn release(&self, key: impl AsRef<[u8]>, holder: &str) -> Result<bool, Error> {
        let mut command = redis::cmd("RL.RELEASE");
        command.arg(key.as_ref()).arg(holder);
        self.plain(key.as_ref(), command, "release").await
    }

    async fn plain<T: FromRedisValue>(
        &self,
        key: &[u8],
        command: redis::Cmd,
        what: &'static str,
    ) -> Result<T, Error> {
        let server = &self.shared.server;
        if server.backend() == Some(Backend::Lua) {
            return Err(Error::NeedsModule(what));
        }
        let lane = server.lanes.of(key);
        let reply = server
            .ask(lane, &Request::Command(command), server.timeout)
            .await?;
        T::from_redis_value(reply).map_err(|error| Error::Unavailable(error.into()))
    }

    /// How the limiter and its server get along; costs nothing, asks nobody.
    #[must_use]
    pub fn health(&self) -> Health {
        let server = &self.shared.server;
        let (parts_down, down_for) = server.lanes.down();
        Health {
            ready: parts_down == 0,
            backend: server.backend(),
            down_for,
            parts_down,
            parts: server.lanes.len(),
        }
    }

    /// Gives back every unit of every budget, as before a shutdown.
    pub async fn give_back_budgets(&self) {
        Budgets::give_back_all(&self.shared).await;
    }
}

impl std::fmt::Debug for Limiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limiter")
            .field("failure", &self.failure)
            .field("budgeted", &self.budgeted)
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}

/// A reply of the server, as if several limits had been asked about.
fn read(reply: Value, single: bool) -> Result<MultiDecision, Failure> {
    let read = if single {
        Decision::from_redis_value(reply).map(|decision| MultiDecision {
            allowed: decision.allowed,
            retry_after: decision.retry_after,
            limits: vec![decision],
        })
    } else {
        MultiDecision::from_redis_value(reply)
    };
    read.map_err(|error| Failure::Fault(Some(error.into())))
}

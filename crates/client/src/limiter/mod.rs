//! The limiter: deny cache, then budgets, then the server, then the failure mode.

mod builder;

use std::sync::Arc;
use std::time::Duration;

use redis::{FromRedisValue, Value};
use rl_core::cluster;

use crate::commands::{self, CallOptions, DecidedBy, RefundOptions, TypedCmd};
use crate::drivers::server::{CallError, Request, Server};
use crate::engine::budgets::Budgets;
use crate::engine::deny_cache::DenyCache;
use crate::{Decision, Error, Limit, MultiDecision, Source};

pub use builder::Builder;

/// Checks limits on a server, and decides by itself when the server is unavailable.
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
/// // All of them are charged, or none. Logins are denied when the limits cannot be checked.
/// let strict = limiter.with_failure_mode(FailureMode::Closed);
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
    /// The call is allowed. Use this for whatever must stay up at any price.
    Open,
    /// The call is denied. Use this for logins and payments.
    Closed,
    /// A limit within the process decides, at a share of the real limit: bounded, whatever the load.
    Local {
        /// The share of each limit that this process may allow by itself, from 0 to 1.
        share: f64,
    },
}

/// [`FailureMode::Local`] with a share of 0.2.
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
    /// Lua scripts, on servers without the module.
    Lua,
}

/// The state of the limiter's connection to its server, for readiness probes.
///
/// If only one process has lost the server, take it out of rotation. If all have, the rotation must not become empty:
/// most load balancers have such a rule (a panic threshold); otherwise, use a longer delay than the server's outages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Every part of the server replies.
    pub ready: bool,
    /// What enforces the limits; `None` before the first connection.
    pub backend: Option<Backend>,
    /// How long the longest open breaker has been open.
    pub down_for: Option<Duration>,
    /// How many of the `slot_groups` have an open breaker.
    pub slot_groups_down: usize,
    /// 1, or for a cluster the number of slot groups that fail and recover independently.
    pub slot_groups: usize,
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

    /// The same limiter with another failure mode, for one route or one call.
    #[must_use]
    pub fn with_failure_mode(&self, mode: FailureMode) -> Self {
        Self {
            failure: mode,
            ..self.clone()
        }
    }

    /// The same limiter with budgets for hot keys: it takes units from the server in chunks, and most checks take
    /// nanoseconds. The limit is never exceeded in total; see [budgets](crate::budgets).
    #[must_use]
    pub fn with_budgets(&self) -> Self {
        Self {
            budgeted: true,
            ..self.clone()
        }
    }

    /// Checks one limit, and charges `cost` if it allows the call.
    ///
    /// Returns an error only if the call itself is wrong; the [`FailureMode`] handles faults of the server.
    pub async fn check(
        &self,
        key: impl AsRef<[u8]>,
        limit: Limit,
        cost: u64,
    ) -> Result<Decision, Error> {
        let check = Check::new(&key, &limit, cost);
        self.decide(&[check]).await
    }

    /// Checks a policy of the server; a change to it applies to the next call. Short for [`Limiter::check`] with
    /// [`Limit::policy`].
    ///
    /// Neither the deny cache nor budgets apply to policies. While the server is unavailable, [`FailureMode::Local`] uses the
    /// policy as last read (while calls succeed, it is read again every 30 s), and denies the call if it has never read it.
    pub async fn check_policy(
        &self,
        key: impl AsRef<[u8]>,
        policy: &str,
        cost: u64,
    ) -> Result<Decision, Error> {
        self.check(key, Limit::policy(policy), cost).await
    }

    /// Checks several limits: all of them are charged, or none. In a cluster their keys must share a slot; see
    /// [`tagged_key`](crate::tagged_key()).
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
                Err(CallError::Server(_)) => self.without_server(checks),
                Err(CallError::Caller(error)) => return Err(error),
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

    async fn ask(&self, checks: &[Check<'_>]) -> Result<Decision, CallError> {
        if let ([check], true) = (checks, self.budgeted)
            && let Some(answer) = Budgets::check(&self.shared, check).await
        {
            return answer;
        }
        self.call(checks, CallOptions::default()).await
    }

    /// Checks all limits in one call to the server.
    async fn call(
        &self,
        checks: &[Check<'_>],
        options: CallOptions,
    ) -> Result<Decision, CallError> {
        let server = &self.shared.server;
        let group = self.group(checks).map_err(CallError::Caller)?;
        let request = server.request(checks, options).map_err(CallError::Caller)?;
        let reply = server.ask(group, &request, server.timeout).await?;
        let single = matches!(request, Request::Command(_)) && checks.len() == 1;
        let together = read(reply, single)?;
        for (check, decision) in checks.iter().zip(&together.decisions) {
            if options == CallOptions::default() {
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
        if let (true, [decision]) = (single, &together.decisions[..]) {
            return Ok(*decision);
        }
        let overall = together.overall(checks.iter().map(|check| check.cost));
        overall.ok_or(CallError::Server(None))
    }

    /// The slot group that all keys belong to.
    fn group(&self, checks: &[Check<'_>]) -> Result<usize, Error> {
        let slot_groups = &self.shared.server.slot_groups;
        let Some((first, others)) = checks.split_first() else {
            return Ok(0);
        };
        if slot_groups.len() > 1 {
            let slot = cluster::slot(first.key);
            let elsewhere = others
                .iter()
                .position(|check| cluster::slot(check.key) != slot);
            if let Some(index) = elsewhere {
                return Err(Error::CrossSlot { index: index + 1 });
            }
        }
        Ok(slot_groups.of(first.key))
    }

    /// The decision of the failure mode.
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
        let probed_within = server.backoff.longest;
        if let (Some(decision), Some(check)) = (&decided, checks.first())
            && decision.allowed
        {
            server.reconcile_soon(server.slot_groups.of(check.key));
        }
        let mut decision = decided.unwrap_or(Decision {
            allowed: source == Source::FailOpen,
            allowed_calls: u64::from(source == Source::FailOpen),
            limit: checks.first().map_or(0, |check| check.limit.limit()),
            remaining: 0,
            retry_after: Some(probed_within),
            reset_after: probed_within,
            decided_by: DecidedBy::Limit(0),
            source,
        });
        // A call that costs more than the local share may be allowed once the server is back.
        if !decision.allowed && decision.retry_after.is_none() {
            decision.retry_after = Some(probed_within);
        }
        decision
    }

    /// The decision that a check would get; charges nothing.
    pub async fn peek(
        &self,
        key: impl AsRef<[u8]>,
        limit: Limit,
        cost: u64,
    ) -> Result<Decision, Error> {
        let check = Check::new(&key, &limit, cost);
        Ok(self.call(&[check], CallOptions::PEEK).await?)
    }

    /// Charges `cost` even past the limit, for costs known only afterwards. If the server is unavailable, it is charged later.
    pub async fn charge(
        &self,
        key: impl AsRef<[u8]>,
        limit: Limit,
        cost: u64,
    ) -> Result<Decision, Error> {
        let check = Check::new(&key, &limit, cost);
        match self.call(&[check], CallOptions::FORCE).await {
            Err(CallError::Server(_)) => Ok(self
                .with_failure_mode(FailureMode::Open)
                .without_server(&[check])),
            answer => Ok(answer?),
        }
    }

    /// Refunds the `cost` of an earlier call, and returns how many units were actually refunded. Needs the module.
    pub async fn refund(&self, key: impl AsRef<[u8]>, cost: u64) -> Result<u64, Error> {
        let key = key.as_ref();
        self.send(key, commands::refund(key, cost), "refund").await
    }

    /// Refunds with options: the fixed costs of a policy, too, or only what cannot be newer than the charge. Needs the
    /// module.
    pub async fn refund_with(
        &self,
        key: impl AsRef<[u8]>,
        cost: u64,
        options: RefundOptions,
    ) -> Result<u64, Error> {
        let key = key.as_ref();
        self.send(key, commands::refund_with(key, cost, options), "refund")
            .await
    }

    /// Releases a lease, and returns whether it was held. Needs the module.
    pub async fn release(&self, key: impl AsRef<[u8]>, holder: &str) -> Result<bool, Error> {
        let key = key.as_ref();
        self.send(key, commands::release(key, holder), "release")
            .await
    }

    /// Sends a command that only the module has, and that no failure mode replaces.
    async fn send<T: FromRedisValue>(
        &self,
        key: &[u8],
        command: TypedCmd<T>,
        name: &'static str,
    ) -> Result<T, Error> {
        let server = &self.shared.server;
        if server.backend() == Some(Backend::Lua) {
            return Err(Error::NeedsModule(name));
        }
        let group = server.slot_groups.of(key);
        let reply = server
            .ask(group, &Request::Command(command.into()), server.timeout)
            .await?;
        T::from_redis_value(reply).map_err(|error| Error::Unavailable(error.into()))
    }

    /// The state of the connection; does no I/O.
    #[must_use]
    pub fn health(&self) -> Health {
        let server = &self.shared.server;
        let (slot_groups_down, down_for) = server.slot_groups.down();
        Health {
            ready: slot_groups_down == 0,
            backend: server.backend(),
            down_for,
            slot_groups_down,
            slot_groups: server.slot_groups.len(),
        }
    }

    /// Refunds the unused units of every budget, for a clean shutdown.
    pub async fn refund_budgets(&self) {
        Budgets::refund_all(&self.shared).await;
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

/// Reads a reply, as if several limits had been checked.
fn read(reply: Value, single: bool) -> Result<MultiDecision, CallError> {
    let read = if single {
        Decision::from_redis_value(reply).map(|decision| MultiDecision {
            allowed: decision.allowed,
            allowed_calls: decision.allowed_calls,
            retry_after: decision.retry_after,
            decisions: vec![decision],
        })
    } else {
        MultiDecision::from_redis_value(reply)
    };
    read.map_err(|error| CallError::Server(Some(error.into())))
}

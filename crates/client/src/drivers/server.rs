//! The connection to the server: deadlines, breaker, probes, and reconciliation after an outage.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::commands::{self, CallOptions, SpecArg, multi_cmd, single_cmd};
use crate::drivers::connection::{Connector, Link, Renewal, SharedLink};
use crate::engine::breaker::{Backoff, SlotGroups};
use crate::engine::fallback::{Ledger, OfflineUsage};
use crate::error::{
    self, fault_kind, is_caller_error, is_lost_connection, is_no_reply, is_permanent,
    is_unknown_command, loggable,
};
use crate::limiter::Check;
use crate::metrics::Metrics;
use crate::scripts::{self, Call};
use crate::{Backend, Error, FixedWindow, Limit};

/// Keys reconciled concurrently; the connection pipelines them.
const CONCURRENT_RECONCILES: usize = 64;

/// A new cluster connection connects to every node, and many processes may do so at once: wait for this many times the
/// longest probe delay in between.
const RENEWAL_PAUSES: u32 = 4;

pub(crate) struct Server {
    connector: Connector,
    link: RwLock<Option<SharedLink>>,
    /// When a stuck connection was last replaced.
    renewed: tokio::sync::Mutex<Option<Instant>>,
    backend: AtomicU8,
    said_no_module: AtomicBool,
    reconciling_soon: AtomicBool,
    /// Locked while a group is being reconciled.
    reconciling: Box<[tokio::sync::Mutex<()>]>,
    /// Whether the server has answered since the last heartbeat.
    replied: AtomicBool,
    pub(crate) slot_groups: SlotGroups,
    pub(crate) backoff: Backoff,
    pub(crate) timeout: Duration,
    connect_timeout: Duration,
    longest_call: Duration,
    pub(crate) ledger: Ledger,
    pub(crate) metrics: Metrics,
    pub(crate) runtime: Handle,
    me: Weak<Server>,
}

/// Why there is no decision.
pub(crate) enum CallError {
    /// The server is at fault, so the failure mode decides.
    Server(Option<RedisError>),
    /// The caller is at fault.
    Caller(Error),
}

impl From<CallError> for Error {
    fn from(failure: CallError) -> Self {
        let down = || io::Error::from(io::ErrorKind::NotConnected).into();
        match failure {
            CallError::Server(error) => Self::Unavailable(error.unwrap_or_else(down)),
            CallError::Caller(error) => error,
        }
    }
}

/// What to send.
pub(crate) enum Request {
    Command(Cmd),
    Script(Call),
}

impl Request {
    async fn send(&self, link: &dyn Link) -> RedisResult<Value> {
        match self {
            Self::Command(command) => link.call(command).await,
            Self::Script(call) => call.run(link).await,
        }
    }
}

pub(crate) struct Config {
    pub(crate) backoff: Backoff,
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) longest_call: Duration,
    pub(crate) ledger_size: usize,
    pub(crate) runtime: Handle,
}

impl Server {
    pub(crate) fn new(connector: Connector, cluster: bool, config: Config) -> Arc<Self> {
        let slot_groups = SlotGroups::new(cluster, config.backoff.failures);
        Arc::new_cyclic(|me| Self {
            connector,
            link: RwLock::new(None),
            renewed: tokio::sync::Mutex::new(None),
            backend: AtomicU8::new(0),
            said_no_module: AtomicBool::new(false),
            reconciling_soon: AtomicBool::new(false),
            reconciling: (0..slot_groups.len()).map(|_| Default::default()).collect(),
            replied: AtomicBool::new(false),
            slot_groups,
            backoff: config.backoff,
            timeout: config.timeout,
            connect_timeout: config.connect_timeout,
            longest_call: config.longest_call,
            ledger: Ledger::new(config.ledger_size),
            metrics: Metrics::new(),
            runtime: config.runtime,
            me: me.clone(),
        })
    }

    /// What enforces the limits; known once connected.
    pub(crate) fn backend(&self) -> Option<Backend> {
        match self.backend.load(Relaxed) {
            1 => Some(Backend::Module),
            2 => Some(Backend::Lua),
            _ => None,
        }
    }

    /// Sends a request unless the breaker is open, and records the result.
    pub(crate) async fn ask(
        &self,
        group: usize,
        request: &Request,
        max_wait: Duration,
    ) -> Result<Value, CallError> {
        if !self.slot_groups.is_closed(group) {
            return Err(CallError::Server(None));
        }
        let link = self.link.read().clone();
        let Some(link) = link else {
            return Err(self.fault(group, io::Error::from(io::ErrorKind::NotConnected).into()));
        };
        let asked = Instant::now();
        let reply = timeout(max_wait, request.send(&*link)).await;
        self.metrics.duration.record(asked.elapsed());
        match reply {
            Ok(Ok(value)) => {
                self.replied.store(true, Relaxed);
                self.slot_groups.succeeded(group);
                Ok(value)
            }
            Ok(Err(error)) if is_caller_error(&error) => {
                self.slot_groups.succeeded(group);
                Err(CallError::Caller(Error::Rejected(error)))
            }
            Ok(Err(error)) => Err(self.fault(group, error)),
            Err(_) => Err(self.timed_out(group)),
        }
    }

    pub(crate) fn timed_out(&self, group: usize) -> CallError {
        self.fault(group, error::timed_out())
    }

    fn fault(&self, group: usize, error: RedisError) -> CallError {
        self.metrics.fault(fault_kind(&error));
        // A lost connection stays lost until the probe replaces it.
        let lost = is_lost_connection(&error) && self.connector.renewal() == Renewal::Always;
        if self.slot_groups.failed(group, lost) {
            let first_pause = if lost {
                Duration::ZERO
            } else {
                self.backoff.shortest
            };
            self.opened(group, &error, first_pause);
        }
        CallError::Server(Some(error))
    }

    fn opened(&self, group: usize, error: &RedisError, first_pause: Duration) {
        self.metrics.opened.increment(1);
        self.show_breaker();
        let error = loggable(error);
        tracing::error!(
            slot_group = group,
            error,
            "breaker open: deciding without the server"
        );
        self.runtime
            .spawn(probe(self.me.clone(), group, first_pause, self.backoff));
    }

    fn show_breaker(&self) {
        self.metrics
            .open_breakers
            .set(self.slot_groups.down().0 as f64);
    }

    /// Probes the server while there is no traffic, so that health is known on an idle process too, and a closed connection
    /// is replaced before a caller needs it.
    pub(crate) fn start_heartbeat(&self) {
        let (server, pause) = (self.me.clone(), self.backoff.longest);
        self.runtime.spawn(async move {
            for beat in 0_usize.. {
                sleep(Backoff::jittered(pause)).await;
                let Some(server) = server.upgrade() else {
                    return;
                };
                if !server.replied.swap(false, Relaxed) {
                    server.beat(beat % server.slot_groups.len()).await;
                }
            }
        });
    }

    async fn beat(&self, group: usize) {
        let link = self.link.read().clone();
        let (true, Some(link)) = (self.slot_groups.is_closed(group), link) else {
            return;
        };
        match timeout(
            self.timeout,
            detect(&*link, self.slot_groups.probe_key(group)),
        )
        .await
        {
            Ok(Ok(_)) => self.slot_groups.succeeded(group),
            Ok(Err(error)) => drop(self.fault(group, error)),
            Err(_) => drop(self.timed_out(group)),
        }
    }

    /// Starts with the breaker open: the server is probed immediately, and the failure mode decides until it replies.
    pub(crate) fn start_open(&self) {
        tracing::info!("breaker open: connecting to the server");
        for group in 0..self.slot_groups.len() {
            if self.slot_groups.open(group) {
                self.metrics.opened.increment(1);
                self.runtime
                    .spawn(probe(self.me.clone(), group, Duration::ZERO, self.backoff));
            }
        }
        self.show_breaker();
    }

    /// Connects if necessary, and verifies that the server works.
    pub(crate) async fn reconnect(&self, group: usize, max_wait: Duration) -> RedisResult<()> {
        let current = self.link.read().clone();
        match (self.connector.renewal(), current) {
            (Renewal::Always, _) | (Renewal::Never, None) => self.replace(group, max_wait).await,
            (Renewal::WhenStuck, None) => self.renew(None, group, max_wait).await,
            (renewal, Some(link)) => match self.test(&*link, group, max_wait).await {
                // Replace the connection only if it missed a failover: give it and the node some time first.
                Err(error)
                    if renewal == Renewal::WhenStuck
                        && is_no_reply(&error)
                        && self.slot_groups.down_for(group) > self.connect_timeout =>
                {
                    self.renew(Some(&link), group, max_wait).await
                }
                tested => tested,
            },
        }
    }

    /// Opens a new connection and verifies it.
    async fn replace(&self, group: usize, max_wait: Duration) -> RedisResult<()> {
        let link = self.connect().await?;
        self.verify(link, group, max_wait).await
    }

    async fn verify(&self, link: SharedLink, group: usize, max_wait: Duration) -> RedisResult<()> {
        self.test(&*link, group, max_wait).await?;
        *self.link.write() = Some(link);
        Ok(())
    }

    async fn connect(&self) -> RedisResult<SharedLink> {
        let connecting = (self.connector).connect(self.connect_timeout, self.longest_call);
        connecting.await
    }

    /// Replaces a stuck connection, or opens the first one. Many groups need it at once: one of them connects for all, and
    /// not too often.
    async fn renew(
        &self,
        stuck: Option<&SharedLink>,
        group: usize,
        max_wait: Duration,
    ) -> RedisResult<()> {
        let mut renewed = self.renewed.lock().await;
        let current = self.link.read().clone();
        if let Some(current) = current
            && stuck.is_none_or(|stuck| !Arc::ptr_eq(&current, stuck))
        {
            drop(renewed);
            return self.test(&*current, group, max_wait).await;
        }
        let pauses = if stuck.is_some() { RENEWAL_PAUSES } else { 1 };
        let pause = pauses * self.backoff.longest;
        if renewed.is_some_and(|at: Instant| at.elapsed() < pause) {
            return Err(error::timed_out());
        }
        let link = self.connect().await;
        *renewed = Some(Instant::now());
        let link = link?;
        if stuck.is_none() {
            *self.link.write() = Some(Arc::clone(&link));
        }
        // A new connection that works no better must not replace the stuck one: the other groups still use that.
        self.verify(link, group, max_wait).await
    }

    async fn test(&self, link: &dyn Link, group: usize, max_wait: Duration) -> RedisResult<()> {
        let found = timeout(max_wait, detect(link, self.slot_groups.probe_key(group))).await;
        self.found(found.unwrap_or_else(|_| Err(error::timed_out()))?);
        Ok(())
    }

    fn found(&self, backend: Backend) {
        let code = match backend {
            Backend::Module => 1,
            Backend::Lua => 2,
        };
        let before = self.backend.swap(code, Relaxed);
        if backend == Backend::Lua && !self.said_no_module.swap(true, Relaxed) {
            tracing::warn!(
                "the server does not have the RL module: Lua scripts enforce the limits; they are slower and support only \
                 SLIDE, BUCKET and FIXED"
            );
        } else if before != 0 && before != code {
            tracing::warn!(
                ?backend,
                "the backend changed: usage counted so far no longer applies"
            );
        }
    }

    /// Reads a policy in the background if it is not known or too old, in case the server becomes unavailable.
    pub(crate) fn learn_policy(&self, name: &Arc<str>) {
        if !self.ledger.policies.should_ask(name) {
            return;
        }
        let (server, name) = (self.me.clone(), Arc::clone(name));
        self.runtime.spawn(async move {
            let Some(server) = server.upgrade() else {
                return;
            };
            let Some(link) = server.link.read().clone() else {
                return;
            };
            let command = commands::policy_get(&*name);
            // Not recorded by the breaker: a user who may check but not read policies is not a server fault.
            match timeout(server.connect_timeout, link.call(command.as_cmd())).await {
                Ok(Ok(reply)) => server.ledger.policies.learn(&name, reply),
                Ok(Err(error)) => {
                    let error = loggable(&error);
                    tracing::warn!(
                        error,
                        "cannot read a policy: FailureMode::Local denies its calls while the server is unavailable"
                    );
                }
                Err(_) => {}
            }
        });
    }

    /// A single call got no reply and was decided here. If that does not open the breaker, which reconciles when it closes,
    /// reconcile shortly.
    pub(crate) fn reconcile_soon(&self, group: usize) {
        if !self.slot_groups.is_closed(group) || self.reconciling_soon.swap(true, Relaxed) {
            return;
        }
        let (server, pause) = (self.me.clone(), self.backoff.longest);
        self.runtime.spawn(async move {
            loop {
                sleep(Backoff::jittered(pause)).await;
                let Some(server) = server.upgrade() else {
                    return;
                };
                for group in server.closed_groups_with_offline_usage() {
                    server.reconcile_if_healthy(group).await;
                }
                if server.closed_groups_with_offline_usage().is_empty() {
                    server.reconciling_soon.store(false, Relaxed);
                    // Usage may have been added in between, with no other task to reconcile it.
                    if server.closed_groups_with_offline_usage().is_empty()
                        || server.reconciling_soon.swap(true, Relaxed)
                    {
                        return;
                    }
                }
            }
        });
    }

    /// Closed groups with usage to reconcile. Open ones reconcile when they close.
    fn closed_groups_with_offline_usage(&self) -> BTreeSet<usize> {
        let mut with_offline_usage = self
            .ledger
            .with_offline_usage(|key| self.slot_groups.of(key));
        with_offline_usage.retain(|&group| self.slot_groups.is_closed(group));
        with_offline_usage
    }

    async fn reconcile_if_healthy(&self, group: usize) {
        if self.slot_groups.is_failing(group) {
            self.beat(group).await;
        }
        // A stalled server still executes what it was sent once it resumes, and would be charged twice.
        if !self.slot_groups.is_failing(group) && !self.reconcile(group).await {
            self.timed_out(group);
        }
    }

    /// Charges what was allowed without the server. Returns false if the server stopped replying before all was charged. A key
    /// that it did not reply to before does not count: a group may be on two nodes, one of which is healthy.
    async fn reconcile(&self, group: usize) -> bool {
        // One task at a time, or usage would be charged twice.
        let Ok(_reconciling) = self.reconciling[group].try_lock() else {
            return true;
        };
        let mut offline_usage = (self
            .ledger
            .offline_usage(|key| self.slot_groups.of(key) == group))
        .into_iter();
        let (mut reconciled, mut replied) = (0_u64, true);
        let mut running = JoinSet::new();
        loop {
            while replied && running.len() < CONCURRENT_RECONCILES {
                let (Some(usage), Some(server)) = (offline_usage.next(), self.me.upgrade()) else {
                    break;
                };
                running.spawn(async move {
                    let charged = server.reconcile_one(&usage).await;
                    if charged.is_none() {
                        server.ledger.unanswered(&usage);
                    }
                    (charged, usage.unanswered)
                });
            }
            match running.join_next().await {
                Some(Ok((Some(units), _))) => reconciled += units,
                Some(Ok((None, again))) => replied &= again,
                Some(Err(_)) => {}
                None => break,
            }
        }
        if reconciled > 0 {
            self.metrics.reconciled.increment(reconciled);
            tracing::info!(
                slot_group = group,
                units = reconciled,
                "charged what was allowed without the server"
            );
        }
        replied
    }

    /// Returns the units charged, or `None` if the server did not reply.
    async fn reconcile_one(&self, usage: &OfflineUsage) -> Option<u64> {
        let link = self.link.read().clone()?;
        if usage.unanswered {
            // The earlier call may still be executed when the server resumes: do not repeat it before the server replies.
            let mut ask = redis::cmd("EXISTS");
            let answer = timeout(self.timeout, link.call(ask.arg(&*usage.key))).await;
            if answer.map_or(true, |answer| {
                answer.is_err_and(|error| is_no_reply(&error))
            }) {
                return None;
            }
        }
        let request = match self.backend()? {
            Backend::Module => {
                let mut call = scripts::RECONCILE.on([&*usage.key].into_iter());
                let option = usage.limit.option();
                call.arg(usage.limit.command())
                    .arg(usage.units)
                    .arg(option.map_or("", |option| option.token()))
                    .arg(option.map_or_else(String::new, |option| option.to_string()));
                for arg in usage.limit.parameters() {
                    call.arg(arg);
                }
                Ok(call)
            }
            Backend::Lua => {
                let check = Check {
                    key: &usage.key,
                    limit: &usage.limit,
                    cost: usage.units,
                };
                lua_call(&[check], "RECONCILE")
            }
        };
        let charged = match request {
            Ok(request) => match timeout(self.connect_timeout, request.run(&*link)).await {
                Ok(Ok(_)) => usage.units,
                Ok(Err(error)) if is_permanent(&error) => {
                    tracing::warn!(error = loggable(&error), "a key could not be charged");
                    0
                }
                // Loading, out of memory or demoted: try again later.
                Ok(Err(error)) if !is_no_reply(&error) => return Some(0),
                Ok(Err(_)) | Err(_) => return None,
            },
            // Lua scripts do not support this limit.
            Err(_) => 0,
        };
        self.ledger.reconciled(usage);
        Some(charged)
    }

    /// Builds the request for a check, depending on what the server supports.
    pub(crate) fn request(
        &self,
        checks: &[Check<'_>],
        options: CallOptions,
    ) -> Result<Request, Error> {
        if self.backend() == Some(Backend::Lua) {
            let mode = options.charge_token().unwrap_or("CHECK");
            return Ok(Request::Script(lua_call(checks, mode)?));
        }
        let command = match checks {
            [one] => single_cmd(one.key, one.limit, one.cost, options),
            all => {
                let specs = all.iter();
                let specs = specs.map(|check| (&check.key, SpecArg::new(check.limit, check.cost)));
                multi_cmd("RL.MULTI", specs, options)
            }
        };
        Ok(Request::Command(command))
    }
}

/// The script that is used on servers without the module.
fn lua_call(checks: &[Check<'_>], mode: &str) -> Result<Call, Error> {
    let mut call = scripts::LIMITS.on(checks.iter().map(|check| check.key));
    call.arg(mode);
    for check in checks {
        let (refill, window) = match *check.limit {
            Limit::Slide {
                precision: Some(_), ..
            } => return Err(Error::NeedsModule("Limit::with_precision")),
            Limit::Slide { window, .. } => (1, window),
            Limit::Fixed {
                offset: Some(_), ..
            } => return Err(Error::NeedsModule("Limit::with_offset")),
            Limit::Fixed {
                window: FixedWindow::Span(window),
                ..
            } => (1, window),
            Limit::Fixed {
                window: FixedWindow::Calendar(_),
                ..
            } => return Err(Error::NeedsModule("Limit::fixed_calendar")),
            Limit::Bucket { refill, period, .. } => (refill, period),
            Limit::Exact { .. } => return Err(Error::NeedsModule("Limit::exact")),
            Limit::Leak { .. } => return Err(Error::NeedsModule("Limit::leak")),
            Limit::Lease { .. } => return Err(Error::NeedsModule("Limit::lease")),
            Limit::Policy { .. } => return Err(Error::NeedsModule("Limit::policy")),
        };
        call.arg(check.limit.name())
            .arg(check.limit.limit())
            .arg(refill)
            .arg(crate::limit::ceil_ms(window))
            .arg(check.cost);
    }
    Ok(call)
}

/// Detects whether the server has the module and accepts writes. Stores nothing.
async fn detect(link: &dyn Link, key: &str) -> RedisResult<Backend> {
    let free = single_cmd(
        key,
        &Limit::slide(1, crate::SECOND),
        0,
        CallOptions::default(),
    );
    match link.call(&free).await {
        Ok(_) => Ok(Backend::Module),
        Err(error) if is_unknown_command(&error) => {
            link.call(redis::cmd("DEL").arg(key)).await?;
            Ok(Backend::Lua)
        }
        Err(error) => Err(error),
    }
}

/// Probes with increasing delays until the server is back; then reconciles and closes the breaker.
async fn probe(server: Weak<Server>, group: usize, first_pause: Duration, backoff: Backoff) {
    let mut pause = first_pause;
    loop {
        sleep(Backoff::jittered(pause)).await;
        let Some(server) = server.upgrade() else {
            return;
        };
        server.slot_groups.half_open(group);
        server.metrics.half_opened.increment(1);
        tracing::debug!(slot_group = group, "breaker half open: probing the server");
        // A server slower than the callers' deadline is not back yet.
        match server.reconnect(group, server.timeout).await {
            // Charge what was allowed in the meantime before callers use the server again.
            Ok(()) if !server.reconcile(group).await => server.slot_groups.reopen(group),
            Ok(()) => {
                let down_for = server.slot_groups.close(group);
                server.metrics.closed.increment(1);
                server.show_breaker();
                tracing::info!(
                    slot_group = group,
                    ?down_for,
                    "breaker closed: the server decides again"
                );
                // Also charge what was allowed during the reconciliation, and what the server rejected.
                if !server.reconcile(group).await {
                    server.timed_out(group);
                }
                server.reconcile_soon(group);
                return;
            }
            Err(error) => {
                server.slot_groups.reopen(group);
                tracing::debug!(
                    slot_group = group,
                    error = loggable(&error),
                    "the server is not back"
                );
            }
        }
        pause = (pause * 2).clamp(backoff.shortest, backoff.longest);
    }
}

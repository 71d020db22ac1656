//! The server as a limiter sees it: a connection with a deadline, a breaker, and a way back.

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

use crate::breaker::{Lanes, Patience};
use crate::connection::{Connector, Link, Renewal, SharedLink};
use crate::error::{
    self, fault_kind, is_callers, is_lasting, is_lost_connection, is_silence, is_unknown_command,
    loggable,
};
use crate::limiter::Check;
use crate::local::{Debt, Ledger};
use crate::metrics::Metrics;
use crate::script::{self, Call};
use crate::{Backend, Error, Limit, commands};

/// Debts settled at once; the connection pipelines them.
const SETTLED_AT_ONCE: usize = 64;

/// A new connection to a cluster is one to every node, and a fleet makes them all at once: only every so many of the
/// longest pauses between probes.
const RENEWAL_PAUSES: u32 = 4;

pub(crate) struct Server {
    connector: Connector,
    link: RwLock<Option<SharedLink>>,
    /// When a stuck connection was last replaced.
    renewed: tokio::sync::Mutex<Option<Instant>>,
    backend: AtomicU8,
    said_no_module: AtomicBool,
    settling_soon: AtomicBool,
    /// For each lane, whether its accounts are being settled.
    settling: Box<[tokio::sync::Mutex<()>]>,
    /// Whether the server has answered since the last heartbeat.
    heard: AtomicBool,
    pub(crate) lanes: Lanes,
    pub(crate) patience: Patience,
    pub(crate) timeout: Duration,
    connect_timeout: Duration,
    longest_call: Duration,
    pub(crate) ledger: Ledger,
    pub(crate) metrics: Metrics,
    pub(crate) runtime: Handle,
    me: Weak<Server>,
}

/// Why there is no answer.
pub(crate) enum Failure {
    /// The server is at fault: the failure mode decides.
    Fault(Option<RedisError>),
    /// The caller is.
    Call(Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let down = || io::Error::from(io::ErrorKind::NotConnected).into();
        match failure {
            Failure::Fault(error) => Self::Unavailable(error.unwrap_or_else(down)),
            Failure::Call(error) => error,
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

/// What a check does with its cost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Check,
    Peek,
    Force,
}

pub(crate) struct Config {
    pub(crate) patience: Patience,
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) longest_call: Duration,
    pub(crate) ledger_size: usize,
    pub(crate) runtime: Handle,
}

impl Server {
    pub(crate) fn new(connector: Connector, cluster: bool, config: Config) -> Arc<Self> {
        let lanes = Lanes::new(cluster, config.patience.failures);
        Arc::new_cyclic(|me| Self {
            connector,
            link: RwLock::new(None),
            renewed: tokio::sync::Mutex::new(None),
            backend: AtomicU8::new(0),
            said_no_module: AtomicBool::new(false),
            settling_soon: AtomicBool::new(false),
            settling: (0..lanes.len()).map(|_| Default::default()).collect(),
            heard: AtomicBool::new(false),
            lanes,
            patience: config.patience,
            timeout: config.timeout,
            connect_timeout: config.connect_timeout,
            longest_call: config.longest_call,
            ledger: Ledger::new(config.ledger_size),
            metrics: Metrics::new(),
            runtime: config.runtime,
            me: me.clone(),
        })
    }

    /// What answers: known once connected.
    pub(crate) fn backend(&self) -> Option<Backend> {
        match self.backend.load(Relaxed) {
            1 => Some(Backend::Module),
            2 => Some(Backend::Lua),
            _ => None,
        }
    }

    /// Sends a request unless the breaker is open, and counts how it went.
    pub(crate) async fn ask(
        &self,
        lane: usize,
        request: &Request,
        patience: Duration,
    ) -> Result<Value, Failure> {
        if !self.lanes.is_closed(lane) {
            return Err(Failure::Fault(None));
        }
        let link = self.link.read().clone();
        let Some(link) = link else {
            return Err(self.fault(lane, io::Error::from(io::ErrorKind::NotConnected).into()));
        };
        let asked = Instant::now();
        let reply = timeout(patience, request.send(&*link)).await;
        self.metrics.duration.record(asked.elapsed());
        match reply {
            Ok(Ok(value)) => {
                self.heard.store(true, Relaxed);
                self.lanes.succeeded(lane);
                Ok(value)
            }
            Ok(Err(error)) if is_callers(&error) => {
                self.lanes.succeeded(lane);
                Err(Failure::Call(Error::Rejected(error)))
            }
            Ok(Err(error)) => Err(self.fault(lane, error)),
            Err(_) => Err(self.timed_out(lane)),
        }
    }

    pub(crate) fn timed_out(&self, lane: usize) -> Failure {
        self.fault(lane, error::timed_out())
    }

    fn fault(&self, lane: usize, error: RedisError) -> Failure {
        self.metrics.fault(fault_kind(&error));
        // A connection of ours that is lost stays lost until it is replaced, which is the prober's work.
        let lost = is_lost_connection(&error) && self.connector.renewal() == Renewal::Always;
        if self.lanes.failed(lane, lost) {
            let first_pause = if lost {
                Duration::ZERO
            } else {
                self.patience.shortest
            };
            self.opened(lane, &error, first_pause);
        }
        Failure::Fault(Some(error))
    }

    fn opened(&self, lane: usize, error: &RedisError, first_pause: Duration) {
        self.metrics.opened.increment(1);
        self.show_breaker();
        let error = loggable(error);
        tracing::error!(lane, error, "breaker open: deciding without the server");
        self.runtime
            .spawn(probe(self.me.clone(), lane, first_pause, self.patience));
    }

    fn show_breaker(&self) {
        self.metrics.breaker_open.set(self.lanes.down().0 as f64);
    }

    /// Asks now and then, when nobody else does: so that health is known on an idle node as well, and a connection
    /// that was cut is replaced before a caller needs it.
    pub(crate) fn start_heartbeat(&self) {
        let (server, pause) = (self.me.clone(), self.patience.longest);
        self.runtime.spawn(async move {
            for beat in 0_usize.. {
                sleep(Patience::jittered(pause)).await;
                let Some(server) = server.upgrade() else {
                    return;
                };
                if !server.heard.swap(false, Relaxed) {
                    server.beat(beat % server.lanes.len()).await;
                }
            }
        });
    }

    async fn beat(&self, lane: usize) {
        let link = self.link.read().clone();
        let (true, Some(link)) = (self.lanes.is_closed(lane), link) else {
            return;
        };
        match timeout(self.timeout, detect(&*link, self.lanes.probe_key(lane))).await {
            Ok(Ok(_)) => self.lanes.succeeded(lane),
            Ok(Err(error)) => drop(self.fault(lane, error)),
            Err(_) => drop(self.timed_out(lane)),
        }
    }

    /// Starts without a server: it is looked for at once, and meanwhile the failure modes decide.
    pub(crate) fn start_open(&self) {
        tracing::info!("breaker open: looking for the server");
        for lane in 0..self.lanes.len() {
            if self.lanes.open(lane) {
                self.metrics.opened.increment(1);
                self.runtime
                    .spawn(probe(self.me.clone(), lane, Duration::ZERO, self.patience));
            }
        }
        self.show_breaker();
    }

    /// Connects if there is need to, and makes sure that the server can do its work.
    pub(crate) async fn revive(&self, lane: usize, patience: Duration) -> RedisResult<()> {
        let current = self.link.read().clone();
        match (self.connector.renewal(), current) {
            (Renewal::Always, _) | (Renewal::Never, None) => self.replace(lane, patience).await,
            (Renewal::WhenStuck, None) => self.renew(None, lane, patience).await,
            (renewal, Some(link)) => match self.test(&*link, lane, patience).await {
                // Only a failover that the connection missed takes a new one: give it, and the node, some time.
                Err(error)
                    if renewal == Renewal::WhenStuck
                        && is_silence(&error)
                        && self.lanes.down_for(lane) > self.connect_timeout =>
                {
                    self.renew(Some(&link), lane, patience).await
                }
                tested => tested,
            },
        }
    }

    /// A new connection, once it has proven itself.
    async fn replace(&self, lane: usize, patience: Duration) -> RedisResult<()> {
        let link = self.connect().await?;
        self.prove(link, lane, patience).await
    }

    async fn prove(&self, link: SharedLink, lane: usize, patience: Duration) -> RedisResult<()> {
        self.test(&*link, lane, patience).await?;
        *self.link.write() = Some(link);
        Ok(())
    }

    async fn connect(&self) -> RedisResult<SharedLink> {
        let connecting = (self.connector).connect(self.connect_timeout, self.longest_call);
        connecting.await
    }

    /// Another connection than the one that is stuck, or the first. Many lanes need it at once: one of them connects for
    /// all, and not too often.
    async fn renew(
        &self,
        stuck: Option<&SharedLink>,
        lane: usize,
        patience: Duration,
    ) -> RedisResult<()> {
        let mut renewed = self.renewed.lock().await;
        let current = self.link.read().clone();
        if let Some(current) = current
            && stuck.is_none_or(|stuck| !Arc::ptr_eq(&current, stuck))
        {
            drop(renewed);
            return self.test(&*current, lane, patience).await;
        }
        let pauses = if stuck.is_some() { RENEWAL_PAUSES } else { 1 };
        let pause = pauses * self.patience.longest;
        if renewed.is_some_and(|at: Instant| at.elapsed() < pause) {
            return Err(error::timed_out());
        }
        let link = self.connect().await;
        *renewed = Some(Instant::now());
        let link = link?;
        if stuck.is_none() {
            *self.link.write() = Some(Arc::clone(&link));
        }
        // One that can do no better than the stuck one must not take its place: the other lanes live well with that.
        self.prove(link, lane, patience).await
    }

    async fn test(&self, link: &dyn Link, lane: usize, patience: Duration) -> RedisResult<()> {
        let found = timeout(patience, detect(link, self.lanes.probe_key(lane))).await;
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
                "the server has no RL module: limits are enforced by Lua scripts, which are slower and know only \
                 SLIDE, BUCKET and FIXED"
            );
        } else if before != 0 && before != code {
            tracing::warn!(
                ?backend,
                "the server changed: usage counted so far is left behind"
            );
        }
    }

    /// Makes sure that a policy is known well enough to decide by it should the server be away; asks on the side.
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
            let mut command = redis::cmd("RL.POLICY");
            command.arg("GET").arg(&*name);
            // Beside the breaker: a user who may check but not read policies is no fault of the server.
            match timeout(server.connect_timeout, link.call(&command)).await {
                Ok(Ok(reply)) => server.ledger.policies.learn(&name, reply),
                Ok(Err(error)) => {
                    let error = loggable(&error);
                    tracing::warn!(
                        error,
                        "a policy cannot be read: without the server, Local refuses it"
                    );
                }
                Err(_) => {}
            }
        });
    }

    /// A single call went unanswered and was decided here: if that does not open the breaker, whose closing settles
    /// accounts, they are settled in a moment.
    pub(crate) fn settle_soon(&self, lane: usize) {
        if !self.lanes.is_closed(lane) || self.settling_soon.swap(true, Relaxed) {
            return;
        }
        let (server, pause) = (self.me.clone(), self.patience.longest);
        self.runtime.spawn(async move {
            loop {
                sleep(Patience::jittered(pause)).await;
                let Some(server) = server.upgrade() else {
                    return;
                };
                for lane in server.closed_lanes_owing() {
                    server.settle_if_well(lane).await;
                }
                if server.closed_lanes_owing().is_empty() {
                    server.settling_soon.store(false, Relaxed);
                    // Unless something came in between, and nobody else looks after it.
                    if server.closed_lanes_owing().is_empty()
                        || server.settling_soon.swap(true, Relaxed)
                    {
                        return;
                    }
                }
            }
        });
    }

    /// Of these nobody else settles the accounts; an open lane's are when it closes.
    fn closed_lanes_owing(&self) -> BTreeSet<usize> {
        let mut owing = self.ledger.owing(|key| self.lanes.of(key));
        owing.retain(|&lane| self.lanes.is_closed(lane));
        owing
    }

    async fn settle_if_well(&self, lane: usize) {
        if self.lanes.is_failing(lane) {
            self.beat(lane).await;
        }
        // What is sent to a server that only stands still is charged when it wakes, and would be charged again.
        if !self.lanes.is_failing(lane) && !self.settle(lane).await {
            self.timed_out(lane);
        }
    }

    /// Charges what was admitted without the server; false if it fell silent, and has yet to hear the rest. A debt that it
    /// did not answer before does not count: a lane may lie on two nodes, and one of them be well.
    async fn settle(&self, lane: usize) -> bool {
        // One at a time, or a debt would be charged twice.
        let Ok(_settling) = self.settling[lane].try_lock() else {
            return true;
        };
        let mut debts = (self.ledger.debts(|key| self.lanes.of(key) == lane)).into_iter();
        let (mut settled, mut heard) = (0_u64, true);
        let mut running = JoinSet::new();
        loop {
            while heard && running.len() < SETTLED_AT_ONCE {
                let (Some(debt), Some(server)) = (debts.next(), self.me.upgrade()) else {
                    break;
                };
                running.spawn(async move {
                    let charged = server.settle_one(&debt).await;
                    if charged.is_none() {
                        server.ledger.unanswered(&debt);
                    }
                    (charged, debt.unanswered)
                });
            }
            match running.join_next().await {
                Some(Ok((Some(units), _))) => settled += units,
                Some(Ok((None, again))) => heard &= again,
                Some(Err(_)) => {}
                None => break,
            }
        }
        if settled > 0 {
            self.metrics.settled.increment(settled);
            tracing::info!(
                lane,
                units = settled,
                "charged what was admitted without the server"
            );
        }
        heard
    }

    /// The units charged; `None` if the server is silent.
    async fn settle_one(&self, debt: &Debt) -> Option<u64> {
        let link = self.link.read().clone()?;
        if debt.unanswered {
            // It may yet be charged when the server wakes: not again before it answers.
            let mut ask = redis::cmd("EXISTS");
            let answer = timeout(self.timeout, link.call(ask.arg(&*debt.key))).await;
            if answer.map_or(true, |answer| answer.is_err_and(|error| is_silence(&error))) {
                return None;
            }
        }
        let request = match self.backend()? {
            Backend::Module => {
                let mut call = script::SETTLE.on([&*debt.key].into_iter());
                call.arg(&debt.limit).arg(debt.units);
                Ok(call)
            }
            Backend::Lua => {
                let check = Check {
                    key: &debt.key,
                    limit: &debt.limit,
                    cost: debt.units,
                };
                lua_call(&[check], "SETTLE")
            }
        };
        let charged = match request {
            Ok(request) => match timeout(self.connect_timeout, request.run(&*link)).await {
                Ok(Ok(_)) => debt.units,
                Ok(Err(error)) if is_lasting(&error) => {
                    tracing::warn!(error = loggable(&error), "a key could not be charged");
                    0
                }
                // Loading, full, demoted: later.
                Ok(Err(error)) if !is_silence(&error) => return Some(0),
                Ok(Err(_)) | Err(_) => return None,
            },
            // Scripts cannot.
            Err(_) => 0,
        };
        self.ledger.settled(debt);
        Some(charged)
    }

    /// The request for a check, by what the server can do.
    pub(crate) fn request(&self, checks: &[Check<'_>], purpose: Purpose) -> Result<Request, Error> {
        if self.backend() == Some(Backend::Lua) {
            let mode = match purpose {
                Purpose::Check => "CHECK",
                Purpose::Peek => "PEEK",
                Purpose::Force => "FORCE",
            };
            return Ok(Request::Script(lua_call(checks, mode)?));
        }
        let mut command = match checks {
            [one] => commands::single(one.key, one.limit, one.cost),
            all => commands::multi(
                all.iter()
                    .map(|check| (&check.key, check.limit, check.cost)),
            ),
        };
        match purpose {
            Purpose::Check => {}
            Purpose::Peek => drop(command.arg("PEEK")),
            Purpose::Force => drop(command.arg("FORCE")),
        }
        Ok(Request::Command(command))
    }
}

/// The script that stands in for the module.
fn lua_call(checks: &[Check<'_>], mode: &str) -> Result<Call, Error> {
    let mut call = script::LIMITS.on(checks.iter().map(|check| check.key));
    call.arg(mode);
    for check in checks {
        let (refill, window) = match *check.limit {
            Limit::Slide { window, .. } | Limit::Fixed { window, .. } => (1, window),
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

/// Whether the server has the module, and takes writes: a probe that stores nothing.
async fn detect(link: &dyn Link, key: &str) -> RedisResult<Backend> {
    let free = commands::single(key, &Limit::slide(1, crate::SECOND), 0);
    match link.call(&free).await {
        Ok(_) => Ok(Backend::Module),
        Err(error) if is_unknown_command(&error) => {
            link.call(redis::cmd("DEL").arg(key)).await?;
            Ok(Backend::Lua)
        }
        Err(error) => Err(error),
    }
}

/// Asks, with growing pauses, until the server is back; then settles accounts and closes the breaker.
async fn probe(server: Weak<Server>, lane: usize, first_pause: Duration, patience: Patience) {
    let mut pause = first_pause;
    loop {
        sleep(Patience::jittered(pause)).await;
        let Some(server) = server.upgrade() else {
            return;
        };
        server.lanes.half_open(lane);
        server.metrics.half_opened.increment(1);
        tracing::debug!(lane, "breaker half open: asking whether the server is back");
        // A server slower than callers would wait for is not back yet.
        match server.revive(lane, server.timeout).await {
            // Before anyone asks, the server hears what it missed.
            Ok(()) if !server.settle(lane).await => server.lanes.reopen(lane),
            Ok(()) => {
                let down_for = server.lanes.close(lane);
                server.metrics.closed.increment(1);
                server.show_breaker();
                tracing::info!(lane, ?down_for, "breaker closed: the server decides again");
                // And what was decided while it was told, and what it would not hear of.
                if !server.settle(lane).await {
                    server.timed_out(lane);
                }
                server.settle_soon(lane);
                return;
            }
            Err(error) => {
                server.lanes.reopen(lane);
                tracing::debug!(lane, error = loggable(&error), "the server is not back");
            }
        }
        pause = (pause * 2).clamp(patience.shortest, patience.longest);
    }
}

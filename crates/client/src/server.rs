//! The server as a limiter sees it: a connection with a deadline, a breaker, and a way back.

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
use crate::error::{fault_kind, is_callers, is_lost_connection, is_unknown_command, loggable};
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
        self.fault(lane, io::Error::from(io::ErrorKind::TimedOut).into())
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
        let renewal = self.connector.renewal();
        let link = match current {
            Some(link) if renewal != Renewal::Always => {
                match self.test(&*link, lane, patience).await {
                    Err(error) if renewal == Renewal::WhenStuck => {
                        self.renew(&link).await?.ok_or(error)?
                    }
                    tested => return tested,
                }
            }
            _ => self.connector.connect(self.connect_timeout).await?,
        };
        self.test(&*link, lane, patience).await?;
        *self.link.write() = Some(link);
        Ok(())
    }

    async fn test(&self, link: &dyn Link, lane: usize, patience: Duration) -> RedisResult<()> {
        let found = timeout(patience, detect(link, self.lanes.probe_key(lane))).await;
        let found = found.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()));
        self.found(found?);
        Ok(())
    }

    /// Another connection than the one that is stuck. Many lanes fail at once: one of them connects for all, and not too
    /// often.
    async fn renew(&self, stuck: &SharedLink) -> RedisResult<Option<SharedLink>> {
        let mut renewed = self.renewed.lock().await;
        if let Some(current) = &*self.link.read()
            && !Arc::ptr_eq(current, stuck)
        {
            return Ok(Some(Arc::clone(current)));
        }
        let pause = RENEWAL_PAUSES * self.patience.longest;
        if renewed.is_some_and(|at: Instant| at.elapsed() < pause) {
            return Ok(None);
        }
        *renewed = Some(Instant::now());
        let link = self.connector.connect(self.connect_timeout).await?;
        *self.link.write() = Some(Arc::clone(&link));
        Ok(Some(link))
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
            sleep(Patience::jittered(pause)).await;
            let Some(server) = server.upgrade() else {
                return;
            };
            server.settling_soon.store(false, Relaxed);
            for lane in (0..server.lanes.len()).filter(|&lane| server.lanes.is_closed(lane)) {
                if server.lanes.is_failing(lane) {
                    server.beat(lane).await;
                }
                // What is sent to a server that only stands still is charged when it wakes, and would be charged again.
                match server.lanes.is_failing(lane) {
                    true => server.settle_soon(lane),
                    false => server.settle(lane).await,
                }
            }
        });
    }

    /// Charges what was admitted without the server; what it does not hear now, it hears later.
    async fn settle(&self, lane: usize) {
        // One at a time, or a debt would be charged twice.
        let _settling = self.settling[lane].lock().await;
        let debts = self.ledger.debts(|key| self.lanes.of(key) == lane);
        if debts.is_empty() {
            return;
        }
        let (keys, mut settled, mut unheard) = (debts.len(), 0_u64, 0_usize);
        let mut debts = debts.into_iter();
        let mut running = JoinSet::new();
        loop {
            while running.len() < SETTLED_AT_ONCE {
                let (Some(debt), Some(server)) = (debts.next(), self.me.upgrade()) else {
                    break;
                };
                running.spawn(async move { server.settle_one(debt).await });
            }
            match running.join_next().await {
                Some(Ok(Some(units))) => settled += units,
                Some(_) => unheard += 1,
                None => break,
            }
        }
        self.metrics.settled.increment(settled);
        tracing::info!(
            lane,
            keys,
            units = settled,
            unheard,
            "charged what was admitted without the server"
        );
        if unheard > 0 {
            self.settle_soon(lane);
        }
    }

    /// The units charged; `None` if the server did not hear of it.
    async fn settle_one(&self, debt: Debt) -> Option<u64> {
        let link = self.link.read().clone()?;
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
                Ok(Err(error)) if fault_kind(&error) == "server" => {
                    tracing::warn!(error = loggable(&error), "a key could not be charged");
                    0
                }
                Ok(Err(_)) | Err(_) => return None,
            },
            // Scripts cannot.
            Err(_) => 0,
        };
        self.ledger.settled(&debt);
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
            Ok(()) => {
                // Before anyone asks, the server hears what it missed.
                server.settle(lane).await;
                let down_for = server.lanes.close(lane);
                server.metrics.closed.increment(1);
                server.show_breaker();
                tracing::info!(lane, ?down_for, "breaker closed: the server decides again");
                // And what was decided while it was told.
                server.settle(lane).await;
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

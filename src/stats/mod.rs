//! Statistics of decisions, for people to see: RL.STATS, RL.TOP, RL.AUDIT and INFO.
//!
//! [`record`] is called once for each request that was allowed or denied by itself, except with PEEK. The statistics take a bounded amount of memory, and cannot make a
//! call fail.

mod audit_log;
pub(crate) mod audit_stream;
pub(crate) mod info;

use std::hash::{BuildHasher, Hasher, RandomState};

use rl_core::stats::{Counters, MINUTE_US, Outcome, TopKeys};
use rl_core::{Decision, Limit};

use crate::config::{Config, NumericSetting};
use crate::server::{ConfigAccess, Context, MainThread, OnMainThread, ServerStr};
use audit_log::AuditLog;
pub(crate) use audit_log::{AuditEntry, AuditValue};

static STATS: MainThread<Stats> = MainThread::new(Stats::new());

pub(crate) struct Stats {
    config: Config,
    /// The counters of the whole node.
    pub(crate) counters: Counters,
    pub(crate) top: Option<TopKeys>,
    pub(crate) audit_log: AuditLog,
    /// The start of the minute that counters and top keys count in.
    minute_us: u64,
    /// Denials to skip until the next one that is recorded.
    unsampled: i64,
    stream_errors: u64,
    /// Denials on their way into the stream.
    pending: Vec<AuditEntry>,
}

/// What denied a call.
#[derive(Clone, Copy)]
pub(crate) enum DeniedBy<'a> {
    Limit(Limit<'a>),
    /// An override that blocks the key.
    Block,
}

/// A request that was allowed or denied. Calls with PEEK are not observed.
#[derive(Clone, Copy)]
pub(crate) struct Observation<'a> {
    pub(crate) key: ServerStr<'a>,
    pub(crate) cost: u64,
    pub(crate) outcome: Outcome,
    pub(crate) policy: Option<PolicyObservation<'a>>,
    pub(crate) now_us: u64,
}

/// The details of a denial.
#[derive(Clone, Copy)]
pub(crate) struct Denial<'a> {
    pub(crate) by: DeniedBy<'a>,
    pub(crate) decision: Decision,
}

/// The policy through which a limit was checked.
#[derive(Clone, Copy)]
pub(crate) struct PolicyObservation<'a> {
    pub(crate) name: &'a [u8],
    /// The index of the limit in the policy, -1 for an override.
    pub(crate) index: i64,
    /// Whether the limit fixes its own cost.
    pub(crate) fixed_cost: bool,
    pub(crate) counters: &'a Counters,
}

impl Stats {
    const fn new() -> Self {
        Self {
            config: Config::new(),
            counters: Counters::new(0),
            top: None,
            audit_log: AuditLog::new(),
            minute_us: 0,
            unsampled: 0,
            stream_errors: 0,
            pending: Vec::new(),
        }
    }

    fn apply(&mut self, config: &Config) {
        let top_size = config.number(NumericSetting::TopSize) as usize;
        if self.top.is_none() || top_size != self.config.number(NumericSetting::TopSize) as usize {
            let seed = RandomState::new().build_hasher().finish();
            self.top = (top_size > 0).then(|| TopKeys::new(top_size, seed, self.minute_us));
        }
        self.audit_log
            .resize(config.number(NumericSetting::AuditMaxLen) as usize);
        self.unsampled = 0;
        self.config = config.clone();
    }

    #[inline(always)]
    fn is_current(&self, now_us: u64) -> bool {
        // Also false for a clock that stepped back.
        now_us.wrapping_sub(self.minute_us) < MINUTE_US
    }

    /// Starts a new minute.
    #[cold]
    #[inline(never)]
    fn roll_minute(&mut self, now_us: u64) {
        self.minute_us = now_us - now_us % MINUTE_US;
        self.counters.roll_minute(now_us);
        if let Some(top) = &mut self.top {
            top.roll_minute(now_us);
        }
    }

    /// Counts the first call of a minute.
    #[cold]
    #[inline(never)]
    fn count_first(&mut self, outcome: Outcome, key: &[u8], now_us: u64) {
        self.roll_minute(now_us);
        self.counters.increment(outcome);
        if let Some(top) = &mut self.top {
            top.record_check(key);
        }
    }

    /// Whether a denial is one of those to be recorded.
    fn is_sampled(&mut self) -> bool {
        if self.unsampled > 0 {
            self.unsampled -= 1;
            return false;
        }
        let every = self.config.number(NumericSetting::AuditSampleEvery);
        self.unsampled = (every - 1).max(0);
        every > 0
    }
}

/// How many requests were counted as decided since the start: RL.MULTI has one for each key.
pub(crate) fn decisions(ctx: &Context) -> u64 {
    let decided = [Outcome::Allowed, Outcome::Denied, Outcome::Forced];
    let sum = |stats: &mut Stats| decided.map(|one| stats.counters.total(one)).iter().sum();
    with(ctx, sum).unwrap_or(0)
}

/// Starts to count.
pub(crate) fn init(ctx: &Context) {
    with(ctx, |stats| stats.counters = Counters::new(ctx.now_us()));
}

/// Reads or changes the statistics. `body` must not make the server run commands.
#[inline(always)]
pub(crate) fn with<R>(proof: &impl OnMainThread, body: impl FnOnce(&mut Stats) -> R) -> Option<R> {
    STATS.with(proof, body)
}

/// Called when a setting changes.
pub(crate) fn configure(access: &ConfigAccess, config: &Config) {
    with(access, |stats| stats.apply(config));
}

/// Counts a decision, and logs it if it is a denial. Calls that cost nothing are not counted. `denial` is called only
/// for a denial: allowed calls need not have the details ready.
#[inline(always)]
pub(crate) fn record<'a>(
    ctx: &Context,
    observation: Observation<'a>,
    denial: impl FnOnce() -> Denial<'a>,
) {
    if observation.cost == 0 {
        return;
    }
    // A shadow limit that denies has allowed the call.
    let outcome = match observation.outcome {
        Outcome::ShadowDenied => Outcome::Allowed,
        outcome => outcome,
    };
    if let Some(policy) = observation.policy {
        policy.counters.add(outcome, 1, observation.now_us);
    }
    match observation.outcome {
        Outcome::Denied | Outcome::ShadowDenied => {
            record_denial(ctx, outcome, observation, denial());
        }
        _ => count(ctx, outcome, observation.key.as_bytes(), observation.now_us),
    }
}

/// Not inlined: it would be repeated in every command.
#[inline(never)]
fn count(ctx: &Context, outcome: Outcome, key: &[u8], now_us: u64) {
    with(ctx, |stats| {
        if !stats.is_current(now_us) {
            // A call of its own, so that the usual path saves no registers.
            return stats.count_first(outcome, key, now_us);
        }
        stats.counters.increment(outcome);
        if let Some(top) = &mut stats.top {
            top.record_check(key);
        }
    });
}

#[inline(never)]
fn record_denial(ctx: &Context, outcome: Outcome, observation: Observation, denial: Denial) {
    let key = observation.key.as_bytes();
    let streamed = with(ctx, |stats| {
        if !stats.is_current(observation.now_us) {
            stats.roll_minute(observation.now_us);
        }
        stats.counters.increment(outcome);
        if let Some(top) = &mut stats.top {
            if outcome == Outcome::Denied {
                top.record_denial(key);
            } else {
                top.record_check(key);
            }
        }
        if outcome != Outcome::Denied {
            stats.counters.increment(Outcome::ShadowDenied);
            if let Some(policy) = observation.policy {
                policy
                    .counters
                    .add(Outcome::ShadowDenied, 1, observation.now_us);
            }
        }
        if !stats.is_sampled() {
            return false;
        }
        let client = ctx.client_id();
        stats.audit_log.record(&observation, &denial, client);
        !stats.config.audit_stream.is_empty()
    });
    if streamed == Some(true) {
        audit_stream::add(ctx, &observation, &denial);
    }
}

/// Counts refunded units.
pub(crate) fn record_refund(ctx: &Context, units: u64) {
    if units > 0 {
        let now_us = ctx.now_us();
        with(ctx, |stats| {
            stats.counters.add(Outcome::RefundedUnits, units, now_us)
        });
    }
}

//! Decides one limit or several, commits what is to be charged, and records the outcome.

use rl_core::stats::Outcome;
use rl_core::syntax::CallOptions;
use rl_core::{Decision, Error, Evaluation, Expiry, Limit, Mode, NEVER, OVERRIDE_INDEX, Update};
use smallvec::SmallVec;

use super::commit::{self, Change};
use super::state_source::StateSource;
use super::{INLINE_LIMITS, Request};
use crate::error::CommandError;
use crate::server::{Context, Key};
use crate::stats::{self, Denial, Observation};

/// The decision of all limits together.
pub(crate) struct Verdict {
    pub(crate) allowed: bool,
    pub(crate) retry_after_ms: i64,
}

/// Decides one limit, and charges it if it allows the call.
#[inline(always)]
pub(crate) fn check_one(
    ctx: &Context,
    request: &Request,
    options: CallOptions,
    now_us: u64,
) -> Result<Decision, CommandError> {
    if let Some(decision) = request.decision_of_override() {
        if !options.contains(CallOptions::PEEK) {
            record_outcome(ctx, request, &decision, false, now_us);
        }
        return Ok(request.as_reported(decision));
    }
    let (limit, cost) = request.limit()?;
    let mut key = open(ctx, request, cost, options);
    let source = StateSource::read(request, &mut key, &limit)?;
    request.check_migration(ctx, key.state().is_some())?;
    let forced = is_forced(&limit, source, &key, now_us, cost, options)?;
    let outcome = source.evaluate(&key, &limit, now_us, cost, mode(options))?;
    if !options.contains(CallOptions::PEEK) {
        if let Some(update) = outcome.update {
            check_memory(ctx, &key)?;
            let change = source.commit(ctx, &mut key, request, &limit, update, outcome.expiry)?;
            if change == Change::Unreplicated {
                commit::mark_dirty(ctx);
            }
        }
        // Closed first: recording a denial may add to a stream, which other modules may react to.
        drop(key);
        record_outcome(ctx, request, &outcome.decision, forced, now_us);
    }
    Ok(request.as_reported(outcome.decision))
}

/// Decides several limits together, charges them if all allow the call, and passes the decisions to `reply`.
#[inline(always)]
pub(crate) fn check_all(
    ctx: &Context,
    requests: &[Request],
    options: CallOptions,
    now_us: u64,
    reply: impl FnOnce(Verdict, &mut dyn ExactSizeIterator<Item = Decision>),
) -> Result<(), CommandError> {
    let mut checks = SmallVec::<[LimitCheck; INLINE_LIMITS]>::new();
    for request in requests {
        match LimitCheck::new(ctx, request, now_us, options) {
            Ok(check) => checks.push(check),
            Err(error) => return Err(error.with_key(request.key.as_bytes())),
        }
    }
    let verdict = Verdict::of(&checks);
    if !verdict.allowed {
        for check in &mut checks {
            check.rollback(now_us)?;
        }
    }
    if !options.contains(CallOptions::PEEK) {
        for check in &checks {
            if check.outcome.update.is_some() {
                check_memory(ctx, &check.key)?;
            }
        }
        let mut unreplicated = false;
        for check in &mut checks {
            unreplicated |= check.commit(ctx)? == Change::Unreplicated;
        }
        if unreplicated {
            commit::mark_dirty(ctx);
        }
        // As in `check_one`. If nothing is denied, nothing is added to a stream.
        if checks.iter().any(|one| !one.outcome.decision.allowed) {
            for check in &mut checks {
                check.key = Key::none();
            }
        }
        for check in &checks {
            // A limit that allows what another one denies has not decided anything.
            if verdict.allowed || check.denies() {
                let (request, decision) = (check.request, &check.outcome.decision);
                record_outcome(ctx, request, decision, check.forced, now_us);
            }
        }
    }
    reply(
        verdict,
        &mut checks
            .iter()
            .map(|one| one.request.as_reported(one.outcome.decision)),
    );
    Ok(())
}

fn mode(options: CallOptions) -> Mode {
    if options.contains(CallOptions::FORCE) {
        Mode::Force
    } else {
        Mode::Check
    }
}

#[inline(always)]
fn open(ctx: &Context, request: &Request, cost: u64, options: CallOptions) -> Key {
    if !options.contains(CallOptions::PEEK) && cost > 0 {
        Key::open_to_write(ctx, request.key)
    } else {
        Key::open_to_read(ctx, request.key)
    }
}

/// A full server goes on checking the keys that it has, and creates no new ones. (The flag deny-oom would
/// refuse all calls.)
#[inline(always)]
fn check_memory(ctx: &Context, key: &Key) -> Result<(), CommandError> {
    if key.state().is_none() && ctx.is_full() {
        return Err(Error::OutOfMemory.into());
    }
    Ok(())
}

/// Whether the call is allowed only because of FORCE.
#[inline(always)]
fn is_forced(
    limit: &Limit,
    source: StateSource,
    key: &Key,
    now_us: u64,
    cost: u64,
    options: CallOptions,
) -> Result<bool, Error> {
    if options.contains(CallOptions::FORCE) {
        would_deny(*limit, source, key, now_us, cost)
    } else {
        Ok(false)
    }
}

#[cold]
#[inline(never)]
fn would_deny(
    limit: Limit,
    source: StateSource,
    key: &Key,
    now_us: u64,
    cost: u64,
) -> Result<bool, Error> {
    let outcome = source.evaluate(key, &limit, now_us, cost, Mode::Check)?;
    Ok(!outcome.decision.allowed)
}

/// Counts a decision, after the commit.
#[inline(always)]
fn record_outcome(
    ctx: &Context,
    request: &Request,
    decision: &Decision,
    forced: bool,
    now_us: u64,
) {
    let outcome = match (decision.allowed, forced) {
        (true, true) => Outcome::Forced,
        (true, false) => Outcome::Allowed,
        (false, _) if request.shadow => Outcome::ShadowDenied,
        (false, _) => Outcome::Denied,
    };
    let policy = request.effective_policy();
    let observation = Observation {
        key: request.key,
        cost: request.cost(decision.index),
        outcome,
        policy: policy.map(|policy| policy.observed(decision.index)),
        now_us,
    };
    stats::record(ctx, observation, || Denial {
        by: request.denied_by(decision.index),
        decision: *decision,
    });
}

/// One limit of a call: its open key and how it was evaluated. Nothing is written before the commit.
struct LimitCheck<'a> {
    request: &'a Request<'a>,
    key: Key,
    source: StateSource,
    outcome: Evaluation<Update<'a>>,
    /// Allowed only because of FORCE.
    forced: bool,
}

impl<'a> LimitCheck<'a> {
    #[inline(always)]
    fn new(
        ctx: &Context,
        request: &'a Request,
        now_us: u64,
        options: CallOptions,
    ) -> Result<Self, CommandError> {
        if let Some(decision) = request.decision_of_override() {
            return Ok(Self::decided_by_override(request, decision));
        }
        let (limit, cost) = request.limit()?;
        let mut key = open(ctx, request, cost, options);
        let source = StateSource::read(request, &mut key, &limit)?;
        request.check_migration(ctx, key.state().is_some())?;
        let forced = is_forced(&limit, source, &key, now_us, cost, options)?;
        let outcome = source.evaluate(&key, &limit, now_us, cost, mode(options))?;
        Ok(Self {
            request,
            key,
            source,
            outcome,
            forced,
        })
    }

    #[cold]
    fn decided_by_override(request: &'a Request, decision: Decision) -> Self {
        Self {
            request,
            key: Key::none(),
            source: StateSource::Stored,
            outcome: Evaluation {
                decision,
                update: None,
                expiry: Expiry {
                    at_ms: 0,
                    unchanged: true,
                },
            },
            forced: false,
        }
    }

    /// Whether this limit denies the call. A shadow limit never does.
    #[inline(always)]
    fn denies(&self) -> bool {
        !self.outcome.decision.allowed && !self.request.shadow
    }

    #[inline(always)]
    fn commit(&mut self, ctx: &Context) -> Result<Change, CommandError> {
        let Some(update) = self.outcome.update.take() else {
            return Ok(Change::Nothing);
        };
        let (request, expiry) = (self.request, self.outcome.expiry);
        match self.source {
            StateSource::Stored => {
                commit::commit(ctx, &mut self.key, request.key, update, Some(expiry))
            }
            source => {
                let (limit, _) = request.limit()?;
                source.commit(ctx, &mut self.key, request, &limit, update, expiry)
            }
        }
    }

    /// Another limit denied the call: what this one allowed is not charged, and `remaining` shows it.
    fn rollback(&mut self, now_us: u64) -> Result<(), CommandError> {
        if !self.denies() && self.outcome.decision.index != OVERRIDE_INDEX {
            let (limit, _) = self.request.limit()?;
            let source = self.source;
            self.outcome = source.evaluate(&self.key, &limit, now_us, 0, Mode::Check)?;
            // A holder that asked to keep less than it has may have more than a lowered limit.
            let decision = &mut self.outcome.decision;
            if !decision.allowed {
                decision.allowed = true;
                decision.retry_after_ms = 0;
            }
        }
        Ok(())
    }
}

impl Verdict {
    fn of(checks: &[LimitCheck]) -> Self {
        let mut verdict = Self {
            allowed: true,
            retry_after_ms: 0,
        };
        for check in checks.iter().filter(|one| one.denies()) {
            let decision = &check.outcome.decision;
            verdict.allowed = false;
            verdict.retry_after_ms = match (verdict.retry_after_ms, decision.retry_after_ms) {
                (NEVER, _) | (_, NEVER) => NEVER,
                (longest, other) => longest.max(other),
            };
        }
        verdict
    }
}

//! Decides one request or several, commits what is to be charged, and records the outcome.

use rl_core::stats::Outcome;
use rl_core::syntax::CallOptions;
use rl_core::{Decision, Error, Evaluation, Expiry, Limit, Mode, NEVER, OVERRIDE_INDEX, Update};
use smallvec::SmallVec;

use super::state_source::StateSource;
use super::{INLINE_REQUESTS, Request};
use crate::commit::{self, Change};
use crate::error::CommandError;
use crate::replication;
use crate::server::{Context, Key};
use crate::stats::{self, Denial, Observation};

/// The decision of all requests together.
pub(crate) struct Verdict {
    pub(crate) allowed: bool,
    pub(crate) retry_after_ms: i64,
}

/// Decides one request, and charges it if its limits allow the call.
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
    // The same as in `EvaluatedRequest::new`, but in registers: one limit takes 2 % fewer instructions this way.
    let (limit, cost) = request.limit()?;
    let mut key = open(ctx, request, cost, options);
    let source = StateSource::read(request, &mut key, &limit)?;
    request.check_migration(ctx, key.state().is_some())?;
    let forced = is_forced(&limit, source, &key, now_us, cost, options)?;
    let evaluation = source.evaluate(&key, &limit, now_us, cost, mode(options))?;
    if !options.contains(CallOptions::PEEK) {
        if let Some(update) = evaluation.update {
            commit::check_memory(ctx, key.state().is_none())?;
            let change = source.commit(ctx, &mut key, request, update, evaluation.expiry)?;
            if change == Change::Unreplicated {
                replication::mark_dirty(ctx);
            }
        }
        drop(key);
        record_outcome(ctx, request, &evaluation.decision, forced, now_us);
    }
    Ok(request.as_reported(evaluation.decision))
}

/// Decides several requests together, charges them if all limits allow the call, and passes the decisions to `reply`.
#[inline(always)]
pub(crate) fn check_all(
    ctx: &Context,
    requests: &[Request],
    options: CallOptions,
    now_us: u64,
    reply: impl FnOnce(Verdict, &mut dyn ExactSizeIterator<Item = Decision>),
) -> Result<(), CommandError> {
    let mut evaluated = SmallVec::<[EvaluatedRequest; INLINE_REQUESTS]>::new();
    for request in requests {
        match EvaluatedRequest::new(ctx, request, now_us, options) {
            Ok(one) => evaluated.push(one),
            Err(error) => return Err(error.with_key(request.key.as_bytes())),
        }
    }
    let verdict = Verdict::of(&evaluated);
    if !verdict.allowed {
        for one in &mut evaluated {
            one.reevaluate_uncharged(now_us)?;
        }
    }
    if !options.contains(CallOptions::PEEK) {
        for one in &evaluated {
            one.check_memory(ctx)?;
        }
        let mut unreplicated = false;
        for one in &mut evaluated {
            unreplicated |= one.commit(ctx)? == Change::Unreplicated;
        }
        if unreplicated {
            replication::mark_dirty(ctx);
        }
        for one in &evaluated {
            // A limit that allows what another one denies has not decided anything.
            if verdict.allowed || one.denies() {
                let (request, decision) = (one.request, &one.evaluation.decision);
                record_outcome(ctx, request, decision, one.forced, now_us);
            }
        }
    }
    reply(
        verdict,
        &mut evaluated
            .iter()
            .map(|one| one.request.as_reported(one.evaluation.decision)),
    );
    Ok(())
}

/// Every option changes what a call does: handle a new one in this file, then add it here.
const _: () = assert!(
    CallOptions::all().bits() == CallOptions::PEEK.union(CallOptions::FORCE).bits(),
    "src/check/evaluate.rs does not handle every option of a call"
);

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
    let unforced = source.evaluate(key, &limit, now_us, cost, Mode::Check)?;
    Ok(!unforced.decision.allowed)
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

/// A request with its open key and its evaluation. Nothing is written before the commit.
struct EvaluatedRequest<'a> {
    request: &'a Request<'a>,
    key: Key,
    source: StateSource,
    evaluation: Evaluation<Update<'a>>,
    /// Allowed only because of FORCE.
    forced: bool,
}

impl<'a> EvaluatedRequest<'a> {
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
        let evaluation = source.evaluate(&key, &limit, now_us, cost, mode(options))?;
        Ok(Self {
            request,
            key,
            source,
            evaluation,
            forced,
        })
    }

    #[cold]
    fn decided_by_override(request: &'a Request, decision: Decision) -> Self {
        Self {
            request,
            key: Key::none(),
            source: StateSource::Stored,
            evaluation: Evaluation {
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
        !self.evaluation.decision.allowed && !self.request.shadow
    }

    /// Fails if the commit would need a new key and memory is full.
    #[inline(always)]
    fn check_memory(&self, ctx: &Context) -> Result<(), CommandError> {
        let creates_key = self.evaluation.update.is_some() && self.key.state().is_none();
        commit::check_memory(ctx, creates_key)
    }

    #[inline(always)]
    fn commit(&mut self, ctx: &Context) -> Result<Change, CommandError> {
        let Some(update) = self.evaluation.update.take() else {
            return Ok(Change::Nothing);
        };
        let expiry = self.evaluation.expiry;
        self.source
            .commit(ctx, &mut self.key, self.request, update, expiry)
    }

    /// Another request denied the call: what this one allowed is not charged, and `remaining` has to show that.
    fn reevaluate_uncharged(&mut self, now_us: u64) -> Result<(), CommandError> {
        if !self.denies() && self.evaluation.decision.index != OVERRIDE_INDEX {
            let (limit, _) = self.request.limit()?;
            let source = self.source;
            self.evaluation = source.evaluate(&self.key, &limit, now_us, 0, Mode::Check)?;
            // A holder that asked to keep less than it has may have more than a lowered limit.
            let decision = &mut self.evaluation.decision;
            if !decision.allowed {
                decision.allowed = true;
                decision.retry_after_ms = 0;
            }
        }
        Ok(())
    }
}

impl Verdict {
    fn of(evaluated: &[EvaluatedRequest]) -> Self {
        let mut verdict = Self {
            allowed: true,
            retry_after_ms: 0,
        };
        for one in evaluated.iter().filter(|one| one.denies()) {
            let decision = &one.evaluation.decision;
            verdict.allowed = false;
            verdict.retry_after_ms = match (verdict.retry_after_ms, decision.retry_after_ms) {
                (NEVER, _) | (_, NEVER) => NEVER,
                (longest, other) => longest.max(other),
            };
        }
        verdict
    }
}

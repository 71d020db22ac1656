//! The one path of every limit: read the time, open the keys, evaluate all, commit all, reply.
//!
//! One limit and several take the same steps, on a [`Check`] each; RL.PEEK leaves out the commit.

use rl_core::parse::{Options, Spec};
use rl_core::{Decision, Error, Expiry, Limit, Mode, NEVER, Next, Outcome, State};
use smallvec::SmallVec;

use crate::eyes::{self, Answer, By, Denial, Seen};
use crate::failure::Failure;
use crate::redis::{Arg, Context, Key};
use crate::replicate;

/// Calls of up to this many limits allocate nothing.
pub(crate) const INLINE: usize = 8;

/// A limit to be checked on a key.
pub(crate) struct Request<'a> {
    pub(crate) name: Arg<'a>,
    pub(crate) spec: Spec<'a>,
}

/// The answer of all limits together.
pub(crate) struct Verdict {
    pub(crate) allowed: bool,
    pub(crate) retry_after_ms: i64,
}

/// Decides one limit, and consumes if it allows.
#[inline(always)]
pub(crate) fn one(ctx: &Context, request: &Request, options: Options) -> Result<Decision, Failure> {
    let now_us = ctx.now_us();
    let mut check = Check::evaluate(ctx, request, now_us, options)?;
    if !options.peek {
        check.needs_room(ctx)?;
        if check.commit(ctx)? == Change::Unheard {
            replicate::unheard(ctx);
        }
        check.is_seen(ctx, now_us);
    }
    Ok(check.outcome.decision)
}

/// Decides several limits together, consumes if all allow, and hands the answers to `reply`.
pub(crate) fn all(
    ctx: &Context,
    requests: &[Request],
    options: Options,
    reply: impl FnOnce(Verdict, &mut dyn ExactSizeIterator<Item = Decision>),
) -> Result<(), Failure> {
    let now_us = ctx.now_us();
    let mut checks = SmallVec::<[Check; INLINE]>::new();
    for request in requests {
        checks.push(Check::evaluate(ctx, request, now_us, options)?);
    }
    let verdict = Verdict::of(&checks);
    if !verdict.allowed {
        for check in &mut checks {
            check.unspend(now_us)?;
        }
    }
    if !options.peek {
        for check in &checks {
            check.needs_room(ctx)?;
        }
        let mut unheard = false;
        for check in &mut checks {
            unheard |= check.commit(ctx)? == Change::Unheard;
        }
        if unheard {
            replicate::unheard(ctx);
        }
        for check in &checks {
            // What allowed while another denied has not decided anything.
            if verdict.allowed || !check.outcome.decision.allowed {
                check.is_seen(ctx, now_us);
            }
        }
    }
    reply(
        verdict,
        &mut checks.iter().map(|check| check.outcome.decision),
    );
    Ok(())
}

/// What a commit wrote.
#[derive(PartialEq, Eq)]
pub(crate) enum Change {
    Nothing,
    /// A change that replicas and the AOF received.
    Sent,
    /// A change that nobody receives, to be counted once for the whole command.
    Unheard,
}

/// One limit of a call: its open key and what became of it. Nothing is written before the commit.
struct Check<'a> {
    request: &'a Request<'a>,
    key: Key,
    outcome: Outcome<Next<'a>>,
    /// Whether FORCE alone made it pass.
    forced: bool,
}

impl<'a> Check<'a> {
    #[inline(always)]
    fn evaluate(
        ctx: &Context,
        request: &'a Request,
        now_us: u64,
        options: Options,
    ) -> Result<Self, Failure> {
        let Spec { limit, cost } = &request.spec;
        let mut key = if !options.peek && *cost > 0 {
            Key::open_to_write(ctx, request.name)
        } else {
            Key::open_to_read(ctx, request.name)
        };
        key.read(limit.algorithm())?;
        let (mode, forced) = if options.force {
            let denied = would_deny(*limit, key.state(), now_us, *cost)?;
            (Mode::Force, denied)
        } else {
            (Mode::Check, false)
        };
        let outcome = limit.evaluate(key.state(), now_us, *cost, mode)?;
        Ok(Self {
            request,
            key,
            outcome,
            forced,
        })
    }

    /// A full server goes on checking the keys that it has, and makes no new ones. (The flag deny-oom would
    /// refuse the others too.)
    #[inline(always)]
    fn needs_room(&self, ctx: &Context) -> Result<(), Failure> {
        let new = self.outcome.next.is_some() && self.key.state().is_none();
        if new && ctx.is_full() {
            return Err(Error::OutOfMemory.into());
        }
        Ok(())
    }

    /// Writes what the outcome leaves to be written.
    #[inline(always)]
    fn commit(&mut self, ctx: &Context) -> Result<Change, Failure> {
        match self.outcome.next.take() {
            Some(next) => {
                let expiry = Some(self.outcome.expiry);
                commit(ctx, &mut self.key, self.request.name, next, expiry)
            }
            None => Ok(Change::Nothing),
        }
    }

    /// Counts the answer, after the commit.
    #[inline(always)]
    fn is_seen(&self, ctx: &Context, now_us: u64) {
        let decision = &self.outcome.decision;
        let answer = match (decision.allowed, self.forced) {
            (false, _) => Answer::Denied,
            (true, true) => Answer::Forced,
            (true, false) => Answer::Allowed,
        };
        let seen = Seen {
            name: self.request.name,
            cost: self.request.spec.cost,
            answer,
            policy: None,
            now_us,
        };
        eyes::saw(ctx, seen, || Denial {
            by: By::Limit(self.request.spec.limit),
            decision: *decision,
        });
    }

    /// Another limit denied the call: what this one allowed is not spent, and what is left says so.
    fn unspend(&mut self, now_us: u64) -> Result<(), Failure> {
        if self.outcome.decision.allowed {
            let limit = &self.request.spec.limit;
            self.outcome = limit.evaluate(self.key.state(), now_us, 0, Mode::Check)?;
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

/// Whether FORCE makes a difference; asked of forced calls alone.
#[cold]
#[inline(never)]
fn would_deny(limit: Limit, state: Option<&State>, now_us: u64, cost: u64) -> Result<bool, Error> {
    let outcome = limit.evaluate(state, now_us, cost, Mode::Check)?;
    Ok(!outcome.decision.allowed)
}

/// Takes the step to the next state: value, expiry, watchers, replicas and AOF.
#[inline(always)]
pub(crate) fn commit(
    ctx: &Context,
    key: &mut Key,
    name: Arg,
    next: Next,
    expiry: Option<Expiry>,
) -> Result<Change, Failure> {
    let blob = replicate::is_listened_to().then(|| next.blob());
    key.store(next)?;
    let expiry = expiry.unwrap_or_else(|| Expiry {
        at_ms: key.state().map_or(0, |state| state.expire_at_ms()),
        unmoved: false,
    });
    let expire_at_ms = expiry.at_ms as i64;
    // Somebody may have set another expiry by hand. It lasts until ours next moves; but replicas receive
    // ours with every state, so with replicas it ends here too.
    let differs = || blob.is_some() && key.expiry_differs(expire_at_ms);
    if !expiry.unmoved || differs() {
        key.expire_at(expire_at_ms);
    }
    ctx.signal_modified(name);
    match blob {
        Some(blob) => {
            ctx.replicate_load(name, expire_at_ms, &blob);
            Ok(Change::Sent)
        }
        None => Ok(Change::Unheard),
    }
}

impl Verdict {
    fn of(checks: &[Check]) -> Self {
        let mut verdict = Self {
            allowed: true,
            retry_after_ms: 0,
        };
        let decisions = checks.iter().map(|check| check.outcome.decision);
        for decision in decisions.filter(|decision| !decision.allowed) {
            verdict.allowed = false;
            verdict.retry_after_ms = match (verdict.retry_after_ms, decision.retry_after_ms) {
                (NEVER, _) | (_, NEVER) => NEVER,
                (longest, other) => longest.max(other),
            };
        }
        verdict
    }
}

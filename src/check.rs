//! The one path of every limit: read the time, open the keys, evaluate all, commit all, reply.
//!
//! One limit and several take the same steps, on a [`Check`] each; RL.PEEK leaves out the commit.

use rl_core::parse::{self, Options, Spec};
use rl_core::{Decision, Error, Expiry, Limit, Mode, NEVER, NO_INDEX, Next, Outcome, State};
use smallvec::SmallVec;

use crate::failure::Failure;
use crate::overrides::Applied;
use crate::redis::{Arg, Context, Key};
use crate::replicate;

/// Calls of up to this many limits allocate nothing.
pub(crate) const INLINE: usize = 8;

/// A limit to be checked on a key.
pub(crate) struct Request<'a> {
    pub(crate) name: Arg<'a>,
    pub(crate) by: By<'a>,
    /// Evaluated and counted, but not enforced.
    pub(crate) shadow: bool,
}

/// Where a request's limits come from.
pub(crate) enum By<'a> {
    Spec(Spec<'a>),
    Policy(Applied),
}

impl<'a> Request<'a> {
    #[inline(always)]
    pub(crate) fn spec(name: Arg<'a>, spec: Spec<'a>) -> Self {
        Self {
            name,
            by: By::Spec(spec),
            shadow: false,
        }
    }

    #[inline(always)]
    pub(crate) fn policy(
        ctx: &Context,
        name: Arg<'a>,
        policy: &[u8],
        cost: u64,
        now_us: u64,
    ) -> Result<Self, Error> {
        let applied = Applied::find(ctx, name, policy, cost, now_us)?;
        Ok(Self {
            name,
            shadow: applied.policy.policy.shadow,
            by: By::Policy(applied),
        })
    }

    /// What RL.MULTI and RL.PEEK ask of one key.
    pub(crate) fn of(
        ctx: &Context,
        name: Arg<'a>,
        ask: parse::Ask<'a>,
        now_us: u64,
    ) -> Result<Self, Error> {
        let mut request = match ask.by {
            parse::By::Spec(spec) => Self::spec(name, spec),
            parse::By::Policy { name: policy, cost } => {
                Self::policy(ctx, name, policy, cost, now_us)?
            }
        };
        request.shadow |= ask.shadow;
        Ok(request)
    }

    #[inline(always)]
    fn limit(&self) -> Result<(Limit<'_>, u64), Error> {
        match &self.by {
            By::Spec(spec) => Ok((spec.limit, spec.cost)),
            By::Policy(applied) => applied.limit(),
        }
    }
}

/// The answer of all limits together.
pub(crate) struct Verdict {
    pub(crate) allowed: bool,
    pub(crate) retry_after_ms: i64,
}

/// Decides one limit, and consumes if it allows.
#[inline(always)]
pub(crate) fn one(
    ctx: &Context,
    request: &Request,
    options: Options,
    now_us: u64,
) -> Result<Decision, Failure> {
    let mut check = Check::evaluate(ctx, request, now_us, options)?;
    if !options.peek {
        check.needs_room(ctx)?;
        if check.commit(ctx)? == Change::Unheard {
            replicate::unheard(ctx);
        }
    }
    Ok(check.outcome.decision)
}

/// Decides several limits together, consumes if all allow, and hands the answers to `reply`.
pub(crate) fn all(
    ctx: &Context,
    requests: &[Request],
    options: Options,
    now_us: u64,
    reply: impl FnOnce(Verdict, &mut dyn ExactSizeIterator<Item = Decision>),
) -> Result<(), Failure> {
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
    from: From,
    outcome: Outcome<Next<'a>>,
}

/// What a decision was made from.
enum From {
    /// What the key holds.
    Key,
    /// What the key's usage becomes under a policy that has changed; nothing where nothing is of use.
    Adopted(Option<Box<State>>),
}

impl<'a> Check<'a> {
    #[inline(always)]
    fn evaluate(
        ctx: &Context,
        request: &'a Request,
        now_us: u64,
        options: Options,
    ) -> Result<Self, Failure> {
        if let By::Policy(applied) = &request.by
            && let Some(decision) = applied.decided()
        {
            return Ok(Self::decided(request, decision));
        }
        let (limit, cost) = request.limit()?;
        let mut key = if !options.peek && cost > 0 {
            Key::open_to_write(ctx, request.name)
        } else {
            Key::open_to_read(ctx, request.name)
        };
        let mut from = From::Key;
        match key.read(limit.algorithm()) {
            Ok(()) => {
                if matches!(limit, Limit::Group(_))
                    && key.state().is_some_and(|state| !limit.fits(state))
                {
                    from = adopt(&key, &limit)?;
                }
            }
            // Only a policy may turn a key into one of another algorithm.
            Err(Failure::OtherAlgorithm { .. }) if matches!(request.by, By::Policy(_)) => {
                from = adopt_other(&mut key, &limit)?;
            }
            Err(failure) => return Err(failure),
        }
        let mode = if options.force {
            Mode::Force
        } else {
            Mode::Check
        };
        let mut outcome = limit.evaluate(from.state(&key), now_us, cost, mode)?;
        if request.shadow {
            outcome.decision.pass();
        }
        Ok(Self {
            request,
            key,
            from,
            outcome,
        })
    }

    /// An override answers for the limits; the key is not even looked at.
    #[cold]
    fn decided(request: &'a Request, mut decision: Decision) -> Self {
        if request.shadow {
            decision.pass();
        }
        Self {
            request,
            key: Key::none(),
            from: From::Key,
            outcome: Outcome {
                decision,
                next: None,
                expiry: Expiry {
                    at_ms: 0,
                    unmoved: true,
                },
            },
        }
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
                let mut expiry = self.outcome.expiry;
                let next = match &mut self.from {
                    From::Key => next,
                    From::Adopted(state) => {
                        expiry.unmoved = false;
                        match follow(state.take(), next) {
                            Some(next) => next,
                            None => return Ok(Change::Nothing),
                        }
                    }
                };
                let expiry = Some(expiry);
                commit(ctx, &mut self.key, self.request.name, next, expiry)
            }
            None => Ok(Change::Nothing),
        }
    }

    /// Another limit denied the call: what this one allowed is not spent, and what is left says so.
    fn unspend(&mut self, now_us: u64) -> Result<(), Failure> {
        if self.outcome.decision.allowed && self.outcome.decision.index != NO_INDEX {
            let (limit, _) = self.request.limit()?;
            self.outcome = limit.evaluate(self.from.state(&self.key), now_us, 0, Mode::Check)?;
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

impl From {
    #[inline(always)]
    fn state<'s>(&'s self, key: &'s Key) -> Option<&'s State> {
        match self {
            Self::Key => key.state(),
            Self::Adopted(state) => state.as_deref(),
        }
    }
}

/// The key's usage goes on under limits that have changed.
#[cold]
fn adopt(key: &Key, limit: &Limit) -> Result<From, Failure> {
    let Some(state) = key.state() else {
        return Ok(From::Key);
    };
    let adopted = limit.adopt(state).map_err(|_| Failure::OtherAlgorithm {
        holds: state.algorithm(),
        asked: limit.algorithm(),
    })?;
    Ok(From::Adopted(adopted.map(Box::new)))
}

#[cold]
fn adopt_other(key: &mut Key, limit: &Limit) -> Result<From, Failure> {
    key.read_any()?;
    adopt(key, limit)
}

/// The whole state that a step from another one than the key's leads to.
#[cold]
fn follow<'a>(from: Option<Box<State>>, next: Next<'a>) -> Option<Next<'a>> {
    let state = match from {
        Some(mut state) => {
            state.advance(next);
            Some(*state)
        }
        None => next.begin(),
    };
    state.map(Next::Whole)
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

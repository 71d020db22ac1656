//! The one path of every limit: read the time, open the keys, evaluate all, commit all, reply.
//!
//! One limit and several take the same steps, on a [`Check`] each; RL.PEEK leaves out the commit.

use rl_core::parse::{self, Options, Spec};
use rl_core::{Decision, Error, Expiry, Limit, Mode, NEVER, NO_INDEX, Next, Outcome, State};
use smallvec::SmallVec;

use crate::eyes::{self, Answer, Denial, Seen};
use crate::failure::Failure;
use crate::overrides::Applied;
use crate::redis::{Arg, Context, Key};
use crate::replicate;

/// Calls of up to this many limits allocate nothing.
pub(crate) const INLINE: usize = 8;

/// A limit to be checked on a key.
pub(crate) struct Request<'a, L = By<'a>> {
    pub(crate) name: Arg<'a>,
    pub(crate) limits: L,
    /// Evaluated and counted, but not enforced.
    pub(crate) shadow: bool,
}

/// Where a request's limits come from. Commands that know which it is spare the question.
pub(crate) trait Limits {
    /// The limits as one, and what the call takes of it.
    fn limit(&self) -> Result<(Limit<'_>, u64), Error>;
    /// The policy, if there is one.
    fn policy(&self) -> Option<&Applied>;
    /// What the call takes of the limit that decided.
    fn cost(&self, index: i8) -> u64;
    /// What decided.
    fn decider(&self, index: i8) -> eyes::By<'_>;
}

/// One or the other.
pub(crate) enum By<'a> {
    Spec(Spec<'a>),
    Policy(Box<Applied>),
}

impl Limits for Spec<'_> {
    #[inline(always)]
    fn limit(&self) -> Result<(Limit<'_>, u64), Error> {
        Ok((self.limit, self.cost))
    }

    #[inline(always)]
    fn policy(&self) -> Option<&Applied> {
        None
    }

    #[inline(always)]
    fn cost(&self, _index: i8) -> u64 {
        self.cost
    }

    #[inline(always)]
    fn decider(&self, _index: i8) -> eyes::By<'_> {
        eyes::By::Limit(self.limit)
    }
}

impl Limits for Applied {
    #[inline(always)]
    fn limit(&self) -> Result<(Limit<'_>, u64), Error> {
        Applied::limit(self)
    }

    #[inline(always)]
    fn policy(&self) -> Option<&Applied> {
        Some(self)
    }

    #[inline(always)]
    fn cost(&self, index: i8) -> u64 {
        Applied::cost(self, index)
    }

    fn decider(&self, index: i8) -> eyes::By<'_> {
        match self.rule(index) {
            Some(rule) => eyes::By::Limit(rule.limit),
            None => eyes::By::Block,
        }
    }
}

impl Limits for By<'_> {
    #[inline(always)]
    fn limit(&self) -> Result<(Limit<'_>, u64), Error> {
        match self {
            By::Spec(spec) => spec.limit(),
            By::Policy(applied) => Applied::limit(applied),
        }
    }

    #[inline(always)]
    fn policy(&self) -> Option<&Applied> {
        match self {
            By::Spec(_) => None,
            By::Policy(applied) => Some(applied),
        }
    }

    #[inline(always)]
    fn cost(&self, index: i8) -> u64 {
        match self {
            By::Spec(spec) => spec.cost,
            By::Policy(applied) => Applied::cost(applied, index),
        }
    }

    fn decider(&self, index: i8) -> eyes::By<'_> {
        match self {
            By::Spec(spec) => spec.decider(index),
            By::Policy(applied) => applied.decider(index),
        }
    }
}

impl<'a> Request<'a, Spec<'a>> {
    #[inline(always)]
    pub(crate) fn spec(name: Arg<'a>, spec: Spec<'a>) -> Self {
        Self {
            name,
            limits: spec,
            shadow: false,
        }
    }
}

impl<'a> Request<'a, Applied> {
    #[inline(always)]
    pub(crate) fn policy(name: Arg<'a>, limits: Applied) -> Self {
        let shadow = limits.policy.policy.shadow;
        Self {
            name,
            limits,
            shadow,
        }
    }
}

impl<'a> Request<'a> {
    /// What RL.MULTI and RL.PEEK ask of one key.
    #[inline(always)]
    pub(crate) fn of(
        ctx: &Context,
        name: Arg<'a>,
        ask: parse::Ask<'a>,
        now_us: u64,
    ) -> Result<Self, Error> {
        let mut shadow = ask.shadow;
        let limits = match ask.by {
            parse::By::Spec(spec) => By::Spec(spec),
            parse::By::Policy { name: policy, cost } => {
                let applied = Applied::find(ctx, name, policy, cost, now_us)?;
                shadow |= applied.policy.policy.shadow;
                By::Policy(Box::new(applied))
            }
        };
        Ok(Self {
            name,
            limits,
            shadow,
        })
    }
}

impl<L: Limits> Request<'_, L> {
    /// What is answered without asking any limit: an override decides, the key is not even looked at.
    #[inline(always)]
    fn decided(&self) -> Option<Decision> {
        self.limits.policy()?.decided()
    }

    /// Takes notice of an answer, after the commit.
    #[inline(always)]
    fn is_seen(&self, ctx: &Context, decision: &Decision, forced: bool, now_us: u64) {
        let answer = match (decision.allowed, forced) {
            (true, true) => Answer::Forced,
            (true, false) => Answer::Allowed,
            (false, _) if self.shadow => Answer::ShadowDenied,
            (false, _) => Answer::Denied,
        };
        let policy = self.limits.policy();
        let seen = Seen {
            name: self.name,
            cost: self.limits.cost(decision.index),
            answer,
            policy: policy.map(|applied| applied.seen(decision.index)),
            now_us,
        };
        eyes::saw(ctx, seen, || Denial {
            by: self.limits.decider(decision.index),
            decision: *decision,
        });
    }

    /// As the caller is told.
    #[inline(always)]
    fn told(&self, mut decision: Decision) -> Decision {
        if self.shadow {
            decision.pass();
        }
        decision
    }

    /// Whether FORCE alone makes a call pass; asked of forced calls alone.
    #[inline(always)]
    fn is_forced(
        &self,
        limit: &Limit,
        state: Option<&State>,
        now_us: u64,
        cost: u64,
        options: Options,
    ) -> Result<bool, Error> {
        if options.force {
            would_deny(*limit, state, now_us, cost)
        } else {
            Ok(false)
        }
    }

    #[inline(always)]
    fn open(&self, ctx: &Context, cost: u64, options: Options) -> Key {
        if !options.peek && cost > 0 {
            Key::open_to_write(ctx, self.name)
        } else {
            Key::open_to_read(ctx, self.name)
        }
    }

    /// Reads the key, and tells from where the limit goes on.
    #[inline(always)]
    fn read(&self, key: &mut Key, limit: &Limit) -> Result<From, Failure> {
        match key.read(limit.algorithm()) {
            Ok(()) => match limit {
                Limit::Group(_) if key.state().is_some_and(|state| !limit.fits(state)) => {
                    adopt(key, limit)
                }
                _ => Ok(From::Key),
            },
            // Only a policy may turn a key into one of another algorithm.
            Err(Failure::OtherAlgorithm { .. }) if self.limits.policy().is_some() => {
                key.read_any()?;
                adopt(key, limit)
            }
            Err(failure) => Err(failure),
        }
    }
}

fn mode(options: Options) -> Mode {
    if options.force {
        Mode::Force
    } else {
        Mode::Check
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
    request: &Request<impl Limits>,
    options: Options,
    now_us: u64,
) -> Result<Decision, Failure> {
    if let Some(decision) = request.decided() {
        if !options.peek {
            request.is_seen(ctx, &decision, false, now_us);
        }
        return Ok(request.told(decision));
    }
    let (limit, cost) = request.limits.limit()?;
    let mut key = request.open(ctx, cost, options);
    let mut from = request.read(&mut key, &limit)?;
    let forced = request.is_forced(&limit, from.state(&key), now_us, cost, options)?;
    let outcome = limit.evaluate(from.state(&key), now_us, cost, mode(options))?;
    if !options.peek {
        if let Some(next) = outcome.next {
            needs_room(ctx, &key)?;
            let change = from.commit(ctx, &mut key, request.name, next, outcome.expiry)?;
            if change == Change::Unheard {
                replicate::unheard(ctx);
            }
        }
        request.is_seen(ctx, &outcome.decision, forced, now_us);
    }
    Ok(request.told(outcome.decision))
}

/// Decides several limits together, consumes if all allow, and hands the answers to `reply`.
#[inline(always)]
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
            if check.outcome.next.is_some() {
                needs_room(ctx, &check.key)?;
            }
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
            if verdict.allowed || check.denies() {
                let decision = &check.outcome.decision;
                check.request.is_seen(ctx, decision, check.forced, now_us);
            }
        }
    }
    reply(
        verdict,
        &mut checks
            .iter()
            .map(|check| check.request.told(check.outcome.decision)),
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
    /// Whether FORCE alone made it pass.
    forced: bool,
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
        if let Some(decision) = request.decided() {
            return Ok(Self::decided(request, decision));
        }
        let (limit, cost) = request.limits.limit()?;
        let mut key = request.open(ctx, cost, options);
        let from = request.read(&mut key, &limit)?;
        let forced = request.is_forced(&limit, from.state(&key), now_us, cost, options)?;
        let outcome = limit.evaluate(from.state(&key), now_us, cost, mode(options))?;
        Ok(Self {
            request,
            key,
            from,
            outcome,
            forced,
        })
    }

    #[cold]
    fn decided(request: &'a Request, decision: Decision) -> Self {
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
            forced: false,
        }
    }

    /// Whether this limit denies the call. One on trial never does.
    #[inline(always)]
    fn denies(&self) -> bool {
        !self.outcome.decision.allowed && !self.request.shadow
    }

    /// Writes what the outcome leaves to be written.
    #[inline(always)]
    fn commit(&mut self, ctx: &Context) -> Result<Change, Failure> {
        match self.outcome.next.take() {
            Some(next) => {
                let (name, expiry) = (self.request.name, self.outcome.expiry);
                self.from.commit(ctx, &mut self.key, name, next, expiry)
            }
            None => Ok(Change::Nothing),
        }
    }

    /// Another limit denied the call: what this one allowed is not spent, and what is left says so.
    fn unspend(&mut self, now_us: u64) -> Result<(), Failure> {
        if !self.denies() && self.outcome.decision.index != NO_INDEX {
            let (limit, _) = self.request.limits.limit()?;
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

    #[inline(always)]
    fn commit(
        &mut self,
        ctx: &Context,
        key: &mut Key,
        name: Arg,
        next: Next,
        expiry: Expiry,
    ) -> Result<Change, Failure> {
        match self {
            Self::Key => commit(ctx, key, name, next, Some(expiry)),
            Self::Adopted(state) => match follow(state.take(), next) {
                Some(next) => {
                    let expiry = Expiry {
                        unmoved: false,
                        ..expiry
                    };
                    commit(ctx, key, name, next, Some(expiry))
                }
                None => Ok(Change::Nothing),
            },
        }
    }
}

/// A full server goes on checking the keys that it has, and makes no new ones. (The flag deny-oom would
/// refuse the others too.)
#[inline(always)]
fn needs_room(ctx: &Context, key: &Key) -> Result<(), Failure> {
    if key.state().is_none() && ctx.is_full() {
        return Err(Error::OutOfMemory.into());
    }
    Ok(())
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
        for check in checks.iter().filter(|check| check.denies()) {
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

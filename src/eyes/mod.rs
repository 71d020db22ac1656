//! What the limits do, for people to see: RL.STATS, RL.TOP, RL.AUDIT and INFO.
//!
//! Every answered call passes [`saw`] once for each limit. All of it is bounded in memory, and none of it
//! can fail a call.

mod audit;
pub(crate) mod stream;

use std::hash::{BuildHasher, Hasher, RandomState};

use rl_core::{Counted, Decision, Limit, MINUTE_US, Tally, Top};

use crate::redis::{Arg, Context, MainThread, OnMainThread};
use crate::settings::{Number, Settings};
use audit::Ring;
pub(crate) use audit::{Entry, Shown};

static EYES: MainThread<Eyes> = MainThread::new(Eyes::new());

pub(crate) struct Eyes {
    settings: Settings,
    /// Of the whole node.
    pub(crate) tally: Tally,
    pub(crate) top: Option<Top>,
    pub(crate) audit: Ring,
    /// When the minute began to which tally and top were last told to count.
    minute_us: u64,
    /// Denials until the next one that is recorded.
    unsampled: i64,
    pub(crate) stream_errors: u64,
    /// Denials on their way into the stream.
    waiting: Vec<Entry>,
}

/// How a limit answered a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Allowed,
    Denied,
    /// Allowed by FORCE only.
    Forced,
    /// Allowed because the limit is on trial.
    ShadowDenied,
}

/// What decided.
#[derive(Clone, Copy)]
pub(crate) enum By<'a> {
    Limit(Limit<'a>),
    /// An override that blocks the key.
    Block,
}

/// One limit of a call that was answered and not only asked about.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) name: Arg<'a>,
    pub(crate) cost: u64,
    pub(crate) answer: Answer,
    pub(crate) policy: Option<Policy<'a>>,
    pub(crate) now_us: u64,
}

/// What there is to tell of a denial.
#[derive(Clone, Copy)]
pub(crate) struct Denial<'a> {
    pub(crate) by: By<'a>,
    pub(crate) decision: Decision,
}

/// The policy through which a limit was checked.
#[derive(Clone, Copy)]
pub(crate) struct Policy<'a> {
    pub(crate) name: &'a [u8],
    /// The limit's place in it, -1 for an override.
    pub(crate) index: i64,
    /// Whether the limit fixes its own cost.
    pub(crate) fixed_cost: bool,
    pub(crate) tally: &'a Tally,
}

impl Eyes {
    const fn new() -> Self {
        Self {
            settings: Settings::new(),
            tally: Tally::new(0),
            top: None,
            audit: Ring::new(),
            minute_us: 0,
            unsampled: 0,
            stream_errors: 0,
            waiting: Vec::new(),
        }
    }

    fn apply(&mut self, settings: Settings) {
        let top_size = settings.number(Number::TopSize) as usize;
        if self.top.is_none() || top_size != self.settings.number(Number::TopSize) as usize {
            let seed = RandomState::new().build_hasher().finish();
            self.top = (top_size > 0).then(|| Top::new(top_size, seed, self.minute_us));
        }
        self.audit
            .resize(settings.number(Number::AuditMaxLen) as usize);
        self.unsampled = 0;
        self.settings = settings;
    }

    #[inline(always)]
    fn is_current(&self, now_us: u64) -> bool {
        // Not for a clock that stepped back.
        now_us.wrapping_sub(self.minute_us) < MINUTE_US
    }

    /// Begins a minute.
    #[cold]
    #[inline(never)]
    fn turn(&mut self, now_us: u64) {
        self.minute_us = now_us - now_us % MINUTE_US;
        self.tally.turn(now_us);
        if let Some(top) = &mut self.top {
            top.turn(now_us);
        }
    }

    /// Counts the first call of a minute.
    #[cold]
    #[inline(never)]
    fn count_first(&mut self, counted: Counted, name: &[u8], now_us: u64) {
        self.turn(now_us);
        self.tally.add_one_now(counted);
        if let Some(top) = &mut self.top {
            top.saw_now(name);
        }
    }

    /// Whether a denial is one of those to be recorded.
    fn is_sampled(&mut self) -> bool {
        if self.unsampled > 0 {
            self.unsampled -= 1;
            return false;
        }
        let one_in = self.settings.number(Number::AuditSample);
        self.unsampled = (one_in - 1).max(0);
        one_in > 0
    }
}

/// Begins to count.
pub(crate) fn init(ctx: &Context, settings: Settings) {
    with(ctx, |eyes| {
        eyes.tally = Tally::new(ctx.now_us());
        eyes.apply(settings);
    });
}

/// A look at everything, or a change of it. `body` must not make the server run commands.
#[inline(always)]
pub(crate) fn with<R>(proof: &impl OnMainThread, body: impl FnOnce(&mut Eyes) -> R) -> Option<R> {
    EYES.with(proof, body)
}

pub(crate) fn settings(proof: &impl OnMainThread) -> Settings {
    let settings = with(proof, |eyes| eyes.settings.clone());
    settings.unwrap_or_else(Settings::new)
}

/// Takes effect at once.
pub(crate) fn change(proof: &impl OnMainThread, settings: Settings) {
    with(proof, |eyes| eyes.apply(settings));
}

/// Takes notice of an answer. Calls that cost nothing only asked. `denial` is asked for if there is one: the
/// calls that are allowed need not have it ready.
#[inline(always)]
pub(crate) fn saw<'a>(ctx: &Context, seen: Seen<'a>, denial: impl FnOnce() -> Denial<'a>) {
    if seen.cost == 0 {
        return;
    }
    let counted = match seen.answer {
        Answer::Allowed | Answer::ShadowDenied => Counted::Allowed,
        Answer::Denied => Counted::Denied,
        Answer::Forced => Counted::Forced,
    };
    if let Some(policy) = seen.policy {
        policy.tally.add(counted, 1, seen.now_us);
    }
    if matches!(seen.answer, Answer::Denied | Answer::ShadowDenied) {
        saw_denial(ctx, counted, seen, denial());
    } else {
        count(ctx, counted, seen.name.as_bytes(), seen.now_us);
    }
}

/// A function of its own, for it would be inlined into every command.
#[inline(never)]
fn count(ctx: &Context, counted: Counted, name: &[u8], now_us: u64) {
    with(ctx, |eyes| {
        if !eyes.is_current(now_us) {
            // Whole in a function of its own: so the usual way saves no registers.
            return eyes.count_first(counted, name, now_us);
        }
        eyes.tally.add_one_now(counted);
        if let Some(top) = &mut eyes.top {
            top.saw_now(name);
        }
    });
}

#[inline(never)]
fn saw_denial(ctx: &Context, counted: Counted, seen: Seen, denial: Denial) {
    let name = seen.name.as_bytes();
    let streamed = with(ctx, |eyes| {
        if !eyes.is_current(seen.now_us) {
            eyes.turn(seen.now_us);
        }
        eyes.tally.add_one_now(counted);
        if let Some(top) = &mut eyes.top {
            if counted == Counted::Denied {
                top.saw_denied_now(name);
            } else {
                top.saw_now(name);
            }
        }
        if counted != Counted::Denied {
            eyes.tally.add_one_now(Counted::ShadowDenied);
            if let Some(policy) = seen.policy {
                policy.tally.add(Counted::ShadowDenied, 1, seen.now_us);
            }
        }
        if !eyes.is_sampled() {
            return false;
        }
        eyes.audit.record(&seen, name, &denial, ctx.client_id());
        !eyes.settings.audit_stream.is_empty()
    });
    if streamed == Some(true) {
        stream::add(ctx, &seen, &denial);
    }
}

/// Takes notice of units given back.
pub(crate) fn refunded(ctx: &Context, units: u64) {
    if units > 0 {
        let now_us = ctx.now_us();
        with(ctx, |eyes| eyes.tally.add(Counted::Refunded, units, now_us));
    }
}

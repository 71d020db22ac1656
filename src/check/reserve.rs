//! RL.RESERVE: checks several limits like RL.MULTI, and records under an id what was charged.

use rl_core::Decision;
use rl_core::reservation::StoredReservation;
use rl_core::reservation::{Charge, Charges, OpenReservation, Reservation, ReservedKey};
use rl_core::syntax::{self, CallOptions};

use super::Request;
use super::evaluate::{
    DecidedCalls, EvaluatedRequest, EvaluatedRequests, Verdict, commit_updates, evaluate_all,
};
use crate::commit::{self, Change};
use crate::error::{CommandError, RESERVATION_DIFFERS, RESERVATION_SETTLED};
use crate::replication;
use crate::server::{Context, Key, ServerStr};

/// The arguments of RL.RESERVE.
pub(crate) struct Reserve<'a> {
    pub(crate) id: ServerStr<'a>,
    pub(crate) ttl_us: u64,
    pub(crate) requests: &'a [Request<'a>],
    /// The text of each request, as the caller wrote it.
    pub(crate) specs: &'a [&'a [u8]],
    pub(crate) options: CallOptions,
    /// Of all arguments after the id: a repeated call has the same.
    pub(crate) digest: u64,
    pub(crate) now_us: u64,
}

/// Charges all limits if they allow the call. `id` is open and unknown. Passes the verdict, `spend_ms` and the decisions to
/// `reply`.
pub(crate) fn reserve(
    ctx: &Context,
    id: &mut Key,
    args: &Reserve,
    reply: impl FnOnce(Verdict, i64, &mut dyn ExactSizeIterator<Item = DecidedCalls>),
) -> Result<(), CommandError> {
    let now_us = args.now_us;
    let mut evaluated = EvaluatedRequests::new();
    let verdict = evaluate_all(ctx, args.requests, args.options, now_us, &mut evaluated)?;
    let mut spend_ms = 0;
    if verdict.allowed > 0 {
        commit::check_memory(ctx, true)?;
        for one in &mut evaluated {
            one.mark_reserved(now_us);
        }
        let mut unreplicated = commit_updates(ctx, &mut evaluated)? == Change::Unreplicated;
        let mut open = OpenReservation {
            charged_at_us: now_us,
            digest: args.digest,
            times: verdict.allowed,
            keys: Default::default(),
        };
        for (one, spec) in evaluated.iter().zip(args.specs) {
            open.keys.push(one.reserved_key(spec)?);
        }
        spend_ms = open.spend_ms(now_us);
        let stored = StoredReservation::open(&open);
        let expire_at_ms = (now_us + args.ttl_us).div_ceil(1000) as i64;
        let change = commit::commit_reservation(ctx, id, args.id, stored, expire_at_ms)?;
        unreplicated |= change == Change::Unreplicated;
        if unreplicated {
            replication::mark_dirty(ctx);
        }
    } else if commit_updates(ctx, &mut evaluated)? == Change::Unreplicated {
        // A denial may have recorded that the clock stepped back.
        replication::mark_dirty(ctx);
    }
    for one in &evaluated {
        if verdict.allowed > 0 || one.denies() {
            one.record_outcome(ctx, now_us);
        }
    }
    let decisions = &mut evaluated.iter().map(EvaluatedRequest::reported);
    reply(verdict, spend_ms, decisions);
    Ok(())
}

/// The same call again, under an id that is known: it charges nothing, and the reply shows current numbers.
#[cold]
pub(crate) fn repeat<'a>(
    ctx: &Context,
    reservation: &Reservation,
    digest: u64,
    limits: impl Iterator<Item = (ServerStr<'a>, &'a [u8])>,
    now_us: u64,
    reply: impl FnOnce(Verdict, i64, &mut dyn ExactSizeIterator<Item = DecidedCalls>),
) -> Result<(), CommandError> {
    let open = match reservation {
        Reservation::Open(open) if open.digest != digest => return Err(RESERVATION_DIFFERS),
        Reservation::Open(open) if !open.is_settled() => open,
        Reservation::Open(_) | Reservation::Closed => return Err(RESERVATION_SETTLED),
    };
    let decided = limits.map(|(key, spec)| DecidedCalls {
        decision: Decision {
            allowed: true,
            retry_after_ms: 0,
            ..current_numbers(ctx, key, spec, now_us).unwrap_or(NO_NUMBERS)
        },
        calls: open.times,
    });
    let decided: Vec<_> = decided.collect();
    let verdict = Verdict {
        allowed: open.times,
        retry_after_ms: 0,
    };
    reply(verdict, open.spend_ms(now_us), &mut decided.into_iter());
    Ok(())
}

/// What is shown of a limit that no longer exists: its policy is gone, or its key holds something else.
const NO_NUMBERS: Decision = Decision {
    allowed: true,
    index: 0,
    limit: 0,
    remaining: 0,
    retry_after_ms: 0,
    reset_after_ms: 0,
};

fn current_numbers(
    ctx: &Context,
    key: ServerStr,
    spec: &[u8],
    now_us: u64,
) -> Result<Decision, CommandError> {
    let request = Request::from_spec(ctx, key, syntax::recorded_spec(spec)?, now_us)?;
    let mut one = EvaluatedRequest::new(ctx, &request, now_us, CallOptions::PEEK)?;
    one.reevaluate_uncharged(now_us)?;
    Ok(one.reported().decision)
}

impl<'a> EvaluatedRequest<'a> {
    /// Marks what is about to be stored: settling refunds only units of marked states.
    fn mark_reserved(&mut self, now_us: u64) {
        if let Some(update) = &mut self.evaluation.update {
            update.mark_reserved(now_us);
        }
    }

    /// What was charged to this key.
    fn reserved_key(&self, spec: &'a [u8]) -> Result<ReservedKey<'_>, CommandError> {
        let is_charged = self.evaluation.decision.allowed && !self.is_decided_by_override();
        let (mut reserved, mut charges) = (None, Charges::new());
        if is_charged {
            let (limit, cost) = self.request.limit(self.evaluated_calls)?;
            reserved = Some(cost);
            if let Some(state) = self.key.state().filter(|_| cost > 0) {
                charges = Charge::of_call(&limit, state, cost);
            }
        }
        Ok(ReservedKey {
            key: self.request.key.as_bytes(),
            spec,
            reserved,
            settled: None,
            charges,
        })
    }
}

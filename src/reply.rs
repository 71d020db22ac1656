//! Replies: decisions, verdicts of several limits, and stored states.

use rl_core::reservation::Reservation;
use rl_core::{FieldValue, State, brief_denial};

use crate::check::{DecidedCalls, Verdict};
use crate::server::Context;

/// `[allowed, limit, remaining, retry_after_ms, reset_after_ms]`
pub(crate) fn decision(ctx: &Context, decided: &DecidedCalls) {
    ctx.reply_array(5);
    five_integers(ctx, decided);
}

#[inline(always)]
fn five_integers(ctx: &Context, decided: &DecidedCalls) {
    let decision = &decided.decision;
    ctx.reply_integer(decided.allowed() as i64);
    ctx.reply_integer(decision.limit as i64);
    ctx.reply_integer(decision.remaining as i64);
    ctx.reply_integer(decision.retry_after_ms);
    ctx.reply_integer(decision.reset_after_ms as i64);
}

/// The five integers, and the index of the limit that decided.
#[inline]
pub(crate) fn decision_with_index(ctx: &Context, decided: &DecidedCalls, index: i64) {
    ctx.reply_array(6);
    five_integers(ctx, decided);
    ctx.reply_integer(index);
}

/// BRIEF: `remaining` or the delay, negative if the call is denied.
#[inline]
pub(crate) fn brief(ctx: &Context, decided: &DecidedCalls, reports_delay: bool) {
    ctx.reply_integer(decided.decision.brief(reports_delay));
}

/// `[allowed, retry_after_ms, [[five integers], …]]`
pub(crate) fn verdict(
    ctx: &Context,
    verdict: &Verdict,
    decisions: &mut dyn ExactSizeIterator<Item = DecidedCalls>,
) {
    ctx.reply_array(3);
    ctx.reply_integer(verdict.allowed as i64);
    ctx.reply_integer(verdict.retry_after_ms);
    ctx.reply_array(decisions.len());
    for each in decisions {
        decision(ctx, &each);
    }
}

/// BRIEF for several limits: the lowest `remaining`, negative if the call is denied. If there is but one and it reports a
/// delay: that.
pub(crate) fn brief_verdict(
    ctx: &Context,
    verdict: &Verdict,
    decisions: &mut dyn ExactSizeIterator<Item = DecidedCalls>,
    reports_delay: bool,
) {
    ctx.reply_integer(match verdict.allowed {
        0 => brief_denial(verdict.retry_after_ms),
        _ => {
            let brief = decisions.map(|each| match reports_delay {
                true => each.decision.retry_after_ms,
                false => each.decision.remaining as i64,
            });
            brief.min().unwrap_or(0)
        }
    });
}

/// `[allowed, retry_after_ms, spend_ms, [[five integers], …]]`
pub(crate) fn reservation(
    ctx: &Context,
    verdict: &Verdict,
    spend_ms: i64,
    decisions: &mut dyn ExactSizeIterator<Item = DecidedCalls>,
) {
    ctx.reply_array(4);
    ctx.reply_integer(verdict.allowed as i64);
    ctx.reply_integer(verdict.retry_after_ms);
    ctx.reply_integer(spend_ms);
    ctx.reply_array(decisions.len());
    for each in decisions {
        decision(ctx, &each);
    }
}

/// What an id stands for, as a map. `reserved` is null for a key whose limits were not charged, and `settled` for one that
/// is not settled yet.
pub(crate) fn reservation_record(ctx: &Context, reservation: &Reservation, expire_at_ms: i64) {
    let Reservation::Open(open) = reservation else {
        ctx.reply_map(3);
        ctx.reply_text(b"algorithm");
        ctx.reply_text(b"RESERVATION");
        ctx.reply_text(b"status");
        ctx.reply_text(b"closed");
        ctx.reply_text(b"expires_at_ms");
        ctx.reply_integer(expire_at_ms);
        return;
    };
    let is_settled = open.keys.iter().all(|key| key.settled.is_some());
    let status = if is_settled { "settled" } else { "reserved" };
    ctx.reply_map(6);
    ctx.reply_text(b"algorithm");
    ctx.reply_text(b"RESERVATION");
    ctx.reply_text(b"status");
    ctx.reply_text(status.as_bytes());
    ctx.reply_text(b"charged_at_ms");
    ctx.reply_integer((open.charged_at_us / 1000) as i64);
    ctx.reply_text(b"calls");
    ctx.reply_integer(open.times as i64);
    ctx.reply_text(b"keys");
    ctx.reply_array(open.keys.len());
    for key in &open.keys {
        ctx.reply_map(4);
        ctx.reply_text(b"key");
        ctx.reply_text(key.key);
        ctx.reply_text(b"spec");
        ctx.reply_text(key.spec);
        for (name, units) in [("reserved", key.reserved), ("settled", key.settled)] {
            ctx.reply_text(name.as_bytes());
            match units {
                Some(units) => ctx.reply_integer(units as i64),
                None => ctx.reply_null(),
            }
        }
    }
    ctx.reply_text(b"expires_at_ms");
    ctx.reply_integer(expire_at_ms);
}

/// The algorithm, the stored fields and the expiry, as a map.
pub(crate) fn inspection(ctx: &Context, state: &State, now_us: u64, expire_at_ms: i64) {
    let fields = state.inspect(now_us);
    ctx.reply_map(fields.len() + 2);
    ctx.reply_text(b"algorithm");
    ctx.reply_text(state.algorithm().name().as_bytes());
    for field in fields {
        ctx.reply_text(field.name.as_bytes());
        field_value(ctx, &field.value);
    }
    ctx.reply_text(b"expires_at_ms");
    ctx.reply_integer(expire_at_ms);
}

fn field_value(ctx: &Context, value: &FieldValue) {
    match value {
        FieldValue::Number(number) => ctx.reply_integer(*number as i64),
        FieldValue::Numbers(numbers) => {
            ctx.reply_array(numbers.len());
            for number in numbers {
                ctx.reply_integer(*number as i64);
            }
        }
        FieldValue::Limits(limits) => {
            ctx.reply_array(limits.len());
            for (algorithm, fields) in limits {
                ctx.reply_map(fields.len() + 1);
                ctx.reply_text(b"algorithm");
                ctx.reply_text(algorithm.as_bytes());
                for field in fields {
                    ctx.reply_text(field.name.as_bytes());
                    field_value(ctx, &field.value);
                }
            }
        }
        FieldValue::Leases(holders) => {
            ctx.reply_array(holders.len());
            for (holder, units, left_ms) in holders {
                ctx.reply_map(3);
                ctx.reply_text(b"holder");
                ctx.reply_text(holder);
                ctx.reply_text(b"units");
                ctx.reply_integer(*units as i64);
                ctx.reply_text(b"expires_in_ms");
                ctx.reply_integer(*left_ms as i64);
            }
        }
        // `FieldValue` is not exhaustive, but this crate and the core are released together.
        _ => ctx.reply_null(),
    }
}

//! Replies: decisions, verdicts of several limits, and stored states.

use rl_core::{Decision, FieldValue, State};

use crate::check::Verdict;
use crate::server::Context;

/// `[allowed, limit, remaining, retry_after_ms, reset_after_ms]`
pub(crate) fn decision(ctx: &Context, decision: &Decision) {
    ctx.reply_array(5);
    five_integers(ctx, decision);
}

#[inline(always)]
fn five_integers(ctx: &Context, decision: &Decision) {
    ctx.reply_integer(i64::from(decision.allowed));
    ctx.reply_integer(decision.limit as i64);
    ctx.reply_integer(decision.remaining as i64);
    ctx.reply_integer(decision.retry_after_ms);
    ctx.reply_integer(decision.reset_after_ms as i64);
}

/// The five integers, and the index of the limit that decided.
#[inline]
pub(crate) fn decision_with_index(ctx: &Context, decision: &Decision) {
    ctx.reply_array(6);
    five_integers(ctx, decision);
    ctx.reply_integer(i64::from(decision.index));
}

/// `[allowed, retry_after_ms, [[five integers], …]]`
pub(crate) fn verdict(
    ctx: &Context,
    verdict: &Verdict,
    decisions: &mut dyn ExactSizeIterator<Item = Decision>,
) {
    ctx.reply_array(3);
    ctx.reply_integer(i64::from(verdict.allowed));
    ctx.reply_integer(verdict.retry_after_ms);
    ctx.reply_array(decisions.len());
    for each in decisions {
        decision(ctx, &each);
    }
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

//! Decisions as the caller sees them.

use rl_core::Decision;

use crate::check::Verdict;
use crate::redis::Context;

/// `[allowed, limit, remaining, retry_after_ms, reset_after_ms]`
pub(crate) fn decision(ctx: &Context, decision: &Decision) {
    ctx.reply_array(5);
    ctx.reply_integer(i64::from(decision.allowed));
    ctx.reply_integer(decision.limit as i64);
    ctx.reply_integer(decision.remaining as i64);
    ctx.reply_integer(decision.retry_after_ms);
    ctx.reply_integer(decision.reset_after_ms as i64);
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

//! `RL.REFUND key cost`: refunds units that were not used after all.

use std::ffi::CStr;

use rl_core::{Error, syntax};

use crate::check::refund_or_release;
use crate::error::CommandError;
use crate::server::{Args, Argument, Command, CommandFlags, Context, Docs};
use crate::stats;

pub(crate) struct RefundCommand;

impl Command for RefundCommand {
    const NAME: &'static CStr = c"RL.REFUND";
    const FLAGS: CommandFlags = CommandFlags::WRITE.union(CommandFlags::FAST);
    const MIN_ARGS: usize = 3;
    const MAX_ARGS: usize = 3;
    const DOCS: Docs = Docs {
        summary: c"Refunds units, never more than are in use.",
        complexity: c"O(1), for EXACT amortised",
        since: c"0.1.0",
        arguments: &[Argument::KEY, Argument::integer(c"cost")],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), CommandError> {
        let cost = syntax::parse_count(Some(args.get(2).as_bytes()), Error::Cost)?;
        let refunded = refund_or_release(ctx, args.get(1), None, |state, now_us| {
            state.refund(now_us, cost)
        })?;
        stats::record_refund(ctx, refunded);
        ctx.reply_integer(refunded as i64);
        Ok(())
    }
}

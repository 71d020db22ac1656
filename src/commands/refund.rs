//! `RL.REFUND key cost [TIMES n] [AGE duration]`: refunds units that were not used after all.

use std::ffi::CStr;

use rl_core::RefundRequest;

use crate::check::refund_or_release;
use crate::error::CommandError;
use crate::server::{Args, Argument, Command, CommandFlags, Context, Docs};
use crate::stats;

pub(crate) struct RefundCommand;

impl Command for RefundCommand {
    const NAME: &'static CStr = c"RL.REFUND";
    const FLAGS: CommandFlags = CommandFlags::WRITE.union(CommandFlags::FAST);
    const MIN_ARGS: usize = 3;
    const MAX_ARGS: usize = 7;
    const DOCS: Docs = Docs {
        summary: c"Refunds units, never more than are in use.",
        complexity:
            c"O(1), for EXACT amortised; with AGE O(N) where N is the number of chunks of the log",
        since: c"0.1.0",
        arguments: &[
            Argument::KEY,
            Argument::integer(c"cost"),
            Argument::integer_option(c"calls", c"TIMES").optional(),
            Argument::text_option(c"age", c"AGE").optional(),
        ],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), CommandError> {
        let request = RefundRequest::parse(args.from(2))?;
        let refunded = refund_or_release(ctx, args.get(1), None, |state, now_us| {
            state.refund(now_us, request)
        })?;
        stats::record_refund(ctx, refunded);
        ctx.reply_integer(refunded as i64);
        Ok(())
    }
}

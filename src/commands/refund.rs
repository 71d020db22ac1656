//! `RL.REFUND key cost`: gives back what was not used after all.

use std::ffi::CStr;

use rl_core::{Error, parse};

use crate::eyes;
use crate::failure::Failure;
use crate::give_back::give_back;
use crate::redis::{Args, Argument, Command, Context, Docs};

pub(crate) struct Refund;

impl Command for Refund {
    const NAME: &'static CStr = c"RL.REFUND";
    const FLAGS: &'static CStr = c"write fast";
    const ACL: &'static str = "write fast";
    const MIN_ARGS: usize = 3;
    const MAX_ARGS: usize = 3;
    const DOCS: Docs = Docs {
        summary: c"Gives units back, never more than are in use.",
        complexity: c"O(1), for EXACT amortised",
        since: c"0.1.0",
        arguments: &[Argument::KEY, Argument::integer(c"cost")],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), Failure> {
        let cost = parse::count(Some(args.get(2).as_bytes()), Error::Cost)?;
        let given = give_back(ctx, args.get(1), None, |state, now_us| {
            state.refund(now_us, cost)
        })?;
        eyes::refunded(ctx, given);
        ctx.reply_integer(given as i64);
        Ok(())
    }
}

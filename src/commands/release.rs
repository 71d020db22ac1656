//! `RL.RELEASE key holder`: ends a lease early.

use std::ffi::CStr;

use rl_core::{Algorithm, check_holder};

use crate::check::refund_or_release;
use crate::error::CommandError;
use crate::server::{Args, Argument, Command, CommandFlags, Context, Docs};

pub(crate) struct ReleaseCommand;

impl Command for ReleaseCommand {
    const NAME: &'static CStr = c"RL.RELEASE";
    const FLAGS: CommandFlags = CommandFlags::WRITE.union(CommandFlags::FAST);
    const MIN_ARGS: usize = 3;
    const MAX_ARGS: usize = 3;
    const DOCS: Docs = Docs {
        summary: c"Releases a lease.",
        complexity: c"O(N) where N is the number of holders, at most 10000",
        since: c"0.1.0",
        arguments: &[Argument::KEY, Argument::text(c"holder")],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), CommandError> {
        let holder = check_holder(args.get(2).as_bytes())?;
        let released =
            refund_or_release(ctx, args.get(1), Some(Algorithm::Lease), |state, now_us| {
                state.release(now_us, holder)
            })?;
        ctx.reply_integer(i64::from(released > 0));
        Ok(())
    }
}

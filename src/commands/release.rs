//! `RL.RELEASE key holder`: lets go of a lease.

use std::ffi::CStr;

use rl_core::{Algorithm, lease};

use crate::failure::Failure;
use crate::give_back::give_back;
use crate::redis::{Args, Argument, Command, Context, Docs};

pub(crate) struct Release;

impl Command for Release {
    const NAME: &'static CStr = c"RL.RELEASE";
    const FLAGS: &'static CStr = c"write fast";
    const ACL: &'static str = "write fast";
    const MIN_ARGS: usize = 3;
    const MAX_ARGS: usize = 3;
    const DOCS: Docs = Docs {
        summary: c"Lets go of a lease.",
        complexity: c"O(N) where N is the number of holders, at most 10000",
        since: c"0.1.0",
        arguments: &[Argument::KEY, Argument::text(c"holder")],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), Failure> {
        let holder = lease::name(args.get(2).as_bytes())?;
        let given = give_back(ctx, args.get(1), Some(Algorithm::Lease), |state, now_us| {
            state.release(now_us, holder)
        })?;
        ctx.reply_integer(i64::from(given > 0));
        Ok(())
    }
}

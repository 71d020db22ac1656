//! `RL.PEEK key spec`: what would this call reply? Read-only, so replicas answer it too.

use std::ffi::CStr;

use rl_core::syntax::{self, CallOptions};

use super::multi::SPEC;
use crate::check::{Request, check_one};
use crate::error::CommandError;
use crate::reply;
use crate::server::{Args, Argument, Command, CommandFlags, Context, Docs};

pub(crate) struct PeekCommand;

impl Command for PeekCommand {
    const NAME: &'static CStr = c"RL.PEEK";
    const FLAGS: CommandFlags = CommandFlags::READONLY.union(CommandFlags::FAST);
    const MIN_ARGS: usize = 3;
    const MAX_ARGS: usize = 3;
    const DOCS: Docs = Docs {
        summary: c"Shows what a call would reply, without making it.",
        complexity: c"O(1); for LEASE and POLICY O(N) where N is the number of holders or limits",
        since: c"0.1.0",
        arguments: &[Argument::KEY, SPEC],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), CommandError> {
        let spec = syntax::peek_spec(args.get(2).as_bytes())?;
        let now_us = ctx.now_us();
        let request = Request::from_spec(ctx, args.get(1), spec, now_us)?;
        let decided = check_one(ctx, &request, CallOptions::PEEK, now_us)?;
        reply::decision(ctx, &decided);
        Ok(())
    }
}

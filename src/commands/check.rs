//! `RL.CHECK key policy [cost] [PEEK | FORCE]`: the limits of a policy.

use std::ffi::CStr;

use rl_core::syntax;

use super::one_limit::{COST, OPTION};
use crate::check::{Request, check_one};
use crate::error::CommandError;
use crate::policy::EffectivePolicy;
use crate::reply;
use crate::server::{Args, Argument, Command, CommandFlags, Context, Docs};

pub(crate) struct CheckCommand;

impl Command for CheckCommand {
    const NAME: &'static CStr = c"RL.CHECK";
    const FLAGS: CommandFlags = CommandFlags::WRITE.union(CommandFlags::FAST);
    const MIN_ARGS: usize = 3;
    const DOCS: Docs = Docs {
        summary: c"Checks and counts a call against the limits of a policy.",
        complexity: c"O(N) where N is the number of limits of the policy, at most 16",
        since: c"0.1.0",
        arguments: &[
            Argument::KEY,
            Argument::text(c"policy"),
            COST.optional(),
            OPTION,
        ],
    };

    #[inline(always)]
    fn run(ctx: &Context, args: Args) -> Result<(), CommandError> {
        let (cost, options) = syntax::check_args(args.from(3))?;
        let now_us = ctx.now_us();
        let (key, policy) = (args.get(1), args.get(2).as_bytes());
        let policy = EffectivePolicy::find(ctx, key, policy, cost, now_us)?;
        let decision = check_one(ctx, &Request::policy(key, policy), options, now_us)?;
        reply::decision_with_index(ctx, &decision);
        Ok(())
    }
}

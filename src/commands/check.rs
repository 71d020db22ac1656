//! `RL.CHECK key policy [cost] [options…]`: the limits of a policy.

use std::ffi::CStr;

use rl_core::syntax;

use super::one_limit::{COST, OPTIONS};
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
            OPTIONS[0],
            OPTIONS[1],
            OPTIONS[2],
        ],
    };

    #[inline(always)]
    fn run(ctx: &Context, args: Args) -> Result<(), CommandError> {
        let (cost, options) = syntax::check_args(args.from(3))?;
        let now_us = ctx.now_us();
        let (key, policy) = (args.get(1), args.get(2).as_bytes());
        let policy = EffectivePolicy::find(ctx, key, policy, cost, now_us)?;
        let request = Request::policy(key, policy);
        let decided = check_one(ctx, &request, options, now_us)?;
        if options.is_brief() {
            reply::brief(ctx, &decided, request.reports_delay());
        } else {
            reply::decision_with_index(ctx, &decided, i64::from(decided.decision.index));
        }
        Ok(())
    }
}

//! `RL.CHECK key policy [cost] [PEEK | FORCE]`: the limits that go by a name.

use std::ffi::CStr;

use rl_core::parse;

use super::single::{COST, FORCE, PEEK};
use crate::check::{self, Request};
use crate::failure::Failure;
use crate::overrides::Applied;
use crate::redis::{Args, Argument, Command, Context, Docs};
use crate::reply;

pub(crate) struct Check;

impl Command for Check {
    const NAME: &'static CStr = c"RL.CHECK";
    const FLAGS: &'static CStr = c"write fast";
    const ACL: &'static str = "write fast";
    const MIN_ARGS: usize = 3;
    const DOCS: Docs = Docs {
        summary: c"Checks and counts a call against the limits of a policy.",
        complexity: c"O(N) where N is the number of limits of the policy, at most 16",
        since: c"0.1.0",
        arguments: &[
            Argument::KEY,
            Argument::text(c"policy"),
            COST.optional(),
            Argument::one_of(c"option", &[PEEK, FORCE]).optional(),
        ],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), Failure> {
        let (cost, options) = parse::check(args.words(3))?;
        let now_us = ctx.now_us();
        let policy = args.get(2).as_bytes();
        let name = args.get(1);
        let applied = Applied::find(ctx, name, policy, cost, now_us)?;
        let request = Request::policy(name, applied);
        let decision = check::one(ctx, &request, options, now_us)?;
        reply::indexed(ctx, &decision);
        Ok(())
    }
}

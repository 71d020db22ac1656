//! `RL.STATS [policy]`: what the limits answered, since the start and in the last minute.

use std::ffi::CStr;

use rl_core::{Counted, Tally};

use crate::eyes;
use crate::failure::Failure;
use crate::redis::{Access, Args, Argument, Command, Context, Docs};
use crate::registry;

pub(crate) struct Stats;

impl Command for Stats {
    const NAME: &'static CStr = c"RL.STATS";
    const FLAGS: &'static CStr = c"readonly fast allow-loading allow-stale";
    const ACL: &'static str = "read fast";
    const ACCESS: Access = Access::Keyless;
    const MIN_ARGS: usize = 1;
    const MAX_ARGS: usize = 2;
    const DOCS: Docs = Docs {
        summary: c"Tells how many calls were allowed, denied and forced, in all and per minute.",
        complexity: c"O(1)",
        since: c"0.1.0",
        arguments: &[Argument::text(c"policy").optional()],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), Failure> {
        let now_us = ctx.now_us();
        if let Some(policy) = args.words(1).next() {
            reply(ctx, &registry::find(ctx, policy)?.tally, now_us);
            return Ok(());
        }
        eyes::with(ctx, |eyes| reply(ctx, &eyes.tally, now_us));
        Ok(())
    }
}

fn reply(ctx: &Context, tally: &Tally, now_us: u64) {
    let number = |name: &str, value: u64| {
        ctx.reply_text(name.as_bytes());
        ctx.reply_integer(i64::try_from(value).unwrap_or(i64::MAX));
    };
    ctx.reply_map(1 + 2 * Counted::ALL.len());
    number("since_ms", tally.since_us() / 1000);
    for what in Counted::ALL {
        number(what.name(), tally.total(what));
    }
    for what in Counted::ALL {
        let name = format!("{}_per_minute", what.name());
        number(&name, tally.per_minute(what, now_us));
    }
}

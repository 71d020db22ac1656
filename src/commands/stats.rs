//! `RL.STATS [policy | HELP]`: what the limits decided, in total and in the last minute.

use std::ffi::CStr;

use rl_core::stats::{Counters, Outcome};

use crate::error::CommandError;
use crate::policy::registry;
use crate::server::{Args, Argument, Command, CommandFlags, Context, Docs, Keys, help};
use crate::stats;

pub(crate) struct StatsCommand;

/// A refund names a key and no policy, so only the server counts refunded units.
const OF_POLICY: [Outcome; 4] = [
    Outcome::Allowed,
    Outcome::Denied,
    Outcome::ShadowDenied,
    Outcome::Forced,
];

impl Command for StatsCommand {
    const NAME: &'static CStr = c"RL.STATS";
    const FLAGS: CommandFlags = CommandFlags::READONLY
        .union(CommandFlags::FAST)
        .union(CommandFlags::ALLOW_LOADING)
        .union(CommandFlags::ALLOW_STALE);
    const KEYS: Keys = Keys::None;
    const MIN_ARGS: usize = 1;
    const MAX_ARGS: usize = 2;
    const DOCS: Docs = Docs {
        summary: c"Shows how many checks were allowed, denied and forced, in total and per minute.",
        complexity: c"O(1)",
        since: c"0.1.0",
        arguments: &[Argument::text(c"policy").optional()],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), CommandError> {
        let now_us = ctx.now_us();
        let Some(policy) = args.from(1).next() else {
            stats::with(ctx, |stats| {
                reply(ctx, &stats.counters, &Outcome::ALL, now_us);
            });
            return Ok(());
        };
        match registry::find(ctx, policy) {
            Ok(policy) => reply(ctx, &policy.counters, &OF_POLICY, now_us),
            // A policy may have that name.
            Err(_) if help::is_help(args) => help::reply::<Self>(ctx),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

fn reply(ctx: &Context, counters: &Counters, outcomes: &[Outcome], now_us: u64) {
    let number = |name: &str, value: u64| {
        ctx.reply_text(name.as_bytes());
        ctx.reply_integer(i64::try_from(value).unwrap_or(i64::MAX));
    };
    ctx.reply_map(1 + 2 * outcomes.len());
    number("counting_started_at_ms", counters.since_us() / 1000);
    for &outcome in outcomes {
        number(outcome.name(), counters.total(outcome));
    }
    for &outcome in outcomes {
        let name = format!("{}_per_minute", outcome.name());
        number(&name, counters.per_minute(outcome, now_us));
    }
}

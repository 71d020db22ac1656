//! `CL.THROTTLE key max_burst count period [quantity]`: redis-cell's command and reply, on RL.BUCKET's engine.
//! Registered only if the module is loaded with `redis-cell-compat yes`.

use std::ffi::CStr;

use rl_core::syntax::{self, CallOptions, Spec};
use rl_core::{BucketLimit, Error, Limit, MAX_COUNT, Mode};

use crate::check::{Request, check_one};
use crate::commit;
use crate::error::CommandError;
use crate::server::{Args, Argument, Command, CommandFlags, Context, Docs, Key, ServerStr};

pub(crate) struct ThrottleCommand;

impl Command for ThrottleCommand {
    const NAME: &'static CStr = c"CL.THROTTLE";
    const FLAGS: CommandFlags = CommandFlags::WRITE.union(CommandFlags::FAST);
    const MIN_ARGS: usize = 5;
    const MAX_ARGS: usize = 6;
    const DOCS: Docs = Docs {
        summary: c"Checks a call against a token bucket, as redis-cell does.",
        complexity: c"O(1)",
        since: c"0.1.0",
        arguments: &[
            Argument::KEY,
            Argument::integer(c"max_burst"),
            Argument::integer(c"count"),
            Argument::integer(c"period"),
            Argument::integer(c"quantity").optional(),
        ],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), CommandError> {
        let rate = Rate::parse(args).map_err(explain)?;
        let request = Request::inline(args.get(1), rate.spec);
        let now_us = ctx.now_us();
        let decision = match check_one(ctx, &request, CallOptions::NONE, now_us) {
            Err(CommandError::WrongType) => {
                rate.convert(ctx, request.key)?;
                check_one(ctx, &request, CallOptions::NONE, now_us)
            }
            decided => decided,
        }?
        .decision;

        ctx.reply_array(5);
        ctx.reply_integer(i64::from(!decision.allowed));
        ctx.reply_integer(decision.limit as i64);
        ctx.reply_integer(decision.remaining as i64);
        ctx.reply_integer(match decision.retry_after_ms {
            wait @ 1.. => seconds(wait as u64),
            _ => -1,
        });
        ctx.reply_integer(seconds(decision.reset_after_ms));
        Ok(())
    }
}

/// A rate as redis-cell understands it.
struct Rate {
    spec: Spec<'static>,
    count: u64,
    period_us: u64,
}

impl Rate {
    fn parse(args: Args) -> Result<Self, Error> {
        let number = |at: usize, error| syntax::parse_count(Some(args.get(at).as_bytes()), error);
        let max_burst = number(2, Error::Capacity)?;
        let count = number(3, Error::Refill)?;
        let period_ms = number(4, Error::Period)?.saturating_mul(1000);
        let limit = Limit::Bucket(BucketLimit::new(max_burst + 1, count, period_ms)?);
        let cost = if args.len() > 5 {
            number(5, Error::Cost)?
        } else {
            1
        };
        Ok(Self {
            spec: Spec { limit, cost },
            count,
            period_us: period_ms * 1000,
        })
    }

    /// Converts a key of redis-cell into one of ours that owes the same. Keys of redis-cell are strings with the time in
    /// nanoseconds at which nothing is owed any more, which is also when they expire. Other strings are not touched.
    #[cold]
    fn convert(&self, ctx: &Context, name: ServerStr) -> Result<(), CommandError> {
        let mut key = Key::open_to_write(ctx, name);
        let free_at_us = key.number().ok_or(CommandError::WrongType)?.div_ceil(1000);
        if key.expire_at_ms().abs_diff((free_at_us / 1000) as i64) > 2000 {
            return Err(CommandError::WrongType);
        }
        let owed_us = free_at_us.saturating_sub(ctx.now_us()).max(1);
        // As if whole units had been charged a moment ago, of which only this much is still owed.
        let (count, period_us) = (u128::from(self.count), u128::from(self.period_us));
        let units = (u128::from(owed_us) * count).div_ceil(period_us);
        let charged_us = u128::from(free_at_us).checked_sub((units * period_us).div_ceil(count));
        let (Some(charged_us), true) = (charged_us, units <= u128::from(MAX_COUNT)) else {
            return Err(CommandError::WrongType);
        };
        let limit = &self.spec.limit;
        let evaluation = limit.evaluate(None, charged_us as u64, units as u64, Mode::Force)?;
        match evaluation.update {
            Some(update) => {
                commit::commit_one(ctx, &mut key, name, update, Some(evaluation.expiry))
            }
            None => Ok(()),
        }
    }
}

/// The errors of a bucket, in redis-cell's words.
#[cold]
fn explain(error: Error) -> CommandError {
    CommandError::Static(match error {
        Error::Capacity => "ERR max_burst must be an integer between 0 and 9007199254740990",
        Error::Refill => "ERR count must be an integer between 1 and 9007199254740991",
        Error::Period => "ERR period must be a number of seconds between 1 and 315360000",
        _ => "ERR quantity must be an integer between 0 and 9007199254740991",
    })
}

/// Rounded up, so that a caller who waits that long is not too early.
fn seconds(ms: u64) -> i64 {
    ms.div_ceil(1000) as i64
}

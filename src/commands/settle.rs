//! `RL.SETTLE id calls key actual [key actual …]`: changes what a reservation charged to what was used, once per key.

use std::ffi::CStr;

use rl_core::Error;
use rl_core::syntax::{MAX_LIMITS, as_count};
use smallvec::SmallVec;

use crate::check::{INLINE_REQUESTS, SettledKey, settle};
use crate::error::{ACTUAL, CALLS, CommandError, REPEATED_KEY, SETTLE_PAIRS};
use crate::server::{Args, Argument, Command, CommandFlags, Context, Docs, Keys};

pub(crate) struct SettleCommand;

impl Command for SettleCommand {
    const NAME: &'static CStr = c"RL.SETTLE";
    const FLAGS: CommandFlags = CommandFlags::WRITE.union(CommandFlags::FAST);
    const KEYS: Keys = Keys::Pairs(1);
    const MIN_ARGS: usize = 5;
    const DOCS: Docs = Docs {
        summary: c"Changes what a reservation charged to what was used, once per key.",
        complexity: c"O(N) where N is the number of limits, at most 128",
        since: c"0.1.0",
        arguments: &[
            Argument::key(c"id"),
            Argument::integer(c"calls"),
            Argument::block(c"usage", &[Argument::KEY, Argument::integer(c"actual")]).repeated(),
        ],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), CommandError> {
        let calls = as_count(args.get(2).as_bytes()).ok_or(CALLS)?;
        let pairs = args.from(3).len();
        if !pairs.is_multiple_of(2) {
            return Err(SETTLE_PAIRS);
        }
        if pairs > 2 * MAX_LIMITS {
            return Err(Error::TooManyLimits.into());
        }
        let mut keys = SmallVec::<[SettledKey; INLINE_REQUESTS]>::new();
        for position in (3..3 + pairs).step_by(2) {
            let key = args.get(position);
            let same = |other: &SettledKey| other.key.as_bytes() == key.as_bytes();
            if keys.iter().any(same) {
                return Err(REPEATED_KEY);
            }
            let actual = as_count(args.get(position + 1).as_bytes()).ok_or(ACTUAL)?;
            keys.push(SettledKey { key, actual });
        }
        match settle(ctx, args.get(1), calls, &keys, ctx.now_us())? {
            Some(charged) => {
                ctx.reply_array(charged.len());
                for units in charged {
                    ctx.reply_integer(units as i64);
                }
            }
            None => ctx.reply_null(),
        }
        Ok(())
    }
}

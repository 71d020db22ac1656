//! `RL.TOP [COUNT n] [BY checks|denials]`: the hottest keys.

use std::ffi::CStr;

use rl_core::{By, Error, parse};

use crate::eyes;
use crate::failure::Failure;
use crate::redis::{Access, Args, Argument, Command, Context, Docs};

pub(crate) struct Top;

const COUNT: Failure = Failure::Text("ERR COUNT must be an integer between 1 and 9007199254740991");
const BY: Failure = Failure::Text("ERR BY must be checks or denials");
const SYNTAX: Failure = Failure::Text("ERR syntax error: use RL.TOP [COUNT n] [BY checks|denials]");

impl Command for Top {
    const NAME: &'static CStr = c"RL.TOP";
    const FLAGS: &'static CStr = c"admin allow-loading allow-stale";
    // Who sees names of all keys has to be trusted with them.
    const ACL: &'static str = "admin slow dangerous";
    const ACCESS: Access = Access::Keyless;
    const MIN_ARGS: usize = 1;
    const MAX_ARGS: usize = 5;
    const DOCS: Docs = Docs {
        summary:
            c"Tells the keys that were checked, or denied, most often in the last two minutes.",
        complexity: c"O(N) where N is rl.top-size",
        since: c"0.1.0",
        arguments: &[
            Argument::valued(c"count", c"COUNT").optional(),
            Argument::choice(
                c"by",
                c"BY",
                &[
                    Argument::token(c"checks", c"CHECKS"),
                    Argument::token(c"denials", c"DENIALS"),
                ],
            )
            .optional(),
        ],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), Failure> {
        let (mut most, mut by) = (None, None);
        let mut words = args.words(1);
        while let Some(option) = words.next() {
            if option.eq_ignore_ascii_case(b"COUNT") && most.is_none() {
                match parse::count(words.next(), Error::Limit) {
                    Ok(count @ 1..) => most = Some(count),
                    _ => return Err(COUNT),
                }
            } else if option.eq_ignore_ascii_case(b"BY") && by.is_none() {
                by = match words.next().unwrap_or_default() {
                    word if word.eq_ignore_ascii_case(b"checks") => Some(By::Checks),
                    word if word.eq_ignore_ascii_case(b"denials") => Some(By::Denials),
                    _ => return Err(BY),
                };
            } else {
                return Err(SYNTAX);
            }
        }
        let most = usize::try_from(most.unwrap_or(10)).unwrap_or(usize::MAX);
        let now_us = ctx.now_us();
        eyes::with(ctx, |eyes| {
            let hottest = match &mut eyes.top {
                Some(top) => top.hottest(most, by.unwrap_or(By::Checks), now_us),
                None => Vec::new(),
            };
            ctx.reply_array(hottest.len());
            for hot in hottest {
                ctx.reply_array(3);
                ctx.reply_text(hot.name);
                ctx.reply_integer(hot.checks as i64);
                ctx.reply_integer(hot.denials as i64);
            }
        });
        Ok(())
    }
}

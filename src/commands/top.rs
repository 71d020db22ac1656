//! `RL.TOP [COUNT n] [BY checks|denials]`: the hottest keys.

use std::ffi::CStr;

use rl_core::stats::RankBy;
use rl_core::syntax;

use crate::error::{CommandError, TOP_BY, TOP_COUNT, TOP_SYNTAX};
use crate::server::{Args, Argument, Command, CommandFlags, Context, Docs, Keys, help};
use crate::stats;

pub(crate) struct TopCommand;

impl Command for TopCommand {
    const NAME: &'static CStr = c"RL.TOP";
    // For administrators, because it shows the names of all keys.
    const FLAGS: CommandFlags = CommandFlags::ADMIN
        .union(CommandFlags::ALLOW_LOADING)
        .union(CommandFlags::ALLOW_STALE);
    const KEYS: Keys = Keys::None;
    const MIN_ARGS: usize = 1;
    const MAX_ARGS: usize = 5;
    const DOCS: Docs = Docs {
        summary:
            c"Shows the keys that were checked, or denied, most often in this minute and the one before.",
        complexity: c"O(N) where N is rl.top-size",
        since: c"0.1.0",
        arguments: &[
            Argument::integer_option(c"count", c"COUNT").optional(),
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

    fn run(ctx: &Context, args: Args) -> Result<(), CommandError> {
        if help::is_help(args) {
            help::reply::<Self>(ctx);
            return Ok(());
        }
        let (mut count, mut by) = (None, None);
        let mut args = args.from(1);
        while let Some(option) = args.next() {
            if option.eq_ignore_ascii_case(b"COUNT") && count.is_none() {
                match args.next().and_then(syntax::as_count) {
                    Some(value @ 1..) => count = Some(value),
                    _ => return Err(TOP_COUNT),
                }
            } else if option.eq_ignore_ascii_case(b"BY") && by.is_none() {
                by = match args.next().unwrap_or_default() {
                    value if value.eq_ignore_ascii_case(b"checks") => Some(RankBy::Checks),
                    value if value.eq_ignore_ascii_case(b"denials") => Some(RankBy::Denials),
                    _ => return Err(TOP_BY),
                };
            } else {
                return Err(TOP_SYNTAX);
            }
        }
        let count = usize::try_from(count.unwrap_or(10)).unwrap_or(usize::MAX);
        let now_us = ctx.now_us();
        stats::with(ctx, |stats| {
            let hottest = match &mut stats.top {
                Some(top) => top.hottest(count, by.unwrap_or(RankBy::Checks), now_us),
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

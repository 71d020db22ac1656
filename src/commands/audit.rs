//! `RL.AUDIT GET [count] | LEN | RESET | HELP`: the latest denials.

use std::ffi::CStr;

use rl_core::syntax;

use crate::error::{AUDIT_COUNT, AUDIT_SYNTAX, CommandError};
use crate::server::{Args, Argument, Command, CommandFlags, Context, Docs, Keys, help};
use crate::stats::{self, AuditEntry, AuditValue};

pub(crate) struct AuditCommand;

impl Command for AuditCommand {
    const NAME: &'static CStr = c"RL.AUDIT";
    // For administrators, because it shows the names of all keys.
    const FLAGS: CommandFlags = CommandFlags::ADMIN
        .union(CommandFlags::ALLOW_LOADING)
        .union(CommandFlags::ALLOW_STALE);
    const KEYS: Keys = Keys::None;
    const MIN_ARGS: usize = 2;
    const MAX_ARGS: usize = 3;
    const DOCS: Docs = Docs {
        summary: c"Shows the latest denials: when, which key, what denied, and whose call it was.",
        complexity: c"O(N) where N is the number of entries shown",
        since: c"0.1.0",
        arguments: &[Argument::one_of(
            c"subcommand",
            &[
                Argument::block(
                    c"get",
                    &[
                        Argument::token(c"get", c"GET"),
                        Argument::integer(c"count").optional(),
                    ],
                ),
                Argument::token(c"len", c"LEN"),
                Argument::token(c"reset", c"RESET"),
                Argument::token(c"help", c"HELP"),
            ],
        )],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), CommandError> {
        let subcommand = args.get(1).as_bytes();
        let is = |name: &str| subcommand.eq_ignore_ascii_case(name.as_bytes());
        if is("GET") {
            let count = match args.from(2).next() {
                Some(count) => syntax::as_count(count).ok_or(AUDIT_COUNT)?,
                None => 10,
            };
            get(ctx, usize::try_from(count).unwrap_or(usize::MAX));
        } else if args.len() > 2 {
            return Err(AUDIT_SYNTAX);
        } else if is("LEN") {
            let len = stats::with(ctx, |stats| stats.audit_log.len());
            ctx.reply_integer(len.unwrap_or(0) as i64);
        } else if is("RESET") {
            stats::with(ctx, |stats| stats.audit_log.reset());
            ctx.reply_ok();
        } else if is("HELP") {
            help::reply::<Self>(ctx);
        } else {
            return Err(AUDIT_SYNTAX);
        }
        Ok(())
    }
}

fn get(ctx: &Context, count: usize) {
    stats::with(ctx, |stats| {
        ctx.reply_array(count.min(stats.audit_log.len()));
        for entry in stats.audit_log.newest_first().take(count) {
            ctx.reply_map(AuditEntry::FIELDS);
            entry.fields(ctx, |name, value| {
                ctx.reply_text(name.as_bytes());
                match value {
                    AuditValue::Number(number) => ctx.reply_integer(number),
                    AuditValue::Text(text) => ctx.reply_text(text),
                }
            });
        }
    });
}

//! `RL.AUDIT GET [count] | LEN | RESET`: the latest denials.

use std::ffi::CStr;

use rl_core::{Error, parse};

use crate::eyes::{self, Entry, Shown};
use crate::failure::Failure;
use crate::redis::{Access, Args, Argument, Command, Context, Docs};

pub(crate) struct Audit;

const COUNT: Failure = Failure::Text("ERR count must be an integer between 0 and 9007199254740991");
const SYNTAX: Failure = Failure::Text("ERR syntax error: use RL.AUDIT GET [count], LEN or RESET");

impl Command for Audit {
    const NAME: &'static CStr = c"RL.AUDIT";
    const FLAGS: &'static CStr = c"admin allow-loading allow-stale";
    // Who sees names of all keys has to be trusted with them.
    const ACL: &'static str = "admin slow dangerous";
    const ACCESS: Access = Access::Keyless;
    const MIN_ARGS: usize = 2;
    const MAX_ARGS: usize = 3;
    const DOCS: Docs = Docs {
        summary: c"Tells the latest denials: when, which key, what denied, and whose call it was.",
        complexity: c"O(N) where N is the number of entries told",
        since: c"0.1.0",
        arguments: &[Argument::one_of(
            c"what",
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
            ],
        )],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), Failure> {
        let what = args.get(1).as_bytes();
        if what.eq_ignore_ascii_case(b"GET") {
            let most = match args.words(2).next() {
                Some(word) => parse::count(Some(word), Error::Limit).map_err(|_| COUNT)?,
                None => 10,
            };
            get(ctx, usize::try_from(most).unwrap_or(usize::MAX));
        } else if args.len() > 2 {
            return Err(SYNTAX);
        } else if what.eq_ignore_ascii_case(b"LEN") {
            let len = eyes::with(ctx, |eyes| eyes.audit.len());
            ctx.reply_integer(len.unwrap_or(0) as i64);
        } else if what.eq_ignore_ascii_case(b"RESET") {
            eyes::with(ctx, |eyes| eyes.audit.reset());
            ctx.reply_ok();
        } else {
            return Err(SYNTAX);
        }
        Ok(())
    }
}

fn get(ctx: &Context, most: usize) {
    eyes::with(ctx, |eyes| {
        ctx.reply_array(most.min(eyes.audit.len()));
        for entry in eyes.audit.newest_first().take(most) {
            ctx.reply_map(Entry::FIELDS);
            entry.fields(ctx, |name, value| {
                ctx.reply_text(name.as_bytes());
                match value {
                    Shown::Number(number) => ctx.reply_integer(number),
                    Shown::Text(text) => ctx.reply_text(text),
                }
            });
        }
    });
}

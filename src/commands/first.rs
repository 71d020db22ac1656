//! `RL.FIRST key spec [key spec …]`: charges the first limit that allows the call, and no other. Options stand at the start
//! of the first spec.

use std::ffi::CStr;

use super::multi::{Requests, docs, parse};
use crate::check::check_first;
use crate::error::CommandError;
use crate::reply;
use crate::server::{Args, Command, CommandFlags, Context, Docs, Keys};

pub(crate) struct FirstCommand;

impl Command for FirstCommand {
    const NAME: &'static CStr = c"RL.FIRST";
    const FLAGS: CommandFlags = CommandFlags::WRITE.union(CommandFlags::FAST);
    const KEYS: Keys = Keys::Pairs(1);
    const MIN_ARGS: usize = 3;
    const DOCS: Docs =
        docs(c"Charges the first of several limits that allows the call, and no other.");

    fn run(ctx: &Context, args: Args) -> Result<(), CommandError> {
        let now_us = ctx.now_us();
        let mut requests = Requests::new();
        let options = parse(ctx, args, 1, now_us, &mut requests)?;
        check_first(
            ctx,
            &requests,
            options,
            now_us,
            |decided, request, index| {
                if options.is_brief() {
                    reply::brief(ctx, &decided, request.reports_delay());
                } else {
                    reply::decision_with_index(ctx, &decided, index as i64);
                }
            },
        )
    }
}

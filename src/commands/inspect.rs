//! `RL.INSPECT key`: the stored state, field by field, for a person.

use std::ffi::CStr;

use crate::error::CommandError;
use crate::reply;
use crate::server::{Args, Argument, Command, CommandFlags, Context, Docs, Key};

pub(crate) struct InspectCommand;

impl Command for InspectCommand {
    const NAME: &'static CStr = c"RL.INSPECT";
    const FLAGS: CommandFlags = CommandFlags::READONLY.union(CommandFlags::FAST);
    const MIN_ARGS: usize = 2;
    const MAX_ARGS: usize = 2;
    const DOCS: Docs = Docs {
        summary: c"Shows what a key holds, field by field.",
        complexity: c"O(1); for LEASE O(N) where N is the number of holders, at most 10000",
        since: c"0.1.0",
        arguments: &[Argument::KEY],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), CommandError> {
        let mut key = Key::open_to_read(ctx, args.get(1));
        if let Ok(Some(stored)) = key.reservation() {
            reply::reservation_record(ctx, &stored.reservation()?, key.expire_at_ms());
            return Ok(());
        }
        key.read_any()?;
        match key.state() {
            Some(state) => reply::inspection(ctx, state, ctx.now_us(), key.expire_at_ms()),
            None => ctx.reply_null(),
        }
        Ok(())
    }
}

//! `RL.LOAD key expire-at-ms blob`: what replicas and the AOF receive. It is applied as received: nothing is decided
//! again.

use std::ffi::CStr;

use rl_core::policy::Overrides;
use rl_core::reservation::StoredReservation;
use rl_core::{Update, syntax};

use crate::commit::{self, Loaded};
use crate::error::{CommandError, EXPIRE_AT};
use crate::server::{Args, Argument, Command, CommandFlags, Context, Docs, Key, LOAD_COMMAND};

pub(crate) struct LoadCommand;

impl Command for LoadCommand {
    const NAME: &'static CStr = LOAD_COMMAND;
    const FLAGS: CommandFlags = CommandFlags::WRITE
        .union(CommandFlags::FAST)
        .union(CommandFlags::DANGEROUS);
    const MIN_ARGS: usize = 4;
    const MAX_ARGS: usize = 4;
    const DOCS: Docs = Docs {
        summary: c"Internal: sets a limit's state, as replicas and the AOF receive it.",
        complexity: c"O(1)",
        since: c"0.1.0",
        arguments: &[
            Argument::KEY,
            Argument::integer(c"expire-at-ms"),
            Argument::text(c"blob"),
        ],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), CommandError> {
        let (name, blob) = (args.get(1), args.get(3).as_bytes());
        let expire_at_ms = syntax::as_count(args.get(2).as_bytes()).ok_or(EXPIRE_AT)? as i64;
        let loaded = if Overrides::is_blob(blob) {
            Loaded::Overrides(Overrides::decode_blob(blob)?)
        } else if StoredReservation::is_blob(blob) {
            Loaded::Reservation(StoredReservation::decode_blob(blob)?)
        } else {
            Loaded::Update(Update::decode_blob(blob)?)
        };
        let mut key = Key::open_to_write(ctx, name);
        if is_expired(ctx, expire_at_ms) {
            commit::delete(ctx, &mut key, name);
        } else {
            commit::check_memory_unless_replicated(ctx, key.is_missing())?;
            commit::commit_loaded(ctx, &mut key, name, loaded, expire_at_ms)?;
        }
        ctx.reply_ok();
        Ok(())
    }
}

/// As with RESTORE, what has already expired is not stored. A replica leaves the deletion to its primary.
fn is_expired(ctx: &Context, expire_at_ms: i64) -> bool {
    let expired = expire_at_ms > 0 && expire_at_ms as u64 <= ctx.now_us() / 1000;
    expired && !ctx.is_replica_or_loading()
}

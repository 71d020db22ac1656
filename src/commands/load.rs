//! `RL.LOAD key expire-at-ms blob`: what replicas and the AOF receive. Applied as it is, never decided.

use std::ffi::CStr;

use rl_core::overrides::Overrides;
use rl_core::{Error, Next, State, parse};

use crate::failure::Failure;
use crate::redis::{Args, Argument, Command, Context, Docs, Key};

pub(crate) struct Load;

impl Command for Load {
    const NAME: &'static CStr = c"RL.LOAD";
    const FLAGS: &'static CStr = c"write deny-oom fast";
    const ACL: &'static str = "write fast dangerous";
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

    fn run(ctx: &Context, args: Args) -> Result<(), Failure> {
        let name = args.get(1);
        if Overrides::is_blob(args.get(3).as_bytes()) {
            return load_overrides(ctx, args);
        }
        let expire_at_ms = parse::count(Some(args.get(2).as_bytes()), Error::ExpireAt)? as i64;
        let next = Next::decode_blob(args.get(3).as_bytes())?;
        if expire_at_ms == 0 {
            return Err(Error::ExpireAt.into());
        }

        let mut key = Key::open_to_write(ctx, name);
        if expire_at_ms as u64 <= ctx.now_us() / 1000 && !ctx.is_applying() {
            // Over before it began, as with RESTORE. A replica leaves that to its primary.
            if key.delete() {
                ctx.replicate_delete(name);
                ctx.signal_modified(name);
            }
            ctx.reply_ok();
            return Ok(());
        }
        // Whatever else the key holds is replaced; a step from a state that is not there leads nowhere.
        let ours = key.read(next.algorithm()).is_ok();
        let next = match key.state() {
            Some(_) => Some(next),
            None => next.begin().map(Next::Whole),
        };
        if let Some(next) = next {
            if !ours {
                key.delete();
            }
            key.store(next)?;
            // No call leaves nothing behind, but a forged step may.
            if key.state().is_some_and(State::is_empty) {
                key.delete();
            } else {
                key.expire_at(expire_at_ms);
            }
            ctx.replicate_verbatim();
            ctx.signal_modified(name);
        }
        ctx.reply_ok();
        Ok(())
    }
}

/// Overrides come whole; an expiry of 0 stands for none.
fn load_overrides(ctx: &Context, args: Args) -> Result<(), Failure> {
    let name = args.get(1);
    let expire_at_ms = parse::count(Some(args.get(2).as_bytes()), Error::ExpireAt)? as i64;
    let overrides = Overrides::decode_blob(args.get(3).as_bytes())?;
    let mut key = Key::open_to_write(ctx, name);
    let over = expire_at_ms > 0 && expire_at_ms as u64 <= ctx.now_us() / 1000;
    if over && !ctx.is_applying() {
        if key.delete() {
            ctx.replicate_delete(name);
            ctx.signal_modified(name);
        }
    } else {
        key.put_overrides(overrides)?;
        key.expire_at_or_never(expire_at_ms);
        ctx.replicate_verbatim();
        ctx.signal_modified(name);
    }
    ctx.reply_ok();
    Ok(())
}

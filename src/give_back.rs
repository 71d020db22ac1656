//! The way back: a refund or a release, on the same key as the check before.

use rl_core::{Algorithm, Error, Return, State};

use crate::check::{Change, commit};
use crate::failure::Failure;
use crate::redis::{Arg, Context, Key};
use crate::replicate;

/// Gives back what `ask` says of the key's state, and deletes a key of which nothing is left. A missing key
/// gives back nothing.
pub(crate) fn give_back<'a>(
    ctx: &Context,
    name: Arg,
    algorithm: Option<Algorithm>,
    ask: impl FnOnce(&State, u64) -> Result<Return<'a>, Error>,
) -> Result<u64, Failure> {
    let mut key = Key::open_to_write(ctx, name);
    match algorithm {
        Some(algorithm) => key.read(algorithm)?,
        None => key.read_any()?,
    }
    let Some(state) = key.state() else {
        return Ok(0);
    };
    let given = ask(state, ctx.now_us())?;
    if given.units == 0 {
        return Ok(0);
    }
    match given.next {
        Some(next) => {
            if commit(ctx, &mut key, name, next, None)? == Change::Unheard {
                replicate::unheard(ctx);
            }
        }
        None => {
            key.delete();
            ctx.signal_modified(name);
            ctx.replicate_delete(name);
        }
    }
    Ok(given.units)
}

//! Refunds and releases: units that an earlier check charged are returned.

use rl_core::{Algorithm, Error, Refund, State};

use super::commit;
use crate::error::CommandError;
use crate::server::{Arg, Context, Key};

/// Returns the units that `compute` takes from the key's state, and deletes a key of which nothing is left. A missing
/// key has no units to return.
pub(crate) fn return_units<'a>(
    ctx: &Context,
    name: Arg,
    algorithm: Option<Algorithm>,
    compute: impl FnOnce(&State, u64) -> Result<Refund<'a>, Error>,
) -> Result<u64, CommandError> {
    let mut key = Key::open_to_write(ctx, name);
    match algorithm {
        Some(algorithm) => key.read(algorithm)?,
        None => key.read_any()?,
    }
    let Some(state) = key.state() else {
        return Ok(0);
    };
    let returned = compute(state, ctx.now_us())?;
    if returned.units == 0 {
        return Ok(0);
    }
    match returned.update {
        Some(update) => commit::commit_one(ctx, &mut key, name, update, None)?,
        None => commit::delete(ctx, &mut key, name),
    }
    Ok(returned.units)
}

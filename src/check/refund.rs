//! Refunds and releases of units that an earlier check charged.

use rl_core::{Algorithm, Error, Refund, State};

use crate::commit;
use crate::error::CommandError;
use crate::server::{Context, Key, ServerStr};

/// Stores what `compute` leaves of the key's state, or deletes the key if that is nothing. Returns the units that were
/// refunded or released; 0 if the key is missing.
pub(crate) fn refund_or_release<'a>(
    ctx: &Context,
    name: ServerStr,
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
    let refund = compute(state, ctx.now_us())?;
    if refund.units == 0 {
        return Ok(0);
    }
    match refund.update {
        Some(update) => commit::commit_one(ctx, &mut key, name, update, None)?,
        None => commit::delete(ctx, &mut key, name),
    }
    Ok(refund.units)
}

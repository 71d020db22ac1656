//! The only place that changes the keys of limits and overrides: it stores, expires, signals and replicates, always in
//! this order. (Policies loaded from a file are sent by `policy/persistence.rs`, the audit stream by
//! `stats/audit_stream.rs`.)

use rl_core::policy::Overrides;
use rl_core::reservation::StoredReservation;
use rl_core::{Blob, Error, Expiry, State, Update};

use crate::error::{CommandError, OUT_OF_MEMORY};
use crate::policy::slot_migration;
use crate::replication;
use crate::server::{Context, Key, ServerStr};

/// What a commit did.
#[derive(PartialEq, Eq)]
pub(crate) enum Change {
    Nothing,
    /// Replicas and the AOF received the state.
    Replicated,
    /// The state was not sent, because nothing can receive it. The caller has to call [`replication::mark_dirty`], once per command.
    Unreplicated,
}

/// Commits the only update of a command.
#[inline(always)]
pub(crate) fn commit_one(
    ctx: &Context,
    key: &mut Key,
    name: ServerStr,
    update: Update,
    expiry: Option<Expiry>,
) -> Result<(), CommandError> {
    if commit(ctx, key, name, update, expiry)? == Change::Unreplicated {
        replication::mark_dirty(ctx);
    }
    Ok(())
}

/// Commits one update of a command that may have several. Without `expiry`, that of the new state applies.
#[inline(always)]
pub(crate) fn commit(
    ctx: &Context,
    key: &mut Key,
    name: ServerStr,
    update: Update,
    expiry: Option<Expiry>,
) -> Result<Change, CommandError> {
    if replication::has_receivers() {
        commit_and_replicate(ctx, key, name, update, expiry)
    } else {
        commit_update(ctx, key, name, update, expiry, false)
    }
}

/// Out of line, so that the code without replication stays small enough to be inlined into each command.
#[inline(never)]
fn commit_and_replicate(
    ctx: &Context,
    key: &mut Key,
    name: ServerStr,
    update: Update,
    expiry: Option<Expiry>,
) -> Result<Change, CommandError> {
    commit_update(ctx, key, name, update, expiry, true)
}

#[inline(always)]
fn commit_update(
    ctx: &Context,
    key: &mut Key,
    name: ServerStr,
    update: Update,
    expiry: Option<Expiry>,
    replicate: bool,
) -> Result<Change, CommandError> {
    let update = match replicate && key.state().is_none() {
        true => into_whole_state(update)?,
        false => update,
    };
    let (blob, expiry) = match expiry {
        Some(expiry) => (key.store(update, replicate)?, expiry),
        None => {
            let at_ms = |key: &Key| key.state().map_or(0, |state| state.expire_at_ms());
            let before = at_ms(key);
            let blob = key.store(update, replicate)?;
            let expiry = Expiry {
                at_ms: at_ms(key),
                unchanged: at_ms(key) == before,
            };
            (blob, expiry)
        }
    };
    // An expiry that somebody has set by hand applies until ours next changes, here and on replicas.
    let mut expire_at_ms = expiry.at_ms as i64;
    if !expiry.unchanged {
        key.expire_at(expire_at_ms);
    } else if blob.is_some() {
        expire_at_ms = key.actual_expiry(expire_at_ms);
    }
    ctx.signal_modified(name);
    Ok(send(ctx, name, expire_at_ms, blob))
}

/// Sends a state, if it was encoded because something can receive it.
#[inline(always)]
fn send(ctx: &Context, name: ServerStr, expire_at_ms: i64, blob: Option<Blob>) -> Change {
    match blob {
        Some(blob) => {
            replication::send_state(ctx, name, expire_at_ms, &blob);
            Change::Replicated
        }
        None => Change::Unreplicated,
    }
}

/// The first state of a key is sent whole. A replica may still have a state that has expired, if its primary did not
/// send the deletion (as after DEBUG RELOAD), and would apply an update to it.
#[cold]
fn into_whole_state(update: Update) -> Result<Update, Error> {
    update
        .into_initial()
        .map(Update::Replace)
        .ok_or(Error::Internal)
}

/// Fails if a new key is needed while memory is full: such a server goes on checking the keys that it has. (The flag
/// deny-oom would refuse all calls.)
#[inline(always)]
pub(crate) fn check_memory(ctx: &Context, is_new: bool) -> Result<(), CommandError> {
    if is_new && ctx.is_full() {
        return Err(OUT_OF_MEMORY);
    }
    Ok(())
}

/// Like [`check_memory`], but what a primary has accepted, its replicas store even if their memory is full. (The flag
/// deny-oom would make them refuse it.)
pub(crate) fn check_memory_unless_replicated(
    ctx: &Context,
    is_new: bool,
) -> Result<(), CommandError> {
    if ctx.is_replica_or_loading() {
        return Ok(());
    }
    check_memory(ctx, is_new)
}

/// Deletes a key, if it exists.
pub(crate) fn delete(ctx: &Context, key: &mut Key, name: ServerStr) {
    if key.delete() {
        ctx.signal_modified(name);
        replication::send_deletion(ctx, name);
    }
}

/// Stores overrides under an override key, or deletes the override key if there are none.
pub(crate) fn commit_overrides(
    ctx: &Context,
    key: &mut Key,
    name: ServerStr,
    overrides: Overrides,
) -> Result<(), CommandError> {
    if overrides.is_empty() {
        delete(ctx, key, name);
        slot_migration::on_override_deleted(name.as_bytes());
        return Ok(());
    }
    let expire_at_ms = overrides.expire_at_ms() as i64;
    let blob = overrides.blob();
    key.store_overrides(overrides)?;
    key.expire_at_or_never(expire_at_ms);
    ctx.signal_modified(name);
    replication::send_state(ctx, name, expire_at_ms, &blob);
    Ok(())
}

/// Stores the record of a reservation.
pub(crate) fn commit_reservation(
    ctx: &Context,
    key: &mut Key,
    name: ServerStr,
    stored: StoredReservation,
    expire_at_ms: i64,
) -> Result<Change, CommandError> {
    let blob = replication::has_receivers().then(|| stored.blob());
    key.store_reservation(stored)?;
    key.expire_at_or_never(expire_at_ms);
    ctx.signal_modified(name);
    Ok(send(ctx, name, expire_at_ms, blob))
}

/// What RL.LOAD stores.
pub(crate) enum Loaded<'a> {
    Update(Update<'a>),
    Overrides(Overrides),
    Reservation(StoredReservation),
}

/// Stores what a primary or a file contains, as it is. Whatever else the key holds is replaced.
pub(crate) fn commit_loaded(
    ctx: &Context,
    key: &mut Key,
    name: ServerStr,
    loaded: Loaded,
    expire_at_ms: i64,
) -> Result<(), CommandError> {
    let stored = match loaded {
        Loaded::Update(update) => store_update(key, update)?,
        Loaded::Overrides(overrides) => {
            key.store_overrides(overrides)?;
            true
        }
        Loaded::Reservation(stored) => {
            key.store_reservation(stored)?;
            true
        }
    };
    if !stored {
        return Ok(());
    }
    // No call leaves an empty state, but a forged update may.
    if key.state().is_some_and(State::is_empty) {
        key.delete();
    } else {
        key.expire_at_or_never(expire_at_ms);
    }
    ctx.signal_modified(name);
    replication::send_command(ctx);
    Ok(())
}

/// Returns `false` if there is nothing to store, because the state that the update changes is missing.
fn store_update(key: &mut Key, update: Update) -> Result<bool, Error> {
    let same_algorithm = key.read(update.algorithm()).is_ok();
    let update = match key.state() {
        Some(_) => Some(update),
        None => update.into_initial().map(Update::Replace),
    };
    let Some(update) = update else {
        return Ok(false);
    };
    if !same_algorithm {
        key.delete();
    }
    key.store(update, false)?;
    Ok(true)
}

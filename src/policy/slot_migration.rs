//! In a cluster, a slot may move to another node key by key. Overrides are keys of their own, so the overrides of a key
//! may be on another node than the key. A call that finds no override here has to make sure that there is none, or reply
//! TRYAGAIN, exactly as if the command had named both keys.
//!
//! The server can answer that question (see [`Context::serves_both`]), but it takes time. Most calls need not ask:
//!
//! - A key that exists here came here with its slot, was created here after the server had been asked, or has arrived
//!   alone while its slot is being imported. The last case is noticed when a value arrives.
//! - While a slot is being moved away, its keys are still served here as long as they are here. The overrides that
//!   have left are remembered by name.
//!
//! All of this is forgotten when no slot of this node has been moving for a while. That is not done at once, because a
//! migration may be stopped half-way, or lose a primary, and be resumed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::error::{CommandError, TRY_AGAIN};
use crate::server::{Context, ServerStr, ServerString};

/// More names than this are not remembered one by one.
const MAX_REMEMBERED: usize = 100_000;

/// How often to check whether slots are still moving.
const CHECK_EVERY_US: u64 = 1_000_000;

/// How many checks in a row must find no moving slot before anything is forgotten: ten minutes.
const QUIET_CHECKS: u32 = 600;

/// Whether the server is a node of a cluster.
static CLUSTER: AtomicBool = AtomicBool::new(false);

/// Whether any of the following is set.
static SUSPECTED: AtomicBool = AtomicBool::new(false);

/// A value of ours has arrived: a slot may be being imported.
static VALUE_LOADED: AtomicBool = AtomicBool::new(false);

/// What was noticed before has been lost, as after a restart.
static UNCERTAIN: AtomicBool = AtomicBool::new(false);

/// Override keys that have been removed from here, each with the number of databases in which that happened.
static UNLINKED: LazyLock<Mutex<HashMap<Box<[u8]>, u32>>> = LazyLock::new(Mutex::default);

/// The number of checks since anything was noticed.
static QUIET: AtomicU32 = AtomicU32::new(0);

static CHECKED_US: AtomicU64 = AtomicU64::new(0);

pub(crate) fn init(ctx: &Context) {
    CLUSTER.store(ctx.is_cluster(), Relaxed);
}

#[inline]
pub(crate) fn is_cluster() -> bool {
    CLUSTER.load(Relaxed)
}

/// Whether a key that exists here may have its override elsewhere.
#[inline]
pub(crate) fn is_suspected() -> bool {
    SUSPECTED.load(Relaxed)
}

/// The server has loaded a dataset or changed its role: which slots were moving before is unknown.
pub(crate) fn on_dataset_replaced() {
    if is_cluster() {
        UNCERTAIN.store(true, Relaxed);
        suspect();
    }
}

fn suspect() {
    QUIET.store(0, Relaxed);
    SUSPECTED.store(true, Relaxed);
}

/// A value of this module was read from a payload or a file.
pub(crate) fn on_value_loaded() {
    if is_cluster() {
        VALUE_LOADED.store(true, Relaxed);
        suspect();
    }
}

/// An override key was removed, perhaps because it has been moved to another node.
pub(crate) fn on_override_unlinked(override_key: &[u8]) {
    if is_cluster() {
        let mut names = unlinked();
        if let Some(times) = names.get_mut(override_key) {
            *times += 1;
        } else if names.len() < MAX_REMEMBERED {
            names.insert(override_key.into(), 1);
        } else {
            UNCERTAIN.store(true, Relaxed);
        }
        suspect();
    }
}

/// An override key was deleted here, so it is on no other node. [`on_override_unlinked`] has noticed that as well.
pub(crate) fn on_override_deleted(override_key: &[u8]) {
    if is_suspected() {
        let mut names = unlinked();
        match names.get_mut(override_key) {
            Some(times) if *times > 1 => *times -= 1,
            _ => {
                names.remove(override_key);
            }
        }
    }
}

fn unlinked() -> MutexGuard<'static, HashMap<Box<[u8]>, u32>> {
    UNLINKED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fails if the override of `name`, which is not here, may be on another node. `exists` says whether the key
/// itself is here.
#[cold]
pub(crate) fn check_call(
    ctx: &Context,
    name: ServerStr,
    override_key: &[u8],
    exists: bool,
) -> Result<(), CommandError> {
    let settled = exists
        && !VALUE_LOADED.load(Relaxed)
        && !UNCERTAIN.load(Relaxed)
        && !unlinked().contains_key(override_key);
    if settled {
        return Ok(());
    }
    let override_key = ServerString::new(ctx, override_key);
    check_served(ctx, name, override_key.borrow(), !exists)
}

/// The same for commands that change or show the override itself, which are rare enough to always ask the server.
pub(crate) fn check(
    ctx: &Context,
    name: ServerStr,
    override_key: &ServerString,
) -> Result<(), CommandError> {
    check_served(ctx, name, override_key.borrow(), false)
}

fn check_served(
    ctx: &Context,
    name: ServerStr,
    override_key: ServerStr,
    missing: bool,
) -> Result<(), CommandError> {
    // A replica answers from what it has, as it does for the server's own commands.
    if !is_cluster() || ctx.is_replica_or_loading() || ctx.serves_both(name, override_key, missing)
    {
        return Ok(());
    }
    Err(TRY_AGAIN)
}

/// Called from the server's housekeeping: forgets what no longer matters.
pub(crate) fn on_cron(ctx: &Context) {
    if !is_suspected() || ctx.is_loading() {
        return;
    }
    let now_us = ctx.now_us();
    let since_us = now_us.wrapping_sub(CHECKED_US.load(Relaxed));
    if since_us < CHECK_EVERY_US {
        return;
    }
    CHECKED_US.store(now_us, Relaxed);
    let Some(moving) = ctx.moving_slots() else {
        return;
    };
    if moving.importing || moving.migrating {
        QUIET.store(0, Relaxed);
    } else if QUIET.fetch_add(1, Relaxed) + 1 >= QUIET_CHECKS {
        VALUE_LOADED.store(false, Relaxed);
        UNCERTAIN.store(false, Relaxed);
        unlinked().clear();
        SUSPECTED.store(false, Relaxed);
    }
}

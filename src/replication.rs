//! What replicas and the AOF receive: the resulting state, never the call that led to it. `commit.rs` sends it with this
//! module, and `commands/load.rs` applies it.
//!
//! The server takes a while to build `RL.LOAD key expire-at-ms blob`. While it is certain that nothing can receive it,
//! a cheaper call only counts the change towards save points.
//!
//! States are sent from the start, and again after every event of the server. Only the server's housekeeping can stop
//! that, after a round without events, if it finds no cluster, AOF, replica, backlog, load or child process. While
//! states are not sent, it checks again in every round. So if this module misses an event, receivers get the
//! calls themselves until the next round, and decide them again: `replay_watchdog.rs` notices that.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

use crate::server::{Context, ServerStr};

/// Nothing can receive a state.
const NO_RECEIVERS: u8 = 0;
/// States are sent, and there was an event since the last round of housekeeping.
const EVENT_SEEN: u8 = 1;
/// States are sent, and there was no event since the last round.
const NO_EVENT: u8 = 2;

static RECEIVERS: AtomicU8 = AtomicU8::new(EVENT_SEEN);

/// Whether the server reports every event that matters. If not, states are always sent.
static HAS_ALL_EVENTS: AtomicBool = AtomicBool::new(false);

/// How often the housekeeping found a receiver that no event had announced.
static UNANNOUNCED_RECEIVERS: AtomicU64 = AtomicU64::new(0);

pub(crate) fn init(has_all_events: bool) {
    HAS_ALL_EVENTS.store(has_all_events, Relaxed);
}

pub(crate) fn unannounced_receivers() -> u64 {
    UNANNOUNCED_RECEIVERS.load(Relaxed)
}

#[inline(always)]
pub(crate) fn has_receivers() -> bool {
    RECEIVERS.load(Relaxed) != NO_RECEIVERS
}

pub(crate) fn on_event() {
    RECEIVERS.store(EVENT_SEEN, Relaxed);
}

pub(crate) fn on_cron(ctx: &Context) {
    match RECEIVERS.load(Relaxed) {
        EVENT_SEEN => RECEIVERS.store(NO_EVENT, Relaxed),
        NO_EVENT => {
            if HAS_ALL_EVENTS.load(Relaxed) && ctx.receivers().is_none() {
                RECEIVERS.store(NO_RECEIVERS, Relaxed);
            }
        }
        _ => {
            if let Some(receivers) = ctx.receivers() {
                RECEIVERS.store(EVENT_SEEN, Relaxed);
                // A replica that still waits for its snapshot is announced by the fork that takes it.
                if !receivers.only_waiting {
                    UNANNOUNCED_RECEIVERS.fetch_add(1, Relaxed);
                    ctx.log_warning(
                        c"rl: a receiver of states was found that no event of the server had announced; please report it",
                    );
                }
            }
        }
    }
}

/// Sends the state of a key: `RL.LOAD key expire-at-ms blob`.
#[inline(always)]
pub(crate) fn send_state(ctx: &Context, name: ServerStr, expire_at_ms: i64, blob: &[u8]) {
    ctx.replicate_load(name, expire_at_ms, blob);
}

/// Sends the deletion of a key.
pub(crate) fn send_deletion(ctx: &Context, name: ServerStr) {
    ctx.replicate_delete(name);
}

/// Sends a command as it is, for changes that lead to the same result everywhere.
pub(crate) fn send_command(ctx: &Context) {
    ctx.replicate_verbatim();
}

/// Counts a command towards save points whose states were not sent. Replicating it is how to do that, and the cheapest
/// way; nothing receives it.
#[inline(always)]
pub(crate) fn mark_dirty(ctx: &Context) {
    ctx.replicate_verbatim();
}

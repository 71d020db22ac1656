//! Whether a change has to be sent to replicas and the AOF. If so, the resulting state is sent, never the call that led
//! to it: see `commit.rs`.
//!
//! The server takes a while to build `RL.LOAD key expire-at-ms blob`. While it is certain that nothing can receive it,
//! a cheaper call only counts the change towards save points.
//!
//! States are sent from the start, and again after every event of the server. Only the server's housekeeping can stop
//! that, after a round without events, if it finds no cluster, AOF, replica, backlog, load or child process. While
//! states are not sent, it checks again in every round. So if this module misses an event, receivers get the
//! calls themselves until the next round, and decide them again: `replay_watchdog.rs` notices that.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

use crate::server::Context;

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

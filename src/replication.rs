//! Whether a change is sent to replicas and the AOF. It is sent as the resulting state, never as the call that led to
//! it: see `commit.rs`.
//!
//! `RL.LOAD key expire-at-ms blob` takes the server a while to build. While it is certain that nothing can
//! receive it, a cheaper call only counts the change towards save points. States are sent from the start,
//! and again from every event of the server on. Only its housekeeping may stop that, after a round without
//! events, if it finds neither cluster nor AOF, replica, backlog, load or child process; and while states are
//! not sent, it checks again in every round. So an event that this module does not know of costs a moment.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

use crate::server::Context;
use crate::stats;

/// Nothing can receive a state.
const NO_RECEIVERS: u8 = 0;
/// States are sent, and there was an event since the last round of housekeeping.
const EVENT_SEEN: u8 = 1;
/// States are sent, and there was no event since then.
const NO_EVENT: u8 = 2;

static RECEIVERS: AtomicU8 = AtomicU8::new(EVENT_SEEN);

/// Whether the server reports every event that matters. If not, states are always sent.
static HAS_ALL_EVENTS: AtomicBool = AtomicBool::new(false);

/// How often the housekeeping found a receiver that no event had announced.
static UNANNOUNCED_RECEIVERS: AtomicU64 = AtomicU64::new(0);

/// Calls that a replica or the replay of an AOF has decided again: a primary has sent the call, not its state.
static REPLAYED_DECISIONS: AtomicU64 = AtomicU64::new(0);

/// How many calls had been decided when this server last was known to decide none.
static DECISIONS_BEFORE: AtomicU64 = AtomicU64::new(UNKNOWN);
const UNKNOWN: u64 = u64::MAX;

pub(crate) fn init(has_all_events: bool) {
    HAS_ALL_EVENTS.store(has_all_events, Relaxed);
}

pub(crate) fn unannounced_receivers() -> u64 {
    UNANNOUNCED_RECEIVERS.load(Relaxed)
}

pub(crate) fn replayed_decisions() -> u64 {
    REPLAYED_DECISIONS.load(Relaxed)
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
    if ctx.is_read_only_replica() {
        expect_no_decisions(ctx);
    } else {
        DECISIONS_BEFORE.store(UNKNOWN, Relaxed);
    }
}

/// From now on this server may decide calls, or no longer.
pub(crate) fn on_role_change() {
    on_event();
    DECISIONS_BEFORE.store(UNKNOWN, Relaxed);
}

pub(crate) fn on_load_start(ctx: &Context) {
    on_event();
    DECISIONS_BEFORE.store(stats::decisions(ctx), Relaxed);
}

pub(crate) fn on_load_end(ctx: &Context) {
    on_event();
    expect_no_decisions(ctx);
    DECISIONS_BEFORE.store(UNKNOWN, Relaxed);
}

/// A replica and a load receive states. A call that is decided again there shows that its primary broke that promise.
fn expect_no_decisions(ctx: &Context) {
    let now = stats::decisions(ctx);
    let before = DECISIONS_BEFORE.swap(now, Relaxed);
    if before == UNKNOWN || now <= before {
        return;
    }
    if REPLAYED_DECISIONS.fetch_add(now - before, Relaxed) == 0 {
        ctx.log_warning(
            c"rl: this server received calls instead of states from its primary or AOF and decided them again; please report it",
        );
    }
}

//! How a change reaches replicas and the AOF: as the resulting state, never as the call that led to it.
//!
//! `RL.LOAD key expire-at-ms blob` takes the server a while to build. While nothing can receive it, a
//! cheaper call only counts the change towards save points. Something can receive it when the AOF is on
//! or a replication backlog exists, or in a cluster, where slots may migrate.
//!
//! Neither begins without an event. An AOF and a replica's copy begin with a fork; a promoted replica has
//! a backlog, and learns of its role. So every such event turns the effects on at once, and the next
//! round of the server's housekeeping turns them off again if nothing can receive them after all.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::redis::{Context, Event, subscribe};

static LISTENED_TO: AtomicBool = AtomicBool::new(true);
static RECHECK: AtomicBool = AtomicBool::new(false);

pub(crate) fn init(ctx: &Context) {
    // Where the server cannot tell of all events, somebody may always listen.
    LISTENED_TO.store(!subscribe(ctx) || can_be_received(ctx), Relaxed);
}

pub(crate) fn on_event(ctx: &Context, event: Event) {
    if event != Event::Cron {
        LISTENED_TO.store(true, Relaxed);
        RECHECK.store(true, Relaxed);
    } else if RECHECK.swap(false, Relaxed) {
        LISTENED_TO.store(can_be_received(ctx), Relaxed);
    }
}

fn can_be_received(ctx: &Context) -> bool {
    ctx.is_cluster() || ctx.has_aof() || ctx.has_backlog()
}

pub(crate) fn is_listened_to() -> bool {
    LISTENED_TO.load(Relaxed)
}

/// A change that nobody receives, to be called once for each command.
pub(crate) fn unheard(ctx: &Context) {
    ctx.replicate_verbatim();
}

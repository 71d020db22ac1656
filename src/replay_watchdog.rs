//! Notices calls that a replica, or a server that loads an AOF, decides again. Both should receive states instead: see
//! `replication.rs`. A replayed call shows a bug, in this module or in the primary that sent it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::server::Context;
use crate::stats;

/// How many calls were decided again, for INFO.
static REPLAYED_DECISIONS: AtomicU64 = AtomicU64::new(0);

/// The number of decided calls from which none should be added; [`NOT_WATCHING`] if this server may decide calls.
static EXPECTED_DECISIONS: AtomicU64 = AtomicU64::new(NOT_WATCHING);
const NOT_WATCHING: u64 = u64::MAX;

pub(crate) fn replayed_decisions() -> u64 {
    REPLAYED_DECISIONS.load(Relaxed)
}

pub(crate) fn on_cron(ctx: &Context) {
    if ctx.is_read_only_replica() {
        check(ctx);
    } else {
        stop();
    }
}

/// The server may decide calls from now on, or may no longer do so: the next round of housekeeping finds out.
pub(crate) fn on_role_change() {
    stop();
}

pub(crate) fn on_load_start(ctx: &Context) {
    EXPECTED_DECISIONS.store(stats::decisions(ctx), Relaxed);
}

pub(crate) fn on_load_end(ctx: &Context) {
    check(ctx);
    stop();
}

fn stop() {
    EXPECTED_DECISIONS.store(NOT_WATCHING, Relaxed);
}

/// Counts the calls that were decided since the last check.
fn check(ctx: &Context) {
    let decisions = stats::decisions(ctx);
    let expected = EXPECTED_DECISIONS.swap(decisions, Relaxed);
    if expected == NOT_WATCHING || decisions <= expected {
        return;
    }
    if REPLAYED_DECISIONS.fetch_add(decisions - expected, Relaxed) == 0 {
        ctx.log_warning(
            c"rl: this server received calls instead of states from its primary or AOF and decided them again; please report it",
        );
    }
}

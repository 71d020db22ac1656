//! The fields of `INFO rl`.

use rl_core::stats::Outcome;

use super::with;
use crate::check::policy_state_resets;
use crate::policy::registry;
use crate::server::{Info, InfoAccess, keys_with_overrides};
use crate::{replay_watchdog, replication};

/// Fields that a crash report also contains: it may be written at any moment, on any thread.
pub(crate) fn write_atomics(info: &Info) {
    info.text(c"version", crate::VERSION);
    info.number(c"policies", registry::count() as u64);
    info.number(c"keys_with_overrides", keys_with_overrides() as u64);
    info.number(c"policy_state_resets", policy_state_resets());
    // Whether changes are sent as states now, because a replica or the AOF may receive them.
    info.number(c"replicating", u64::from(replication::has_receivers()));
    // Both are 0 unless there is a bug in this module or its primary.
    let unannounced = replication::unannounced_receivers();
    info.number(c"unannounced_receivers", unannounced);
    info.number(c"replayed_decisions", replay_watchdog::replayed_decisions());
}

pub(crate) fn write_counters(info: &Info, proof: &InfoAccess) {
    with(proof, |stats| {
        for (field, outcome) in [
            (c"allowed", Outcome::Allowed),
            (c"denied", Outcome::Denied),
            (c"shadow_denied", Outcome::ShadowDenied),
            (c"forced", Outcome::Forced),
            (c"refunded_units", Outcome::RefundedUnits),
        ] {
            info.number(field, stats.counters.total(outcome));
        }
        info.number(c"audit_len", stats.audit_log.len() as u64);
        info.number(c"audit_stream_errors", stats.stream_errors);
    });
}

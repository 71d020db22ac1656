//! `INFO rl`

use rl_core::Counted;

use crate::redis::{Info, overrides_held};
use crate::{eyes, registry, replicate};

pub(crate) fn write(info: &Info) {
    info.text(c"version", crate::VERSION);
    info.number(c"policies", registry::count() as u64);
    info.number(c"overrides", overrides_held() as u64);
    // Whether changes go out as states now, because a replica or the AOF may receive them.
    info.number(c"sends_states", u64::from(replicate::is_listened_to()));
    eyes::with(info, |eyes| {
        for (field, what) in [
            (c"allowed", Counted::Allowed),
            (c"denied", Counted::Denied),
            (c"shadow_denied", Counted::ShadowDenied),
            (c"forced", Counted::Forced),
            (c"refunded", Counted::Refunded),
        ] {
            info.number(field, eyes.tally.total(what));
        }
        info.number(c"audit_len", eyes.audit.len() as u64);
        info.number(c"audit_stream_errors", eyes.stream_errors);
    });
}

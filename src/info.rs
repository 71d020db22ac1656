//! `INFO rl`

use crate::redis::{Info, overrides_held};
use crate::{registry, replicate};

pub(crate) fn write(info: &Info) {
    info.text(c"version", crate::VERSION);
    info.number(c"policies", registry::count() as u64);
    info.number(c"overrides", overrides_held() as u64);
    // Whether changes go out as states now, because a replica or the AOF may receive them.
    info.number(c"sends_states", u64::from(replicate::is_listened_to()));
}

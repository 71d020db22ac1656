//! `INFO rl`

use crate::redis::Info;
use crate::replicate;

pub(crate) fn write(info: &Info) {
    info.text(c"version", crate::VERSION);
    // Whether changes go out as states now, because a replica or the AOF may receive them.
    info.number(c"sends_states", u64::from(replicate::is_listened_to()));
}

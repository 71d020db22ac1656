//! `RL.FIXED key limit window [cost] [PEEK] [FORCE]`

use super::single::one_limit;
use crate::redis::Argument;

one_limit! {
    Fixed, c"FIXED", c"RL.FIXED", c"O(1)",
    c"Checks and counts a call against a window aligned to the Unix epoch.",
    parameters: [Argument::integer(c"limit"), Argument::text(c"window")],
    options: []
}

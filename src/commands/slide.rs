//! `RL.SLIDE key limit window [cost] [PRECISION n] [PEEK] [FORCE]`

use super::single::one_limit;
use crate::redis::Argument;

one_limit! {
    Slide, c"SLIDE", c"RL.SLIDE", c"O(1)",
    c"Checks and counts a call against a sliding-window limit.",
    parameters: [Argument::integer(c"limit"), Argument::text(c"window")],
    options: [Argument::valued(c"precision", c"PRECISION")]
}

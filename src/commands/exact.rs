//! `RL.EXACT key limit window [cost] [PEEK] [FORCE]`

use super::single::one_limit;
use crate::redis::Argument;

one_limit! {
    Exact, c"EXACT", c"RL.EXACT", c"O(1) amortised; O(log N) to find a wait, N being the calls in the window",
    c"Checks and logs a call against an exact sliding window.",
    parameters: [Argument::integer(c"limit"), Argument::text(c"window")],
    options: []
}

//! `RL.LEAK key capacity rate period [cost] [PEEK] [FORCE]`

use super::single::one_limit;
use crate::redis::Argument;

one_limit! {
    Leak, c"LEAK", c"RL.LEAK", c"O(1)",
    c"Queues a call in a leaky bucket, and tells how long to wait.",
    parameters: [Argument::integer(c"capacity"), Argument::integer(c"rate"), Argument::text(c"period")],
    options: []
}

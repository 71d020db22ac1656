//! `RL.LEASE key limit ttl holder [cost] [PEEK] [FORCE]`

use super::single::one_limit;
use crate::redis::Argument;

one_limit! {
    Lease, c"LEASE", c"RL.LEASE", c"O(N) where N is the number of holders, at most 10000",
    c"Leases what may be held at once, until released or its ttl is over.",
    parameters: [Argument::integer(c"limit"), Argument::text(c"ttl"), Argument::text(c"holder")],
    options: []
}

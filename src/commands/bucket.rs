//! `RL.BUCKET key capacity refill period [cost] [PEEK] [FORCE]`

use super::single::one_limit;
use crate::redis::Argument;

one_limit! {
    Bucket, c"BUCKET", c"RL.BUCKET", c"O(1)",
    c"Checks a call against a token bucket and takes its tokens.",
    parameters: [Argument::integer(c"capacity"), Argument::integer(c"refill"), Argument::text(c"period")],
    options: []
}

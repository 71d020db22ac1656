//! `RL.BUCKET key capacity refill period [cost] [PEEK] [FORCE]`

use std::ffi::CStr;

use rl_core::Algorithm;

use super::single::{self, COST, FORCE, PEEK};
use crate::failure::Failure;
use crate::redis::{Args, Argument, Command, Context, Docs};

pub(crate) struct Bucket;

impl Command for Bucket {
    const NAME: &'static CStr = c"RL.BUCKET";
    const FLAGS: &'static CStr = c"write deny-oom fast";
    const ACL: &'static str = "write fast";
    const MIN_ARGS: usize = 5;
    const DOCS: Docs = Docs {
        summary: c"Checks a call against a token bucket and takes its tokens.",
        complexity: c"O(1)",
        since: c"0.1.0",
        arguments: &[
            Argument::KEY,
            Argument::integer(c"capacity"),
            Argument::integer(c"refill"),
            Argument::text(c"period"),
            COST,
            PEEK.optional(),
            FORCE.optional(),
        ],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), Failure> {
        single::run(ctx, args, Algorithm::Bucket)
    }
}

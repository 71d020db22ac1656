//! `RL.SLIDE key limit window [cost] [PEEK] [FORCE]`

use std::ffi::CStr;

use rl_core::Algorithm;

use super::single::{self, COST, FORCE, PEEK};
use crate::failure::Failure;
use crate::redis::{Args, Argument, Command, Context, Docs};

pub(crate) struct Slide;

impl Command for Slide {
    const NAME: &'static CStr = c"RL.SLIDE";
    const FLAGS: &'static CStr = c"write deny-oom fast";
    const ACL: &'static str = "write fast";
    const MIN_ARGS: usize = 4;
    const DOCS: Docs = Docs {
        summary: c"Checks and counts a call against a sliding-window limit.",
        complexity: c"O(1)",
        since: c"0.1.0",
        arguments: &[
            Argument::KEY,
            Argument::integer(c"limit"),
            Argument::text(c"window"),
            COST,
            PEEK.optional(),
            FORCE.optional(),
        ],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), Failure> {
        single::run(ctx, args, Algorithm::Slide)
    }
}

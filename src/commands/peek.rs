//! `RL.PEEK key spec`: what would this call answer? Read-only, so replicas answer it too.

use std::ffi::CStr;

use rl_core::Error;
use rl_core::parse::{Ask, Options};

use super::multi::{SHADOW, SPEC};
use super::single;
use crate::check::Request;
use crate::failure::Failure;
use crate::redis::{Access, Args, Argument, Command, Context, Docs};

pub(crate) struct Peek;

impl Command for Peek {
    const NAME: &'static CStr = c"RL.PEEK";
    const FLAGS: &'static CStr = c"readonly fast";
    const ACL: &'static str = "read fast";
    const ACCESS: Access = Access::Read;
    const MIN_ARGS: usize = 5;
    const DOCS: Docs = Docs {
        summary: c"Tells what a call would be answered, without making it.",
        complexity: c"O(1)",
        since: c"0.1.0",
        arguments: &[Argument::KEY, SHADOW, SPEC],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), Failure> {
        let mut words = args.words(2);
        let ask = Ask::parse(&mut words)?;
        if words.next().is_some() {
            return Err(Error::TrailingWords.into());
        }
        let now_us = ctx.now_us();
        let request = Request::of(ctx, args.get(1), ask, now_us)?;
        let options = Options {
            peek: true,
            force: false,
        };
        single::answer(ctx, &request, options, now_us)
    }
}

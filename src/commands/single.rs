//! What the one-limit commands share: `RL.<ALGORITHM> key parameters… [cost] [options…]`.

use rl_core::{Algorithm, parse};

use crate::check::{self, Limits, Request};
use crate::failure::Failure;
use crate::redis::{Args, Argument, Context};
use crate::reply;

pub(super) const COST: Argument = Argument::integer(c"cost");
pub(super) const PEEK: Argument = Argument::token(c"peek", c"PEEK");
pub(super) const FORCE: Argument = Argument::token(c"force", c"FORCE");

/// A one-limit command, and the spec by which RL.MULTI and RL.PEEK know the same limit.
macro_rules! one_limit {
    (
        $command:ident, $token:literal, $name:literal, $complexity:literal, $summary:literal,
        parameters: [$($parameter:expr),+],
        options: [$($option:expr),*]
    ) => {
        pub(crate) struct $command;

        impl crate::redis::Command for $command {
            const NAME: &'static std::ffi::CStr = $name;
            const FLAGS: &'static std::ffi::CStr = c"write fast";
            const ACL: &'static str = "write fast";
            const MIN_ARGS: usize = 2 + rl_core::Algorithm::$command.parameters();
            const DOCS: crate::redis::Docs = crate::redis::Docs {
                summary: $summary,
                complexity: $complexity,
                since: c"0.1.0",
                arguments: &[
                    crate::redis::Argument::KEY,
                    $($parameter,)+
                    super::single::COST.optional(),
                    $($option.optional(),)*
                    super::single::PEEK.optional(),
                    super::single::FORCE.optional(),
                ],
            };

            fn run(
                ctx: &crate::redis::Context,
                args: crate::redis::Args,
            ) -> Result<(), crate::failure::Failure> {
                super::single::run(ctx, args, rl_core::Algorithm::$command)
            }
        }

        pub(super) const SPEC: crate::redis::Argument = crate::redis::Argument::block(
            c"limit",
            &[
                crate::redis::Argument::token(c"algorithm", $token),
                $($parameter,)+
                super::single::COST,
                $($option.optional(),)*
            ],
        );
    };
}
pub(super) use one_limit;

#[inline(always)]
pub(super) fn run(ctx: &Context, args: Args, algorithm: Algorithm) -> Result<(), Failure> {
    let (spec, options) = parse::single(algorithm, &mut args.words(2))?;
    let name = args.get(1);
    answer(ctx, &Request::spec(name, spec), options, ctx.now_us())
}

/// Runs one limit and replies with its five integers.
#[inline(always)]
pub(super) fn answer(
    ctx: &Context,
    request: &Request<impl Limits>,
    options: parse::Options,
    now_us: u64,
) -> Result<(), Failure> {
    let decision = check::one(ctx, request, options, now_us)?;
    reply::decision(ctx, &decision);
    Ok(())
}

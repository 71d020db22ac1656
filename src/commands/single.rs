//! What the one-limit commands share: `RL.<ALGORITHM> key parameters… [cost] [PEEK] [FORCE]`.

use rl_core::{Algorithm, parse};

use crate::check::{self, Request};
use crate::failure::Failure;
use crate::redis::{Args, Argument, Context};
use crate::reply;

pub(super) const COST: Argument = Argument::integer(c"cost").optional();
pub(super) const PEEK: Argument = Argument::token(c"peek", c"PEEK");
pub(super) const FORCE: Argument = Argument::token(c"force", c"FORCE");

pub(super) fn run(ctx: &Context, args: Args, algorithm: Algorithm) -> Result<(), Failure> {
    let (spec, options) = parse::single(algorithm, &mut args.words(2))?;
    let name = args.get(1);
    answer(ctx, &Request { name, spec }, options)
}

/// Runs one limit and replies with its five integers.
pub(super) fn answer(
    ctx: &Context,
    request: &Request,
    options: parse::Options,
) -> Result<(), Failure> {
    let decision = check::one(ctx, request, options)?;
    reply::decision(ctx, &decision);
    Ok(())
}

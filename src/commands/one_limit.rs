//! The one-limit commands: `RL.<ALGORITHM> key parameters… [cost] [options…]`. Names, parameters and documentation
//! come from the table of algorithms in `rl-core`.

use std::ffi::CStr;

use rl_core::syntax::one_limit_args;
use rl_core::{Algorithm, Descriptor, Error, Parameter, ParameterKind};

use crate::check::{Request, check_one};
use crate::error::CommandError;
use crate::reply;
use crate::server::{Args, Argument, Command, CommandFlags, Context, Docs, Register, register};

pub(super) const COST: Argument = Argument::integer(c"cost");
/// The options of every command that charges, after the cost.
pub(super) const OPTIONS: [Argument; 3] = [
    Argument::one_of(
        c"option",
        &[
            Argument::token(c"peek", c"PEEK"),
            Argument::token(c"force", c"FORCE"),
        ],
    )
    .optional(),
    Argument::block(
        c"calls",
        &[
            Argument::integer_option(c"times", c"TIMES"),
            Argument::integer_option(c"at-least", c"ATLEAST").optional(),
        ],
    )
    .optional(),
    Argument::token(c"brief", c"BRIEF").optional(),
];

/// One entry per algorithm: a new one does not compile without its own.
const REGISTER: [Register; Algorithm::ALL.len()] = [
    register_algorithm::<0>,
    register_algorithm::<1>,
    register_algorithm::<2>,
    register_algorithm::<3>,
    register_algorithm::<4>,
    register_algorithm::<5>,
    register_algorithm::<6>,
];

/// Registers the commands of all algorithms that have one.
pub(crate) fn register_all(ctx: &Context) -> Result<(), Error> {
    REGISTER.iter().try_for_each(|register| register(ctx))
}

fn register_algorithm<const INDEX: usize>(ctx: &Context) -> Result<(), Error> {
    match Algorithm::ALL[INDEX].descriptor().command {
        Some(_) => register::<OneLimitCommand<INDEX>>(ctx),
        None => Ok(()),
    }
}

/// The command of the algorithm at `INDEX` in [`Algorithm::ALL`]. Each is compiled on its own, so that none has to
/// dispatch on the algorithm.
struct OneLimitCommand<const INDEX: usize>;

impl<const INDEX: usize> OneLimitCommand<INDEX> {
    const ALGORITHM: Algorithm = Algorithm::ALL[INDEX];
    const DESCRIPTOR: &'static Descriptor = Self::ALGORITHM.descriptor();
    /// The key, the parameters, the cost, the options of the algorithm, and those of every command.
    const ARGUMENTS: [Argument; 12] = {
        let (parameters, options) = (Self::DESCRIPTOR.parameters, Self::DESCRIPTOR.options);
        let mut arguments = [Argument::KEY; 12];
        let (mut len, mut index) = (1, 0);
        while index < parameters.len() {
            arguments[len] = argument(&parameters[index]);
            (len, index) = (len + 1, index + 1);
        }
        arguments[len] = COST.optional();
        (len, index) = (len + 1, 0);
        while index < options.len() {
            arguments[len] = argument(&options[index]).optional();
            (len, index) = (len + 1, index + 1);
        }
        index = 0;
        while index < OPTIONS.len() {
            arguments[len] = OPTIONS[index];
            (len, index) = (len + 1, index + 1);
        }
        arguments
    };
    const ARGUMENTS_LEN: usize =
        2 + Self::DESCRIPTOR.parameters.len() + Self::DESCRIPTOR.options.len() + OPTIONS.len();
}

const fn argument(parameter: &Parameter) -> Argument {
    match (parameter.kind, parameter.token) {
        (ParameterKind::Integer, None) => Argument::integer(parameter.name),
        (ParameterKind::Integer, Some(token)) => Argument::integer_option(parameter.name, token),
        (_, None) => Argument::text(parameter.name),
        (_, Some(token)) => Argument::text_option(parameter.name, token),
    }
}

impl<const INDEX: usize> Command for OneLimitCommand<INDEX> {
    const NAME: &'static CStr = match Self::DESCRIPTOR.command {
        Some(name) => name,
        None => c"",
    };
    const FLAGS: CommandFlags = CommandFlags::WRITE.union(CommandFlags::FAST);
    const MIN_ARGS: usize = 2 + Self::DESCRIPTOR.parameters.len();
    const DOCS: Docs = Docs {
        summary: Self::DESCRIPTOR.summary,
        complexity: Self::DESCRIPTOR.complexity,
        since: c"0.1.0",
        arguments: Self::ARGUMENTS.split_at(Self::ARGUMENTS_LEN).0,
    };

    #[inline(always)]
    fn run(ctx: &Context, args: Args) -> Result<(), CommandError> {
        let (spec, options) = one_limit_args(Self::ALGORITHM, &mut args.from(2))?;
        let request = Request::inline(args.get(1), spec);
        let decided = check_one(ctx, &request, options, ctx.now_us())?;
        if options.is_brief() {
            reply::brief(ctx, &decided, Self::ALGORITHM.reports_delay());
        } else {
            reply::decision(ctx, &decided);
        }
        Ok(())
    }
}

//! Why a command failed, as an error reply. [`rl_core::Error`] has the texts about limits and their arguments.

use rl_core::{Algorithm, Error};

use super::Context;

pub(crate) enum CommandError {
    /// The standard reply to a wrong number of arguments.
    WrongArity,
    /// The key holds a value that is not of this module.
    WrongType,
    /// The key holds a limit of another algorithm.
    WrongAlgorithm {
        stored: Algorithm,
        requested: Algorithm,
    },
    /// A whole error line, code first.
    Static(&'static str),
    /// A whole error line that quotes something of this call, such as its policy or key.
    Formatted(String),
    Core(Error),
}

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

pub(super) const UNKNOWN_SUBCOMMAND: CommandError =
    CommandError::Static("ERR unknown subcommand. Try HELP.");
pub(super) const READ_ONLY: CommandError =
    CommandError::Static("READONLY You can't write against a read only replica.");

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        Self::Core(error)
    }
}

impl CommandError {
    #[cold]
    pub(super) fn reply(&self, ctx: &Context) {
        match self {
            Self::WrongArity => ctx.reply_wrong_arity(),
            Self::WrongType => ctx.reply_error(&[WRONG_TYPE]),
            Self::WrongAlgorithm { stored, requested } => {
                ctx.reply_error(&wrong_algorithm("", *stored, *requested));
            }
            Self::Static(line) => ctx.reply_error(&[line]),
            Self::Formatted(line) => ctx.reply_error_line(line),
            Self::Core(error) => ctx.reply_error(&[error.message()]),
        }
    }

    /// Names the key, for calls that have several.
    #[cold]
    pub(crate) fn with_key(self, key: &[u8]) -> Self {
        let key = key.escape_ascii();
        match self {
            Self::WrongAlgorithm { stored, requested } => {
                let key = format!(" '{key}'");
                Self::Formatted(wrong_algorithm(&key, stored, requested).concat())
            }
            Self::WrongType => Self::Formatted(format!("{WRONG_TYPE}: '{key}'")),
            other => other,
        }
    }
}

/// The parts of the error line; `key` is empty, or a space and the key.
fn wrong_algorithm(key: &str, stored: Algorithm, requested: Algorithm) -> [&str; 7] {
    [
        "WRONGTYPE the key",
        key,
        " holds a ",
        stored.name(),
        " limit and the call is for ",
        requested.name(),
        ": use another key, or DEL this one",
    ]
}

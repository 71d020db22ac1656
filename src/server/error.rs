//! Why a command failed, as an error reply. Most texts are static; see [`rl_core::Error`].

use rl_core::{Algorithm, Error};

use super::Context;

pub(crate) enum CommandError {
    /// The standard reply to a wrong number of arguments.
    WrongArity,
    /// The key holds a limit of another algorithm.
    WrongAlgorithm {
        stored: Algorithm,
        requested: Algorithm,
    },
    /// A whole error line, code first.
    Text(&'static str),
    /// A whole error line that names something of this call, such as its policy or key.
    Line(String),
    Core(Error),
}

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
            Self::WrongAlgorithm { stored, requested } => {
                ctx.reply_error(&wrong_algorithm("", *stored, *requested));
            }
            Self::Text(text) => ctx.reply_error(&[text]),
            Self::Line(line) => ctx.reply_error_line(line),
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
                Self::Line(wrong_algorithm(&key, stored, requested).concat())
            }
            Self::Core(Error::WrongType) => Self::Line(format!("{}: '{key}'", Error::WrongType)),
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

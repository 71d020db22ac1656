//! Why a command failed, as the caller is told. The texts are static; see [`rl_core::Error`].

use rl_core::{Algorithm, Error};

use crate::redis::Context;

pub(crate) enum Failure {
    /// The standard reply to a wrong number of arguments.
    Arity,
    /// A key that holds a limit of another algorithm.
    OtherAlgorithm {
        holds: Algorithm,
        asked: Algorithm,
    },
    /// The whole error line, code first.
    Text(&'static str),
    /// The whole error line, made for this call.
    Line(String),
    Error(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl Failure {
    #[cold]
    pub(crate) fn reply(&self, ctx: &Context) {
        match self {
            Self::Arity => ctx.reply_wrong_arity(),
            Self::OtherAlgorithm { holds, asked } => ctx.reply_error(&[
                "WRONGTYPE the key holds a ",
                holds.name(),
                " limit and the call is for ",
                asked.name(),
                ": use another key, or DEL this one",
            ]),
            Self::Text(text) => ctx.reply_error(&[text]),
            Self::Line(line) => ctx.reply_error_line(line),
            Self::Error(error) => ctx.reply_error(&[error.message()]),
        }
    }
}

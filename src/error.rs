//! The errors of commands. Texts about limits and their arguments are in [`rl_core::Error`].

pub(crate) use crate::server::CommandError;

use CommandError::Text;

/// The server's own reply while a slot is moved key by key.
pub(crate) const TRY_AGAIN: CommandError =
    Text("TRYAGAIN Multiple keys request during rehashing of slot");

pub(crate) const AUDIT_COUNT: CommandError =
    Text("ERR count must be an integer between 0 and 9007199254740991");
pub(crate) const AUDIT_SYNTAX: CommandError =
    Text("ERR syntax error: use RL.AUDIT GET [count], LEN, RESET or HELP");
pub(crate) const TOP_COUNT: CommandError =
    Text("ERR COUNT must be an integer between 1 and 9007199254740991");
pub(crate) const TOP_BY: CommandError = Text("ERR BY must be checks or denials");
pub(crate) const TOP_SYNTAX: CommandError =
    Text("ERR syntax error: use RL.TOP [COUNT n] [BY checks|denials]");

#[cold]
pub(crate) fn no_such_policy(name: &[u8]) -> CommandError {
    CommandError::Line(format!("ERR no such policy '{}'", name.escape_ascii()))
}

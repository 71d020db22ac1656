//! Error replies of single commands. Those about limits and their arguments are in [`rl_core::Error`], and those that
//! any command may give are in `server/error.rs`.

pub(crate) use crate::server::CommandError;

use CommandError::Static;

/// The server's own reply while a slot is moved key by key.
pub(crate) const TRY_AGAIN: CommandError =
    Static("TRYAGAIN Multiple keys request during rehashing of slot");

/// The server's own reply while memory is full.
pub(crate) const OUT_OF_MEMORY: CommandError =
    Static("OOM command not allowed when used memory > 'maxmemory'.");

pub(crate) const REPEATED_KEY: CommandError = Static("ERR a key may appear only once in a call");
pub(crate) const NO_OVERRIDE_KEY: CommandError =
    Static("ERR an empty key, or one with a } outside a hash tag, cannot have overrides");
pub(crate) const JSON_TOO_LONG: CommandError =
    Static("ERR policies must be JSON of at most 16777216 bytes");
pub(crate) const EXPIRE_AT: CommandError =
    Static("ERR expire-at-ms must be a Unix time in milliseconds between 0 and 9007199254740991");
pub(crate) const AUDIT_COUNT: CommandError =
    Static("ERR count must be an integer between 0 and 9007199254740991");
pub(crate) const AUDIT_SYNTAX: CommandError =
    Static("ERR syntax error: use RL.AUDIT GET [count], LEN, RESET or HELP");
pub(crate) const TOP_COUNT: CommandError =
    Static("ERR COUNT must be an integer between 1 and 9007199254740991");
pub(crate) const TOP_BY: CommandError = Static("ERR BY must be checks or denials");
pub(crate) const TOP_SYNTAX: CommandError =
    Static("ERR syntax error: use RL.TOP [COUNT n] [BY checks|denials]");

#[cold]
pub(crate) fn no_such_policy(name: &[u8]) -> CommandError {
    CommandError::Formatted(format!("ERR no such policy '{}'", name.escape_ascii()))
}

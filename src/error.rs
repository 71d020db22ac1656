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
pub(crate) const RESERVATION_SETTLED: CommandError = Static("ERR reservation is settled");
pub(crate) const RESERVATION_DIFFERS: CommandError =
    Static("ERR the id was used with other arguments: use a new id for each reservation");
pub(crate) const RESERVE_OPTIONS: CommandError =
    Static("ERR RL.RESERVE takes TIMES, ATLEAST and FORCE, but neither PEEK nor BRIEF");
pub(crate) const CALLS: CommandError =
    Static("ERR calls must be an integer between 0 and the number of calls that were reserved");
pub(crate) const ACTUAL: CommandError =
    Static("ERR actual must be an integer between 0 and 9007199254740991");
pub(crate) const SETTLE_PAIRS: CommandError =
    Static("ERR keys and the units they used must come in pairs: key 640 key 1");
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

#[cold]
pub(crate) fn not_reserved(key: &[u8]) -> CommandError {
    let key = key.escape_ascii();
    CommandError::Formatted(format!(
        "ERR the reservation does not include the key '{key}'"
    ))
}

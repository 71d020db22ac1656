//! What can be wrong with a call.

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Why a check could not be made at all.
///
/// A server that is down, slow or failing over is not an error here: then the [`FailureMode`](crate::FailureMode)
/// decides. An error means that the call, or the configuration, is wrong and would be wrong again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The keys of one call lie in different slots of the cluster.
    #[error(
        "limits checked together must share a cluster slot, but limit {index} does not: give the keys a common hash \
         tag, for example rl_client::tagged(\"u42\", \"search\"), which makes \"{{u42}}:search\""
    )]
    CrossSlot {
        /// The first limit whose key lies elsewhere than that of limit 0.
        index: usize,
    },

    /// There is nothing to check.
    #[error("a check needs at least one limit")]
    NoLimits,

    /// The server refused the call: a number out of range, a key of another type.
    #[error("the server refuses the call: {0}")]
    Rejected(#[source] RedisError),

    /// The server lacks the module, and its Lua scripts cannot do this.
    #[error("{0} needs the RL module, which this server has not loaded")]
    NeedsModule(&'static str),

    /// The address or the configuration is wrong.
    #[error("wrong configuration: {0}")]
    Config(#[source] RedisError),

    /// The server cannot be reached, or does not answer in time. Only calls that have no failure mode say so.
    #[error("the server is not available: {0}")]
    Unavailable(#[source] RedisError),
}

/// Whether an error is the caller's doing; all others are faults, to be met by the failure mode.
pub(crate) fn is_callers(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::CrossSlot) => true,
        ErrorKind::Server(ServerErrorKind::ResponseError) => !is_unknown_command(error),
        ErrorKind::Extension => error.code() == Some("WRONGTYPE"),
        _ => false,
    }
}

/// Whether a script would be refused whenever it is called.
pub(crate) fn is_lasting(error: &RedisError) -> bool {
    // Redis 6.2 wraps what a command answered to a script into an error without a code.
    let codes = ["OOM", "READONLY", "MISCONF", "NOREPLICAS", "LOADING"];
    let wrapped = |detail: &str| codes.iter().any(|code| detail.contains(code));
    if error.detail().is_some_and(wrapped) {
        return false;
    }
    is_callers(error)
        || is_unknown_command(error)
        || error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
}

/// Nothing was heard in time.
pub(crate) fn timed_out() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

/// Whether nothing was heard, rather than a refusal.
pub(crate) fn is_silence(error: &RedisError) -> bool {
    error.is_timeout() || error.is_io_error()
}

/// Whether the server does not know the command, that is, has no module.
pub(crate) fn is_unknown_command(error: &RedisError) -> bool {
    error
        .detail()
        .is_some_and(|detail| detail.to_ascii_lowercase().starts_with("unknown command"))
}

/// The error's text without keys: servers repeat a command that they do not know, arguments and all.
pub(crate) fn loggable(error: &RedisError) -> String {
    match is_unknown_command(error) {
        true => "the server does not know the command".to_owned(),
        false => error.to_string(),
    }
}

/// Whether the connection itself is gone, so that every further call on it would fail too.
pub(crate) fn is_lost_connection(error: &RedisError) -> bool {
    error.is_connection_dropped() || error.is_connection_refusal() || error.is_unrecoverable_error()
}

/// The kinds of fault, as metrics name them.
pub(crate) fn fault_kind(error: &RedisError) -> &'static str {
    if error.is_timeout() {
        "timeout"
    } else if error.is_io_error() {
        "connection"
    } else {
        "server"
    }
}

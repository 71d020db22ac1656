//! Errors of a limiter.

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Why a check could not be made at all.
///
/// An unavailable server is not an error: the [`FailureMode`](crate::FailureMode) then decides. An error means that the
/// call or the configuration is wrong, and would be wrong again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The keys of one call are in different cluster slots.
    #[error(
        "limits checked together must share a cluster slot, but limit {index} does not: give the keys a common hash \
         tag, for example rl_client::tagged_key(\"u42\", \"search\"), which makes \"{{u42}}:search\""
    )]
    CrossSlot {
        /// The first limit whose key is in a different slot than that of limit 0.
        index: usize,
    },

    /// A check without any limit.
    #[error("a check needs at least one limit")]
    NoLimits,

    /// The server rejected the call: a number is out of range, the key has another type, or there is no such
    /// policy.
    #[error("the server refuses the call: {0}")]
    Rejected(#[source] RedisError),

    /// The server does not have the module, and the Lua scripts do not support this.
    #[error("{0} needs the RL module, which this server has not loaded")]
    NeedsModule(&'static str),

    /// The address or the configuration is invalid.
    #[error("wrong configuration: {0}")]
    Config(#[source] RedisError),

    /// The server is unreachable or did not reply in time. Returned only by calls to which no failure mode applies.
    #[error("the server is not available: {0}")]
    Unavailable(#[source] RedisError),
}

/// Whether the caller made a mistake. All other errors are server faults, which the failure mode handles.
pub(crate) fn is_caller_error(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::CrossSlot) => true,
        ErrorKind::Server(ServerErrorKind::ResponseError) => !is_unknown_command(error),
        ErrorKind::Extension => error.code() == Some("WRONGTYPE"),
        _ => false,
    }
}

/// Whether the same call would fail every time.
pub(crate) fn is_permanent(error: &RedisError) -> bool {
    // Redis 6.2 wraps the error of a command called by a script into one without a code.
    let codes = ["OOM", "READONLY", "MISCONF", "NOREPLICAS", "LOADING"];
    let wrapped = |detail: &str| codes.iter().any(|code| detail.contains(code));
    if error.detail().is_some_and(wrapped) {
        return false;
    }
    is_caller_error(error)
        || is_unknown_command(error)
        || error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
}

/// The error for a missing reply.
pub(crate) fn timed_out() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

/// Whether there was no reply at all, as opposed to an error reply.
pub(crate) fn is_no_reply(error: &RedisError) -> bool {
    error.is_timeout() || error.is_io_error()
}

/// Whether the server does not know the command because it does not have the module.
pub(crate) fn is_unknown_command(error: &RedisError) -> bool {
    error
        .detail()
        .is_some_and(|detail| detail.to_ascii_lowercase().starts_with("unknown command"))
}

/// The error's text without keys: servers repeat the arguments of a command that they do not know.
pub(crate) fn loggable(error: &RedisError) -> String {
    match is_unknown_command(error) {
        true => "the server does not know the command".to_owned(),
        false => error.to_string(),
    }
}

/// Whether the connection itself is lost, so that every further call on it would fail too.
pub(crate) fn is_lost_connection(error: &RedisError) -> bool {
    error.is_connection_dropped() || error.is_connection_refusal() || error.is_unrecoverable_error()
}

/// The kind of fault, as used in metrics.
pub(crate) fn fault_kind(error: &RedisError) -> &'static str {
    if error.is_timeout() {
        "timeout"
    } else if error.is_io_error() {
        "connection"
    } else {
        "server"
    }
}

//! RL.RESERVE and RL.SETTLE.

use std::time::Duration;

use redis::{Cmd, FromRedisValue, ParsingError, ToRedisArgs, Value};

use super::Decision;
use super::args::{CallOptions, SpecArg, add_limits};
use super::decision::at_their_index;
use crate::limit::LimitArg;

/// The reply of RL.RESERVE.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a denied call must not proceed, and an allowed one has to be settled"]
#[non_exhaustive]
pub struct Reservation {
    /// How many calls are allowed: 1 (or as many as were asked for), 0 if they are denied. A denied call is not recorded.
    pub allowed_calls: u64,
    /// The longest wait among the limits that denied; `None` if one of them can never allow the call.
    pub retry_after: Option<Duration>,
    /// For how long after *sending* the call its units may be spent as if they were charged at that moment; `None` if there
    /// is no bound.
    pub spend_within: Option<Duration>,
    /// The result of each limit by itself, in the order of the call.
    pub decisions: Vec<Decision>,
}

impl Reservation {
    /// Whether the call may proceed.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        self.allowed_calls > 0
    }
}

impl FromRedisValue for Reservation {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let (allowed_calls, retry_ms, spend_ms, decisions) =
            <(u64, i64, i64, Vec<Decision>)>::from_redis_value(value)?;
        let duration = |ms: i64| u64::try_from(ms).ok().map(Duration::from_millis);
        Ok(Self {
            allowed_calls,
            retry_after: duration(retry_ms),
            spend_within: duration(spend_ms),
            decisions: at_their_index(decisions),
        })
    }
}

/// RL.RESERVE.
pub(super) fn reserve_cmd<'a, K: ToRedisArgs + 'a>(
    id: impl ToRedisArgs,
    ttl: Duration,
    limits: impl Iterator<Item = (&'a K, SpecArg<'a>)>,
    options: CallOptions,
) -> Cmd {
    let mut cmd = redis::cmd("RL.RESERVE");
    cmd.arg(id).arg(LimitArg::Duration(ttl));
    add_limits(&mut cmd, limits, options);
    cmd
}

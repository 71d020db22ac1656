//! How a call is decided: build a [`Request`] per key, evaluate all of them, commit the updates, record the outcome.

mod evaluate;
mod refund;
mod request;
mod reserve;
mod settle;
mod state_source;

pub(crate) use evaluate::{DecidedCalls, Verdict, check_all, check_first, check_one};
pub(crate) use refund::refund_or_release;
pub(crate) use request::Request;
pub(crate) use reserve::{Reserve, repeat, reserve};
pub(crate) use settle::{SettledKey, settle};
pub(crate) use state_source::policy_state_resets;

/// Calls of up to this many requests allocate nothing.
pub(crate) const INLINE_REQUESTS: usize = 8;

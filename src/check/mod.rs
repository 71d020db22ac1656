//! The path of every call: build a [`Request`] per limit, evaluate all of them, commit the updates, record the outcome.

pub(crate) mod commit;
mod evaluate;
mod refund;
mod request;
mod state_source;

pub(crate) use evaluate::{Verdict, check_all, check_one};
pub(crate) use refund::return_units;
pub(crate) use request::Request;
pub(crate) use state_source::policy_state_resets;

/// Calls of up to this many limits allocate nothing.
pub(crate) const INLINE_LIMITS: usize = 8;

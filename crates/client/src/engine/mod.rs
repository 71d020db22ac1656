//! Decisions around the server's: the deny cache, budgets, the circuit breaker, and the fallback while the server is
//! unavailable.

pub(crate) mod breaker;
pub mod budgets;
pub(crate) mod deny_cache;
pub(crate) mod fallback;
pub(crate) mod key;
pub(crate) mod policies;

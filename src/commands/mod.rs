//! The commands, one file for each (the one-limit commands share `one_limit.rs`): its name, its flags, its page in
//! COMMAND DOCS and its syntax.

pub(crate) mod audit;
pub(crate) mod check;
pub(crate) mod first;
pub(crate) mod inspect;
pub(crate) mod load;
pub(crate) mod multi;
pub(crate) mod one_limit;
pub(crate) mod overrides;
pub(crate) mod peek;
pub(crate) mod policy;
pub(crate) mod refund;
pub(crate) mod release;
pub(crate) mod reserve;
pub(crate) mod settle;
pub(crate) mod stats;
pub(crate) mod throttle;
pub(crate) mod top;

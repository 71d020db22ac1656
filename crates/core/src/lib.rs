//! Rate limits as plain values: a [`Limit`], the [`State`] of one key, and the [`Evaluation`] of a call.
//!
//! ```
//! use rl_core::{Algorithm, Limit, Mode};
//!
//! // 100 units per 60 s, as a sliding window.
//! let limit = Limit::parse(Algorithm::Slide, &mut [&b"100"[..], b"60"].into_iter()).unwrap();
//! let now_us = 1_700_000_000_000_000;
//! let first = limit.evaluate(None, now_us, 30, Mode::Check).unwrap();
//! assert!(first.decision.allowed);
//! assert_eq!(first.decision.remaining, 70);
//!
//! // 10 s later, with the state that the first call left.
//! let state = first.update.unwrap().into_initial();
//! let second = limit.evaluate(state.as_ref(), now_us + 10_000_000, 80, Mode::Check).unwrap();
//! assert!(!second.decision.allowed);
//! assert_eq!(second.update, None, "a denial leaves nothing to write");
//! ```
//!
//! Nothing here knows a server or reads a clock: the caller passes the time in microseconds and stores the resulting
//! state. All arithmetic is exact and uses integers only. Each algorithm is one file or folder in `algorithm/`,
//! listed once in `algorithm/mod.rs`.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod algorithm;
mod calendar;
mod call_options;
pub mod cluster;
mod decision;
mod encoding;
mod error;
mod inspect;
mod math;
pub mod policy;
mod refund;
mod relocate;
pub mod reservation;
mod scale;
pub mod stats;
pub mod syntax;
mod units;

pub use algorithm::{
    Algorithm, BucketLimit, BucketState, CarriedUsage, Descriptor, ExactLimit, ExactState,
    ExactUpdate, FixedCosts, FixedLimit, FixedState, FixedWindow, InlineCost, LeakLimit, LeakState,
    LeaseLimit, LeaseState, LeaseUpdate, Limit, MAX_EXACT_LIMIT, MAX_HOLDER_LEN, MAX_HOLDERS,
    MAX_PRECISION, MAX_RULES, MIN_PRECISION, Parameter, ParameterKind, PolicyLimits, PolicyState,
    PolicyUpdate, Rule, RuleState, RuleUpdate, SlideLimit, SlideState, State, SubWindows,
    TwoWindows, Update, check_holder,
};
pub use calendar::Calendar;
pub use decision::{
    BRIEF_NEVER, Decision, Evaluation, Expiry, Mode, NEVER, OVERRIDE_INDEX, brief_denial,
};
pub use encoding::{
    Blob, ENCODING_VERSION, MAX_PACKED_LEN, PACKED_HEAD_LEN, Packed, check_version, packed_len,
};
pub use error::Error;
pub use inspect::{FieldValue, StateField};
pub use refund::{Refund, RefundRequest};
pub use relocate::Relocate;
pub use scale::{MAX_SCALE, Scale};
pub use units::{DurationText, MAX_COUNT, MAX_PERIOD_MS, MAX_TIME_US, MAX_WAIT_MS};

/// Tests the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

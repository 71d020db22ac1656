//! Rate limits as plain values: a [`Limit`], the [`State`] of one key, and the [`Outcome`] of a call.
//!
//! ```
//! use rl_core::{Algorithm, Limit, Mode};
//!
//! // 100 units per 60 s, as a sliding window.
//! let limit = Limit::parse(Algorithm::Slide, &mut [&b"100"[..], b"60"].into_iter()).unwrap();
//! let noon_us = 1_700_000_000_000_000;
//! let first = limit.evaluate(None, noon_us, 30, Mode::Check).unwrap();
//! assert!(first.decision.allowed);
//! assert_eq!(first.decision.remaining, 70);
//!
//! // 10 s later, with the state that the first call left behind.
//! let state = first.next.unwrap().begin();
//! let second = limit.evaluate(state.as_ref(), noon_us + 10_000_000, 80, Mode::Check).unwrap();
//! assert!(!second.decision.allowed);
//! assert_eq!(second.next, None, "a denial leaves nothing to write");
//! ```
//!
//! Nothing here knows a server or reads a clock: the caller passes the time in microseconds and stores
//! the state that it is given. All arithmetic is on integers and exact. Each algorithm is one file,
//! such as [`slide`] or [`bucket`], listed once in `algorithm.rs`.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod algorithm;
mod bounds;
pub mod bucket;
mod decision;
mod duration;
mod encoding;
mod error;
pub mod exact;
pub mod fixed;
pub mod group;
mod inspect;
pub mod leak;
pub mod lease;
mod log;
mod math;
pub mod overrides;
pub mod parse;
pub mod policy;
mod shape;
pub mod slide;
mod tally;
mod top;

pub use algorithm::{Algorithm, Limit, Next, Return, State};
pub use bounds::{MAX_COUNT, MAX_PERIOD_MS, MAX_TIME_US, MAX_WAIT_MS};
pub use decision::{Decision, Expiry, Mode, NEVER, NO_INDEX, Outcome};
pub use encoding::{Blob, ENCODING_VERSION, Encoded, HEAD_WORDS, MAX_WORDS, stored_words};
pub use error::Error;
pub use inspect::{Field, Shown};
pub use shape::{MAX_SCALE, Scale};
pub use tally::{Counted, MINUTE_US, Tally};
pub use top::{By, Hot, MAX_NAME, Top};

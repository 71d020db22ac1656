//! Sliding-window counter: the weight of the past decreases while the present fills.
//!
//! By default there are two counters, [`TwoWindows`]. With `PRECISION n` the window is split into n
//! [`SubWindows`], and only the oldest one loses weight.

mod sub_windows;
mod two_windows;

use std::fmt;

use super::descriptor::{Descriptor, Parameter};
use super::traits::{AlgorithmLimit, AlgorithmState, PackedLimit, PackedState};
use crate::decision::{Evaluation, Mode};
use crate::encoding::{Fields, Packed};
use crate::inspect::StateField;
use crate::relocate::{Relocate, Walk};
use crate::units::{self, DurationText, MAX_USAGE};
use crate::{Error, Scale, syntax};

pub use sub_windows::SubWindows;
pub use two_windows::TwoWindows;

/// The most sub-windows into which a window can be split.
pub const MAX_PRECISION: u8 = 64;

/// At most `limit` units per sliding `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlideLimit {
    limit: u64,
    window_us: u64,
    precision: u8,
}

impl SlideLimit {
    /// A limit of 0 blocks the key.
    pub fn new(limit: u64, window_ms: u64) -> Result<Self, Error> {
        Ok(Self {
            limit: units::check_count(limit, Error::Limit)?,
            window_us: units::period_us(window_ms, Error::Window)?,
            precision: 1,
        })
    }

    /// The same limit with its window split into `precision` sub-windows, 1 to [`MAX_PRECISION`].
    pub fn with_precision(self, precision: u8) -> Result<Self, Error> {
        if !(1..=MAX_PRECISION).contains(&precision) {
            return Err(Error::Precision);
        }
        Ok(Self { precision, ..self })
    }

    /// Units per window.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The window in milliseconds.
    #[must_use]
    pub const fn window_ms(&self) -> u64 {
        self.window_us / 1000
    }

    /// The number of sub-windows; 1 for the plain sliding window.
    #[must_use]
    pub const fn precision(&self) -> u8 {
        self.precision
    }
}

impl<'a> AlgorithmLimit<'a> for SlideLimit {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "SLIDE",
        command: Some(c"RL.SLIDE"),
        type_name: c"rl-slide-",
        parameters: &[Parameter::integer(c"limit"), Parameter::duration(c"window")],
        options: &[Parameter::integer_option(c"precision", c"PRECISION")],
        summary: c"Checks and counts a call against a sliding-window limit.",
        complexity: c"O(1)",
    };

    type Owned = Self;

    #[inline(always)]
    fn parse(args: &mut impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        Ok(Self {
            limit: syntax::parse_count(args.next(), Error::Limit)?,
            window_us: syntax::parse_duration_us(args.next(), Error::Window)?,
            precision: 1,
        })
    }

    /// PRECISION is the only option.
    fn set_option(&mut self, _token: &[u8], value: Option<&[u8]>) -> Result<(), Error> {
        let precision = value.and_then(syntax::parse_integer);
        let precision = precision.and_then(|precision| u8::try_from(precision).ok());
        *self = self.with_precision(precision.ok_or(Error::Precision)?)?;
        Ok(())
    }

    fn limit_value(&self) -> u64 {
        self.limit
    }

    fn span_us(&self) -> u64 {
        self.window_us
    }

    fn scaled(self, by: Scale) -> Self {
        Self {
            limit: by.apply(self.limit),
            ..self
        }
    }

    fn into_owned(self) -> (Self, &'a [u8]) {
        (self, &[])
    }
}

impl fmt::Display for SlideLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window = DurationText::from_us(self.window_us);
        write!(f, "{} {} {window}", Self::DESCRIPTOR.name, self.limit)?;
        match self.precision {
            1 => Ok(()),
            precision => write!(f, " PRECISION {precision}"),
        }
    }
}

/// Usage in the current window, and in earlier ones as long as they matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlideState {
    /// Two counters, without PRECISION.
    TwoWindows(TwoWindows),
    /// One counter per sub-window.
    SubWindows(SubWindows),
}

impl SlideState {
    pub(crate) fn decode_sub_windows(words: &[u64]) -> Result<Self, Error> {
        SubWindows::decode(words).map(Self::SubWindows)
    }

    /// Units in use, rounded up, for a limit with another precision.
    fn carried(&self, now_us: u64) -> u64 {
        match self {
            Self::TwoWindows(windows) => windows.at(now_us).used(now_us),
            Self::SubWindows(windows) => windows.at(now_us).used(now_us),
        }
        .min(MAX_USAGE)
    }

    fn reset_after_ms(&self, now_us: u64) -> u64 {
        let clear_at = match self {
            Self::TwoWindows(windows) => windows.clear_at(),
            Self::SubWindows(windows) => windows.clear_at(),
        };
        crate::decision::wait_ms(u128::from(clear_at - now_us))
    }
}

/// Evaluates a limit if it or the stored state has sub-windows.
#[cold]
fn with_sub_windows(
    limit: &SlideLimit,
    stored: Option<&SlideState>,
    now_us: u64,
    cost: u64,
    mode: Mode,
) -> Evaluation<SlideState> {
    // A denied call cannot record that the precision changed, so the stored state decides. The first allowed call
    // carries its usage over. (The same happens when the window changes.)
    let change = |now_us, carried| {
        if limit.precision == 1 {
            SlideState::TwoWindows(TwoWindows::carrying(now_us, limit.window_us, carried, cost))
        } else {
            SlideState::SubWindows(SubWindows::carrying(limit, now_us, carried, cost))
        }
    };
    let mut evaluation = match stored {
        Some(SlideState::TwoWindows(windows)) => {
            two_windows::evaluate(limit, Some(windows), now_us, cost, mode)
                .map(SlideState::TwoWindows)
        }
        Some(SlideState::SubWindows(stored)) => {
            sub_windows::evaluate(limit, Some(stored), now_us, cost, mode)
                .map(SlideState::SubWindows)
        }
        None => sub_windows::evaluate(limit, None, now_us, cost, mode).map(SlideState::SubWindows),
    };
    let same = match stored {
        Some(SlideState::TwoWindows(_)) => limit.precision == 1,
        Some(SlideState::SubWindows(windows)) => windows.precision() == limit.precision,
        None => true,
    };
    if let (Some(stored), false) = (stored, same)
        && evaluation.decision.allowed
        && evaluation.update.is_some()
    {
        let update = change(now_us, stored.carried(now_us));
        evaluation.expiry.at_ms = update.expire_at_ms();
        evaluation.expiry.unchanged = stored.expire_at_ms() == update.expire_at_ms();
        evaluation.decision.reset_after_ms = update.reset_after_ms(now_us);
        evaluation.update = Some(update);
    }
    evaluation
}

impl PackedLimit for SlideLimit {
    type State = SlideState;

    #[inline(always)]
    fn evaluate(
        &self,
        stored: Option<&SlideState>,
        now_us: u64,
        cost: u64,
        mode: Mode,
    ) -> Evaluation<SlideState> {
        let now_us = now_us.min(units::MAX_TIME_US);
        match stored {
            None if self.precision == 1 => {
                two_windows::evaluate(self, None, now_us, cost, mode).map(SlideState::TwoWindows)
            }
            Some(SlideState::TwoWindows(stored)) if self.precision == 1 => {
                two_windows::evaluate(self, Some(stored), now_us, cost, mode)
                    .map(SlideState::TwoWindows)
            }
            _ => with_sub_windows(self, stored, now_us, cost, mode),
        }
    }
}

impl AlgorithmState for SlideState {
    type Refunded = Self;

    fn span_us(&self) -> u64 {
        match self {
            Self::TwoWindows(windows) => windows.span_us(),
            Self::SubWindows(windows) => windows.span_us(),
        }
    }

    fn expire_at_ms(&self) -> u64 {
        match self {
            Self::TwoWindows(windows) => windows.expire_at_ms(),
            Self::SubWindows(windows) => windows.expire_at_ms(),
        }
    }

    fn inspect(&self, now_us: u64) -> Vec<StateField> {
        match self {
            Self::TwoWindows(windows) => windows.inspect(now_us),
            Self::SubWindows(windows) => windows.inspect(now_us),
        }
    }

    fn refund(&self, now_us: u64, units: u64) -> Result<(u64, Option<Self>), Error> {
        Ok(match self {
            Self::TwoWindows(windows) => {
                let (refunded, left) = windows.refund(now_us, units);
                (refunded, left.map(Self::TwoWindows))
            }
            Self::SubWindows(windows) => {
                let (refunded, left) = windows.refund(now_us, units);
                (refunded, left.map(Self::SubWindows))
            }
        })
    }

    #[inline(always)]
    fn owns_memory(&self) -> bool {
        matches!(self, Self::SubWindows(_))
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Self::TwoWindows(_) => 0,
            Self::SubWindows(windows) => windows.heap_bytes(),
        }
    }

    fn relocate<R: Relocate>(&mut self, walk: &mut Walk<R>) {
        if let Self::SubWindows(windows) = self {
            windows.relocate(walk);
        }
    }
}

impl PackedState for SlideState {
    #[inline]
    fn encode(&self) -> Packed {
        match self {
            Self::TwoWindows(windows) => windows.encode(),
            Self::SubWindows(windows) => windows.encode(),
        }
    }

    #[inline]
    fn decode(fields: Fields) -> Result<Self, Error> {
        TwoWindows::decode(fields).map(Self::TwoWindows)
    }
}

//! Sliding-window counter: the weight of the past decreases while the present fills.
//!
//! By default there are two counters, [`TwoWindows`]: an estimate. With `PRECISION n` the window is split into n
//! [`SubWindows`], none of which loses weight: a hard limit.

mod counts;
mod sub_windows;
mod two_windows;

use std::fmt;

use super::descriptor::{Descriptor, Parameter};
use super::traits::{AlgorithmLimit, AlgorithmState, PackedLimit, PackedState};
use crate::decision::{Decision, Evaluation, Expiry, Mode, ceil_ms, wait_ms};
use crate::encoding::{Fields, Packed};
use crate::inspect::StateField;
use crate::refund::RefundRequest;
use crate::relocate::{Relocate, Walk};
use crate::reservation::{Charge, Origin};
use crate::units::{self, DurationText};
use crate::{Error, Scale, syntax};

pub use sub_windows::SubWindows;
pub use two_windows::TwoWindows;

/// The fewest sub-windows into which a window can be split.
pub const MIN_PRECISION: u8 = 2;

/// The most sub-windows into which a window can be split.
pub const MAX_PRECISION: u8 = 60;

/// The precision of a window that is not split.
const PLAIN: u8 = 1;

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
            precision: PLAIN,
        })
    }

    /// The same limit with its window split into `precision` sub-windows, [`MIN_PRECISION`] to [`MAX_PRECISION`]. It is
    /// then a hard limit: no window allows more, whatever the traffic.
    pub fn with_precision(self, precision: u8) -> Result<Self, Error> {
        if !(MIN_PRECISION..=MAX_PRECISION).contains(&precision) {
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

    /// The number of sub-windows; `None` for the plain sliding window.
    #[must_use]
    pub const fn precision(&self) -> Option<u8> {
        match self.precision {
            PLAIN => None,
            precision => Some(precision),
        }
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
            precision: PLAIN,
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
        match self.precision() {
            None => Ok(()),
            Some(precision) => write!(f, " PRECISION {precision}"),
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

    /// The same usage at `now_us`.
    fn at(&self, now_us: u64) -> Self {
        match self {
            Self::TwoWindows(windows) => Self::TwoWindows(windows.at(now_us)),
            Self::SubWindows(windows) => Self::SubWindows(windows.at(now_us)),
        }
    }

    fn start_us(&self) -> u64 {
        match self {
            Self::TwoWindows(windows) => windows.start_us(),
            Self::SubWindows(windows) => windows.start_us(),
        }
    }

    /// Units that may have been charged within the window, at a time to which [`Self::at`] has moved the state.
    fn used_in_full(&self) -> u64 {
        match self {
            Self::TwoWindows(windows) => windows.used_in_full(),
            Self::SubWindows(windows) => windows.used(),
        }
    }

    /// The first time at which that is no more than `room`, if nothing is added until then.
    fn falls_in_full_to(&self, room: u64) -> u64 {
        match self {
            Self::TwoWindows(windows) => windows.falls_in_full_to(room),
            Self::SubWindows(windows) => windows.falls_to(room),
        }
    }

    /// The time from which the state no longer matters.
    fn clear_at(&self) -> u64 {
        match self {
            Self::TwoWindows(windows) => windows.clear_at(),
            Self::SubWindows(windows) => windows.clear_at(),
        }
    }

    /// The state after a call. If the limit counts otherwise than the state, all units are carried over in full.
    fn charged(self, limit: &SlideLimit, now_us: u64, cost: u64) -> Self {
        let mut windows = match self {
            Self::SubWindows(windows) if windows.fits(limit) => windows,
            other if limit.precision == PLAIN => {
                let used = other.used_in_full();
                let windows = TwoWindows::carrying(now_us, limit.window_us, used, cost);
                return Self::TwoWindows(windows);
            }
            other => SubWindows::carrying(limit, now_us, other.used_in_full()),
        };
        windows.charge(cost);
        Self::SubWindows(windows)
    }
}

/// Evaluates a limit if it or the stored state has sub-windows. Every count is then taken in full.
///
/// A denied call cannot record that the limit has changed: until a call is allowed, the state in store decides, and its
/// counts leave when that state says so.
#[inline(never)]
fn evaluate_in_full(
    limit: &SlideLimit,
    stored: Option<&SlideState>,
    now_us: u64,
    cost: u64,
    mode: Mode,
) -> Evaluation<SlideState> {
    let rolled = match stored {
        Some(stored) => stored.at(now_us),
        None => SlideState::SubWindows(SubWindows::carrying(limit, now_us, 0)),
    };
    let used = rolled.used_in_full();
    let allowed = mode == Mode::Force || used.saturating_add(cost) <= limit.limit;
    let until_ms = |us: u64| wait_ms(us.saturating_sub(now_us).into());
    let mut decision = Decision::new(limit.limit, used, cost, allowed, |room| {
        until_ms(rolled.falls_in_full_to(room))
    });

    let (after, write) = if cost == 0 {
        (rolled, false)
    } else if allowed {
        (rolled.charged(limit, now_us, cost), true)
    } else {
        // As with two counters, a step back of the clock is recorded once.
        let stepped_back = stored.is_some_and(|stored| now_us < stored.start_us());
        (rolled, stepped_back)
    };
    let clear_at = after.clear_at();
    decision.reset_after_ms = until_ms(clear_at);
    Evaluation {
        decision,
        expiry: Expiry {
            at_ms: ceil_ms(clear_at),
            unchanged: stored.is_some_and(|stored| stored.clear_at() == clear_at),
        },
        update: write.then_some(after),
    }
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
            None if self.precision == PLAIN => {
                two_windows::evaluate(self, None, now_us, cost, mode).map(SlideState::TwoWindows)
            }
            Some(SlideState::TwoWindows(stored)) if self.precision == PLAIN => {
                two_windows::evaluate(self, Some(stored), now_us, cost, mode)
                    .map(SlideState::TwoWindows)
            }
            _ => evaluate_in_full(self, stored, now_us, cost, mode),
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
        ceil_ms(self.clear_at())
    }

    fn inspect(&self, now_us: u64) -> Vec<StateField> {
        match self {
            Self::TwoWindows(windows) => windows.inspect(now_us),
            Self::SubWindows(windows) => windows.inspect(now_us),
        }
    }

    fn refund(&self, now_us: u64, request: &RefundRequest) -> Result<(u64, Option<Self>), Error> {
        let (units, newest_us) = (request.units, request.newest_us(now_us));
        Ok(match self {
            Self::TwoWindows(windows) => {
                let (refunded, left) = windows.refund(now_us, units, newest_us);
                (refunded, left.map(Self::TwoWindows))
            }
            Self::SubWindows(windows) => {
                let (refunded, left) = windows.refund(now_us, units, newest_us);
                (refunded, left.map(Self::SubWindows))
            }
        })
    }

    fn origin(&self) -> Option<Origin<'static>> {
        Some(match self {
            Self::TwoWindows(windows) => Origin::Slide(windows.charged_window()),
            Self::SubWindows(windows) => Origin::SubWindow {
                window: windows.charged_window(),
                precision: windows.precision(),
            },
        })
    }

    /// The start of a window identifies it, because it is the time of a call.
    fn mark_reserved(&mut self, _now_us: u64) {}

    fn refund_charge(&self, now_us: u64, charge: &Charge, units: u64) -> (u64, Option<Self>) {
        match (self, &charge.origin) {
            (Self::TwoWindows(windows), Origin::Slide(charged)) => {
                let (refunded, left) = windows.refund_window(now_us, charged, units);
                (refunded, left.map(Self::TwoWindows))
            }
            (Self::SubWindows(windows), Origin::SubWindow { window, precision })
                if windows.precision() == *precision =>
            {
                let (refunded, left) = windows.refund_sub_window(now_us, window, units);
                (refunded, left.map(Self::SubWindows))
            }
            _ => (0, None),
        }
    }

    #[inline(always)]
    fn owns_memory(&self) -> bool {
        match self {
            Self::TwoWindows(_) => false,
            Self::SubWindows(windows) => windows.owns_memory(),
        }
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

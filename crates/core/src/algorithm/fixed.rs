//! Fixed windows, aligned to the Unix epoch or the calendar: a window of a day starts at 00:00 UTC, unless an offset moves
//! it.

use std::fmt;

use super::descriptor::{Descriptor, Parameter};
use super::traits::{AlgorithmLimit, AlgorithmState, PackedLimit, PackedState};
use crate::calendar::{Calendar, Schedule};
use crate::decision::{Decision, Evaluation, Expiry, Mode, ceil_ms};
use crate::encoding::{Fields, LOW_BITS, Packed, Tag};
use crate::inspect::StateField;
use crate::refund::RefundRequest;
use crate::relocate::{Relocate, Walk};
use crate::reservation::{Charge, ChargedWindow, Origin};
use crate::units::{self, DurationText, MAX_PERIOD_MS, MAX_TIME_US, MAX_USAGE};
use crate::{Error, Scale, syntax};

/// A later clock reading counts as this one, so that the end of every window is a representable time.
const LAST_TIME_US: u64 = MAX_TIME_US - MAX_PERIOD_MS * 1000;

/// At most `limit` units in each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedLimit {
    limit: u64,
    window: FixedWindow,
    offset_ms: i64,
}

/// The windows of a [`FixedLimit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixedWindow {
    /// All of one length, in milliseconds, counted from the Unix epoch.
    Span(u64),
    /// Those of the calendar.
    Calendar(Calendar),
}

impl FixedWindow {
    /// The length of the shortest of these windows, which is longer than any offset.
    const fn shortest_ms(self) -> u64 {
        match self {
            Self::Span(ms) => ms,
            Self::Calendar(calendar) => calendar.shortest_ms(),
        }
    }
}

impl FixedLimit {
    /// Windows of one length. A limit of 0 blocks the key.
    pub fn new(limit: u64, window_ms: u64) -> Result<Self, Error> {
        units::period_us(window_ms, Error::FixedWindow)?;
        Self::with_window(limit, FixedWindow::Span(window_ms))
    }

    /// Windows of the calendar. A limit of 0 blocks the key.
    pub fn calendar(limit: u64, calendar: Calendar) -> Result<Self, Error> {
        Self::with_window(limit, FixedWindow::Calendar(calendar))
    }

    fn with_window(limit: u64, window: FixedWindow) -> Result<Self, Error> {
        Ok(Self {
            limit: units::check_count(limit, Error::Limit)?,
            window,
            offset_ms: 0,
        })
    }

    /// The same limit with `offset_ms` added to each boundary. It must be shorter than every window.
    pub fn with_offset(self, offset_ms: i64) -> Result<Self, Error> {
        if offset_ms.unsigned_abs() >= self.window.shortest_ms() {
            return Err(Error::Offset);
        }
        Ok(Self { offset_ms, ..self })
    }

    /// Units per window.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The windows, before the offset.
    #[must_use]
    pub const fn window(&self) -> FixedWindow {
        self.window
    }

    /// What is added to each boundary, in milliseconds.
    #[must_use]
    pub const fn offset_ms(&self) -> i64 {
        self.offset_ms
    }

    #[inline]
    const fn schedule(&self) -> Schedule {
        // An offset is shorter than 3650 d.
        let offset_us = self.offset_ms * 1000;
        match self.window {
            FixedWindow::Span(ms) => Schedule::spans(ms * 1000, offset_us),
            FixedWindow::Calendar(calendar) => calendar.schedule(offset_us),
        }
    }
}

impl<'a> AlgorithmLimit<'a> for FixedLimit {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "FIXED",
        command: Some(c"RL.FIXED"),
        type_name: c"rl-fixed-",
        parameters: &[Parameter::integer(c"limit"), Parameter::duration(c"window")],
        options: &[Parameter::signed_duration_option(c"offset", c"OFFSET")],
        summary: c"Checks and counts a call against a fixed window: a duration from the Unix epoch on, or a day, week, month or year in UTC.",
        complexity: c"O(1)",
    };

    type Owned = Self;

    fn parse(args: &mut impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        let limit = syntax::parse_count(args.next(), Error::Limit)?;
        let word = args.next();
        let window = match syntax::parse_duration_us(word, Error::FixedWindow) {
            Ok(us) => FixedWindow::Span(us / 1000),
            Err(error) => FixedWindow::Calendar(word.and_then(Calendar::from_name).ok_or(error)?),
        };
        Ok(Self {
            limit,
            window,
            offset_ms: 0,
        })
    }

    /// OFFSET is the only option.
    fn set_option(&mut self, _token: &[u8], value: Option<&[u8]>) -> Result<(), Error> {
        *self = self.with_offset(syntax::parse_offset_ms(value)?)?;
        Ok(())
    }

    fn limit_value(&self) -> u64 {
        self.limit
    }

    fn span_us(&self) -> u64 {
        self.schedule().span_us()
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

impl fmt::Display for FixedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", Self::DESCRIPTOR.name, self.limit)?;
        match self.window {
            FixedWindow::Span(ms) => DurationText::from_ms(ms).fmt(f)?,
            FixedWindow::Calendar(calendar) => f.write_str(calendar.name())?,
        }
        if self.offset_ms == 0 {
            return Ok(());
        }
        let sign = if self.offset_ms < 0 { "-" } else { "" };
        let offset = DurationText::from_ms(self.offset_ms.unsigned_abs());
        write!(f, " OFFSET {sign}{offset}")
    }
}

/// Usage in the window that ends at `end_us`. (Its start may be before the epoch, its end never is.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedState {
    end_us: u64,
    schedule: Schedule,
    count: u64,
    /// When the window's first reservation was made; 0 if it has none.
    reserved_since_us: u64,
}

impl FixedState {
    /// The window around `now_us`, with `count` units in use.
    #[inline]
    fn around(now_us: u64, schedule: Schedule, count: u64) -> Self {
        Self {
            end_us: schedule.end_after(now_us),
            schedule,
            count,
            reserved_since_us: 0,
        }
    }

    /// The same usage at `now_us`: it ends with its window, but is kept if the clock stepped back.
    #[inline]
    fn at(self, now_us: u64) -> Self {
        if now_us >= self.end_us {
            Self::around(now_us, self.schedule, 0)
        } else if self.is_ahead_of(now_us) {
            Self::around(now_us, self.schedule, self.count)
        } else {
            self
        }
    }

    /// Whether the clock stepped back, to before the window.
    #[inline]
    fn is_ahead_of(&self, now_us: u64) -> bool {
        match self.schedule {
            Schedule::Spans { span_us, .. } => now_us + span_us < self.end_us,
            _ => (now_us as i64) < self.start_us(),
        }
    }

    fn start_us(&self) -> i64 {
        // The last moment of the window is in it.
        self.schedule.around(self.end_us - 1).start_us
    }
}

impl PackedLimit for FixedLimit {
    type State = FixedState;

    #[inline]
    fn evaluate(
        &self,
        stored: Option<&FixedState>,
        now_us: u64,
        cost: u64,
        mode: Mode,
    ) -> Evaluation<FixedState> {
        let now_us = now_us.min(LAST_TIME_US);
        let rolled = match stored {
            Some(stored) => stored.at(now_us),
            None => FixedState::around(now_us, self.schedule(), 0),
        };
        let allowed = mode == Mode::Force || rolled.count.saturating_add(cost) <= self.limit;

        let update = if cost == 0 {
            None
        } else if !allowed {
            // A denial writes nothing, except that a step back of the clock is recorded once.
            stored
                .is_some_and(|stored| stored.is_ahead_of(now_us))
                .then_some(rolled)
        } else {
            let count = rolled.count.saturating_add(cost).min(MAX_USAGE);
            // Another window or offset keeps the count, in the window around now.
            Some(FixedState {
                reserved_since_us: rolled.reserved_since_us,
                ..FixedState::around(now_us, self.schedule(), count)
            })
        };

        let after = update.as_ref().unwrap_or(&rolled);
        let until_ms = |us: u64| ceil_ms(us - now_us);
        Evaluation {
            decision: Decision {
                reset_after_ms: if after.count > 0 {
                    until_ms(after.end_us)
                } else {
                    0
                },
                ..Decision::new(self.limit, rolled.count, cost, allowed, |_room| {
                    until_ms(rolled.end_us)
                })
            },
            expiry: Expiry {
                at_ms: after.expire_at_ms(),
                unchanged: stored.is_some_and(|stored| stored.end_us == after.end_us),
            },
            update,
        }
    }
}

impl AlgorithmState for FixedState {
    type Refunded = Self;

    fn span_us(&self) -> u64 {
        self.schedule.span_us()
    }

    fn expire_at_ms(&self) -> u64 {
        ceil_ms(self.end_us)
    }

    fn inspect(&self, now_us: u64) -> Vec<StateField> {
        let start_us = self.start_us();
        let window_us = self.end_us.saturating_add_signed(start_us.wrapping_neg());
        vec![
            StateField::ms("window_ms", window_us),
            // A window around the epoch is shown from the epoch on.
            StateField::ms("window_started_at_ms", start_us.max(0) as u64),
            StateField::number("count", self.count),
            StateField::number("used", self.at(now_us.min(LAST_TIME_US)).count),
            StateField::ms("window_ends_at_ms", self.end_us),
        ]
    }

    fn refund(&self, now_us: u64, request: &RefundRequest) -> Result<(u64, Option<Self>), Error> {
        let rolled = self.at(now_us.min(LAST_TIME_US));
        let refunded = match rolled.start_us() <= request.newest_us(now_us) {
            true => request.units.min(rolled.count),
            false => 0,
        };
        let count = rolled.count - refunded;
        Ok((refunded, (count > 0).then_some(Self { count, ..rolled })))
    }

    fn origin(&self) -> Option<Origin<'static>> {
        Some(Origin::Fixed(ChargedWindow {
            // Its end identifies it; a start before the epoch has no number.
            start_us: self.start_us().max(0) as u64,
            end_us: self.end_us,
            span_us: self.span_us(),
            reserved_since_us: self.reserved_since_us,
        }))
    }

    /// A window starts at the same time in every key, so its start does not identify it.
    fn mark_reserved(&mut self, now_us: u64) {
        if self.reserved_since_us == 0 {
            self.reserved_since_us = now_us;
        }
    }

    fn refund_charge(&self, now_us: u64, charge: &Charge, units: u64) -> (u64, Option<Self>) {
        let Origin::Fixed(charged) = &charge.origin else {
            return (0, None);
        };
        let same = self.end_us == charged.end_us
            && self.span_us() == charged.span_us
            && self.reserved_since_us == charged.reserved_since_us;
        if !same || now_us >= self.end_us || self.is_ahead_of(now_us) {
            return (0, None);
        }
        let refunded = units.min(self.count);
        let count = self.count - refunded;
        (refunded, (count > 0).then_some(Self { count, ..*self }))
    }

    #[inline(always)]
    fn owns_memory(&self) -> bool {
        false
    }

    fn heap_bytes(&self) -> usize {
        0
    }

    fn relocate<R: Relocate>(&mut self, _walk: &mut Walk<R>) {}
}

/// `extra` of a wide state, which says what its windows are. The offset of months and years is in the upper bits of
/// `low`; that of spans follows from their end.
const SPANS: u64 = 0;
const MONTHS: u64 = 1;
const YEARS: u64 = 2;

impl PackedState for FixedState {
    fn encode(&self) -> Packed {
        let (kind, span_us, offset_us) = match self.schedule {
            Schedule::Spans { span_us, .. } => {
                if self.count >> LOW_BITS == 0
                    && let Some(packed) =
                        Packed::compact(Tag::FIXED, self.end_us, span_us, self.count)
                {
                    return packed.marked(self.reserved_since_us);
                }
                (SPANS, span_us, 0)
            }
            Schedule::Months { offset_us } => (MONTHS, Calendar::Month.longest_us(), offset_us),
            Schedule::Years { offset_us } => (YEARS, Calendar::Year.longest_us(), offset_us),
        };
        let low = u128::from(zigzag(offset_us / 1000)) << 64 | u128::from(self.count);
        Packed::wide(Tag::FIXED, self.end_us, span_us, kind, low).marked(self.reserved_since_us)
    }

    fn decode(fields: Fields) -> Result<Self, Error> {
        let (end_us, span_us) = (fields.time_us, fields.span_us);
        let (count, offset) = (fields.low as u64, (fields.low >> 64) as u64);
        let schedule = match fields.extra {
            SPANS if offset == 0 => Schedule::Spans {
                span_us,
                phase_us: end_us % span_us,
            },
            MONTHS => calendar_schedule(Calendar::Month, span_us, end_us, offset)?,
            YEARS => calendar_schedule(Calendar::Year, span_us, end_us, offset)?,
            _ => return Err(Error::DamagedState),
        };
        // Every boundary is a whole millisecond.
        let is_boundary = end_us > 0 && end_us.is_multiple_of(1000);
        if !is_boundary || !(1..=MAX_USAGE).contains(&count) {
            return Err(Error::DamagedState);
        }
        Ok(Self {
            end_us,
            schedule,
            count,
            reserved_since_us: fields.reserved_since_us,
        })
    }
}

/// Reads months or years. Only what a call leaves is accepted: an offset in range, and the end of such a window.
fn calendar_schedule(
    calendar: Calendar,
    span_us: u64,
    end_us: u64,
    offset: u64,
) -> Result<Schedule, Error> {
    let offset_ms = from_zigzag(offset);
    if span_us != calendar.longest_us() || offset_ms.unsigned_abs() >= calendar.shortest_ms() {
        return Err(Error::DamagedState);
    }
    let schedule = calendar.schedule(offset_ms * 1000);
    match end_us.checked_sub(1) {
        Some(last_us) if schedule.end_after(last_us) == end_us => Ok(schedule),
        _ => Err(Error::DamagedState),
    }
}

/// A signed number as an unsigned one: small if it is close to 0.
const fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

const fn from_zigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

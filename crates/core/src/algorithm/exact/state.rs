//! The state of EXACT: a log, and the changes to it.

use super::log::Log;
use crate::Error;
use crate::algorithm::traits::{AlgorithmState, BoxedState, BoxedUpdate};
use crate::encoding::{Blob, Reader, write_varint};
use crate::inspect::StateField;
use crate::refund::RefundRequest;
use crate::relocate::{Relocate, Walk};
use crate::reservation::{Charge, Origin};
use crate::units::{self, MAX_PERIOD_MS, MAX_TIME_US};

const MAX_PERIOD_US: u64 = MAX_PERIOD_MS * 1000;

/// What was charged within the window of the last allowed call, and some of what was charged before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExactState {
    pub(super) window_us: u64,
    pub(super) log: Log,
}

/// A change of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExactUpdate {
    /// Units were charged.
    Charge {
        /// The time of the call.
        at_us: u64,
        /// The window of the limit.
        window_us: u64,
        /// The number of units.
        units: u64,
    },
    /// The clock stepped back, or a longer window makes units count for longer.
    Adjust {
        /// The time of the call.
        at_us: u64,
        /// The window of the limit.
        window_us: u64,
    },
    /// Units of one entry were refunded.
    RefundEntry {
        /// The time of the entry.
        at_us: u64,
        /// The number of units.
        units: u64,
    },
    /// Units were refunded.
    Refund {
        /// The time of the call if the clock stepped back; otherwise 0.
        at_us: u64,
        /// The number of units.
        units: u64,
        /// How many later units stay, because they may be newer than the charge.
        newer: u64,
    },
}

impl ExactState {
    /// How far a clock that reads `now_us` is behind the last entry.
    pub(super) fn behind_us(&self, now_us: u64) -> i64 {
        let last_us = self.log.last_us().unwrap_or(0);
        last_us.saturating_sub(now_us as i64).max(0)
    }

    fn step_back_to(&mut self, at_us: u64) {
        match self.behind_us(at_us) {
            0 => {}
            by_us => self.log.shift_back(by_us),
        }
    }
}

/// Units charged at the horizon or before no longer count.
pub(super) fn horizon(now_us: u64, window_us: u64) -> i64 {
    now_us as i64 - window_us as i64
}

/// The expiry is rounded up to a second, so that most calls on a busy key need not change it.
pub(super) fn expire_at_ms(clear_at_us: u64) -> u64 {
    clear_at_us.div_ceil(1_000_000) * 1000
}

impl AlgorithmState for ExactState {
    type Refunded = ExactUpdate;

    fn span_us(&self) -> u64 {
        self.window_us
    }

    fn expire_at_ms(&self) -> u64 {
        expire_at_ms(self.log.last_us().unwrap_or(0).max(0) as u64 + self.window_us)
    }

    fn inspect(&self, now_us: u64) -> Vec<StateField> {
        let log_now_us = now_us.saturating_add_signed(self.behind_us(now_us));
        vec![
            StateField::ms("window_ms", self.window_us),
            StateField::number("entry_count", self.log.entries()),
            StateField::number("log_bytes", self.log.heap_bytes() as u64),
            StateField::ms(
                "last_entry_at_ms",
                self.log.last_us().unwrap_or(0).max(0) as u64,
            ),
            StateField::number(
                "used",
                self.log.units_after(horizon(log_now_us, self.window_us)),
            ),
        ]
    }

    fn refund(
        &self,
        now_us: u64,
        request: &RefundRequest,
    ) -> Result<(u64, Option<ExactUpdate>), Error> {
        let behind_us = self.behind_us(now_us);
        let log_now_us = now_us.saturating_add_signed(behind_us);
        let in_use = self.log.units_after(horizon(log_now_us, self.window_us));
        let newer = match request.age_us {
            Some(_) => self.log.units_after(request.newest_us(log_now_us)),
            None => 0,
        };
        let units = request.units.min(in_use.saturating_sub(newer));
        let update = ExactUpdate::Refund {
            // Without the last entry, nothing would show that the clock stepped back, and expired units would count again.
            at_us: if behind_us > 0 { now_us } else { 0 },
            units,
            newer,
        };
        Ok((units, (units < in_use).then_some(update)))
    }

    fn origin(&self) -> Option<Origin<'static>> {
        let at_us = u64::try_from(self.log.last_us()?).ok()?;
        Some(Origin::Exact {
            at_us,
            window_us: self.window_us,
        })
    }

    /// The time of an entry identifies it.
    fn mark_reserved(&mut self, _now_us: u64) {}

    /// Refunds units of their own entry. After a step back of the clock, entries have other times than when they were made.
    fn refund_charge(
        &self,
        now_us: u64,
        charge: &Charge,
        units: u64,
    ) -> (u64, Option<ExactUpdate>) {
        let Origin::Exact { at_us, window_us } = charge.origin else {
            return (0, None);
        };
        let horizon_us = horizon(now_us, self.window_us);
        let entry_us = at_us as i64;
        if window_us != self.window_us || self.behind_us(now_us) > 0 || entry_us <= horizon_us {
            return (0, None);
        }
        let in_use = self.log.units_after(horizon_us);
        let units = units.min(self.log.units_at(entry_us));
        let update = ExactUpdate::RefundEntry { at_us, units };
        (units, (units < in_use).then_some(update))
    }

    #[inline(always)]
    fn owns_memory(&self) -> bool {
        true
    }

    fn heap_bytes(&self) -> usize {
        self.log.heap_bytes()
    }

    fn relocate<R: Relocate>(&mut self, walk: &mut Walk<R>) {
        self.log.relocate(walk);
    }
}

impl BoxedState for ExactState {
    fn is_empty(&self) -> bool {
        self.log.entries() == 0
    }

    fn allocations(&self) -> usize {
        self.log.chunks()
    }

    fn write(&self, into: &mut Blob) {
        write_varint(into, self.window_us / 1000);
        self.log.write(into);
    }

    fn read(from: &[u8]) -> Result<Self, Error> {
        let mut from = Reader::new(from);
        let window_ms = from.varint()?;
        let state = Self {
            window_us: units::period_us(window_ms, Error::DamagedState)?,
            log: Log::read(&mut from)?,
        };
        let last_us = state.log.last_us().ok_or(Error::DamagedState)?;
        // Near 1970, a step back of the clock moves entries to before it.
        if !(-(MAX_PERIOD_US as i64)..=MAX_TIME_US as i64).contains(&last_us) {
            return Err(Error::DamagedState);
        }
        from.finish(state)
    }
}

impl BoxedUpdate<'_> for ExactUpdate {
    type State = ExactState;

    fn apply(self, state: &mut ExactState) {
        match self {
            Self::Charge {
                at_us,
                window_us,
                units,
            } => {
                state.step_back_to(at_us);
                // After a gap longer than any window, nothing before it can matter again.
                if state.log.last_us() < Some(horizon(at_us, MAX_PERIOD_US)) {
                    state.log = Log::default();
                }
                let longest = state.window_us.max(window_us);
                state.log.trim(horizon(at_us, longest));
                state.log.push(at_us as i64, units);
                state.window_us = window_us;
            }
            Self::Adjust { at_us, window_us } => {
                state.step_back_to(at_us);
                state.window_us = state.window_us.max(window_us);
            }
            Self::Refund {
                at_us,
                units,
                newer,
            } => {
                if at_us > 0 {
                    state.step_back_to(at_us);
                }
                state.log.pop_before(newer, units);
            }
            Self::RefundEntry { at_us, units } => state.log.remove(at_us as i64, units),
        }
    }

    fn into_initial(self) -> Option<ExactState> {
        let Self::Charge { window_us, .. } = self else {
            return None;
        };
        let mut state = ExactState {
            window_us,
            log: Log::default(),
        };
        self.apply(&mut state);
        Some(state)
    }

    fn write(&self, into: &mut Blob) {
        let numbers = match *self {
            Self::Charge {
                at_us,
                window_us,
                units,
            } => [0, at_us, window_us / 1000, units],
            Self::Adjust { at_us, window_us } => [1, at_us, window_us / 1000, 0],
            // There is room for what the others have a window for.
            Self::Refund {
                at_us,
                units,
                newer,
            } => [2, at_us, newer, units],
            Self::RefundEntry { at_us, units } => [3, at_us, 0, units],
        };
        for number in numbers {
            write_varint(into, number);
        }
    }

    fn read(from: &[u8]) -> Result<Self, Error> {
        let mut from = Reader::new(from);
        let mut number = || from.varint();
        let [kind, at_us, third, units] = [number()?, number()?, number()?, number()?];
        if at_us > MAX_TIME_US || units > units::MAX_USAGE {
            return Err(Error::DamagedState);
        }
        let window = || units::period_us(third, Error::DamagedState);
        from.finish(match (kind, units) {
            (0, 1..) => Self::Charge {
                at_us,
                window_us: window()?,
                units,
            },
            (1, 0) => Self::Adjust {
                at_us,
                window_us: window()?,
            },
            (2, 1..) if third <= units::MAX_USAGE => Self::Refund {
                at_us,
                units,
                newer: third,
            },
            (3, 1..) if third == 0 => Self::RefundEntry { at_us, units },
            _ => return Err(Error::DamagedState),
        })
    }
}

//! What a refund asks for, and what it leaves.

use crate::call_options::{number_of_calls, total_cost};
use crate::syntax::{parse_count, parse_duration_us};
use crate::{Error, Update};

/// What to refund.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefundRequest {
    /// How many units, from limits that are charged the cost of the call.
    pub units: u64,
    /// How many calls, from limits of a policy that fix their cost.
    pub calls: u64,
    /// At most how long ago the charge was made. Nothing is then refunded from a window, sub-window or entry that may be
    /// newer than the charge.
    pub age_us: Option<u64>,
}

impl From<u64> for RefundRequest {
    fn from(units: u64) -> Self {
        Self {
            units,
            ..Self::default()
        }
    }
}

impl RefundRequest {
    /// Reads the arguments of RL.REFUND after its key: `cost [TIMES n] [AGE duration]`.
    pub fn parse<'a>(mut args: impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        let mut request = Self::from(parse_count(args.next(), Error::Cost)?);
        while let Some(option) = args.next() {
            if option.eq_ignore_ascii_case(b"TIMES") && request.calls == 0 {
                request.calls = number_of_calls(args.next(), false, Error::Times)?;
            } else if option.eq_ignore_ascii_case(b"AGE") && request.age_us.is_none() {
                let value = args.next().ok_or(Error::Age)?;
                request.age_us = Some(parse_duration_us(Some(value), Error::Age)?);
            } else {
                return Err(Error::RefundOption);
            }
        }
        Ok(request)
    }

    /// The request to a limit that fixes its cost.
    pub(crate) fn of_fixed_cost(self, cost: u64) -> Result<Self, Error> {
        let units = total_cost(cost, self.calls)?;
        Ok(Self { units, ..self })
    }

    /// Units are refunded only from windows, sub-windows and entries that started at this time or before: later ones may be
    /// newer than the charge. Signed, because a window may start before 1970.
    pub(crate) fn newest_us(&self, now_us: u64) -> i64 {
        match self.age_us {
            Some(age_us) => now_us as i64 - age_us as i64,
            None => i64::MAX,
        }
    }
}

/// The result of a refund or a release.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Refund<'a> {
    /// Units that were refunded or released.
    pub units: u64,
    /// What is left to be stored; `None` if nothing is left, so that the key can be deleted.
    pub update: Option<Update<'a>>,
}

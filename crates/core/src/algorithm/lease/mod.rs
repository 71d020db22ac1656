//! Concurrency limit: at most `limit` units are held at once, each until its holder releases it or its ttl has passed.

mod state;

use std::fmt;

use super::descriptor::{Descriptor, Parameter};
use super::traits::{AlgorithmLimit, AlgorithmState, BoxedLimit};
use crate::decision::{Decision, Evaluation, Expiry, Mode, NEVER, wait_ms};
use crate::units::{self, DurationText, MAX_TIME_US};
use crate::{Error, Scale, syntax};
use state::{HashedHolder, Lease, units_held};

pub use state::{LeaseState, LeaseUpdate};

/// Longest name of a holder, in bytes.
pub const MAX_HOLDER_LEN: usize = 256;

/// Most holders of one key.
pub const MAX_HOLDERS: usize = 10_000;

/// At most `limit` units at once, of which `holder` holds some for `ttl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLimit<'a> {
    limit: u64,
    ttl_us: u64,
    holder: &'a [u8],
}

impl<'a> LeaseLimit<'a> {
    /// A limit of 0 blocks the key.
    pub fn new(limit: u64, ttl_ms: u64, holder: &'a [u8]) -> Result<Self, Error> {
        Ok(Self {
            limit: units::check_count(limit, Error::Limit)?,
            ttl_us: units::period_us(ttl_ms, Error::Ttl)?,
            holder: check_holder(holder)?,
        })
    }

    /// Units that may be held at once.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// How long a lease lasts, in milliseconds.
    #[must_use]
    pub const fn ttl_ms(&self) -> u64 {
        self.ttl_us / 1000
    }

    /// The holder's name.
    #[must_use]
    pub const fn holder(&self) -> &'a [u8] {
        self.holder
    }
}

impl<'a> AlgorithmLimit<'a> for LeaseLimit<'a> {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "LEASE",
        command: Some(c"RL.LEASE"),
        type_name: c"rl-lease-",
        parameters: &[
            Parameter::integer(c"limit"),
            Parameter::duration(c"ttl"),
            Parameter::text(c"holder"),
        ],
        options: &[],
        summary:
            c"Leases units that may be held at once, until they are released or the ttl has passed.",
        complexity: c"O(N) where N is the number of holders, at most 10000",
    };

    type Owned = LeaseLimit<'static>;

    fn parse(args: &mut impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        Ok(Self {
            limit: syntax::parse_count(args.next(), Error::Limit)?,
            ttl_us: syntax::parse_duration_us(args.next(), Error::Ttl)?,
            holder: check_holder(args.next().ok_or(Error::MissingHolder)?)?,
        })
    }

    fn set_option(&mut self, _token: &[u8], _value: Option<&[u8]>) -> Result<(), Error> {
        Err(Error::UnknownOption)
    }

    fn limit_value(&self) -> u64 {
        self.limit
    }

    fn span_us(&self) -> u64 {
        0
    }

    fn scaled(self, _by: Scale) -> Self {
        self
    }

    fn into_owned(self) -> (LeaseLimit<'static>, &'a [u8]) {
        let limit = LeaseLimit {
            holder: &[],
            limit: self.limit,
            ttl_us: self.ttl_us,
        };
        (limit, self.holder)
    }
}

impl fmt::Display for LeaseLimit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ttl = DurationText::from_us(self.ttl_us);
        write!(f, "{} {} {ttl}", Self::DESCRIPTOR.name, self.limit)?;
        match self.holder {
            [] => Ok(()),
            holder => write!(f, " {}", holder.escape_ascii()),
        }
    }
}

/// Checks the length of a holder's name.
pub fn check_holder(holder: &[u8]) -> Result<&[u8], Error> {
    if (1..=MAX_HOLDER_LEN).contains(&holder.len()) {
        Ok(holder)
    } else {
        Err(Error::Holder)
    }
}

impl<'a> BoxedLimit<'a> for LeaseLimit<'a> {
    type State = LeaseState;
    type Update = LeaseUpdate<'a>;

    fn evaluate(
        &self,
        stored: Option<&LeaseState>,
        now_us: u64,
        cost: u64,
        mode: Mode,
    ) -> Result<Evaluation<LeaseUpdate<'a>>, Error> {
        let now_us = now_us.min(MAX_TIME_US);
        let (live, behind_us) = stored.map_or((&[][..], 0), |stored| stored.live(now_us));
        let holder = HashedHolder::new(self.holder);
        // A call by the same holder renews: what it holds makes room for what it asks for. Cost 0 only reports.
        let own = match cost {
            0 => None,
            _ => live.iter().position(|lease| lease.is_held_by(holder)),
        };
        let others = live
            .iter()
            .enumerate()
            .filter(|(index, _)| Some(*index) != own);
        let mut others = others.map(|(_, lease)| lease);
        let (used, own) = (units_held(live), own.map_or(0, |index| live[index].units));
        let held = used.saturating_sub(own);
        let allowed = mode == Mode::Force || held.saturating_add(cost) <= self.limit;
        let granted = allowed && cost > 0;
        if granted && own == 0 && live.len() >= MAX_HOLDERS {
            return Err(Error::TooManyHolders);
        }

        let left_us = |lease: &Lease| lease.expires_us - behind_us - now_us;
        let retry_after_ms = match self.limit.checked_sub(cost) {
            _ if allowed => 0,
            None => NEVER,
            Some(room) => {
                let mut ahead = held;
                let makes_room = others.clone().find(|lease| {
                    ahead = ahead.saturating_sub(lease.units);
                    ahead <= room
                });
                makes_room.map_or(NEVER, |lease| wait_ms(left_us(lease).into()) as i64)
            }
        };
        let update = if granted {
            Some(LeaseUpdate::Hold {
                at_us: now_us,
                expires_us: now_us + self.ttl_us,
                units: cost,
                holder: self.holder,
            })
        } else {
            (cost > 0 && behind_us > 0).then_some(LeaseUpdate::ClockStepBack { at_us: now_us })
        };
        // The list is sorted by expiry.
        let longest_us = if granted {
            others.next_back().map_or(0, left_us).max(self.ttl_us)
        } else {
            live.last().map_or(0, left_us)
        };
        let expire_at_ms = (now_us + longest_us).div_ceil(1000);
        let after = if granted {
            held.saturating_add(cost)
        } else {
            used
        };
        Ok(Evaluation {
            decision: Decision {
                allowed,
                index: 0,
                limit: self.limit,
                remaining: self.limit.saturating_sub(after),
                retry_after_ms,
                reset_after_ms: wait_ms(longest_us.into()),
            },
            expiry: Expiry {
                at_ms: expire_at_ms,
                unchanged: stored.is_some_and(|stored| stored.expire_at_ms() == expire_at_ms),
            },
            update,
        })
    }
}

//! Leases: at most `limit` units held at once, each holder's until it is released or its ttl is over.
//!
//! The list is kept in the order of expiry and changed in place; replicas follow step by step. It is short
//! (at most 10 000 holders), so it is searched from end to end: some tens of microseconds at worst.

use std::fmt;

use crate::bounds::{self, MAX_TIME_US, MAX_USAGE};
use crate::decision::{Decision, Expiry, Mode, NEVER, Outcome, wait_ms};
use crate::duration::Duration;
use crate::encoding::{Blob, varint};
use crate::inspect::{Field, Shown};
use crate::{Error, parse};

pub(crate) const NAME: &str = "LEASE";
pub(crate) const TAG: u8 = 6;
/// Words of a spec between the name and the cost.
pub(crate) const PARAMETERS: usize = 3;

/// Longest name of a holder, in bytes.
pub const MAX_HOLDER: usize = 256;

/// Most holders of one key.
pub const MAX_HOLDERS: usize = 10_000;

/// At most `limit` units at once, `holder`'s for `ttl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit<'a> {
    limit: u64,
    ttl_us: u64,
    holder: &'a [u8],
}

impl<'a> Limit<'a> {
    /// A limit of 0 blocks the key.
    pub fn new(limit: u64, ttl_ms: u64, holder: &'a [u8]) -> Result<Self, Error> {
        Ok(Self {
            limit: bounds::count(limit, Error::Limit)?,
            ttl_us: bounds::period_us(ttl_ms, Error::Ttl)?,
            holder: name(holder)?,
        })
    }

    pub(crate) fn parse(words: &mut impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        Ok(Self {
            limit: parse::count(words.next(), Error::Limit)?,
            ttl_us: parse::duration_us(words.next(), Error::Ttl)?,
            holder: name(words.next().ok_or(Error::IncompleteSpec)?)?,
        })
    }

    /// The same for nobody, and the holder.
    pub(crate) fn detached(&self) -> (Limit<'static>, &'a [u8]) {
        let limit = Limit {
            holder: &[],
            limit: self.limit,
            ttl_us: self.ttl_us,
        };
        (limit, self.holder)
    }
}

impl fmt::Display for Limit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ttl = Duration::from_us(self.ttl_us);
        write!(f, "{NAME} {} {ttl}", self.limit)?;
        match self.holder {
            [] => Ok(()),
            holder => write!(f, " {}", holder.escape_ascii()),
        }
    }
}

pub(crate) fn name(holder: &[u8]) -> Result<&[u8], Error> {
    if (1..=MAX_HOLDER).contains(&holder.len()) {
        Ok(holder)
    } else {
        Err(Error::Holder)
    }
}

/// Who holds what, in the order of expiry, as of the last write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    stamp_us: u64,
    leases: Vec<Lease>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Lease {
    expires_us: u64,
    units: u64,
    /// Spares a look at most other holders' names.
    mark: u32,
    holder: Box<[u8]>,
}

/// A holder's name and its mark.
#[derive(Clone, Copy)]
struct Named<'a> {
    mark: u32,
    name: &'a [u8],
}

impl<'a> Named<'a> {
    fn new(name: &'a [u8]) -> Self {
        let mark = mark(name);
        Self { mark, name }
    }
}

impl Lease {
    fn is_of(&self, holder: Named) -> bool {
        self.mark == holder.mark && *self.holder == *holder.name
    }
}

/// A step from one state to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// Units are held from now on.
    Hold {
        /// When it began.
        at_us: u64,
        /// When it ends.
        expires_us: u64,
        /// How many.
        units: u64,
        /// Whose.
        holder: &'a [u8],
    },
    /// Somebody let go.
    Release {
        /// When.
        at_us: u64,
        /// Who.
        holder: &'a [u8],
    },
    /// The clock was seen to have stepped back.
    StepBack {
        /// To where.
        at_us: u64,
    },
}

impl State {
    pub(crate) fn apply(&mut self, next: &Next) {
        match *next {
            Next::Hold {
                at_us,
                expires_us,
                units,
                holder,
            } => {
                self.move_to(at_us);
                self.remove(holder);
                let place = self
                    .leases
                    .partition_point(|lease| lease.expires_us <= expires_us);
                let lease = Lease {
                    expires_us,
                    units,
                    mark: mark(holder),
                    holder: holder.into(),
                };
                if self.leases.is_empty() {
                    self.leases.reserve_exact(1);
                }
                // No call gets here, but a forged step does; what it left could not be read again.
                if self.leases.len() >= MAX_HOLDERS {
                    return;
                }
                self.leases.insert(place, lease);
            }
            Next::Release { at_us, holder } => {
                self.move_to(at_us);
                self.remove(holder);
            }
            Next::StepBack { at_us } => self.move_to(at_us),
        }
    }

    pub(crate) fn begin(next: &Next) -> Option<Self> {
        let Next::Hold { .. } = next else {
            return None;
        };
        let mut state = Self::default();
        state.apply(next);
        Some(state)
    }

    /// Drops what is over; after a step back of the clock, all that is left lasts as long as it would have.
    fn move_to(&mut self, now_us: u64) {
        let over = self.over(now_us.max(self.stamp_us));
        self.leases.drain(..over);
        if let Some(behind_us) = self.stamp_us.checked_sub(now_us) {
            for lease in &mut self.leases {
                lease.expires_us -= behind_us.min(lease.expires_us);
            }
        }
        self.stamp_us = now_us;
    }

    fn remove(&mut self, holder: &[u8]) {
        if let Some(place) = self.position(holder) {
            self.leases.remove(place);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// How many leases are over.
    fn over(&self, now_us: u64) -> usize {
        // Usually none or few are.
        let live = self
            .leases
            .iter()
            .position(|lease| lease.expires_us > now_us);
        live.unwrap_or(self.leases.len())
    }

    fn position(&self, holder: &[u8]) -> Option<usize> {
        let holder = Named::new(holder);
        self.leases.iter().position(|lease| lease.is_of(holder))
    }

    /// The leases that count at `now`, and how far the clock is behind their times.
    fn live(&self, now_us: u64) -> (&[Lease], u64) {
        let list_now_us = now_us.max(self.stamp_us);
        (&self.leases[self.over(list_now_us)..], list_now_us - now_us)
    }

    /// Units that a holder lets go of, and the step by which it does, if somebody else stays.
    pub(crate) fn release<'a>(&self, now_us: u64, holder: &'a [u8]) -> (u64, Option<Next<'a>>) {
        let at_us = now_us.min(MAX_TIME_US);
        let (live, _) = self.live(at_us);
        let named = Named::new(holder);
        let units = live.iter().find(|lease| lease.is_of(named));
        let step = Next::Release { at_us, holder };
        let stays = live.len() > 1;
        (units.map_or(0, |lease| lease.units), stays.then_some(step))
    }

    pub(crate) fn expire_at_ms(&self) -> u64 {
        let last_us = self.leases.last().map_or(0, |lease| lease.expires_us);
        last_us.div_ceil(1000)
    }

    pub(crate) fn inspect(&self, now_us: u64) -> Vec<Field> {
        let (live, behind_us) = self.live(now_us);
        let shown = live.iter().take(100).map(|lease| {
            let left_us = lease.expires_us - behind_us - now_us;
            (lease.holder.clone(), lease.units, left_us.div_ceil(1000))
        });
        vec![
            Field::number("used", units(live)),
            Field::number("holders", live.len() as u64),
            Field {
                name: "leases",
                value: Shown::Holders(shown.collect()),
            },
        ]
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let names = |lease: &Lease| lease.holder.len();
        let list = self.leases.capacity() * size_of::<Lease>();
        list + self.leases.iter().map(names).sum::<usize>()
    }

    pub(crate) fn pieces(&self) -> usize {
        1 + self.leases.len()
    }

    pub(crate) fn write(&self, into: &mut Blob) {
        varint::write(into, self.stamp_us);
        for lease in &self.leases {
            varint::write(into, lease.expires_us);
            varint::write(into, lease.units);
            varint::write(into, lease.holder.len() as u64);
            into.extend_from_slice(&lease.holder);
        }
    }

    pub(crate) fn read(mut from: &[u8]) -> Result<Self, Error> {
        let mut state = Self {
            stamp_us: time(varint::read(&mut from)?)?,
            leases: Vec::new(),
        };
        while !from.is_empty() {
            let expires_us = time(varint::read(&mut from)?)?;
            let units = positive(varint::read(&mut from)?)?;
            let holder = read_name(&mut from)?;
            // Every write drops what is over.
            let earliest_us = match state.leases.last() {
                Some(last) => last.expires_us,
                None => state.stamp_us + 1,
            };
            if expires_us < earliest_us || state.leases.len() == MAX_HOLDERS {
                return Err(Error::DamagedState);
            }
            state.leases.push(Lease {
                expires_us,
                units,
                mark: mark(holder),
                holder: holder.into(),
            });
        }
        let mut names: Vec<&[u8]> = state.leases.iter().map(|lease| &*lease.holder).collect();
        names.sort_unstable();
        if state.leases.is_empty() || names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::DamagedState);
        }
        Ok(state)
    }
}

impl<'a> Next<'a> {
    pub(crate) fn write(&self, into: &mut Blob) {
        let (numbers, holder) = match *self {
            Self::Hold {
                at_us,
                expires_us,
                units,
                holder,
            } => ([0, at_us, expires_us, units], holder),
            Self::Release { at_us, holder } => ([1, at_us, 0, 0], holder),
            Self::StepBack { at_us } => ([2, at_us, 0, 0], &[][..]),
        };
        for number in numbers {
            varint::write(into, number);
        }
        varint::write(into, holder.len() as u64);
        into.extend_from_slice(holder);
    }

    pub(crate) fn read(mut from: &'a [u8]) -> Result<Self, Error> {
        let mut number = || varint::read(&mut from);
        let [kind, at_us, expires_us, units] = [number()?, number()?, number()?, number()?];
        let next = match kind {
            0 if at_us < expires_us => Self::Hold {
                at_us: time(at_us)?,
                expires_us: time(expires_us)?,
                units: positive(units)?,
                holder: read_name(&mut from)?,
            },
            1 if expires_us == 0 && units == 0 => Self::Release {
                at_us: time(at_us)?,
                holder: read_name(&mut from)?,
            },
            2 if expires_us == 0 && units == 0 && varint::read(&mut from)? == 0 => Self::StepBack {
                at_us: time(at_us)?,
            },
            _ => return Err(Error::DamagedState),
        };
        if from.is_empty() {
            Ok(next)
        } else {
            Err(Error::DamagedState)
        }
    }
}

fn time(us: u64) -> Result<u64, Error> {
    if us <= 2 * MAX_TIME_US {
        Ok(us)
    } else {
        Err(Error::DamagedState)
    }
}

fn positive(units: u64) -> Result<u64, Error> {
    if (1..=MAX_USAGE).contains(&units) {
        Ok(units)
    } else {
        Err(Error::DamagedState)
    }
}

fn read_name<'a>(from: &mut &'a [u8]) -> Result<&'a [u8], Error> {
    let len = usize::try_from(varint::read(from)?).map_err(|_| Error::DamagedState)?;
    let (holder, rest) = from.split_at_checked(len).ok_or(Error::DamagedState)?;
    *from = rest;
    name(holder).map_err(|_| Error::DamagedState)
}

/// FNV-1a: good enough to tell names apart, and equal everywhere.
fn mark(holder: &[u8]) -> u32 {
    let step = |mark: u32, &byte: &u8| (mark ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    holder.iter().fold(0x811c_9dc5, step)
}

fn units(leases: &[Lease]) -> u64 {
    let sum = |sum: u64, lease: &Lease| sum.saturating_add(lease.units);
    leases.iter().fold(0, sum)
}

pub(crate) fn evaluate<'a>(
    limit: &Limit<'a>,
    stored: Option<&State>,
    now_us: u64,
    cost: u64,
    mode: Mode,
) -> Result<Outcome<Next<'a>>, Error> {
    let now_us = now_us.min(MAX_TIME_US);
    let (live, behind_us) = stored.map_or((&[][..], 0), |stored| stored.live(now_us));
    let holder = Named::new(limit.holder);
    // The same holder again renews: what it holds makes room for what it asks for. Cost 0 only looks.
    let own = match cost {
        0 => None,
        _ => live.iter().position(|lease| lease.is_of(holder)),
    };
    let others = live
        .iter()
        .enumerate()
        .filter(|(place, _)| Some(*place) != own);
    let mut others = others.map(|(_, lease)| lease);
    let (used, own) = (units(live), own.map_or(0, |place| live[place].units));
    let held = used.saturating_sub(own);
    let allowed = mode == Mode::Force || held.saturating_add(cost) <= limit.limit;
    let taken = allowed && cost > 0;
    if taken && own == 0 && live.len() >= MAX_HOLDERS {
        return Err(Error::TooManyHolders);
    }

    let left_us = |lease: &Lease| lease.expires_us - behind_us - now_us;
    let retry_after_ms = match limit.limit.checked_sub(cost) {
        _ if allowed => 0,
        None => NEVER,
        Some(room) => {
            let mut in_the_way = held;
            let makes_room = others.clone().find(|lease| {
                in_the_way = in_the_way.saturating_sub(lease.units);
                in_the_way <= room
            });
            makes_room.map_or(NEVER, |lease| wait_ms(left_us(lease).into()) as i64)
        }
    };
    let next = if taken {
        Some(Next::Hold {
            at_us: now_us,
            expires_us: now_us + limit.ttl_us,
            units: cost,
            holder: limit.holder,
        })
    } else {
        (cost > 0 && behind_us > 0).then_some(Next::StepBack { at_us: now_us })
    };
    // The list is in the order of expiry.
    let longest_us = if taken {
        others.next_back().map_or(0, left_us).max(limit.ttl_us)
    } else {
        live.last().map_or(0, left_us)
    };
    let expire_at_ms = (now_us + longest_us).div_ceil(1000);
    let after = if taken {
        held.saturating_add(cost)
    } else {
        used
    };
    Ok(Outcome {
        decision: Decision {
            allowed,
            index: 0,
            limit: limit.limit,
            remaining: limit.limit.saturating_sub(after),
            retry_after_ms,
            reset_after_ms: wait_ms(longest_us.into()),
        },
        expiry: Expiry {
            at_ms: expire_at_ms,
            unmoved: stored.is_some_and(|stored| stored.expire_at_ms() == expire_at_ms),
        },
        next,
    })
}

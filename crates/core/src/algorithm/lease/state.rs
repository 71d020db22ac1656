//! The leases of one key, sorted by expiry and changed in place; replicas receive each change.
//!
//! The list is short (at most 10 000 holders), so it is searched from end to end. That takes tens of microseconds at
//! worst.

use super::{MAX_HOLDERS, check_holder};
use crate::Error;
use crate::algorithm::traits::{AlgorithmState, BoxedState, BoxedUpdate};
use crate::encoding::{Blob, Reader, write_bytes, write_varint};
use crate::inspect::{FieldValue, StateField};
use crate::refund::RefundRequest;
use crate::relocate::{Relocate, Walk};
use crate::reservation::{Charge, Origin};
use crate::units::{MAX_TIME_US, MAX_USAGE};

/// Who holds how much, as of the last write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseState {
    updated_at_us: u64,
    leases: Vec<Lease>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) expires_us: u64,
    pub(super) units: u64,
    /// A hash of the holder's name, so that most other names need not be compared.
    hash: u32,
    holder: Box<[u8]>,
}

/// A holder's name and its hash.
#[derive(Clone, Copy)]
pub(super) struct HashedHolder<'a> {
    hash: u32,
    name: &'a [u8],
}

impl<'a> HashedHolder<'a> {
    pub(super) fn new(name: &'a [u8]) -> Self {
        let hash = hash(name);
        Self { hash, name }
    }
}

impl Lease {
    pub(super) fn is_held_by(&self, holder: HashedHolder) -> bool {
        self.hash == holder.hash && *self.holder == *holder.name
    }
}

/// A change of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseUpdate<'a> {
    /// A holder acquires or renews a lease.
    Hold {
        /// The time of the call.
        at_us: u64,
        /// When the lease expires.
        expires_us: u64,
        /// How many units are held.
        units: u64,
        /// The holder's name.
        holder: &'a [u8],
    },
    /// A holder releases its lease.
    Release {
        /// The time of the call.
        at_us: u64,
        /// The holder's name.
        holder: &'a [u8],
    },
    /// The clock stepped back.
    ClockStepBack {
        /// The new time.
        at_us: u64,
    },
}

impl LeaseState {
    /// Drops expired leases. After a step back of the clock, the others last as long as they would have without it.
    fn move_to(&mut self, now_us: u64) {
        let expired = self.expired(now_us.max(self.updated_at_us));
        self.leases.drain(..expired);
        if let Some(behind_us) = self.updated_at_us.checked_sub(now_us) {
            for lease in &mut self.leases {
                lease.expires_us -= behind_us.min(lease.expires_us);
            }
        }
        self.updated_at_us = now_us;
    }

    fn remove(&mut self, holder: &[u8]) {
        if let Some(index) = self.position(holder) {
            self.leases.remove(index);
        }
    }

    /// How many leases have expired.
    fn expired(&self, now_us: u64) -> usize {
        // Usually none or few have.
        let live = self
            .leases
            .iter()
            .position(|lease| lease.expires_us > now_us);
        live.unwrap_or(self.leases.len())
    }

    fn position(&self, holder: &[u8]) -> Option<usize> {
        let holder = HashedHolder::new(holder);
        self.leases
            .iter()
            .position(|lease| lease.is_held_by(holder))
    }

    /// The leases that count at `now_us`, and how far the clock is behind their times.
    pub(super) fn live(&self, now_us: u64) -> (&[Lease], u64) {
        let list_now_us = now_us.max(self.updated_at_us);
        (
            &self.leases[self.expired(list_now_us)..],
            list_now_us - now_us,
        )
    }

    /// The lease of a holder.
    pub(crate) fn origin_of<'a>(&self, holder: &'a [u8]) -> Option<Origin<'a>> {
        let lease = self.leases.get(self.position(holder)?)?;
        Some(Origin::Lease {
            expires_us: lease.expires_us,
            holder,
        })
    }

    /// Changes the units of a lease that has not been renewed, released or moved by the clock since; 0 releases it. Returns
    /// the units that it had, and the update, if any lease stays.
    pub(crate) fn set_lease<'a>(
        &self,
        now_us: u64,
        expires_us: u64,
        holder: &'a [u8],
        units: u64,
    ) -> Option<(u64, Option<LeaseUpdate<'a>>)> {
        let at_us = now_us.min(MAX_TIME_US);
        let (live, behind_us) = self.live(at_us);
        let named = HashedHolder::new(holder);
        let lease = live.iter().find(|lease| lease.is_held_by(named))?;
        if behind_us > 0 || lease.expires_us != expires_us {
            return None;
        }
        let update = match units {
            0 => (live.len() > 1).then_some(LeaseUpdate::Release { at_us, holder }),
            units => Some(LeaseUpdate::Hold {
                at_us,
                expires_us,
                units: units.min(MAX_USAGE),
                holder,
            }),
        };
        Some((lease.units, update))
    }

    /// The units that a holder releases, and the update that does so, if other holders stay.
    pub(in crate::algorithm) fn release<'a>(
        &self,
        now_us: u64,
        holder: &'a [u8],
    ) -> (u64, Option<LeaseUpdate<'a>>) {
        let at_us = now_us.min(MAX_TIME_US);
        let (live, _) = self.live(at_us);
        let named = HashedHolder::new(holder);
        let units = live.iter().find(|lease| lease.is_held_by(named));
        let update = LeaseUpdate::Release { at_us, holder };
        let stays = live.len() > 1;
        (
            units.map_or(0, |lease| lease.units),
            stays.then_some(update),
        )
    }
}

impl AlgorithmState for LeaseState {
    type Refunded = LeaseUpdate<'static>;

    fn span_us(&self) -> u64 {
        0
    }

    fn expire_at_ms(&self) -> u64 {
        let last_us = self.leases.last().map_or(0, |lease| lease.expires_us);
        last_us.div_ceil(1000)
    }

    fn inspect(&self, now_us: u64) -> Vec<StateField> {
        let (live, behind_us) = self.live(now_us);
        let shown = live.iter().take(100).map(|lease| {
            let left_us = lease.expires_us - behind_us - now_us;
            (lease.holder.clone(), lease.units, left_us.div_ceil(1000))
        });
        vec![
            StateField::number("used", units_held(live)),
            StateField::number("holder_count", live.len() as u64),
            StateField {
                name: "leases",
                value: FieldValue::Leases(shown.collect()),
            },
        ]
    }

    fn refund(
        &self,
        _now_us: u64,
        _request: &RefundRequest,
    ) -> Result<(u64, Option<Self::Refunded>), Error> {
        Err(Error::RefundOfLease)
    }

    /// A list has several holders: see [`LeaseState::origin_of`].
    fn origin(&self) -> Option<Origin<'static>> {
        None
    }

    /// The holder and the end of a lease identify it.
    fn mark_reserved(&mut self, _now_us: u64) {}

    /// A lease is not refunded but set: see [`LeaseState::set_lease`].
    fn refund_charge(
        &self,
        _now_us: u64,
        _charge: &Charge,
        _units: u64,
    ) -> (u64, Option<Self::Refunded>) {
        (0, None)
    }

    #[inline(always)]
    fn owns_memory(&self) -> bool {
        true
    }

    fn heap_bytes(&self) -> usize {
        let names = |lease: &Lease| lease.holder.len();
        let list = self.leases.capacity() * size_of::<Lease>();
        list + self.leases.iter().map(names).sum::<usize>()
    }

    fn relocate<R: Relocate>(&mut self, walk: &mut Walk<R>) {
        walk.allocation(|by| by.list(&mut self.leases));
        for lease in &mut self.leases {
            walk.allocation(|by| by.slice(&mut lease.holder));
        }
    }
}

impl BoxedState for LeaseState {
    fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    fn allocations(&self) -> usize {
        1 + self.leases.len()
    }

    fn write(&self, into: &mut Blob) {
        write_varint(into, self.updated_at_us);
        for lease in &self.leases {
            write_varint(into, lease.expires_us);
            write_varint(into, lease.units);
            write_bytes(into, &lease.holder);
        }
    }

    fn read(from: &[u8]) -> Result<Self, Error> {
        let mut from = Reader::new(from);
        let mut state = Self {
            updated_at_us: time(from.varint()?)?,
            leases: Vec::new(),
        };
        while !from.is_empty() {
            let expires_us = time(from.varint()?)?;
            let units = positive(from.varint()?)?;
            let holder = read_holder(&mut from)?;
            // Every write drops the leases that have expired.
            let earliest_us = match state.leases.last() {
                Some(last) => last.expires_us,
                None => state.updated_at_us + 1,
            };
            if expires_us < earliest_us || state.leases.len() == MAX_HOLDERS {
                return Err(Error::DamagedState);
            }
            state.leases.push(Lease {
                expires_us,
                units,
                hash: hash(holder),
                holder: holder.into(),
            });
        }
        let mut holders: Vec<&[u8]> = state.leases.iter().map(|lease| &*lease.holder).collect();
        holders.sort_unstable();
        if state.leases.is_empty() || holders.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::DamagedState);
        }
        Ok(state)
    }
}

impl<'a> BoxedUpdate<'a> for LeaseUpdate<'a> {
    type State = LeaseState;

    fn apply(self, state: &mut LeaseState) {
        match self {
            Self::Hold {
                at_us,
                expires_us,
                units,
                holder,
            } => {
                state.move_to(at_us);
                state.remove(holder);
                let index = state
                    .leases
                    .partition_point(|lease| lease.expires_us <= expires_us);
                let lease = Lease {
                    expires_us,
                    units,
                    hash: hash(holder),
                    holder: holder.into(),
                };
                if state.leases.is_empty() {
                    state.leases.reserve_exact(1);
                }
                // No call adds so many, but a forged update may; such a state could not be read again.
                if state.leases.len() >= MAX_HOLDERS {
                    return;
                }
                state.leases.insert(index, lease);
            }
            Self::Release { at_us, holder } => {
                state.move_to(at_us);
                state.remove(holder);
            }
            Self::ClockStepBack { at_us } => state.move_to(at_us),
        }
    }

    fn into_initial(self) -> Option<LeaseState> {
        let Self::Hold { .. } = self else {
            return None;
        };
        let mut state = LeaseState::default();
        self.apply(&mut state);
        Some(state)
    }

    fn write(&self, into: &mut Blob) {
        let (numbers, holder) = match *self {
            Self::Hold {
                at_us,
                expires_us,
                units,
                holder,
            } => ([0, at_us, expires_us, units], holder),
            Self::Release { at_us, holder } => ([1, at_us, 0, 0], holder),
            Self::ClockStepBack { at_us } => ([2, at_us, 0, 0], &[][..]),
        };
        for number in numbers {
            write_varint(into, number);
        }
        write_bytes(into, holder);
    }

    fn read(from: &'a [u8]) -> Result<Self, Error> {
        let mut from = Reader::new(from);
        let mut number = || from.varint();
        let [kind, at_us, expires_us, units] = [number()?, number()?, number()?, number()?];
        let update = match kind {
            0 if at_us < expires_us => Self::Hold {
                at_us: time(at_us)?,
                expires_us: time(expires_us)?,
                units: positive(units)?,
                holder: read_holder(&mut from)?,
            },
            1 if expires_us == 0 && units == 0 => Self::Release {
                at_us: time(at_us)?,
                holder: read_holder(&mut from)?,
            },
            2 if expires_us == 0 && units == 0 && from.bytes()?.is_empty() => Self::ClockStepBack {
                at_us: time(at_us)?,
            },
            _ => return Err(Error::DamagedState),
        };
        from.finish(update)
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

fn read_holder<'a>(from: &mut Reader<'a>) -> Result<&'a [u8], Error> {
    check_holder(from.bytes()?).map_err(|_| Error::DamagedState)
}

/// FNV-1a: good enough to distinguish names, and the same on every machine.
fn hash(holder: &[u8]) -> u32 {
    let step = |hash: u32, &byte: &u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    holder.iter().fold(0x811c_9dc5, step)
}

/// All units of these leases.
pub(super) fn units_held(leases: &[Lease]) -> u64 {
    let sum = |sum: u64, lease: &Lease| sum.saturating_add(lease.units);
    leases.iter().fold(0, sum)
}

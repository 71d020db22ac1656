//! A reservation as bytes: what is kept in memory, in the RDB and in the AOF, and what replicas receive.

use smallvec::SmallVec;

use super::{Charge, ChargedDebt, ChargedWindow, Charges, OpenReservation, Origin};
use super::{Reservation, ReservedKey};
use crate::encoding::{
    Blob, Buffer, Kind, Reader, check_version, is_blob_of, write_bytes, write_head, write_varint,
    write_varints,
};
use crate::syntax::MAX_LIMITS;
use crate::units::{MAX_COUNT, MAX_TIME_US, MAX_USAGE};
use crate::{Error, MAX_RULES, Relocate, check_holder};

/// The bytes of a reservation, which have been checked. Most are never read again, so they are decoded only when needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredReservation {
    blob: Box<[u8]>,
}

impl StoredReservation {
    /// Encodes a reservation.
    #[must_use]
    pub fn new(reservation: &Reservation) -> Self {
        match reservation {
            Reservation::Closed => Self::closed(),
            Reservation::Open(open) => Self::open(open),
        }
    }

    /// A closed id.
    #[must_use]
    pub fn closed() -> Self {
        Self::written_by(|blob| write_varint(blob, CLOSED))
    }

    /// The record of an allowed RESERVE.
    #[must_use]
    pub fn open(open: &OpenReservation) -> Self {
        Self::written_by(|blob| write_open(open, blob))
    }

    /// Most records fit into the buffer, so that only what is kept is allocated.
    #[inline(always)]
    fn written_by(write: impl FnOnce(&mut SmallVec<[u8; 256]>)) -> Self {
        let mut blob = SmallVec::new();
        write_head(Kind::Reservation, &mut blob);
        write(&mut blob);
        Self {
            blob: blob.as_slice().into(),
        }
    }

    /// Whether bytes are a blob of a reservation rather than of a state.
    #[must_use]
    pub fn is_blob(bytes: &[u8]) -> bool {
        is_blob_of(Kind::Reservation, bytes)
    }

    /// Reads a blob from a source that may be damaged.
    pub fn decode_blob(blob: &[u8]) -> Result<Self, Error> {
        let stored = Self { blob: blob.into() };
        // Equal reservations have equal bits: only what we write is accepted.
        let canonical = Self::new(&stored.reservation()?);
        if canonical != stored {
            return Err(Error::DamagedState);
        }
        Ok(stored)
    }

    /// The reservation, which borrows its bytes.
    pub fn reservation(&self) -> Result<Reservation<'_>, Error> {
        let mut from = Reader::new(&self.blob);
        let [version] = from.array()?;
        check_version(version)?;
        if Kind::of(u64::from_le_bytes(from.array()?))? != Some(Kind::Reservation) {
            return Err(Error::DamagedState);
        }
        let reservation = read(&mut from)?;
        from.finish(reservation)
    }

    /// The bytes.
    #[must_use]
    pub fn blob(&self) -> Blob {
        Blob::from_slice(&self.blob)
    }

    /// Allocated memory in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.blob.len()
    }

    /// Hands the only allocation to `by`.
    pub fn relocate(&mut self, by: &mut impl Relocate) {
        by.slice(&mut self.blob);
    }
}

const CLOSED: u64 = 0;
const OPEN: u64 = 1;

/// The kind of a charge: part of its first number, together with its index. Never reuse one; there are 15.
const FIXED: u64 = 1;
const SLIDE: u64 = 2;
const SUB_WINDOW: u64 = 3;
const EXACT: u64 = 4;
const BUCKET: u64 = 5;
const LEAK: u64 = 6;
const LEASE: u64 = 7;

const KIND_BITS: u32 = 4;

fn write_open(open: &OpenReservation, into: &mut impl Buffer) {
    write_varints(into, [OPEN, open.charged_at_us]);
    into.add(&open.digest.to_le_bytes());
    write_varints(into, [open.times, open.keys.len() as u64]);
    for key in &open.keys {
        write_bytes(into, key.key);
        write_bytes(into, key.spec);
        let [reserved, settled] = [key.reserved, key.settled].map(optional);
        write_varints(into, [reserved, settled, key.charges.len() as u64]);
        for charge in &key.charges {
            write_charge(charge, into);
        }
    }
}

/// 0 for none, otherwise one more than the number.
fn optional(number: Option<u64>) -> u64 {
    number.map_or(0, |number| number + 1)
}

fn write_charge(charge: &Charge, into: &mut impl Buffer) {
    let head = |kind: u64| {
        let fixed = u64::from(charge.has_fixed_cost);
        let index_and_kind = u64::from(charge.index) << KIND_BITS | kind;
        [index_and_kind << 1 | fixed, charge.units]
    };
    match charge.origin {
        Origin::Fixed(window) => write_window(head(FIXED), window, into),
        Origin::Slide(window) => write_window(head(SLIDE), window, into),
        Origin::SubWindow { window, precision } => {
            write_window(head(SUB_WINDOW), window, into);
            write_varint(into, precision.into());
        }
        Origin::Exact { at_us, window_us } => {
            let [kind, units] = head(EXACT);
            write_varints(into, [kind, units, at_us, window_us]);
        }
        Origin::Bucket(debt) => write_debt(head(BUCKET), debt, into),
        Origin::Leak(debt) => write_debt(head(LEAK), debt, into),
        Origin::Lease { expires_us, holder } => {
            let [kind, units] = head(LEASE);
            write_varints(into, [kind, units, expires_us]);
            write_bytes(into, holder);
        }
    }
}

fn write_window([kind, units]: [u64; 2], window: ChargedWindow, into: &mut impl Buffer) {
    let (start_us, end_us) = (window.start_us, window.end_us);
    let numbers = [kind, units, start_us, end_us, window.span_us];
    write_varints(into, numbers);
    write_varint(into, window.reserved_since_us);
}

fn write_debt([kind, units]: [u64; 2], debt: ChargedDebt, into: &mut impl Buffer) {
    write_varints(into, [kind, units, debt.at_us, debt.period_us, debt.refill]);
    write_varints(into, [debt.reserved_since_us, debt.charged_until]);
    into.add(&debt.debt.to_le_bytes());
}

fn read<'a>(from: &mut Reader<'a>) -> Result<Reservation<'a>, Error> {
    match from.varint()? {
        CLOSED => return Ok(Reservation::Closed),
        OPEN => {}
        _ => return Err(Error::DamagedState),
    }
    let mut open = OpenReservation {
        charged_at_us: at_most(from.varint()?, MAX_TIME_US)?,
        digest: u64::from_le_bytes(from.array()?),
        times: at_most(from.varint()?, MAX_COUNT)?,
        keys: Default::default(),
    };
    let count = from.varint()?;
    if open.times == 0 || !(1..=MAX_LIMITS as u64).contains(&count) {
        return Err(Error::DamagedState);
    }
    for _ in 0..count {
        let mut key = ReservedKey {
            key: from.bytes()?,
            spec: from.bytes()?,
            reserved: read_optional(from)?,
            settled: read_optional(from)?,
            charges: Charges::new(),
        };
        let charges = at_most(from.varint()?, MAX_RULES as u64)?;
        for _ in 0..charges {
            key.charges.push(read_charge(from)?);
        }
        open.keys.push(key);
    }
    Ok(Reservation::Open(open))
}

fn at_most(number: u64, most: u64) -> Result<u64, Error> {
    match number <= most {
        true => Ok(number),
        false => Err(Error::DamagedState),
    }
}

fn read_optional(from: &mut Reader) -> Result<Option<u64>, Error> {
    Ok(at_most(from.varint()?, MAX_USAGE + 1)?.checked_sub(1))
}

fn read_charge<'a>(from: &mut Reader<'a>) -> Result<Charge<'a>, Error> {
    let first = from.varint()?;
    let index_and_kind = first >> 1;
    let index = at_most(index_and_kind >> KIND_BITS, MAX_RULES as u64)? as u8;
    let units = at_most(from.varint()?, MAX_USAGE)?;
    let origin = match index_and_kind & ((1 << KIND_BITS) - 1) {
        FIXED => Origin::Fixed(read_window(from)?),
        SLIDE => Origin::Slide(read_window(from)?),
        SUB_WINDOW => Origin::SubWindow {
            window: read_window(from)?,
            precision: at_most(from.varint()?, u8::MAX.into())? as u8,
        },
        EXACT => Origin::Exact {
            at_us: read_time(from)?,
            window_us: read_time(from)?,
        },
        BUCKET => Origin::Bucket(read_debt(from)?),
        LEAK => Origin::Leak(read_debt(from)?),
        LEASE => Origin::Lease {
            expires_us: read_time(from)?,
            holder: check_holder(from.bytes()?).map_err(|_| Error::DamagedState)?,
        },
        _ => return Err(Error::DamagedState),
    };
    Ok(Charge {
        units,
        index,
        has_fixed_cost: first & 1 == 1,
        origin,
    })
}

/// A time, or the sum of a time and a duration.
fn read_time(from: &mut Reader) -> Result<u64, Error> {
    at_most(from.varint()?, 2 * MAX_TIME_US)
}

fn read_window(from: &mut Reader) -> Result<ChargedWindow, Error> {
    Ok(ChargedWindow {
        start_us: read_time(from)?,
        end_us: read_time(from)?,
        span_us: read_time(from)?,
        reserved_since_us: read_time(from)?,
    })
}

fn read_debt(from: &mut Reader) -> Result<ChargedDebt, Error> {
    Ok(ChargedDebt {
        at_us: read_time(from)?,
        period_us: read_time(from)?,
        refill: at_most(from.varint()?, MAX_COUNT)?,
        reserved_since_us: read_time(from)?,
        charged_until: from.varint()?,
        debt: u128::from_le_bytes(from.array()?),
    })
}

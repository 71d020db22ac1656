//! Reservations: what a call charged to each key, so that it can be settled later, once.
//!
//! A [`Reservation`] is the record that is kept under its id. It has, for each key, the spec of the call and the
//! [`Charge`] of each limit: how many units, and where they are counted. Settling for less refunds only units that are
//! still counted there; settling for more charges the difference as any other call does.

mod charge;
mod encoding;
mod settle;

use smallvec::SmallVec;

pub use charge::{Charge, Charges};
pub(crate) use charge::{ChargedDebt, ChargedWindow, Origin};
pub use encoding::StoredReservation;
pub use settle::{ActualUsage, ExtraCharge, KeyChange, Settlement};

/// How long an id stays closed that was settled before it was reserved.
pub const CLOSED_FOR_MS: u64 = 60_000;

/// What an id stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "it lives on the stack for the length of a call, where a box would cost an allocation"
)]
pub enum Reservation<'a> {
    /// Settled while it was unknown: a RESERVE that is still under way must not charge anything.
    Closed,
    /// An allowed RESERVE.
    Open(OpenReservation<'a>),
}

/// The record of an allowed RESERVE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenReservation<'a> {
    /// The time of the charge.
    pub charged_at_us: u64,
    /// A digest of the arguments, to recognise a repeated call.
    pub digest: u64,
    /// How many calls were charged: TIMES.
    pub times: u64,
    /// The keys, in the order of the arguments.
    pub keys: SmallVec<[ReservedKey<'a>; 2]>,
}

/// What was charged to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedKey<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The limits, as the caller wrote them.
    pub spec: &'a [u8],
    /// The units of all calls together; `None` if the key's limits were not charged, because an override allowed the
    /// call, or because they denied it but are not enforced.
    pub reserved: Option<u64>,
    /// The units that stay charged, once the key is settled.
    pub settled: Option<u64>,
    /// What each limit was charged.
    pub charges: Charges<'a>,
}

impl OpenReservation<'_> {
    /// Whether any of the keys is settled.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.keys.iter().any(|key| key.settled.is_some())
    }

    /// For how long after `now_us` the units may be spent as if they were charged only then; −1 if there is no bound.
    #[must_use]
    pub fn spend_ms(&self, now_us: u64) -> i64 {
        let charges = self.keys.iter().flat_map(|key| &key.charges);
        let until_us = charges.filter_map(Charge::spend_until_us).min();
        until_us.map_or(-1, |until_us| {
            (until_us.saturating_sub(now_us) / 1000) as i64
        })
    }

    /// The index of a key.
    #[must_use]
    pub fn position(&self, key: &[u8]) -> Option<usize> {
        self.keys.iter().position(|reserved| reserved.key == key)
    }
}

/// A digest of arguments that is the same on every machine: 64-bit FNV-1a over their lengths and bytes.
#[must_use]
pub fn digest<'a>(args: impl Iterator<Item = &'a [u8]>) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    args.fold(0xcbf2_9ce4_8422_2325, |hash, arg| {
        let length = (arg.len() as u64).to_le_bytes();
        let hash = length.into_iter().fold(hash, step);
        arg.iter().copied().fold(hash, step)
    })
}

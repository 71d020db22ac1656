//! The forms of small states: two to five integers, or more.
//!
//! | form        | bits, from the top                                                            |
//! |-------------|-------------------------------------------------------------------------------|
//! | compact     | tag 4, time 52 (µs), span 14 (3 of unit, 11 of amount), low 58: 16 bytes      |
//! | wide        | tag 4 (+8), time 60 (µs), extra 24, span 40 (ms), extra 7, low 121: 32 bytes; |
//! |             | BUCKET and LEAK: rate 64 after it: 40 bytes                                   |
//! | marked      | tag 4, time 60 (µs) of the mark; then a compact or a wide state               |
//! |             | BUCKET and LEAK: tag 4, refunds 8, time 52; the state; units charged 64; and  |
//! |             | for each refund: start 64, length 32, units 32                                |
//! | sub-windows | tag 4, time 60 (µs); unused 15, width 2, counts 7, span 40 (ms); the counts   |
//!
//! `time` is a window's start or a debt's timestamp, `span` its window or period, `low` its counts. The compact form
//! has room for the usual sizes: times until the year 2112, spans of up to 2047 of a unit from milliseconds to days.
//! `extra` has what the compact form keeps in `low`, but for which the wide `low` has no room.

use smallvec::SmallVec;

use super::{Blob, ENCODING_VERSION, Tag};
use crate::Error;
use crate::units::{self, MAX_TIME_US};

/// The most integers that a packed state has.
pub const MAX_PACKED_LEN: usize = 1 + WIDE_WITH_RATE_LEN + 1 + 2 * MAX_MARK_PAIRS;

const _: () = assert!(PACKED_HEAD_LEN + MAX_COUNTS <= MAX_PACKED_LEN);

/// How many integers have to be read to know how many there are.
pub const PACKED_HEAD_LEN: usize = COMPACT_LEN;

const COMPACT_LEN: usize = 2;
const WIDE_LEN: usize = 4;
const WIDE_WITH_RATE_LEN: usize = 5;

/// The most integers that need no memory of their own: as many as `PRECISION 10` has while its counts are below 2^32.
pub(super) const INLINE_LEN: usize = 8;

/// The most refunds that the mark of a debt has: see `bucket/mark.rs`.
pub(crate) const MAX_MARK_PAIRS: usize = 128;

/// The bits of a mark's time where their number is written above it.
pub(crate) const MARK_TIME_BITS: u32 = 52;

/// `PRECISION 60`.
const MAX_COUNTS: usize = 61;
const COUNTS_BITS: u32 = 7;
const WIDTH_BITS: u32 = 2;

pub(crate) const LOW_BITS: u32 = 58;
const SPAN_BITS: u32 = 14;
const AMOUNT_BITS: u32 = 11;
const WIDE_SPAN_BITS: u32 = 40;
const WIDE_LOW_BITS: u32 = 121;
const EXTRA_LOW_BITS: u32 = 64 - WIDE_SPAN_BITS;

const COMPACT_TIME_BITS: u32 = 52;

/// The units of a compact span, in the order in which they are tried: what people write, then fractions of a second.
const UNITS_US: [u64; 7] = [
    1_000_000,
    60_000_000,
    3_600_000_000,
    86_400_000_000,
    100_000,
    10_000,
    1000,
];

/// A small state as integers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    integers: SmallVec<[u64; INLINE_LEN]>,
}

/// A state taken apart, before its algorithm reads it.
pub(crate) struct Fields<'a> {
    pub(crate) wide: bool,
    pub(crate) time_us: u64,
    pub(crate) span_us: u64,
    pub(crate) extra: u64,
    pub(crate) low: u128,
    /// Only wide states of BUCKET and LEAK have one.
    pub(crate) rate: u64,
    /// Set if the state has a reservation mark; 0 otherwise.
    pub(crate) reserved_since_us: u64,
    /// What follows a marked state of BUCKET and LEAK.
    pub(crate) mark_tail: &'a [u64],
}

impl Packed {
    /// `None` if the time or the span does not fit; the caller has checked `low`.
    pub(crate) fn compact(tag: Tag, time_us: u64, span_us: u64, low: u64) -> Option<Self> {
        if time_us >> COMPACT_TIME_BITS != 0 {
            return None;
        }
        let span = pack_span(span_us)?;
        let bits = u128::from(tag.bits()) << 64
            | u128::from(time_us) << (SPAN_BITS + LOW_BITS)
            | u128::from(span) << LOW_BITS
            | u128::from(low);
        Some(Self {
            integers: SmallVec::from_slice(&[(bits >> 64) as u64, bits as u64]),
        })
    }

    pub(crate) fn wide(tag: Tag, time_us: u64, span_us: u64, extra: u64, low: u128) -> Self {
        let head = tag.wide().bits() | time_us;
        let span = (extra << WIDE_SPAN_BITS) | (span_us / 1000);
        let low = u128::from(extra >> EXTRA_LOW_BITS) << WIDE_LOW_BITS | low;
        Self {
            integers: SmallVec::from_slice(&[head, span, (low >> 64) as u64, low as u64]),
        }
    }

    pub(crate) fn wide_with_rate(
        tag: Tag,
        time_us: u64,
        span_us: u64,
        extra: u64,
        low: u128,
        rate: u64,
    ) -> Self {
        let mut wide = Self::wide(tag, time_us, span_us, extra, low);
        wide.integers.push(rate);
        wide
    }

    /// The same state with a reservation mark in front, unless that is 0.
    #[inline(always)]
    pub(crate) fn marked(self, reserved_since_us: u64) -> Self {
        match reserved_since_us {
            0 => self,
            marked_us => self.with_mark(marked_us),
        }
    }

    #[cold]
    #[inline(never)]
    fn with_mark(mut self, reserved_since_us: u64) -> Self {
        let mark = Tag::RESERVED.bits() | reserved_since_us;
        self.integers.insert(0, mark);
        self
    }

    /// The same for states that also need to know what happened since the mark. There are at most [`MAX_MARK_PAIRS`], and
    /// the time has [`MARK_TIME_BITS`].
    pub(crate) fn marked_with_tail(
        self,
        reserved_since_us: u64,
        first: u64,
        pairs: impl ExactSizeIterator<Item = [u64; 2]>,
    ) -> Self {
        let count = (pairs.len() as u64) << MARK_TIME_BITS;
        let mut packed = self.with_mark(count | reserved_since_us);
        packed.integers.reserve_exact(1 + 2 * pairs.len());
        packed.integers.push(first);
        packed.integers.extend(pairs.flatten());
        packed
    }

    /// The counts of sub-windows, each as wide as the largest needs.
    pub(crate) fn sub_windows(
        time_us: u64,
        span_us: u64,
        counts: impl ExactSizeIterator<Item = u64> + Clone,
    ) -> Self {
        let width = width_of(counts.clone());
        let head = Tag::SUB_WINDOWS.bits() | time_us;
        let shape = width << COUNTS_BITS | counts.len() as u64;
        let mut integers = SmallVec::new();
        integers.push(head);
        integers.push((shape << WIDE_SPAN_BITS) | (span_us / 1000));
        let (bits, mut integer, mut used) = (16 << width, 0, 0);
        for count in counts {
            integer |= count << used;
            used += bits;
            if used == 64 {
                integers.push(integer);
                (integer, used) = (0, 0);
            }
        }
        if used > 0 {
            integers.push(integer);
        }
        Self { integers }
    }

    /// The integers to keep in memory.
    #[must_use]
    pub fn as_slice(&self) -> &[u64] {
        &self.integers
    }

    /// The integers as bytes, with a version in front.
    #[must_use]
    pub fn blob(&self) -> Blob {
        let mut blob = Blob::new();
        blob.push(ENCODING_VERSION);
        for integer in &self.integers {
            blob.extend_from_slice(&integer.to_le_bytes());
        }
        blob
    }
}

/// How wide counts are stored: 0 for 16 bits, 1 for 32, 2 for 64.
fn width_of(counts: impl Iterator<Item = u64>) -> u64 {
    // As wide as the largest: the highest bit that any of them has.
    match counts.fold(0, |bits, count| bits | count) {
        0..=0xffff => 0,
        0x1_0000..=0xffff_ffff => 1,
        _ => 2,
    }
}

/// The window's start, the window and the counts of a state with sub-windows.
pub(crate) fn decode_sub_windows(
    packed: &[u64],
) -> Result<(u64, u64, impl ExactSizeIterator<Item = u64> + Clone), Error> {
    let [head, shape, integers @ ..] = packed else {
        return Err(Error::DamagedState);
    };
    let span_ms = shape & ((1 << WIDE_SPAN_BITS) - 1);
    let (len, width) = shape_of(*shape);
    let bits = 16 << width;
    let count_at = move |index: usize| {
        let bit = index * bits;
        integers[bit / 64] >> (bit % 64) & (u64::MAX >> (64 - bits))
    };
    // Equal states have equal bits: only what we write is accepted.
    let is_ours = integers.len() == (len * bits).div_ceil(64)
        && shape >> WIDE_SPAN_BITS == width << COUNTS_BITS | len as u64
        && width == width_of((0..len).map(count_at))
        && (len..integers.len() * 64 / bits).all(|unused| count_at(unused) == 0);
    if !is_ours {
        return Err(Error::DamagedState);
    }
    let span_us = units::period_us(span_ms, Error::DamagedState)?;
    Ok((head & MAX_TIME_US, span_us, (0..len).map(count_at)))
}

/// How many counts a state with sub-windows has, and how wide they are (16, 32 or 64 bits).
fn shape_of(second: u64) -> (usize, u64) {
    let shape = second >> WIDE_SPAN_BITS;
    let count = shape & ((1 << COUNTS_BITS) - 1);
    let width = shape >> COUNTS_BITS & ((1 << WIDTH_BITS) - 1);
    ((count as usize).min(MAX_COUNTS), width.min(2))
}

/// How many integers a packed state has, given its first two.
#[must_use]
#[inline]
pub fn packed_len(first: u64, second: u64) -> usize {
    match Tag::of(first) {
        // What follows is a compact or a wide state.
        Tag::RESERVED => {
            let tag = Tag::of(second);
            1 + unmarked_len(tag) + mark_tail_len(tag, first)
        }
        Tag::SUB_WINDOWS => {
            let (count, width) = shape_of(second);
            PACKED_HEAD_LEN + count.div_ceil(4 >> width)
        }
        tag => unmarked_len(tag),
    }
}

/// How many integers follow a marked state. Damaged bits must not lead to more than there can be.
fn mark_tail_len(tag: Tag, mark: u64) -> usize {
    match has_mark_tail(tag) {
        true => 1 + 2 * mark_pairs(mark).min(MAX_MARK_PAIRS),
        false => 0,
    }
}

fn has_mark_tail(tag: Tag) -> bool {
    matches!(tag.compact(), Tag::BUCKET | Tag::LEAK)
}

fn mark_pairs(mark: u64) -> usize {
    ((mark & MAX_TIME_US) >> MARK_TIME_BITS) as usize
}

#[inline]
fn unmarked_len(tag: Tag) -> usize {
    match tag.compact() {
        _ if !tag.is_wide() => COMPACT_LEN,
        Tag::BUCKET | Tag::LEAK => WIDE_WITH_RATE_LEN,
        _ => WIDE_LEN,
    }
}

/// The fields of a state with a reservation mark, and its tag.
#[cold]
pub(super) fn marked_fields(packed: &[u64]) -> Result<(Tag, Fields<'_>), Error> {
    let [mark, state @ ..] = packed else {
        return Err(Error::DamagedState);
    };
    let tag = Tag::of(*state.first().ok_or(Error::DamagedState)?);
    let reserved_since_us = match has_mark_tail(tag) {
        true if mark_pairs(*mark) > MAX_MARK_PAIRS => return Err(Error::DamagedState),
        true => mark & ((1 << MARK_TIME_BITS) - 1),
        false => mark & MAX_TIME_US,
    };
    let len = state.len().checked_sub(mark_tail_len(tag, *mark));
    let (state, mark_tail) = state.split_at(len.ok_or(Error::DamagedState)?);
    if reserved_since_us == 0 {
        return Err(Error::DamagedState);
    }
    let fields = Fields {
        reserved_since_us,
        mark_tail,
        ..fields(state)?
    };
    Ok((tag, fields))
}

#[inline(always)]
pub(super) fn fields(packed: &[u64]) -> Result<Fields<'_>, Error> {
    match *packed {
        [high, low] => {
            let bits = u128::from(high) << 64 | u128::from(low);
            let span = (bits >> LOW_BITS) as u64 & ((1 << SPAN_BITS) - 1);
            Ok(Fields {
                wide: false,
                time_us: (bits >> (SPAN_BITS + LOW_BITS)) as u64 & ((1 << COMPACT_TIME_BITS) - 1),
                span_us: unpack_span(span)?,
                extra: 0,
                low: u128::from(low & ((1 << LOW_BITS) - 1)),
                rate: 0,
                reserved_since_us: 0,
                mark_tail: &[],
            })
        }
        [head, span, high, low, ref rest @ ..] => {
            let rate = match rest {
                [] => 0,
                [rate] => *rate,
                _ => return Err(Error::DamagedState),
            };
            let span_ms = span & ((1 << WIDE_SPAN_BITS) - 1);
            let low = u128::from(high) << 64 | u128::from(low);
            let extra_high = (low >> WIDE_LOW_BITS) as u64;
            Ok(Fields {
                wide: true,
                time_us: head & MAX_TIME_US,
                span_us: units::period_us(span_ms, Error::DamagedState)?,
                extra: (extra_high << EXTRA_LOW_BITS) | (span >> WIDE_SPAN_BITS),
                low: low & ((1 << WIDE_LOW_BITS) - 1),
                rate,
                reserved_since_us: 0,
                mark_tail: &[],
            })
        }
        _ => Err(Error::DamagedState),
    }
}

/// The first unit in which the amount fits, so that equal spans have equal bits.
fn pack_span(span_us: u64) -> Option<u64> {
    UNITS_US.iter().enumerate().find_map(|(unit, &unit_us)| {
        let amount = span_us / unit_us;
        (amount >> AMOUNT_BITS == 0 && amount * unit_us == span_us)
            .then_some((unit as u64) << AMOUNT_BITS | amount)
    })
}

fn unpack_span(span: u64) -> Result<u64, Error> {
    let amount = span & ((1 << AMOUNT_BITS) - 1);
    // At most 2047 d, which is within the range.
    match UNITS_US.get((span >> AMOUNT_BITS) as usize) {
        Some(unit_us) if amount > 0 => Ok(amount * unit_us),
        _ => Err(Error::DamagedState),
    }
}

//! The forms of small states: two, four or more integers.
//!
//! | form        | bits, from the top                                                            |
//! |-------------|-------------------------------------------------------------------------------|
//! | compact     | tag 4, time 52 (µs), span 14 (3 of unit, 11 of amount), low 58: 16 bytes      |
//! | wide        | tag 4 (+8), time 60 (µs), extra 24, span 40 (ms), extra 7, low 121: 32 bytes  |
//! | sub-windows | tag 4, time 60 (µs); unused 15, width 2, counts 7, span 40 (ms); the counts   |
//!
//! `time` is a window's start or a debt's timestamp, `span` its window or period, `low` its counts. The compact form
//! has room for the usual sizes: times until the year 2112, spans of up to 2047 of a unit from milliseconds to days.
//! `extra` has what the compact form keeps in `low`, but for which the wide `low` has no room.

use smallvec::{SmallVec, smallvec};

use super::{Blob, ENCODING_VERSION, Tag};
use crate::Error;
use crate::units::{self, MAX_TIME_US};

/// The most integers that a packed state has.
pub const MAX_PACKED_LEN: usize = 2 + MAX_COUNTS;

/// How many integers have to be read to know how many there are.
pub const PACKED_HEAD_LEN: usize = COMPACT_LEN;

const COMPACT_LEN: usize = 2;
pub(super) const WIDE_LEN: usize = 4;

const MAX_COUNTS: usize = 65;
const COUNTS_BITS: u32 = 7;
const WIDTH_BITS: u32 = 2;

pub(crate) const LOW_BITS: u32 = 58;
const SPAN_BITS: u32 = 14;
const AMOUNT_BITS: u32 = 11;
const WIDE_SPAN_BITS: u32 = 40;
const WIDE_LOW_BITS: u32 = 121;
const EXTRA_LOW_BITS: u32 = 64 - WIDE_SPAN_BITS;

/// Bits of a wide state's `extra`.
pub(crate) const EXTRA_BITS: u32 = EXTRA_LOW_BITS + 128 - WIDE_LOW_BITS;
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
    integers: SmallVec<[u64; WIDE_LEN]>,
}

/// A state taken apart, before its algorithm reads it.
pub(crate) struct Fields {
    pub(crate) wide: bool,
    pub(crate) time_us: u64,
    pub(crate) span_us: u64,
    pub(crate) extra: u64,
    pub(crate) low: u128,
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
            integers: SmallVec::from_buf_and_len(
                [(bits >> 64) as u64, bits as u64, 0, 0],
                COMPACT_LEN,
            ),
        })
    }

    pub(crate) fn wide(tag: Tag, time_us: u64, span_us: u64, extra: u64, low: u128) -> Self {
        let head = tag.wide().bits() | time_us;
        let span = (extra << WIDE_SPAN_BITS) | (span_us / 1000);
        let low = u128::from(extra >> EXTRA_LOW_BITS) << WIDE_LOW_BITS | low;
        Self {
            integers: SmallVec::from_buf([head, span, (low >> 64) as u64, low as u64]),
        }
    }

    /// The counters of sub-windows, each as wide as the largest needs.
    pub(crate) fn sub_windows(time_us: u64, span_us: u64, counts: &[u64]) -> Self {
        let largest = counts.iter().copied().max().unwrap_or(0);
        let width = match largest {
            0..=0xffff => 0,
            0x1_0000..=0xffff_ffff => 1,
            _ => 2,
        };
        let head = Tag::SUB_WINDOWS.bits() | time_us;
        let shape = width << COUNTS_BITS | counts.len() as u64;
        let mut integers = smallvec![head, (shape << WIDE_SPAN_BITS) | (span_us / 1000)];
        let bits = 16 << width;
        for counts in counts.chunks(64 / bits) {
            let pack = |integer, (index, count)| integer | count << (index * bits);
            integers.push(counts.iter().enumerate().fold(0, pack));
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

/// The window's start, the window and the counters of a state with sub-windows.
pub(crate) fn decode_sub_windows(packed: &[u64]) -> Result<(u64, u64, Vec<u64>), Error> {
    let [head, shape, counters @ ..] = packed else {
        return Err(Error::DamagedState);
    };
    let span_ms = shape & ((1 << WIDE_SPAN_BITS) - 1);
    let (count, width) = shape_of(*shape);
    let bits = 16 << width;
    let unpack = |integer: &u64| {
        let integer = *integer;
        (0..64 / bits).map(move |index| integer >> (index * bits) & (u64::MAX >> (64 - bits)))
    };
    let mut counts: Vec<u64> = counters.iter().flat_map(unpack).collect();
    counts.truncate(count);
    let time_us = head & MAX_TIME_US;
    let span_us = units::period_us(span_ms, Error::DamagedState)?;
    // Equal states have equal bits: only what we write is accepted.
    if counts.len() < 3 || Packed::sub_windows(time_us, span_us, &counts).as_slice() != packed {
        return Err(Error::DamagedState);
    }
    Ok((time_us, span_us, counts))
}

/// How many counters a state with sub-windows has, and how wide they are (16, 32 or 64 bits).
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
        Tag::SUB_WINDOWS => {
            let (count, width) = shape_of(second);
            PACKED_HEAD_LEN + count.div_ceil(4 >> width)
        }
        tag if tag.is_wide() => WIDE_LEN,
        _ => COMPACT_LEN,
    }
}

#[inline(always)]
pub(super) fn fields(packed: &[u64]) -> Result<Fields, Error> {
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
            })
        }
        [head, span, high, low] => {
            let span_ms = span & ((1 << WIDE_SPAN_BITS) - 1);
            let low = u128::from(high) << 64 | u128::from(low);
            let extra_high = (low >> WIDE_LOW_BITS) as u64;
            Ok(Fields {
                wide: true,
                time_us: head & MAX_TIME_US,
                span_us: units::period_us(span_ms, Error::DamagedState)?,
                extra: (extra_high << EXTRA_LOW_BITS) | (span >> WIDE_SPAN_BITS),
                low: low & ((1 << WIDE_LOW_BITS) - 1),
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

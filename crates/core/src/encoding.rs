//! One encoding for memory, RDB, AOF and replicas, so that they agree bit for bit.
//!
//! | form   | bits, from the top                                                            |
//! |--------|-------------------------------------------------------------------------------|
//! | packed | tag 4, time 52 (µs), span 14 (3 of unit, 11 of amount), low 58: 16 bytes      |
//! | wide   | tag 4 (+8), time 60 (µs), extra 24, span 40 (ms), extra 7, low 121: 32 bytes  |
//!
//! `time` is a window's start or a debt's timestamp, `span` its window or period, `low` its counts. The
//! packed form holds the usual sizes: until the year 2112, spans of up to 2047 of a unit from milliseconds
//! to days. `extra` has what a packed form keeps in its `low` and a wide `low` has no room for.

use crate::bounds::{self, MAX_TIME_US};
use crate::{Algorithm, Error, State};

/// Version of the state's bytes, first byte of a [`Blob`] and encoding version of the RDB.
pub const ENCODING_VERSION: u8 = 1;

/// Words of the largest encoded state.
pub const MAX_WORDS: usize = WIDE_WORDS;

const PACKED_WORDS: usize = 2;
const WIDE_WORDS: usize = 4;
const WIDE: u8 = 8;

pub(crate) const LOW_BITS: u32 = 58;
const SPAN_BITS: u32 = 14;
const AMOUNT_BITS: u32 = 11;
const WIDE_SPAN_BITS: u32 = 40;
const WIDE_LOW_BITS: u32 = 121;
const EXTRA_LOW_BITS: u32 = 64 - WIDE_SPAN_BITS;

/// Bits of a wide state's `extra`.
pub(crate) const EXTRA_BITS: u32 = EXTRA_LOW_BITS + 128 - WIDE_LOW_BITS;
const PACKED_TIME_BITS: u32 = 52;
const WIDE_TIME_BITS: u32 = 60;

/// In the order in which they are tried: what people write, then fractions of a second.
const UNITS_US: [u64; 7] = [
    1_000_000,
    60_000_000,
    3_600_000_000,
    86_400_000_000,
    100_000,
    10_000,
    1000,
];

/// A state's words, as many as its form has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    words: [u64; MAX_WORDS],
    len: usize,
}

/// The same as bytes, behind a version byte: what replicas and the AOF receive.
#[derive(Clone, Copy, Debug)]
pub struct Blob {
    bytes: [u8; 1 + 8 * MAX_WORDS],
    len: usize,
}

impl Blob {
    /// The bytes, version first.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A state taken apart, before its algorithm reads it.
pub(crate) struct Fields {
    pub(crate) wide: bool,
    pub(crate) time_us: u64,
    pub(crate) span_us: u64,
    pub(crate) extra: u64,
    pub(crate) low: u128,
}

impl Encoded {
    /// `None` where the time or the span does not fit; the caller has checked `low`.
    pub(crate) fn packed(tag: u8, time_us: u64, span_us: u64, low: u64) -> Option<Self> {
        if time_us >> PACKED_TIME_BITS != 0 {
            return None;
        }
        let span = pack_span(span_us)?;
        let bits = u128::from(tag) << 124
            | u128::from(time_us) << (SPAN_BITS + LOW_BITS)
            | u128::from(span) << LOW_BITS
            | u128::from(low);
        Some(Self {
            words: [(bits >> 64) as u64, bits as u64, 0, 0],
            len: PACKED_WORDS,
        })
    }

    pub(crate) fn wide(tag: u8, time_us: u64, span_us: u64, extra: u64, low: u128) -> Self {
        let head = u64::from(tag | WIDE) << WIDE_TIME_BITS | time_us;
        let span = (extra << WIDE_SPAN_BITS) | (span_us / 1000);
        let low = u128::from(extra >> EXTRA_LOW_BITS) << WIDE_LOW_BITS | low;
        Self {
            words: [head, span, (low >> 64) as u64, low as u64],
            len: WIDE_WORDS,
        }
    }

    /// The words to keep in memory.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words[..self.len]
    }

    /// The words as bytes behind a version.
    #[must_use]
    pub fn blob(&self) -> Blob {
        let mut blob = Blob {
            bytes: [0; 1 + 8 * MAX_WORDS],
            len: 1 + 8 * self.len,
        };
        blob.bytes[0] = ENCODING_VERSION;
        for (bytes, word) in blob.bytes[1..].chunks_exact_mut(8).zip(self.words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        blob
    }
}

/// How many words a stored state has, told by the first.
#[must_use]
pub fn stored_words(first: u64) -> usize {
    if tag(first) & WIDE == 0 {
        PACKED_WORDS
    } else {
        WIDE_WORDS
    }
}

fn tag(first: u64) -> u8 {
    (first >> 60) as u8
}

#[inline]
fn fields(words: &[u64]) -> Result<Fields, Error> {
    match *words {
        [high, low] => {
            let bits = u128::from(high) << 64 | u128::from(low);
            let span = (bits >> LOW_BITS) as u64 & ((1 << SPAN_BITS) - 1);
            Ok(Fields {
                wide: false,
                time_us: (bits >> (SPAN_BITS + LOW_BITS)) as u64 & ((1 << PACKED_TIME_BITS) - 1),
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
                span_us: bounds::period_us(span_ms, Error::DamagedState)?,
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

impl State {
    /// Reads the words that [`State::encode`] wrote.
    #[inline]
    pub fn decode(words: &[u64]) -> Result<Self, Error> {
        let first = *words.first().ok_or(Error::DamagedState)?;
        if words.len() != stored_words(first) {
            return Err(Error::DamagedState);
        }
        let algorithm = Algorithm::from_tag(tag(first) & !WIDE).ok_or(Error::DamagedState)?;
        Self::decode_as(algorithm, fields(words)?)
    }

    /// Reads bytes from a source that may be damaged.
    pub fn decode_bytes(version: u8, bytes: &[u8]) -> Result<Self, Error> {
        if version > ENCODING_VERSION {
            return Err(Error::NewerState);
        }
        if version == 0 || !bytes.len().is_multiple_of(8) || bytes.len() > 8 * MAX_WORDS {
            return Err(Error::DamagedState);
        }
        let mut words = [0; MAX_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes
                .iter()
                .rev()
                .fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        Self::decode(&words[..bytes.len() / 8])
    }

    /// Reads a [`Blob`], version first.
    pub fn decode_blob(blob: &[u8]) -> Result<Self, Error> {
        let (&version, bytes) = blob.split_first().ok_or(Error::DamagedState)?;
        Self::decode_bytes(version, bytes)
    }
}

//! One encoding for memory, RDB, AOF and replicas, so that they agree bit for bit.
//!
//! | form   | bits, from the top                                                            |
//! |--------|-------------------------------------------------------------------------------|
//! | packed | tag 4, time 52 (µs), span 14 (3 of unit, 11 of amount), low 58: 16 bytes      |
//! | wide   | tag 4 (+8), time 60 (µs), extra 24, span 40 (ms), extra 7, low 121: 32 bytes  |
//! | parts  | tag 4, time 60 (µs); unused 15, width 2, counts 7, span 40 (ms); the counts   |
//! | live   | tag 4 (+8 for a step), then bytes of the algorithm's own: logs, leases, groups|
//!
//! `time` is a window's start or a debt's timestamp, `span` its window or period, `low` its counts. The
//! packed form holds the usual sizes: until the year 2112, spans of up to 2047 of a unit from milliseconds
//! to days. `extra` has what a packed form keeps in its `low` and a wide `low` has no room for.

use smallvec::{SmallVec, smallvec};

use crate::bounds::{self, MAX_TIME_US};
use crate::{Algorithm, Error, Next, State};

/// Version of the state's bytes, first byte of a [`Blob`] and encoding version of the RDB.
pub const ENCODING_VERSION: u8 = 1;

/// Version of what joined later: policies' states and overrides. Older modules say that it is newer.
pub(crate) const GROUP_VERSION: u8 = 2;

/// Words of the largest state that is kept as words.
pub const MAX_WORDS: usize = 2 + MAX_PARTS;

/// Words that tell how many there are.
pub const HEAD_WORDS: usize = PACKED_WORDS;

const PACKED_WORDS: usize = 2;
const WIDE_WORDS: usize = 4;
const WIDE: u8 = 8;

/// A live state's blob that holds no state, but a step from one to the next.
const STEP: u8 = 8;

const PARTS_TAG: u8 = 7;
const MAX_PARTS: usize = 65;
const PARTS_BITS: u32 = 7;
const WIDTH_BITS: u32 = 2;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    words: SmallVec<[u64; WIDE_WORDS]>,
}

/// A state or a step behind a version byte: what replicas and the AOF receive.
pub type Blob = SmallVec<[u8; 64]>;

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
            words: SmallVec::from_buf_and_len(
                [(bits >> 64) as u64, bits as u64, 0, 0],
                PACKED_WORDS,
            ),
        })
    }

    pub(crate) fn wide(tag: u8, time_us: u64, span_us: u64, extra: u64, low: u128) -> Self {
        let head = u64::from(tag | WIDE) << WIDE_TIME_BITS | time_us;
        let span = (extra << WIDE_SPAN_BITS) | (span_us / 1000);
        let low = u128::from(extra >> EXTRA_LOW_BITS) << WIDE_LOW_BITS | low;
        Self {
            words: SmallVec::from_buf([head, span, (low >> 64) as u64, low as u64]),
        }
    }

    /// The words to keep in memory.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Counters of a window in parts, each as wide as the largest needs.
    pub(crate) fn parts(time_us: u64, span_us: u64, counts: &[u64]) -> Self {
        let most = counts.iter().copied().max().unwrap_or(0);
        let width = match most {
            0..=0xffff => 0,
            0x1_0000..=0xffff_ffff => 1,
            _ => 2,
        };
        let head = u64::from(PARTS_TAG) << WIDE_TIME_BITS | time_us;
        let shape = width << PARTS_BITS | counts.len() as u64;
        let mut words = smallvec![head, (shape << WIDE_SPAN_BITS) | (span_us / 1000)];
        let bits = 16 << width;
        for counts in counts.chunks(64 / bits) {
            let pack = |word, (place, count)| word | count << (place * bits);
            words.push(counts.iter().enumerate().fold(0, pack));
        }
        Self { words }
    }

    /// The words as bytes behind a version.
    #[must_use]
    pub fn blob(&self) -> Blob {
        let mut blob = Blob::new();
        blob.push(ENCODING_VERSION);
        for word in &self.words {
            blob.extend_from_slice(&word.to_le_bytes());
        }
        blob
    }
}

/// Window start, window and counters of a state in parts.
pub(crate) fn parts(words: &[u64]) -> Result<(u64, u64, Vec<u64>), Error> {
    let [head, shape, packed @ ..] = words else {
        return Err(Error::DamagedState);
    };
    let span_ms = shape & ((1 << WIDE_SPAN_BITS) - 1);
    let (count, width) = shape_of(*shape);
    let bits = 16 << width;
    let unpack = |word: &u64| {
        let word = *word;
        (0..64 / bits).map(move |place| word >> (place * bits) & (u64::MAX >> (64 - bits)))
    };
    let mut counts: Vec<u64> = packed.iter().flat_map(unpack).collect();
    counts.truncate(count);
    let time_us = head & MAX_TIME_US;
    let span_us = bounds::period_us(span_ms, Error::DamagedState)?;
    // Equal states have equal bits: nothing but what we write is read.
    if counts.len() < 3 || Encoded::parts(time_us, span_us, &counts).words() != words {
        return Err(Error::DamagedState);
    }
    Ok((time_us, span_us, counts))
}

/// How many counters a state in parts has, and how wide they are (16, 32, 64 bits).
fn shape_of(word: u64) -> (usize, u64) {
    let shape = word >> WIDE_SPAN_BITS;
    let count = shape & ((1 << PARTS_BITS) - 1);
    let width = shape >> PARTS_BITS & ((1 << WIDTH_BITS) - 1);
    ((count as usize).min(MAX_PARTS), width.min(2))
}

/// How many words a stored state has, told by the first two.
#[must_use]
#[inline]
pub fn stored_words(first: u64, second: u64) -> usize {
    match tag(first) {
        PARTS_TAG => {
            let (count, width) = shape_of(second);
            HEAD_WORDS + count.div_ceil(4 >> width)
        }
        tag if tag & WIDE == 0 => PACKED_WORDS,
        _ => WIDE_WORDS,
    }
}

fn tag(first: u64) -> u8 {
    (first >> 60) as u8
}

#[inline(always)]
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
    /// Reads the words that [`State::words`] gave.
    #[inline]
    pub fn decode(words: &[u64]) -> Result<Self, Error> {
        let [first, second, ..] = *words else {
            return Err(Error::DamagedState);
        };
        if words.len() != stored_words(first, second) {
            return Err(Error::DamagedState);
        }
        match tag(first) {
            PARTS_TAG => Ok(Self::Slide(crate::slide::State::decode_parts(words)?)),
            tag => {
                let algorithm = Algorithm::from_tag(tag & !WIDE).ok_or(Error::DamagedState)?;
                Self::decode_as(algorithm, fields(words)?)
            }
        }
    }

    /// The same where the algorithm is known, which spares the search for it.
    #[inline(always)]
    pub fn decode_known(algorithm: Algorithm, words: &[u64]) -> Result<Self, Error> {
        if words.first().map(|&first| tag(first) & !WIDE) == Some(algorithm.tag()) {
            return Self::decode_as(algorithm, fields(words)?);
        }
        Self::decode(words)
    }

    /// The whole state behind a version.
    #[must_use]
    pub fn blob(&self) -> Blob {
        match self.words() {
            Some(words) => words.blob(),
            None => live_blob(self.algorithm(), 0, |bytes| self.write_live(bytes)),
        }
    }

    /// Reads the blob of a whole state, from a source that may be damaged.
    pub fn decode_blob(blob: &[u8]) -> Result<Self, Error> {
        match Next::decode_blob(blob)? {
            Next::Whole(state) => Ok(state),
            _ => Err(Error::DamagedState),
        }
    }
}

impl<'a> Next<'a> {
    /// What a replica needs in order to follow, behind a version.
    #[must_use]
    pub fn blob(&self) -> Blob {
        match self {
            Self::Whole(state) => state.blob(),
            step => live_blob(step.algorithm(), STEP, |bytes| step.write_step(bytes)),
        }
    }

    /// Reads a blob from a source that may be damaged.
    pub fn decode_blob(blob: &'a [u8]) -> Result<Self, Error> {
        let (&version, bytes) = blob.split_first().ok_or(Error::DamagedState)?;
        if version > GROUP_VERSION {
            return Err(Error::NewerState);
        }
        let first = bytes.first_chunk().ok_or(Error::DamagedState)?;
        let tag = tag(u64::from_le_bytes(*first));
        let algorithm = Algorithm::from_tag(tag & !STEP);
        let written = algorithm.map_or(ENCODING_VERSION, version_of);
        if version < written {
            return Err(Error::DamagedState);
        } else if version > written {
            return Err(Error::NewerState);
        }
        match algorithm {
            Some(algorithm) if algorithm.is_live() => {
                if u64::from_le_bytes(*first) != u64::from(tag) << WIDE_TIME_BITS {
                    return Err(Error::DamagedState);
                }
                let bytes = &bytes[first.len()..];
                if tag & STEP == 0 {
                    State::read_live(algorithm, bytes).map(Self::Whole)
                } else {
                    Self::read_step(algorithm, bytes)
                }
            }
            _ => {
                if !bytes.len().is_multiple_of(8) || bytes.len() > 8 * MAX_WORDS {
                    return Err(Error::DamagedState);
                }
                let (words, _) = bytes.as_chunks();
                let words: SmallVec<[u64; WIDE_WORDS]> =
                    words.iter().map(|word| u64::from_le_bytes(*word)).collect();
                let state = State::decode(&words)?;
                // Equal states have equal bits: nothing but what we write is read.
                match state.words() {
                    Some(encoded) if encoded.words() == &words[..] => Ok(Self::Whole(state)),
                    _ => Err(Error::DamagedState),
                }
            }
        }
    }
}

fn version_of(algorithm: Algorithm) -> u8 {
    match algorithm {
        Algorithm::Group => GROUP_VERSION,
        _ => ENCODING_VERSION,
    }
}

fn live_blob(algorithm: Algorithm, step: u8, write: impl FnOnce(&mut Blob)) -> Blob {
    let tag = algorithm.tag() | step;
    let mut blob = Blob::new();
    blob.push(version_of(algorithm));
    blob.extend_from_slice(&(u64::from(tag) << WIDE_TIME_BITS).to_le_bytes());
    write(&mut blob);
    blob
}

/// Numbers in as few bytes as they need, 7 bits in each.
pub(crate) mod varint {
    use crate::Error;

    pub(crate) fn write(into: &mut impl Extend<u8>, mut value: u64) {
        while value >> 7 != 0 {
            into.extend([value as u8 | 0x80]);
            value >>= 7;
        }
        into.extend([value as u8]);
    }

    /// Reads one number and moves on behind it.
    #[inline]
    pub(crate) fn read(from: &mut &[u8]) -> Result<u64, Error> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = from.split_first().ok_or(Error::DamagedState)?;
            *from = rest;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits || (byte == 0 && shift > 0) {
                return Err(Error::DamagedState);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Error::DamagedState)
    }
}

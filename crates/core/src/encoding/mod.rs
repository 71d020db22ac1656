//! One encoding for memory, RDB, AOF and replicas, so that they agree bit for bit.
//!
//! `tags.rs` has the table of versions, tags and kinds, `packed.rs` the forms of small states, `reader.rs` the numbers
//! and byte strings of which everything else is made. This file puts a version in front: a [`Blob`].

mod packed;
mod reader;
mod tags;

use smallvec::SmallVec;

use crate::{Algorithm, Error, SlideState, State, Update};
use packed::{INLINE_LEN, fields, marked_fields};
use tags::Mark;

pub(crate) use packed::{Fields, LOW_BITS, MARK_TIME_BITS, MAX_MARK_PAIRS, decode_sub_windows};
pub use packed::{MAX_PACKED_LEN, PACKED_HEAD_LEN, Packed, packed_len};
pub(crate) use reader::{Buffer, Reader, write_bytes, write_varint, write_varints};
pub use tags::{ENCODING_VERSION, check_version};
pub(crate) use tags::{Kind, Tag};

/// The bytes of a state, an update or overrides, as replicas, the AOF and (if boxed) the RDB receive them: the version
/// first. Also a buffer for parts of them.
pub type Blob = SmallVec<[u8; 64]>;

impl State {
    /// Reads the integers that [`State::packed`] returned.
    #[inline]
    pub fn decode(packed: &[u64]) -> Result<Self, Error> {
        let [first, second, ..] = *packed else {
            return Err(Error::DamagedState);
        };
        if packed.len() != packed_len(first, second) {
            return Err(Error::DamagedState);
        }
        match Tag::of(first) {
            Tag::RESERVED => {
                let (tag, fields) = marked_fields(packed)?;
                Self::from_fields(tag.algorithm()?, fields)
            }
            Tag::SUB_WINDOWS => Ok(Self::Slide(SlideState::decode_sub_windows(packed)?)),
            Tag::EXTENDED => Err(extended(first)),
            tag => Self::from_fields(tag.algorithm()?, fields(packed)?),
        }
    }

    /// Does the same if the algorithm is known, which is faster.
    #[inline(always)]
    pub fn decode_as(algorithm: Algorithm, packed: &[u64]) -> Result<Self, Error> {
        if let (Some(&first), Mark::Tag(tag)) = (packed.first(), algorithm.mark())
            && Tag::of(first).compact() == tag
        {
            return Self::from_fields(algorithm, fields(packed)?);
        }
        Self::decode(packed)
    }

    /// The whole state with its version in front.
    #[must_use]
    pub fn blob(&self) -> Blob {
        match self.packed() {
            Some(packed) => packed.blob(),
            None => extended_blob(Kind::State(self.algorithm()), |blob| self.write_boxed(blob)),
        }
    }

    /// Reads the blob of a whole state, from a source that may be damaged.
    pub fn decode_blob(blob: &[u8]) -> Result<Self, Error> {
        match Update::decode_blob(blob)? {
            Update::Replace(state) => Ok(state),
            _ => Err(Error::DamagedState),
        }
    }
}

/// The error for an extended tag: no known kind is packed, but that of a newer version may be.
#[cold]
fn extended(first: u64) -> Error {
    Kind::of(first).err().unwrap_or(Error::DamagedState)
}

impl<'a> Update<'a> {
    /// What a replica needs in order to apply the update, with a version in front.
    #[must_use]
    pub fn blob(&self) -> Blob {
        match self {
            Self::Replace(state) => state.blob(),
            update => extended_blob(Kind::Update(update.algorithm()), |blob| {
                update.write_boxed(blob)
            }),
        }
    }

    /// Reads a blob from a source that may be damaged.
    pub fn decode_blob(blob: &'a [u8]) -> Result<Self, Error> {
        let mut from = Reader::new(blob);
        let [version] = from.array()?;
        check_version(version)?;
        let body = from.rest();
        let first = u64::from_le_bytes(from.array()?);
        match Kind::of(first)? {
            Some(kind) if kind.head() != Some(first) => Err(Error::DamagedState),
            Some(Kind::State(algorithm)) => {
                State::read_boxed(algorithm, from.rest()).map(Self::Replace)
            }
            Some(Kind::Update(algorithm)) => Self::read_boxed(algorithm, from.rest()),
            Some(Kind::Overrides | Kind::Reservation) => Err(Error::DamagedState),
            None => decode_packed(body).map(Self::Replace),
        }
    }
}

fn decode_packed(body: &[u8]) -> Result<State, Error> {
    if !body.len().is_multiple_of(8) || body.len() > 8 * MAX_PACKED_LEN {
        return Err(Error::DamagedState);
    }
    let (integers, _) = body.as_chunks();
    let integers = integers.iter().map(|integer| u64::from_le_bytes(*integer));
    let integers: SmallVec<[u64; INLINE_LEN]> = integers.collect();
    let state = State::decode(&integers)?;
    // Equal states have equal bits: only what we write is accepted.
    match state.packed() {
        Some(packed) if packed.as_slice() == &integers[..] => Ok(state),
        _ => Err(Error::DamagedState),
    }
}

/// The algorithm of a blob; `None` if it is too short, neither a state nor an update, or unknown.
pub(crate) fn algorithm_of_blob(blob: &[u8]) -> Option<Algorithm> {
    let first = u64::from_le_bytes(*blob.get(1..)?.first_chunk()?);
    match Kind::of(first).ok()? {
        Some(Kind::State(algorithm) | Kind::Update(algorithm)) => Some(algorithm),
        Some(Kind::Overrides | Kind::Reservation) => None,
        None if Tag::of(first) == Tag::RESERVED => {
            let state = u64::from_le_bytes(*blob.get(9..)?.first_chunk()?);
            Tag::of(state).algorithm().ok()
        }
        None => Tag::of(first).algorithm().ok(),
    }
}

/// Whether bytes are a blob of a kind.
pub(crate) fn is_blob_of(kind: Kind, bytes: &[u8]) -> bool {
    let head = bytes.get(1..).and_then(|body| body.first_chunk());
    head.map(|head| u64::from_le_bytes(*head)) == kind.head()
}

/// A blob that consists of the version, the kind, and what `write` adds.
pub(crate) fn extended_blob(kind: Kind, write: impl FnOnce(&mut Blob)) -> Blob {
    let mut blob = Blob::new();
    write_head(kind, &mut blob);
    write(&mut blob);
    blob
}

/// The version and the kind.
pub(crate) fn write_head(kind: Kind, into: &mut impl Buffer) {
    into.add(&[ENCODING_VERSION]);
    // Everything that is not a packed state has a kind.
    into.add(&kind.head().unwrap_or(0).to_le_bytes());
}

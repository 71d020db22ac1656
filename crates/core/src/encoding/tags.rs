//! The one table of versions, tags and kinds: how the bytes say what they are.
//!
//! The top four bits of a state's first integer are its tag. One tag is [`Tag::EXTENDED`]: the next eight bits are
//! then the kind. Tags are for small states that are checked often, because they leave 60 bits of the integer to the
//! state. Everything else has a kind, of which there are plenty.
//!
//! | tag | meaning                                                      |
//! |-----|--------------------------------------------------------------|
//! | 0   | never used, so that zeroed memory is not a state             |
//! | 1–4 | SLIDE, BUCKET, FIXED, LEAK, compact; +8: the same, wide      |
//! | 5   | a reservation mark; the state follows                        |
//! | 6   | free; +8: the same, wide                                     |
//! | 7   | SLIDE with sub-windows                                       |
//! | 8   | never used                                                   |
//! | 15  | extended: the next byte is the kind                          |

use crate::{Algorithm, Error};

/// Version of the bytes of states and overrides: the first byte of a [`super::Blob`], and the encoding version in the
/// RDB.
pub const ENCODING_VERSION: u8 = 1;

/// Checks the version of stored bytes.
pub fn check_version(version: u8) -> Result<(), Error> {
    match version {
        ENCODING_VERSION => Ok(()),
        0 => Err(Error::DamagedState),
        _ => Err(Error::NewerState),
    }
}

/// The top four bits of a state's first integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u8);

impl Tag {
    pub(crate) const SLIDE: Self = Self(1);
    pub(crate) const BUCKET: Self = Self(2);
    pub(crate) const FIXED: Self = Self(3);
    pub(crate) const LEAK: Self = Self(4);
    pub(crate) const RESERVED: Self = Self(5);
    pub(crate) const SUB_WINDOWS: Self = Self(7);
    pub(crate) const EXTENDED: Self = Self(15);

    const WIDE_BIT: u8 = 8;

    #[inline(always)]
    pub(crate) const fn of(first: u64) -> Self {
        Self((first >> 60) as u8)
    }

    /// The tag at its place in the first integer.
    #[inline(always)]
    pub(crate) const fn bits(self) -> u64 {
        (self.0 as u64) << 60
    }

    #[inline(always)]
    pub(crate) const fn is_wide(self) -> bool {
        self.0 & Self::WIDE_BIT != 0
    }

    pub(crate) const fn wide(self) -> Self {
        Self(self.0 | Self::WIDE_BIT)
    }

    #[inline(always)]
    pub(crate) const fn compact(self) -> Self {
        Self(self.0 & !Self::WIDE_BIT)
    }

    /// The algorithm whose compact or wide state this is: the inverse of [`Algorithm::mark`].
    pub(crate) const fn algorithm(self) -> Result<Algorithm, Error> {
        match self.compact() {
            Self::SLIDE => Ok(Algorithm::Slide),
            Self::BUCKET => Ok(Algorithm::Bucket),
            Self::FIXED => Ok(Algorithm::Fixed),
            Self::LEAK => Ok(Algorithm::Leak),
            Self(0) => Err(Error::DamagedState),
            _ => Err(Error::NewerState),
        }
    }
}

/// How the states of an algorithm are marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// By a tag.
    Tag(Tag),
    /// By a kind; the number that follows marks updates.
    Kind(u8),
}

impl Algorithm {
    /// Every algorithm has a tag or two kinds of its own.
    #[inline(always)]
    pub(crate) const fn mark(self) -> Mark {
        match self {
            Self::Slide => Mark::Tag(Tag::SLIDE),
            Self::Bucket => Mark::Tag(Tag::BUCKET),
            Self::Fixed => Mark::Tag(Tag::FIXED),
            Self::Leak => Mark::Tag(Tag::LEAK),
            Self::Exact => Mark::Kind(1),
            Self::Lease => Mark::Kind(3),
            Self::Policy => Mark::Kind(5),
        }
    }
}

/// Two algorithms must not share a tag or a kind, and [`Tag::algorithm`] must know every tag: otherwise a replica could
/// not read what its primary sends. The compiler checks it.
const _: () = {
    const fn clash(one: Mark, other: Mark) -> bool {
        match (one, other) {
            (Mark::Tag(one), Mark::Tag(other)) => one.0 == other.0,
            (Mark::Kind(one), Mark::Kind(other)) => one.abs_diff(other) < 2,
            _ => false,
        }
    }
    let mut index = 0;
    while index < Algorithm::ALL.len() {
        let algorithm = Algorithm::ALL[index];
        match algorithm.mark() {
            Mark::Tag(tag) => {
                let known = matches!(tag.algorithm(), Ok(found) if found as u8 == algorithm as u8);
                assert!(known, "Tag::algorithm lacks the tag of an algorithm");
                let other = tag.0 == Tag::RESERVED.0 || tag.0 == Tag::SUB_WINDOWS.0;
                let free = tag.0 != 0 && !tag.is_wide() && !other;
                assert!(free, "the tag of an algorithm has another meaning");
                assert!(!algorithm.is_boxed(), "a boxed algorithm needs a kind");
            }
            Mark::Kind(kind) => {
                let free = kind != 0 && !is_other(kind) && !is_other(kind + 1);
                assert!(free, "the kind of an algorithm has another meaning");
                assert!(algorithm.is_boxed(), "a packed algorithm needs a tag");
            }
        }
        let mut other = index + 1;
        while other < Algorithm::ALL.len() {
            let clash = clash(algorithm.mark(), Algorithm::ALL[other].mark());
            assert!(!clash, "two algorithms have the same tag or kind");
            other += 1;
        }
        index += 1;
    }
};

/// The number of [`Kind::Overrides`].
const OVERRIDES: u8 = 7;

/// The number of [`Kind::Reservation`].
const RESERVATION: u8 = 8;

/// Whether a number stands for something other than the state of a limit.
const fn is_other(number: u8) -> bool {
    number == OVERRIDES || number == RESERVATION
}

/// What follows an extended tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A boxed state.
    State(Algorithm),
    /// A change of a boxed state.
    Update(Algorithm),
    /// The overrides of one key.
    Overrides,
    /// A reservation.
    Reservation,
}

impl Kind {
    /// The first integer of everything of this kind; its other bits are 0. `None` if the algorithm has a tag.
    pub(crate) const fn head(self) -> Option<u64> {
        let number = match self {
            Self::State(algorithm) => match algorithm.mark() {
                Mark::Kind(number) => number,
                Mark::Tag(_) => return None,
            },
            Self::Update(algorithm) => match algorithm.mark() {
                Mark::Kind(number) => number + 1,
                Mark::Tag(_) => return None,
            },
            Self::Overrides => OVERRIDES,
            Self::Reservation => RESERVATION,
        };
        Some(Tag::EXTENDED.bits() | (number as u64) << 52)
    }

    /// The kind of what starts with `first`; `None` if its tag is not the extended one. An unknown kind comes from a
    /// newer version.
    pub(crate) fn of(first: u64) -> Result<Option<Self>, Error> {
        if Tag::of(first) != Tag::EXTENDED {
            return Ok(None);
        }
        let number = (first >> 52) as u8;
        let boxed = Algorithm::ALL
            .iter()
            .find_map(|&algorithm| match algorithm.mark() {
                Mark::Kind(kind) if number == kind => Some(Self::State(algorithm)),
                Mark::Kind(kind) if number == kind + 1 => Some(Self::Update(algorithm)),
                _ => None,
            });
        match boxed {
            Some(kind) => Ok(Some(kind)),
            None if number == OVERRIDES => Ok(Some(Self::Overrides)),
            None if number == RESERVATION => Ok(Some(Self::Reservation)),
            None => Err(Error::NewerState),
        }
    }
}

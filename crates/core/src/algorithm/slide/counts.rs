//! The counts of sub-windows. The usual ones need no memory of their own.

use crate::relocate::{Relocate, Walk};

/// The most counts that are kept in place: those of `PRECISION 8`.
const INLINE_COUNTS: usize = 9;

/// One count for each sub-window, the newest first.
#[derive(Clone, Debug)]
pub(super) enum Counts {
    /// Few counts, each below 2^32.
    Inline {
        len: u8,
        counts: [u32; INLINE_COUNTS],
    },
    Heap(Box<[u64]>),
}

impl Counts {
    /// As many counts as `counts` returns, at most 255.
    #[inline]
    pub(super) fn new(counts: impl ExactSizeIterator<Item = u64> + Clone) -> Self {
        let len = counts.len();
        let mut inline = [0; INLINE_COUNTS];
        if len > INLINE_COUNTS {
            return Self::Heap(counts.collect());
        }
        for (to, count) in inline.iter_mut().zip(counts.clone()) {
            match u32::try_from(count) {
                Ok(count) => *to = count,
                Err(_) => return Self::Heap(counts.collect()),
            }
        }
        Self::Inline {
            len: len as u8,
            counts: inline,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Inline { len, .. } => usize::from(*len),
            Self::Heap(counts) => counts.len(),
        }
    }

    /// The count at `index`; 0 if there is none.
    #[inline]
    pub(super) fn get(&self, index: usize) -> u64 {
        match self {
            Self::Inline { counts, .. } => counts.get(index).copied().unwrap_or(0).into(),
            Self::Heap(counts) => counts.get(index).copied().unwrap_or(0),
        }
    }

    #[inline]
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = u64> + DoubleEndedIterator + Clone {
        (0..self.len()).map(|index| self.get(index))
    }

    #[inline]
    pub(super) fn sum(&self) -> u64 {
        match self {
            // What is not used is 0.
            Self::Inline { counts, .. } => counts.iter().copied().map(u64::from).sum(),
            Self::Heap(counts) => counts.iter().sum(),
        }
    }

    /// The index of the newest count that is not 0.
    #[inline]
    pub(super) fn newest(&self) -> Option<usize> {
        match self {
            Self::Inline { counts, .. } => counts.iter().position(|&count| count > 0),
            Self::Heap(counts) => counts.iter().position(|&count| count > 0),
        }
    }

    /// The same counts, each as many places older. The oldest leave, and the new ones are 0.
    pub(super) fn shifted(&self, by: u64) -> Self {
        let by = usize::try_from(by).unwrap_or(usize::MAX);
        let older = (0..self.len()).map(|index| match index.checked_sub(by) {
            Some(index) => self.get(index),
            None => 0,
        });
        Self::new(older)
    }

    /// Sets a count that exists.
    #[inline]
    pub(super) fn set(&mut self, index: usize, count: u64) {
        match (&mut *self, u32::try_from(count)) {
            (Self::Inline { counts, .. }, Ok(count)) => {
                if let Some(to) = counts.get_mut(index) {
                    *to = count;
                }
            }
            (Self::Heap(counts), _) => {
                if let Some(to) = counts.get_mut(index) {
                    *to = count;
                }
            }
            (Self::Inline { .. }, Err(_)) => {
                let mut counts: Box<[u64]> = self.iter().collect();
                if let Some(to) = counts.get_mut(index) {
                    *to = count;
                }
                *self = Self::Heap(counts);
            }
        }
    }

    #[inline]
    pub(super) fn owns_memory(&self) -> bool {
        matches!(self, Self::Heap(_))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Inline { .. } => 0,
            Self::Heap(counts) => size_of_val(&**counts),
        }
    }

    pub(super) fn relocate<R: Relocate>(&mut self, walk: &mut Walk<R>) {
        if let Self::Heap(counts) = self {
            walk.allocation(|by| by.slice(counts));
        }
    }
}

/// Where counts are kept does not matter.
impl PartialEq for Counts {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Counts {}

//! Small states, packed into a few 64-bit words. A call replaces all of them.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::ptr;
use std::slice;

use rl_core::{Algorithm, Blob, Error, MAX_PACKED_LEN, PACKED_HEAD_LEN, Packed, State, packed_len};

use super::datatype::Value;
use super::defrag::Mover;
use super::io::{Digest, Io};

/// A pointer to the words, of which the first two determine how many there are.
pub(super) struct PackedState {
    words: *mut u64,
}

impl PackedState {
    pub(super) fn new(state: &Packed) -> Self {
        let words = state.as_slice();
        // SAFETY: the layout is not empty; the server's allocator aborts rather than return null, and
        // the copy stays within what was just allocated.
        unsafe {
            let to = alloc(layout(words.len())).cast::<u64>();
            ptr::copy_nonoverlapping(words.as_ptr(), to, words.len());
            Self { words: to }
        }
    }

    fn words(&self) -> &[u64] {
        // SAFETY: promised to `from_raw`: a value has at least two words, which determine how many it has.
        unsafe {
            let len = packed_len(*self.words, *self.words.add(1));
            slice::from_raw_parts(self.words, len)
        }
    }

    pub(super) fn state(&self) -> Result<State, Error> {
        State::decode(self.words())
    }

    /// The same where the algorithm is known.
    #[inline(always)]
    pub(super) fn state_of(&self, algorithm: Algorithm) -> Result<State, Error> {
        State::decode_as(algorithm, self.words())
    }

    /// Replaces the state by one of the same size; `false` if the sizes differ.
    pub(super) fn overwrite(&mut self, state: &Packed) -> bool {
        let words = state.as_slice();
        if words.len() != self.words().len() {
            return false;
        }
        // SAFETY: as many words as were allocated.
        unsafe { ptr::copy_nonoverlapping(words.as_ptr(), self.words, words.len()) };
        true
    }
}

fn layout(words: usize) -> Layout {
    Layout::array::<u64>(words).unwrap_or(Layout::new::<u64>())
}

impl Value for PackedState {
    const MAY_BE_LARGE: bool = false;
    const REPORTS_UNLINK: bool = false;

    unsafe fn from_raw(raw: *mut c_void) -> Self {
        Self { words: raw.cast() }
    }

    fn as_raw(&self) -> *mut c_void {
        self.words.cast()
    }

    fn load(io: &mut Io, algorithm: Option<Algorithm>) -> Result<Self, Error> {
        let mut words = [0; MAX_PACKED_LEN];
        let mut len = PACKED_HEAD_LEN;
        let mut read = 0;
        while read < len {
            words[read] = io.load_number()?;
            read += 1;
            if read == PACKED_HEAD_LEN {
                len = packed_len(words[0], words[1]);
            }
        }
        let state = State::decode(&words[..len])?;
        match state.packed() {
            Some(words) if algorithm == Some(state.algorithm()) => Ok(Self::new(&words)),
            _ => Err(Error::DamagedState),
        }
    }

    fn save(&self, io: &mut Io) {
        for &word in self.words() {
            io.save_number(word);
        }
    }

    fn blob(&self) -> Option<Blob> {
        self.state().ok().map(|state| state.blob())
    }

    fn digest(&self, digest: &mut Digest) {
        for word in self.words() {
            digest.add(&word.to_le_bytes());
        }
    }

    fn copy(&self) -> Option<Self> {
        let words = self.state().ok()?.packed()?;
        Some(Self::new(&words))
    }

    fn heap_bytes(&self) -> usize {
        0
    }

    fn allocations(&self) -> usize {
        1
    }

    fn relocate(&mut self, _mover: &mut Mover) -> bool {
        false
    }

    fn free(self) {
        let len = self.words().len();
        // SAFETY: allocated with the same layout, and not used again.
        unsafe { dealloc(self.words.cast(), layout(len)) };
    }
}

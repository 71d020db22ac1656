//! Small states, packed into a few 64-bit integers. A call replaces all of them.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::ptr;
use std::slice;

use rl_core::{Algorithm, Blob, Error, MAX_PACKED_LEN, PACKED_HEAD_LEN, Packed, State, packed_len};

use super::datatype::Value;
use super::defrag::Mover;
use super::io::{Digest, Io};

/// A pointer to the integers, of which the first two determine how many there are.
pub(super) struct PackedValue {
    integers: *mut u64,
}

impl PackedValue {
    pub(super) fn new(state: &Packed) -> Self {
        let integers = state.as_slice();
        // SAFETY: the layout is not empty; the server's allocator aborts rather than return null, and
        // the copy stays within what was just allocated.
        unsafe {
            let to = alloc(layout(integers.len())).cast::<u64>();
            ptr::copy_nonoverlapping(integers.as_ptr(), to, integers.len());
            Self { integers: to }
        }
    }

    fn integers(&self) -> &[u64] {
        // SAFETY: promised to `from_raw`: a value has at least two integers, which determine how many it has.
        unsafe {
            let len = packed_len(*self.integers, *self.integers.add(1));
            slice::from_raw_parts(self.integers, len)
        }
    }

    pub(super) fn state(&self) -> Result<State, Error> {
        State::decode(self.integers())
    }

    /// The same where the algorithm is known.
    #[inline(always)]
    pub(super) fn state_of(&self, algorithm: Algorithm) -> Result<State, Error> {
        State::decode_as(algorithm, self.integers())
    }

    /// Replaces the state by one of the same size; `false` if the sizes differ.
    pub(super) fn overwrite(&mut self, state: &Packed) -> bool {
        let integers = state.as_slice();
        if integers.len() != self.integers().len() {
            return false;
        }
        // SAFETY: as many integers as were allocated.
        unsafe { ptr::copy_nonoverlapping(integers.as_ptr(), self.integers, integers.len()) };
        true
    }
}

fn layout(integers: usize) -> Layout {
    Layout::array::<u64>(integers).unwrap_or(Layout::new::<u64>())
}

impl Value for PackedValue {
    const MAY_BE_LARGE: bool = false;
    const REPORTS_UNLINK: bool = false;
    const CAN_BE_COPIED: bool = true;

    unsafe fn from_raw(raw: *mut c_void) -> Self {
        Self {
            integers: raw.cast(),
        }
    }

    fn as_raw(&self) -> *mut c_void {
        self.integers.cast()
    }

    fn load(io: &mut Io, algorithm: Option<Algorithm>) -> Result<Self, Error> {
        let mut integers = [0; MAX_PACKED_LEN];
        let mut len = PACKED_HEAD_LEN;
        let mut read = 0;
        while read < len {
            integers[read] = io.load_number()?;
            read += 1;
            if read == PACKED_HEAD_LEN {
                len = packed_len(integers[0], integers[1]);
            }
        }
        let state = State::decode(&integers[..len])?;
        match state.packed() {
            Some(integers) if algorithm == Some(state.algorithm()) => Ok(Self::new(&integers)),
            _ => Err(Error::DamagedState),
        }
    }

    fn save(&self, io: &mut Io) {
        for &integer in self.integers() {
            io.save_number(integer);
        }
    }

    fn blob(&self) -> Option<Blob> {
        self.state().ok().map(|state| state.blob())
    }

    fn digest(&self, digest: &mut Digest) {
        for integer in self.integers() {
            digest.add(&integer.to_le_bytes());
        }
    }

    fn copy(&self) -> Option<Self> {
        let integers = self.state().ok()?.packed()?;
        Some(Self::new(&integers))
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
        let len = self.integers().len();
        // SAFETY: allocated with the same layout, and not used again.
        unsafe { dealloc(self.integers.cast(), layout(len)) };
    }
}

//! Values in a box of their own that are changed in place: large states, and the overrides of a key.

use std::ffi::c_void;

use rl_core::{Algorithm, Blob, Error, State};

use super::datatype::Value;
use super::defrag::Mover;
use super::io::{Digest, Io};

/// A pointer to a box that the server owns.
pub(super) struct Boxed<C> {
    content: *mut C,
}

pub(super) type BoxedValue = Boxed<State>;

/// What a box may contain.
pub(super) trait Content: Clone {
    const MAY_BE_LARGE: bool = false;
    const REPORTS_UNLINK: bool = false;
    const CAN_BE_COPIED: bool = true;

    /// Called when a value is made, on the server's thread.
    fn on_created() {}
    /// Called when a value is freed, on any thread.
    fn on_freed() {}

    fn decode(blob: &[u8], algorithm: Option<Algorithm>) -> Result<Self, Error>;
    fn blob(&self) -> Blob;
    fn heap_bytes(&self) -> usize;
    fn allocations(&self) -> usize {
        1
    }
    /// Offers all allocations but the first `from` to be moved; returns where to continue if it was interrupted.
    fn relocate(&mut self, mover: &mut Mover, from: usize) -> Option<usize>;
}

impl Content for State {
    const MAY_BE_LARGE: bool = true;

    fn decode(blob: &[u8], algorithm: Option<Algorithm>) -> Result<Self, Error> {
        let state = Self::decode_blob(blob)?;
        if algorithm != Some(state.algorithm()) {
            return Err(Error::DamagedState);
        }
        Ok(state)
    }

    fn blob(&self) -> Blob {
        self.blob()
    }

    fn heap_bytes(&self) -> usize {
        self.heap_bytes()
    }

    fn allocations(&self) -> usize {
        self.allocations()
    }

    fn relocate(&mut self, mover: &mut Mover, from: usize) -> Option<usize> {
        self.relocate(mover, from)
    }
}

impl<C: Content> Boxed<C> {
    pub(super) fn new(content: C) -> Self {
        C::on_created();
        Self {
            content: Box::into_raw(Box::new(content)),
        }
    }

    pub(super) fn get(&self) -> &C {
        // SAFETY: promised to `from_raw`.
        unsafe { &*self.content }
    }

    pub(super) fn get_mut(&mut self) -> &mut C {
        // SAFETY: promised to `from_raw`.
        unsafe { &mut *self.content }
    }

    /// # Safety
    /// The value must outlive the result, unchanged.
    pub(super) unsafe fn into_ref<'a>(self) -> &'a C {
        // SAFETY: promised by the caller.
        unsafe { &*self.content }
    }
}

impl<C: Content> Value for Boxed<C> {
    const MAY_BE_LARGE: bool = C::MAY_BE_LARGE;
    const REPORTS_UNLINK: bool = C::REPORTS_UNLINK;
    const CAN_BE_COPIED: bool = C::CAN_BE_COPIED;

    unsafe fn from_raw(raw: *mut c_void) -> Self {
        Self {
            content: raw.cast(),
        }
    }

    fn as_raw(&self) -> *mut c_void {
        self.content.cast()
    }

    fn load(io: &mut Io, algorithm: Option<Algorithm>) -> Result<Self, Error> {
        let content = io.load_bytes(|blob| C::decode(blob, algorithm))??;
        Ok(Self::new(content))
    }

    fn save(&self, io: &mut Io) {
        io.save_bytes(&self.get().blob());
    }

    fn blob(&self) -> Option<Blob> {
        Some(self.get().blob())
    }

    fn digest(&self, digest: &mut Digest) {
        digest.add(&self.get().blob());
    }

    fn copy(&self) -> Option<Self> {
        Some(Self::new(self.get().clone()))
    }

    fn heap_bytes(&self) -> usize {
        self.get().heap_bytes()
    }

    fn allocations(&self) -> usize {
        self.get().allocations()
    }

    fn relocate(&mut self, mover: &mut Mover) -> bool {
        let from = mover.cursor();
        match self.get_mut().relocate(mover, from) {
            Some(next) => mover.set_cursor(next),
            None => false,
        }
    }

    fn free(self) {
        // SAFETY: allocated by a Box, and not used again.
        drop(unsafe { Box::from_raw(self.content) });
        C::on_freed();
    }
}

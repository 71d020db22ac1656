//! The overrides of a key as a value, and how many keys have any.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rl_core::policy::Overrides;
use rl_core::{Algorithm, Blob, Error};

use super::boxed_value::Content;
use super::defrag::Mover;

static KEYS_WITH_OVERRIDES: AtomicUsize = AtomicUsize::new(0);

/// How many keys of this server hold overrides. While there are none, no check looks for any.
#[inline]
pub(crate) fn keys_with_overrides() -> usize {
    KEYS_WITH_OVERRIDES.load(Relaxed)
}

impl Content for Overrides {
    const REPORTS_UNLINK: bool = true;

    fn on_created() {
        KEYS_WITH_OVERRIDES.fetch_add(1, Relaxed);
    }

    fn on_freed() {
        KEYS_WITH_OVERRIDES.fetch_sub(1, Relaxed);
    }

    fn decode(blob: &[u8], _algorithm: Option<Algorithm>) -> Result<Self, Error> {
        Self::decode_blob(blob)
    }

    fn blob(&self) -> Blob {
        self.blob()
    }

    fn heap_bytes(&self) -> usize {
        self.heap_bytes()
    }

    fn relocate(&mut self, mover: &mut Mover, _from: usize) -> Option<usize> {
        self.relocate(mover);
        None
    }
}

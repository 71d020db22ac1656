//! A reservation as a value: its bytes.

use rl_core::reservation::StoredReservation;
use rl_core::{Algorithm, Blob, Error};

use super::boxed_value::Content;
use super::defrag::Mover;

impl Content for StoredReservation {
    const MAY_BE_LARGE: bool = false;
    const REPORTS_UNLINK: bool = false;

    fn on_created() {}

    fn on_freed() {}

    fn decode(blob: &[u8], _algorithm: Option<Algorithm>) -> Result<Self, Error> {
        Self::decode_blob(blob)
    }

    fn blob(&self) -> Blob {
        self.blob()
    }

    fn heap_bytes(&self) -> usize {
        self.heap_bytes()
    }

    fn allocations(&self) -> usize {
        1
    }

    fn relocate(&mut self, mover: &mut Mover, _from: usize) -> Option<usize> {
        self.relocate(mover);
        None
    }
}

//! A reservation as a value: its bytes.

use rl_core::reservation::StoredReservation;
use rl_core::{Algorithm, Blob, Error};

use super::boxed_value::Content;
use super::defrag::Mover;

impl Content for StoredReservation {
    /// Both ids would refund the same charge.
    const CAN_BE_COPIED: bool = false;

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

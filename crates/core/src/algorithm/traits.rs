//! What every algorithm provides. All methods are required: the compiler names what a new algorithm lacks.
//!
//! An algorithm is either *packed* or *boxed*. The state of a packed one is a few integers, and every call
//! replaces it. The state of a boxed one may be large: it stays where it is, and a call changes it by an update.

use std::fmt;

use super::Descriptor;
use crate::decision::{Evaluation, Mode};
use crate::encoding::{Blob, Fields, Packed};
use crate::inspect::StateField;
use crate::refund::RefundRequest;
use crate::relocate::{Relocate, Walk};
use crate::reservation::{Charge, Origin};
use crate::{Error, Scale};

/// A limit: the parameters of an algorithm.
pub(crate) trait AlgorithmLimit<'a>: Copy + fmt::Display {
    /// Names, arguments and documentation.
    const DESCRIPTOR: Descriptor;

    /// The same limit without what it borrows from a call.
    type Owned;

    /// Reads the parameters, without name and cost.
    fn parse(args: &mut impl Iterator<Item = &'a [u8]>) -> Result<Self, Error>;

    /// Sets an option that the descriptor lists.
    fn set_option(&mut self, token: &[u8], value: Option<&[u8]>) -> Result<(), Error>;

    /// The limit or capacity; 0 if it is not a single number.
    fn limit_value(&self) -> u64;

    /// The window or period over which usage is counted; 0 if there is none.
    fn span_us(&self) -> u64;

    /// The same limit with its amounts multiplied.
    fn scaled(self, by: Scale) -> Self;

    /// The limit to keep for longer than the call, and the bytes that it borrowed.
    fn into_owned(self) -> (Self::Owned, &'a [u8]);
}

/// A limit whose state is replaced by every call.
pub(crate) trait PackedLimit: for<'a> AlgorithmLimit<'a> {
    type State: PackedState;

    fn evaluate(
        &self,
        stored: Option<&Self::State>,
        now_us: u64,
        cost: u64,
        mode: Mode,
    ) -> Evaluation<Self::State>;
}

/// A limit whose state is changed in place.
pub(crate) trait BoxedLimit<'a>: AlgorithmLimit<'a> {
    type State: BoxedState;
    type Update: BoxedUpdate<'a>;

    fn evaluate(
        &self,
        stored: Option<&Self::State>,
        now_us: u64,
        cost: u64,
        mode: Mode,
    ) -> Result<Evaluation<Self::Update>, Error>;
}

/// The state of one key under a limit.
pub(crate) trait AlgorithmState: Sized {
    /// What a refund leaves to be stored.
    type Refunded;

    /// The window or period; 0 if there is none.
    fn span_us(&self) -> u64;

    /// When the key may vanish (Unix time).
    fn expire_at_ms(&self) -> u64;

    /// The state field by field, and usage at `now_us`.
    fn inspect(&self, now_us: u64) -> Vec<StateField>;

    /// Refunds up to the units of the request, the latest first. Returns the units that were refunded, and what is left to
    /// be stored, if anything.
    fn refund(
        &self,
        now_us: u64,
        request: &RefundRequest,
    ) -> Result<(u64, Option<Self::Refunded>), Error>;

    /// Where the units of the call that left this state are counted; `None` if the state does not tell.
    fn origin(&self) -> Option<Origin<'static>>;

    /// Remembers the time of the first reservation, if nothing else tells this state from that of a key which was deleted
    /// and created again.
    fn mark_reserved(&mut self, now_us: u64);

    /// Refunds up to `units` of an earlier charge, as long as they are counted at its origin. Returns the same as
    /// [`Self::refund`].
    fn refund_charge(
        &self,
        now_us: u64,
        charge: &Charge,
        units: u64,
    ) -> (u64, Option<Self::Refunded>);

    /// Whether dropping the state frees memory.
    fn owns_memory(&self) -> bool;

    /// Allocated memory in bytes.
    fn heap_bytes(&self) -> usize;

    /// Hands every allocation to `walk`.
    fn relocate<R: Relocate>(&mut self, walk: &mut Walk<R>);
}

/// A state that is kept as a few integers.
pub(crate) trait PackedState: AlgorithmState<Refunded = Self> {
    fn encode(&self) -> Packed;

    /// Reads the compact and the wide form.
    fn decode(fields: Fields) -> Result<Self, Error>;
}

/// A state that is kept as it is.
pub(crate) trait BoxedState: AlgorithmState {
    /// Whether nothing is in use. No call leaves such a state, but a forged update may.
    fn is_empty(&self) -> bool;

    /// How many allocations have to be freed with the state.
    fn allocations(&self) -> usize;

    fn write(&self, into: &mut Blob);

    fn read(from: &[u8]) -> Result<Self, Error>;
}

/// A change of a boxed state, as replicas receive it.
pub(crate) trait BoxedUpdate<'a>: Sized {
    type State: BoxedState;

    fn apply(self, state: &mut Self::State);

    /// The first state of a key; `None` if the update does not create one.
    fn into_initial(self) -> Option<Self::State>;

    fn write(&self, into: &mut Blob);

    fn read(from: &'a [u8]) -> Result<Self, Error>;
}

//! The one list of algorithms, and the dispatch to their files.
//!
//! To add an algorithm, write a file that implements the traits in `traits.rs`, add a line to the list at the
//! end of this file, and give it a tag or a kind in `encoding/tags.rs`. The compiler and the tests name the rest.

mod bucket;
mod carry_over;
mod descriptor;
mod exact;
mod fixed;
mod leak;
mod lease;
mod policy_limits;
mod slide;
mod traits;

use std::fmt;

use crate::encoding::{Blob, Fields, Packed};
use crate::inspect::StateField;
use crate::refund::{Refund, RefundRequest};
use crate::relocate::{Relocate, Walk};
use crate::reservation::{Charge, Origin};
use crate::{Error, Evaluation, Mode, Scale};
use traits::{
    AlgorithmLimit, AlgorithmState, BoxedLimit, BoxedState, BoxedUpdate, PackedLimit, PackedState,
};

pub use bucket::{BucketLimit, BucketState};
pub use carry_over::CarriedUsage;
pub use descriptor::{Descriptor, Parameter, ParameterKind};
pub use exact::{ExactLimit, ExactState, ExactUpdate, MAX_EXACT_LIMIT};
pub use fixed::{FixedLimit, FixedState, FixedWindow};
pub use leak::{LeakLimit, LeakState};
pub use lease::{LeaseLimit, LeaseState, LeaseUpdate, MAX_HOLDER_LEN, MAX_HOLDERS, check_holder};
pub(crate) use policy_limits::check_allowed_in_policy;
pub use policy_limits::{
    FixedCosts, InlineCost, MAX_RULES, PolicyLimits, PolicyState, PolicyUpdate, Rule, RuleState,
    RuleUpdate,
};
pub use slide::{MAX_PRECISION, MIN_PRECISION, SlideLimit, SlideState, SubWindows, TwoWindows};

macro_rules! algorithms {
    (
        packed { $($(#[$packed_doc:meta])* $packed:ident($packed_limit:ty, $packed_state:ty);)+ }
        boxed { $($(#[$boxed_doc:meta])* $boxed:ident($boxed_limit:ty, $boxed_state:ty, $boxed_update:ty);)+ }
    ) => {
        /// Which algorithm a limit or a state belongs to.
        ///
        /// It is exhaustive on purpose: the compiler shows every place that must know a new algorithm.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Algorithm { $($(#[$packed_doc])* $packed,)+ $($(#[$boxed_doc])* $boxed,)+ }

        /// A limit of any algorithm. It is exhaustive for the same reason as [`Algorithm`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Limit<'a> {
            $($(#[$packed_doc])* $packed($packed_limit),)+
            $($(#[$boxed_doc])* $boxed($boxed_limit),)+
        }

        /// The state of one key under a limit.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum State {
            $($(#[$packed_doc])* $packed($packed_state),)+
            $($(#[$boxed_doc])* $boxed($boxed_state),)+
        }

        /// What a call leaves to be stored: a whole state, or a change of the stored one.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Update<'a> {
            /// Replaces what is stored.
            Replace(State),
            $($(#[$boxed_doc])* $boxed($boxed_update),)+
        }

        impl Algorithm {
            /// Every algorithm, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$packed,)+ $(Self::$boxed,)+];

            /// Names, arguments and documentation.
            #[must_use]
            pub const fn descriptor(self) -> &'static Descriptor {
                // Some of the types in the list name this lifetime.
                #[allow(clippy::extra_unused_lifetimes)]
                const fn find<'a>(algorithm: Algorithm) -> &'static Descriptor {
                    match algorithm {
                        $(Algorithm::$packed => const {
                            &<$packed_limit as AlgorithmLimit<'a>>::DESCRIPTOR
                        },)+
                        $(Algorithm::$boxed => const {
                            &<$boxed_limit as AlgorithmLimit<'a>>::DESCRIPTOR
                        },)+
                    }
                }
                find(self)
            }

            /// Whether states are kept as they are and changed in place, rather than as a few integers.
            #[must_use]
            pub const fn is_boxed(self) -> bool {
                match self { $(Self::$packed => false,)+ $(Self::$boxed => true,)+ }
            }
        }

        impl<'a> Limit<'a> {
            /// Reads a limit's parameters, without name and cost.
            #[inline(always)]
            pub fn parse(
                algorithm: Algorithm,
                args: &mut impl Iterator<Item = &'a [u8]>,
            ) -> Result<Self, Error> {
                match algorithm {
                    $(Algorithm::$packed => <$packed_limit>::parse(args).map(Self::$packed),)+
                    $(Algorithm::$boxed => <$boxed_limit>::parse(args).map(Self::$boxed),)+
                }
            }

            /// The limit's algorithm.
            #[must_use]
            pub const fn algorithm(&self) -> Algorithm {
                match self {
                    $(Self::$packed(_) => Algorithm::$packed,)+
                    $(Self::$boxed(_) => Algorithm::$boxed,)+
                }
            }

            /// Decides a call of `cost` at `now_us`, given the stored state. Stores nothing.
            ///
            /// Fails if the state is of another algorithm, or if a lease's key has too many holders.
            #[inline(always)]
            pub fn evaluate(
                &self,
                stored: Option<&State>,
                now_us: u64,
                cost: u64,
                mode: Mode,
            ) -> Result<Evaluation<Update<'a>>, Error> {
                match (self, stored) {
                    $((Self::$packed(limit), None) => {
                        let evaluation = limit.evaluate(None, now_us, cost, mode);
                        Ok(evaluation.map(|state| Update::Replace(State::$packed(state))))
                    })+
                    $((Self::$packed(limit), Some(State::$packed(stored))) => {
                        let evaluation = limit.evaluate(Some(stored), now_us, cost, mode);
                        Ok(evaluation.map(|state| Update::Replace(State::$packed(state))))
                    })+
                    $((Self::$boxed(limit), None) => {
                        Ok(limit.evaluate(None, now_us, cost, mode)?.map(Update::$boxed))
                    })+
                    $((Self::$boxed(limit), Some(State::$boxed(stored))) => {
                        let evaluation = limit.evaluate(Some(stored), now_us, cost, mode)?;
                        Ok(evaluation.map(Update::$boxed))
                    })+
                    _ => Err(Error::WrongAlgorithm),
                }
            }

            pub(crate) fn set_option(
                &mut self,
                token: &[u8],
                value: Option<&[u8]>,
            ) -> Result<(), Error> {
                match self {
                    $(Self::$packed(limit) => limit.set_option(token, value),)+
                    $(Self::$boxed(limit) => limit.set_option(token, value),)+
                }
            }

            /// The limit or capacity; 0 for a policy, which has several.
            #[must_use]
            pub fn limit_value(&self) -> u64 {
                match self {
                    $(Self::$packed(limit) => limit.limit_value(),)+
                    $(Self::$boxed(limit) => limit.limit_value(),)+
                }
            }

            /// The window or period; 0 for limits that have none.
            pub(crate) fn span_us(&self) -> u64 {
                match self {
                    $(Self::$packed(limit) => limit.span_us(),)+
                    $(Self::$boxed(limit) => limit.span_us(),)+
                }
            }

            /// The same limit with its amounts multiplied. Leases and policies stay as they are.
            #[must_use]
            pub fn scaled(self, by: Scale) -> Self {
                match self {
                    $(Self::$packed(limit) => Self::$packed(limit.scaled(by)),)+
                    $(Self::$boxed(limit) => Self::$boxed(limit.scaled(by)),)+
                }
            }

            /// The limit to keep for longer than the call, and what it borrowed: a lease's holder. Nothing is left of a
            /// policy: keep the limit that decided instead.
            #[must_use]
            pub fn into_owned(self) -> (Limit<'static>, &'a [u8]) {
                match self {
                    $(Self::$packed(limit) => {
                        let (limit, borrowed) = limit.into_owned();
                        (Limit::$packed(limit), borrowed)
                    })+
                    $(Self::$boxed(limit) => {
                        let (limit, borrowed) = limit.into_owned();
                        (Limit::$boxed(limit), borrowed)
                    })+
                }
            }
        }

        impl fmt::Display for Limit<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$packed(limit) => limit.fmt(f),)+
                    $(Self::$boxed(limit) => limit.fmt(f),)+
                }
            }
        }

        impl State {
            /// The state's algorithm.
            #[must_use]
            pub const fn algorithm(&self) -> Algorithm {
                match self {
                    $(Self::$packed(_) => Algorithm::$packed,)+
                    $(Self::$boxed(_) => Algorithm::$boxed,)+
                }
            }

            /// Applies an update. One of another algorithm changes nothing.
            pub fn apply(&mut self, update: Update) {
                match (self, update) {
                    (state, Update::Replace(new)) => *state = new,
                    $((Self::$boxed(state), Update::$boxed(update)) => update.apply(state),)+
                    _ => {}
                }
            }

            /// When the key may vanish, as the state was stored (Unix time).
            #[must_use]
            pub fn expire_at_ms(&self) -> u64 {
                match self {
                    $(Self::$packed(state) => state.expire_at_ms(),)+
                    $(Self::$boxed(state) => state.expire_at_ms(),)+
                }
            }

            /// The state as integers to keep; `None` for one that is boxed. See [`State::decode`].
            #[must_use]
            #[inline(always)]
            pub fn packed(&self) -> Option<Packed> {
                match self {
                    $(Self::$packed(state) => Some(state.encode()),)+
                    $(Self::$boxed(_) => None,)+
                }
            }

            /// The state field by field, as it is stored and (`used`) as it stands at `now_us`.
            #[must_use]
            pub fn inspect(&self, now_us: u64) -> Vec<StateField> {
                match self {
                    $(Self::$packed(state) => state.inspect(now_us),)+
                    $(Self::$boxed(state) => state.inspect(now_us),)+
                }
            }

            /// Refunds units, the latest first; never more than are in use.
            pub fn refund(
                &self,
                now_us: u64,
                request: impl Into<RefundRequest>,
            ) -> Result<Refund<'static>, Error> {
                let request = request.into();
                let now_us = now_us.min(crate::MAX_TIME_US);
                Ok(match self {
                    $(Self::$packed(state) => {
                        let (units, left) = state.refund(now_us, &request)?;
                        let update = left.map(|left| Update::Replace(Self::$packed(left)));
                        Refund { units, update }
                    })+
                    $(Self::$boxed(state) => {
                        let (units, left) = state.refund(now_us, &request)?;
                        let update = left.map(Update::$boxed);
                        Refund { units, update }
                    })+
                })
            }

            /// Where the units of the call that left this state are counted; `None` if there are several limits or holders.
            pub(crate) fn origin(&self) -> Option<Origin<'static>> {
                match self {
                    $(Self::$packed(state) => state.origin(),)+
                    $(Self::$boxed(state) => state.origin(),)+
                }
            }

            /// Marks the state as one that has units of a reservation.
            pub(crate) fn mark_reserved(&mut self, now_us: u64) {
                let now_us = now_us.clamp(1, crate::MAX_TIME_US);
                match self {
                    $(Self::$packed(state) => state.mark_reserved(now_us),)+
                    $(Self::$boxed(state) => state.mark_reserved(now_us),)+
                }
            }

            /// Refunds up to `units` of an earlier charge, as long as they are counted.
            pub(crate) fn refund_charge(
                &self,
                now_us: u64,
                charge: &Charge,
                units: u64,
            ) -> Refund<'static> {
                let now_us = now_us.min(crate::MAX_TIME_US);
                match self {
                    $(Self::$packed(state) => {
                        let (units, left) = state.refund_charge(now_us, charge, units);
                        let update = left.map(|left| Update::Replace(Self::$packed(left)));
                        Refund { units, update }
                    })+
                    $(Self::$boxed(state) => {
                        let (units, left) = state.refund_charge(now_us, charge, units);
                        let update = left.map(Update::$boxed);
                        Refund { units, update }
                    })+
                }
            }

            /// Whether dropping the state frees memory.
            #[must_use]
            #[inline(always)]
            pub fn owns_memory(&self) -> bool {
                match self {
                    $(Self::$packed(state) => state.owns_memory(),)+
                    $(Self::$boxed(state) => state.owns_memory(),)+
                }
            }

            /// Memory that the state has allocated, in bytes.
            #[must_use]
            pub fn heap_bytes(&self) -> usize {
                match self {
                    $(Self::$packed(state) => state.heap_bytes(),)+
                    $(Self::$boxed(state) => state.heap_bytes(),)+
                }
            }

            pub(crate) fn relocate_all<R: Relocate>(&mut self, walk: &mut Walk<R>) {
                match self {
                    $(Self::$packed(state) => state.relocate(walk),)+
                    $(Self::$boxed(state) => state.relocate(walk),)+
                }
            }

            /// Whether a boxed state counts nothing any more. No call leaves one, but a forged update may.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                match self {
                    $(Self::$packed(_) => false,)+
                    $(Self::$boxed(state) => state.is_empty(),)+
                }
            }

            /// How many allocations have to be freed with the state.
            #[must_use]
            pub fn allocations(&self) -> usize {
                match self {
                    $(Self::$packed(_) => 1,)+
                    $(Self::$boxed(state) => state.allocations(),)+
                }
            }

            /// The window or period; 0 for states that have none.
            pub(crate) fn span_us(&self) -> u64 {
                match self {
                    $(Self::$packed(state) => state.span_us(),)+
                    $(Self::$boxed(state) => state.span_us(),)+
                }
            }

            #[inline(always)]
            pub(crate) fn from_fields(algorithm: Algorithm, fields: Fields) -> Result<Self, Error> {
                match algorithm {
                    $(Algorithm::$packed => <$packed_state>::decode(fields).map(Self::$packed),)+
                    $(Algorithm::$boxed => Err(Error::DamagedState),)+
                }
            }

            pub(crate) fn write_boxed(&self, into: &mut Blob) {
                match self {
                    $(Self::$packed(_) => {})+
                    $(Self::$boxed(state) => state.write(into),)+
                }
            }

            pub(crate) fn read_boxed(algorithm: Algorithm, from: &[u8]) -> Result<Self, Error> {
                match algorithm {
                    $(Algorithm::$packed => Err(Error::DamagedState),)+
                    $(Algorithm::$boxed => <$boxed_state>::read(from).map(Self::$boxed),)+
                }
            }
        }

        impl<'a> Update<'a> {
            /// The algorithm of the state that is updated.
            #[must_use]
            pub const fn algorithm(&self) -> Algorithm {
                match self {
                    Self::Replace(state) => state.algorithm(),
                    $(Self::$boxed(_) => Algorithm::$boxed,)+
                }
            }

            /// The first state of a key; `None` if the update does not create one.
            #[must_use]
            pub fn into_initial(self) -> Option<State> {
                match self {
                    Self::Replace(state) => Some(state),
                    $(Self::$boxed(update) => update.into_initial().map(State::$boxed),)+
                }
            }

            pub(crate) fn write_boxed(&self, into: &mut Blob) {
                match self {
                    Self::Replace(_) => {}
                    $(Self::$boxed(update) => update.write(into),)+
                }
            }

            pub(crate) fn read_boxed(algorithm: Algorithm, from: &'a [u8]) -> Result<Self, Error> {
                match algorithm {
                    $(Algorithm::$packed => Err(Error::DamagedState),)+
                    $(Algorithm::$boxed => <$boxed_update>::read(from).map(Self::$boxed),)+
                }
            }
        }
    };
}

algorithms! {
    packed {
        /// Sliding-window counter.
        Slide(SlideLimit, SlideState);
        /// Token bucket.
        Bucket(BucketLimit, BucketState);
        /// Fixed window.
        Fixed(FixedLimit, FixedState);
        /// Leaky bucket as a queue.
        Leak(LeakLimit, LeakState);
    }
    boxed {
        /// Exact sliding window.
        Exact(ExactLimit, ExactState, ExactUpdate);
        /// Concurrency limit: leases that are held until released.
        Lease(LeaseLimit<'a>, LeaseState, LeaseUpdate<'a>);
        /// Several limits on one key: those of a policy.
        Policy(PolicyLimits<'a>, PolicyState, PolicyUpdate);
    }
}

impl Limit<'_> {
    /// The most calls of `cost` each, up to `max`, that the limit allows at `now_us` in one step.
    pub fn affordable_calls(
        &self,
        stored: Option<&State>,
        now_us: u64,
        cost: u64,
        max: u64,
    ) -> Result<u64, Error> {
        match (self, stored) {
            (Self::Policy(limit), None) => limit.affordable_calls(None, now_us, cost, max),
            (Self::Policy(limit), Some(State::Policy(stored))) => {
                limit.affordable_calls(Some(stored), now_us, cost, max)
            }
            (limit, stored) => {
                let uncharged = limit.evaluate(stored, now_us, 0, Mode::Check)?;
                Ok(uncharged.decision.affordable_calls(cost).min(max))
            }
        }
    }
}

/// Keys of several limits hold a `State` in a box: a larger one would make each of them larger.
const _: () = assert!(size_of::<State>() <= 64);

impl Algorithm {
    /// Whether an allowed call has to wait before it proceeds: the reply's `retry_after_ms` is then its delay.
    #[must_use]
    pub const fn reports_delay(self) -> bool {
        matches!(self, Self::Leak)
    }

    /// The name in specs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.descriptor().name
    }

    /// Finds an algorithm by name, in any case.
    #[must_use]
    #[inline]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        // The most frequent algorithms, as they are usually written.
        match name {
            b"SLIDE" => Some(Self::Slide),
            b"BUCKET" => Some(Self::Bucket),
            name => Self::search(name),
        }
    }

    fn search(name: &[u8]) -> Option<Self> {
        let named = |algorithm: &&Self| algorithm.name().as_bytes().eq_ignore_ascii_case(name);
        Self::ALL.iter().find(named).copied()
    }

    /// Which option of this algorithm `token` is, if any.
    pub(crate) fn option_index(self, token: &[u8]) -> Option<usize> {
        let named = |option: &descriptor::Parameter| {
            option
                .token
                .is_some_and(|name| name.to_bytes().eq_ignore_ascii_case(token))
        };
        self.descriptor().options.iter().position(named)
    }
}

impl State {
    /// Releases the lease of a holder; 0 units if it has none.
    pub fn release<'a>(&self, now_us: u64, holder: &'a [u8]) -> Result<Refund<'a>, Error> {
        let Self::Lease(state) = self else {
            return Err(Error::WrongAlgorithm);
        };
        let (units, update) = state.release(now_us, check_holder(holder)?);
        let update = update.map(Update::Lease);
        Ok(Refund { units, update })
    }

    /// Hands every allocation of the state to `by`, except the first `from`. Returns where to continue, if `by`
    /// asked to stop.
    pub fn relocate(&mut self, by: &mut impl Relocate, from: usize) -> Option<usize> {
        let mut walk = Walk::new(by, from);
        self.relocate_all(&mut walk);
        walk.rest()
    }
}

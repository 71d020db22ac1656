//! The list of algorithms, and the dispatch to their files.

use std::fmt;

use crate::encoding::{Blob, Encoded, Fields};
use crate::inspect::Field;
use crate::{Error, Mode, Outcome};
use crate::{bucket, exact, fixed, group, leak, lease, slide};

/// Every algorithm is a file with `NAME`, `TAG`, `PARAMETERS`, `Limit`, `State` and `evaluate`; adding
/// one is adding its file and a line to the list below. States of `words` are small: a call replaces the
/// whole of one. Those that are `live` may be large: a call changes one in place, by a step, `Next`.
macro_rules! algorithms {
    (
        words { $($(#[$word_doc:meta])* $word:ident = $word_file:ident;)+ }
        live { $($(#[$live_doc:meta])* $live:ident = $live_file:ident {
            Limit $(<$limit_of:lifetime>)?, Next $(<$next_of:lifetime>)?
        };)+ }
    ) => {
        /// Which algorithm a limit or a state belongs to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Algorithm { $($(#[$word_doc])* $word,)+ $($(#[$live_doc])* $live,)+ }

        /// A limit of any algorithm.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Limit<'a> {
            $($(#[$word_doc])* $word($word_file::Limit),)+
            $($(#[$live_doc])* $live($live_file::Limit $(<$limit_of>)?),)+
        }

        /// The state of one key under a limit.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum State {
            $($(#[$word_doc])* $word($word_file::State),)+
            $($(#[$live_doc])* $live($live_file::State),)+
        }

        /// What a call leaves to be stored: a whole state, or a step from the stored one to the next.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Next<'a> {
            /// In place of what is stored.
            Whole(State),
            $($(#[$live_doc])* $live($live_file::Next $(<$next_of>)?),)+
        }

        impl Algorithm {
            /// Every algorithm, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$word,)+ $(Self::$live,)+];

            /// The name in commands and specs.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$word => $word_file::NAME,)+ $(Self::$live => $live_file::NAME,)+ }
            }

            /// Words of a spec between the name and the cost.
            #[must_use]
            pub const fn parameters(self) -> usize {
                match self {
                    $(Self::$word => $word_file::PARAMETERS,)+
                    $(Self::$live => $live_file::PARAMETERS,)+
                }
            }

            /// Whether states are kept as they are and changed in place, rather than as words.
            #[must_use]
            pub const fn is_live(self) -> bool {
                match self { $(Self::$word => false,)+ $(Self::$live => true,)+ }
            }

            pub(crate) const fn tag(self) -> u8 {
                match self { $(Self::$word => $word_file::TAG,)+ $(Self::$live => $live_file::TAG,)+ }
            }

            pub(crate) fn from_tag(tag: u8) -> Option<Self> {
                match tag {
                    $($word_file::TAG => Some(Self::$word),)+
                    $($live_file::TAG => Some(Self::$live),)+
                    _ => None,
                }
            }
        }

        impl<'a> Limit<'a> {
            /// Reads a limit's parameters, without name and cost.
            #[inline(always)]
            pub fn parse(
                algorithm: Algorithm,
                words: &mut impl Iterator<Item = &'a [u8]>,
            ) -> Result<Self, Error> {
                match algorithm {
                    $(Algorithm::$word => $word_file::Limit::parse(words).map(Self::$word),)+
                    $(Algorithm::$live => $live_file::Limit::parse(words).map(Self::$live),)+
                }
            }

            /// The limit's algorithm.
            #[must_use]
            pub const fn algorithm(&self) -> Algorithm {
                match self {
                    $(Self::$word(_) => Algorithm::$word,)+
                    $(Self::$live(_) => Algorithm::$live,)+
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
            ) -> Result<Outcome<Next<'a>>, Error> {
                match (self, stored) {
                    $((Self::$word(limit), None) => {
                        let outcome = $word_file::evaluate(limit, None, now_us, cost, mode);
                        Ok(outcome.map(|next| Next::Whole(State::$word(next))))
                    })+
                    $((Self::$word(limit), Some(State::$word(stored))) => {
                        let outcome = $word_file::evaluate(limit, Some(stored), now_us, cost, mode);
                        Ok(outcome.map(|next| Next::Whole(State::$word(next))))
                    })+
                    $((Self::$live(limit), None) => {
                        Ok($live_file::evaluate(limit, None, now_us, cost, mode)?.map(Next::$live))
                    })+
                    $((Self::$live(limit), Some(State::$live(stored))) => {
                        let outcome = $live_file::evaluate(limit, Some(stored), now_us, cost, mode)?;
                        Ok(outcome.map(Next::$live))
                    })+
                    _ => Err(Error::WrongAlgorithm),
                }
            }
        }

        impl fmt::Display for Limit<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$word(limit) => limit.fmt(f),)+
                    $(Self::$live(limit) => limit.fmt(f),)+
                }
            }
        }

        impl State {
            /// The state's algorithm.
            #[must_use]
            pub const fn algorithm(&self) -> Algorithm {
                match self {
                    $(Self::$word(_) => Algorithm::$word,)+
                    $(Self::$live(_) => Algorithm::$live,)+
                }
            }

            /// Takes the step to the next state. A step of another algorithm changes nothing.
            pub fn advance(&mut self, next: Next) {
                match (self, next) {
                    (state, Next::Whole(next)) => *state = next,
                    $((Self::$live(state), Next::$live(step)) => state.apply(&step),)+
                    _ => {}
                }
            }

            /// When the key may vanish, as the state was stored (Unix time).
            #[must_use]
            pub fn expire_at_ms(&self) -> u64 {
                match self {
                    $(Self::$word(state) => state.expire_at_ms(),)+
                    $(Self::$live(state) => state.expire_at_ms(),)+
                }
            }

            /// The state as words to keep; `None` for one that is live. See [`State::decode`].
            #[must_use]
            #[inline]
            pub fn words(&self) -> Option<Encoded> {
                match self {
                    $(Self::$word(state) => Some(state.encode()),)+
                    $(Self::$live(_) => None,)+
                }
            }

            /// The state field by field, as it is stored and (`used`) as it stands at `now_us`.
            #[must_use]
            pub fn inspect(&self, now_us: u64) -> Vec<Field> {
                match self {
                    $(Self::$word(state) => state.inspect(now_us),)+
                    $(Self::$live(state) => state.inspect(now_us),)+
                }
            }

            /// Memory that a live state has allocated, in bytes.
            #[must_use]
            pub fn heap_bytes(&self) -> usize {
                match self { $(Self::$word(_) => 0,)+ $(Self::$live(state) => state.heap_bytes(),)+ }
            }

            /// Whether a live state holds nothing any more. No call leaves one behind, but a forged step may.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                match self { $(Self::$word(_) => false,)+ $(Self::$live(state) => state.is_empty(),)+ }
            }

            /// How many pieces of memory a state takes to free.
            #[must_use]
            pub fn pieces(&self) -> usize {
                match self { $(Self::$word(_) => 1,)+ $(Self::$live(state) => state.pieces(),)+ }
            }

            #[inline(always)]
            pub(crate) fn decode_as(algorithm: Algorithm, fields: Fields) -> Result<Self, Error> {
                match algorithm {
                    $(Algorithm::$word => $word_file::State::decode(fields).map(Self::$word),)+
                    _ => Err(Error::DamagedState),
                }
            }

            pub(crate) fn write_live(&self, into: &mut Blob) {
                match self { $(Self::$word(_) => {})+ $(Self::$live(state) => state.write(into),)+ }
            }

            pub(crate) fn read_live(algorithm: Algorithm, from: &[u8]) -> Result<Self, Error> {
                match algorithm {
                    $(Algorithm::$live => $live_file::State::read(from).map(Self::$live),)+
                    _ => Err(Error::DamagedState),
                }
            }
        }

        impl<'a> Next<'a> {
            /// The algorithm of the state to come.
            #[must_use]
            pub const fn algorithm(&self) -> Algorithm {
                match self {
                    Self::Whole(state) => state.algorithm(),
                    $(Self::$live(_) => Algorithm::$live,)+
                }
            }

            /// The first state of a key; `None` if the step begins nothing.
            #[must_use]
            pub fn begin(self) -> Option<State> {
                match self {
                    Self::Whole(state) => Some(state),
                    $(Self::$live(step) => $live_file::State::begin(&step).map(State::$live),)+
                }
            }

            pub(crate) fn write_step(&self, into: &mut Blob) {
                match self { Self::Whole(_) => {} $(Self::$live(step) => step.write(into),)+ }
            }

            pub(crate) fn read_step(algorithm: Algorithm, from: &'a [u8]) -> Result<Self, Error> {
                match algorithm {
                    $(Algorithm::$live => $live_file::Next::read(from).map(Self::$live),)+
                    _ => Err(Error::DamagedState),
                }
            }
        }
    };
}

algorithms! {
    words {
        /// Sliding-window counter.
        Slide = slide;
        /// Token bucket.
        Bucket = bucket;
        /// Fixed window.
        Fixed = fixed;
        /// Leaky bucket as a queue.
        Leak = leak;
    }
    live {
        /// Exact sliding window.
        Exact = exact { Limit, Next };
        /// Leases on what may be held at once.
        Lease = lease { Limit<'a>, Next<'a> };
        /// Several limits on one key, as a policy has them.
        Group = group { Limit<'a>, Next };
    }
}

impl Algorithm {
    /// Finds an algorithm by name, in any case.
    #[must_use]
    #[inline]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        // The usual ones, as they are usually written.
        match name {
            b"SLIDE" => Some(Self::Slide),
            b"BUCKET" => Some(Self::Bucket),
            name => Self::from_any(name),
        }
    }

    fn from_any(name: &[u8]) -> Option<Self> {
        let named = |algorithm: &&Self| algorithm.name().as_bytes().eq_ignore_ascii_case(name);
        Self::ALL.iter().find(named).copied()
    }
}

impl Limit<'_> {
    /// Whether [`Limit::evaluate`] can go on from a state as it is.
    #[must_use]
    #[inline]
    pub fn fits(&self, state: &State) -> bool {
        match (self, state) {
            (Self::Group(limit), State::Group(state)) => limit.fits(state),
            _ => self.algorithm() == state.algorithm(),
        }
    }

    /// The state to go on from where it does not fit: for each limit, usage under the same algorithm and,
    /// if there is, the same span. `None` if nothing is of use; `Err` if the key is a lease's.
    pub fn adopt(&self, state: &State) -> Result<Option<State>, Error> {
        let mut known = match state {
            State::Group(group) => group.known(),
            State::Lease(_) => return Err(Error::WrongAlgorithm),
            plain => vec![group::Known {
                state: plain.clone(),
                fixed: false,
            }],
        };
        Ok(match *self {
            Self::Group(limit) => limit.adopt(known).map(State::Group),
            Self::Slide(_) | Self::Bucket(_) | Self::Fixed(_) | Self::Leak(_) | Self::Exact(_) => {
                let span_us = self.span_us();
                let ours = |known: &group::Known| {
                    !known.fixed && known.state.algorithm() == self.algorithm()
                };
                let same = |known: &group::Known| ours(known) && known.state.span_us() == span_us;
                let place = known.iter().position(same);
                let place = place.or_else(|| known.iter().position(ours));
                place.map(|place| known.swap_remove(place).state)
            }
            Self::Lease(_) => return Err(Error::WrongAlgorithm),
        })
    }
}

impl<'a> Limit<'a> {
    /// The limit to keep for longer than the call, and what it borrowed from it: a lease's holder.
    #[must_use]
    pub fn detached(&self) -> (Limit<'static>, &'a [u8]) {
        let limit = match self {
            Self::Slide(limit) => Limit::Slide(*limit),
            Self::Bucket(limit) => Limit::Bucket(*limit),
            Self::Fixed(limit) => Limit::Fixed(*limit),
            Self::Leak(limit) => Limit::Leak(*limit),
            Self::Exact(limit) => Limit::Exact(*limit),
            Self::Lease(limit) => {
                let (limit, holder) = limit.detached();
                return (Limit::Lease(limit), holder);
            }
            // Of a policy's limits, one decides: that is the one to keep.
            Self::Group(_) => Limit::Group(group::Limit::none()),
        };
        (limit, &[])
    }
}

/// What a refund or a release does to a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Return<'a> {
    /// Units given back.
    pub units: u64,
    /// What is left to be stored; `None` if nothing is, so that the key may go.
    pub next: Option<Next<'a>>,
}

impl State {
    /// Whether dropping the state frees anything.
    #[must_use]
    #[inline(always)]
    pub fn owns_memory(&self) -> bool {
        match self {
            Self::Slide(state) => matches!(state, slide::State::Parts(_)),
            Self::Bucket(_) | Self::Fixed(_) | Self::Leak(_) => false,
            Self::Exact(_) | Self::Lease(_) | Self::Group(_) => true,
        }
    }

    /// The window or period; 0 for states that have none of their own.
    pub(crate) fn span_us(&self) -> u64 {
        match self {
            Self::Slide(state) => state.span_us(),
            Self::Bucket(state) => state.span_us(),
            Self::Fixed(state) => state.span_us(),
            Self::Leak(state) => state.span_us(),
            Self::Exact(state) => state.span_us(),
            Self::Lease(_) | Self::Group(_) => 0,
        }
    }

    /// Gives units back, the latest first; never more than are in use.
    pub fn refund(&self, now_us: u64, units: u64) -> Result<Return<'static>, Error> {
        let now_us = now_us.min(crate::MAX_TIME_US);
        let (units, next) = match self {
            Self::Slide(state) => whole(state.refund(now_us, units), Self::Slide),
            Self::Bucket(state) => whole(state.refund(now_us, units), Self::Bucket),
            Self::Fixed(state) => whole(state.refund(now_us, units), Self::Fixed),
            Self::Leak(state) => whole(state.refund(now_us, units), Self::Leak),
            Self::Exact(state) => {
                let (units, next) = state.refund(now_us, units);
                (units, next.map(Next::Exact))
            }
            Self::Group(state) => {
                let (units, next) = state.refund(now_us, units)?;
                (units, next.map(Next::Group))
            }
            Self::Lease(_) => return Err(Error::RefundOfLease),
        };
        Ok(Return { units, next })
    }

    /// Lets go of what a holder has leased; of 0 units if that is nothing.
    pub fn release<'a>(&self, now_us: u64, holder: &'a [u8]) -> Result<Return<'a>, Error> {
        let Self::Lease(state) = self else {
            return Err(Error::WrongAlgorithm);
        };
        let (units, next) = state.release(now_us, lease::name(holder)?);
        let next = next.map(Next::Lease);
        Ok(Return { units, next })
    }
}

fn whole<S>(
    (units, state): (u64, Option<S>),
    wrap: impl Fn(S) -> State,
) -> (u64, Option<Next<'static>>) {
    (units, state.map(|state| Next::Whole(wrap(state))))
}

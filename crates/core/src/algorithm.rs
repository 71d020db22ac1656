//! The list of algorithms, and the dispatch to their files.

use crate::encoding::{Encoded, Fields};
use crate::{Error, Mode, Outcome};
use crate::{bucket, slide};

/// Every algorithm is a file with `NAME`, `TAG`, `PARAMETERS`, `Limit`, `State` and `evaluate`; adding
/// one is adding its file and a line to the list below.
macro_rules! algorithms {
    ($($(#[$doc:meta])* $variant:ident = $module:ident;)+) => {
        /// Which algorithm a limit or a state belongs to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Algorithm { $($(#[$doc])* $variant),+ }

        /// A limit of any algorithm.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Limit { $($(#[$doc])* $variant($module::Limit)),+ }

        /// The state of one key under a limit.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum State { $($(#[$doc])* $variant($module::State)),+ }

        impl Algorithm {
            /// Every algorithm, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name in commands and specs.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $module::NAME),+ }
            }

            /// Words of a spec between the name and the cost.
            #[must_use]
            pub const fn parameters(self) -> usize {
                match self { $(Self::$variant => $module::PARAMETERS),+ }
            }

            pub(crate) fn from_tag(tag: u8) -> Option<Self> {
                match tag { $($module::TAG => Some(Self::$variant),)+ _ => None }
            }
        }

        impl Limit {
            /// Reads a limit's parameters, without name and cost.
            pub fn parse<'a>(
                algorithm: Algorithm,
                words: &mut impl Iterator<Item = &'a [u8]>,
            ) -> Result<Self, Error> {
                match algorithm {
                    $(Algorithm::$variant => $module::Limit::parse(words).map(Self::$variant)),+
                }
            }

            /// The limit's algorithm.
            #[must_use]
            pub const fn algorithm(&self) -> Algorithm {
                match self { $(Self::$variant(_) => Algorithm::$variant),+ }
            }

            /// Decides a call of `cost` at `now_us`, given the stored state. Stores nothing.
            ///
            /// Fails only if the state is of another algorithm.
            #[inline]
            pub fn evaluate(
                &self,
                stored: Option<&State>,
                now_us: u64,
                cost: u64,
                mode: Mode,
            ) -> Result<Outcome, Error> {
                match (self, stored) {
                    $(
                        (Self::$variant(limit), None) => {
                            Ok($module::evaluate(limit, None, now_us, cost, mode).map(State::$variant))
                        }
                        (Self::$variant(limit), Some(State::$variant(stored))) => Ok(
                            $module::evaluate(limit, Some(stored), now_us, cost, mode)
                                .map(State::$variant),
                        ),
                    )+
                    _ => Err(Error::WrongAlgorithm),
                }
            }
        }

        impl State {
            /// The state's algorithm.
            #[must_use]
            pub const fn algorithm(&self) -> Algorithm {
                match self { $(Self::$variant(_) => Algorithm::$variant),+ }
            }

            /// When the key may vanish, as the state was stored (Unix time).
            #[must_use]
            pub fn expire_at_ms(&self) -> u64 {
                match self { $(Self::$variant(state) => state.expire_at_ms()),+ }
            }

            /// The state as words to keep; see [`State::decode`].
            #[must_use]
            #[inline]
            pub fn encode(&self) -> Encoded {
                match self { $(Self::$variant(state) => state.encode()),+ }
            }

            pub(crate) fn decode_as(algorithm: Algorithm, fields: Fields) -> Result<Self, Error> {
                match algorithm {
                    $(Algorithm::$variant => $module::State::decode(fields).map(Self::$variant)),+
                }
            }
        }
    };
}

algorithms! {
    /// Sliding-window counter.
    Slide = slide;
    /// Token bucket.
    Bucket = bucket;
}

impl Algorithm {
    /// Finds an algorithm by name, in any case.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        let named = |algorithm: &&Self| algorithm.name().as_bytes().eq_ignore_ascii_case(name);
        Self::ALL.iter().find(named).copied()
    }

    /// Words of a whole spec: name, parameters, cost.
    #[must_use]
    pub const fn spec_words(self) -> usize {
        self.parameters() + 2
    }
}

//! Usage that continues to count when the limits of a key have changed.

use super::policy_limits::{CarriedRules, KnownUsage, StateRef};
use super::{Limit, State, Update};
use crate::{Error, Evaluation, Mode};

impl Limit<'_> {
    /// Whether [`Limit::evaluate`] can continue from a state as it is.
    #[must_use]
    #[inline]
    pub fn fits(&self, state: &State) -> bool {
        match (self, state) {
            (Self::Policy(limit), State::Policy(state)) => limit.fits(state),
            _ => self.algorithm() == state.algorithm(),
        }
    }

    /// The usage from which the limit continues if the state does not fit: what was counted under the same algorithm
    /// and, if possible, the same span. `None` if none of it can be used; an error if the key holds leases.
    pub fn carry_over<'s>(&self, state: &'s State) -> Result<Option<CarriedUsage<'s>>, Error> {
        let mut known = match state {
            State::Policy(policy) => policy.known_usage(),
            State::Lease(_) => return Err(Error::WrongAlgorithm),
            State::Slide(_)
            | State::Bucket(_)
            | State::Fixed(_)
            | State::Leak(_)
            | State::Exact(_) => vec![KnownUsage {
                state: StateRef::Borrowed(state),
                fixed_cost: false,
            }],
        };
        Ok(match *self {
            Self::Policy(limit) => {
                let rules = limit.carry_over(known);
                rules.map(|rules| CarriedUsage(Carried::Rules(rules)))
            }
            Self::Slide(_) | Self::Bucket(_) | Self::Fixed(_) | Self::Leak(_) | Self::Exact(_) => {
                let span_us = self.span_us();
                let ours = |known: &KnownUsage| {
                    let state = known.state.as_ref();
                    let state = state.filter(|state| state.algorithm() == self.algorithm());
                    state.filter(|_| !known.fixed_cost).map(State::span_us)
                };
                let same_span = known.iter().position(|known| ours(known) == Some(span_us));
                let index =
                    same_span.or_else(|| known.iter().position(|known| ours(known).is_some()));
                index.map(|index| CarriedUsage(Carried::One(known.swap_remove(index).state)))
            }
            Self::Lease(_) => return Err(Error::WrongAlgorithm),
        })
    }
}

/// Usage from which a changed limit continues. It stays where it is stored, so that a denied call copies nothing,
/// however long a log is.
#[derive(Debug)]
pub struct CarriedUsage<'s>(Carried<'s>);

#[derive(Debug)]
enum Carried<'s> {
    One(StateRef<'s>),
    Rules(CarriedRules<'s>),
}

impl CarriedUsage<'_> {
    /// Decides as [`Limit::evaluate`] does; `limit` is the one that carried the usage over. The update replaces the
    /// state, or applies to [`CarriedUsage::into_state`].
    pub fn evaluate<'a>(
        &self,
        limit: &Limit<'a>,
        now_us: u64,
        cost: u64,
        mode: Mode,
    ) -> Result<Evaluation<Update<'a>>, Error> {
        match (&self.0, limit) {
            (Carried::One(state), limit) => limit.evaluate(state.as_ref(), now_us, cost, mode),
            (Carried::Rules(rules), Limit::Policy(limit)) => {
                let evaluation = rules.evaluate(limit, now_us, cost, mode)?;
                Ok(evaluation.map(Update::Policy))
            }
            (Carried::Rules(_), _) => Err(Error::WrongAlgorithm),
        }
    }

    /// See [`Limit::affordable_calls`].
    pub fn affordable_calls(
        &self,
        limit: &Limit,
        now_us: u64,
        cost: u64,
        max: u64,
    ) -> Result<u64, Error> {
        match (&self.0, limit) {
            (Carried::One(state), limit) => {
                limit.affordable_calls(state.as_ref(), now_us, cost, max)
            }
            (Carried::Rules(rules), Limit::Policy(limit)) => {
                rules.affordable_calls(limit, now_us, cost, max)
            }
            (Carried::Rules(_), _) => Err(Error::WrongAlgorithm),
        }
    }

    /// The usage as a state of its own; a log is copied.
    #[must_use]
    pub fn into_state(self) -> Option<State> {
        match self.0 {
            Carried::One(state) => state.into_state(),
            Carried::Rules(rules) => Some(State::Policy(rules.into_state())),
        }
    }
}

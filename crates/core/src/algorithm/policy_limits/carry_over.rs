//! Usage that continues to count when the limits of a policy have changed.

use super::{
    FixedCosts, PolicyLimits, PolicyState, PolicyUpdate, Rule, RuleState, StateRef, evaluate,
};
use crate::{Error, Evaluation, Mode};

/// Usage so far, from which other limits may continue.
pub(in crate::algorithm) struct KnownUsage<'s> {
    pub(in crate::algorithm) state: StateRef<'s>,
    /// Whether its rule fixed the cost: a number of calls must not be mistaken for a number of units.
    pub(in crate::algorithm) fixed_cost: bool,
}

impl PolicyState {
    /// The usage of every rule.
    pub(in crate::algorithm) fn known_usage(&self) -> Vec<KnownUsage<'_>> {
        let known = |index: usize| KnownUsage {
            state: self.get(index),
            fixed_cost: self.fixed_cost(index).is_some(),
        };
        (0..self.len()).map(known).collect()
    }
}

impl PolicyLimits<'_> {
    /// The usage from which each rule continues; `None` if none of it can be used.
    pub(in crate::algorithm) fn carry_over<'s>(
        &self,
        known: Vec<KnownUsage<'s>>,
    ) -> Option<CarriedRules<'s>> {
        let states = pick(self.rules, known);
        let any = states.iter().any(|state| state.as_ref().is_some());
        any.then(|| CarriedRules {
            fixed_costs: FixedCosts::of(self.rules),
            states,
        })
    }
}

/// Picks the usage from which each rule continues: usage of the same algorithm and span if there is any, otherwise of
/// the same algorithm. A rule that fixes its cost continues only from usage that was counted that way, and the others only
/// from usage that was not.
fn pick<'s>(rules: &[Rule], mut known: Vec<KnownUsage<'s>>) -> Vec<StateRef<'s>> {
    let mut picked: Vec<_> = rules.iter().map(|_| StateRef::Missing).collect();
    for same_span in [true, false] {
        for (rule, picked) in rules.iter().zip(&mut picked) {
            let matches = |known: &KnownUsage| {
                rule.cost.is_some() == known.fixed_cost
                    && known.state.as_ref().is_some_and(|state| {
                        rule.limit.algorithm() == state.algorithm()
                            && (!same_span || rule.fits(state))
                    })
            };
            if picked.as_ref().is_none()
                && let Some(index) = known.iter().position(matches)
            {
                *picked = known.remove(index).state;
            }
        }
    }
    picked
}

/// Usage that other limits have counted. It stays where it is stored, because a log may be long.
#[derive(Debug)]
pub(in crate::algorithm) struct CarriedRules<'s> {
    fixed_costs: FixedCosts,
    states: Vec<StateRef<'s>>,
}

impl CarriedRules<'_> {
    pub(in crate::algorithm) fn evaluate(
        &self,
        limit: &PolicyLimits,
        now_us: u64,
        cost: u64,
        mode: Mode,
    ) -> Result<Evaluation<PolicyUpdate>, Error> {
        let has_log = self.states.iter().any(StateRef::is_log);
        let state_of = |index: usize| self.state_of(index);
        evaluate::decide(limit, state_of, has_log, now_us, cost, mode)
    }

    pub(in crate::algorithm) fn affordable_calls(
        &self,
        limit: &PolicyLimits,
        now_us: u64,
        cost: u64,
        max: u64,
    ) -> Result<u64, Error> {
        let state_of = |index: usize| self.state_of(index);
        evaluate::affordable_calls(limit, state_of, now_us, cost, max)
    }

    fn state_of(&self, index: usize) -> StateRef<'_> {
        match self.states.get(index).and_then(StateRef::as_ref) {
            Some(state) => StateRef::Borrowed(state),
            None => StateRef::Missing,
        }
    }

    /// The usage as a state of its own.
    pub(in crate::algorithm) fn into_state(self) -> PolicyState {
        let rule = |state: StateRef| RuleState::new(state.into_state());
        let rules = self.states.into_iter().map(rule).collect();
        PolicyState::new(&self.fixed_costs, rules)
    }
}

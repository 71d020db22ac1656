//! Several limits on one key, as a policy has them: all must allow the call, or nothing is charged anywhere.
//!
//! Each limit is a *rule*: the limit itself, and the cost if the policy fixes it. The state of each rule is kept in its
//! compact form where it has one: three such states need no memory of their own. Logs are kept as they are and changed
//! in place.

mod carry_over;
mod evaluate;
mod fixed_costs;
mod state;
mod update;

use std::fmt;

use super::descriptor::{Descriptor, Parameter};
use super::traits::AlgorithmLimit;
use crate::call_options::total_cost;
use crate::{Algorithm, Error, Scale};

pub(super) use carry_over::{CarriedRules, KnownUsage};
pub use fixed_costs::{FixedCosts, InlineCost};
pub(super) use state::StateRef;
pub use state::{PolicyState, RuleState};
pub use update::{PolicyUpdate, RuleUpdate};

/// Most rules of a policy.
pub const MAX_RULES: usize = 16;

/// The most rules whose states need no memory of their own.
const INLINE_RULES: usize = 3;

/// One limit of a policy. The call supplies the cost, unless the rule fixes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The limit to check.
    pub limit: crate::Limit<'static>,
    /// What each call costs, whatever cost it supplies.
    pub cost: Option<u64>,
}

impl Rule {
    /// What `times` calls are charged that supply `cost` together. A cost of 0 charges nothing anywhere: it only reports.
    #[must_use]
    #[inline]
    pub fn cost_of(&self, cost: u64, times: u64) -> u64 {
        match self.cost {
            Some(fixed) if cost > 0 => fixed.saturating_mul(times),
            _ => cost,
        }
    }

    /// Whether a state was counted under the same algorithm and span.
    fn fits(&self, state: &crate::State) -> bool {
        self.limit.algorithm() == state.algorithm() && self.limit.span_us() == state.span_us()
    }
}

/// Whether limits of an algorithm may be part of a policy.
pub(crate) fn check_allowed_in_policy(algorithm: Algorithm) -> Result<(), Error> {
    match algorithm {
        Algorithm::Slide
        | Algorithm::Bucket
        | Algorithm::Fixed
        | Algorithm::Leak
        | Algorithm::Exact => Ok(()),
        Algorithm::Lease => Err(Error::LeaseInPolicy),
        Algorithm::Policy => Err(Error::PolicySyntax),
    }
}

/// The limits of a policy, as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyLimits<'a> {
    rules: &'a [Rule],
    /// How often the rules that fix their cost are charged.
    times: u64,
}

impl<'a> PolicyLimits<'a> {
    /// One to [`MAX_RULES`] rules.
    pub fn new(rules: &'a [Rule]) -> Result<Self, Error> {
        if rules.is_empty() || rules.len() > MAX_RULES {
            return Err(Error::LimitCount);
        }
        Ok(Self { rules, times: 1 })
    }

    /// The same limits for a call that stands for several: rules that fix their cost charge it `times` times, 0 included.
    /// The cost passed to `evaluate` is that of all calls together.
    pub fn with_times(self, times: u64) -> Result<Self, Error> {
        let mut fixed_costs = self.rules.iter().filter_map(|rule| rule.cost);
        fixed_costs.try_for_each(|cost| total_cost(cost, times).map(|_| ()))?;
        Ok(Self { times, ..self })
    }

    /// What a call of `cost` charges to one of the rules.
    pub(crate) fn cost_of(&self, rule: &Rule, cost: u64) -> u64 {
        rule.cost_of(cost, self.times)
    }

    pub(crate) fn rules(&self) -> &'a [Rule] {
        self.rules
    }

    /// Whether a state was counted under these rules, one by one.
    pub(super) fn fits(&self, state: &PolicyState) -> bool {
        state.len() == self.rules.len()
            && self.rules.iter().enumerate().all(|(index, rule)| {
                let stored = state.get(index);
                state.fixed_cost(index).is_some() == rule.cost.is_some()
                    && stored.as_ref().is_none_or(|stored| rule.fits(stored))
            })
    }
}

impl<'a> AlgorithmLimit<'a> for PolicyLimits<'a> {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "POLICY",
        command: None,
        type_name: c"rl-policy",
        parameters: &[Parameter::text(c"name")],
        options: &[],
        summary: c"Checks a call against the limits of a policy.",
        complexity: c"O(N) where N is the number of limits, at most 16",
    };

    type Owned = PolicyLimits<'static>;

    /// A spec only names the policy. The server looks its limits up.
    fn parse(_args: &mut impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        Err(Error::UnknownAlgorithm)
    }

    fn set_option(&mut self, _token: &[u8], _value: Option<&[u8]>) -> Result<(), Error> {
        Err(Error::UnknownOption)
    }

    fn limit_value(&self) -> u64 {
        0
    }

    fn span_us(&self) -> u64 {
        0
    }

    fn scaled(self, _by: Scale) -> Self {
        self
    }

    fn into_owned(self) -> (PolicyLimits<'static>, &'a [u8]) {
        (
            PolicyLimits {
                rules: &[],
                times: 1,
            },
            &[],
        )
    }
}

impl fmt::Display for PolicyLimits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::DESCRIPTOR.name)?;
        self.rules.iter().try_for_each(|rule| write!(f, " {rule}"))
    }
}

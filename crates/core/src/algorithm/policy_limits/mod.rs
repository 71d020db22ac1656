//! Several limits on one key, as a policy has them: all must allow the call, or nothing is charged anywhere.
//!
//! Each limit is a *rule*: the limit itself, and the cost if the policy fixes it. The state of each rule is kept in its
//! compact form where it has one: three such states need no memory of their own. Logs are kept as they are and changed
//! in place.

mod carry_over;
mod evaluate;
mod state;
mod update;

use std::fmt;

use super::descriptor::{Descriptor, Parameter};
use super::traits::AlgorithmLimit;
use crate::{Algorithm, Error, Scale};

pub(super) use carry_over::{CarriedRules, KnownUsage};
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
    /// What a call that supplies `cost` is charged. A cost of 0 charges nothing anywhere: it only reports.
    #[must_use]
    #[inline]
    pub fn cost_of(&self, cost: u64) -> u64 {
        match self.cost {
            Some(fixed) if cost > 0 => fixed,
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
}

impl<'a> PolicyLimits<'a> {
    /// One to [`MAX_RULES`] rules.
    pub fn new(rules: &'a [Rule]) -> Result<Self, Error> {
        if rules.is_empty() || rules.len() > MAX_RULES {
            return Err(Error::LimitCount);
        }
        Ok(Self { rules })
    }

    /// Whether a state was counted under these rules, one by one.
    pub(super) fn fits(&self, state: &PolicyState) -> bool {
        state.len() == self.rules.len()
            && state.fixed_costs() == self.fixed_costs()
            && self.rules.iter().enumerate().all(|(index, rule)| {
                let stored = state.get(index);
                stored.as_ref().is_none_or(|stored| rule.fits(stored))
            })
    }

    /// A bit for each rule that fixes the cost.
    fn fixed_costs(&self) -> u16 {
        let bit = |(index, rule): (usize, &Rule)| u16::from(rule.cost.is_some()) << index;
        self.rules.iter().enumerate().map(bit).sum()
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
        (PolicyLimits { rules: &[] }, &[])
    }
}

impl fmt::Display for PolicyLimits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::DESCRIPTOR.name)?;
        self.rules.iter().try_for_each(|rule| write!(f, " {rule}"))
    }
}

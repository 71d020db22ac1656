//! What a call asks of one key.

use rl_core::syntax::{self, Spec};
use rl_core::{Decision, Error, Limit};

use crate::error::CommandError;
use crate::policy::EffectivePolicy;
use crate::server::{Context, ServerStr};
use crate::stats::DeniedBy;

/// The limits that a call checks on one key: its own limit, or those of a policy. RL.MULTI and RL.FIRST make a request for
/// each key.
pub(crate) struct Request<'a> {
    pub(crate) key: ServerStr<'a>,
    pub(super) limits: Limits<'a>,
    /// Evaluated and counted, but not enforced.
    pub(super) shadow: bool,
}

/// Where the limits come from. In commands that know this, the compiler removes the match.
pub(crate) enum Limits<'a> {
    /// The call has its own limit.
    Inline(Spec<'a>),
    Policy(EffectivePolicy),
}

impl<'a> Request<'a> {
    #[inline(always)]
    pub(crate) fn inline(key: ServerStr<'a>, spec: Spec<'a>) -> Self {
        Self {
            key,
            limits: Limits::Inline(spec),
            shadow: false,
        }
    }

    #[inline(always)]
    pub(crate) fn policy(key: ServerStr<'a>, policy: EffectivePolicy) -> Self {
        Self {
            key,
            shadow: policy.is_shadow(),
            limits: Limits::Policy(policy),
        }
    }

    /// A spec of RL.MULTI, RL.FIRST or RL.PEEK.
    #[inline(always)]
    pub(crate) fn from_spec(
        ctx: &Context,
        key: ServerStr<'a>,
        spec: syntax::KeySpec<'a>,
        now_us: u64,
    ) -> Result<Self, CommandError> {
        let mut request = match spec.source {
            syntax::LimitSource::Spec(inline) => Self::inline(key, inline),
            syntax::LimitSource::Policy { name, cost } => {
                Self::policy(key, EffectivePolicy::find(ctx, key, name, cost, now_us)?)
            }
        };
        request.shadow |= spec.shadow;
        Ok(request)
    }

    #[inline(always)]
    pub(super) fn effective_policy(&self) -> Option<&EffectivePolicy> {
        match &self.limits {
            Limits::Inline(_) => None,
            Limits::Policy(policy) => Some(policy),
        }
    }

    /// All limits as one, and what `calls` calls charge to it.
    #[inline(always)]
    pub(super) fn limit(&self, calls: u64) -> Result<(Limit<'_>, u64), Error> {
        match &self.limits {
            Limits::Inline(spec) => Ok((spec.limit, spec.cost.saturating_mul(calls))),
            Limits::Policy(policy) => policy.limit(calls),
        }
    }

    /// All limits as one, and what RL.SETTLE charges to it in addition.
    pub(super) fn limit_for_settling(&self, calls: u64) -> Result<(Limit<'_>, u64), Error> {
        match &self.limits {
            Limits::Inline(spec) => Ok((spec.limit, spec.cost)),
            Limits::Policy(policy) => policy.limit_for_settling(calls),
        }
    }

    /// The decision of an override that blocks or allows the key without evaluating any limit. The key is not even
    /// opened.
    #[inline(always)]
    pub(super) fn decision_of_override(&self) -> Option<Decision> {
        self.effective_policy()?.decision_of_override()
    }

    /// What `calls` calls charge to the limit that decided.
    #[inline(always)]
    pub(super) fn cost(&self, index: i8, calls: u64) -> u64 {
        match &self.limits {
            Limits::Inline(spec) => spec.cost.saturating_mul(calls),
            Limits::Policy(policy) => policy.cost(index, calls),
        }
    }

    /// Whether an allowed call replies its delay to BRIEF.
    #[inline(always)]
    pub(crate) fn reports_delay(&self) -> bool {
        match &self.limits {
            Limits::Inline(spec) => spec.limit.algorithm().reports_delay(),
            Limits::Policy(policy) => policy.reports_delay(),
        }
    }

    pub(super) fn denied_by(&self, index: i8) -> DeniedBy<'_> {
        match &self.limits {
            Limits::Inline(spec) => DeniedBy::Limit(spec.limit),
            Limits::Policy(policy) => match policy.rule(index) {
                Some(rule) => DeniedBy::Limit(rule.limit),
                None => DeniedBy::Block,
            },
        }
    }

    /// Fails if an override may be on another node. Inline limits have none.
    #[inline(always)]
    pub(super) fn check_migration(&self, ctx: &Context, exists: bool) -> Result<(), CommandError> {
        match self.effective_policy() {
            Some(policy) => policy.check_migration(ctx, self.key, exists),
            None => Ok(()),
        }
    }

    /// The decision as the caller sees it: shadow limits allow everything.
    #[inline(always)]
    pub(super) fn as_reported(&self, mut decision: Decision) -> Decision {
        if self.shadow {
            decision.allow_in_shadow();
        }
        decision
    }
}

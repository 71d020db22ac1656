//! A policy as it applies to one key, with the key's override. Overrides are stored in a key of their own, in the
//! slot of the key that they apply to; while the server has none, no check looks for any.

use std::rc::Rc;

use rl_core::policy::{OverrideAction, Rule, Rules, override_key};
use rl_core::{Decision, Error, Limit, NEVER, OVERRIDE_INDEX};

use super::registry::{self, NamedPolicy};
use super::slot_migration;
use crate::error::CommandError;
use crate::server::{Context, Key, ServerStr, ServerString, keys_with_overrides};
use crate::stats::PolicyObservation;

/// A policy as it applies to one key.
pub(crate) struct EffectivePolicy {
    policy: Rc<NamedPolicy>,
    effect: OverrideEffect,
    cost: u64,
    /// Whether the key's overrides are on this server. In a cluster, they may still be on another node.
    has_overrides: bool,
}

/// What an override changes for this call.
enum OverrideEffect {
    /// The policy's own limits apply.
    None,
    Limits(Rules),
    Decision(Decision),
}

impl EffectivePolicy {
    /// Finds the policy and, if there may be one, the key's override.
    #[inline]
    pub(crate) fn find(
        ctx: &Context,
        key: ServerStr,
        policy: &[u8],
        cost: u64,
        now_us: u64,
    ) -> Result<Self, CommandError> {
        let policy = registry::find(ctx, policy)?;
        let mut effective = Self {
            policy,
            effect: OverrideEffect::None,
            cost,
            has_overrides: false,
        };
        if keys_with_overrides() > 0 {
            effective.apply_override(ctx, key, now_us);
        }
        Ok(effective)
    }

    /// Looks for the key's override, and applies it.
    #[cold]
    fn apply_override(&mut self, ctx: &Context, key: ServerStr, now_us: u64) {
        let Some(name) = override_key(key.as_bytes()) else {
            return;
        };
        let name = ServerString::new(ctx, &name);
        let stored_in = Key::open_quietly(ctx, name.borrow());
        // A key of that name may be something else, which overrides nothing.
        let Ok(Some(stored)) = stored_in.overrides() else {
            return;
        };
        self.has_overrides = true;
        let policy = &*self.policy;
        let Some(entry) = stored.get(policy.name.as_bytes(), now_us) else {
            return;
        };
        let decision = |allowed, limit, retry_after_ms| {
            OverrideEffect::Decision(Decision {
                allowed,
                index: OVERRIDE_INDEX,
                limit,
                remaining: limit,
                retry_after_ms,
                reset_after_ms: 0,
            })
        };
        self.effect = match &entry.action {
            OverrideAction::Limits(rules) => OverrideEffect::Limits(rules.clone()),
            OverrideAction::Scale(by) => {
                OverrideEffect::Limits(policy.definition.rules().scaled(*by))
            }
            OverrideAction::Allow => {
                let first = policy.definition.rules().as_slice().first();
                decision(true, first.map_or(0, |rule| rule.limit.limit_value()), 0)
            }
            OverrideAction::Block => {
                let left = entry.expires_in_ms(now_us);
                decision(false, 0, left.map_or(NEVER, |ms| ms as i64))
            }
        };
    }

    /// Fails while a slot is moving if the key's overrides may be on the other node. `exists` says whether the key itself
    /// is here.
    #[inline]
    pub(crate) fn check_migration(
        &self,
        ctx: &Context,
        key: ServerStr,
        exists: bool,
    ) -> Result<(), CommandError> {
        if slot_migration::is_cluster()
            && !self.has_overrides
            && (!exists || slot_migration::is_suspected())
        {
            return match override_key(key.as_bytes()) {
                Some(override_key) => slot_migration::check_call(ctx, key, &override_key, exists),
                None => Ok(()),
            };
        }
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn is_shadow(&self) -> bool {
        self.policy.definition.shadow
    }

    #[inline(always)]
    fn rules(&self) -> &Rules {
        match &self.effect {
            OverrideEffect::Limits(rules) => rules,
            _ => self.policy.definition.rules(),
        }
    }

    /// All limits that apply as one, and what `calls` calls charge to it.
    #[inline(always)]
    pub(crate) fn limit(&self, calls: u64) -> Result<(Limit<'_>, u64), Error> {
        let limit = match self.rules().limit()? {
            Limit::Policy(limits) if calls != 1 => Limit::Policy(limits.with_times(calls)?),
            limit => limit,
        };
        Ok((limit, self.cost.saturating_mul(calls)))
    }

    /// All limits that apply as one, and what is charged to it in addition to what was reserved. Rules that fix their cost are
    /// charged for `calls` calls.
    pub(crate) fn limit_for_settling(&self, calls: u64) -> Result<(Limit<'_>, u64), Error> {
        let limit = match self.rules().limit()? {
            Limit::Policy(limits) => Limit::Policy(limits.with_times(calls)?),
            limit => limit,
        };
        Ok((limit, self.cost))
    }

    /// Whether an allowed call replies its delay to BRIEF: the policy is a queue, and nothing else.
    #[inline]
    pub(crate) fn reports_delay(&self) -> bool {
        match self.rules().as_slice() {
            [rule] => rule.limit.algorithm().reports_delay(),
            _ => false,
        }
    }

    /// The rule that decided; `None` if an override decided.
    #[inline]
    pub(crate) fn rule(&self, index: i8) -> Option<&Rule> {
        self.rules().as_slice().get(usize::try_from(index).ok()?)
    }

    /// What `calls` calls charge to the rule that decided.
    #[inline]
    pub(crate) fn cost(&self, index: i8, calls: u64) -> u64 {
        let cost = self.cost.saturating_mul(calls);
        let rule = self.rule(index);
        rule.map_or(cost, |rule| rule.cost_of(cost, calls))
    }

    #[inline]
    pub(crate) fn observed(&self, index: i8) -> PolicyObservation<'_> {
        PolicyObservation {
            name: self.policy.name.as_bytes(),
            index: i64::from(index),
            fixed_cost: self.rule(index).is_some_and(|rule| rule.cost.is_some()),
            counters: &self.policy.counters,
        }
    }

    /// The decision of an override that blocks or allows the key without evaluating any limit.
    #[inline]
    pub(crate) fn decision_of_override(&self) -> Option<Decision> {
        match self.effect {
            OverrideEffect::Decision(decision) => Some(decision),
            _ => None,
        }
    }
}

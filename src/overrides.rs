//! What holds for one key in place of its policy. Kept in a key of its own, in the slot of the key that it
//! concerns; while the server holds none, no check looks for any.

use std::rc::Rc;

use rl_core::group::Rule;
use rl_core::overrides::{self, What};
use rl_core::policy::Rules;
use rl_core::{Decision, Error, Limit, NEVER, NO_INDEX};

use crate::eyes;
use crate::redis::{Arg, Context, Key, OwnedName, overrides_held};
use crate::registry::{self, Named};

/// A policy as it applies to one key.
pub(crate) struct Applied {
    pub(crate) policy: Rc<Named>,
    instead: Instead,
    cost: u64,
}

enum Instead {
    /// The policy's own limits.
    Nothing,
    Limits(Rules),
    Decision(Decision),
}

impl Applied {
    /// Finds the policy and, where there may be one, the key's override.
    #[inline]
    pub(crate) fn find(
        ctx: &Context,
        name: Arg,
        policy: &[u8],
        cost: u64,
        now_us: u64,
    ) -> Result<Self, Error> {
        let policy = registry::find(ctx, policy)?;
        let mut applied = Self {
            policy,
            instead: Instead::Nothing,
            cost,
        };
        if overrides_held() > 0 {
            applied.look_up(ctx, name, now_us);
        }
        Ok(applied)
    }

    #[cold]
    fn look_up(&mut self, ctx: &Context, name: Arg, now_us: u64) {
        let Some(place) = overrides::place_of(name.as_bytes()) else {
            return;
        };
        let place = OwnedName::new(ctx, &place);
        let key = Key::open_to_read(ctx, place.arg());
        // A key of that name that is something else overrides nothing.
        let Ok(Some(held)) = key.overrides() else {
            return;
        };
        let named = &*self.policy;
        let Some(entry) = held.of(named.name.as_bytes(), now_us) else {
            return;
        };
        let decision = |allowed, most, retry_after_ms| {
            Instead::Decision(Decision {
                allowed,
                index: NO_INDEX,
                limit: most,
                remaining: most,
                retry_after_ms,
                reset_after_ms: 0,
            })
        };
        self.instead = match &entry.what {
            What::Limits(rules) => Instead::Limits(rules.clone()),
            What::Scale(by) => Instead::Limits(named.policy.rules().scaled(*by)),
            What::Allow => {
                let first = named.policy.rules().as_slice().first();
                decision(true, first.map_or(0, |rule| rule.limit.most()), 0)
            }
            What::Block => {
                let left = entry.ends_in_ms(now_us);
                decision(false, 0, left.map_or(NEVER, |ms| ms as i64))
            }
        };
    }

    /// The limits that apply, as one, and what the call takes of it.
    #[inline(always)]
    pub(crate) fn limit(&self) -> Result<(Limit<'_>, u64), Error> {
        match &self.instead {
            Instead::Limits(rules) => rules.limit(self.cost),
            _ => self.policy.policy.rules().limit(self.cost),
        }
    }

    /// The rule that decided; none if an override did.
    #[inline]
    pub(crate) fn rule(&self, index: i8) -> Option<&Rule> {
        let rules = match &self.instead {
            Instead::Limits(rules) => rules,
            _ => self.policy.policy.rules(),
        };
        rules.as_slice().get(usize::try_from(index).ok()?)
    }

    /// What the call takes of the rule that decided.
    #[inline]
    pub(crate) fn cost(&self, index: i8) -> u64 {
        let rule = self.rule(index);
        rule.map_or(self.cost, |rule| rule.cost_of(self.cost))
    }

    /// For whoever counts.
    #[inline]
    pub(crate) fn seen(&self, index: i8) -> eyes::Policy<'_> {
        eyes::Policy {
            name: self.policy.name.as_bytes(),
            index: i64::from(index),
            fixed_cost: self.rule(index).is_some_and(|rule| rule.cost.is_some()),
            tally: &self.policy.tally,
        }
    }

    /// What is answered without asking any limit.
    #[inline]
    pub(crate) fn decided(&self) -> Option<Decision> {
        match self.instead {
            Instead::Decision(decision) => Some(decision),
            _ => None,
        }
    }
}

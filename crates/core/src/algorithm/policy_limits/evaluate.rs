//! One decision from the decisions of several limits.

use smallvec::SmallVec;

use super::{
    FixedCosts, INLINE_RULES, InlineCost, PolicyLimits, PolicyState, PolicyUpdate, Rule, RuleState,
    RuleUpdate, StateRef,
};
use crate::algorithm::traits::BoxedLimit;
use crate::decision::{Decision, Evaluation, Expiry, Mode, NEVER};
use crate::{Error, Limit, State, Update};

/// The evaluation of one rule, and the state from which it was made.
struct EvaluatedRule<'s> {
    state: StateRef<'s>,
    evaluation: Evaluation<Update<'static>>,
}

impl PolicyLimits<'_> {
    /// See [`Limit::affordable_calls`].
    pub(in crate::algorithm) fn affordable_calls(
        &self,
        stored: Option<&PolicyState>,
        now_us: u64,
        cost: u64,
        max: u64,
    ) -> Result<u64, Error> {
        let state_of = |index: usize| stored.map_or(StateRef::Missing, |stored| stored.get(index));
        affordable_calls(self, state_of, now_us, cost, max)
    }
}

impl<'a> BoxedLimit<'a> for PolicyLimits<'a> {
    type State = PolicyState;
    type Update = PolicyUpdate;

    fn evaluate(
        &self,
        stored: Option<&PolicyState>,
        now_us: u64,
        cost: u64,
        mode: Mode,
    ) -> Result<Evaluation<PolicyUpdate>, Error> {
        if stored.is_some_and(|stored| stored.len() != self.rules.len()) {
            return Err(Error::WrongAlgorithm);
        }
        let state_of = |index: usize| stored.map_or(StateRef::Missing, |stored| stored.get(index));
        let has_log = stored.is_some_and(PolicyState::has_log);
        decide(self, state_of, has_log, now_us, cost, mode)
    }
}

#[inline(always)]
pub(super) fn decide<'s>(
    limit: &PolicyLimits,
    state_of: impl Fn(usize) -> StateRef<'s>,
    has_log: bool,
    now_us: u64,
    cost: u64,
    mode: Mode,
) -> Result<Evaluation<PolicyUpdate>, Error> {
    let mut evaluated = SmallVec::<[EvaluatedRule; INLINE_RULES]>::new();
    for (index, rule) in limit.rules.iter().enumerate() {
        let state = state_of(index);
        let cost = rule.cost_of(cost, limit.times);
        let evaluation = evaluate_rule(rule, state.as_ref(), now_us, cost, mode)?;
        evaluated.push(EvaluatedRule { state, evaluation });
    }
    let first = evaluated.first().ok_or(Error::Internal)?;
    let mut decision = first.evaluation.decision;
    for (index, rule) in evaluated.iter().enumerate().skip(1) {
        if takes_precedence(&rule.evaluation.decision, &decision) {
            decision = rule.evaluation.decision;
            decision.index = index as i8;
        }
    }
    if !decision.allowed {
        // What the other rules allowed is not charged. A clock that stepped back is recorded where it caused a denial.
        for rule in &mut evaluated {
            if rule.evaluation.decision.allowed {
                rule.evaluation.update = None;
            }
        }
    }

    let before_ms = evaluated
        .iter()
        .filter_map(|rule| rule.state.as_ref().map(State::expire_at_ms))
        .max();
    let after_ms = evaluated
        .iter()
        .filter_map(|rule| match &rule.evaluation.update {
            Some(_) => Some(rule.evaluation.expiry.at_ms),
            None => rule.state.as_ref().map(State::expire_at_ms),
        })
        .max();
    Ok(Evaluation {
        decision,
        expiry: Expiry {
            at_ms: after_ms.unwrap_or(0),
            unchanged: before_ms.is_some() && before_ms == after_ms,
        },
        update: update_of(limit, has_log, evaluated)?,
    })
}

/// The most calls of `cost` each, up to `max`, that all rules allow.
pub(super) fn affordable_calls<'s>(
    limit: &PolicyLimits,
    state_of: impl Fn(usize) -> StateRef<'s>,
    now_us: u64,
    cost: u64,
    max: u64,
) -> Result<u64, Error> {
    let mut calls = max;
    for (index, rule) in limit.rules.iter().enumerate() {
        let uncharged = evaluate_rule(rule, state_of(index).as_ref(), now_us, 0, Mode::Check)?;
        let affordable = uncharged.decision.affordable_calls(rule.cost_of(cost, 1));
        calls = calls.min(affordable);
    }
    Ok(calls)
}

/// A denial takes precedence over a rule that allows the call; among denials the longest wait does, otherwise the
/// lowest remaining.
fn takes_precedence(one: &Decision, other: &Decision) -> bool {
    let wait = |decision: &Decision| match decision.retry_after_ms {
        NEVER => i64::MAX,
        ms => ms,
    };
    match (one.allowed, other.allowed) {
        (false, false) => wait(one) > wait(other),
        (true, true) => one.remaining < other.remaining,
        (one, _) => !one,
    }
}

#[inline(never)]
fn evaluate_rule(
    rule: &Rule,
    stored: Option<&State>,
    now_us: u64,
    cost: u64,
    mode: Mode,
) -> Result<Evaluation<Update<'static>>, Error> {
    match rule.limit {
        // No policy contains one.
        Limit::Lease(_) | Limit::Policy(_) => Err(Error::Internal),
        limit => limit.evaluate(stored, now_us, cost, mode),
    }
}

fn update_of(
    limit: &PolicyLimits,
    has_log: bool,
    evaluated: SmallVec<[EvaluatedRule; INLINE_RULES]>,
) -> Result<Option<PolicyUpdate>, Error> {
    if evaluated
        .iter()
        .all(|rule| rule.evaluation.update.is_none())
    {
        return Ok(None);
    }
    let changes_log =
        |rule: &EvaluatedRule| matches!(rule.evaluation.update, Some(Update::Exact(_)));
    if has_log || evaluated.iter().any(changes_log) {
        let updates = evaluated
            .into_iter()
            .map(|rule| match rule.evaluation.update {
                Some(update) => RuleUpdate::new(update),
                None => Ok(RuleUpdate::Keep),
            });
        let updates = updates.collect::<Result<_, _>>()?;
        return Ok(Some(PolicyUpdate::Rules {
            fixed_costs: FixedCosts::of(limit.rules),
            updates,
        }));
    }
    // The usual case, without allocating.
    let mut compact = [[0; 2]; INLINE_RULES];
    let mut fixed_costs = [InlineCost::default(); INLINE_RULES];
    let mut fits = evaluated.len() <= INLINE_RULES;
    for (to, rule) in fixed_costs.iter_mut().zip(limit.rules) {
        match InlineCost::new(rule.cost) {
            Some(cost) => *to = cost,
            None => fits = false,
        }
    }
    for (to, rule) in compact.iter_mut().zip(&evaluated) {
        let state = match &rule.evaluation.update {
            Some(Update::Replace(state)) => Some(state),
            _ => rule.state.as_ref(),
        };
        if let Some(state) = state {
            let packed = state.packed();
            match packed.as_ref().map(|packed| packed.as_slice()) {
                Some(&[high, low]) => *to = [high, low],
                _ => fits = false,
            }
        }
    }
    if fits {
        return Ok(Some(PolicyUpdate::Replace(PolicyState::Inline {
            count: evaluated.len() as u8,
            fixed_costs,
            compact,
        })));
    }
    let states = evaluated
        .into_iter()
        .map(|rule| match rule.evaluation.update {
            Some(Update::Replace(state)) => RuleState::new(Some(state)),
            _ => RuleState::new(rule.state.as_ref().cloned()),
        });
    let state = PolicyState::new(&FixedCosts::of(limit.rules), states.collect());
    Ok(Some(PolicyUpdate::Replace(state)))
}

//! The states of all rules of a policy, under one key.

use super::{
    FixedCosts, INLINE_RULES, InlineCost, PolicyUpdate, RuleUpdate, check_allowed_in_policy,
};
use crate::algorithm::traits::{AlgorithmState, BoxedState, BoxedUpdate};
use crate::encoding::{Blob, Reader, algorithm_of_blob, write_bytes};
use crate::inspect::{FieldValue, StateField};
use crate::refund::RefundRequest;
use crate::relocate::{Relocate, Walk};
use crate::reservation::{Charge, Origin};
use crate::{Error, Refund, State};

/// The states of all rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyState {
    /// Up to three states in compact form; all zero for a rule that has charged nothing.
    Inline {
        /// How many rules there are.
        count: u8,
        /// The costs that the rules fix.
        fixed_costs: [InlineCost; INLINE_RULES],
        /// The compact forms.
        compact: [[u64; 2]; INLINE_RULES],
    },
    /// All other combinations.
    Boxed {
        /// The states, in the order of the rules, each with the cost that its rule fixes.
        rules: Box<[(Option<u64>, RuleState)]>,
    },
}

/// The state of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleState {
    /// Nothing has been charged.
    Empty,
    /// The compact form.
    Compact([u64; 2]),
    /// A larger state.
    Boxed(Box<State>),
}

impl RuleState {
    pub(super) fn new(state: Option<State>) -> Self {
        let Some(state) = state else {
            return Self::Empty;
        };
        match state.packed().map(|packed| packed.as_slice().try_into()) {
            Some(Ok(compact)) => Self::Compact(compact),
            _ => Self::Boxed(Box::new(state)),
        }
    }

    pub(super) fn mark_reserved(&mut self, now_us: u64) {
        let empty = std::mem::replace(self, Self::Empty);
        let mut state = empty.into_state();
        if let Some(state) = &mut state {
            state.mark_reserved(now_us);
        }
        *self = Self::new(state);
    }

    fn into_state(self) -> Option<State> {
        match self {
            Self::Empty => None,
            Self::Compact(compact) => StateRef::decode(&compact).into_state(),
            Self::Boxed(state) => Some(*state),
        }
    }

    fn from_compact(compact: [u64; 2]) -> Self {
        // No compact form is all zero, because no tag is.
        if compact == [0, 0] {
            Self::Empty
        } else {
            Self::Compact(compact)
        }
    }

    fn state(&self) -> StateRef<'_> {
        match self {
            Self::Empty => StateRef::Missing,
            Self::Compact(compact) => StateRef::decode(compact),
            Self::Boxed(state) => StateRef::Borrowed(state),
        }
    }

    pub(super) fn write(&self, into: &mut Blob) {
        self.state().write(into);
    }

    pub(super) fn read(from: &mut Reader) -> Result<Self, Error> {
        let bytes = from.bytes()?;
        if bytes.is_empty() {
            return Ok(Self::Empty);
        }
        // Checked before it is read: nested policies would exhaust the stack.
        if let Some(algorithm) = algorithm_of_blob(bytes) {
            check_allowed_in_policy(algorithm).map_err(|_| Error::DamagedState)?;
        }
        Ok(Self::new(Some(State::decode_blob(bytes)?)))
    }
}

/// A rule's state, decoded from its compact form or borrowed from where it is stored.
#[derive(Debug)]
pub(in crate::algorithm) enum StateRef<'s> {
    Missing,
    Decoded(State),
    Borrowed(&'s State),
}

impl StateRef<'_> {
    #[inline]
    fn decode(compact: &[u64; 2]) -> Self {
        match State::decode(compact) {
            Ok(state) => Self::Decoded(state),
            Err(_) => Self::Missing,
        }
    }

    pub(in crate::algorithm) fn as_ref(&self) -> Option<&State> {
        match self {
            Self::Missing => None,
            Self::Decoded(state) => Some(state),
            Self::Borrowed(state) => Some(state),
        }
    }

    /// A state of its own.
    pub(in crate::algorithm) fn into_state(self) -> Option<State> {
        match self {
            Self::Missing => None,
            Self::Decoded(state) => Some(state),
            Self::Borrowed(state) => Some(state.clone()),
        }
    }

    pub(super) fn is_log(&self) -> bool {
        self.as_ref()
            .is_some_and(|state| state.algorithm().is_boxed())
    }

    fn write(&self, into: &mut Blob) {
        let blob = self.as_ref().map(State::blob);
        write_bytes(into, blob.as_deref().unwrap_or_default());
    }
}

impl PolicyState {
    /// There is one form for the same rules, so that equal states are equal.
    pub(super) fn new(fixed_costs: &FixedCosts, rules: Vec<RuleState>) -> Self {
        let mut inline = [InlineCost::default(); INLINE_RULES];
        let mut compact = [[0; 2]; INLINE_RULES];
        let mut fits = rules.len() <= INLINE_RULES;
        for (index, (cost_to, to)) in inline.iter_mut().zip(&mut compact).enumerate() {
            match (InlineCost::new(fixed_costs.get(index)), rules.get(index)) {
                (None, _) | (_, Some(RuleState::Boxed(_))) => fits = false,
                (Some(cost), Some(RuleState::Compact(from))) => (*cost_to, *to) = (cost, *from),
                (Some(cost), _) => *cost_to = cost,
            }
        }
        if fits {
            return Self::Inline {
                count: rules.len() as u8,
                fixed_costs: inline,
                compact,
            };
        }
        let rules = rules.into_iter().enumerate();
        Self::Boxed {
            rules: rules
                .map(|(index, rule)| (fixed_costs.get(index), rule))
                .collect(),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Inline { count, .. } => usize::from(*count),
            Self::Boxed { rules, .. } => rules.len(),
        }
    }

    fn fixed_costs(&self) -> FixedCosts {
        (0..self.len())
            .map(|index| self.fixed_cost(index))
            .collect()
    }

    /// The cost that a rule fixes, if it does.
    #[inline]
    pub(super) fn fixed_cost(&self, index: usize) -> Option<u64> {
        match self {
            Self::Inline { fixed_costs, .. } => fixed_costs.get(index)?.get(),
            Self::Boxed { rules, .. } => rules.get(index)?.0,
        }
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> StateRef<'_> {
        match self {
            Self::Inline { compact, .. } => match compact.get(index) {
                Some(compact) if *compact != [0, 0] => StateRef::decode(compact),
                _ => StateRef::Missing,
            },
            Self::Boxed { rules, .. } => rules
                .get(index)
                .map_or(StateRef::Missing, |(_, rule)| rule.state()),
        }
    }

    pub(super) fn into_rules(self) -> Vec<RuleState> {
        match self {
            Self::Inline { count, compact, .. } => {
                let compact = compact[..usize::from(count)].iter();
                compact
                    .map(|&compact| RuleState::from_compact(compact))
                    .collect()
            }
            Self::Boxed { rules } => rules.into_iter().map(|(_, rule)| rule).collect(),
        }
    }

    pub(super) fn has_log(&self) -> bool {
        match self {
            Self::Inline { .. } => false,
            Self::Boxed { rules, .. } => rules.iter().any(|(_, rule)| match rule {
                RuleState::Boxed(state) => state.algorithm().is_boxed(),
                _ => false,
            }),
        }
    }

    /// Where the units of one rule are counted.
    pub(crate) fn origin_of(&self, index: usize) -> Option<Origin<'static>> {
        self.get(index).as_ref().and_then(State::origin)
    }

    /// What updates that refund units leave to be stored, if anything.
    fn refunded_by(&self, updates: Vec<RuleUpdate>) -> Option<PolicyUpdate> {
        let stays = |(index, update): (usize, &RuleUpdate)| match update {
            RuleUpdate::Keep => self.get(index).as_ref().is_some(),
            RuleUpdate::Clear => false,
            RuleUpdate::Replace(_) | RuleUpdate::Exact(_) => true,
        };
        let in_use = updates.iter().enumerate().any(stays);
        let update = PolicyUpdate::Rules {
            fixed_costs: self.fixed_costs(),
            updates,
        };
        // A small state is sent whole, as every other call sends it.
        let update = if self.has_log() {
            update
        } else {
            let mut left = self.clone();
            update.apply(&mut left);
            PolicyUpdate::Replace(left)
        };
        in_use.then_some(update)
    }

    /// Refunds units where each of the charges counts them: `refund` is called with the index of the charge and the state
    /// that counts it. Fails only if a rule cannot be part of a policy.
    pub(crate) fn refund_charges(
        &self,
        charges: &[Charge],
        mut refund: impl FnMut(usize, &State) -> Refund<'static>,
    ) -> Result<Option<PolicyUpdate>, Error> {
        let mut updates = vec![RuleUpdate::Keep; self.len()];
        let mut taken = vec![false; self.len()];
        for (number, charge) in charges.iter().enumerate() {
            let counts = |&index: &usize| {
                !taken[index]
                    && self.fixed_cost(index).is_some() == charge.has_fixed_cost()
                    && self
                        .get(index)
                        .as_ref()
                        .is_some_and(|state| charge.is_counted_by(state))
            };
            let own = Some(usize::from(charge.index)).filter(|own| *own < self.len());
            let found = match own {
                // It counts nothing any more. Another limit of the same kind must not refund what it did not charge.
                Some(own) if self.get(own).as_ref().is_none() => None,
                Some(own) if counts(&own) => Some(own),
                // A policy may have changed the order: the first of the same kind that no other charge has taken.
                _ => (0..self.len()).find(counts),
            };
            let Some(index) = found else {
                continue;
            };
            taken[index] = true;
            if let Some(state) = self.get(index).as_ref() {
                let refund = refund(number, state);
                updates[index] = match refund.update {
                    _ if refund.units == 0 => RuleUpdate::Keep,
                    Some(update) => RuleUpdate::new(update)?,
                    None => RuleUpdate::Clear,
                };
            }
        }
        Ok(self.refunded_by(updates))
    }

    pub(super) fn read_from(from: &mut Reader) -> Result<Self, Error> {
        let fixed_costs = FixedCosts::read(from)?;
        let rules = (0..fixed_costs.len()).map(|_| RuleState::read(from));
        Ok(Self::new(&fixed_costs, rules.collect::<Result<_, _>>()?))
    }
}

impl AlgorithmState for PolicyState {
    type Refunded = PolicyUpdate;

    fn span_us(&self) -> u64 {
        0
    }

    fn expire_at_ms(&self) -> u64 {
        let expiry = |index| self.get(index).as_ref().map(State::expire_at_ms);
        (0..self.len()).filter_map(expiry).max().unwrap_or(0)
    }

    fn inspect(&self, now_us: u64) -> Vec<StateField> {
        let limit = |index: usize| {
            let state = self.get(index);
            let (name, mut fields) = match state.as_ref() {
                Some(state) => (state.algorithm().name(), state.inspect(now_us)),
                None => ("", Vec::new()),
            };
            if let Some(cost) = self.fixed_cost(index) {
                fields.push(StateField::number("fixed_cost", cost));
            }
            (name, fields)
        };
        let limits = (0..self.len()).map(limit).collect();
        vec![StateField {
            name: "limits",
            value: FieldValue::Limits(limits),
        }]
    }

    /// Refunds units to the rules whose cost the call supplied, and calls to those that fix it. Returns the most that any of
    /// them refunded.
    fn refund(
        &self,
        now_us: u64,
        request: &RefundRequest,
    ) -> Result<(u64, Option<PolicyUpdate>), Error> {
        let mut refunded = 0;
        let mut updates = Vec::with_capacity(self.len());
        for index in 0..self.len() {
            let state = self.get(index);
            let request = match self.fixed_cost(index) {
                Some(cost) => request.of_fixed_cost(cost)?,
                None => *request,
            };
            updates.push(match state.as_ref() {
                Some(state) => {
                    let refund = state.refund(now_us, request)?;
                    refunded = refunded.max(refund.units);
                    match refund.update {
                        _ if refund.units == 0 => RuleUpdate::Keep,
                        Some(update) => RuleUpdate::new(update)?,
                        None => RuleUpdate::Clear,
                    }
                }
                None => RuleUpdate::Keep,
            });
        }
        Ok((refunded, self.refunded_by(updates)))
    }

    /// There are several limits: see [`PolicyState::refund_charges`].
    fn origin(&self) -> Option<Origin<'static>> {
        None
    }

    fn mark_reserved(&mut self, now_us: u64) {
        let empty = Self::new(&FixedCosts::default(), Vec::new());
        let fixed_costs = self.fixed_costs();
        let mut rules = std::mem::replace(self, empty).into_rules();
        rules.iter_mut().for_each(|rule| rule.mark_reserved(now_us));
        *self = Self::new(&fixed_costs, rules);
    }

    /// There are several limits: see [`PolicyState::refund_charges`].
    fn refund_charge(
        &self,
        _now_us: u64,
        _charge: &Charge,
        _units: u64,
    ) -> (u64, Option<PolicyUpdate>) {
        (0, None)
    }

    #[inline(always)]
    fn owns_memory(&self) -> bool {
        true
    }

    fn heap_bytes(&self) -> usize {
        let Self::Boxed { rules, .. } = self else {
            return 0;
        };
        let boxed = rules.iter().map(|(_, rule)| match rule {
            RuleState::Boxed(state) => size_of::<State>() + state.heap_bytes(),
            _ => 0,
        });
        size_of_val(&**rules) + boxed.sum::<usize>()
    }

    fn relocate<R: Relocate>(&mut self, walk: &mut Walk<R>) {
        let Self::Boxed { rules, .. } = self else {
            return;
        };
        walk.allocation(|by| by.slice(rules));
        for (_, rule) in rules {
            if let RuleState::Boxed(state) = rule {
                walk.allocation(|by| by.value(state));
                state.relocate_all(walk);
            }
        }
    }
}

impl BoxedState for PolicyState {
    fn is_empty(&self) -> bool {
        (0..self.len()).all(|index| self.get(index).as_ref().is_none())
    }

    fn allocations(&self) -> usize {
        let Self::Boxed { rules, .. } = self else {
            return 1;
        };
        let boxed = rules.iter().map(|(_, rule)| match rule {
            RuleState::Boxed(state) => 1 + state.allocations(),
            _ => 0,
        });
        2 + boxed.sum::<usize>()
    }

    fn write(&self, into: &mut Blob) {
        self.fixed_costs().write(into);
        for index in 0..self.len() {
            self.get(index).write(into);
        }
    }

    fn read(from: &[u8]) -> Result<Self, Error> {
        let mut from = Reader::new(from);
        let state = Self::read_from(&mut from)?;
        if state.is_empty() {
            return Err(Error::DamagedState);
        }
        from.finish(state)
    }
}

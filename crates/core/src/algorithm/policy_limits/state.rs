//! The states of all rules of a policy, under one key.

use super::{INLINE_RULES, MAX_RULES, PolicyUpdate, RuleUpdate, check_allowed_in_policy};
use crate::algorithm::traits::{AlgorithmState, BoxedState, BoxedUpdate};
use crate::encoding::{Blob, Reader, algorithm_of_blob, write_bytes, write_varint};
use crate::inspect::{FieldValue, StateField};
use crate::relocate::{Relocate, Walk};
use crate::{Error, State};

/// The states of all rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyState {
    /// Up to three states in compact form; all zero for a rule that has charged nothing.
    Inline {
        /// How many rules there are.
        count: u8,
        /// A bit for each rule that fixes the cost.
        fixed_costs: u16,
        /// The compact forms.
        compact: [[u64; 2]; INLINE_RULES],
    },
    /// All other combinations.
    Boxed {
        /// A bit for each rule that fixes the cost.
        fixed_costs: u16,
        /// The states, in the order of the rules.
        rules: Box<[RuleState]>,
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
    pub(super) fn new(fixed_costs: u16, rules: Vec<RuleState>) -> Self {
        let is_boxed = |rule: &RuleState| matches!(rule, RuleState::Boxed(_));
        if rules.len() > INLINE_RULES || rules.iter().any(is_boxed) {
            return Self::Boxed {
                fixed_costs,
                rules: rules.into(),
            };
        }
        let mut compact = [[0; 2]; INLINE_RULES];
        for (to, rule) in compact.iter_mut().zip(&rules) {
            if let RuleState::Compact(from) = rule {
                *to = *from;
            }
        }
        Self::Inline {
            count: rules.len() as u8,
            fixed_costs,
            compact,
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Inline { count, .. } => usize::from(*count),
            Self::Boxed { rules, .. } => rules.len(),
        }
    }

    pub(super) fn fixed_costs(&self) -> u16 {
        match self {
            Self::Inline { fixed_costs, .. } | Self::Boxed { fixed_costs, .. } => *fixed_costs,
        }
    }

    pub(super) fn has_fixed_cost(&self, index: usize) -> bool {
        self.fixed_costs() >> index & 1 == 1
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> StateRef<'_> {
        match self {
            Self::Inline { compact, .. } => match compact.get(index) {
                Some(compact) if *compact != [0, 0] => StateRef::decode(compact),
                _ => StateRef::Missing,
            },
            Self::Boxed { rules, .. } => {
                rules.get(index).map_or(StateRef::Missing, RuleState::state)
            }
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
            Self::Boxed { rules, .. } => rules.into_vec(),
        }
    }

    pub(super) fn has_log(&self) -> bool {
        match self {
            Self::Inline { .. } => false,
            Self::Boxed { rules, .. } => rules.iter().any(|rule| match rule {
                RuleState::Boxed(state) => state.algorithm().is_boxed(),
                _ => false,
            }),
        }
    }

    pub(super) fn read_from(from: &mut Reader) -> Result<Self, Error> {
        let (count, fixed_costs) = read_head(from)?;
        let rules = (0..count).map(|_| RuleState::read(from));
        Ok(Self::new(fixed_costs, rules.collect::<Result<_, _>>()?))
    }
}

/// How many rules there are, and which of them fix the cost.
pub(super) fn read_head(from: &mut Reader) -> Result<(usize, u16), Error> {
    let count = from.varint()?;
    let fixed_costs = from.varint()?;
    match u16::try_from(fixed_costs) {
        Ok(bits) if (1..=MAX_RULES as u64).contains(&count) && fixed_costs >> count == 0 => {
            Ok((count as usize, bits))
        }
        _ => Err(Error::DamagedState),
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
            let fixed_cost = u64::from(self.has_fixed_cost(index));
            fields.push(StateField::number("has_fixed_cost", fixed_cost));
            (name, fields)
        };
        let limits = (0..self.len()).map(limit).collect();
        vec![StateField {
            name: "limits",
            value: FieldValue::Limits(limits),
        }]
    }

    /// Refunds to the rules whose cost the call supplied, and returns the most that any of them refunded.
    fn refund(&self, now_us: u64, units: u64) -> Result<(u64, Option<PolicyUpdate>), Error> {
        let mut refunded = 0;
        let mut updates = Vec::with_capacity(self.len());
        for index in 0..self.len() {
            let state = self.get(index);
            updates.push(match state.as_ref() {
                Some(state) if !self.has_fixed_cost(index) => {
                    let refund = state.refund(now_us, units)?;
                    refunded = refunded.max(refund.units);
                    match refund.update {
                        _ if refund.units == 0 => RuleUpdate::Keep,
                        Some(update) => RuleUpdate::new(update)?,
                        None => RuleUpdate::Clear,
                    }
                }
                _ => RuleUpdate::Keep,
            });
        }
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
        Ok((refunded, in_use.then_some(update)))
    }

    #[inline(always)]
    fn owns_memory(&self) -> bool {
        true
    }

    fn heap_bytes(&self) -> usize {
        let Self::Boxed { rules, .. } = self else {
            return 0;
        };
        let boxed = rules.iter().map(|rule| match rule {
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
        for rule in rules {
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
        let boxed = rules.iter().map(|rule| match rule {
            RuleState::Boxed(state) => 1 + state.allocations(),
            _ => 0,
        });
        2 + boxed.sum::<usize>()
    }

    fn write(&self, into: &mut Blob) {
        write_varint(into, self.len() as u64);
        write_varint(into, self.fixed_costs().into());
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

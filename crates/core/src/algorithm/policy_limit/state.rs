//! The states of all limits of a policy, under one key.

use super::{INLINE_MEMBERS, MAX_RULES, MemberUpdate, PolicyUpdate, check_member};
use crate::algorithm::traits::{AlgorithmState, BoxedState, BoxedUpdate};
use crate::encoding::{Blob, Reader, algorithm_of_blob, write_bytes, write_varint};
use crate::inspect::{FieldValue, StateField};
use crate::relocate::{Relocate, Walk};
use crate::{Error, State};

/// The states of all members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyState {
    /// Up to three members in compact form; one without a state is all zero.
    Inline {
        /// How many members there are.
        count: u8,
        /// A bit for each member whose limit fixes the cost.
        fixed_costs: u16,
        /// The compact forms.
        compact: [[u64; 2]; INLINE_MEMBERS],
    },
    /// All other combinations.
    Boxed {
        /// A bit for each member whose limit fixes the cost.
        fixed_costs: u16,
        /// The states.
        members: Box<[MemberState]>,
    },
}

/// The state of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Nothing has been charged.
    Empty,
    /// The compact form.
    Compact([u64; 2]),
    /// A larger state.
    Boxed(Box<State>),
}

impl MemberState {
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
            check_member(algorithm).map_err(|_| Error::DamagedState)?;
        }
        Ok(Self::new(Some(State::decode_blob(bytes)?)))
    }
}

/// A member's state, decoded from its compact form or borrowed from where it is stored.
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
    /// The one form that these members have, so that equal states are equal.
    pub(super) fn new(fixed_costs: u16, members: Vec<MemberState>) -> Self {
        let is_boxed = |member: &MemberState| matches!(member, MemberState::Boxed(_));
        if members.len() > INLINE_MEMBERS || members.iter().any(is_boxed) {
            return Self::Boxed {
                fixed_costs,
                members: members.into(),
            };
        }
        let mut compact = [[0; 2]; INLINE_MEMBERS];
        for (to, member) in compact.iter_mut().zip(&members) {
            if let MemberState::Compact(from) = member {
                *to = *from;
            }
        }
        Self::Inline {
            count: members.len() as u8,
            fixed_costs,
            compact,
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Inline { count, .. } => usize::from(*count),
            Self::Boxed { members, .. } => members.len(),
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
            Self::Boxed { members, .. } => members
                .get(index)
                .map_or(StateRef::Missing, MemberState::state),
        }
    }

    pub(super) fn into_members(self) -> Vec<MemberState> {
        match self {
            Self::Inline { count, compact, .. } => {
                let compact = compact[..usize::from(count)].iter();
                compact
                    .map(|&compact| MemberState::from_compact(compact))
                    .collect()
            }
            Self::Boxed { members, .. } => members.into_vec(),
        }
    }

    pub(super) fn has_log(&self) -> bool {
        match self {
            Self::Inline { .. } => false,
            Self::Boxed { members, .. } => members.iter().any(|member| match member {
                MemberState::Boxed(state) => state.algorithm().is_boxed(),
                _ => false,
            }),
        }
    }

    pub(super) fn read_from(from: &mut Reader) -> Result<Self, Error> {
        let (count, fixed_costs) = read_head(from)?;
        let members = (0..count).map(|_| MemberState::read(from));
        Ok(Self::new(fixed_costs, members.collect::<Result<_, _>>()?))
    }
}

/// How many members there are, and which of them have a fixed cost.
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
        let member = |index: usize| {
            let state = self.get(index);
            let (name, mut fields) = match state.as_ref() {
                Some(state) => (state.algorithm().name(), state.inspect(now_us)),
                None => ("", Vec::new()),
            };
            let fixed_cost = u64::from(self.has_fixed_cost(index));
            fields.push(StateField::number("has_fixed_cost", fixed_cost));
            (name, fields)
        };
        let members = (0..self.len()).map(member).collect();
        vec![StateField {
            name: "limits",
            value: FieldValue::Limits(members),
        }]
    }

    /// Refunds to the members whose cost the call supplied, and returns the most that any of them refunded.
    fn refund(&self, now_us: u64, units: u64) -> Result<(u64, Option<PolicyUpdate>), Error> {
        let mut refunded = 0;
        let mut members = Vec::with_capacity(self.len());
        for index in 0..self.len() {
            let state = self.get(index);
            members.push(match state.as_ref() {
                Some(state) if !self.has_fixed_cost(index) => {
                    let refund = state.refund(now_us, units)?;
                    refunded = refunded.max(refund.units);
                    match refund.update {
                        _ if refund.units == 0 => MemberUpdate::Keep,
                        Some(update) => MemberUpdate::new(update)?,
                        None => MemberUpdate::Clear,
                    }
                }
                _ => MemberUpdate::Keep,
            });
        }
        let stays = |(index, update): (usize, &MemberUpdate)| match update {
            MemberUpdate::Keep => self.get(index).as_ref().is_some(),
            MemberUpdate::Clear => false,
            MemberUpdate::Replace(_) | MemberUpdate::Exact(_) => true,
        };
        let in_use = members.iter().enumerate().any(stays);
        let update = PolicyUpdate::Members {
            fixed_costs: self.fixed_costs(),
            members,
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
        let Self::Boxed { members, .. } = self else {
            return 0;
        };
        let boxed = members.iter().map(|member| match member {
            MemberState::Boxed(state) => size_of::<State>() + state.heap_bytes(),
            _ => 0,
        });
        size_of_val(&**members) + boxed.sum::<usize>()
    }

    fn relocate<R: Relocate>(&mut self, walk: &mut Walk<R>) {
        let Self::Boxed { members, .. } = self else {
            return;
        };
        walk.allocation(|by| by.slice(members));
        for member in members {
            if let MemberState::Boxed(state) = member {
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
        let Self::Boxed { members, .. } = self else {
            return 1;
        };
        let boxed = members.iter().map(|member| match member {
            MemberState::Boxed(state) => 1 + state.allocations(),
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

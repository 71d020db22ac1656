//! The costs that the rules of a policy fix, as they are stored with the states: a refund has to know them.

use smallvec::SmallVec;

use super::{INLINE_RULES, MAX_RULES, Rule};
use crate::encoding::{Blob, Reader, write_varint};
use crate::{Error, MAX_COUNT};

/// The fixed cost of each rule; `None` if the call supplies it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FixedCosts(SmallVec<[Option<u64>; INLINE_RULES]>);

impl FixedCosts {
    pub(super) fn of(rules: &[Rule]) -> Self {
        Self(rules.iter().map(|rule| rule.cost).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, index: usize) -> Option<u64> {
        self.0.get(index).copied().flatten()
    }

    /// Writes how many rules there are, a bit for each that fixes its cost, and those costs.
    pub(super) fn write(&self, into: &mut Blob) {
        let bit = |(index, cost): (usize, &Option<u64>)| u64::from(cost.is_some()) << index;
        write_varint(into, self.0.len() as u64);
        write_varint(into, self.0.iter().enumerate().map(bit).sum());
        for cost in self.0.iter().flatten() {
            write_varint(into, *cost);
        }
    }

    pub(super) fn read(from: &mut Reader) -> Result<Self, Error> {
        let count = from.varint()?;
        let bits = from.varint()?;
        if !(1..=MAX_RULES as u64).contains(&count) || bits >> count != 0 {
            return Err(Error::DamagedState);
        }
        let cost = |index| match bits >> index & 1 {
            0 => Ok(None),
            _ => match from.varint()? {
                cost @ 0..=MAX_COUNT => Ok(Some(cost)),
                _ => Err(Error::DamagedState),
            },
        };
        (0..count).map(cost).collect::<Result<_, _>>().map(Self)
    }
}

impl FromIterator<Option<u64>> for FixedCosts {
    fn from_iter<I: IntoIterator<Item = Option<u64>>>(costs: I) -> Self {
        Self(costs.into_iter().collect())
    }
}

/// A fixed cost in the two bytes for which the inline form has room: 0 if there is none, otherwise one more than the cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InlineCost(u16);

impl InlineCost {
    /// `None` if the cost is too large.
    pub(super) fn new(cost: Option<u64>) -> Option<Self> {
        match cost {
            None => Some(Self(0)),
            Some(cost) => u16::try_from(cost.checked_add(1)?).ok().map(Self),
        }
    }

    #[inline]
    pub(super) fn get(self) -> Option<u64> {
        self.0.checked_sub(1).map(u64::from)
    }
}

//! Settling one key: what to charge in addition, and what to refund.

use smallvec::{SmallVec, smallvec};

use super::{Charge, Origin, ReservedKey};
use crate::{Error, Limit, Refund, State, Update};

/// What took place, out of what was reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActualUsage {
    /// How many calls were reserved.
    pub times: u64,
    /// How many of them took place.
    pub calls: u64,
    /// The units that they used in total.
    pub units: u64,
}

/// Units to charge now, as FORCE does, because more were used than reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtraCharge {
    /// The number of units.
    pub units: u64,
    /// For how many calls the fixed costs of a policy are charged: none, unless the reservation charged nothing at all.
    pub times: u64,
}

/// What settling a key changes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Settlement<'a> {
    /// Units that stay charged: the most of any limit.
    pub charged: u64,
    /// Units that are refunded: the most of any limit.
    pub refunded: u64,
    /// What happens to the key.
    pub change: KeyChange<'a>,
}

/// What happens to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange<'a> {
    /// It stays as it is.
    Keep,
    /// Its state changes.
    Update(Update<'a>),
    /// Nothing is in use any more.
    Delete,
}

impl<'a> KeyChange<'a> {
    fn of(is_changed: bool, update: Option<Update<'a>>) -> Self {
        match update {
            _ if !is_changed => Self::Keep,
            Some(update) => Self::Update(update),
            None => Self::Delete,
        }
    }
}

impl<'a> ReservedKey<'a> {
    /// The units that have to be charged before the key is settled.
    #[must_use]
    pub fn extra_charge(&self, actual: ActualUsage) -> Option<ExtraCharge> {
        let reserved = self.reserved?;
        let is_lease = |charge: &Charge| matches!(charge.origin, Origin::Lease { .. });
        // A lease is settled by setting its units.
        if actual.units <= reserved || self.charges.iter().any(is_lease) {
            return None;
        }
        Some(ExtraCharge {
            units: actual.units - reserved,
            times: match reserved {
                0 => actual.calls,
                _ => 0,
            },
        })
    }

    /// Settles the key, given the state that it has after its [`ExtraCharge`]. If that could not be charged,
    /// `actual.units` must not be more than was reserved; if nothing was reserved, it must be what was charged now.
    pub fn settle(
        &self,
        state: Option<&State>,
        now_us: u64,
        actual: ActualUsage,
    ) -> Result<Settlement<'a>, Error> {
        if let [charge] = &*self.charges
            && let Origin::Lease { .. } = charge.origin
        {
            return Ok(charge.settle_lease(state, now_us, actual));
        }
        let mut refunded: SmallVec<[u64; 1]> = smallvec![0; self.charges.len()];
        let mut refund = |index: usize, state: &State| {
            let refund = self.charges[index].refund(state, now_us, actual);
            refunded[index] = refund.units;
            refund
        };
        let update = match state {
            None => None,
            Some(State::Policy(states)) => {
                let update = states.refund_charges(&self.charges, refund)?;
                update.map(Update::Policy)
            }
            Some(state) => {
                let ours = |charge: &Charge| !charge.has_fixed_cost && charge.is_counted_by(state);
                let index = self.charges.iter().position(ours);
                index.and_then(|index| refund(index, state).update)
            }
        };
        let charges = self.charges.iter().zip(&refunded);
        let charged = charges.map(|(charge, refunded)| charge.charged_after(*refunded, actual));
        let charged = match self.reserved {
            Some(0) => Some(actual.units),
            _ => charged.max(),
        };
        let refunded = refunded.iter().copied().max().unwrap_or(0);
        Ok(Settlement {
            charged: charged.unwrap_or(0),
            refunded,
            change: KeyChange::of(refunded > 0, update),
        })
    }
}

impl Limit<'_> {
    /// The units that a call of `cost` charges: the most of any rule, if it is a policy.
    #[must_use]
    pub fn highest_charge(&self, cost: u64) -> u64 {
        match self {
            Self::Policy(policy) => {
                let costs = policy.rules().iter().map(|rule| policy.cost_of(rule, cost));
                costs.max().unwrap_or(0)
            }
            _ => cost,
        }
    }
}

impl<'a> Charge<'a> {
    /// What the limit is charged in the end.
    fn target(&self, actual: ActualUsage) -> u64 {
        match self.has_fixed_cost {
            // The units are a multiple of `times`.
            true => self.units / actual.times.max(1) * actual.calls,
            false => actual.units,
        }
    }

    fn refund(&self, state: &State, now_us: u64, actual: ActualUsage) -> Refund<'static> {
        let unused = self.units.saturating_sub(self.target(actual));
        match unused {
            0 => Refund {
                units: 0,
                update: None,
            },
            unused => state.refund_charge(now_us, self, unused),
        }
    }

    /// The units that stay charged: what could not be refunded, or what was charged in addition.
    fn charged_after(&self, refunded: u64, actual: ActualUsage) -> u64 {
        (self.units - refunded).max(self.target(actual))
    }

    /// Sets the units of a lease; it keeps its end.
    fn settle_lease(
        &self,
        state: Option<&State>,
        now_us: u64,
        actual: ActualUsage,
    ) -> Settlement<'a> {
        let units = actual.units;
        let set = match (state, self.origin) {
            (Some(State::Lease(leases)), Origin::Lease { expires_us, holder })
                if units != self.units =>
            {
                leases.set_lease(now_us, expires_us, holder, units)
            }
            _ => None,
        };
        match set {
            Some((had, update)) => Settlement {
                charged: units,
                refunded: had.saturating_sub(units),
                change: KeyChange::of(true, update.map(Update::Lease)),
            },
            // It was released, renewed or has ended: nothing of it is left to change.
            None => Settlement {
                charged: self.units,
                refunded: 0,
                change: KeyChange::Keep,
            },
        }
    }
}

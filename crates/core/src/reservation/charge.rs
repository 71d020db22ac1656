//! What a call charged to one limit, and where those units are counted.

use smallvec::SmallVec;

use crate::{Limit, SlideState, State, Update};

/// The units that a call charged to one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge<'a> {
    pub(crate) units: u64,
    /// Which of a policy's limits was charged; 0 if there is only one.
    pub(crate) index: u8,
    /// Whether a policy fixes the cost of this limit: settling then depends on the number of calls.
    pub(super) has_fixed_cost: bool,
    pub(crate) origin: Origin<'a>,
}

/// The charges of one key: one, or one per limit of a policy.
pub type Charges<'a> = SmallVec<[Charge<'a>; 1]>;

/// Where charged units are counted. It identifies them in a later state: if the window, the sub-window or the entry is
/// gone, or has changed, nothing of them is left to refund.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin<'a> {
    Fixed(ChargedWindow),
    Slide(ChargedWindow),
    SubWindow {
        window: ChargedWindow,
        precision: u8,
    },
    Exact {
        at_us: u64,
        window_us: u64,
    },
    Bucket(ChargedDebt),
    Leak(ChargedDebt),
    Lease {
        expires_us: u64,
        holder: &'a [u8],
    },
}

/// A window or sub-window in which units were charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChargedWindow {
    pub(crate) start_us: u64,
    pub(crate) end_us: u64,
    /// The window of the limit, which is longer than a sub-window.
    pub(crate) span_us: u64,
    /// Identifies the key's state: see [`State::mark_reserved`]. 0 where the start does.
    pub(crate) reserved_since_us: u64,
}

/// The debt of a bucket right after units were charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChargedDebt {
    pub(crate) at_us: u64,
    pub(crate) period_us: u64,
    pub(crate) refill: u64,
    /// Identifies the key's state: see [`State::mark_reserved`].
    pub(crate) reserved_since_us: u64,
    /// The number of the last of these units: see `bucket/mark.rs`.
    pub(crate) charged_until: u64,
    /// In parts of a token, `1 / period_us` each.
    pub(crate) debt: u128,
}

impl<'a> Charge<'a> {
    /// The charges of a call of `cost`, from the state that it left. Nothing is charged where the cost is 0.
    #[must_use]
    pub fn of_call(limit: &Limit<'a>, state: &State, cost: u64) -> Charges<'a> {
        let mut charges = Charges::new();
        match (limit, state) {
            (Limit::Policy(policy), State::Policy(states)) => {
                for (index, rule) in policy.rules().iter().enumerate() {
                    let origin = states.origin_of(index);
                    let charge = Self::new(policy.cost_of(rule, cost), origin);
                    charges.extend(charge.map(|charge| Self {
                        index: index as u8,
                        has_fixed_cost: rule.cost.is_some(),
                        ..charge
                    }));
                }
            }
            (Limit::Lease(lease), State::Lease(state)) => {
                let origin = state.origin_of(lease.holder());
                charges.extend(Self::new(cost, origin));
            }
            (_, state) => charges.extend(Self::new(cost, state.origin())),
        }
        charges
    }

    fn new(units: u64, origin: Option<Origin<'a>>) -> Option<Self> {
        let origin = origin.filter(|_| units > 0)?;
        Some(Self {
            units,
            index: 0,
            has_fixed_cost: false,
            origin,
        })
    }

    /// Until when the units count as charged now if they are spent later: 0 if they cannot be spent later, `None` if there
    /// is no bound.
    pub(super) fn spend_until_us(&self) -> Option<u64> {
        match self.origin {
            Origin::Fixed(window) | Origin::Slide(window) | Origin::SubWindow { window, .. } => {
                Some(window.end_us)
            }
            Origin::Exact { .. } => Some(0),
            Origin::Bucket(_) | Origin::Leak(_) | Origin::Lease { .. } => None,
        }
    }

    pub(crate) fn has_fixed_cost(&self) -> bool {
        self.has_fixed_cost
    }

    /// Whether a state is of the algorithm and the window under which the units were charged.
    pub(crate) fn is_counted_by(&self, state: &State) -> bool {
        match (self.origin, state) {
            (Origin::Fixed(window), State::Fixed(_))
            | (Origin::Slide(window), State::Slide(SlideState::TwoWindows(_)))
            | (Origin::SubWindow { window, .. }, State::Slide(SlideState::SubWindows(_))) => {
                window.span_us == state.span_us()
            }
            (Origin::Exact { window_us, .. }, State::Exact(_)) => window_us == state.span_us(),
            (Origin::Bucket(debt), State::Bucket(_)) | (Origin::Leak(debt), State::Leak(_)) => {
                debt.period_us == state.span_us()
            }
            _ => false,
        }
    }
}

impl Update<'_> {
    /// Marks what is stored as having units of a reservation made at `now_us`. Without it, nothing could tell the key from
    /// one that was deleted and created again, where the windows of all keys start at the same time (FIXED) or there are
    /// none (BUCKET, LEAK), and settling would refund the units of other callers.
    pub fn mark_reserved(&mut self, now_us: u64) {
        match self {
            Self::Replace(state) => state.mark_reserved(now_us),
            Self::Policy(update) => update.mark_reserved(now_us),
            Self::Exact(_) | Self::Lease(_) => {}
        }
    }
}

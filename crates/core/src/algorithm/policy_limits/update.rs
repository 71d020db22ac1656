//! What a call changes in the states of a policy's rules.

use super::{FixedCosts, PolicyState, RuleState};
use crate::algorithm::ExactUpdate;
use crate::algorithm::traits::{AlgorithmState, BoxedState, BoxedUpdate};
use crate::encoding::{Blob, Reader, write_bytes, write_varint};
use crate::{Error, State, Update};

/// What a call leaves to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyUpdate {
    /// All states are replaced.
    Replace(PolicyState),
    /// An update for each rule, where one of them has a log.
    Rules {
        /// The costs that the rules fix.
        fixed_costs: FixedCosts,
        /// The updates, in the order of the rules.
        updates: Vec<RuleUpdate>,
    },
}

/// What happens to the state of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleUpdate {
    /// It stays as it is.
    Keep,
    /// It counts nothing any more.
    Clear,
    /// It is replaced.
    Replace(RuleState),
    /// Its log changes.
    Exact(ExactUpdate),
}

/// The first number of an update's bytes.
const REPLACE: u64 = 0;
const RULES: u64 = 1;

/// The first number of the bytes of a rule's update.
const RULE_KEEP: u64 = 0;
const RULE_CLEAR: u64 = 1;
const RULE_REPLACE: u64 = 2;
const RULE_EXACT: u64 = 3;

impl BoxedUpdate<'_> for PolicyUpdate {
    type State = PolicyState;

    fn apply(self, state: &mut PolicyState) {
        match self {
            Self::Replace(new) => *state = new,
            Self::Rules {
                fixed_costs,
                updates,
            } if updates.len() == state.len() => {
                let empty = PolicyState::new(&FixedCosts::default(), Vec::new());
                let mut rules = std::mem::replace(state, empty).into_rules();
                for (rule, update) in rules.iter_mut().zip(updates) {
                    update.apply(rule);
                }
                *state = PolicyState::new(&fixed_costs, rules);
            }
            // A forged update, of another state.
            Self::Rules { .. } => {}
        }
    }

    fn into_initial(self) -> Option<PolicyState> {
        let state = match self {
            Self::Replace(state) => state,
            Self::Rules {
                fixed_costs,
                updates,
            } => {
                let mut rules = vec![RuleState::Empty; updates.len()];
                for (rule, update) in rules.iter_mut().zip(updates) {
                    update.apply(rule);
                }
                PolicyState::new(&fixed_costs, rules)
            }
        };
        (!state.is_empty()).then_some(state)
    }

    fn write(&self, into: &mut Blob) {
        match self {
            Self::Replace(state) => {
                write_varint(into, REPLACE);
                state.write(into);
            }
            Self::Rules {
                fixed_costs,
                updates,
            } => {
                write_varint(into, RULES);
                fixed_costs.write(into);
                updates.iter().for_each(|update| update.write(into));
            }
        }
    }

    fn read(from: &[u8]) -> Result<Self, Error> {
        let mut from = Reader::new(from);
        let update = match from.varint()? {
            REPLACE => Self::Replace(PolicyState::read_from(&mut from)?),
            RULES => {
                let fixed_costs = FixedCosts::read(&mut from)?;
                let updates = (0..fixed_costs.len()).map(|_| RuleUpdate::read(&mut from));
                Self::Rules {
                    fixed_costs,
                    updates: updates.collect::<Result<_, _>>()?,
                }
            }
            _ => return Err(Error::DamagedState),
        };
        from.finish(update)
    }
}

impl PolicyUpdate {
    /// Marks the states that the update stores: see [`crate::Update::mark_reserved`].
    pub(crate) fn mark_reserved(&mut self, now_us: u64) {
        match self {
            Self::Replace(state) => state.mark_reserved(now_us),
            Self::Rules { updates, .. } => {
                for update in updates {
                    if let RuleUpdate::Replace(rule) = update {
                        rule.mark_reserved(now_us);
                    }
                }
            }
        }
    }
}

impl RuleUpdate {
    pub(super) fn new(update: Update) -> Result<Self, Error> {
        match update {
            Update::Replace(state) => Ok(Self::Replace(RuleState::new(Some(state)))),
            Update::Exact(update) => Ok(Self::Exact(update)),
            // No policy contains one.
            Update::Lease(_) | Update::Policy(_) => Err(Error::Internal),
        }
    }

    fn apply(self, rule: &mut RuleState) {
        match self {
            Self::Keep => {}
            Self::Clear => *rule = RuleState::Empty,
            Self::Replace(state) => *rule = state,
            Self::Exact(update) => {
                if let RuleState::Boxed(state) = rule
                    && let State::Exact(log) = &mut **state
                {
                    update.apply(log);
                    if log.is_empty() {
                        *rule = RuleState::Empty;
                    }
                } else if let Some(log) = update.into_initial() {
                    *rule = RuleState::new(Some(State::Exact(log)));
                }
            }
        }
    }

    fn write(&self, into: &mut Blob) {
        match self {
            Self::Keep => write_varint(into, RULE_KEEP),
            Self::Clear => write_varint(into, RULE_CLEAR),
            Self::Replace(rule) => {
                write_varint(into, RULE_REPLACE);
                rule.write(into);
            }
            Self::Exact(update) => {
                write_varint(into, RULE_EXACT);
                let mut bytes = Blob::new();
                update.write(&mut bytes);
                write_bytes(into, &bytes);
            }
        }
    }

    fn read(from: &mut Reader) -> Result<Self, Error> {
        Ok(match from.varint()? {
            RULE_KEEP => Self::Keep,
            RULE_CLEAR => Self::Clear,
            RULE_REPLACE => Self::Replace(RuleState::read(from)?),
            RULE_EXACT => Self::Exact(ExactUpdate::read(from.bytes()?)?),
            _ => return Err(Error::DamagedState),
        })
    }
}

//! What a call changes in the states of a policy's limits.

use super::state::read_head;
use super::{MemberState, PolicyState};
use crate::algorithm::ExactUpdate;
use crate::algorithm::traits::{BoxedState, BoxedUpdate};
use crate::encoding::{Blob, Reader, write_bytes, write_varint};
use crate::{Error, State, Update};

/// What a call leaves to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyUpdate {
    /// All members are replaced.
    Replace(PolicyState),
    /// An update for each member, where one of them has a log.
    Members {
        /// A bit for each member whose limit fixes the cost.
        fixed_costs: u16,
        /// In the order of the members.
        members: Vec<MemberUpdate>,
    },
}

/// What happens to one member.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemberUpdate {
    /// It stays as it is.
    Keep,
    /// It counts nothing any more.
    Clear,
    /// It is replaced.
    Replace(MemberState),
    /// Its log changes.
    Exact(ExactUpdate),
}

/// The first number of an update's bytes.
const REPLACE: u64 = 0;
const MEMBERS: u64 = 1;

/// The first number of a member's bytes.
const MEMBER_KEEP: u64 = 0;
const MEMBER_CLEAR: u64 = 1;
const MEMBER_REPLACE: u64 = 2;
const MEMBER_EXACT: u64 = 3;

impl BoxedUpdate<'_> for PolicyUpdate {
    type State = PolicyState;

    fn apply(self, state: &mut PolicyState) {
        match self {
            Self::Replace(new) => *state = new,
            Self::Members {
                fixed_costs,
                members: updates,
            } if updates.len() == state.len() => {
                let empty = PolicyState::new(0, Vec::new());
                let mut members = std::mem::replace(state, empty).into_members();
                for (member, update) in members.iter_mut().zip(updates) {
                    update.apply(member);
                }
                *state = PolicyState::new(fixed_costs, members);
            }
            // A forged update, of another state.
            Self::Members { .. } => {}
        }
    }

    fn into_initial(self) -> Option<PolicyState> {
        let state = match self {
            Self::Replace(state) => state,
            Self::Members {
                fixed_costs,
                members: updates,
            } => {
                let mut members = vec![MemberState::Empty; updates.len()];
                for (member, update) in members.iter_mut().zip(updates) {
                    update.apply(member);
                }
                PolicyState::new(fixed_costs, members)
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
            Self::Members {
                fixed_costs,
                members,
            } => {
                write_varint(into, MEMBERS);
                write_varint(into, members.len() as u64);
                write_varint(into, (*fixed_costs).into());
                members.iter().for_each(|member| member.write(into));
            }
        }
    }

    fn read(from: &[u8]) -> Result<Self, Error> {
        let mut from = Reader::new(from);
        let update = match from.varint()? {
            REPLACE => Self::Replace(PolicyState::read_from(&mut from)?),
            MEMBERS => {
                let (count, fixed_costs) = read_head(&mut from)?;
                let members = (0..count).map(|_| MemberUpdate::read(&mut from));
                Self::Members {
                    fixed_costs,
                    members: members.collect::<Result<_, _>>()?,
                }
            }
            _ => return Err(Error::DamagedState),
        };
        from.finish(update)
    }
}

impl MemberUpdate {
    pub(super) fn new(update: Update) -> Result<Self, Error> {
        match update {
            Update::Replace(state) => Ok(Self::Replace(MemberState::new(Some(state)))),
            Update::Exact(update) => Ok(Self::Exact(update)),
            // No policy contains one.
            Update::Lease(_) | Update::Policy(_) => Err(Error::Internal),
        }
    }

    fn apply(self, member: &mut MemberState) {
        match self {
            Self::Keep => {}
            Self::Clear => *member = MemberState::Empty,
            Self::Replace(state) => *member = state,
            Self::Exact(update) => {
                if let MemberState::Boxed(state) = member
                    && let State::Exact(log) = &mut **state
                {
                    update.apply(log);
                    if log.is_empty() {
                        *member = MemberState::Empty;
                    }
                } else if let Some(log) = update.into_initial() {
                    *member = MemberState::new(Some(State::Exact(log)));
                }
            }
        }
    }

    fn write(&self, into: &mut Blob) {
        match self {
            Self::Keep => write_varint(into, MEMBER_KEEP),
            Self::Clear => write_varint(into, MEMBER_CLEAR),
            Self::Replace(member) => {
                write_varint(into, MEMBER_REPLACE);
                member.write(into);
            }
            Self::Exact(update) => {
                write_varint(into, MEMBER_EXACT);
                let mut bytes = Blob::new();
                update.write(&mut bytes);
                write_bytes(into, &bytes);
            }
        }
    }

    fn read(from: &mut Reader) -> Result<Self, Error> {
        Ok(match from.varint()? {
            MEMBER_KEEP => Self::Keep,
            MEMBER_CLEAR => Self::Clear,
            MEMBER_REPLACE => Self::Replace(MemberState::read(from)?),
            MEMBER_EXACT => Self::Exact(ExactUpdate::read(from.bytes()?)?),
            _ => return Err(Error::DamagedState),
        })
    }
}

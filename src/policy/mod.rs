//! Policies and overrides in the server: the registry of policies, the limits that apply to a key, saving and loading,
//! and overrides in slots that are moving to another node.

mod effective;
pub(crate) mod persistence;
pub(crate) mod registry;
pub(crate) mod slot_migration;

pub(crate) use effective::EffectivePolicy;

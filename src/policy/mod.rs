//! Policies and overrides in the server: the registry, what applies to a key, how policies are saved and loaded, and
//! overrides in slots that move.

mod effective;
pub(crate) mod persistence;
pub(crate) mod registry;
pub(crate) mod slot_migration;

pub(crate) use effective::EffectivePolicy;

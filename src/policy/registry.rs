//! The policies of this server, by name. They are parsed when they are set, so a check needs only one lookup.
//!
//! A change replaces one pointer, so that no call ever sees half of it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rl_core::Error;
use rl_core::policy::{self, MAX_POLICIES, Policy};
use rl_core::stats::Counters;

use super::persistence::{self, Phase};
use crate::error::{CommandError, no_such_policy};
use crate::server::{Context, MainThread};

pub(crate) struct NamedPolicy {
    pub(crate) name: Box<str>,
    pub(crate) definition: Policy,
    /// Kept when the policy changes.
    pub(crate) counters: Rc<Counters>,
}

pub(super) type PolicySet = HashMap<Box<[u8]>, Rc<NamedPolicy>, BuildHasherDefault<NameHasher>>;

pub(super) struct Registry {
    /// What checks find.
    policies: PolicySet,
    /// How far the load of a dataset has come.
    pub(super) phase: Phase,
    /// The policies that the module was started with, for a server whose data has none.
    pub(super) initial: Vec<(Box<str>, Policy)>,
}

static REGISTRY: MainThread<Registry> = MainThread::new(Registry {
    policies: empty(),
    phase: Phase::Serving,
    initial: Vec::new(),
});

/// The number of policies, for INFO, which may be written while the server crashes.
static COUNT: AtomicUsize = AtomicUsize::new(0);

pub(super) const fn empty() -> PolicySet {
    HashMap::with_hasher(BuildHasherDefault::new())
}

/// Names are chosen by the administrator: the hash has to be fast, not proof against attacks.
#[derive(Default)]
pub(super) struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let mixed = (self.0 ^ u64::from_le_bytes(word)).wrapping_mul(PRIME);
            self.0 = mixed ^ (mixed >> 29);
        }
    }

    fn write_usize(&mut self, len: usize) {
        self.0 ^= len as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Reads or changes the registry. `body` must not call the server.
#[inline(always)]
pub(super) fn with<R>(ctx: &Context, body: impl FnOnce(&mut Registry) -> R) -> Result<R, Error> {
    REGISTRY.with(ctx, body).ok_or(Error::Internal)
}

#[inline]
pub(crate) fn find(ctx: &Context, name: &[u8]) -> Result<Rc<NamedPolicy>, CommandError> {
    with(ctx, |registry| registry.policies.get(name).cloned())?.ok_or_else(|| no_such_policy(name))
}

pub(crate) fn count() -> usize {
    COUNT.load(Relaxed)
}

pub(crate) fn insert(ctx: &Context, name: &str, policy: Policy) -> Result<(), Error> {
    let now_us = ctx.now_us();
    with(ctx, |registry| {
        registry.phase.on_policies();
        let policies = &mut registry.policies;
        let previous = policies.get(name.as_bytes());
        if policies.len() >= MAX_POLICIES && previous.is_none() {
            return Err(Error::TooManyPolicies);
        }
        let named = NamedPolicy::new(name.into(), policy, previous, now_us);
        policies.insert(name.as_bytes().into(), Rc::new(named));
        COUNT.store(policies.len(), Relaxed);
        Ok(())
    })?
}

impl NamedPolicy {
    fn new(name: Box<str>, definition: Policy, previous: Option<&Rc<Self>>, now_us: u64) -> Self {
        let counters = match previous {
            Some(previous) => previous.counters.clone(),
            None => Rc::new(Counters::new(now_us)),
        };
        Self {
            name,
            definition,
            counters,
        }
    }
}

pub(crate) fn remove(ctx: &Context, name: &[u8]) -> Result<bool, Error> {
    with(ctx, |registry| {
        registry.phase.on_policies();
        let removed = registry.policies.remove(name).is_some();
        COUNT.store(registry.policies.len(), Relaxed);
        removed
    })
}

/// All policies whose names begin with `prefix`, sorted.
pub(crate) fn list(ctx: &Context, prefix: &[u8]) -> Vec<Rc<NamedPolicy>> {
    let list = with(ctx, |registry| {
        let all = registry.policies.values();
        let named = all.filter(|policy| policy.name.as_bytes().starts_with(prefix));
        named.cloned().collect()
    });
    let mut list: Vec<_> = list.unwrap_or_default();
    list.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    list
}

pub(crate) fn dump(ctx: &Context) -> String {
    let all = list(ctx, b"");
    policy::to_json(all.iter().map(|named| (&*named.name, &named.definition)))
}

/// Replaces all policies or, if there is an error, none. Returns how many there are now.
pub(crate) fn load(ctx: &Context, json: &[u8]) -> Result<usize, String> {
    let policies = policy::from_json(json).map_err(|error| error.to_string())?;
    replace(ctx, policies).map_err(|error| error.to_string())?;
    // Replicas receive the command that led here.
    persistence::on_set_replicated();
    Ok(count())
}

pub(super) fn replace(ctx: &Context, policies: Vec<(Box<str>, Policy)>) -> Result<(), Error> {
    let now_us = ctx.now_us();
    with(ctx, |registry| {
        registry.phase.on_policies();
        let set = registry.build(policies, now_us);
        registry.serve(set);
    })
}

impl Registry {
    /// Builds a set to serve. Policies that keep their names keep their counters.
    pub(super) fn build(&self, policies: Vec<(Box<str>, Policy)>, now_us: u64) -> PolicySet {
        let mut set = empty();
        for (name, policy) in policies {
            let key: Box<[u8]> = name.as_bytes().into();
            let previous = self.policies.get(&key).or_else(|| match &self.phase {
                Phase::Loading { previous, .. } => previous.get(&key),
                _ => None,
            });
            let named = NamedPolicy::new(name, policy, previous, now_us);
            set.insert(key, Rc::new(named));
        }
        set
    }

    /// Serves another set from now on; returns the previous one.
    pub(super) fn serve(&mut self, set: PolicySet) -> PolicySet {
        COUNT.store(set.len(), Relaxed);
        mem::replace(&mut self.policies, set)
    }
}

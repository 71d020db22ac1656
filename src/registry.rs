//! The policies of this server, by name. Parsed once when they are set; a check finds one by one lookup.
//!
//! A change replaces one pointer, so that no call ever sees half of it. The set is saved with the RDB; a
//! rewritten AOF that has no RDB inside receives it as a command (see [`on_fork`]).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use rl_core::policy::{self, MAX_POLICIES, Policy};
use rl_core::{Error, Tally};

use crate::redis::{Context, Loading, MainThread, catch_up_soon};

/// A policy and its name.
pub(crate) struct Named {
    pub(crate) name: Box<str>,
    pub(crate) policy: Policy,
    /// Goes on when the policy changes.
    pub(crate) tally: Rc<Tally>,
}

type Set = HashMap<Box<[u8]>, Rc<Named>, BuildHasherDefault<NameHasher>>;

struct Registry {
    set: Set,
    /// What there was before the load under way, which may fail.
    before: Set,
    /// What a replica loads while it still answers from what it had.
    loading: Option<Set>,
    /// Whether such a load is under way.
    aside: bool,
    /// What the module was started with, for a server whose data says nothing of policies.
    initial: Vec<(Box<str>, Policy)>,
    /// Whether the data of the load under way has said anything, if only that there are none.
    spoken: bool,
}

static REGISTRY: MainThread<Registry> = MainThread::new(Registry {
    set: empty(),
    before: empty(),
    loading: None,
    aside: false,
    initial: Vec::new(),
    spoken: false,
});

/// For INFO, which may be written while the server crashes.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether the module was started with policies: then also that there are none is worth saving.
static HAS_INITIAL: AtomicBool = AtomicBool::new(false);

/// The set has to be written to the AOF as soon as that is possible.
static UNTOLD: AtomicBool = AtomicBool::new(false);

const fn empty() -> Set {
    HashMap::with_hasher(BuildHasherDefault::new())
}

/// Names are chosen by the administrator: a hash need not be proof against malice, only fast.
#[derive(Default)]
struct NameHasher(u64);

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

/// A look at the registry, or a change. `body` must not call the server.
#[inline(always)]
fn with<R>(ctx: &Context, body: impl FnOnce(&mut Registry) -> R) -> Result<R, Error> {
    REGISTRY.with(ctx, body).ok_or(Error::Internal)
}

#[inline]
pub(crate) fn find(ctx: &Context, name: &[u8]) -> Result<Rc<Named>, Error> {
    with(ctx, |registry| registry.set.get(name).cloned())?.ok_or(Error::NoSuchPolicy)
}

/// Whether data that says nothing of policies would be loaded as something else than there is.
pub(crate) fn is_worth_saving() -> bool {
    count() > 0 || HAS_INITIAL.load(Relaxed)
}

pub(crate) fn count() -> usize {
    COUNT.load(Relaxed)
}

pub(crate) fn set(ctx: &Context, name: &str, policy: Policy) -> Result<(), Error> {
    let now_us = ctx.now_us();
    with(ctx, |registry| {
        registry.spoken = true;
        let set = &mut registry.set;
        let known = set.get(name.as_bytes());
        if set.len() >= MAX_POLICIES && known.is_none() {
            return Err(Error::TooManyPolicies);
        }
        let named = Named::new(name.into(), policy, known, now_us);
        set.insert(name.as_bytes().into(), Rc::new(named));
        COUNT.store(set.len(), Relaxed);
        Ok(())
    })?
}

impl Named {
    fn new(name: Box<str>, policy: Policy, known: Option<&Rc<Self>>, now_us: u64) -> Self {
        let tally = match known {
            Some(known) => known.tally.clone(),
            None => Rc::new(Tally::new(now_us)),
        };
        Self {
            name,
            policy,
            tally,
        }
    }
}

pub(crate) fn remove(ctx: &Context, name: &[u8]) -> Result<bool, Error> {
    with(ctx, |registry| {
        registry.spoken = true;
        let removed = registry.set.remove(name).is_some();
        COUNT.store(registry.set.len(), Relaxed);
        removed
    })
}

/// All policies whose names begin with `prefix`, sorted.
pub(crate) fn list(ctx: &Context, prefix: &[u8]) -> Vec<Rc<Named>> {
    let list = with(ctx, |registry| {
        let all = registry.set.values();
        let named = all.filter(|named| named.name.as_bytes().starts_with(prefix));
        named.cloned().collect()
    });
    let mut list: Vec<_> = list.unwrap_or_default();
    list.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    list
}

pub(crate) fn dump(ctx: &Context) -> String {
    let all = list(ctx, b"");
    policy::to_json(all.iter().map(|named| (&*named.name, &named.policy)))
}

/// Replaces the whole set, or nothing. Answers how many policies there are now.
pub(crate) fn load(ctx: &Context, json: &[u8]) -> Result<usize, String> {
    let policies = policy::from_json(json)?;
    replace(ctx, policies).map_err(|error| error.to_string())?;
    Ok(count())
}

fn replace(ctx: &Context, policies: Vec<(Box<str>, Policy)>) -> Result<(), Error> {
    let now_us = ctx.now_us();
    with(ctx, |registry| {
        registry.spoken = true;
        let mut set = empty();
        for (name, policy) in policies {
            let key: Box<[u8]> = name.as_bytes().into();
            let known = registry.set.get(&key).or(registry.before.get(&key));
            let named = Named::new(name, policy, known, now_us);
            set.insert(key, Rc::new(named));
        }
        if registry.aside {
            registry.loading = Some(set);
        } else {
            COUNT.store(set.len(), Relaxed);
            registry.set = set;
        }
    })
}

/// The policies of the file that the module was started with.
pub(crate) fn start_with(ctx: &Context, json: &[u8]) -> Result<(), String> {
    let policies = policy::from_json(json)?;
    HAS_INITIAL.store(true, Relaxed);
    let kept = with(ctx, |registry| registry.initial = policies.clone());
    kept.and_then(|()| replace(ctx, policies))
        .map_err(|error| error.to_string())?;
    UNTOLD.store(true, Relaxed);
    Ok(())
}

/// The set comes and goes with the dataset: what is loaded replaces what was there.
pub(crate) fn on_loading(ctx: &Context, event: Loading) -> Result<(), Error> {
    match event {
        Loading::Begins => {
            UNTOLD.store(false, Relaxed);
            with(ctx, |registry| {
                registry.spoken = false;
                if !registry.aside {
                    registry.before = mem::replace(&mut registry.set, empty());
                    COUNT.store(0, Relaxed);
                }
            })
        }
        Loading::Ends { own } => {
            let initial = with(ctx, |registry| {
                registry.before = empty();
                let lacks = own && !registry.spoken;
                lacks.then(|| registry.initial.clone())
            })?;
            match initial {
                Some(initial) if !initial.is_empty() => {
                    UNTOLD.store(true, Relaxed);
                    replace(ctx, initial)
                }
                _ => Ok(()),
            }
        }
        Loading::Fails => with(ctx, |registry| {
            if registry.aside {
                return;
            }
            registry.set = mem::replace(&mut registry.before, empty());
            COUNT.store(registry.set.len(), Relaxed);
        }),
        Loading::AsideBegins => with(ctx, |registry| {
            registry.aside = true;
            registry.loading = Some(empty());
        }),
        Loading::AsideFails => with(ctx, |registry| {
            registry.aside = false;
            registry.loading = None;
        }),
        Loading::AsideEnds => with(ctx, |registry| {
            registry.aside = false;
            if let Some(set) = registry.loading.take() {
                COUNT.store(set.len(), Relaxed);
                registry.set = set;
            }
        }),
    }
}

/// An AOF that is rewritten begins without policies, unless it begins with an RDB. What is sent later comes
/// after its beginning; a replica that receives it as well has the same set already.
pub(crate) fn on_fork(ctx: &Context) {
    if ctx.is_rewriting_aof() {
        UNTOLD.store(true, Relaxed);
        // Not within BGREWRITEAOF itself, which would be taken for a change and replicated. A timer is
        // due before the server can find that the child has finished.
        catch_up_soon(ctx);
    }
}

/// Writes the set to the AOF, if it has to be and as soon as the server can take it.
pub(crate) fn tell(ctx: &Context) {
    if UNTOLD.load(Relaxed) && !ctx.is_loading() && !ctx.avoids_replication() {
        UNTOLD.store(false, Relaxed);
        if is_worth_saving() && ctx.has_aof() {
            ctx.replicate_policies(&dump(ctx));
        }
    }
}

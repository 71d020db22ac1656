//! Policies belong to the dataset: they are part of every snapshot, of an RDB and of an AOF that is rewritten without
//! one (see `server/policy_snapshot.rs`). What is loaded replaces what was there.
//!
//! A set that was loaded from a file is sent to replicas afterwards ([`replicate_loaded_set`]), because no command that
//! they receive has set it.

use std::fs::File;
use std::io::Read;
use std::mem;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rl_core::Error;
use rl_core::policy::{self, MAX_JSON_LEN};

use super::registry::{self, PolicySet, Registry, empty, with};
use crate::server::{Context, Loading};

pub(super) enum Phase {
    Serving,
    /// A dataset is being loaded in place of the current one, and may fail.
    Loading {
        previous: PolicySet,
        /// From the server's own files, not a primary's copy.
        own_files: bool,
        /// Whether the data contained anything about policies, if only that there are none.
        has_policies: bool,
    },
    /// A replica loads a copy while it still serves what it has.
    LoadingAsync {
        loaded: PolicySet,
    },
}

impl Phase {
    /// The data that is being loaded contains something about policies.
    pub(super) fn on_policies(&mut self) {
        if let Self::Loading { has_policies, .. } = self {
            *has_policies = true;
        }
    }
}

/// Whether the module was started with policies. If so, snapshots have to record even that there are none.
static HAS_INITIAL: AtomicBool = AtomicBool::new(false);

/// The set was loaded from a file: replicas and the AOF may not have it.
static MUST_REPLICATE: AtomicBool = AtomicBool::new(false);

/// Whether a snapshot has to record the policies: without a record, those that the module was started with would apply.
pub(crate) fn must_save() -> bool {
    registry::count() > 0 || HAS_INITIAL.load(Relaxed)
}

pub(super) fn on_set_replicated() {
    MUST_REPLICATE.store(false, Relaxed);
}

/// The policies of the file that the module is started with.
pub(crate) fn load_initial(ctx: &Context, file: &Path) -> Result<(), String> {
    let mut json = Vec::new();
    let limit = MAX_JSON_LEN as u64 + 1;
    let read = File::open(file).and_then(|file| file.take(limit).read_to_end(&mut json));
    if read.map_err(|error| error.to_string())? > MAX_JSON_LEN {
        return Err("is longer than 16777216 bytes".to_owned());
    }
    let policies = policy::from_json(&json).map_err(|error| error.to_string())?;
    HAS_INITIAL.store(true, Relaxed);
    let kept = with(ctx, |registry| registry.initial = policies.clone());
    kept.and_then(|()| registry::replace(ctx, policies))
        .map_err(|error| error.to_string())?;
    MUST_REPLICATE.store(true, Relaxed);
    Ok(())
}

/// The policies of a snapshot that is being loaded.
pub(crate) fn load_snapshot(ctx: &Context, json: &[u8]) -> Result<(), String> {
    let policies = policy::from_json(json).map_err(|error| error.to_string())?;
    let now_us = ctx.now_us();
    let loaded = with(ctx, |registry| {
        registry.phase.on_policies();
        let set = registry.build(policies, now_us);
        match &mut registry.phase {
            Phase::LoadingAsync { loaded } => *loaded = set,
            _ => {
                registry.serve(set);
            }
        }
    });
    loaded.map_err(|error| error.to_string())
}

pub(crate) fn on_loading(ctx: &Context, event: Loading) -> Result<(), Error> {
    let now_us = ctx.now_us();
    with(ctx, |registry| registry.on_loading(event, now_us))
}

impl Registry {
    fn on_loading(&mut self, event: Loading, now_us: u64) {
        let phase = mem::replace(&mut self.phase, Phase::Serving);
        self.phase = match (event, phase) {
            (Loading::AsyncStarted, _) => Phase::LoadingAsync { loaded: empty() },
            (Loading::AsyncFinished, Phase::LoadingAsync { loaded }) => {
                self.serve(loaded);
                MUST_REPLICATE.store(false, Relaxed);
                Phase::Serving
            }
            (Loading::AsyncFailed, _) => Phase::Serving,
            // The server reports an asynchronous load as a load, too.
            (_, phase @ Phase::LoadingAsync { .. }) => phase,
            // A load may start before the server reports the end of another one. The set that was served before both is
            // kept.
            (Loading::Started { own_files }, Phase::Loading { previous, .. }) => {
                self.serve(empty());
                Phase::Loading {
                    previous,
                    own_files,
                    has_policies: false,
                }
            }
            (Loading::Started { own_files }, _) => Phase::Loading {
                previous: self.serve(empty()),
                own_files,
                has_policies: false,
            },
            (
                Loading::Finished,
                Phase::Loading {
                    previous,
                    own_files,
                    has_policies,
                },
            ) => {
                if own_files && !has_policies {
                    // The counters of the previous set are kept.
                    self.phase = Phase::Loading {
                        previous,
                        own_files,
                        has_policies,
                    };
                    let initial = self.build(self.initial.clone(), now_us);
                    self.serve(initial);
                }
                // A primary's copy is what the replicas of this server receive as well.
                MUST_REPLICATE.store(own_files, Relaxed);
                Phase::Serving
            }
            (Loading::Failed, Phase::Loading { previous, .. }) => {
                self.serve(previous);
                Phase::Serving
            }
            (_, phase) => phase,
        };
    }
}

/// Sends a set that was loaded from a file to the replicas and the AOF, as soon as the server may send anything. A
/// replica that resumes after its primary's restart receives nothing else of what the primary's files contain.
pub(crate) fn replicate_loaded_set(ctx: &Context) {
    if !MUST_REPLICATE.load(Relaxed) || ctx.is_loading() || ctx.avoids_replication() {
        return;
    }
    // A replica's data is its primary's. Once promoted, it has to send the set to its own replicas.
    if !ctx.is_primary() {
        return;
    }
    MUST_REPLICATE.store(false, Relaxed);
    if must_save() && ctx.receivers().is_some() {
        ctx.replicate_policies(&registry::dump(ctx));
    }
}

//! Events of the server, and work that has to wait until a command is over.

use std::ffi::{c_int, c_void};

use redis_module::raw::*;

use super::{Context, Handlers, api, catch_panic, policy_snapshot};

/// Events without which the module cannot know who receives its writes.
const REQUIRED: [u64; 6] = [
    REDISMODULE_EVENT_FORK_CHILD,
    REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
    REDISMODULE_EVENT_MASTER_LINK_CHANGE,
    REDISMODULE_EVENT_REPLICA_CHANGE,
    REDISMODULE_EVENT_LOADING,
    REDISMODULE_EVENT_CRON_LOOP,
];

/// Events that some servers lack, or that should not change who receives writes.
const OPTIONAL: [u64; 6] = [
    // From 7.0 on; before, replicas do not load a dataset while they serve the old one.
    REDISMODULE_EVENT_REPL_ASYNC_LOAD,
    // From 7.0 on.
    REDISMODULE_EVENT_CONFIG,
    REDISMODULE_EVENT_PERSISTENCE,
    REDISMODULE_EVENT_FLUSHDB,
    REDISMODULE_EVENT_SWAPDB,
    REDISMODULE_EVENT_MODULE_CHANGE,
];

/// A dataset is loaded in place of the current one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loading {
    Started {
        /// Whether it is loaded from the server's own files, and not from a primary's copy.
        own_files: bool,
    },
    Finished,
    /// The dataset was not loaded, and the previous one may have been kept.
    Failed,
    /// A replica loads a copy while it serves what it has.
    AsyncStarted,
    AsyncFinished,
    AsyncFailed,
}

impl Loading {
    fn of(event: u64, sub_event: u64) -> Self {
        match (event, sub_event) {
            (REDISMODULE_EVENT_LOADING, REDISMODULE_SUBEVENT_LOADING_ENDED) => Self::Finished,
            (REDISMODULE_EVENT_LOADING, REDISMODULE_SUBEVENT_LOADING_FAILED) => Self::Failed,
            (REDISMODULE_EVENT_LOADING, start) => Self::Started {
                own_files: start != REDISMODULE_SUBEVENT_LOADING_REPL_START,
            },
            (_, REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_STARTED) => Self::AsyncStarted,
            (_, REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_COMPLETED) => Self::AsyncFinished,
            _ => Self::AsyncFailed,
        }
    }
}

/// Subscribes to every event; `false` if the server lacks one that is required.
pub(crate) fn subscribe<H: Handlers>(ctx: &Context) -> bool {
    let follow = |&id: &u64| {
        let event = RedisModuleEvent { id, dataver: 1 };
        // SAFETY: the context is valid and the handler lives as long as the module.
        unsafe {
            api!(RedisModule_SubscribeToServerEvent)(ctx.raw, event, Some(handle::<H>))
                == REDISMODULE_OK as c_int
        }
    };
    let _ = OPTIONAL.iter().filter(|id| follow(id)).count();
    REQUIRED.iter().filter(|id| follow(id)).count() == REQUIRED.len()
}

unsafe extern "C" fn handle<H: Handlers>(
    ctx: *mut RedisModuleCtx,
    event: RedisModuleEvent,
    sub_event: u64,
    _data: *mut c_void,
) {
    catch_panic((), || {
        // SAFETY: the server passes a valid context.
        let ctx = unsafe { Context::new(ctx) };
        match (event.id, sub_event) {
            (REDISMODULE_EVENT_CRON_LOOP, _) => H::on_cron(&ctx),
            (REDISMODULE_EVENT_LOADING | REDISMODULE_EVENT_REPL_ASYNC_LOAD, _) => {
                H::on_loading(&ctx, Loading::of(event.id, sub_event));
            }
            (REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, _) => H::on_role_change(),
            (REDISMODULE_EVENT_PERSISTENCE, REDISMODULE_SUBEVENT_PERSISTENCE_AOF_START)
                if ctx.is_child() =>
            {
                policy_snapshot::add_marker::<H>(&ctx);
            }
            _ => H::on_event(),
        }
    });
}

/// Makes the server call [`Handlers::run_deferred`] as soon as the current command or event is over.
pub(crate) fn schedule_deferred<H: Handlers>(ctx: &Context) {
    // SAFETY: the context is valid; the handler lives as long as the module, and needs no data.
    unsafe { api!(RedisModule_CreateTimer)(ctx.raw, 0, Some(on_timer::<H>), std::ptr::null_mut()) };
}

unsafe extern "C" fn on_timer<H: Handlers>(ctx: *mut RedisModuleCtx, _data: *mut c_void) {
    catch_panic((), || {
        // SAFETY: the server passes a valid context.
        H::run_deferred(&unsafe { Context::new(ctx) });
    });
}

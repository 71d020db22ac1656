//! What happens to the server that decides who receives our writes.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis_module::raw::*;

use super::{Context, api, shield};
use crate::eyes::stream;
use crate::registry;

/// Server events that the module follows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A child process is about to take a snapshot: for a replica, an AOF or a save.
    Fork,
    /// The server was made a primary or a replica.
    Role,
    /// The link to the primary came up or went down.
    PrimaryLink,
    /// A replica came or went.
    Replica,
    /// The server's regular housekeeping.
    Cron,
}

impl Event {
    const ALL: [Self; 5] = [
        Self::Fork,
        Self::Role,
        Self::PrimaryLink,
        Self::Replica,
        Self::Cron,
    ];

    fn id(self) -> u64 {
        match self {
            Self::Fork => REDISMODULE_EVENT_FORK_CHILD,
            Self::Role => REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
            Self::PrimaryLink => REDISMODULE_EVENT_MASTER_LINK_CHANGE,
            Self::Replica => REDISMODULE_EVENT_REPLICA_CHANGE,
            Self::Cron => REDISMODULE_EVENT_CRON_LOOP,
        }
    }
}

/// What becomes of the dataset, and of the policies with it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loading {
    /// A dataset is about to replace what there is.
    Begins,
    /// It has: the server's own files, or a primary's copy.
    Ends {
        own: bool,
    },
    /// It has not, and what there was may have been kept.
    Fails,
    /// A replica is about to load a copy while it answers from what it has.
    AsideBegins,
    AsideFails,
    AsideEnds,
}

/// Whether the load under way is of the server's own files.
static OWN_DATA: AtomicBool = AtomicBool::new(false);

impl Loading {
    fn of(event: u64, sub_event: u64) -> Self {
        match (event, sub_event) {
            (REDISMODULE_EVENT_LOADING, REDISMODULE_SUBEVENT_LOADING_ENDED) => Self::Ends {
                own: OWN_DATA.load(Relaxed),
            },
            (REDISMODULE_EVENT_LOADING, REDISMODULE_SUBEVENT_LOADING_FAILED) => Self::Fails,
            (REDISMODULE_EVENT_LOADING, start) => {
                OWN_DATA.store(start != REDISMODULE_SUBEVENT_LOADING_REPL_START, Relaxed);
                Self::Begins
            }
            (_, REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_STARTED) => Self::AsideBegins,
            (_, REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_COMPLETED) => Self::AsideEnds,
            _ => Self::AsideFails,
        }
    }
}

/// Follows every load with [`registry::on_loading`].
pub(crate) fn subscribe_to_loading(ctx: &Context) -> bool {
    let follow = |id| subscribe_to(ctx, id, on_loading);
    // Servers before 7.0 do not load aside, and have no such event.
    follow(REDISMODULE_EVENT_REPL_ASYNC_LOAD);
    follow(REDISMODULE_EVENT_LOADING)
}

unsafe extern "C" fn on_loading(
    ctx: *mut RedisModuleCtx,
    event: RedisModuleEvent,
    sub_event: u64,
    _data: *mut c_void,
) {
    shield((), || {
        // SAFETY: the server passes a valid context.
        let ctx = unsafe { Context::new(ctx) };
        let followed = registry::on_loading(&ctx, Loading::of(event.id, sub_event));
        debug_assert!(followed.is_ok(), "nothing looks at the registry meanwhile");
    });
}

type Handler = unsafe extern "C" fn(*mut RedisModuleCtx, RedisModuleEvent, u64, *mut c_void);

fn subscribe_to(ctx: &Context, id: u64, handler: Handler) -> bool {
    let event = RedisModuleEvent { id, dataver: 1 };
    // SAFETY: the context is valid and the handler lives as long as the module.
    unsafe {
        api!(RedisModule_SubscribeToServerEvent)(ctx.raw, event, Some(handler))
            == REDISMODULE_OK as c_int
    }
}

/// Has what waits sent as soon as the command or event at hand is over.
pub(crate) fn catch_up_soon(ctx: &Context) {
    // SAFETY: the context is valid; the handler lives as long as the module, and needs no data.
    unsafe { api!(RedisModule_CreateTimer)(ctx.raw, 0, Some(on_timer), std::ptr::null_mut()) };
}

unsafe extern "C" fn on_timer(ctx: *mut RedisModuleCtx, _data: *mut c_void) {
    shield((), || {
        // SAFETY: the server passes a valid context.
        catch_up(&unsafe { Context::new(ctx) });
    });
}

/// Sends what cannot be sent from within a command.
fn catch_up(ctx: &Context) {
    registry::tell(ctx);
    stream::add_waiting(ctx);
}

/// Follows every event with [`crate::replicate::on_event`]; `false` if the server cannot tell of all.
pub(crate) fn subscribe(ctx: &Context) -> bool {
    let mut all = Event::ALL.into_iter();
    all.all(|event| subscribe_to(ctx, event.id(), handle))
}

unsafe extern "C" fn handle(
    ctx: *mut RedisModuleCtx,
    event: RedisModuleEvent,
    sub_event: u64,
    _data: *mut c_void,
) {
    shield((), || {
        // SAFETY: the server passes a valid context.
        let ctx = unsafe { Context::new(ctx) };
        if let Some(event) = Event::ALL.into_iter().find(|known| known.id() == event.id) {
            crate::replicate::on_event(&ctx, event);
            match event {
                Event::Fork if sub_event == REDISMODULE_SUBEVENT_FORK_CHILD_BORN => {
                    registry::on_fork(&ctx);
                }
                Event::Cron => catch_up(&ctx),
                _ => {}
            }
        }
    });
}

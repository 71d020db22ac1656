//! What happens to the server that decides who receives our writes.

use std::ffi::{c_int, c_void};

use redis_module::raw::*;

use super::{Context, api, shield};

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

/// Follows every event with [`crate::replicate::on_event`]; `false` if the server cannot tell of all.
pub(crate) fn subscribe(ctx: &Context) -> bool {
    Event::ALL.into_iter().all(|event| {
        let event = RedisModuleEvent {
            id: event.id(),
            dataver: 1,
        };
        // SAFETY: the context is valid and the handler lives as long as the module.
        unsafe {
            api!(RedisModule_SubscribeToServerEvent)(ctx.raw, event, Some(handle))
                == REDISMODULE_OK as c_int
        }
    })
}

unsafe extern "C" fn handle(
    ctx: *mut RedisModuleCtx,
    event: RedisModuleEvent,
    _sub_event: u64,
    _data: *mut c_void,
) {
    shield((), || {
        // SAFETY: the server passes a valid context.
        let ctx = unsafe { Context::new(ctx) };
        if let Some(event) = Event::ALL.into_iter().find(|known| known.id() == event.id) {
            crate::replicate::on_event(&ctx, event);
        }
    });
}

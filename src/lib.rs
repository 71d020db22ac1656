//! Rate limits as native commands of Redis and Valkey.
//!
//! | command | what it does | where |
//! |---|---|---|
//! | `RL.SLIDE key limit window [cost]` | sliding-window counter | `commands/slide.rs` |
//! | `RL.BUCKET key capacity refill period [cost]` | token bucket | `commands/bucket.rs` |
//! | `RL.FIXED key limit window [cost]` | fixed window, aligned to the epoch | `commands/fixed.rs` |
//! | `RL.EXACT key limit window [cost]` | exact sliding window | `commands/exact.rs` |
//! | `RL.LEAK key capacity rate period [cost]` | leaky bucket as a queue | `commands/leak.rs` |
//! | `RL.LEASE key limit ttl holder [cost]` | what may be held at once | `commands/lease.rs` |
//! | `RL.MULTI key spec [key spec …]` | several limits, all or nothing | `commands/multi.rs` |
//! | `RL.PEEK key spec` | read-only, also on replicas | `commands/peek.rs` |
//! | `RL.REFUND key cost` | gives back | `commands/refund.rs` |
//! | `RL.RELEASE key holder` | lets go of a lease | `commands/release.rs` |
//! | `RL.INSPECT key` | what a key holds, for a person | `commands/inspect.rs` |
//! | `RL.STATS` | what was allowed, denied, forced, refunded | `commands/stats.rs` |
//! | `RL.TOP [COUNT n] [BY checks\|denials]` | the hottest keys | `commands/top.rs` |
//! | `RL.AUDIT GET [count] \| LEN \| RESET` | the latest denials | `commands/audit.rs` |
//! | `CL.THROTTLE key max_burst count period [quantity]` | redis-cell's, if asked for | `commands/throttle.rs` |
//! | `RL.LOAD key expire-at-ms blob` | internal: replication and AOF | `commands/load.rs` |
//!
//! A request enters at `redis/command.rs`, is parsed in its file under `commands/`, takes the one path in
//! `check.rs`, is decided by the crate `rl-core`, stored by `redis/key.rs` in the forms of
//! `redis/words.rs` and `redis/live.rs`, reaches replicas by `replicate.rs`, is noticed by `eyes/`, and is
//! answered by `reply.rs`. Module arguments are read in `arguments.rs`, CONFIG by `redis/config.rs`.

mod arguments;
mod check;
mod commands;
mod eyes;
mod failure;
mod give_back;
mod info;
#[allow(unsafe_code)]
mod redis;
mod replicate;
mod reply;
mod settings;

use std::ffi::CStr;

use redis_module::{Context as LoadContext, RedisString, Status, redis_module};
use rl_core::Error;

use arguments::Arguments;
use commands::{
    audit::Audit, bucket::Bucket, exact::Exact, fixed::Fixed, inspect::Inspect, leak::Leak,
    lease::Lease, load::Load, multi::Multi, peek::Peek, refund::Refund, release::Release,
    slide::Slide, stats::Stats, throttle::Throttle, top::Top,
};
use redis::{Context, add_acl_category, create_types, register, register_info, register_settings};

/// As in Cargo.toml, for the server and its clients.
const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };

fn load(ctx: &Context, arguments: &Arguments) -> Result<(), Error> {
    ctx.set_options();
    create_types(ctx)?;
    add_acl_category(ctx)?;
    register::<Slide>(ctx)?;
    register::<Bucket>(ctx)?;
    register::<Fixed>(ctx)?;
    register::<Exact>(ctx)?;
    register::<Leak>(ctx)?;
    register::<Lease>(ctx)?;
    register::<Multi>(ctx)?;
    register::<Peek>(ctx)?;
    register::<Refund>(ctx)?;
    register::<Release>(ctx)?;
    register::<Inspect>(ctx)?;
    register::<Load>(ctx)?;
    register::<Stats>(ctx)?;
    register::<Top>(ctx)?;
    register::<Audit>(ctx)?;
    if arguments.throttle_compat {
        register::<Throttle>(ctx)?;
    }
    eyes::init(ctx, arguments.settings.clone());
    register_settings(ctx, &arguments.settings)?;
    register_info(ctx);
    replicate::init(ctx);
    Ok(())
}

fn init(ctx: &LoadContext, args: &[RedisString]) -> Status {
    let arguments = match Arguments::parse(args) {
        Ok(arguments) => arguments,
        Err(problem) => {
            ctx.log_warning(&problem);
            return Status::Err;
        }
    };
    match load(&Context::from_load(ctx), &arguments) {
        Ok(()) => Status::Ok,
        Err(_) => {
            ctx.log_warning("rl could not be registered: is another module using its names?");
            Status::Err
        }
    }
}

redis_module! {
    name: "rl",
    // 0.1.0, as MODULE LIST shows versions: major · 10000 + minor · 100 + patch.
    version: 100,
    allocator: (redis_module::alloc::RedisAlloc, redis_module::alloc::RedisAlloc),
    data_types: [],
    init: init,
}

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
//! | `RL.CHECK key policy [cost]` | the limits that go by a name | `commands/check.rs` |
//! | `RL.POLICY SET \| GET \| DEL \| LIST \| DUMP \| LOAD` | limits by name | `commands/policy.rs` |
//! | `RL.OVERRIDE SET \| GET \| DEL` | one key's own, for a time | `commands/overrides.rs` |
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
//! `check.rs` (by way of `registry.rs` and `overrides.rs` if it names a policy), is decided by the crate
//! `rl-core`, stored by `redis/key.rs` in the forms of `redis/words.rs` and `redis/live.rs`, reaches replicas by `replicate.rs`, is noticed by `eyes/`, and is
//! answered by `reply.rs`. Module arguments are read in `arguments.rs`, CONFIG by `redis/config.rs`.

mod arguments;
mod check;
mod commands;
mod eyes;
mod failure;
mod give_back;
mod info;
mod overrides;
#[allow(unsafe_code)]
mod redis;
mod registry;
mod replicate;
mod reply;
mod settings;

use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use redis_module::{Context as LoadContext, RedisString, Status, redis_module};
use rl_core::Error;
use rl_core::policy::MAX_JSON;

use arguments::Arguments;
use commands::{
    audit::Audit, bucket::Bucket, check::Check, exact::Exact, fixed::Fixed, inspect::Inspect,
    leak::Leak, lease::Lease, load::Load, multi::Multi, overrides::Override, peek::Peek,
    policy::PolicySet, refund::Refund, release::Release, slide::Slide, stats::Stats,
    throttle::Throttle, top::Top,
};
use redis::{
    Context, add_acl_category, create_types, register, register_info, register_settings,
    subscribe_to_loading,
};

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
    register::<Check>(ctx)?;
    register::<PolicySet>(ctx)?;
    register::<Override>(ctx)?;
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
    if !subscribe_to_loading(ctx) {
        ctx.log_warning(
            c"rl: this server does not tell of loads: policies are not replaced by them",
        );
    }
    Ok(())
}

fn start_with(ctx: &Context, file: &Path) -> Result<(), String> {
    let mut json = Vec::new();
    let most = MAX_JSON as u64 + 1;
    let read = File::open(file).and_then(|file| file.take(most).read_to_end(&mut json));
    match read {
        Ok(len) if len > MAX_JSON => Err("is longer than 16777216 bytes".to_owned()),
        Ok(_) => registry::start_with(ctx, &json),
        Err(error) => Err(error.to_string()),
    }
}

fn init(ctx: &LoadContext, args: &[RedisString]) -> Status {
    let arguments = match Arguments::parse(args) {
        Ok(arguments) => arguments,
        Err(problem) => {
            ctx.log_warning(&problem);
            return Status::Err;
        }
    };
    let context = Context::from_load(ctx);
    if let Some(file) = &arguments.policies
        && let Err(why) = start_with(&context, file)
    {
        ctx.log_warning(&format!("rl: policies {}: {why}", file.display()));
        return Status::Err;
    }
    match load(&context, &arguments) {
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

//! Rate limits as native commands of Redis and Valkey.
//!
//! | command | what it does | where |
//! |---|---|---|
//! | `RL.SLIDE key limit window [cost]` | sliding-window counter | `commands/one_limit.rs` |
//! | `RL.BUCKET key capacity refill period [cost]` | token bucket | `commands/one_limit.rs` |
//! | `RL.FIXED key limit window [cost]` | fixed window, aligned to the epoch | `commands/one_limit.rs` |
//! | `RL.EXACT key limit window [cost]` | exact sliding window | `commands/one_limit.rs` |
//! | `RL.LEAK key capacity rate period [cost]` | leaky bucket as a queue | `commands/one_limit.rs` |
//! | `RL.LEASE key limit ttl holder [cost]` | concurrency limit | `commands/one_limit.rs` |
//! | `RL.CHECK key policy [cost]` | the limits of a policy | `commands/check.rs` |
//! | `RL.POLICY SET \| GET \| DEL \| LIST \| DUMP \| LOAD` | limits by name | `commands/policy.rs` |
//! | `RL.OVERRIDE SET \| GET \| DEL` | one key's exceptions | `commands/overrides.rs` |
//! | `RL.MULTI key spec [key spec …]` | several limits, all or nothing | `commands/multi.rs` |
//! | `RL.FIRST key spec [key spec …]` | the first of several limits that has room | `commands/first.rs` |
//! | `RL.RESERVE id ttl key spec [key spec …]` | RL.MULTI under an id, to be settled later | `commands/reserve.rs` |
//! | `RL.SETTLE id calls key actual [key actual …]` | what a reservation used in the end | `commands/settle.rs` |
//! | `RL.PEEK key spec` | read-only, also on replicas | `commands/peek.rs` |
//! | `RL.REFUND key cost [TIMES n] [AGE duration]` | refunds units | `commands/refund.rs` |
//! | `RL.RELEASE key holder` | releases a lease | `commands/release.rs` |
//! | `RL.INSPECT key` | the stored state, field by field | `commands/inspect.rs` |
//! | `RL.STATS [policy]` | what was allowed, denied, forced, refunded | `commands/stats.rs` |
//! | `RL.TOP [COUNT n] [BY checks\|denials]` | the hottest keys | `commands/top.rs` |
//! | `RL.AUDIT GET [count] \| LEN \| RESET` | the latest denials | `commands/audit.rs` |
//! | `CL.THROTTLE key max_burst count period [quantity]` | redis-cell's command, optional | `commands/throttle.rs` |
//! | `RL.LOAD key expire-at-ms blob` | internal: replication and AOF | `commands/load.rs` |
//!
//! A call enters at `server/command.rs` and is parsed in its file under `commands/`. It becomes one request per key
//! (`check/request.rs`); `policy/` looks up the limits of a policy. `check/evaluate.rs` decides the requests with the
//! crate `rl-core`, `commit.rs` stores, expires, signals and replicates the new states, `stats/` counts the decisions,
//! and `reply.rs` replies.

mod check;
mod commands;
mod commit;
mod config;
mod error;
mod module_args;
mod policy;
mod replay_watchdog;
mod replication;
mod reply;
#[allow(unsafe_code)]
mod server;
mod stats;

use std::ffi::CStr;

use redis_module::{Context as LoadContext, RedisString, Status};
use rl_core::Error;

use commands::{
    audit::AuditCommand, check::CheckCommand, first::FirstCommand, inspect::InspectCommand,
    load::LoadCommand, multi::MultiCommand, one_limit, overrides::OverrideCommand,
    peek::PeekCommand, policy::PolicyCommand, refund::RefundCommand, release::ReleaseCommand,
    reserve::ReserveCommand, settle::SettleCommand, stats::StatsCommand, throttle::ThrottleCommand,
    top::TopCommand,
};
use config::{Config, Subscriber};
use module_args::ModuleArgs;
use policy::{persistence, registry, slot_migration};
use server::{
    Context, Handlers, Info, InfoAccess, Loading, Register, add_acl_category, create_types,
    register, register_container, register_info, register_settings, subscribe,
};
use stats::{audit_stream, info};

/// The version in Cargo.toml, for INFO.
const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };

const COMMANDS: &[Register] = &[
    // RL.SLIDE, RL.BUCKET, RL.FIXED, RL.LEAK, RL.EXACT, RL.LEASE
    one_limit::register_all,
    register::<MultiCommand>,
    register::<FirstCommand>,
    register::<CheckCommand>,
    register_container::<PolicyCommand>,
    register_container::<OverrideCommand>,
    register::<ReserveCommand>,
    register::<SettleCommand>,
    register::<PeekCommand>,
    register::<RefundCommand>,
    register::<ReleaseCommand>,
    register::<InspectCommand>,
    register::<LoadCommand>,
    register::<StatsCommand>,
    register::<TopCommand>,
    register::<AuditCommand>,
];

/// Called when a setting of `config.rs` changes.
const SUBSCRIBERS: &[Subscriber] = &[stats::configure];

/// What the module does when the server calls it for anything but a command.
struct Module;

impl Handlers for Module {
    fn on_cron(ctx: &Context) {
        replication::on_cron(ctx);
        replay_watchdog::on_cron(ctx);
        Self::run_deferred(ctx);
        slot_migration::on_cron(ctx);
    }

    /// Sends what cannot be sent from within a command.
    fn run_deferred(ctx: &Context) {
        persistence::replicate_loaded_set(ctx);
        audit_stream::add_pending(ctx);
    }

    fn on_loading(ctx: &Context, event: Loading) {
        replication::on_event();
        match event {
            Loading::Started { .. } => replay_watchdog::on_load_start(ctx),
            Loading::Finished | Loading::Failed => replay_watchdog::on_load_end(ctx),
            _ => {}
        }
        if matches!(event, Loading::Finished | Loading::AsyncFinished) {
            slot_migration::on_dataset_replaced();
        }
        let handled = persistence::on_loading(ctx, event);
        debug_assert!(handled.is_ok(), "nothing uses the registry meanwhile");
    }

    fn on_role_change() {
        replication::on_event();
        replay_watchdog::on_role_change();
        slot_migration::on_dataset_replaced();
    }

    fn on_event() {
        replication::on_event();
    }

    fn on_value_loaded() {
        slot_migration::on_value_loaded();
    }

    fn on_overrides_unlinked(key: &[u8]) {
        slot_migration::on_override_unlinked(key);
    }

    fn must_save_policies() -> bool {
        persistence::must_save()
    }

    fn dump_policies(ctx: &Context) -> String {
        registry::dump(ctx)
    }

    fn load_policies(ctx: &Context, json: &[u8]) -> Result<(), String> {
        persistence::load_snapshot(ctx, json)
    }

    fn write_info_atomics(info: &Info) {
        info::write_atomics(info);
    }

    fn write_info_counters(info: &Info, proof: &InfoAccess) {
        info::write_counters(info, proof);
    }
}

fn register_all(ctx: &Context, args: &ModuleArgs) -> Result<(), Error> {
    ctx.set_options();
    create_types::<Module>(ctx)?;
    add_acl_category(ctx)?;
    for register_command in COMMANDS {
        register_command(ctx)?;
    }
    if args.redis_cell_compat {
        register::<ThrottleCommand>(ctx)?;
    }
    stats::init(ctx);
    config::init(ctx, args.config.clone(), SUBSCRIBERS);
    register_settings::<Config>(ctx)?;
    register_info::<Module>(ctx);
    slot_migration::init(ctx);
    let has_all_events = subscribe::<Module>(ctx);
    replication::init(has_all_events);
    if !has_all_events {
        ctx.log_warning(
            c"rl: this server does not report all events: states are always sent, and policies may not follow its data",
        );
    }
    Ok(())
}

fn init(ctx: &LoadContext, args: &[RedisString]) -> Status {
    let args = match ModuleArgs::parse(args) {
        Ok(args) => args,
        Err(problem) => {
            ctx.log_warning(&problem);
            return Status::Err;
        }
    };
    let context = Context::from_load(ctx);
    if let Some(file) = &args.policies
        && let Err(why) = persistence::load_initial(&context, file)
    {
        ctx.log_warning(&format!("rl: policies {}: {why}", file.display()));
        return Status::Err;
    }
    match register_all(&context, &args) {
        Ok(()) => Status::Ok,
        Err(_) => {
            ctx.log_warning("rl could not be registered: is another module using its names?");
            Status::Err
        }
    }
}

server::entry_point!(init);

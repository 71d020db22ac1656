//! What the module does when the server calls it for anything but a command.

use super::info::InfoAccess;
use super::{Context, Info, Loading};

/// Implemented once, in `lib.rs`, so that this folder depends on nothing else of the module.
pub(crate) trait Handlers: 'static {
    /// The server's housekeeping, ten times per second by default.
    fn on_cron(ctx: &Context);
    /// Runs what [`super::schedule_deferred`] asked for.
    fn run_deferred(ctx: &Context);
    fn on_loading(ctx: &Context, event: Loading);
    fn on_role_change();
    /// Any other event.
    fn on_event();

    /// A value of this module was read from a payload or a file.
    fn on_value_loaded();
    /// A key that holds overrides was removed, for whatever reason.
    fn on_overrides_unlinked(key: &[u8]);

    /// Whether a snapshot has to record the policies.
    fn must_save_policies() -> bool;
    fn dump_policies(ctx: &Context) -> String;
    fn load_policies(ctx: &Context, json: &[u8]) -> Result<(), String>;

    /// Fields that a crash report may contain: it is written on any thread, at any moment.
    fn write_info_atomics(info: &Info);
    fn write_info_counters(info: &Info, proof: &InfoAccess);
}

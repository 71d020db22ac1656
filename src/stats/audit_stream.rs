//! `rl.audit-stream`: each sampled denial is also added to a stream, for consumer groups to read. Errors are
//! counted, and never make a check fail. The stream is in database 0, wherever the denials are.

use super::{AuditEntry, AuditValue, Denial, Observation, with};
use crate::Module;
use crate::config::NumericSetting;
use crate::server::{Context, schedule_deferred};

/// More denials than one transaction or script is likely to cause.
const MAX_PENDING: usize = 10_000;

/// Adds an entry as soon as the current command is over. Some servers do not survive a call from within another command,
/// which may itself run in a script.
pub(super) fn add(ctx: &Context, observation: &Observation, denial: &Denial) {
    // A replica's data comes from its primary alone.
    if ctx.is_replica_or_loading() {
        return;
    }
    let first = with(ctx, |stats| {
        if stats.pending.len() >= MAX_PENDING {
            stats.stream_errors += 1;
            return false;
        }
        let mut entry = AuditEntry::default();
        let id = stats.audit_log.last_id();
        entry.fill(observation, denial, id, ctx.client_id());
        stats.pending.push(entry);
        stats.pending.len() == 1
    });
    if first == Some(true) {
        schedule_deferred::<Module>(ctx);
    }
}

/// Adds the pending entries. Called by a timer, or by the server's housekeeping.
pub(crate) fn add_pending(ctx: &Context) {
    // While clients are paused, nothing may be written; the housekeeping tries again.
    if ctx.avoids_replication() {
        return;
    }
    let Some(pending) = with(ctx, |stats| std::mem::take(&mut stats.pending)) else {
        return;
    };
    // A timer runs in the database of the call that made it.
    ctx.select_db(0);
    for entry in pending {
        if !try_add(ctx, &entry) {
            with(ctx, |stats| stats.stream_errors += 1);
        }
    }
}

fn try_add(ctx: &Context, entry: &AuditEntry) -> bool {
    let target = with(ctx, |stats| {
        let max_len = stats.config.number(NumericSetting::AuditStreamMaxLen);
        (stats.config.audit_stream.clone(), max_len)
    });
    let Some((stream, max_len)) = target else {
        return false;
    };
    // The server does not check for modules whether memory is full, or whether it has become a replica.
    if stream.is_empty() || ctx.is_full() || ctx.is_replica_or_loading() {
        return false;
    }
    let mut args = vec![
        stream,
        b"MAXLEN".to_vec(),
        b"~".to_vec(),
        max_len.to_string().into_bytes(),
        b"*".to_vec(),
    ];
    entry.fields(ctx, |name, value| {
        args.push(name.as_bytes().to_vec());
        args.push(match value {
            AuditValue::Number(number) => number.to_string().into_bytes(),
            AuditValue::Text(text) => text.to_vec(),
        });
    });
    let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
    ctx.call_and_replicate(c"XADD", &args)
}

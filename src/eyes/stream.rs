//! `rl.audit-stream`: each sampled denial is added to a stream as well, for consumer groups to read. What
//! goes wrong there is counted, and never fails the check.

use super::{Denial, Entry, Seen, Shown, with};
use crate::redis::{Context, catch_up_soon};
use crate::settings::Number;

/// Most entries that wait; more than one transaction or script is likely to be denied.
const MOST_WAITING: usize = 10_000;

/// Takes an entry, to be added as soon as the command at hand is over. A call within another command, and that
/// perhaps within a script, is more than every server survives.
pub(super) fn add(ctx: &Context, seen: &Seen, denial: &Denial) {
    // A replica's data is its primary's alone.
    if ctx.is_applying() {
        return;
    }
    let first = with(ctx, |eyes| {
        if eyes.waiting.len() >= MOST_WAITING {
            eyes.stream_errors += 1;
            return false;
        }
        let mut entry = Entry::default();
        let name = seen.name.as_bytes();
        entry.fill(seen, name, denial, eyes.audit.last_id(), ctx.client_id());
        eyes.waiting.push(entry);
        eyes.waiting.len() == 1
    });
    if first == Some(true) {
        catch_up_soon(ctx);
    }
}

/// Adds what waits, from a timer of the server or its housekeeping.
pub(crate) fn add_waiting(ctx: &Context) {
    // While clients are paused, nothing may be written; the housekeeping asks again.
    if ctx.avoids_replication() {
        return;
    }
    let Some(waiting) = with(ctx, |eyes| std::mem::take(&mut eyes.waiting)) else {
        return;
    };
    for entry in waiting {
        if !try_add(ctx, &entry) {
            with(ctx, |eyes| eyes.stream_errors += 1);
        }
    }
}

fn try_add(ctx: &Context, entry: &Entry) -> bool {
    let told = with(ctx, |eyes| {
        let max_len = eyes.settings.number(Number::AuditStreamMaxLen);
        (eyes.settings.audit_stream.clone(), max_len)
    });
    let Some((stream, max_len)) = told else {
        return false;
    };
    // The server checks neither for modules: a full memory, and that it has become a replica.
    if stream.is_empty() || ctx.is_full() || ctx.is_applying() {
        return false;
    }
    let mut words = vec![
        stream,
        b"MAXLEN".to_vec(),
        b"~".to_vec(),
        max_len.to_string().into_bytes(),
        b"*".to_vec(),
    ];
    entry.fields(ctx, |name, value| {
        words.push(name.as_bytes().to_vec());
        words.push(match value {
            Shown::Number(number) => number.to_string().into_bytes(),
            Shown::Text(text) => text.to_vec(),
        });
    });
    ctx.call_and_replicate(c"XADD", &words)
}

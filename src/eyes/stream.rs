//! `rl.audit-stream`: each sampled denial is added to a stream as well, for consumer groups to read. What
//! goes wrong there is counted, and never fails the check.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::{Denial, Entry, Seen, Shown, with};
use crate::redis::Context;
use crate::settings::Number;

pub(super) fn add(ctx: &Context, seen: &Seen, denial: &Denial) {
    /// Other modules may answer to a stream's entry with a call that is denied, and so on for ever.
    static ADDING: AtomicBool = AtomicBool::new(false);
    // A replica's data is its primary's alone.
    if ctx.is_applying() || ADDING.swap(true, Relaxed) {
        return;
    }
    let added = try_add(ctx, seen, denial);
    ADDING.store(false, Relaxed);
    if !added {
        with(ctx, |eyes| eyes.stream_errors += 1);
    }
}

fn try_add(ctx: &Context, seen: &Seen, denial: &Denial) -> bool {
    let told = with(ctx, |eyes| {
        let mut entry = Entry::default();
        entry.fill(
            seen,
            seen.name.as_bytes(),
            denial,
            eyes.audit.last_id(),
            ctx.client_id(),
        );
        let max_len = eyes.settings.number(Number::AuditStreamMaxLen);
        (entry, eyes.settings.audit_stream.clone(), max_len)
    });
    let Some((entry, stream, max_len)) = told else {
        return false;
    };
    // The server does not check this for modules.
    if ctx.is_full() {
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

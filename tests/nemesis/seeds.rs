//! Seeds that found a bug. They are run before any others: all of them in a long run, some in a short one.
//!
//! A seed stands for a plan only as long as `plan.rs` draws in the same order. After a change there, find the seeds
//! again: run the nemesis on the code from before the fix.

pub const FOUND: [(u64, &str); 2] = [
    (
        19,
        "a primary that restarted with its replicas attached sent them commands (Redis 7.0)",
    ),
    (
        5001,
        "a new EXACT log continued one that had expired, and whose end the replica had not heard of (Redis 8.0)",
    ),
];

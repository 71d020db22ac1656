//! The algorithms, encodings and parsers, tested without a server. Each file proves one promise.
//!
//! They are one program, which is linked once: `cargo test -p redis-rl-core --test suite bucket::` runs one file.

#![allow(clippy::unwrap_used, missing_docs, unsafe_code)]
// Many tests call a key only to change it.
#![allow(unused_must_use)]

mod key;
mod ledger;
mod oracle;
mod sequence;

mod algorithms;
mod bucket;
mod calendar;
mod corrupt_logs;
mod corruption;
mod counters;
mod defrag;
mod denied_calls_copy_nothing;
mod encoding;
mod exact;
mod fixed;
mod leak;
mod lease;
mod log;
mod policies;
mod policy_state;
mod precision;
mod properties;
mod refunds;
mod refunds_with_age;
mod replication;
mod reservation_blobs;
mod reservations;
mod settlement_order;
mod slide;
mod syntax;
mod times;
mod top_keys;
mod units;

/// `make mutants` sets RL_FAIL_FAST: the first failure ends the program, because one is enough.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array")]
// SAFETY: the linker collects such functions and runs them before `main`; this one needs only the standard library.
static FAIL_FAST: extern "C" fn() = {
    extern "C" fn set_hook() {
        if std::env::var_os("RL_FAIL_FAST").is_some() {
            std::panic::set_hook(Box::new(|panic| {
                eprintln!("{panic}");
                std::process::exit(101);
            }));
        }
    }
    set_hook
};

#[test]
fn every_test_file_is_part_of_this_program() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(module) = name.strip_suffix(".rs").filter(|name| *name != "main") {
            let declaration = format!("mod {module};");
            let mut lines = include_str!("main.rs").lines();
            assert!(lines.any(|line| line == declaration), "no {declaration}");
        }
    }
}

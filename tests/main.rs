//! The integration tests of the module, on real servers. Each file proves one promise.
//!
//! They are one program, which is linked once: `cargo test --test suite replication::` runs one file.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod acl;
mod aof;
mod audit_stream;
mod calendar;
mod clients;
mod clock;
mod cluster;
mod commands;
mod completeness;
mod concurrency;
mod defrag;
mod denials;
mod deploy;
mod docs;
mod first;
mod idempotency;
mod io_threads;
mod layout;
mod malformed_input;
mod memory;
mod migration;
mod model;
mod options;
mod overrides;
mod policies;
mod protocol;
mod rdb;
mod refunds;
mod replication;
mod reservations;
mod restart;
mod restore;
mod server_integration;
mod settings;
mod stats;
mod subcommands;
mod threads;
mod throttle;
mod transactions;
mod upgrades;

#[test]
fn every_test_file_is_part_of_this_program() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    rl_testkit::assert_every_file_is_a_module(folder, include_str!("main.rs"));
}

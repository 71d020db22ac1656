//! Tests of the client with real servers, in every topology, including servers that fail.
//!
//! All tests are one program, so that it is linked once: `cargo test -p rl-client --test suite failures::` runs one file.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

mod acl;
mod budgets;
mod commands;
mod failures;
#[cfg(feature = "tower")]
mod http;
mod limiter;
mod metrics;
mod policies;
#[cfg(feature = "tower")]
mod routes;
#[cfg(all(feature = "cluster", feature = "sentinel"))]
mod topologies;

#[test]
fn every_test_file_is_part_of_this_program() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    rl_testkit::assert_every_file_is_a_module(folder, include_str!("main.rs"));
}

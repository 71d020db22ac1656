//! Servers in containers on private networks, with load running while things fail.
//!
//! `make test-containers` builds the images and runs these; `cargo test` alone shows them as ignored. Every
//! test keeps its own tally of what it was told, and compares it with what the servers remember.
//!
//! Each container stands on two networks: `front`, where clients reach it through a port published on
//! 127.0.0.1, and `back`, where servers talk to each other and which a test may cut.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod callers;
mod docker;
mod fleet;
mod load;
mod patience;
mod topology;

mod clock;
mod compose;
mod failover;
mod gateways;
mod image;
mod memory;
mod partition;
mod reshard;
mod restart;
mod soak;
mod upgrade;

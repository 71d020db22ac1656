//! Servers in containers on private networks, with load running while things fail.
//!
//! `make test-containers` builds the images and runs these; `cargo test` alone shows them as ignored. Every
//! test records the replies it got, and compares them with what the servers remember.
//!
//! Each container stands on two networks: `front`, where clients reach it through a port published on
//! 127.0.0.1, and `back`, where servers talk to each other and which a test may cut.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod callers;
mod docker;
mod load;
mod network;
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

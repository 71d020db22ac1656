//! One harness for every test and benchmark of this workspace.
//!
//! It starts real servers, clusters and sentinels. Each server listens on a free port, keeps its files in a folder of
//! its own, and is killed and cleaned up when it is dropped.
//!
//! | variable | meaning |
//! |---|---|
//! | `REDIS_SERVER` | the server binary; by default `redis-server` on the PATH |
//! | `RL_MODULE` | the module; by default a fresh debug build |

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod clock;
mod cluster;
mod command;
mod environment;
mod info;
mod port;
mod random;
mod replication;
mod sentinel;
mod server;
mod snapshot;
mod temp_dir;
mod wait;

pub use clock::{FrozenServer, NOON_US};
pub use cluster::{ALL_SLOTS, Cluster, assign_slots};
pub use command::{
    CheckReply, MultiReply, Reply, ask, ask_error, ask_ok, command, error_text, split_args, try_ask,
};
pub use environment::{base_config, has_directive, module, not_tested, root, server_binary};
pub use info::info_field;
pub use port::free_port;
pub use random::{Random, random_calls, try_random_calls};
pub use sentinel::Sentinel;
pub use server::{Server, send_signal};
pub use snapshot::Snapshot;
pub use temp_dir::TempDir;
pub use wait::{Deadline, PATIENCE, eventually, eventually_async};

/// Fails if a test file of a folder is not a module of the program that runs them all: its tests would never run.
///
/// `program` is the source of that program, and `folder` is where it lives.
pub fn assert_every_file_is_a_module(folder: &str, program: &str) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(module) = name.strip_suffix(".rs")
            && module != "main"
        {
            let declaration = format!("mod {module};");
            assert!(
                program.lines().any(|line| line.trim() == declaration),
                "{folder}/main.rs has no `{declaration}`"
            );
        }
    }
}

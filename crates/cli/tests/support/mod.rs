//! Runs `rl` as a process, with real servers and in a real terminal.

mod terminal;

use std::process::{Command, Stdio};

use serde_json::Value;

pub use terminal::Terminal;

/// The path of the program.
pub const RL: &str = env!("CARGO_BIN_EXE_rl");

/// How the program ended, and what it printed.
pub struct Run {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Run {
    /// The output as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }

    /// Checks the exit code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}\n{}", self.out, self.err);
        self
    }
}

/// A command that ignores the environment variables of the caller.
pub fn command(url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(RL);
    for name in ["RL_USER", "RL_PASSWORD"] {
        command.env_remove(name);
    }
    // A busy machine may be slow.
    command
        .args(["--timeout", "20"])
        .args(args)
        .env("RL_URL", url)
        .stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub fn rl(url: &str, args: &[&str]) -> Run {
    let output = command(url, args).output().unwrap();
    Run {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

//! `rl`, the command line of the RL module.

#![forbid(unsafe_code)]

mod args;
mod commands;
mod failure;
mod fleet;
mod info;
mod output;
mod policies;
mod wire;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use commands::{audit, check, completions, doctor, export, overrides, policy, stats, top};
use failure::Failure;
use fleet::Access;

/// How a command ended, when it could do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    Well,
    /// Denied, different, not there, a warning.
    No,
    /// A node failed, or a finding that must not stay.
    Bad,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let code = match run(&cli) {
        Ok(outcome) => outcome as u8,
        Err(failure) => {
            complain(&failure, cli.json);
            2
        }
    };
    ExitCode::from(code)
}

fn run(cli: &Cli) -> Result<Outcome, Failure> {
    if let Command::Completions { shell } = cli.command {
        return completions::run(shell);
    }
    let (access, json) = (Access::new(&cli.connect)?, cli.json);
    match &cli.command {
        Command::Policy(what) => policy::run(&access, what, json),
        Command::Check {
            key,
            policy,
            cost,
            peek,
            force,
        } => check::run(
            &access,
            key,
            policy,
            *cost,
            check::option(*peek, *force),
            json,
        ),
        Command::Override(what) => overrides::run(&access, what, json),
        Command::Audit { count, key } => audit::run(&access, *count, key.as_deref(), json),
        Command::Stats { policy } => stats::run(&access, policy.as_deref(), json),
        Command::Top {
            every,
            count,
            denials,
        } => {
            let live = std::io::stdout().is_terminal() && !json;
            top::run(
                &access,
                top::View::new(*every, *count, *denials),
                live,
                json,
            )
        }
        Command::Doctor => doctor::run(&access, json),
        Command::Export {
            listen,
            totals_only,
        } => export::run(&access, *listen, *totals_only),
        Command::Completions { .. } => Ok(Outcome::Well),
    }
}

/// Errors go to the standard error, so that what was asked for stays alone on the standard output.
pub fn complain(failure: &Failure, json: bool) {
    match serde_json::to_string(failure) {
        Ok(text) if json => eprintln!("{text}"),
        _ => eprintln!("rl: {failure}"),
    }
}

//! `rl`, the command line of the RL module.

#![forbid(unsafe_code)]

mod args;
mod commands;
mod failure;
mod output;
mod policy_set;
mod snapshot;
mod topology;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use commands::{
    audit, check, completions, doctor, exporter, overrides, policy, reservation, several, stats,
    top,
};
use failure::Failure;
use topology::Access;

/// How a command ended, if it could do its work. The order is that of the exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    Success,
    /// The answer is no: denied, different, not there, a warning.
    Negative,
    /// A node failed, or `rl doctor` found a problem.
    Failed,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && args::wants_json(std::env::args()) => {
            report(&args::failure(&error), true);
            return ExitCode::from(2);
        }
        // Help and version are printed to the standard output, with exit code 0.
        Err(error) => error.exit(),
    };
    let code = match run(&cli) {
        Ok(exit) => exit as u8,
        Err(failure) => {
            report(&failure, cli.json);
            2
        }
    };
    ExitCode::from(code)
}

fn run(cli: &Cli) -> Result<Exit, Failure> {
    if let Command::Completions { shell } = cli.command {
        return completions::run(shell);
    }
    let (access, json) = (Access::new(&cli.connect)?, cli.json);
    match &cli.command {
        Command::Policy(command) => policy::run(&access, command, json),
        Command::Check(call) => check::run(&access, call, json),
        Command::Reserve(call) => reservation::reserve(&access, call, json),
        Command::Settle(call) => reservation::settle(&access, call, json),
        Command::Multi(call) => several::run_multi(&access, call, json),
        Command::First(call) => several::run_first(&access, call, json),
        Command::Override(command) => overrides::run(&access, command, json),
        Command::Audit { count, key } => audit::run(&access, *count, key.as_deref(), json),
        Command::Stats { policy } => stats::run(&access, policy.as_deref(), json),
        Command::Top(options) => {
            let live = std::io::stdout().is_terminal() && !json;
            top::run(&access, options, live, json)
        }
        Command::Doctor => doctor::run(&access, json),
        Command::Exporter {
            listen,
            no_policy_metrics,
        } => exporter::run(&access, *listen, !no_policy_metrics),
        Command::Completions { shell } => completions::run(*shell),
    }
}

/// Prints to the standard error, so that the standard output has only what was asked for.
pub fn report(failure: &Failure, json: bool) {
    match serde_json::to_string(failure) {
        Ok(text) if json => eprintln!("{text}"),
        _ => eprintln!("rl: {failure}"),
    }
}

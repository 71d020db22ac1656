//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use rl_client::commands::{CallOptions, TopBy};

use crate::failure::Failure;

/// Manages and monitors the rate limits of Redis and Valkey servers that run the RL module.
///
/// Exit codes: 0 success; 1 the answer is no (denied, different, not there, warnings); 2 an error, or a node that failed.
#[derive(Parser)]
#[command(name = "rl", version, max_term_width = 120)]
pub struct Cli {
    #[command(flatten)]
    pub connect: Connect,
    /// Print JSON, errors included
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Args)]
pub struct Connect {
    /// A server, or any node of a cluster. With several, separated by commas, the first that replies is used
    #[arg(
        long,
        global = true,
        env = "RL_URL",
        hide_env_values = true,
        value_name = "URL",
        value_delimiter = ',',
        default_value = "redis://127.0.0.1:6379"
    )]
    pub url: Vec<String>,
    /// User, if not in the URL
    #[arg(long, global = true, env = "RL_USER", value_name = "NAME")]
    pub user: Option<String>,
    /// Password, if not in the URL. Prefer RL_PASSWORD: other users can read command lines
    #[arg(
        long,
        global = true,
        env = "RL_PASSWORD",
        hide_env_values = true,
        value_name = "SECRET"
    )]
    pub password: Option<String>,
    /// How long to wait for each node
    #[arg(
        long,
        global = true,
        value_name = "SECONDS",
        default_value_t = 3,
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    pub timeout: u64,
}

#[derive(Subcommand)]
pub enum Command {
    /// Compare, push or pull the policies of a server, or of every primary of a cluster
    #[command(subcommand)]
    Policy(Policy),
    /// Make one check, as a gateway would; exit code 1 if it is denied
    Check(Check),
    /// Charge several limits at once under an id, to be settled later; exit code 1 if denied
    Reserve(Reserve),
    /// Change what a reservation charged to what was used; exit code 1 if the id is unknown
    Settle(Settle),
    /// Make one call against several limits, which charges all of them or none; exit code 1 if it is denied
    Multi(Several),
    /// Charge the first of several limits that allows the call; exit code 1 if all of them deny it
    First(Several),
    /// Show or change the overrides of a key: other limits, blocked or always allowed
    #[command(subcommand)]
    Override(Override),
    /// Show the latest denials of all primaries, newest first
    Audit {
        /// How many denials to show at most
        #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
        count: usize,
        /// Show only the denials of this key
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
    },
    /// Show totals and rates of all primaries, and of each policy
    Stats {
        /// Show only this policy
        policy: Option<String>,
    },
    /// Show rates, policies and the hottest keys, live; q quits. Without a terminal, print them once
    Top(Top),
    /// Look for problems: versions, policies, clocks, eviction, replicas, persistence; the exit code is that of the worst
    Doctor,
    /// Serve the statistics of every node to Prometheus, at /metrics
    Exporter {
        /// The address to listen on
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9464")]
        listen: SocketAddr,
        /// Leave out the rl_policy_* metrics
        #[arg(long)]
        no_policy_metrics: bool,
    },
    /// Print completions for a shell, such as: source <(rl completions bash)
    Completions {
        /// The shell to print them for
        shell: Shell,
    },
}

#[derive(Args)]
pub struct Check {
    /// The key to check
    pub key: String,
    /// The policy to apply
    pub policy: String,
    /// The cost of the call
    #[arg(default_value_t = 1)]
    pub cost: u64,
    #[command(flatten)]
    pub options: CallArgs,
}

#[derive(Args)]
pub struct Several {
    /// Keys and limits in turn, each limit one argument, such as: user:42 'SLIDE 100 1m'
    #[arg(required = true, num_args = 2.., value_names = ["KEY", "LIMIT"])]
    pub limits: Vec<String>,
    #[command(flatten)]
    pub options: CallArgs,
}

/// The options of a call.
#[derive(Args)]
pub struct CallArgs {
    /// Decide, but charge nothing (PEEK)
    #[arg(long, conflicts_with = "force")]
    pub peek: bool,
    /// Charge even past the limit (FORCE)
    #[arg(long)]
    pub force: bool,
    /// Make this many calls in one step, all or none (TIMES)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub times: Option<u64>,
    /// With --times, make as many of the calls as are allowed, but at least this many (ATLEAST)
    #[arg(
        long,
        value_name = "M",
        requires = "times",
        conflicts_with_all = ["force", "brief"],
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub at_least: Option<u64>,
    /// Print one integer: what remains, negative if the call is denied (BRIEF)
    #[arg(long)]
    pub brief: bool,
}

impl CallArgs {
    /// The option that determines whether the call charges, as `mode` in the output.
    pub const fn mode(&self) -> &'static str {
        match (self.peek, self.force) {
            (true, _) => "peek",
            (_, true) => "force",
            _ => "check",
        }
    }

    pub fn options(&self) -> CallOptions {
        let mut options = match (self.peek, self.force) {
            (true, _) => CallOptions::PEEK,
            (_, true) => CallOptions::FORCE,
            _ => CallOptions::default(),
        };
        if let Some(calls) = self.times {
            options = options.times(calls);
        }
        if let Some(calls) = self.at_least {
            options = options.at_least(calls);
        }
        options
    }
}

#[derive(Args)]
pub struct Reserve {
    /// The id, in the same slot as the keys
    pub id: String,
    /// How long the id is kept, such as 5m
    pub ttl: String,
    /// Keys and limits in turn, such as {a}:rpm "SLIDE 60 1m" {a}:tpm "SLIDE 90000 1m 1000"
    #[arg(required = true, num_args = 2.., value_names = ["KEY", "SPEC"])]
    pub limits: Vec<String>,
    /// Charge even past the limit (FORCE)
    #[arg(long)]
    pub force: bool,
    /// Reserve this many calls in one step, all or none (TIMES)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub times: Option<u64>,
    /// With --times, reserve as many of the calls as are allowed, but at least this many (ATLEAST)
    #[arg(
        long,
        value_name = "M",
        requires = "times",
        conflicts_with = "force",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub at_least: Option<u64>,
}

impl Reserve {
    pub fn options(&self) -> CallOptions {
        let options = CallArgs {
            peek: false,
            force: self.force,
            times: self.times,
            at_least: self.at_least,
            brief: false,
        };
        options.options()
    }
}

#[derive(Args)]
pub struct Settle {
    /// The id of the reservation
    pub id: String,
    /// How many calls took place
    pub calls: u64,
    /// Keys and the units they used in turn, such as {a}:tpm 640
    #[arg(required = true, num_args = 2.., value_names = ["KEY", "ACTUAL"])]
    pub usage: Vec<String>,
}

#[derive(Args)]
pub struct Top {
    /// Seconds between two updates
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 2,
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    pub interval: u64,
    /// How many keys, and how many policies, to show at most
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    pub count: usize,
    /// What to sort by
    #[arg(long, value_enum, default_value_t = SortBy::Checks)]
    pub by: SortBy,
}

/// As in RL.TOP BY.
#[derive(Clone, Copy, ValueEnum)]
pub enum SortBy {
    /// All checks
    Checks,
    /// Denied checks
    Denials,
}

impl From<SortBy> for TopBy {
    fn from(by: SortBy) -> Self {
        match by {
            SortBy::Checks => Self::Checks,
            SortBy::Denials => Self::Denials,
        }
    }
}

#[derive(Subcommand)]
pub enum Policy {
    /// Show what `push` would change; exit code 1 if anything
    Diff {
        /// The file of policies, as `pull` writes it; - reads the standard input
        file: PathBuf,
    },
    /// Replace the policies of every primary by those in the file
    Push {
        /// The file of policies, as `pull` writes it; - reads the standard input
        file: PathBuf,
        /// Delete policies that are not in the file, without asking
        #[arg(long)]
        prune: bool,
    },
    /// Write the policies to a file
    Pull {
        /// The file to write; - writes to the standard output
        file: PathBuf,
        /// The primary to read from, if they differ
        #[arg(long, value_name = "HOST:PORT")]
        from: Option<String>,
    },
}

#[derive(Subcommand)]
pub enum Override {
    /// Set an override, such as: rl override set user:42 pro SCALE 5 1 --for 2d --note 'until Monday'
    Set {
        /// The key to override the policy for
        key: String,
        /// The policy to override
        policy: String,
        /// SCALE num den, BLOCK, ALLOW, or limits: SLIDE 500 1m …
        #[arg(required = true, num_args = 1..)]
        action: Vec<String>,
        /// How long the override applies: seconds, or with a unit (500ms, 90s, 15m, 24h, 30d). Without it, until it is removed
        #[arg(long = "for", value_name = "DURATION")]
        expires_in: Option<String>,
        /// Why the override is set; `rl override get` shows it
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
    },
    /// Show the overrides of a key; exit code 1 if there are none
    Get {
        /// The key to show the overrides of
        key: String,
    },
    /// Remove an override; exit code 1 if there is none
    Del {
        /// The key with the override
        key: String,
        /// The policy that it overrides
        policy: String,
    },
}

/// Whether the arguments ask for JSON, even if they are invalid otherwise.
pub fn wants_json(args: impl Iterator<Item = String>) -> bool {
    args.take_while(|arg| arg != "--")
        .any(|arg| arg == "--json")
}

/// An invalid command line: what is wrong, and how to use the command.
pub fn failure(error: &clap::Error) -> Failure {
    let text = error.to_string();
    let (message, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
    let message = message.trim_start_matches("error: ");
    let words: Vec<_> = message.split_whitespace().collect();
    let usage = rest.lines().find(|line| line.starts_with("Usage:"));
    Failure::new(words.join(" "), usage.unwrap_or("try 'rl --help'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_describes_every_argument() {
        fn describe(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for arg in command.get_arguments() {
                assert!(
                    arg.get_help()
                        .is_some_and(|help| !help.to_string().is_empty()),
                    "{} {}",
                    command.get_name(),
                    arg.get_id()
                );
            }
            command.get_subcommands().for_each(describe);
        }
        describe(&Cli::command());
    }

    #[test]
    fn an_invalid_command_line_in_json() {
        let args = ["rl", "check", "--json", "user:42"];
        assert!(wants_json(args.iter().map(ToString::to_string)));
        let Err(error) = Cli::try_parse_from(args) else {
            panic!("accepted")
        };
        let failure = failure(&error);
        assert_eq!(
            failure.error,
            "the following required arguments were not provided: <POLICY>"
        );
        assert!(failure.hint.starts_with("Usage: rl check"), "{failure}");
        let quoted = ["rl", "override", "--", "--json"];
        assert!(!wants_json(quoted.iter().map(ToString::to_string)));
    }
}

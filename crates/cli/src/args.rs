//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

/// Runs limits like configuration, and shows what they do: for Redis and Valkey servers with the RL module.
///
/// Exit codes: 0 well; 1 the answer is no (denied, different, nothing there, warnings); 2 an error, or a node that failed.
#[derive(Parser)]
#[command(name = "rl", version, max_term_width = 120)]
pub struct Cli {
    #[command(flatten)]
    pub connect: Connect,
    /// Answer as JSON
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Args)]
pub struct Connect {
    /// A server, or any node of a cluster; several with commas between: the first that answers is asked
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
    /// Password, if not in the URL; better by RL_PASSWORD, for others can read command lines
    #[arg(
        long,
        global = true,
        env = "RL_PASSWORD",
        hide_env_values = true,
        value_name = "SECRET"
    )]
    pub password: Option<String>,
    /// How long to wait for a node
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
    /// Compare, send or fetch the policies of a server or of every primary of a cluster
    #[command(subcommand)]
    Policy(Policy),
    /// Make one check, as a gateway would; exit code 1 if it is denied
    Check {
        key: String,
        policy: String,
        /// Units to take
        #[arg(default_value_t = 1)]
        cost: u64,
        /// Decide, but consume nothing
        #[arg(long, conflicts_with = "force")]
        peek: bool,
        /// Consume even past the limit
        #[arg(long)]
        force: bool,
    },
    /// Raise, lower, block or free one key under a policy
    #[command(subcommand)]
    Override(Override),
    /// The latest denials of all primaries, newest first
    Audit {
        /// How many at most
        #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
        count: usize,
        /// Only those of this key
        #[arg(long)]
        key: Option<String>,
    },
    /// Totals and rates of all primaries, and of each policy
    Stats {
        /// Only this one
        policy: Option<String>,
    },
    /// A live view of rates, denials, policies and the hottest keys; q quits. Plain text once if not in a terminal
    Top {
        /// Seconds between two looks
        #[arg(
            long,
            value_name = "SECONDS",
            default_value_t = 2,
            value_parser = clap::value_parser!(u64).range(1..=3600)
        )]
        every: u64,
        /// Keys and policies to show
        #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
        count: usize,
        /// Order by denials rather than checks
        #[arg(long)]
        denials: bool,
    },
    /// Look for what will hurt: versions, policies, clocks, eviction, replicas, persistence; exit code by the worst finding
    Doctor,
    /// Serve the totals of every node to Prometheus, at /metrics
    Export {
        #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9464")]
        listen: SocketAddr,
        /// Leave out the figures of each policy
        #[arg(long)]
        totals_only: bool,
    },
    /// Print completions for a shell, such as: source <(rl completions bash)
    Completions { shell: Shell },
}

#[derive(Subcommand)]
pub enum Policy {
    /// Show what `push` would change; exit code 1 if anything
    Diff { file: PathBuf },
    /// Make every primary hold exactly the file's policies
    Push {
        /// JSON as `pull` writes it; - reads the standard input
        file: PathBuf,
        /// Delete policies that the file lacks, without asking
        #[arg(long)]
        prune: bool,
    },
    /// Write the policies to a file
    Pull {
        /// - writes to the standard output
        file: PathBuf,
        /// The primary to believe, when they differ
        #[arg(long, value_name = "HOST:PORT")]
        from: Option<String>,
    },
}

#[derive(Subcommand)]
pub enum Override {
    /// Set one, such as: rl override set user:42 pro SCALE 5 1 --for 2d --note 'until Monday'
    Set {
        key: String,
        policy: String,
        /// SCALE num den, BLOCK, ALLOW, or limits: SLIDE 500 1m …
        #[arg(required = true, num_args = 1..)]
        what: Vec<String>,
        /// When it ends by itself: seconds, or 500ms, 90s, 15m, 24h, 30d
        #[arg(long = "for", value_name = "DURATION")]
        lasting: Option<String>,
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
    },
    /// Show those of a key
    Get { key: String },
    /// Remove one; exit code 1 if there was none
    Del { key: String, policy: String },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Cli::command().debug_assert();
    }
}

//! What went wrong, and what the reader can do about it.

use std::fmt;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// What happened.
    pub error: String,
    /// What to do about it; empty if that is plain.
    #[serde(rename = "do", skip_serializing_if = "String::is_empty")]
    pub todo: String,
}

impl Failure {
    pub fn new(error: impl Into<String>, todo: impl Into<String>) -> Self {
        let (error, todo) = (error.into(), todo.into());
        Self { error, todo }
    }

    /// A node's error, in words for the person who has to mend it.
    pub fn of(node: &str, error: &RedisError) -> Self {
        Self::new(format!("{node}: {}", text(error)), remedy(error))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)?;
        if !self.todo.is_empty() {
            write!(f, "\n  → {}", self.todo)?;
        }
        Ok(())
    }
}

/// The server's own line where there is one, code first, as redis-cli prints it.
fn text(error: &RedisError) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

fn remedy(error: &RedisError) -> &'static str {
    let detail = error.detail().unwrap_or_default();
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => {
            "is the server overloaded or behind a firewall? --timeout SECONDS waits longer"
        }
        ErrorKind::Io => {
            "is a server running there? --url redis://HOST:PORT (or RL_URL) names another"
        }
        ErrorKind::AuthenticationFailed => {
            "give user and password in the URL, or as RL_USER and RL_PASSWORD"
        }
        ErrorKind::Server(ServerErrorKind::NoPerm) => {
            "the user lacks a permission: an administrator grants it by ACL SETUSER, see docs/deploy.md"
        }
        ErrorKind::Server(ServerErrorKind::ReadOnly) => {
            "this node is a replica: name its primary by --url"
        }
        ErrorKind::Server(ServerErrorKind::ClusterDown) => {
            "`rl doctor` shows which part of the cluster is away"
        }
        ErrorKind::Server(ServerErrorKind::BusyLoading) => {
            "the server is still loading its data: try again in a moment"
        }
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
            "module and `rl` may be of different versions: `rl doctor` shows the module's"
        }
        _ if error.code() == Some("NOAUTH") => {
            "give user and password in the URL, or as RL_USER and RL_PASSWORD"
        }
        _ if detail.contains("unknown command") && detail.to_lowercase().contains("rl.") => {
            "load the module, or a newer one: loadmodule /path/to/librl.so in the server's configuration"
        }
        _ if detail.starts_with("no such policy") => {
            "`rl stats` lists the policies there are; `rl policy push FILE` brings new ones"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server_error(code: &str, detail: &str) -> RedisError {
        redis::make_extension_error(code.to_owned(), Some(detail.to_owned()))
    }

    #[test]
    fn an_error_names_the_node_and_says_what_to_do() {
        let refused = RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
        let failure = Failure::of("10.0.0.1:6379", &refused).to_string();
        assert!(
            failure.starts_with("10.0.0.1:6379: connection refused"),
            "{failure}"
        );
        assert!(
            failure.contains("→ is a server running there?"),
            "{failure}"
        );
        let failure = Failure::of("a:1", &server_error("NOAUTH", "Authentication required."));
        assert!(failure.todo.contains("RL_PASSWORD"), "{failure}");
        let unknown = "unknown command 'RL.POLICY', with args beginning with: 'DUMP' ";
        let failure = Failure::of("a:1", &server_error("ERR", unknown));
        assert!(failure.todo.contains("loadmodule"), "{failure}");
    }
}

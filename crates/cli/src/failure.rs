//! What went wrong, and what the reader can do about it.

use std::fmt;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The node that failed, if it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub error: String,
    /// What to do about it; empty if that is obvious.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hint: String,
}

impl Failure {
    pub fn new(error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            node: None,
            error: error.into(),
            hint: hint.into(),
        }
    }

    pub fn of_node(node: &str, error: &RedisError) -> Self {
        Self {
            node: Some(node.to_owned()),
            ..Self::new(text(error), hint(error))
        }
    }

    /// The error in one line, with the node.
    pub fn line(&self) -> String {
        match &self.node {
            Some(node) => format!("{node}: {}", self.error),
            None => self.error.clone(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())?;
        if !self.hint.is_empty() {
            write!(f, "\n  → {}", self.hint)?;
        }
        Ok(())
    }
}

/// The server's own error with its code, as redis-cli prints it.
fn text(error: &RedisError) -> String {
    if error.is_timeout() {
        return "no reply in time".to_owned();
    }
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

fn hint(error: &RedisError) -> &'static str {
    let detail = error.detail().unwrap_or_default();
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => {
            "is the server overloaded or behind a firewall? --timeout SECONDS waits longer"
        }
        ErrorKind::Io => {
            "is a server running there? --url redis://HOST:PORT (or RL_URL) selects another"
        }
        ErrorKind::AuthenticationFailed => {
            "pass the user and password in the URL, or as RL_USER and RL_PASSWORD"
        }
        ErrorKind::Server(ServerErrorKind::NoPerm) => {
            "the user lacks a permission: an administrator grants it with ACL SETUSER, see docs/deploy.md"
        }
        ErrorKind::Server(ServerErrorKind::ReadOnly) => {
            "this node is a replica: pass its primary with --url"
        }
        ErrorKind::Server(ServerErrorKind::ClusterDown) => {
            "`rl doctor` shows which part of the cluster is down"
        }
        ErrorKind::Server(ServerErrorKind::BusyLoading) => {
            "the server is still loading its data: try again in a moment"
        }
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
            "the module and `rl` may have different versions: `rl doctor` shows that of the module"
        }
        _ if error.code() == Some("NOAUTH") => {
            "pass the user and password in the URL, or as RL_USER and RL_PASSWORD"
        }
        _ if detail.contains("unknown command") && detail.to_lowercase().contains("rl.") => {
            "load the module, or a newer one: loadmodule /path/to/librl.so in the server's configuration"
        }
        _ if detail.starts_with("no such policy") => {
            "`rl stats` lists the policies; `rl policy push FILE` adds new ones"
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
        let failure = Failure::of_node("10.0.0.1:6379", &refused).to_string();
        assert!(
            failure.starts_with("10.0.0.1:6379: connection refused"),
            "{failure}"
        );
        assert!(
            failure.contains("→ is a server running there?"),
            "{failure}"
        );
        let failure = Failure::of_node("a:1", &server_error("NOAUTH", "Authentication required."));
        assert!(failure.hint.contains("RL_PASSWORD"), "{failure}");
        let unknown = "unknown command 'RL.POLICY', with args beginning with: 'DUMP' ";
        let failure = Failure::of_node("a:1", &server_error("ERR", unknown));
        assert!(failure.hint.contains("loadmodule"), "{failure}");
    }
}

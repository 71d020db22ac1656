//! Limiters for test servers.

use std::time::Duration;

use redis::FromRedisValue;
use rl_client::{Builder, Limiter};
use rl_testkit::Server;

/// A timeout for tests in which the server is available: long enough for a busy machine.
pub const CALM: Duration = Duration::from_secs(10);

/// Builds limiters for a server.
pub trait LimiterOf {
    /// A limiter with [`CALM`] timeouts.
    fn limiter(&self) -> Builder;
}

impl LimiterOf for Server {
    fn limiter(&self) -> Builder {
        Limiter::builder(self.url())
            .timeout(CALM)
            .connect_timeout(CALM)
    }
}

/// A server without the module.
#[allow(dead_code)]
pub fn plain_server() -> Server {
    Server::without_module(&["save", ""])
}

/// The units that a limit has left on a key.
#[allow(dead_code)]
pub fn remaining(server: &Server, key: &str, spec: &str) -> u64 {
    let reply: Vec<redis::Value> = server.run("RL.PEEK", &[key, &format!("{spec} 0")]);
    u64::from_redis_value_ref(&reply[2]).unwrap()
}

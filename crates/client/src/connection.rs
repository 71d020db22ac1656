//! Where the limiter's connections come from: one server, a primary known to Sentinels, a cluster, or the user.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisFuture, RedisResult, Value};

use crate::error::timed_out;

/// A connection that many tasks share.
pub(crate) trait Link: Send + Sync {
    fn call<'a>(&'a self, command: &'a Cmd) -> RedisFuture<'a, Value>;
}

impl<C: ConnectionLike + Clone + Send + Sync> Link for C {
    fn call<'a>(&'a self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let mut connection = self.clone();
        Box::pin(async move { command.query_async(&mut connection).await })
    }
}

pub(crate) type SharedLink = Arc<dyn Link>;

/// How to get a connection.
pub(crate) enum Connector {
    Server(Client),
    #[cfg(feature = "sentinel")]
    Sentinel(tokio::sync::Mutex<redis::sentinel::SentinelClient>),
    #[cfg(feature = "cluster")]
    Cluster(redis::cluster::ClusterClient),
    /// The user's own, which reconnects by itself or not at all.
    Given(SharedLink),
}

/// When a connection gives way to a new one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// Whenever it failed.
    Always,
    /// When a part of it stays silent. A cluster's connection looks after itself, but it holds on to a node that went
    /// silent without a word, and to the slots that this node had.
    WhenStuck,
    Never,
}

/// So that of two deadlines of the same length, the caller's is first.
const SLACK: Duration = Duration::from_secs(1);

impl Connector {
    pub(crate) fn renewal(&self) -> Renewal {
        match self {
            Self::Server(_) => Renewal::Always,
            #[cfg(feature = "sentinel")]
            Self::Sentinel(_) => Renewal::Always,
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => Renewal::WhenStuck,
            Self::Given(_) => Renewal::Never,
        }
    }

    /// Connects within `timeout` for each server. No call waits longer than `longest_call` for its answer.
    pub(crate) async fn connect(
        &self,
        timeout: Duration,
        longest_call: Duration,
    ) -> RedisResult<SharedLink> {
        // Calls have a deadline of their own, which is the limiter's.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(timeout))
            .set_response_timeout(None);
        let connected = async {
            Ok(match self {
                Self::Server(client) => Arc::new(
                    client
                        .get_multiplexed_async_connection_with_config(&config)
                        .await?,
                ) as SharedLink,
                #[cfg(feature = "sentinel")]
                Self::Sentinel(client) => {
                    let mut client = client.lock().await;
                    Arc::new(client.get_async_connection_with_config(&config).await?)
                }
                #[cfg(feature = "cluster")]
                Self::Cluster(client) => {
                    let config = redis::cluster::ClusterConfig::new()
                        .set_connection_timeout(timeout)
                        // After this it sends a call once more: not while somebody waits for the first.
                        .set_response_timeout(longest_call.max(timeout) + SLACK);
                    Arc::new(client.get_async_connection_with_config(config).await?)
                }
                Self::Given(link) => Arc::clone(link),
            })
        };
        let steps = match self.renewal() {
            // First a node that knows the others, then its answer, then the others.
            Renewal::WhenStuck => 3,
            _ => 1,
        };
        let connected = tokio::time::timeout(steps * timeout, connected).await;
        connected.unwrap_or_else(|_| Err(timed_out()))
    }
}

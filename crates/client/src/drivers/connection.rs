//! Sources of connections: one server, a primary found through Sentinel, a cluster, or the user's own connection.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisFuture, RedisResult, Value};

use crate::error::timed_out;

/// A connection shared by many tasks.
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

/// How to open a connection.
pub(crate) enum Connector {
    Server(Client),
    #[cfg(feature = "sentinel")]
    Sentinel(tokio::sync::Mutex<redis::sentinel::SentinelClient>),
    #[cfg(feature = "cluster")]
    Cluster(redis::cluster::ClusterClient),
    /// The user's own connection, which reconnects by itself or not at all.
    Given(SharedLink),
}

/// When a connection is replaced by a new one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// After every failure.
    Always,
    /// When part of it stays silent. A cluster connection recovers by itself, except that it keeps using a node that
    /// stopped replying without closing the connection.
    WhenStuck,
    Never,
}

/// Makes sure that the caller's own deadline expires first.
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

    /// Connects, with `timeout` for each server. No call waits longer than `longest_call` for its reply.
    pub(crate) async fn connect(
        &self,
        timeout: Duration,
        longest_call: Duration,
    ) -> RedisResult<SharedLink> {
        // The limiter applies its own deadline to each call.
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
                        // After this timeout the client retries the call: it must not do so while a caller still waits.
                        .set_response_timeout(longest_call.max(timeout) + SLACK);
                    Arc::new(client.get_async_connection_with_config(config).await?)
                }
                Self::Given(link) => Arc::clone(link),
            })
        };
        let steps = match self.renewal() {
            // Connect to a seed node, ask it for the topology, connect to the other nodes.
            Renewal::WhenStuck => 3,
            _ => 1,
        };
        let connected = tokio::time::timeout(steps * timeout, connected).await;
        connected.unwrap_or_else(|_| Err(timed_out()))
    }
}

//! Where the limiter's connections come from: one server, a primary known to Sentinels, a cluster, or the user.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisFuture, RedisResult, Value};

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

impl Connector {
    /// Whether a connection that failed is replaced by a new one. Cluster connections look after themselves.
    pub(crate) fn replaces(&self) -> bool {
        match self {
            Self::Server(_) => true,
            #[cfg(feature = "sentinel")]
            Self::Sentinel(_) => true,
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => false,
            Self::Given(_) => false,
        }
    }

    pub(crate) async fn connect(&self, timeout: Duration) -> RedisResult<SharedLink> {
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
                Self::Cluster(client) => Arc::new(client.get_async_connection().await?),
                Self::Given(link) => Arc::clone(link),
            })
        };
        match tokio::time::timeout(timeout, connected).await {
            Ok(result) => result,
            Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }
}

//! Configuration of a limiter.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Client, RedisResult};
use tokio::runtime::Handle;

use crate::drivers::connection::Connector;
use crate::drivers::server::{Config, Server};
use crate::engine::breaker::Backoff;
use crate::engine::budgets::Budgets;
use crate::engine::deny_cache::DenyCache;
use crate::limiter::Shared;
use crate::{Error, FailureMode, Limiter};

/// A cluster connection waits no longer than this for any reply, because a silent node blocks it for as long.
const LONGEST_CALL: Duration = Duration::from_secs(10);

/// Configures a [`Limiter`]. The defaults suit a gateway close to its server.
///
/// ```no_run
/// use std::time::Duration;
/// use rl_client::{FailureMode, Limiter};
///
/// # async fn example() -> Result<(), rl_client::Error> {
/// let limiter = Limiter::builder("redis://10.0.0.5/")
///     .timeout(Duration::from_millis(10))
///     .failure_mode(FailureMode::Local { share: 0.1 })
///     .build()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until it is built"]
pub struct Builder {
    connector: RedisResult<Connector>,
    cluster: bool,
    failure: FailureMode,
    timeout: Duration,
    connect_timeout: Duration,
    backoff: Backoff,
    deny_size: usize,
    deny_longest: Duration,
    ledger_size: usize,
    budget_size: usize,
    budget_life: Duration,
}

impl Builder {
    fn new(connector: RedisResult<Connector>, cluster: bool) -> Self {
        Self {
            connector,
            cluster,
            failure: FailureMode::default(),
            timeout: Duration::from_millis(5),
            connect_timeout: Duration::from_secs(1),
            backoff: Backoff {
                failures: 5,
                shortest: Duration::from_millis(50),
                longest: Duration::from_secs(1),
            },
            deny_size: 100_000,
            deny_longest: Duration::from_secs(1),
            ledger_size: 100_000,
            budget_size: 10_000,
            budget_life: Duration::from_millis(500),
        }
    }

    /// One server.
    pub(crate) fn server(url: &str) -> Self {
        Self::new(Client::open(url).map(Connector::Server), false)
    }

    /// The primary that the Sentinels know as `name`. If the servers themselves need passwords or TLS, use
    /// [`Builder::sentinel_client`].
    #[cfg(feature = "sentinel")]
    pub fn sentinel(sentinels: impl IntoIterator<Item = impl AsRef<str>>, name: &str) -> Self {
        let urls = sentinels.into_iter().map(|url| url.as_ref().to_owned());
        // A String: redis-rs takes nothing else, unless it has TLS.
        let name = name.to_owned();
        let client = redis::sentinel::SentinelClient::build(
            urls.collect(),
            name,
            None,
            redis::sentinel::SentinelServerType::Master,
        );
        let connector = |client| Connector::Sentinel(tokio::sync::Mutex::new(client));
        Self::new(client.map(connector), false)
    }

    /// The primary that your own Sentinel client finds.
    #[cfg(feature = "sentinel")]
    pub fn sentinel_client(client: redis::sentinel::SentinelClient) -> Self {
        Self::new(
            Ok(Connector::Sentinel(tokio::sync::Mutex::new(client))),
            false,
        )
    }

    /// A cluster, discovered through some of its nodes.
    #[cfg(feature = "cluster")]
    pub fn cluster(nodes: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let nodes: Vec<String> = nodes
            .into_iter()
            .map(|url| url.as_ref().to_owned())
            .collect();
        let client = redis::cluster::ClusterClient::new(nodes);
        Self::new(client.map(Connector::Cluster), true)
    }

    /// A cluster, through your own client.
    #[cfg(feature = "cluster")]
    pub fn cluster_client(client: redis::cluster::ClusterClient) -> Self {
        Self::new(Ok(Connector::Cluster(client)), true)
    }

    /// Your own connection. It should reconnect by itself, as `ConnectionManager` does. For a cluster, use
    /// [`Builder::cluster_client`] instead: it knows that a cluster can fail in parts.
    pub fn connection<C>(connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self::new(Ok(Connector::Given(Arc::new(connection))), false)
    }

    /// How long a check waits for the server. Default 5 ms.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// How long connecting to a server may take. No check waits for it. Default 1 s.
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        Self {
            connect_timeout,
            ..self
        }
    }

    /// What happens to calls that the server does not answer in time. Default: [`FailureMode::Local`] with a share of 0.2.
    pub fn failure_mode(self, mode: FailureMode) -> Self {
        Self {
            failure: mode,
            ..self
        }
    }

    /// Consecutive failures that open the breaker; a lost connection opens it immediately. Default 5.
    pub fn breaker_failures(mut self, failures: u32) -> Self {
        self.backoff.failures = failures;
        self
    }

    /// Delays between probes while the breaker is open: the first one, and the longest. Each delay is twice the previous
    /// one, ± 50 %. Default 50 ms and 1 s.
    pub fn breaker_backoff(mut self, first: Duration, max: Duration) -> Self {
        self.backoff.shortest = first.max(Duration::from_millis(1));
        self.backoff.longest = max.max(self.backoff.shortest);
        self
    }

    /// Bounds the deny cache: it remembers the denials of at most `max_keys` keys, each for at most `max_age`. A reset or
    /// refund may go unnoticed for that long. Default 100 000 and 1 s; with 0 keys the cache is off.
    pub fn deny_cache(self, max_keys: usize, max_age: Duration) -> Self {
        Self {
            deny_size: max_keys,
            deny_longest: max_age,
            ..self
        }
    }

    /// Bounds the memory of the fallback: how many keys the process tracks while the server is unavailable. When there are
    /// more, it forgets the least used. Default 100 000.
    pub fn max_local_keys(self, max_keys: usize) -> Self {
        Self {
            ledger_size: max_keys,
            ..self
        }
    }

    /// Bounds the [budgets](crate::budgets): at most `max_keys` keys have one, and a chunk is kept for at most `max_age`
    /// before it is refunded. Default 10 000 and 500 ms. A shorter age is fairer between processes; a longer one saves
    /// calls.
    pub fn budgets(self, max_keys: usize, max_age: Duration) -> Self {
        Self {
            budget_size: max_keys,
            budget_life: max_age,
            ..self
        }
    }

    /// Connects, and detects whether the server has the module.
    pub async fn build(self) -> Result<Limiter, Error> {
        let max_wait = self.connect_timeout;
        let limiter = self.assemble()?;
        // No caller is waiting yet, so a cold start may take longer than a check.
        let reconnected = limiter.shared.server.reconnect(0, max_wait).await;
        reconnected.map_err(Error::Unavailable)?;
        Ok(limiter)
    }

    /// Connects in the background, and applies the failure mode until then: a gateway can start while the server is
    /// unavailable. Must be called within a Tokio runtime.
    pub fn build_lazy(self) -> Result<Limiter, Error> {
        let limiter = self.assemble()?;
        limiter.shared.server.start_open();
        Ok(limiter)
    }

    fn assemble(self) -> Result<Limiter, Error> {
        let outside = |_| {
            let text = "a limiter needs a Tokio runtime";
            Error::Config((redis::ErrorKind::InvalidClientConfig, text).into())
        };
        let config = Config {
            backoff: self.backoff,
            timeout: self.timeout,
            connect_timeout: self.connect_timeout,
            longest_call: self.timeout.max(self.budget_life).min(LONGEST_CALL),
            ledger_size: self.ledger_size,
            runtime: Handle::try_current().map_err(outside)?,
        };
        let connector = self.connector.map_err(Error::Config)?;
        let shared = Shared {
            server: Server::new(connector, self.cluster, config),
            denied: DenyCache::new(self.deny_size, self.deny_longest),
            budgets: Budgets::new(self.budget_size, self.budget_life),
        };
        shared.server.start_heartbeat();
        Ok(Limiter::new(shared, self.failure))
    }
}

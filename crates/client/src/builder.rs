//! How a limiter is set up.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Client, RedisResult};
use tokio::runtime::Handle;

use crate::breaker::Patience;
use crate::budgets::Budgets;
use crate::connection::Connector;
use crate::deny_cache::DenyCache;
use crate::limiter::Shared;
use crate::server::{Config, Server};
use crate::{Error, FailureMode, Limiter};

/// A cluster's connection waits no longer for any answer: a silent node may hold it up for as long.
const LONGEST_CALL: Duration = Duration::from_secs(10);

/// Sets up a [`Limiter`]; the defaults suit a gateway near its server.
///
/// ```no_run
/// use std::time::Duration;
/// use rl_client::{FailureMode, Limiter};
///
/// # async fn example() -> Result<(), rl_client::Error> {
/// let limiter = Limiter::builder("redis://10.0.0.5/")
///     .timeout(Duration::from_millis(10))
///     .on_failure(FailureMode::Local { share: 0.1 })
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
    patience: Patience,
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
            patience: Patience {
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

    /// The primary that Sentinels know as `name`. For passwords and TLS of the servers themselves, bring the client:
    /// [`Builder::sentinel_client`].
    #[cfg(feature = "sentinel")]
    pub fn sentinel(sentinels: impl IntoIterator<Item = impl AsRef<str>>, name: &str) -> Self {
        let urls = sentinels.into_iter().map(|url| url.as_ref().to_owned());
        let client = redis::sentinel::SentinelClient::build(
            urls.collect(),
            name.to_owned(),
            None,
            redis::sentinel::SentinelServerType::Master,
        );
        let connector = |client| Connector::Sentinel(tokio::sync::Mutex::new(client));
        Self::new(client.map(connector), false)
    }

    /// The server that a Sentinel client of yours names.
    #[cfg(feature = "sentinel")]
    pub fn sentinel_client(client: redis::sentinel::SentinelClient) -> Self {
        Self::new(
            Ok(Connector::Sentinel(tokio::sync::Mutex::new(client))),
            false,
        )
    }

    /// A cluster, found through some of its nodes.
    #[cfg(feature = "cluster")]
    pub fn cluster(nodes: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let nodes: Vec<String> = nodes
            .into_iter()
            .map(|url| url.as_ref().to_owned())
            .collect();
        let client = redis::cluster::ClusterClient::new(nodes);
        Self::new(client.map(Connector::Cluster), true)
    }

    /// A cluster by a client of yours.
    #[cfg(feature = "cluster")]
    pub fn cluster_client(client: redis::cluster::ClusterClient) -> Self {
        Self::new(Ok(Connector::Cluster(client)), true)
    }

    /// A connection that you bring; it should reconnect by itself, as `ConnectionManager` does. For a cluster's connection
    /// use [`Builder::cluster_client`], which knows that clusters fail in parts.
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

    /// How long connecting to a server may take, which no check waits for. Default 1 s.
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        Self {
            connect_timeout,
            ..self
        }
    }

    /// What happens to calls that the server does not answer. Default: [`FailureMode::Local`] with a share of a fifth.
    pub fn on_failure(self, failure: FailureMode) -> Self {
        Self { failure, ..self }
    }

    /// Failures in a row after which the server is given up on for a while; a lost connection counts at once. Default 5.
    pub fn breaker_failures(mut self, failures: u32) -> Self {
        self.patience.failures = failures;
        self
    }

    /// Pauses between probes of a server that was given up on: from the first to the longest, doubling, each give or take
    /// half. Default 50 ms to 1 s.
    pub fn breaker_pauses(mut self, first: Duration, longest: Duration) -> Self {
        self.patience.shortest = first.max(Duration::from_millis(1));
        self.patience.longest = longest.max(self.patience.shortest);
        self
    }

    /// How many denials are remembered, and how long at most: as long as a reset or a refund may go unnoticed. Default 100 000
    /// and 1 s; 0 turns the cache off.
    pub fn deny_cache(self, size: usize, longest: Duration) -> Self {
        Self {
            deny_size: size,
            deny_longest: longest,
            ..self
        }
    }

    /// How many keys are limited locally while the server is away. Default 100 000.
    pub fn local_keys(self, size: usize) -> Self {
        Self {
            ledger_size: size,
            ..self
        }
    }

    /// How many keys may have a budget, and how long one may be held before it is given back. Default 10 000 and 500 ms.
    /// Shorter is fairer between nodes, longer saves calls.
    pub fn budgets(self, size: usize, life: Duration) -> Self {
        Self {
            budget_size: size,
            budget_life: life,
            ..self
        }
    }

    /// Connects, and finds out what the server can do.
    pub async fn build(self) -> Result<Limiter, Error> {
        let patience = self.connect_timeout;
        let limiter = self.assemble()?;
        // No caller waits yet, so a cold start may take its time.
        let revived = limiter.shared.server.revive(0, patience).await;
        revived.map_err(Error::Unavailable)?;
        Ok(limiter)
    }

    /// Connects in the background, and decides by the failure mode until then: a gateway can start while the server is
    /// away. Needs to run within a Tokio runtime.
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
            patience: self.patience,
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

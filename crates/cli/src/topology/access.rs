//! Connections to nodes.

use std::time::Duration;

use redis::{
    Client, Connection, ConnectionInfo, ErrorKind, FromRedisValue, IntoConnectionInfo, RedisError,
    RedisResult, ServerErrorKind,
};
use rl_client::commands::TypedCmd;

use super::discovery::{address, cluster_nodes, host_of, node, split, with_replicas};
use super::{Info, Node, Topology};
use crate::args::Connect;
use crate::failure::Failure;

/// How many redirections or primaries to follow.
const MAX_HOPS: usize = 5;

/// How to reach any node: all of them share credentials and transport.
#[derive(Clone)]
pub struct Access {
    seeds: Vec<ConnectionInfo>,
    timeout: Duration,
}

/// A connection to one node.
pub struct NodeConnection {
    info: ConnectionInfo,
    connection: Connection,
}

impl NodeConnection {
    pub fn query<T: FromRedisValue>(&mut self, command: &TypedCmd<T>) -> Result<T, Failure> {
        let reply = command.query(&mut self.connection);
        reply.map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &RedisError) -> Failure {
        Failure::of_node(&self.info.addr().to_string(), error)
    }
}

impl Access {
    pub fn new(connect: &Connect) -> Result<Self, Failure> {
        let seeds = connect.url.iter().map(|url| seed(url.trim(), connect));
        Ok(Self {
            seeds: seeds.collect::<Result<_, _>>()?,
            timeout: Duration::from_secs(connect.timeout),
        })
    }

    pub(super) fn with_seeds(&self, seeds: Vec<ConnectionInfo>) -> Self {
        Self {
            seeds,
            timeout: self.timeout,
        }
    }

    pub(super) fn open(&self, info: &ConnectionInfo) -> RedisResult<Connection> {
        let connection = Client::open(info.clone())?.get_connection_with_timeout(self.timeout)?;
        connection.set_read_timeout(Some(self.timeout))?;
        connection.set_write_timeout(Some(self.timeout))?;
        Ok(connection)
    }

    fn connect(&self, info: ConnectionInfo) -> Result<NodeConnection, Failure> {
        match self.open(&info) {
            Ok(connection) => Ok(NodeConnection { info, connection }),
            Err(error) => Err(Failure::of_node(&info.addr().to_string(), &error)),
        }
    }

    /// Connects to the first seed that replies.
    fn connect_any(&self) -> Result<NodeConnection, Failure> {
        let mut failures = Vec::new();
        for info in &self.seeds {
            match self.connect(info.clone()) {
                Ok(node) => return Ok(node),
                Err(failure) => failures.push(failure),
            }
        }
        match &mut failures[..] {
            [_] => Err(failures.remove(0)),
            all => {
                let lines: Vec<_> = all.iter().map(|failure| failure.line()).collect();
                let hint = all.first().map(|failure| &*failure.hint);
                Err(Failure::new(lines.join("; "), hint.unwrap_or_default()))
            }
        }
    }

    /// Connects to the first seed that replies or, if that is a replica outside a cluster, to its primary. Returns the
    /// connection and the node's INFO.
    fn connect_primary(&self) -> Result<(NodeConnection, RedisResult<Info>), Failure> {
        let mut node = self.connect_any()?;
        for _ in 0..MAX_HOPS {
            let info = redis::cmd("INFO").query::<Info>(&mut node.connection);
            let primary = info.as_ref().ok().and_then(|info| {
                let port = u16::try_from(info.number("master_port")?).ok()?;
                let host = info.get("master_host")?;
                (!info.is("cluster_enabled", "1")).then(|| address(&node.info, host, port))
            });
            match primary {
                Some(primary) => node = self.connect(primary)?,
                None => return Ok((node, info)),
            }
        }
        Err(Failure::new("the chain of replicas does not end", ""))
    }

    /// Finds every node.
    pub fn discover(&self) -> Result<Topology, Failure> {
        let (mut node, info) = self.connect_primary()?;
        let info = info.map_err(|error| node.failure(&error))?;
        if !info.is("cluster_enabled", "1") {
            return Ok(self.topology(false, with_replicas(&node.info, &info)));
        }
        let nodes = redis::cmd("CLUSTER")
            .arg("NODES")
            .query::<String>(&mut node.connection)
            .map_err(|error| node.failure(&error))?;
        Ok(self.topology(true, cluster_nodes(&nodes, &node.info)))
    }

    fn topology(&self, cluster: bool, mut nodes: Vec<Node>) -> Topology {
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Topology {
            cluster,
            nodes,
            access: self.clone(),
        }
    }

    /// The given addresses as primaries, before anything else is known.
    pub(super) fn given(&self) -> Topology {
        let nodes = self.seeds.iter().map(|info| node(info.clone(), None));
        self.topology(false, nodes.collect())
    }

    /// Sends a command to the primary that serves its key. Returns the reply and the connection to that node.
    pub fn call<T: FromRedisValue>(
        &self,
        command: &TypedCmd<T>,
    ) -> Result<(T, NodeConnection), Failure> {
        // A user without permission for INFO may still send the command to the given node.
        let (mut node, _) = self.connect_primary()?;
        let mut asking = false;
        for _ in 0..MAX_HOPS {
            if asking {
                let asked = redis::cmd("ASKING").exec(&mut node.connection);
                asked.map_err(|error| node.failure(&error))?;
            }
            let error = match command.query(&mut node.connection) {
                Ok(reply) => return Ok((reply, node)),
                Err(error) => error,
            };
            let Some((host, port)) = error.redirect_node().and_then(|(name, _)| split(name)) else {
                return Err(node.failure(&error));
            };
            asking = error.kind() == ErrorKind::Server(ServerErrorKind::Ask);
            let host = if host.is_empty() {
                host_of(&node.info)
            } else {
                host
            };
            node = self.connect(address(&node.info, host, port))?;
        }
        Err(Failure::new(
            "the cluster redirects the call in circles",
            "its slots are moving: try again in a moment",
        ))
    }
}

fn seed(url: &str, connect: &Connect) -> Result<ConnectionInfo, Failure> {
    let wrong = |error: RedisError| {
        Failure::new(
            format!("invalid address: {}", error.detail().unwrap_or("not a URL")),
            "write --url redis://[USER:PASSWORD@]HOST[:PORT], or set RL_URL",
        )
    };
    if url.starts_with("rediss:") || url.starts_with("valkeys:") {
        return Err(Failure::new(
            "rl does not support TLS",
            "run it on the server's host, or through a tunnel such as stunnel, with redis://",
        ));
    }
    let info = url.into_connection_info().map_err(wrong)?;
    // Servers before 7.2 would count it as an error.
    let mut settings = info.redis_settings().clone().set_skip_set_lib_name();
    if let (None, Some(user)) = (settings.username(), &connect.user) {
        settings = settings.set_username(user);
    }
    if let (None, Some(password)) = (settings.password(), &connect.password) {
        settings = settings.set_password(password);
    }
    Ok(info.set_redis_settings(settings))
}

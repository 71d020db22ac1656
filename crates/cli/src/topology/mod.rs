//! The nodes that an address leads to: a server and its replicas, or a whole cluster.

mod access;
mod discovery;
mod info;

use std::thread;

use redis::{Connection, ConnectionInfo, ErrorKind, RedisResult};
use serde::Serialize;

use crate::failure::Failure;

pub use access::{Access, NodeConnection};
pub use info::Info;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Primary,
    Replica,
}

#[derive(Clone)]
pub struct Node {
    /// `host:port`
    pub name: String,
    pub role: Role,
    /// A replica's primary.
    pub primary: Option<String>,
    /// Slots that a cluster's primary serves.
    pub slots: u32,
    /// Whether the cluster considers it failed.
    pub failed: bool,
    info: ConnectionInfo,
}

#[derive(Clone)]
pub struct Topology {
    pub cluster: bool,
    pub nodes: Vec<Node>,
    access: Access,
}

/// The reply of each node, or why there is none.
pub type Replies<'a, T> = Vec<(&'a Node, Result<T, Failure>)>;

impl Topology {
    pub fn primaries(&self) -> Vec<&Node> {
        let primaries = self.nodes.iter().filter(|node| node.role == Role::Primary);
        // A failed primary that was replaced serves no slots any more.
        primaries
            .filter(|node| !node.failed || node.slots > 0)
            .collect()
    }

    pub fn all(&self) -> Vec<&Node> {
        self.nodes.iter().collect()
    }

    /// Queries nodes concurrently, so that one that is down does not delay the others.
    pub fn query<'a, T: Send>(
        &self,
        nodes: Vec<&'a Node>,
        query: impl Fn(&mut Connection) -> RedisResult<T> + Sync,
    ) -> Replies<'a, T> {
        let one = |node: &Node| {
            let mut connection = self.access.open(&node.info)?;
            query(&mut connection)
        };
        thread::scope(|scope| {
            let running: Vec<_> = nodes
                .into_iter()
                .map(|node| (node, scope.spawn(|| one(node))))
                .collect();
            let replies = running.into_iter().map(|(node, thread)| {
                let panicked = |_| Err((ErrorKind::Client, "a bug in rl").into());
                let reply = thread.join().unwrap_or_else(panicked);
                let failure = |error| Failure::of_node(&node.name, &error);
                (node, reply.map_err(failure))
            });
            replies.collect()
        })
    }
}

/// Discovers the topology repeatedly, even while the given address is down.
pub struct Watch {
    access: Access,
    known: Topology,
}

impl Watch {
    pub fn new(access: &Access) -> Self {
        Self {
            access: access.clone(),
            known: access.given(),
        }
    }

    /// Discovers the current nodes and roles.
    pub fn refresh(&mut self) -> Result<&Topology, Failure> {
        let known = self.known.nodes.iter().map(|node| node.info.clone());
        let known = self.access.with_seeds(known.collect());
        let found = self.access.discover();
        self.known = found.or_else(|failure| known.discover().map_err(|_| failure))?;
        Ok(&self.known)
    }

    /// The nodes of the last successful discovery.
    pub fn known(&self) -> &Topology {
        &self.known
    }
}

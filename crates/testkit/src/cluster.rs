//! Clusters.

use std::ops::Range;

use crate::{Server, eventually};

/// All slots of a cluster.
pub const ALL_SLOTS: Range<u16> = 0..16384;

const PRIMARIES: usize = 3;

/// A cluster of three primaries, with or without a replica for each.
pub struct Cluster {
    /// The nodes: at first, the first three are primaries and the others are their replicas.
    pub nodes: Vec<Server>,
}

impl Cluster {
    /// Starts a cluster without replicas.
    pub fn start() -> Self {
        Self::of(Self::nodes(PRIMARIES, &[]))
    }

    /// Starts a cluster with a replica for each primary and an AOF on every node.
    pub fn with_replicas() -> Self {
        Self::of(Self::nodes(2 * PRIMARIES, &["appendonly", "yes"]))
    }

    fn nodes(count: usize, config: &[&str]) -> Vec<Server> {
        let config = [&Self::config(), config].concat();
        (0..count).map(|_| Server::with(&config)).collect()
    }

    /// The configuration of a node.
    pub fn config() -> Vec<&'static str> {
        let mut config = vec!["cluster-enabled", "yes", "cluster-node-timeout", "2000"];
        // The failure of one shard must not stop the others.
        config.extend(["cluster-require-full-coverage", "no"]);
        config
    }

    /// Makes a cluster of running servers. The first three become primaries, the others replicas.
    pub fn of(nodes: Vec<Server>) -> Self {
        let cluster = Self { nodes };
        let (primaries, replicas) = cluster.nodes.split_at(PRIMARIES);
        let share = |n: usize| (n * usize::from(ALL_SLOTS.end) / PRIMARIES) as u16;
        for (n, primary) in primaries.iter().enumerate() {
            // Distinct epochs from the start, so that the nodes need not agree on them.
            let epoch = (n + 1).to_string();
            let _: () = primary.run("CLUSTER", &["SET-CONFIG-EPOCH", &epoch]);
            assign_slots(primary, share(n)..share(n + 1));
        }
        for node in &cluster.nodes[1..] {
            let port = node.port().to_string();
            let _: () = cluster.nodes[0].run("CLUSTER", &["MEET", "127.0.0.1", &port]);
        }
        cluster.wait_until("every node knows every node", |node| {
            let known: String = node.run("CLUSTER", &["NODES"]);
            known.lines().count() == cluster.nodes.len() && !known.contains("handshake")
        });
        for (replica, primary) in replicas.iter().zip(primaries) {
            let id: String = primary.run("CLUSTER", &["MYID"]);
            let _: () = replica.run("CLUSTER", &["REPLICATE", &id]);
        }
        cluster.wait_until("every node knows every role and slot", |node| {
            let state: String = node.run("CLUSTER", &["INFO"]);
            let known: String = node.run("CLUSTER", &["NODES"]);
            state.contains("cluster_state:ok")
                && state.contains("cluster_slots_ok:16384")
                && known.matches("slave").count() == replicas.len()
        });
        for (replica, primary) in replicas.iter().zip(primaries) {
            replica.wait_until_in_sync();
            primary.wait_until_online(replica);
        }
        cluster
    }

    fn wait_until(&self, what: &str, is_true: impl Fn(&Server) -> bool) {
        eventually(what, || self.nodes.iter().all(&is_true));
    }

    /// The URL of the first node.
    pub fn url(&self) -> String {
        self.nodes[0].url()
    }

    /// The nodes that are primaries now.
    pub fn primaries(&self) -> Vec<&Server> {
        self.in_role("master")
    }

    /// The nodes that are replicas now.
    pub fn replicas(&self) -> Vec<&Server> {
        self.in_role("slave")
    }

    fn in_role(&self, role: &str) -> Vec<&Server> {
        let nodes = self.nodes.iter();
        nodes
            .filter(|node| node.info("replication", "role") == role)
            .collect()
    }
}

impl Server {
    /// Waits until this cluster node serves its slots.
    pub fn wait_until_cluster_is_up(&self) {
        eventually("the cluster is up", || {
            let info: String = self.run("CLUSTER", &["INFO"]);
            info.contains("cluster_state:ok")
        });
    }
}

/// Assigns slots to a cluster node. A list works on every version; ranges need 7.0.
pub fn assign_slots(node: &Server, slots: Range<u16>) {
    let mut command = redis::cmd("CLUSTER");
    command.arg("ADDSLOTS").arg(slots.collect::<Vec<_>>());
    command.exec(&mut node.connect()).unwrap();
}

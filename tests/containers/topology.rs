//! A primary and a replica, with something that promotes the replica: three sentinels, or a cluster.

use crate::callers::slot;
use crate::network::{Network, Node};
use rl_testkit::eventually;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Sentinel,
    Cluster,
}

pub struct Topology {
    kind: Kind,
    /// Primary and replica at first. In a cluster, of the slots up to [`LAST_SLOT`].
    pub nodes: [Node; 2],
    /// The sentinels, or the primaries of the other slots.
    watchers: Vec<Node>,
    /// Last, so that it outlives its nodes.
    _network: Network,
}

const LAST_SLOT: u16 = 5460;
/// Nobody is taken for dead whom a busy machine only holds up.
pub const CLUSTER: [&str; 4] = ["--cluster-enabled", "yes", "--cluster-node-timeout", "4000"];

impl Topology {
    pub fn new(kind: Kind, options: &[&str]) -> Self {
        let network = Network::new();
        match kind {
            Kind::Sentinel => Self::sentinel(network, options),
            Kind::Cluster => Self::cluster(network, options),
        }
    }

    fn sentinel(network: Network, options: &[&str]) -> Self {
        let nodes = [network.server(options), network.server(&[])];
        nodes[1].follow(&nodes[0]);
        let watchers: Vec<Node> = (0..3).map(|_| network.sentinel(&nodes[0])).collect();
        for watcher in &watchers {
            eventually("the sentinels know each other and the replica", || {
                let known: String = watcher.info("sentinel", "master0");
                known.contains("slaves=1") && known.contains("sentinels=3")
            });
        }
        Self {
            kind: Kind::Sentinel,
            nodes,
            watchers,
            _network: network,
        }
    }

    fn cluster(network: Network, options: &[&str]) -> Self {
        let first: Vec<&str> = CLUSTER.iter().chain(options).copied().collect();
        let nodes = [network.server(&first), network.server(&CLUSTER)];
        let watchers = vec![network.server(&CLUSTER), network.server(&CLUSTER)];
        join_cluster(&[&nodes[0], &watchers[0], &watchers[1]]);
        replicate(&nodes[1], &nodes[0], &watchers);
        Self {
            kind: Kind::Cluster,
            nodes,
            watchers,
            _network: network,
        }
    }

    /// The primary, as those who decide it say now.
    pub fn primary(&self) -> Option<&Node> {
        let address = match self.kind {
            Kind::Sentinel => {
                let asked = "SENTINEL GET-MASTER-ADDR-BY-NAME limits";
                self.watchers[0].try_run::<(String, u16)>(asked).ok()?.0
            }
            Kind::Cluster => {
                let known: String = self.watchers[0].try_run("CLUSTER NODES").ok()?;
                owner_of_first_slot(&known)?
            }
        };
        self.nodes.iter().find(|node| node.address == address)
    }

    /// Waits until the replica is the primary, by its own word and everybody else's.
    pub fn wait_for_promotion(&self) {
        eventually("the replica is promoted", || {
            let named = self
                .primary()
                .is_some_and(|node| node.address == self.nodes[1].address);
            named && self.nodes[1].is_primary() && self.is_up()
        });
    }

    fn is_up(&self) -> bool {
        self.kind == Kind::Sentinel || is_up(&self.nodes[1])
    }

    /// Where a client begins: the sentinels, or nodes of the cluster.
    pub fn seeds(&self) -> Vec<String> {
        let port = match self.kind {
            Kind::Sentinel => 26379,
            Kind::Cluster => 6379,
        };
        let urls = self.watchers.iter();
        urls.map(|node| format!("redis://{}:{port}", node.address))
            .collect()
    }

    /// Names of keys that these two nodes hold.
    pub fn keys(prefix: &str, count: usize) -> Vec<String> {
        let all = (0..).map(|n| format!("{prefix}:{n}"));
        all.filter(|key| slot(key) <= LAST_SLOT)
            .take(count)
            .collect()
    }
}

fn owner_of_first_slot(nodes: &str) -> Option<String> {
    let line = nodes.lines().find(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        words.get(2).is_some_and(|flags| flags.contains("master"))
            && words.iter().skip(8).any(|slots| slots.starts_with("0-"))
    })?;
    Some(line.split(' ').nth(1)?.split(':').next()?.to_owned())
}

/// Makes three servers the primaries of a cluster, in order of slots.
pub fn join_cluster(primaries: &[&Node; 3]) {
    let ranges = ["0 5460", "5461 10922", "10923 16383"];
    for (n, (node, range)) in primaries.iter().zip(ranges).enumerate() {
        let _: () = node.run(&format!("CLUSTER ADDSLOTSRANGE {range}"));
        let _: () = node.run(&format!("CLUSTER SET-CONFIG-EPOCH {}", n + 1));
        let _: () = primaries[0].run(&format!("CLUSTER MEET {} 6379", node.address));
    }
    for node in primaries {
        eventually("the cluster is up", || is_up(node) && knows(node, 3));
    }
}

/// Returns when everybody who votes knows the replica: strangers are never promoted.
fn replicate(replica: &Node, primary: &Node, voters: &[Node]) {
    let id: String = primary.run("CLUSTER MYID");
    let _: () = replica.run(&format!("CLUSTER MEET {} 6379", primary.address));
    eventually("the nodes have met", || {
        replica
            .try_run::<()>(&format!("CLUSTER REPLICATE {id}"))
            .is_ok()
    });
    replica.wait_in_sync();
    for node in voters.iter().chain([primary, replica]) {
        eventually("all know the replica", || {
            let known: String = node.run("CLUSTER NODES");
            let mut lines = known.lines();
            lines.any(|line| line.contains("slave ") && line.contains(&id))
        });
    }
}

fn is_up(node: &Node) -> bool {
    let info: String = node.try_run("CLUSTER INFO").unwrap_or_default();
    info.contains("cluster_state:ok")
}

fn knows(node: &Node, count: usize) -> bool {
    let known: String = node.try_run("CLUSTER NODES").unwrap_or_default();
    known
        .lines()
        .filter(|line| line.contains("connected"))
        .count()
        >= count
}

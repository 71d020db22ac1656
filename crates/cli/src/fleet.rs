//! The nodes behind an address: one server with its replicas, or a whole cluster.

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use redis::{Client, Cmd, Connection, ConnectionAddr, ConnectionInfo, FromRedisValue, RedisResult};
use redis::{ErrorKind, IntoConnectionInfo, ServerErrorKind};
use serde::Serialize;

use crate::args::Connect;
use crate::failure::Failure;
use crate::info::Info;

/// Redirections that one call follows.
const MAX_HOPS: usize = 5;

/// How to reach any node: all share credentials and transport.
#[derive(Clone)]
pub struct Access {
    seeds: Vec<ConnectionInfo>,
    timeout: Duration,
}

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
    pub follows: Option<String>,
    /// Slots that a cluster's primary serves.
    pub slots: u32,
    /// Whether the cluster has given it up.
    pub failed: bool,
    info: ConnectionInfo,
}

#[derive(Clone)]
pub struct Fleet {
    pub cluster: bool,
    pub nodes: Vec<Node>,
    access: Access,
}

/// What a node answered, or why it did not.
pub type Answers<'a, T> = Vec<(&'a Node, Result<T, Failure>)>;

impl Access {
    pub fn new(connect: &Connect) -> Result<Self, Failure> {
        let seeds = connect.url.iter().map(|url| seed(url.trim(), connect));
        Ok(Self {
            seeds: seeds.collect::<Result<_, _>>()?,
            timeout: Duration::from_secs(connect.timeout),
        })
    }

    fn open(&self, info: &ConnectionInfo) -> RedisResult<Connection> {
        let connection = Client::open(info.clone())?.get_connection_with_timeout(self.timeout)?;
        connection.set_read_timeout(Some(self.timeout))?;
        connection.set_write_timeout(Some(self.timeout))?;
        Ok(connection)
    }

    /// The first seed that answers; if none does, why.
    fn first(&self) -> Result<(&ConnectionInfo, Connection), Failure> {
        let mut failures = Vec::new();
        for info in &self.seeds {
            match self.open(info) {
                Ok(connection) => return Ok((info, connection)),
                Err(error) => failures.push(Failure::of(&info.addr().to_string(), &error)),
            }
        }
        let all: Vec<_> = failures.iter().map(|failure| &*failure.error).collect();
        let todo = failures.first().map(|failure| &*failure.todo);
        Err(Failure::new(all.join("; "), todo.unwrap_or_default()))
    }

    /// Finds every node.
    pub fn survey(&self) -> Result<Fleet, Failure> {
        let (info, mut connection) = self.first()?;
        let mut info = info.clone();
        for _ in 0..MAX_HOPS {
            let failure = |error| Failure::of(&info.addr().to_string(), &error);
            let state: Info = redis::cmd("INFO").query(&mut connection).map_err(failure)?;
            if state.is("cluster_enabled", "1") {
                let nodes: String = redis::cmd("CLUSTER")
                    .arg("NODES")
                    .query(&mut connection)
                    .map_err(failure)?;
                return Ok(self.fleet(true, cluster_nodes(&nodes, &info)));
            }
            let primary = (state.get("master_host"), state.number("master_port"));
            let (Some(host), Some(port)) = primary else {
                return Ok(self.fleet(false, with_replicas(&info, &state)));
            };
            // A replica: its primary knows the others.
            info = at(&info, host, port as u16);
            connection = self
                .open(&info)
                .map_err(|error| Failure::of(&info.addr().to_string(), &error))?;
        }
        Err(Failure::new("the chain of replicas does not end", ""))
    }

    fn fleet(&self, cluster: bool, mut nodes: Vec<Node>) -> Fleet {
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        let access = self.clone();
        Fleet {
            cluster,
            nodes,
            access,
        }
    }

    /// The addresses given, as primaries, for want of anything better known.
    fn given(&self) -> Fleet {
        let nodes = self.seeds.iter().map(|info| node(info.clone(), None));
        self.fleet(false, nodes.collect())
    }

    /// One call, wherever its key is.
    pub fn call<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Failure> {
        let (info, mut connection) = self.first()?;
        let mut info = info.clone();
        let mut asking = false;
        for _ in 0..MAX_HOPS {
            let failure = |error| Failure::of(&info.addr().to_string(), &error);
            if asking {
                redis::cmd("ASKING")
                    .exec(&mut connection)
                    .map_err(failure)?;
            }
            let error = match command.query::<T>(&mut connection) {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            let Some((host, port)) = error.redirect_node().and_then(|(name, _)| split(name)) else {
                return Err(failure(error));
            };
            asking = error.kind() == ErrorKind::Server(ServerErrorKind::Ask);
            let host = if host.is_empty() {
                host_of(&info)
            } else {
                host
            };
            info = at(&info, host, port);
            connection = self
                .open(&info)
                .map_err(|error| Failure::of(&info.addr().to_string(), &error))?;
        }
        Err(Failure::new(
            "the cluster sends the call around in circles",
            "its slots are moving: try again in a moment",
        ))
    }
}

impl Fleet {
    pub fn primaries(&self) -> Vec<&Node> {
        let primaries = self.nodes.iter().filter(|node| node.role == Role::Primary);
        // One that failed and was replaced serves nothing any more.
        primaries
            .filter(|node| !node.failed || node.slots > 0)
            .collect()
    }

    pub fn all(&self) -> Vec<&Node> {
        self.nodes.iter().collect()
    }

    /// Asks nodes, all at once, so that a dead one delays nobody.
    pub fn ask<'a, T: Send>(
        &self,
        nodes: Vec<&'a Node>,
        question: impl Fn(&mut Connection) -> RedisResult<T> + Sync,
    ) -> Answers<'a, T> {
        let one = |node: &Node| {
            let mut connection = self.access.open(&node.info)?;
            question(&mut connection)
        };
        thread::scope(|scope| {
            let asked: Vec<_> = nodes
                .into_iter()
                .map(|node| (node, scope.spawn(|| one(node))))
                .collect();
            let answered = asked.into_iter().map(|(node, thread)| {
                let crashed = |_| Err((ErrorKind::Client, "a bug in rl").into());
                let answer = thread.join().unwrap_or_else(crashed);
                (
                    node,
                    answer.map_err(|error| Failure::of(&node.name, &error)),
                )
            });
            answered.collect()
        })
    }
}

/// One who looks again and again, and finds the rest even when the address given is away.
pub struct Watch {
    access: Access,
    known: Fleet,
}

impl Watch {
    pub fn new(access: &Access) -> Self {
        Self {
            access: access.clone(),
            known: access.given(),
        }
    }

    /// Nodes come, go and change roles: each look is a new one.
    pub fn look(&mut self) -> Result<&Fleet, Failure> {
        let known = Access {
            seeds: self
                .known
                .nodes
                .iter()
                .map(|node| node.info.clone())
                .collect(),
            ..self.access.clone()
        };
        let found = self
            .access
            .survey()
            .or_else(|failure| known.survey().map_err(|_| failure));
        self.known = found?;
        Ok(&self.known)
    }

    /// The nodes as last seen.
    pub fn known(&self) -> &Fleet {
        &self.known
    }
}

fn seed(url: &str, connect: &Connect) -> Result<ConnectionInfo, Failure> {
    let wrong = |error: redis::RedisError| {
        Failure::new(
            format!(
                "the address is not understood: {}",
                error.detail().unwrap_or("not a URL")
            ),
            "write --url redis://[USER:PASSWORD@]HOST[:PORT], or set RL_URL",
        )
    };
    if url.starts_with("rediss:") || url.starts_with("valkeys:") {
        return Err(Failure::new(
            "rl speaks no TLS",
            "run it beside the server, or through a tunnel such as stunnel, with redis://",
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

fn node(info: ConnectionInfo, follows: Option<String>) -> Node {
    Node {
        name: info.addr().to_string(),
        role: if follows.is_some() {
            Role::Replica
        } else {
            Role::Primary
        },
        follows,
        slots: 0,
        failed: false,
        info,
    }
}

fn host_of(info: &ConnectionInfo) -> &str {
    match info.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
        _ => "127.0.0.1",
    }
}

/// Another node, reached in the same way.
fn at(like: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let host = host.to_owned();
    let address = match like.addr().clone() {
        ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure,
            tls_params,
        },
        _ => ConnectionAddr::Tcp(host, port),
    };
    like.clone().set_addr(address)
}

/// `host:port`, where the host may be an IPv6 address.
fn split(name: &str) -> Option<(&str, u16)> {
    let (host, port) = name.rsplit_once(':')?;
    Some((host, port.parse().ok()?))
}

/// CLUSTER NODES, of which every version speaks: `id ip:port@bus[,hostname] flags primary ping pong epoch link slot…`
fn cluster_nodes(text: &str, seed: &ConnectionInfo) -> Vec<Node> {
    let lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let known = lines.filter_map(|words| {
        let node = cluster_node(&words, seed)?;
        Some((words[0].to_owned(), node))
    });
    let mut known: Vec<(String, Node)> = known.collect();
    let names: HashMap<String, String> = known
        .iter()
        .map(|(id, node)| (id.clone(), node.name.clone()))
        .collect();
    for (_, node) in &mut known {
        let primary = node.follows.as_ref().and_then(|id| names.get(id));
        node.follows = node
            .follows
            .is_some()
            .then(|| primary.cloned().unwrap_or_default());
    }
    known.into_iter().map(|(_, node)| node).collect()
}

fn cluster_node(words: &[&str], seed: &ConnectionInfo) -> Option<Node> {
    let &[_, address, flags, primary, ..] = words else {
        return None;
    };
    let flags: Vec<&str> = flags.split(',').collect();
    if flags.contains(&"noaddr") || flags.contains(&"handshake") {
        return None;
    }
    let (host, port) = split(address.split('@').next()?)?;
    // A node that nobody has met yet does not know its own address.
    let host = if host.is_empty() { host_of(seed) } else { host };
    let follows = flags.contains(&"slave").then(|| primary.to_owned());
    Some(Node {
        slots: words.iter().skip(8).filter_map(|range| slots(range)).sum(),
        // `fail?` is one node's guess, and the nodes are asked anyway.
        failed: flags.contains(&"fail"),
        ..node(at(seed, host, port), follows)
    })
}

/// `5`, `0-5460`; those on the move are in brackets, and counted where they are now.
fn slots(range: &str) -> Option<u32> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
    Some((last + 1).saturating_sub(first))
}

/// A server and the replicas that it lists.
fn with_replicas(info: &ConnectionInfo, state: &Info) -> Vec<Node> {
    let primary = node(info.clone(), None);
    let replicas = (0..).map_while(|n| state.get(&format!("slave{n}")));
    let replicas = replicas.filter_map(|line| {
        let field = |name| {
            let mut fields = line.split(',').filter_map(|field| field.split_once('='));
            fields
                .find(|(field, _)| *field == name)
                .map(|(_, value)| value)
        };
        let (host, port) = (field("ip")?, field("port")?.parse().ok()?);
        Some(node(at(info, host, port), Some(primary.name.clone())))
    });
    let replicas: Vec<_> = replicas.collect();
    [vec![primary], replicas].concat()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn seed() -> ConnectionInfo {
        "redis://10.0.0.9:7000".into_connection_info().unwrap()
    }

    #[test]
    fn the_nodes_of_a_cluster() {
        let text = "\
            aa :7000@17000,, myself,master - 0 0 1 connected 0-5460 [5461->-bb]\n\
            bb 10.0.0.2:7001@17001,host2 master - 0 0 2 connected 5461 5463-10922\n\
            cc ::1:7002@17002 master,fail - 0 0 3 disconnected\n\
            dd 10.0.0.4:7003@17003 slave bb 0 0 2 connected\n\
            ee :0@0 master,noaddr - 0 0 0 disconnected\n";
        let fleet = Fleet {
            cluster: true,
            nodes: cluster_nodes(text, &seed()),
            access: Access {
                seeds: vec![],
                timeout: Duration::from_secs(1),
            },
        };
        let shown: Vec<_> = fleet
            .nodes
            .iter()
            .map(|n| (&*n.name, n.role, n.slots, n.failed))
            .collect();
        assert_eq!(
            shown,
            [
                ("10.0.0.9:7000", Role::Primary, 5461, false),
                ("10.0.0.2:7001", Role::Primary, 5461, false),
                ("::1:7002", Role::Primary, 0, true),
                ("10.0.0.4:7003", Role::Replica, 0, false),
            ]
        );
        assert_eq!(fleet.nodes[3].follows.as_deref(), Some("10.0.0.2:7001"));
        let primaries: Vec<_> = fleet.primaries().iter().map(|node| &*node.name).collect();
        assert_eq!(primaries, ["10.0.0.9:7000", "10.0.0.2:7001"]);
    }

    #[test]
    fn a_server_and_its_replicas() {
        let info = Info::from(
            "role:master\r\nslave0:ip=10.0.0.2,port=6380,state=online,offset=1,lag=0\r\n",
        );
        let nodes = with_replicas(&seed(), &info);
        assert_eq!(
            (&*nodes[0].name, nodes[0].role),
            ("10.0.0.9:7000", Role::Primary)
        );
        assert_eq!(
            (&*nodes[1].name, nodes[1].role),
            ("10.0.0.2:6380", Role::Replica)
        );
        assert_eq!(nodes[1].follows.as_deref(), Some("10.0.0.9:7000"));
    }
}

//! The nodes that a server lists.

use std::collections::HashMap;

use redis::{ConnectionAddr, ConnectionInfo};

use super::{Info, Node, Role};

pub(super) fn node(info: ConnectionInfo, primary: Option<String>) -> Node {
    Node {
        name: info.addr().to_string(),
        role: if primary.is_some() {
            Role::Replica
        } else {
            Role::Primary
        },
        primary,
        slots: 0,
        failed: false,
        info,
    }
}

pub(super) fn host_of(info: &ConnectionInfo) -> &str {
    match info.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
        _ => "127.0.0.1",
    }
}

/// The address of another node, reached in the same way.
pub(super) fn address(like: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
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
pub(super) fn split(name: &str) -> Option<(&str, u16)> {
    let (host, port) = name.rsplit_once(':')?;
    Some((host, port.parse().ok()?))
}

/// The nodes in CLUSTER NODES, which every version supports: `id ip:port@bus[,hostname] flags primary ping pong epoch link slot…`
pub(super) fn cluster_nodes(text: &str, seed: &ConnectionInfo) -> Vec<Node> {
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
        let primary = node.primary.as_ref().and_then(|id| names.get(id));
        node.primary = node
            .primary
            .is_some()
            .then(|| primary.cloned().unwrap_or_default());
    }
    known.into_iter().map(|(_, node)| node).collect()
}

fn cluster_node(words: &[&str], seed: &ConnectionInfo) -> Option<Node> {
    let &[_, endpoint, flags, primary, ..] = words else {
        return None;
    };
    let flags: Vec<&str> = flags.split(',').collect();
    if flags.contains(&"noaddr") || flags.contains(&"handshake") {
        return None;
    }
    let (host, port) = split(endpoint.split('@').next()?)?;
    // A node that no other node has contacted yet does not know its own address.
    let host = if host.is_empty() { host_of(seed) } else { host };
    let primary = flags.contains(&"slave").then(|| primary.to_owned());
    Some(Node {
        slots: words.iter().skip(8).filter_map(|range| slots(range)).sum(),
        // `fail?` is one node's guess, and the nodes are queried anyway.
        failed: flags.contains(&"fail"),
        ..node(address(seed, host, port), primary)
    })
}

/// The number of slots in `5` or `0-5460`. Migrating slots are in brackets and are not counted twice.
fn slots(range: &str) -> Option<u32> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
    Some((last + 1).saturating_sub(first))
}

/// A server and the replicas that it lists.
pub(super) fn with_replicas(info: &ConnectionInfo, state: &Info) -> Vec<Node> {
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
        Some(node(address(info, host, port), Some(primary.name.clone())))
    });
    let replicas: Vec<_> = replicas.collect();
    [vec![primary], replicas].concat()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::args::Connect;
    use crate::topology::{Access, Topology};
    use redis::IntoConnectionInfo;

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
        let nodes = cluster_nodes(text, &seed());
        let shown: Vec<_> = nodes
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
        assert_eq!(nodes[3].primary.as_deref(), Some("10.0.0.2:7001"));

        let nowhere = Connect {
            url: vec![],
            user: None,
            password: None,
            timeout: 1,
        };
        let topology = Topology {
            cluster: true,
            nodes,
            access: Access::new(&nowhere).unwrap(),
        };
        let primaries: Vec<_> = topology
            .primaries()
            .iter()
            .map(|node| &*node.name)
            .collect();
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
        assert_eq!(nodes[1].primary.as_deref(), Some("10.0.0.9:7000"));
    }
}

//! What is different in a cluster: slots that move, and replicas that take over by themselves.

use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::Value;

use crate::calls::{count, guard};
use crate::checks::wait_for;
use crate::history::History;
use crate::plan::{Stop, TAGS, Target};
use crate::topology::Node;

const SOON: Duration = Duration::from_secs(60);
const SLOTS: u16 = 16384;

pub struct Cluster {
    /// The node that serves each hash tag, as far as is known.
    pub owner: Vec<usize>,
    slots: Vec<String>,
    ids: Vec<String>,
}

impl History<'_> {
    /// Nodes 0 and 1 share the slots, and node 2 replicates node 0.
    pub fn form_cluster(&mut self) -> Result<(), String> {
        let nodes = &self.topology.nodes;
        let half = SLOTS / 2;
        for (node, slots) in nodes.iter().zip([0..half, half..SLOTS]) {
            let mut con = node.connect().map_err(|error| error.to_string())?;
            let mut all = redis::cmd("CLUSTER");
            all.arg("ADDSLOTS").arg(slots.collect::<Vec<_>>());
            all.exec(&mut con).map_err(|error| error.to_string())?;
        }
        for node in &nodes[1..] {
            let port = nodes[0].port.to_string();
            node.run::<Value>(&["CLUSTER", "MEET", "127.0.0.1", &port])?;
        }
        let mut ids = Vec::new();
        for node in nodes {
            ids.push(node.run::<String>(&["CLUSTER", "MYID"])?);
            wait_for("the nodes know each other", SOON, || {
                let info: String = node.run(&["CLUSTER", "INFO"])?;
                Ok(rl_testkit::info_field(&info, "cluster_known_nodes") == Some("3"))
            })?;
        }
        wait_for("the replica knows its primary", SOON, || {
            let order = nodes[2].run::<Value>(&["CLUSTER", "REPLICATE", &ids[0]]);
            Ok(order.is_ok())
        })?;
        agree(nodes)?;
        wait_for("the replica is in sync", SOON, || {
            Ok(nodes[2].info("replication", "master_link_status")? == "up")
        })?;
        let (mut owner, mut slots) = (Vec::new(), Vec::new());
        for tag in 0..TAGS {
            let slot: u16 = nodes[0].run(&["CLUSTER", "KEYSLOT", &format!("{{t{tag}}}")])?;
            owner.push(usize::from(slot >= half));
            slots.push(slot.to_string());
        }
        for (tag, owner) in owner.iter().enumerate() {
            self.shared.owner[tag].store(*owner, Relaxed);
        }
        self.cluster = Some(Cluster { owner, slots, ids });
        for node in &self.topology.nodes[..2] {
            node.run::<Value>(&["RL.POLICY", "SET", "guard", "SLIDE", "1000000", "1h"])?;
        }
        for tag in 0..TAGS {
            let node = &self.topology.nodes[self.owner(tag)];
            let key = format!("{{t{tag}}}blocked");
            node.run::<Value>(&["RL.OVERRIDE", "SET", &key, "guard", "BLOCK"])?;
        }
        Ok(())
    }

    fn cluster(&mut self) -> &mut Cluster {
        self.cluster.as_mut().unwrap()
    }

    fn owner(&self, tag: usize) -> usize {
        self.cluster.as_ref().unwrap().owner[tag]
    }

    /// Who is a replica of whom, and who serves what, as the nodes say.
    pub fn learn_cluster(&mut self) -> Result<(), String> {
        agree(&self.topology.nodes)?;
        for node in 0..3 {
            let info: String = self.topology.nodes[node].run(&["INFO", "replication"])?;
            let port = match rl_testkit::info_field(&info, "role") {
                Some("master") => None,
                _ => rl_testkit::info_field(&info, "master_port")
                    .and_then(|port| port.parse::<u16>().ok()),
            };
            let upstream = port.and_then(|port| self.node_at(port));
            if upstream != self.topology.upstream[node] {
                self.counted[node] = false;
                self.topology.upstream[node] = upstream;
            }
        }
        let replica = self.cluster_replica()?;
        self.topology.primary = self.topology.root(replica);
        for tag in 0..TAGS {
            let slot = self.cluster().slots[tag].clone();
            let port = owner_port(&self.topology.nodes[0], &slot)?;
            let owner = self.node_at(port).ok_or("a slot without an owner")?;
            self.cluster().owner[tag] = owner;
            self.shared.owner[tag].store(owner, Relaxed);
        }
        if !self.counted[replica] {
            self.topology.nodes[replica].run::<Value>(&["CONFIG", "RESETSTAT"])?;
            self.counted[replica] = true;
        }
        Ok(())
    }

    fn node_at(&self, port: u16) -> Option<usize> {
        let mut nodes = self.topology.nodes.iter();
        nodes.position(|node| node.port == port)
    }

    fn cluster_replica(&self) -> Result<usize, String> {
        let upstream = &self.topology.upstream;
        let replica = upstream.iter().position(Option::is_some);
        replica.ok_or_else(|| "no node is a replica".to_owned())
    }

    /// The cluster's node with a role.
    pub fn resolve_in_cluster(&self, target: Target) -> usize {
        let replica = self.cluster_replica().unwrap_or(2);
        match target {
            Target::Primary => self.topology.primary,
            Target::Replica(_) => replica,
            Target::Second => 3 - replica - self.topology.primary,
        }
    }

    pub fn migrate(&mut self, tag: usize, restart: Option<Target>) -> Result<(), String> {
        let from = self.owner(tag);
        let primaries = [Target::Primary, Target::Second].map(|who| self.resolve_in_cluster(who));
        let to = if from == primaries[0] {
            primaries[1]
        } else {
            primaries[0]
        };
        let slot = self.cluster().slots[tag].clone();
        let ids = self.cluster().ids.clone();
        self.set_slot(&slot, from, to, to, &["IMPORTING", &ids[from]])?;
        self.set_slot(&slot, from, to, from, &["MIGRATING", &ids[to]])?;
        let mut restart = restart;
        let deadline = Instant::now() + SOON;
        let mut moved = 0;
        loop {
            let keys: Vec<String> =
                self.topology.nodes[from].run(&["CLUSTER", "GETKEYSINSLOT", &slot, "7"])?;
            if keys.is_empty() {
                break;
            }
            let port = self.topology.nodes[to].port.to_string();
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            match self.topology.nodes[from].try_run::<Value>(&words) {
                Ok(_) => moved += keys.len(),
                // What another fault refuses now is tried again.
                Err(error) if Instant::now() > deadline => {
                    return Err(format!("MIGRATE of {keys:?}: {error}"));
                }
                Err(error) => {
                    if error.to_string().contains("BUSYKEY") {
                        return Err(format!("MIGRATE of {keys:?}: {error}"));
                    }
                    self.release_writes(from, to);
                }
            }
            sleep(Duration::from_millis(3));
            if moved > 14
                && let Some(target) = restart.take()
            {
                let node = self.resolve_in_cluster(target);
                self.restart_node(node, Stop::Shutdown(Some("SAVE")), 0)?;
            }
        }
        for node in [to, from] {
            self.set_slot(&slot, from, to, node, &["NODE", &ids[to]])?;
        }
        self.trace.step(&format!("   {moved} keys moved"));
        self.cluster().owner[tag] = to;
        Ok(())
    }

    /// CLUSTER SETSLOT at a node; what another fault refuses now is tried again.
    fn set_slot(
        &self,
        slot: &str,
        from: usize,
        to: usize,
        node: usize,
        state: &[&str],
    ) -> Result<(), String> {
        let mut words = vec!["CLUSTER", "SETSLOT", slot];
        words.extend(state);
        wait_for("a slot changes hands", SOON, || {
            if let Err(error) = self.topology.nodes[node].run::<Value>(&words) {
                self.release_writes(from, to);
                return Err(error);
            }
            Ok(true)
        })
    }

    /// Ends what keeps two primaries from writing: to move a slot is to write.
    fn release_writes(&self, from: usize, to: usize) {
        // Valkey has its replicas confirm that a slot moves.
        for node in &self.topology.nodes {
            node.signal("CONT");
        }
        for node in [from, to] {
            let node = &self.topology.nodes[node];
            for (name, value) in [("min-replicas-to-write", "0"), ("maxmemory", "0")] {
                let _ = node.try_run::<Value>(&["CONFIG", "SET", name, value]);
            }
            if node
                .info("persistence", "rdb_last_bgsave_status")
                .as_deref()
                != Ok("ok")
            {
                let _ = node.try_run::<Value>(&["BGSAVE"]);
            }
        }
    }

    pub fn migrate_whole(&mut self, tag: usize) -> Result<(), String> {
        let from = self.owner(tag);
        let primaries = [Target::Primary, Target::Second].map(|who| self.resolve_in_cluster(who));
        let to = if from == primaries[0] {
            primaries[1]
        } else {
            primaries[0]
        };
        let slot = self.cluster().slots[tag].clone();
        let id = self.cluster().ids[to].clone();
        let words = [
            "CLUSTER",
            "MIGRATESLOTS",
            "SLOTSRANGE",
            &slot,
            &slot,
            "NODE",
            &id,
        ];
        if let Err(error) = self.topology.nodes[from].try_run::<Value>(&words) {
            self.trace.step(&format!("   {error}"));
            return Ok(());
        }
        let port = self.topology.nodes[to].port;
        let moved = wait_for("the slot has moved", Duration::from_secs(10), || {
            Ok(owner_port(&self.topology.nodes[from], &slot)? == port)
        });
        match moved {
            Ok(()) => self.cluster().owner[tag] = to,
            Err(_) => self.trace.step("   not moved"),
        }
        Ok(())
    }

    pub fn cluster_failover(&mut self, force: bool) -> Result<(), String> {
        let replica = self.cluster_replica()?;
        if self.topology.nodes[replica].frozen {
            self.trace.step("   not running");
            return Ok(());
        }
        self.still_clean(replica)?;
        let mut words = vec!["CLUSTER", "FAILOVER"];
        if force {
            words.push("FORCE");
        }
        if let Err(error) = self.topology.nodes[replica].try_run::<Value>(&words) {
            self.trace.step(&format!("   {error}"));
            return Ok(());
        }
        self.counted[replica] = false;
        let done = wait_for("the replica takes over", Duration::from_secs(10), || {
            let info: String = self.topology.nodes[replica].run(&["INFO", "replication"])?;
            Ok(rl_testkit::info_field(&info, "role") == Some("master"))
        });
        if done.is_err() {
            self.trace.step("   it did not take over");
        }
        self.learn_cluster()
    }

    /// What a cluster promises on top: each key on the node of its slot, blocks that hold, and no call lost.
    pub fn check_cluster(&mut self) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        let lossless = self.setup().lossless;
        for tag in 0..TAGS {
            let owner = self.owner(tag);
            let slot = self.cluster().slots[tag].clone();
            for node in [Target::Primary, Target::Second].map(|who| self.resolve_in_cluster(who)) {
                let node_ = &self.topology.nodes[node];
                let keys: usize = node_.run(&["CLUSTER", "COUNTKEYSINSLOT", &slot])?;
                if node != owner && keys > 0 {
                    found.push(format!(
                        "node {} still has {keys} keys of {{t{tag}}}",
                        node_.name
                    ));
                }
            }
            if !lossless {
                continue;
            }
            let tag_text = format!("{{t{tag}}}");
            let node = &self.topology.nodes[owner];
            let check = guard(&tag_text);
            let words: Vec<&str> = check.iter().map(String::as_str).collect();
            let reply: Vec<i64> = node.run(&words)?;
            if reply[0] != 0 {
                found.push(format!("{tag_text}blocked is allowed: {reply:?}"));
            }
            let call = count(&tag_text, 0);
            let words: Vec<&str> = call.iter().map(String::as_str).collect();
            let reply: Vec<i64> = node.run(&words)?;
            let used = (reply[1] - reply[2]) as u64;
            let counted = &self.shared.counted[tag];
            let (sure, unsure) = (counted[0].load(Relaxed), counted[1].load(Relaxed));
            if !(sure..=sure + unsure).contains(&used) {
                found.push(format!(
                    "{tag_text}counted has {used} units; {sure} calls were allowed, {unsure} unanswered"
                ));
            }
        }
        Ok(found)
    }
}

/// Waits until all nodes are up and see the same cluster.
fn agree(nodes: &[Node]) -> Result<(), String> {
    wait_for("every node sees the same cluster", SOON, || {
        let mut views = Vec::new();
        for node in nodes {
            let info: String = node.run(&["CLUSTER", "INFO"])?;
            if rl_testkit::info_field(&info, "cluster_state") != Some("ok") {
                return Ok(false);
            }
            views.push(view(node)?);
        }
        if views.iter().any(|view| *view != views[0]) {
            return Err(format!("{views:?}"));
        }
        Ok(true)
    })
}

/// A node as another one sees it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    port: u16,
    primary: String,
    slots: Vec<String>,
}

fn view(node: &Node) -> Result<Vec<Seen>, String> {
    let nodes: String = node.run(&["CLUSTER", "NODES"])?;
    let mut view = Vec::new();
    for line in nodes.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let address = fields[1].split(['@', ',']).next().unwrap_or_default();
        let port = address
            .rsplit(':')
            .next()
            .and_then(|port| port.parse().ok());
        view.push(Seen {
            port: port.ok_or_else(|| format!("no port in {line}"))?,
            primary: fields[3].to_owned(),
            // Without what is on its way, which only the nodes concerned know.
            slots: (fields.iter().skip(8))
                .filter(|slots| !slots.starts_with('['))
                .map(|slots| (*slots).to_owned())
                .collect(),
        });
    }
    view.sort();
    Ok(view)
}

/// The port of the primary that serves a slot, as a node says.
fn owner_port(node: &Node, slot: &str) -> Result<u16, String> {
    let slot: u16 = slot.parse().map_err(|_| "not a slot")?;
    let serves = |range: &String| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let bounds = (from.parse::<u16>(), to.parse::<u16>());
        matches!(bounds, (Ok(from), Ok(to)) if (from..=to).contains(&slot))
    };
    let view = view(node)?;
    let owner = view.iter().find(|seen| seen.slots.iter().any(serves));
    owner
        .map(|seen| seen.port)
        .ok_or_else(|| format!("nobody serves slot {slot}"))
}

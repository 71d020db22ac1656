//! The run of one seed: starts the servers, runs traffic and faults in phases, and checks after each.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::Duration;

use redis::Value;

use crate::calls::{Calls, Space};
use crate::checks::{self, Picture, wait_for};
use crate::cluster::Cluster;
use crate::plan::{Phase, Plan, Setup, Stop, TAGS, Target};
use crate::random::stream;
use crate::topology::{Node, Settings, Topology};
use crate::trace::Trace;
use crate::traffic::{Shared, Traffic};

const DATABASES: u64 = 3;
pub const DUAL_CHANNEL: &str = "dual-channel-replication-enabled";
const SYNC: Duration = Duration::from_secs(60);

pub struct History<'a> {
    seed: u64,
    plan: Plan,
    pub trace: &'a Trace,
    pub topology: Topology,
    pub shared: Arc<Shared>,
    /// Nodes that have been replicas ever since their command counts were reset.
    pub counted: Vec<bool>,
    pub cluster: Option<Cluster>,
    folder: PathBuf,
}

impl<'a> History<'a> {
    pub fn new(seed: u64, folder: &Path, trace: &'a Trace) -> Self {
        let plan = Plan::of(seed);
        trace.step(&format!("seed {seed}: {:?}", plan.setup));
        let policies = folder.join("policies.json");
        let mut random = stream(seed, 2);
        let mut calls = Calls {
            random: &mut random,
            space: space(&plan.setup, false),
            tag: String::new(),
        };
        fs::write(&policies, calls.policies_json()).unwrap();
        let nodes: Vec<Node> = (0..3)
            .map(|number| {
                let settings = settings(&plan.setup, number, &policies);
                Node::new(['a', 'b', 'c'][number], folder, settings)
            })
            .collect();
        let ports = nodes.iter().map(|node| node.port).collect();
        let shared = Shared::new(ports, plan.setup.lossless);
        let upstream = match (plan.setup.cluster, plan.setup.chained) {
            (true, _) => vec![None, None, Some(0)],
            (_, true) => vec![None, Some(0), Some(1)],
            _ => vec![None, Some(0), Some(0)],
        };
        Self {
            seed,
            trace,
            topology: Topology {
                nodes,
                primary: 0,
                upstream,
            },
            shared,
            counted: vec![false, true, true],
            folder: folder.to_owned(),
            cluster: None,
            plan,
        }
    }

    pub fn run(&mut self) -> Result<(), String> {
        for node in 0..3 {
            self.start(node)?;
        }
        if self.plan.setup.cluster {
            self.form_cluster()?;
            self.trace.step("the cluster is formed");
        }
        if self.plan.setup.bare_primary {
            self.trace.step("the primary has no module yet");
        }
        let phases = self.plan.phases.clone();
        for (number, phase) in phases.iter().enumerate() {
            self.trace.step(&format!("phase {}", number + 1));
            let mut done = self.run_phase(number as u64, phase);
            if let (Ok(()), Some((target, stop))) = (&done, phase.restart) {
                done = self.restart_and_compare(target, stop);
            }
            match done {
                Err(why) if is_about_slots(&why) && self.has_stale_slots() => return Ok(()),
                done => done?,
            }
        }
        Ok(())
    }

    /// Whether a node that lost its last writes came back with keys of a slot that it had given away. The server then
    /// refuses questions about them, and nothing can be compared any more.
    fn has_stale_slots(&self) -> bool {
        if !self.plan.setup.cluster || self.plan.setup.lossless {
            return false;
        }
        let mut nodes = self.topology.nodes.iter();
        let stale = nodes.any(|node| {
            let log = node.whole_log();
            log.contains("the slot is assigned to another node")
        });
        if stale {
            self.trace
                .step("ends here: a node has keys of a slot that is another's");
        }
        stale
    }

    fn run_phase(&mut self, number: u64, phase: &Phase) -> Result<(), String> {
        let space = space(&self.plan.setup, phase.narrow);
        let traffic = Traffic::start(&self.shared, self.seed, number, phase.connections, space);
        let mut result = Ok(());
        for (delay, fault) in &phase.faults {
            sleep(Duration::from_millis(*delay));
            result = self.apply(fault);
            if result.is_err() {
                break;
            }
        }
        traffic.ask_to_stop();
        let healed = result.and_then(|()| self.heal());
        traffic.join();
        healed?;
        self.trace.step("traffic rests");
        self.settle()?;
        self.check()
    }

    pub fn start(&mut self, node: usize) -> Result<(), String> {
        let upstream = self.topology.upstream_port(node);
        self.counted[node] = upstream.is_some();
        // A cluster's nodes remember who they replicate.
        let upstream = upstream.filter(|_| !self.plan.setup.cluster);
        self.topology.nodes[node].start(upstream)
    }

    /// Ends every fault: all nodes run, and nothing holds them back.
    fn heal(&mut self) -> Result<(), String> {
        for node in 0..self.topology.nodes.len() {
            self.topology.nodes[node].thaw();
            if !self.topology.nodes[node].is_up() {
                self.start(node)?;
            }
            self.must_live(node)?;
            let node = &self.topology.nodes[node];
            let _ = node.try_run::<Value>(&["FAILOVER", "ABORT"]);
            let _ = node.try_run::<Value>(&["CLIENT", "UNPAUSE"]);
            for (name, value) in [
                ("min-replicas-to-write", "0"),
                ("maxmemory", "0"),
                ("maxmemory-policy", "noeviction"),
                ("replica-ignore-maxmemory", "yes"),
                ("rdb-key-save-delay", "0"),
            ] {
                let _ = node.try_run::<Value>(&["CONFIG", "SET", name, value]);
            }
            // After a failed save a server takes no writes, and no replicas.
            wait_for("a save succeeds", SYNC, || {
                let info: String = node.run(&["INFO", "persistence"])?;
                let failed = rl_testkit::info_field(&info, "rdb_last_bgsave_status") != Some("ok");
                if failed {
                    let _ = node.try_run::<Value>(&["BGSAVE"]);
                }
                Ok(!failed)
            })?;
        }
        self.learn_roles()
    }

    /// No node may end by itself.
    pub fn must_live(&mut self, node: usize) -> Result<(), String> {
        let node = &mut self.topology.nodes[node];
        if !node.has_died() {
            return Ok(());
        }
        let log = tail(&node.new_log());
        Err(format!("node {} died:\n{log}", node.name))
    }

    /// A failover may have ended in either way: what the nodes say is so.
    fn learn_roles(&mut self) -> Result<(), String> {
        if self.plan.setup.cluster {
            return self.learn_cluster();
        }
        for node in 0..self.topology.nodes.len() {
            let ordered = self.topology.upstream_port(node);
            let info: String = self.topology.nodes[node].run(&["INFO", "replication"])?;
            let field = |name| rl_testkit::info_field(&info, name).unwrap_or_default();
            let actual = match field("role") {
                "master" => None,
                _ => field("master_port").parse().ok(),
            };
            if actual == ordered {
                continue;
            }
            self.counted[node] = false;
            let name = self.topology.nodes[node].name;
            self.trace
                .step(&format!("node {name} is put back to its place"));
            self.order(node)?;
        }
        Ok(())
    }

    /// Makes a node what the topology says.
    pub fn order(&mut self, node: usize) -> Result<(), String> {
        let port = self.topology.upstream_port(node);
        let mut con = self.topology.nodes[node]
            .connect()
            .map_err(|error| error.to_string())?;
        let mut pipe = redis::pipe();
        match port {
            Some(port) => pipe.cmd("REPLICAOF").arg("127.0.0.1").arg(port),
            None => pipe.cmd("REPLICAOF").arg("NO").arg("ONE"),
        };
        // From here on a replica runs only what it receives.
        if !self.counted[node] {
            pipe.cmd("CONFIG").arg("RESETSTAT");
        }
        pipe.exec(&mut con).map_err(|error| error.to_string())?;
        self.counted[node] = port.is_some();
        Ok(())
    }

    /// Waits until every replica has applied all that the primary wrote.
    fn settle(&mut self) -> Result<(), String> {
        let nodes = &self.topology.nodes;
        let offset = |node: &Node, field: &str| -> Result<i64, String> {
            let text = node.info("replication", field)?;
            text.parse().map_err(|_| format!("no {field}"))
        };
        for (number, node) in nodes.iter().enumerate() {
            let primary = self.topology.root(number);
            if number == primary {
                continue;
            }
            let what = format!("node {} has caught up", node.name);
            let caught_up = wait_for(&what, SYNC, || {
                let target = offset(&nodes[primary], "master_repl_offset")?;
                // An offset counts only in the same history: the link of a chained replica stays up for a while after its
                // own primary has begun a full resync from a restarted one.
                let history = nodes[primary].info("replication", "master_replid")?;
                Ok(node.info("replication", "master_link_status")? == "up"
                    && node.info("replication", "master_replid")? == history
                    && offset(node, "slave_repl_offset")? >= target)
            });
            if let Err(error) = caught_up {
                let mut text = error;
                for node in nodes {
                    let info: String = node.run(&["INFO", "replication"])?;
                    text += &format!("\n--- node {}\n{info}", node.name);
                }
                return Err(text);
            }
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), String> {
        let mut found = Vec::new();
        for node in 0..self.topology.nodes.len() {
            found.extend(self.check_counts(node)?);
            let node = &mut self.topology.nodes[node];
            found.extend(checks::alarms(node));
            found.extend(checks::decided_in_aof(node));
        }
        if self.cluster.is_some() {
            found.extend(self.check_cluster()?);
        }
        found.extend(self.shared.tally().wrong);
        // What differs stays so; what was on its way arrives.
        for attempt in 0.. {
            let differences = self.compare()?;
            if differences.is_empty() {
                break;
            }
            if attempt == 3 {
                found.extend(differences);
                break;
            }
            sleep(Duration::from_millis(200));
        }
        if found.is_empty() {
            return Ok(());
        }
        let shown = found
            .iter()
            .take(40)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n  ");
        Err(format!("{} differences:\n  {shown}", found.len()))
    }

    /// What a replica ran that it must not.
    pub fn check_counts(&mut self, node: usize) -> Result<Vec<String>, String> {
        if !self.counted[node] || !self.topology.nodes[node].is_up() {
            return Ok(Vec::new());
        }
        let node = &self.topology.nodes[node];
        let decided = checks::decided(node)?;
        Ok(match decided.is_empty() {
            true => Vec::new(),
            false => vec![format!("replica {} ran {}", node.name, decided.join(", "))],
        })
    }

    fn compare(&mut self) -> Result<Vec<String>, String> {
        let here = self.take(self.topology.primary)?;
        let primary = self.topology.nodes[self.topology.primary].name;
        let mut found = Vec::new();
        for (number, node) in self.topology.nodes.iter().enumerate() {
            let root = self.topology.root(number);
            if number == root {
                continue;
            }
            let there = self.take(number)?;
            let names = (
                format!("primary {primary}"),
                format!("replica {}", node.name),
            );
            found.extend(here.differences(&there, &names.0, &names.1));
        }
        if self.plan.setup.bare_primary && here.is_without_module() {
            found.retain(|line| !line.starts_with("policies:"));
        }
        if found.is_empty() {
            self.trace.step(&format!(
                "equal: {} keys, {} with overrides; {} calls answered",
                here.len(),
                here.overrides(),
                self.shared.tally().answered
            ));
        }
        Ok(found)
    }

    /// While nothing is written, a restart that loses nothing must restore everything.
    fn restart_and_compare(&mut self, target: Target, stop: Stop) -> Result<(), String> {
        let number = self.resolve(target);
        let node = &self.topology.nodes[number];
        let keeps = match stop {
            Stop::Shutdown(Some("SAVE")) => true,
            Stop::Shutdown(None) => node.settings.aof || !node.settings.save.is_empty(),
            Stop::Shutdown(_) => node.settings.aof,
            Stop::Kill => node.settings.aof && node.settings.fsync == "always",
        };
        if !keeps {
            return Ok(());
        }
        wait_for("no save is under way", SYNC, || {
            let info: String = node.run(&["INFO", "persistence"])?;
            let idle = |field| rl_testkit::info_field(&info, field) == Some("0");
            let ok = rl_testkit::info_field(&info, "aof_last_bgrewrite_status") == Some("ok");
            if node.settings.aof && !ok {
                let _ = node.try_run::<Value>(&["BGREWRITEAOF"]);
                return Ok(false);
            }
            Ok(idle("rdb_bgsave_in_progress")
                && idle("aof_rewrite_in_progress")
                && idle("aof_rewrite_scheduled"))
        })?;
        let before = self.take(number)?;
        self.trace.step(&format!(
            "at rest: {target} ({}) {stop}, and start again",
            node.name
        ));
        let node = &mut self.topology.nodes[number];
        match stop {
            Stop::Kill => node.kill(),
            Stop::Shutdown(how) => node.shutdown(how)?,
        }
        self.start(number)?;
        if self.cluster.is_some() {
            self.learn_cluster()?;
        }
        self.settle()?;
        let after = self.take(number)?;
        let found = before.differences(&after, "before the restart", "after it");
        if !found.is_empty() {
            let shown = found
                .iter()
                .take(40)
                .cloned()
                .collect::<Vec<_>>()
                .join("\n  ");
            return Err(format!("a restart changed:\n  {shown}"));
        }
        self.check()
    }

    fn take(&self, node: usize) -> Result<Picture, String> {
        let space = space(&self.plan.setup, false);
        let node = &self.topology.nodes[node];
        Picture::take(node, space.databases, space.tags)
            .map_err(|error| format!("node {}: {error}", node.name))
    }

    pub fn resolve(&self, target: Target) -> usize {
        if self.cluster.is_some() {
            return self.resolve_in_cluster(target);
        }
        match target {
            Target::Primary | Target::Second => self.topology.primary,
            Target::Replica(number) => self.topology.replica(number),
        }
    }

    /// Traffic goes to another node from now on.
    pub fn set_primary(&mut self, node: usize) {
        self.topology.promote(node);
        self.shared.primary.store(node, Relaxed);
    }

    pub fn policies_file(&self) -> PathBuf {
        self.folder.join("policies.json")
    }

    pub fn setup(&self) -> &Setup {
        &self.plan.setup
    }
}

/// Not with an AOF: on Valkey 9.1, a replica's AOF then lacks what arrived while it loaded the copy.
fn has_dual_channel(setup: &Setup) -> bool {
    setup.dual_channel && setup.aof == [false; 3] && rl_testkit::has_directive(DUAL_CHANNEL)
}

fn is_about_slots(why: &str) -> bool {
    why.contains("Moved: ") || why.contains("still has")
}

fn space(setup: &Setup, narrow: bool) -> Space {
    // Valkey's dual-channel copy of a replica does not say which database the stream is in: a server's bug.
    let one = setup.cluster || has_dual_channel(setup);
    Space {
        databases: if one { 1 } else { DATABASES },
        tags: if setup.cluster { TAGS as u64 } else { 0 },
        narrow,
        throttle: setup.throttle,
    }
}

pub fn module_arguments(setup: &Setup, policies: &Path) -> Vec<String> {
    let mut arguments = Vec::new();
    if setup.policies_file {
        arguments.extend(["policies".to_owned(), policies.display().to_string()]);
    }
    if setup.throttle {
        arguments.extend(["redis-cell-compat".to_owned(), "yes".to_owned()]);
    }
    if setup.audit_stream {
        arguments.extend(["audit-stream".to_owned(), "denials".to_owned()]);
    }
    arguments
}

fn settings(setup: &Setup, node: usize, policies: &Path) -> Settings {
    let mut other = vec![
        ("repl-backlog-size", setup.backlog.to_owned()),
        ("repl-diskless-sync", setup.diskless_sync.to_owned()),
        ("repl-diskless-load", setup.diskless_load.to_owned()),
        ("io-threads", setup.io_threads.to_string()),
    ];
    if has_dual_channel(setup) {
        other.push((DUAL_CHANNEL, "yes".to_owned()));
    }
    // Without it, a replica whose save failed ends itself: a server's choice, not a fault to look for.
    if rl_testkit::has_directive("replica-ignore-disk-write-errors") {
        other.push(("replica-ignore-disk-write-errors", "yes".to_owned()));
    }
    if setup.cluster {
        for (name, value) in [
            ("cluster-enabled", "yes"),
            // Nobody takes over unless the plan says so.
            ("cluster-node-timeout", "4000"),
            ("cluster-replica-no-failover", "yes"),
        ] {
            other.push((name, value.to_owned()));
        }
    }
    let bare = node == 0 && setup.bare_primary;
    Settings {
        aof: setup.aof[node],
        preamble: setup.preamble,
        fsync: setup.fsync,
        save: setup.save,
        other,
        module: (!bare).then(|| module_arguments(setup, policies)),
    }
}

pub fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

//! How each fault is injected.

use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::Value;

use crate::checks::is_exact;
use crate::history::{DUAL_CHANNEL, History, module_arguments};
use crate::plan::{Action, Fault, Stop, Target};
use crate::topology::Node;
use crate::trace::Trace;

impl History<'_> {
    pub fn apply(&mut self, fault: &Fault) -> Result<(), String> {
        // Roles move from node to node: the trace names both.
        let node = fault
            .target()
            .map(|target| self.topology.nodes[self.resolve(target)].name);
        match node {
            Some(name) => self.trace.step(&format!("({name}) {fault}")),
            None => self.trace.step(&fault.to_string()),
        }
        match *fault {
            Fault::At(target, action) => {
                let number = self.resolve(target);
                act(self.trace, &mut self.topology.nodes[number], action);
                Ok(())
            }
            Fault::Restart {
                target,
                stop,
                down_ms,
            } => self.restart(target, stop, down_ms),
            Fault::Promote { replica, lag_ms } => self.promote(replica, lag_ms),
            Fault::Failover { replica, force } => self.failover(replica, force),
            Fault::Repoint { replica, to } => self.repoint(replica, to),
            Fault::Detach { replica, ms } => self.detach(replica, ms),
            Fault::LoadModule => self.load_module(),
            Fault::Migrate { tag, restart } => self.migrate(tag, restart),
            Fault::MigrateWhole { tag } => self.migrate_whole(tag),
            Fault::ClusterFailover { force } => self.cluster_failover(force),
            Fault::Wait => Ok(()),
        }
    }

    fn restart(&mut self, target: Target, stop: Stop, down_ms: u64) -> Result<(), String> {
        self.restart_node(self.resolve(target), stop, down_ms)
    }

    pub fn restart_node(&mut self, number: usize, stop: Stop, down_ms: u64) -> Result<(), String> {
        self.must_live(number)?;
        self.still_clean(number)?;
        let node = &mut self.topology.nodes[number];
        match stop {
            Stop::Shutdown(how) if !node.frozen => {
                if let Err(error) = node.shutdown(how) {
                    self.trace.step(&format!("   refused: {error}"));
                    return Ok(());
                }
            }
            _ => node.kill(),
        }
        sleep(Duration::from_millis(down_ms));
        self.start(number)
    }

    /// What a replica has run so far must be right before its counts are lost.
    pub fn still_clean(&mut self, node: usize) -> Result<(), String> {
        if self.topology.nodes[node].frozen || self.topology.nodes[node].has_died() {
            return Ok(());
        }
        // A busy node need not answer at once.
        let found = self.check_counts(node).unwrap_or_default();
        match found.is_empty() {
            true => Ok(()),
            false => Err(found.join("\n")),
        }
    }

    fn promote(&mut self, replica: usize, lag_ms: u64) -> Result<(), String> {
        let (new, old) = (self.topology.replica(replica), self.topology.primary);
        self.topology.nodes[new].thaw();
        self.still_clean(new)?;
        self.set_primary(new);
        self.order_or_note(new);
        sleep(Duration::from_millis(lag_ms));
        let others: Vec<usize> = (0..3).filter(|&node| node != new).collect();
        for node in others {
            if node == old {
                self.counted[node] = false;
            } else if !self.topology.follows(node, new) {
                self.topology.upstream[node] = Some(new);
            } else {
                continue;
            }
            if !self.topology.nodes[node].frozen {
                self.order_or_note(node);
            }
        }
        Ok(())
    }

    fn order_or_note(&mut self, node: usize) {
        if let Err(error) = self.order(node) {
            self.trace.step(&format!("   {error}"));
        }
    }

    fn failover(&mut self, replica: usize, force: bool) -> Result<(), String> {
        let (new, old) = (self.topology.replica(replica), self.topology.primary);
        if self.topology.upstream[new] != Some(old) || self.topology.nodes[new].frozen {
            self.trace.step("   not a direct replica that runs");
            return Ok(());
        }
        self.still_clean(new)?;
        self.counted[new] = false;
        let port = self.topology.nodes[new].port.to_string();
        let mut words = vec!["FAILOVER", "TO", "127.0.0.1", &port];
        if force {
            words.push("FORCE");
        }
        words.extend(["TIMEOUT", "1000"]);
        try_at(self.trace, &self.topology.nodes[old], &words);
        let deadline = Instant::now() + Duration::from_secs(4);
        while Instant::now() < deadline {
            let state = self.topology.nodes[old].info("replication", "master_failover_state");
            if state.as_deref() == Ok("no-failover") {
                break;
            }
            sleep(Duration::from_millis(20));
        }
        if self.topology.nodes[new]
            .info("replication", "role")
            .as_deref()
            != Ok("master")
        {
            self.trace.step("   the failover did not happen");
            return Ok(());
        }
        self.set_primary(new);
        let other = 3 - new - old;
        self.counted[old] = false;
        // The old primary is a replica already: its counts begin now.
        self.order_or_note(old);
        if self.topology.upstream[other] == Some(old) {
            self.trace
                .step("   done; the other replica follows the old primary");
        }
        Ok(())
    }

    fn repoint(&mut self, replica: usize, to: Target) -> Result<(), String> {
        let (node, to) = (self.topology.replica(replica), self.resolve(to));
        if node == to || self.topology.follows(to, node) || self.topology.nodes[node].frozen {
            self.trace.step("   not possible now");
            return Ok(());
        }
        self.topology.upstream[node] = Some(to);
        self.order_or_note(node);
        Ok(())
    }

    fn detach(&mut self, replica: usize, ms: u64) -> Result<(), String> {
        let node = self.topology.replica(replica);
        if self.topology.nodes[node].frozen {
            self.trace.step("   not running");
            return Ok(());
        }
        self.still_clean(node)?;
        let upstream = self.topology.upstream[node].take();
        self.order_or_note(node);
        sleep(Duration::from_millis(ms));
        self.topology.upstream[node] = upstream;
        self.counted[node] = false;
        self.order_or_note(node);
        Ok(())
    }

    fn load_module(&mut self) -> Result<(), String> {
        // The node that was started without it, whoever is the primary now.
        if self.topology.nodes[0].settings.module.is_some() {
            return Ok(());
        }
        let arguments = module_arguments(self.setup(), &self.policies_file());
        let mut words = vec!["MODULE", "LOAD", rl_testkit::module().to_str().unwrap()];
        words.extend(arguments.iter().map(String::as_str));
        let node = &mut self.topology.nodes[0];
        node.thaw();
        node.run::<Value>(&words)?;
        node.settings.module = Some(arguments);
        Ok(())
    }
}

fn act(trace: &Trace, node: &mut Node, action: Action) {
    match action {
        Action::Save => try_at(trace, node, &["BGSAVE"]),
        Action::Rewrite { preamble } => {
            let preamble = if preamble { "yes" } else { "no" };
            configure(trace, node, "aof-use-rdb-preamble", preamble);
            try_at(trace, node, &["BGREWRITEAOF"]);
        }
        Action::KillChild { rewrite } => kill_child(trace, node, rewrite),
        // Redis 6.2 sends every effect of a module as a transaction, which a full replica refuses.
        Action::Config { name, .. } if name == "replica-ignore-maxmemory" && !is_exact() => {
            trace.step("   not on this server");
        }
        Action::Config {
            name: "appendonly",
            value: "yes",
        } if has_dual_channel(node) => {
            trace.step("   not with dual-channel replication");
        }
        Action::Config { name, value } => configure(trace, node, name, value),
        Action::FullMemory { evict } => {
            let policy = if evict {
                "allkeys-random"
            } else {
                "noeviction"
            };
            configure(trace, node, "maxmemory-policy", policy);
            // Less than an empty server takes, unless it is to evict.
            let used = node.info("memory", "used_memory").unwrap_or_default();
            let most = if evict { &used } else { "1000" };
            configure(trace, node, "maxmemory", most);
        }
        Action::Pause { mode, ms } => {
            try_at(trace, node, &["CLIENT", "PAUSE", &ms.to_string(), mode]);
        }
        Action::Freeze => node.freeze(),
        Action::Thaw => node.thaw(),
        Action::Reload => reload(trace, node),
        Action::KillLinks => try_at(trace, node, &["CLIENT", "KILL", "TYPE", "replica"]),
        Action::FlushAll => try_at(trace, node, &["FLUSHALL"]),
    }
}

/// Not while a child process saves: that may rename its own, older file between the save and the load of DEBUG RELOAD.
fn reload(trace: &Trace, node: &Node) {
    let saving = |node: &Node| {
        let saving = node.info("persistence", "rdb_bgsave_in_progress");
        saving.is_ok_and(|saving| saving != "0")
    };
    if node.frozen {
        return trace.step("   that node is not running");
    }
    let _ = node.try_run::<Value>(&["CONFIG", "SET", "save", ""]);
    let deadline = Instant::now() + Duration::from_secs(5);
    while saving(node) && Instant::now() < deadline {
        sleep(Duration::from_millis(5));
    }
    if saving(node) {
        trace.step("   it does not stop saving");
    } else {
        try_at(trace, node, &["DEBUG", "RELOAD"]);
    }
    let _ = node.try_run::<Value>(&["CONFIG", "SET", "save", node.settings.save]);
}

/// A command that may be refused or get no answer.
fn try_at(trace: &Trace, node: &Node, words: &[&str]) {
    if node.frozen || !node.is_up() {
        trace.step("   that node is not running");
    } else if let Err(error) = node.try_run::<Value>(words) {
        trace.step(&format!("   {error}"));
    }
}

fn has_dual_channel(node: &Node) -> bool {
    let mut others = node.settings.other.iter();
    others.any(|(name, _)| *name == DUAL_CHANNEL)
}

fn configure(trace: &Trace, node: &mut Node, name: &str, value: &str) {
    try_at(trace, node, &["CONFIG", "SET", name, value]);
    let settings = &mut node.settings;
    match (name, value) {
        ("appendonly", _) => settings.aof = value == "yes",
        ("aof-use-rdb-preamble", _) => settings.preamble = value == "yes",
        ("save", "") => settings.save = "",
        ("save", "1 1") => settings.save = "1 1",
        ("save", _) => settings.save = "3600 1",
        _ => {}
    }
}

fn kill_child(trace: &Trace, node: &Node, rewrite: bool) {
    // Slow enough to be caught.
    try_at(
        trace,
        node,
        &["CONFIG", "SET", "rdb-key-save-delay", "10000"],
    );
    let command = if rewrite { "BGREWRITEAOF" } else { "BGSAVE" };
    try_at(trace, node, &[command]);
    let deadline = Instant::now() + Duration::from_millis(500);
    while Instant::now() < deadline {
        let forks = node.forks();
        if !forks.is_empty() {
            sleep(Duration::from_millis(50));
            for fork in forks {
                rl_testkit::send_signal(fork, "KILL");
            }
            break;
        }
        sleep(Duration::from_millis(5));
    }
    try_at(trace, node, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
}

//! Primaries and replicas.

use crate::{Server, eventually, info_field};

impl Server {
    /// Makes this server a replica and waits until it is in sync.
    pub fn follow(&self, primary: &Server) {
        let port = primary.port().to_string();
        let _: () = self.run("REPLICAOF", &["127.0.0.1", &port]);
        self.wait_until_in_sync();
        primary.wait_until_online(self);
    }

    /// Waits until the link to the primary is up.
    pub fn wait_until_in_sync(&self) {
        eventually("the replica is in sync", || {
            self.info("replication", "master_link_status") == "up"
        });
    }

    /// Waits until this server counts a replica as online. The replica reports its link as up a moment earlier, and
    /// until then WAIT and FAILOVER on the primary do not know it.
    pub fn wait_until_online(&self, replica: &Server) {
        let port = format!("port={},", replica.port());
        eventually("the primary counts the replica as online", || {
            let info: String = self.run("INFO", &["replication"]);
            let mut lines = info.lines();
            lines.any(|line| line.contains(&port) && line.contains("state=online"))
        });
    }

    /// Waits until a replica has applied everything that this server wrote.
    pub fn wait_for(&self, replica: &Server) {
        let offset = self.info_number("replication", "master_repl_offset");
        eventually("the replica has caught up", || {
            replica.info_number("replication", "slave_repl_offset") >= offset
        });
    }

    /// Checks that every key is the same on the replica, value and expiry.
    #[track_caller]
    pub fn assert_same_on(&self, replica: &Server) {
        self.wait_for(replica);
        let (here, there) = (self.snapshot(), replica.snapshot());
        assert!(!here.keys.is_empty());
        here.assert_same(&there);
    }

    /// Checks that this replica has received states, and changes of policies and overrides, but no calls.
    pub fn assert_received_states_only(&self) {
        let received = ["rl.load", "rl.policy", "rl.override"];
        // Tests send these to replicas themselves.
        let read_only = ["rl.peek", "rl.inspect", "rl.stats", "rl.top", "rl.audit"];
        let info: String = self.run("INFO", &["commandstats"]);
        for line in info.lines() {
            let Some(line) = line.strip_prefix("cmdstat_") else {
                continue;
            };
            let name = line.split([':', '|']).next().unwrap().to_lowercase();
            let is_ours = name.starts_with("rl.") || name.starts_with("cl.");
            assert!(
                !is_ours || received.contains(&&*name) || read_only.contains(&&*name),
                "a replica ran {line}"
            );
        }
        let info: String = self.run("INFO", &["rl"]);
        if !info.is_empty() {
            let again = info_field(&info, "rl_replayed_decisions");
            assert_eq!(
                again,
                Some("0"),
                "the module itself noticed replicated calls"
            );
        }
    }
}

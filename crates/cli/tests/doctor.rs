//! `rl doctor`: every finding, on servers that have the problem.

use std::fs;

use redis::Value;
use rl_testkit::{Cluster, FrozenServer, Server, TempDir, ask, base_config, eventually, module};
use rstest::rstest;

use crate::support::{RL, Terminal, rl};

/// The worst level by exit code, and the findings as `code node`.
fn findings(url: &str) -> (i32, Vec<String>) {
    let run = rl(url, &["doctor", "--json"]);
    let json = run.json();
    let each = json["findings"].as_array().unwrap().iter().map(|finding| {
        assert!(
            finding["hint"].as_str().unwrap().len() > 5,
            "each says what to do: {finding}"
        );
        format!(
            "{} {}",
            finding["code"].as_str().unwrap(),
            finding["node"].as_str().unwrap_or("-")
        )
    });
    let mut each: Vec<_> = each.collect();
    each.sort();
    (run.code, each)
}

/// A server without any problem.
fn pair() -> (Server, Server) {
    let (primary, replica) = (
        Server::with(&["appendonly", "yes"]),
        Server::with(&["appendonly", "yes"]),
    );
    replica.follow(&primary);
    eventually("the primary lists its replica", || {
        primary.info("replication", "connected_slaves") == "1"
    });
    (primary, replica)
}

#[rstest]
fn a_healthy_server_and_a_healthy_cluster_have_no_findings() {
    let (primary, replica) = pair();
    let _: () = primary.run("RL.POLICY", &["SET", "free", "SLIDE", "5", "1m"]);
    for node in [&primary, &replica] {
        let run = rl(&node.url(), &["doctor"]).exits(0);
        assert!(
            run.out.contains("No problems found.") && run.out.contains("1 policies"),
            "{}",
            run.out
        );
        assert!(
            run.out.contains(&format!(
                "{}  replica of {}",
                replica.address(),
                primary.address()
            )),
            "{}",
            run.out
        );
    }
    assert_eq!(findings(&primary.url()), (0, vec![]));

    let cluster = Cluster::with_replicas();
    for node in cluster.primaries() {
        let _: () = node.run("RL.POLICY", &["SET", "free", "SLIDE", "5", "1m"]);
    }
    assert_eq!(findings(&cluster.url()), (0, vec![]));
}

#[rstest]
fn a_server_without_persistence_or_replica_is_reported() {
    let server = Server::start();
    let (code, found) = findings(&server.url());
    let node = server.address();
    assert_eq!(
        (code, found),
        (
            1,
            vec![
                format!("no-persistence {node}"),
                format!("no-replica {node}")
            ]
        )
    );
    let _: Value = server.run("CONFIG", &["SET", "save", "3600 1"]);
    assert_eq!(
        findings(&server.url()),
        (1, vec![format!("no-replica {node}")])
    );
}

#[rstest]
#[case("allkeys-lru")]
#[case("volatile-ttl")]
fn eviction_that_may_drop_counters_is_reported(#[case] policy: &str) {
    let (primary, replica) = pair();
    let _: Value = primary.run("CONFIG", &["SET", "maxmemory-policy", policy]);
    let found = format!("eviction {}", primary.address());
    assert_eq!(
        findings(&primary.url()),
        (0, vec![found.clone()]),
        "harmless without a maxmemory"
    );
    let _: Value = primary.run("CONFIG", &["SET", "maxmemory", "100mb"]);
    assert_eq!(findings(&primary.url()), (2, vec![found]));
    drop(replica);
}

#[rstest]
fn a_save_that_fails_is_reported() {
    let (primary, _replica) = pair();
    // The folder that the server saves to is gone.
    let _: Value = primary.run("CONFIG", &["SET", "appendonly", "no"]);
    let _: Value = primary.run("CONFIG", &["SET", "save", "3600 1"]);
    fs::remove_dir_all(primary.path("")).unwrap();
    eventually("the save has failed", || {
        // Refused while another child process runs, such as the one for the replica.
        let _: redis::RedisResult<Value> = primary.try_run("BGSAVE", &[]);
        primary.info("persistence", "rdb_last_bgsave_status") == "err"
    });
    assert_eq!(
        findings(&primary.url()),
        (2, vec![format!("persistence-fails {}", primary.address())])
    );
}

#[rstest]
fn policies_that_differ_are_reported() {
    let (primary, replica) = pair();
    let _: () = primary.run("RL.POLICY", &["SET", "free", "SLIDE", "5", "1m"]);
    primary.wait_for(&replica);
    let _: Value = replica.run("CONFIG", &["SET", "replica-read-only", "no"]);
    let _: i64 = replica.run("RL.POLICY", &["DEL", "free"]);
    assert_eq!(
        findings(&primary.url()),
        (
            2,
            vec![format!("replica-policies-differ {}", replica.address())]
        )
    );

    let cluster = Cluster::with_replicas();
    let primaries = cluster.primaries();
    // The others are compared with the first one by name.
    let odd = primaries.iter().max_by_key(|node| node.address()).unwrap();
    let _: () = odd.run("RL.POLICY", &["SET", "free", "SLIDE", "5", "1m"]);
    assert_eq!(
        findings(&cluster.url()),
        (2, vec![format!("policies-differ {}", odd.address())])
    );
    let folder = TempDir::new();
    let file = folder.write(
        "policies.json",
        r#"{"policies":{"free":{"limits":["SLIDE 5 1m"]}}}"#,
    );
    rl(&cluster.url(), &["policy", "push", &file]).exits(0);
    assert_eq!(
        findings(&cluster.url()),
        (0, vec![]),
        "what it said to do helped"
    );
}

#[rstest]
fn clocks_that_differ_are_reported() {
    let primary = Server::with(&["appendonly", "yes"]);
    let odd = FrozenServer::with(&["appendonly", "yes"]);
    odd.server.follow(&primary);
    let (code, found) = findings(&primary.url());
    assert_eq!(code, 2);
    assert!(found.contains(&"clock-skew -".to_owned()), "{found:?}");
    let text = rl(&primary.url(), &["doctor"]).out;
    assert!(
        text.contains(&format!("the clock of {} is ", odd.server.address()))
            && text.contains("chrony"),
        "{text}"
    );
}

#[rstest]
fn a_module_that_is_missing_or_of_another_version_is_reported() {
    let folder = TempDir::new();
    // The same module with another version number.
    let mut library = fs::read(module()).unwrap();
    let (old, new) = (
        concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes(),
        b"9.9.9\0",
    );
    assert_eq!(old.len(), new.len());
    let places: Vec<_> = (0..library.len() - old.len())
        .filter(|&n| library[n..].starts_with(old))
        .collect();
    assert!(!places.is_empty());
    for place in places {
        library[place..place + new.len()].copy_from_slice(new);
    }
    let other = folder.path("librl-other.so");
    // A copy, because a module must be executable.
    fs::copy(module(), &other).unwrap();
    fs::write(&other, library).unwrap();

    let mut config = base_config();
    config.extend(Cluster::config());
    let bare = Server::without_module(&config);
    config.extend(["loadmodule", &other]);
    let newer = Server::without_module(&config);
    assert_eq!(newer.info("rl", "rl_version"), "9.9.9");
    let cluster = Cluster::of(vec![Server::with(&Cluster::config()), bare, newer]);
    let (code, found) = findings(&cluster.url());
    assert_eq!(code, 2);
    assert!(
        found.contains(&format!("module-missing {}", cluster.nodes[1].address())),
        "{found:?}"
    );
    assert!(found.contains(&"versions-differ -".to_owned()), "{found:?}");
    assert!(
        !found.iter().any(|finding| finding.starts_with("polic")),
        "one cause, one finding: {found:?}"
    );
}

#[rstest]
fn an_audit_stream_that_cannot_be_written_is_reported() {
    let primary = Server::with_module_args(&["audit-stream", "audit"]);
    let _: Value = primary.run("CONFIG", &["SET", "appendonly", "yes"]);
    let replica = Server::with(&["appendonly", "yes"]);
    replica.follow(&primary);
    let mut con = primary.connect();
    ask::<()>(&mut con, "SET audit no-stream");
    let _: Vec<i64> = ask(&mut con, "RL.SLIDE k 0 1m");
    assert_eq!(
        findings(&primary.url()),
        (
            1,
            vec![format!("audit-stream-errors {}", primary.address())]
        )
    );
}

#[rstest]
fn a_replica_that_has_lost_its_primary_is_reported() {
    let cluster = Cluster::with_replicas();
    let replica = cluster.replicas()[0];
    let port = replica.info("replication", "master_port");
    let primary = cluster
        .nodes
        .iter()
        .find(|node| node.port().to_string() == port)
        .unwrap();
    let mut con = primary.connect();
    ask::<()>(&mut con, "ACL SETUSER default -psync -sync");
    ask::<i64>(&mut con, "CLIENT KILL TYPE replica");
    eventually("the link is down", || {
        replica.info("replication", "master_link_status") == "down"
    });
    let (code, found) = findings(&cluster.url());
    assert_eq!(
        (code, found),
        (2, vec![format!("replica-link-down {}", replica.address())])
    );
}

#[rstest]
fn a_user_without_permission_gets_a_finding_for_each_gap() {
    let (primary, _replica) = pair();
    let mut con = primary.connect();
    ask::<()>(
        &mut con,
        "ACL SETUSER guest on >pw +@all -config -rl.policy ~*",
    );
    let guest = format!("redis://guest:pw@{}", primary.address());
    // The replica does not have this user.
    let (code, found) = findings(&guest);
    assert_eq!(code, 2);
    assert!(
        found.contains(&format!("policies-unreadable {}", primary.address())),
        "{found:?}"
    );
    ask::<()>(&mut con, "ACL SETUSER guest -info");
    let blind = rl(&guest, &["doctor"]).exits(2);
    assert!(
        blind.err.contains("NOPERM") && blind.err.contains("ACL SETUSER"),
        "{}",
        blind.err
    );
}

#[rstest]
fn a_dead_node_is_shown_in_a_real_terminal() {
    let mut cluster = Cluster::start();
    let down = cluster.nodes[2].address();
    cluster.nodes[2].kill();
    // Before the other nodes notice, and afterwards.
    for noticed in [false, true] {
        if noticed {
            let _: Vec<Value> = cluster.nodes[..2]
                .iter()
                .map(|node| node.run("CONFIG", &["SET", "cluster-require-full-coverage", "yes"]))
                .collect();
            eventually("the cluster notices", || {
                let down = |node: &Server| {
                    node.run::<String>("CLUSTER", &["INFO"])
                        .contains("cluster_state:fail")
                };
                cluster.nodes[..2].iter().all(down)
            });
        }
        let line = format!(
            "{RL} --url {} doctor; echo exit=$?; sleep 600",
            cluster.url()
        );
        let terminal = Terminal::run(&line);
        let screen = terminal.shows(&["PROBLEM", "WARNING", "exit=2"]);
        assert!(
            screen.contains(&format!("PROBLEM  {down}: no reply: ")),
            "{screen}"
        );
        assert!(screen.contains("→ "), "{screen}");
        assert!(
            screen.contains(&format!("{down}  primary  no reply")),
            "{screen}"
        );
        assert_eq!(
            screen.contains("cluster_state is not ok"),
            noticed,
            "{screen}"
        );
    }
}

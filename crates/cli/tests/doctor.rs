//! `rl doctor`: each finding provoked for real.

#![allow(clippy::unwrap_used)]

mod rl;

use std::fs;

use redis::Value;
use rl::support::clock::Frozen;
use rl::support::{Server, ask, eventually, module};
use rl::{Cluster, Folder, RL, Terminal, name, rl, url};
use rstest::rstest;

/// The worst level by exit code, and the findings as `code node`.
fn findings(url: &str) -> (i32, Vec<String>) {
    let run = rl(url, &["doctor", "--json"]);
    let json = run.json();
    let each = json["findings"].as_array().unwrap().iter().map(|finding| {
        assert!(
            finding["do"].as_str().unwrap().len() > 5,
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

/// A server with all that a doctor likes.
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
fn a_healthy_server_and_a_healthy_cluster() {
    let (primary, replica) = pair();
    let _: () = primary.run("RL.POLICY", &["SET", "free", "SLIDE", "5", "1m"]);
    for node in [&primary, &replica] {
        let run = rl(&url(node), &["doctor"]).exits(0);
        assert!(
            run.out.contains("All is well.") && run.out.contains("1 policies"),
            "{}",
            run.out
        );
        assert!(
            run.out.contains(&format!(
                "{}  replica of {}",
                name(&replica),
                name(&primary)
            )),
            "{}",
            run.out
        );
    }
    assert_eq!(findings(&url(&primary)), (0, vec![]));

    let cluster = Cluster::with_replicas();
    for node in cluster.primaries() {
        let _: () = node.run("RL.POLICY", &["SET", "free", "SLIDE", "5", "1m"]);
    }
    assert_eq!(findings(&cluster.url()), (0, vec![]));
}

#[rstest]
fn nothing_saved_and_nobody_to_take_over() {
    let server = Server::start();
    let (code, found) = findings(&url(&server));
    let node = name(&server);
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
        findings(&url(&server)),
        (1, vec![format!("no-replica {node}")])
    );
}

#[rstest]
#[case("allkeys-lru")]
#[case("volatile-ttl")]
fn eviction_that_drops_counters(#[case] policy: &str) {
    let (primary, replica) = pair();
    let _: Value = primary.run("CONFIG", &["SET", "maxmemory-policy", policy]);
    let found = format!("eviction {}", name(&primary));
    assert_eq!(
        findings(&url(&primary)),
        (0, vec![found.clone()]),
        "harmless without a maxmemory"
    );
    let _: Value = primary.run("CONFIG", &["SET", "maxmemory", "100mb"]);
    assert_eq!(findings(&url(&primary)), (2, vec![found]));
    drop(replica);
}

#[rstest]
fn a_save_that_fails() {
    let (primary, _replica) = pair();
    // The disk is gone: the folder that it would write to.
    let _: Value = primary.run("CONFIG", &["SET", "appendonly", "no"]);
    let _: Value = primary.run("CONFIG", &["SET", "save", "3600 1"]);
    fs::remove_dir_all(primary.path("")).unwrap();
    eventually("the save has failed", || {
        // Refused while another child is at work, such as the one for the replica.
        let _: redis::RedisResult<Value> = primary.try_run("BGSAVE", &[]);
        primary.info("persistence", "rdb_last_bgsave_status") == "err"
    });
    assert_eq!(
        findings(&url(&primary)),
        (2, vec![format!("persistence-fails {}", name(&primary))])
    );
}

#[rstest]
fn policies_that_differ() {
    let (primary, replica) = pair();
    let _: () = primary.run("RL.POLICY", &["SET", "free", "SLIDE", "5", "1m"]);
    primary.wait_for(&replica);
    let _: Value = replica.run("CONFIG", &["SET", "replica-read-only", "no"]);
    let _: i64 = replica.run("RL.POLICY", &["DEL", "free"]);
    assert_eq!(
        findings(&url(&primary)),
        (
            2,
            vec![format!("replica-policies-differ {}", name(&replica))]
        )
    );

    let cluster = Cluster::with_replicas();
    let primaries = cluster.primaries();
    // The first by name is the one that others are compared with.
    let odd = primaries.iter().max_by_key(|node| name(node)).unwrap();
    let _: () = odd.run("RL.POLICY", &["SET", "free", "SLIDE", "5", "1m"]);
    assert_eq!(
        findings(&cluster.url()),
        (2, vec![format!("policies-differ {}", name(odd))])
    );
    let folder = Folder::new();
    let file = folder.file(
        "limits.json",
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
fn clocks_apart() {
    let primary = Server::with(&["appendonly", "yes"]);
    let odd = Frozen::with(&["appendonly", "yes"]);
    odd.server.follow(&primary);
    let (code, found) = findings(&url(&primary));
    assert_eq!(code, 2);
    assert!(found.contains(&"clock-skew -".to_owned()), "{found:?}");
    let text = rl(&url(&primary), &["doctor"]).out;
    assert!(
        text.contains(&format!("the clock of {} is ", name(&odd.server)))
            && text.contains("chrony"),
        "{text}"
    );
}

#[rstest]
fn a_module_that_is_missing_or_of_another_version() {
    let folder = Folder::new();
    // The same module, but for the version that it tells.
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
    // A copy, for a module must be executable.
    fs::copy(module(), &other).unwrap();
    fs::write(&other, library).unwrap();

    let mut config = rl::support::basics();
    config.extend(Cluster::config());
    let bare = Server::start_bare(&config, &[]);
    config.extend(["loadmodule", &other]);
    let newer = Server::start_bare(&config, &[]);
    assert_eq!(newer.info("rl", "rl_version"), "9.9.9");
    let cluster = Cluster::of(vec![Server::with(&Cluster::config()), bare, newer], 0);
    let (code, found) = findings(&cluster.url());
    assert_eq!(code, 2);
    assert!(
        found.contains(&format!("module-missing {}", name(&cluster.nodes[1]))),
        "{found:?}"
    );
    assert!(found.contains(&"versions-differ -".to_owned()), "{found:?}");
    assert!(
        !found.iter().any(|finding| finding.starts_with("polic")),
        "one cause, one finding: {found:?}"
    );
}

#[rstest]
fn an_audit_stream_that_cannot_be_written() {
    let primary = Server::with_arguments(&["audit-stream", "audit"]);
    let _: Value = primary.run("CONFIG", &["SET", "appendonly", "yes"]);
    let replica = Server::with(&["appendonly", "yes"]);
    replica.follow(&primary);
    let mut con = primary.connect();
    ask::<()>(&mut con, "SET audit no-stream");
    let _: Vec<i64> = ask(&mut con, "RL.SLIDE k 0 1m");
    assert_eq!(
        findings(&url(&primary)),
        (1, vec![format!("audit-stream-errors {}", name(&primary))])
    );
}

#[rstest]
fn a_replica_that_has_lost_its_primary() {
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
        (2, vec![format!("replica-link-down {}", name(replica))])
    );
}

#[rstest]
fn a_user_who_may_not_look() {
    let (primary, _replica) = pair();
    let mut con = primary.connect();
    ask::<()>(
        &mut con,
        "ACL SETUSER guest on >pw +@all -config -rl.policy ~*",
    );
    let guest = format!("redis://guest:pw@{}", name(&primary));
    // The replica knows no such user.
    let (code, found) = findings(&guest);
    assert_eq!(code, 2);
    assert!(
        found.contains(&format!("policies-unreadable {}", name(&primary))),
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
fn a_dead_node_in_a_real_terminal() {
    let mut cluster = Cluster::start();
    let dead = name(&cluster.nodes[2]);
    cluster.nodes[2].kill();
    // Before the others notice, and after.
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
            screen.contains(&format!("PROBLEM  {dead}: no answer: ")),
            "{screen}"
        );
        assert!(screen.contains("→ "), "{screen}");
        assert!(
            screen.contains(&format!("{dead}  primary  no answer")),
            "{screen}"
        );
        assert_eq!(
            screen.contains("cluster_state is not ok"),
            noticed,
            "{screen}"
        );
    }
}

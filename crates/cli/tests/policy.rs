//! `rl policy`: every primary has the policies of the file, or the output shows the difference.

use redis::Value;
use rl_testkit::{Cluster, Server, TempDir};
use rstest::rstest;
use serde_json::json;

use crate::support::{RL, Terminal, rl};

const FILE: &str = r#"{"policies": {
  "pro": {"limits": ["slide 60 60 cost 1", "SLIDE 90000 1m"], "note": "requests and tokens"},
  "free": {"limits": ["SLIDE 100 60"]},
  "trial": {"limits": ["BUCKET 10 10 1h"], "shadow": true}
}}"#;

fn dump(server: &Server) -> serde_json::Value {
    serde_json::from_str(&server.run::<String>("RL.POLICY", &["DUMP"])).unwrap()
}

fn wanted() -> serde_json::Value {
    json!({"policies": {
        "free": {"limits": ["SLIDE 100 1m"]},
        "pro": {"limits": ["SLIDE 60 1m COST 1", "SLIDE 90000 1m"], "note": "requests and tokens"},
        "trial": {"limits": ["BUCKET 10 10 1h"], "shadow": true},
    }})
}

#[rstest]
fn a_pushed_file_is_pulled_unchanged() {
    let (server, folder) = (Server::start(), TempDir::new());
    let (url, file) = (server.url(), folder.write("policies.json", FILE));
    let _: () = server.run("RL.POLICY", &["SET", "free", "SLIDE", "50", "1m"]);

    let diff = rl(&url, &["policy", "diff", &file]).exits(1);
    assert_eq!(
        diff.out,
        format!(
            "@ {}\n- free: SLIDE 50 1m\n+ free: SLIDE 100 1m\n\
             + pro: SLIDE 60 1m COST 1 + SLIDE 90000 1m  # requests and tokens\n+ trial: BUCKET 10 10 1h (shadow)\n",
            server.address()
        )
    );
    assert_eq!(
        server.run::<Vec<String>>("RL.POLICY", &["LIST"]),
        ["free"],
        "diff changes nothing"
    );

    let push = rl(&url, &["policy", "push", &file]).exits(0);
    assert!(
        push.out.starts_with(&diff.out),
        "what changes is shown first: {}",
        push.out
    );
    assert!(
        push.out.ends_with(&format!(
            "pushed 3 policies to 1 of 1 primaries: {}\n",
            server.address()
        )),
        "{}",
        push.out
    );
    assert_eq!(dump(&server), wanted());
    rl(&url, &["policy", "diff", &file]).exits(0);

    let pulled = folder.path("pulled.json");
    rl(&url, &["policy", "pull", &pulled]).exits(0);
    let text = std::fs::read_to_string(&pulled).unwrap();
    assert_eq!(
        text.trim_end(),
        server.run::<String>("RL.POLICY", &["DUMP"]),
        "the module's own form"
    );
    rl(&url, &["policy", "diff", &pulled]).exits(0);
    assert_eq!(rl(&url, &["policy", "pull", "-"]).exits(0).out, text);
}

#[rstest]
fn nothing_is_deleted_by_accident() {
    let (server, folder) = (Server::start(), TempDir::new());
    let (url, file) = (server.url(), folder.write("policies.json", FILE));
    let _: () = server.run("RL.POLICY", &["SET", "old", "SLIDE", "1", "1m"]);

    let refused = rl(&url, &["policy", "push", &file]).exits(2);
    assert!(
        refused
            .err
            .contains("nothing was changed: the file lacks old")
            && refused.err.contains("--prune"),
        "{}",
        refused.err
    );
    assert_eq!(server.run::<Vec<String>>("RL.POLICY", &["LIST"]), ["old"]);

    // In a terminal, `rl` asks first.
    let line = format!("{RL} --url {url} policy push {file}; echo exit=$?; sleep 600");
    let terminal = Terminal::run(&line);
    terminal.shows(&["- old: SLIDE 1 1m", "Delete old? [y/N]"]);
    terminal.press(&["n", "Enter"]);
    terminal.shows(&["nothing was changed", "exit=2"]);
    assert_eq!(server.run::<Vec<String>>("RL.POLICY", &["LIST"]), ["old"]);
    let terminal = Terminal::run(&line);
    terminal.shows(&["Delete old? [y/N]"]);
    terminal.press(&["y", "Enter"]);
    terminal.shows(&["pushed 3 policies", "exit=0"]);
    assert_eq!(dump(&server), wanted());

    let _: () = server.run("RL.POLICY", &["SET", "old", "SLIDE", "1", "1m"]);
    rl(&url, &["policy", "push", &file, "--prune"]).exits(0);
    assert_eq!(dump(&server), wanted());
}

#[rstest]
fn a_bad_file_reaches_no_node() {
    let (server, folder) = (Server::start(), TempDir::new());
    let bad = FILE.replace("BUCKET 10 10 1h", "BUCKET 10 10 1y");
    let file = folder.write("policies.json", &bad);
    for command in ["diff", "push"] {
        let run = rl(&server.url(), &["policy", command, &file]).exits(2);
        let says = format!(
            "{file}:4:41: policy \"trial\": limit \"BUCKET 10 10 1y\": period must be a duration"
        );
        assert!(run.err.contains(&says), "{}", run.err);
    }
    let missing = rl(&server.url(), &["policy", "push", "/nowhere/policies.json"]).exits(2);
    assert!(
        missing.err.contains("/nowhere/policies.json: No such file"),
        "{}",
        missing.err
    );
    assert_eq!(server.calls("rl.policy"), 0);
}

#[rstest]
fn a_file_is_pushed_to_every_primary_of_a_cluster() {
    let (cluster, folder) = (Cluster::start(), TempDir::new());
    let file = folder.write("policies.json", FILE);
    let push = rl(&cluster.url(), &["policy", "push", &file]).exits(0);
    assert!(
        push.out.contains("pushed 3 policies to 3 of 3 primaries"),
        "{}",
        push.out
    );
    for node in &cluster.nodes {
        assert_eq!(dump(node), wanted());
    }

    // One primary differs: the output names it, and `pull` uses it only with --from.
    let different = &cluster.nodes[1];
    let _: () = different.run("RL.POLICY", &["SET", "free", "SLIDE", "7", "1m"]);
    let diff = rl(&cluster.url(), &["policy", "diff", &file]).exits(1);
    assert!(
        diff.out.contains(&format!(
            "@ {}\n- free: SLIDE 7 1m\n+ free: SLIDE 100 1m\n",
            different.address()
        )),
        "{}",
        diff.out
    );
    let pulled = folder.path("pulled.json");
    let refused = rl(&cluster.url(), &["policy", "pull", &pulled]).exits(2);
    assert!(
        refused.err.contains("have different policies")
            && refused.err.contains(&different.address()),
        "{}",
        refused.err
    );
    assert!(!std::path::Path::new(&pulled).exists());
    rl(
        &cluster.url(),
        &["policy", "pull", &pulled, "--from", &different.address()],
    )
    .exits(0);
    assert!(
        std::fs::read_to_string(&pulled)
            .unwrap()
            .contains("SLIDE 7 1m")
    );

    let json = rl(&cluster.url(), &["policy", "push", &file, "--json"])
        .exits(0)
        .json();
    assert_eq!(json["pushed_to"].as_array().unwrap().len(), 3, "{json}");
    assert_eq!(json["failed_nodes"], json!([]));
    let change = json!({
        "node": different.address(),
        "policy": "free",
        "old": { "limits": ["SLIDE 7 1m"] },
        "new": { "limits": ["SLIDE 100 1m"] },
    });
    assert_eq!(json["changes"], json!([change]));
    assert!(cluster.nodes.iter().all(|node| dump(node) == wanted()));
}

#[rstest]
fn a_node_that_fails_is_named_and_the_others_are_updated() {
    let (mut cluster, folder) = (Cluster::start(), TempDir::new());
    let file = folder.write("policies.json", FILE);

    // One primary refuses writes.
    let full = &cluster.nodes[2];
    let _: Value = full.run("CONFIG", &["SET", "maxmemory", "1"]);
    let push = rl(&cluster.url(), &["policy", "push", &file]).exits(2);
    assert!(
        push.err.contains(&format!("{}: OOM", full.address())),
        "{}",
        push.err
    );
    assert!(
        push.out.contains("pushed 3 policies to 2 of 3 primaries"),
        "{}",
        push.out
    );
    assert_eq!(
        dump(full),
        json!({"policies": {}}),
        "all or nothing on each node"
    );
    assert_eq!(dump(&cluster.nodes[0]), wanted());
    let _: Value = full.run("CONFIG", &["SET", "maxmemory", "0"]);

    // One primary is down.
    let down = cluster.nodes[1].address();
    cluster.nodes[1].kill();
    let other = folder.write("other.json", FILE.replace("SLIDE 100 60", "SLIDE 200 60"));
    let push = rl(&cluster.url(), &["policy", "push", &other]).exits(2);
    assert!(push.err.contains(&format!("rl: {down}: ")), "{}", push.err);
    let summary = format!("to 2 of 3 primaries: {}", names(&cluster, &[0, 2]));
    assert!(push.out.contains(&summary), "{} lacks {summary}", push.out);
    for n in [0, 2] {
        assert_eq!(
            dump(&cluster.nodes[n])["policies"]["free"]["limits"][0],
            "SLIDE 200 1m"
        );
    }
    let json = rl(&cluster.url(), &["policy", "push", &other, "--json"])
        .exits(2)
        .json();
    assert_eq!(json["failed_nodes"][0]["node"], down, "{json}");
    assert_eq!(json["pushed_to"].as_array().unwrap().len(), 2, "{json}");
    // The first address may be the one that is down, if another one is given as well.
    rl(&cluster.url(), &["policy", "diff", &other]).exits(2);
    let both = format!("redis://{down},{}", cluster.url());
    let pulled = rl(&both, &["policy", "pull", "-"]).exits(2);
    assert!(
        pulled.out.contains("SLIDE 200 1m") && pulled.err.contains(&down),
        "{}",
        pulled.err
    );
}

fn names(cluster: &Cluster, which: &[usize]) -> String {
    let mut names: Vec<_> = which.iter().map(|&n| cluster.nodes[n].address()).collect();
    names.sort();
    names.join(", ")
}

#[rstest]
fn a_replica_leads_to_its_primary() {
    let (primary, replica, folder) = (Server::start(), Server::start(), TempDir::new());
    replica.follow(&primary);
    let file = folder.write("policies.json", FILE);
    rl(&replica.url(), &["policy", "push", &file]).exits(0);
    assert_eq!(dump(&primary), wanted());
    primary.wait_for(&replica);
    assert_eq!(dump(&replica), wanted());
}

//! `rl top` in a real terminal, and without one.

use rl_testkit::{Cluster, Server, ask, try_ask};
use rstest::rstest;

use crate::support::{RL, Terminal, rl};

/// Checks `often` (allowed) and `greedy` (mostly denied), on whichever node serves them.
fn traffic(cluster: &Cluster, rounds: usize) {
    for node in &cluster.nodes {
        let mut con = node.connect();
        for (key, calls) in [("often", 4), ("greedy", 3)] {
            for _ in 0..rounds * calls {
                let policy = if key == "often" { "pro" } else { "free" };
                let reply = try_ask::<Vec<i64>>(&mut con, &format!("RL.CHECK {key} {policy}"));
                if reply.is_err() {
                    // Another node serves it.
                    break;
                }
            }
        }
    }
}

fn cluster() -> Cluster {
    let cluster = Cluster::start();
    for node in &cluster.nodes {
        let mut con = node.connect();
        ask::<()>(&mut con, "RL.POLICY SET pro SLIDE 1000000 1h");
        ask::<()>(&mut con, "RL.POLICY SET free SLIDE 5 1h");
    }
    cluster
}

#[rstest]
fn a_terminal_shows_what_happens_and_q_quits() {
    let cluster = cluster();
    traffic(&cluster, 10);
    let line = format!(
        "{RL} --url {} top --interval 1; echo exit=$?; sleep 600",
        cluster.url()
    );
    let terminal = Terminal::run(&line);
    let screen = terminal.shows(&[
        "rl top   3 of 3 primaries reply",
        "hottest keys by checks",
        "often",
        "greedy",
        "pro",
    ]);
    let place = |text: &str, screen: &str| {
        screen
            .lines()
            .position(|line| line.trim_start().starts_with(text))
    };
    assert!(
        place("often", &screen) < place("greedy", &screen),
        "{screen}"
    );
    assert!(screen.contains("25 denied"), "5 of 30 passed:\n{screen}");

    terminal.press(&["d"]);
    let screen = terminal.shows(&["hottest keys by denials"]);
    assert!(
        place("greedy", &screen) < place("often", &screen),
        "{screen}"
    );
    assert!(place("free", &screen) < place("pro", &screen), "{screen}");

    // The view is live: new checks appear without a key press.
    traffic(&cluster, 20);
    terminal.shows(&["/s allowed", "85 denied", "q quit"]);
    terminal.press(&["q"]);
    let screen = terminal.shows(&["exit=0"]);
    assert!(
        !screen.contains("hottest"),
        "the screen is given back:\n{screen}"
    );
}

#[rstest]
fn a_node_that_dies_is_named_while_the_rest_goes_on() {
    let mut cluster = cluster();
    traffic(&cluster, 10);
    let terminal = Terminal::run(&format!("{RL} --url {} top --interval 1", cluster.url()));
    terminal.shows(&["3 of 3 primaries reply"]);
    let down = cluster.nodes[2].address();
    cluster.nodes[2].kill();
    terminal.shows(&[
        "2 of 3 primaries reply",
        &format!("no statistics from {down}"),
    ]);
    // Even if it is the node of the given address.
    cluster.nodes[0].kill();
    terminal.shows(&["1 of 3 primaries reply"]);
    cluster.nodes[1].kill();
    terminal.shows(&["0 of 3 primaries reply", "in total"]);
    terminal.press(&["q"]);
}

#[rstest]
fn without_a_terminal_it_prints_once() {
    let cluster = cluster();
    traffic(&cluster, 10);
    let plain = rl(&cluster.url(), &["top"]).exits(0);
    assert!(
        plain.out.contains("often") && plain.out.contains("25 denied"),
        "{}",
        plain.out
    );
    assert!(
        !plain.out.contains('\u{1b}'),
        "no escapes in a pipe: {:?}",
        plain.out
    );
    let json = rl(
        &cluster.url(),
        &["top", "--json", "--by", "denials", "-n", "1"],
    )
    .exits(0)
    .json();
    assert_eq!(json["all_nodes"]["total"]["denied"], 25, "{json}");
    assert_eq!(json["keys"].as_array().unwrap().len(), 1, "{json}");
    assert_eq!(json["keys"][0]["key"], "greedy", "{json}");
    assert_eq!(json["policies"][0]["policy"], "free", "{json}");
}

#[rstest]
fn keys_cannot_send_control_sequences_to_the_terminal() {
    let server = Server::start();
    let _: Vec<i64> = redis::cmd("RL.SLIDE")
        .arg("a\x1b[2Jb\n")
        .arg(5)
        .arg(60)
        .query(&mut server.connect())
        .unwrap();
    let plain = rl(&server.url(), &["top"]).exits(0);
    assert!(plain.out.contains("a\\u{1b}[2Jb\\n"), "{}", plain.out);
}

//! A replica whose clock is an hour off is promoted: usage is kept, or at most one extra limit is allowed, and nobody
//! waits longer than usual.

use std::path::Path;
use std::process::Command;

use rstest::rstest;

use crate::network::{Network, Setup};
use rl_testkit::{Reply, TempDir};

const LIMIT: i64 = 10;
const WINDOW_MS: i64 = 600_000;

#[rstest]
#[case::ahead(3600)]
#[case::behind(-3600)]
#[ignore = "needs Docker: make test-containers"]
fn a_promoted_replica_with_a_wrong_clock_keeps_the_clock_promise(#[case] seconds: i64) {
    let folder = TempDir::new();
    let library = folder.path("clock.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/containers/clock.c");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(source)
        .status();
    assert!(compiled.unwrap().success());

    let network = Network::new();
    let primary = network.server(&[]);
    let replica = network.start(Setup {
        env: &["LD_PRELOAD=/clock.so", &format!("RL_TEST_CLOCK={seconds}")],
        files: &[(&library, "/clock.so")],
        ..Setup::default()
    });
    let [here, there] = [&primary, &replica].map(|node| node.run::<(i64, i64)>("TIME").0);
    assert!((there - here - seconds).abs() <= 2, "the clock is off");
    replica.follow(&primary);
    let calls = ["RL.SLIDE s 10 10m", "RL.BUCKET b 10 10 10m"];
    for call in calls {
        let admitted: i64 = (0..2 * LIMIT).map(|_| primary.run::<Reply>(call).0).sum();
        assert_eq!(admitted, LIMIT);
    }
    let _: i64 = primary.run("WAIT 1 5000");
    primary.kill();
    let _: () = replica.run("REPLICAOF NO ONE");
    for call in calls {
        let answers: Vec<Reply> = (0..2 * LIMIT).map(|_| replica.run(call)).collect();
        let extra: i64 = answers.iter().map(|reply| reply.0).sum();
        let worst = answers.iter().map(|reply| reply.3).max().unwrap();
        println!(
            "measured: clock {seconds:+} s, {call}: {extra} extra of a limit of {LIMIT}, longest wait {worst} ms"
        );
        assert!(extra <= if seconds > 0 { LIMIT } else { 0 });
        assert!(
            worst <= 2 * WINDOW_MS,
            "nobody waits longer than the worst on a steady clock"
        );
    }
}

//! RDB files restore what was saved, over reloads and restarts. See upgrades.rs for the files of earlier versions.

use rl_testkit::{Reply, Server, ask};
use rstest::rstest;

fn fill(server: &Server) {
    for n in 0..50 {
        let _: Reply = server.run("RL.SLIDE", &[&format!("s{n}"), "10", "1h", "3"]);
        let _: Reply = server.run("RL.BUCKET", &[&format!("b{n}"), "9", "1", "1h", "4"]);
    }
    let mut con = server.connect();
    for n in 0..50 {
        for line in [
            format!(
                "RL.SLIDE p{n} 70000 1h {} PRECISION {}",
                1 + n * 1400,
                n + 2
            ),
            format!("RL.FIXED f{n} 100 3650d {}", n + 1),
            format!("RL.EXACT x{} 100000 1h {}", n % 4, n % 5),
            format!("RL.LEAK l{n} 100 1 1h {}", n + 1),
            format!("RL.LEASE h{} 100 1h holder{n} 2", n % 4),
        ] {
            assert_eq!(ask::<Reply>(&mut con, &line).0, 1, "{line}");
        }
    }
    // A log of many chunks, some of it given back, and a list of many holders.
    let mut pipe = redis::pipe();
    for n in 0..2000 {
        pipe.cmd("RL.EXACT")
            .arg("log")
            .arg(100_000)
            .arg("1h")
            .arg(n % 3 + 1);
        pipe.cmd("RL.LEASE")
            .arg("list")
            .arg(100_000)
            .arg("1h")
            .arg(n);
    }
    pipe.cmd("RL.REFUND").arg("log").arg(1234);
    pipe.cmd("RL.RELEASE").arg("list").arg(777);
    pipe.exec(&mut con).unwrap();
    let max = "9007199254740991";
    let _: Reply = server.run("RL.SLIDE", &["wide", max, "3650d", max]);
    let _: Reply = server.run("RL.BUCKET", &["deep", max, "1", "3650d", max]);
}

#[rstest]
fn a_restart_restores_states_and_expiry() {
    let mut server = Server::with(&["dbfilename", "kept.rdb"]);
    fill(&server);
    let (digest, expiry) = (server.digest_all(), server.expire_at_ms("s1"));
    server.shutdown("SAVE");
    server.start_again();
    assert_eq!(server.digest_all(), digest);
    assert!((server.expire_at_ms("s1") - expiry).abs() <= 2);
    for (peek, left) in [
        (r#"RL.PEEK s1 "SLIDE 10 1h 0""#, 7),
        (
            r#"RL.PEEK p3 "SLIDE 70000 1h 0 PRECISION 5""#,
            70_000 - 4201,
        ),
        (r#"RL.PEEK f3 "FIXED 100 3650d 0""#, 96),
        (r#"RL.PEEK log "EXACT 100000 1h 0""#, 100_000 - 3999 + 1234),
        (r#"RL.PEEK l3 "LEAK 100 1 1h 0""#, 96),
        (r#"RL.PEEK list "LEASE 100000 1h x 0""#, 100_000 - 1999),
    ] {
        let reply: Reply = ask(&mut server.connect(), peek);
        assert_eq!(reply.2, left, "{peek}");
    }
    let again: i64 = server.run("RL.RELEASE", &["list", "777"]);
    assert_eq!(again, 0, "released before the restart");
}

#[rstest]
fn a_reload_restores_states_and_expiry() {
    let server = Server::start();
    fill(&server);
    let digest = server.digest_all();
    let _: () = server.run("DEBUG", &["RELOAD"]);
    assert_eq!(server.digest_all(), digest);
}

#[rstest]
fn enough_allowed_calls_trigger_a_save() {
    let server = Server::start();
    let _: () = server.run("CONFIG", &["SET", "save", "1 5"]);
    let before = server.info_number("persistence", "rdb_last_save_time");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    for _ in 0..10 {
        let _: Reply = server.run("RL.SLIDE", &["k", "100", "1h"]);
    }
    rl_testkit::eventually("saved", || {
        server.info_number("persistence", "rdb_last_save_time") > before
    });
}

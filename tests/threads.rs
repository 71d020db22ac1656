//! Callbacks that the server runs outside its main thread, or while it crashes.

use redis::Value;
use rl_testkit::{Server, ask, base_config, eventually, module, try_ask};
use rstest::{fixture, rstest};

#[fixture]
fn server() -> Server {
    Server::start()
}

/// A report is written by a signal handler, on the thread that crashed, at any moment: it has to end, and to say what
/// crashed.
#[rstest]
fn a_crash_report_contains_the_module(mut server: Server) {
    let mut con = server.connect();
    ask::<()>(&mut con, "RL.POLICY SET p SLIDE 5 1h");
    ask::<()>(&mut con, "RL.OVERRIDE SET k p BLOCK");
    let _: Value = ask(&mut con, "RL.SLIDE k 0 1h");
    let crashed = try_ask::<Value>(&mut con, "DEBUG SEGFAULT");
    assert!(crashed.is_err());
    server.wait_until_exit();
    let log = server.log();
    let report = log.split("MODULES INFO OUTPUT").nth(1).unwrap_or_default();
    let version = format!("rl_version:{}", env!("CARGO_PKG_VERSION"));
    for field in [&*version, "rl_policies:1", "rl_keys_with_overrides:1"] {
        assert!(report.contains(field), "{field} in {log}");
    }
    // What only the main thread may read is not in it.
    assert!(!report.contains("rl_denied"), "{report}");
}

/// How many keys have overrides is counted where values are made and where they are freed.
#[rstest]
fn overrides_that_are_freed_in_the_background_are_no_longer_counted(server: Server) {
    let mut con = server.connect();
    let count = || server.info_number("rl", "rl_keys_with_overrides");
    for round in 0..20 {
        ask::<()>(&mut con, "RL.POLICY SET p SLIDE 5 1h");
        let mut pipe = redis::pipe();
        for n in 0..500 {
            pipe.cmd("RL.OVERRIDE")
                .arg(&["SET", &format!("k{round}:{n}"), "p", "BLOCK"]);
        }
        // The next ones are made while these are freed.
        pipe.cmd("FLUSHALL").arg("ASYNC");
        for n in 0..100 {
            pipe.cmd("RL.OVERRIDE")
                .arg(&["SET", &format!("k{round}:{n}"), "p", "BLOCK"]);
        }
        pipe.exec(&mut con).unwrap();
        eventually("the others are freed", || count() == 100);
        pipe = redis::pipe();
        pipe.cmd("FLUSHALL").arg("ASYNC");
        pipe.exec(&mut con).unwrap();
    }
    eventually("all are freed", || count() == 0);
}

/// Values of every kind are freed by the lazy-free thread, and by I/O threads, while commands make and change others.
#[rstest]
fn values_are_freed_while_commands_run() {
    let mut config = base_config();
    config.extend(["io-threads", "4", "lazyfree-lazy-server-del", "yes"]);
    config.extend(["lazyfree-lazy-user-del", "yes"]);
    config.extend(["loadmodule", module().to_str().unwrap()]);
    let server = Server::without_module(&config);
    let mut con = server.connect();
    ask::<()>(
        &mut con,
        "RL.POLICY SET p EXACT 1000 1h SLIDE 1000 1h PRECISION 60 SLIDE 1000 1d",
    );
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let server = &server;
            scope.spawn(move || {
                let mut con = server.connect();
                for round in 0..30 {
                    let mut pipe = redis::pipe();
                    for n in 0..20 {
                        let key = format!("{thread}:{n}");
                        for _ in 0..3 {
                            pipe.cmd("RL.CHECK").arg(&[&*key, "p"]);
                        }
                        let other = format!("{thread}:h{n}");
                        for holder in 0..70 {
                            let holder = holder.to_string();
                            pipe.cmd("RL.LEASE").arg(&[&*other, "100", "1h", &holder]);
                        }
                        match (round + n) % 3 {
                            0 => pipe.cmd("UNLINK").arg(&[&*key, &*other]),
                            1 => pipe
                                .cmd("SET")
                                .arg(&[&*key, ""])
                                .cmd("SET")
                                .arg(&[&*other, ""]),
                            _ => pipe.cmd("COPY").arg(&[&*other, &*key, "REPLACE"]),
                        };
                        pipe.cmd("DEL").arg(&[&*key, &*other]);
                    }
                    pipe.exec(&mut con).unwrap();
                }
            });
        }
    });
    assert_eq!(ask::<i64>(&mut con, "DBSIZE"), 0);
    eventually("nothing is left to be freed", || {
        server.info_number("memory", "lazyfree_pending_objects") == 0
    });
    assert!(!server.log().contains("panicked"));
}

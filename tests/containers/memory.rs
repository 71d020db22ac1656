//! Memory is full and nothing may be evicted: existing keys are checked as ever, new ones are refused by the
//! server's own error, and nothing crashes.

use redis::{Value, cmd};
use rstest::rstest;

use crate::network::Network;
use rl_testkit::{Reply, ask, ask_error};

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

#[rstest]
#[ignore = "needs Docker: make test-containers"]
fn with_memory_full_existing_keys_are_checked_and_new_ones_refused() {
    let network = Network::new();
    let server = network.server(&["--maxmemory-policy", "noeviction"]);
    let mut con = server.connect().unwrap();
    for line in ["RL.SLIDE old:s 5 1d", "RL.BUCKET old:b 5 1 1d"] {
        let _: Reply = ask(&mut con, line);
    }
    let used: u64 = server.info("memory", "used_memory").parse().unwrap();
    let _: () = ask(
        &mut con,
        &format!("CONFIG SET maxmemory {}", used + 3_000_000),
    );
    // New keys until the server refuses one.
    let mut made = 0;
    let refusal = loop {
        let call = cmd("RL.SLIDE")
            .arg(format!("fill:{made}"))
            .arg(5)
            .arg("1d")
            .query::<Value>(&mut con);
        match call {
            // Ten times as many as there is room for.
            Ok(_) if made > 300_000 => panic!("the server takes {made} keys"),
            Ok(_) => made += 1,
            Err(error) => break rl_testkit::error_text(&error),
        }
    };
    assert_eq!(refusal, OOM);
    println!("measured: memory full after {made} keys");
    // Well past the edge, where a buffer more or less decides nothing.
    let _: () = ask(
        &mut con,
        &format!("CONFIG SET maxmemory {}", used + 2_500_000),
    );

    let mut admitted = 0;
    for _ in 0..10 {
        admitted += ask::<Reply>(&mut con, "RL.SLIDE old:s 5 1d").0;
        admitted += ask::<Reply>(&mut con, "RL.BUCKET old:b 5 1 1d").0;
        let (_, _, each): rl_testkit::MultiReply = ask(
            &mut con,
            r#"RL.MULTI old:s "SLIDE 5 1d 0" old:b "BUCKET 5 1 1d 0""#,
        );
        assert_eq!(each.len(), 2);
        let _: Reply = ask(&mut con, r#"RL.PEEK new "SLIDE 5 1d""#);
    }
    assert_eq!(admitted, 8, "existing keys are counted to their limits");
    for line in [
        "RL.SLIDE new 5 1d",
        "RL.BUCKET new 5 1 1d",
        r#"RL.MULTI old:b "BUCKET 50 1 1d" new "SLIDE 5 1d""#,
    ] {
        assert_eq!(ask_error(&mut con, line), OOM, "{line}");
    }
    let reply: Reply = ask(&mut con, r#"RL.PEEK old:b "BUCKET 50 1 1d 0""#);
    assert_eq!(reply.2, 45, "a refused call spends nothing anywhere");

    // Room again: new keys again.
    let _: () = ask(&mut con, "CONFIG SET maxmemory 0");
    assert_eq!(ask::<Reply>(&mut con, "RL.SLIDE new 5 1d").0, 1);
}

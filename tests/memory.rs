//! Memory: a full server refuses or evicts as configured, every key has its end, and the end gives
//! everything back.

#![allow(clippy::unwrap_used)]

mod support;

use redis::Pipeline;
use rstest::{fixture, rstest};
use support::{Five, Random, Server, ask, ask_error, eventually};

#[fixture]
fn server() -> Server {
    Server::start()
}

fn used(server: &Server) -> i64 {
    server.info_number("memory", "used_memory")
}

/// One call for each key, on a connection of its own; each key lasts for two windows.
fn call_many(server: &Server, keys: u64, window: &str) {
    let mut con = server.connect();
    for start in (0..keys).step_by(10_000) {
        let mut pipe = Pipeline::new();
        for n in start..keys.min(start + 10_000) {
            let key = format!("k:{n:012}");
            match n % 4 {
                0 => pipe
                    .cmd("RL.BUCKET")
                    .arg(key)
                    .arg(6)
                    .arg(3)
                    .arg(window)
                    .arg(6),
                _ => pipe.cmd("RL.SLIDE").arg(key).arg(9).arg(window),
            }
            .ignore();
        }
        pipe.exec(&mut con).unwrap();
    }
}

#[rstest]
fn a_full_server_refuses_calls_and_still_answers_peeks(server: Server) {
    let mut con = server.connect();
    let _: Five = ask(&mut con, "RL.SLIDE s 9 1h 2");
    let _: Five = ask(&mut con, "RL.BUCKET b 9 1 1h 2");
    let dirty = || server.info_number("persistence", "rdb_changes_since_last_save");
    let before = (server.digest_all(), dirty());
    ask::<()>(&mut con, "CONFIG SET maxmemory 1");
    for line in [
        "RL.SLIDE new 9 1h",
        "RL.SLIDE s 9 1h",
        "RL.SLIDE s 9 1h 1 FORCE",
        "RL.BUCKET b 9 1 1h",
        "RL.MULTI s SLIDE 9 1h 1 b BUCKET 9 1 1h 1",
        "RL.LOAD new 99999999999999 x",
    ] {
        let error = ask_error(&mut con, line);
        assert!(
            error.starts_with("OOM command not allowed"),
            "{line}: {error}"
        );
    }
    let five: Five = ask(&mut con, "RL.PEEK s SLIDE 9 1h 1");
    assert_eq!((five.0, five.2), (1, 6));
    let five: Five = ask(&mut con, "RL.PEEK b BUCKET 9 1 1h 8");
    assert_eq!((five.0, five.2), (0, 7));
    assert_eq!((server.digest_all(), dirty()), before, "nothing changed");

    ask::<()>(&mut con, "CONFIG SET maxmemory 0");
    let five: Five = ask(&mut con, "RL.SLIDE s 9 1h");
    assert_eq!((five.0, five.2), (1, 6), "and goes on as before");
}

#[rstest]
fn a_server_that_evicts_lets_limits_go_and_goes_on(server: Server) {
    let mut con = server.connect();
    let room = used(&server) + 4_000_000;
    ask::<()>(&mut con, "CONFIG SET maxmemory-policy volatile-ttl");
    ask::<()>(&mut con, &format!("CONFIG SET maxmemory {room}"));
    // No pipelines: their replies would count as memory.
    for n in 0..60_000 {
        let _: Five = ask(&mut con, &format!("RL.SLIDE k:{n} 9 1h"));
    }
    // Both from one reading: the server evicts between commands.
    let info: String = ask(&mut con, "INFO");
    let number = |name: &str| -> i64 {
        let rest = info.split_once(name).unwrap().1;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
        digits.unwrap().parse().unwrap()
    };
    let (evicted, left) = (number("\nevicted_keys:"), number("\ndb0:keys="));
    assert!(evicted > 10_000, "{evicted}");
    assert!(left > 1_000, "{left}");
    assert_eq!(evicted + left, 60_000, "each either evicted or there");
    assert!(used(&server) < room + 1_000_000);
    let five: Five = ask(&mut con, "RL.SLIDE fresh 9 1h");
    assert_eq!(five.2, 8);
}

#[rstest]
fn memory_returns_to_the_start_after_a_million_keys_expire() {
    const KEYS: u64 = 1_000_000;
    let server = Server::with(&["hz", "100", "active-expire-effort", "10"]);
    let used_when_all_are_gone = || {
        eventually("all keys are gone", || {
            server.run::<i64>("DBSIZE", &[]) == 0
        });
        let _: () = server.run("MEMORY", &["PURGE"]);
        used(&server)
    };
    // The first run of each command, INFO too, allocates its statistics for good.
    for _ in 0..2 {
        call_many(&server, 20_000, "100ms");
        used_when_all_are_gone();
    }
    let start = used(&server);

    call_many(&server, KEYS, "8s");
    let full = used(&server);
    let there: i64 = server.run("DBSIZE", &[]);
    assert!(
        full - start > 100 * KEYS as i64,
        "{start} bytes before, {full} with {there} keys"
    );
    // The server's tables shrink in its own time.
    eventually("memory is what it was, within two percent", || {
        used_when_all_are_gone() <= start + start / 50
    });
}

#[rstest]
fn states_that_change_their_size_leak_nothing(server: Server) {
    let mut con = server.connect();
    let mut round = |calls| {
        let mut pipe = Pipeline::new();
        for n in 0..calls {
            // By turns of the usual size and of the larger one, which years and huge counts take.
            let (window, cost) = [("1h", 1), ("3650d", 1_u64 << 50)][n % 2];
            let limit = (1_u64 << 53) - 1;
            pipe.cmd("RL.SLIDE")
                .arg("s")
                .arg(limit)
                .arg(window)
                .arg(1)
                .ignore();
            pipe.cmd("RL.BUCKET")
                .arg("b")
                .arg(limit)
                .arg(limit)
                .arg("1ms")
                .arg(cost)
                .ignore();
        }
        pipe.exec(&mut con).unwrap();
        used(&server)
    };
    round(20_000);
    let start = round(20_000);
    let end = round(20_000);
    // One word lost on each change would be 320 KB.
    assert!(end < start + 100_000, "{start} bytes before, {end} after");
}

/// No key is kept for longer, however slowly it drains.
const TWO_GENERATIONS_MS: i64 = ((1 << 31) - 1) * 1000;

#[rstest]
fn every_key_has_an_end_and_it_fits_the_state(server: Server) {
    let (mut con, mut random) = (server.connect(), Random(7));
    let pick =
        |random: &mut Random, list: &[&'static str]| list[random.below(list.len() as u64) as usize];
    let mut admitted = 0;
    for _ in 0..5000 {
        let (key, cost) = (random.below(30), random.below(6));
        let limit = pick(&mut random, &["0", "5", "40", "1000000"]);
        let window = pick(&mut random, &["20ms", "3s", "1m", "1h", "3650d"]);
        let option = pick(&mut random, &["", "", "", " PEEK", " FORCE"]);
        let refill = pick(&mut random, &["1", "50"]);
        let (key, call) = match random.below(2) {
            0 => (
                format!("s{key}"),
                format!("RL.SLIDE s{key} {limit} {window} {cost}{option}"),
            ),
            _ => (
                format!("b{key}"),
                format!("RL.BUCKET b{key} {limit} {refill} {window} {cost}{option}"),
            ),
        };
        let mut pipe = redis::pipe();
        pipe.atomic();
        let words: Vec<&str> = call.split(' ').collect();
        pipe.cmd(words[0]).arg(&words[1..]).cmd("PTTL").arg(&key);
        let (five, left): (Five, i64) = pipe.query(&mut con).unwrap();
        assert_ne!(left, -1, "{call} left {key} without an end");
        if five.0 == 1 && cost > 0 && option != " PEEK" {
            admitted += 1;
            // It may be over by now, if the window is short; it may not outlive its state for long.
            assert!(left <= five.4 + 1001, "{call}: {five:?}, PTTL {left}");
            assert!(
                left >= five.4.min(TWO_GENERATIONS_MS) - 1000 || left == -2,
                "{call}: {five:?}, PTTL {left}"
            );
        }
    }
    assert!(admitted > 1000, "{admitted}");
    let keys: Vec<String> = ask(&mut con, "KEYS *");
    assert!(keys.len() > 30, "{}", keys.len());
    for key in keys {
        assert_ne!(ask::<i64>(&mut con, &format!("PTTL {key}")), -1, "{key}");
    }
}

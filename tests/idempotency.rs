//! A reservation counts once, whatever is repeated, lost or late, and whatever crashes in between.

use redis::{Connection, Value};
use rl_testkit::{Reply, Server, ask, command, eventually, try_ask};
use rstest::rstest;

const RESERVED: i64 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    Reserve,
    Settle(i64),
}

/// What an id stands for, as the contract's table has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Id {
    Unknown,
    Reserved,
    Settled(i64),
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Allowed,
    IsSettled,
    Charged(i64),
    Null,
}

impl Id {
    /// Handles a message, and returns its reply and what it adds to usage.
    fn handle(&mut self, message: Message) -> (Outcome, i64) {
        match (message, *self) {
            (Message::Reserve, Self::Unknown) => {
                *self = Self::Reserved;
                (Outcome::Allowed, RESERVED)
            }
            (Message::Reserve, Self::Reserved) => (Outcome::Allowed, 0),
            (Message::Reserve, Self::Settled(_) | Self::Closed) => (Outcome::IsSettled, 0),
            (Message::Settle(actual), Self::Reserved) => {
                *self = Self::Settled(actual);
                (Outcome::Charged(actual), actual - RESERVED)
            }
            (Message::Settle(_), Self::Settled(charged)) => (Outcome::Charged(charged), 0),
            (Message::Settle(_), Self::Unknown | Self::Closed) => {
                *self = Self::Closed;
                (Outcome::Null, 0)
            }
        }
    }
}

fn line(message: Message, id: &str, key: &str) -> String {
    match message {
        Message::Reserve => format!(r#"RL.RESERVE {id} 1h {key} "SLIDE 1000 1h {RESERVED}""#),
        Message::Settle(actual) => format!("RL.SETTLE {id} 1 {key} {actual}"),
    }
}

fn outcome(reply: redis::RedisResult<Value>) -> Outcome {
    match reply {
        Ok(Value::Nil) => Outcome::Null,
        Ok(Value::Array(fields)) => match fields[..] {
            [Value::Int(charged)] => Outcome::Charged(charged),
            [Value::Int(1), ..] => Outcome::Allowed,
            _ => panic!("{fields:?}"),
        },
        Ok(other) => panic!("{other:?}"),
        Err(error) => {
            assert_eq!(error.detail(), Some("reservation is settled"), "{error}");
            Outcome::IsSettled
        }
    }
}

/// All orders in which the messages of two callers can arrive: `true` stands for the first caller.
fn interleavings(first: usize, second: usize) -> Vec<Vec<bool>> {
    if first == 0 || second == 0 {
        return vec![[vec![true; first], vec![false; second]].concat()];
    }
    let with = |next: bool, mut rest: Vec<Vec<bool>>| {
        rest.iter_mut().for_each(|order| order.insert(0, next));
        rest
    };
    let mut all = with(true, interleavings(first - 1, second));
    all.extend(with(false, interleavings(first, second - 1)));
    all
}

/// Whether each of the messages arrives in time, late (after everything else), or never.
fn fates(messages: &[Message]) -> Vec<(Vec<Message>, Vec<Message>)> {
    let count = 3_usize.pow(messages.len() as u32);
    let fate = |mut number: usize| {
        let (mut in_time, mut late) = (Vec::new(), Vec::new());
        for &message in messages {
            match number % 3 {
                0 => in_time.push(message),
                1 => late.push(message),
                _ => {}
            }
            number /= 3;
        }
        (in_time, late)
    };
    (0..count).map(fate).collect()
}

/// Every order of the messages of two callers, with any of them lost or late. A reply that is lost is a message that is
/// repeated.
#[rstest]
#[case::two_ids(["a", "b"], 3, 8)]
#[case::two_ids_and_a_caller_that_gives_up(["a", "b"], 0, 8)]
#[case::one_id_from_two_processes(["a", "a"], 3, 8)]
#[case::one_id_and_a_caller_that_gives_up(["a", "a"], 0, 5)]
fn every_reservation_counts_once(
    #[case] ids: [&str; 2],
    #[case] first_used: i64,
    #[case] second_used: i64,
) {
    let server = Server::start();
    let mut con = server.connect();
    let messages = |used| [Message::Reserve, Message::Reserve, Message::Settle(used)];
    let mut batch: Vec<(String, Outcome)> = Vec::new();
    let mut number = 0;
    for (first, first_late) in fates(&messages(first_used)) {
        for (second, second_late) in fates(&messages(second_used)) {
            for order in interleavings(first.len(), second.len()) {
                number += 1;
                let key = format!("k{number}");
                let (mut first, mut second) = (first.iter(), second.iter());
                let in_time = order.iter().map(|&is_first| match is_first {
                    true => (0, *first.next().unwrap()),
                    false => (1, *second.next().unwrap()),
                });
                let in_time: Vec<_> = in_time.collect();
                let late = second_late.iter().map(|&message| (1, message));
                let late = late.chain(first_late.iter().map(|&message| (0, message)));

                let mut records = [Id::Unknown, Id::Unknown];
                let mut total = 0;
                for (caller, message) in in_time.into_iter().chain(late) {
                    let id = ids.iter().position(|id| *id == ids[caller]).unwrap();
                    let (outcome, added) = records[id].handle(message);
                    total += added;
                    let id = format!("{key}:{}", ids[caller]);
                    batch.push((line(message, &id, &key), outcome));
                }
                batch.push((
                    format!(r#"RL.PEEK {key} "SLIDE 1000 1h 0""#),
                    Outcome::Charged(1000 - total),
                ));
                if batch.len() > 500 {
                    run(&mut con, &mut batch);
                }
            }
        }
    }
    run(&mut con, &mut batch);
}

/// Sends all messages at once and checks their replies.
fn run(con: &mut Connection, batch: &mut Vec<(String, Outcome)>) {
    let packed = batch
        .iter()
        .map(|(line, _)| command(line).get_packed_command());
    con.send_packed_command(&packed.collect::<Vec<_>>().concat())
        .unwrap();
    for (line, expected) in batch.drain(..) {
        let reply = con.recv_response();
        let reply = match reply {
            Ok(Value::ServerError(error)) => Err(error.into()),
            reply => reply,
        };
        let got = match (line.starts_with("RL.PEEK"), reply) {
            (true, Ok(Value::Array(fields))) => match fields[2] {
                Value::Int(left) => Outcome::Charged(left),
                _ => panic!("{fields:?}"),
            },
            (_, reply) => outcome(reply),
        };
        assert_eq!(got, expected, "{line}");
    }
}

/// The server is killed after every step, and the caller, who did not get the reply, sends it again.
#[rstest]
fn a_crash_between_any_two_steps_changes_nothing(
    #[values(
        "SLIDE 1000 1h",
        "FIXED 1000 3650d",
        "EXACT 1000 1h",
        "BUCKET 1000 1 3650d"
    )]
    limit: &str,
) {
    let mut server = Server::with(&["appendonly", "yes", "appendfsync", "always"]);
    let reserve =
        |id: &str, cost: i64| format!(r#"RL.RESERVE {id} 1h k "{limit} {cost}" l "{limit} 1""#);
    let steps = [
        (format!(r#"RL.MULTI k "{limit} 100""#), false),
        (reserve("a", 50), true),
        (reserve("b", 50), true),
        ("RL.SETTLE a 1 k 20".to_owned(), true),
        (format!(r#"RL.MULTI k "{limit} 7""#), false),
        ("RL.SETTLE b 1 k 80".to_owned(), true),
        ("RL.SETTLE c 1 k 0".to_owned(), true),
        (reserve("c", 50), true),
        ("RL.SETTLE a 1 l 0".to_owned(), true),
        ("RL.SETTLE b 0 l 0".to_owned(), true),
    ];
    for (line, is_idempotent) in &steps {
        let first = try_ask::<Value>(&mut server.connect(), line);
        let before = server.snapshot();
        server.kill();
        server.start_again();
        before.assert_same(&server.snapshot());
        if *is_idempotent {
            let again = try_ask::<Value>(&mut server.connect(), line);
            match (first, again) {
                (Ok(first), Ok(again)) if line.starts_with("RL.SETTLE") => {
                    assert_eq!(first, again, "{line}");
                }
                (first, again) => assert_eq!(outcome(first), outcome(again), "{line}"),
            }
        }
    }
    let left = |key: &str| -> i64 {
        let peek = format!(r#"RL.PEEK {key} "{limit} 0""#);
        1000 - ask::<Reply>(&mut server.connect(), &peek).2
    };
    assert_eq!(left("k"), 100 + 20 + 7 + 80);
    // A bucket counts refunds in whole units, so that a fraction of one may be left until it has drained.
    let most = i64::from(limit.starts_with("BUCKET"));
    assert!((0..=most).contains(&left("l")), "{}", left("l"));
}

/// A failover loses what was not replicated, and nothing else: what is left of each reservation is consistent.
#[rstest]
fn a_failover_loses_at_most_what_was_not_replicated() {
    const IDS: usize = 2000;
    let mut primary = Server::start();
    let replica = Server::start();
    replica.follow(&primary);
    let reserve = |n: usize| format!(r#"RL.RESERVE id{n} 1h k "SLIDE 100000 1h 10""#);
    let mut con = primary.connect();
    for n in 0..IDS / 2 {
        let _: Value = ask(&mut con, &reserve(n));
    }
    primary.wait_for(&replica);
    // From here on, the replica may miss some.
    for n in IDS / 2..IDS {
        let _: Value = ask(&mut con, &reserve(n));
        if n == IDS * 3 / 4 {
            replica.pause();
            let _: i64 = ask(&mut con, "CLIENT KILL TYPE replica");
        }
    }
    primary.kill();
    replica.resume();
    let _: () = replica.run("REPLICAOF", &["NO", "ONE"]);
    eventually("the replica is promoted", || {
        replica.info("replication", "role") == "master"
    });
    let mut con = replica.connect();
    let used =
        |con: &mut Connection| 100_000 - ask::<Reply>(con, r#"RL.PEEK k "SLIDE 100000 1h 0""#).2;
    let known = (0..IDS).filter(|n| ask::<i64>(&mut con, &format!("EXISTS id{n}")) == 1);
    let known: Vec<usize> = known.collect();
    let charged = used(&mut con);
    println!(
        "a failover lost {} of {IDS} reservations, and {} of {} units",
        IDS - known.len(),
        10 * IDS as i64 - charged,
        10 * IDS,
    );
    assert!(known.len() >= IDS / 2, "what was replicated is there");
    assert!(
        known.iter().enumerate().all(|(index, n)| index == *n),
        "nothing is missing in between"
    );
    // A charge and its record are replicated together.
    assert_eq!(charged, 10 * known.len() as i64);
    // Callers repeat and settle: those that are known count once, the others are charged now.
    for n in 0..IDS {
        let _: Value = ask(&mut con, &reserve(n));
    }
    assert_eq!(used(&mut con), 10 * IDS as i64);
    for n in 0..IDS {
        assert_eq!(
            ask::<Vec<i64>>(&mut con, &format!("RL.SETTLE id{n} 1 k 4")),
            [4]
        );
    }
    assert_eq!(used(&mut con), 4 * IDS as i64);
}

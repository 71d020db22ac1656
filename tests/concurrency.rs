//! However many clients call at once, exactly the limit is allowed.

use std::sync::Barrier;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use redis::Connection;
use rl_testkit::{MultiReply, Random, Reply, Server, ask};
use rstest::{fixture, rstest};

const CLIENTS: u64 = 32;
const CALLS: u64 = 100;

#[fixture]
fn server() -> Server {
    Server::start()
}

/// `work` on as many connections as there are clients, all let go at one moment; what each returned.
fn at_once<T: Send>(
    server: &Server,
    clients: u64,
    work: impl Fn(u64, &mut Connection) -> T + Sync,
) -> Vec<T> {
    let barrier = Barrier::new(clients as usize);
    let one = |number| {
        let mut con = server.connect();
        barrier.wait();
        work(number, &mut con)
    };
    let one = &one;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|number| scope.spawn(move || one(number)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// How many of [`CALLS`] calls were allowed.
fn hammer(con: &mut Connection, line: &str) -> i64 {
    (0..CALLS).map(|_| ask::<Reply>(con, line).0).sum()
}

fn hammer_multi(con: &mut Connection, line: &str) -> i64 {
    (0..CALLS).map(|_| ask::<MultiReply>(con, line).0).sum()
}

#[rstest]
#[case::slide("RL.SLIDE k 1000 3650d", r#"RL.PEEK k "SLIDE 1000 3650d 0""#)]
#[case::precise(
    "RL.SLIDE k 1000 3650d PRECISION 20",
    r#"RL.PEEK k "SLIDE 1000 3650d 0 PRECISION 20""#
)]
#[case::bucket("RL.BUCKET k 1000 1 3650d", r#"RL.PEEK k "BUCKET 1000 1 3650d 0""#)]
#[case::fixed("RL.FIXED k 1000 3650d", r#"RL.PEEK k "FIXED 1000 3650d 0""#)]
#[case::exact("RL.EXACT k 1000 3650d", r#"RL.PEEK k "EXACT 1000 3650d 0""#)]
#[case::leak("RL.LEAK k 1000 1 3650d", r#"RL.PEEK k "LEAK 1000 1 3650d 0""#)]
fn many_clients_on_one_key_are_admitted_exactly_to_the_limit(
    server: Server,
    #[case] call: &str,
    #[case] peek: &str,
) {
    let admitted: i64 = at_once(&server, CLIENTS, |_, con| hammer(con, call))
        .iter()
        .sum();
    assert_eq!(admitted, 1000, "of {}", CLIENTS * CALLS);
    let reply: Reply = ask(&mut server.connect(), peek);
    assert_eq!(reply.2, 0);
}

#[rstest]
#[case::slide("RL.SLIDE k 5000 3650d", r#"RL.PEEK k "SLIDE 5000 3650d 0""#)]
#[case::bucket("RL.BUCKET k 5000 1 3650d", r#"RL.PEEK k "BUCKET 5000 1 3650d 0""#)]
#[case::fixed("RL.FIXED k 5000 3650d", r#"RL.PEEK k "FIXED 5000 3650d 0""#)]
#[case::exact("RL.EXACT k 5000 3650d", r#"RL.PEEK k "EXACT 5000 3650d 0""#)]
#[case::leak("RL.LEAK k 5000 1 3650d", r#"RL.PEEK k "LEAK 5000 1 3650d 0""#)]
fn costs_add_up_to_what_is_used(server: Server, #[case] call: &str, #[case] peek: &str) {
    let admitted: u64 = at_once(&server, CLIENTS, |number, con| {
        let mut random = Random(number + 1);
        let mut sum = 0;
        for _ in 0..CALLS {
            let cost = random.below(10);
            let reply: Reply = ask(con, &format!("{call} {cost}"));
            sum += cost * reply.0 as u64;
        }
        sum
    })
    .iter()
    .sum();
    let reply: Reply = ask(&mut server.connect(), peek);
    assert_eq!(admitted + reply.2 as u64, 5000);
    assert!(
        reply.2 < 10,
        "there were takers for every unit: {}",
        reply.2
    );
}

#[rstest]
fn multi_charges_both_keys_or_neither(server: Server) {
    // Thirds of the clients: both keys at once, and each key alone.
    let admitted = at_once(&server, CLIENTS, |number, con| match number % 3 {
        0 => {
            let both = r#"RL.MULTI {k}a "SLIDE 1500 3650d 1" {k}b "BUCKET 1200 1 3650d 1""#;
            [hammer_multi(con, both), 0, 0]
        }
        1 => [0, hammer(con, "RL.SLIDE {k}a 1500 3650d"), 0],
        _ => [0, 0, hammer(con, "RL.BUCKET {k}b 1200 1 3650d")],
    });
    let sum = |which: usize| -> i64 { admitted.iter().map(|each| each[which]).sum() };
    let (both, only_a, only_b) = (sum(0), sum(1), sum(2));
    let mut con = server.connect();
    let a: Reply = ask(&mut con, r#"RL.PEEK {k}a "SLIDE 1500 3650d 0""#);
    let b: Reply = ask(&mut con, r#"RL.PEEK {k}b "BUCKET 1200 1 3650d 0""#);
    assert_eq!(both + only_a, 1500 - a.2);
    assert_eq!(both + only_b, 1200 - b.2);
    assert!(
        both > 0 && only_a > 0 && only_b > 0,
        "{both}, {only_a}, {only_b}"
    );
    assert!(
        a.2 == 0 || b.2 == 0,
        "at least one ran out: {}, {}",
        a.2,
        b.2
    );
}

#[rstest]
fn multi_admits_exactly_the_smaller_limit(server: Server) {
    let call = r#"RL.MULTI {k}a "SLIDE 1000 3650d 1" {k}b "BUCKET 700 1 3650d 1""#;
    let admitted: i64 = at_once(&server, CLIENTS, |_, con| hammer_multi(con, call))
        .iter()
        .sum();
    assert_eq!(admitted, 700);
    let peek = call.replace("SLIDE", "PEEK SLIDE");
    let peek: MultiReply = ask(&mut server.connect(), &peek);
    assert_eq!((peek.2[0].2, peek.2[1].2), (300, 0));
}

#[rstest]
#[case::slide("SLIDE 10 3650d")]
#[case::bucket("BUCKET 10 1 3650d")]
#[case::fixed("FIXED 10 3650d")]
#[case::exact("EXACT 10 3650d")]
#[case::leak("LEAK 10 1 3650d")]
fn the_last_unit_goes_to_exactly_one_of_two_gateways(server: Server, #[case] limit: &str) {
    const ROUNDS: usize = 500;
    let mut con = server.connect();
    for round in 0..ROUNDS {
        let _: MultiReply = ask(&mut con, &format!("RL.MULTI k{round} \"{limit} 9\""));
    }
    let barrier = Barrier::new(2);
    let answers = at_once(&server, 2, |_, con| -> Vec<i64> {
        let round = |round| {
            barrier.wait();
            ask::<MultiReply>(con, &format!("RL.MULTI k{round} \"{limit} 1\"")).0
        };
        (0..ROUNDS).map(round).collect()
    });
    for (round, (one, other)) in answers[0].iter().zip(&answers[1]).enumerate() {
        assert_eq!(one + other, 1, "round {round}");
    }
    assert_eq!(answers[0].len(), ROUNDS);
}

#[rstest]
fn what_is_refunded_can_be_taken_again_and_no_more(server: Server) {
    // Each charges units, and refunds every second one.
    let kept: i64 = at_once(&server, CLIENTS, |_, con| {
        let mut kept = 0;
        for n in 0..CALLS {
            let taken = ask::<Reply>(con, "RL.EXACT k 500 3650d").0;
            let back = match (taken, n % 2) {
                (1, 0) => ask::<i64>(con, "RL.REFUND k 1"),
                _ => 0,
            };
            kept += taken - back;
        }
        kept
    })
    .iter()
    .sum();
    let left: Reply = ask(&mut server.connect(), r#"RL.PEEK k "EXACT 500 3650d 0""#);
    assert_eq!(kept + left.2, 500);
}

#[rstest]
fn never_more_than_the_limit_is_held_at_once(server: Server) {
    const LIMIT: i64 = 5;
    let held = AtomicI64::new(0);
    let most = AtomicI64::new(0);
    let leased: i64 = at_once(&server, CLIENTS, |number, con| {
        let mut leased = 0;
        for _ in 0..CALLS {
            let reply: Reply = ask(con, &format!("RL.LEASE k {LIMIT} 1h client-{number}"));
            if reply.0 == 1 {
                leased += 1;
                most.fetch_max(held.fetch_add(1, SeqCst) + 1, SeqCst);
                std::thread::yield_now();
                held.fetch_sub(1, SeqCst);
                let released: i64 = ask(con, &format!("RL.RELEASE k client-{number}"));
                assert_eq!(released, 1);
            }
        }
        leased
    })
    .iter()
    .sum();
    assert!(leased >= CALLS as i64, "{leased}");
    assert!((1..=LIMIT).contains(&most.into_inner()));
    let mut con = server.connect();
    assert_eq!(ask::<i64>(&mut con, "EXISTS k"), 0, "all were released");

    // Nobody releases: exactly the limit is given out, once.
    let leased: i64 = at_once(&server, CLIENTS, |number, con| {
        ask::<Reply>(con, &format!("RL.LEASE k {LIMIT} 1h client-{number}")).0
    })
    .iter()
    .sum();
    assert_eq!(leased, LIMIT);
}

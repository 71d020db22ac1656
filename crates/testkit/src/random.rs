//! Repeatable random input.

use redis::{Connection, RedisResult};

use crate::command;

/// A repeatable source of test input (xorshift). Its seed must not be 0.
pub struct Random(pub u64);

impl Random {
    /// A number from 0 to `bound - 1`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Sets a policy named `random`, then sends random calls of every kind on a few dozen keys: many are denied, some are
/// forced, some have huge limits, and some are refunds.
pub fn random_calls(con: &mut Connection, random: &mut Random, count: usize) {
    try_random_calls(con, random, count).unwrap();
}

/// Sends random calls like [`random_calls`] to a server that may be gone.
pub fn try_random_calls(
    con: &mut Connection,
    random: &mut Random,
    count: usize,
) -> RedisResult<()> {
    let mut pipe = redis::pipe();
    pipe.add_command(command(
        "RL.POLICY SET random SLIDE 50 10s BUCKET 60 7 3s COST 2",
    ));
    for _ in 0..count {
        pipe.add_command(command(&random_call(random)));
    }
    pipe.exec(con)
}

fn random_call(random: &mut Random) -> String {
    let (n, cost) = (random.below(20), random.below(4));
    let option = ["", "", "", "", " PEEK", " FORCE", " BRIEF"][random.below(7) as usize];
    let times = ["", "", " TIMES 3", " TIMES 5 ATLEAST 2"][random.below(4) as usize];
    // ATLEAST excludes FORCE and BRIEF.
    let options = match (option, times) {
        (" FORCE" | " BRIEF", " TIMES 5 ATLEAST 2") => times.to_owned(),
        _ => format!("{option}{times}"),
    };
    let holder = random.below(12);
    let ttl = 1 + random.below(3000);
    let precision = 2 + n % 7;
    let reservation = random.below(60);
    match random.below(22) {
        0 | 1 => format!("RL.SLIDE s{n} 50 10s {cost}{options}"),
        2 => format!("RL.SLIDE p{n} 50 700ms {cost} PRECISION {precision}{option}"),
        3 => format!("RL.SLIDE p{n} 70000 1h 65000 PRECISION 60"),
        4 => format!("RL.BUCKET b{n} 60 7 3s {cost}{options}"),
        5 => format!(
            "RL.SLIDE w{n} {} 3650d {}",
            1_u64 << 50,
            1_u64 << 50 >> cost
        ),
        6 => format!("RL.FIXED f{n} 40 {}s {cost}{options}", 1 + n % 3),
        7 | 8 => format!(
            "RL.EXACT x{n} 900 {}ms {cost}{options}",
            300 + 100 * (n % 5)
        ),
        9 => format!("RL.LEAK l{n} 60 7 3s {cost}{options}"),
        10 => format!("RL.LEASE h{n} 20 {ttl}ms holder{holder} {cost}{option}"),
        11 => format!("RL.RELEASE h{n} holder{holder}"),
        12 | 13 => {
            let key = ["s", "p", "b", "f", "x", "l"][random.below(6) as usize];
            format!(
                "RL.REFUND {key}{n} {}",
                random.below(200) >> random.below(8)
            )
        }
        14 | 15 => format!("RL.CHECK c{n} random {cost}{options}"),
        16 => format!(
            "RL.FIRST s{n} \"{} SLIDE 50 10s {cost}\" b{n} \"BUCKET 60 7 3s 2\" l{n} \"SHADOW LEAK 60 7 3s\"",
            if options.is_empty() {
                "BRIEF"
            } else {
                options.trim_start()
            },
        ),
        // A script ignores that the reservation may be settled.
        17 => format!(
            "EVAL \"redis.pcall(unpack(ARGV)) return 0\" 4 r{reservation} s{n} b{n} f{n} \
             RL.RESERVE r{reservation} 2s s{n} \"FORCE SLIDE 50 10s 5\" b{n} \"BUCKET 60 7 3s 5\" f{n} \"FIXED 40 2s 5\"",
            n = reservation % 20
        ),
        18 | 19 => format!(
            "EVAL \"redis.pcall(unpack(ARGV)) return 0\" 4 r{reservation} s{n} b{n} f{n} \
             RL.SETTLE r{reservation} 1 s{n} {cost} b{n} {cost} f{n} 7",
            n = reservation % 20
        ),
        20 => format!(r#"RL.MULTI s{n} "SLIDE 50 10s" b{n} "BUCKET 60 7 3s 2""#),
        _ => format!(
            "RL.MULTI x{n} \"EXACT 900 500ms {cost}\" h{n} \"LEASE 20 {ttl}ms holder{holder}\" \
             p{n} \"SLIDE 50 700ms 1 PRECISION {precision}\" f{n} \"FIXED 40 2s 1\" l{n} \"LEAK 60 7 3s\""
        ),
    }
}

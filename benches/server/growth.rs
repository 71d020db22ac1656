//! What happens as the number of keys, or of limits in one call, grows.

use crate::contender::{self as with, Contender};
use crate::groups::count;
use crate::load;
use crate::report::{Report, Table, compared, median, throughput};
use crate::server::Server;
use crate::turns::{Run, take_turns};

/// The sizes that the summary compares.
const SMALL: usize = 100_000;
const LARGE: usize = 10_000_000;

pub fn measure(report: &mut Report) {
    keys(report);
    limits(report);
}

/// Each contender has a server to itself, so that the server holds just that number of keys.
fn keys(report: &mut Report) {
    let contenders = [with::incr(), with::lasting_slide(), with::lasting_bucket()];
    let sizes: &[usize] = if report.quick {
        &[1_000, SMALL]
    } else {
        &[1_000, 10_000, SMALL, 1_000_000, LARGE]
    };
    let names = contenders.each_ref().map(|contender| &*contender.name);
    let mut rates = Table::new(
        "growth-keys",
        "Throughput as the number of keys grows, pipeline 32",
        &names,
    );
    let mut memory = Table::new(
        "growth-memory",
        "Memory per key as the number of keys grows",
        &names,
    );
    for &keys in sizes {
        eprintln!("  {}", count(keys));
        let servers = contenders.each_ref().map(|contender| fill(contender, keys));
        let runs = [0, 1, 2].map(|n| Run {
            server: &servers[n].0,
            contender: contenders[n].clone(),
            keys,
            pipeline: 32,
            operations: 60_000,
        });
        let samples = take_turns(&runs, report.rounds(), || ());
        let rate = |(_, samples): &(_, Vec<_>)| throughput(samples);
        let cells: Vec<_> = samples.iter().map(rate).collect();
        rates.row(&keys.to_string(), &cells);
        let bytes = |(_, bytes): &(_, f64)| (*bytes, format!("{bytes:.0} B"));
        // With few keys, the server's own buffers outweigh them.
        if keys >= SMALL {
            memory.row(&keys.to_string(), &servers.each_ref().map(bytes));
        }
    }
    let summary = compare_sizes(&names, &rates, &memory);
    report.add(rates);
    report.add(memory);
    if let Some(summary) = summary {
        report.add(summary);
    }
}

/// A server with that many keys, and the memory that each of them takes.
fn fill(contender: &Contender, keys: usize) -> (Server, f64) {
    let mut config = Vec::new();
    if rl_testkit::has_directive("enable-debug-command") {
        config.extend(["enable-debug-command", "yes"]);
    }
    let server = Server::start(&config);
    let before = server.info("used_memory");
    load::prepare(&server, contender, keys);
    // Otherwise there would be two hash tables, in memory and in the way of each call.
    server.finish_rehashing();
    let bytes = server.info("used_memory").saturating_sub(before) as f64 / keys as f64;
    (server, bytes)
}

/// The large size compared with the small one, if both were measured.
fn compare_sizes(names: &[&str], rates: &Table, memory: &Table) -> Option<Table> {
    let [small, large] = [SMALL, LARGE].map(|keys| keys.to_string());
    let mut table = Table::new(
        "growth-summary",
        format!("{} compared with {}", count(LARGE), count(SMALL)),
        &["throughput", "memory per key"],
    );
    for &name in names {
        let of = |table: &Table, row: &str| Some(*table.numbers.get(row)?.get(name)?);
        let (slow, fast) = (of(rates, &large)?, of(rates, &small)?);
        let (most, least) = (of(memory, &large)?, of(memory, &small)?);
        let cells = [
            (slow / fast, compared(slow / fast)),
            (most / least, format!("{least:.0} B → {most:.0} B")),
        ];
        table.row(name, &cells);
    }
    Some(table)
}

fn limits(report: &mut Report) {
    let mut table = Table::new(
        "growth-limits",
        "Time per call as the number of limits in one RL.MULTI grows, 10 000 clients, pipeline 8",
        &["time per call", "time per limit"],
    );
    let server = Server::start(&[]);
    for limits in [1, 2, 4, 8, 16, 32] {
        let run = Run {
            server: &server,
            contender: with::multi(limits),
            keys: 10_000,
            pipeline: 8,
            operations: 10_000,
        };
        let samples = take_turns(&[run], report.rounds(), || ());
        let times = samples[0].1.iter().map(|sample| sample.wall_ns);
        let ns = median(&mut times.collect::<Vec<_>>());
        let cells = [ns, ns / limits as f64].map(|ns| (ns, format!("{:.2} µs", ns / 1000.0)));
        table.row(&limits.to_string(), &cells);
    }
    report.add(table);
}

//! `make bench`: compares the module with the alternatives, on a server of its own, in one run.
//!
//! Machines are noisy, so contenders take turns, round by round, and what counts is the median of the
//! ratios within each round. `cargo bench --bench server -- quick` does fewer rounds, `figures` only draws the
//! figures of the last run again, and other words choose groups by name: `-- targets` measures only the targets.
//!
//! `REDIS_SERVER` is the path of the server to test. Without it, targets are measured on every server that they name,
//! and everything else on `redis-server`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod contender;
mod figures;
mod groups;
mod growth;
mod load;
mod report;
mod server;
mod targets;
mod turns;

use std::time::Instant;

use report::Report;
use server::Server;

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"))
        .collect();
    if words.iter().any(|word| word == "figures") {
        return figures::redraw();
    }
    let quick = words.iter().any(|word| word == "quick");
    let chosen: Vec<_> = words.iter().filter(|word| *word != "quick").collect();

    let started = Instant::now();
    let mut report = Report::new(quick, Server::start(&[]).version());
    for (name, run) in groups::ALL {
        if chosen.is_empty() || chosen.iter().any(|word| name.contains(word.as_str())) {
            eprintln!("[{:>4} s] {name}", started.elapsed().as_secs());
            run(&mut report);
        }
    }
    report.print();
    // A part of the run is for the eye only; the files hold whole runs.
    if chosen.is_empty() {
        report.write();
        figures::draw(&report);
    }
    eprintln!("[{:>4} s] done", started.elapsed().as_secs());
}

//! The groups of measurements.

use std::net::TcpStream;
use std::time::Duration;

use crate::contender::{self as with, Contender};
use crate::growth;
use crate::load::{self, Load, Sample};
use crate::report::{Report, Table, compare, median, percentile, speed};
use crate::server::Server;
use crate::targets;
use crate::turns::{Run, take_turns};

type Group = (&'static str, fn(&mut Report));

pub const ALL: [Group; 12] = [
    ("targets", targets::measure),
    ("reference", reference),
    ("family", family),
    ("pipelines", pipelines),
    ("denials", denials),
    ("multi", multi),
    ("policies", policies),
    ("durable", durable),
    ("io-threads", io_threads),
    ("latency", latency),
    ("memory", memory),
    ("growth", growth::measure),
];

pub const KEYS: usize = 100_000;
const COLUMNS: [&str; 3] = [
    "throughput",
    "server CPU per call",
    "compared with the first",
];

/// One table's runs: contenders with their number of keys.
fn rounds(
    report: &Report,
    server: &Server,
    contenders: &[(Contender, usize)],
    pipeline: usize,
    operations: usize,
) -> Vec<(String, Vec<Sample>)> {
    let run = |(contender, keys): &(Contender, usize)| Run {
        server,
        contender: contender.clone(),
        keys: *keys,
        pipeline,
        operations,
    };
    let runs: Vec<Run> = contenders.iter().map(run).collect();
    take_turns(&runs, report.rounds(), || ())
}

fn everyone(server: &Server) -> Vec<Contender> {
    let mut all = vec![
        with::incr(),
        with::set_ex(),
        with::slide(),
        with::bucket(),
        with::lua_slide(server),
        with::lua_bucket(server),
        with::lua_log(server),
    ];
    all.extend(with::throttle());
    all
}

/// One table: the same keys and pipeline for all.
struct Case {
    id: &'static str,
    title: String,
    keys: usize,
    pipeline: usize,
    operations: usize,
}

fn measure(
    report: &mut Report,
    server: &Server,
    contenders: Vec<Contender>,
    case: Case,
) -> Vec<(String, Vec<Sample>)> {
    let runs: Vec<_> = contenders
        .into_iter()
        .map(|contender| (contender, case.keys))
        .collect();
    let samples = rounds(report, server, &runs, case.pipeline, case.operations);
    let mut table = Table::new(case.id, case.title, &COLUMNS);
    compare(&mut table, &samples, &runs[0].0.name);
    report.add(table);
    samples
}

/// The table that the project's targets refer to.
fn reference(report: &mut Report) {
    let server = Server::start(&[]);
    let contenders = everyone(&server);
    let title = "Pipeline 32, 100 000 random keys, all allowed".into();
    let samples = measure(
        report,
        &server,
        contenders,
        Case {
            id: "reference",
            title,
            keys: KEYS,
            pipeline: 32,
            operations: 50_000,
        },
    );
    let mut table = Table::new(
        "peers",
        "The same run: how many times as fast",
        &["RL.SLIDE", "RL.BUCKET"],
    );
    for (base, _) in &samples {
        if !base.starts_with("RL.") {
            let cells = ["RL.SLIDE", "RL.BUCKET"].map(|own| speed(&samples, own, base));
            table.row(&format!("as {base}"), &cells);
        }
    }
    report.add(table);
}

/// Every algorithm, compared with INCR and with the script that keeps a log.
fn family(report: &mut Report) {
    let server = Server::start(&[]);
    let mut contenders = vec![with::incr()];
    contenders.extend(with::family());
    contenders.push(with::lua_log(&server));
    let title = "Every algorithm, pipeline 32, 100 000 random keys, all allowed".into();
    measure(
        report,
        &server,
        contenders,
        Case {
            id: "family",
            title,
            keys: KEYS,
            pipeline: 32,
            operations: 30_000,
        },
    );
}

fn pipelines(report: &mut Report) {
    for keys in [1, KEYS] {
        let server = Server::start(&[]);
        for pipeline in [1, 16, 64] {
            let mut contenders = everyone(&server);
            // A log on one key would be measured by its length.
            contenders.retain(|contender| !contender.name.contains("log"));
            let title = format!("Pipeline {pipeline}, {}, all allowed", count(keys));
            let operations = if pipeline == 1 { 4_000 } else { 12_000 };
            measure(
                report,
                &server,
                contenders,
                Case {
                    id: "pipelines",
                    title,
                    keys,
                    pipeline,
                    operations,
                },
            );
        }
    }
}

fn denials(report: &mut Report) {
    let server = Server::start(&[]);
    let runs = [
        (with::incr(), KEYS),
        (
            with::denied_slide()
                .named("RL.SLIDE, denied, 1 hot key")
                .on("h1"),
            1,
        ),
        (
            with::denied_bucket()
                .named("RL.BUCKET, denied, 1 hot key")
                .on("h2"),
            1,
        ),
        (with::denied_slide(), KEYS),
        (with::denied_bucket(), KEYS),
        (with::mixed_bucket(KEYS, 400_000), KEYS),
    ];
    let samples = rounds(report, &server, &runs, 32, 50_000);
    let mut table = Table::new(
        "denials",
        "Denials, pipeline 32, compared with INCR on 100 000 keys",
        &COLUMNS,
    );
    compare(&mut table, &samples, "INCR");
    report.add(table);
}

fn multi(report: &mut Report) {
    let server = Server::start(&[]);
    for limits in [2, 3, 5] {
        let contenders = vec![with::lua_each(&server, limits), with::multi(limits)];
        let title = format!("{limits} limits at once, pipeline 32, 20 000 clients");
        measure(
            report,
            &server,
            contenders,
            Case {
                id: "multi",
                title,
                keys: 20_000,
                pipeline: 32,
                operations: 10_000,
            },
        );
    }
}

/// The same limits by name: what a lookup costs, and what one key for three limits saves.
fn policies(report: &mut Report) {
    let server = Server::start(&[]);
    with::define_policies(&server);
    let contenders = vec![
        with::lasting_slide(),
        with::check("RL.CHECK of 1 limit", "c1", "one"),
        with::check("RL.CHECK of 3 limits, one key", "c3", "three"),
        with::multi(3),
    ];
    let title = "Limits by policy, pipeline 32, 100 000 clients".into();
    let case = Case {
        id: "policies",
        title,
        keys: KEYS,
        pipeline: 32,
        operations: 50_000,
    };
    measure(report, &server, contenders, case);

    let with_override = Server::start(&[]);
    with::define_policies(&with_override);
    with_override.call(&["RL.OVERRIDE", "SET", "somebody", "one", "SCALE", "5", "1"]);
    let contenders = vec![
        with::lasting_slide(),
        with::check("RL.CHECK of 1 limit", "c1", "one"),
    ];
    let title = "The same on a node that has an override".into();
    let case = Case {
        id: "overrides",
        title,
        keys: KEYS,
        pipeline: 32,
        operations: 50_000,
    };
    measure(report, &with_override, contenders, case);
}

/// A primary that writes an AOF, and its replica.
pub fn start_durable(binary: &str) -> (Server, Server) {
    // A full sync need not wait for other replicas.
    let at_once = ["repl-diskless-sync-delay", "0"];
    let mut config = vec!["appendonly", "yes", "appendfsync", "everysec"];
    config.extend(["auto-aof-rewrite-percentage", "0"]);
    config.extend(at_once);
    let primary = Server::start_binary(binary, &config);
    let replica = Server::start_binary(binary, &at_once);
    replica.follow(&primary);
    (primary, replica)
}

/// What a call adds to the replication stream and to the AOF.
pub fn bytes_per_call(primary: &Server, contender: &Contender) -> (f64, f64) {
    load::prepare(primary, contender, 10_000);
    let load = Load::new(contender, 10_000, 50_000, 50, 3);
    let sizes = || ["master_repl_offset", "aof_current_size"].map(|field| primary.info(field));
    let before = sizes();
    load.run(primary, &mut [primary.connect()]);
    let after = sizes();
    let per_call = |n: usize| (after[n] - before[n]) as f64 / load.operations() as f64;
    (per_call(0), per_call(1))
}

fn durable(report: &mut Report) {
    let (primary, _replica) = start_durable(&rl_testkit::server_binary());
    let contenders = vec![
        with::set_ex(),
        with::incr(),
        with::slide(),
        with::bucket(),
        with::lua_slide(&primary),
        with::lua_bucket(&primary),
    ];
    let title = "With a replica and AOF everysec, pipeline 32, 100 000 keys".into();
    measure(
        report,
        &primary,
        contenders,
        Case {
            id: "durable",
            title,
            keys: KEYS,
            pipeline: 32,
            operations: 25_000,
        },
    );

    let mut table = Table::new(
        "bytes",
        "Bytes per call to each replica and to the AOF",
        &["replica", "AOF"],
    );
    for contender in [
        with::set_ex(),
        with::incr(),
        with::slide(),
        with::bucket(),
        with::denied_slide(),
        with::denied_bucket(),
    ] {
        let (stream, aof) = bytes_per_call(&primary, &contender);
        let cells = [stream, aof].map(|bytes| (bytes, format!("{bytes:.1}")));
        table.row(&contender.name, &cells);
    }
    report.add(table);
}

fn io_threads(report: &mut Report) {
    let server = Server::start(&["io-threads", "2"]);
    let contenders = vec![
        with::incr(),
        with::slide(),
        with::bucket(),
        with::lua_slide(&server),
    ];
    let title = "io-threads 2, pipeline 16, 100 000 keys".into();
    measure(
        report,
        &server,
        contenders,
        Case {
            id: "io-threads",
            title,
            keys: KEYS,
            pipeline: 16,
            operations: 30_000,
        },
    );
}

fn latency(report: &mut Report) {
    let server = Server::start(&[]);
    let contenders = [
        with::incr(),
        with::slide(),
        with::bucket(),
        with::lua_slide(&server),
    ];
    let mut table = Table::new(
        "latency",
        "Latency at a fixed rate, unpipelined, 16 connections, 100 000 keys (open loop, median of the rounds' percentiles)",
        &["calls/s", "p50", "p99", "p99.9"],
    );
    // Half of what RL.SLIDE reaches unpipelined, and half of that.
    let probe = Load::new(&with::slide(), KEYS, 20_000, 1, 5);
    let mut connections: Vec<TcpStream> = (0..16).map(|_| server.connect()).collect();
    load::prepare(&server, &with::slide(), KEYS);
    let fastest = 1e9
        / (0..5)
            .map(|_| probe.run(&server, &mut connections).wall_ns)
            .fold(f64::MAX, f64::min);
    let rounds = report.rounds() / 2;
    for share in [0.25, 0.5] {
        let rate = (fastest * share) as u64;
        let mut latencies = contenders
            .each_ref()
            .map(|_| [0.5, 0.99, 0.999].map(|share| (share, Vec::new())));
        for round in 0..rounds {
            eprint!("\r  round {}/{rounds} ", round + 1);
            for (contender, percentiles) in contenders.iter().zip(&mut latencies) {
                load::prepare(&server, contender, KEYS);
                let time = Duration::from_secs(1);
                let sorted = load::open_loop(&server, contender, KEYS, rate, time);
                for (share, values) in percentiles {
                    values.push(percentile(&sorted, *share));
                }
            }
        }
        eprintln!();
        for (contender, percentiles) in contenders.iter().zip(latencies) {
            let name = format!(
                "{} at {:.0} % of RL.SLIDE's maximum",
                contender.name,
                share * 100.0
            );
            let mut cells = vec![(rate as f64, format!("{rate}"))];
            for (_, mut values) in percentiles {
                let us = median(&mut values);
                cells.push((us, format!("{us:.0} µs")));
            }
            table.row(&name, &cells);
        }
    }
    report.add(table);
}

fn memory(report: &mut Report) {
    let keys = if report.quick { 100_000 } else { 1_000_000 };
    let mut table = Table::new(
        "memory",
        format!("Memory with {}", count(keys)),
        &["memory per key", "more than INCR", "RDB per key"],
    );
    let mut floor = None;
    for n in 0.. {
        let server = Server::start(&[]);
        let mut contenders = everyone(&server);
        // Alive for the whole measurement.
        contenders[2] = with::lasting_slide();
        contenders[3] = with::lasting_bucket();
        let lasting =
            |contender: &Contender| !["RL.SLIDE", "RL.BUCKET"].contains(&&*contender.name);
        contenders.extend(with::family().into_iter().filter(lasting));
        let Some(contender) = contenders.into_iter().nth(n) else {
            break;
        };
        let contender = contender.on("k");
        let before = server.info("used_memory");
        load::prepare(&server, &contender, keys);
        let bytes = (server.info("used_memory") - before) as f64 / keys as f64;
        let floor = *floor.get_or_insert(bytes);
        server.call(&["SAVE"]);
        let rdb = std::fs::metadata(server.path("dump.rdb")).unwrap().len() as f64 / keys as f64;
        let beyond = bytes - floor;
        table.row(
            &contender.name,
            &[
                (bytes, format!("{bytes:.0} B")),
                (beyond, format!("{beyond:+.0} B")),
                (rdb, format!("{rdb:.0} B")),
            ],
        );
    }
    report.add(table);
}

/// "1 key", "100 000 keys".
pub fn count(keys: usize) -> String {
    match keys {
        1 => "1 key".into(),
        1_000_000.. => format!("{} 000 000 keys", keys / 1_000_000),
        1_000.. => format!("{} 000 keys", keys / 1_000),
        _ => format!("{keys} keys"),
    }
}

//! The project's speed targets, measured on each server that they name.

use std::cell::RefCell;
use std::io::Write;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rl_testkit::{info_field, root};

use crate::contender::{self as with, Contender};
use crate::groups::{KEYS, bytes_per_call, start_durable};
use crate::load::{Sample, read_lines};
use crate::report::{Report, Table, Verdict, quartiles, throughput};
use crate::server::{Server, encode};
use crate::turns::{Run, take_turns};

const SERVERS: [&str; 3] = ["redis-7.0", "redis-8.0", "valkey-9.1"];

/// Operations per round.
const OPERATIONS: usize = 32_000;

/// `own` is at least so many times as fast as `base`. Without a target, it is only reported.
struct Ratio {
    own: &'static str,
    base: &'static str,
    at_least: Option<f64>,
    /// By the CPU time of the server's main thread instead of throughput.
    by_cpu: bool,
}

const fn ratio(own: &'static str, base: &'static str, at_least: f64) -> Ratio {
    Ratio {
        own,
        base,
        at_least: Some(at_least),
        by_cpu: false,
    }
}

const fn cpu_ratio(own: &'static str, base: &'static str) -> Ratio {
    Ratio {
        own,
        base,
        at_least: None,
        by_cpu: true,
    }
}

const SET_EX: [Ratio; 4] = [
    ratio("RL.SLIDE", "SET … EX", 0.95),
    ratio("RL.SLIDE … BRIEF", "SET … EX", 1.0),
    ratio("RL.SLIDE", "SET … 1 EX", 0.95),
    ratio("RL.SLIDE … BRIEF", "SET … 1 EX", 1.0),
];

const SLIDE: [Ratio; 5] = [
    ratio("RL.BUCKET", "RL.SLIDE", 0.95),
    ratio("RL.LEAK", "RL.SLIDE", 0.95),
    ratio("RL.FIXED", "RL.SLIDE", 0.95),
    ratio("RL.SLIDE … PRECISION 8", "RL.SLIDE", 0.8),
    ratio("RL.RESERVE of 1 limit", "RL.SLIDE", 0.5),
];

const MULTI: [Ratio; 2] = [
    ratio("RL.MULTI of 3", "3 × RL.SLIDE", 1.2),
    ratio("RL.MULTI of 3, BRIEF", "3 × RL.SLIDE … BRIEF", 1.4),
];

const DURABLE: [Ratio; 4] = [
    ratio("RL.SLIDE", "SET … EX", 0.95),
    ratio("RL.BUCKET", "SET … EX", 0.95),
    cpu_ratio("RL.SLIDE", "SET … EX"),
    cpu_ratio("RL.BUCKET", "SET … EX"),
];

/// A call sends at most so many bytes to a replica.
const MOST_BYTES: f64 = 90.0;

const HOT_BUCKET: &str = "RL.BUCKET of 1 000/s, one hot key";

type Samples = Vec<(String, Vec<Sample>)>;

/// The results of one server.
struct Results {
    single: Samples,
    multi: Samples,
    durable: Samples,
    bytes: Vec<(String, f64)>,
    deletions: u64,
}

/// A server's name, and its results unless it is missing.
type Column = (String, Option<Results>);

pub fn measure(report: &mut Report) {
    // A server that was asked for is the only one.
    let servers = match std::env::var("REDIS_SERVER") {
        Ok(path) => vec![(path.clone(), Some(path))],
        Err(_) => SERVERS.map(|name| (name.to_owned(), find(name))).into(),
    };
    let columns: Vec<Column> = servers
        .into_iter()
        .map(|(name, path)| match path {
            Some(path) => {
                let (name, results) = measure_server(&path, report);
                (name, Some(results))
            }
            None => (name, None),
        })
        .collect();
    add_ratios(
        report,
        &columns,
        ("Target: RL.SLIDE compared with SET … EX", ""),
        &SET_EX,
        |results| &results.single,
    );
    add_ratios(
        report,
        &columns,
        ("Target: other commands compared with RL.SLIDE", ""),
        &SLIDE,
        |results| &results.single,
    );
    add_ratios(
        report,
        &columns,
        (
            "Target: three limits in one call compared with three pipelined calls",
            "",
        ),
        &MULTI,
        |results| &results.multi,
    );
    add_ratios(
        report,
        &columns,
        (
            "Target: with a replica and AOF everysec",
            ", replica and AOF",
        ),
        &DURABLE,
        |results| &results.durable,
    );
    add_bytes(report, &columns);
    add_throughput(report, &columns);
}

/// The path of a server, which is downloaded if necessary.
fn find(name: &str) -> Option<String> {
    let output = Command::new(root().join("scripts/servers"))
        .arg(name)
        .stderr(std::process::Stdio::inherit())
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn measure_server(path: &str, report: &Report) -> (String, Results) {
    let rounds = report.target_rounds();
    // A key that nobody needs may stay for 30 s, so a shorter time would show no deletion.
    let time_of_hot_bucket = Duration::from_secs(if report.quick { 5 } else { 40 });
    let server = Server::start_binary(path, &[]);
    let name = server.version();
    eprintln!("  {name}");
    let single = vec![
        with::set_ex(),
        with::set_integer_ex(),
        with::slide(),
        with::slide_brief(),
        with::bucket(),
        with::leak(),
        with::fixed(),
        with::precise_slide(),
        with::reserve(),
    ];
    let single = turns(&server, single, KEYS, OPERATIONS, rounds, || ());
    drop(server);

    let server = Server::start_binary(path, &[]);
    let multi = vec![
        with::slide_each(3),
        with::multi(3),
        with::slide_brief_each(3),
        with::multi_brief(3),
    ];
    // As many keys and checks as above.
    let multi = turns(&server, multi, KEYS / 3, OPERATIONS / 3, rounds, || ());
    drop(server);

    let (primary, replica) = start_durable(path);
    let begin = Instant::now();
    let hot = RefCell::new(HotBucket::new(&primary));
    let contenders = vec![with::set_ex(), with::slide(), with::bucket()];
    // Otherwise a contender would compete with a replica that still applies what the previous one sent.
    let catch_up = || hot.borrow_mut().call_and_wait_for_replica();
    let durable = turns(&primary, contenders, KEYS, OPERATIONS, rounds, catch_up);
    let contenders = [
        with::set_ex(),
        with::slide(),
        with::bucket(),
        with::precise_slide(),
    ];
    let bytes = contenders.map(|contender| {
        let (stream, _) = bytes_per_call(&primary, &contender);
        (contender.name, stream)
    });
    let mut bytes = Vec::from(bytes);
    bytes.push((HOT_BUCKET.to_owned(), hot.borrow_mut().bytes_per_call()));
    hot.borrow_mut().call_until(begin + time_of_hot_bucket);
    primary.wait_for(&replica);
    let results = Results {
        single,
        multi,
        durable,
        bytes,
        deletions: deletions(&replica),
    };
    (name, results)
}

fn turns(
    server: &Server,
    contenders: Vec<Contender>,
    keys: usize,
    operations: usize,
    rounds: usize,
    before_each: impl FnMut(),
) -> Samples {
    let run = |contender| Run {
        server,
        contender,
        keys,
        pipeline: 32,
        operations,
    };
    let runs: Vec<Run> = contenders.into_iter().map(run).collect();
    take_turns(&runs, rounds, before_each)
}

/// Calls that a replica received to delete a key, which is how an expiry reaches it.
fn deletions(replica: &Server) -> u64 {
    let info: String = replica.run("INFO", &["commandstats"]);
    let calls = |command: &str| -> Option<u64> {
        let stats = info_field(&info, &format!("cmdstat_{command}"))?;
        let calls = stats.strip_prefix("calls=")?.split(',').next()?;
        calls.parse().ok()
    };
    ["del", "unlink"].into_iter().filter_map(calls).sum()
}

/// A bucket that drains completely between two calls, and is used during the whole measurement.
struct HotBucket<'a> {
    primary: &'a Server,
    stream: std::net::TcpStream,
}

impl<'a> HotBucket<'a> {
    /// Longer than the millisecond in which one unit drains.
    const PAUSE: Duration = Duration::from_millis(2);

    fn new(primary: &'a Server) -> Self {
        let stream = primary.connect();
        Self { primary, stream }
    }

    fn call(&mut self) {
        let mut bytes = Vec::new();
        encode(&["RL.BUCKET", "hot", "1000", "1000", "1s"], &mut bytes);
        self.stream.write_all(&bytes).unwrap();
        read_lines(&mut self.stream, 6, &mut [0; 256]);
    }

    /// WAIT waits for everything that was written before this connection's last write.
    fn call_and_wait_for_replica(&mut self) {
        self.call();
        let mut bytes = Vec::new();
        encode(&["WAIT", "1", "60000"], &mut bytes);
        self.stream.write_all(&bytes).unwrap();
        read_lines(&mut self.stream, 1, &mut [0; 256]);
    }

    fn call_until(&mut self, end: Instant) {
        while Instant::now() < end {
            self.call();
            sleep(Self::PAUSE);
        }
    }

    fn bytes_per_call(&mut self) -> f64 {
        const CALLS: u64 = 500;
        let before = self.primary.info("master_repl_offset");
        for _ in 0..CALLS {
            self.call();
            sleep(Self::PAUSE);
        }
        (self.primary.info("master_repl_offset") - before) as f64 / CALLS as f64
    }
}

fn new_table(columns: &[Column], title: &str) -> Table {
    let mut names = vec!["target"];
    names.extend(columns.iter().map(|(name, _)| &**name));
    Table::new("targets", title, &names)
}

/// One row: the target, and each server's figure with the verdict.
fn add_row(
    report: &mut Report,
    table: &mut Table,
    columns: &[Column],
    (name, target): (&str, &str),
    figure: impl Fn(&Results) -> Figure,
) {
    let mut cells = vec![(f64::NAN, target.to_owned())];
    for (server, results) in columns {
        let Some(results) = results else {
            cells.push((f64::NAN, "not measured".into()));
            report.verdicts.push(Verdict::NotMeasured(server.clone()));
            continue;
        };
        let Figure { number, text, met } = figure(results);
        let verdict = match met {
            None => "",
            Some(true) => ", met",
            Some(false) => ", **missed**",
        };
        cells.push((number, format!("{text}{verdict}")));
        match met {
            None => (),
            Some(true) => report.verdicts.push(Verdict::Met),
            Some(false) => report.verdicts.push(Verdict::Missed(format!(
                "{name} on {server}: {text}, target {target}"
            ))),
        }
    }
    table.row(name, &cells);
}

struct Figure {
    number: f64,
    text: String,
    /// Nothing if there is no target.
    met: Option<bool>,
}

fn add_ratios(
    report: &mut Report,
    columns: &[Column],
    (title, setting): (&str, &str),
    ratios: &[Ratio],
    of: impl Fn(&Results) -> &Samples,
) {
    let mut table = new_table(columns, title);
    for &Ratio {
        own,
        base,
        at_least,
        by_cpu,
    } in ratios
    {
        let what = if by_cpu {
            ", CPU of the primary"
        } else {
            setting
        };
        let time = |sample: &Sample| {
            if by_cpu {
                sample.cpu_ns
            } else {
                sample.wall_ns
            }
        };
        let target = at_least.map_or("–".into(), |ratio| format!("≥ {ratio:.2}×"));
        let names = (&*format!("{own} / {base}{what}"), &*target);
        add_row(report, &mut table, columns, names, |results| {
            let [low, ratio, high] = quartiles(of(results), own, base, time);
            Figure {
                number: ratio,
                text: format!("{ratio:.3}× ({low:.2}–{high:.2})"),
                met: at_least.map(|least| ratio >= least),
            }
        });
    }
    report.add(table);
}

fn add_bytes(report: &mut Report, columns: &[Column]) {
    let title = "Target: bytes per call on the replication stream";
    let mut table = new_table(columns, title);
    for (name, has_target) in [
        ("SET … EX", false),
        ("RL.SLIDE", true),
        ("RL.BUCKET", true),
        (HOT_BUCKET, true),
        ("RL.SLIDE … PRECISION 8", false),
    ] {
        let target = if has_target {
            format!("≤ {MOST_BYTES:.0}")
        } else {
            "–".into()
        };
        add_row(report, &mut table, columns, (name, &target), |results| {
            let mut all = results.bytes.iter();
            let (_, bytes) = all.find(|(own, _)| own == name).expect("a contender");
            Figure {
                number: *bytes,
                text: format!("{bytes:.1}"),
                met: has_target.then_some(*bytes <= MOST_BYTES),
            }
        });
    }
    let names = ("DELs received by the replica, hot bucket included", "0");
    add_row(report, &mut table, columns, names, |results| Figure {
        number: results.deletions as f64,
        text: results.deletions.to_string(),
        met: Some(results.deletions == 0),
    });
    report.add(table);
}

/// The absolute figures of the same run, for orientation.
fn add_throughput(report: &mut Report, columns: &[Column]) {
    let names: Vec<&str> = columns.iter().map(|(name, _)| &**name).collect();
    let title = "The same run: operations per second";
    let mut table = Table::new("targets", title, &names);
    type Set = fn(&Results) -> &Samples;
    let sets: [(&str, Set); 3] = [
        ("", |results| &results.single),
        ("", |results| &results.multi),
        (", replica and AOF", |results| &results.durable),
    ];
    let Some(first) = columns.iter().find_map(|(_, results)| results.as_ref()) else {
        return;
    };
    for (suffix, set) in sets {
        for (n, (name, _)) in set(first).iter().enumerate() {
            let cell = |(_, results): &Column| match results {
                Some(results) => throughput(&set(results)[n].1),
                None => (f64::NAN, "not measured".into()),
            };
            let cells: Vec<_> = columns.iter().map(cell).collect();
            table.row(&format!("{name}{suffix}"), &cells);
        }
    }
    report.add(table);
}

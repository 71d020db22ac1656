//! Some servers read and parse commands on other threads, and in a cluster look for a command's keys there too: before AUTH,
//! before ACLs, and while the main thread runs something else. Nothing of that may reach the module.
//!
//! Every command runs under load on a cluster node with I/O threads, an AOF and a replica, sent by clients that may and by
//! clients that only ever get NOAUTH. Every reply is predicted: limits whose windows outlast the test only count.

use std::collections::BTreeMap;
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{Parser, Value, from_redis_value};
use rl_testkit::{
    ALL_SLOTS, Deadline, Random, Reply, Server, ask, assign_slots, base_config, eventually,
    has_directive, module, not_tested, server_binary, try_ask,
};
use rstest::rstest;

const THREADS: u64 = 4;
/// Of each thread: so many connections are readable at once.
const ALLOWED_IN: u64 = 5;
const LEFT_OUT: u64 = 3;
/// As many rounds as some time has room for: some servers wait for all of their threads at each step, and take long.
const ROUNDS: std::ops::Range<usize> = 80..2000;
const LOAD: Duration = Duration::from_secs(4);

const MOST: i64 = 1_000_000;
const SHARED_FIXED: i64 = 40;
const SHARED_MULTI: i64 = 30;

/// Limits that nothing comes back from while the test runs.
const LIMITS: [(&str, &str); 5] = [
    ("SLIDE", "1000000 3650d"),
    ("BUCKET", "1000000 1 3650d"),
    ("FIXED", "1000000 3650d"),
    ("EXACT", "1000000 3650d"),
    ("LEAK", "1000000 1 3650d"),
];

/// What a reply has to be.
#[derive(Debug)]
enum Expected {
    /// allowed, limit, remaining; whatever follows.
    Decision(i64, i64, i64),
    /// allowed, and what remains of each limit.
    Decisions(i64, Vec<i64>),
    /// The same of RL.RESERVE, which was allowed.
    Reserved(Vec<i64>),
    Integer(i64),
    Integers(Vec<i64>),
    Texts(Vec<String>),
    Error(&'static str),
    /// No error.
    Anything,
    Transaction(Vec<Self>),
    /// Allowed or not, which is added up.
    Counted(&'static AtomicI64),
}

static FIXED_ALLOWED: AtomicI64 = AtomicI64::new(0);
static MULTI_ALLOWED: AtomicI64 = AtomicI64::new(0);

impl Expected {
    /// What a client that has not authenticated gets.
    fn instead_of_it(&self) -> &'static [Self] {
        const NOAUTH: Expected = Expected::Error("NOAUTH");
        match self {
            // The number of arguments is checked first.
            Self::Error("ERR") => &[NOAUTH, Self::Error("ERR")],
            Self::Transaction(_) => &[NOAUTH, Self::Error("EXECABORT")],
            _ => &[NOAUTH],
        }
    }

    fn is_met_by(&self, reply: &Value) -> bool {
        let integers = |value: &Value| from_redis_value::<Vec<i64>>(value.clone()).ok();
        match self {
            Self::Decision(allowed, limit, remaining) => integers(reply)
                .is_some_and(|all| all.len() >= 5 && all[..3] == [*allowed, *limit, *remaining]),
            Self::Decisions(allowed, remaining) => {
                let reply = from_redis_value::<(i64, i64, Vec<Reply>)>(reply.clone());
                reply.is_ok_and(|(is, _, each)| {
                    is == *allowed
                        && each
                            .iter()
                            .map(|reply| reply.2)
                            .eq(remaining.iter().copied())
                })
            }
            Self::Reserved(remaining) => {
                let reply = from_redis_value::<(i64, i64, i64, Vec<Reply>)>(reply.clone());
                reply.is_ok_and(|(is, _, _, each)| {
                    let left = each.iter().map(|reply| reply.2);
                    is == 1 && left.eq(remaining.iter().copied())
                })
            }
            Self::Integer(integer) => reply == &Value::Int(*integer),
            Self::Integers(all) => integers(reply).is_some_and(|reply| reply == *all),
            Self::Texts(texts) => {
                from_redis_value::<Vec<String>>(reply.clone()).is_ok_and(|all| all == *texts)
            }
            Self::Error(code) => {
                matches!(reply, Value::ServerError(error) if error.code() == *code)
            }
            Self::Anything => !matches!(reply, Value::ServerError(_)),
            Self::Transaction(each) => match reply {
                Value::Array(replies) => {
                    replies.len() == each.len()
                        && each
                            .iter()
                            .zip(replies)
                            .all(|(one, reply)| one.is_met_by(reply))
                }
                _ => false,
            },
            Self::Counted(sum) => {
                let allowed = match reply {
                    Value::Array(all) => all.first(),
                    _ => None,
                };
                match allowed {
                    Some(Value::Int(allowed @ (0 | 1))) => {
                        sum.fetch_add(*allowed, SeqCst);
                        true
                    }
                    _ => false,
                }
            }
        }
    }
}

type Line = (Vec<String>, Expected);

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// RL.MULTI of these keys and specs.
fn multi(limits: &[(String, String)]) -> Vec<String> {
    call("RL.MULTI", limits)
}

/// A command, and then keys and specs.
fn call(command: &str, limits: &[(String, String)]) -> Vec<String> {
    let mut all = words(command);
    for (key, spec) in limits {
        all.push(key.clone());
        all.push(spec.clone());
    }
    all
}

/// One client's own keys, and what has to be in them.
struct Client {
    number: u64,
    random: Random,
    used: [i64; LIMITS.len()],
    checked: i64,
    holders: BTreeMap<u64, ()>,
    next_holder: u64,
    next_id: u64,
}

impl Client {
    fn new(number: u64) -> Self {
        Self {
            number,
            random: Random(number * 7919 + 1),
            used: [0; LIMITS.len()],
            checked: 0,
            holders: BTreeMap::new(),
            next_holder: 0,
            next_id: 0,
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{{c{}}}{name}", self.number)
    }

    fn left(&self, limit: usize) -> i64 {
        MOST - self.used[limit]
    }

    /// Three different limits with a cost for each: key, spec, which.
    fn three(&mut self) -> Vec<(String, String, usize, i64)> {
        let first = self.random.below(LIMITS.len() as u64) as usize;
        (0..3)
            .map(|n| {
                let which = (first + n) % LIMITS.len();
                let (name, numbers) = LIMITS[which];
                let cost = 1 + self.random.below(3) as i64;
                let spec = format!("{name} {numbers} {cost}");
                (self.key(name), spec, which, cost)
            })
            .collect()
    }

    /// A call with several limits that charges them all.
    fn all(&mut self) -> (Vec<(String, String)>, Expected) {
        let three = self.three();
        for (_, _, which, cost) in &three {
            self.used[*which] += cost;
        }
        let left = three.iter().map(|(_, _, which, _)| self.left(*which));
        let expected = Expected::Decisions(1, left.collect());
        let limits = three.into_iter().map(|(key, spec, ..)| (key, spec));
        (limits.collect(), expected)
    }

    fn one(&mut self) -> Line {
        let which = self.random.below(LIMITS.len() as u64) as usize;
        let (name, numbers) = LIMITS[which];
        let cost = self.random.below(3) as i64;
        self.used[which] += cost;
        let line = format!("RL.{name} {} {numbers} {cost}", self.key(name));
        (words(&line), Expected::Decision(1, MOST, self.left(which)))
    }

    /// RL.FIRST, TIMES and BRIEF.
    fn first_and_brief(&mut self) -> Vec<Line> {
        use Expected::*;
        let mut limits = self.three();
        limits.truncate(1);
        let (key, spec, which, cost) = limits.remove(0);
        let (name, numbers) = LIMITS[which];
        let full = (self.key("none"), "FIXED 0 3650d 1".to_owned());
        let elsewhere = (format!("{{other{}}}", self.number), spec.clone());
        let first = [full.clone(), (key.clone(), spec.clone())];
        self.used[which] += cost;
        let after_first = self.left(which);
        self.used[which] += 3;
        let after_times = self.left(which);
        self.used[which] += cost;
        let brief = match name {
            // The delay.
            "LEAK" => Anything,
            _ => Integer(self.left(which)),
        };
        // In one argument: a client that has not authenticated may send ten.
        let times = format!("PEEK TIMES 9 ATLEAST 3 {name} {numbers}");
        vec![
            (call("RL.FIRST", &first), Decision(1, MOST, after_first)),
            (call("RL.FIRST", &[full, elsewhere]), Error("CROSSSLOT")),
            (
                multi(&[(key.clone(), times)]),
                Decisions(9, vec![after_first - 9]),
            ),
            (
                words(&format!("RL.{name} {key} {numbers} 1 TIMES 3")),
                Decision(3, MOST, after_times),
            ),
            (multi(&[(key, format!("BRIEF {spec}"))]), brief),
        ]
    }

    /// A reservation, repeated and settled. Some ids stay.
    fn reservation(&mut self) -> Vec<Line> {
        use Expected::*;
        let mut three = self.three();
        three.truncate(2);
        let id = self.key(&format!("id{}", self.next_id));
        self.next_id += 1;
        let limits: Vec<_> = three
            .iter()
            .map(|(key, _, which, _)| {
                let (name, numbers) = LIMITS[*which];
                (key.clone(), format!("{name} {numbers} 5"))
            })
            .collect();
        let reserve = call(&format!("RL.RESERVE {id} 1d"), &limits);
        let mut get_keys = words("COMMAND GETKEYS");
        get_keys.extend(reserve.clone());
        let keys = vec![id.clone(), limits[0].0.clone(), limits[1].0.clone()];
        let elsewhere = format!("RL.RESERVE {{other{}}} 1d", self.number);
        let reserved = || Reserved(three.iter().map(|one| self.left(one.2) - 5).collect());
        let replies = [reserved(), reserved()];
        let actual = [3, 7];
        for ((_, _, which, _), units) in three.iter().zip(actual) {
            self.used[*which] += units;
        }
        let settle = format!("RL.SETTLE {id} 1 {} 3 {} 7", keys[1], keys[2]);
        let [first, again] = replies;
        let mut lines = vec![
            (call(&elsewhere, &limits), Error("CROSSSLOT")),
            (get_keys, Texts(keys)),
            (reserve.clone(), first),
            (reserve.clone(), again),
            (words(&settle), Integers(actual.to_vec())),
            (words(&settle), Integers(actual.to_vec())),
            (reserve, Error("ERR")),
        ];
        if !self.next_id.is_multiple_of(4) {
            lines.push((words(&format!("DEL {id}")), Integer(1)));
        }
        lines
    }

    /// What to send next, all of it before the first reply is read.
    fn lines(&mut self) -> Vec<Line> {
        use Expected::*;
        let line = |line: &str, expected| (words(line), expected);
        let which = self.random.below(LIMITS.len() as u64) as usize;
        let (name, numbers) = LIMITS[which];
        let key = self.key(name);
        // The whole log is replicated with every call: it stays short.
        if self.used[which] > 60 {
            self.used[which] = 0;
            return vec![line(&format!("DEL {key}"), Integer(1))];
        }
        match self.random.below(27) {
            0..=4 => vec![self.one()],
            5..=9 => {
                let (limits, expected) = self.all();
                vec![(multi(&limits), expected)]
            }
            10 => {
                // One limit denies: none is charged.
                let mut limits = self.three();
                let place = self.random.below(3) as usize;
                limits[place] = (
                    self.key("none"),
                    "FIXED 0 3650d 1".to_owned(),
                    usize::MAX,
                    0,
                );
                let left = |(_, _, which, _): &(String, String, usize, i64)| match *which {
                    usize::MAX => 0,
                    which => self.left(which),
                };
                let expected = Decisions(0, limits.iter().map(left).collect());
                let limits: Vec<_> = limits
                    .into_iter()
                    .map(|(key, spec, ..)| (key, spec))
                    .collect();
                vec![(multi(&limits), expected)]
            }
            11 => {
                let three = self.three();
                let mut limits: Vec<_> = three
                    .into_iter()
                    .map(|(key, spec, ..)| (key, spec))
                    .collect();
                let place = self.random.below(3) as usize;
                limits[place].0 = format!("{{other{}}}", self.number);
                vec![
                    (multi(&limits), Error("CROSSSLOT")),
                    line(&format!("RL.MULTI {key} NONSENSE"), Error("ERR")),
                    line(&format!("RL.MULTI {key}"), Error("ERR")),
                ]
            }
            12 => {
                let (limits, decided) = self.all();
                let mut call = multi(&limits);
                let script = "return redis.call('RL.MULTI', KEYS[1], ARGV[1], KEYS[2], ARGV[2], KEYS[3], ARGV[3])";
                let mut eval = vec!["EVAL".to_owned(), script.to_owned(), "3".to_owned()];
                eval.extend(limits.iter().map(|(key, _)| key.clone()));
                eval.extend(limits.iter().map(|(_, spec)| spec.clone()));
                call.splice(0..0, ["COMMAND".to_owned(), "GETKEYS".to_owned()]);
                let keys = limits.iter().map(|(key, _)| key.clone()).collect();
                vec![(eval, decided), (call, Texts(keys))]
            }
            13 => {
                let (one, first) = self.one();
                let (limits, second) = self.all();
                vec![
                    line("MULTI", Anything),
                    (one, Anything),
                    (multi(&limits), Anything),
                    line("EXEC", Transaction(vec![first, second])),
                ]
            }
            14 => {
                let holder = self.next_holder;
                self.next_holder += 1;
                self.holders.insert(holder, ());
                let left = MOST - self.holders.len() as i64;
                let key = self.key("LEASE");
                let lease = format!("RL.LEASE {key} {MOST} 3650d h{holder}");
                let mut lines = vec![line(&lease, Decision(1, MOST, left))];
                if self.holders.len() > 5
                    && let Some((first, ())) = self.holders.pop_first()
                {
                    let release = format!("RL.RELEASE {key} h{first}");
                    lines.push(line(&release, Integer(1)));
                    lines.push(line(&release, Integer(0)));
                }
                lines
            }
            15 if self.used[which] >= 2 => {
                self.used[which] -= 1;
                vec![
                    line(&format!("RL.REFUND {key} 1"), Integer(1)),
                    line(&format!("RL.INSPECT {key}"), Anything),
                    line(&format!("RL.LEASE {key} 1 1h h"), Error("WRONGTYPE")),
                ]
            }
            15 | 16 => {
                let peek = vec![
                    "RL.PEEK".to_owned(),
                    key.clone(),
                    format!("{name} {numbers} 0"),
                ];
                vec![(peek, Decision(1, MOST, self.left(which)))]
            }
            17 => {
                self.checked += 1;
                let left = MOST - self.checked;
                let check = format!("RL.CHECK {} policy", self.key("policy"));
                vec![line(&check, Decision(1, MOST, left))]
            }
            18 => {
                let key = self.key("override");
                let check = format!("RL.CHECK {key} policy");
                vec![
                    line(&format!("RL.OVERRIDE SET {key} policy BLOCK"), Anything),
                    line(&check, Decision(0, 0, 0)),
                    line(&format!("RL.OVERRIDE GET {key}"), Anything),
                    line(&format!("RL.OVERRIDE DEL {key} policy"), Anything),
                    line(&format!("{check} 0"), Decision(1, MOST, MOST)),
                ]
            }
            19 => vec![
                line(
                    &format!("RL.POLICY SET own{} SLIDE 5 1h", self.number),
                    Anything,
                ),
                line(&format!("RL.POLICY GET own{}", self.number), Anything),
                line(&format!("RL.POLICY DEL own{}", self.number), Integer(1)),
            ],
            20 => vec![
                line("RL.STATS", Anything),
                line("RL.TOP COUNT 5", Anything),
                line("RL.AUDIT GET 5", Anything),
                line("RL.AUDIT LEN", Anything),
                line("INFO rl", Anything),
                line("RL.POLICY LIST", Anything),
            ],
            21 => {
                let key = self.key("damaged");
                vec![
                    line(&format!("RL.LOAD {key} 99999999999999 x"), Error("ERR")),
                    line(
                        &format!("CL.THROTTLE {} 1000000 1 86400", self.key("cell")),
                        Anything,
                    ),
                    // A value that another one replaces is freed on an I/O thread, by Valkey.
                    line(&format!("RL.EXACT {key} 9 1h"), Decision(1, 9, 8)),
                    line(&format!("SET {key} 1"), Anything),
                    line(&format!("RL.SLIDE {key} 1 1h"), Error("WRONGTYPE")),
                    line(&format!("DEL {key}"), Integer(1)),
                ]
            }
            22 => self.first_and_brief(),
            23 | 24 => self.reservation(),
            25 => {
                let line = format!("RL.FIXED {{shared}}f {SHARED_FIXED} 3650d");
                vec![(words(&line), Counted(&FIXED_ALLOWED))]
            }
            _ => {
                let limits = [
                    (
                        "{shared}m".to_owned(),
                        format!("FIXED {SHARED_MULTI} 3650d 1"),
                    ),
                    ("{shared}n".to_owned(), format!("SLIDE {MOST} 3650d 1")),
                ];
                vec![(multi(&limits), Counted(&MULTI_ALLOWED))]
            }
        }
    }
}

/// A connection that sends several commands before it reads a reply.
struct Wire {
    stream: BufReader<TcpStream>,
    parser: Parser,
}

impl Wire {
    fn new(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        Self {
            stream: BufReader::new(stream),
            parser: Parser::new(),
        }
    }

    fn send(&mut self, lines: &[Line]) {
        let mut bytes = Vec::new();
        for (words, _) in lines {
            redis::cmd(&words[0])
                .arg(&words[1..])
                .write_packed_command(&mut bytes);
        }
        self.stream.get_mut().write_all(&bytes).unwrap();
    }

    fn check(&mut self, lines: &[Line], may: bool) {
        for (words, expected) in lines {
            let reply = self.parser.parse_value(&mut self.stream);
            let reply = reply.unwrap_or_else(|error| panic!("{words:?}: {error}"));
            let met = match may {
                true => expected.is_met_by(&reply),
                false => expected
                    .instead_of_it()
                    .iter()
                    .any(|error| error.is_met_by(&reply)),
            };
            assert!(met, "{words:?}: {reply:?}, not {expected:?} (may: {may})");
        }
    }
}

/// One thread's load; what its clients have used.
fn load(port: u16, thread: u64) -> Vec<Client> {
    let mut clients: Vec<_> = (0..ALLOWED_IN + LEFT_OUT)
        .map(|n| {
            let number = 1 + thread * (ALLOWED_IN + LEFT_OUT) + n;
            let (mut wire, may) = (Wire::new(port), n < ALLOWED_IN);
            if may {
                let auth = [(words("AUTH secret"), Expected::Anything)];
                wire.send(&auth);
                wire.check(&auth, true);
            }
            (Client::new(number), wire, may)
        })
        .collect();
    let start = Instant::now();
    for round in 0..ROUNDS.end {
        if round >= ROUNDS.start && start.elapsed() > LOAD {
            break;
        }
        let sent: Vec<_> = clients
            .iter_mut()
            .map(|(client, wire, _)| {
                let lines = client.lines();
                wire.send(&lines);
                lines
            })
            .collect();
        for (lines, (_, wire, may)) in sent.iter().zip(&mut clients) {
            wire.check(lines, *may);
        }
    }
    let allowed_in = clients.into_iter().filter(|(_, _, may)| *may);
    allowed_in.map(|(client, ..)| client).collect()
}

/// The server's own checker of AOFs: next to its program, or in the system folder that is.
fn aof_checker() -> Option<impl Fn() -> Command> {
    let server = server_binary();
    let server = match server.contains('/') {
        true => PathBuf::from(server),
        false => {
            let path = std::env::var("PATH").ok()?;
            let mut folders = path.split(':').map(Path::new);
            folders
                .find(|folder| folder.join(&server).exists())?
                .join(&server)
        }
    };
    let folder = server.parent()?;
    let names = ["redis-check-aof", "valkey-check-aof"];
    let mut words: Vec<std::ffi::OsString> = Vec::new();
    if let Some(name) = names.iter().find(|name| folder.join(name).exists()) {
        words.push(folder.join(name).into());
    } else {
        // A program of a newer system runs by that system's own loader.
        let root = folder.join("root/usr");
        let name = names
            .iter()
            .find(|name| root.join("bin").join(name).exists())?;
        let first = |folder: &Path, is: &dyn Fn(&str) -> bool| {
            let mut entries = std::fs::read_dir(folder).ok()?.flatten();
            let entry = entries.find(|entry| entry.file_name().to_str().is_some_and(is))?;
            Some(entry.path())
        };
        let libraries = first(&root.join("lib"), &|name| name.ends_with("-linux-gnu"))?;
        words.push(first(&libraries, &|name| name.starts_with("ld-linux-"))?.into());
        // One program does all: it acts on the name that it is called by.
        words.extend(["--argv0".into(), name.into(), "--library-path".into()]);
        words.extend([libraries.into(), root.join("bin").join(name).into()]);
    }
    Some(move || {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    })
}

fn check_aof(server: &Server) {
    let Some(checker) = aof_checker() else {
        not_tested("this server has no checker of AOFs");
        return;
    };
    // A base that is an RDB is not every checker's: restarting reads it.
    let folder = std::fs::read_dir(server.path("appendonlydir"));
    let mut files = vec![server.path("appendonly.aof")];
    if let Ok(folder) = folder {
        let all = folder.map(|entry| entry.unwrap().path());
        files = all
            .filter(|file| file.extension().is_some_and(|is| is == "aof"))
            .collect();
    }
    assert!(!files.is_empty());
    for file in files {
        let output = checker().arg(&file).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{file:?}: {text}");
    }
}

/// When each key expires, where the server says so (7.0 and later).
fn expiries(server: &Server) -> Vec<(String, i64)> {
    let mut con = server.connect();
    let mut keys: Vec<String> = ask(&mut con, "KEYS *");
    if !server.has_command(&["PEXPIRETIME", "some"]) {
        return Vec::new();
    }
    keys.sort();
    let expiry = |key: String| {
        let at = ask(&mut con, &format!("PEXPIRETIME {key}"));
        (key, at)
    };
    keys.into_iter().map(expiry).collect()
}

fn io_threads() -> Vec<&'static str> {
    let mut config = vec!["io-threads", "4"];
    if has_directive("io-threads-do-reads") {
        config.extend(["io-threads-do-reads", "yes"]);
    }
    config
}

#[rstest]
fn no_part_of_a_command_runs_on_an_io_thread() {
    let mut config = base_config();
    config.extend(io_threads());
    let replica = {
        let mut config = config.clone();
        config.extend(["loadmodule", module().to_str().unwrap()]);
        Server::without_module(&config)
    };
    config.extend(["cluster-enabled", "yes", "appendonly", "yes"]);
    let mut node = Server::without_module(&config);
    let path = module().to_str().unwrap();
    let mut admin = node.connect();
    ask::<()>(
        &mut admin,
        &format!("MODULE LOAD {path} redis-cell-compat yes"),
    );
    node.add_config(&["loadmodule", path]);
    assign_slots(&node, ALL_SLOTS);
    node.wait_until_cluster_is_up();
    // Valkey's threads rest when there is little to do, unless they are kept awake.
    for line in ["events-per-io-thread 0", "io-threads-always-active yes"] {
        let _ = try_ask::<Value>(&mut admin, &format!("CONFIG SET {line}"));
    }
    let policy = "RL.POLICY SET policy SLIDE 1000000 3650d FIXED 1000000 3650d";
    ask::<()>(&mut admin, policy);
    replica.follow(&node);
    let _: () = replica.run("CONFIG", &["SET", "masterauth", "secret"]);
    ask::<()>(&mut admin, "CONFIG SET requirepass secret");

    let (port, done) = (node.port(), AtomicBool::new(false));
    let clients: Vec<Client> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || load(port, thread)))
            .collect();
        // Meanwhile the number of threads changes, where it can, and the AOF is rewritten.
        let meanwhile = scope.spawn(|| {
            let mut changed = true;
            let deadline = Deadline::start();
            while !done.load(SeqCst) && !deadline.is_over() {
                for (threads, ms) in [(1, 20), (4, 400)] {
                    let line = format!("CONFIG SET io-threads {threads}");
                    changed &= try_ask::<Value>(&mut admin, &line).is_ok();
                    sleep(Duration::from_millis(ms));
                }
                let _ = try_ask::<Value>(&mut admin, "BGREWRITEAOF");
            }
            if !changed {
                not_tested("this server cannot change io-threads while it runs");
            }
            admin
        });
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        done.store(true, SeqCst);
        let joined = meanwhile.join();
        let clients = ended
            .into_iter()
            .flat_map(|clients| clients.unwrap())
            .collect();
        ask::<()>(&mut joined.unwrap(), "CONFIG SET requirepass ");
        clients
    });

    let mut con = node.connect();
    for client in &clients {
        for (which, (name, numbers)) in LIMITS.into_iter().enumerate() {
            let line = format!("RL.{name} {} {numbers} 0", client.key(name));
            let reply: Reply = ask(&mut con, &line);
            assert_eq!(reply.2, client.left(which), "{line}");
        }
    }
    let reply: Reply = ask(&mut con, &format!("RL.SLIDE {{shared}}n {MOST} 3650d 0"));
    assert_eq!(MOST - reply.2, MULTI_ALLOWED.load(SeqCst), "all or nothing");
    assert_eq!(FIXED_ALLOWED.load(SeqCst), SHARED_FIXED);
    assert_eq!(MULTI_ALLOWED.load(SeqCst), SHARED_MULTI);

    node.wait_for(&replica);
    let before = (node.digest_all(), expiries(&node));
    assert_eq!((replica.digest_all(), expiries(&replica)), before);
    let policies: String = node.run("RL.POLICY", &["DUMP"]);
    assert_eq!(replica.run::<String>("RL.POLICY", &["DUMP"]), policies);
    for command in [
        "slide", "bucket", "fixed", "exact", "leak", "lease", "multi", "check", "first", "reserve",
        "settle",
    ] {
        assert_eq!(replica.calls(&format!("rl.{command}")), 0, "{command}");
    }
    // A slow disk puts writes off, and the kill below would lose them.
    eventually("the AOF is written, and no child rewrites it", || {
        node.info("persistence", "aof_rewrite_in_progress") == "0"
            && node.info("persistence", "aof_buffer_length") == "0"
    });
    let log = node.log();
    assert!(
        !log.contains("BUG REPORT") && !log.contains("ASSERTION"),
        "{log}"
    );
    node.kill();
    check_aof(&node);
    node.start_again();
    node.wait_until_cluster_is_up();
    assert_eq!((node.digest_all(), expiries(&node)), before);
    assert_eq!(node.run::<String>("RL.POLICY", &["DUMP"]), policies);
}

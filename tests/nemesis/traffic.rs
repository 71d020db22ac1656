//! Several connections that call at once, whatever happens to the servers.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use redis::{Connection, RedisResult, Value};

use crate::calls::{Calls, Space, Words, count, guard};
use crate::checks::{is_exact, now_ms};
use crate::plan::TAGS;
use crate::random::{Choose, stream};
use crate::topology::connect;
use rl_testkit::{Random, error_text};

/// What callers know of the servers.
pub struct Shared {
    pub ports: Vec<u16>,
    pub primary: AtomicUsize,
    /// In a cluster, the node that serves each hash tag; callers learn more from redirections.
    pub owner: [AtomicUsize; TAGS],
    /// For each hash tag, the counted calls that were allowed, and those that may have been.
    pub counted: [[AtomicU64; 2]; TAGS],
    /// Whether a blocked key must never be allowed.
    pub guarded: bool,
    stop: AtomicBool,
    tally: Mutex<Tally>,
}

/// What the servers answered.
#[derive(Clone, Default)]
pub struct Tally {
    pub answered: u64,
    /// Errors by their first words.
    pub errors: BTreeMap<String, u64>,
    /// Answers that no server may give.
    pub wrong: Vec<String>,
}

impl Shared {
    pub fn new(ports: Vec<u16>, guarded: bool) -> Arc<Self> {
        Arc::new(Self {
            ports,
            primary: AtomicUsize::new(0),
            owner: Default::default(),
            counted: Default::default(),
            guarded,
            stop: AtomicBool::new(false),
            tally: Mutex::new(Tally::default()),
        })
    }

    pub fn tally(&self) -> Tally {
        self.tally.lock().unwrap().clone()
    }
}

pub struct Traffic {
    shared: Arc<Shared>,
    callers: Vec<JoinHandle<()>>,
}

impl Traffic {
    /// Callers whose calls follow from the seed and the number of the phase.
    pub fn start(shared: &Arc<Shared>, seed: u64, phase: u64, count: usize, space: Space) -> Self {
        shared.stop.store(false, Relaxed);
        let callers = (0..count as u64).map(|number| {
            let mut caller = Caller {
                shared: shared.clone(),
                random: stream(seed, 1000 + 100 * phase + number),
                space,
                connections: HashMap::new(),
            };
            spawn(move || caller.call_until_stopped())
        });
        Self {
            shared: shared.clone(),
            callers: callers.collect(),
        }
    }

    pub fn ask_to_stop(&self) {
        self.shared.stop.store(true, Relaxed);
    }

    pub fn join(self) {
        self.ask_to_stop();
        for caller in self.callers {
            caller.join().unwrap();
        }
    }
}

/// How a batch is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Pipeline,
    Transaction,
    Script,
    DumpAndRestore,
    Policies,
    /// Calls whose answers are compared with what the servers hold in the end.
    Counted,
}

struct Round {
    /// Not at the primary, but there.
    anywhere: Option<usize>,
    database: u64,
    tag: Option<usize>,
    form: Form,
    batch: Vec<Words>,
}

struct Caller {
    shared: Arc<Shared>,
    random: Random,
    space: Space,
    connections: HashMap<usize, Connection>,
}

impl Caller {
    fn call_until_stopped(&mut self) {
        while !self.shared.stop.load(Relaxed) {
            // What is sent is drawn before: it does not depend on the answers.
            let round = self.draw();
            let primary = match round.tag {
                Some(tag) => self.shared.owner[tag].load(Relaxed),
                None => self.shared.primary.load(Relaxed),
            };
            let node = round.anywhere.unwrap_or(primary);
            match round.form {
                // In a cluster, policies are set on every node.
                Form::Policies => {
                    for node in 0..self.shared.ports.len() {
                        self.make(node, &round);
                    }
                }
                _ => self.make(node, &round),
            }
            sleep(Duration::from_millis(2));
        }
    }

    fn draw(&mut self) -> Round {
        let (anywhere, node) = (self.random.once_in(10), self.random.below(3) as usize);
        let database = self.random.below(self.space.databases);
        let (form, length) = (self.random.below(20), self.random.between(1, 20));
        let tag = match self.space.tags {
            0 => None,
            tags => Some(self.random.below(tags) as usize),
        };
        let tag_text = tag.map_or(String::new(), |tag| format!("{{t{tag}}}"));
        let mut calls = Calls {
            random: &mut self.random,
            space: self.space,
            tag: tag_text.clone(),
        };
        let form = match form {
            _ if self.space.narrow => Form::Pipeline,
            0 | 1 => Form::Script,
            2 => Form::Pipeline,
            3 | 4 => Form::Transaction,
            5 => Form::DumpAndRestore,
            6 if tag.is_some() => Form::Policies,
            7 | 8 if tag.is_some() => Form::Counted,
            _ => Form::Pipeline,
        };
        let batch: Vec<Words> = match form {
            Form::Script => {
                let (script, keys) = calls.script();
                let mut eval = vec!["EVAL".to_owned(), script, keys.len().to_string()];
                eval.extend(keys);
                vec![eval]
            }
            Form::Policies => vec![calls.policy_change()],
            Form::Counted => vec![count(&tag_text, 1), guard(&tag_text)],
            _ if length == 1 => vec![calls.read()],
            _ => (0..length).map(|_| calls.write()).collect(),
        };
        Round {
            anywhere: anywhere.then_some(node),
            database,
            tag,
            form,
            batch,
        }
    }

    fn make(&mut self, node: usize, round: &Round) {
        let made = match round.form {
            Form::Transaction => self.send(node, round, true),
            Form::DumpAndRestore => self.dump_and_restore(node, round.database, &round.batch),
            _ => self.send(node, round, false),
        };
        // No answer of the server: the connection is of no use any more.
        if made.is_err_and(|error| error.code().is_none()) {
            self.connections.remove(&node);
            sleep(Duration::from_millis(10));
        }
    }

    fn connection(&mut self, node: usize) -> RedisResult<&mut Connection> {
        if !self.connections.contains_key(&node) {
            let connection = connect(self.shared.ports[node])?;
            self.connections.insert(node, connection);
        }
        Ok(self.connections.get_mut(&node).unwrap())
    }

    fn send(&mut self, node: usize, round: &Round, atomic: bool) -> RedisResult<()> {
        let mut pipe = redis::pipe();
        pipe.ignore_errors();
        if atomic {
            pipe.atomic();
        }
        if round.tag.is_none() {
            pipe.cmd("SELECT").arg(round.database);
        } else {
            pipe.cmd("PING");
        }
        for words in &round.batch {
            pipe.cmd(&words[0]).arg(&words[1..]);
        }
        let counted = round.tag.filter(|_| round.form == Form::Counted);
        if let Some(tag) = counted {
            self.shared.counted[tag][1].fetch_add(1, Relaxed);
        }
        let answers: Vec<RedisResult<Value>> = pipe.query(self.connection(node)?)?;
        let answers: Vec<RedisResult<Value>> = round
            .batch
            .iter()
            .zip(answers.into_iter().skip(1))
            .map(|(words, answer)| match answer {
                Err(error) if !atomic => self.follow(round.tag, words, error),
                answer => answer,
            })
            .collect();
        let mut tally = self.shared.tally.lock().unwrap();
        for (words, answer) in round.batch.iter().zip(&answers) {
            tally.count(words, answer);
        }
        if let Some(tag) = counted {
            let of_server = |error: &redis::RedisError| error.code().is_some();
            // Now it is known, one way or the other, unless the connection was lost.
            if !answers[0].as_ref().is_err_and(|error| !of_server(error)) {
                self.shared.counted[tag][1].fetch_sub(1, Relaxed);
                let allowed = answers[0].is_ok();
                self.shared.counted[tag][0].fetch_add(u64::from(allowed), Relaxed);
            }
            if self.shared.guarded
                && let Ok(Value::Array(six)) = &answers[1]
                && six.first() != Some(&Value::Int(0))
            {
                let text = format!(
                    "{:?} answered {six:?}, though it is blocked",
                    round.batch[1]
                );
                tally.wrong.push(text);
            }
        }
        Ok(())
    }

    /// Goes where a redirection points; any other error stays what it is.
    fn follow(
        &mut self,
        tag: Option<usize>,
        words: &Words,
        error: redis::RedisError,
    ) -> RedisResult<Value> {
        let (Some(tag), Some((address, _))) = (tag, error.redirect_node()) else {
            return Err(error);
        };
        let port = address
            .rsplit(':')
            .next()
            .and_then(|port| port.parse().ok());
        let known = self
            .shared
            .ports
            .iter()
            .position(|&known| Some(known) == port);
        let Some(node) = known else {
            return Err(error);
        };
        let mut pipe = redis::pipe();
        pipe.ignore_errors();
        if error.code() == Some("ASK") {
            pipe.cmd("ASKING");
        } else {
            self.shared.owner[tag].store(node, Relaxed);
            pipe.cmd("PING");
        }
        pipe.cmd(&words[0]).arg(&words[1..]);
        let answers: RedisResult<Vec<RedisResult<Value>>> = pipe.query(self.connection(node)?);
        match answers {
            Ok(mut answers) => answers.pop().unwrap_or(Err(error)),
            Err(error) => {
                self.connections.remove(&node);
                Err(error)
            }
        }
    }

    /// Copies a key by its serialized form, as backups and migrations do.
    fn dump_and_restore(&mut self, node: usize, database: u64, batch: &[Words]) -> RedisResult<()> {
        let Some(key) = batch.iter().find_map(|words| words.get(1)) else {
            return Ok(());
        };
        let ttl = [0, 700, 3_600_000][key.len() % 3];
        let connection = self.connection(node)?;
        let mut dump = redis::pipe();
        dump.ignore_errors();
        dump.cmd("SELECT").arg(database);
        dump.cmd("DUMP").arg(key);
        let answers: Vec<RedisResult<Value>> = dump.query(connection)?;
        let Some(Ok(Value::BulkString(payload))) = answers.get(1) else {
            return Ok(());
        };
        let mut restore = redis::cmd("RESTORE");
        if is_exact() || ttl == 0 {
            restore.arg(key).arg(ttl).arg(&payload[..]);
        } else {
            let at = now_ms() + ttl;
            restore.arg(key).arg(at).arg(&payload[..]).arg("ABSTTL");
        }
        restore.arg("REPLACE");
        let answer = restore.query::<Value>(connection);
        let words = vec!["RESTORE".to_owned(), key.clone()];
        self.shared.tally.lock().unwrap().count(&words, &answer);
        match answer {
            Err(error) if error.code().is_none() => Err(error),
            _ => Ok(()),
        }
    }
}

impl Tally {
    fn count(&mut self, words: &Words, answer: &RedisResult<Value>) {
        match answer {
            Ok(value) => {
                self.answered += 1;
                if !is_plausible(&words[0], value) {
                    self.wrong.push(format!("{words:?} answered {value:?}"));
                }
            }
            Err(error) => {
                let text = error_text(error);
                if text.contains("internal") || text.contains("panic") {
                    self.wrong.push(format!("{words:?} answered {text}"));
                }
                let start: Vec<&str> = text.split(' ').take(4).collect();
                *self.errors.entry(start.join(" ")).or_default() += 1;
            }
        }
    }
}

/// Whether a reply has the form that its command promises.
fn is_plausible(command: &str, value: &Value) -> bool {
    let integers = |value: &Value, count: usize| match value {
        Value::Array(all) => {
            all.len() == count && all.iter().all(|one| matches!(one, Value::Int(_)))
        }
        _ => false,
    };
    match command {
        "RL.SLIDE" | "RL.BUCKET" | "RL.FIXED" | "RL.EXACT" | "RL.LEAK" | "RL.LEASE"
        | "CL.THROTTLE" => integers(value, 5),
        "RL.PEEK" => integers(value, 5) || integers(value, 6),
        "RL.CHECK" | "RL.FIRST" => integers(value, 6),
        "RL.REFUND" | "RL.RELEASE" => matches!(value, Value::Int(_)),
        "RL.MULTI" => match value {
            Value::Array(all) => match &all[..] {
                [Value::Int(_), Value::Int(_), Value::Array(each)] => {
                    each.iter().all(|one| integers(one, 5))
                }
                _ => false,
            },
            _ => false,
        },
        _ => true,
    }
}

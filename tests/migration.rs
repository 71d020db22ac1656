//! Slots with overrides move to another node: a blocked key stays blocked, and no override is lost, duplicated or left
//! behind, in whatever order the keys move.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use redis::{Connection, RedisError, RedisResult, Value};
use rl_testkit::{
    ALL_SLOTS, CheckReply, Server, TempDir, ask, assign_slots, error_text, eventually, try_ask,
};
use rstest::rstest;

/// Two nodes, the first with all slots, and the same policy on both.
struct Pair {
    from: Server,
    to: Server,
    ids: (String, String),
}

/// A client that follows redirections, as those for clusters do, but leaves TRYAGAIN to its caller.
struct Follower {
    from: Connection,
    to: Connection,
}

impl Pair {
    fn start() -> Self {
        Self::with(&[])
    }

    fn with(config: &[&str]) -> Self {
        let mut all = vec!["cluster-enabled", "yes", "cluster-node-timeout", "60000"];
        all.extend(config);
        let node = || Server::with(&all);
        let (from, to) = (node(), node());
        assign_slots(&from, ALL_SLOTS);
        let _: () = from.run("CLUSTER", &["MEET", "127.0.0.1", &to.port().to_string()]);
        let known = |server: &Server| {
            let info: String = server.run("CLUSTER", &["INFO"]);
            info.contains("cluster_known_nodes:2") && info.contains("cluster_state:ok")
        };
        eventually("the nodes know each other", || known(&from) && known(&to));
        for server in [&from, &to] {
            let _: () = server.run("RL.POLICY", &["SET", "p", "SLIDE", "1000000", "1h"]);
            let _: () = server.run("RL.POLICY", &["SET", "other", "SLIDE", "1000000", "1h"]);
        }
        let id = |server: &Server| server.run::<String>("CLUSTER", &["MYID"]);
        let ids = (id(&from), id(&to));
        Self { from, to, ids }
    }

    fn client(&self) -> Follower {
        Follower {
            from: self.from.connect(),
            to: self.to.connect(),
        }
    }

    fn slot(&self, key: &str) -> String {
        self.from
            .run::<i64>("CLUSTER", &["KEYSLOT", key])
            .to_string()
    }

    fn open(&self, slot: &str) {
        let _: () = self
            .to
            .run("CLUSTER", &["SETSLOT", slot, "IMPORTING", &self.ids.0]);
        let _: () = self
            .from
            .run("CLUSTER", &["SETSLOT", slot, "MIGRATING", &self.ids.1]);
    }

    /// Moves one key, which may be missing; any error, BUSYKEY above all, is a failure.
    fn migrate(&self, key: &str) {
        let port = self.to.port().to_string();
        let reply: String = self
            .from
            .run("MIGRATE", &["127.0.0.1", &port, key, "0", "60000"]);
        assert!(reply == "OK" || reply == "NOKEY", "{key}: {reply}");
    }

    fn keys(&self, server: &Server, slot: &str) -> Vec<String> {
        let mut keys: Vec<String> = server.run("CLUSTER", &["GETKEYSINSLOT", slot, "100"]);
        keys.sort();
        keys
    }

    fn close(&self, slot: &str) {
        for key in self.keys(&self.from, slot) {
            self.migrate(&key);
        }
        assert!(self.keys(&self.from, slot).is_empty());
        for server in [&self.to, &self.from] {
            let _: () = server.run("CLUSTER", &["SETSLOT", slot, "NODE", &self.ids.1]);
        }
    }
}

impl Follower {
    fn run(&mut self, words: &[&str]) -> RedisResult<Value> {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        match command.query(&mut self.from) {
            Err(error) if error.code() == Some("ASK") => {
                let _: () = ask(&mut self.to, "ASKING");
                command.query(&mut self.to)
            }
            Err(error) if error.code() == Some("MOVED") => command.query(&mut self.to),
            reply => reply,
        }
    }

    fn ask(&mut self, line: &str) -> RedisResult<Value> {
        self.run(&line.split(' ').collect::<Vec<_>>())
    }
}

fn is_try_again(error: &RedisError) -> bool {
    error_text(error) == "TRYAGAIN Multiple keys request during rehashing of slot"
}

/// The first integer of a reply; `None` for TRYAGAIN.
fn verdict(reply: RedisResult<Value>) -> Option<i64> {
    match reply {
        Ok(Value::Array(fields)) => Some(redis::from_redis_value(fields[0].clone()).unwrap()),
        Ok(Value::Int(number)) => Some(number),
        Ok(Value::Okay) => Some(1),
        Ok(other) => panic!("{other:?}"),
        Err(error) => {
            assert!(is_try_again(&error), "{error}");
            None
        }
    }
}

const SCRIPT: &str = "return redis.call('RL.CHECK', KEYS[1], 'p')";

/// Every way to ask whether the key is allowed.
fn assert_blocked(client: &mut Follower, key: &str, when: &str) {
    for call in [
        vec!["RL.CHECK", key, "p"],
        vec!["RL.CHECK", key, "p", "5", "FORCE"],
        vec!["RL.CHECK", key, "p", "1", "PEEK"],
        multi(key),
        peek(key),
    ] {
        let allowed = verdict(client.run(&call));
        assert_ne!(allowed, Some(1), "{call:?} {when}");
    }
    // Scripts wrap the error of the call in one of their own on some servers.
    match client.run(&["EVAL", SCRIPT, "1", key]) {
        Ok(Value::Array(fields)) => assert_eq!(fields[0], Value::Int(0), "{when}"),
        Ok(other) => panic!("{other:?}"),
        Err(error) => assert!(error_text(&error).contains("TRYAGAIN"), "{error}"),
    }
}

fn multi(key: &str) -> Vec<&str> {
    vec!["RL.MULTI", key, "POLICY p 1"]
}

fn peek(key: &str) -> Vec<&str> {
    vec!["RL.PEEK", key, "POLICY p 1"]
}

/// What is done to the override while it moves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Deed {
    Nothing,
    Delete,
    Set,
}

#[rstest]
fn a_blocked_key_stays_blocked_in_every_order() {
    let pair = Pair::start();
    let mut client = pair.client();
    let mut number = 0;
    for deed in [Deed::Nothing, Deed::Delete, Deed::Set] {
        for has_state in [true, false] {
            for override_first in [true, false] {
                // The stage at which it is done: before any key has moved, between, after both, and at the end.
                for stage in 0..4 {
                    number += 1;
                    let tag = format!("{{tag{number}}}");
                    let scenario = format!("{deed:?} {has_state} {override_first} {stage}");
                    one_move(
                        &pair,
                        &mut client,
                        &tag,
                        deed,
                        has_state,
                        override_first,
                        stage,
                        &scenario,
                    );
                    if deed == Deed::Nothing {
                        break;
                    }
                }
            }
        }
    }
}

#[allow(clippy::too_many_arguments)]
fn one_move(
    pair: &Pair,
    client: &mut Follower,
    tag: &str,
    deed: Deed,
    has_state: bool,
    override_first: bool,
    stage: usize,
    scenario: &str,
) {
    let key = format!("{tag}k");
    let plain = format!("{tag}plain");
    let place = format!("rl:override:{tag}:{key}");
    let slot = pair.slot(&key);
    if has_state {
        assert_eq!(
            verdict(client.ask(&format!("RL.CHECK {key} p"))),
            Some(1),
            "{scenario}"
        );
    }
    assert_eq!(verdict(client.ask(&format!("RL.CHECK {plain} p"))), Some(1));
    let set = format!("RL.OVERRIDE SET {key} p BLOCK");
    assert_eq!(verdict(client.ask(&set)), Some(1));
    pair.open(&slot);
    let order = if override_first {
        [&place, &key]
    } else {
        [&key, &place]
    };
    let mut done = false;
    for now in 0..4 {
        match now {
            0 => {}
            1 | 2 => pair.migrate(order[now - 1]),
            _ => pair.close(&slot),
        }
        let when = format!("{scenario}, now {now}");
        if now >= stage && !done {
            // Where it gets TRYAGAIN, it is tried again.
            let reply = match deed {
                Deed::Nothing => None,
                Deed::Delete => verdict(client.ask(&format!("RL.OVERRIDE DEL {key} p"))),
                Deed::Set => verdict(client.ask(&format!("RL.OVERRIDE SET {key} other BLOCK"))),
            };
            if let Some(reply) = reply {
                assert_eq!(reply, 1, "the override is found {when}");
                done = true;
            }
        }
        if deed != Deed::Delete || !done {
            assert_blocked(client, &key, &when);
        } else {
            // Allowed again, or not yet known.
            verdict(client.ask(&format!("RL.CHECK {key} p")));
        }
        // A key that no override concerns is served by the first node as long as it is there.
        let six = verdict(client.ask(&format!("RL.CHECK {plain} p")));
        assert!(now == 3 || six == Some(1), "{when}");
        let shown = client.ask(&format!("RL.OVERRIDE GET {key}"));
        match shown {
            Ok(Value::Array(all)) => {
                let expected = match deed {
                    Deed::Delete if done => 0,
                    Deed::Set if done => 2,
                    _ => 1,
                };
                assert_eq!(all.len(), expected, "{when}");
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => assert!(is_try_again(&error), "{error}"),
        }
    }
    // The last stage has no TRYAGAIN: the slot is stable again.
    assert!(done || deed == Deed::Nothing, "{scenario}");
    let allowed = verdict(client.ask(&format!("RL.CHECK {key} p")));
    assert_eq!(allowed, Some(i64::from(deed == Deed::Delete)), "{scenario}");
    assert_eq!(
        verdict(client.ask(&format!("RL.CHECK {tag}new p"))),
        Some(1)
    );
    let there = pair.keys(&pair.to, &slot);
    let count = there.iter().filter(|other| **other == place).count();
    assert_eq!(
        count,
        usize::from(deed != Deed::Delete),
        "{scenario}: {there:?}"
    );
    assert!(pair.keys(&pair.from, &slot).is_empty(), "{scenario}");
}

#[rstest]
fn a_slot_that_does_not_move_never_replies_tryagain() {
    let pair = Pair::start();
    let mut con = pair.from.connect();
    let misses = || pair.from.info_number("stats", "keyspace_misses");
    let before = misses();
    for n in 0..100 {
        assert_eq!(
            ask::<CheckReply>(&mut con, &format!("RL.CHECK k{n} p")).0,
            1
        );
        assert_eq!(
            ask::<CheckReply>(&mut con, &format!("RL.CHECK k{n} p")).2,
            999_998
        );
    }
    assert_eq!(ask::<String>(&mut con, "RL.OVERRIDE SET k7 p BLOCK"), "OK");
    for n in 0..100 {
        assert_eq!(
            ask::<CheckReply>(&mut con, &format!("RL.CHECK k{n} p")).0,
            i64::from(n != 7)
        );
        assert_eq!(
            ask::<CheckReply>(&mut con, &format!("RL.CHECK l{n} p")).0,
            1
        );
    }
    assert_eq!(misses(), before + i64::from(pair.from.calls("exists") > 0));
    // In a transaction and in a script as well.
    let mut pipe = redis::pipe();
    pipe.atomic()
        .cmd("RL.CHECK")
        .arg("{m}a")
        .arg("p")
        .cmd("RL.CHECK")
        .arg("{m}b")
        .arg("p");
    let (a, b): (CheckReply, CheckReply) = pipe.query(&mut con).unwrap();
    assert_eq!((a.0, b.0), (1, 1));
    let six: CheckReply = redis::cmd("EVAL")
        .arg(SCRIPT)
        .arg(1)
        .arg("new")
        .query(&mut con)
        .unwrap();
    assert_eq!(six.0, 1);
}

/// After a restart in the middle of a migration nothing is remembered, and nothing is allowed for that.
#[rstest]
fn a_restart_in_the_middle_changes_nothing() {
    let mut pair = Pair::start();
    pair.from.add_config(&["appendonly", "yes"]);
    let _: () = pair.from.run("CONFIG", &["SET", "appendonly", "yes"]);
    eventually("the AOF is on", || {
        pair.from.info("persistence", "aof_rewrite_in_progress") == "0"
            && pair.from.info("persistence", "aof_rewrite_scheduled") == "0"
    });
    let mut con = pair.from.connect();
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK {u}k p").0, 1);
    assert_eq!(
        ask::<String>(&mut con, "RL.OVERRIDE SET {u}k p BLOCK"),
        "OK"
    );
    let slot = pair.slot("{u}k");
    pair.open(&slot);
    pair.migrate("rl:override:{u}:{u}k");
    pair.from.shutdown("NOSAVE");
    pair.from.start_again();
    eventually("the node is up", || {
        let info: String = pair.from.run("CLUSTER", &["INFO"]);
        info.contains("cluster_state:ok")
    });
    let mut con = pair.from.connect();
    let reply = try_ask::<Value>(&mut con, "RL.CHECK {u}k p");
    assert_eq!(
        verdict(reply),
        None,
        "the key is here and its override is not"
    );
}

/// A migration that is stopped half-way leaves the override on the other node. Once it goes on, that is known again.
#[rstest]
fn a_migration_that_is_stopped_and_resumed_blocks_as_before() {
    let pair = Pair::start();
    let mut con = pair.from.connect();
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK {u}k p").0, 1);
    ask::<()>(&mut con, "RL.OVERRIDE SET {u}k p BLOCK");
    let slot = pair.slot("{u}k");
    pair.open(&slot);
    pair.migrate("rl:override:{u}:{u}k");
    let mut blocked = |when: &str| {
        let reply = try_ask::<Value>(&mut con, "RL.CHECK {u}k p");
        assert_eq!(verdict(reply), None, "{when}");
    };
    blocked("at first");
    for server in [&pair.from, &pair.to] {
        let _: () = server.run("CLUSTER", &["SETSLOT", &slot, "STABLE"]);
    }
    // Long enough for the node to notice that nothing moves.
    thread::sleep(Duration::from_millis(2500));
    pair.open(&slot);
    blocked("when it goes on");
}

/// The node asks the server about both keys by a command that an operator may have renamed.
#[rstest]
fn renamed_commands_are_not_taken_for_a_migration() {
    let folder = TempDir::new();
    let renamed = "rename-command EXISTS hidden1\nrename-command SMOVE hidden2\n";
    let pair = Pair::with(&["include", &folder.write("renamed.conf", renamed)]);
    let mut con = pair.from.connect();
    assert!(try_ask::<Value>(&mut con, "EXISTS k").is_err());
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK {u}k p").0, 1);
    ask::<()>(&mut con, "RL.OVERRIDE SET {u}k p BLOCK");
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK {u}k p").0, 0);
    let slot = pair.slot("{u}k");
    pair.open(&slot);
    pair.migrate("rl:override:{u}:{u}k");
    let reply = try_ask::<Value>(&mut con, "RL.CHECK {u}k p");
    assert_eq!(verdict(reply), None, "and a migration is still noticed");
    pair.close(&slot);
    let mut client = pair.client();
    assert_eq!(verdict(client.ask("RL.CHECK {u}k p")), Some(0));
}

/// Where a cluster has several databases, an override that is deleted in one says nothing about another.
#[rstest]
fn overrides_of_several_databases_are_not_confused() {
    if !rl_testkit::has_directive("cluster-databases") {
        return rl_testkit::not_tested("this server's clusters have one database");
    }
    let pair = Pair::with(&["cluster-databases", "2"]);
    let (mut zero, mut one) = (pair.from.connect(), pair.from.connect());
    ask::<()>(&mut one, "SELECT 1");
    for con in [&mut zero, &mut one] {
        assert_eq!(ask::<CheckReply>(con, "RL.CHECK {u}k p").0, 1);
        ask::<()>(con, "RL.OVERRIDE SET {u}k p BLOCK");
    }
    pair.open(&pair.slot("{u}k"));
    let port = pair.to.port();
    let moved: String = ask(
        &mut one,
        &format!("MIGRATE 127.0.0.1 {port} rl:override:{{u}}:{{u}}k 1 60000"),
    );
    assert_eq!(moved, "OK");
    assert_eq!(verdict(try_ask(&mut one, "RL.CHECK {u}k p")), None);
    assert_eq!(ask::<i64>(&mut zero, "RL.OVERRIDE DEL {u}k p"), 1);
    assert_eq!(verdict(try_ask(&mut one, "RL.CHECK {u}k p")), None);
    assert_eq!(verdict(try_ask(&mut zero, "RL.CHECK {u}k p")), None);
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Asks without pause about keys that are blocked, some with a state and some without.
fn ask_on(mut client: Follower, stop: &AtomicBool) -> (u64, u64) {
    let (mut denied, mut again) = (0, 0);
    let deadline = rl_testkit::Deadline::start();
    loop {
        deadline.check("the callers are stopped");
        for n in 0..20 {
            match verdict(client.ask(&format!("RL.CHECK {{u}}{n} p"))) {
                Some(allowed) => {
                    assert_eq!(allowed, 0, "{n}");
                    denied += 1;
                }
                None => again += 1,
            }
        }
        if stop.load(Relaxed) {
            return (denied, again);
        }
    }
}

fn block_twenty(pair: &Pair) {
    let mut con = pair.from.connect();
    for n in 0..20 {
        if n % 2 == 0 {
            assert_eq!(
                ask::<CheckReply>(&mut con, &format!("RL.CHECK {{u}}{n} p")).0,
                1
            );
        }
        let line = format!("RL.OVERRIDE SET {{u}}{n} p BLOCK");
        assert_eq!(ask::<String>(&mut con, &line), "OK");
    }
}

#[rstest]
fn nothing_is_allowed_under_load_while_a_slot_moves_key_by_key() {
    let pair = Pair::start();
    block_twenty(&pair);
    let slot = pair.slot("{u}0");
    let stop = AtomicBool::new(false);
    let clients = [(); 3].map(|()| pair.client());
    thread::scope(|scope| {
        let stopping = Stop(&stop);
        let clients = clients.map(|client| scope.spawn(|| ask_on(client, &stop)));
        pair.open(&slot);
        let keys = pair.keys(&pair.from, &slot);
        assert_eq!(keys.len(), 30);
        for key in keys {
            pair.migrate(&key);
            thread::sleep(std::time::Duration::from_millis(5));
        }
        pair.close(&slot);
        let mut client = pair.client();
        eventually("all is as before", || {
            (0..20).all(|n| verdict(client.ask(&format!("RL.CHECK {{u}}{n} p"))) == Some(0))
        });
        drop(stopping);
        for client in clients {
            let (denied, again) = client.join().unwrap();
            println!("{denied} denied, {again} TRYAGAIN");
            assert!(denied > 0);
        }
    });
    assert_eq!(pair.keys(&pair.to, &slot).len(), 30);
    assert_eq!(pair.to.info_number("rl", "rl_keys_with_overrides"), 20);
    assert_eq!(pair.from.info_number("rl", "rl_keys_with_overrides"), 0);
}

#[rstest]
fn nothing_is_allowed_under_load_while_a_slot_moves_whole() {
    let pair = Pair::start();
    block_twenty(&pair);
    let slot = pair.slot("{u}0");
    let stop = AtomicBool::new(false);
    let clients = [(); 3].map(|()| pair.client());
    thread::scope(|scope| {
        let stopping = Stop(&stop);
        let clients = clients.map(|client| scope.spawn(|| ask_on(client, &stop)));
        let id = &*pair.ids.1;
        let words = ["MIGRATESLOTS", "SLOTSRANGE", &slot, &slot, "NODE", id];
        if let Err(error) = pair.from.try_run::<Value>("CLUSTER", &words) {
            let text = error.to_string().to_lowercase();
            assert!(text.contains("unknown subcommand"), "{text}");
            rl_testkit::not_tested("this server cannot migrate whole slots");
            return;
        }
        eventually("the slot has moved", || {
            pair.to
                .try_run::<Value>("RL.OVERRIDE", &["GET", "{u}0"])
                .is_ok()
        });
        drop(stopping);
        for client in clients {
            let (denied, again) = client.join().unwrap();
            assert!(denied > 0);
            assert_eq!(again, 0, "no window at all");
        }
        assert_eq!(pair.keys(&pair.to, &slot).len(), 30);
        assert_eq!(pair.to.info_number("rl", "rl_keys_with_overrides"), 20);
        eventually("the old node forgets them", || {
            pair.from.info_number("rl", "rl_keys_with_overrides") == 0
        });
    });
}

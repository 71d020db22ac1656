//! Ways to a server that a client library would take: to one server, to the primary of the moment, to the
//! node of a slot.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use redis::{Cmd, Connection, RedisError, RedisResult, Value, cmd};

use crate::network::Node;

pub trait Caller {
    fn call(&mut self, key: &str, call: &Cmd) -> RedisResult<Value>;
}

/// Calls whichever server `find` names, and asks it again after every error.
pub struct Primary<'a, F> {
    find: F,
    con: Option<Connection>,
    node: Option<&'a Node>,
}

impl<'a, F: Fn() -> Option<&'a Node>> Primary<'a, F> {
    pub fn new(find: F) -> Self {
        Self {
            find,
            con: None,
            node: None,
        }
    }
}

impl<'a, F: Fn() -> Option<&'a Node>> Caller for Primary<'a, F> {
    fn call(&mut self, _: &str, call: &Cmd) -> RedisResult<Value> {
        if self.con.is_none() {
            self.node = (self.find)();
            let node = self
                .node
                .ok_or_else(|| RedisError::from(std::io::Error::other("no primary")))?;
            self.con = Some(node.connect()?);
        }
        let reply = call.query(self.con.as_mut().unwrap());
        if reply.is_err() {
            self.con = None;
        }
        reply
    }
}

/// Follows the redirects of a cluster, and counts them.
pub struct Cluster<'a> {
    nodes: &'a [Node],
    cons: BTreeMap<&'a str, Connection>,
    slots: BTreeMap<u16, &'a str>,
    pub redirects: BTreeMap<String, u64>,
}

impl<'a> Cluster<'a> {
    pub fn new(nodes: &'a [Node]) -> Self {
        Self {
            nodes,
            cons: BTreeMap::new(),
            slots: BTreeMap::new(),
            redirects: BTreeMap::new(),
        }
    }

    fn node(&self, address: &str) -> &'a Node {
        self.nodes
            .iter()
            .find(|node| node.address == address)
            .unwrap()
    }

    fn send(&mut self, to: &'a Node, call: &Cmd, asking: bool) -> RedisResult<Value> {
        if !self.cons.contains_key(to.address.as_str()) {
            self.cons.insert(&to.address, to.connect()?);
        }
        let con = self.cons.get_mut(to.address.as_str()).unwrap();
        if asking {
            cmd("ASKING").exec(con)?;
        }
        let reply = call.query(con);
        if reply
            .as_ref()
            .is_err_and(|error: &RedisError| error.code().is_none())
        {
            self.cons.remove(to.address.as_str());
        }
        reply
    }
}

impl Caller for Cluster<'_> {
    fn call(&mut self, key: &str, call: &Cmd) -> RedisResult<Value> {
        let slot = slot(key);
        let mut to = self
            .slots
            .get(&slot)
            .map_or(&self.nodes[0], |address| self.node(address));
        let mut asking = false;
        for _ in 0..200 {
            let error = match self.send(to, call, std::mem::take(&mut asking)) {
                Err(error) if matches!(error.code(), Some("MOVED" | "ASK" | "TRYAGAIN")) => error,
                reply => return reply,
            };
            let code = error.code().unwrap_or_default().to_owned();
            if let Some((address, _)) = error.redirect_node() {
                let address = address.rsplit_once(':').map_or(address, |(host, _)| host);
                to = self.node(address);
                asking = code == "ASK";
                if !asking {
                    self.slots.insert(slot, &to.address);
                }
            } else {
                // A call on several keys, some of which have moved and some not yet.
                sleep(Duration::from_millis(2));
                to = self
                    .slots
                    .get(&slot)
                    .map_or(to, |address| self.node(address));
            }
            *self.redirects.entry(code).or_default() += 1;
        }
        panic!("redirected for ever");
    }
}

pub fn slot(key: &str) -> u16 {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    let hashed = tag.map_or(key, |(tag, _)| tag);
    crc::Crc::<u16>::new(&crc::CRC_16_XMODEM).checksum(hashed.as_bytes()) % 16384
}

//! Ports for servers.

use std::collections::VecDeque;
use std::net::TcpListener;
use std::sync::Mutex;
use std::time::SystemTime;

use crate::{Deadline, Random};

/// Below the ports that the system gives to outgoing connections, so nothing takes a port while its server is down.
const FIRST: u16 = 11_000;
const COUNT: u64 = 9_000;

/// A cluster node also listens on this many ports above its own.
const CLUSTER_BUS: u16 = 10_000;

/// A port stays reserved until this many others have been given out.
const RESERVED: usize = 1000;

/// A free port, whose cluster bus port is free as well. It stays reserved in this process while its server is down.
pub fn free_port() -> u16 {
    static STATE: Mutex<Option<(Random, VecDeque<u16>)>> = Mutex::new(None);
    let mut state = STATE.lock().unwrap();
    let (random, reserved) = state.get_or_insert_with(|| {
        // Several test programs may run at the same time, and must not try the same ports.
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let seed = u64::from(now.subsec_nanos()) << 32 | u64::from(std::process::id());
        (Random(seed | 1), VecDeque::new())
    });
    let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let deadline = Deadline::start();
    loop {
        deadline.check("a port is free");
        let port = FIRST + random.below(COUNT) as u16;
        if !reserved.contains(&port) && is_free(port) && is_free(port + CLUSTER_BUS) {
            reserved.truncate(RESERVED - 1);
            reserved.push_front(port);
            return port;
        }
    }
}

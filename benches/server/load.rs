//! The load: calls encoded beforehand, so that the generator costs little beside the server.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::contender::Contender;
use crate::server::Server;

/// What one run of one contender took, per operation.
#[derive(Clone, Copy)]
pub struct Sample {
    pub wall_ns: f64,
    pub cpu_ns: f64,
}

/// Calls to be made, in batches of one pipeline each.
pub struct Load {
    bytes: Vec<u8>,
    /// End of each batch in `bytes`.
    ends: Vec<usize>,
    lines_per_batch: usize,
    operations_per_batch: usize,
}

/// Repeatable and cheap (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

impl Load {
    pub fn new(
        contender: &Contender,
        keys: usize,
        operations: usize,
        pipeline: usize,
        seed: u64,
    ) -> Self {
        Self::with_ids(contender, keys, operations, pipeline, seed, 0)
    }

    /// For a contender whose calls need ids: numbers from `first_id` on.
    pub fn with_ids(
        contender: &Contender,
        keys: usize,
        operations: usize,
        pipeline: usize,
        seed: u64,
        first_id: usize,
    ) -> Self {
        let mut random = Random(seed | 1);
        let mut load = Self {
            bytes: Vec::new(),
            ends: Vec::new(),
            lines_per_batch: contender.lines_per_operation() * pipeline,
            operations_per_batch: pipeline,
        };
        let mut id = first_id;
        for _ in 0..operations.div_ceil(pipeline) {
            for _ in 0..pipeline {
                let key = (random.next() % keys as u64) as usize;
                contender.encode(key, id, &mut load.bytes);
                id += 1;
            }
            load.ends.push(load.bytes.len());
        }
        load
    }

    pub fn operations(&self) -> usize {
        self.ends.len() * self.operations_per_batch
    }

    fn batches(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, &end)| &self.bytes[start..end])
    }

    /// Runs all batches as fast as the server answers, over several connections so that it never waits.
    pub fn run(&self, server: &Server, connections: &mut [TcpStream]) -> Sample {
        let mut buffer = vec![0; 1 << 16];
        let (wall, cpu) = (Instant::now(), server.cpu_ns());
        let mut batches = self.batches();
        let mut waiting = 0;
        for (connection, batch) in connections.iter_mut().zip(&mut batches) {
            connection.write_all(batch).unwrap();
            waiting += 1;
        }
        // Each connection is served again as soon as it has answered, while the others keep the server busy.
        for turn in 0.. {
            if waiting == 0 {
                break;
            }
            let turn = turn % connections.len();
            let connection = &mut connections[turn];
            read_lines(connection, self.lines_per_batch, &mut buffer);
            match batches.next() {
                Some(batch) => connection.write_all(batch).unwrap(),
                None => waiting -= 1,
            }
        }
        let operations = self.operations() as f64;
        Sample {
            wall_ns: wall.elapsed().as_nanos() as f64 / operations,
            cpu_ns: (server.cpu_ns() - cpu) as f64 / operations,
        }
    }
}

pub fn read_lines(connection: &mut TcpStream, mut lines: usize, buffer: &mut [u8]) {
    while lines > 0 {
        let read = connection.read(buffer).unwrap();
        assert!(read > 0, "the server closed the connection");
        lines -= buffer[..read].iter().filter(|&&byte| byte == b'\n').count();
    }
}

/// Makes the contender's keys exist, and checks that it answers without error.
pub fn prepare(server: &Server, contender: &Contender, keys: usize) {
    if !server
        .prepared
        .borrow_mut()
        .insert((contender.name.clone(), keys))
    {
        return;
    }
    let mut connection = server.connect();
    let mut buffer = vec![0; 1 << 16];
    let mut one = Vec::new();
    contender.encode(0, usize::MAX, &mut one);
    connection.write_all(&one).unwrap();
    let read = connection.read(&mut buffer).unwrap();
    let reply = String::from_utf8_lossy(&buffer[..read]);
    assert!(!reply.starts_with('-'), "{}: {reply}", contender.name);
    let lines =
        contender.lines_per_operation() - buffer[..read].iter().filter(|&&b| b == b'\n').count();
    read_lines(&mut connection, lines, &mut buffer);

    let lines = contender.prepared_lines() * keys;
    let mut writer = connection.try_clone().unwrap();
    std::thread::scope(|scope| {
        // In parts, so that the server works on one while the next is encoded.
        scope.spawn(move || {
            let mut part = Vec::new();
            for key in 0..keys {
                contender.encode_preparation(key, &mut part);
                if part.len() > 1 << 16 || key + 1 == keys {
                    writer.write_all(&part).unwrap();
                    part.clear();
                }
            }
        });
        read_lines(&mut connection, lines, &mut buffer);
    });
}

/// Latencies in microseconds at a fixed rate, counted from when each call was due: a server that falls
/// behind shows it, for the generator does not wait for answers. One thread, so that on two cores the
/// server has one to itself; its naps of some 50 µs are part of what it measures.
pub fn open_loop(
    server: &Server,
    contender: &Contender,
    keys: usize,
    rate: u64,
    time: Duration,
) -> Vec<f64> {
    const CONNECTIONS: usize = 16;
    let calls = (rate as f64 * time.as_secs_f64()) as usize;
    let load = Load::new(contender, keys, calls, 1, 7);
    let lines = contender.lines_per_operation();
    let due_ns = |call: usize| call as u128 * 1_000_000_000 / u128::from(rate);

    let mut connections: Vec<TcpStream> = (0..CONNECTIONS).map(|_| server.connect()).collect();
    // For each connection: calls under way, and lines of the oldest one's reply that have come.
    let mut under_way = vec![(VecDeque::new(), 0); CONNECTIONS];
    let mut latencies = Vec::with_capacity(calls);
    let mut buffer = vec![0; 1 << 14];
    let mut batches = load.batches().enumerate().peekable();
    let begin = Instant::now();
    while latencies.len() < calls {
        while let Some((call, batch)) =
            batches.next_if(|&(call, _)| due_ns(call) <= begin.elapsed().as_nanos())
        {
            let to = call % CONNECTIONS;
            connections[to].set_nonblocking(false).unwrap();
            connections[to].write_all(batch).unwrap();
            connections[to].set_nonblocking(true).unwrap();
            under_way[to].0.push_back(call);
        }
        let mut idle = true;
        for (connection, (calls, seen)) in connections.iter_mut().zip(&mut under_way) {
            if calls.is_empty() {
                continue;
            }
            let Ok(read) = connection.read(&mut buffer) else {
                continue;
            };
            idle = false;
            let now_ns = begin.elapsed().as_nanos();
            *seen += buffer[..read].iter().filter(|&&byte| byte == b'\n').count();
            while *seen >= lines {
                *seen -= lines;
                let call = calls.pop_front().unwrap();
                latencies.push((now_ns - due_ns(call)) as f64 / 1000.0);
            }
        }
        if idle {
            sleep(Duration::from_micros(1));
        }
    }
    latencies.sort_by(f64::total_cmp);
    latencies
}

//! Contenders take turns, round by round, so that a noisy moment hits all of them alike.

use std::net::TcpStream;

use crate::contender::Contender;
use crate::load::{self, Load, Sample};
use crate::server::Server;

/// One contender on one server.
pub struct Run<'a> {
    pub server: &'a Server,
    pub contender: Contender,
    pub keys: usize,
    pub pipeline: usize,
    /// Operations per round.
    pub operations: usize,
}

/// Random calls repeat after so many rounds: one round does not reach all keys.
const VARIANTS: usize = 4;

/// A run that is ready to start.
struct Ready<'a> {
    run: &'a Run<'a>,
    connections: Vec<TcpStream>,
    loads: Vec<Load>,
    ids: usize,
}

impl<'a> Ready<'a> {
    fn new(run: &'a Run<'a>) -> Self {
        load::prepare(run.server, &run.contender, run.keys);
        // Enough connections that the server always has work waiting, few enough not to thrash.
        let connections = if run.pipeline == 1 { 32 } else { 4 };
        let mut ready = Self {
            run,
            connections: (0..connections).map(|_| run.server.connect()).collect(),
            loads: Vec::new(),
            ids: 0,
        };
        if !run.contender.needs_ids() {
            ready.loads = (0..VARIANTS).map(|round| ready.load(round)).collect();
        }
        ready
    }

    fn load(&self, round: usize) -> Load {
        let run = self.run;
        let seed = 42 + 2 * (round % VARIANTS) as u64;
        Load::with_ids(
            &run.contender,
            run.keys,
            run.operations,
            run.pipeline,
            seed,
            self.ids,
        )
    }

    fn turn(&mut self, round: usize) -> Sample {
        let server = self.run.server;
        if !self.run.contender.needs_ids() {
            return self.loads[round % VARIANTS].run(server, &mut self.connections);
        }
        let load = self.load(round);
        let sample = load.run(server, &mut self.connections);
        // Deleted at once: otherwise the other contenders would pay for their expiry.
        let new = self.ids..self.ids + load.operations();
        self.ids = new.end;
        let (bytes, calls) = self.run.contender.deletion(new);
        server.send(&bytes, calls);
        sample
    }
}

/// Runs all of them in each round, and calls `before_each` before each turn.
pub fn take_turns(
    runs: &[Run],
    rounds: usize,
    mut before_each: impl FnMut(),
) -> Vec<(String, Vec<Sample>)> {
    let mut ready: Vec<Ready> = runs.iter().map(Ready::new).collect();
    let names = runs.iter().map(|run| run.contender.name.clone());
    let mut samples: Vec<_> = names.map(|name| (name, Vec::new())).collect();
    for round in 0..rounds {
        eprint!("\r  round {}/{rounds} ", round + 1);
        let mut order: Vec<usize> = (0..runs.len()).collect();
        // Backwards every other time, so that no contender always follows the same one.
        if round % 2 == 1 {
            order.reverse();
        }
        for n in order {
            before_each();
            samples[n].1.push(ready[n].turn(round));
        }
    }
    eprintln!();
    samples
}

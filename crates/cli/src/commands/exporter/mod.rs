//! `rl exporter --listen ADDR`: the statistics of every node, for Prometheus.

mod http;
mod metrics;

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use redis::{Connection, RedisResult};
use rl_client::RlCommands;

use crate::Exit;
use crate::failure::Failure;
use crate::snapshot::NodeReport;
use crate::topology::{Access, Info, Topology, Watch};
use metrics::{Measured, Scrape};

pub fn run(access: &Access, listen: SocketAddr, with_policies: bool) -> Result<Exit, Failure> {
    let exporter = Exporter {
        watch: Mutex::new(Watch::new(access)),
        with_policies,
    };
    http::serve(listen, &|| exporter.scrape())?;
    Ok(Exit::Success)
}

struct Exporter {
    watch: Mutex<Watch>,
    with_policies: bool,
}

impl Exporter {
    fn scrape(&self) -> String {
        let began = Instant::now();
        let topology = self.topology();
        let replies = topology.query(topology.all(), |connection| {
            measure(connection, self.with_policies)
        });
        for (_, reply) in &replies {
            if let Err(failure) = reply {
                eprintln!("rl: {}", failure.line());
            }
        }
        let nodes = replies
            .into_iter()
            .map(|(node, reply)| (&*node.name, node.role, reply.ok()));
        metrics::text(&Scrape {
            nodes: nodes.collect(),
            seconds: began.elapsed().as_secs_f64(),
        })
    }

    /// The current topology or, if no node replies, the last known one.
    fn topology(&self) -> Topology {
        // A thread that panicked cannot have left the watch in an inconsistent state.
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        match watch.refresh() {
            Ok(topology) => topology.clone(),
            Err(_) => watch.known().clone(),
        }
    }
}

fn measure(connection: &mut Connection, with_policies: bool) -> RedisResult<Measured> {
    let began = Instant::now();
    // All sections at once: Redis 6.2 accepts one section name at most.
    let info: Info = redis::cmd("INFO").arg("everything").query(connection)?;
    let (seconds, us): (u64, u64) = redis::cmd("TIME").query(connection)?;
    let report = NodeReport::read(connection, with_policies)?;
    let policies = connection.rl_policy_dump()?;
    Ok(Measured {
        info,
        report,
        clock: seconds as f64 + us as f64 / 1e6,
        policies_hash: metrics::hash(&policies),
        seconds: began.elapsed().as_secs_f64(),
    })
}

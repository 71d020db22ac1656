//! `rl export --listen ADDR`: the totals of every node for Prometheus.

mod http;
mod metrics;

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use redis::{Connection, RedisResult};

use crate::Outcome;
use crate::commands::stats::figures;
use crate::failure::Failure;
use crate::fleet::{Access, Fleet, Watch};
use crate::info::Info;
use metrics::{Measured, Scrape};

pub fn run(access: &Access, listen: SocketAddr, totals_only: bool) -> Result<Outcome, Failure> {
    let exporter = Exporter {
        watch: Mutex::new(Watch::new(access)),
        of_policies: !totals_only,
    };
    http::serve(listen, &|| exporter.scrape())?;
    Ok(Outcome::Well)
}

struct Exporter {
    watch: Mutex<Watch>,
    of_policies: bool,
}

impl Exporter {
    fn scrape(&self) -> String {
        let began = Instant::now();
        let fleet = self.fleet();
        let answers = fleet.ask(fleet.all(), |connection| {
            measure(connection, self.of_policies)
        });
        for (_, answer) in &answers {
            if let Err(failure) = answer {
                eprintln!("rl: {}", failure.error);
            }
        }
        let nodes = answers
            .into_iter()
            .map(|(node, answer)| (&*node.name, node.role, answer.ok()));
        metrics::text(&Scrape {
            nodes: nodes.collect(),
            seconds: began.elapsed().as_secs_f64(),
        })
    }

    /// As it is now; as it was when last seen, if nobody answers.
    fn fleet(&self) -> Fleet {
        // A thread that panicked left nothing half-done here.
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        match watch.look() {
            Ok(fleet) => fleet.clone(),
            Err(_) => watch.known().clone(),
        }
    }
}

fn measure(connection: &mut Connection, of_policies: bool) -> RedisResult<Measured> {
    let began = Instant::now();
    // All sections at once: 6.2 takes one name at most.
    let info: Info = redis::cmd("INFO").arg("everything").query(connection)?;
    let (seconds, us): (u64, u64) = redis::cmd("TIME").query(connection)?;
    let figures = figures(connection, of_policies)?;
    let policies: String = redis::cmd("RL.POLICY").arg("DUMP").query(connection)?;
    Ok(Measured {
        info,
        figures,
        clock: seconds as f64 + us as f64 / 1e6,
        policies_hash: metrics::hash(&policies),
        seconds: began.elapsed().as_secs_f64(),
    })
}

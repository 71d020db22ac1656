//! One file per command.

pub mod audit;
pub mod check;
pub mod completions;
pub mod doctor;
pub mod exporter;
pub mod overrides;
pub mod policy;
pub mod reservation;
pub mod several;
pub mod stats;
pub mod top;

use crate::failure::Failure;
use crate::topology::Replies;
use crate::{Exit, report};

/// Separates the replies from the failures.
fn split<T>(replies: Replies<'_, T>) -> (Vec<(&str, T)>, Vec<Failure>) {
    let (mut good, mut failed) = (Vec::new(), Vec::new());
    for (node, reply) in replies {
        match reply {
            Ok(reply) => good.push((&*node.name, reply)),
            Err(failure) => failed.push(failure),
        }
    }
    (good, failed)
}

/// Reports the nodes that failed, unless the JSON on the standard output lists them.
fn finish(failed: &[Failure], json: bool) -> Exit {
    if !json {
        failed.iter().for_each(|failure| report(failure, json));
    }
    match failed {
        [] => Exit::Success,
        _ => Exit::Failed,
    }
}

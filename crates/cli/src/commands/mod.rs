//! A file for each command.

pub mod audit;
pub mod check;
pub mod completions;
pub mod doctor;
pub mod export;
pub mod overrides;
pub mod policy;
pub mod stats;
pub mod top;

use crate::fleet::Answers;
use crate::{Outcome, complain};

/// Keeps what was answered, and names the nodes that failed.
fn answered<'a, T>(answers: Answers<'a, T>, json: bool) -> (Vec<(&'a str, T)>, Outcome) {
    let mut outcome = Outcome::Well;
    let mut good = Vec::new();
    for (node, answer) in answers {
        match answer {
            Ok(answer) => good.push((&*node.name, answer)),
            Err(failure) => {
                complain(&failure, json);
                outcome = Outcome::Bad;
            }
        }
    }
    (good, outcome)
}

//! `rl policy diff | push | pull FILE`: a file and every primary.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::Path;

use serde_json::{Value, json};

use crate::args::Policy;
use crate::failure::Failure;
use crate::fleet::{Access, Fleet, Node};
use crate::output;
use crate::policies::{Change, Policies};
use crate::{Outcome, complain};

pub fn run(access: &Access, what: &Policy, json: bool) -> Result<Outcome, Failure> {
    match what {
        Policy::Diff { file } => diff(access, file, json),
        Policy::Push { file, prune } => push(access, file, *prune, json),
        Policy::Pull { file, from } => pull(access, file, from.as_deref(), json),
    }
}

/// What primaries hold, and which did not say.
struct Held<'a> {
    sets: Vec<(&'a Node, Policies)>,
    failed: Vec<(&'a Node, Failure)>,
}

impl<'a> Held<'a> {
    fn ask(fleet: &'a Fleet) -> Self {
        let (mut sets, mut failed) = (Vec::new(), Vec::new());
        let answers = fleet.ask(fleet.primaries(), |connection| {
            redis::cmd("RL.POLICY")
                .arg("DUMP")
                .query::<String>(connection)
        });
        for (node, dump) in answers {
            match dump.and_then(|dump| Policies::read(&dump, &node.name)) {
                Ok(set) => sets.push((node, set)),
                Err(failure) => failed.push((node, failure)),
            }
        }
        Self { sets, failed }
    }

    /// Nodes that hold the same are spoken of together.
    fn alike(&self) -> Vec<(Vec<&'a Node>, &Policies)> {
        let mut groups: Vec<(Vec<&Node>, &Policies)> = Vec::new();
        for (node, set) in &self.sets {
            match groups.iter_mut().find(|(_, other)| *other == set) {
                Some((nodes, _)) => nodes.push(node),
                None => groups.push((vec![node], set)),
            }
        }
        groups
    }

    fn outcome(&self) -> Outcome {
        if self.failed.is_empty() {
            Outcome::Well
        } else {
            Outcome::Bad
        }
    }

    fn complain(&self, json: bool) {
        for (_, failure) in self.failed.iter().filter(|_| !json) {
            complain(failure, json);
        }
    }

    fn failed_json(&self) -> Vec<Value> {
        self.failed
            .iter()
            .map(|(node, failure)| failed_json(node, failure))
            .collect()
    }
}

fn failed_json(node: &Node, failure: &Failure) -> Value {
    json!({ "node": node.name, "error": failure.error, "do": failure.todo })
}

fn names(nodes: &[&Node]) -> Vec<String> {
    nodes.iter().map(|node| node.name.clone()).collect()
}

/// The changes for each group of nodes that hold the same.
fn changes<'a>(held: &'a Held, wanted: &'a Policies) -> Vec<(Vec<&'a Node>, Vec<Change<'a>>)> {
    let groups = held.alike().into_iter();
    groups
        .map(|(nodes, set)| (nodes, set.changes(wanted)))
        .collect()
}

fn told(changes: &[(Vec<&Node>, Vec<Change>)]) -> String {
    let mut text = String::new();
    for (nodes, changes) in changes {
        let what = if changes.is_empty() {
            "  as the file says"
        } else {
            ""
        };
        text += &format!("@ {}{what}\n", names(nodes).join(", "));
        text.extend(changes.iter().map(Change::to_string));
    }
    text
}

fn changes_json(changes: &[(Vec<&Node>, Vec<Change>)]) -> Vec<Value> {
    let each = |(nodes, changes): &(Vec<&Node>, Vec<Change>)| json!({ "nodes": names(nodes), "changes": changes });
    changes.iter().map(each).collect()
}

fn diff(access: &Access, file: &Path, json: bool) -> Result<Outcome, Failure> {
    let wanted = read(file)?;
    let fleet = access.survey()?;
    let held = Held::ask(&fleet);
    let changes = changes(&held, &wanted);
    if json {
        output::print_json(
            &json!({ "differences": changes_json(&changes), "failed": held.failed_json() }),
        )?;
    } else {
        output::print(&told(&changes))?;
        held.complain(json);
    }
    let same = changes.iter().all(|(_, changes)| changes.is_empty());
    let differs = if same { Outcome::Well } else { Outcome::No };
    Ok(differs.max(held.outcome()))
}

fn push(access: &Access, file: &Path, prune: bool, json: bool) -> Result<Outcome, Failure> {
    let wanted = read(file)?;
    let text = wanted.to_json()?;
    let fleet = access.survey()?;
    let held = Held::ask(&fleet);
    let changes = changes(&held, &wanted);
    if !json {
        output::print(&told(&changes))?;
        held.complain(json);
    }
    let mut deleted: Vec<&str> = changes
        .iter()
        .flat_map(|(_, changes)| changes.iter().filter(|change| change.deletes()))
        .map(|change| change.name)
        .collect();
    deleted.sort_unstable();
    deleted.dedup();
    if !deleted.is_empty() && !prune && !(confirmed(&deleted, file, json)?) {
        return Err(Failure::new(
            format!("nothing was changed: the file lacks {}", deleted.join(", ")),
            "--prune deletes what the file lacks; `rl policy pull FILE` writes all that there is",
        ));
    }

    // Also to nodes that need no change: what they hold now may be a moment old.
    let targets = held.sets.iter().map(|(node, _)| *node).collect();
    let answers = fleet.ask(targets, |connection| {
        redis::cmd("RL.POLICY")
            .arg("LOAD")
            .arg(&text)
            .query::<usize>(connection)
    });
    let (mut pushed, mut failed) = (Vec::new(), held.failed_json());
    for (node, answer) in answers {
        let failure = match answer {
            Ok(count) if count == wanted.policies.len() => {
                pushed.push(node);
                continue;
            }
            Ok(count) => Failure::new(
                format!(
                    "{}: holds {count} policies after the push, not {}",
                    node.name,
                    wanted.policies.len()
                ),
                "somebody else changes them at the same time: `rl policy diff` shows what there is",
            ),
            Err(failure) => failure,
        };
        failed.push(failed_json(node, &failure));
        if !json {
            complain(&failure, json);
        }
    }
    if json {
        let all = json!({
            "policies": wanted.policies.len(),
            "pushed": names(&pushed),
            "failed": failed,
            "changed": changes_json(&changes),
        });
        output::print_json(&all)?;
    } else {
        let to = format!(
            "{} of {} primaries",
            pushed.len(),
            pushed.len() + failed.len()
        );
        output::print(&format!(
            "pushed {} policies to {to}: {}\n",
            wanted.policies.len(),
            names(&pushed).join(", ")
        ))?;
        if !failed.is_empty() {
            let again = "push again when the rest are back: until then they decide by what they held before";
            complain(
                &Failure::new(format!("{} not reached", failed.len()), again),
                json,
            );
        }
    }
    Ok(if failed.is_empty() {
        Outcome::Well
    } else {
        Outcome::Bad
    })
}

/// Asks the person, if there is one. A file from the standard input leaves nobody to ask.
fn confirmed(deleted: &[&str], file: &Path, json: bool) -> Result<bool, Failure> {
    let stdin = io::stdin();
    if json || is_dash(file) || !stdin.is_terminal() {
        return Ok(false);
    }
    eprint!("Delete {}? [y/N] ", deleted.join(", "));
    let _ = io::stderr().flush();
    let mut answer = String::new();
    stdin
        .lock()
        .read_line(&mut answer)
        .map_err(|error| unreadable("the answer", &error))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn pull(access: &Access, file: &Path, from: Option<&str>, json: bool) -> Result<Outcome, Failure> {
    let fleet = access.survey()?;
    let held = Held::ask(&fleet);
    let groups = held.alike();
    let believed = match from {
        Some(from) => groups
            .iter()
            .find(|(nodes, _)| nodes.iter().any(|node| node.name == from)),
        None if groups.len() > 1 => {
            let sides: Vec<_> = groups
                .iter()
                .map(|(nodes, _)| names(nodes).join(", "))
                .collect();
            return Err(Failure::new(
                format!(
                    "the primaries do not hold the same policies: {}",
                    sides.join(" differ from ")
                ),
                "--from HOST:PORT says whom to believe; `rl policy diff FILE` shows how they differ from a file",
            ));
        }
        None => groups.first(),
    };
    let Some((nodes, set)) = believed else {
        // A node that failed says why; one that is no primary is not among them.
        return Err(match held.failed.into_iter().next() {
            Some((_, failure)) => failure,
            None => Failure::new(
                format!("{} is not a primary", from.unwrap_or("the server")),
                format!("the primaries are {}", names(&fleet.primaries()).join(", ")),
            ),
        });
    };
    let text = format!("{}\n", set.to_json()?);
    if is_dash(file) {
        output::print(&text)?;
    } else {
        write(file, &text)?;
        let nodes = names(nodes);
        if json {
            output::print_json(&json!({
                "file": file, "policies": set.policies.len(), "from": nodes, "failed": held.failed_json()
            }))?;
        } else {
            let count = set.policies.len();
            output::print(&format!(
                "{}: {count} policies of {}\n",
                file.display(),
                nodes.join(", ")
            ))?;
        }
    }
    if from.is_some() {
        return Ok(Outcome::Well);
    }
    held.complain(json);
    Ok(held.outcome())
}

fn is_dash(file: &Path) -> bool {
    file == Path::new("-")
}

fn read(file: &Path) -> Result<Policies, Failure> {
    let mut text = String::new();
    let name = if is_dash(file) {
        "standard input".to_owned()
    } else {
        file.display().to_string()
    };
    let read = if is_dash(file) {
        io::stdin().read_to_string(&mut text)
    } else {
        fs::File::open(file).and_then(|mut file| file.read_to_string(&mut text))
    };
    read.map_err(|error| unreadable(&name, &error))?;
    Policies::read(&text, &name)
}

fn unreadable(what: &str, error: &io::Error) -> Failure {
    Failure::new(
        format!("{what}: {error}"),
        "`rl policy pull FILE` writes one to begin with",
    )
}

/// Whole or not at all: a file of limits that ends in the middle would be worse than an old one.
fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    fs::write(&beside, text)
        .and_then(|()| fs::rename(&beside, file))
        .map_err(|error| Failure::new(format!("{}: {error}", file.display()), ""))
}

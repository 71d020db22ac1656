//! `rl policy diff | push | pull FILE`: the policies in a file and on every primary.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::Path;

use rl_client::RlCommands;
use serde::Serialize;
use serde_json::json;

use super::finish;
use crate::args::Policy;
use crate::failure::Failure;
use crate::output;
use crate::policy_set::{Change, PolicySet};
use crate::topology::{Access, Node, Topology};
use crate::{Exit, report};

pub fn run(access: &Access, command: &Policy, json: bool) -> Result<Exit, Failure> {
    match command {
        Policy::Diff { file } => diff(access, file, json),
        Policy::Push { file, prune } => push(access, file, *prune, json),
        Policy::Pull { file, from } => pull(access, file, from.as_deref(), json),
    }
}

/// The policies of the primaries that replied.
struct PrimarySets<'a> {
    sets: Vec<(&'a Node, PolicySet)>,
    failed: Vec<Failure>,
}

impl<'a> PrimarySets<'a> {
    fn read(topology: &'a Topology) -> Self {
        let (mut sets, mut failed) = (Vec::new(), Vec::new());
        let replies = topology.query(topology.primaries(), |connection| {
            connection.rl_policy_dump()
        });
        for (node, dump) in replies {
            let set = dump.and_then(|dump| {
                PolicySet::read(&dump, "RL.POLICY DUMP").map_err(|failure| Failure {
                    node: Some(node.name.clone()),
                    ..failure
                })
            });
            match set {
                Ok(set) => sets.push((node, set)),
                Err(failure) => failed.push(failure),
            }
        }
        Self { sets, failed }
    }

    /// Groups the nodes that have the same policies.
    fn groups(&self) -> Vec<(Vec<&'a Node>, &PolicySet)> {
        let mut groups: Vec<(Vec<&Node>, &PolicySet)> = Vec::new();
        for (node, set) in &self.sets {
            match groups.iter_mut().find(|(_, other)| *other == set) {
                Some((nodes, _)) => nodes.push(node),
                None => groups.push((vec![node], set)),
            }
        }
        groups
    }
}

fn names(nodes: &[&Node]) -> Vec<String> {
    nodes.iter().map(|node| node.name.clone()).collect()
}

/// The changes for each group of nodes that have the same policies.
fn changes<'a>(
    current: &'a PrimarySets,
    wanted: &'a PolicySet,
) -> Vec<(Vec<&'a Node>, Vec<Change<'a>>)> {
    let groups = current.groups().into_iter();
    groups
        .map(|(nodes, set)| (nodes, set.changes(wanted)))
        .collect()
}

fn describe(changes: &[(Vec<&Node>, Vec<Change>)]) -> String {
    let mut text = String::new();
    for (nodes, changes) in changes {
        let what = if changes.is_empty() {
            "  same as the file"
        } else {
            ""
        };
        text += &format!("@ {}{what}\n", names(nodes).join(", "));
        text.extend(changes.iter().map(Change::to_string));
    }
    text
}

/// Every change of every node.
fn changes_json<'a>(changes: &'a [(Vec<&Node>, Vec<Change>)]) -> Vec<NodeChange<'a>> {
    let mut all = Vec::new();
    for (nodes, changes) in changes {
        for node in nodes {
            let node = &*node.name;
            all.extend(changes.iter().map(|change| NodeChange { node, change }));
        }
    }
    all
}

#[derive(Serialize)]
struct NodeChange<'a> {
    node: &'a str,
    #[serde(flatten)]
    change: &'a Change<'a>,
}

fn diff(access: &Access, file: &Path, json: bool) -> Result<Exit, Failure> {
    let wanted = read(file)?;
    let topology = access.discover()?;
    let current = PrimarySets::read(&topology);
    let changes = changes(&current, &wanted);
    if json {
        let changes = changes_json(&changes);
        output::print_json(&json!({ "changes": changes, "failed_nodes": current.failed }))?;
    } else {
        output::print(&describe(&changes))?;
    }
    let same = changes.iter().all(|(_, changes)| changes.is_empty());
    let differs = if same { Exit::Success } else { Exit::Negative };
    Ok(differs.max(finish(&current.failed, json)))
}

fn push(access: &Access, file: &Path, prune: bool, json: bool) -> Result<Exit, Failure> {
    let wanted = read(file)?;
    let text = wanted.to_json();
    let topology = access.discover()?;
    let current = PrimarySets::read(&topology);
    let changes = changes(&current, &wanted);
    if !json {
        output::print(&describe(&changes))?;
    }
    finish(&current.failed, json);
    let mut deleted: Vec<&str> = changes
        .iter()
        .flat_map(|(_, changes)| changes.iter().filter(|change| change.deletes()))
        .map(|change| change.policy)
        .collect();
    deleted.sort_unstable();
    deleted.dedup();
    if !deleted.is_empty() && !prune && !(confirmed(&deleted, file, json)?) {
        return Err(Failure::new(
            format!("nothing was changed: the file lacks {}", deleted.join(", ")),
            "--prune deletes what the file lacks; `rl policy pull FILE` writes the current policies",
        ));
    }

    // Push to nodes without changes too: their policies may have changed in the meantime.
    let targets = current.sets.iter().map(|(node, _)| *node).collect();
    let replies = topology.query(targets, |connection| connection.rl_policy_load(&text));
    let (mut pushed, mut failed) = (Vec::new(), current.failed.clone());
    for (node, reply) in replies {
        let failure = match reply {
            Ok(count) if count == wanted.len() => {
                pushed.push(node);
                continue;
            }
            Ok(count) => Failure {
                node: Some(node.name.clone()),
                ..Failure::new(
                    format!("has {count} policies after the push, not {}", wanted.len()),
                    "someone else is changing them at the same time: `rl policy diff` shows the current ones",
                )
            },
            Err(failure) => failure,
        };
        finish(std::slice::from_ref(&failure), json);
        failed.push(failure);
    }
    if json {
        let all = json!({
            "policy_count": wanted.len(),
            "pushed_to": names(&pushed),
            "changes": changes_json(&changes),
            "failed_nodes": failed,
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
            wanted.len(),
            names(&pushed).join(", ")
        ))?;
        if !failed.is_empty() {
            let error = format!("{} primaries were not changed", failed.len());
            let hint = "push again when they are back: until then they use their old policies";
            report(&Failure::new(error, hint), json);
        }
    }
    Ok(if failed.is_empty() {
        Exit::Success
    } else {
        Exit::Failed
    })
}

/// Asks for confirmation in a terminal, unless the file comes from the standard input.
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

fn pull(access: &Access, file: &Path, from: Option<&str>, json: bool) -> Result<Exit, Failure> {
    let topology = access.discover()?;
    let current = PrimarySets::read(&topology);
    let groups = current.groups();
    let chosen = match from {
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
                    "the primaries have different policies: {}",
                    sides.join(" differ from ")
                ),
                "--from HOST:PORT selects one; `rl policy diff FILE` compares them with a file",
            ));
        }
        None => groups.first(),
    };
    let Some((nodes, set)) = chosen else {
        return Err(match current.failed.into_iter().next() {
            Some(failure) => failure,
            None => Failure::new(
                format!("{} is not a primary", from.unwrap_or("the server")),
                format!(
                    "the primaries are {}",
                    names(&topology.primaries()).join(", ")
                ),
            ),
        });
    };
    let text = format!("{}\n", set.to_json());
    if is_dash(file) {
        output::print(&text)?;
    } else {
        write(file, &text)?;
        let nodes = names(nodes);
        if json {
            output::print_json(&json!({
                "file": file, "policy_count": set.len(), "pulled_from": nodes, "failed_nodes": current.failed
            }))?;
        } else {
            let count = set.len();
            output::print(&format!(
                "{}: {count} policies from {}\n",
                file.display(),
                nodes.join(", ")
            ))?;
        }
    }
    if from.is_some() {
        return Ok(Exit::Success);
    }
    Ok(finish(&current.failed, json))
}

fn is_dash(file: &Path) -> bool {
    file == Path::new("-")
}

fn read(file: &Path) -> Result<PolicySet, Failure> {
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
    PolicySet::read(&text, &name)
}

fn unreadable(what: &str, error: &io::Error) -> Failure {
    Failure::new(
        format!("{what}: {error}"),
        "`rl policy pull FILE` writes one to start with",
    )
}

/// Writes the whole file or nothing: a truncated file would be worse than the old one.
fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let mut temporary = file.as_os_str().to_owned();
    temporary.push(".new");
    fs::write(&temporary, text)
        .and_then(|()| fs::rename(&temporary, file))
        .map_err(|error| Failure::new(format!("{}: {error}", file.display()), ""))
}

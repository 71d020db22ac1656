//! The examples in the documentation answer what it says.

#![allow(clippy::unwrap_used)]

mod support;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use redis::Value;
use rstest::rstest;
use support::{Server, error_text};

/// Blocks that begin with ```redis hold calls (`> RL.…`) and what redis-cli prints.
fn examples(page: &str) -> Vec<(String, String)> {
    let mut examples: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == "```redis";
        } else if inside && let Some(call) = line.strip_prefix("> ") {
            examples.push((call.to_owned(), String::new()));
        } else if inside {
            writeln!(examples.last_mut().unwrap().1, "{line}").unwrap();
        }
    }
    examples
}

/// A reply as redis-cli prints it to a person.
fn print(value: &Value, indent: usize) -> String {
    match value {
        Value::Int(number) => format!("(integer) {number}\n"),
        Value::SimpleString(text) => format!("{text}\n"),
        Value::Okay => "OK\n".to_owned(),
        Value::Nil => "(nil)\n".to_owned(),
        Value::BulkString(bytes) => format!("\"{}\"\n", bytes.escape_ascii()),
        Value::Array(items) => {
            let mut text = String::new();
            let width = items.len().to_string().len();
            for (n, item) in items.iter().enumerate() {
                let margin = if n == 0 { 0 } else { indent };
                let item = print(item, indent + width + 2);
                write!(text, "{:margin$}{:width$}) {item}", "", n + 1).unwrap();
            }
            text
        }
        other => panic!("no example has {other:?}"),
    }
}

/// The same words; waits may be a little shorter, for time passes between the calls. A page says `…` in
/// place of what is different each time, such as a Unix time or (in quotes) a client's address.
fn alike(expected: &str, actual: &str) -> bool {
    expected.lines().count() == actual.lines().count()
        && expected
            .lines()
            .zip(actual.lines())
            .all(|(expected, actual)| match expected.strip_suffix("\"…\"") {
                Some(label) => actual.starts_with(label) && actual.ends_with('"'),
                None => alike_line(expected, actual),
            })
}

fn alike_line(expected: &str, actual: &str) -> bool {
    let (expected, actual): (Vec<_>, Vec<_>) = (
        expected.split_whitespace().collect(),
        actual.split_whitespace().collect(),
    );
    expected.len() == actual.len()
        && expected.iter().zip(&actual).all(|(expected, actual)| {
            match (expected.parse::<i64>(), actual.parse::<i64>()) {
                (Err(_), Ok(_)) if *expected == "…" => true,
                (Ok(says), Ok(is)) if says >= 200 => is <= says && says - is <= 150.max(says / 50),
                _ => expected == actual,
            }
        })
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let commands = fs::read_dir(root.join("docs/commands")).unwrap();
    let mut pages: Vec<_> = commands.map(|entry| entry.unwrap().path()).collect();
    pages.push(root.join("README.md"));
    pages.push(root.join("docs/policies.md"));
    pages
}

#[rstest]
fn every_example_answers_what_its_page_says() {
    for path in pages() {
        let page = fs::read_to_string(&path).unwrap();
        let examples = examples(&page);
        assert!(!examples.is_empty(), "{} has no example", path.display());
        // CL.THROTTLE is there only if asked for.
        let server = Server::with_arguments(&["throttle-compat", "yes"]);
        let mut con = server.connect();
        for (call, expected) in examples {
            let mut words = call.split_whitespace();
            let mut command = redis::cmd(words.next().unwrap());
            for word in words {
                command.arg(word);
            }
            let actual = match command.query::<Value>(&mut con) {
                Ok(value) => print(&value, 0),
                Err(error) => format!("(error) {}\n", error_text(&error)),
            };
            assert!(
                alike(&expected, &actual),
                "{}: {call}\nsays\n{expected}is\n{actual}",
                path.display()
            );
        }
    }
}

#[rstest]
fn every_command_has_its_page() {
    let server = Server::start();
    let commands: Vec<Value> = server.run("COMMAND", &[]);
    let names = commands.iter().filter_map(|command| match command {
        Value::Array(fields) => redis::from_redis_value::<String>(fields[0].clone()).ok(),
        _ => None,
    });
    let ours: Vec<_> = names
        .map(|name| name.to_lowercase())
        .filter(|name| name.starts_with("rl."))
        .collect();
    assert!(ours.len() >= 12, "{ours:?}");
    for name in ours {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/commands/{name}.md"));
        assert!(page.exists(), "{} is missing", page.display());
    }
}

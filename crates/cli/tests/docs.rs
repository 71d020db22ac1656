//! The examples in docs/cli.md are correct.

use std::fs;
use std::path::Path;
use std::process::Command;

use rl_testkit::{Server, TempDir, ask, eventually, root, try_ask};
use rstest::rstest;

use crate::support::{RL, command, rl};

fn page() -> String {
    fs::read_to_string(root().join("docs/cli.md")).unwrap()
}

/// The code blocks of one kind.
fn blocks<'a>(page: &'a str, kind: &str) -> Vec<&'a str> {
    let begin = format!("```{kind}\n");
    let parts = page.split(&begin).skip(1);
    parts
        .map(|part| part.split("\n```").next().unwrap())
        .collect()
}

/// `1m`, `59s`, `(71998`: part of a duration.
fn is_duration(word: &str) -> bool {
    let number = word.trim_start_matches('(');
    let unit = number.trim_start_matches(|letter: char| letter.is_ascii_digit());
    unit.len() < number.len()
        && (["ms", "s", "m", "h", "d"].contains(&unit) || word.starts_with('('))
}

/// Compares words, whatever the space between them; `…` matches any word, or any part of one, and a duration any other.
fn alike(expected: &str, actual: &str) -> bool {
    let (expected, actual): (Vec<_>, Vec<_>) = (
        expected.split_whitespace().collect(),
        actual.split_whitespace().collect(),
    );
    let same = |(expected, actual): (&&str, &&str)| match expected.split_once('…') {
        Some((begin, end)) => actual.starts_with(begin) && actual.ends_with(end),
        None => expected == actual || is_duration(expected) && is_duration(actual),
    };
    expected.len() == actual.len() && expected.iter().zip(&actual).all(same)
}

#[rstest]
fn the_examples_print_what_the_page_says() {
    let (server, folder) = (Server::start(), TempDir::new());
    let page = page().replace("10.0.0.1:6379", &server.address());
    folder.write("policies.json", blocks(&page, "json")[0]);
    let path = format!(
        "{}:{}",
        Path::new(RL).parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let mut run = 0;
    for block in blocks(&page, "console") {
        for example in block.split("$ ").skip(1) {
            let (line, expected) = example.split_once('\n').unwrap_or((example, ""));
            let output = Command::new("sh")
                .args(["-c", &format!("{line} 2>&1")])
                .current_dir(folder.path(""))
                .env("PATH", &path)
                .env("RL_URL", server.url())
                .output()
                .unwrap();
            let actual = String::from_utf8(output.stdout).unwrap();
            assert!(
                alike(expected, &actual),
                "{line}\nsays\n{expected}\nis\n{actual}"
            );
            run += 1;
        }
    }
    assert!(run >= 8, "only {run} examples");
}

#[rstest]
fn every_command_is_on_the_page() {
    let help = rl("redis://127.0.0.1:1", &["--help"]).exits(0).out;
    let commands = help
        .split("Commands:\n")
        .nth(1)
        .unwrap()
        .split("\n\n")
        .next()
        .unwrap();
    let names: Vec<_> = commands
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() >= 9, "{help}");
    for name in names.iter().filter(|&&name| name != "help") {
        assert!(
            page().contains(&format!("`rl {name} ")) || page().contains(&format!("`rl {name}`")),
            "{name}"
        );
    }
}

#[rstest]
fn the_user_of_the_page_may_do_it_all() {
    let (primary, replica, folder) = (Server::start(), Server::start(), TempDir::new());
    replica.follow(&primary);
    eventually("the primary lists its replica", || {
        primary.info("replication", "connected_slaves") == "1"
    });
    let page = page();
    let line = page
        .lines()
        .find(|line| line.starts_with("ACL SETUSER rl "))
        .unwrap();
    for node in [&primary, &replica] {
        if let Err(error) = try_ask::<()>(&mut node.connect(), line) {
            // Before 7.0, permissions are for whole commands only.
            assert!(error.to_string().contains("config|get"), "{error}");
            let whole = line
                .replace("config|get", "config")
                .replace(" +cluster|nodes +cluster|info", " +cluster");
            ask::<()>(&mut node.connect(), &whole);
        }
    }
    let file = folder.write("policies.json", blocks(&page, "json")[0]);
    let user = format!("redis://rl:secret@{}", primary.address());
    for (args, code) in [
        (&["policy", "push", &file][..], 0),
        (&["policy", "diff", &file], 0),
        (&["policy", "pull", "-"], 0),
        (&["check", "user:42", "free"], 0),
        (&["override", "set", "user:42", "free", "BLOCK"], 0),
        (&["override", "get", "user:42"], 0),
        (&["check", "user:42", "free"], 1),
        (&["override", "del", "user:42", "free"], 0),
        (&["audit"], 0),
        (&["stats"], 0),
        (&["top"], 0),
        // This server saves nothing, which is a warning.
        (&["doctor"], 1),
    ] {
        rl(&user, args).exits(code);
    }
    let doctor = command(&user, &["doctor"]).output().unwrap();
    let report = String::from_utf8(doctor.stdout).unwrap();
    assert!(report.contains("0 problems"), "{report}");
}

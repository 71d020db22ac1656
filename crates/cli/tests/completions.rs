//! Completions, loaded by the shells themselves.

use std::process::Command;

use rl_testkit::TempDir;
use rstest::rstest;

use crate::support::{RL, Terminal, rl};

const NO_SERVER: &str = "redis://127.0.0.1:1";

fn folder_with(shell: &str) -> (TempDir, String) {
    let script = rl(NO_SERVER, &["completions", shell]).exits(0);
    let folder = TempDir::new();
    let file = folder.write("completions", &script.out);
    (folder, file)
}

/// Installs the program as `rl` in a directory on the PATH.
fn path() -> String {
    let folder = std::path::Path::new(RL).parent().unwrap().display();
    format!("{folder}:{}", std::env::var("PATH").unwrap())
}

fn output(shell: &str, args: &[&str]) -> String {
    let output = Command::new(shell).args(args).env("PATH", path()).output();
    let output = output.unwrap_or_else(|error| {
        panic!("{shell} is missing: scripts/install-deps {shell} ({error})")
    });
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[rstest]
fn bash_completes_commands() {
    let (_folder, file) = folder_with("bash");
    let ask = |words: &str, count: usize| {
        let script = format!(
            "source {file}; COMP_WORDS=({words}); COMP_CWORD={count}; _rl rl \"${{COMP_WORDS[{count}]}}\" \"${{COMP_WORDS[$(({count} - 1))]}}\"; echo \"${{COMPREPLY[@]}}\""
        );
        output("bash", &["--norc", "-c", &script])
    };
    assert_eq!(ask("rl pol", 1).trim(), "policy");
    assert!(ask("rl policy pu", 2).trim() == "push pull");
    assert!(ask("rl policy push --pr", 3).contains("--prune"));
}

#[rstest]
fn fish_completes_commands() {
    let (_folder, file) = folder_with("fish");
    let ask = |line: &str| {
        output(
            "fish",
            &[
                "--no-config",
                "-c",
                &format!("source {file}; complete -C '{line}'"),
            ],
        )
    };
    assert!(ask("rl pol").starts_with("policy\t"), "{}", ask("rl pol"));
    assert!(ask("rl policy pu").contains("push\t") && ask("rl policy pu").contains("pull\t"));
    assert!(ask("rl check --fo").contains("--force"));
}

#[rstest]
fn zsh_completes_commands() {
    let (folder, file) = folder_with("zsh");
    let dump = folder.path("zcompdump");
    let terminal = Terminal::run(&format!("PATH={} PS1='ready> ' zsh -f", path()));
    terminal.shows(&["ready>"]);
    let load =
        format!("autoload -Uz compinit && compinit -u -d {dump} && source {file} && echo lo''aded");
    terminal.press(&["-l", &load]);
    terminal.press(&["Enter"]);
    terminal.shows(&["loaded\n"]);
    terminal.press(&["-l", "rl pol"]);
    terminal.press(&["Tab"]);
    terminal.shows(&["ready> rl policy"]);
    terminal.press(&["-l", "pu"]);
    terminal.press(&["Tab"]);
    terminal.shows(&["push", "pull", "Replace the policies"]);
}

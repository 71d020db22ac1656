//! The layout of the sources keeps its promises: the folder of a file determines what it may call.

use std::fs;
use std::path::{Path, PathBuf};

/// All source files of the module, with their paths below `src`.
fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = fs::read_to_string(&path).unwrap();
                sources.push((path.strip_prefix(&root).unwrap().to_owned(), text));
            }
        }
    }
    assert!(sources.len() > 30, "{}", sources.len());
    sources
}

/// Lines of code, without comments.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
}

#[test]
fn the_server_folder_imports_nothing_else_of_the_module() {
    for (path, text) in sources() {
        if path.starts_with("server") {
            for line in code(&text).filter(|line| line.contains("crate::")) {
                assert!(
                    line.contains("$crate::server::"),
                    "{}: {line}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn unsafe_code_is_in_the_server_folder_only() {
    for (path, text) in sources() {
        if !path.starts_with("server") {
            for line in code(&text) {
                assert!(!line.contains("unsafe {"), "{}: {line}", path.display());
            }
        }
    }
}

#[test]
fn only_one_file_stores_expires_signals_and_replicates() {
    const CALLS: [&str; 6] = [
        ".store(update",
        ".store_overrides(",
        ".expire_at",
        ".signal_modified(",
        "replication::send_state(",
        "replication::send_deletion(",
    ];
    let mut found = [false; CALLS.len()];
    for (path, text) in sources() {
        for (call, found) in CALLS.iter().zip(&mut found) {
            let calls = |line: &&str| {
                // Reading an expiry is no change.
                line.contains(call) && !line.contains(".expire_at_ms()")
            };
            if path == Path::new("commit.rs") {
                *found |= code(&text).any(|line| calls(&line));
            } else if !path.starts_with("server") {
                let line = code(&text).find(calls);
                assert!(line.is_none(), "{}: {line:?}", path.display());
            }
        }
    }
    assert_eq!(found, [true; CALLS.len()], "{CALLS:?}");
}

#[test]
fn only_one_file_sends_states_to_replicas() {
    const CALLS: [(&str, &str); 4] = [
        (".replicate_load(", "replication.rs"),
        (".replicate_delete(", "replication.rs"),
        (".replicate_verbatim(", "replication.rs"),
        (".replicate_policies(", "policy/persistence.rs"),
    ];
    for (call, place) in CALLS {
        let sources = sources();
        let senders = sources
            .iter()
            .filter(|(path, _)| !path.starts_with("server"))
            .filter(|(_, text)| code(text).any(|line| line.contains(call)));
        let senders: Vec<_> = senders.map(|(path, _)| path.as_path()).collect();
        assert_eq!(senders, [Path::new(place)], "{call}");
    }
}

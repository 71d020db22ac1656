//! Tests of `rl` as its users run it: as a process, with real servers and in a real terminal.
//!
//! All tests are one program, so that it is linked once: `cargo test -p redis-rl-cli --test suite doctor::` runs one file.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

mod calls;
mod completions;
mod docs;
mod doctor;
mod exporter;
mod policy;
mod top;

#[test]
fn every_test_file_is_part_of_this_program() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    rl_testkit::assert_every_file_is_a_module(folder, include_str!("main.rs"));
}

/// The commands of the module and their replies are typed in rl-client, and nowhere else.
#[test]
fn the_sources_have_no_wire_code() {
    let mut folders = vec![concat!(env!("CARGO_MANIFEST_DIR"), "/src").into()];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir::<std::path::PathBuf>(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(!text.contains("cmd(\"RL."), "{}", path.display());
            files += 1;
        }
    }
    assert!(files > 15, "{files}");
}

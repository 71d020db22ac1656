//! Whatever is in a table (algorithms, options, settings) is in every place that lists its entries. A test names all
//! places that lack an entry, so that a change needs no search.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;

use redis::Value;
use rl_core::syntax::CallFlags;
use rl_core::{Algorithm, Descriptor, ENCODING_VERSION, ParameterKind, check_version};
use rl_testkit::{MultiReply, Reply, Server, not_tested, root};
use rstest::rstest;

/// Files that mention every algorithm which has a command: lists for readers, and tests that call all of them.
const ALL_ALGORITHMS: [&str; 35] = [
    "README.md",
    "benches/server/contender.rs",
    "crates/client/src/commands/mod.rs",
    "crates/core/benches/evaluate.rs",
    "crates/core/tests/oracle/usage.rs",
    "crates/core/tests/syntax.rs",
    "crates/testkit/src/random.rs",
    "docs/algorithms.md",
    "docs/commands/rl.inspect.md",
    "docs/commands/rl.multi.md",
    "docs/commands/rl.peek.md",
    "docs/reliability.md",
    "fuzz/fuzz_targets/state.rs",
    "llms.txt",
    "scripts/memcheck",
    "src/lib.rs",
    "tests/acl.rs",
    "tests/aof.rs",
    "tests/clock.rs",
    "tests/cluster.rs",
    "tests/commands.rs",
    "tests/concurrency.rs",
    "tests/containers/soak.rs",
    "tests/containers/upgrade.rs",
    "tests/denials.rs",
    "tests/io_threads.rs",
    "tests/malformed_input.rs",
    "tests/memory.rs",
    "tests/nemesis/traffic.rs",
    "tests/protocol.rs",
    "tests/rdb.rs",
    "tests/replication.rs",
    "tests/restore.rs",
    "tests/server_integration.rs",
    "tests/upgrades.rs",
];

/// Files that mention every algorithm which may be part of a policy or can be refunded: all but leases.
const ALL_BUT_LEASES: [&str; 5] = [
    "crates/core/tests/encoding.rs",
    "crates/core/tests/policies.rs",
    "crates/core/tests/policy_state.rs",
    "docs/commands/rl.policy.md",
    "docs/commands/rl.refund.md",
];

fn descriptors() -> impl Iterator<Item = &'static Descriptor> {
    let all = Algorithm::ALL
        .iter()
        .map(|algorithm| algorithm.descriptor());
    all.filter(|descriptor| descriptor.command.is_some())
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_default()
}

fn has_word(text: &str, word: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|other| other.eq_ignore_ascii_case(word))
}

/// Parameters that an algorithm accepts: a limit that the calls of a test do not reach.
fn parameters(descriptor: &Descriptor) -> Vec<&'static str> {
    let value = |kind| match kind {
        ParameterKind::Integer => "1000",
        ParameterKind::Duration => "1h",
        _ => "text",
    };
    let parameters = descriptor.parameters.iter();
    parameters.map(|parameter| value(parameter.kind)).collect()
}

#[test]
fn every_place_that_lists_the_algorithms_has_all_of_them() {
    let mut missing = String::new();
    let golden: Vec<String> = fs::read_dir(root().join("tests/fixtures"))
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path().join("keys.txt")).unwrap_or_default())
        .collect();
    for descriptor in descriptors() {
        let name = descriptor.name;
        let files = ALL_ALGORITHMS.iter();
        let others = ALL_BUT_LEASES.iter().filter(|_| name != "LEASE");
        for file in files.chain(others) {
            if !has_word(&read(file), name) {
                writeln!(missing, "{file} lacks {name}").unwrap();
            }
        }
        for page in ["rl.multi.md", "rl.peek.md"] {
            if !read(&format!("docs/commands/{page}")).contains(&descriptor.to_string()) {
                writeln!(missing, "docs/commands/{page} lacks {descriptor}").unwrap();
            }
        }
        let page = format!("docs/commands/rl.{}.md", name.to_lowercase());
        let mut synopsis = format!("RL.{name} key");
        for parameter in descriptor.parameters {
            write!(synopsis, " {parameter}").unwrap();
        }
        for file in [&page, "README.md", "src/lib.rs"] {
            if !read(file).contains(&synopsis) {
                writeln!(missing, "{file} lacks {synopsis}").unwrap();
            }
        }
        let (test, type_name) = (name.to_lowercase(), descriptor.type_name.to_string_lossy());
        let test = format!("crates/core/tests/{test}.rs");
        if read(&test).is_empty() {
            writeln!(missing, "{test} is missing").unwrap();
        }
        if !golden.iter().any(|keys| keys.contains(&*type_name)) {
            writeln!(missing, "tests/fixtures has no golden files of {type_name}").unwrap();
        }
    }
    assert!(missing.is_empty(), "\n{missing}");
}

/// From one command to replica, file and backup, with arguments that come from the table.
#[rstest]
fn every_algorithm_works_from_end_to_end() {
    let (primary, replica) = (Server::start(), Server::start());
    replica.follow(&primary);
    for descriptor in descriptors() {
        let (name, parameters) = (descriptor.name, parameters(descriptor));
        let call = |key: &str, more: &[&str]| -> Reply {
            let args = [&[key], &parameters[..], more].concat();
            primary.run(&format!("RL.{name}"), &args)
        };
        let reply = call(name, &["7"]);
        assert_eq!((reply.0, reply.1, reply.2), (1, 1000, 993), "{name}");
        assert_eq!(call(&format!("{name}:peek"), &["PEEK"]).0, 1);
        assert_eq!(call(&format!("{name}:forced"), &["1001", "FORCE"]).2, 0);
        assert_eq!(call(&format!("{name}:denied"), &["1001"]).3, -1);
        let type_name: String = primary.run("TYPE", &[name]);
        assert_eq!(type_name, descriptor.type_name.to_string_lossy());

        let spec = format!("{name} {} 3", parameters.join(" "));
        let multi: MultiReply = primary.run("RL.MULTI", &[&format!("{name}:multi"), &spec]);
        assert_eq!(multi.2[0].2, 997, "{name}");
        let peeked: Reply = replica.run("RL.PEEK", &[&format!("{name}:multi"), &spec]);
        assert_eq!(peeked.1, 1000, "{name}");
        let fields: HashMap<String, Value> = primary.run("RL.INSPECT", &[name]);
        assert_eq!(fields["used"], Value::Int(7), "{name}");
        if name != "LEASE" {
            let policy = [&["SET", name, name], &parameters[..], &["COST", "2"]].concat();
            let _: () = primary.run("RL.POLICY", &policy);
            let checked: Vec<i64> = primary.run("RL.CHECK", &[&format!("{name}:policy"), name]);
            assert_eq!(checked[2], 998, "{name}");
            assert_eq!(primary.run::<i64>("RL.REFUND", &[name, "2"]), 2, "{name}");
        }
        let dump: Vec<u8> = primary.run("DUMP", &[name]);
        let copy = format!("{name}:copy");
        let mut restore = redis::cmd("RESTORE");
        restore.arg(&copy).arg(0).arg(dump);
        restore.exec(&mut primary.connect()).unwrap();
    }
    primary.assert_same_on(&replica);
    replica.assert_received_states_only();
    let before = primary.snapshot();
    let _: () = primary.run("DEBUG", &["RELOAD"]);
    before.assert_same(&primary.snapshot());
}

#[test]
fn every_place_that_lists_the_options_has_all_of_them() {
    let pages = descriptors().map(|descriptor| {
        let command = descriptor.name.to_lowercase();
        format!("docs/commands/rl.{command}.md")
    });
    let others = [
        "crates/cli/src/args.rs",
        "crates/client/src/commands/args.rs",
        "crates/testkit/src/random.rs",
        "docs/commands/rl.check.md",
        "docs/commands/rl.first.md",
        "docs/commands/rl.multi.md",
        "scripts/memcheck",
        "src/commands/one_limit.rs",
    ];
    let mut missing = String::new();
    for file in pages.chain(others.map(str::to_owned)) {
        let text = read(&file);
        for (name, _) in CallFlags::all().iter_names() {
            if !has_word(&text, name) {
                writeln!(missing, "{file} lacks {name}").unwrap();
            }
        }
    }
    assert!(missing.is_empty(), "\n{missing}");
}

#[test]
fn every_version_of_the_encoding_is_read_and_has_golden_files() {
    for version in 1..=ENCODING_VERSION {
        assert_eq!(
            check_version(version),
            Ok(()),
            "version {version} is not read"
        );
        let folder = format!("v{version}");
        let keys = read(&format!("tests/fixtures/{folder}/keys.txt"));
        assert!(!keys.is_empty(), "tests/fixtures/{folder} is missing");
        let listed = read("tests/upgrades.rs").contains(&format!("\"{folder}\""));
        assert!(listed, "tests/upgrades.rs does not load {folder}");
    }
}

#[rstest]
fn every_setting_is_documented_and_tested() {
    let server = Server::start();
    let settings: HashMap<String, String> = server.run("CONFIG", &["GET", "rl.*"]);
    if settings.is_empty() {
        not_tested("this server has no CONFIG for modules");
        return;
    }
    let mut missing = String::new();
    for (name, default) in settings {
        let row = read("docs/deploy.md");
        let row = row
            .lines()
            .find(|line| line.starts_with(&format!("| `{name}` |")));
        let shown = row.and_then(|row| row.split('|').nth(2));
        let shown = shown.map(|shown| shown.replace(char::is_whitespace, ""));
        if shown.as_ref() != Some(&default) {
            writeln!(
                missing,
                "the table in docs/deploy.md lacks {name}, default {default:?}"
            )
            .unwrap();
        }
        if !read("tests/settings.rs").contains(&name) {
            writeln!(missing, "tests/settings.rs lacks {name}").unwrap();
        }
    }
    assert!(missing.is_empty(), "\n{missing}");
}

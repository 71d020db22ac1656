//! The pages are correct: their examples give the replies that they show, and their links work.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use redis::Value;
use rl_testkit::{Server, error_text};
use rstest::rstest;

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

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every page of the project, in order.
fn pages() -> Vec<PathBuf> {
    let folders = ["", "docs", "docs/commands", "docs/clients"];
    let mut pages: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| fs::read_dir(root().join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    pages.push(root().join("llms.txt"));
    pages.sort();
    pages
}

/// The arguments of a line, as redis-cli splits what is typed: `"…"` and `'…'` are one argument.
fn typed(line: &str) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut letters = line.chars().peekable();
    while let Some(&letter) = letters.peek() {
        if letter == ' ' {
            letters.next();
        } else if letter == '"' || letter == '\'' {
            letters.next();
            let argument: String = letters
                .by_ref()
                .take_while(|&next| next != letter)
                .collect();
            assert!(
                !argument.contains('\\'),
                "{line}: escapes are not supported here"
            );
            assert!(
                matches!(letters.peek(), None | Some(' ')),
                "{line}: text after a quote"
            );
            arguments.push(argument);
        } else {
            let argument: String =
                std::iter::from_fn(|| letters.next_if(|&next| next != ' ')).collect();
            // redis-cli answers "Invalid argument(s)".
            assert!(
                !argument.contains(['"', '\'']),
                "{line}: a quote inside an argument"
            );
            arguments.push(argument);
        }
    }
    arguments
}

#[rstest]
fn every_example_replies_what_its_page_says() {
    let mut run = Vec::new();
    for path in pages() {
        let page = fs::read_to_string(&path).unwrap();
        let examples = examples(&page);
        if examples.is_empty() {
            let is_command = path.parent().unwrap().ends_with("commands");
            assert!(!is_command, "{} has no example", path.display());
            continue;
        }
        run.push(path.file_stem().unwrap().to_string_lossy().into_owned());
        // CL.THROTTLE is there only if asked for.
        let server = Server::with_module_args(&["redis-cell-compat", "yes"]);
        let mut con = server.connect();
        for (call, expected) in examples {
            let arguments = typed(&call);
            let mut command = redis::cmd(&arguments[0]);
            command.arg(&arguments[1..]);
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
    for page in ["README", "algorithms", "coming-from", "policies", "recipes"] {
        assert!(
            run.contains(&page.to_owned()),
            "{page} has no example: {run:?}"
        );
    }
}

/// The keys that a call names.
fn keys(call: &str) -> Vec<String> {
    let arguments = typed(call);
    match arguments[0].as_str() {
        "RL.POLICY" | "RL.STATS" | "RL.TOP" | "RL.AUDIT" => Vec::new(),
        "RL.MULTI" => arguments.into_iter().skip(1).step_by(2).collect(),
        "RL.OVERRIDE" => arguments.into_iter().skip(2).take(1).collect(),
        _ => arguments.into_iter().skip(1).take(1).collect(),
    }
}

/// So that a reader who types the examples of two pages into one server gets the replies of both.
#[rstest]
fn no_two_pages_use_the_same_key() {
    let mut seen: HashMap<String, PathBuf> = HashMap::new();
    for path in pages() {
        for (call, _) in examples(&fs::read_to_string(&path).unwrap()) {
            for key in keys(&call) {
                let page = seen.entry(key.clone()).or_insert_with(|| path.clone());
                assert_eq!(*page, path, "both use {key}");
            }
        }
    }
    assert!(seen.len() > 40, "{seen:?}");
}

/// A heading's anchor, as GitHub derives it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text
        .chars()
        .filter(|letter| letter.is_alphanumeric() || "-_ ".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

/// The text outside of code blocks.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    page.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}

#[rstest]
fn every_link_leads_somewhere() {
    let mut followed = 0;
    for path in pages() {
        let page = fs::read_to_string(&path).unwrap();
        for link in prose(&page).flat_map(|line| line.split("](").skip(1)) {
            let link = link.split(')').next().unwrap();
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            assert!(target.exists(), "{}: {link}", path.display());
            if !heading.is_empty() {
                let target = fs::read_to_string(target).unwrap();
                let mut headings = prose(&target).filter(|line| line.starts_with('#'));
                let found = headings.any(|line| anchor(line) == heading);
                assert!(found, "{}: no heading for {link}", path.display());
            }
            followed += 1;
        }
    }
    assert!(followed > 200, "only {followed} links");
}

/// Screen readers read a figure's title aloud.
#[rstest]
fn every_figure_has_a_title() {
    let folders = ["docs/algorithms", "docs/benchmarks"];
    let files = folders.map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let mut figures = 0;
    for path in files.into_iter().flatten().map(|file| file.unwrap().path()) {
        if path.extension().is_some_and(|extension| extension == "svg") {
            let figure = fs::read_to_string(&path).unwrap();
            assert!(figure.contains("<title>"), "{}", path.display());
            figures += 1;
        }
    }
    assert!(figures >= 10, "{figures} figures");
}

#[rstest]
#[case::index("docs/README.md", "")]
#[case::map("llms.txt", "docs/")]
fn every_page_is_in_the(#[case] list: &str, #[case] prefix: &str) {
    let text = fs::read_to_string(root().join(list)).unwrap();
    for path in pages() {
        let Ok(page) = path.strip_prefix(root().join("docs")) else {
            continue;
        };
        let link = format!("]({prefix}{}", page.display());
        let is_the_list = path == root().join(list);
        assert!(is_the_list || text.contains(&link), "{list} lacks {link})");
    }
}

#[rstest]
fn every_command_has_its_page() {
    let server = Server::start();
    let commands: Vec<Value> = server.run("COMMAND", &[]);
    let name = |command: &Value| match command {
        Value::Array(fields) => redis::from_redis_value::<String>(fields[0].clone()).ok(),
        _ => None,
    };
    let mut ours = 0;
    for command in &commands {
        let lowercase = name(command).map(|name| name.to_lowercase());
        let Some(name_of_command) = lowercase.filter(|name| name.starts_with("rl.")) else {
            continue;
        };
        ours += 1;
        let path = root().join(format!("docs/commands/{name_of_command}.md"));
        let page = fs::read_to_string(&path).unwrap_or_else(|_| panic!("{path:?} is missing"));
        let synopsis = page.split("```").nth(1).unwrap();
        // Redis 6.2 has no subcommands.
        let Value::Array(fields) = command else {
            continue;
        };
        let Some(Value::Array(subcommands)) = fields.get(9) else {
            continue;
        };
        for subcommand in subcommands.iter().filter_map(name) {
            let call = subcommand.replace('|', " ").to_uppercase();
            assert!(
                synopsis.contains(&call),
                "{path:?} has no synopsis of {call}"
            );
        }
    }
    assert!(ours >= 12, "{ours}");
}

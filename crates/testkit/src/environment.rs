//! What the tests run against: the server binary, the module, and what they can do.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::Server;

/// The server binary to test against.
pub fn server_binary() -> String {
    std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into())
}

/// The root folder of the repository.
pub fn root() -> &'static Path {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    crates.and_then(Path::parent).unwrap()
}

/// The module under test. Without `RL_MODULE` it is built once per test program.
pub fn module() -> &'static Path {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE.get_or_init(|| {
        if let Ok(path) = std::env::var("RL_MODULE") {
            let path = root().join(path);
            return fs::canonicalize(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        }
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--lib"])
            .current_dir(root())
            .status()
            .unwrap();
        assert!(built.success(), "the module does not build");
        // Test programs run from target/<profile>/deps/.
        let exe = std::env::current_exe().unwrap();
        let target = exe.parent().unwrap().parent().unwrap();
        let name = format!("librl{}", std::env::consts::DLL_SUFFIX);
        target.with_file_name("debug").join(name)
    })
}

/// Whether the server has a configuration directive. Versions differ, and names are safer than version numbers.
pub fn has_directive(directive: &str) -> bool {
    static KNOWN: OnceLock<Vec<String>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| {
        let server = Server::without_module(&[]);
        let all: Vec<String> = server.run("CONFIG", &["GET", "*"]);
        all.into_iter().step_by(2).collect()
    });
    known.iter().any(|name| name == directive)
}

/// The configuration that every server with the module starts with.
pub fn base_config() -> Vec<&'static str> {
    // A full sync need not wait for other replicas to join it.
    let mut config = vec!["save", "", "repl-diskless-sync-delay", "0"];
    for directive in ["enable-debug-command", "enable-module-command"] {
        if has_directive(directive) {
            config.extend([directive, "yes"]);
        }
    }
    config
}

/// Reports something that cannot be tested with this server. It bypasses `println!`, whose output is hidden when a
/// test passes.
pub fn not_tested(why: &str) {
    let _ = writeln!(std::io::stderr(), "NOT TESTED: {why}");
}

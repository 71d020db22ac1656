//! The docker command line.

use std::process::Command;

/// The image under test.
pub fn image() -> String {
    std::env::var("RL_IMAGE").expect("RL_IMAGE is not set: run these by `make test-containers`")
}

/// The image of the version before.
pub fn old_image() -> String {
    std::env::var("RL_OLD_IMAGE")
        .expect("RL_OLD_IMAGE is not set: run these by `make test-containers`")
}

/// The image of the example gateway.
pub fn gateway_image() -> String {
    std::env::var("RL_GATEWAY_IMAGE")
        .expect("RL_GATEWAY_IMAGE is not set: run these by `make test-containers`")
}

/// Marks all that a run makes, so that it can be found and removed.
pub fn label() -> String {
    format!(
        "rl-test={}",
        std::env::var("RL_TEST_RUN").unwrap_or_default()
    )
}

pub fn docker(args: &[&str]) -> String {
    try_docker(args).unwrap_or_else(|error| panic!("docker {}: {error}", args.join(" ")))
}

pub fn try_docker(args: &[&str]) -> Result<String, String> {
    output(Command::new("docker").args(args))
}

pub fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr) + &text(&output.stdout))
    }
}

//! A real terminal.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::sleep;
use std::time::Duration;

use rl_testkit::Deadline;

/// A tmux terminal on its own socket.
pub struct Terminal {
    socket: String,
}

impl Terminal {
    /// Runs a command line of the shell in a new terminal.
    pub fn run(shell_line: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let terminal = Self {
            socket: format!(
                "rl-cli-{}-{}",
                std::process::id(),
                NUMBER.fetch_add(1, Relaxed)
            ),
        };
        terminal.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "120",
            "-y",
            "40",
            shell_line,
        ]);
        terminal
    }

    fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-u", "-L", &self.socket])
            .args(args)
            .env_remove("TMUX")
            .env("LC_ALL", "C.UTF-8")
            .output()
            .expect("tmux is missing: scripts/install-deps tmux");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// What the terminal shows.
    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Presses keys, named as in tmux: `q`, `Tab`, `Enter`.
    pub fn press(&self, keys: &[&str]) {
        let mut args = vec!["send-keys"];
        args.extend(keys);
        self.tmux(&args);
    }

    /// Waits until the screen shows all of these texts.
    #[track_caller]
    pub fn shows(&self, texts: &[&str]) -> String {
        let deadline = Deadline::start();
        loop {
            let screen = self.screen();
            if texts.iter().all(|text| screen.contains(text)) {
                return screen;
            }
            deadline.check(&format!("the terminal shows {texts:?}:\n{screen}"));
            sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux")
            .args(["-L", &self.socket, "kill-server"])
            .output();
    }
}

//! What a history did, step by step, with the time since its start.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Instant;

pub struct Trace {
    start: Instant,
    lines: Mutex<Vec<String>>,
    echo: bool,
}

impl Trace {
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            lines: Mutex::new(Vec::new()),
            echo: std::env::var_os("RL_NEMESIS_VERBOSE").is_some(),
        }
    }

    pub fn step(&self, what: &str) {
        let mut lines = self.lines.lock().unwrap();
        let line = format!(
            "{:4}  {:8.3} s  {what}",
            lines.len() + 1,
            self.start.elapsed().as_secs_f64()
        );
        if self.echo {
            eprintln!("{line}");
        }
        lines.push(line);
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        for line in self.lines.lock().unwrap().iter() {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

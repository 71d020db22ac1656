//! Results: a table for a person, JSON for a program.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use crate::load::Sample;

/// Each contender's rounds.
pub type Samples = [(String, Vec<Sample>)];

/// The whole run.
pub struct Report {
    pub quick: bool,
    pub server: String,
    pub tables: Vec<Table>,
}

/// One table: a title, what its columns mean, and a line for each contender.
pub struct Table {
    pub id: &'static str,
    pub title: String,
    pub columns: Vec<String>,
    pub rows: Vec<(String, Vec<String>)>,
    /// Bare numbers by row and column, for figures and programs.
    pub numbers: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Table {
    pub fn new(id: &'static str, title: impl Into<String>, columns: &[&str]) -> Self {
        Self {
            id,
            title: title.into(),
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            rows: Vec::new(),
            numbers: BTreeMap::new(),
        }
    }

    pub fn row(&mut self, name: &str, cells: &[(f64, String)]) {
        let numbers = self
            .columns
            .iter()
            .cloned()
            .zip(cells.iter().map(|&(number, _)| number));
        self.numbers.insert(name.to_owned(), numbers.collect());
        self.rows.push((
            name.to_owned(),
            cells.iter().map(|(_, text)| text.clone()).collect(),
        ));
    }

    fn text(&self) -> String {
        let mut text = format!("### {}\n\n| |", self.title);
        for column in &self.columns {
            write!(text, " {column} |").unwrap();
        }
        write!(text, "\n|---|{}\n", "---|".repeat(self.columns.len())).unwrap();
        for (name, cells) in &self.rows {
            writeln!(text, "| {name} | {} |", cells.join(" | ")).unwrap();
        }
        text
    }
}

impl Report {
    pub fn new(quick: bool) -> Self {
        Self {
            quick,
            server: String::new(),
            tables: Vec::new(),
        }
    }

    pub fn rounds(&self) -> usize {
        if self.quick { 3 } else { 11 }
    }

    pub fn add(&mut self, table: Table) {
        println!("\n{}", table.text());
        self.tables.push(table);
    }

    pub fn print(&self) {
        println!("\n{}\n", self.heading());
    }

    fn heading(&self) -> String {
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = cpu
            .lines()
            .find_map(|line| line.strip_prefix("model name"))
            .unwrap_or(": unknown");
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let day = std::process::Command::new("date").arg("+%F").output();
        let day = day.map_or(String::new(), |day| {
            String::from_utf8_lossy(&day.stdout).trim().to_owned()
        });
        let cpu = cpu.trim_start_matches([':', ' ', '\t']);
        format!(
            "{}, {cores} cores ({cpu}), {day}, median of {} rounds",
            self.server,
            self.rounds()
        )
    }

    /// `docs/benchmarks.md`, and `docs/benchmarks/results.json` for programs.
    pub fn write(&self) {
        std::fs::create_dir_all("docs/benchmarks").unwrap();
        let tables: Vec<Value> = self
            .tables
            .iter()
            .map(|table| json!({"id": table.id, "title": table.title, "rows": table.numbers}))
            .collect();
        let all = json!({"run": self.heading(), "tables": tables});
        std::fs::write("docs/benchmarks/results.json", format!("{all:#}\n")).unwrap();
        let mut text = format!(
            "{}\nThis run: {}.\n",
            include_str!("intro.md"),
            self.heading()
        );
        for table in &self.tables {
            write!(text, "\n{}", table.text()).unwrap();
            if let Some(figure) = crate::figures::of(table) {
                write!(text, "\n![{}](benchmarks/{figure}.svg)\n", table.title).unwrap();
            }
        }
        std::fs::write("docs/benchmarks.md", text).unwrap();
    }
}

pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        (values[middle - 1] + values[middle]) / 2.0
    } else {
        values[middle]
    }
}

pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

/// Throughput and CPU time of each contender, and its speed as a multiple of another's in the same round.
pub fn compare(table: &mut Table, samples: &Samples, base: &str) {
    for (name, own) in samples {
        let rate = 1e9 / median(&mut own.iter().map(|sample| sample.wall_ns).collect::<Vec<_>>());
        let cpu = median(&mut own.iter().map(|sample| sample.cpu_ns).collect::<Vec<_>>());
        let cells = [
            (rate, format!("{:.0} K/s", rate / 1000.0)),
            (cpu, format!("{:.2} µs", cpu / 1000.0)),
            speed(samples, name, base),
        ];
        table.row(name, &cells);
    }
}

/// How many times as fast `name` was as `base`: the median of the rounds' ratios, with its quartiles.
pub fn speed(samples: &Samples, name: &str, base: &str) -> (f64, String) {
    let of = |wanted: &str| {
        let mut all = samples.iter();
        let (_, samples) = all.find(|(name, _)| name == wanted).expect("a contender");
        samples.iter().map(|sample| sample.wall_ns)
    };
    let mut ratios: Vec<f64> = of(base).zip(of(name)).map(|(b, own)| b / own).collect();
    let ratio = median(&mut ratios);
    let (low, high) = (percentile(&ratios, 0.25), percentile(&ratios, 0.75));
    (ratio, format!("{ratio:.2}× ({low:.2}–{high:.2})"))
}

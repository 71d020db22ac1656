//! Markdown tables that are also readable in a terminal, and the page that contains them.

use std::fs;

pub struct Table {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(heads: &[&str]) -> Self {
        Self {
            heads: heads.iter().map(|&head| head.into()).collect(),
            rows: Vec::new(),
        }
    }

    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    fn markdown(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().chain([&self.heads]);
            cells.map(|row| row[column].chars().count()).max()
        };
        let widths: Vec<_> = (0..self.heads.len()).filter_map(width).collect();
        let line = |cells: &Vec<String>| {
            let pad = |(cell, &width): (&String, _)| format!(" {cell:<width$} |");
            let cells: String = cells.iter().zip(&widths).map(pad).collect();
            format!("|{cells}\n")
        };
        let rules: String = widths
            .iter()
            .map(|width| format!("{:-<width$}--|", ""))
            .collect();
        let rows: String = self.rows.iter().map(line).collect();
        format!("{}|{rules}\n{rows}", line(&self.heads))
    }
}

/// The tables of the page, by id.
#[derive(Default)]
pub struct Page {
    tables: Vec<(&'static str, String)>,
}

impl Page {
    pub fn add(&mut self, id: &'static str, table: Table) {
        self.tables.push((id, table.markdown()));
    }

    pub fn print(&self) {
        for (id, table) in &self.tables {
            println!("{id}\n\n{table}");
        }
    }

    /// Writes every table between `<!-- table: id -->` and `<!-- end -->`.
    pub fn write(&self, file: &str) {
        let mut page = fs::read_to_string(file).expect("run this in the root of the repository");
        for (id, table) in &self.tables {
            let begin = format!("<!-- table: {id} -->\n");
            let (before, rest) = page.split_once(&begin).expect("a place for each table");
            let (_, after) = rest
                .split_once("<!-- end -->")
                .expect("an end of each place");
            page = format!("{before}{begin}\n{table}\n<!-- end -->{after}");
        }
        fs::write(file, page).unwrap();
    }
}

/// A percentage with two or three significant digits.
pub fn percent(part: u64, whole: u64) -> String {
    let share = part as f64 / whole as f64 * 100.0;
    match share {
        0.0 => "0".into(),
        10.0.. => format!("{share:.0} %"),
        1.0.. => format!("{share:.1} %"),
        0.1.. => format!("{share:.2} %"),
        0.01.. => format!("{share:.3} %"),
        0.001.. => format!("{share:.4} %"),
        _ => format!("{share:.5} %"),
    }
}

pub fn times(units: u64, limit: u64) -> String {
    format!("{:.2}×", units as f64 / limit as f64)
}

pub fn seconds(us: u64) -> String {
    match us as f64 / 1e6 {
        s @ 1.0.. => format!("{s:.1} s"),
        s => format!("{:.0} ms", s * 1000.0),
    }
}

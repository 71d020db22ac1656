//! Output for people and programs.

use std::fmt::Write;
use std::io::{self, Write as _};

use serde::Serialize;

use crate::failure::Failure;

/// Prints to the standard output. It is not an error if the reader, such as `head`, closes it early.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(
            format!("cannot write the output: {error}"),
            "",
        )),
        _ => Ok(()),
    }
}

pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(format!("cannot write the output: {error}"), ""))?;
    print(&format!("{text}\n"))
}

/// Escapes control characters: keys may contain any bytes, and must not control the terminal.
pub fn shown(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() {
            safe.extend(char.escape_default());
        } else {
            safe.push(char);
        }
    }
    safe
}

/// A table. Columns whose title starts with `>` are right-aligned.
pub fn table(titles: &[&str], rows: &[Vec<String>]) -> String {
    let titles: Vec<(bool, &str)> = titles
        .iter()
        .map(|title| (title.starts_with('>'), title.trim_start_matches('>')))
        .collect();
    let widths: Vec<usize> = (0..titles.len())
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            let longest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            longest.max(titles[column].1.chars().count())
        })
        .collect();
    let mut text = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for ((cell, width), (right, _)) in cells.zip(&widths).zip(&titles) {
            let _ = if *right {
                write!(line, "{cell:>width$}  ")
            } else {
                write!(line, "{cell:<width$}  ")
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    };
    line(&mut titles.iter().map(|(_, title)| *title));
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
    text
}

/// A duration for a person, rounded down: `1.2s`, `3m 20s`, `2d 3h`.
pub fn duration(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0 => format!("{ms}ms"),
        1..60 => format!("{}.{}s", s, ms % 1000 / 100),
        60..3600 => format!("{}m {}s", s / 60, s % 60),
        3600..86_400 => format!("{}h {}m", s / 3600, s / 60 % 60),
        _ => format!("{}d {}h", s / 86_400, s / 3600 % 24),
    }
}

/// A wait for a person, rounded up so that a retry after it is not too early.
pub fn wait(ms: u64) -> String {
    let step = match ms {
        0..1000 => 1,
        1000..60_000 => 100,
        60_000..3_600_000 => 1000,
        3_600_000..86_400_000 => 60_000,
        _ => 3_600_000,
    };
    duration(ms.div_ceil(step).saturating_mul(step))
}

/// A Unix time as `2026-11-16 12:34:56.789` in UTC.
pub fn time(unix_ms: u64) -> String {
    let (days, ms) = (unix_ms / 86_400_000, unix_ms % 86_400_000);
    // Count from 1 March of the year 0, so that a leap day comes last.
    let z = days + 719_468;
    let (era, day) = (z / 146_097, z % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        0..=9 => (era * 400 + year, month + 3),
        _ => (era * 400 + year + 1, month - 9),
    };
    let (h, m, s) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!(
        "{year:04}-{month:02}-{date:02} {h:02}:{m:02}:{s:02}.{:03}",
        ms % 1000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_durations() {
        assert_eq!(time(0), "1970-01-01 00:00:00.000");
        assert_eq!(time(951_782_399_999), "2000-02-28 23:59:59.999");
        assert_eq!(time(951_782_400_000), "2000-02-29 00:00:00.000");
        assert_eq!(time(951_868_800_000), "2000-03-01 00:00:00.000");
        assert_eq!(time(1_794_832_496_789), "2026-11-16 12:34:56.789");
        assert_eq!(
            [7, 1234, 200_000, 7_260_000, 183_600_000].map(duration),
            ["7ms", "1.2s", "3m 20s", "2h 1m", "2d 3h"]
        );
    }

    #[test]
    fn waits_are_rounded_up() {
        assert_eq!(
            [0, 7, 1201, 59_901, 60_001, 3_600_001, 86_400_001].map(wait),
            ["0ms", "7ms", "1.3s", "1m 0s", "1m 1s", "1h 1m", "1d 1h"]
        );
    }

    #[test]
    fn control_characters_are_shown() {
        assert_eq!(shown("a\u{1b}[2Jb\n…"), "a\\u{1b}[2Jb\\n…");
    }

    #[test]
    fn numbers_stand_to_the_right() {
        let rows = [
            vec!["free".into(), "7".into()],
            vec!["pro".into(), "1234".into()],
        ];
        assert_eq!(
            table(&["policy", ">denied"], &rows),
            "policy  denied\nfree         7\npro       1234\n"
        );
    }
}

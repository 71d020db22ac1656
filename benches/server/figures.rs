//! The figures of docs/benchmarks.md.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::report::{Numbers, Report};

// Colours of Okabe and Ito, which colour-blind people can tell apart.
const OURS: RGBColor = RGBColor(0x00, 0x72, 0xb2);
const OTHERS: RGBColor = RGBColor(0x99, 0x99, 0x99);
const LINES: [RGBColor; 3] = [RGBColor(0x44, 0x44, 0x44), RGBColor(0xe6, 0x9f, 0x00), OURS];

const WIDTH: u32 = 760;

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The name of a table's figure, if it has one.
pub fn of(id: &str) -> Option<&'static str> {
    match id {
        "reference" => Some("throughput"),
        "memory" => Some("memory"),
        "growth-keys" => Some("growth"),
        "growth-memory" => Some("growth-memory"),
        _ => None,
    }
}

pub fn draw(report: &Report) {
    for table in &report.tables {
        draw_table(table.id, &table.title, &table.numbers);
    }
}

/// Draws the figures of the last run again, from docs/benchmarks/results.json.
pub fn redraw() {
    let text = std::fs::read_to_string("docs/benchmarks/results.json").expect("a last run");
    let results: serde_json::Value = serde_json::from_str(&text).unwrap();
    for table in results["tables"].as_array().expect("tables") {
        let rows: Numbers = serde_json::from_value(table["rows"].clone()).unwrap();
        let text = |field: &str| table[field].as_str().expect("a string");
        draw_table(text("id"), text("title"), &rows);
    }
}

fn draw_table(id: &str, title: &str, numbers: &Numbers) {
    let Some(file) = of(id) else {
        return;
    };
    let rows = |column: &str, unit: f64| -> Vec<(String, f64)> {
        let row = |(name, cells): (&String, &std::collections::BTreeMap<_, _>)| {
            (name.clone(), cells[column] / unit)
        };
        numbers.iter().map(row).collect()
    };
    match id {
        "reference" => {
            let mut rows = rows("throughput", 1e3);
            rows.sort_by(|(_, a), (_, b)| b.total_cmp(a));
            bars(file, &format!("{title}: thousand calls per second"), &rows);
        }
        "memory" => {
            let mut rows = rows("memory per key", 1.0);
            rows.sort_by(|(_, a), (_, b)| a.total_cmp(b));
            bars(file, &format!("{title}: bytes per key"), &rows);
        }
        "growth-memory" => lines(file, title, "bytes per key", 1.0, numbers),
        _ => lines(file, title, "thousand calls per second", 1e3, numbers),
    }
}

fn canvas(file: &str, title: &str, height: u32, paint: impl FnOnce(&Canvas)) {
    let mut svg = String::new();
    let canvas = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
    canvas.fill(&WHITE).unwrap();
    paint(&canvas);
    canvas.present().unwrap();
    drop(canvas);
    // For screen readers, and as a tooltip.
    let (tag, rest) = svg.split_once('\n').expect("the opening tag");
    let svg = format!("{tag}\n<title>{title}</title>\n{rest}");
    std::fs::write(format!("docs/benchmarks/{file}.svg"), svg).unwrap();
}

/// One bar for each row, in their order.
fn bars(file: &str, title: &str, rows: &[(String, f64)]) {
    let most = rows.iter().map(|&(_, value)| value).fold(0.0, f64::max);
    let text = |size: i32| ("sans-serif", size).into_font().color(&BLACK);
    canvas(file, title, 60 + 34 * rows.len() as u32, |canvas| {
        canvas
            .draw(&Text::new(title.to_owned(), (16, 14), text(15)))
            .unwrap();
        let width =
            |(name, _): &(String, f64)| canvas.estimate_text_size(name, &text(14)).unwrap().0;
        let left = 32 + rows.iter().map(width).max().unwrap_or(0) as i32;
        // Room for the number at the end of the longest bar.
        let longest = f64::from(WIDTH as i32 - left - 60);
        for (n, (name, value)) in rows.iter().enumerate() {
            let top = 46 + 34 * n as i32;
            let end = left + (value / most * longest) as i32;
            let color = if name.starts_with("RL.") {
                OURS
            } else {
                OTHERS
            };
            let bar = Rectangle::new([(left, top), (end, top + 22)], color.filled());
            canvas.draw(&bar).unwrap();
            for (label, x) in [(name.clone(), 16), (format!("{value:.0}"), end + 8)] {
                canvas
                    .draw(&Text::new(label, (x, top + 4), text(14)))
                    .unwrap();
            }
        }
    });
}

/// One line for each column, over rows that are numbers.
fn lines(file: &str, title: &str, axis: &str, unit: f64, numbers: &Numbers) {
    let mut rows: Vec<(f64, &String)> = numbers
        .keys()
        .map(|row| (row.parse().expect("a number of keys"), row))
        .collect();
    rows.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let ((first, row), (last, _)) = (rows[0], rows[rows.len() - 1]);
    let columns = numbers[row].keys();
    let points = |column: &String| -> Vec<(f64, f64)> {
        let point = |&(keys, row): &(f64, &String)| (keys, numbers[row][column] / unit);
        rows.iter().map(point).collect()
    };
    let all: Vec<_> = columns.map(|column| (column, points(column))).collect();
    let most = all
        .iter()
        .flat_map(|(_, points)| points)
        .map(|&(_, value)| value)
        .fold(0.0, f64::max);
    canvas(file, title, 360, |canvas| {
        let mut chart = ChartBuilder::on(canvas)
            .caption(title, ("sans-serif", 16))
            .margin(14)
            .margin_right(36)
            .x_label_area_size(40)
            .y_label_area_size(50)
            .build_cartesian_2d((first..last).log_scale(), 0.0..most * 1.3)
            .unwrap();
        chart
            .configure_mesh()
            .x_label_formatter(&|keys| match *keys {
                1e6.. => format!("{:.0} M", keys / 1e6),
                1e3.. => format!("{:.0} K", keys / 1e3),
                _ => format!("{keys:.0}"),
            })
            .x_desc("keys")
            .y_desc(axis)
            .draw()
            .unwrap();
        for ((name, points), color) in all.iter().zip(LINES) {
            let series = LineSeries::new(points.iter().copied(), color.stroke_width(2));
            let drawn = chart.draw_series(series).unwrap().label(name.as_str());
            drawn.legend(move |(x, y)| {
                PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2))
            });
            let dots = points
                .iter()
                .map(|&point| Circle::new(point, 3, color.filled()));
            chart.draw_series(dots).unwrap();
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE)
            .draw()
            .unwrap();
    });
}

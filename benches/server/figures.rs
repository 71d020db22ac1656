//! The figures of docs/benchmarks.md.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::report::{Report, Table};

const OURS: RGBColor = RGBColor(0xd6, 0x33, 0x2f);
const OTHERS: RGBColor = RGBColor(0x8a, 0x94, 0xa6);
const LINES: [RGBColor; 3] = [OTHERS, OURS, RGBColor(0xf2, 0x9c, 0x38)];

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The name of a table's figure, if it has one.
pub fn of(table: &Table) -> Option<&'static str> {
    match table.id {
        "reference" => Some("throughput"),
        "memory" => Some("memory"),
        "growth-keys" => Some("growth"),
        _ => None,
    }
}

pub fn draw(report: &Report) {
    for table in &report.tables {
        let Some(figure) = of(table) else {
            continue;
        };
        match table.id {
            "reference" => bars(
                table,
                "throughput",
                1e3,
                "thousand calls per second",
                figure,
            ),
            "memory" => bars(table, "memory a key", 1.0, "bytes per key", figure),
            _ => lines(table, "keys", figure),
        }
    }
}

fn canvas(file: &str, size: (u32, u32), paint: impl FnOnce(&Canvas)) {
    let path = format!("docs/benchmarks/{file}.svg");
    let canvas = SVGBackend::new(&path, size).into_drawing_area();
    canvas.fill(&WHITE).unwrap();
    paint(&canvas);
    canvas.present().unwrap();
}

/// One bar for each row.
fn bars(table: &Table, column: &str, unit: f64, label: &str, file: &str) {
    let rows: Vec<(&str, f64)> = table
        .rows
        .iter()
        .map(|(name, _)| (name.as_str(), table.numbers[name][column] / unit))
        .collect();
    let most = rows.iter().map(|&(_, value)| value).fold(0.0, f64::max);
    canvas(file, (760, 60 + 34 * rows.len() as u32), |canvas| {
        let text = |size: i32| ("sans-serif", size).into_font().color(&BLACK);
        let title = format!("{}: {label}", table.title);
        canvas.draw(&Text::new(title, (16, 14), text(15))).unwrap();
        for (n, &(name, value)) in rows.iter().enumerate() {
            let top = 46 + 34 * n as i32;
            let end = 200 + (value / most * 460.0) as i32;
            let color = if name.starts_with("RL.") {
                OURS
            } else {
                OTHERS
            };
            canvas
                .draw(&Rectangle::new(
                    [(200, top), (end, top + 22)],
                    color.filled(),
                ))
                .unwrap();
            canvas
                .draw(&Text::new(name.to_owned(), (16, top + 4), text(14)))
                .unwrap();
            canvas
                .draw(&Text::new(
                    format!("{value:.0}"),
                    (end + 8, top + 4),
                    text(14),
                ))
                .unwrap();
        }
    });
}

/// One line for each column, over rows that are numbers.
fn lines(table: &Table, label: &str, file: &str) {
    let column = |column: &str| -> Vec<(f64, f64)> {
        let point = |(row, _): &(String, Vec<String>)| {
            (row.parse().unwrap(), table.numbers[row][column] / 1000.0)
        };
        table.rows.iter().map(point).collect()
    };
    let all: Vec<_> = table
        .columns
        .iter()
        .map(|name| (name, column(name)))
        .collect();
    let most = all
        .iter()
        .flat_map(|(_, points)| points)
        .map(|&(_, us)| us)
        .fold(0.0, f64::max);
    let (first, last) = (all[0].1[0].0, all[0].1[all[0].1.len() - 1].0);
    canvas(file, (760, 360), |canvas| {
        let mut chart = ChartBuilder::on(canvas)
            .caption(&table.title, ("sans-serif", 16))
            .margin(14)
            .x_label_area_size(40)
            .y_label_area_size(50)
            .build_cartesian_2d((first..last).log_scale(), 0.0..most * 1.15)
            .unwrap();
        chart
            .configure_mesh()
            .x_label_formatter(&|keys| format!("{keys:.0}"))
            .x_desc(label)
            .y_desc("µs")
            .draw()
            .unwrap();
        for ((name, points), color) in all.iter().zip(LINES) {
            let series = LineSeries::new(points.iter().copied(), color.stroke_width(2));
            let drawn = chart.draw_series(series).unwrap().label(name.as_str());
            drawn.legend(move |(x, y)| {
                PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2))
            });
            chart
                .draw_series(
                    points
                        .iter()
                        .map(|&point| Circle::new(point, 3, color.filled())),
                )
                .unwrap();
        }
        chart
            .configure_series_labels()
            .background_style(WHITE)
            .draw()
            .unwrap();
    });
}

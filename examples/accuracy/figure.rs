//! Draws the figures of docs/algorithms.md: calls offered and admitted, and the limit, over time.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::adversary;
use crate::contender::{Contender, LIMIT, MIDNIGHT_US, WINDOW_US};
use crate::lease;
use crate::replay::{Counting, Replay};
use crate::traffic;

// Colours of Okabe and Ito, which colour-blind people can tell apart.
const ADMITTED: RGBColor = RGBColor(0x00, 0x72, 0xb2);
const OFFERED: RGBColor = RGBColor(0x8a, 0x94, 0xa6);
const RELEASED: RGBColor = RGBColor(0xe6, 0x9f, 0x00);
const INK: RGBColor = RGBColor(0x22, 0x26, 0x2e);
const GRID: RGBColor = RGBColor(0xe6, 0xe9, 0xee);

const WIDTH: u32 = 760;
const HEAD: u32 = 40;
const PANEL: u32 = 250;
/// The distance between two points of a line: too small to see.
const STEP_S: f64 = 0.5;

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// The start and end of the time for which something counts, in seconds.
type Spans = Vec<(f64, f64)>;

struct Panel {
    title: &'static str,
    unit: &'static str,
    length_s: f64,
    limit: u64,
    offered: Spans,
    admitted: Spans,
    released: Option<Spans>,
}

/// Draws two panels: the traffic that all algorithms get, and an adversary that knows this one.
pub fn draw(contender: &Contender) {
    let mut same = Replay::new(contender, Counting::Admitted);
    for now_us in traffic::scene() {
        let _ = same.call(now_us);
    }
    let attack = adversary::attack(contender);
    let panel = |title, length_s, replay: &Replay| Panel {
        title,
        unit: "calls in the last 60 s",
        length_s,
        limit: LIMIT,
        offered: spans(&replay.offered_us, length_s),
        admitted: spans(&replay.admitted_us, length_s),
        released: contender
            .is_queue()
            .then(|| spans(&replay.released_us, length_s)),
    };
    let cycle_s = adversary::CYCLE_US as f64 / 1e6;
    let panels = [
        panel("The same traffic for all algorithms", 600.0, &same),
        panel("An adversary that knows the algorithm", cycle_s, &attack),
    ];
    let admitted = if contender.is_queue() {
        "admitted to the queue"
    } else {
        "admitted"
    };
    paint(contender.anchor(), &contender.command(), admitted, &panels);
}

pub fn draw_lease(scene: &lease::Scene) {
    let panel = Panel {
        title: "Jobs of 20 s to 80 s; one in six crashes, and its lease ends with its ttl",
        unit: "at once",
        length_s: lease::SCENE_S,
        limit: lease::LIMIT,
        offered: scene.offered.clone(),
        admitted: scene.held.clone(),
        released: None,
    };
    paint("lease", "RL.LEASE key 5 90s worker", "held", &[panel]);
}

/// Each call counts for one window.
fn spans(times_us: &[u64], length_s: f64) -> Spans {
    let second = |us: u64| (us - MIDNIGHT_US) as f64 / 1e6;
    let spans = times_us
        .iter()
        .map(|&us| (second(us), second(us + WINDOW_US)));
    spans.take_while(|&(from_s, _)| from_s < length_s).collect()
}

/// How many calls count at each moment. Points in the middle of a level line are left out.
fn levels(spans: &Spans, length_s: f64) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for step in 0..=(length_s / STEP_S) as u64 {
        let now_s = step as f64 * STEP_S;
        let now_min = now_s / 60.0;
        // The maximum within the step, so that no peak is missed.
        let level = (0..10).map(|tenth| count(spans, now_s + f64::from(tenth) * STEP_S / 10.0));
        let level = level.max().unwrap_or(0) as f64;
        if let [.., (_, before), (last_min, last)] = &mut points[..]
            && *before == level
            && *last == level
        {
            *last_min = now_min;
        } else {
            points.push((now_min, level));
        }
    }
    points
}

fn count(spans: &Spans, now_s: f64) -> usize {
    let counts = |&&(from_s, until_s): &&(f64, f64)| from_s <= now_s && now_s < until_s;
    spans.iter().filter(counts).count()
}

fn paint(file: &str, command: &str, admitted: &str, panels: &[Panel]) {
    let size = (WIDTH, HEAD + PANEL * panels.len() as u32);
    let mut svg = String::new();
    let canvas = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    canvas.fill(&WHITE).unwrap();
    let (head, body) = canvas.split_vertically(HEAD);
    let queue = panels.iter().any(|panel| panel.released.is_some());
    paint_head(&head, command, admitted, queue);
    for (area, panel) in body.split_evenly((panels.len(), 1)).iter().zip(panels) {
        paint_panel(area, panel);
    }
    canvas.present().unwrap();
    drop((canvas, head, body));
    // For screen readers, and as a tooltip.
    let title =
        format!("<title>{command}: calls offered and {admitted}, and the limit, over time</title>");
    let (tag, rest) = svg.split_once('\n').expect("the opening tag");
    let path = format!("docs/algorithms/{file}.svg");
    std::fs::write(path, format!("{tag}\n{title}\n{rest}")).unwrap();
}

/// Draws the command on the left and the legend on the right.
fn paint_head(area: &Canvas, command: &str, admitted: &str, queue: bool) {
    let text = |size: i32| ("sans-serif", size).into_font().color(&INK);
    let command = Text::new(command.to_owned(), (16, 14), text(16));
    area.draw(&command).unwrap();
    let mut entries = vec![("limit", INK), (admitted, ADMITTED), ("offered", OFFERED)];
    if queue {
        entries.insert(1, ("released", RELEASED));
    }
    let mut right = WIDTH as i32 - 16;
    for (name, color) in entries {
        let (width, _) = area.estimate_text_size(name, &text(13)).unwrap();
        right -= width as i32;
        let label = Text::new(name.to_owned(), (right, 16), text(13));
        area.draw(&label).unwrap();
        // The limit is dashed.
        let dashes: &[(i32, i32)] = match name {
            "limit" => &[(-24, -18), (-14, -8)],
            _ => &[(-24, -8)],
        };
        for (from, to) in dashes {
            let mark = [(right + from, 22), (right + to, 22)];
            let mark = PathElement::new(mark, color.stroke_width(2));
            area.draw(&mark).unwrap();
        }
        right -= 40;
    }
}

fn paint_panel(area: &Canvas, panel: &Panel) {
    let offered = levels(&panel.offered, panel.length_s);
    let admitted = levels(&panel.admitted, panel.length_s);
    let most = |points: &[(f64, f64)]| points.iter().map(|&(_, level)| level).fold(0.0, f64::max);
    // The same scale for all algorithms, unless more is offered.
    let top = most(&offered).max(panel.limit as f64 * 3.0) * 1.12;
    let minutes = panel.length_s / 60.0;
    let label = |size: i32| ("sans-serif", size).into_font().color(&INK);
    let mut chart = ChartBuilder::on(area)
        .caption(panel.title, label(14))
        .margin_left(12)
        .margin_right(20)
        .margin_bottom(6)
        .x_label_area_size(38)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..minutes, 0.0..top)
        .unwrap();
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(OFFERED)
        .label_style(label(12))
        .x_labels(minutes as usize + 1)
        .y_labels(6)
        .x_label_formatter(&|minute| format!("{minute:.0} min"))
        .y_label_formatter(&|level| format!("{level:.0}"))
        .y_desc(panel.unit)
        .draw()
        .unwrap();

    let mut below = offered.clone();
    below.push((minutes, 0.0));
    below.insert(0, (0.0, 0.0));
    let below = Polygon::new(below, OFFERED.mix(0.22));
    chart.draw_series([below]).unwrap();
    chart
        .draw_series(LineSeries::new(offered, OFFERED.stroke_width(1)))
        .unwrap();
    chart
        .draw_series(LineSeries::new(admitted, ADMITTED.stroke_width(2)))
        .unwrap();
    if let Some(released) = &panel.released {
        let released = levels(released, panel.length_s);
        chart
            .draw_series(LineSeries::new(released, RELEASED.stroke_width(2)))
            .unwrap();
    }
    let limit = panel.limit as f64;
    let limit = [(0.0, limit), (minutes, limit)];
    chart
        .draw_series(DashedLineSeries::new(limit, 6, 4, INK.stroke_width(1)))
        .unwrap();
}

//! `cargo run --release --example accuracy`: compares each algorithm with an exact window.
//!
//! Replays traffic of several kinds through every algorithm and compares each decision with that of an exact
//! sliding window; prints the tables, writes them into docs/algorithms.md, and draws docs/algorithms/*.svg.
//! All random numbers have fixed seeds, so every run gives the same figures. Run it in the root of the
//! repository.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod adversary;
mod contender;
mod figure;
mod guide;
mod lease;
mod mix;
mod random;
mod replay;
mod table;
mod traffic;

use contender::{Contender, LIMIT};
use replay::{Counting, Verdict};
use table::{Page, Table, percent, seconds, times};

fn main() {
    let mut page = Page::default();
    for traffic in traffic::all() {
        let verdicts = contender::all().into_iter().map(|contender| {
            let verdict = replay::one_key(&contender, Counting::Admitted, &traffic.calls);
            (contender, verdict)
        });
        page.add(traffic.id, verdict_table(traffic.name, verdicts));
    }

    let attacked = contender::all().into_iter().map(|contender| {
        let verdict = adversary::attack(&contender).verdict();
        (contender, verdict)
    });
    page.add("adversary", verdict_table("adversary", attacked));

    let mixed = mix::replay();
    page.add(
        "mix",
        verdict_table("a day of many clients", mixed.by_contender()),
    );
    page.add("mix-traffic", mixed.traffic_table());
    page.add("mix-groups", mixed.group_table());
    page.add("quoted", mixed.quoted_table());

    page.add("precision", guide::precision_table());
    page.add("log", guide::log_table());
    page.add("small", guide::small_table());
    page.add("choosing", guide::choosing_table());

    page.print();
    page.write("docs/algorithms.md");
    for contender in contender::shown() {
        figure::draw(&contender);
    }
    figure::draw_lease(&lease::scene());
}

fn verdict_table(
    traffic: &'static str,
    verdicts: impl IntoIterator<Item = (Contender, Verdict)>,
) -> Table {
    let mut table = Table::new(&[
        traffic,
        "calls",
        "admitted",
        "wrongly admitted",
        "wrongly denied",
        "room then",
        "most in any window",
        "shortest time for limit + 1",
    ]);
    for (contender, verdict) in verdicts {
        table.row([
            contender.name(),
            verdict.calls.to_string(),
            percent(verdict.admitted, verdict.calls),
            percent(verdict.wrongly_admitted, verdict.calls),
            percent(verdict.wrongly_denied, verdict.calls),
            verdict.mean_room(),
            times(verdict.most, LIMIT),
            verdict.shortest_us.map_or("—".into(), seconds),
        ]);
    }
    table
}

//! `rl top`: what happens now, over all primaries.

mod screen;
mod sight;

use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use crate::failure::Failure;
use crate::fleet::{Access, Watch};
use crate::{Outcome, complain, output};
use screen::Screen;
use sight::Sight;

#[derive(Clone, Copy)]
pub struct View {
    every: Duration,
    count: usize,
    by_denials: bool,
}

impl View {
    pub fn new(every: u64, count: usize, by_denials: bool) -> Self {
        Self {
            every: Duration::from_secs(every),
            count,
            by_denials,
        }
    }
}

pub fn run(access: &Access, view: View, live: bool, json: bool) -> Result<Outcome, Failure> {
    if live {
        return watch(access, view);
    }
    let mut sight = Sight::take(&access.survey()?);
    sight.sort(view.by_denials);
    for failure in &sight.failed {
        complain(failure, json);
    }
    if json {
        sight.truncate(view.count);
        output::print_json(&sight)?;
    } else {
        let lines = sight::lines(&sight, None, view.by_denials, view.count, false);
        output::print(
            &lines
                .iter()
                .map(|line| format!("{}\n", line.text))
                .collect::<String>(),
        )?;
    }
    Ok(if sight.failed.is_empty() {
        Outcome::Well
    } else {
        Outcome::Bad
    })
}

fn watch(access: &Access, mut view: View) -> Result<Outcome, Failure> {
    let sights = keep_looking(access.clone(), view.every);
    // The first look is awaited on the normal screen, where an error can be read.
    let mut now = sights
        .recv()
        .map_err(|_| Failure::new("a bug in rl: nobody looks any more", ""))??;
    let mut before: Option<Sight> = None;
    let screen = Screen::open()?;
    loop {
        now.sort(view.by_denials);
        screen.draw(&sight::lines(
            &now,
            before.as_ref(),
            view.by_denials,
            view.count,
            true,
        ))?;
        match key_within(Duration::from_millis(100))? {
            Some('q') => return Ok(Outcome::Well),
            Some('d') => view.by_denials = true,
            Some('c') => view.by_denials = false,
            _ => {}
        }
        match sights.try_recv() {
            Ok(Ok(next)) => before = Some(std::mem::replace(&mut now, next)),
            // Nobody answers now: say so, and keep the last figures in sight.
            Ok(Err(failure)) => {
                (now.up, now.failed) = (0, vec![failure]);
                before = None;
            }
            Err(_) => {}
        }
    }
}

/// Looks again and again on a thread of its own, so that keys work while a node hangs.
fn keep_looking(access: Access, every: Duration) -> Receiver<Result<Sight, Failure>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut watch = Watch::new(&access);
        let mut next = Instant::now();
        while sender.send(watch.look().map(Sight::take)).is_ok() {
            next = (next + every).max(Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    });
    receiver
}

/// A key, with q for every way to quit.
fn key_within(patience: Duration) -> Result<Option<char>, Failure> {
    let broken = |error: std::io::Error| Failure::new(format!("the terminal: {error}"), "");
    if !event::poll(patience).map_err(broken)? {
        return Ok(None);
    }
    let Event::Key(key) = event::read().map_err(broken)? else {
        return Ok(None);
    };
    Ok(match key.code {
        _ if key.kind == KeyEventKind::Release => None,
        KeyCode::Esc => Some('q'),
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some('q'),
        KeyCode::Char(char) => Some(char.to_ascii_lowercase()),
        _ => None,
    })
}

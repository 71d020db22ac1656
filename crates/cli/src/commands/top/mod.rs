//! `rl top`: what happens now, on all primaries.

mod screen;
mod view;

use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use rl_client::commands::TopBy;

use super::finish;
use crate::args::Top;
use crate::failure::Failure;
use crate::snapshot::Snapshot;
use crate::topology::{Access, Watch};
use crate::{Exit, output};
use screen::Screen;

pub fn run(access: &Access, options: &Top, live: bool, json: bool) -> Result<Exit, Failure> {
    let by = options.by.into();
    if live {
        return watch(access, options, by);
    }
    let mut snapshot = Snapshot::with_keys(&access.discover()?);
    snapshot.sort(by);
    if json {
        snapshot.truncate(options.count);
        output::print_json(&snapshot)?;
    } else {
        let lines = view::lines(&snapshot, None, by, options.count, false);
        let text = lines.iter().map(|line| format!("{}\n", line.text));
        output::print(&text.collect::<String>())?;
    }
    Ok(finish(&snapshot.failed_nodes, json))
}

fn watch(access: &Access, options: &Top, mut by: TopBy) -> Result<Exit, Failure> {
    let snapshots = take_snapshots(access.clone(), Duration::from_secs(options.interval));
    // Wait for the first snapshot on the normal screen, where an error can be read.
    let mut now = snapshots
        .recv()
        .map_err(|_| Failure::new("a bug in rl: no more snapshots are taken", ""))??;
    let mut before: Option<Snapshot> = None;
    let screen = Screen::open()?;
    loop {
        now.sort(by);
        screen.draw(&view::lines(&now, before.as_ref(), by, options.count, true))?;
        match key_within(Duration::from_millis(100))? {
            Some('q') => return Ok(Exit::Success),
            Some('d') => by = TopBy::Denials,
            Some('c') => by = TopBy::Checks,
            _ => {}
        }
        match snapshots.try_recv() {
            Ok(Ok(next)) => before = Some(std::mem::replace(&mut now, next)),
            // No node replies: say so, and keep showing the last statistics.
            Ok(Err(failure)) => {
                (now.replied, now.failed_nodes) = (0, vec![failure]);
                before = None;
            }
            Err(_) => {}
        }
    }
}

/// Takes snapshots on a separate thread, so that the keyboard works while a node hangs.
fn take_snapshots(access: Access, interval: Duration) -> Receiver<Result<Snapshot, Failure>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut watch = Watch::new(&access);
        let mut next = Instant::now();
        while sender
            .send(watch.refresh().map(Snapshot::with_keys))
            .is_ok()
        {
            next = (next + interval).max(Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    });
    receiver
}

/// Waits for a key; every way to quit becomes q.
fn key_within(timeout: Duration) -> Result<Option<char>, Failure> {
    let broken = |error: std::io::Error| Failure::new(format!("the terminal: {error}"), "");
    if !event::poll(timeout).map_err(broken)? {
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

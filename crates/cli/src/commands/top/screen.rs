//! The terminal while `rl top` has it.

use std::io::{self, Stdout, Write};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use crossterm::{execute, queue};

use super::sight::{Line, Look};
use crate::failure::Failure;

/// Gives the terminal back when dropped, whatever happens.
pub struct Screen;

impl Screen {
    pub fn open() -> Result<Self, Failure> {
        terminal::enable_raw_mode().map_err(broken)?;
        let screen = Self;
        execute!(io::stdout(), EnterAlternateScreen, Hide).map_err(broken)?;
        Ok(screen)
    }

    pub fn draw(&self, lines: &[Line]) -> Result<(), Failure> {
        let (width, height) = terminal::size().map_err(broken)?;
        let mut out = io::stdout();
        let drawn = || -> io::Result<()> {
            queue!(out, BeginSynchronizedUpdate)?;
            for row in 0..height {
                queue!(out, MoveTo(0, row))?;
                if let Some(line) = lines.get(usize::from(row)) {
                    draw_line(&mut out, line, usize::from(width))?;
                }
                queue!(out, Clear(ClearType::UntilNewLine))?;
            }
            queue!(out, EndSynchronizedUpdate)?;
            out.flush()
        };
        let mut drawn = drawn;
        drawn().map_err(broken)
    }
}

fn draw_line(out: &mut Stdout, line: &Line, width: usize) -> io::Result<()> {
    let text: String = line.text.chars().take(width).collect();
    let attribute = match line.look {
        Look::Title => Attribute::Reverse,
        Look::Loud => Attribute::Bold,
        Look::Plain => Attribute::Reset,
    };
    // A title reaches to the edge.
    let fill = if line.look == Look::Title { width } else { 0 };
    queue!(
        out,
        SetAttribute(attribute),
        Print(format!("{text:fill$}")),
        SetAttribute(Attribute::Reset)
    )
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

fn broken(error: io::Error) -> Failure {
    Failure::new(
        format!("the terminal: {error}"),
        "without one, `rl top | cat` prints once",
    )
}

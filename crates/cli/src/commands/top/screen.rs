//! The terminal while `rl top` is live.

use std::io::{self, Stdout, Write};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use crossterm::{execute, queue};

use super::view::{Line, Style};
use crate::failure::Failure;

/// Restores the terminal when dropped, whatever happens.
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
    let attribute = match line.style {
        Style::Title => Attribute::Reverse,
        Style::Bold => Attribute::Bold,
        Style::Plain => Attribute::Reset,
    };
    // A title extends to the right edge.
    let fill = if line.style == Style::Title { width } else { 0 };
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
        "`rl top | cat` prints once, without a terminal",
    )
}

// SPDX-License-Identifier: GPL-2.0

//! The terminal as one screen, given back as it was however the program ends.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::terminal::{
    self, Clear, ClearType, DisableLineWrap, EnableLineWrap, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use crossterm::{execute, queue};

/// Whether somebody wants the program to end.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Lines of a terminal that does not know how many it has.
const HEIGHT: u16 = 24;

/// Seconds that a program whose terminal has gone may take to end.
const LAST_SECONDS: libc::c_uint = 2;

extern "C" fn interrupt(signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
    if signal == libc::SIGHUP {
        // Whoever waits for keys of a terminal that has gone does not come back.
        // SAFETY: It may be called in a signal handler, and the default action is to end.
        unsafe { libc::alarm(LAST_SECONDS) };
    }
}

/// The screen; the terminal is as before when it is dropped.
pub struct Screen {
    out: io::Stdout,
}

impl Screen {
    /// Takes the terminal.
    pub fn open() -> io::Result<Self> {
        for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
            // SAFETY: The handler stores to an atomic, and sets an alarm.
            unsafe { libc::signal(signal, interrupt as *const () as libc::sighandler_t) };
        }
        terminal::enable_raw_mode()?;
        let mut screen = Self { out: io::stdout() };
        execute!(screen.out, EnterAlternateScreen, DisableLineWrap, Hide)?;
        Ok(screen)
    }

    /// Whether a signal asked the program to end.
    pub fn is_interrupted(&self) -> bool {
        INTERRUPTED.load(Ordering::Relaxed)
    }

    /// Shows lines in place of those before; what does not fit is left out.
    pub fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let height = match terminal::size()?.1 {
            // It does not know, as behind some serial lines.
            0 => HEIGHT,
            height => height,
        };
        queue!(self.out, MoveTo(0, 0))?;
        for (row, line) in lines.iter().take(height.into()).enumerate() {
            queue!(self.out, MoveTo(0, row as u16))?;
            write!(self.out, "{line}")?;
            queue!(self.out, Clear(ClearType::UntilNewLine))?;
        }
        if lines.len() < height.into() {
            queue!(
                self.out,
                MoveTo(0, lines.len() as u16),
                Clear(ClearType::FromCursorDown)
            )?;
        }
        self.out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The terminal may be gone; there is nobody to tell.
        let _ = execute!(self.out, Show, EnableLineWrap, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

// SPDX-License-Identifier: GPL-2.0

//! JSON and colours on standard output.

use std::fmt;
use std::io::{IsTerminal, Write};

use clap::ValueEnum;
use serde::Serialize;

use crate::cli::Global;
use crate::failure::Exit;

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl When {
    fn colours(self) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => std::io::stdout().is_terminal() && environment_allows_colours(),
        }
    }
}

/// `NO_COLOR` forbids them unless it is empty (no-color.org), and so does a terminal without.
fn environment_allows_colours() -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    !no_color && !dumb
}

/// Colours text, or leaves it as it is.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    colours: bool,
}

impl Paint {
    /// As the user asked for it.
    pub fn new(global: &Global) -> Self {
        Self {
            colours: global.color.colours(),
        }
    }

    /// For what matters most.
    pub fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    /// For what is well.
    pub fn good(self, text: &str) -> String {
        self.with("32", text)
    }

    /// For what may be a problem.
    pub fn warning(self, text: &str) -> String {
        self.with("33", text)
    }

    /// For what is a problem.
    pub fn bad(self, text: &str) -> String {
        self.with("31", text)
    }

    /// For what matters least.
    pub fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        match self.colours {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }
}

/// Prints to standard output, as `print!`; see [`print`].
macro_rules! out {
    ($($text:tt)*) => { $crate::output::print(format_args!($($text)*)) };
}

/// Prints to standard output, as `println!`; see [`print`].
macro_rules! outln {
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use {out, outln};

/// Prints to standard output, where `println!` would panic if that is a file on a full disk.
pub fn print(text: fmt::Arguments<'_>) {
    let mut stdout = std::io::stdout().lock();
    if let Err(error) = stdout.write_fmt(text).and_then(|()| stdout.flush()) {
        eprintln!("peermem: standard output: {error}");
        std::process::exit(Exit::Error as i32);
    }
}

/// Prints a value as JSON: on one line, or readable with `-p`.
pub fn print_json<T: Serialize + ?Sized>(global: &Global, value: &T) {
    outln!("{}", json(global, value));
}

/// A value as JSON, without a newline at the end.
pub fn json<T: Serialize + ?Sized>(global: &Global, value: &T) -> String {
    let text = match global.pretty {
        true => serde_json::to_string_pretty(value),
        false => serde_json::to_string(value),
    };
    text.expect("all that is shown has string keys")
}

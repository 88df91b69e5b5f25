// SPDX-License-Identifier: GPL-2.0

//! How commands fail: one line on standard error, and an exit code that scripts can rely on.

use std::fmt;
use std::process::ExitCode;

/// What the exit code says. `doctor` has codes of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Anything that is none of the below.
    Error = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The module is not loaded.
    NotLoaded = 3,
    /// `status` only: the module is loaded, but takes no new registrations.
    Drain = 4,
    /// The caller may not do or see this.
    Permission = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    message: String,
}

impl Failure {
    /// A failure with this exit code; the message is one line without a full stop.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
        }
    }

    /// A failure of the common kind.
    pub fn error(message: impl Into<String>) -> Self {
        Self::new(Exit::Error, message)
    }

    /// Its exit code.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// Tells the user, and gives the exit code.
    pub fn report(&self) -> ExitCode {
        eprintln!("peermem: {self}");
        self.exit.into()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// What a command returns.
pub type Outcome<T = ExitCode> = Result<T, Failure>;

// SPDX-License-Identifier: GPL-2.0

//! What a check says.

use serde::Serialize;

/// How it stands with what was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// It could not be checked, or there is nothing to check.
    Skip,
    /// It is as it should be.
    Ok,
    /// It works, but may fail, be slow, or be about to fail.
    Warn,
    /// GPUDirect RDMA does not work because of it.
    Fail,
}

impl Status {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Skip => "SKIP",
            Self::Ok => "OK",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
        }
    }
}

/// What a check says.
#[derive(Debug)]
pub struct Verdict {
    /// How it stands.
    pub status: Status,
    /// What was found.
    pub detail: String,
    /// What to do, one thing a line.
    pub hints: Vec<String>,
    /// Where it was read.
    pub source: String,
}

impl Verdict {
    fn new(status: Status, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            hints: Vec::new(),
            source: String::new(),
        }
    }

    /// All is well.
    pub fn ok(detail: impl Into<String>) -> Self {
        Self::new(Status::Ok, detail)
    }

    /// There may be trouble.
    pub fn warn(detail: impl Into<String>) -> Self {
        Self::new(Status::Warn, detail)
    }

    /// There is trouble.
    pub fn fail(detail: impl Into<String>) -> Self {
        Self::new(Status::Fail, detail)
    }

    /// Not checked, for this reason.
    pub fn skip(detail: impl Into<String>) -> Self {
        Self::new(Status::Skip, detail)
    }

    /// Nothing wrong if there are no findings, and the findings otherwise.
    pub fn of(status: Status, findings: &[String], otherwise: impl Into<String>) -> Self {
        match findings.is_empty() {
            true => Self::ok(otherwise),
            false => Self::new(status, findings.join("; ")),
        }
    }

    /// Adds what to do, if there is something to do.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        if matches!(self.status, Status::Warn | Status::Fail) {
            self.hints.push(hint.into());
        }
        self
    }

    /// Adds where it was read.
    pub fn from(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }
}

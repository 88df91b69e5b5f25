// SPDX-License-Identifier: GPL-2.0

//! The last failures, with who met them.

use kernel::fmt;
use peermem_logic::{
    errno::Errno,
    reason::Reason, //
};

use crate::{
    ffi::{
        clock,
        compat::current_tgid,
        globals::FAILURES,
        process::Name, //
    },
    stats::STATS,
};

/// How many are kept.
const KEPT: usize = 64;

/// The call of the core that failed.
#[derive(Clone, Copy)]
pub(crate) enum Stage {
    Acquire,
    GetPages,
    DmaMap,
    DmaUnmap,
    PutPages,
    Release,
}

impl Stage {
    /// What the application was doing.
    pub(crate) const fn what(self) -> &'static str {
        match self {
            Self::Acquire | Self::GetPages | Self::DmaMap => "registration",
            Self::DmaUnmap | Self::PutPages | Self::Release => "deregistration",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::GetPages => "get_pages",
            Self::DmaMap => "dma_map",
            Self::DmaUnmap => "dma_unmap",
            Self::PutPages => "put_pages",
            Self::Release => "release",
        }
    }
}

/// One failure.
#[derive(Clone, Copy)]
pub(crate) struct Record {
    /// In ns, on the clock of the kernel log.
    time: u64,
    pid: i32,
    comm: Name,
    length: u64,
    stage: Stage,
    errno: i32,
    reason: Reason,
}

/// The last of them, the oldest overwritten by the newest.
pub(crate) struct Failures {
    records: [Option<Record>; KEPT],
    /// How many there were in all.
    total: u64,
}

impl Failures {
    pub(crate) const fn new() -> Self {
        Self {
            records: [None; KEPT],
            total: 0,
        }
    }

    fn add(&mut self, record: Record) {
        if let Some(place) = self.records.get_mut((self.total % KEPT as u64) as usize) {
            *place = Some(record);
        }
        self.total = self.total.wrapping_add(1);
    }

    /// The first that is kept from number `from` on.
    fn next(&self, from: u64) -> Option<(u64, Record)> {
        let number = from.max(self.total.saturating_sub(KEPT as u64));
        if number >= self.total {
            return None;
        }
        let record = self.records.get((number % KEPT as u64) as usize)?;
        record.map(|record| (number, record))
    }
}

/// Counts a failure of the current process about `length` bytes, and keeps it for debugfs.
pub(crate) fn note(stage: Stage, length: u64, errno: Errno, reason: Reason) {
    if let Some(counter) = STATS.failure(reason) {
        counter.add(1);
    }
    let record = Record {
        time: clock::log_ns(),
        pid: current_tgid(),
        comm: Name::current(),
        length,
        stage,
        errno: errno.to_negative(),
        reason,
    };
    FAILURES.lock().add(record);
}

/// The first failure that is kept from number `from` on.
pub(crate) fn next(from: u64) -> Option<(u64, Record)> {
    FAILURES.lock().next(from)
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.time / 1000;
        put!(
            f,
            "time={}.{:06} pid={} length={} stage={} errno={} reason={} comm={}",
            micros / 1_000_000,
            micros % 1_000_000,
            self.pid,
            self.length,
            self.stage.name(),
            self.errno,
            self.reason.name(),
            self.comm
        )
    }
}

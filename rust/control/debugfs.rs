// SPDX-License-Identifier: GPL-2.0

//! `/sys/kernel/debug/nvidia_peermem`: who has what registered, what failed, and how long calls take.
//!
//! `Documentation/ABI/testing/debugfs-nvidia_peermem` describes each.

use kernel::fmt::{
    self,
    Write, //
};

use crate::{
    failures,
    ffi::{
        debugfs::{
            Directory,
            Lines, //
        },
        sysfs::Text,
    },
    registry::Id,
    stats::{
        Latency,
        STATS, //
    },
};

/// A line for each live registration.
struct Registrations;

impl Lines for Registrations {
    fn line(from: u64, to: &mut Text<'_>) -> Option<(u64, fmt::Result)> {
        let (id, registration) = Id::from_number(from).next()?;
        Some((id.number(), registration.describe(to)))
    }
}

/// A line for each of the last failures.
struct Failures;

impl Lines for Failures {
    fn line(from: u64, to: &mut Text<'_>) -> Option<(u64, fmt::Result)> {
        let (number, record) = failures::next(from)?;
        Some((number, put!(to, "{}", record)))
    }
}

/// A line for each kind of call.
struct Latencies;

impl Latencies {
    fn of(number: u64) -> Option<(&'static str, &'static Latency)> {
        Some(match number {
            0 => ("pin", &STATS.pin),
            1 => ("map", &STATS.map),
            2 => ("unmap", &STATS.unmap),
            3 => ("unpin", &STATS.unpin),
            _ => return None,
        })
    }

    fn write(name: &str, latency: &Latency, to: &mut Text<'_>) -> fmt::Result {
        put!(
            to,
            "{} count={} sum_ns={} max_ns={} buckets=",
            name,
            latency.count.get(),
            latency.sum.get(),
            latency.max()
        )?;
        for (i, bucket) in latency.buckets.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            put!(to, "{}{}", comma, bucket.get())?;
        }
        Ok(())
    }
}

impl Lines for Latencies {
    fn line(from: u64, to: &mut Text<'_>) -> Option<(u64, fmt::Result)> {
        let (name, latency) = Self::of(from)?;
        Some((from, Self::write(name, latency, to)))
    }
}

/// Makes the directory, which is there as long as the value.
pub(crate) fn create() -> Directory {
    let directory = Directory::new(c"nvidia_peermem");
    directory.file::<Registrations>(c"registrations");
    directory.file::<Failures>(c"failures");
    directory.file::<Latencies>(c"latency");
    directory
}

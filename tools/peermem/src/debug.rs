// SPDX-License-Identifier: GPL-2.0

//! What the module tells root in debugfs: each registration, the last failures, how long calls take.

use serde::Serialize;

use crate::failure::{Exit, Failure, Outcome};
use crate::module;
use crate::root::{Read, Root};

/// Where the module's files for root are.
pub const DEBUGFS: &str = "/sys/kernel/debug/nvidia_peermem";

/// A registration of GPU memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Registration {
    /// Number of the registration, never used again.
    pub id: u64,
    /// The process that registered it.
    pub pid: u32,
    /// Name of that process.
    pub comm: String,
    /// The client it belongs to.
    pub client: String,
    /// PCI address of the GPU.
    pub gpu: String,
    /// PCI address of the RDMA device; none before it is mapped.
    pub device: Option<String>,
    /// Address in the process.
    pub address: String,
    /// Bytes, as the application asked.
    pub length: u64,
    /// Pages of 64 KiB.
    pub pages: u64,
    /// Scatterlist entries.
    pub entries: u64,
    /// How far it is in its life.
    pub state: String,
    /// How long it has been there.
    pub age_ms: u64,
}

impl Registration {
    /// Whether an RDMA device can use it now.
    pub fn is_mapped(&self) -> bool {
        self.state == "mapped"
    }
}

/// A registration that failed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FailedRegistration {
    /// When, in seconds since boot, as in the kernel log.
    pub time: f64,
    /// The process that asked.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// Bytes that it asked for.
    pub length: u64,
    /// The step that failed.
    pub stage: String,
    /// What the application got to see, negative.
    pub errno: i32,
    /// The reason, as in `failures` of sysfs.
    pub reason: String,
}

/// How long calls of one kind took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// `pin`, `map`, `unmap` or `unpin`.
    pub call: String,
    /// How many there were.
    pub count: u64,
    /// How long all of them took together.
    pub sum_ns: u64,
    /// How long the longest took.
    pub max_ns: u64,
    /// How many took between 2^n and 2^(n+1) ns.
    pub buckets: Vec<u64>,
}

impl Latency {
    /// The mean; none without calls.
    pub fn mean_ns(&self) -> Option<u64> {
        self.sum_ns.checked_div(self.count)
    }

    /// A bound that this share of the calls did not exceed: the end of a bucket, or the maximum.
    pub fn bound_ns(&self, share: f64) -> Option<u64> {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|calls| {
            seen += calls;
            seen >= wanted && seen > 0
        })?;
        Some(self.max_ns.min((2u64 << bucket) - 1))
    }
}

/// All registrations.
pub fn registrations(root: &Root) -> Outcome<Vec<Registration>> {
    parsed(root, "registrations", parse_registration)
}

/// The last failures, oldest first.
pub fn failures(root: &Root) -> Outcome<Vec<FailedRegistration>> {
    parsed(root, "failures", parse_failure)
}

/// How long calls took.
pub fn latency(root: &Root) -> Outcome<Vec<Latency>> {
    parsed(root, "latency", parse_latency)
}

fn parsed<T>(root: &Root, name: &str, parse: fn(&str) -> Option<T>) -> Outcome<Vec<T>> {
    let path = format!("{DEBUGFS}/{name}");
    let text = match root.read(&path) {
        Read::Contents(text) => text,
        _ if !module::is_loaded(root) => return Err(module::not_loaded()),
        Read::Missing => return Err(not_mounted(root, &path)),
        Read::Denied => return Err(denied(root, &path)),
        Read::Failed(error) => return Err(Failure::error(format!("{path}: {error}"))),
    };
    text.lines()
        .map(|line| {
            parse(line).ok_or_else(|| Failure::error(format!("{path}: not understood: {line}")))
        })
        .collect()
}

fn not_mounted(root: &Root, path: &str) -> Failure {
    // It may have gone meanwhile.
    if !module::is_loaded(root) {
        return module::not_loaded();
    }
    Failure::error(format!(
        "{path} is missing: mount -t debugfs debugfs /sys/kernel/debug"
    ))
}

fn denied(root: &Root, path: &str) -> Failure {
    let why = match root.is_caller_root() {
        true => "not even by root: the kernel is locked down, or this is a container",
        false => "by root only: run it with sudo",
    };
    Failure::new(Exit::Permission, format!("{path} can be read {why}"))
}

/// A line of `key=value`, whose last value is the name of a process and may contain anything.
struct Line<'a> {
    pairs: Vec<(&'a str, &'a str)>,
    comm: &'a str,
}

impl<'a> Line<'a> {
    fn new(line: &'a str) -> Option<Self> {
        let (rest, comm) = line.split_once(" comm=")?;
        Some(Self {
            pairs: pairs(rest),
            comm,
        })
    }

    fn without_comm(line: &'a str) -> Self {
        Self {
            pairs: pairs(line),
            comm: "",
        }
    }

    fn text(&self, key: &str) -> Option<String> {
        let (_, value) = self.pairs.iter().find(|(name, _)| *name == key)?;
        Some((*value).to_owned())
    }

    fn number<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.text(key)?.parse().ok()
    }

    fn comm(&self) -> String {
        printable(self.comm)
    }
}

fn pairs(text: &str) -> Vec<(&str, &str)> {
    text.split_whitespace()
        .filter_map(|word| word.split_once('='))
        .collect()
}

/// A process chooses its name: it must not command the terminal.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

fn parse_registration(line: &str) -> Option<Registration> {
    let line = Line::new(line)?;
    Some(Registration {
        id: line.number("id")?,
        pid: line.number("pid")?,
        comm: line.comm(),
        client: line.text("client")?,
        gpu: line.text("gpu")?,
        device: line.text("device").filter(|device| device != "-"),
        address: line.text("address")?,
        length: line.number("length")?,
        pages: line.number("pages")?,
        entries: line.number("entries")?,
        state: line.text("state")?,
        age_ms: line.number("age_ms")?,
    })
}

fn parse_failure(line: &str) -> Option<FailedRegistration> {
    let line = Line::new(line)?;
    Some(FailedRegistration {
        time: line.number("time")?,
        pid: line.number("pid")?,
        comm: line.comm(),
        length: line.number("length")?,
        stage: line.text("stage")?,
        errno: line.number("errno")?,
        reason: line.text("reason")?,
    })
}

fn parse_latency(text: &str) -> Option<Latency> {
    let line = Line::without_comm(text);
    let buckets = line.text("buckets")?;
    Some(Latency {
        call: text.split_whitespace().next()?.to_owned(),
        count: line.number("count")?,
        sum_ns: line.number("sum_ns")?,
        max_ns: line.number("max_ns")?,
        buckets: buckets
            .split(',')
            .map(|n| n.parse().ok())
            .collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTRATION: &str = "id=12 pid=4711 client=nv_mem gpu=0000:17:00.0 device=- \
        address=0x7f0000000000 length=1048576 pages=16 entries=0 state=acquired age_ms=1234 comm=";

    #[test]
    fn the_name_of_a_process_cannot_pretend_to_be_a_field() {
        let line = format!("{REGISTRATION}a b id=13 comm=\x1b[31m");
        let registration = parse_registration(&line).unwrap();
        assert_eq!(registration.id, 12);
        assert_eq!(registration.device, None);
        assert_eq!(registration.comm, "a b id=13 comm=?[31m");
    }

    #[test]
    fn a_line_that_lacks_something_is_not_understood() {
        assert_eq!(parse_registration("id=12 pid=4711 comm=x"), None);
    }

    #[test]
    fn bounds_are_ends_of_buckets() {
        let text = "pin count=4 sum_ns=100 max_ns=70 buckets=0,0,1,2,0,0,1,0";
        let latency = parse_latency(text).unwrap();
        assert_eq!(latency.mean_ns(), Some(25));
        assert_eq!(latency.bound_ns(0.25), Some(7));
        assert_eq!(latency.bound_ns(0.5), Some(15));
        assert_eq!(latency.bound_ns(0.99), Some(70));
    }

    #[test]
    fn without_calls_there_is_no_latency() {
        let latency = parse_latency("map count=0 sum_ns=0 max_ns=0 buckets=0,0").unwrap();
        assert_eq!(latency.mean_ns(), None);
        assert_eq!(latency.bound_ns(0.5), None);
    }
}

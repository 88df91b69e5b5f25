// SPDX-License-Identifier: GPL-2.0

//! `peermem bench`: how long registering and deregistering memory takes, by size.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use crate::cli::Global;
use crate::failure::{Failure, Outcome};
use crate::output::{outln, print_json, Paint};
use crate::plot::{Plot, Series};
use crate::root::Root;
use crate::units;
use crate::verbs::{Domain, Memory, Verbs};

/// What to measure, and how often.
#[derive(Args, Debug)]
pub struct Options {
    /// The RDMA device (default: the first one)
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Smallest and largest size; those between are twice the one before
    #[arg(short, long, value_name = "MIN:MAX", default_value = "4K:16M")]
    sizes: Sizes,
    /// Registrations of each size that are measured
    #[arg(short = 'n', long, value_name = "COUNT", default_value = "200",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    iterations: u32,
    /// Registrations of each size before those
    #[arg(long, value_name = "COUNT", default_value = "20",
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    warm_up: u32,
    /// Map this device's memory, and not the host's
    #[arg(long, value_name = "DEVICE")]
    mmap: Option<PathBuf>,
    /// Draw a plot into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Sizes from one to another, each twice the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    smallest: usize,
    largest: usize,
}

impl Sizes {
    fn all(self) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(self.smallest), |size| size.checked_mul(2))
            .take_while(move |size| *size <= self.largest)
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (smallest, largest) = text.split_once(':').unwrap_or((text, text));
        let size = |text| units::parse_bytes(text).map(|bytes| bytes as usize);
        let sizes = Self {
            smallest: size(smallest)?,
            largest: size(largest)?,
        };
        match sizes.smallest > 0 && sizes.smallest <= sizes.largest {
            true => Ok(sizes),
            false => {
                Err("the smallest size is 1, and the largest not below the smallest".to_owned())
            }
        }
    }
}

/// What was measured.
#[derive(Serialize)]
struct Results {
    device: String,
    memory: String,
    /// The module's version; none if it is not loaded.
    module: Option<String>,
    iterations: u32,
    sizes: Vec<Measured>,
}

/// What was measured of a size.
#[derive(Serialize)]
struct Measured {
    length: usize,
    register: Times,
    deregister: Times,
}

/// Some times, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Times {
    median_ns: u64,
    p99_ns: u64,
    min_ns: u64,
    max_ns: u64,
}

impl Times {
    /// Of at least one time.
    fn of(mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        let last = times.len() - 1;
        let rank = |percent: usize| times[(times.len() * percent).div_ceil(100).max(1) - 1];
        Self {
            median_ns: rank(50),
            p99_ns: rank(99),
            min_ns: times[0],
            max_ns: times[last],
        }
    }
}

/// Measures, and shows what came out.
pub fn run(root: &Root, global: &Global, options: &Options) -> Outcome {
    let verbs = Verbs::load()?;
    let context = verbs.open(options.device.as_deref())?;
    let domain = context.domain()?;
    let memory = memory(options)?;
    let results = Results {
        device: context.name.clone(),
        memory: memory_name(options),
        module: root.value("/sys/module/nvidia_peermem/version"),
        iterations: options.iterations,
        sizes: options
            .sizes
            .all()
            .map(|length| measure(&domain, &memory, length, options))
            .collect::<Outcome<_>>()?,
    };
    show(global, &results);
    if let Some(file) = &options.svg {
        fs::write(file, plot(&results).svg())
            .map_err(|error| Failure::error(format!("{}: {error}", file.display())))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn memory_name(options: &Options) -> String {
    match &options.mmap {
        Some(device) => device.display().to_string(),
        None => "host".to_owned(),
    }
}

fn memory(options: &Options) -> Outcome<Memory> {
    let length = options.sizes.largest;
    match &options.mmap {
        Some(device) => Memory::device(device, length),
        None => Memory::host(length),
    }
    .map_err(|error| {
        let (name, size) = (memory_name(options), units::bytes(length as u64));
        Failure::error(format!("{name}: {size} cannot be mapped: {error}"))
    })
}

fn measure(
    domain: &Domain<'_>,
    memory: &Memory,
    length: usize,
    options: &Options,
) -> Outcome<Measured> {
    let (mut register, mut deregister) = (Vec::new(), Vec::new());
    for round in 0..options.warm_up + options.iterations {
        let (came, went) = once(domain, memory, length).map_err(|error| failed(length, &error))?;
        if round >= options.warm_up {
            register.push(nanoseconds(came));
            deregister.push(nanoseconds(went));
        }
    }
    Ok(Measured {
        length,
        register: Times::of(register),
        deregister: Times::of(deregister),
    })
}

fn once(domain: &Domain<'_>, memory: &Memory, length: usize) -> io::Result<(Duration, Duration)> {
    let start = Instant::now();
    let region = domain.register(memory, length)?;
    let between = Instant::now();
    region.deregister()?;
    Ok((between - start, between.elapsed()))
}

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos() as u64
}

fn failed(length: usize, error: &io::Error) -> Failure {
    let hint = match error.raw_os_error() {
        Some(libc::ENOMEM) => " (see `ulimit -l`, and `peermem show failures`)",
        Some(libc::EFAULT) => " (is it memory of a GPU, and nvidia_peermem loaded?)",
        Some(libc::EAGAIN) => " (does the module drain? see `peermem status`)",
        _ => "",
    };
    let size = units::bytes(length as u64);
    Failure::error(format!("registering {size} failed: {error}{hint}"))
}

fn show(global: &Global, results: &Results) {
    if global.json {
        return print_json(global, results);
    }
    let paint = Paint::new(global);
    outln!(
        "{}, {} memory, {} registrations of each size",
        results.device,
        results.memory,
        results.iterations
    );
    let heading = format!(
        "{:>10}{:>44}{:>44}\n{:>10}{}{}",
        "",
        "register",
        "deregister",
        "size",
        columns(),
        columns()
    );
    outln!("{}", paint.bold(&heading));
    for size in &results.sizes {
        let length = units::bytes(size.length as u64);
        outln!(
            "{length:>10}{}{}",
            row(&size.register),
            row(&size.deregister)
        );
    }
}

fn columns() -> String {
    format!("{:>11}{:>11}{:>11}{:>11}", "median", "p99", "min", "max")
}

fn row(times: &Times) -> String {
    [times.median_ns, times.p99_ns, times.min_ns, times.max_ns]
        .map(|ns| format!("{:>11}", units::nanoseconds(ns)))
        .concat()
}

fn plot(results: &Results) -> Plot {
    let series = |name: &'static str, value: fn(&Measured) -> u64| Series {
        name,
        points: results
            .sizes
            .iter()
            .map(|size| (size.length as u64, value(size)))
            .collect(),
    };
    Plot {
        title: format!(
            "Registration of {} memory on {}",
            results.memory, results.device
        ),
        series: vec![
            series("register, median", |size| size.register.median_ns),
            series("register, p99", |size| size.register.p99_ns),
            series("deregister, median", |size| size.deregister.median_ns),
            series("deregister, p99", |size| size.deregister.p99_ns),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_double() {
        let sizes: Sizes = "4K:20K".parse().unwrap();
        assert_eq!(sizes.all().collect::<Vec<_>>(), [4096, 8192, 16384]);
        assert_eq!("64K".parse::<Sizes>().unwrap().all().count(), 1);
        for wrong in ["", "0", "8K:4K", "4K:", "x:y"] {
            assert!(wrong.parse::<Sizes>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_by_rank() {
        let times = Times::of((1..=200).rev().collect());
        assert_eq!((times.median_ns, times.p99_ns), (100, 198));
        assert_eq!((times.min_ns, times.max_ns), (1, 200));
        let one = Times::of(vec![7]);
        assert_eq!(
            (one.median_ns, one.p99_ns, one.min_ns, one.max_ns),
            (7, 7, 7, 7)
        );
    }
}

// SPDX-License-Identifier: GPL-2.0

//! `peermem watch`: a line an event, found by looking again and again.
//!
//! Registrations are seen one by one where debugfs can be read. What comes and goes between two
//! looks is seen in the counters only; tracepoints miss nothing.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::cli::Global;
use crate::clock;
use crate::commands::show::{failure_fields, Fields, Mr};
use crate::debug::{self, FailedRegistration};
use crate::failure::{Exit, Outcome};
use crate::module::{self, Snapshot};
use crate::output::{outln, print_json, Paint};
use crate::root::Root;
use crate::system::DeviceNames;

/// How to watch.
#[derive(Args, Debug)]
pub struct Options {
    /// Seconds between two looks
    #[arg(short, long, value_name = "SECONDS", default_value = "0.5", value_parser = clock::interval)]
    interval: Duration,
    /// End after so many looks
    #[arg(short = 'n', long, value_name = "LOOKS")]
    count: Option<u64>,
}

/// A registration in these states may still fail.
const BEFORE_MAPPED: [&str; 4] = ["pinning", "acquired", "pinned", "mapping"];

/// Something that happened.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event {
    /// A registration came.
    Registered(Box<Mr>),
    /// A registration went.
    Deregistered(Box<Mr>),
    /// A registration failed.
    Failed(FailedRegistration),
    /// A counter moved.
    Counted {
        counter: String,
        by: u64,
        value: u64,
    },
    /// A control file has another value.
    Changed {
        what: &'static str,
        from: String,
        to: String,
    },
    /// The module was loaded.
    Loaded,
    /// The module was unloaded.
    Unloaded,
}

impl Event {
    fn fields(&self, details: bool) -> Fields {
        let mut fields = Fields::default();
        match self {
            Self::Registered(mr) | Self::Deregistered(mr) => return mr.fields(details),
            Self::Failed(failure) => return failure_fields(failure),
            Self::Counted { counter, by, value } => fields
                .add("counter", counter)
                .add("by", by)
                .add("to", value),
            Self::Changed { what, from, to } => fields.add(what, from).add("->", to),
            Self::Loaded => fields.add("module", "loaded"),
            Self::Unloaded => fields.add("module", "unloaded"),
        };
        fields
    }

    fn sign(&self, paint: Paint) -> String {
        match self {
            Self::Registered(_) | Self::Loaded => paint.good("+"),
            Self::Deregistered(_) | Self::Unloaded => paint.dim("-"),
            Self::Failed(_) => paint.bad("!"),
            Self::Counted { .. } | Self::Changed { .. } => "*".to_owned(),
        }
    }
}

/// An event as JSON.
#[derive(Serialize)]
struct Timed {
    /// Time of the day.
    at: String,
    #[serde(flatten)]
    event: Event,
}

/// What one look shows. Without the right to read debugfs, there are no registrations.
#[derive(Default)]
struct Look {
    module: Option<Snapshot>,
    mrs: Option<BTreeMap<u64, Mr>>,
    failures: Option<Vec<FailedRegistration>>,
}

impl Look {
    fn at(root: &Root) -> Outcome<Self> {
        let module = match Snapshot::read(root) {
            Ok(module) => module,
            Err(failure) if failure.exit() == Exit::NotLoaded => return Ok(Self::default()),
            Err(failure) => return Err(failure),
        };
        let names = DeviceNames::read(root);
        let mrs = debug::registrations(root).ok().map(|mrs| {
            mrs.into_iter()
                .filter(|mr| !BEFORE_MAPPED.contains(&mr.state.as_str()))
                .map(|mr| (mr.id, Mr::new(mr, &names)))
                .collect()
        });
        Ok(Self {
            module: Some(module),
            mrs,
            failures: debug::failures(root).ok(),
        })
    }

    fn since(&self, before: &Self) -> Vec<Event> {
        match (&before.module, &self.module) {
            (None, Some(_)) => vec![Event::Loaded],
            (Some(_), None) => vec![Event::Unloaded],
            (None, None) => Vec::new(),
            (Some(old), Some(new)) => {
                let mut events = changes(old, new);
                events.extend(self.came_and_went(before));
                events.extend(self.failed_since(before));
                events.extend(self.counted(old, new));
                events
            }
        }
    }

    fn came_and_went(&self, before: &Self) -> Vec<Event> {
        let (Some(old), Some(new)) = (&before.mrs, &self.mrs) else {
            return Vec::new();
        };
        let went = old.iter().filter(|(id, _)| !new.contains_key(id));
        let came = new.iter().filter(|(id, _)| !old.contains_key(id));
        let went = went.map(|(_, mr)| Event::Deregistered(Box::new(mr.clone())));
        let came = came.map(|(_, mr)| Event::Registered(Box::new(mr.clone())));
        went.chain(came).collect()
    }

    fn failed_since(&self, before: &Self) -> Vec<Event> {
        let (Some(old), Some(new)) = (&before.failures, &self.failures) else {
            return Vec::new();
        };
        let new = new.iter().filter(|failure| !old.contains(failure));
        new.cloned().map(Event::Failed).collect()
    }

    /// Counters that moved, but for those of which debugfs shows more.
    fn counted(&self, old: &Snapshot, new: &Snapshot) -> Vec<Event> {
        let old = counters(old, self.mrs.is_none(), self.failures.is_none());
        let new = counters(new, self.mrs.is_none(), self.failures.is_none());
        new.into_iter()
            .filter_map(|(counter, value)| {
                let by = value.checked_sub(*old.get(&counter)?)?;
                (by > 0).then_some(Event::Counted { counter, by, value })
            })
            .collect()
    }
}

/// The counters that tell of events.
fn counters(module: &Snapshot, registrations: bool, failures: bool) -> BTreeMap<String, u64> {
    let stats = &module.stats;
    let mut counters = BTreeMap::from([
        ("invalidations".to_owned(), stats.invalidations),
        ("freed_unmapped".to_owned(), stats.freed_unmapped),
        ("late_callbacks".to_owned(), stats.late_callbacks),
    ]);
    if registrations {
        for (name, client) in &module.clients {
            let numbers = &client.counters;
            counters.insert(format!("{name}/num_alloc_mrs"), numbers.num_alloc_mrs);
            counters.insert(format!("{name}/num_dealloc_mrs"), numbers.num_dealloc_mrs);
        }
    }
    if failures {
        let named = module.failures.iter();
        counters.extend(named.map(|(reason, count)| (format!("failures/{reason}"), *count)));
    }
    counters
}

fn changes(old: &Snapshot, new: &Snapshot) -> Vec<Event> {
    let limit = |module: &Snapshot| module.max_pinned_bytes.to_string();
    [
        ("state", old.state.clone(), new.state.clone()),
        ("max_pinned_bytes", limit(old), limit(new)),
    ]
    .into_iter()
    .filter(|(_, from, to)| from != to)
    .map(|(what, from, to)| Event::Changed { what, from, to })
    .collect()
}

/// Watches until it is interrupted, or the looks are used up.
pub fn run(root: &Root, global: &Global, options: &Options) -> Outcome {
    let mut before = Look::at(root)?;
    if before.module.is_none() {
        eprintln!("peermem: {}; waiting for it", module::not_loaded());
    } else if before.mrs.is_none() {
        eprintln!("peermem: without root, registrations are counted, not shown");
    }
    let mut looks = 0;
    while options.count.is_none_or(|count| looks < count) {
        thread::sleep(options.interval);
        let now = Look::at(root)?;
        for event in now.since(&before) {
            print(global, event);
        }
        before = now;
        looks += 1;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(global: &Global, event: Event) {
    let at = clock::time_of_day();
    if global.json {
        return print_json(global, &Timed { at, event });
    }
    let paint = Paint::new(global);
    let line = event.fields(global.details).line(paint);
    outln!("{} {} {line}", paint.dim(&at), event.sign(paint));
}

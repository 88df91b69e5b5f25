// SPDX-License-Identifier: GPL-2.0

//! `peermem top`: who registers what, live.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde::Serialize;

use crate::cli::Global;
use crate::clock;
use crate::debug::{self, Registration};
use crate::failure::{Exit, Failure, Outcome};
use crate::module::{self, Snapshot};
use crate::output::{outln, print_json, Paint};
use crate::root::Root;
use crate::screen::Screen;
use crate::system::DeviceNames;
use crate::units::bytes;

const KEYS: &str = "q quit   sort by: b bytes  m registrations  c change  n name   r reverse";

/// How to show it.
#[derive(Args, Debug)]
pub struct Options {
    /// Seconds between two looks
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = clock::interval)]
    interval: Duration,
    /// What to sort by
    #[arg(short, long, value_name = "KEY", value_enum, default_value = "bytes")]
    sort: Sort,
    /// Print one look after the other; so it is without a terminal, too
    #[arg(short, long)]
    batch: bool,
    /// End after so many looks
    #[arg(short = 'n', long, value_name = "LOOKS",
          value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// What to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// Bytes registered
    Bytes,
    /// Number of registrations
    Mrs,
    /// Change of bytes, whatever its direction
    Change,
    /// Name or number
    Name,
}

impl Sort {
    fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Mrs => "registrations",
            Self::Change => "change",
            Self::Name => "name",
        }
    }
}

/// The order of rows.
#[derive(Clone, Copy)]
struct Order {
    by: Sort,
    reverse: bool,
}

impl Order {
    fn apply(self, rows: &mut [Row]) {
        rows.sort_by(|a, b| match self.by {
            Sort::Bytes => b.bytes.cmp(&a.bytes),
            Sort::Mrs => b.mrs.cmp(&a.mrs),
            Sort::Change => b
                .bytes_per_second
                .abs()
                .total_cmp(&a.bytes_per_second.abs()),
            Sort::Name => a.name.cmp(&b.name),
        });
        if self.reverse {
            rows.reverse();
        }
    }
}

/// One look at the module.
struct Look {
    at: Instant,
    module: Snapshot,
    names: DeviceNames,
    /// None without the right to read them.
    registrations: Option<Vec<Registration>>,
}

impl Look {
    fn new(root: &Root) -> Outcome<Self> {
        Ok(Self {
            at: Instant::now(),
            module: Snapshot::read(root)?,
            names: DeviceNames::read(root),
            registrations: debug::registrations(root).ok(),
        })
    }

    fn processes(&self) -> Option<Usages> {
        let mut processes = Usages::new();
        let mapped = self.registrations.as_ref()?.iter();
        for mr in mapped.filter(|mr| mr.is_mapped()) {
            let name = format!("{:>7} {}", mr.pid, mr.comm);
            let usage = processes.entry(name).or_default();
            usage.mrs += 1;
            usage.bytes += mr.length;
        }
        Some(processes)
    }

    fn gpus(&self) -> Usages {
        let gpus = self.module.gpus.iter();
        gpus.map(|(pci, gpu)| {
            let gauges = &gpu.gauges;
            (
                pci.clone(),
                Usage::new(gauges.active_mrs, gauges.active_bytes),
            )
        })
        .collect()
    }

    fn devices(&self) -> Usages {
        let devices = self.module.devices.iter();
        devices
            .map(|(pci, gauges)| {
                let name = match self.names.find(pci) {
                    Some(name) => format!("{name} ({pci})"),
                    None => pci.clone(),
                };
                (name, Usage::new(gauges.active_mrs, gauges.active_bytes))
            })
            .collect()
    }
}

/// What somebody has registered.
#[derive(Clone, Copy, Default)]
struct Usage {
    mrs: u64,
    bytes: u64,
}

impl Usage {
    fn new(mrs: u64, bytes: u64) -> Self {
        Self { mrs, bytes }
    }
}

type Usages = BTreeMap<String, Usage>;

/// A row of a table.
#[derive(Serialize)]
struct Row {
    name: String,
    mrs: u64,
    bytes: u64,
    bytes_per_second: f64,
}

/// How often things happened since the look before, by the second.
#[derive(Default, Serialize)]
struct Rates {
    registrations: f64,
    registered_bytes: f64,
    deregistrations: f64,
    failures: f64,
    invalidations: f64,
}

/// What a screen shows.
#[derive(Serialize)]
struct View {
    time: String,
    version: String,
    state: String,
    active_mrs: u64,
    peak_active_mrs: u64,
    active_bytes: u64,
    pinned_bytes: u64,
    max_pinned_bytes: u64,
    per_second: Rates,
    /// None without the right to read them.
    processes: Option<Vec<Row>>,
    gpus: Vec<Row>,
    rdma_devices: Vec<Row>,
}

impl View {
    fn new(now: &Look, before: Option<&Look>, order: Order) -> Self {
        let seconds = before.map_or(0.0, |before| (now.at - before.at).as_secs_f64());
        let rows = |usages: fn(&Look) -> Option<Usages>| {
            let before = before.and_then(usages);
            Some(rows(usages(now)?, before, seconds, order))
        };
        let module = &now.module;
        Self {
            time: clock::time_of_day(),
            version: module.version.clone(),
            state: module.state.clone(),
            active_mrs: module.stats.active_mrs,
            peak_active_mrs: module.stats.peak_active_mrs,
            active_bytes: module.stats.active_bytes,
            pinned_bytes: module.stats.pinned_bytes,
            max_pinned_bytes: module.max_pinned_bytes,
            per_second: before.map_or_else(Rates::default, |before| rates(now, before, seconds)),
            processes: rows(Look::processes),
            gpus: rows(|look| Some(look.gpus())).unwrap_or_default(),
            rdma_devices: rows(|look| Some(look.devices())).unwrap_or_default(),
        }
    }

    fn lines(&self, paint: Paint) -> Vec<String> {
        let mut lines = self.head(paint);
        table(&mut lines, "PROCESS", self.processes.as_deref(), paint);
        table(&mut lines, "GPU", Some(&self.gpus), paint);
        table(&mut lines, "RDMA DEVICE", Some(&self.rdma_devices), paint);
        lines
    }

    fn head(&self, paint: Paint) -> Vec<String> {
        let state = match self.state.as_str() {
            "live" => paint.good("live"),
            other => paint.warning(other),
        };
        let limit = match self.max_pinned_bytes {
            0 => "none".to_owned(),
            limit => bytes(limit),
        };
        let rates = &self.per_second;
        vec![
            format!("nvidia_peermem {}  {state}  {}", self.version, self.time),
            format!(
                "registrations {} (peak {})  registered {}  pinned {}  limit {limit}",
                self.active_mrs,
                self.peak_active_mrs,
                bytes(self.active_bytes),
                bytes(self.pinned_bytes),
            ),
            format!(
                "a second: {:.1} registered ({})  {:.1} deregistered  {:.1} failed  {:.1} invalidated",
                rates.registrations,
                bytes(rates.registered_bytes as u64),
                rates.deregistrations,
                rates.failures,
                rates.invalidations
            ),
        ]
    }
}

fn rates(now: &Look, before: &Look, seconds: f64) -> Rates {
    // After a reset, a counter is below what it was.
    let rate = |value: fn(&Snapshot) -> u64| {
        value(&now.module).saturating_sub(value(&before.module)) as f64 / seconds
    };
    Rates {
        registrations: rate(|m| m.total(|c| c.num_alloc_mrs)),
        registered_bytes: rate(|m| m.total(|c| c.num_reg_bytes)),
        deregistrations: rate(|m| m.total(|c| c.num_dealloc_mrs)),
        failures: rate(Snapshot::failed),
        invalidations: rate(|m| m.stats.invalidations),
    }
}

fn rows(now: Usages, before: Option<Usages>, seconds: f64, order: Order) -> Vec<Row> {
    let change = |name: &str, bytes: u64| match &before {
        Some(before) => {
            let old = before.get(name).map_or(0, |usage| usage.bytes);
            (bytes as f64 - old as f64) / seconds
        }
        None => 0.0,
    };
    let mut rows: Vec<Row> = now
        .into_iter()
        .map(|(name, usage)| Row {
            bytes_per_second: change(&name, usage.bytes),
            name,
            mrs: usage.mrs,
            bytes: usage.bytes,
        })
        .collect();
    order.apply(&mut rows);
    rows
}

fn table(lines: &mut Vec<String>, heading: &str, rows: Option<&[Row]>, paint: Paint) {
    lines.push(String::new());
    let columns = format!("{heading:<36}{:>8}{:>12}{:>14}", "MRS", "BYTES", "CHANGE/S");
    lines.push(paint.bold(&columns));
    match rows {
        None => lines.push(paint.dim("  needs root")),
        Some([]) => lines.push(paint.dim("  none")),
        Some(rows) => lines.extend(rows.iter().map(row)),
    }
}

fn row(row: &Row) -> String {
    let sign = match row.bytes_per_second {
        change if change < 0.0 => "-",
        change if change > 0.0 => "+",
        _ => "",
    };
    format!(
        "{:<36}{:>8}{:>12}{:>14}",
        shortened(&row.name, 35),
        row.mrs,
        bytes(row.bytes),
        format!("{sign}{}", bytes(row.bytes_per_second.abs() as u64))
    )
}

fn shortened(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// Shows it until the user has enough.
pub fn run(root: &Root, global: &Global, options: &Options) -> Outcome {
    if !module::is_loaded(root) {
        return Err(module::not_loaded());
    }
    let terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    match options.batch || global.json || !terminal {
        true => batch(root, global, options),
        false => interactive(root, global, options),
    }
}

fn batch(root: &Root, global: &Global, options: &Options) -> Outcome {
    let paint = Paint::new(global);
    let order = Order {
        by: options.sort,
        reverse: false,
    };
    let mut before = None;
    for look in 0.. {
        let now = Look::new(root)?;
        let view = View::new(&now, before.as_ref(), order);
        match global.json {
            true => print_json(global, &view),
            false => outln!("{}\n", view.lines(paint).join("\n")),
        }
        if options.count.is_some_and(|count| look + 1 >= count) {
            break;
        }
        before = Some(now);
        thread::sleep(options.interval);
    }
    Ok(ExitCode::SUCCESS)
}

/// What a key asks for.
enum Wish {
    Quit,
    SortBy(Sort),
    Reverse,
    Redraw,
}

fn wish(event: &Event) -> Option<Wish> {
    let key = match event {
        Event::Key(key) if key.kind == KeyEventKind::Press => key,
        Event::Resize(..) => return Some(Wish::Redraw),
        _ => return None,
    };
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Some(Wish::Quit),
        KeyCode::Char('c') if is_control(key) => Some(Wish::Quit),
        KeyCode::Char('b') => Some(Wish::SortBy(Sort::Bytes)),
        KeyCode::Char('m') => Some(Wish::SortBy(Sort::Mrs)),
        KeyCode::Char('c') => Some(Wish::SortBy(Sort::Change)),
        KeyCode::Char('n') => Some(Wish::SortBy(Sort::Name)),
        KeyCode::Char('r') => Some(Wish::Reverse),
        _ => None,
    }
}

fn is_control(key: &KeyEvent) -> bool {
    key.modifiers.contains(KeyModifiers::CONTROL)
}

/// What the screen shows at a time.
struct Session<'a> {
    root: &'a Root,
    paint: Paint,
    order: Order,
    before: Option<Look>,
    now: Option<Look>,
}

impl Session<'_> {
    /// Looks again. A module that has gone may come back.
    fn look(&mut self) -> Outcome<()> {
        self.before = self.now.take();
        self.now = match Look::new(self.root) {
            Ok(look) => Some(look),
            Err(failure) if failure.exit() == Exit::NotLoaded => None,
            Err(failure) => return Err(failure),
        };
        Ok(())
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = match &self.now {
            Some(now) => View::new(now, self.before.as_ref(), self.order).lines(self.paint),
            None => vec![self.paint.bad("nvidia_peermem is not loaded")],
        };
        let direction = if self.order.reverse { ", reversed" } else { "" };
        let order = format!("{KEYS}   (by {}{direction})", self.order.by.name());
        lines.insert(0, self.paint.dim(&order));
        lines
    }

    /// Does what the user wants; false is the end.
    fn obey(&mut self, wish: &Wish) -> bool {
        match wish {
            Wish::Quit => return false,
            Wish::SortBy(sort) => self.order.by = *sort,
            Wish::Reverse => self.order.reverse = !self.order.reverse,
            Wish::Redraw => {}
        }
        true
    }
}

fn interactive(root: &Root, global: &Global, options: &Options) -> Outcome {
    let mut session = Session {
        root,
        paint: Paint::new(global),
        order: Order {
            by: options.sort,
            reverse: false,
        },
        before: None,
        now: None,
    };
    let mut screen = Screen::open().map_err(|error| terminal_failed(&error))?;
    let mut looks = 0;
    while options.count.is_none_or(|count| looks < count) {
        session.look()?;
        looks += 1;
        let go_on = show_until(&mut screen, &mut session, Instant::now() + options.interval);
        if !go_on.map_err(|error| terminal_failed(&error))? {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn terminal_failed(error: &io::Error) -> Failure {
    Failure::error(format!("the terminal: {error}"))
}

/// Shows a look and obeys keys until it is time for the next; false is the end.
fn show_until(screen: &mut Screen, session: &mut Session<'_>, end: Instant) -> io::Result<bool> {
    loop {
        screen.draw(&session.lines())?;
        match next_wish(screen, end)? {
            None => return Ok(!screen.is_interrupted()),
            Some(wish) if !session.obey(&wish) => return Ok(false),
            Some(_) => {}
        }
    }
}

/// The next wish, if there is one before the end.
fn next_wish(screen: &Screen, end: Instant) -> io::Result<Option<Wish>> {
    const STEP: Duration = Duration::from_millis(200);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || screen.is_interrupted() {
            return Ok(None);
        }
        if event::poll(left.min(STEP))? {
            if let Some(wish) = wish(&event::read()?) {
                return Ok(Some(wish));
            }
        }
    }
}

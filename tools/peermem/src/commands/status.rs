// SPDX-License-Identifier: GPL-2.0

//! `peermem status`: all that matters, on one screen.

use std::process::ExitCode;

use serde::Serialize;

use crate::cli::Global;
use crate::failure::{Exit, Outcome};
use crate::installed::{self, Absence, ModuleFile};
use crate::module::{self, Snapshot};
use crate::output::{out, print_json, Paint};
use crate::root::Root;
use crate::system::{self, MachineGpu, RdmaDevice};
use crate::units::{bytes, count};

/// What is shown.
#[derive(Serialize)]
struct Status {
    loaded: bool,
    /// Why it is not loaded, if it is not.
    absence: Option<Absence>,
    file: Option<ModuleFile>,
    module: Option<Snapshot>,
    gpus: Vec<MachineGpu>,
    rdma_devices: Vec<RdmaDevice>,
}

impl Status {
    fn read(root: &Root) -> Outcome<Self> {
        let module = match module::is_loaded(root) {
            true => Some(Snapshot::read(root)?),
            false => None,
        };
        Ok(Self {
            loaded: module.is_some(),
            absence: match module {
                Some(_) => None,
                None => Some(installed::absence(root)),
            },
            file: installed::module_file(root),
            module,
            gpus: system::gpus(root),
            rdma_devices: system::rdma_devices(root),
        })
    }

    fn exit(&self) -> ExitCode {
        match &self.module {
            None => Exit::NotLoaded.into(),
            Some(module) if module.drains() => Exit::Drain.into(),
            Some(_) => ExitCode::SUCCESS,
        }
    }
}

/// Shows it. The exit code tells scripts the same.
pub fn run(root: &Root, global: &Global) -> Outcome {
    let status = Status::read(root)?;
    match global.json {
        true => print_json(global, &status),
        false => out!("{}", Screen::new(global).text(&status)),
    }
    Ok(status.exit())
}

/// Lays the text out.
struct Screen {
    paint: Paint,
    text: String,
}

impl Screen {
    fn new(global: &Global) -> Self {
        Self {
            paint: Paint::new(global),
            text: String::new(),
        }
    }

    fn text(mut self, status: &Status) -> String {
        match &status.module {
            Some(module) => self.loaded(status, module),
            None => self.not_loaded(status),
        }
        self.text
    }

    fn loaded(&mut self, status: &Status, module: &Snapshot) {
        let state = match module.drains() {
            true => self.paint.warning("drain (no new registrations)"),
            false => self.paint.good(&module.state),
        };
        let name = format!("nvidia_peermem {}", module.version);
        self.line(&format!("{}: {state}", self.paint.bold(&name)));
        self.file(status);
        self.row("mode", mode(&module.mode));
        self.row("GPU driver", &driver(module));
        self.row("RDMA core", &module.peer_memory_core);
        self.row("limit", &limit(module.max_pinned_bytes));
        self.figures(module);
        self.gpus(status, module);
        self.devices(status, module);
    }

    fn not_loaded(&mut self, status: &Status) {
        let state = self.paint.bad("not loaded");
        self.line(&format!("{}: {state}", self.paint.bold("nvidia_peermem")));
        if let Some(absence) = &status.absence {
            self.absence(absence);
        }
        self.file(status);
        for gpu in &status.gpus {
            self.row(
                "GPU",
                &join(&[&gpu.pci, gpu.model.as_deref().unwrap_or("")]),
            );
        }
        for device in &status.rdma_devices {
            self.row("RDMA device", &device_name(device));
        }
        if status.rdma_devices.is_empty() {
            self.row("RDMA device", "none");
        }
    }

    fn absence(&mut self, absence: &Absence) {
        for reason in &absence.reasons {
            self.row("why", reason);
        }
        match &absence.last_attempt {
            Some(attempt) => self.row("last attempt", attempt),
            None if !absence.kernel_log_readable => {
                self.row(
                    "last attempt",
                    "unknown: the kernel log cannot be read, try as root",
                );
            }
            None if absence.reasons.is_empty() => {
                self.row(
                    "why",
                    "nothing seems to be in the way: modprobe nvidia-peermem",
                );
            }
            None => {}
        }
        self.row("what to do", "peermem doctor");
    }

    fn file(&mut self, status: &Status) {
        let text = match &status.file {
            Some(ModuleFile {
                path,
                version: Some(version),
            }) => format!("{path} ({version})"),
            Some(file) => file.path.clone(),
            None => "none that modprobe knows".to_owned(),
        };
        self.row("file", &text);
    }

    fn figures(&mut self, module: &Snapshot) {
        let stats = &module.stats;
        self.row(
            "registrations",
            &format!(
                "{} now, {} at most",
                stats.active_mrs, stats.peak_active_mrs
            ),
        );
        self.row(
            "registered",
            &format!(
                "{} now, {} at most",
                bytes(stats.active_bytes),
                bytes(stats.peak_active_bytes)
            ),
        );
        self.row(
            "pinned",
            &format!(
                "{} now, {} at most",
                bytes(stats.pinned_bytes),
                bytes(stats.peak_pinned_bytes)
            ),
        );
        if stats.orphans > 0 {
            let text = format!("{} until their memory is freed", stats.orphans);
            self.row("kept pins", &self.paint.warning(&text));
        }
        self.row("failures", &self.failures(module));
        if stats.not_gpu_memory > 0 {
            let ranges = count(stats.not_gpu_memory, "range");
            self.row(
                "declined",
                &format!("{ranges}: not GPU memory (EFAULT, and not among failures)"),
            );
        }
    }

    fn failures(&self, module: &Snapshot) -> String {
        let reasons: Vec<String> = module
            .failures
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(reason, count)| format!("{reason} {count}"))
            .collect();
        match reasons.is_empty() {
            true => "none".to_owned(),
            false => self
                .paint
                .warning(&format!("{} ({})", module.failed(), reasons.join(", "))),
        }
    }

    fn gpus(&mut self, status: &Status, module: &Snapshot) {
        for (pci, gpu) in &module.gpus {
            let model = status.gpus.iter().find(|known| known.pci == *pci);
            let model = model.and_then(|gpu| gpu.model.as_deref()).unwrap_or("");
            let use_ = usage(gpu.gauges.active_mrs, gpu.gauges.active_bytes);
            self.row("GPU", &join(&[pci, model, &use_]));
        }
        let unused = |gpu: &&MachineGpu| !module.gpus.contains_key(&gpu.pci);
        for gpu in status.gpus.iter().filter(unused) {
            let model = gpu.model.as_deref().unwrap_or("");
            self.row("GPU", &join(&[&gpu.pci, model, "not used yet"]));
        }
        if module.gpus.is_empty() && status.gpus.is_empty() {
            self.row("GPU", "not used yet");
        }
    }

    fn devices(&mut self, status: &Status, module: &Snapshot) {
        for device in &status.rdma_devices {
            let gauges = device.pci.as_ref().and_then(|pci| module.devices.get(pci));
            let text = match gauges {
                Some(gauges) => usage(gauges.active_mrs, gauges.active_bytes),
                // A software device registers for the card below it.
                None if device.pci.is_none() => String::new(),
                None => "not used yet".to_owned(),
            };
            self.row("RDMA device", &join(&[&device_name(device), &text]));
        }
        let known = |pci: &str| {
            status
                .rdma_devices
                .iter()
                .any(|device| device.pci.as_deref() == Some(pci))
        };
        for (pci, gauges) in module.devices.iter().filter(|(pci, _)| !known(pci)) {
            let text = usage(gauges.active_mrs, gauges.active_bytes);
            self.row("DMA device", &join(&[pci, &text]));
        }
        if status.rdma_devices.is_empty() {
            self.row("RDMA device", &self.paint.warning("none"));
        }
    }

    fn row(&mut self, name: &str, value: &str) {
        let name = self.paint.dim(&format!("{name:<14}"));
        self.line(&format!("  {name} {value}"));
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }
}

fn mode(mode: &str) -> &str {
    match mode {
        "persistent" => "persistent: memory stays pinned until it is deregistered",
        "revocable" => "revocable: memory stays pinned until it is deregistered or freed",
        other => other,
    }
}

fn driver(module: &Snapshot) -> String {
    match &module.gpu_driver_version {
        Some(version) => format!("{} {version}", module.gpu_driver),
        None => module.gpu_driver.clone(),
    }
}

fn limit(limit: u64) -> String {
    match limit {
        0 => "none".to_owned(),
        limit => format!("{} pinned", bytes(limit)),
    }
}

fn usage(mrs: u64, registered: u64) -> String {
    format!("{}, {}", count(mrs, "registration"), bytes(registered))
}

fn device_name(device: &RdmaDevice) -> String {
    match &device.pci {
        Some(pci) => format!("{} ({pci})", device.name),
        None => format!("{} (no PCI device)", device.name),
    }
}

fn join(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts
        .iter()
        .copied()
        .filter(|part| !part.is_empty())
        .collect();
    parts.join("  ")
}

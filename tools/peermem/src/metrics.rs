// SPDX-License-Identifier: GPL-2.0

//! The numbers in the text exposition format of Prometheus (version 0.0.4), for the textfile
//! collector of node_exporter.

use std::fmt::Display;

use crate::debug::{self, Latency};
use crate::failure::{Exit, Outcome};
use crate::module::{Counters, DeviceGauges, GpuGauges, Snapshot};
use crate::root::Root;
use crate::system::DeviceNames;

const PREFIX: &str = "nvidia_peermem";

/// A number of the module as a whole: name, kind, help, value.
type Whole = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Snapshot) -> u64,
);

const WHOLES: [Whole; 15] = [
    (
        "draining",
        "gauge",
        "Whether new registrations are refused.",
        |m| u64::from(m.drains()),
    ),
    (
        "max_pinned_bytes",
        "gauge",
        "Limit of pinned bytes, 0 if there is none.",
        |m| m.max_pinned_bytes,
    ),
    (
        "active_mrs",
        "gauge",
        "Registrations that are mapped.",
        |m| m.stats.active_mrs,
    ),
    (
        "active_bytes",
        "gauge",
        "Bytes that are registered and mapped.",
        |m| m.stats.active_bytes,
    ),
    (
        "pinned_bytes",
        "gauge",
        "Bytes of whole pages that are pinned.",
        |m| m.stats.pinned_bytes,
    ),
    (
        "orphans",
        "gauge",
        "Pins that stay until their memory is freed.",
        |m| m.stats.orphans,
    ),
    (
        "peak_active_mrs",
        "gauge",
        "Most registrations at once since the last reset.",
        |m| m.stats.peak_active_mrs,
    ),
    (
        "peak_active_bytes",
        "gauge",
        "Most registered bytes at once since the last reset.",
        |m| m.stats.peak_active_bytes,
    ),
    (
        "peak_pinned_bytes",
        "gauge",
        "Most pinned bytes at once since the last reset.",
        |m| m.stats.peak_pinned_bytes,
    ),
    (
        "not_gpu_memory_total",
        "counter",
        "Ranges asked about that are not GPU memory.",
        |m| m.stats.not_gpu_memory,
    ),
    (
        "invalidations_total",
        "counter",
        "Memory freed while it was mapped.",
        |m| m.stats.invalidations,
    ),
    (
        "freed_unmapped_total",
        "counter",
        "Memory freed while it was pinned but not mapped.",
        |m| m.stats.freed_unmapped,
    ),
    (
        "late_callbacks_total",
        "counter",
        "Memory freed whose registration was gone.",
        |m| m.stats.late_callbacks,
    ),
    (
        "gpu_pages_total",
        "counter",
        "Pages of 64 KiB mapped.",
        |m| m.stats.gpu_pages,
    ),
    (
        "sg_entries_total",
        "counter",
        "Scatterlist entries made of GPU pages.",
        |m| m.stats.sg_entries,
    ),
];

/// A counter of each client: name, help, value.
type PerClient = (&'static str, &'static str, fn(&Counters) -> u64);

const PER_CLIENT: [PerClient; 7] = [
    ("mrs_registered_total", "Registrations mapped.", |c| {
        c.num_alloc_mrs
    }),
    (
        "mrs_deregistered_total",
        "Registrations that are mapped no longer.",
        |c| c.num_dealloc_mrs,
    ),
    ("pages_registered_total", "Pages of 64 KiB mapped.", |c| {
        c.num_reg_pages
    }),
    (
        "pages_deregistered_total",
        "Pages of 64 KiB that are mapped no longer.",
        |c| c.num_dereg_pages,
    ),
    ("registered_bytes_total", "Bytes registered.", |c| {
        c.num_reg_bytes
    }),
    ("deregistered_bytes_total", "Bytes deregistered.", |c| {
        c.num_dereg_bytes
    }),
    (
        "free_callbacks_total",
        "Calls by the GPU driver that memory is freed.",
        |c| c.num_free_callbacks,
    ),
];

/// A gauge of each GPU or RDMA device: name, help, value.
type PerObject<T> = (&'static str, &'static str, fn(&T) -> u64);

/// All metrics. A module that is not loaded is one metric, `nvidia_peermem_up 0`, and no error: a
/// collector has to see that, too.
pub fn exposition(root: &Root) -> Outcome<String> {
    let mut page = Page::default();
    match Snapshot::read(root) {
        Ok(module) => {
            page.up(true);
            page.module(&module, &DeviceNames::read(root));
            page.latencies(&debug::latency(root).unwrap_or_default());
        }
        Err(failure) if failure.exit() == Exit::NotLoaded => page.up(false),
        Err(failure) => return Err(failure),
    }
    Ok(page.text)
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn up(&mut self, up: bool) {
        self.family("up", "gauge", "Whether the module is loaded.");
        self.sample("up", &[], u64::from(up));
    }

    fn module(&mut self, module: &Snapshot, names: &DeviceNames) {
        self.info(module);
        for (name, kind, help, value) in WHOLES {
            self.family(name, kind, help);
            self.sample(name, &[], value(module));
        }
        self.clients(module);
        self.failures(module);
        self.gpus(module);
        self.devices(module, names);
    }

    fn info(&mut self, module: &Snapshot) {
        self.family(
            "info",
            "gauge",
            "Always 1; what is loaded is in the labels.",
        );
        let driver_version = module.gpu_driver_version.as_deref().unwrap_or("unknown");
        let labels = [
            ("version", module.version.as_str()),
            ("mode", &module.mode),
            ("gpu_driver", &module.gpu_driver),
            ("gpu_driver_version", driver_version),
            ("peer_memory_core", &module.peer_memory_core),
        ];
        self.sample("info", &labels, 1);
    }

    fn clients(&mut self, module: &Snapshot) {
        for (name, help, value) in PER_CLIENT {
            self.family(name, "counter", help);
            for (client, numbers) in &module.clients {
                self.sample(name, &[("client", client)], value(&numbers.counters));
            }
        }
    }

    fn failures(&mut self, module: &Snapshot) {
        self.family(
            "failures_total",
            "counter",
            "Registrations that failed, by reason.",
        );
        for (reason, count) in &module.failures {
            self.sample("failures_total", &[("reason", reason)], count);
        }
    }

    fn gpus(&mut self, module: &Snapshot) {
        let gauges: [PerObject<GpuGauges>; 3] = [
            ("gpu_active_mrs", "Registrations of a GPU's memory.", |g| {
                g.active_mrs
            }),
            (
                "gpu_active_bytes",
                "Bytes registered of a GPU's memory.",
                |g| g.active_bytes,
            ),
            ("gpu_pinned_bytes", "Bytes pinned of a GPU's memory.", |g| {
                g.pinned_bytes
            }),
        ];
        for (name, help, value) in gauges {
            self.family(name, "gauge", help);
            for (pci, gpu) in &module.gpus {
                let labels = [("gpu", pci.as_str()), ("uuid", &gpu.uuid)];
                self.sample(name, &labels, value(&gpu.gauges));
            }
        }
    }

    fn devices(&mut self, module: &Snapshot, names: &DeviceNames) {
        let gauges: [PerObject<DeviceGauges>; 2] = [
            (
                "device_active_mrs",
                "Registrations for an RDMA device.",
                |g| g.active_mrs,
            ),
            (
                "device_active_bytes",
                "Bytes registered for an RDMA device.",
                |g| g.active_bytes,
            ),
        ];
        for (name, help, value) in gauges {
            self.family(name, "gauge", help);
            for (pci, gauges) in &module.devices {
                let labels = [("device", names.show(pci)), ("pci", pci)];
                self.sample(name, &labels, value(gauges));
            }
        }
    }

    fn latencies(&mut self, latencies: &[Latency]) {
        if latencies.is_empty() {
            return;
        }
        let name = "call_duration_seconds";
        self.family(name, "histogram", "How long calls of the GPU driver take.");
        for latency in latencies {
            self.histogram(name, latency);
        }
    }

    /// Buckets of Prometheus count all up to their bound, ours those between two bounds.
    fn histogram(&mut self, name: &str, latency: &Latency) {
        let call = ("call", latency.call.as_str());
        let bucket = format!("{name}_bucket");
        let mut sum = 0;
        for (n, count) in latency.buckets.iter().enumerate() {
            sum += count;
            let bound = seconds(2u64 << n);
            self.sample(&bucket, &[call, ("le", &bound)], sum);
        }
        self.sample(&bucket, &[call, ("le", "+Inf")], sum);
        self.sample(&format!("{name}_sum"), &[call], seconds(latency.sum_ns));
        self.sample(&format!("{name}_count"), &[call], sum);
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.text.push_str(&format!(
            "# HELP {PREFIX}_{name} {help}\n# TYPE {PREFIX}_{name} {kind}\n"
        ));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> = labels
            .iter()
            .map(|(label, value)| format!("{label}=\"{}\"", escaped(value)))
            .collect();
        let labels = match labels.is_empty() {
            true => String::new(),
            false => format!("{{{}}}", labels.join(",")),
        };
        self.text
            .push_str(&format!("{PREFIX}_{name}{labels} {value}\n"));
    }
}

/// Nanoseconds in seconds, exactly.
fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

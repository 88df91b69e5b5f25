// SPDX-License-Identifier: GPL-2.0

//! `peermem show`: one line an object, in the style of `rdma resource show`.

use std::fmt::Display;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::cli::Global;
use crate::debug::{self, FailedRegistration, Latency, Registration};
use crate::failure::Outcome;
use crate::module::{Client, Gpu, Snapshot};
use crate::output::{outln, print_json, Paint};
use crate::root::Root;
use crate::system::{self, DeviceNames, MachineGpu, Port, RdmaDevice};

/// What to show.
#[derive(Subcommand, Debug)]
pub enum Object {
    /// Registrations (memory regions), with their owners; needs root
    Mr(Filter),
    /// Clients of the peer-memory core
    Client,
    /// GPUs of which memory was registered
    Gpu,
    /// RDMA devices and their ports
    Link,
    /// The last 64 registrations that failed; needs root
    Failures,
    /// How long calls of the GPU driver take; needs root
    Latency,
}

/// Which registrations to show.
#[derive(Args, Debug, Default)]
pub struct Filter {
    /// Only those of this process
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Only those of this GPU
    #[arg(long, value_name = "PCI-ADDRESS")]
    gpu: Option<String>,
    /// Only those of this RDMA device (name or PCI address)
    #[arg(long, value_name = "DEVICE")]
    dev: Option<String>,
}

impl Filter {
    fn wants(&self, mr: &Mr) -> bool {
        let registration = &mr.registration;
        wanted(&self.pid, &registration.pid)
            && wanted(&self.gpu, &registration.gpu)
            && self.dev.as_ref().is_none_or(|dev| mr.is_on(dev))
    }
}

/// Whether a value is the one asked for, if one was.
fn wanted<T: PartialEq>(asked: &Option<T>, value: &T) -> bool {
    asked.as_ref().is_none_or(|asked| asked == value)
}

/// A registration, with the name of its RDMA device.
#[derive(Clone, Serialize)]
pub struct Mr {
    /// The registration.
    #[serde(flatten)]
    pub registration: Registration,
    /// Name of the RDMA device, if it has one.
    pub ibdev: Option<String>,
}

impl Mr {
    /// Names the registration's RDMA device.
    pub fn new(registration: Registration, names: &DeviceNames) -> Self {
        let device = registration.device.as_deref();
        Self {
            ibdev: device.and_then(|pci| names.find(pci)).map(str::to_owned),
            registration,
        }
    }

    /// Whether its RDMA device has this name or PCI address.
    fn is_on(&self, device: &str) -> bool {
        let known = [&self.ibdev, &self.registration.device];
        known.into_iter().flatten().any(|name| name == device)
    }

    /// The line that shows it.
    pub fn fields(&self, details: bool) -> Fields {
        let mr = &self.registration;
        let device = self.ibdev.as_ref().or(mr.device.as_ref());
        let mut fields = Fields::default();
        fields
            .add("mr", mr.id)
            .add("pid", mr.pid)
            .add("comm", &mr.comm)
            .add("gpu", &mr.gpu)
            .add("dev", device.map_or("-", String::as_str))
            .add("len", mr.length)
            .add("pages", mr.pages)
            .add("entries", mr.entries)
            .add("state", &mr.state);
        if details {
            fields
                .add("client", &mr.client)
                .add("device", mr.device.as_deref().unwrap_or("-"))
                .add("address", &mr.address)
                .add("age_ms", mr.age_ms);
        }
        fields
    }
}

/// A line of names and values.
#[derive(Default)]
pub struct Fields(Vec<(&'static str, String)>);

impl Fields {
    /// Appends a value.
    pub fn add(&mut self, name: &'static str, value: impl Display) -> &mut Self {
        self.0.push((name, value.to_string()));
        self
    }

    /// The line.
    pub fn line(&self, paint: Paint) -> String {
        let words: Vec<String> = self
            .0
            .iter()
            .map(|(name, value)| format!("{} {value}", paint.dim(name)))
            .collect();
        words.join(" ")
    }
}

/// Shows objects.
pub fn run(root: &Root, global: &Global, object: &Object) -> Outcome {
    match object {
        Object::Mr(filter) => mrs(root, global, filter)?,
        Object::Client => clients(root, global)?,
        Object::Gpu => gpus(root, global)?,
        Object::Link => links(root, global)?,
        Object::Failures => failures(root, global)?,
        Object::Latency => latencies(root, global)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print<T: Serialize>(global: &Global, objects: &[T], fields: impl Fn(&T) -> Vec<Fields>) {
    if global.json {
        return print_json(global, objects);
    }
    let paint = Paint::new(global);
    for line in objects.iter().flat_map(fields) {
        outln!("{}", line.line(paint));
    }
}

fn mrs(root: &Root, global: &Global, filter: &Filter) -> Outcome<()> {
    let names = DeviceNames::read(root);
    let mut mrs: Vec<Mr> = debug::registrations(root)?
        .into_iter()
        .map(|registration| Mr::new(registration, &names))
        .collect();
    mrs.retain(|mr| filter.wants(mr));
    print(global, &mrs, |mr| vec![mr.fields(global.details)]);
    Ok(())
}

#[derive(Serialize)]
struct NamedClient {
    name: String,
    #[serde(flatten)]
    client: Client,
}

fn clients(root: &Root, global: &Global) -> Outcome<()> {
    let clients: Vec<NamedClient> = Snapshot::read(root)?
        .clients
        .into_iter()
        .map(|(name, client)| NamedClient { name, client })
        .collect();
    print(global, &clients, |client| {
        vec![client_fields(client, global.details)]
    });
    Ok(())
}

fn client_fields(client: &NamedClient, details: bool) -> Fields {
    let counters = &client.client.counters;
    let mut fields = Fields::default();
    fields
        .add("client", &client.name)
        .add("version", &client.client.version)
        .add("num_alloc_mrs", counters.num_alloc_mrs)
        .add("num_dealloc_mrs", counters.num_dealloc_mrs)
        .add("num_free_callbacks", counters.num_free_callbacks);
    if details {
        fields
            .add("num_reg_pages", counters.num_reg_pages)
            .add("num_dereg_pages", counters.num_dereg_pages)
            .add("num_reg_bytes", counters.num_reg_bytes)
            .add("num_dereg_bytes", counters.num_dereg_bytes);
    }
    fields
}

#[derive(Serialize)]
struct NamedGpu {
    pci: String,
    model: Option<String>,
    #[serde(flatten)]
    gpu: Gpu,
}

fn gpus(root: &Root, global: &Global) -> Outcome<()> {
    let known = system::gpus(root);
    let gpus: Vec<NamedGpu> = Snapshot::read(root)?
        .gpus
        .into_iter()
        .map(|(pci, gpu)| NamedGpu {
            model: model(&known, &pci),
            pci,
            gpu,
        })
        .collect();
    print(global, &gpus, |gpu| vec![gpu_fields(gpu, global.details)]);
    Ok(())
}

fn model(known: &[MachineGpu], pci: &str) -> Option<String> {
    let gpu = known.iter().find(|gpu| gpu.pci == pci)?;
    gpu.model.clone()
}

fn gpu_fields(gpu: &NamedGpu, details: bool) -> Fields {
    let gauges = &gpu.gpu.gauges;
    let mut fields = Fields::default();
    fields
        .add("gpu", &gpu.pci)
        .add("mrs", gauges.active_mrs)
        .add("bytes", gauges.active_bytes)
        .add("pinned", gauges.pinned_bytes);
    if details {
        fields
            .add("uuid", &gpu.gpu.uuid)
            .add("model", gpu.model.as_deref().unwrap_or("-"));
    }
    fields
}

#[derive(Serialize)]
struct Link {
    #[serde(flatten)]
    device: RdmaDevice,
    active_mrs: u64,
    active_bytes: u64,
}

fn links(root: &Root, global: &Global) -> Outcome<()> {
    let used = Snapshot::read(root)?.devices;
    let links: Vec<Link> = system::rdma_devices(root)
        .into_iter()
        .map(|device| {
            let pci = device.pci.as_ref();
            let gauges = pci.and_then(|pci| used.get(pci)).cloned();
            let gauges = gauges.unwrap_or_default();
            Link {
                device,
                active_mrs: gauges.active_mrs,
                active_bytes: gauges.active_bytes,
            }
        })
        .collect();
    print(global, &links, |link| {
        let ports = &link.device.ports;
        ports
            .iter()
            .map(|port| link_fields(link, port, global.details))
            .collect()
    });
    Ok(())
}

fn link_fields(link: &Link, port: &Port, details: bool) -> Fields {
    let device = &link.device;
    let mut fields = Fields::default();
    fields
        .add("link", format!("{}/{}", device.name, port.port))
        .add("state", &port.state)
        .add("physical_state", &port.physical_state)
        .add("pci", device.pci.as_deref().unwrap_or("-"))
        .add("mrs", link.active_mrs)
        .add("bytes", link.active_bytes);
    if details {
        fields
            .add("driver", device.driver.as_deref().unwrap_or("-"))
            .add("link_layer", &port.link_layer)
            .add("rate", &port.rate);
    }
    fields
}

fn failures(root: &Root, global: &Global) -> Outcome<()> {
    let failures = debug::failures(root)?;
    print(global, &failures, |failure| vec![failure_fields(failure)]);
    Ok(())
}

/// The line that shows a failure.
pub fn failure_fields(failure: &FailedRegistration) -> Fields {
    let mut fields = Fields::default();
    fields
        .add("failure", format!("{:.6}", failure.time))
        .add("pid", failure.pid)
        .add("comm", &failure.comm)
        .add("len", failure.length)
        .add("stage", &failure.stage)
        .add("error", errno_name(failure.errno))
        .add("reason", &failure.reason);
    fields
}

/// `ENOMEM` for -12; the number if it is none of those that registering fails with.
fn errno_name(errno: i32) -> String {
    let name = match -errno {
        libc::EPERM => "EPERM",
        libc::EIO => "EIO",
        libc::EAGAIN => "EAGAIN",
        libc::ENOMEM => "ENOMEM",
        libc::EFAULT => "EFAULT",
        libc::EBUSY => "EBUSY",
        libc::ENODEV => "ENODEV",
        libc::EINVAL => "EINVAL",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        _ => return errno.to_string(),
    };
    name.to_owned()
}

#[derive(Serialize)]
struct ShownLatency {
    #[serde(flatten)]
    latency: Latency,
    mean_ns: Option<u64>,
    /// A bound that half of the calls did not exceed.
    p50_ns: Option<u64>,
    /// A bound that 99 % of the calls did not exceed.
    p99_ns: Option<u64>,
}

impl From<Latency> for ShownLatency {
    fn from(latency: Latency) -> Self {
        Self {
            mean_ns: latency.mean_ns(),
            p50_ns: latency.bound_ns(0.5),
            p99_ns: latency.bound_ns(0.99),
            latency,
        }
    }
}

fn latencies(root: &Root, global: &Global) -> Outcome<()> {
    let latencies: Vec<ShownLatency> = debug::latency(root)?.into_iter().map(Into::into).collect();
    print(global, &latencies, |latency| vec![latency_fields(latency)]);
    Ok(())
}

fn latency_fields(shown: &ShownLatency) -> Fields {
    let number = |value: Option<u64>| value.map_or("-".to_owned(), |ns| ns.to_string());
    let mut fields = Fields::default();
    fields
        .add("call", &shown.latency.call)
        .add("count", shown.latency.count)
        .add("mean_ns", number(shown.mean_ns))
        .add("p50_ns", number(shown.p50_ns))
        .add("p99_ns", number(shown.p99_ns))
        .add("max_ns", shown.latency.max_ns);
    fields
}

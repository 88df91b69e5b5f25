// SPDX-License-Identifier: GPL-2.0

//! Checks of the GPUs and their driver.

use super::facts::{numbers, size, Machine, SYSFS};
use super::module::has_persistent_pins;
use super::verdict::{Status, Verdict};

const DRIVER: &str = "/proc/driver/nvidia/version";
const PARAMETERS: &str = "/proc/driver/nvidia/params";
const GPUS: &str = "/proc/driver/nvidia/gpus";
const NO_DRIVER: &str = "the GPU driver is not loaded";
const NO_GPU: &str = "no NVIDIA GPU";

/// Is the GPU driver loaded, and which?
pub fn driver(machine: &Machine) -> Verdict {
    let version = machine.driver_version();
    let shown = version.as_deref().unwrap_or("of unknown version");
    match machine.driver_name() {
        Some(name) if name != "nvidia" => {
            Verdict::warn(format!("{name} {shown} in place of NVIDIA's driver"))
                .hint("for tests only: install NVIDIA's open GPU kernel modules")
        }
        None if version.is_none() => {
            Verdict::fail(NO_DRIVER).hint("modprobe nvidia; see also: dmesg | grep -i nvrm")
        }
        _ => Verdict::ok(format!("nvidia {shown}")),
    }
    .from(DRIVER)
}

/// Is it of the open flavour?
pub fn flavour(machine: &Machine) -> Verdict {
    let text = machine.text(DRIVER);
    let file = machine.driver_file();
    let license = file
        .as_ref()
        .and_then(|path| Some(machine.ko(path).ok()?.info("license")?.to_owned()));
    let name = machine.driver_name();
    let name = name.as_deref().unwrap_or("nvidia");
    let taint_file = format!("/sys/module/{name}/taint");
    let taint = machine.value(&taint_file);
    let tainted = taint.as_deref().unwrap_or_default();
    let proprietary = Verdict::fail(
        "the proprietary flavour: the kernel does not let a Rust module use it",
    )
    .hint("install the open GPU kernel modules (Debian: nvidia-open-kernel-dkms; Ubuntu: nvidia-driver-*-open), or use NVIDIA's own nvidia-peermem");
    if text.contains("Open Kernel Module") {
        return Verdict::ok("open kernel modules").from(DRIVER);
    }
    if tainted.contains('P') {
        return proprietary.from(taint_file);
    }
    if text.contains("NVRM version") {
        return proprietary.from(DRIVER);
    }
    if taint.is_some() {
        return Verdict::ok(format!("{name} is not proprietary")).from(taint_file);
    }
    match (license, file) {
        (Some(license), Some(path)) if license.contains("GPL") => {
            Verdict::ok(format!("not loaded; the installed one is open ({license})")).from(path)
        }
        (Some(_), Some(path)) => proprietary.from(path),
        _ => Verdict::skip(NO_DRIVER).from(DRIVER),
    }
}

/// Is it new enough for pins that stay?
pub fn persistent_pins(machine: &Machine) -> Verdict {
    const NEEDED: &str = "it must be 525.105.17, 535.43.02 or newer";
    let version = machine.driver_version();
    let by_version = version.as_deref().map(|version| {
        let version = numbers(version);
        let branch = [525, 105, 17]..[526, 0, 0];
        version >= vec![535, 43, 2]
            || (version.as_slice() >= branch.start.as_slice()
                && version.as_slice() < branch.end.as_slice())
    });
    let shown = version.as_deref().unwrap_or("unknown");
    match has_persistent_pins(machine).or(by_version) {
        Some(true) => Verdict::ok(format!("version {shown} has persistent pins")),
        Some(false) => Verdict::fail(format!("version {shown} has no persistent pins: {NEEDED}"))
            .hint("update the GPU driver"),
        None => Verdict::skip(NO_DRIVER),
    }
    .from("/proc/kallsyms")
}

/// Are driver and libraries of one version?
pub fn libraries(machine: &Machine) -> Verdict {
    const PLACES: [&str; 5] = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/nvidia/lib64",
    ];
    let Some(running) = machine.driver_version() else {
        return Verdict::skip(NO_DRIVER).from(DRIVER);
    };
    let library = PLACES.iter().find_map(|place| {
        let names = machine.root.names(place).into_iter();
        let mut versions = names.filter_map(|name| {
            let version = name.strip_prefix("libcuda.so.")?;
            version.contains('.').then(|| version.to_owned())
        });
        Some((*place, versions.next()?))
    });
    match library {
        Some((place, version)) if version == running => {
            Verdict::ok(format!("driver and libcuda are {version}")).from(place)
        }
        Some((place, version)) => Verdict::fail(format!(
            "the driver is {running}, but libcuda {version}"
        ))
        .hint(
            "reboot, or load the driver again: CUDA fails with \"driver/library version mismatch\"",
        )
        .from(place),
        None => Verdict::skip("no libcuda here").from(PLACES.join(", ")),
    }
}

/// Will the driver that runs be there after the next boot?
pub fn driver_file(machine: &Machine) -> Verdict {
    let (Some(path), Some(running)) = (machine.driver_file(), machine.driver_version()) else {
        return Verdict::skip("nothing to compare").from("/lib/modules");
    };
    match machine.ko(&path) {
        Err(reason) => Verdict::skip(format!("{path}: {reason}")),
        Ok(ko) => match ko.info("version") {
            Some(installed) if installed == running => Verdict::ok(format!("{installed} runs")),
            Some(installed) => Verdict::warn(format!("{running} runs, {installed} is installed"))
                .hint("reboot, then check M7 again: the module may have to be built again"),
            None => Verdict::skip(format!("{path} has no version")),
        },
    }
    .from(path)
}

/// Are there GPUs, and does the driver have them?
pub fn gpus(machine: &Machine) -> Verdict {
    let found = machine.gpus();
    if found.is_empty() {
        return Verdict::fail(NO_GPU)
            .hint("lspci -d 10de: shows what is there; in a VM, pass a GPU through")
            .from("/sys/bus/pci/devices");
    }
    let mut problems = Vec::new();
    let mut shown = Vec::new();
    for gpu in &found {
        let path = format!("{GPUS}/{}/information", gpu.address);
        let model = information(machine, &gpu.address, "Model");
        match (model, information(machine, &gpu.address, "GPU Excluded")) {
            (_, Some(excluded)) if excluded == "Yes" => {
                problems.push(format!("{} is excluded", gpu.address));
            }
            (Some(model), _) => shown.push(format!("{} {model}", gpu.address)),
            (None, _) if machine.root.exists(GPUS) => {
                problems.push(format!("{} is not in {path}", gpu.address));
            }
            (None, _) => shown.push(gpu.address.clone()),
        }
    }
    Verdict::of(Status::Warn, &problems, shown.join(", "))
        .hint("dmesg | grep NVRM; the driver's option NVreg_ExcludedGpus")
        .from(GPUS)
}

/// A line of what the driver says about a GPU.
fn information(machine: &Machine, address: &str, key: &str) -> Option<String> {
    let text = machine.text(&format!("{GPUS}/{address}/information"));
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(name, _)| name.trim() == key)?;
    Some(value.trim().to_owned())
}

/// Do these GPUs have GPUDirect RDMA at all?
pub fn product(machine: &Machine) -> Verdict {
    let addresses = machine.root.names(GPUS);
    let models: Vec<_> = addresses
        .iter()
        .filter_map(|address| information(machine, address, "Model"))
        .collect();
    if models.is_empty() {
        return Verdict::skip("the GPUs' names are not known").from(GPUS);
    }
    let without = |model: &&String| model.contains("GeForce") || model.contains("TITAN");
    let findings: Vec<_> = if models.iter().all(|model| without(&model)) {
        vec![format!("{}: no GPUDirect RDMA", models.join(", "))]
    } else {
        Vec::new()
    };
    let virtual_gpus: Vec<_> = models
        .iter()
        .filter(|model| is_virtual_gpu(model))
        .map(|model| format!("{model} is a vGPU: only some have GPUDirect RDMA"))
        .collect();
    match findings.is_empty() {
        false => Verdict::of(Status::Fail, &findings, "")
            .hint("use a data-centre or professional GPU: the driver refuses others"),
        true => Verdict::of(Status::Warn, &virtual_gpus, models.join(", "))
            .hint("see the vGPU release notes; pass the whole GPU through"),
    }
    .from(format!("{GPUS}/*/information"))
}

/// A vGPU's name ends in its profile: memory in GiB, and a letter, as in "NVIDIA A100-40C".
fn is_virtual_gpu(model: &str) -> bool {
    let Some((_, profile)) = model.rsplit_once('-') else {
        return false;
    };
    let letters = profile.trim_start_matches(|c: char| c.is_ascii_digit());
    letters.len() < profile.len() && matches!(letters, "A" | "B" | "C" | "Q")
}

/// How large is BAR1?
pub fn bar1(machine: &Machine) -> Verdict {
    const SMALL: u64 = 1 << 30;
    let gpus = machine.gpus();
    if gpus.is_empty() {
        return Verdict::skip(NO_GPU).from("/sys/bus/pci/devices");
    }
    let mut small = Vec::new();
    let mut shown = Vec::new();
    for gpu in &gpus {
        match gpu.bar1() {
            Some((first, last)) if last - first + 1 < SMALL => small.push(format!(
                "{}: BAR1 is {}: no more can be registered at a time",
                gpu.address,
                size(last - first + 1)
            )),
            Some((first, last)) => {
                shown.push(format!(
                    "{}: BAR1 is {}",
                    gpu.address,
                    size(last - first + 1)
                ));
            }
            None => small.push(format!("{}: BAR1 has no address", gpu.address)),
        }
    }
    Verdict::of(Status::Warn, &small, shown.join(", "))
        .hint("enable \"Above 4G decoding\" and \"Resizable BAR\" in the firmware; NVreg_EnableResizableBar=1")
        .from("/sys/bus/pci/devices/*/resource")
}

/// How much of BAR1 is in use by registrations?
pub fn bar1_use(machine: &Machine) -> Verdict {
    const NEARLY_FULL: u64 = 90;
    let source = format!("{SYSFS}/gpus/*/pinned_bytes");
    if !machine.is_ours_loaded() {
        return Verdict::skip("not loaded").from(source);
    }
    let mut full = Vec::new();
    let mut shown = Vec::new();
    for gpu in machine.gpus() {
        let path = format!("{SYSFS}/gpus/{}/pinned_bytes", gpu.address);
        let (Some(pinned), Some((first, last))) = (machine.root.number(&path), gpu.bar1()) else {
            continue;
        };
        let bar1 = last - first + 1;
        let text = format!("{}: {} of {}", gpu.address, size(pinned), size(bar1));
        match pinned / (bar1 / 100).max(1) >= NEARLY_FULL {
            true => full.push(text),
            false => shown.push(text),
        }
    }
    match shown.is_empty() {
        true if full.is_empty() => Verdict::ok("no NVIDIA GPU on the PCI bus has memory pinned"),
        _ => Verdict::of(Status::Warn, &full, shown.join(", ")).hint(
            "peermem show mr shows who holds it; nvidia-smi -q -d MEMORY shows all users of BAR1",
        ),
    }
    .from(source)
}

/// Do options of the driver stand in the way?
pub fn parameters(machine: &Machine) -> Verdict {
    let text = machine.text(PARAMETERS);
    if text.is_empty() {
        return Verdict::skip(NO_DRIVER).from(PARAMETERS);
    }
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(name, _)| *name == key);
        found.map_or("", |(_, value)| value.trim_matches('"'))
    };
    let mut findings = Vec::new();
    for key in ["RegistryDwords", "RegistryDwordsPerDevice"] {
        if value(key).to_lowercase().contains("p2p") {
            findings.push(format!("{key} is \"{}\"", value(key)));
        }
    }
    if value("DmaRemapPeerMmio") == "0" {
        findings
            .push("DmaRemapPeerMmio is 0: wrong addresses where an IOMMU translates".to_owned());
    }
    Verdict::of(
        Status::Warn,
        &findings,
        "no option touches peer-to-peer access",
    )
    .hint("grep -r NVreg_ /etc/modprobe.d, and take the option out")
    .from(PARAMETERS)
}

/// Confidential computing and MIG.
pub fn partitions(machine: &Machine) -> Verdict {
    const CAPABILITIES: &str = "/proc/driver/nvidia/capabilities";
    let guests = ["/dev/tdx_guest", "/dev/sev-guest"];
    if let Some(guest) = guests.iter().find(|path| machine.root.exists(path)) {
        return Verdict::warn(
            "a confidential VM: a GPU in confidential-computing mode refuses GPUDirect RDMA",
        )
        .hint("nvidia-smi conf-compute -f tells the mode")
        .from(*guest);
    }
    let instances: usize = machine
        .root
        .names(CAPABILITIES)
        .iter()
        .map(|gpu| machine.root.names(&format!("{CAPABILITIES}/{gpu}/mig")))
        .map(|names| names.iter().filter(|name| name.starts_with("gi")).count())
        .sum();
    match instances {
        0 => Verdict::ok("neither a confidential VM nor MIG instances"),
        count => Verdict::warn(format!("{count} MIG instances share BAR1"))
            .hint("an application can register memory of its own instance only: nvidia-smi -L"),
    }
    .from(CAPABILITIES)
}

/// Does a coherent GPU have the mode it needs?
pub fn coherent(machine: &Machine) -> Verdict {
    let source = format!("{SYSFS}/mode");
    let names = machine.root.names(GPUS);
    let mut models = names
        .iter()
        .filter_map(|address| information(machine, address, "Model"));
    let coherent = models.find(|model| {
        ["GH200", "GB200", "GB300"]
            .iter()
            .any(|m| model.contains(m))
    });
    match (coherent, machine.value(&source).as_deref()) {
        (Some(model), Some("revocable")) => Verdict::fail(format!(
            "{model} cannot be used with persistent_api_support=0"
        ))
        .hint("take persistent_api_support=0 out of /etc/modprobe.d and load the module again"),
        (Some(model), Some(mode)) => Verdict::ok(format!("{model}, mode {mode}")),
        (Some(_), None) => Verdict::skip("not loaded"),
        (None, _) => Verdict::skip("no coherent GPU"),
    }
    .from(source)
}

/// Can CUDA run?
pub fn cuda(machine: &Machine) -> Verdict {
    if machine.driver_version().is_none() {
        return Verdict::skip(NO_DRIVER).from(DRIVER);
    }
    let nodes = ["/dev/nvidiactl", "/dev/nvidia-uvm"];
    let mut missing: Vec<_> = nodes
        .iter()
        .filter(|path| !machine.root.exists(path))
        .map(|path| format!("no {path}"))
        .collect();
    if !machine.is_loaded("nvidia_uvm") {
        missing.push("nvidia_uvm is not loaded".to_owned());
    }
    if machine.root.is_recorded() && !machine.root.exists("/dev") {
        return Verdict::skip("/dev is not recorded").from("/dev");
    }
    Verdict::of(
        Status::Warn,
        &missing,
        "nvidia_uvm and the device files are there",
    )
    .hint("nvidia-modprobe -u -c 0; in a container: --gpus all")
    .from(nodes.join(", "))
}

// SPDX-License-Identifier: GPL-2.0

//! Checks of the RDMA devices and their stack.

use std::collections::BTreeMap;

use super::facts::{numbers, Machine, Owner};
use super::verdict::{Status, Verdict};
use crate::units;

const DEVICES: &str = "/sys/class/infiniband";
const NO_DEVICE: &str = "no RDMA device";

/// The modules of the stack that have to be of one origin.
const STACK: [&str; 4] = ["ib_core", "ib_uverbs", "mlx5_core", "mlx5_ib"];

/// Are there RDMA devices?
pub fn devices(machine: &Machine) -> Verdict {
    let devices = machine.rdma_devices();
    if devices.is_empty() {
        return Verdict::fail(NO_DEVICE)
            .hint("lspci | grep -i -e mellanox -e infiniband; modprobe mlx5_ib (or the driver of your card)")
            .from(DEVICES);
    }
    let nics: BTreeMap<_, _> = machine.nics().into_iter().collect();
    let shown = devices.iter().map(|name| match nics.get(name) {
        Some(nic) => format!(
            "{name} {} {}",
            nic.address,
            nic.driver().unwrap_or_default()
        ),
        None => name.clone(),
    });
    let shown: Vec<_> = shown.map(|text| text.trim_end().to_owned()).collect();
    Verdict::ok(shown.join(", ")).from(DEVICES)
}

/// Do devices copy with the CPU?
pub fn hardware(machine: &Machine) -> Verdict {
    let devices = machine.rdma_devices();
    if devices.is_empty() {
        return Verdict::skip(NO_DEVICE).from(DEVICES);
    }
    let nics: BTreeMap<_, _> = machine.nics().into_iter().collect();
    let soft: Vec<_> = devices.iter().filter(|d| !nics.contains_key(*d)).collect();
    let names = soft.iter().map(|s| s.as_str()).collect::<Vec<_>>();
    let names = names.join(", ");
    match soft.len() {
        0 => Verdict::ok("all RDMA devices are hardware"),
        all if all == devices.len() => Verdict::fail(format!(
            "only software devices ({names}): they copy with the CPU, and cannot reach GPU memory"
        ))
        .hint("use an RDMA card"),
        _ => Verdict::warn(format!("{names}: software, cannot reach GPU memory")).hint(
            "rdma link delete NAME, or keep applications off it: NCCL_IB_HCA, UCX_NET_DEVICES",
        ),
    }
    .from(format!("{DEVICES}/*/device"))
}

/// Are ports up?
pub fn ports(machine: &Machine) -> Verdict {
    let mut down = Vec::new();
    let mut up = Vec::new();
    for device in machine.rdma_devices() {
        let ports = format!("{DEVICES}/{device}/ports");
        for port in machine.root.names(&ports) {
            let value = |file: &str| {
                let value = machine.value(&format!("{ports}/{port}/{file}"));
                value.unwrap_or_else(|| "?".to_owned())
            };
            let state = value("state");
            let text = format!(
                "{device}/{port} {} {} {}",
                state.rsplit(": ").next().unwrap_or(&state),
                value("link_layer"),
                value("rate")
            );
            match state.ends_with("ACTIVE") {
                true => up.push(text),
                false => down.push(text),
            }
        }
    }
    let all = down.iter().chain(&up).cloned().collect::<Vec<_>>();
    match (up.len(), down.len()) {
        (0, 0) => Verdict::skip("no port"),
        (0, _) => Verdict::fail(all.join(", ")),
        (_, 0) => Verdict::ok(up.join(", ")),
        _ => Verdict::warn(all.join(", ")),
    }
    .hint("rdma link; ibstat: is the cable in, does the switch see it, does a subnet manager run?")
    .from(format!("{DEVICES}/*/ports/*/state"))
}

/// Have cards of one kind the same firmware?
pub fn firmware(machine: &Machine) -> Verdict {
    let mut kinds: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for (name, _) in machine.nics() {
        let value = |file: &str| machine.value(&format!("{DEVICES}/{name}/{file}"));
        if let (Some(board), Some(firmware)) = (value("board_id"), value("fw_ver")) {
            kinds.entry(board).or_default().push((name, firmware));
        }
    }
    if kinds.is_empty() {
        return Verdict::skip("no device that tells").from(format!("{DEVICES}/*/fw_ver"));
    }
    let mut differing = Vec::new();
    let mut shown = Vec::new();
    for (board, cards) in &kinds {
        let list: Vec<_> = cards.iter().map(|(n, f)| format!("{n} {f}")).collect();
        match cards.iter().all(|(_, firmware)| *firmware == cards[0].1) {
            true => shown.push(format!("{board} {}", cards[0].1)),
            false => differing.push(format!("{board}: {}", list.join(", "))),
        }
    }
    Verdict::of(Status::Warn, &differing, shown.join(", "))
        .hint("bring all cards to one version: mlxfwmanager --online, or the vendor's tool")
        .from(format!("{DEVICES}/*/fw_ver"))
}

/// Is the stack of one origin?
pub fn stack(machine: &Machine) -> Verdict {
    let source = format!("{}/modules.dep", machine.modules().unwrap_or_default());
    let mut origins: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for module in STACK {
        if let Some(path) = machine.file_of(module) {
            origins.entry(origin(&path)).or_default().push(module);
        }
    }
    let versions: Vec<_> = STACK
        .iter()
        .filter_map(|m| Some((m, machine.value(&format!("/sys/module/{m}/version"))?)))
        .map(|(module, version)| format!("{module} {version}"))
        .collect();
    let shown = origins
        .iter()
        .map(|(origin, modules)| format!("{} from {origin}", modules.join(", ")));
    let shown: Vec<_> = shown.chain(versions).collect();
    match origins.len() {
        0 if machine.is_there("ib_core") => Verdict::ok("built into the kernel").from("/sys/module/ib_core"),
        0 => Verdict::skip("no RDMA module installed").from(source),
        1 => Verdict::ok(shown.join("; ")).from(source),
        _ => Verdict::warn(format!("mixed: {}", shown.join("; ")))
            .hint("install OFED completely (with its driver for your card), or remove it; then depmod and reboot")
            .from(source),
    }
}

/// Who a module's file is from, by where it is.
fn origin(path: &str) -> &'static str {
    let parts = ["/updates/", "/extra/", "/weak-updates/", "/doca-ofed"];
    match parts.iter().any(|part| path.contains(part)) {
        true => "OFED",
        false => "the kernel",
    }
}

/// Can user space get at RDMA?
pub fn verbs(machine: &Machine) -> Verdict {
    const VERBS: &str = "/sys/class/infiniband_verbs";
    let names = machine.root.names(VERBS);
    let count = names.iter().filter(|n| n.starts_with("uverbs")).count();
    match count {
        _ if machine.rdma_devices().is_empty() => Verdict::skip(NO_DEVICE),
        0 => Verdict::fail("ib_uverbs is not loaded: no application can use RDMA")
            .hint("modprobe ib_uverbs"),
        count => Verdict::ok(units::count(count as u64, "device")),
    }
    .from(VERBS)
}

/// Can each card's DMA reach all of each GPU's BAR1?
pub fn reach(machine: &Machine) -> Verdict {
    let gpus = machine.gpus();
    let nics = machine.nics();
    let mut short = Vec::new();
    let mut checked = 0;
    for (name, nic) in &nics {
        let Some(bits) = nic.number("dma_mask_bits").filter(|bits| *bits > 0) else {
            continue;
        };
        for gpu in &gpus {
            let Some((_, last)) = gpu.bar1() else {
                continue;
            };
            checked += 1;
            if bits < 64 && last >> bits != 0 {
                short.push(format!(
                    "{name} has {bits} address bits, BAR1 of {} ends at {last:#x}",
                    gpu.address
                ));
            }
        }
    }
    match checked {
        0 => Verdict::skip("no pair of GPU and RDMA card"),
        _ => Verdict::of(
            Status::Fail,
            &short,
            "each card can address each GPU's BAR1",
        )
        .hint("lower the firmware's \"MMIO base\" or \"MMIO high size\""),
    }
    .from("/sys/bus/pci/devices/*/dma_mask_bits")
}

/// Would DMA-BUF do without any module?
pub fn dma_buf(machine: &Machine) -> Verdict {
    const SOURCE: &str = "/proc/kallsyms, /proc/driver/nvidia/version";
    let mut missing = Vec::new();
    match machine.release() {
        Some(release) if numbers(&release) < vec![5, 12] => missing.push("a kernel from 5.12 on"),
        Some(_) => {}
        None => missing.push("a known kernel release"),
    }
    match machine.owner("ib_umem_dmabuf_get") {
        Owner::Nobody => missing.push("an RDMA core with DMA-BUF"),
        Owner::Unknown => missing.push("readable kernel symbols"),
        Owner::Kernel | Owner::Module(_) => {}
    }
    let version = machine.driver_version().map(|version| numbers(&version));
    let open = machine
        .text("/proc/driver/nvidia/version")
        .contains("Open Kernel Module");
    if !open || version.is_none_or(|version| version < vec![515]) {
        missing.push("NVIDIA's open kernel modules from 515 on");
    }
    match missing.is_empty() {
        true => Verdict::ok("available: applications that use it need no peer-memory client"),
        false if machine.is_ours_loaded() => {
            Verdict::ok(format!("not available, needs {}", missing.join(", ")))
        }
        false => Verdict::warn(format!("not available: needs {}", missing.join(", ")))
            .hint("only peer memory is left: this module"),
    }
    .from(SOURCE)
}

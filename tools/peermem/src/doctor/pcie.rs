// SPDX-License-Identifier: GPL-2.0

//! Checks of the way between GPUs and RDMA devices.

use std::collections::BTreeMap;

use super::facts::Machine;
use super::pci::{acs_control, device_control, Device, Distance};
use super::verdict::{Status, Verdict};
use crate::root::Read;

const DEVICES: &str = "/sys/bus/pci/devices";
const NO_PAIR: &str = "no pair of GPU and RDMA card";
const NEEDS_ROOT: &str = "needs root: the configuration space is readable only in part";
/// What is readable without privileges.
const HEADER: usize = 64;

/// How far is each GPU from its nearest RDMA card?
pub fn distance(machine: &Machine) -> Verdict {
    let nics = machine.nics();
    let nearest: Vec<_> = machine
        .gpus()
        .iter()
        .filter_map(|gpu| {
            let pairs = nics.iter().map(|(name, nic)| (gpu.distance(nic), name));
            let (distance, name) = pairs.min_by_key(|(distance, _)| *distance)?;
            Some((distance, format!("{} {name} {distance}", gpu.address)))
        })
        .collect();
    let Some(farthest) = nearest.iter().map(|(distance, _)| *distance).max() else {
        return Verdict::skip(NO_PAIR).from(DEVICES);
    };
    let shown: Vec<_> = nearest.into_iter().map(|(_, text)| text).collect();
    let shown = shown.join(", ");
    match farthest {
        Distance::OneSwitch | Distance::Switches => Verdict::ok(shown),
        _ if machine.is_virtual() => Verdict::warn(format!("{shown}, as the VM shows it"))
            .hint("the host's layout counts: lspci -t there"),
        Distance::HostBridge => Verdict::warn(format!("{shown}: through the CPU"))
            .hint("put card and GPU below one PCIe switch; see also: nvidia-smi topo -m"),
        Distance::Node | Distance::System => {
            Verdict::warn(format!("{shown}: through the CPUs, slow or impossible"))
                .hint("put card and GPU on one CPU, below one switch; NCCL uses GPUDirect there only with NCCL_NET_GDR_LEVEL=SYS")
        }
    }
    .from(format!("{DEVICES}/*"))
}

/// Does Access Control Services send peer-to-peer traffic through the CPU?
pub fn acs(machine: &Machine) -> Verdict {
    const REDIRECT: usize = 0x0c;
    let mut bridges = BTreeMap::new();
    for device in endpoints(machine) {
        for bridge in device.bridges() {
            bridges.insert(bridge.address.clone(), bridge);
        }
    }
    let source = format!("{DEVICES}/*/config");
    if bridges.is_empty() {
        return Verdict::skip("no bridge above a GPU or RDMA card is visible").from(source);
    }
    let mut redirecting = Vec::new();
    for (address, bridge) in &bridges {
        match full_config(bridge) {
            Some(config) => {
                let control = acs_control(&config).unwrap_or_default();
                if control & REDIRECT != 0 {
                    redirecting.push(format!("{address} (ACSCtl {control:#06x})"));
                }
            }
            None => return Verdict::skip(NEEDS_ROOT).from(source),
        }
    }
    let found = match redirecting.is_empty() {
        true => Vec::new(),
        false => vec![format!(
            "peer-to-peer traffic is redirected through the CPU at {}",
            redirecting.join(", ")
        )],
    };
    let first = bridges
        .keys()
        .find(|a| redirecting.iter().any(|r| r.starts_with(*a)));
    Verdict::of(
        Status::Warn,
        &found,
        format!("{} bridges, none redirects", bridges.len()),
    )
    .hint(format!(
        "disable ACS in the firmware, boot with pci=config_acs=000xx0x@{0}, or for now: setpci -s {0} ECAP_ACS+6.w=0",
        first.map_or("BRIDGE", String::as_str)
    ))
    .from(source)
}

/// GPUs and RDMA cards.
fn endpoints<'a>(machine: &Machine<'a>) -> Vec<Device<'a>> {
    let nics = machine.nics().into_iter().map(|(_, nic)| nic);
    nics.chain(machine.gpus()).collect()
}

/// A configuration space, if the caller may read more than its header.
fn full_config(device: &Device) -> Option<Vec<u8>> {
    match device.config() {
        Read::Contents(config) if config.len() > HEADER => Some(config),
        _ => None,
    }
}

/// Does an IOMMU translate?
pub fn iommu(machine: &Machine) -> Verdict {
    let command_line = machine.text("/proc/cmdline");
    let options: Vec<_> = command_line
        .split_ascii_whitespace()
        .filter(|word| word.contains("iommu"))
        .collect();
    let options = match options.is_empty() {
        true => String::new(),
        false => format!(" (boot options: {})", options.join(" ")),
    };
    let mut translated = Vec::new();
    let mut passed = 0;
    for device in endpoints(machine) {
        match device.value("iommu_group/type").as_deref() {
            Some("identity") => passed += 1,
            Some(kind) => {
                translated.push(format!("{} is in a domain of type {kind}", device.address))
            }
            None => {}
        }
    }
    let otherwise = match passed {
        0 => format!("no IOMMU in the way{options}"),
        count => format!("{count} devices are passed through{options}"),
    };
    Verdict::of(Status::Warn, &translated, otherwise)
        .hint("boot with iommu=pt: translation makes peer-to-peer traffic slow, and where GPU driver or chipset do not expect it, wrong")
        .from(format!("{DEVICES}/*/iommu_group/type, /proc/cmdline"))
}

/// Do links run at full width and speed?
pub fn links(machine: &Machine) -> Verdict {
    let mut slow = Vec::new();
    let mut shown = Vec::new();
    let gpus: Vec<_> = machine.gpus().into_iter().map(|gpu| gpu.address).collect();
    for device in endpoints(machine) {
        let value = |name: &str| device.value(name);
        let (Some(width), Some(widest)) = (value("current_link_width"), value("max_link_width"))
        else {
            continue;
        };
        let speed = value("current_link_speed").unwrap_or_default();
        let fastest = value("max_link_speed").unwrap_or_default();
        // GPUs save power by a lower speed when they are idle.
        let is_slow = speed != fastest && !gpus.contains(&device.address);
        match width != widest || is_slow {
            true => slow.push(format!(
                "{}: x{width} {speed}, could be x{widest} {fastest}",
                device.address
            )),
            false => shown.push(format!("{} x{width} {speed}", device.address)),
        }
    }
    match slow.len() + shown.len() {
        0 => Verdict::skip("no link is visible"),
        _ => Verdict::of(Status::Warn, &slow, shown.join(", "))
            .hint("reseat the card, use a slot of full width, look at the riser; lspci -vv -s ADDRESS: LnkSta"),
    }
    .from(format!("{DEVICES}/*/current_link_*"))
}

/// Runs a check on the device control registers of RDMA cards.
fn with_control(
    machine: &Machine,
    check: impl Fn(usize) -> Result<String, String>,
) -> (Vec<String>, Vec<String>, Option<Verdict>) {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let source = format!("{DEVICES}/*/config");
    for (name, nic) in machine.nics() {
        let Some(config) = full_config(&nic) else {
            return (good, bad, Some(Verdict::skip(NEEDS_ROOT).from(source)));
        };
        match device_control(&config).map(&check) {
            Some(Ok(text)) => good.push(format!("{name} {text}")),
            Some(Err(text)) => bad.push(format!("{name} {text}")),
            None => {}
        }
    }
    let nothing = good.is_empty() && bad.is_empty();
    let skip = nothing.then(|| Verdict::skip("no PCI Express RDMA card").from(source));
    (good, bad, skip)
}

/// How much does a card ask for at a time?
pub fn read_request(machine: &Machine) -> Verdict {
    const SMALL: usize = 512;
    let (good, bad, skip) = with_control(machine, |control| {
        let size = 128 << ((control >> 12) & 7);
        match size < SMALL {
            true => Err(format!("{size} bytes")),
            false => Ok(format!("{size} bytes")),
        }
    });
    skip.unwrap_or_else(|| {
        Verdict::of(Status::Warn, &bad, good.join(", "))
            .hint("reads are slow: setpci -s ADDRESS CAP_EXP+8.w=5000:7000 (4096 bytes), or the firmware's \"PCIe max read request\"")
            .from(format!("{DEVICES}/*/config"))
    })
}

/// May a card's writes overtake each other?
pub fn relaxed_ordering(machine: &Machine) -> Verdict {
    const ENABLED: usize = 0x10;
    let (good, bad, skip) = with_control(machine, |control| match control & ENABLED {
        0 => Err("off".to_owned()),
        _ => Ok("on".to_owned()),
    });
    skip.unwrap_or_else(|| {
        Verdict::of(Status::Warn, &bad, good.join(", "))
            .hint("writes may be slow: setpci -s ADDRESS CAP_EXP+8.w=10:10, and mlxconfig PCI_WR_ORDERING=1")
            .from(format!("{DEVICES}/*/config"))
    })
}

/// Has the bus counted errors?
pub fn errors(machine: &Machine) -> Verdict {
    let mut found = Vec::new();
    let mut read = 0;
    for device in endpoints(machine) {
        for kind in ["fatal", "nonfatal"] {
            let Some(text) = device.value(&format!("aer_dev_{kind}")) else {
                continue;
            };
            read += 1;
            let total = text
                .lines()
                .filter_map(|line| line.strip_prefix("TOTAL_ERR_"))
                .find_map(|line| line.split(' ').nth(1)?.parse::<u64>().ok());
            if let Some(count @ 1..) = total {
                found.push(format!("{}: {count} {kind} errors", device.address));
            }
        }
    }
    match read {
        0 => Verdict::skip("no error counters"),
        _ => Verdict::of(Status::Warn, &found, "none counted")
            .hint("dmesg | grep -i aer: which errors, and when"),
    }
    .from(format!("{DEVICES}/*/aer_dev_*"))
}

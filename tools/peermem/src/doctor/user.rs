// SPDX-License-Identifier: GPL-2.0

//! Checks of what the calling user and its applications may and are told to do.

use std::os::unix::fs::MetadataExt;

use super::facts::{size, Machine};
use super::verdict::{Status, Verdict};
use crate::root::Read;

/// How much memory may be locked?
pub fn memlock(machine: &Machine) -> Verdict {
    const LIMITS: &str = "/proc/self/limits";
    const LITTLE: u64 = 1 << 30;
    let text = machine.text(LIMITS);
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix("Max locked memory"));
    let soft = line.and_then(|line| line.split_ascii_whitespace().next());
    match soft.map(|soft| (soft, soft.parse::<u64>())) {
        Some(("unlimited", _)) => Verdict::ok("unlimited"),
        Some((_, Ok(bytes))) if may_lock(machine) => Verdict::ok(format!(
            "{}, which does not bind a process with CAP_IPC_LOCK",
            size(bytes)
        )),
        Some((_, Ok(bytes))) if bytes < LITTLE => Verdict::warn(format!(
            "only {} may be locked: ibv_reg_mr fails with ENOMEM beyond that",
            size(bytes)
        )),
        Some((_, Ok(bytes))) => Verdict::ok(size(bytes)),
        _ => Verdict::skip("not readable"),
    }
    .hint("ulimit -l unlimited; for good: memlock in /etc/security/limits.d, LimitMEMLOCK=infinity in the service (slurmd, containerd); docker run --ulimit memlock=-1")
    .from(LIMITS)
}

/// The numbers in a line of `/proc/self/status`.
fn status_numbers(machine: &Machine, key: &str) -> Vec<u32> {
    let text = machine.text("/proc/self/status");
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.unwrap_or_default()
        .split_ascii_whitespace()
        .filter_map(|number| number.parse().ok())
        .collect()
}

/// The caller's effective user.
fn user(machine: &Machine) -> Option<u32> {
    status_numbers(machine, "Uid:").get(1).copied()
}

/// Whether the caller has the capability to lock memory without limit.
fn may_lock(machine: &Machine) -> bool {
    const IPC_LOCK: u32 = 14;
    let text = machine.text("/proc/self/status");
    let line = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
    capabilities.is_some_and(|capabilities| (capabilities >> IPC_LOCK) & 1 == 1)
}

/// May the caller use the RDMA devices?
pub fn device_files(machine: &Machine) -> Verdict {
    const NODES: &str = "/dev/infiniband";
    if machine.rdma_devices().is_empty() {
        return Verdict::skip("no RDMA device").from(NODES);
    }
    let names = machine.root.names(NODES);
    let nodes: Vec<_> = names.iter().filter(|n| n.starts_with("uverbs")).collect();
    if nodes.is_empty() {
        return Verdict::fail(format!(
            "no {NODES}/uverbs*: no application here can use RDMA"
        ))
        .hint("modprobe ib_uverbs; in a container: docker run --device=/dev/infiniband")
        .from(NODES);
    }
    let mut groups = status_numbers(machine, "Groups:");
    groups.extend(status_numbers(machine, "Gid:").get(1));
    let me = user(machine);
    let closed: Vec<_> = nodes
        .iter()
        .filter_map(
            |name| match machine.root.metadata(&format!("{NODES}/{name}")) {
                Read::Contents(file) => {
                    let owner = (file.mode() >> 6) & 6 == 6 && me == Some(file.uid());
                    let group = (file.mode() >> 3) & 6 == 6 && groups.contains(&file.gid());
                    let others = file.mode() & 6 == 6;
                    let may = me == Some(0) || owner || group || others;
                    (!may).then(|| format!("{name} is closed (mode {:o})", file.mode() & 0o777))
                }
                _ => Some(format!("{name} cannot be looked at")),
            },
        )
        .collect();
    Verdict::of(
        Status::Fail,
        &closed,
        format!("{} devices can be used", nodes.len()),
    )
    .hint("install rdma-core (its udev rules open them), or add the user to the group of the files")
    .from(format!("{NODES}/uverbs*"))
}

/// Is this a container, and does it see enough?
pub fn container(machine: &Machine) -> Verdict {
    let marks = ["/.dockerenv", "/run/.containerenv"];
    let mark = marks.iter().find(|path| machine.root.exists(path));
    let kinds = ["docker", "kubepods", "containerd", "lxc", "libpod"];
    let group = machine.text("/proc/self/cgroup");
    let kind = kinds.iter().find(|kind| group.contains(**kind));
    let source = mark.copied().unwrap_or("/proc/self/cgroup");
    if mark.is_none() && kind.is_none() {
        return Verdict::ok("not in a container").from(source);
    }
    let directory = machine.modules();
    match directory.filter(|directory| !machine.root.exists(directory)) {
        Some(directory) => Verdict::warn(format!(
            "in a container without {directory}: what is installed on the host is not checked"
        ))
        .hint("run peermem doctor on the host, or with -v /lib/modules:/lib/modules:ro"),
        None => Verdict::ok("in a container that sees the host's modules"),
    }
    .from(source)
}

/// Do environment variables turn GPUDirect off?
pub fn environment(machine: &Machine) -> Verdict {
    const FILE: &str = "/proc/self/environ";
    const CONFIGURATION: &str = "/etc/nccl.conf";
    let environment = machine.text(FILE);
    let configuration = machine.text(CONFIGURATION);
    let here = environment
        .split('\0')
        .map(|pair| (pair, "the environment"));
    let there = configuration.lines().map(|pair| (pair, CONFIGURATION));
    let findings: Vec<_> = here
        .chain(there)
        .filter_map(|(pair, place)| {
            let (name, value) = pair.trim().split_once('=')?;
            let effect = effect(name, value)?;
            Some(format!("{name}={value} in {place} {effect}"))
        })
        .collect();
    Verdict::of(Status::Warn, &findings, "no variable turns GPUDirect off")
        .hint("unset it where the application starts (job script, container image, /etc/nccl.conf)")
        .from(format!("{FILE}, {CONFIGURATION}"))
}

/// What a variable does to GPUDirect, if it does something.
fn effect(name: &str, value: &str) -> Option<&'static str> {
    let is_off = matches!(
        value.to_ascii_lowercase().as_str(),
        "0" | "n" | "no" | "off" | "false"
    );
    let is_on = value == "1";
    match name {
        "NCCL_NET_GDR_LEVEL" | "NCCL_IB_GDR_LEVEL" if matches!(value, "LOC" | "0") => {
            Some("turns it off in NCCL")
        }
        "NCCL_IB_DISABLE" if is_on => Some("turns RDMA off in NCCL"),
        "NCCL_NET" if value.eq_ignore_ascii_case("socket") => Some("turns RDMA off in NCCL"),
        "UCX_IB_GPU_DIRECT_RDMA" if is_off => Some("turns it off in UCX"),
        "PYTORCH_CUDA_ALLOC_CONF" | "PYTORCH_ALLOC_CONF"
            if value.contains("expandable_segments:True") =>
        {
            Some("makes memory that may not be registrable (\"Bad address\")")
        }
        _ => None,
    }
}

/// Does the control group limit RDMA?
pub fn control_group(machine: &Machine) -> Verdict {
    let text = machine.text("/proc/self/cgroup");
    let group = text.lines().find_map(|line| line.strip_prefix("0::"));
    let Some(group) = group else {
        return Verdict::skip("no control group of version 2").from("/proc/self/cgroup");
    };
    let file = format!("/sys/fs/cgroup{}/rdma.max", group.trim_end_matches('/'));
    let Read::Contents(limits) = machine.root.read(&file) else {
        return Verdict::ok("no limit on RDMA objects").from(file);
    };
    let limited: Vec<_> = limits
        .lines()
        .filter(|line| {
            line.split_ascii_whitespace()
                .skip(1)
                .any(|limit| !limit.ends_with("=max"))
        })
        .map(str::to_owned)
        .collect();
    Verdict::of(Status::Warn, &limited, "no limit on RDMA objects")
        .hint("registrations beyond it fail with EAGAIN: raise rdma.max of the job's control group")
        .from(file)
}

/// How many mappings may a process have?
pub fn mappings(machine: &Machine) -> Verdict {
    const FILE: &str = "/proc/sys/vm/max_map_count";
    const DEFAULT: u64 = 65530;
    match machine.root.number(FILE) {
        Some(count) if count < DEFAULT => Verdict::warn(format!(
            "{count}: with fork support (RDMAV_FORK_SAFE), registrations soon fail with ENOMEM"
        ))
        .hint(format!("sysctl vm.max_map_count={DEFAULT}, or more")),
        Some(count) => Verdict::ok(count.to_string()),
        None => Verdict::skip("not readable"),
    }
    .from(FILE)
}

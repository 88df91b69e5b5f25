// SPDX-License-Identifier: GPL-2.0

//! Checks of how the loaded module fares, with advice about what it counts.

use super::facts::{size, Machine, MODULE, SYSFS};
use super::verdict::{Status, Verdict};

const NOT_LOADED: &str = "not loaded";

fn number(machine: &Machine, name: &str) -> u64 {
    machine.root.number(&format!("{SYSFS}/{name}")).unwrap_or(0)
}

/// Runs a check if the module is loaded.
fn when_loaded(machine: &Machine, file: &str, check: impl FnOnce() -> Verdict) -> Verdict {
    match machine.is_ours_loaded() {
        true => check(),
        false => Verdict::skip(NOT_LOADED),
    }
    .from(format!("{SYSFS}/{file}"))
}

/// Is the client registered with the RDMA core?
pub fn client(machine: &Machine) -> Verdict {
    when_loaded(machine, "clients", || {
        let clients = machine.root.names(&format!("{SYSFS}/clients"));
        match clients.is_empty() {
            true => Verdict::fail("loaded, but no client is registered")
                .hint("modprobe -r nvidia_peermem && modprobe nvidia-peermem; please report it"),
            false => {
                let core = machine.value(&format!("{SYSFS}/peer_memory_core"));
                Verdict::ok(format!(
                    "{} with {}",
                    clients.join(", "),
                    core.as_deref().unwrap_or("the RDMA core")
                ))
            }
        }
    })
}

/// Does the module take new registrations?
pub fn state(machine: &Machine) -> Verdict {
    when_loaded(machine, "state", || {
        match machine.value(&format!("{SYSFS}/state")).as_deref() {
            Some("live") => Verdict::ok("live"),
            Some("drain") => Verdict::fail("drain: new registrations fail with EAGAIN")
                .hint(format!("echo live > {SYSFS}/state")),
            other => Verdict::skip(format!("state {}", other.unwrap_or("unknown"))),
        }
    })
}

/// Is the limit on pinned memory near?
pub fn limit(machine: &Machine) -> Verdict {
    const NEAR: u64 = 90;
    when_loaded(machine, "max_pinned_bytes", || {
        let limit = number(machine, "max_pinned_bytes");
        let pinned = number(machine, "stats/pinned_bytes");
        if limit == 0 {
            return Verdict::ok(format!("no limit; {} pinned", size(pinned)));
        }
        let text = format!("{} of {} pinned", size(pinned), size(limit));
        let refused = number(machine, "failures/limit");
        match pinned >= limit / 100 * NEAR || refused > 0 {
            true => Verdict::warn(format!("{text}; {refused} registrations refused"))
                .hint(format!(
                    "echo BYTES > {SYSFS}/max_pinned_bytes (0: no limit)"
                ))
                .hint("peermem show mr shows who holds the memory"),
            false => Verdict::ok(text),
        }
    })
}

/// Have registrations failed, and why?
pub fn failures(machine: &Machine) -> Verdict {
    when_loaded(machine, "failures", || {
        let counts: Vec<_> = REASONS
            .iter()
            .map(|(reason, advice)| {
                (
                    number(machine, &format!("failures/{reason}")),
                    reason,
                    advice,
                )
            })
            .filter(|(count, ..)| *count > 0)
            .collect();
        let found: Vec<_> = counts
            .iter()
            .map(|(n, reason, _)| format!("{n} {reason}"))
            .collect();
        let found = match found.is_empty() {
            true => Vec::new(),
            false => vec![format!(
                "registrations failed: {}{}",
                found.join(", "),
                last_failure(machine)
            )],
        };
        let verdict = Verdict::of(Status::Warn, &found, "no registration has failed");
        counts.iter().fold(verdict, |verdict, (_, reason, advice)| {
            verdict.hint(format!("{reason}: {advice}"))
        })
    })
}

/// The last failure, which only root can see.
fn last_failure(machine: &Machine) -> String {
    let text = machine.text("/sys/kernel/debug/nvidia_peermem/failures");
    match text.lines().last() {
        Some(line) => format!("; the last: {line}"),
        None => String::new(),
    }
}

/// What to do about each reason.
const REASONS: &[(&str, &str)] = &[
    (
        "pin_enomem",
        "BAR1 is full or too small: checks G7, G8; register less, or enable resizable BAR",
    ),
    (
        "pin_eopnotsupp",
        "this GPU or its mode has no GPUDirect RDMA: checks G9, G11",
    ),
    ("pin_eio", "trouble in the GPU: dmesg | grep -e NVRM -e Xid"),
    (
        "pin_other",
        "peermem show failures has the errno; Documentation/errors.rst what it means",
    ),
    (
        "page_table_version",
        "the GPU driver is newer than the module: update the module, or report it",
    ),
    (
        "page_table_shape",
        "the GPU driver is newer than the module: update the module, or report it",
    ),
    (
        "not_pci_device",
        "keep applications off rxe and siw devices: NCCL_IB_HCA, UCX_NET_DEVICES (check N2)",
    ),
    (
        "map_enomem",
        "the IOMMU has no room, or the kernel no memory: check P3",
    ),
    (
        "map_eopnotsupp",
        "no peer-to-peer way between this GPU and this card: checks P1, P2",
    ),
    (
        "map_eio",
        "the GPU driver could not map: dmesg | grep -e NVRM -e Xid; check P3",
    ),
    (
        "map_other",
        "peermem show failures has the errno; Documentation/errors.rst what it means",
    ),
    (
        "mapping_version",
        "the GPU driver is newer than the module: update the module, or report it",
    ),
    (
        "mapping_shape",
        "the GPU driver is newer than the module: update the module, or report it",
    ),
    (
        "out_of_memory",
        "the kernel had no memory: free -m; dmesg | grep -i 'page allocation failure'",
    ),
    (
        "freed",
        "the application freed memory while it registered it",
    ),
    (
        "coherent_memory",
        "take persistent_api_support=0 out of /etc/modprobe.d: check G12",
    ),
    ("drain", "the module was draining: check S2"),
    ("limit", "over max_pinned_bytes: check S3"),
];

/// Has the GPU driver kept what was given back?
pub fn leaks(machine: &Machine) -> Verdict {
    when_loaded(
        machine,
        "failures/unpin, failures/unmap, stats/orphans",
        || {
            let kinds = [
                (
                    "failures/unpin",
                    "pins that the GPU driver did not take back",
                ),
                (
                    "failures/unmap",
                    "mappings that the GPU driver did not take back",
                ),
                (
                    "stats/orphans",
                    "pins that wait for their memory to be freed",
                ),
            ];
            let found: Vec<_> = kinds
                .iter()
                .map(|(file, what)| (number(machine, file), what))
                .filter(|(count, _)| *count > 0)
                .map(|(count, what)| format!("{count} {what}"))
                .collect();
            Verdict::of(Status::Warn, &found, "all has been given back")
            .hint("dmesg | grep nvidia_peermem; the memory is back when its owner ends, or when the GPU driver is loaded again")
        },
    )
}

/// Has the RDMA core kept to the order of calls?
pub fn contract(machine: &Machine) -> Verdict {
    when_loaded(machine, "failures/contract", || {
        match number(machine, "failures/contract") {
            0 => Verdict::ok("the RDMA core keeps to the order of calls"),
            count => Verdict::fail(format!("{count} unexpected calls by the RDMA core"))
                .hint("is peerdirect_support right for this OFED (check M10)? If so, please report it: peermem report"),
        }
    })
}

/// Is memory taken away from applications while they use it?
pub fn invalidations(machine: &Machine) -> Verdict {
    when_loaded(machine, "stats/invalidations", || {
        match number(machine, "stats/invalidations") {
            0 => Verdict::ok("no memory was freed while it was registered"),
            count => Verdict::warn(format!(
                "{count} times memory was freed while it was registered"
            ))
            .hint("the application's RDMA requests on it end in errors: it must deregister first"),
        }
    })
}

/// Do the parameters that are in effect say what the module does?
pub fn mode(machine: &Machine) -> Verdict {
    when_loaded(machine, "mode", || {
        let parameter = machine.value(&format!("{MODULE}/parameters/persistent_api_support"));
        let old_core = machine.value(&format!("{MODULE}/parameters/peerdirect_support"));
        let mode = machine.value(&format!("{SYSFS}/mode")).unwrap_or_default();
        match (mode.as_str(), old_core.as_deref()) {
            ("persistent", Some("1")) => {
                Verdict::warn("peerdirect_support=1 has no effect with persistent_api_support=1")
                    .hint("take peerdirect_support=1 out of /etc/modprobe.d")
            }
            ("persistent", _) => Verdict::ok("pins stay until deregistration"),
            ("revocable", _) => Verdict::ok("pins end when the memory is freed"),
            _ => Verdict::skip(format!(
                "unknown mode \"{mode}\" (persistent_api_support={})",
                parameter.as_deref().unwrap_or("?")
            )),
        }
    })
}

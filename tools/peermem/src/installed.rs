// SPDX-License-Identifier: GPL-2.0

//! The module's file, and why the module is not loaded.

use serde::Serialize;

use crate::doctor::ko::Ko;
use crate::root::{LogLine, Read, Root};
use crate::skipped;

/// The file that modprobe takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModuleFile {
    /// Where it is.
    pub path: String,
    /// Its version; none if it cannot be told.
    pub version: Option<String>,
}

/// The file that modprobe takes: depmod has chosen it.
pub fn module_file(root: &Root) -> Option<ModuleFile> {
    let directory = format!("/lib/modules/{}", root.release()?);
    let dependencies = root.read(&format!("{directory}/modules.dep")).contents()?;
    let file = dependencies
        .lines()
        .filter_map(|line| Some(line.split_once(':')?.0))
        .find(|file| is_ours(file))?;
    let path = match file.starts_with('/') {
        true => file.to_owned(),
        false => format!("{directory}/{file}"),
    };
    Some(ModuleFile {
        version: module_info(root, &path, "version"),
        path,
    })
}

fn is_ours(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    let name = name.split(".ko").next().unwrap_or(name);
    name.replace('-', "_") == "nvidia_peermem"
}

/// What a module's file says about itself.
fn module_info(root: &Root, path: &str, key: &str) -> Option<String> {
    let bytes = root.read_bytes(path).contents()?;
    let file = Ko::parse(path, &bytes).ok()?;
    file.info(key).map(str::to_owned)
}

/// Why the module is not loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Absence {
    /// How the last attempt to load it failed, by the kernel log.
    pub last_attempt: Option<String>,
    /// Whether the kernel log could be read.
    pub kernel_log_readable: bool,
    /// What is in the way now.
    pub reasons: Vec<String>,
}

/// Finds out why the module is not loaded.
pub fn absence(root: &Root) -> Absence {
    let log = root.kernel_log();
    let kernel_log_readable = matches!(log, Read::Contents(_));
    if let Some(other) = same_name(root) {
        return Absence {
            last_attempt: None,
            kernel_log_readable,
            reasons: vec![other],
        };
    }
    let log = log.contents().unwrap_or_default();
    Absence {
        last_attempt: log.iter().rev().find_map(attempt).flatten(),
        kernel_log_readable,
        reasons: in_the_way(root),
    }
}

/// A module of this name without our files: NVIDIA's.
fn same_name(root: &Root) -> Option<String> {
    if !root.exists("/sys/module/nvidia_peermem") {
        return None;
    }
    let version = root.value("/sys/module/nvidia_peermem/version");
    let whose = match version == root.value("/sys/module/nvidia/version") {
        true => "NVIDIA's own nvidia-peermem",
        false => "another module nvidia_peermem",
    };
    let version = version.map_or(String::new(), |version| format!(", version {version},"));
    Some(format!(
        "{whose}{version} is loaded in its place: rmmod nvidia_peermem first"
    ))
}

/// Whether a line tells how an attempt ended, and the failure if it did fail.
fn attempt(line: &LogLine) -> Option<Option<String>> {
    let text = line.text.strip_prefix("nvidia_peermem: ")?;
    if text.contains(" (Rust): client") {
        return Some(None);
    }
    let reason = match text.strip_prefix("not loaded: ") {
        Some(reason) => reason,
        None if refused_by_kernel(text) => text,
        None => return None,
    };
    Some(Some(format!("{reason} (at {:.6} s)", line.seconds)))
}

fn refused_by_kernel(text: &str) -> bool {
    [
        "Unknown symbol",
        "disagrees about version",
        "invalid for parameter",
        "version magic",
    ]
    .iter()
    .any(|part| text.contains(part))
}

/// What would make the next attempt fail, as far as it is easily seen; `doctor` looks closer.
fn in_the_way(root: &Root) -> Vec<String> {
    let symbols = root.read("/proc/kallsyms").contents().unwrap_or_default();
    let missing = |symbol: &str| !symbols.is_empty() && !has_symbol(&symbols, symbol);
    let mut reasons = Vec::new();
    if root.value("/proc/sys/kernel/modules_disabled").as_deref() == Some("1") {
        reasons.push(
            "this kernel loads no modules until it is booted again (kernel.modules_disabled is 1)",
        );
    }
    if root.exists("/sys/module/nv_peer_mem") {
        reasons.push("another peer-memory client is loaded: rmmod nv_peer_mem first");
    }
    if missing("ib_register_peer_memory_client") {
        reasons.push("no peer-memory API: the RDMA core that is loaded, if any, is not DOCA-OFED's (applications that use DMA-BUF need neither)");
    }
    if missing("nvidia_p2p_get_pages") {
        reasons.push("no GPU driver: modprobe nvidia");
    }
    let mut reasons: Vec<_> = reasons.into_iter().map(str::to_owned).collect();
    if module_file(root).is_none() {
        reasons.push(match skipped::reason(root) {
            Some(reason) => format!("DKMS skipped this kernel: {reason}"),
            None => "it is not installed for this kernel: modules.dep knows no nvidia-peermem"
                .to_owned(),
        });
    }
    reasons
}

/// Whether one of the lines `0000000000000000 T name [module]` has the name.
fn has_symbol(symbols: &str, name: &str) -> bool {
    symbols
        .lines()
        .any(|line| line.split_whitespace().nth(2) == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> LogLine {
        LogLine {
            seconds: 12.5,
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_refusal_is_quoted_and_a_load_ends_it() {
        assert_eq!(
            attempt(&line("nvidia_peermem: not loaded: out of memory")),
            Some(Some("out of memory (at 12.500000 s)".to_owned()))
        );
        let loaded = "nvidia_peermem: 0.1.0 (Rust): client nv_mem with persistent pins";
        assert_eq!(attempt(&line(loaded)), Some(None));
        assert_eq!(
            attempt(&line("nvidia_peermem: loading out-of-tree module")),
            None
        );
        assert_eq!(attempt(&line("mlx5_core: not loaded: x")), None);
    }

    #[test]
    fn files_are_told_by_name() {
        for name in [
            "updates/nvidia-peermem.ko",
            "extra/nvidia_peermem.ko.xz",
            "nvidia-peermem.ko.zst",
        ] {
            assert!(is_ours(name), "{name}");
        }
        assert!(!is_ours("kernel/nvidia-peermem-x.ko"));
        assert!(!is_ours("kernel/nvidia.ko"));
    }
}

// SPDX-License-Identifier: GPL-2.0

//! `peermem report`: one archive with all that a bug report needs, and nothing else.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use flate2::Compression;

use crate::clock;
use crate::debug::DEBUGFS;
use crate::failure::{Failure, Outcome};
use crate::mask::Mask;
use crate::module::SYSFS;
use crate::output::outln;
use crate::root::{Read, Root};

/// Modules whose versions matter.
const MODULES: [&str; 10] = [
    "nvidia_peermem",
    "nvidia",
    "nvidia_uvm",
    "nv_peer_mem",
    "ib_core",
    "ib_uverbs",
    "ib_peer_mem",
    "mlx5_core",
    "mlx5_ib",
    "gdrdrv",
];
/// A line of the kernel log that has one of these words is about peer memory.
const WORDS: [&str; 5] = [
    "peermem",
    "peer_mem",
    "peer memory",
    "peer-memory",
    "nvidia_p2p",
];
/// Lines of the kernel's configuration that matter begin so.
const CONFIG: [&str; 12] = [
    "CONFIG_RUST",
    "CONFIG_CC_VERSION_TEXT",
    "CONFIG_MODVERSIONS",
    "CONFIG_EXTENDED_MODVERSIONS",
    "CONFIG_GENDWARFKSYMS",
    "CONFIG_MODULE_SIG",
    "CONFIG_SECURITY_LOCKDOWN",
    "CONFIG_INFINIBAND",
    "CONFIG_PCI_P2PDMA",
    "CONFIG_IOMMU_DEFAULT",
    "CONFIG_DMA_SHARED_BUFFER",
    "CONFIG_DEBUG_FS",
];

/// Where to write it, and how much it tells.
#[derive(Args, Debug)]
pub struct Options {
    /// The archive (default: peermem-report-DATE-TIME.tar.gz here)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace names of hosts and processes, process numbers, serial numbers and addresses, each by
    /// the same word everywhere
    #[arg(short, long)]
    mask: bool,
}

/// A file of the archive.
struct Entry {
    name: String,
    text: String,
}

/// Writes the archive.
pub fn run(root: &Root, options: &Options) -> Outcome {
    let file = options
        .output
        .clone()
        .unwrap_or_else(|| format!("peermem-report-{}.tar.gz", clock::stamp()).into());
    let mut entries = collect(root);
    if options.mask {
        let mut mask = Mask::new(root);
        for entry in &mut entries {
            entry.text = mask.apply(&entry.text);
        }
    }
    write_archive(&file, &entries).map_err(|error| {
        Failure::error(format!(
            "{}: {error} (--output names another file)",
            file.display()
        ))
    })?;
    outln!("{}", file.display());
    Ok(ExitCode::SUCCESS)
}

fn collect(root: &Root) -> Vec<Entry> {
    let mut entries = vec![
        ours("status.txt", &["status"]),
        ours("status.json", &["-j", "-p", "status"]),
        ours("doctor.txt", &["doctor"]),
        ours("doctor.json", &["-j", "-p", "doctor"]),
        entry("kernel-log.txt", kernel_log(root)),
        entry("kernel.txt", kernel(root)),
        entry("kernel-config.txt", kernel_config(root)),
        entry("modules.txt", modules(root)),
    ];
    if !root.is_recorded() {
        entries.push(entry("modinfo.txt", modinfo()));
        entries.push(entry("lspci.txt", lspci()));
    }
    entries.extend(tree(root, SYSFS, "sysfs"));
    entries.extend(tree(root, DEBUGFS, "debugfs"));
    entries
}

fn entry(name: &str, text: String) -> Entry {
    Entry {
        name: name.to_owned(),
        text,
    }
}

/// What this program says itself.
fn ours(name: &str, arguments: &[&str]) -> Entry {
    let text = match std::env::current_exe() {
        Ok(program) => output(Command::new(program).arg("--color=never").args(arguments)),
        Err(error) => format!("cannot run myself: {error}\n"),
    };
    entry(name, text)
}

/// What a program says, or why it says nothing.
fn output(command: &mut Command) -> String {
    match command.output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            said + &String::from_utf8_lossy(&output.stderr)
        }
        Err(error) => format!("{}: {error}\n", command.get_program().to_string_lossy()),
    }
}

fn kernel_log(root: &Root) -> String {
    let lines = match root.kernel_log() {
        Read::Contents(lines) => lines,
        Read::Denied => return "the kernel log needs root\n".to_owned(),
        Read::Missing => return "there is no /dev/kmsg\n".to_owned(),
        Read::Failed(error) => return format!("/dev/kmsg: {error}\n"),
    };
    lines
        .iter()
        .filter(|line| WORDS.iter().any(|word| line.text.contains(word)))
        .map(|line| format!("[{:12.6}] {}\n", line.seconds, line.text))
        .collect::<Vec<_>>()
        .concat()
}

fn kernel(root: &Root) -> String {
    ["osrelease", "version", "tainted", "modules_disabled"]
        .iter()
        .map(|name| {
            let value = root.value(&format!("/proc/sys/kernel/{name}"));
            format!(
                "{name}: {}\n",
                value.unwrap_or_else(|| "unknown".to_owned())
            )
        })
        .collect::<Vec<_>>()
        .concat()
}

fn kernel_config(root: &Root) -> String {
    let Some(config) = config_text(root) else {
        return "neither /boot/config-* nor /proc/config.gz can be read\n".to_owned();
    };
    config
        .lines()
        .filter(|line| {
            let setting = line.trim_start_matches("# ");
            CONFIG.iter().any(|start| setting.starts_with(start))
        })
        .map(|line| format!("{line}\n"))
        .collect::<Vec<_>>()
        .concat()
}

fn config_text(root: &Root) -> Option<String> {
    let release = root.release()?;
    let in_boot = root.read(&format!("/boot/config-{release}")).contents();
    in_boot.or_else(|| {
        let packed = root.read_bytes("/proc/config.gz").contents()?;
        io::read_to_string(GzDecoder::new(&packed[..])).ok()
    })
}

fn modules(root: &Root) -> String {
    MODULES
        .iter()
        .filter(|name| root.exists(&format!("/sys/module/{name}")))
        .map(|name| {
            let value = |file: &str| {
                let text = root.value(&format!("/sys/module/{name}/{file}"));
                text.unwrap_or_else(|| "-".to_owned())
            };
            format!(
                "{name} version {} srcversion {} taint {}\n",
                value("version"),
                value("srcversion"),
                value("taint")
            )
        })
        .collect::<Vec<_>>()
        .concat()
}

fn modinfo() -> String {
    MODULES
        .iter()
        .map(|name| format!("== {name}\n{}", output(Command::new("modinfo").arg(name))))
        .collect::<Vec<_>>()
        .concat()
}

/// The tree of PCI devices, and all about GPUs and RDMA devices.
fn lspci() -> String {
    let tree = output(Command::new("lspci").arg("-tvnn"));
    let nvidia = output(Command::new("lspci").args(["-vvnn", "-d", "10de:"]));
    let mellanox = output(Command::new("lspci").args(["-vvnn", "-d", "15b3:"]));
    format!("{tree}\n{nvidia}\n{mellanox}")
}

fn tree(root: &Root, path: &str, name: &str) -> Vec<Entry> {
    root.tree(path)
        .into_iter()
        .map(|(file, read)| {
            let below = file.trim_start_matches(path);
            match read {
                Read::Contents(text) => entry(&format!("{name}{below}"), text),
                other => entry(&format!("{name}{below}.unread"), unread(&file, &other)),
            }
        })
        .collect()
}

fn unread(file: &str, read: &Read) -> String {
    let why = match read {
        Read::Missing => "is not there",
        Read::Denied => "may not be read",
        Read::Failed(error) => return format!("{file}: {error}\n"),
        Read::Contents(_) => "",
    };
    format!("{file} {why}\n")
}

/// Only the caller may read the archive.
fn write_archive(file: &Path, entries: &[Entry]) -> io::Result<()> {
    let file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(file)?;
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(entry.text.len() as u64);
        header.set_mode(0o644);
        let path = format!("peermem-report/{}", entry.name);
        archive.append_data(&mut header, path, entry.text.as_bytes())?;
    }
    archive.into_inner()?.finish()?.sync_all()
}

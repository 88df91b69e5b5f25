// SPDX-License-Identifier: GPL-2.0

//! Checks of the module: can it be loaded, is it the one that is loaded, and does it fit what is
//! loaded beside it?

use std::rc::Rc;

use super::facts::{Machine, Owner, MODULE, PIN, PIN_PERSISTENT, REGISTER, SYSFS};
use super::kernel;
use super::ko::Ko;
use super::verdict::{Status, Verdict};

const NOT_INSTALLED: &str = "nvidia-peermem-rs is not installed for this kernel";
const SYMBOLS: &str = "/proc/kallsyms";

/// Does the RDMA core have the peer-memory API, and where?
pub fn peer_api(machine: &Machine) -> Verdict {
    match machine.owner(REGISTER) {
        Owner::Kernel => Verdict::ok(format!("{REGISTER} is built into the kernel")),
        Owner::Module(module) => Verdict::ok(format!("{REGISTER} is in {module}")),
        Owner::Unknown => Verdict::skip("the kernel's symbols are not readable"),
        Owner::Nobody => match installed_core(machine) {
            Some(path) => Verdict::fail(format!("no loaded module has {REGISTER}, but {path} has"))
                .hint("load it in place of the RDMA core that is loaded: /etc/init.d/openibd restart, or reboot"),
            None if machine.owner("ib_register_client") == Owner::Nobody => {
                Verdict::fail("the RDMA core is not loaded")
                    .hint("modprobe ib_uverbs")
            }
            None => Verdict::fail("ib_core has no peer-memory API")
                .hint("install DOCA-OFED, or use DMA-BUF, which needs no module (check D1)"),
        },
    }
    .from(SYMBOLS)
}

/// An installed file that has the peer-memory API.
fn installed_core(machine: &Machine) -> Option<String> {
    let mut paths = ["ib_core", "ib_uverbs", "ib_peer_mem"]
        .iter()
        .filter_map(|module| machine.file_of(module));
    paths.find(|path| {
        machine
            .ko(path)
            .is_ok_and(|ko| ko.exports.contains_key(REGISTER))
    })
}

/// Is the module loaded, and is it this one?
pub fn loaded(machine: &Machine) -> Verdict {
    let version = |path: &str| machine.value(path).unwrap_or_else(|| "unknown".to_owned());
    if machine.is_ours_loaded() {
        return Verdict::ok(format!(
            "nvidia-peermem-rs {}, {}",
            version(&format!("{SYSFS}/version")),
            version(&format!("{SYSFS}/mode"))
        ))
        .from(SYSFS);
    }
    if machine.is_loaded("nvidia_peermem") {
        let version = version(&format!("{MODULE}/version"));
        return Verdict::warn(format!("NVIDIA's own nvidia-peermem {version} is loaded"))
            .hint("modprobe -r nvidia_peermem, then modprobe nvidia-peermem (check M5)")
            .from(MODULE);
    }
    Verdict::fail("not loaded")
        .hint("modprobe nvidia-peermem; if that fails, the reason is in check K10")
        .from(MODULE)
}

/// Is the module installed for the running kernel?
pub fn installed(machine: &Machine) -> Verdict {
    let Some(directory) = machine.modules() else {
        return Verdict::skip("the kernel's release is not known").from("/lib/modules");
    };
    if !machine.root.exists(&directory) {
        return Verdict::skip("there are no modules (in a container?)").from(directory);
    }
    match machine.our_file() {
        Some((path, ko)) => {
            Verdict::ok(format!("version {}", ko.info("version").unwrap_or("?"))).from(path)
        }
        None => {
            let files = machine.files_of("nvidia_peermem");
            let detail = match files.first() {
                Some(path) => format!("only NVIDIA's: {path}"),
                None => NOT_INSTALLED.to_owned(),
            };
            match machine.is_ours_loaded() {
                true => Verdict::warn(detail),
                false => Verdict::fail(detail),
            }
            .hint("make && sudo make install, or install the package")
            .from(directory)
        }
    }
}

/// Does another module serve the same memory?
pub fn conflicts(machine: &Machine) -> Verdict {
    const OTHERS: [&str; 2] = ["nv_peer_mem", "efa_nv_peermem"];
    let loaded: Vec<_> = OTHERS
        .into_iter()
        .filter(|m| machine.is_loaded(m))
        .collect();
    let Some(first) = loaded.first() else {
        return match !machine.is_ours_loaded() && kernel::is_client_refused(machine) {
            true => {
                Verdict::fail("the RDMA core has a client nv_mem already, of a module unknown here")
                    .hint("ls /sys/module/*/holders: it is one of those that use the core's module")
            }
            false => Verdict::ok("no other client for the memory of NVIDIA GPUs"),
        }
        .from("/proc/modules");
    };
    let detail = format!(
        "{} loaded: only one client may serve GPU memory",
        loaded.join(", ")
    );
    match *first {
        "efa_nv_peermem" => Verdict::warn(detail),
        _ => Verdict::fail(detail),
    }
    .hint(format!(
        "modprobe -r {first}; echo blacklist {first} > /etc/modprobe.d/nvidia-peermem-rs.conf"
    ))
    .from("/proc/modules")
}

/// Which of several files of the same name is loaded?
pub fn duplicates(machine: &Machine) -> Verdict {
    let files = machine.files_of("nvidia_peermem");
    let source = format!("{}/modules.dep", machine.modules().unwrap_or_default());
    let Some((winner, others)) = files.split_first() else {
        return Verdict::skip(NOT_INSTALLED).from(source);
    };
    let ours = machine.our_file().map(|(path, _)| path);
    let is_ours = ours.as_ref() == Some(winner);
    match (is_ours, others) {
        (true, []) => Verdict::ok(format!("{winner} is the only one")),
        (true, others) => {
            Verdict::ok(format!("modprobe takes {winner}, not {}", others.join(", ")))
        }
        (false, []) => Verdict::skip(NOT_INSTALLED),
        (false, _) => Verdict::warn(format!(
            "modprobe takes NVIDIA's {winner}{}",
            ours.map(|path| format!(", not {path}")).unwrap_or_default()
        ))
        .hint("echo 'override nvidia-peermem * updates' > /etc/depmod.d/nvidia-peermem-rs.conf && depmod"),
    }
    .from(source)
}

/// A module whose symbols ours uses, as far as it is known.
struct Provider {
    name: &'static str,
    path: Option<String>,
    ko: Option<Rc<Ko>>,
}

impl Provider {
    fn rdma(machine: &Machine) -> Self {
        let owner = match machine.owner(REGISTER) {
            Owner::Module(module) => machine.file_of(&module),
            _ => None,
        };
        let path = owner.or_else(|| installed_core(machine));
        Self::at(machine, "the RDMA core", path)
    }

    fn gpu(machine: &Machine) -> Self {
        Self::at(machine, "the GPU driver", machine.driver_file())
    }

    fn at(machine: &Machine, name: &'static str, path: Option<String>) -> Self {
        let ko = path.as_ref().and_then(|path| machine.ko(path).ok());
        Self { name, path, ko }
    }

    /// Whether a symbol is one of those that it should have.
    fn has_to_have(&self, symbol: &str) -> bool {
        let prefix = match self.name {
            "the GPU driver" => "nvidia_p2p_",
            _ => "ib_",
        };
        symbol.starts_with(prefix)
    }
}

fn providers(machine: &Machine) -> [Provider; 2] {
    [Provider::rdma(machine), Provider::gpu(machine)]
}

/// Runs a check on our file and the files of those whose symbols it uses.
fn against_providers(
    machine: &Machine,
    check: impl Fn(&Ko, &Provider, &Ko) -> Vec<String>,
) -> Result<(Vec<String>, String), Verdict> {
    let Some((path, ours)) = machine.our_file() else {
        return Err(Verdict::skip(NOT_INSTALLED).from("/lib/modules"));
    };
    let mut findings = Vec::new();
    let mut read = vec![path];
    for provider in providers(machine) {
        if let Some(ko) = &provider.ko {
            findings.extend(check(&ours, &provider, ko));
            read.extend(provider.path.clone());
        }
    }
    match read.len() {
        1 => Err(Verdict::skip(
            "the files of the GPU driver and of the RDMA core are not readable",
        )
        .from(read.remove(0))),
        _ => Ok((findings, read.join(", "))),
    }
}

/// Do the installed files have the symbols that ours needs?
pub fn symbols(machine: &Machine) -> Verdict {
    let missing = against_providers(machine, |ours, provider, theirs| {
        let needed = ours.needs.keys().filter(|s| provider.has_to_have(s));
        needed
            .filter(|symbol| !theirs.exports.contains_key(*symbol))
            .map(|symbol| format!("{} has no {symbol}", provider.name))
            .collect()
    });
    match missing {
        Ok((missing, read)) => Verdict::of(
            Status::Fail,
            &missing,
            "the installed GPU driver and RDMA core have all that the module needs",
        )
        .hint(
            "install the GPU driver and the OFED that the module was built for, or build it again",
        )
        .from(read),
        Err(verdict) => verdict,
    }
}

/// Have they the versions that ours was built with?
pub fn symbol_versions(machine: &Machine) -> Verdict {
    if machine.config().is_some_and(|c| !c.has("MODVERSIONS")) {
        return Verdict::skip("CONFIG_MODVERSIONS is off: symbols have no versions")
            .from("the kernel's configuration");
    }
    let differing = against_providers(machine, |ours, provider, theirs| {
        let needed = ours.needs.iter().filter(|(s, _)| provider.has_to_have(s));
        needed
            .filter_map(|(symbol, version)| {
                let theirs = (*theirs.exports.get(symbol)?)?;
                match version {
                    Some(version) if *version == theirs => None,
                    Some(version) => Some(format!(
                        "{symbol}: built with {version:#010x}, {} has {theirs:#010x}",
                        provider.name
                    )),
                    None => Some(format!("{symbol}: built without its version")),
                }
            })
            .collect()
    });
    match differing {
        Ok((differing, read)) => Verdict::of(
            Status::Fail,
            &differing,
            "symbol versions are those of the installed GPU driver and RDMA core",
        )
        .hint("build the module again: dkms build --force nvidia-peermem-rs, or make && sudo make install")
        .from(read),
        Err(verdict) => verdict,
    }
}

/// Are the modules that run those that are installed?
pub fn running_providers(machine: &Machine) -> Verdict {
    let mut compared = Vec::new();
    let mut stale = Vec::new();
    for name in ["ib_core", "ib_uverbs", "mlx5_core", "mlx5_ib", "nvidia"] {
        let running = machine.value(&format!("/sys/module/{name}/srcversion"));
        let path = match name {
            "nvidia" => machine.driver_file(),
            _ => machine.file_of(name),
        };
        let (Some(running), Some(path)) = (running, path) else {
            continue;
        };
        let Ok(ko) = machine.ko(&path) else { continue };
        let Some(installed) = ko.info("srcversion") else {
            continue;
        };
        compared.push(name);
        if installed != running {
            stale.push(format!("{name}: another build runs than {path}"));
        }
    }
    match compared.is_empty() {
        true => Verdict::skip("nothing to compare"),
        false => Verdict::of(
            Status::Warn,
            &stale,
            format!("{} run as installed", compared.join(", ")),
        )
        .hint(
            "reboot, or load them again when nobody uses them (OFED: /etc/init.d/openibd restart)",
        ),
    }
    .from("/sys/module/*/srcversion")
}

/// Is the loaded module the installed one?
pub fn running_module(machine: &Machine) -> Verdict {
    let source = format!("{MODULE}/srcversion");
    if !machine.is_ours_loaded() {
        return Verdict::skip("not loaded").from(source);
    }
    let (Some((path, ko)), Some(running)) = (machine.our_file(), machine.value(&source)) else {
        return Verdict::skip("nothing to compare").from(source);
    };
    match ko.info("srcversion") {
        Some(installed) if installed == running => Verdict::ok(format!("{path} is loaded")),
        Some(_) => Verdict::warn(format!("another build is loaded than {path}"))
            .hint("when nobody uses it: modprobe -r nvidia_peermem && modprobe nvidia-peermem"),
        None => Verdict::skip(format!("{path} does not tell")),
    }
    .from(source)
}

/// Do options of modprobe fit, and is the module not blacklisted?
pub fn options(machine: &Machine) -> Verdict {
    let mut findings = Vec::new();
    let mut found = Vec::new();
    for (path, line) in modprobe_lines(machine) {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let Some((command, rest)) = words.split_first() else {
            continue;
        };
        if rest.first().map(|name| name.replace('-', "_")) != Some("nvidia_peermem".to_owned()) {
            continue;
        }
        match *command {
            "blacklist" => findings.push(format!("blacklisted in {path}")),
            "install" => findings.push(format!("{path} runs a command in place of loading it")),
            "options" => {
                for option in &rest[1..] {
                    found.push((*option).to_owned());
                    if !is_option(option) {
                        findings.push(format!("{path}: {option} is not supported"));
                    }
                }
            }
            _ => {}
        }
    }
    let otherwise = match found.is_empty() {
        true => "no options set".to_owned(),
        false => found.join(" "),
    };
    Verdict::of(Status::Warn, &findings, otherwise)
        .hint("correct the file; options are persistent_api_support and peerdirect_support, 0 or 1")
        .from("/etc/modprobe.d, /usr/lib/modprobe.d")
}

fn is_option(option: &str) -> bool {
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    let known = ["persistent_api_support", "peerdirect_support"];
    known.contains(&name) && matches!(value, "0" | "1")
}

fn modprobe_lines(machine: &Machine) -> Vec<(String, String)> {
    let directories = ["/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d"];
    let mut lines = Vec::new();
    for directory in directories {
        for name in machine.root.names(directory) {
            let path = format!("{directory}/{name}");
            if name.ends_with(".conf") {
                let text = machine.text(&path);
                lines.extend(text.lines().map(|line| (path.clone(), line.to_owned())));
            }
        }
    }
    lines
}

/// Will the module be loaded at the next boot?
pub fn at_boot(machine: &Machine) -> Verdict {
    let places = [
        "/etc/modules-load.d",
        "/usr/lib/modules-load.d",
        "/etc/systemd/system/multi-user.target.wants",
        "/etc/systemd/system/rdma-hw.target.wants",
    ];
    let names_it = |text: &str| text.replace('-', "_").contains("nvidia_peermem");
    for place in places {
        for name in machine.root.names(place) {
            let path = format!("{place}/{name}");
            let lists_it = place.ends_with("modules-load.d")
                && machine
                    .text(&path)
                    .lines()
                    .any(|line| !line.starts_with('#') && names_it(line));
            if lists_it || (name.ends_with(".service") && name.contains("peermem")) {
                return Verdict::ok(path.clone()).from(path);
            }
        }
    }
    if names_it(&machine.text("/etc/modules")) {
        return Verdict::ok("/etc/modules").from("/etc/modules");
    }
    if machine.our_file().is_none() {
        return Verdict::skip(NOT_INSTALLED).from(places[0]);
    }
    Verdict::warn("nothing loads the module at boot")
        .hint("echo nvidia-peermem > /etc/modules-load.d/nvidia-peermem.conf")
        .from(places[..2].join(", "))
}

/// Will NCCL, UCX and NVSHMEM find the module?
pub fn detection(machine: &Machine) -> Verdict {
    let files = [
        format!("{MODULE}/version"),
        "/sys/kernel/mm/memory_peers/nv_mem/version".to_owned(),
        "/sys/kernel/mm/memory_peers/nv_mem_nc/version".to_owned(),
    ];
    let found = files.iter().find(|path| machine.root.exists(path));
    let live = machine.is_ours_loaded() || machine.is_loaded("nvidia_peermem");
    match found {
        Some(path) if live => Verdict::ok(format!("{path} is there")).from(path),
        Some(path) => Verdict::warn(format!(
            "{path} is there, but no client: applications take GPUDirect for available"
        ))
        .hint("modprobe nvidia-peermem")
        .from(path),
        None if live => Verdict::fail("loaded, but applications cannot see that")
            .hint("make the host's /sys visible in the container")
            .from(&files[0]),
        None => Verdict::skip("not loaded").from(&files[0]),
    }
}

/// Are tool and module of one version?
pub fn tool_version(machine: &Machine) -> Verdict {
    let tool = env!("CARGO_PKG_VERSION");
    let source = format!("{SYSFS}/version");
    match machine.value(&source) {
        Some(module) if module == tool => Verdict::ok(format!("both are {tool}")),
        Some(module) => Verdict::warn(format!("peermem is {tool}, the module {module}"))
            .hint("install both from one release"),
        None => Verdict::skip("not loaded"),
    }
    .from(source)
}

/// Whether the running GPU driver has persistent pins; `None` if it is not known.
pub fn has_persistent_pins(machine: &Machine) -> Option<bool> {
    match (machine.owner(PIN_PERSISTENT), machine.owner(PIN)) {
        (Owner::Unknown, _) | (_, Owner::Unknown) => None,
        (Owner::Nobody, Owner::Nobody) => None,
        (persistent, _) => Some(persistent != Owner::Nobody),
    }
}

// SPDX-License-Identifier: GPL-2.0

//! What several checks want to know about the machine.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::ko::Ko;
use super::pci::Device;
use crate::root::{Read, Root};

/// The peer-memory core's function that a client calls to register.
pub const REGISTER: &str = "ib_register_peer_memory_client";
/// The GPU driver's function that is missing in old drivers.
pub const PIN_PERSISTENT: &str = "nvidia_p2p_get_pages_persistent";
/// The GPU driver's function that all drivers have.
pub const PIN: &str = "nvidia_p2p_get_pages";
/// Where the module shows itself.
pub const SYSFS: &str = "/sys/kernel/nvidia_peermem";
/// Where any module of that name shows itself.
pub const MODULE: &str = "/sys/module/nvidia_peermem";

/// Who has a symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The kernel itself.
    Kernel,
    /// This module.
    Module(String),
    /// Nobody.
    Nobody,
    /// The list of symbols cannot be read.
    Unknown,
}

/// The build configuration of the kernel.
pub struct Config {
    /// The file that it is from.
    pub source: String,
    values: BTreeMap<String, String>,
}

impl Config {
    fn parse(source: &str, text: &str) -> Self {
        let values = text.lines().filter_map(|line| {
            let (key, value) = line.strip_prefix("CONFIG_")?.split_once('=')?;
            Some((key.to_owned(), value.trim_matches('"').to_owned()))
        });
        Self {
            source: source.to_owned(),
            values: values.collect(),
        }
    }

    /// The value of an option without its `CONFIG_`.
    pub fn get(&self, option: &str) -> Option<&str> {
        self.values.get(option).map(String::as_str)
    }

    /// Whether an option is built in or a module.
    pub fn has(&self, option: &str) -> bool {
        matches!(self.get(option), Some("y" | "m"))
    }
}

/// The machine. What is expensive to find out is found out once.
pub struct Machine<'a> {
    /// Where to read.
    pub root: &'a Root,
    config: OnceCell<Option<Config>>,
    symbols: OnceCell<Option<BTreeMap<String, Owner>>>,
    files: OnceCell<Vec<String>>,
    index: OnceCell<Vec<String>>,
    modules: RefCell<BTreeMap<String, Result<Rc<Ko>, String>>>,
    our_file: OnceCell<Option<(String, Rc<Ko>)>>,
}

impl<'a> Machine<'a> {
    /// The machine that is to be read there.
    pub fn new(root: &'a Root) -> Self {
        Self {
            root,
            config: OnceCell::new(),
            symbols: OnceCell::new(),
            files: OnceCell::new(),
            index: OnceCell::new(),
            modules: RefCell::default(),
            our_file: OnceCell::new(),
        }
    }

    /// A file's contents without the white space around it.
    pub fn value(&self, path: &str) -> Option<String> {
        self.root.value(path)
    }

    /// A file's contents, or nothing.
    pub fn text(&self, path: &str) -> String {
        self.root.read(path).contents().unwrap_or_default()
    }

    /// The release of the running kernel, or of the only one that is recorded.
    pub fn release(&self) -> Option<String> {
        self.root.release().or_else(|| {
            let names = self.root.names("/boot");
            let mut releases = names.iter().filter_map(|n| n.strip_prefix("config-"));
            match (releases.next(), releases.next()) {
                (Some(release), None) => Some(release.to_owned()),
                _ => None,
            }
        })
    }

    /// The kernel's directory of modules.
    pub fn modules(&self) -> Option<String> {
        Some(format!("/lib/modules/{}", self.release()?))
    }

    /// The kernel's build configuration.
    pub fn config(&self) -> Option<&Config> {
        self.config.get_or_init(|| self.read_config()).as_ref()
    }

    fn read_config(&self) -> Option<Config> {
        let release = self.release().unwrap_or_default();
        let paths = [
            format!("/boot/config-{release}"),
            format!("/lib/modules/{release}/config"),
            format!("/lib/modules/{release}/build/.config"),
        ];
        let found = paths.iter().find_map(|path| {
            let text = self.root.read(path).contents()?;
            Some(Config::parse(path, &text))
        });
        found.or_else(|| {
            let packed = self.root.read_bytes("/proc/config.gz").contents()?;
            let mut text = String::new();
            let mut decoder = flate2::read::GzDecoder::new(&packed[..]);
            std::io::Read::read_to_string(&mut decoder, &mut text).ok()?;
            Some(Config::parse("/proc/config.gz", &text))
        })
    }

    /// The directory of the kernel's headers, with its build configuration.
    pub fn headers(&self) -> Option<String> {
        let release = self.release()?;
        let places = [
            format!("/lib/modules/{release}/build"),
            format!("/usr/src/linux-headers-{release}"),
        ];
        let mut places = places.into_iter();
        places.find(|place| self.root.exists(&format!("{place}/.config")))
    }

    /// Whether a module is loaded and ready.
    pub fn is_loaded(&self, module: &str) -> bool {
        let listed = self.text("/proc/modules").lines().any(|line| {
            let mut words = line.split(' ');
            words.next() == Some(module) && words.any(|word| word == "Live")
        });
        let state = self.value(&format!("/sys/module/{module}/initstate"));
        listed || state.as_deref() == Some("live")
    }

    /// Whether a module is loaded, or part of the kernel.
    pub fn is_there(&self, module: &str) -> bool {
        self.is_loaded(module) || self.root.exists(&format!("/sys/module/{module}"))
    }

    /// Whether it is this project's module that is loaded.
    pub fn is_ours_loaded(&self) -> bool {
        self.root.exists(SYSFS)
    }

    /// Who has one of the symbols that matter here.
    pub fn owner(&self, symbol: &str) -> Owner {
        match self.symbols.get_or_init(|| self.read_symbols()) {
            None => Owner::Unknown,
            Some(symbols) => symbols.get(symbol).cloned().unwrap_or(Owner::Nobody),
        }
    }

    fn read_symbols(&self) -> Option<BTreeMap<String, Owner>> {
        let text = self.root.read("/proc/kallsyms").contents()?;
        let symbols: BTreeMap<_, _> = text
            .lines()
            .filter(|line| line.contains(" ib_") || line.contains(" nvidia_p2p_"))
            .filter_map(|line| {
                let mut words = line.split_ascii_whitespace().skip(2);
                let name = words.next()?;
                let owner = words.next().map_or(Owner::Kernel, |module| {
                    Owner::Module(module.trim_matches(['[', ']']).to_owned())
                });
                Some((name.to_owned(), owner))
            })
            .collect();
        (!text.is_empty()).then_some(symbols)
    }

    /// The module files of the running kernel, without those of the kernel's own that have nothing
    /// to do with GPUs or RDMA.
    fn files(&self) -> &[String] {
        self.files.get_or_init(|| {
            let mut files = Vec::new();
            if let Some(directory) = self.modules() {
                self.collect(&directory, "", &mut files);
            }
            files
        })
    }

    fn collect(&self, top: &str, below: &str, files: &mut Vec<String>) {
        const DEEPEST: usize = 12;
        for name in self.root.names(&format!("{top}{below}")) {
            let path = format!("{below}/{name}");
            if name.contains(".ko") {
                files.push(format!("{top}{path}"));
            } else if !name.contains('.')
                && may_hold_drivers(&path)
                && path.split('/').count() < DEEPEST
                && self.root.link(&format!("{top}{path}")).contents().is_none()
            {
                self.collect(top, &path, files);
            }
        }
    }

    /// The files of a module, the one that `modprobe` takes first.
    pub fn files_of(&self, module: &str) -> Vec<String> {
        let winner = self.file_of(module);
        let all = self.files().iter();
        let others = all.filter(|path| is_file_of(path, module) && Some(*path) != winner.as_ref());
        winner.iter().chain(others).cloned().collect()
    }

    /// The file of a module that `modprobe` takes.
    pub fn file_of(&self, module: &str) -> Option<String> {
        let mut paths = self.index().iter();
        paths.find(|path| is_file_of(path, module)).cloned()
    }

    /// The files that `modprobe` knows of.
    fn index(&self) -> &[String] {
        self.index.get_or_init(|| {
            let Some(directory) = self.modules() else {
                return Vec::new();
            };
            let text = self.text(&format!("{directory}/modules.dep"));
            let paths = text.lines().filter_map(|line| line.split(':').next());
            paths
                .map(|path| match path.starts_with('/') {
                    true => path.to_owned(),
                    false => format!("{directory}/{path}"),
                })
                .collect()
        })
    }

    /// Reads a module's file.
    pub fn ko(&self, path: &str) -> Result<Rc<Ko>, String> {
        let known = self.modules.borrow().get(path).cloned();
        known.unwrap_or_else(|| {
            let ko = self.read_ko(path).map(Rc::new);
            self.modules
                .borrow_mut()
                .insert(path.to_owned(), ko.clone());
            ko
        })
    }

    fn read_ko(&self, path: &str) -> Result<Ko, String> {
        match self.root.read_bytes(path) {
            Read::Contents(bytes) => Ko::parse(path, &bytes),
            Read::Missing => Err("missing".to_owned()),
            Read::Denied => Err("not readable (needs root)".to_owned()),
            Read::Failed(error) => Err(error),
        }
    }

    /// The file of our module that is installed for the running kernel.
    pub fn our_file(&self) -> Option<(String, Rc<Ko>)> {
        let find = || {
            let files = self.files_of("nvidia_peermem");
            let mut files = files.into_iter().filter_map(|path| {
                let ko = self.ko(&path).ok()?;
                is_ours(&ko).then_some((path, ko))
            });
            files.next()
        };
        self.our_file.get_or_init(find).clone()
    }

    /// The name of the GPU driver's module that runs.
    pub fn driver_name(&self) -> Option<String> {
        let known = self.value(&format!("{SYSFS}/gpu_driver"));
        known.or_else(|| match self.owner(PIN) {
            Owner::Module(name) => Some(name),
            _ => self.is_loaded("nvidia").then(|| "nvidia".to_owned()),
        })
    }

    /// The file of the GPU driver, under the names that distributions give it.
    pub fn driver_file(&self) -> Option<String> {
        let running = self.driver_name();
        let names = ["nvidia", "nvidia_current_open", "nvidia_current"];
        let mut names = running.as_deref().into_iter().chain(names);
        names.find_map(|name| self.file_of(name))
    }

    /// The version of the GPU driver that runs.
    pub fn driver_version(&self) -> Option<String> {
        let name = self.driver_name();
        let name = name.as_deref().unwrap_or("nvidia");
        self.value(&format!("/sys/module/{name}/version"))
            .or_else(|| {
                let text = self.text("/proc/driver/nvidia/version");
                let mut words = text.split_ascii_whitespace();
                words.find(|word| is_version(word)).map(str::to_owned)
            })
    }

    /// Whether the kernel runs in a virtual machine.
    pub fn is_virtual(&self) -> bool {
        let text = self.text("/proc/cpuinfo");
        let flags = text.lines().find(|line| line.starts_with("flags"));
        flags.is_some_and(|line| line.split(' ').any(|flag| flag == "hypervisor"))
    }

    /// NVIDIA's GPUs on the PCI bus.
    pub fn gpus(&self) -> Vec<Device<'a>> {
        let names = self.root.names("/sys/bus/pci/devices").into_iter();
        names
            .map(|address| Device::new(self.root, &address))
            .filter(|device| {
                let class = device.value("class").unwrap_or_default();
                device.value("vendor").as_deref() == Some("0x10de")
                    && (class.starts_with("0x0300") || class.starts_with("0x0302"))
            })
            .collect()
    }

    /// The names of all RDMA devices.
    pub fn rdma_devices(&self) -> Vec<String> {
        self.root.names("/sys/class/infiniband")
    }

    /// The PCI functions of RDMA devices, by the names of the latter.
    pub fn nics(&self) -> Vec<(String, Device<'a>)> {
        let devices = self.rdma_devices().into_iter();
        devices
            .filter_map(|name| {
                let address = self
                    .root
                    .resolve(&format!("/sys/class/infiniband/{name}/device"))
                    .contents()?;
                let address = address.file_name()?.to_string_lossy().into_owned();
                let device = Device::new(self.root, &address);
                device.value("vendor").is_some().then_some((name, device))
            })
            .collect()
    }
}

/// Whether a module's file is of this project, and not NVIDIA's of the same name.
pub fn is_ours(ko: &Ko) -> bool {
    ko.info("author")
        .is_some_and(|author| author.contains("nvidia-peermem-rs"))
}

/// Whether a directory below that of the kernel's modules may hold drivers of GPUs or RDMA.
fn may_hold_drivers(path: &str) -> bool {
    const OTHERS: [&str; 10] = [
        "arch", "block", "crypto", "fs", "kernel", "lib", "mm", "net", "security", "sound",
    ];
    const DRIVERS: [&str; 4] = ["char", "infiniband", "misc", "video"];
    let parts: Vec<_> = path.split('/').skip(1).collect();
    match parts.as_slice() {
        ["kernel", "drivers", drivers, ..] => DRIVERS.contains(drivers),
        ["kernel", part, ..] => !OTHERS.contains(part),
        _ => true,
    }
}

fn is_file_of(path: &str, module: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.split_once(".ko")
        .is_some_and(|(stem, _)| stem.replace('-', "_") == module)
}

fn is_version(word: &str) -> bool {
    word.contains('.') && word.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

/// A version as numbers, to compare.
pub fn numbers(version: &str) -> Vec<u32> {
    version
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|part| part.parse().ok())
        .collect()
}

/// A size for people.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut amount = bytes as f64;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    match amount.fract() == 0.0 {
        true => format!("{amount} {}", UNITS[unit]),
        false => format!("{amount:.1} {}", UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1 << 38), "256 GiB");
        assert_eq!(size(3 << 29), "1.5 GiB");
        assert_eq!(size(u64::MAX), "16777216 TiB");
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(numbers("535.43.02") < numbers("535.104.05"));
        assert_eq!(numbers("6.12.1-4-amd64"), [6, 12, 1, 4]);
    }

    #[test]
    fn most_of_the_kernels_own_modules_are_not_looked_at() {
        for path in [
            "/updates/dkms",
            "/kernel/nvidia-595",
            "/kernel/drivers/video",
        ] {
            assert!(may_hold_drivers(path), "{path}");
        }
        for path in ["/kernel/fs", "/kernel/drivers/net/ethernet"] {
            assert!(!may_hold_drivers(path), "{path}");
        }
    }

    #[test]
    fn a_dash_in_a_files_name_is_an_underscore_in_the_modules() {
        assert!(is_file_of("a/nvidia-peermem.ko.xz", "nvidia_peermem"));
        assert!(!is_file_of("a/nvidia-peermem-x.ko", "nvidia_peermem"));
    }
}

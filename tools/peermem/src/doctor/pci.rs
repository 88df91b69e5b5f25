// SPDX-License-Identifier: GPL-2.0

//! PCI functions, and how far they are from each other.

use std::fmt;
use std::path::PathBuf;

use super::elf::number;
use crate::root::{Read, Root};

/// A PCI function.
pub struct Device<'a> {
    root: &'a Root,
    /// Its address, as `0000:17:00.0`.
    pub address: String,
    /// The host bridge, then all bridges down to the function, itself last.
    pub route: Vec<String>,
    directory: PathBuf,
}

impl<'a> Device<'a> {
    /// The function at an address.
    pub fn new(root: &'a Root, address: &str) -> Self {
        let directory = directory(root, address);
        let route = directory.iter().skip(3);
        Self {
            root,
            address: address.to_owned(),
            route: route
                .map(|part| part.to_string_lossy().into_owned())
                .collect(),
            directory,
        }
    }

    /// The path of one of its files.
    pub fn file(&self, name: &str) -> String {
        self.directory.join(name).to_string_lossy().into_owned()
    }

    /// The value in one of its files.
    pub fn value(&self, name: &str) -> Option<String> {
        self.root.value(&self.file(name))
    }

    /// The number in one of its files.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.root.number(&self.file(name))
    }

    /// The kernel's driver of it.
    pub fn driver(&self) -> Option<String> {
        self.root.link_name(&self.file("driver"))
    }

    /// First and last address of its memory ranges, in the order of its registers.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        let text = self.value("resource").unwrap_or_default();
        let ranges = text.lines().take(6).filter_map(|line| {
            let mut numbers = line
                .split(' ')
                .map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16));
            let (first, last) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
            (last > first).then_some((first, last))
        });
        ranges.collect()
    }

    /// BAR1 of a GPU, through which others reach its memory: the second range. (The registers of
    /// the first one may take two places.)
    pub fn bar1(&self) -> Option<(u64, u64)> {
        self.ranges().get(1).copied()
    }

    /// The bridges above it, from the top.
    pub fn bridges(&self) -> Vec<Device<'a>> {
        let inner = self
            .route
            .get(1..self.route.len().saturating_sub(1))
            .unwrap_or_default();
        inner
            .iter()
            .map(|address| Device::new(self.root, address))
            .collect()
    }

    /// Its configuration space, as much as the caller may read.
    pub fn config(&self) -> Read<Vec<u8>> {
        self.root.read_bytes(&self.file("config"))
    }

    /// How far another function is.
    pub fn distance(&self, other: &Self) -> Distance {
        let common = self
            .route
            .iter()
            .zip(&other.route)
            .take_while(|(ours, theirs)| ours == theirs)
            .count();
        let node = |device: &Self| device.value("numa_node").unwrap_or_default();
        match common {
            0 if node(self) == node(other) => Distance::Node,
            0 => Distance::System,
            1 => Distance::HostBridge,
            _ if self.route.len().max(other.route.len()) <= common + 2 => Distance::OneSwitch,
            _ => Distance::Switches,
        }
    }
}

/// How far two functions are from each other, with the names that `nvidia-smi topo -m` uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// Below one switch.
    OneSwitch,
    /// Below several switches, not through the CPU.
    Switches,
    /// Through one host bridge.
    HostBridge,
    /// Through host bridges of one NUMA node.
    Node,
    /// From one NUMA node to another.
    System,
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneSwitch => "PIX",
            Self::Switches => "PXB",
            Self::HostBridge => "PHB",
            Self::Node => "NODE",
            Self::System => "SYS",
        })
    }
}

/// Where a function's files are: what its link says, also where the tree was copied to a place that
/// has no links, and the link has become a file.
fn directory(root: &Root, address: &str) -> PathBuf {
    const LINKS: &str = "/sys/bus/pci/devices";
    let link = format!("{LINKS}/{address}");
    let copied = root.value(&link).map(|target| {
        let mut directory = PathBuf::from(LINKS);
        for part in target.split('/') {
            match part {
                ".." => drop(directory.pop()),
                part => directory.push(part),
            }
        }
        directory
    });
    let copied = copied.or_else(|| root.resolve(&link).contents());
    copied.unwrap_or_else(|| link.into())
}

/// The PCI Express capability's offset in a configuration space.
pub fn express_capability(config: &[u8]) -> Option<usize> {
    const FIRST: usize = 0x34;
    const EXPRESS: usize = 0x10;
    let mut at = number(config, FIRST, 1)?;
    // There is room for 48, so that a damaged list that runs in a circle ends, too.
    for _ in 0..48 {
        if at < 0x40 {
            return None;
        }
        if number(config, at, 1)? == EXPRESS {
            return Some(at);
        }
        at = number(config, at + 1, 1)?;
    }
    None
}

/// The device control register.
pub fn device_control(config: &[u8]) -> Option<usize> {
    number(config, express_capability(config)? + 8, 2)
}

/// The control register of Access Control Services; `None` if there is no such capability.
pub fn acs_control(config: &[u8]) -> Option<usize> {
    const ACS: usize = 0x0d;
    let mut at = 0x100;
    for _ in 0..960 {
        let header = number(config, at, 4)?;
        if header & 0xffff == ACS {
            return number(config, at + 6, 2);
        }
        at = header >> 20;
        if at < 0x100 {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device<'a>(root: &'a Root, route: &[&str]) -> Device<'a> {
        let mut device = Device::new(root, route[route.len() - 1]);
        device.route = route.iter().map(|&part| part.to_owned()).collect();
        device
    }

    #[test]
    fn distances_are_those_of_the_tree() {
        let root = Root::at("/nowhere");
        let gpu = device(&root, &["pci0000:00", "root", "up", "down1", "gpu"]);
        let cases = [
            ("pci0000:00 root up down2 nic", "PIX"),
            ("pci0000:00 root up down2 up2 down3 nic", "PXB"),
            ("pci0000:00 root2 nic", "PHB"),
            ("pci0000:80 root nic", "NODE"),
        ];
        for (route, distance) in cases {
            let route: Vec<_> = route.split(' ').collect();
            let nic = device(&root, &route);
            assert_eq!(gpu.distance(&nic).to_string(), distance);
            assert_eq!(nic.distance(&gpu).to_string(), distance);
        }
    }

    #[test]
    fn lists_of_capabilities_that_run_in_circles_end() {
        let mut config = vec![0; 4096];
        config[0x34] = 0x40;
        config[0x41] = 0x40;
        config[0x100..0x104].copy_from_slice(&[1, 0, 0, 0x10]);
        assert_eq!(express_capability(&config), None);
        assert_eq!(acs_control(&config), None);
    }
}

// SPDX-License-Identifier: GPL-2.0

//! The machine around the module: RDMA devices, GPUs, processes.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::root::Root;

const INFINIBAND: &str = "/sys/class/infiniband";

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RdmaDevice {
    /// As `ibv_devices` shows it: `mlx5_0`.
    pub name: String,
    /// PCI address of its function; none for software devices.
    pub pci: Option<String>,
    /// Its driver.
    pub driver: Option<String>,
    /// Its ports.
    pub ports: Vec<Port>,
}

/// A port of an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Port {
    /// Its number, from 1.
    pub port: u32,
    /// `ACTIVE`, `DOWN` ...
    pub state: String,
    /// `LINK_UP`, `DISABLED` ...
    pub physical_state: String,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: String,
    /// Speed and width.
    pub rate: String,
}

/// The RDMA devices, by name.
pub fn rdma_devices(root: &Root) -> Vec<RdmaDevice> {
    root.names(INFINIBAND)
        .into_iter()
        .map(|name| rdma_device(root, name))
        .collect()
}

fn rdma_device(root: &Root, name: String) -> RdmaDevice {
    let path = format!("{INFINIBAND}/{name}");
    RdmaDevice {
        pci: root
            .link_name(&format!("{path}/device"))
            .filter(|name| is_pci_address(name)),
        driver: root.link_name(&format!("{path}/device/driver")),
        ports: ports(root, &format!("{path}/ports")),
        name,
    }
}

fn ports(root: &Root, directory: &str) -> Vec<Port> {
    root.names(directory)
        .into_iter()
        .filter_map(|name| {
            let value = |file: &str| {
                let text = root.value(&format!("{directory}/{name}/{file}"));
                text.unwrap_or_else(|| "unknown".to_owned())
            };
            Some(Port {
                port: name.parse().ok()?,
                state: after_number(&value("state")).replace(' ', "_"),
                physical_state: camel_to_snake(&after_number(&value("phys_state"))),
                link_layer: value("link_layer"),
                rate: value("rate"),
            })
        })
        .collect()
}

/// Of `4: ACTIVE`, the name.
fn after_number(text: &str) -> String {
    let name = text.split_once(": ").map_or(text, |(_, name)| name);
    name.to_owned()
}

/// `LinkUp` as `rdma link` shows it: `LINK_UP`.
fn camel_to_snake(text: &str) -> String {
    let mut snake = String::new();
    let mut before = None;
    for c in text.chars() {
        if c.is_ascii_uppercase() && before.is_some_and(|b: char| b.is_ascii_lowercase()) {
            snake.push('_');
        }
        snake.push(c.to_ascii_uppercase());
        before = Some(c);
    }
    snake
}

/// `0000:17:00.0`.
pub fn is_pci_address(text: &str) -> bool {
    let shape: String = text
        .chars()
        .map(|c| if c.is_ascii_hexdigit() { 'x' } else { c })
        .collect();
    shape.trim_start_matches('x') == ":xx:xx.x" && shape.len() >= "xxxx:xx:xx.x".len()
}

/// Names of RDMA devices, by PCI address.
#[derive(Clone, Debug, Default)]
pub struct DeviceNames(BTreeMap<String, String>);

impl DeviceNames {
    /// Reads them.
    pub fn read(root: &Root) -> Self {
        Self::of(&rdma_devices(root))
    }

    /// Those of the devices given.
    pub fn of(devices: &[RdmaDevice]) -> Self {
        let named = devices
            .iter()
            .filter_map(|device| Some((device.pci.clone()?, device.name.clone())));
        Self(named.collect())
    }

    /// The name of a device, if it has one.
    pub fn find(&self, pci: &str) -> Option<&str> {
        self.0.get(pci).map(String::as_str)
    }

    /// The name of a device, or its address.
    pub fn show<'a>(&'a self, pci: &'a str) -> &'a str {
        self.find(pci).unwrap_or(pci)
    }
}

/// An NVIDIA GPU of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MachineGpu {
    /// Its PCI address.
    pub pci: String,
    /// Its name, from the driver.
    pub model: Option<String>,
}

/// The GPUs that NVIDIA's driver serves, by PCI address.
pub fn gpus(root: &Root) -> Vec<MachineGpu> {
    const GPUS: &str = "/proc/driver/nvidia/gpus";
    root.names(GPUS)
        .into_iter()
        .map(|pci| MachineGpu {
            model: root
                .value(&format!("{GPUS}/{pci}/information"))
                .and_then(|text| field(&text, "Model")),
            pci,
        })
        .collect()
}

/// Of lines `Key: value`, the value of a key.
fn field(text: &str, key: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_are_told_from_other_names() {
        assert!(is_pci_address("0000:17:00.0"));
        assert!(is_pci_address("10000:17:00.0"));
        for wrong in ["rxe0", "17:00.0", "0000:17:00", "virtual", "", ":17:00.0"] {
            assert!(!is_pci_address(wrong), "{wrong}");
        }
    }

    #[test]
    fn physical_states_are_called_as_by_rdma_link() {
        assert_eq!(camel_to_snake(&after_number("5: LinkUp")), "LINK_UP");
        assert_eq!(camel_to_snake("LinkErrorRecovery"), "LINK_ERROR_RECOVERY");
    }

    #[test]
    fn a_field_is_found_among_others() {
        let text = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 42\n";
        assert_eq!(field(text, "Model").as_deref(), Some("NVIDIA H200"));
        assert_eq!(field(text, "Video BIOS"), None);
    }
}

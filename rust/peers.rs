// SPDX-License-Identifier: GPL-2.0

//! The GPUs and the RDMA devices that registrations were made with, and what is theirs.
//!
//! They are found at their first registration, and kept until the module is unloaded.

use core::mem;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    control::sysfs,
    ffi::{
        device::{
            PciDevice,
            PciName, //
        },
        globals::{
            DEVICES,
            GPUS, //
        },
        nvidia_p2p::GpuIdentity,
        sysfs::Directory, //
    },
    stats::Gauge,
};

/// The figures of one GPU or RDMA device.
pub(crate) struct Figures {
    pub(crate) active_mrs: Gauge,
    pub(crate) active_bytes: Gauge,
    pub(crate) pinned_bytes: Gauge,
}

/// A GPU, or an RDMA device.
pub(crate) struct Peer {
    pub(crate) name: PciName,
    uuid: [u8; GpuIdentity::UUID_LEN],
    pub(crate) figures: Arc<Figures>,
    // It is for reading alone: without memory for it, all else goes on.
    _directory: Option<Directory>,
}

/// All GPUs, or all RDMA devices; what is beyond this number has no figures of its own.
pub(crate) struct Peers([Option<Arc<Peer>>; 64]);

impl Peers {
    pub(crate) const fn new() -> Self {
        Self([const { None }; 64])
    }

    fn find(&self, matches: impl Fn(&Peer) -> bool) -> Option<Arc<Peer>> {
        self.0.iter().flatten().find(|peer| matches(peer)).cloned()
    }

    /// `peer` makes it, if there is a place.
    fn add(&mut self, peer: impl FnOnce() -> Option<Peer>) -> Option<Arc<Peer>> {
        let place = self.0.iter_mut().find(|place| place.is_none())?;
        *place = Some(Arc::new(peer()?, GFP_KERNEL).ok()?);
        place.clone()
    }
}

impl Peer {
    fn new(
        name: PciName,
        uuid: [u8; GpuIdentity::UUID_LEN],
        directory: impl FnOnce(&PciName, &Arc<Figures>) -> Result<Directory>,
    ) -> Option<Self> {
        let figures = Figures {
            active_mrs: Gauge::new(),
            active_bytes: Gauge::new(),
            pinned_bytes: Gauge::new(),
        };
        let figures = Arc::new(figures, GFP_KERNEL).ok()?;
        let directory = directory(&name, &figures).ok();
        Some(Self {
            name,
            uuid,
            figures,
            _directory: directory,
        })
    }
}

/// The GPU that a pinned range is on. `None` if there is no memory to note it.
pub(crate) fn gpu(identity: &GpuIdentity) -> Option<Arc<Peer>> {
    let mut gpus = GPUS.lock();
    if let Some(known) = gpus.find(|gpu| gpu.uuid == identity.uuid) {
        return Some(known);
    }
    let name = PciName::of_address(identity.address);
    // Memory of coherent GPUs is at no PCI device's address: they share one name, and its figures.
    let namesake = gpus.find(|gpu| gpu.name == name);
    gpus.add(|| match namesake {
        Some(namesake) => Some(Peer {
            name,
            uuid: identity.uuid,
            figures: namesake.figures.clone(),
            _directory: None,
        }),
        None => Peer::new(name, identity.uuid, |name, figures| {
            sysfs::gpu_directory(name, identity.uuid, figures)
        }),
    })
}

/// The RDMA device behind a DMA device. `None` if there is no memory to note it.
pub(crate) fn device(device: &PciDevice) -> Option<Arc<Peer>> {
    let name = PciName::of(device);
    let mut devices = DEVICES.lock();
    devices.find(|known| known.name == name).or_else(|| {
        devices.add(|| Peer::new(name, [0; GpuIdentity::UUID_LEN], sysfs::device_directory))
    })
}

/// Forgets them all.
pub(crate) fn clear() {
    let gpus = mem::replace(&mut *GPUS.lock(), Peers::new());
    let devices = mem::replace(&mut *DEVICES.lock(), Peers::new());
    // Not under the locks: this waits for readers of sysfs.
    drop((gpus, devices));
}

// SPDX-License-Identifier: GPL-2.0

//! The PCI device that does the DMA.
//!
//! C header: [`include/linux/pci.h`](srctree/include/linux/pci.h)

use core::ptr::NonNull;

use kernel::{
    bindings,
    container_of, //
};
use peermem_logic::coalesce::RunCap;

use super::helpers;

/// A counted reference to a PCI device that another driver owns.
///
/// # Invariants
///
/// `0` is the `dev` member of a `struct pci_dev`, and this value holds one reference to it.
pub(crate) struct PciDevice(NonNull<bindings::device>);

// SAFETY: Devices and their reference counts may be used from any thread.
unsafe impl Send for PciDevice {}
// SAFETY: As above.
unsafe impl Sync for PciDevice {}

impl PciDevice {
    /// Takes a reference to `dev`, if it is a PCI device at all.
    ///
    /// RDMA devices that copy with the CPU have no DMA device; others may sit on a virtual bus.
    ///
    /// # Safety
    ///
    /// `dev` must be null or point to a device that stays alive during the call.
    pub(super) unsafe fn from_dma_device(dev: *mut bindings::device) -> Option<Self> {
        let dev = NonNull::new(dev)?;
        // SAFETY: By the safety requirements and the check above, `dev` is a live device.
        if !unsafe { bindings::dev_is_pci(dev.as_ptr()) } {
            return None;
        }
        // SAFETY: As above.
        unsafe { bindings::get_device(dev.as_ptr()) };
        // INVARIANT: Devices on the PCI bus are members of `struct pci_dev`; the reference is ours.
        Some(Self(dev))
    }

    /// The `struct pci_dev`, valid as long as `self`.
    pub(super) fn as_ptr(&self) -> *mut bindings::pci_dev {
        // SAFETY: By the type invariant, the device is the `dev` member of a `struct pci_dev`.
        unsafe { container_of!(self.0.as_ptr(), bindings::pci_dev, dev) }
    }

    /// How long a scatterlist entry for this device may be.
    pub(crate) fn run_cap(&self) -> RunCap {
        // SAFETY: By the type invariant, the device is alive.
        let max = unsafe { helpers::peermem_helper_dma_get_max_seg_size(self.0.as_ptr()) };
        RunCap::for_device(max)
    }
}

impl Drop for PciDevice {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, the reference is ours to give back.
        unsafe { bindings::put_device(self.0.as_ptr()) };
    }
}

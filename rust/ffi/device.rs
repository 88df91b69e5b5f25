// SPDX-License-Identifier: GPL-2.0

//! The PCI device that does the DMA.
//!
//! C header: [`include/linux/pci.h`](srctree/include/linux/pci.h)

use core::ptr::NonNull;

use kernel::{
    bindings,
    container_of,
    fmt,
    prelude::*, //
};
use peermem_logic::{
    coalesce::{
        count_entries,
        Run,
        RunCap,
        Runs, //
    },
    errno::{
        Errno,
        Failure, //
    },
};

use super::{
    compat::DMA_BIDIRECTIONAL,
    helpers, //
};

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

/// Physical ranges of another device's MMIO, mapped for a device; dropping it unmaps them.
///
/// # Invariants
///
/// Each of `runs` came from `dma_map_resource` for `device` and was not unmapped.
pub(super) struct MmioMappings {
    device: PciDevice,
    runs: KVVec<Run>,
}

impl MmioMappings {
    /// Maps each of the physical `ranges`, as one piece. Sleeps.
    pub(super) fn new<I>(device: PciDevice, ranges: Runs<I>) -> Result<Self, Failure>
    where
        I: Iterator<Item = u64> + Clone,
    {
        let count = count_entries(ranges.clone()) as usize;
        let runs = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT | __GFP_NOWARN)
            .map_err(|_| Failure::NoMemory)?;
        // INVARIANT: There are none yet.
        let mut mappings = Self { device, runs };
        for range in ranges {
            mappings.add(range)?;
        }
        Ok(mappings)
    }

    fn add(&mut self, range: Run) -> Result<(), Failure> {
        let device = self.device.0.as_ptr();
        // SAFETY: The device is alive; who calls us vouches for the range being MMIO.
        let addr = unsafe {
            bindings::dma_map_resource(device, range.addr, range.len as usize, DMA_BIDIRECTIONAL, 0)
        };
        // SAFETY: As above.
        if unsafe { helpers::peermem_helper_dma_mapping_error(device, addr) } != 0 {
            return Err(Failure::Map(Errno::EIO));
        }
        // INVARIANT: Just mapped. There is room, `new` has counted.
        let _ = self.runs.push_within_capacity(Run { addr, ..range });
        Ok(())
    }

    /// DMA addresses for the device, in the order of the ranges.
    pub(super) fn runs(&self) -> impl Iterator<Item = Run> + Clone + '_ {
        self.runs.iter().copied()
    }
}

impl Drop for MmioMappings {
    fn drop(&mut self) {
        for run in &self.runs {
            // SAFETY: By the type invariant it is mapped; this is the end of it.
            unsafe {
                bindings::dma_unmap_resource(
                    self.device.0.as_ptr(),
                    run.addr,
                    run.len as usize,
                    DMA_BIDIRECTIONAL,
                    0,
                );
            }
        }
    }
}

/// The address of a PCI device, as in sysfs: `0000:17:00.0`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PciName([u8; Self::LEN]);

impl PciName {
    /// With a domain of 32 bits, and a NUL.
    pub(super) const LEN: usize = 20;

    /// That of `device`.
    pub(crate) fn of(device: &PciDevice) -> Self {
        let mut name = [0; Self::LEN];
        // SAFETY: By the type invariant the device is alive; there is room for a name.
        unsafe { helpers::peermem_helper_dev_name(device.0.as_ptr(), &mut name) };
        Self(name)
    }

    /// That of the device that has this physical address in one of its BARs, or "unknown". Sleeps.
    pub(crate) fn of_address(address: u64) -> Self {
        let mut name = [0; Self::LEN];
        // SAFETY: There is room for a name.
        unsafe { helpers::peermem_helper_pci_name_at(address, &mut name) };
        Self(name)
    }

    /// It as a C string.
    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for PciName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_c_str(), f)
    }
}

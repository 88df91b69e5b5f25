// SPDX-License-Identifier: GPL-2.0

//! Pins and DMA mappings of GPU memory, as NVIDIA's open GPU kernel modules give them out.
//!
//! C header: `include/nv-p2p.h`. Only persistent pins: they live until we give them back, no
//! matter what the application does, and no callback can pull them away. All calls sleep and take
//! the GPU driver's API lock, so none is made with a lock of ours held.

use core::{
    mem::offset_of,
    ptr::{self, NonNull},
};

use kernel::{
    bindings,
    prelude::*, //
};
use peermem_logic::{
    errno::{self, Errno, Failure},
    range::PinRange,
};

use super::{
    device::PciDevice,
    helpers, //
};

/// `NVIDIA_P2P_PAGE_SIZE_64KB` of `enum nvidia_p2p_page_size_type`.
const PAGE_SIZE_64KB: u32 = 1;

/// `struct nvidia_p2p_page_table`, the part that versions 1.2 and 2.0 share.
#[repr(C)]
pub(super) struct PageTable {
    version: u32,
    page_size: u32,
    pages: *mut *mut c_void,
    entries: u32,
    gpu_uuid: *mut u8,
}

static_assert!(offset_of!(PageTable, page_size) == 4);
static_assert!(offset_of!(PageTable, pages) == 8);
static_assert!(offset_of!(PageTable, entries) == 16);
static_assert!(offset_of!(PageTable, gpu_uuid) == 24);

/// `struct nvidia_p2p_dma_mapping`.
#[repr(C)]
pub(super) struct RawMapping {
    version: u32,
    page_size: u32,
    entries: u32,
    dma_addresses: *const u64,
    private: *mut c_void,
    pci_dev: *mut bindings::pci_dev,
}

static_assert!(size_of::<RawMapping>() == 40);
static_assert!(offset_of!(RawMapping, page_size) == 4);
static_assert!(offset_of!(RawMapping, entries) == 8);
static_assert!(offset_of!(RawMapping, dma_addresses) == 16);
static_assert!(offset_of!(RawMapping, pci_dev) == 32);

#[allow(improper_ctypes)] // `struct device` has empty members in some configurations.
extern "C" {
    pub(super) fn nvidia_p2p_get_pages_persistent(
        virtual_address: u64,
        length: u64,
        page_table: *mut *mut PageTable,
        flags: u32,
    ) -> c_int;
    pub(super) fn nvidia_p2p_put_pages_persistent(
        virtual_address: u64,
        page_table: *mut PageTable,
        flags: u32,
    ) -> c_int;
    pub(super) fn nvidia_p2p_dma_map_pages(
        peer: *mut bindings::pci_dev,
        page_table: *mut PageTable,
        dma_mapping: *mut *mut RawMapping,
    ) -> c_int;
    pub(super) fn nvidia_p2p_dma_unmap_pages(
        peer: *mut bindings::pci_dev,
        page_table: *mut PageTable,
        dma_mapping: *mut RawMapping,
    ) -> c_int;
}

/// Why [`PinnedPages::pin`] gave no pin.
pub(crate) enum PinError {
    /// The range is no GPU memory of the calling process.
    NotGpuMemory,
    /// It is, but it cannot be pinned.
    Failed(Failure),
}

/// A persistent pin; dropping it gives the pages back.
///
/// # Invariants
///
/// `table` came from `nvidia_p2p_get_pages_persistent` for `range` and was not given back. Its
/// version is known and it has one entry of 64 KiB for every page of `range`, except in a value
/// that [`PinnedPages::pin`] is about to refuse.
pub(crate) struct PinnedPages {
    table: NonNull<PageTable>,
    range: PinRange,
}

// SAFETY: A persistent pin may be used and given back by any thread of any process: its owner is
// kept in the page table (nv-p2p.c, `nvidia_p2p_put_pages_persistent`).
unsafe impl Send for PinnedPages {}
// SAFETY: Shared access only reads the page table, which nobody writes while it is pinned.
unsafe impl Sync for PinnedPages {}

impl PinnedPages {
    /// Pins `range`, which must be memory of the calling process. Sleeps.
    pub(crate) fn pin(range: PinRange) -> Result<Self, PinError> {
        let mut table = ptr::null_mut();
        // SAFETY: The module's init found the function (`providers::GpuDriver`) before it registered
        // the client that calls us; `table` is a valid place for a pointer.
        let ret =
            unsafe { nvidia_p2p_get_pages_persistent(range.start(), range.len(), &mut table, 0) };
        match errno::pin(ret) {
            errno::Pin::NotGpuMemory => return Err(PinError::NotGpuMemory),
            errno::Pin::Failed(errno) => return Err(PinError::Failed(Failure::Pin(errno))),
            errno::Pin::Pinned => {}
        }
        let table = NonNull::new(table).ok_or(PinError::Failed(Failure::PageTableShape))?;
        // INVARIANT: The driver just returned `table`; it is checked before anyone else sees it,
        // and given back by `drop` if the check fails.
        let pages = Self { table, range };
        pages.check().map_err(PinError::Failed)?;
        Ok(pages)
    }

    /// Whether the driver pinned what was asked for, in a form that is understood here.
    fn check(&self) -> Result<(), Failure> {
        // SAFETY: By the type invariant the table is alive. All versions begin with their number.
        let version = unsafe { (*self.table.as_ptr()).version };
        if !errno::page_table_version_known(version) {
            return Err(Failure::PageTableVersion(version));
        }
        // SAFETY: The table is alive and has the layout of `PageTable`, as its version says.
        let table = unsafe { self.table.as_ref() };
        if table.page_size != PAGE_SIZE_64KB || u64::from(table.entries) != self.range.pages() {
            return Err(Failure::PageTableShape);
        }
        Ok(())
    }

    /// Maps the pages for DMA by `device`. Sleeps. On failure the pin comes back unharmed.
    pub(crate) fn map(self, device: PciDevice) -> Result<MappedPages, (Self, Failure)> {
        let mut mapping = ptr::null_mut();
        // SAFETY: As in `pin`; by the type invariant of each, `device` and the table are alive;
        // `mapping` is a valid place for a pointer.
        let ret =
            unsafe { nvidia_p2p_dma_map_pages(device.as_ptr(), self.table.as_ptr(), &mut mapping) };
        if ret != 0 {
            return Err((self, Failure::Map(Errno::from_driver(ret))));
        }
        let Some(mapping) = NonNull::new(mapping) else {
            return Err((self, Failure::MappingShape));
        };
        // INVARIANT: The driver just returned `mapping` for this table and device; both live in
        // `self` and `device`. It is checked before anyone else sees it.
        let mapping = Mapping {
            mapping,
            table: self.table,
            device,
        };
        match mapping.check(self.range) {
            Ok(()) => Ok(MappedPages {
                mapping,
                pages: self,
            }),
            Err(failure) => {
                // Before the pin goes anywhere.
                drop(mapping);
                Err((self, failure))
            }
        }
    }
}

impl Drop for PinnedPages {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the pin is ours to give back, and by the type invariant of
        // `MappedPages`, which owns us as long as there is a mapping, nothing is mapped any more.
        let ret =
            unsafe { nvidia_p2p_put_pages_persistent(self.range.start(), self.table.as_ptr(), 0) };
        if ret != 0 && helpers::may_log_leak() {
            pr_warn!(
                "the GPU driver did not take back {} pinned bytes (error {})\n",
                self.range.len(),
                ret
            );
        }
    }
}

/// One DMA mapping of a page table; dropping it unmaps.
///
/// # Invariants
///
/// `mapping` came from `nvidia_p2p_dma_map_pages` for `table` and `device` and was not unmapped;
/// whoever owns this value keeps the pin of `table` longer. Its version is known and it has one
/// address for each page, except in a value that [`PinnedPages::map`] is about to refuse.
struct Mapping {
    mapping: NonNull<RawMapping>,
    table: NonNull<PageTable>,
    device: PciDevice,
}

// SAFETY: The driver finds the GPU by what the page table says, not by the calling process.
unsafe impl Send for Mapping {}
// SAFETY: Shared access only reads the mapping, which nobody writes while it exists.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Whether the driver mapped the whole `range`, in a form that is understood here.
    fn check(&self, range: PinRange) -> Result<(), Failure> {
        // SAFETY: By the type invariant the mapping is alive. All versions begin with their number.
        let version = unsafe { (*self.mapping.as_ptr()).version };
        if !errno::mapping_version_known(version) {
            return Err(Failure::MappingVersion(version));
        }
        // SAFETY: The mapping is alive and has the layout of `RawMapping`, as its version says.
        let mapping = unsafe { self.mapping.as_ref() };
        if mapping.page_size != PAGE_SIZE_64KB
            || u64::from(mapping.entries) != range.pages()
            || mapping.dma_addresses.is_null()
        {
            return Err(Failure::MappingShape);
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the mapping exists, and so do its table and its device.
        let ret = unsafe {
            nvidia_p2p_dma_unmap_pages(
                self.device.as_ptr(),
                self.table.as_ptr(),
                self.mapping.as_ptr(),
            )
        };
        if ret != 0 && helpers::may_log_leak() {
            pr_warn!("the GPU driver did not unmap GPU memory (error {})\n", ret);
        }
    }
}

/// Pinned pages, mapped for one device. Dropping it unmaps, then gives the pages back.
///
/// # Invariants
///
/// `mapping` is a mapping of the page table of `pages`. Fields are dropped in this order.
pub(crate) struct MappedPages {
    mapping: Mapping,
    pages: PinnedPages,
}

impl MappedPages {
    /// DMA addresses for the device, one for each 64 KiB page, in order of virtual address.
    pub(crate) fn addresses(&self) -> &[u64] {
        // SAFETY: By the type invariant of `Mapping`, it is alive as long as `self`, has the layout
        // of `RawMapping`, and was checked to have addresses; the driver allocated `entries` of
        // them and does not touch them again before it is told to unmap.
        unsafe {
            let mapping = self.mapping.mapping.as_ref();
            core::slice::from_raw_parts(mapping.dma_addresses, mapping.entries as usize)
        }
    }

    /// The device that the pages are mapped for.
    pub(crate) fn device(&self) -> &PciDevice {
        &self.mapping.device
    }

    /// Undoes the mapping and keeps the pin.
    pub(crate) fn unmap(self) -> PinnedPages {
        drop(self.mapping);
        self.pages
    }
}

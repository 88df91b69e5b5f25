// SPDX-License-Identifier: GPL-2.0

//! Pins that live until we give them back, and their DMA mappings, which the driver makes.
//!
//! No callback can pull them away, and any process may give them back.

use core::ptr::{
    self,
    NonNull, //
};

use kernel::prelude::*;
use peermem_logic::{
    coalesce,
    errno::{
        self,
        Errno,
        Failure, //
    },
    range::{
        PinRange,
        GPU_PAGE_SIZE, //
    },
    reason::Reason,
    registration::Pages,
};

use crate::failures::Stage;

use super::{
    super::{
        device::PciDevice,
        helpers,
        scatterlist::ScatterList, //
    },
    check_table,
    identity,
    note_leak,
    nvidia_p2p_dma_map_pages,
    nvidia_p2p_dma_unmap_pages,
    nvidia_p2p_get_pages_persistent,
    nvidia_p2p_put_pages_persistent,
    GpuIdentity,
    PageTable,
    PinError,
    RawMapping,
    PAGE_SIZE_64KB, //
};

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
        helpers::entering_driver();
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
        // SAFETY: The pin is ours.
        unsafe { check_table(table.as_ptr(), range) }.map_err(PinError::Failed)?;
        Ok(pages)
    }

    /// The GPU that they are on.
    pub(crate) fn gpu(&self) -> GpuIdentity {
        // SAFETY: By the type invariant the table is alive and was checked.
        unsafe { identity(self.table.as_ptr()) }
    }

    /// Maps the pages for DMA by `device`.
    fn map_for(self, device: PciDevice) -> Result<MappedPages, (Self, Failure)> {
        let mut mapping = ptr::null_mut();
        helpers::entering_driver();
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

impl Pages for PinnedPages {
    type Device = PciDevice;
    type Mapped = MappedPages;
    type List = ScatterList;

    fn map(self, device: PciDevice) -> Result<(MappedPages, ScatterList), (Self, Failure)> {
        let mapped = self.map_for(device)?;
        let cap = mapped.mapping.device.run_cap();
        match ScatterList::new(coalesce::runs(mapped.addresses().iter().copied(), cap)) {
            Ok(list) => Ok((mapped, list)),
            Err(failure) => Err((Self::unmap(mapped), failure)),
        }
    }

    fn unmap(mapped: MappedPages) -> Self {
        drop(mapped.mapping);
        mapped.pages
    }

    fn unpin(self, _due: impl FnOnce() -> bool) -> Result<(), Self> {
        // Nothing else ends such a pin. If the driver does not take it, `drop` says so, and there is nothing to wait for.
        drop(self);
        Ok(())
    }
}

impl Drop for PinnedPages {
    fn drop(&mut self) {
        helpers::entering_driver();
        // SAFETY: By the type invariant the pin is ours to give back, and by the type invariant of
        // `MappedPages`, which owns us as long as there is a mapping, nothing is mapped any more.
        let ret =
            unsafe { nvidia_p2p_put_pages_persistent(self.range.start(), self.table.as_ptr(), 0) };
        if note_leak(ret, Stage::Release, self.range.len(), Reason::Unpin) {
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
        // SAFETY: By the type invariant the mapping exists. What an unknown version has there is only
        // shown.
        let entries = unsafe { (*self.mapping.as_ptr()).entries };
        let bytes = u64::from(entries).wrapping_mul(GPU_PAGE_SIZE);
        // SAFETY: By the type invariant the mapping exists, and so do its table and its device.
        let ret = unsafe {
            nvidia_p2p_dma_unmap_pages(
                self.device.as_ptr(),
                self.table.as_ptr(),
                self.mapping.as_ptr(),
            )
        };
        if note_leak(ret, Stage::DmaUnmap, bytes, Reason::Unmap) {
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
    fn addresses(&self) -> &[u64] {
        // SAFETY: By the type invariant of `Mapping`, it is alive as long as `self`, has the layout
        // of `RawMapping`, and was checked to have addresses; the driver allocated `entries` of
        // them and does not touch them again before it is told to unmap.
        unsafe {
            let mapping = self.mapping.mapping.as_ref();
            core::slice::from_raw_parts(mapping.dma_addresses, mapping.entries as usize)
        }
    }
}

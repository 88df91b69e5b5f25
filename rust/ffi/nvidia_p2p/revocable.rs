// SPDX-License-Identifier: GPL-2.0

//! Pins that end when the application frees the memory, with a callback.
//!
//! The driver's own function to make DMA mappings looks at the page table before it takes the lock
//! that keeps it alive, and so may not be called for memory that can be freed meanwhile. What it
//! does on GPUs with a BAR1 is done here instead: the physical addresses are copied while the
//! callback is kept waiting, and mapped as MMIO. The page table is never looked at again.

use core::ptr;

use kernel::{
    bindings,
    prelude::*, //
};
use peermem_logic::{
    coalesce::{
        self,
        Run,
        RunCap, //
    },
    errno::{
        self,
        Failure, //
    },
    range::PinRange,
    reason::Reason,
    registration::Pages,
};

use crate::{
    failures::Stage,
    registry::{
        revoke,
        Id, //
    },
};

use super::{
    super::{
        device::{
            MmioMappings,
            PciDevice, //
        },
        globals::TABLES,
        helpers,
        process::Process,
        scatterlist::ScatterList, //
    },
    check_table,
    identity,
    note_leak,
    nvidia_p2p_get_pages,
    nvidia_p2p_put_pages,
    GpuIdentity,
    PageTable,
    PageTable2,
    PinError,
    CPU_CACHEABLE, //
};

/// A revocable pin. Dropping it gives nothing back: that takes [`Pages::unpin`], or the callback.
///
/// # Invariants
///
/// `table` came from `nvidia_p2p_get_pages` for `range`, called by `owner`. It may be dead; the
/// driver compares it with those that are alive before it looks at it.
pub(crate) struct RevocablePages {
    table: *mut PageTable,
    range: PinRange,
    owner: Process,
    /// Physical address of each 64 KiB page, in order of virtual address.
    addresses: KVVec<u64>,
    gpu: GpuIdentity,
}

// SAFETY: `table` is only compared, and the rest may be used from any thread.
unsafe impl Send for RevocablePages {}

impl RevocablePages {
    /// Pins `range`, which must be memory of the calling process. Sleeps.
    ///
    /// The callback revokes what `id` stands for. It must be kept waiting until the result is
    /// known, as the page table is looked at here.
    ///
    /// If the pages come with a failure, they are pinned but of no use. They must be given back
    /// when the callback is not kept waiting any more: until then that would be a deadlock.
    pub(crate) fn pin(range: PinRange, id: Id) -> Result<(Self, Result<(), Failure>), PinError> {
        const NO_MEMORY: PinError = PinError::Failed(Failure::NoMemory);
        let owner = Process::current().ok_or(PinError::NotGpuMemory)?;
        // Before the callback can come: memory may have to be reclaimed for it.
        let pages = usize::try_from(range.pages()).map_err(|_| NO_MEMORY)?;
        let mut addresses = KVVec::with_capacity(pages, GFP_KERNEL_ACCOUNT | __GFP_NOWARN)
            .map_err(|_| NO_MEMORY)?;
        let table = Self::get_pages(range, id)?;
        // SAFETY: By the function's contract the callback has not returned, so the table is alive.
        let copied = unsafe { copy_addresses(table, range, &mut addresses) };
        // INVARIANT: The driver just returned `table`.
        let pages = Self {
            table,
            range,
            owner,
            addresses,
            gpu: copied.unwrap_or(GpuIdentity::UNKNOWN),
        };
        Ok((pages, copied.map(|_| ())))
    }

    /// The GPU that they are on.
    pub(crate) fn gpu(&self) -> GpuIdentity {
        self.gpu
    }

    fn get_pages(range: PinRange, id: Id) -> Result<*mut PageTable, PinError> {
        let mut table = ptr::null_mut();
        let turn = TABLES.lock();
        helpers::entering_driver();
        // SAFETY: The module's init found the function (`providers::GpuDriver`) before it registered
        // the client that calls us; `table` is a valid place for a pointer; the callback takes any
        // number for data. Token and address space 0 mean the calling process.
        let ret = unsafe {
            nvidia_p2p_get_pages(
                0,
                0,
                range.start(),
                range.len(),
                &mut table,
                Some(free_callback),
                ptr::without_provenance_mut(id.number() as usize),
            )
        };
        drop(turn);
        match errno::pin(ret) {
            errno::Pin::Pinned => Ok(table),
            errno::Pin::NotGpuMemory => Err(PinError::NotGpuMemory),
            errno::Pin::Failed(errno) => Err(PinError::Failed(Failure::Pin(errno))),
        }
    }
}

/// Copies the physical address of each page.
///
/// # Safety
///
/// `table` must be null or a page table of the driver's that is alive.
unsafe fn copy_addresses(
    table: *const PageTable,
    range: PinRange,
    to: &mut KVVec<u64>,
) -> Result<GpuIdentity, Failure> {
    if table.is_null() {
        return Err(Failure::PageTableShape);
    }
    // SAFETY: By the safety requirements; the version that was checked tells the layout.
    unsafe {
        check_table(table, range)?;
        if errno::page_table_has_flags((*table).version)
            && (*table.cast::<PageTable2>()).flags & CPU_CACHEABLE != 0
        {
            return Err(Failure::CoherentMemory);
        }
    }
    // SAFETY: As above.
    let gpu = unsafe { identity(table) };
    // SAFETY: As above.
    let table = unsafe { &*table };
    if table.pages.is_null() {
        return Err(Failure::PageTableShape);
    }
    for i in 0..table.entries as usize {
        // SAFETY: There are `entries` pointers, each to a page.
        let page = unsafe { (**table.pages.add(i)).physical_address };
        to.push_within_capacity(page)
            .map_err(|_| Failure::PageTableShape)?;
    }
    for run in coalesce::runs(to.iter().copied(), RunCap::MAX) {
        if has_ram(run) {
            return Err(Failure::CoherentMemory);
        }
    }
    Ok(gpu)
}

/// Whether the kernel manages a part of this range as its own memory, as it does that of coherent
/// GPUs. It must not be mapped as MMIO.
fn has_ram(range: Run) -> bool {
    // SAFETY: Any range may be asked about.
    let overlap = unsafe {
        bindings::region_intersects(
            range.addr,
            range.len as usize,
            bindings::IORESOURCE_SYSTEM_RAM as c_ulong,
            bindings::IORES_DESC_NONE as c_ulong,
        )
    };
    overlap != bindings::REGION_DISJOINT as c_int
}

impl Pages for RevocablePages {
    type Device = PciDevice;
    type Mapped = RevocableMapping;
    type List = ScatterList;

    fn map(self, device: PciDevice) -> Result<(RevocableMapping, ScatterList), (Self, Failure)> {
        let runs = coalesce::runs(self.addresses.iter().copied(), device.run_cap());
        let result = MmioMappings::new(device, runs)
            .and_then(|mappings| Ok((ScatterList::new(mappings.runs())?, mappings)));
        match result {
            Ok((list, mappings)) => Ok((
                RevocableMapping {
                    mappings,
                    pages: self,
                },
                list,
            )),
            Err(failure) => Err((self, failure)),
        }
    }

    fn unmap(mapped: RevocableMapping) -> Self {
        drop(mapped.mappings);
        mapped.pages
    }

    fn unpin(self, due: impl FnOnce() -> bool) -> Result<(), Self> {
        // In another process the driver would find no such pin, and call that success.
        if self.table.is_null() || !self.owner.is_current() {
            return Err(self);
        }
        let turn = TABLES.lock();
        if !due() {
            return Ok(());
        }
        helpers::entering_driver();
        // SAFETY: As in `get_pages`. The table was alive under the lock. If it dies now, no other pin
        // of ours gets its address before the lock is dropped, and a dead table is not looked at.
        let ret = unsafe { nvidia_p2p_put_pages(0, 0, self.range.start(), self.table) };
        drop(turn);
        if note_leak(ret, Stage::Release, self.range.len(), Reason::Unpin) {
            pr_warn!(
                "the GPU driver keeps {} bytes pinned until they are freed (error {})\n",
                self.range.len(),
                ret
            );
        }
        if ret == 0 {
            Ok(())
        } else {
            Err(self)
        }
    }
}

/// Revocable pages, mapped for one device. Dropping it unmaps.
pub(crate) struct RevocableMapping {
    mappings: MmioMappings,
    pages: RevocablePages,
}

/// Waits until no free callback is running, when no new one can come. Sleeps.
pub(in crate::ffi) fn wait_for_callbacks() {
    // The driver holds its lock until the callback has returned, so take that once: to give back
    // what nobody has does nothing else.
    let nobodys = ptr::from_ref(&TABLES).cast_mut().cast();
    let turn = TABLES.lock();
    helpers::entering_driver();
    // SAFETY: As in `get_pages`; the driver looks for the address, and does not find it.
    unsafe { nvidia_p2p_put_pages(0, 0, 0, nobodys) };
    drop(turn);
    // If it did not come to that lock: until each task was seen outside of the kernel, or asleep of
    // its own will.
    helpers::wait_for_callbacks();
}

/// The driver calls this before it frees pinned memory, with its API lock held. When it returns,
/// the driver frees the page table by itself.
extern "C" fn free_callback(data: *mut c_void) {
    let _order = helpers::InDriver::enter();
    revoke(Id::from_number(data.addr() as u64));
}

// SPDX-License-Identifier: GPL-2.0

//! Pins and DMA mappings of GPU memory, as NVIDIA's open GPU kernel modules give them out.
//!
//! C header: `include/nv-p2p.h`. Here is what the two kinds of pins share: [`persistent`] ones live
//! until we give them back, no matter what the application does; [`revocable`] ones end when it
//! frees the memory, with a callback. All calls sleep, and all but the unmapping take the GPU
//! driver's API lock.

pub(crate) mod persistent;
pub(crate) mod revocable;

use core::mem::offset_of;

use kernel::{
    bindings,
    prelude::*, //
};
use peermem_logic::{
    errno::{
        self,
        Errno,
        Failure, //
    },
    range::PinRange,
    reason::Reason, //
};

use super::helpers;
use crate::failures::{
    self,
    Stage, //
};

/// `NVIDIA_P2P_PAGE_SIZE_64KB` of `enum nvidia_p2p_page_size_type`.
const PAGE_SIZE_64KB: u32 = 1;

/// `struct nvidia_p2p_page`.
#[repr(C)]
struct Page {
    physical_address: u64,
    registers: [u32; 6],
}

static_assert!(size_of::<Page>() == 32);

/// `struct nvidia_p2p_page_table`, the part that versions 1.2 and 2.0 share.
#[repr(C)]
pub(super) struct PageTable {
    version: u32,
    page_size: u32,
    pages: *const *const Page,
    entries: u32,
    gpu_uuid: *const [u8; GpuIdentity::UUID_LEN],
}

/// `struct nvidia_p2p_page_table` of the versions of which `errno::page_table_has_flags` is true.
#[repr(C)]
struct PageTable2 {
    table: PageTable,
    flags: u32,
}

/// `NVIDIA_P2P_PAGE_TABLE_FLAGS_CPU_CACHEABLE`.
const CPU_CACHEABLE: u32 = 1;

static_assert!(offset_of!(PageTable2, flags) == 32);
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
    pub(super) fn nvidia_p2p_get_pages(
        p2p_token: u64,
        va_space: u32,
        virtual_address: u64,
        length: u64,
        page_table: *mut *mut PageTable,
        free_callback: Option<unsafe extern "C" fn(*mut c_void)>,
        data: *mut c_void,
    ) -> c_int;
    pub(super) fn nvidia_p2p_put_pages(
        p2p_token: u64,
        va_space: u32,
        virtual_address: u64,
        page_table: *mut PageTable,
    ) -> c_int;
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

/// What tells one GPU from another, and where it is.
#[derive(Clone, Copy)]
pub(crate) struct GpuIdentity {
    pub(crate) uuid: [u8; Self::UUID_LEN],
    /// Physical address of a page of its memory.
    pub(crate) address: u64,
}

impl GpuIdentity {
    /// `NVIDIA_P2P_GPU_UUID_LEN`.
    pub(crate) const UUID_LEN: usize = 16;

    /// For a page table that cannot be read.
    pub(super) const UNKNOWN: Self = Self {
        uuid: [0; Self::UUID_LEN],
        address: 0,
    };
}

/// Why there is no pin.
pub(crate) enum PinError {
    /// The range is no GPU memory of the calling process.
    NotGpuMemory,
    /// It is, but it cannot be pinned.
    Failed(Failure),
}

/// Whether the driver pinned the whole `range`, in a form that is understood here.
///
/// # Safety
///
/// `table` must be a page table of the driver's that is alive.
unsafe fn check_table(table: *const PageTable, range: PinRange) -> Result<(), Failure> {
    // SAFETY: The table is alive, and all versions begin with their number.
    let version = unsafe { (*table).version };
    if !errno::page_table_version_known(version) {
        return Err(Failure::PageTableVersion(version));
    }
    // SAFETY: The table is alive and has the layout of `PageTable`, as its version says.
    let table = unsafe { &*table };
    if table.page_size != PAGE_SIZE_64KB || u64::from(table.entries) != range.pages() {
        return Err(Failure::PageTableShape);
    }
    Ok(())
}

/// The GPU that a page table is about.
///
/// # Safety
///
/// As for [`check_table`], which must have found nothing wrong.
unsafe fn identity(table: *const PageTable) -> GpuIdentity {
    // SAFETY: By the safety requirements the table has this layout, at least one page, and, if the
    // pointers are set, a UUID.
    unsafe {
        let table = &*table;
        GpuIdentity {
            uuid: table.gpu_uuid.as_ref().copied().unwrap_or_default(),
            address: match table.pages.as_ref() {
                Some(first) if !first.is_null() => (**first).physical_address,
                _ => 0,
            },
        }
    }
}

/// Notes what the GPU driver answered when it was given something back. True if it did not take
/// it, and there is room for a line about it in the log.
fn note_leak(ret: c_int, stage: Stage, bytes: u64, reason: Reason) -> bool {
    if ret == 0 {
        return false;
    }
    failures::note(stage, bytes, Errno::from_driver(ret), reason);
    helpers::may_log_leak()
}

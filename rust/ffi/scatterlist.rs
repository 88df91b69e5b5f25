// SPDX-License-Identifier: GPL-2.0

//! The scatterlist that the HCA driver gets.
//!
//! C header: [`include/linux/scatterlist.h`](srctree/include/linux/scatterlist.h)

use kernel::bindings;
use peermem_logic::{
    coalesce::{
        count_entries,
        Run, //
    },
    errno::Failure, //
};

use super::helpers;

/// An owned scatterlist whose entries have DMA addresses and no pages.
///
/// The peer-memory core gets a copy of the table's header, and edits the first and last entry in
/// place while it uses them; it never frees the entries.
///
/// # Invariants
///
/// `0` was filled by a successful `sg_alloc_table` and is not yet freed.
pub(crate) struct ScatterList(bindings::sg_table);

// SAFETY: The entries are plain memory that this value owns.
unsafe impl Send for ScatterList {}

impl ScatterList {
    /// One entry for each of `runs`. Sleeps.
    pub(super) fn new(runs: impl Iterator<Item = Run> + Clone) -> Result<Self, Failure> {
        let entries = count_entries(runs.clone());
        let mut table = bindings::sg_table::default();
        // SAFETY: `table` is a valid place for a header.
        if unsafe { bindings::sg_alloc_table(&mut table, entries, bindings::GFP_KERNEL) } != 0 {
            // `sg_alloc_table` took back what it had.
            return Err(Failure::NoMemory);
        }
        // INVARIANT: Just allocated.
        let list = Self(table);
        let mut sg = list.0.sgl;
        for run in runs {
            if sg.is_null() {
                break;
            }
            // SAFETY: `sg` is an entry of the table, which is alive.
            unsafe {
                helpers::peermem_helper_sg_set_dma(sg, run.addr, run.len);
                sg = bindings::sg_next(sg);
            }
        }
        Ok(list)
    }

    /// How many entries there are.
    pub(crate) fn entries(&self) -> u32 {
        self.0.nents
    }

    /// The header, for the peer-memory core.
    ///
    /// It points to the entries: whoever uses it must stop before `self` is dropped.
    pub(super) fn header(&self) -> bindings::sg_table {
        self.0
    }
}

impl Drop for ScatterList {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the table is allocated.
        unsafe { bindings::sg_free_table(&mut self.0) };
    }
}

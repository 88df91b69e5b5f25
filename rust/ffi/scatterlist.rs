// SPDX-License-Identifier: GPL-2.0

//! The scatterlist that the HCA driver gets.
//!
//! C header: [`include/linux/scatterlist.h`](srctree/include/linux/scatterlist.h)

use core::ptr::{
    self,
    NonNull, //
};

use kernel::{
    bindings,
    ffi::c_ulong, //
};
use peermem_logic::{
    coalesce::{
        entries_to_allocate,
        Run, //
    },
    errno::Failure, //
};

/// `SG_PAGE_LINK_MASK`.
const SG_FLAGS: c_ulong = (bindings::SG_CHAIN | bindings::SG_END) as c_ulong;

/// An owned scatterlist whose entries have DMA addresses and no pages.
///
/// The peer-memory core gets a copy of the table's header, and edits the first and last entry in
/// place while it uses them; it never frees the entries.
///
/// # Invariants
///
/// `0` was filled by a successful `sg_alloc_table` and is not yet freed. `nents` of its entries, at
/// most `orig_nents`, are in use, and the last of them is marked.
pub(crate) struct ScatterList(bindings::sg_table);

// SAFETY: The entries are plain memory that this value owns.
unsafe impl Send for ScatterList {}

impl ScatterList {
    /// One entry for each of `runs`. Sleeps.
    pub(super) fn new(mut runs: impl Iterator<Item = Run> + Clone) -> Result<Self, Failure> {
        // Mostly it is the only one: then no page is looked at again.
        let first = runs.next().ok_or(Failure::NoMemory)?;
        let entries = entries_to_allocate(runs.clone()).saturating_add(1);
        let mut table = bindings::sg_table::default();
        // SAFETY: `table` is a valid place for a header.
        if unsafe { bindings::sg_alloc_table(&mut table, entries, bindings::GFP_KERNEL) } != 0 {
            // `sg_alloc_table` took back what it had.
            return Err(Failure::NoMemory);
        }
        // INVARIANT: Just allocated; the rest follows below.
        let mut list = Self(table);
        let mut last = Entry(NonNull::new(list.0.sgl).ok_or(Failure::NoMemory)?);
        // SAFETY: These are entries of the table, which is alive and ours alone.
        unsafe {
            last.set(first);
            list.0.nents = runs.fold(1, |used: u32, run| match last.next() {
                Some(next) => {
                    next.set(run);
                    last = next;
                    used.wrapping_add(1)
                }
                None => used,
            });
            last.end();
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
        bindings::sg_table {
            orig_nents: self.0.nents,
            ..self.0
        }
    }
}

/// An entry of a table, here and not in C: there may be one for each page.
#[derive(Clone, Copy)]
struct Entry(NonNull<bindings::scatterlist>);

impl Entry {
    /// Makes it stand for `run`. Only the HCA will look: there is no `struct page` to name.
    ///
    /// # Safety
    ///
    /// The table must be alive, and the caller's alone.
    unsafe fn set(self, run: Run) {
        // SAFETY: By the safety requirements.
        let sg = unsafe { &mut *self.0.as_ptr() };
        sg.length = run.len;
        sg.dma_address = run.addr;
        #[cfg(CONFIG_NEED_SG_DMA_LENGTH)]
        {
            sg.dma_length = run.len;
        }
    }

    /// Makes it the last one, as `sg_mark_end`.
    ///
    /// # Safety
    ///
    /// The table must be alive, and the caller's alone.
    unsafe fn end(self) {
        // SAFETY: By the safety requirements.
        unsafe { (*self.0.as_ptr()).page_link |= bindings::SG_END as c_ulong };
    }

    /// The one after it, as `sg_next`.
    ///
    /// # Safety
    ///
    /// The table must be alive.
    unsafe fn next(self) -> Option<Self> {
        // SAFETY: By the safety requirements. Each entry but the last has one after it, and if that
        // is a link it has the address of an entry and two flags.
        unsafe {
            if (*self.0.as_ptr()).page_link & bindings::SG_END as c_ulong != 0 {
                return None;
            }
            let next = self.0.add(1);
            let link = (*next.as_ptr()).page_link;
            if link & bindings::SG_CHAIN as c_ulong == 0 {
                return Some(Self(next));
            }
            NonNull::new(ptr::with_exposed_provenance_mut(link & !SG_FLAGS)).map(Self)
        }
    }
}

impl Drop for ScatterList {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the table is allocated.
        unsafe { bindings::sg_free_table(&mut self.0) };
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Which GPU pages a user's byte range touches.

/// Granularity of pins and of everything built on them, in bytes.
///
/// The GPU driver hard-codes pages of 64 KiB (`NVRM_P2P_PAGESIZE_BIG_64K` in nv-p2p.c) and refuses
/// addresses and lengths that are not multiples of it.
pub const GPU_PAGE_SIZE: u64 = 64 * 1024;

/// A non-empty range of whole GPU pages.
///
/// # Invariants
///
/// `start` and `len` are multiples of [`GPU_PAGE_SIZE`], `len` is not 0, and `start + len` does
/// not overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinRange {
    start: u64,
    len: u64,
}

impl PinRange {
    /// The smallest range of whole GPU pages that covers `size` bytes from `addr`.
    ///
    /// `None` if that is empty, or if it reaches the end of the 64-bit address space, where no GPU
    /// allocation can be. No bytes at an address within a page are that page, as for host memory.
    pub const fn covering(addr: u64, size: u64) -> Option<Self> {
        let Some(end) = addr.checked_add(size) else {
            return None;
        };
        let Some(end) = end.checked_next_multiple_of(GPU_PAGE_SIZE) else {
            return None;
        };
        let start = addr & !(GPU_PAGE_SIZE - 1);
        // INVARIANT: Both are multiples of the page size, and `end`, their sum, did not overflow.
        match end.wrapping_sub(start) {
            0 => None,
            len => Some(Self { start, len }),
        }
    }

    /// Its first page.
    pub const fn first_page(&self) -> Self {
        // INVARIANT: `len` is at least one page.
        Self {
            start: self.start,
            len: GPU_PAGE_SIZE,
        }
    }

    /// First byte, a multiple of [`GPU_PAGE_SIZE`].
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// Length in bytes, a multiple of [`GPU_PAGE_SIZE`].
    // It is never empty.
    #[allow(clippy::len_without_is_empty)]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Length in pages of [`GPU_PAGE_SIZE`].
    pub const fn pages(&self) -> u64 {
        self.len / GPU_PAGE_SIZE
    }
}

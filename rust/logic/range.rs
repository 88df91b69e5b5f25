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
/// `start` and `len` are multiples of [`GPU_PAGE_SIZE`], `len` is not 0, and `start + len - 1` does
/// not overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinRange {
    start: u64,
    len: u64,
}

impl PinRange {
    /// The smallest range of whole GPU pages that covers `size` bytes from `addr`.
    ///
    /// `None` if `size` is 0, or if the range or its rounding leaves the 64-bit address space: no
    /// GPU allocation can be there.
    pub const fn covering(addr: u64, size: u64) -> Option<Self> {
        let Some(size_minus_1) = size.checked_sub(1) else {
            return None;
        };
        let Some(last) = addr.checked_add(size_minus_1) else {
            return None;
        };
        let start = addr & !(GPU_PAGE_SIZE - 1);
        let last = last | (GPU_PAGE_SIZE - 1);
        // `last >= start`, so only the full address space wraps, to a length of 0.
        match last.wrapping_sub(start).wrapping_add(1) {
            0 => None,
            // INVARIANT: `start` has its low bits clear and `last` has them set.
            len => Some(Self { start, len }),
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

// SPDX-License-Identifier: GPL-2.0

//! Joining DMA-contiguous GPU pages into the fewest scatterlist entries.
//!
//! One entry per 64 KiB page costs 40 MiB of scatterlist for an 80 GiB registration, and keeps
//! HCAs from using larger pages. Joined, contiguous memory needs one entry per 2 GiB.

use core::ops::ControlFlow;

use crate::range::GPU_PAGE_SIZE;

/// [`GPU_PAGE_SIZE`] as a length of a run.
const PAGE: u32 = GPU_PAGE_SIZE as u32;

/// Longest entry ever made, in bytes.
///
/// Lengths in a scatterlist are 32 bits wide; 2 GiB is the largest power of two below that, and
/// what mlx5 allows for its devices.
pub const MAX_RUN: u32 = 2 << 30;

/// Upper bound for the length of a run.
///
/// # Invariants
///
/// A multiple of [`GPU_PAGE_SIZE`] between [`GPU_PAGE_SIZE`] and [`MAX_RUN`], in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunCap(u32);

impl RunCap {
    /// The bound where no device sets one.
    pub const MAX: Self = Self(MAX_RUN);

    /// The bound for a device that takes segments of at most `max_segment` bytes.
    ///
    /// Never below one page, whatever the device says: the peer-memory core trims the first and
    /// the last entry in place, which only works on whole pages.
    pub const fn for_device(max_segment: u32) -> Self {
        let whole_pages = max_segment - max_segment % PAGE;
        // INVARIANT: All three are multiples of the page size.
        if whole_pages < PAGE {
            Self(PAGE)
        } else if whole_pages > MAX_RUN {
            Self(MAX_RUN)
        } else {
            Self(whole_pages)
        }
    }

    /// The bound in bytes.
    pub const fn bytes(self) -> u32 {
        self.0
    }
}

/// A DMA-contiguous piece: one scatterlist entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// DMA address of the first byte.
    pub addr: u64,
    /// Length in bytes, a multiple of [`GPU_PAGE_SIZE`].
    pub len: u32,
}

/// Iterator over the runs of a sequence of page addresses, in order. See [`runs`].
#[derive(Clone, Debug)]
pub struct Runs<I> {
    pages: I,
    cap: RunCap,
    /// The page that ended the previous run.
    pending: Option<u64>,
}

/// Joins the DMA addresses of consecutive GPU pages into runs of at most `cap` bytes.
///
/// Every page is in exactly one run, order is kept, and a new run begins only where the addresses
/// have a gap or the bound is reached.
pub fn runs<I: Iterator<Item = u64>>(pages: I, cap: RunCap) -> Runs<I> {
    Runs {
        pages,
        cap,
        pending: None,
    }
}

/// How many runs there are; `u32::MAX` if there are more than that.
pub fn count_entries(runs: impl Iterator<Item = Run>) -> u32 {
    let entries = runs.fold(0_usize, |entries, _| entries.wrapping_add(1));
    entries.try_into().unwrap_or(u32::MAX)
}

/// So many runs tell whether memory is in pieces.
const SAMPLE: u32 = 64;

/// For how many entries `runs` needs room: for as many as there are. But where hardly a page goes
/// on from the one before, counting takes half as long as filling: there, it is one for each page.
pub fn entries_to_allocate(mut runs: impl Iterator<Item = Run>) -> u32 {
    let (least, most) = runs.size_hint();
    let most = most
        .and_then(|most| most.try_into().ok())
        .unwrap_or(u32::MAX);
    if least as u64 == most.into() {
        return most;
    }
    let (seen, bytes) = runs
        .by_ref()
        .take(SAMPLE as usize)
        .fold((0_u32, 0_u64), |(seen, bytes), run| {
            (seen.wrapping_add(1), bytes.wrapping_add(run.len.into()))
        });
    if seen == SAMPLE && bytes < u64::from(2 * SAMPLE * PAGE) {
        most
    } else {
        count_entries(runs).saturating_add(seen)
    }
}

impl RunCap {
    /// Where a run that begins at `first` ends at the latest: at the bound, or with the last page
    /// of the address space.
    #[inline]
    fn stop(self, first: u64) -> u64 {
        first.checked_add(self.0.into()).unwrap_or_else(|| {
            let pages = (u64::MAX - first) / GPU_PAGE_SIZE + 1;
            first.wrapping_add(pages.wrapping_mul(GPU_PAGE_SIZE))
        })
    }
}

/// From one address to another, which may be one beyond the address space.
const fn run(first: u64, end: u64) -> Run {
    Run {
        addr: first,
        len: end.wrapping_sub(first) as u32,
    }
}

impl<I: Iterator<Item = u64>> Iterator for Runs<I> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let first = self.pending.take().or_else(|| self.pages.next())?;
        let stop = self.cap.stop(first);
        let second = first.wrapping_add(GPU_PAGE_SIZE);
        let joined = self.pages.try_fold(second, |end, addr| {
            if addr == end && end != stop {
                ControlFlow::Continue(end.wrapping_add(GPU_PAGE_SIZE))
            } else {
                ControlFlow::Break((end, addr))
            }
        });
        let end = match joined {
            ControlFlow::Continue(end) => end,
            ControlFlow::Break((end, addr)) => {
                self.pending = Some(addr);
                end
            }
        };
        Some(run(first, end))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (least, most) = self.pages.size_hint();
        let pending = usize::from(self.pending.is_some());
        let least = usize::from(least.saturating_add(pending) != 0);
        (least, most.and_then(|most| most.checked_add(pending)))
    }

    /// As by [`Self::next`], with a few instructions less for each run: there may be as many as
    /// there are pages.
    fn fold<B, F: FnMut(B, Run) -> B>(mut self, init: B, mut each: F) -> B {
        let Some(mut first) = self.pending.take().or_else(|| self.pages.next()) else {
            return init;
        };
        let cap = u64::from(self.cap.0);
        let mut result = init;
        let mut end = first.wrapping_add(GPU_PAGE_SIZE);
        for addr in self.pages {
            if addr != end || end.wrapping_sub(first) == cap || end == 0 {
                result = each(result, run(first, end));
                first = addr;
            }
            end = addr.wrapping_add(GPU_PAGE_SIZE);
        }
        each(result, run(first, end))
    }
}

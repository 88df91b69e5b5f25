// SPDX-License-Identifier: GPL-2.0

//! Durations by powers of two.

/// How many buckets a histogram has: the last one takes all that is longer than nine minutes.
pub const BUCKETS: usize = 40;

/// The bucket that a duration of `ns` nanoseconds belongs to: n for 2^n up to 2^(n+1) - 1, where 0
/// counts as 1.
#[inline]
pub const fn bucket(ns: u64) -> usize {
    let log2 = match ns.checked_ilog2() {
        Some(log2) => log2 as usize,
        None => 0,
    };
    if log2 < BUCKETS {
        log2
    } else {
        BUCKETS - 1
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Rounding of user ranges, against the same arithmetic in 128 bits.

use peermem_logic::range::{PinRange, GPU_PAGE_SIZE};
use proptest::prelude::*;

const PAGE: u128 = GPU_PAGE_SIZE as u128;
const SPACE: u128 = 1 << 64;

/// What `covering` must answer: start and length.
fn expected(addr: u64, size: u64) -> Option<(u128, u128)> {
    let (addr, size) = (u128::from(addr), u128::from(size));
    let start = addr / PAGE * PAGE;
    let end = (addr + size).div_ceil(PAGE) * PAGE;
    let len = end - start;
    (len > 0 && end < SPACE).then_some((start, len))
}

fn check(addr: u64, size: u64) {
    let range = PinRange::covering(addr, size);
    let found = range.map(|r| (u128::from(r.start()), u128::from(r.len())));
    assert_eq!(found, expected(addr, size), "addr {addr:#x} size {size:#x}");
    if let Some(range) = range {
        assert_eq!(u128::from(range.pages()) * PAGE, u128::from(range.len()));
        let first = PinRange::covering(range.start(), GPU_PAGE_SIZE);
        assert_eq!(Some(range.first_page()), first);
    }
}

/// Numbers around which rounding can go wrong.
fn edges() -> Vec<u64> {
    let mut edges = Vec::new();
    for around in [0, 4096, GPU_PAGE_SIZE, 1 << 31, 1 << 32, 1 << 47, 1 << 63] {
        for delta in [0u64, 1, 4095, 4096, GPU_PAGE_SIZE - 1, GPU_PAGE_SIZE] {
            edges.push(around + delta);
            edges.push(u64::wrapping_sub(around, delta));
        }
    }
    edges
}

#[test]
fn every_pair_of_edges() {
    for addr in edges() {
        for size in edges() {
            check(addr, size);
        }
    }
}

#[test]
fn no_bytes_are_the_page_they_are_in() {
    assert_eq!(PinRange::covering(3 * GPU_PAGE_SIZE, 0), None);
    let range = PinRange::covering(3 * GPU_PAGE_SIZE + 1, 0).unwrap();
    assert_eq!((range.start(), range.pages()), (3 * GPU_PAGE_SIZE, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn any_range(addr: u64, size: u64) {
        check(addr, size);
    }

    #[test]
    fn small_ranges_anywhere(addr: u64, size in 0u64..4 * GPU_PAGE_SIZE) {
        check(addr, size);
    }
}

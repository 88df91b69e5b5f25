// SPDX-License-Identifier: GPL-2.0

//! Joining of pages into scatterlist entries.

use peermem_logic::{
    coalesce::{count_entries, entries_to_allocate, runs, Run, RunCap, MAX_RUN},
    range::GPU_PAGE_SIZE,
};
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

fn join(pages: &[u64], cap: RunCap) -> Vec<Run> {
    let joined = runs(pages.iter().copied(), cap);
    let (least, most) = joined.size_hint();
    let counted = count_entries(joined.clone()) as usize;
    let room = entries_to_allocate(joined.clone()) as usize;
    let folded = joined.clone().fold(Vec::new(), |mut runs, run| {
        runs.push(run);
        runs
    });
    let mut one_by_one = joined;
    let joined: Vec<Run> = std::iter::from_fn(|| one_by_one.next()).collect();
    assert_eq!(folded, joined);
    assert_eq!(counted, joined.len());
    assert!(least <= counted && counted <= most.unwrap());
    assert_eq!(most, Some(pages.len()));
    assert!(counted <= room && room <= pages.len());
    joined
}

fn contiguous(start: u64, bytes: u64) -> impl Iterator<Item = u64> + Clone {
    (0..bytes / GPU_PAGE_SIZE).map(move |i| start + i * GPU_PAGE_SIZE)
}

#[test]
fn no_pages_give_no_entry() {
    assert_eq!(join(&[], RunCap::for_device(MAX_RUN)), []);
}

/// `n` runs of `len` pages each.
fn pieces(n: u64, len: u64) -> Vec<u64> {
    (0..n)
        .flat_map(|i| contiguous(i * 1000 * GPU_PAGE_SIZE, len * GPU_PAGE_SIZE))
        .collect()
}

#[test]
fn room_for_as_many_entries_as_there_are() {
    for (n, len) in [(1, 1), (1, 500), (63, 1), (64, 2), (1000, 2), (1000, 3)] {
        let pages = pieces(n, len);
        let joined = runs(pages.iter().copied(), RunCap::MAX);
        assert_eq!(u64::from(entries_to_allocate(joined)), n, "{n} of {len}");
    }
    let some = [Run {
        addr: 0,
        len: 1 << 16,
    }; 200];
    assert_eq!(entries_to_allocate(some.into_iter()), 200);
}

#[test]
fn room_for_each_page_if_hardly_any_joins() {
    let mut pages = pieces(64, 1);
    pages.extend(pieces(10, 30));
    let joined = runs(pages.iter().copied(), RunCap::MAX);
    assert_eq!(entries_to_allocate(joined.clone()) as usize, pages.len());
    assert!((count_entries(joined) as usize) < pages.len());
}

#[test]
fn contiguous_80_gib_need_40_entries() {
    let cap = RunCap::for_device(u32::MAX);
    let lengths: Vec<u32> = runs(contiguous(0x38_0000_0000, 80 * GIB), cap)
        .map(|run| run.len)
        .collect();
    assert_eq!(lengths, [MAX_RUN; 40]);
}

#[test]
fn descending_and_repeated_pages_do_not_join() {
    let pages = [3, 2, 1, 1, 0].map(|n| n * GPU_PAGE_SIZE);
    assert_eq!(join(&pages, RunCap::for_device(MAX_RUN)).len(), pages.len());
}

#[test]
fn the_end_of_the_address_space_does_not_wrap() {
    let last = u64::MAX - (GPU_PAGE_SIZE - 1);
    assert_eq!(join(&[last, 0], RunCap::for_device(MAX_RUN)).len(), 2);
}

#[test]
fn caps_are_whole_pages_between_one_page_and_2_gib() {
    for (device, cap) in [
        (0, 1 << 16),
        (1, 1 << 16),
        (4096, 1 << 16),
        (0xffff, 1 << 16),
        (1 << 16, 1 << 16),
        ((1 << 17) - 1, 1 << 16),
        (1 << 17, 1 << 17),
        (1 << 30, 1 << 30),
        ((1 << 31) - 1, (1 << 31) - (1 << 16)),
        (1 << 31, 1 << 31),
        (u32::MAX, 1 << 31),
    ] {
        assert_eq!(
            RunCap::for_device(device).bytes(),
            cap,
            "device {device:#x}"
        );
    }
}

/// Page addresses with gaps, steps back and long runs.
fn pages() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec((0u64..1 << 36, 1u64..40), 0..24).prop_map(|pieces| {
        pieces
            .into_iter()
            .flat_map(|(first, n)| (first..first + n).map(|page| page * GPU_PAGE_SIZE))
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn each_page_once_in_order_and_no_entry_too_many(pages in pages(), max: u32, small in 0u32..20) {
        for cap in [RunCap::for_device(max), RunCap::for_device(small * GPU_PAGE_SIZE as u32)] {
            let joined = join(&pages, cap);
            let split: Vec<u64> = joined
                .iter()
                .flat_map(|run| contiguous(run.addr, run.len.into()))
                .collect();
            prop_assert_eq!(&split, &pages);
            for run in &joined {
                prop_assert!(run.len <= cap.bytes() && run.len > 0);
                prop_assert_eq!(u64::from(run.len) % GPU_PAGE_SIZE, 0);
            }
            for pair in joined.windows(2) {
                let gap = pair[0].addr + u64::from(pair[0].len) != pair[1].addr;
                prop_assert!(gap || pair[0].len == cap.bytes());
            }
        }
    }
}

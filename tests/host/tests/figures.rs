// SPDX-License-Identifier: GPL-2.0

//! Buckets of histograms, and the names under which failures are counted.

use std::collections::HashSet;

use peermem_logic::{
    errno::{Errno, Failure},
    histogram::{bucket, BUCKETS},
    reason::Reason,
};
use proptest::prelude::*;

const ABI: &str = include_str!("../../../Documentation/ABI/testing/sysfs-kernel-nvidia_peermem");

#[test]
fn bucket_edges() {
    assert_eq!((bucket(0), bucket(1), bucket(2), bucket(3)), (0, 0, 1, 1));
    assert_eq!((bucket((1 << 39) - 1), bucket(1 << 39)), (38, 39));
    assert_eq!(bucket(u64::MAX), BUCKETS - 1);
}

proptest! {
    #[test]
    fn a_bucket_holds_what_its_number_says(ns: u64) {
        let bucket = bucket(ns);
        prop_assert!(bucket < BUCKETS);
        prop_assert!(ns.max(1) >= 1 << bucket);
        prop_assert!(bucket == BUCKETS - 1 || ns >> (bucket + 1) == 0);
    }
}

fn name(reason: Reason) -> &'static str {
    reason.name().to_str().unwrap()
}

#[test]
fn each_reason_has_its_place_and_name() {
    for (i, reason) in Reason::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, i);
    }
    let names: HashSet<_> = Reason::ALL.into_iter().map(name).collect();
    assert_eq!(names.len(), Reason::COUNT);
}

#[test]
fn each_reason_is_documented() {
    let start = ABI.find("failures/REASON").unwrap();
    let end = start + ABI[start..].find("\nWhat:").unwrap();
    let words: HashSet<_> = ABI[start..end]
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .collect();
    for reason in Reason::ALL {
        assert!(words.contains(name(reason)), "{}", name(reason));
    }
}

#[test]
fn failures_have_the_reason_that_their_errno_says() {
    for (errno, pin, map) in [
        (Errno::ENOMEM, Reason::PinEnomem, Reason::MapEnomem),
        (
            Errno::EOPNOTSUPP,
            Reason::PinEopnotsupp,
            Reason::MapEopnotsupp,
        ),
        (Errno::EIO, Reason::PinEio, Reason::MapEio),
        (Errno::EINVAL, Reason::PinOther, Reason::MapOther),
    ] {
        assert_eq!(Reason::of(Failure::Pin(errno)), pin);
        assert_eq!(Reason::of(Failure::Map(errno)), map);
    }
    assert_eq!(Reason::of(Failure::Drain), Reason::Drain);
    assert_eq!(Reason::of(Failure::Limit), Reason::Limit);
    assert_eq!(Failure::Drain.errno(), Errno::EAGAIN);
    assert_eq!(Failure::Limit.errno(), Errno::ENOMEM);
}

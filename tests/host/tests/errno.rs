// SPDX-License-Identifier: GPL-2.0

//! The table of errors: exhaustively, and against the page that users read.

use peermem_logic::errno::{
    mapping_version_known, page_table_version_known, pin, Errno, Failure, Pin,
};

const ENOTSUPP: i32 = 524;

/// What the table in Documentation/errors.rst says, as a function.
fn documented(ret: i32) -> i32 {
    match -i64::from(ret) {
        524 => -95,
        errno @ 1..=133 => -(errno as i32),
        _ => -5,
    }
}

#[test]
fn every_result_of_the_driver() {
    let near = -1_000_000..=1_000_000;
    let far = [i32::MIN, i32::MIN + 1, i32::MAX - 1, i32::MAX];
    for ret in near.chain(far) {
        let errno = Errno::from_driver(ret);
        assert_eq!(errno.to_negative(), documented(ret), "{ret}");
        let expected = match ret {
            0 => Pin::Pinned,
            -22 => Pin::NotGpuMemory,
            _ => Pin::Failed(errno),
        };
        assert_eq!(pin(ret), expected, "{ret}");
    }
}

#[test]
fn page_table_versions() {
    for major in 0..=0xffff {
        for minor in [0, 1, 2, 3, 0xffff] {
            let known = major == 2 || (major == 1 && minor >= 2);
            assert_eq!(page_table_version_known(major << 16 | minor), known);
        }
    }
}

#[test]
fn mapping_versions() {
    for major in 0..=0xffff {
        for minor in [0, 2, 3, 4, 0xffff] {
            let known = major == 2 && minor >= 3;
            assert_eq!(mapping_version_known(major << 16 | minor), known);
        }
    }
}

/// Number of an errno by name, of those that the page uses.
fn number(name: &str) -> i32 {
    match name.trim() {
        "EIO" => 5,
        "ENOMEM" => 12,
        "EBUSY" => 16,
        "ENODEV" => 19,
        "EINVAL" => 22,
        "EOPNOTSUPP" => 95,
        "ENOTSUPP (524)" => ENOTSUPP,
        other => panic!("unknown errno {other}"),
    }
}

const PAGE: &str = include_str!("../../../Documentation/errors.rst");

#[test]
fn the_page_says_what_the_driver_table_does() {
    let mut rows = 0;
    for line in PAGE.lines().filter(|line| line.starts_with("-E")) {
        let cells: Vec<&str> = line
            .split("  ")
            .map(str::trim)
            .filter(|c| !c.is_empty())
            .collect();
        let ret = -number(cells[0].trim_start_matches('-'));
        match pin(ret) {
            Pin::NotGpuMemory => assert_eq!(cells[1], "not ours"),
            Pin::Failed(errno) => assert_eq!(errno.to_negative(), -number(cells[1]), "{line}"),
            Pin::Pinned => panic!("{line}"),
        }
        let map = Failure::Map(Errno::from_driver(ret)).errno();
        assert_eq!(map.to_negative(), -number(cells[2]), "{line}");
        rows += 1;
    }
    assert_eq!(rows, 6);
}

#[test]
fn the_page_says_what_the_module_finds() {
    for (cause, failure) in [
        (
            "page table of an unknown version",
            Failure::PageTableVersion(0),
        ),
        ("page table that does not fit", Failure::PageTableShape),
        (
            "DMA mapping of an unknown version",
            Failure::MappingVersion(0),
        ),
        ("DMA mapping that does not fit", Failure::MappingShape),
        ("no DMA device", Failure::NotPciDevice),
        ("unexpected call", Failure::Contract),
        ("out of kernel memory", Failure::NoMemory),
    ] {
        let line = PAGE
            .lines()
            .find(|line| line.starts_with(cause))
            .expect(cause);
        let shown = line.rsplit("  ").next().unwrap();
        assert_eq!(failure.errno().to_negative(), -number(shown), "{line}");
    }
}

#[test]
fn the_page_shows_a_line_of_the_log() {
    assert!(PAGE.contains(&format!(": {} (error -12)", Failure::Pin(Errno::ENOMEM))));
}

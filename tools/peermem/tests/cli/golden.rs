// SPDX-License-Identifier: GPL-2.0

//! All that the program prints, compared with `tests/golden/`. With `PEERMEM_BLESS=1` the files are
//! written instead.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::program::{run, Run};
use crate::tree::Tree;

/// Runs commands on trees, and compares what they print.
fn check(name: &str, cases: &[(&str, &str)]) {
    let mut trees = BTreeMap::new();
    let mut text = String::new();
    for (tree, arguments) in cases {
        let place = trees.entry(*tree).or_insert_with(|| Tree::new(tree));
        text.push_str(&transcript(tree, arguments, run(place, arguments)));
    }
    let file = file(name);
    if std::env::var_os("PEERMEM_BLESS").is_some() {
        fs::write(&file, text).unwrap();
        return;
    }
    let expected = fs::read_to_string(&file).unwrap();
    if text != expected {
        panic!("{}", difference(&file, &expected, &text));
    }
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.txt"))
}

fn transcript(tree: &str, arguments: &str, run: Run) -> String {
    let errors = run.err.lines().map(|line| format!("! {line}\n"));
    let errors = errors.collect::<Vec<_>>().concat();
    let out = without_times(&run.out);
    let (code, end) = (
        run.code,
        if out.ends_with('\n') || out.is_empty() {
            ""
        } else {
            "\n"
        },
    );
    format!("[{tree}] $ peermem {arguments}\n{out}{end}{errors}= {code}\n\n")
}

/// Replaces times of the day, which differ.
fn without_times(text: &str) -> String {
    const SHAPE: &str = "00:00:00.000";
    let bytes = text.as_bytes();
    let mut result = bytes.to_vec();
    for start in 0..bytes.len().saturating_sub(SHAPE.len() - 1) {
        let part = &bytes[start..start + SHAPE.len()];
        let is_time = part
            .iter()
            .zip(SHAPE.bytes())
            .all(|(byte, shape)| match shape {
                b'0' => byte.is_ascii_digit(),
                other => *byte == other,
            });
        if is_time {
            result[start..start + SHAPE.len()].copy_from_slice(SHAPE.as_bytes());
        }
    }
    String::from_utf8(result).unwrap()
}

fn difference(file: &Path, expected: &str, text: &str) -> String {
    let line = expected.lines().zip(text.lines()).position(|(a, b)| a != b);
    let line = line.unwrap_or_else(|| expected.lines().count().min(text.lines().count()));
    let show = |text: &str| text.lines().nth(line).unwrap_or("(end)").to_owned();
    format!(
        "{}:{}: differs\nexpected: {}\nprinted:  {}\n\nall of it:\n{text}",
        file.display(),
        line + 1,
        show(expected),
        show(text)
    )
}

const TREES: [&str; 10] = [
    "machine",
    "not-loaded",
    "not-installed",
    "nvidias-own",
    "idle",
    "busy",
    "drain",
    "unprivileged",
    "no-debugfs",
    "revocable",
];

/// One command on all trees.
fn on_all(arguments: &str) -> Vec<(&'static str, &str)> {
    TREES.iter().map(|tree| (*tree, arguments)).collect()
}

#[test]
fn status() {
    check("status", &on_all("status"));
    check("status-json", &on_all("-j -p status"));
}

#[test]
fn status_in_colour() {
    check(
        "status-colour",
        &[
            ("busy", "--color always status"),
            ("drain", "--color=always status"),
            ("not-loaded", "--color always status"),
        ],
    );
}

#[test]
fn show() {
    let mut cases = Vec::new();
    for object in ["mr", "client", "gpu", "link", "failures", "latency"] {
        for tree in ["busy", "revocable"] {
            cases.push((tree, format!("show {object}")));
            cases.push((tree, format!("-d show {object}")));
            cases.push((tree, format!("-j show {object}")));
        }
        for tree in ["idle", "not-loaded", "unprivileged", "no-debugfs"] {
            cases.push((tree, format!("show {object}")));
        }
    }
    let cases: Vec<(&str, &str)> = cases.iter().map(|(tree, a)| (*tree, a.as_str())).collect();
    check("show", &cases);
}

#[test]
fn show_some() {
    check(
        "show-filter",
        &[
            ("busy", "show mr --pid 4711"),
            ("busy", "show mr --gpu 0000:65:00.0"),
            ("busy", "show mr --dev mlx5_0 --pid 4713"),
            ("busy", "show mr --dev 0000:66:00.0"),
            ("busy", "show mr --dev mlx5_9"),
            ("busy", "-j show mr --pid 1"),
        ],
    );
}

#[test]
fn stats() {
    check(
        "stats",
        &[
            ("busy", "stats"),
            ("revocable", "stats"),
            ("not-loaded", "stats"),
        ],
    );
    check(
        "stats-json",
        &[("busy", "-j stats"), ("idle", "-p -j stats")],
    );
    let prometheus = "stats --prometheus";
    check(
        "prometheus",
        &[
            ("busy", prometheus),
            ("unprivileged", prometheus),
            ("not-loaded", prometheus),
        ],
    );
}

#[test]
fn top_in_batch_mode() {
    check(
        "top",
        &[
            ("busy", "top -b -n 1"),
            ("busy", "top -b -n 2 -i 0.05 --sort name"),
            ("busy", "top -n 1 --sort mrs"),
            ("unprivileged", "top -n 1"),
            ("idle", "top -n 1"),
            ("drain", "-j -p top -n 1"),
            ("not-loaded", "top -n 1"),
        ],
    );
}

#[test]
fn control_where_it_cannot_be() {
    let mut cases = Vec::new();
    for command in ["drain", "live", "limit 16G", "reset"] {
        cases.push(("not-loaded", command));
    }
    cases.extend([
        ("unprivileged", "reset"),
        ("busy", "limit"),
        ("drain", "limit"),
        ("drain", "-j limit"),
    ]);
    check("control", &cases);
}

#[test]
fn wrong_command_lines() {
    check(
        "usage",
        &[
            ("idle", ""),
            ("idle", "frobnicate"),
            ("idle", "st"),
            ("idle", "stat"),
            ("idle", "status --frobnicate"),
            ("idle", "status too much"),
            ("idle", "show"),
            ("idle", "show x"),
            ("idle", "show l"),
            ("idle", "show mr --pid x"),
            ("idle", "limit 1.5G"),
            ("idle", "--color sometimes status"),
            ("idle", "completion"),
            ("idle", "completion tcsh"),
            ("idle", "top -n 0"),
            ("idle", "top -i 0"),
            ("idle", "bench --sizes 8K:4K"),
        ],
    );
}

#[test]
fn help() {
    check(
        "help",
        &[
            ("idle", "help"),
            ("idle", "status help"),
            ("idle", "doctor help"),
            ("idle", "show help"),
            ("idle", "show mr help"),
            ("idle", "top help"),
            ("idle", "watch help"),
            ("idle", "stats help"),
            ("idle", "bench help"),
            ("idle", "report help"),
            ("idle", "limit help"),
            ("idle", "help drain"),
        ],
    );
}

// SPDX-License-Identifier: GPL-2.0

//! The archive of `peermem report`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;

use flate2::read::GzDecoder;

use crate::program::run;
use crate::tree::Tree;

/// Files of the archive that a report of the tree makes.
fn report(tree: &str, options: &str) -> BTreeMap<String, String> {
    let tree = Tree::new(tree);
    let file = tree.directory().join("report.tar.gz");
    let run = run(
        &tree,
        &format!("report {options} --output {}", file.display()),
    );
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    assert_eq!(run.out, format!("{}\n", file.display()));
    let file = File::open(file).unwrap();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let mut archive = tar::Archive::new(GzDecoder::new(file));
    let mut files = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_string_lossy().into_owned();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        files.insert(name, text);
    }
    files
}

fn file<'a>(files: &'a BTreeMap<String, String>, name: &str) -> &'a str {
    &files[&format!("peermem-report/{name}")]
}

#[test]
fn all_that_matters_is_in_it() {
    let files = report("busy", "");
    assert!(file(&files, "status.txt").starts_with("nvidia_peermem 0.1.0: live\n"));
    assert!(file(&files, "status.json").contains("\"loaded\": true"));
    assert!(serde_json::from_str::<serde_json::Value>(file(&files, "doctor.json")).is_ok());
    assert!(!file(&files, "doctor.txt").is_empty());
    assert_eq!(file(&files, "sysfs/stats/active_mrs"), "4\n");
    assert!(file(&files, "debugfs/registrations").contains("id=7 pid=4711"));
    assert!(file(&files, "modules.txt").contains("nvidia_peermem version 0.1.0"));
    assert!(file(&files, "kernel-config.txt").contains("CONFIG_RUST=y\n# CONFIG_MODULE_SIG_FORCE"));
    assert!(!file(&files, "kernel-config.txt").contains("CONFIG_HZ"));
}

#[test]
fn of_the_kernel_log_there_are_lines_about_peer_memory_only() {
    let files = report("busy", "");
    let log = file(&files, "kernel-log.txt");
    assert!(log.contains("by process 4700 failed"), "{log}");
    assert!(!log.contains("SerialNumber"), "{log}");
}

#[test]
fn what_cannot_be_read_is_told() {
    let files = report("unprivileged", "");
    assert_eq!(
        file(&files, "kernel-log.txt"),
        "the kernel log needs root\n"
    );
    assert!(file(&files, "debugfs.unread").contains("may not be read"));
    let files = report("not-loaded", "");
    assert!(file(&files, "sysfs.unread").contains("is not there"));
}

#[test]
fn masked_it_tells_nothing_about_whose_machine_it_is() {
    let files = report("busy", "--mask");
    let all: String = files.values().map(String::as_str).collect();
    for secret in [
        "gpu-node7",
        "4711",
        "4712",
        "4700",
        "python3",
        "nccl worker",
        "ib_write_bw",
        "0x7f0000000000",
        "01234567-89ab",
    ] {
        let line = all.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret}");
    }
    assert!(all.contains("0000:17:00.0"), "the topology stays");
    let registrations = file(&files, "debugfs/registrations");
    let pids: Vec<&str> = registrations
        .lines()
        .map(|line| line.split(' ').nth(1).unwrap())
        .collect();
    assert_eq!(
        pids[0], pids[1],
        "the same process is masked by the same word"
    );
    assert_ne!(pids[0], pids[2]);
}

// SPDX-License-Identifier: GPL-2.0

//! `peermem doctor` on recorded machines: a healthy one, others that differ from it in one thing,
//! and a real one.

mod object;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

use serde_json::Value;
use tree::Tree;

/// A tree, unpacked; gone when the test ends.
struct Machine(PathBuf);

impl Machine {
    fn of(tree: &Tree) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("peermem-doctor-{}-{next}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).expect("a directory of our own");
        tree.unpack(&directory);
        Self(directory)
    }

    fn doctor(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_peermem"))
            .args(arguments)
            .env("PEERMEM_ROOT", &self.0)
            .env_remove("NO_COLOR")
            .output()
            .expect("peermem runs")
    }

    /// All items, by id, and the exit code.
    fn verdicts(&self) -> (BTreeMap<String, Value>, i32) {
        let output = self.doctor(&["-j", "doctor"]);
        let items: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
        let by_id = items
            .into_iter()
            .map(|item| (text(&item, "id").to_owned(), item))
            .collect();
        (by_id, output.status.code().expect("an exit code"))
    }

    fn stdout(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.doctor(arguments).stdout).expect("UTF-8")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text<'a>(item: &'a Value, key: &str) -> &'a str {
    item[key].as_str().unwrap_or_default()
}

/// A tree, what the doctor says about it, and its exit code.
struct Diagnosis {
    tree: Tree,
    verdicts: BTreeMap<String, Value>,
    code: i32,
}

/// All trees' diagnoses, by name.
fn diagnoses() -> &'static BTreeMap<String, Diagnosis> {
    static ALL: OnceLock<BTreeMap<String, Diagnosis>> = OnceLock::new();
    ALL.get_or_init(|| {
        let all = Tree::all().into_iter().map(|tree| {
            let (verdicts, code) = Machine::of(&tree).verdicts();
            let name = tree.name.clone();
            let diagnosis = Diagnosis {
                tree,
                verdicts,
                code,
            };
            (name, diagnosis)
        });
        all.collect()
    })
}

fn healthy() -> &'static BTreeMap<String, Value> {
    &diagnoses()["healthy"].verdicts
}

/// What is wrong with the verdicts about a tree. What is not expected has to be as on `base`.
fn complaints(
    tree: &Tree,
    verdicts: &BTreeMap<String, Value>,
    base: Option<&BTreeMap<String, Value>>,
) -> Vec<String> {
    let mut complaints = Vec::new();
    for (id, item) in verdicts {
        let (status, detail) = (text(item, "status"), text(item, "detail"));
        let expected = tree.expectations.iter().find(|e| e.id == *id);
        let wanted = match (expected, base) {
            (Some(expected), _) => {
                if !detail.contains(&expected.words) {
                    complaints.push(format!("{id}: \"{detail}\" lacks \"{}\"", expected.words));
                }
                expected.status.as_str()
            }
            (None, Some(base)) => text(&base[id], "status"),
            (None, None) => continue,
        };
        if status != wanted {
            complaints.push(format!("{id} is {status}, not {wanted}: {detail}"));
        }
    }
    complaints
}

#[test]
fn the_healthy_machine_is_healthy() {
    let Diagnosis {
        tree,
        verdicts,
        code,
    } = &diagnoses()["healthy"];
    let complaints = complaints(tree, verdicts, None);
    assert!(complaints.is_empty(), "{complaints:#?}");
    let expected: BTreeSet<_> = tree.expectations.iter().map(|e| e.id.as_str()).collect();
    for (id, item) in verdicts {
        let is_ok = text(item, "status") == "OK";
        assert!(is_ok || expected.contains(id.as_str()), "{item:#}");
    }
    assert_eq!(*code, 0);
}

#[test]
fn every_tree_gives_its_verdicts_and_no_others() {
    let mut wrong = Vec::new();
    for diagnosis in diagnoses().values() {
        let Diagnosis {
            tree,
            verdicts,
            code,
        } = diagnosis;
        let base = tree.base.is_some().then(healthy);
        let found = complaints(tree, verdicts, base);
        wrong.extend(found.iter().map(|text| format!("{}: {text}", tree.name)));
        let has = |status| verdicts.values().any(|item| text(item, "status") == status);
        let worst = match (has("FAIL"), has("WARN")) {
            (true, _) => 2,
            (false, true) => 1,
            (false, false) => 0,
        };
        assert_eq!(*code, worst, "{}", tree.name);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// So the test above can fail for each tree: the healthy machine does not pass for it.
#[test]
fn every_tree_expects_what_the_healthy_one_does_not_give() {
    let mut idle = Vec::new();
    let trees = diagnoses().values().map(|diagnosis| &diagnosis.tree);
    for tree in trees.filter(|tree| tree.base.is_some()) {
        assert!(!tree.expectations.is_empty(), "{}", tree.name);
        for expectation in &tree.expectations {
            let item = healthy().get(&expectation.id).expect("a check of this id");
            let same = text(item, "status") == expectation.status
                && text(item, "detail").contains(&expectation.words);
            if same {
                idle.push(format!("{}: {}", tree.name, expectation.id));
            }
        }
    }
    assert!(idle.is_empty(), "{idle:?}");
}

#[test]
fn every_check_complains_in_some_tree() {
    let mut silent: BTreeSet<_> = healthy().keys().collect();
    for diagnosis in diagnoses().values() {
        for expectation in &diagnosis.tree.expectations {
            if ["WARN", "FAIL"].contains(&expectation.status.as_str()) {
                silent.remove(&expectation.id);
            }
        }
    }
    assert!(silent.is_empty(), "{silent:?}");
}

#[test]
fn items_are_complete() {
    for Diagnosis { tree, verdicts, .. } in diagnoses().values() {
        for item in verdicts.values() {
            let keys: Vec<_> = item.as_object().expect("an object").keys().collect();
            assert_eq!(keys, ["id", "status", "title", "detail", "hint", "source"]);
            for key in ["title", "detail", "source"] {
                assert!(!text(item, key).is_empty(), "{}: {item:#}", tree.name);
            }
            let is_bad = ["WARN", "FAIL"].contains(&text(item, "status"));
            assert_eq!(is_bad, item["hint"].is_string(), "{}: {item:#}", tree.name);
        }
    }
}

#[test]
fn checks_that_hints_refer_to_exist() {
    let known: BTreeSet<_> = healthy().keys().map(String::as_str).collect();
    let is_id = |word: &str| {
        let digits = word.trim_start_matches(|c: char| "KMGNPUDS".contains(c));
        word.len() == digits.len() + 1 && !digits.is_empty() && digits.parse::<u8>().is_ok()
    };
    for diagnosis in diagnoses().values() {
        for item in diagnosis.verdicts.values() {
            let words = format!("{} {}", text(item, "hint"), text(item, "detail"));
            let mut ids = words.split(|c: char| !c.is_ascii_alphanumeric());
            let unknown = ids.find(|word| is_id(word) && !known.contains(word));
            assert_eq!(unknown, None, "{item:#}");
        }
    }
}

#[test]
fn chosen_checks_alone_are_done() {
    let machine = Machine::of(&Tree::read("healthy"));
    let ids = |arguments: &[&str]| -> Vec<String> {
        let items: Vec<Value> = serde_json::from_str(&machine.stdout(arguments)).expect("JSON");
        items.iter().map(|i| text(i, "id").to_owned()).collect()
    };
    assert_eq!(ids(&["-j", "doctor", "K1", "P2"]), ["K1", "P2"]);
    assert_eq!(ids(&["-j", "doctor", "acs", "rust"]), ["P2", "K1"]);
    assert_eq!(ids(&["-j", "doctor", "d"]), ["D1"]);
    let output = machine.doctor(&["doctor", "nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(error.contains("no check is called nonsense"), "{error}");
    assert_eq!(error.lines().count(), 1);
}

#[test]
fn the_table_is_for_people() {
    let machine = Machine::of(&Tree::read("h200"));
    let table = machine.stdout(&["doctor", "K1", "K6", "G7", "N1"]);
    assert_eq!(
        table,
        "\
K1  FAIL  kernel built with Rust  kernel built without CONFIG_RUST: the module cannot be built for it
          -> boot a kernel that has it (Documentation/admin-guide.rst), use NVIDIA's own nvidia-peermem, or DMA-BUF, which needs no module
K6  FAIL  loading of modules      module loading is disabled until the next boot
          -> load nvidia-peermem at boot before kernel.modules_disabled=1 is set (/etc/modules-load.d, /etc/sysctl.d)
G7  OK    size of BAR1            0000:00:06.0: BAR1 is 256 GiB
N1  FAIL  RDMA devices            no RDMA device
          -> lspci | grep -i -e mellanox -e infiniband; modprobe mlx5_ib (or the driver of your card)
1 OK, 0 WARN, 3 FAIL, 0 SKIP
"
    );
    let details = machine.stdout(&["-d", "doctor", "K6"]);
    assert!(
        details.contains("/proc/sys/kernel/modules_disabled"),
        "{details}"
    );
    assert!(!table.contains('\x1b'));
    let coloured = machine.stdout(&["--color", "always", "doctor", "K6"]);
    assert!(coloured.contains("\x1b[31mFAIL\x1b[0m"), "{coloured}");
}

/// All files of a tree with their contents.
fn contents(directory: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_symlink() {
            files.insert(
                path.clone(),
                fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes(),
            );
        } else if path.is_dir() {
            contents(&path, files);
        } else {
            files.insert(path.clone(), fs::read(&path).expect("a file"));
        }
    }
}

#[test]
fn nothing_is_changed_and_nothing_is_run() {
    let machine = Machine::of(&Tree::read("healthy"));
    let programs = Machine::of(&Tree::read("healthy"));
    let mark = programs.0.join("mark");
    let rustc = programs.0.join("rustc");
    fs::write(&rustc, format!("#!/bin/sh\n: >{}\n", mark.display())).expect("a program");
    fs::set_permissions(&rustc, PermissionsExt::from_mode(0o755)).expect("a program");
    let all = || {
        let mut files = BTreeMap::new();
        contents(&machine.0, &mut files);
        files
    };
    let before = all();
    let status = Command::new(env!("CARGO_BIN_EXE_peermem"))
        .arg("doctor")
        .env("PEERMEM_ROOT", &machine.0)
        .env("PATH", &programs.0)
        .output()
        .expect("peermem runs")
        .status;
    assert_eq!(status.code(), Some(0));
    assert_eq!(all(), before);
    assert!(!mark.exists());
}

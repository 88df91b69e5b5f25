// SPDX-License-Identifier: GPL-2.0

//! Machines written down as text, and unpacked into directories for `PEERMEM_ROOT`.
//!
//! A tree begins with what it is, and with what the doctor must say:
//!
//! ```text
//! # Comment.
//! on healthy                  the tree that it is a change of; "on nothing" for none
//! expect K6 FAIL some words   status, and words of the detail
//! ```
//!
//! Then come files, with absolute paths, or relative ones below the last `[directory]`:
//!
//! ```text
//! path = value                a file of one line
//! path -> target              a symbolic link
//! path/                       an empty directory
//! path: text                  a file of the lines that follow, each behind a tab; \0 is a NUL
//! path: hex                   bytes: "size N", then "OFFSET: BYTES" in hexadecimal
//! path: module                a module's file; see `object`
//! path mode 600               permissions
//! - path                      is not there, nor anything below it
//! deny path                   may not be read
//! ```

use std::fs;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::object;

/// What the doctor must say about a check.
pub struct Expectation {
    pub id: String,
    pub status: String,
    pub words: String,
}

/// A tree, as text.
pub struct Tree {
    pub name: String,
    pub base: Option<String>,
    pub expectations: Vec<Expectation>,
    lines: Vec<String>,
}

impl Tree {
    /// The tree of this name.
    pub fn read(name: &str) -> Self {
        let path = directory().join(format!("{name}.tree"));
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        let mut tree = Self {
            name: name.to_owned(),
            base: None,
            expectations: Vec::new(),
            lines: Vec::new(),
        };
        for line in text.lines() {
            if let Some(base) = line.strip_prefix("on ") {
                tree.base = (base != "nothing").then(|| base.to_owned());
            } else if let Some(expectation) = line.strip_prefix("expect ") {
                tree.expectations.push(parse_expectation(expectation));
            } else if !line.starts_with('#') && !line.is_empty() {
                tree.lines.push(line.to_owned());
            }
        }
        tree
    }

    /// All trees.
    pub fn all() -> Vec<Self> {
        let entries = fs::read_dir(directory()).expect("the trees");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("a tree").path())
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names.iter().map(|name| Self::read(name)).collect()
    }

    /// Unpacks it below a directory, its base first.
    pub fn unpack(&self, root: &Path) {
        if let Some(base) = &self.base {
            Self::read(base).unpack(root);
        }
        let mut lines = self.lines.iter().peekable();
        let mut below = String::new();
        while let Some(line) = lines.next() {
            let mut content = Vec::new();
            while let Some(line) = lines.next_if(|line| line.starts_with('\t')) {
                content.push(&line[1..]);
            }
            match line.strip_prefix('[') {
                Some(directory) => below = directory.trim_end_matches(']').to_owned(),
                None => entry(root, &below, line, &content),
            }
        }
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doctor/trees")
}

fn parse_expectation(line: &str) -> Expectation {
    let mut words = line.splitn(3, ' ');
    let mut next = || words.next().unwrap_or_default().to_owned();
    Expectation {
        id: next(),
        status: next(),
        words: next(),
    }
}

fn entry(root: &Path, below: &str, line: &str, content: &[&str]) {
    let place = |path: &str| match path.starts_with('/') {
        true => root.join(&path[1..]),
        false => root.join(below.trim_start_matches('/')).join(path),
    };
    if let Some(path) = line.strip_prefix("- ") {
        remove(&place(path));
    } else if let Some(path) = line.strip_prefix("deny ") {
        let file = root.join(".denied");
        let denied = fs::read_to_string(&file).unwrap_or_default();
        write(&file, format!("{denied}{path}\n").as_bytes());
    } else if let Some((path, target)) = line.split_once(" -> ") {
        make_room(&place(path));
        symlink(target, place(path)).unwrap_or_else(|e| panic!("{line}: {e}"));
    } else if let Some((path, mode)) = line.split_once(" mode ") {
        let mode = u32::from_str_radix(mode, 8).expect("a mode");
        fs::set_permissions(place(path), PermissionsExt::from_mode(mode)).expect(line);
    } else if let Some((path, value)) = line.split_once(" = ") {
        write(&place(path), format!("{value}\n").as_bytes());
    } else if let Some(path) = line.strip_suffix(": text") {
        let text = content.join("\n") + if content.is_empty() { "" } else { "\n" };
        write(&place(path), text.replace("\\0", "\0").as_bytes());
    } else if let Some(path) = line.strip_suffix(": hex") {
        write(&place(path), &bytes(content));
    } else if let Some(path) = line.strip_suffix(": module") {
        write(&place(path), &object::file(path, content));
    } else if let Some(path) = line.strip_suffix('/') {
        fs::create_dir_all(place(path)).unwrap_or_else(|e| panic!("{line}: {e}"));
    } else {
        panic!("not understood: {line}");
    }
}

/// Takes away what is there. Taking away what is not there is an error of the tree.
fn remove(path: &Path) {
    let result = match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        _ => fs::remove_file(path),
    };
    result.unwrap_or_else(|e| panic!("{path:?}: {e}"));
}

fn make_room(path: &Path) {
    let parent = path.parent().expect("a path in a tree");
    fs::create_dir_all(parent).unwrap_or_else(|e| panic!("{path:?}: {e}"));
    if path.symlink_metadata().is_ok() {
        remove(path);
    }
}

fn write(path: &Path, content: &[u8]) {
    make_room(path);
    fs::write(path, content).unwrap_or_else(|e| panic!("{path:?}: {e}"));
}

fn bytes(lines: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in lines {
        match line.split_once(": ") {
            None => {
                let size = line.strip_prefix("size ").expect("a size");
                bytes.resize(size.parse().expect("a size"), 0);
            }
            Some((offset, values)) => {
                let offset = usize::from_str_radix(offset, 16).expect("an offset");
                let values = values.split(' ');
                let values = values.map(|v| u8::from_str_radix(v, 16).expect("a byte"));
                for (at, value) in values.enumerate() {
                    bytes[offset + at] = value;
                }
            }
        }
    }
    bytes
}

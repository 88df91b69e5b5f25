// SPDX-License-Identifier: GPL-2.0

//! Copies of the recorded trees, each for one test.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A copy of a recorded tree, removed when it is dropped.
pub struct Tree {
    directory: PathBuf,
}

impl Tree {
    /// Puts the tree of this name together.
    pub fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name_here = format!("{name}-{}-{number}", std::process::id());
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name_here);
        fs::create_dir_all(&directory).unwrap();
        let tree = Self { directory };
        tree.add(name);
        tree
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Changes a file, at once as the kernel does.
    pub fn write(&self, path: &str, text: &str) {
        let (file, beside) = (self.place(path), self.place("/beside"));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&beside, text).unwrap();
        fs::rename(beside, file).unwrap();
    }

    /// What is in a file.
    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.place(path)).unwrap()
    }

    /// Removes a file, or a directory with all below.
    pub fn remove(&self, path: &str) {
        let place = self.place(path);
        match place.is_dir() && !place.is_symlink() {
            true => fs::remove_dir_all(place),
            false => fs::remove_file(place),
        }
        .unwrap();
    }

    fn place(&self, path: &str) -> PathBuf {
        self.directory.join(path.trim_start_matches('/'))
    }

    fn add(&self, name: &str) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/trees")
            .join(name);
        for base in lines(&source.join(".base")) {
            self.add(&base);
        }
        for path in lines(&source.join(".removed")) {
            self.remove(&path);
        }
        copy(&source, &self.directory);
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy(&source, &target);
        } else if kind.is_symlink() {
            symlink(fs::read_link(&source).unwrap(), &target).unwrap();
        } else {
            fs::write(&target, fs::read(&source).unwrap()).unwrap();
        }
    }
}

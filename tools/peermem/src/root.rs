// SPDX-License-Identifier: GPL-2.0

//! All reads of `/sys`, `/proc`, `/dev`, `/boot` and `/lib/modules`, so that every command also runs
//! on a recorded tree: with `PEERMEM_ROOT=DIR`, `/sys/...` is `DIR/sys/...`.
//!
//! A recorded tree cannot refuse to be read by its owner. Its file `.denied` lists, one a line, the
//! paths that could not be read where it was recorded (and all that is below them). Empty
//! directories are kept with a file `.gitkeep` or `.keep`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// What came of reading a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read<T = String> {
    /// There it is.
    Contents(T),
    /// There is no such file.
    Missing,
    /// The caller may not read it.
    Denied,
    /// Reading failed otherwise, with this error.
    Failed(String),
}

impl<T> Read<T> {
    /// What was read, if anything was.
    pub fn contents(self) -> Option<T> {
        match self {
            Self::Contents(contents) => Some(contents),
            _ => None,
        }
    }

    /// Does the same to what was read.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Read<U> {
        match self {
            Self::Contents(contents) => Read::Contents(f(contents)),
            Self::Missing => Read::Missing,
            Self::Denied => Read::Denied,
            Self::Failed(error) => Read::Failed(error),
        }
    }
}

impl<T> From<io::Result<T>> for Read<T> {
    fn from(result: io::Result<T>) -> Self {
        match result {
            Ok(contents) => Self::Contents(contents),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Missing,
                io::ErrorKind::PermissionDenied => Self::Denied,
                _ => Self::Failed(error.to_string()),
            },
        }
    }
}

/// The machine, or a recorded tree of one. All paths given to it are absolute.
#[derive(Clone, Debug)]
pub struct Root {
    directory: PathBuf,
    denied: Vec<PathBuf>,
}

impl Root {
    /// The machine, or what `PEERMEM_ROOT` names.
    pub fn from_environment() -> Self {
        Self::at(std::env::var_os("PEERMEM_ROOT").unwrap_or_else(|| "/".into()))
    }

    /// The tree in a directory.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        let denied = match directory == Path::new("/") {
            true => Vec::new(),
            false => lines_of(&directory.join(".denied")),
        };
        Self { directory, denied }
    }

    /// Whether this is a recorded tree, and not the machine.
    pub fn is_recorded(&self) -> bool {
        self.directory != Path::new("/")
    }

    /// Whether the caller has root's rights; on a recorded tree nobody has.
    pub fn is_caller_root(&self) -> bool {
        // SAFETY: It only asks.
        !self.is_recorded() && unsafe { libc::geteuid() } == 0
    }

    /// Where a path of the tree is for the kernel.
    pub fn path(&self, path: &str) -> PathBuf {
        self.directory.join(path.trim_start_matches('/'))
    }

    /// The contents of a file as text; bytes that are no UTF-8 are replaced.
    pub fn read(&self, path: &str) -> Read {
        self.read_bytes(path)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The contents of a file.
    pub fn read_bytes(&self, path: &str) -> Read<Vec<u8>> {
        self.guarded(path, |path| fs::read(path))
    }

    /// The contents of a file that holds one value, without the white space around it.
    pub fn value(&self, path: &str) -> Option<String> {
        self.read(path)
            .contents()
            .map(|text| text.trim().to_owned())
    }

    /// The number in a file.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.value(path)?.parse().ok()
    }

    /// The sorted names in a directory.
    pub fn list(&self, path: &str) -> Read<Vec<String>> {
        self.guarded(path, names_in)
    }

    /// The sorted names in a directory; none if it cannot be read.
    pub fn names(&self, path: &str) -> Vec<String> {
        self.list(path).contents().unwrap_or_default()
    }

    /// Whether there is something at the path. A path that may not be looked at is not there.
    pub fn exists(&self, path: &str) -> bool {
        !self.is_denied(path) && self.path(path).exists()
    }

    /// What a symbolic link says.
    pub fn link(&self, path: &str) -> Read<PathBuf> {
        self.guarded(path, |path| fs::read_link(path))
    }

    /// The last part of what a symbolic link says: of `device/driver`, the driver's name.
    pub fn link_name(&self, path: &str) -> Option<String> {
        let target = self.link(path).contents()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// The path without symbolic links, as seen from within the tree.
    pub fn resolve(&self, path: &str) -> Read<PathBuf> {
        self.guarded(path, |path| {
            let within = fs::canonicalize(path)?;
            let top = fs::canonicalize(&self.directory)?;
            within
                .strip_prefix(&top)
                .map(|rest| Path::new("/").join(rest))
                .map_err(|_| io::Error::new(io::ErrorKind::NotFound, "leads out of the tree"))
        })
    }

    /// Mode, owner and the like of what is at the path, links followed.
    pub fn metadata(&self, path: &str) -> Read<fs::Metadata> {
        self.guarded(path, |path| fs::metadata(path))
    }

    /// Writes a value to a file of the kernel, which has to be there.
    pub fn write(&self, path: &str, value: &str) -> io::Result<()> {
        if self.is_denied(path) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        fs::OpenOptions::new()
            .write(true)
            .truncate(self.is_recorded())
            .open(self.path(path))
            .and_then(|mut file| io::Write::write_all(&mut file, format!("{value}\n").as_bytes()))
    }

    /// The kernel's release, as `uname -r` says it.
    pub fn release(&self) -> Option<String> {
        self.value("/proc/sys/kernel/osrelease")
    }

    /// The messages of the kernel log, oldest first, from `/dev/kmsg` (a recorded tree has a file
    /// of the same form there).
    pub fn kernel_log(&self) -> Read<Vec<LogLine>> {
        self.guarded("/dev/kmsg", read_kernel_log)
    }

    /// Files of a directory and all below it, by path, as text. Links are not followed.
    pub fn tree(&self, path: &str) -> BTreeMap<String, Read> {
        let mut files = BTreeMap::new();
        self.collect(path, &mut files);
        files
    }

    fn collect(&self, path: &str, files: &mut BTreeMap<String, Read>) {
        let is_directory = fs::symlink_metadata(self.path(path)).is_ok_and(|m| m.is_dir());
        match self.list(path) {
            Read::Contents(names) if is_directory => {
                for name in names {
                    self.collect(&format!("{path}/{name}"), files);
                }
            }
            _ => {
                files.insert(path.to_owned(), self.read(path));
            }
        }
    }

    fn is_denied(&self, path: &str) -> bool {
        let path = without_detours(path);
        self.denied.iter().any(|denied| path.starts_with(denied))
    }

    fn guarded<T>(&self, path: &str, read: impl FnOnce(&Path) -> io::Result<T>) -> Read<T> {
        match self.is_denied(path) {
            true => Read::Denied,
            false => read(&self.path(path)).into(),
        }
    }
}

/// A message of the kernel log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLine {
    /// When, in seconds since boot.
    pub seconds: f64,
    /// What it says, with the prefix of the module.
    pub text: String,
}

impl LogLine {
    /// Reads a record of `/dev/kmsg`: `6,1234,5678901,-;text`.
    fn parse(record: &str) -> Option<Self> {
        let (head, text) = record.split_once(';')?;
        let microseconds: f64 = head.split(',').nth(2)?.parse().ok()?;
        Some(Self {
            seconds: microseconds / 1e6,
            text: text.trim_end().to_owned(),
        })
    }
}

/// Each read of `/dev/kmsg` gives one record, and fails with `EAGAIN` after the last.
fn read_kernel_log(path: &Path) -> io::Result<Vec<LogLine>> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let mut text = Vec::new();
    let mut buffer = [0; 16384];
    loop {
        match io::Read::read(&mut file, &mut buffer) {
            Ok(0) => break,
            Ok(length) => text.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // Records were overwritten before they were read: go on with those that are there.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&text)
        .lines()
        .filter_map(LogLine::parse)
        .collect())
}

fn lines_of(path: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(without_detours).collect()
}

fn names_in(path: &Path) -> io::Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(path)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<_>>()?;
    names.retain(|name| name != ".gitkeep" && name != ".keep");
    names.sort();
    Ok(names)
}

/// `/a//b/./c` is `/a/b/c`.
fn without_detours(path: &str) -> PathBuf {
    Path::new(path)
        .components()
        .filter(|component| *component != Component::CurDir)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_the_kernel_log_is_read() {
        let line = LogLine::parse("3,2145,98765432,-;nvidia_peermem: not loaded: because").unwrap();
        assert_eq!(line.seconds, 98.765432);
        assert_eq!(line.text, "nvidia_peermem: not loaded: because");
        assert_eq!(LogLine::parse(" SUBSYSTEM=pci"), None);
    }

    #[test]
    fn what_is_denied_is_denied_with_all_below() {
        let root = Root {
            directory: "/nowhere".into(),
            denied: vec!["/sys/kernel/debug".into()],
        };
        assert_eq!(root.read("/sys/kernel/debug/x/y"), Read::Denied);
        assert_eq!(root.read("/sys//kernel/./debug"), Read::Denied);
        assert_eq!(root.read("/sys/kernel/debugger"), Read::Missing);
    }
}

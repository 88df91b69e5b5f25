// SPDX-License-Identifier: GPL-2.0

//! `peermem drain`, `live`, `limit` and `reset`: the module's files that can be written.

use std::io;
use std::process::ExitCode;
use std::str::FromStr;

use serde::Serialize;

use crate::cli::Global;
use crate::failure::{Exit, Failure, Outcome};
use crate::module::{self, SYSFS};
use crate::output::{outln, print_json};
use crate::root::{Read, Root};
use crate::units;

/// A limit of pinned bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(u64);

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(0)),
            text => units::parse_bytes(text).map(Self),
        }
    }
}

/// Lets no new registrations of GPU memory in, or lets them in again.
pub fn set_state(root: &Root, state: &str) -> Outcome {
    write(root, "state", state)
}

/// Makes all counters start from 0.
pub fn reset(root: &Root) -> Outcome {
    write(root, "stats_reset", "1")
}

/// Sets the limit, or shows it.
pub fn limit(root: &Root, global: &Global, limit: Option<Limit>) -> Outcome {
    match limit {
        Some(Limit(bytes)) => write(root, "max_pinned_bytes", &bytes.to_string()),
        None => show_limit(root, global),
    }
}

#[derive(Serialize)]
struct ShownLimit {
    max_pinned_bytes: u64,
}

fn show_limit(root: &Root, global: &Global) -> Outcome {
    let max_pinned_bytes = module::Snapshot::read(root)?.max_pinned_bytes;
    match (global.json, max_pinned_bytes) {
        (true, max_pinned_bytes) => print_json(global, &ShownLimit { max_pinned_bytes }),
        (false, 0) => outln!("none"),
        (false, bytes) => outln!("{bytes}"),
    }
    Ok(ExitCode::SUCCESS)
}

fn write(root: &Root, name: &str, value: &str) -> Outcome {
    let path = format!("{SYSFS}/{name}");
    if !module::is_loaded(root) {
        return Err(module::not_loaded());
    }
    root.write(&path, value)
        .map_err(|error| refused(&path, value, &error))?;
    confirm(root, &path, value)
}

fn refused(path: &str, value: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::new(
            Exit::Permission,
            format!("{path} can be written by root only: run it with sudo"),
        ),
        _ => Failure::error(format!("writing {value} to {path}: {error}")),
    }
}

/// Looks whether the module took the value. What can only be written cannot be looked at.
fn confirm(root: &Root, path: &str, value: &str) -> Outcome {
    match root.read(path) {
        Read::Contents(now) if now.trim() != value => Err(Failure::error(format!(
            "{path} is {} after writing {value}",
            now.trim()
        ))),
        _ => Ok(ExitCode::SUCCESS),
    }
}

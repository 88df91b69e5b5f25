// SPDX-License-Identifier: GPL-2.0

//! `peermem stats`: all numbers, for people, as JSON, or for Prometheus.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use crate::cli::Global;
use crate::failure::{Failure, Outcome};
use crate::metrics;
use crate::module::Snapshot;
use crate::output::{json, out};
use crate::root::Root;

/// What to print, and where.
#[derive(Args, Debug)]
pub struct Options {
    /// Print the text exposition format of Prometheus, also with -j
    #[arg(long)]
    prometheus: bool,
    /// Write to a file, which is replaced at once: readers never see half of it
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Prints or writes the numbers.
pub fn run(root: &Root, global: &Global, options: &Options) -> Outcome {
    let text = match options.prometheus {
        true => metrics::exposition(root)?,
        false => plain(&Snapshot::read(root)?, global),
    };
    match &options.output {
        Some(file) => write(file, &text)
            .map_err(|error| Failure::error(format!("{}: {error}", file.display())))?,
        None => out!("{text}"),
    }
    Ok(ExitCode::SUCCESS)
}

fn plain(module: &Snapshot, global: &Global) -> String {
    if global.json {
        return json(global, module) + "\n";
    }
    let value = serde_json::to_value(module).expect("all of it has string keys");
    let mut text = String::new();
    flatten(&mut text, String::new(), &value);
    text
}

/// A line for each value: `stats/active_mrs 3`, as the files are called.
fn flatten(text: &mut String, name: String, value: &Value) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                let name = match name.is_empty() {
                    true => key.clone(),
                    false => format!("{name}/{key}"),
                };
                flatten(text, name, value);
            }
        }
        Value::String(value) => text.push_str(&format!("{name} {value}\n")),
        Value::Null => text.push_str(&format!("{name} unknown\n")),
        value => text.push_str(&format!("{name} {value}\n")),
    }
}

/// A file changes at once or not at all; what a link leads to stays where it is. Anything else, like
/// a pipe, is written to.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    match fs::metadata(file) {
        Ok(known) if !known.is_file() => fs::write(file, text),
        Ok(_) => replace(&fs::canonicalize(file)?, text),
        Err(_) => replace(file, text),
    }
}

/// Writes beside the file first, and then puts that in its place.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let beside = file.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = write_new(&beside, text).and_then(|()| fs::rename(&beside, file));
    if written.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&beside);
    }
    written
}

fn write_new(file: &Path, text: &str) -> std::io::Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(file)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

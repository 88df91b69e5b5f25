// SPDX-License-Identifier: GPL-2.0

//! Runs the program.

use std::process::{Command, Output, Stdio};

use crate::tree::Tree;

/// What a run of the program came to.
pub struct Run {
    /// Its exit code.
    pub code: i32,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().expect("it was not killed"),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// The program, to be run on a tree.
pub fn program(tree: &Tree, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peermem"));
    command
        .args(arguments.split_whitespace())
        .env("PEERMEM_ROOT", tree.directory())
        .env("TZ", "UTC")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub fn run(tree: &Tree, arguments: &str) -> Run {
    program(tree, arguments).output().unwrap().into()
}

/// Runs it to its end on a tree that nothing changes.
pub fn run_on(tree: &str, arguments: &str) -> Run {
    run(&Tree::new(tree), arguments)
}

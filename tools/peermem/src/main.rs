// SPDX-License-Identifier: GPL-2.0

//! `peermem` shows and controls `nvidia_peermem`, the peer-memory client for NVIDIA GPUs.

mod cli;
mod clock;
mod commands;
mod debug;
mod doctor;
mod failure;
mod installed;
mod mask;
mod metrics;
mod module;
mod output;
mod plot;
mod root;
mod screen;
mod skipped;
mod system;
mod units;
mod verbs;

use std::process::ExitCode;

fn main() -> ExitCode {
    die_of_broken_pipes();
    match cli::parse() {
        Ok(arguments) => run(&arguments),
        Err(code) => code,
    }
}

fn run(arguments: &cli::Arguments) -> ExitCode {
    let root = root::Root::from_environment();
    cli::dispatch(&root, arguments).unwrap_or_else(|failure| failure.report())
}

/// Ends quietly when the reader of a pipe has gone, as `peermem show mr | head` should.
fn die_of_broken_pipes() {
    // SAFETY: No other thread runs yet, and the default action needs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

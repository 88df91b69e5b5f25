// SPDX-License-Identifier: GPL-2.0

//! `peermem completion` and `peermem man`: files made of the command line's own description.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::roff::{roman, Roff};
use clap_mangen::Man;

use crate::failure::{Failure, Outcome};
use crate::output::out;

/// What the man page says beyond the options.
const SECTIONS: [(&str, &[&str]); 3] = [
    (
        "EXIT STATUS",
        &[
            "0: success. For status: the module is loaded and takes registrations.",
            "1: an error.",
            "2: the command line is wrong.",
            "3: the module is not loaded.",
            "4: for status: the module is loaded, but drains.",
            "5: the caller may not do or see this.",
            "doctor has codes of its own: 0 all well, 1 warnings, 2 failures.",
        ],
    ),
    (
        "ENVIRONMENT",
        &[
            "NO_COLOR: if it is not empty, no colours are used.",
            "PEERMEM_ROOT: a directory that stands for /. Everything is read from the recorded tree there.",
        ],
    ),
    (
        "FILES",
        &[
            "/sys/kernel/nvidia_peermem: state, control files and counters of the module.",
            "/sys/kernel/debug/nvidia_peermem: registrations, failures and latencies, for root.",
        ],
    ),
];

/// Prints the completion for a shell.
pub fn completion(command: &mut Command, shell: Shell) -> Outcome {
    clap_complete::generate(shell, command, "peermem", &mut io::stdout());
    Ok(ExitCode::SUCCESS)
}

/// Prints the man page, or writes it and those of the commands to a directory.
pub fn man(command: Command, directory: Option<&Path>) -> Outcome {
    match directory {
        None => main_page(command.disable_help_subcommand(true)).map(|page| out!("{page}")),
        Some(directory) => write_pages(command, directory),
    }
    .map(|()| ExitCode::SUCCESS)
    .map_err(|error| Failure::error(format!("man pages: {error}")))
}

fn write_pages(command: Command, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write_below(&command, "peermem", directory)?;
    fs::write(page_file(directory, "peermem"), main_page(command)?)
}

/// Writes the pages of the commands below a command.
fn write_below(command: &Command, name: &str, directory: &Path) -> io::Result<()> {
    let visible = |sub: &&Command| !sub.is_hide_set();
    for sub in command.get_subcommands().filter(visible) {
        let name = format!("{name}-{}", sub.get_name());
        let text = page(sub.clone().name(name.clone()))?;
        fs::write(page_file(directory, &name), text)?;
        write_below(sub, &name, directory)?;
    }
    Ok(())
}

fn page_file(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.8"))
}

fn man_of(command: Command) -> Man {
    Man::new(command)
        .section("8")
        .manual("System Administration")
}

fn page(command: Command) -> io::Result<String> {
    let mut text = Vec::new();
    man_of(command).render(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn main_page(command: Command) -> io::Result<String> {
    let mut page = page(command)?;
    let mut roff = Roff::new();
    for (heading, lines) in SECTIONS {
        roff.control("SH", [heading]);
        for line in lines {
            roff.control("TP", []);
            let (term, text) = line.split_once(": ").unwrap_or((line, ""));
            roff.text([roman(term)]);
            roff.text([roman(text)]);
        }
    }
    page.push_str(&roff.render());
    Ok(page)
}

// SPDX-License-Identifier: GPL-2.0

//! The command line, with the conventions of iproute2's `rdma`: options before the command,
//! commands that may be abbreviated, `help` everywhere.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::commands::control::{self, Limit};
use crate::commands::{bench, generate, report, show, stats, status, top, watch};
use crate::doctor;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{out, When};
use crate::root::Root;

/// Options of all commands.
#[derive(Args, Clone, Debug, Default)]
pub struct Global {
    /// Print JSON
    #[arg(short, long, global = true)]
    pub json: bool,
    /// Make the JSON readable
    #[arg(short, long, global = true)]
    pub pretty: bool,
    /// Show more
    #[arg(short, long, global = true)]
    pub details: bool,
    /// When to use colours
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value = "auto"
    )]
    pub color: When,
}

/// Show and control nvidia_peermem, the peer-memory client for NVIDIA GPUs
///
/// Commands may be abbreviated as long as they are unambiguous. "peermem COMMAND help" explains
/// each.
#[derive(Parser, Debug)]
#[command(name = "peermem", version, infer_subcommands = true)]
pub struct Arguments {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Show on one screen whether the module is loaded, what it serves, and how much
    ///
    /// The exit code is 0 if registrations are taken, 3 if the module is not loaded, and 4 if it
    /// drains.
    Status,
    /// Find out what is wrong with this machine, and what to do
    ///
    /// The exit code is 0 if all is well, 1 with warnings, and 2 with failures.
    Doctor {
        /// Only these checks
        #[arg(value_name = "CHECK")]
        checks: Vec<String>,
    },
    /// Show objects, one a line
    #[command(infer_subcommands = true)]
    Show {
        #[command(subcommand)]
        object: show::Object,
    },
    /// Show who registers what, live
    Top(top::Options),
    /// Print a line for each event
    Watch(watch::Options),
    /// Print all counters
    Stats(stats::Options),
    /// Measure how long registering memory takes
    Bench(bench::Options),
    /// Write one archive with all that a bug report needs
    Report(report::Options),
    /// Take no new registrations; those that exist go on
    Drain,
    /// Take new registrations again
    Live,
    /// Limit the bytes that are pinned, or show the limit
    Limit {
        /// Bytes, with or without K, M, G or T; "none" for no limit
        #[arg(value_name = "BYTES|none")]
        limit: Option<Limit>,
    },
    /// Start all counters from 0
    Reset,
    /// Print the completion for a shell
    Completion {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Print the man page
    #[command(hide = true)]
    Man {
        /// Write it there, with a page for each command
        #[arg(value_name = "DIRECTORY")]
        directory: Option<PathBuf>,
    },
}

/// The command line, or the exit code if that was all there is to do.
pub fn parse() -> Result<Arguments, ExitCode> {
    let arguments = with_help(std::env::args_os().collect());
    Arguments::try_parse_from(arguments).map_err(|error| explain(&error))
}

/// `peermem show mr help` is `peermem show mr --help`. The last word of an option may be its value.
fn with_help(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if let [_, .., before, last] = arguments.as_mut_slice() {
        let is_value = before.to_string_lossy().starts_with("--");
        if last == "help" && !is_value {
            *last = "--help".into();
        }
    }
    arguments
}

/// Help goes to standard output; an error is one line.
fn explain(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            out!("{}", error.render());
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            eprint!("{}", error.render());
            Exit::Usage.into()
        }
        _ => Failure::new(Exit::Usage, one_line(error)).report(),
    }
}

/// What is wrong, and what was perhaps meant.
fn one_line(error: &clap::Error) -> String {
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) {
        return wrong_command(word, names(error));
    }
    let text = error.render().to_string();
    let what = text.lines().next().unwrap_or_default();
    let what = what.trim_start_matches("error: ").trim_end_matches(':');
    let names = names(error);
    match names.is_empty() {
        true => format!("{what}; see `peermem help`"),
        false => format!("{what}: {}", names.join(", ")),
    }
}

/// A word that is no command: the beginning of several, or of none.
fn wrong_command(word: &str, similar: Vec<String>) -> String {
    let begun: Vec<&str> = similar
        .iter()
        .map(String::as_str)
        .filter(|name| name.starts_with(word))
        .collect();
    match (begun.as_slice(), similar.as_slice()) {
        ([], []) => format!("unknown command '{word}'; see `peermem help`"),
        ([], similar) => format!("unknown command '{word}': perhaps {}", similar.join(", ")),
        (begun, _) => format!("ambiguous command '{word}': {}", begun.join(", ")),
    }
}

/// The names that clap lists with the error: those that are possible, or similar, or missing.
fn names(error: &clap::Error) -> Vec<String> {
    let kinds = match error.kind() {
        ErrorKind::MissingRequiredArgument => vec![ContextKind::InvalidArg],
        ErrorKind::InvalidValue => vec![ContextKind::ValidValue],
        _ => vec![
            ContextKind::SuggestedSubcommand,
            ContextKind::ValidSubcommand,
            ContextKind::SuggestedArg,
        ],
    };
    kinds
        .into_iter()
        .filter_map(|kind| error.get(kind))
        .flat_map(|value| match value {
            ContextValue::String(name) => vec![name.clone()],
            ContextValue::Strings(names) => names.clone(),
            _ => Vec::new(),
        })
        .collect()
}

/// Runs the command.
pub fn dispatch(root: &Root, arguments: &Arguments) -> Outcome {
    let global = &arguments.global;
    match &arguments.command {
        Command::Status => status::run(root, global),
        Command::Doctor { checks } => Ok(doctor::run(root, global, checks)),
        Command::Show { object } => show::run(root, global, object),
        Command::Top(options) => top::run(root, global, options),
        Command::Watch(options) => watch::run(root, global, options),
        Command::Stats(options) => stats::run(root, global, options),
        Command::Bench(options) => bench::run(root, global, options),
        Command::Report(options) => report::run(root, options),
        Command::Drain => control::set_state(root, "drain"),
        Command::Live => control::set_state(root, "live"),
        Command::Limit { limit } => control::limit(root, global, *limit),
        Command::Reset => control::reset(root),
        Command::Completion { shell } => generate::completion(&mut Arguments::command(), *shell),
        Command::Man { directory } => generate::man(Arguments::command(), directory.as_deref()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_of_the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }
}

// SPDX-License-Identifier: GPL-2.0

//! `peermem doctor`: what is wrong with this machine, and what to do.
//!
//! A check reads the machine and says what it found; the table of all is in `checks`. No check
//! changes anything, and none needs root: what it cannot read, it says.

mod advice;
mod checks;
mod elf;
mod facts;
mod gpu;
mod kernel;
pub mod ko;
mod module;
mod pci;
mod pcie;
mod rdma;
mod user;
mod verdict;

use std::process::ExitCode;

use serde::Serialize;

use self::checks::{Check, CHECKS};
use self::facts::Machine;
use self::verdict::{Status, Verdict};
use crate::cli::Global;
use crate::failure::{Exit, Failure};
use crate::output::{outln, print_json, Paint};
use crate::root::Root;

/// What is printed of a check as JSON.
#[derive(Serialize)]
struct Item<'a> {
    id: &'a str,
    status: Status,
    title: &'a str,
    detail: &'a str,
    hint: Option<String>,
    source: &'a str,
}

/// Runs these checks, or all; the exit code is 0, 1 with warnings, or 2 with failures.
pub fn run(root: &Root, global: &Global, names: &[String]) -> ExitCode {
    let checks = match chosen(names) {
        Ok(checks) => checks,
        Err(failure) => return failure.report(),
    };
    let machine = Machine::new(root);
    let results: Vec<_> = checks
        .into_iter()
        .map(|check| (check, (check.run)(&machine)))
        .collect();
    match global.json {
        true => print_items(global, &results),
        false => print_table(global, &results),
    }
    let worst = results.iter().map(|(_, verdict)| verdict.status).max();
    match worst {
        Some(Status::Fail) => ExitCode::from(2),
        Some(Status::Warn) => ExitCode::from(1),
        _ => ExitCode::SUCCESS,
    }
}

/// The checks with these ids or names, as far as a name begins like this; all without names.
fn chosen(names: &[String]) -> Result<Vec<&'static Check>, Failure> {
    if names.is_empty() {
        return Ok(CHECKS.iter().collect());
    }
    let mut checks = Vec::new();
    for name in names {
        let matches: Vec<_> = CHECKS
            .iter()
            .filter(|check| is_named(check, name))
            .collect();
        if matches.is_empty() {
            return Err(no_such_check(name));
        }
        checks.extend(matches);
    }
    Ok(checks)
}

/// A check answers to its id, its name, and the letter of its group.
fn is_named(check: &Check, name: &str) -> bool {
    let group = check.id.trim_end_matches(|c: char| c.is_ascii_digit());
    [check.id, check.name, group]
        .iter()
        .any(|known| known.eq_ignore_ascii_case(name))
}

fn no_such_check(name: &str) -> Failure {
    let known: Vec<_> = CHECKS
        .iter()
        .map(|check| format!("{} {}", check.id, check.name))
        .collect();
    Failure::new(
        Exit::Usage,
        format!("no check is called {name}; there are {}", known.join(", ")),
    )
}

fn print_items(global: &Global, results: &[(&Check, Verdict)]) {
    let items: Vec<_> = results
        .iter()
        .map(|(check, verdict)| Item {
            id: check.id,
            status: verdict.status,
            title: check.title,
            detail: &verdict.detail,
            hint: (!verdict.hints.is_empty()).then(|| verdict.hints.join("\n")),
            source: &verdict.source,
        })
        .collect();
    print_json(global, &items);
}

fn print_table(global: &Global, results: &[(&Check, Verdict)]) {
    let paint = Paint::new(global);
    let width = |text: fn(&Check) -> &str| {
        let widths = results.iter().map(|(check, _)| text(check).len());
        widths.max().unwrap_or(0)
    };
    let (id, title) = (width(|check| check.id), width(|check| check.title));
    for (check, verdict) in results {
        outln!(
            "{:id$}  {}  {:title$}  {}",
            check.id,
            painted(paint, verdict.status),
            check.title,
            verdict.detail
        );
        let indent = " ".repeat(id + 8);
        for hint in &verdict.hints {
            outln!("{indent}-> {hint}");
        }
        if global.details {
            outln!("{indent}{}", paint.dim(&verdict.source));
        }
    }
    outln!("{}", summary(results));
}

/// The status in its colour, in a field of four.
fn painted(paint: Paint, status: Status) -> String {
    let text = format!("{:4}", status.name());
    match status {
        Status::Ok => paint.good(&text),
        Status::Warn => paint.warning(&text),
        Status::Fail => paint.bad(&text),
        Status::Skip => paint.dim(&text),
    }
}

fn summary(results: &[(&Check, Verdict)]) -> String {
    let count = |status| {
        let matching = results.iter().filter(|(_, v)| v.status == status);
        format!("{} {}", matching.count(), status.name())
    };
    [Status::Ok, Status::Warn, Status::Fail, Status::Skip]
        .map(count)
        .join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_and_names_are_unique() {
        let ids: BTreeSet<_> = CHECKS.iter().map(|check| check.id).collect();
        let names: BTreeSet<_> = CHECKS.iter().map(|check| check.name).collect();
        assert_eq!(ids.len(), CHECKS.len());
        assert_eq!(names.len(), CHECKS.len());
        assert!(ids.is_disjoint(&names));
    }

    #[test]
    fn checks_are_chosen_by_id_name_and_group() {
        let ids = |names: &[&str]| -> Vec<&str> {
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            let checks = chosen(&names).unwrap();
            checks.iter().map(|check| check.id).collect()
        };
        assert_eq!(ids(&["k1", "acs"]), ["K1", "P2"]);
        assert_eq!(ids(&["D"]), ["D1"]);
        assert_eq!(ids(&[]).len(), CHECKS.len());
        assert!(chosen(&["nonsense".to_owned()]).is_err());
    }

    #[test]
    fn an_empty_tree_is_survived_by_all_checks() {
        let root = Root::at("/nowhere");
        let machine = Machine::new(&root);
        for check in CHECKS {
            let verdict = (check.run)(&machine);
            assert!(!verdict.detail.is_empty(), "{}", check.id);
            assert!(!verdict.source.is_empty(), "{}", check.id);
            let bad = verdict.status >= Status::Warn;
            assert_eq!(bad, !verdict.hints.is_empty(), "{}", check.id);
        }
    }
}

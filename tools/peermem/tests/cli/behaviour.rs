// SPDX-License-Identifier: GPL-2.0

//! What the program does beyond printing the same for the same.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::program::{program, run, run_on, Run};
use crate::schema::valid;
use crate::tree::Tree;

const SYSFS: &str = "/sys/kernel/nvidia_peermem";
const DEBUGFS: &str = "/sys/kernel/debug/nvidia_peermem";

#[test]
fn commands_can_be_abbreviated() {
    for (short, long) in [
        ("statu", "status"),
        ("stats", "stats"),
        ("sh m", "show mr"),
        ("sho cl", "show client"),
        ("lim", "limit"),
    ] {
        let (short, long) = (run_on("busy", short), run_on("busy", long));
        assert_eq!(short.out, long.out);
        assert_eq!(short.code, 0);
    }
}

#[test]
fn an_abbreviation_that_fits_two_commands_names_both() {
    let run = run_on("busy", "st");
    assert_eq!(run.code, 2);
    assert!(
        run.err.contains("status") && run.err.contains("stats"),
        "{}",
        run.err
    );
}

#[test]
fn options_may_stand_after_the_command() {
    assert_eq!(
        run_on("busy", "show mr -j").out,
        run_on("busy", "-j show mr").out
    );
}

#[test]
fn errors_are_one_line_on_standard_error() {
    for arguments in [
        "show mr",
        "drain",
        "frobnicate",
        "limit x",
        "top",
        "stats",
        "status x",
    ] {
        let run = run_on("not-loaded", arguments);
        assert_eq!(run.out, "", "{arguments}");
        assert_eq!(run.err.lines().count(), 1, "{}", run.err);
        assert!(run.err.starts_with("peermem: "), "{}", run.err);
    }
}

#[test]
fn exit_codes_are_those_of_the_manual() {
    for (tree, arguments, code) in [
        ("idle", "status", 0),
        ("drain", "status", 4),
        ("not-loaded", "status", 3),
        ("nvidias-own", "status", 3),
        ("drain", "show mr", 0),
        ("not-loaded", "stats", 3),
        ("not-loaded", "stats --prometheus", 0),
        ("unprivileged", "show mr", 5),
        ("no-debugfs", "show mr", 1),
        ("idle", "frobnicate", 2),
    ] {
        assert_eq!(run_on(tree, arguments).code, code, "[{tree}] {arguments}");
    }
}

#[test]
fn colours_are_used_only_where_they_are_wanted() {
    let tree = Tree::new("busy");
    let coloured = |arguments: &str, no_color: &str| {
        let output = program(&tree, arguments).env("NO_COLOR", no_color).output();
        Run::from(output.unwrap()).out.contains('\x1b')
    };
    assert!(!coloured("status", ""), "there is no terminal");
    assert!(!coloured("--color never status", ""));
    assert!(coloured("--color always status", ""));
    assert!(
        coloured("--color always status", "1"),
        "the option is the stronger wish"
    );
}

/// Python gives the program a terminal.
#[test]
fn no_color_is_obeyed_on_a_terminal() {
    let tree = Tree::new("busy");
    let on_terminal = |no_color: &str| {
        let output = std::process::Command::new("python3")
            .args(["-c", "import pty, sys; pty.spawn(sys.argv[1:])"])
            .args([env!("CARGO_BIN_EXE_peermem"), "status"])
            .env("PEERMEM_ROOT", tree.directory())
            .env("TERM", "xterm")
            .env("NO_COLOR", no_color)
            .stdin(Stdio::null())
            .output();
        Run::from(output.expect("python3 is there")).out
    };
    assert!(on_terminal("").contains("\x1b[32mlive"));
    let plain = on_terminal("1");
    assert!(plain.contains("live") && !plain.contains('\x1b'), "{plain}");
}

#[test]
fn a_reader_that_goes_is_no_error() {
    let tree = Tree::new("busy");
    let mut child = program(&tree, "top -b -i 0.01")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn a_full_disk_is_told_in_one_line() {
    let tree = Tree::new("busy");
    for arguments in ["status", "-j status", "show mr", "doctor"] {
        let full = fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let output = program(&tree, arguments).stdout(full).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments}");
        assert!(
            error.starts_with("peermem: standard output: ") && error.lines().count() == 1,
            "{error}"
        );
    }
}

#[test]
fn a_link_to_the_figures_stays() {
    let tree = Tree::new("busy");
    let (file, link) = (
        tree.directory().join("figures"),
        tree.directory().join("link"),
    );
    fs::write(&file, "old").unwrap();
    symlink(&file, &link).unwrap();
    run(
        &tree,
        &format!("stats --prometheus --output {}", link.display()),
    );
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::read_to_string(&file)
        .unwrap()
        .contains("nvidia_peermem_up 1"));
}

#[test]
fn figures_go_into_a_pipe_and_do_not_replace_it() {
    let tree = Tree::new("busy");
    let pipe = tree.directory().join("pipe");
    assert!(Command::new("mkfifo")
        .arg(&pipe)
        .status()
        .unwrap()
        .success());
    let reading = thread::spawn({
        let pipe = pipe.clone();
        move || fs::read_to_string(pipe).unwrap()
    });
    run(
        &tree,
        &format!("stats --prometheus --output {}", pipe.display()),
    );
    assert!(!fs::metadata(&pipe).unwrap().is_file());
    assert!(reading.join().unwrap().contains("nvidia_peermem_up 1"));
}

#[test]
fn control_files_are_written() {
    let tree = Tree::new("busy");
    for (arguments, file, value) in [
        ("drain", "state", "drain\n"),
        ("live", "state", "live\n"),
        ("limit 16G", "max_pinned_bytes", "17179869184\n"),
        ("limit none", "max_pinned_bytes", "0\n"),
        ("reset", "stats_reset", "1\n"),
    ] {
        let run = run(&tree, arguments);
        assert_eq!(
            (run.code, run.out.as_str(), run.err.as_str()),
            (0, "", ""),
            "{arguments}"
        );
        assert_eq!(tree.read(&format!("{SYSFS}/{file}")), value);
    }
}

#[test]
fn a_module_of_another_version_is_told_from_one_that_is_not_loaded() {
    let tree = Tree::new("busy");
    tree.remove(&format!("{SYSFS}/stats/orphans"));
    let run = run(&tree, "status");
    assert_eq!(run.code, 1);
    assert!(run.err.contains("different versions"), "{}", run.err);
}

#[test]
fn a_process_cannot_command_the_terminal() {
    let tree = Tree::new("busy");
    let file = format!("{DEBUGFS}/registrations");
    tree.write(
        &file,
        &tree.read(&file).replace("python3", "\x1b[2Jpython3"),
    );
    for arguments in ["show mr", "top -b -n 1", "-j show mr"] {
        let run = run(&tree, arguments);
        assert!(
            run.out.contains("?[2Jpython3") && !run.out.contains('\x1b'),
            "{}",
            run.out
        );
    }
}

#[test]
fn stats_replace_a_file_at_once() {
    let tree = Tree::new("busy");
    tree.write("/metrics/old.prom", "old\n");
    let file = tree.directory().join("metrics/old.prom");
    let run = run(
        &tree,
        &format!("stats --prometheus --output {}", file.display()),
    );
    assert_eq!((run.code, run.out.as_str()), (0, ""));
    assert_eq!(
        tree.read("/metrics/old.prom"),
        run_on("busy", "stats --prometheus").out
    );
    assert_eq!(
        std::fs::read_dir(file.parent().unwrap()).unwrap().count(),
        1
    );
}

#[test]
fn stats_that_cannot_be_written_are_an_error() {
    let run = run_on("busy", "stats --output /nonexistent/file");
    assert_eq!(run.code, 1);
    assert!(
        run.err.contains("/nonexistent/file: No such file"),
        "{}",
        run.err
    );
}

/// Runs `watch`, changes the tree after its first look, and gives what it printed.
fn watched(tree: &Tree, arguments: &str, change: impl FnOnce()) -> Run {
    let command = format!("{arguments} --interval 0.1 --count 40");
    let child = program(tree, &command)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(1500));
    change();
    child.wait_with_output().unwrap().into()
}

/// A registration goes, one comes, one fails, the state changes, and memory is invalidated.
fn five_events(tree: &Tree) {
    let file = format!("{DEBUGFS}/registrations");
    let old = tree.read(&file);
    let new = old.lines().next().unwrap().replace("id=7", "id=99");
    let (_, kept) = old.split_once('\n').unwrap();
    tree.write(&file, &format!("{kept}{new}\n"));
    let file = format!("{DEBUGFS}/failures");
    let failure = "time=3000.5 pid=1 length=65536 stage=acquire errno=-11 reason=drain comm=x";
    tree.write(&file, &format!("{}{failure}\n", tree.read(&file)));
    tree.write(&format!("{SYSFS}/state"), "drain\n");
    tree.write(&format!("{SYSFS}/stats/invalidations"), "2\n");
}

#[test]
fn watch_tells_of_each_registration_and_failure() {
    let tree = Tree::new("busy");
    let run = watched(&tree, "watch", || five_events(&tree));
    let lines: Vec<&str> = run
        .out
        .lines()
        .map(|line| line.split_once(' ').unwrap().1)
        .collect();
    let has = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count();
    assert_eq!(has("- mr 7 pid 4711"), 1, "{}", run.out);
    assert_eq!(has("+ mr 99 pid 4711"), 1, "{}", run.out);
    assert_eq!(
        has("! failure 3000.500000 pid 1 comm x len 65536 stage acquire error EAGAIN"),
        1
    );
    assert_eq!(has("* state live -> drain"), 1);
    assert_eq!(has("* counter invalidations by 2 to 2"), 1);
    assert_eq!(lines.len(), 5, "{}", run.out);
}

#[test]
fn watch_prints_json() {
    let tree = Tree::new("busy");
    let run = watched(&tree, "-j watch", || five_events(&tree));
    valid("watch", &run.out);
    assert_eq!(run.out.lines().count(), 5, "{}", run.out);
}

#[test]
fn watch_counts_what_it_may_not_see() {
    let tree = Tree::new("unprivileged");
    let run = watched(&tree, "-j watch", || {
        tree.write(&format!("{SYSFS}/clients/nv_mem/num_alloc_mrs"), "15\n");
        tree.write(&format!("{SYSFS}/failures/limit"), "1\n");
    });
    assert!(run.err.contains("without root"), "{}", run.err);
    valid("watch", &run.out);
    let mut events: Vec<serde_json::Value> = run
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    events.sort_by_key(|event| event["counter"].to_string());
    assert_eq!(events.len(), 2, "{}", run.out);
    assert_eq!(
        (events[0]["counter"].as_str(), events[0]["by"].as_u64()),
        (Some("failures/limit"), Some(1))
    );
    assert_eq!(events[1]["counter"], "nv_mem/num_alloc_mrs");
    assert_eq!(events[1]["by"], 3);
}

#[test]
fn watch_waits_for_the_module() {
    let tree = Tree::new("idle");
    let kept = tree.directory().join("kept");
    let place = tree.directory().join("sys/kernel/nvidia_peermem");
    std::fs::rename(&place, &kept).unwrap();
    let run = watched(&tree, "watch", || std::fs::rename(&kept, &place).unwrap());
    assert!(run.err.contains("waiting for it"), "{}", run.err);
    assert!(
        run.out.trim_end().ends_with("+ module loaded"),
        "{}",
        run.out
    );
}

#[test]
fn bench_says_what_it_lacks() {
    let run = run_on("idle", "bench --device nonexistent0");
    assert_eq!(run.code, 1);
    let known = [
        "libibverbs.so.1 cannot be loaded",
        "no RDMA device",
        "no list of RDMA devices",
    ];
    assert!(
        known.iter().any(|text| run.err.contains(text)),
        "{}",
        run.err
    );
    assert_eq!(
        run.err
            .lines()
            .filter(|line| line.starts_with("peermem: "))
            .count(),
        1
    );
}

#[test]
fn completions_are_there_for_each_shell() {
    for (shell, words) in [
        ("bash", "_peermem()"),
        ("zsh", "#compdef peermem"),
        ("fish", "complete -c peermem"),
    ] {
        let run = run_on("idle", &format!("completion {shell}"));
        assert!(run.code == 0 && run.out.contains(words), "{shell}");
    }
}

#[test]
fn bash_takes_its_completion() {
    let tree = Tree::new("idle");
    let completion = run(&tree, "completion bash").out;
    let script = format!(
        "{completion}\nCOMP_WORDS=(peermem sh); COMP_CWORD=1; _peermem peermem sh peermem\n\
         echo \"${{COMPREPLY[*]}}\"\n"
    );
    let mut bash = std::process::Command::new("bash")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    bash.stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    let run = Run::from(bash.wait_with_output().unwrap());
    assert_eq!(run.out, "show\n");
}

#[test]
fn each_command_has_a_man_page() {
    let tree = Tree::new("idle");
    let pages = tree.directory().join("man");
    assert_eq!(run(&tree, &format!("man {}", pages.display())).code, 0);
    for command in [
        "", "-status", "-show", "-top", "-watch", "-stats", "-bench", "-report", "-limit",
        "-doctor",
    ] {
        let page = tree.read(&format!("/man/peermem{command}.8"));
        assert!(
            page.contains(".TH") && page.contains(".SH NAME"),
            "{command}"
        );
    }
    assert!(tree.read("/man/peermem.8").contains("EXIT STATUS"));
}

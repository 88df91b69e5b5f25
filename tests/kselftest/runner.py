#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Runs test files, each in a process of its own, and looks at the machine after each."""

import os
import re
import runpy
import signal
import sys
import time
from pathlib import Path

import peermem.verbs  # noqa: F401  once for all: it takes seconds on an emulated CPU
from peermem import equipment, ktap, modules
from peermem.mode import MODE

HERE = Path(__file__).parent
TIME_LIMIT = int(os.environ.get("PEERMEM_TIME_LIMIT", 600))  # seconds, for a file
# In the module's own lines: an address tells an attacker where things are.
IMPROPER = re.compile(r"^nvidia[-_]peermem\b.*(0x[fF]{4}|\b[0-9a-fA-F]{16}\b|invalid context)")
CRASHED = 70
RESULT = re.compile(r"(ok|not ok) \d+ - (.*)")


class Report:
    """One stream of numbered results."""

    def __init__(self):
        self.results = []

    def add(self, passed, name):
        self.results.append("failed" if not passed else "skipped" if "# SKIP" in name else "passed")
        print("ok" if passed else "not ok", len(self.results), "-", name, flush=True)

    def count(self, result):
        return self.results.count(result)


def start(path):
    """The test file in a child; returns its pid, and its output to read."""
    output, end = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(end)
        return pid, os.fdopen(output)
    os.setpgid(0, 0)
    os.dup2(end, 1)
    os.dup2(end, 2)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(TIME_LIMIT)
    try:
        sys.argv = [str(path)]
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as ended:
        os._exit(ended.code or 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    os._exit(CRASHED)


def run(path, report):
    """Whether it ran to its end."""
    planned, seen = None, 0
    pid, output = start(path)
    for line in output:
        result = RESULT.match(line)
        if result:
            seen += 1
            report.add(result[1] == "ok", f"{path.stem}: {result[2]}")
        elif line.startswith("1.."):
            planned = int(line[3:].split()[0])
        elif not line.startswith(("TAP version", "# Totals")):
            print("#", line.lstrip("# ").rstrip(), flush=True)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if planned == 0 and status == ktap.SKIPPED:
        report.add(True, f"{path.stem} # SKIP nothing for mode {MODE}")
        return True
    if planned and ktap.from_case:
        planned -= ktap.from_case - 1
    whole = seen and planned == seen and status in (ktap.PASSED, ktap.FAILED, ktap.SKIPPED)
    if not whole:
        report.add(False, f"{path.stem}: all of its cases ({seen} of {planned}, status {status})")
    return whole


def look_around(name, log, report):
    """Whether the machine is as before."""
    trouble = [line for line in log.lines("") if modules.TROUBLE.search(line) or IMPROPER.search(line)]
    ktap.say("\n".join(trouble))
    report.add(not trouble, f"{name}: kernel log is clean")
    complaints = equipment.new_complaints()
    ktap.say("\n".join(f"{what}: {last}" for what, last in complaints.items()))
    report.add(not complaints, f"{name}: the equipment has no complaint")
    left = equipment.leftovers()
    if not modules.is_loaded(modules.PEERMEM):
        left["nvidia_peermem"] = "not loaded"
    ktap.say("\n".join(f"{what}: {value}" for what, value in left.items()))
    report.add(not left, f"{name}: nothing is left behind")
    return not (trouble or left)


def main():
    names = [Path(name).stem for name in sys.argv[1:]]
    files = [HERE / f"{name}.py" for name in names] or sorted(
        path for path in HERE.glob("*.py")
        if path.name != Path(__file__).name and not path.name.startswith("debug_"))
    unknown = [path.stem for path in files if not path.exists()]
    if unknown:
        sys.exit(f"no test called {', '.join(unknown)}; see {HERE}")
    report = Report()
    modules.into_mode()
    print("TAP version 13")
    for path in files:
        began = time.monotonic()
        with modules.KernelLog() as log:
            clean = run(path, report)
            clean &= look_around(path.stem, log, report)
        ktap.say(f"{path.stem} took {time.monotonic() - began:.1f} s")
        if ktap.from_case:
            if not clean:
                break
            ktap.from_case = 1
    print(f"1..{len(report.results)}")
    passed, failed, skipped = map(report.count, ("passed", "failed", "skipped"))
    print(f"# Totals: pass:{passed} fail:{failed} xfail:0 xpass:0 skip:{skipped} error:0")
    sys.exit(ktap.FAILED if failed else ktap.PASSED if passed else ktap.SKIPPED)


main()

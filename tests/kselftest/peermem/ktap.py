# SPDX-License-Identifier: GPL-2.0
"""TAP 13 with the exit codes of kselftest: mark functions as cases, call main()."""

import os
import re
import sys
import time
import traceback
from pathlib import Path

from peermem.mode import MODE, REFERENCE
from peermem.modules import TROUBLE, KernelLog

PASSED, FAILED, SKIPPED = 0, 1, 4

# Only cases whose name matches: to look at one of them.
_WANTED = re.compile(os.environ.get("PEERMEM_CASES", ""))

# Not 0: begin with the case of that number, and end at the first that does not leave the machine as
# it was: what comes after it would run on the rest. The kernel log names each.
from_case = int(os.environ.get("PEERMEM_FROM_CASE", 0))

# Seconds to wait for what takes a moment, unless it hangs.
PATIENCE = int(os.environ.get("PEERMEM_PATIENCE", 60))

_cases = []


class Skip(Exception):
    """The case cannot run here; the text says why."""


def case(name, values=(None,), ours_only=None, only_if=True):
    """A case of its own for each value, which the function gets (a tuple as several
    arguments) and the name shows. ours_only says why NVIDIA's module would fail. only_if is
    for what another mode (peermem/mode.py) does not have: there is no such case then."""

    def add(function):
        for value in values if only_if else ():
            arguments = () if value is None else value if isinstance(value, tuple) else (value,)
            full_name = name.format(*arguments)
            if _WANTED.search(full_name):
                _cases.append((full_name, function, arguments, ours_only))
        return function

    return add


def say(text):
    """A line, or several, for whoever reads the log."""
    for line in str(text).splitlines():
        print("#", line, flush=True)


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def expect_equal(got, wanted, what):
    expect(got == wanted, f"{what}: {got!r} instead of {wanted!r}")


def eventually(condition, what, seconds=PATIENCE):
    """Waits until condition() holds."""
    end = time.monotonic() + seconds
    while not condition():
        expect(time.monotonic() < end, f"not within {seconds} s: {what}")
        time.sleep(0.02)


def _passes(function, arguments=()):
    """Runs it, and tells what went wrong if it fails."""
    try:
        function(*arguments)
        return True
    except AssertionError as error:
        say(error)
    except Skip:
        raise
    except Exception:
        say(traceback.format_exc())
    return False


def _run(function, arguments, ours_only, after_each):
    """Verdict, what to add to the line, and whether the machine is as before."""
    if ours_only and REFERENCE:
        return SKIPPED, f"reference module: {ours_only}", True
    try:
        passed = _passes(function, arguments)
    except Skip as reason:
        return SKIPPED, str(reason), True
    clean = not after_each or _passes(after_each)
    passed = passed and clean
    # A complaint comes once, what is left stays.
    return PASSED if passed else FAILED, "", clean or _passes(after_each)


def _announce(number, name):
    with open("/dev/kmsg", "w") as log:
        log.write(f"kselftest: {Path(sys.argv[0]).stem} {number} of {len(_cases)}: {name}\n")


def main(after_each=None):
    """Runs the cases; after_each() is part of each of them."""
    print("TAP version 13")
    if not _cases:
        print(f"1..0 # SKIP nothing for mode {MODE}", flush=True)
        sys.exit(SKIPPED)
    print(f"1..{len(_cases)}", flush=True)
    verdicts = []
    kernel_log = KernelLog() if from_case else None
    for number, (name, function, arguments, ours_only) in enumerate(_cases, 1):
        if number < from_case:
            continue
        if from_case:
            _announce(number, name)
        verdict, remark, clean = _run(function, arguments, ours_only, after_each)
        verdicts.append(verdict)
        line = "not ok" if verdict == FAILED else "ok"
        directive = f" # SKIP {remark}" if verdict == SKIPPED else ""
        print(f"{line} {number} - {name}{directive}", flush=True)
        if from_case and not (clean and not any(map(TROUBLE.search, kernel_log.lines("")))):
            break
    passed, failed, skipped = (verdicts.count(v) for v in (PASSED, FAILED, SKIPPED))
    print(f"# Totals: pass:{passed} fail:{failed} xfail:0 xpass:0 skip:{skipped} error:0",
          flush=True)
    sys.exit(FAILED if failed else PASSED if passed else SKIPPED)

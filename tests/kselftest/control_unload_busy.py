#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The module comes and goes while processes read and write its files all the time."""

import os
import time

from peermem import ktap, modules, surface
from peermem.equipment import expect_nothing_left
from peermem.errors import outcome
from peermem.modules import PEERMEM
from peermem.process import children
from peermem.surface import DEBUGFS, GONE, SYSFS
from peermem.threads import Call

OURS = "files of our own"
READERS = 2


def read_once(path, results):
    try:
        text = path.read_bytes()
        # Empty is a debugfs file that has nothing to say.
        results.add("whole" if text.endswith(b"\n") or not text else f"{path}: {text!r}")
    except OSError as error:
        results.add(outcome(lambda: raise_(error)))


def raise_(error):
    raise error


def read_for_ever(child):
    """All files that are there, until told to stop; tells the outcomes."""
    results, times = set(), 0
    stop = Call(child.wait_for_parent)
    child.tell(True)
    while not stop.done():
        for top in (SYSFS, DEBUGFS):
            for directory, _, names in os.walk(top):
                for name in set(names) - {"stats_reset"}:
                    read_once(top / directory / name, results)
                    times += 1
    child.tell((results, times))


def write_for_ever(child):
    """As that, with settings."""
    results, times = set(), 0
    stop = Call(child.wait_for_parent)
    child.tell(True)
    while not stop.done():
        for name, value in (("state", "live"), ("max_pinned_bytes", 0), ("stats_reset", 1)):
            results.add(outcome(lambda: surface.write(name, value)))
            times += 1
    child.tell((results, times))


def come_and_go(cycles):
    for _ in range(cycles):
        modules.unload(PEERMEM, attempts=100)
        time.sleep(0.005)
        modules.load(PEERMEM)
        time.sleep(0.02)


@ktap.case(f"{{0}} times unloaded and loaded, while {READERS} processes {{1}}", (
    (50, "read", read_for_ever), (15, "write", write_for_ever)), ours_only=OURS)
def under_load(cycles, _what, function):
    with children(READERS, function) as workers:
        for worker in workers:
            worker.told()
        come_and_go(cycles)
        for worker in workers:
            worker.go_on()
        answers = [worker.told() for worker in workers]
    results = set.union(*(results for results, _ in answers))
    ktap.say(f"{[times for _, times in answers]} accesses: {sorted(results)}")
    # Not there, or gone while it was open.
    allowed = GONE | {"whole", "success", "ENOENT"}
    ktap.expect(results <= allowed, f"{results - allowed}")
    ktap.expect(results & {"whole", "success"} and results - {"whole", "success"}, "no race")


ktap.main(expect_nothing_left)

#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""An unprivileged user cannot flood the kernel log, and learns no address from it."""

import os
import re
import time
from pathlib import Path

from peermem import ktap
from peermem.equipment import bar1_limit, counting, expect_nothing_left
from peermem.memory import GPU_PAGE, Gpu, map_memory, unmap_memory
from peermem.modules import KernelLog
from peermem.process import Child
from peermem.threads import Nic

NOBODY = 65534
SIZE = 2 * GPU_PAGE
TIMES = 2000
DEVICE = Path("/dev/infiniband/uverbs0")
INTERVAL, BURST = 5, 10  # of the kernel's own rate limit
OURS = "a log line of our own"
ADDRESS = re.compile(r"0x[fF]{4}|\b[0-9a-fA-F]{16}\b")


def fail(nic):
    """No room in BAR1."""
    with Gpu().alloc(SIZE) as gpu:
        for _ in range(TIMES):
            ktap.expect(nic.outcome(gpu.va, SIZE) != "success", "it did not fail")


def not_gpu_memory(nic):
    va = map_memory(SIZE)
    unmap_memory(va, SIZE)
    for _ in range(TIMES):
        ktap.expect_equal(nic.outcome(va, SIZE), "EFAULT", "errno")


def free_registered(nic):
    for _ in range(TIMES):
        gpu = Gpu().alloc(SIZE)
        registration = nic.register(gpu)
        gpu.free()
        registration.close()


def as_nobody(action):
    """Lines that it made the kernel log, and seconds it took."""

    def run(child):
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        with Nic() as nic:
            action(nic)
        child.tell(True)

    mode = DEVICE.stat().st_mode
    DEVICE.chmod(0o666)
    began = time.monotonic()
    try:
        with KernelLog() as log, Child(run) as child:
            child.told(500)
            lines = log.lines()  # soft-RoCE has lines of its own about each failure
    finally:
        DEVICE.chmod(mode)
    for line in lines[:3]:
        ktap.say(line)
    for line in lines:
        ktap.expect(not ADDRESS.search(line), f"an address in: {line}")
        ktap.expect("detected invalid context" not in line, line)
    return lines, time.monotonic() - began


@ktap.case(f"{TIMES} registrations that fail", ours_only=OURS)
def failures():
    with bar1_limit(0), counting() as done:
        lines, seconds = as_nobody(fail)
    ktap.expect(done["failed_calls"] >= TIMES, "it did not get as far as the GPU driver")
    # And one that says how many were left out, for each interval.
    most = (BURST + 1) * (seconds / INTERVAL + 1)
    ktap.say(f"{len(lines)} lines in {seconds:.0f} s")
    ktap.expect(1 <= len(lines) <= most, f"{len(lines)} lines instead of {most:.0f} at most")


@ktap.case(f"{TIMES} registrations of what is not GPU memory: no line")
def others():
    lines, _ = as_nobody(not_gpu_memory)
    ktap.expect_equal(lines, [], "log lines")


@ktap.case(f"{TIMES} times memory that is freed while it is registered: no line")
def freed():
    lines, _ = as_nobody(free_registered)
    ktap.expect_equal(lines, [], "log lines")


ktap.main(expect_nothing_left)

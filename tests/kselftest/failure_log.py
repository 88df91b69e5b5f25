#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A registration that fails for a reason leaves one line in the log, and many do not flood it."""

import errno
import os
import time

from peermem import ktap
from peermem.equipment import (FORGOTTEN, counters, dma_device, expect_nothing_left, fault,
                                forget_counters, override)
from peermem.memory import GPU_PAGE, Gpu
from peermem.modules import PEERMEM, KernelLog
from peermem.verbs import Nic

OURS = "texts of our own"
SIZE = 5 * GPU_PAGE
INTERVAL, BURST = 5, 10  # of the kernel's own rate limit


def renew_rate_limit():
    """Also from what tests before this one have used of it."""
    time.sleep(INTERVAL + 0.2)


def lines_of(knob, failures=1):
    """What failing registrations of SIZE bytes log."""
    with Nic() as nic, Gpu().alloc(SIZE) as gpu, KernelLog() as log, knob:
        for _ in range(failures):
            ktap.expect(nic.outcome(gpu.va, SIZE) != "success", "it did not fail")
        return log.lines()


def expect_one_line(lines, *words):
    ktap.say("\n".join(lines))
    ktap.expect_equal(len(lines), 1, "log lines")
    for word in (f"{PEERMEM}: ", f"{SIZE} bytes", f"process {os.getpid()}", *words):
        ktap.expect(word in lines[0], f"{word!r} is missing in: {lines[0]}")


@ktap.case("one line says who, how much, and why: {2}", (
    ("get_pages_persistent", -errno.ENOMEM, "BAR1", "error -12"),
    ("get_pages_persistent", -524, "cannot pin", "error -95"),
    ("dma_map_pages", -errno.EIO, "cannot be mapped", "error -5")), ours_only=OURS)
def driver_fails(function, error, reason, number):
    expect_one_line(lines_of(fault(function, error)), reason, number)


@ktap.case("an unknown page table version is named", ours_only=OURS)
def version():
    expect_one_line(lines_of(override("table_version", "0x30001")), "0x30001", "error -95")


@ktap.case("a NIC that is no PCI device is named", ours_only=OURS)
def not_pci():
    expect_one_line(lines_of(dma_device("nonpci")), "not a PCI device", "error -22")


@ktap.case("a hundred failures in a row log no more than ten lines", ours_only=OURS)
def limited():
    renew_rate_limit()
    lines = lines_of(fault("get_pages_persistent", -errno.EBUSY, times=0), failures=100)
    ktap.say(f"{len(lines)} lines")
    ktap.expect(1 <= len(lines) <= BURST, f"{len(lines)} lines")


@ktap.case("a mapping that the GPU driver does not take back is named", ours_only=OURS)
def not_unmapped():
    with Nic() as nic, Gpu().alloc(SIZE) as gpu, KernelLog() as log:
        registration = nic.register(gpu)
        with fault("dma_unmap_pages", -errno.EIO):
            registration.close()
        lines = log.lines()
        ktap.say("\n".join(lines))
        ktap.expect_equal(len(lines), 1, "log lines")
        ktap.expect("did not unmap" in lines[0] and "error -5" in lines[0], f"words: {lines[0]}")
        ktap.expect_equal(counters()[FORGOTTEN], 1, "pages given back while mapped")
        forget_counters()


renew_rate_limit()
ktap.main(expect_nothing_left)

#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Each failure is counted under its reason, once, and under no other."""

import contextlib
import errno
import os

from peermem import ktap, surface
from peermem.equipment import (dma_device, dma_fault, expect_nothing_left, fault, forget_counters,
                               override, pin_function, reclaim)
from peermem.memory import GPU_PAGE, Gpu, map_memory, unmap_memory
from peermem.mode import CALLBACK
from peermem.surface import expected, growing

OURS = "counters of our own"
PAGES = 4
SIZE = PAGES * GPU_PAGE
ENOTSUPP = 524


# Reasons: how to get there, and what the application sees.

def pin_fails(error):
    return lambda: fault(pin_function(), error)


def map_fails(error):
    return lambda: fault("dma_map_pages", error)


def claims(field, value):
    return lambda: override(field, value)


@contextlib.contextmanager
def coherent():
    with override("table_version", "0x20000"), override("table_flags", 1):
        yield


REASONS = {
    "pin_enomem": (pin_fails(-errno.ENOMEM), "ENOMEM"),
    "pin_eopnotsupp": (pin_fails(-ENOTSUPP), "EOPNOTSUPP"),
    "pin_eio": (pin_fails(-errno.EIO), "EIO"),
    "pin_other": (pin_fails(-errno.EBUSY), "EBUSY"),
    "page_table_version": (claims("table_version", "0x30000"), "EOPNOTSUPP"),
    "page_table_shape": (claims("table_entries", PAGES - 1), "EOPNOTSUPP"),
    "not_pci_device": (lambda: dma_device("nonpci"), "EINVAL"),
    "drain": (surface.drained, "EAGAIN"),
    "limit": (lambda: surface.limited(SIZE - 1), "ENOMEM"),
}
# The GPU driver maps persistent pins. What is revocable we map: the DMA layer knows one error.
REASONS |= {
    "map_eio": (lambda: dma_fault(), "EIO"),
    "coherent_memory": (coherent, "EOPNOTSUPP"),
} if CALLBACK else {
    "map_enomem": (map_fails(-errno.ENOMEM), "ENOMEM"),
    "map_eopnotsupp": (map_fails(-ENOTSUPP), "EOPNOTSUPP"),
    "map_eio": (map_fails(-errno.EIO), "EIO"),
    "map_other": (map_fails(-errno.EBUSY), "EBUSY"),
    "mapping_version": (claims("mapping_version", "0x30003"), "EOPNOTSUPP"),
    "mapping_shape": (claims("mapping_entries", PAGES - 1), "EOPNOTSUPP"),
}
# In cases of their own. "contract" is in none: the core of the equipment calls as it should. For
# "out_of_memory" it takes a kernel that injects it.
ELSEWHERE = {"unpin", "out_of_memory", "contract"} | ({"freed"} if CALLBACK else {"unmap"})
# What the mode does not have.
NEVER = ({"map_enomem", "map_eopnotsupp", "map_other", "mapping_version", "mapping_shape", "unmap"}
         if CALLBACK else {"freed", "coherent_memory"})


@ktap.case("every reason is in one of these cases", ours_only=OURS)
def reasons_known():
    shown = {path.name for path in (surface.SYSFS / "failures").iterdir()}
    ktap.expect_equal(shown, set(REASONS) | ELSEWHERE | NEVER, "files in failures")


@ktap.case("three failures for the reason {}", tuple(REASONS), ours_only=OURS)
def fails(reason):
    provoke, wanted = REASONS[reason]
    nic = surface.nic()
    with Gpu().alloc(SIZE) as gpu, growing() as growth:
        for _ in range(3):
            with provoke():
                ktap.expect_equal(nic.outcome(gpu.va, SIZE), wanted, "errno")
    ktap.expect_equal(growth, {f"failures/{reason}": 3}, "growth")


@ktap.case("a failure among registrations: they are counted, and it is", ours_only=OURS)
def among_others():
    nic = surface.nic()
    with Gpu().alloc(SIZE) as gpu, growing() as growth:
        with nic.register(gpu), fault(pin_function(), -errno.EIO):
            ktap.expect_equal(nic.outcome(gpu.va, SIZE), "EIO", "errno")
    ktap.expect_equal(growth, expected(1, 1, PAGES, SIZE) | {"failures/pin_eio": 1}, "growth")


@ktap.case("memory of others, {} times: counted, and not as a failure", (1, 5), ours_only=OURS)
def not_gpu_memory(times):
    va = map_memory(SIZE)
    unmap_memory(va, SIZE)
    nic = surface.nic()
    with growing() as growth:
        for _ in range(times):
            ktap.expect_equal(nic.outcome(va, SIZE), "EFAULT", "errno")
    # Each client is asked.
    clients = 2 if CALLBACK else 1
    ktap.expect_equal(growth, {"stats/not_gpu_memory": times * clients}, "growth")


@ktap.case("the GPU driver does not unmap", ours_only=OURS, only_if=not CALLBACK)
def unmap_fails():
    nic = surface.nic()
    with Gpu().alloc(SIZE) as gpu, growing() as growth, fault("dma_unmap_pages", -errno.EIO):
        nic.register(gpu).close()
    # The driver unmapped it all the same when it was unpinned, and the equipment noticed.
    forget_counters()
    ktap.expect_equal(growth, expected(1, 1, PAGES, SIZE) | {"failures/unmap": 1}, "growth")


@ktap.case("the GPU driver does not take a persistent pin back", ours_only=OURS,
           only_if=not CALLBACK)
def unpin_fails():
    nic = surface.nic()
    with Gpu().alloc(SIZE) as gpu, growing() as growth, fault("put_pages_persistent", -errno.EIO):
        nic.register(gpu).close()
    reclaim()
    ktap.expect_equal(growth, expected(1, 1, PAGES, SIZE) | {"failures/unpin": 1}, "growth")


@ktap.case("no memory for the registration itself", ours_only=OURS)
def out_of_memory():
    if not os.path.exists("/proc/self/fail-nth"):
        raise ktap.Skip("the kernel does not inject failures")
    nic = surface.nic()
    with Gpu().alloc(SIZE) as gpu, growing() as growth:
        injected, nth = True, 0
        while injected:
            nth += 1
            _, injected = nic.failing(gpu, nth)
    others = set(growth.of("failures")) - {"out_of_memory", "pin_enomem", "map_enomem"}
    ktap.expect(growth.of("failures").get("out_of_memory"), "not counted")
    ktap.expect_equal(others, set(), "other reasons")


ktap.main(expect_nothing_left)

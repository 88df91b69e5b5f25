#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Memory that is freed while it is pinned or mapped: each way to end is counted as what it is."""

import errno
import os

from peermem import ktap, surface
from peermem.equipment import Stop, expect_nothing_left, fault
from peermem.memory import GPU_PAGE, Gpu
from peermem.mode import CALLBACK
from peermem.process import Child
from peermem.surface import expect_peaks, expected, growing, number, numbers
from peermem.threads import Call, Nic

OURS = "counters of our own"
PAGES = 4
SIZE = PAGES * GPU_PAGE


def orphan_counters(number_, also):
    """Nothing is mapped, and memory is pinned."""
    pinned = {f"{place}/pinned_bytes": number_ * SIZE
              for place in ("stats", f"gpus/{surface.gpu_name()}")}
    return (expected(number_, number_, PAGES, SIZE) | pinned | {"stats/orphans": number_} | also)


def gone_orphans(number_, also):
    """As that, and then the memory is freed."""
    return expected(number_, number_, PAGES, SIZE) | also | {
        "stats/freed_unmapped": number_, "clients/nv_mem/num_free_callbacks": number_}


@ktap.case("the GPU driver does not take {} pins back: orphans, until the memory is freed", (1, 3),
           ours_only=OURS, only_if=CALLBACK)
def refused_orphans(number_):
    failed = {"failures/unpin": number_}
    nic = surface.nic()
    with growing() as all_in_all:
        gpu = Gpu().alloc(SIZE)
        with growing() as growth:
            for _ in range(number_):
                with fault("put_pages", -errno.EIO):
                    nic.register(gpu).close()
        ktap.expect_equal(growth, orphan_counters(number_, failed), "growth")
        gpu.free()
    ktap.expect_equal(all_in_all, gone_orphans(number_, failed), "growth")


def let_child_deregister(registrations):
    pid = os.fork()
    if not pid:
        for registration in registrations:
            registration.close()
        os._exit(0)
    ktap.expect_equal(os.waitpid(pid, 0)[1], 0, "exit status of the child")


@ktap.case("a forked child deregisters {}: orphans, until the owner {}", (
    (1, "frees"), (4, "frees"), (4, "exits")), ours_only=OURS, only_if=CALLBACK)
def forked_orphans(number_, end):
    def run(child):
        nic, gpu = Nic(), Gpu().alloc(SIZE)
        with growing() as growth:
            let_child_deregister([nic.register(gpu) for _ in range(number_)])
        child.tell(dict(growth))
        child.wait_for_parent()
        if end == "frees":
            gpu.free()
        os._exit(0)

    with Child(run) as child:
        ktap.expect_equal(child.told(), orphan_counters(number_, {}), "growth")
        # Without a reset: the child made one.
        child.go_on()
        child.wait()
        ktap.eventually(lambda: number("stats/orphans") == 0, "no orphans", 5)
        ktap.expect_equal(number("stats/pinned_bytes"), 0, "bytes pinned")
        ktap.expect_equal(number("stats/freed_unmapped"), number_, "freed_unmapped")
        ktap.expect_equal(number("clients/nv_mem/num_free_callbacks"), number_, "callbacks")
        ktap.expect_equal(number("stats/invalidations"), 0, "invalidations")


@ktap.case("memory freed under {} regions: invalidations", (1, 6), ours_only=OURS, only_if=CALLBACK)
def invalidated(number_):
    gpu = Gpu().alloc(SIZE)
    with growing() as growth:
        registrations = [surface.nic().register(gpu) for _ in range(number_)]
        gpu.free()
        # The regions are still there for the application, and hold nothing.
        now = numbers()
        for registration in registrations:
            registration.close()
    ktap.expect_equal([now["stats/active_mrs"], now["stats/pinned_bytes"]], [0, 0], "held")
    ktap.expect_equal(growth, expected(number_, number_, PAGES, SIZE) | {
        "stats/invalidations": number_, "clients/nv_mem/num_free_callbacks": number_}, "growth")
    expect_peaks(growth, number_, PAGES, SIZE)


@ktap.case("memory freed under regions: nothing of it in persistent mode", ours_only=OURS,
           only_if=not CALLBACK)
def stays():
    gpu = Gpu().alloc(SIZE)
    with growing() as growth, surface.nic().register(gpu):
        gpu.free()
        ktap.expect_equal(number("stats/active_mrs"), 1, "regions")
    ktap.expect_equal(growth, expected(1, 1, PAGES, SIZE), "growth")


@ktap.case("memory freed while it is being registered, at {}", ("acquired", "got_pages"),
           ours_only=OURS, only_if=CALLBACK)
def freed_early(point):
    nic, gpu = surface.nic(), Gpu().alloc(SIZE)
    with growing() as growth:
        with Stop(point) as stop:
            registering = Call(lambda: nic.outcome(gpu.va, SIZE))
            stop.reached()
            Call(gpu.cuda_free).result()
        ktap.expect_equal(registering.result(), "EFAULT", "errno")
    gpu.free()
    ktap.expect_equal(growth, {"failures/freed": 1, "stats/freed_unmapped": 1,
                               "clients/nv_mem/num_free_callbacks": 1}, "growth")


@ktap.case("the callback comes for a region that is being released: late", ours_only=OURS,
           only_if=CALLBACK)
def late():
    gpu = Gpu().alloc(SIZE)
    with growing() as growth:
        registration = surface.nic().register(gpu)
        with Stop("free_callback") as stop:
            freeing = Call(gpu.cuda_free)
            stop.reached()
            closing = Call(registration.close)
            # It has unmapped, and waits for the lock of the GPU driver.
            ktap.eventually(lambda: number("stats/active_mrs") == 0, "unmapped")
            ktap.expect(not closing.done(0.3), "it did not wait for the callback")
        freeing.result()
        closing.result()
    gpu.free()
    ktap.expect_equal(growth, expected(1, 1, PAGES, SIZE) | {
        "stats/late_callbacks": 1, "clients/nv_mem/num_free_callbacks": 1}, "growth")


ktap.main(expect_nothing_left)

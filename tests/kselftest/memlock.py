#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""GPU memory counts as locked memory of an unprivileged user, as host memory does."""

import os
import resource

from peermem import ktap
from peermem.equipment import counting, expect_nothing_left
from peermem.memory import GPU_PAGE, Gpu, HostBuffer
from peermem.process import in_child
from peermem.verbs import Nic

NOBODY = 65534
SIZE = 16 * GPU_PAGE


def as_nobody(limit, function):
    """What function(nic) returns to a user without capabilities who may lock so many bytes."""

    def run():
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        with Nic() as nic:
            return function(nic)

    return in_child(run)


@ktap.case("{} memory above the limit is ENOMEM", ("host", "GPU"))
def above(kind):
    def register(nic):
        with HostBuffer(SIZE) if kind == "host" else Gpu().alloc(SIZE) as buffer:
            return nic.outcome(buffer.va, SIZE)

    with counting() as done:
        ktap.expect_equal(as_nobody(SIZE - 1, register), "ENOMEM", "errno")
    ktap.expect_equal(done["num_alloc_mrs"], 0, "registrations of GPU memory")
    ktap.expect_equal(done["dma_map_pages"], 0, "mappings made")


@ktap.case("{} memory up to the limit is registered", ("host", "GPU"))
def up_to(kind):
    def register(nic):
        with HostBuffer(SIZE) if kind == "host" else Gpu().alloc(SIZE) as buffer:
            return nic.outcome(buffer.va, SIZE)

    ktap.expect_equal(as_nobody(SIZE, register), "success", "errno")


@ktap.case("registrations add up, and a deregistration makes room again")
def adds_up():
    def register(nic):
        with Gpu().alloc(SIZE) as gpu:
            first = nic.register(gpu)
            second = nic.outcome(gpu.va, SIZE)
            first.close()
            return second, nic.outcome(gpu.va, SIZE)

    ktap.expect_equal(as_nobody(2 * SIZE - 1, register), ("ENOMEM", "success"),
                      "second registration, and again after the first has ended")


@ktap.case("a failed registration leaves the account as it was")
def refund():
    def register(nic):
        with Gpu().alloc(SIZE) as gpu:
            gpu.cuda_free()
            failed = nic.outcome(gpu.va, SIZE)
        with Gpu().alloc(SIZE) as gpu:
            return failed, nic.outcome(gpu.va, SIZE)

    ktap.expect_equal(as_nobody(SIZE, register), ("EFAULT", "success"), "outcomes")


ktap.main(expect_nothing_left)

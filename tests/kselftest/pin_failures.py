#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""GPU memory that cannot be pinned: the application sees the documented errno, and nothing leaks."""

import errno

from peermem import ktap
from peermem.equipment import counting, expect_nothing_left, fault
from peermem.memory import GPU_PAGE, Gpu, map_memory, unmap_memory
from peermem.modules import KernelLog
from peermem.verbs import Nic

HIDDEN = "NVIDIA's module hides every error as EFAULT"
SIZE = 2 * GPU_PAGE
ENOTSUPP = 524

# What the GPU driver's pin returns, and what ibv_reg_mr() reports (Documentation/errors.rst).
DOCUMENTED = (
    (-errno.ENOMEM, "ENOMEM"),
    (-errno.EBUSY, "EBUSY"),
    (-errno.ENODEV, "ENODEV"),
    (-errno.EIO, "EIO"),
    (-ENOTSUPP, "EOPNOTSUPP"),
    (-errno.EINVAL, "EFAULT"),  # "not GPU memory": the errno of the attempt as host memory
)
OTHER = (
    (-errno.EPERM, "EPERM"),
    (-errno.EAGAIN, "EAGAIN"),
    (-errno.EOPNOTSUPP, "EOPNOTSUPP"),
    (-errno.ETIMEDOUT, "ETIMEDOUT"),
    (-133, "EHWPOISON"),
    (-134, "EIO"),  # from here on numbers that user space does not know
    (-512, "EIO"),
    (-4096, "EIO"),
    (-(1 << 31), "EIO"),
    (5, "EIO"),
)


@ktap.case("the driver says {}: {}", DOCUMENTED + OTHER, ours_only=HIDDEN)
def pin_fails(error, wanted):
    with Nic() as nic, Gpu().alloc(SIZE) as gpu:
        with fault("get_pages_persistent", error), counting() as done:
            ktap.expect_equal(nic.outcome(gpu.va, SIZE), wanted, "errno")
        # ENOMEM may be about memory of nobody: one page more tells.
        probes = 1 if error == -errno.ENOMEM else 0
        ktap.expect_equal(done["get_pages_persistent"], 1 + probes, "attempts to pin")
        ktap.expect_equal(done["put_pages_persistent"], probes, "pins given back")
        ktap.expect_equal(done["dma_map_pages"], 0, "mappings made")
        ktap.expect_equal(nic.outcome(gpu.va, SIZE), "success", "the next registration")


@ktap.case("ENOMEM for memory that is not the GPU's: EFAULT, and no log line", ours_only=HIDDEN)
def no_room_for_nobody():
    va = map_memory(SIZE)
    unmap_memory(va, SIZE)
    with (Nic() as nic, KernelLog() as log, counting() as done,
          fault("get_pages_persistent", -errno.ENOMEM)):
        ktap.expect_equal(nic.outcome(va, SIZE), "EFAULT", "errno")
        ktap.expect_equal(log.lines(), [], "log lines")
    ktap.expect_equal(done["failed_calls"], 2, "attempts to pin that failed")


@ktap.case("no room for as much as a page: ENOMEM", ours_only=HIDDEN)
def no_room_at_all():
    with (Nic() as nic, Gpu().alloc(SIZE) as gpu,
          fault("get_pages_persistent", -errno.ENOMEM, times=0)):
        ktap.expect_equal(nic.outcome(gpu.va, SIZE), "ENOMEM", "errno")


@ktap.case("only the second of three registrations fails", ours_only=HIDDEN)
def one_of_three():
    with (Nic() as nic, Gpu().alloc(SIZE) as gpu,
          fault("get_pages_persistent", -errno.EBUSY, skip=1)):
        with nic.register(gpu):
            ktap.expect_equal(nic.outcome(gpu.va, SIZE), "EBUSY", "the second")
            ktap.expect_equal(nic.outcome(gpu.va, SIZE), "success", "the third")


@ktap.case("200 failures leave nothing behind", ours_only=HIDDEN)
def many():
    with (Nic() as nic, Gpu().alloc(SIZE) as gpu,
          fault("get_pages_persistent", -errno.EBUSY, times=0)):
        for _ in range(200):
            ktap.expect_equal(nic.outcome(gpu.va, SIZE), "EBUSY", "errno")


ktap.main(expect_nothing_left)

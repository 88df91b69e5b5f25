#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A GPU whose BAR1 is full says ENOMEM, and goes on as soon as there is room."""

from peermem import ktap
from peermem.equipment import bar1_limit, counters, expect_nothing_left
from peermem.memory import GPU_PAGE, Gpu
from peermem.verbs import Nic

HIDDEN = "NVIDIA's module hides it as EFAULT"
SIZE = 16 * GPU_PAGE


@ktap.case("the third registration does not fit, and fits when one of the first two has ended",
           ours_only=HIDDEN)
def full():
    with (bar1_limit(2 * SIZE + GPU_PAGE), Nic() as nic, Gpu().alloc(SIZE) as one,
          Gpu().alloc(SIZE) as two, Gpu().alloc(SIZE) as three):
        first, _second = nic.register(one), nic.register(two)
        ktap.expect_equal(nic.outcome(three.va, SIZE), "ENOMEM", "the third")
        ktap.expect_equal(counters()["bar1_used_bytes"], 2 * SIZE, "bytes of BAR1 in use")
        ktap.expect_equal(nic.outcome(three.va, GPU_PAGE), "success", "one page, which has room")
        first.close()
        ktap.expect_equal(nic.outcome(three.va, SIZE), "success", "the third, with room")


@ktap.case("a buffer larger than BAR1", ours_only=HIDDEN)
def too_large():
    with bar1_limit(SIZE - 1), Nic() as nic, Gpu().alloc(SIZE) as gpu:
        ktap.expect_equal(nic.outcome(gpu.va, SIZE), "ENOMEM", "errno")
        ktap.expect_equal(nic.outcome(gpu.va, SIZE - GPU_PAGE), "success", "a part that fits")


@ktap.case("the other GPU has room of its own", ours_only=HIDDEN)
def other_gpu():
    with (bar1_limit(0), Nic() as nic, Gpu(0).alloc(SIZE) as gpu, Gpu(1).alloc(SIZE) as other):
        ktap.expect_equal(nic.outcome(gpu.va, SIZE), "ENOMEM", "errno")
        ktap.expect_equal(nic.outcome(other.va, SIZE), "success", "the other GPU")


@ktap.case("a second registration of the same memory takes no more room")
def shared():
    with bar1_limit(SIZE), Nic() as nic, Gpu().alloc(SIZE) as gpu, nic.register(gpu):
        ktap.expect_equal(nic.outcome(gpu.va, SIZE), "success", "outcome")


ktap.main(expect_nothing_left)

#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A registration pins once, maps once, and gives both back; nothing is asked for twice."""

from peermem import ktap, modules
from peermem.equipment import counters, counting, expect_nothing_left
from peermem.memory import GPU_PAGE, Gpu
from peermem.verbs import Nic

TWICE = "NVIDIA's module pins twice"
SIZE = 3 * GPU_PAGE
CALLS = ("get_pages", "get_pages_persistent", "put_pages", "put_pages_persistent",
         "dma_map_pages", "dma_unmap_pages", "free_callbacks")


def expect_calls(done, **wanted):
    calls = {name: done[name] for name in CALLS if done[name]}
    ktap.expect_equal(calls, wanted, "calls to the GPU driver")


@ktap.case("one registration of {} pages: one pin, one mapping", (1, 3, 256), ours_only=TWICE)
def one(pages):
    with Nic() as nic, Gpu().alloc(pages * GPU_PAGE) as gpu:
        with counting() as done:
            mr = nic.register(gpu)
        expect_calls(done, get_pages_persistent=1, dma_map_pages=1)
        with counting() as done:
            mr.close()
        expect_calls(done, dma_unmap_pages=1, put_pages_persistent=1)


@ktap.case("an odd range pins just the pages that it touches", ours_only=TWICE)
def odd():
    with Nic() as nic, Gpu().alloc(4 * GPU_PAGE) as gpu:
        before = counters()["pinned_bytes"]
        with nic.register(gpu, GPU_PAGE + 1, GPU_PAGE):
            ktap.expect_equal(counters()["pinned_bytes"] - before, 2 * GPU_PAGE, "bytes pinned")


@ktap.case("registrations of one buffer have a pin each", ours_only=TWICE)
def each_its_own():
    with Nic() as nic, Gpu().alloc(SIZE) as gpu, counting() as done:
        with nic.register(gpu), nic.register(gpu):
            ktap.expect_equal(counters()["live_persistent_tables"], 2, "pins")
    expect_calls(done, get_pages_persistent=2, dma_map_pages=2, dma_unmap_pages=2,
                 put_pages_persistent=2)


@ktap.case("data moves without a call to the GPU driver, or a page fault")
def silent():
    with (Nic() as nic, nic.loop() as loop, Gpu(0).alloc(SIZE) as src, Gpu(1).alloc(SIZE) as dst,
          nic.register(src) as src_mr, nic.register(dst) as dst_mr):
        with counting() as done:
            loop.write(src_mr, dst_mr, SIZE)
        expect_calls(done)
        ktap.expect_equal(done["cpu_faults"], 0, "pages of GPU memory touched by the CPU")
        ktap.expect_equal(done["bytes_to_peer"], SIZE, "bytes that the NIC wrote to GPU memory")
        ktap.expect_equal(done["bytes_from_peer"], SIZE, "bytes that the NIC read from GPU memory")


@ktap.case("the core counts registrations and bytes")
def core_counters():
    with Nic() as nic, Gpu().alloc(SIZE) as gpu, counting() as done:
        nic.register(gpu, 5, 1000).close()
    for name, wanted in (("num_alloc_mrs", 1), ("num_dealloc_mrs", 1), ("num_reg_bytes", 1000),
                         ("num_dereg_bytes", 1000)):
        ktap.expect_equal(done[name], wanted, name)


@ktap.case("each registration holds the module")
def module_references():
    with Nic() as nic, Gpu().alloc(SIZE) as gpu:
        with nic.register(gpu):
            ktap.expect_equal(modules.references(), 1, "references")
            with nic.register(gpu):
                ktap.expect_equal(modules.references(), 2, "references")
        ktap.expect_equal(modules.references(), 0, "references after both were closed")


ktap.main(expect_nothing_left)

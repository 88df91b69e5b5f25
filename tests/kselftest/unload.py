#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""rmmod with a live registration is refused and harms nothing."""

from peermem import ktap, modules
from peermem.equipment import counting, expect_nothing_left
from peermem.errors import outcome
from peermem.memory import GPU_PAGE, Gpu, expect_bytes, pattern
from peermem.modules import PEERMEM, KernelLog
from peermem.verbs import Nic

SIZE = 4 * GPU_PAGE


@ktap.case("refused while registered, data moves on, granted afterwards")
def live():
    data = pattern("unload", SIZE)
    with (Nic() as nic, nic.loop() as loop, Gpu(0).alloc(SIZE) as src, Gpu(1).alloc(SIZE) as dst):
        src.write(data)
        with nic.register(src) as src_mr, nic.register(dst) as dst_mr:
            with counting() as done, KernelLog() as log:
                ktap.expect_equal(outcome(lambda: modules.unload(PEERMEM)), "EAGAIN", "errno")
                ktap.expect_equal(log.lines(), [], "log lines")
            ktap.expect_equal(done["dma_unmap_pages"], 0, "mappings undone")
            loop.write(src_mr, dst_mr, SIZE)
            expect_bytes(dst.read(), data, "GPU memory after the refusal")
            with Gpu().alloc(SIZE) as other:
                ktap.expect_equal(nic.outcome(other.va, SIZE), "success", "a new registration")
        with modules.unloaded():
            ktap.expect(not modules.is_loaded(PEERMEM), "it is still there")


@ktap.case("a device that is open does not hold it")
def open_device():
    with Nic() as nic, Gpu().alloc(SIZE) as gpu:
        nic.register(gpu).close()
        with modules.unloaded():
            ktap.expect_equal(nic.outcome(gpu.va, SIZE), "EFAULT", "a registration without it")
        ktap.expect_equal(nic.outcome(gpu.va, SIZE), "success", "a registration with it again")


ktap.main(expect_nothing_left)

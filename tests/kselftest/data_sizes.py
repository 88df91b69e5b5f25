#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""WRITE, READ and SEND move every byte between host and GPU memory, whatever the size."""

from peermem import ktap
from peermem.equipment import expect_nothing_left
from peermem.memory import GPU_PAGE, PAGE, Gpu, HostBuffer, expect_bytes, pattern
from peermem.verbs import Nic

SIZES = (1, 3, PAGE - 1, PAGE, PAGE + 1, GPU_PAGE - 1, GPU_PAGE, GPU_PAGE + 1, 1 << 20)
FEW = (1, PAGE + 1, GPU_PAGE + 1, (8 << 20) + 17)
HUGE = 64 << 20


def transfer(operation, size):
    """By the host into GPU memory, by the GPU's MR back: both directions of the operation."""
    data = pattern(size, size)
    with (Nic() as nic, nic.loop() as loop, HostBuffer(size) as host, HostBuffer(size) as back,
          Gpu().alloc(size) as gpu, nic.register(host) as host_mr, nic.register(back) as back_mr,
          nic.register(gpu) as gpu_mr):
        host.write(data)
        gpu.write(bytes(size))
        getattr(loop, operation)(host_mr, gpu_mr, size)
        expect_bytes(gpu.read(), data, "GPU memory")
        getattr(loop, operation)(gpu_mr, back_mr, size)
        expect_bytes(back.read(), data, "host memory")


@ktap.case("WRITE of {} bytes", SIZES)
def write(size):
    transfer("write", size)


@ktap.case("READ of {} bytes", FEW)
def read(size):
    transfer("read", size)


@ktap.case("SEND of {} bytes", FEW)
def send(size):
    transfer("send", size)


@ktap.case("{} of 64 MiB", ("write", "read", "send"))
def huge(operation):
    transfer(operation, HUGE)


ktap.main(expect_nothing_left)

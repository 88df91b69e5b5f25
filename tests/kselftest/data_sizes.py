#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""WRITE, READ and SEND move every byte between host and GPU memory, whatever the size."""

from peermem import ktap
from peermem.equipment import expect_nothing_left
from peermem.memory import GPU_PAGE, PAGE, Gpu, HostBuffer, expect_bytes, pattern
from peermem.verbs import Nic

SMALL = (1, 3, 64, PAGE - 1, PAGE, PAGE + 1, GPU_PAGE - 1, GPU_PAGE, GPU_PAGE + 1, 1 << 20)
LARGE = (16 << 20) + 17
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


@ktap.case("RDMA WRITE of {} bytes", SMALL)
def write(size):
    transfer("write", size)


@ktap.case("RDMA READ of {} bytes", SMALL)
def read(size):
    transfer("read", size)


@ktap.case("SEND of {} bytes", SMALL)
def send(size):
    transfer("send", size)


@ktap.case("{} of 16 MiB and a bit", ("write", "read", "send"))
def large(operation):
    transfer(operation, LARGE)


@ktap.case("write of 64 MiB")
def huge():
    transfer("write", HUGE)


ktap.main(expect_nothing_left)

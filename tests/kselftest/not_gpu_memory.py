#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""What is not GPU memory is none of the module's business: same answer as without it, no log line."""

import contextlib
import mmap
import os
from pathlib import Path

from peermem import ktap
from peermem.equipment import counting, expect_nothing_left
from peermem.memory import GPU_PAGE, PAGE, Gpu, HostBuffer, map_memory, unmap_memory
from peermem.modules import KernelLog, unloaded
from peermem.verbs import Nic

SIZE = 4 * GPU_PAGE
NO_ACCESS = 0  # PROT_NONE


@contextlib.contextmanager
def host(_):
    with HostBuffer(SIZE) as buffer:
        yield buffer.va, SIZE


@contextlib.contextmanager
def read_only_file(_):
    with open(__file__, "rb") as file:
        va = map_memory(PAGE, file.fileno(), protection=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
    yield va, PAGE
    unmap_memory(va, PAGE)


@contextlib.contextmanager
def device_registers(_):
    """BAR 0 of an ivshmem device: registers, and nobody's GPU memory."""
    path = Path("/sys/bus/pci/devices") / Gpu().pci_address / "resource0"
    fd = os.open(path, os.O_RDWR | os.O_SYNC | os.O_CLOEXEC)
    va = map_memory(PAGE, fd)
    os.close(fd)
    yield va, PAGE
    unmap_memory(va, PAGE)


@contextlib.contextmanager
def unmapped(_):
    va = map_memory(SIZE)
    unmap_memory(va, SIZE)
    yield va, SIZE


@contextlib.contextmanager
def no_access(_):
    va = map_memory(SIZE, protection=NO_ACCESS)
    yield va, SIZE
    unmap_memory(va, SIZE)


@contextlib.contextmanager
def freed(gpu):
    gpu.cuda_free()
    yield gpu.va, SIZE


def in_gpu_memory(offset, length):
    """A range that starts in GPU memory, or near it."""

    @contextlib.contextmanager
    def bad_range(gpu):
        yield (gpu.va + offset) % (1 << 64), length

    return bad_range


@contextlib.contextmanager
def two_allocations(_):
    """One range on two neighbours, each registered well by itself."""
    va = map_memory(2 * SIZE + GPU_PAGE, protection=NO_ACCESS)
    first = -(-va // GPU_PAGE) * GPU_PAGE
    with Gpu().alloc(SIZE, first), Gpu().alloc(SIZE, first + SIZE):
        yield first + SIZE - GPU_PAGE, 2 * GPU_PAGE
    unmap_memory(va, 2 * SIZE + GPU_PAGE)


@contextlib.contextmanager
def at(va, length):
    yield va, length


RANGES = {
    "host memory": host,
    "a file mapped read-only": read_only_file,
    "registers of a PCI device": device_registers,
    "an unmapped range": unmapped,
    "a range without access": no_access,
    "freed GPU memory": freed,
    "no bytes of GPU memory": in_gpu_memory(0, 0),
    "one byte past an allocation": in_gpu_memory(0, SIZE + 1),
    "the last byte of an allocation and the next": in_gpu_memory(SIZE - 1, 2),
    "the byte in front of an allocation and the first": in_gpu_memory(-1, 2),
    "a range over two allocations": two_allocations,
    "a range that wraps around": in_gpu_memory(0, (1 << 64) - GPU_PAGE),
    "a range of 2^62 bytes": in_gpu_memory(0, 1 << 62),
    "the lowest addresses": lambda _: at(PAGE, PAGE),
    "the last page of the address space": lambda _: at((1 << 64) - PAGE, PAGE),
    "the last GPU page of the address space": lambda _: at((1 << 64) - GPU_PAGE, GPU_PAGE - PAGE),
    "an address of the kernel": lambda _: at(0xFFFF_8880_0000_0000, PAGE),
}


def outcomes():
    """What registering each range gives."""
    found = {}
    with Nic() as nic:
        for name, make in RANGES.items():
            with Gpu().alloc(SIZE) as gpu, make(gpu) as (va, length):
                found[name] = nic.outcome(va, length)
    return found


with unloaded():
    WITHOUT = outcomes()
ktap.say("\n".join(f"without the module: {name}: {outcome}" for name, outcome in WITHOUT.items()))


@ktap.case("{}", tuple(RANGES))
def same_as_without(name):
    with (Nic() as nic, Gpu().alloc(SIZE) as gpu, RANGES[name](gpu) as (va, length),
          KernelLog() as log):
        with counting() as done:
            outcome = nic.outcome(va, length)
        ktap.expect_equal(outcome, WITHOUT[name], "errno with the module")
        ktap.expect_equal(done["dma_map_pages"], 0, "mappings made")
        ktap.expect_equal(log.lines(), [], "log lines")
        with Gpu().alloc(SIZE) as other:
            ktap.expect_equal(nic.outcome(other.va, SIZE), "success", "the next registration")


@ktap.case("without the module, GPU memory is a bad address")
def gpu_without():
    with unloaded(), Nic() as nic, Gpu().alloc(SIZE) as gpu:
        ktap.expect_equal(nic.outcome(gpu.va, SIZE), "EFAULT", "errno")


@ktap.case("host memory never reaches the GPU driver")
def host_is_cheap():
    with Nic() as nic, HostBuffer(SIZE) as buffer, counting() as done:
        nic.register(buffer).close()
    ktap.expect_equal(done["get_pages"] + done["get_pages_persistent"], 0, "attempts to pin")


ktap.main(expect_nothing_left)

#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A registration reaches from its first byte to its last, wherever in a GPU page those lie."""

from peermem import ktap
from peermem.equipment import expect_nothing_left
from peermem.memory import GPU_PAGE, PAGE, Gpu, HostBuffer, expect_bytes, pattern
from peermem.verbs import CompletionError, Nic

PAGES = 5
SIZE = PAGES * GPU_PAGE
GUARD = pattern("guard", SIZE)
RANGES = (
    (0, 1),
    (SIZE - 1, 1),
    (0, GPU_PAGE),
    (SIZE - GPU_PAGE, GPU_PAGE),
    (GPU_PAGE - 1, 2),
    (1, GPU_PAGE),
    (PAGE - 1, 2 * GPU_PAGE + 3),
    (3 * GPU_PAGE - 1, 2 * GPU_PAGE + 1),
    (100_001, 123_457),
    (0, SIZE),
)


def expect_only(gpu, offset, data):
    """The data is there, and around it is what was there before."""
    end = offset + len(data)
    got = gpu.read()
    expect_bytes(got[:offset], GUARD[:offset], "in front of the range")
    expect_bytes(got[offset:end], data, "in the range")
    expect_bytes(got[end:], GUARD[end:], "behind the range")


@ktap.case("bytes {} + {} of an allocation", RANGES)
def every_byte(offset, length):
    with (Nic() as nic, nic.loop() as loop, HostBuffer(length) as host, Gpu().alloc(SIZE) as gpu,
          nic.register(host) as host_mr, nic.register(gpu, offset, length) as gpu_mr):
        for operation in (loop.write, loop.read, loop.send):
            data = pattern((operation.__name__, offset, length).__repr__(), length)
            gpu.write(GUARD)
            host.write(data)
            operation(host_mr, gpu_mr, length)
            expect_only(gpu, offset, data)


@ktap.case("part of a registration: bytes {} + {}", ((0, 1), (GPU_PAGE - 3, 7), (70_000, 70_001)))
def part(offset, length):
    first = 4097
    data = pattern("part", length)
    with (Nic() as nic, nic.loop() as loop, HostBuffer(length) as host, Gpu().alloc(SIZE) as gpu,
          nic.register(host) as host_mr, nic.register(gpu, first, SIZE - 2 * first) as gpu_mr):
        gpu.write(GUARD)
        host.write(data)
        loop.write(host_mr, gpu_mr, length, dst_offset=offset)
        expect_only(gpu, first + offset, data)


@ktap.case("an allocation of {} bytes", (1, PAGE + 1, GPU_PAGE + 1, 100_000))
def odd_allocation(length):
    data = pattern("odd", length)
    with (Nic() as nic, nic.loop() as loop, HostBuffer(length) as host, Gpu().alloc(length) as gpu,
          nic.register(host) as host_mr, nic.register(gpu) as gpu_mr):
        host.write(data)
        loop.write(host_mr, gpu_mr, length)
        expect_bytes(gpu.read(), data, "GPU memory")


@ktap.case("no bytes, in the middle of a page: registered, as host memory is")
def no_bytes():
    with Nic() as nic, Gpu().alloc(SIZE) as gpu, HostBuffer(PAGE) as host:
        ktap.expect_equal(nic.outcome(host.va + 5, 0), "success", "host memory")
        ktap.expect_equal(nic.outcome(gpu.va + 5, 0), "success", "GPU memory")


@ktap.case("a write {} the registration is refused and changes nothing",
           (("in front of", -1), ("behind", GPU_PAGE)))
def beyond(_, at):
    offset, length = GPU_PAGE + 4096, GPU_PAGE
    with (Nic() as nic, HostBuffer(16) as host, Gpu().alloc(SIZE) as gpu,
          nic.register(host) as host_mr, nic.register(gpu, offset, length) as gpu_mr):
        gpu.write(GUARD)
        host.write(bytes(16))
        with nic.loop() as loop:
            try:
                loop.write(host_mr, gpu_mr, 1, dst_offset=at)
                raise AssertionError("it was carried out")
            except CompletionError as error:
                ktap.expect_equal(str(error), "IBV_WC_REM_ACCESS_ERR", "status")
        expect_bytes(gpu.read(), GUARD, "GPU memory")


ktap.main(expect_nothing_left)

#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Data is right however registrations, allocations and GPU pages lie to each other."""

from contextlib import ExitStack

from peermem import ktap
from peermem.equipment import expect_nothing_left, fragment
from peermem.memory import GPU_PAGE, Gpu, HostBuffer, expect_bytes, pattern
from peermem.verbs import Nic

SIZE = 1 << 20


def round_trip(nic, gpu_mr, length=SIZE):
    """Host to GPU by WRITE, back by READ, with new data."""
    data = pattern(f"round trip {gpu_mr.va}", length)
    with (nic.loop() as loop, HostBuffer(length) as there, HostBuffer(length) as back,
          nic.register(there) as there_mr, nic.register(back) as back_mr):
        there.write(data)
        loop.write(there_mr, gpu_mr, length)
        loop.read(gpu_mr, back_mr, length)
        expect_bytes(back.read(), data, "host memory after the round trip")
    return data


def expect_round_trip(nic, gpu, gpu_mr):
    data = round_trip(nic, gpu_mr)
    expect_bytes(gpu.read(), data, "GPU memory")


@ktap.case("two registrations on parts of one allocation")
def parts():
    with (Nic() as nic, Gpu().alloc(SIZE) as gpu,
          nic.register(gpu, 10_000, 200_000) as first,
          nic.register(gpu, 210_000, 300_000) as second):
        one = round_trip(nic, first, 200_000)
        two = round_trip(nic, second, 300_000)
        expect_bytes(gpu.read(10_000, 500_000), one + two, "GPU memory")


@ktap.case("two registrations on the same buffer")
def twice():
    with Nic() as nic, Gpu().alloc(SIZE) as gpu, nic.register(gpu) as first:
        with nic.register(gpu) as second:
            ktap.expect(first.rkey != second.rkey, "both have the same key")
            expect_round_trip(nic, gpu, second)
        # One of the two pins is gone: the memory has to stay mapped.
        expect_round_trip(nic, gpu, first)


@ktap.case("GPU memory in runs of {} pages", (1, 3, 7))
def fragmented(pages):
    with (fragment(pages), Nic() as nic, Gpu().alloc(SIZE) as gpu, nic.register(gpu) as gpu_mr):
        ktap.expect_equal(len(gpu.segments()), -(-SIZE // GPU_PAGE // pages), "runs")
        expect_round_trip(nic, gpu, gpu_mr)


@ktap.case("odd range of GPU memory in runs of one page")
def fragmented_edges():
    offset, length = 3 * GPU_PAGE - 1, 5 * GPU_PAGE + 2
    guard = pattern("guard", SIZE)
    with (fragment(1), Nic() as nic, Gpu().alloc(SIZE) as gpu,
          nic.register(gpu, offset, length) as gpu_mr):
        gpu.write(guard)
        data = round_trip(nic, gpu_mr, length)
        expect_bytes(gpu.read(), guard[:offset] + data + guard[offset + length:], "GPU memory")


@ktap.case("{} from GPU {} to GPU {}", (("write", 0, 1), ("read", 1, 0), ("send", 0, 1),
                                        ("write", 0, 0)))
def between_gpus(operation, source, target):
    data = pattern((operation, source).__repr__(), SIZE)
    with (Nic() as nic, nic.loop() as loop, Gpu(source).alloc(SIZE) as src,
          Gpu(target).alloc(SIZE) as dst, nic.register(src) as src_mr, nic.register(dst) as dst_mr):
        src.write(data)
        dst.write(bytes(SIZE))
        getattr(loop, operation)(src_mr, dst_mr, SIZE)
        expect_bytes(dst.read(), data, "the target")
        expect_bytes(src.read(), data, "the source")


@ktap.case("memory that was freed and allocated again at the same address")
def reused_address():
    with Nic() as nic:
        with Gpu().alloc(SIZE) as old, nic.register(old) as old_mr:
            round_trip(nic, old_mr)
            va = old.va
        with Gpu(1).alloc(SIZE, address=va) as new, nic.register(new) as new_mr:
            expect_round_trip(nic, new, new_mr)


@ktap.case("64 registrations at once")
def many():
    with Nic() as nic, ExitStack() as stack:
        for i in range(64):
            gpu = stack.enter_context(Gpu(i % 2).alloc(GPU_PAGE * (1 + i % 3)))
            last = stack.enter_context(nic.register(gpu))
        round_trip(nic, last, last.length)


ktap.main(expect_nothing_left)

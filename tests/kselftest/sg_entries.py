#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The scatterlist has one entry for each contiguous run, cut where the NIC's limit is."""

from peermem import ktap
from peermem.equipment import (
    counting, expect_nothing_left, fragment, fragment_first, segment_cap, umems)
from peermem.memory import GPU_PAGE, Gpu, HostBuffer, expect_bytes, pattern
from peermem.verbs import Nic

PER_PAGE = "NVIDIA's module has an entry per 64 KiB"
SIZE = 2 << 20
PAGES = SIZE // GPU_PAGE


def runs(gpu, offset, length):
    """Runs of GPU memory that the pages of a range lie in."""
    first, end = offset // GPU_PAGE * GPU_PAGE, -(-(offset + length) // GPU_PAGE) * GPU_PAGE
    found, at = 0, 0
    for _, run in gpu.segments():
        found += at < end and at + run > first
        at += run
    return found


def entries(nic, gpu, offset=0, length=None):
    with counting() as done, nic.register(gpu, offset, length):
        (umem,) = umems()
    ktap.expect_equal(done["num_reg_pages"], umem.entries, "entries that the core counted")
    return umem.entries


@ktap.case("{} contiguous pages: one entry", (1, 2, 33, 1024), ours_only=PER_PAGE)
def contiguous(pages):
    with Nic() as nic, Gpu().alloc(pages * GPU_PAGE) as gpu:
        ktap.expect_equal(len(gpu.segments()), 1, "runs of the allocation")
        ktap.expect_equal(entries(nic, gpu), 1, "entries")


@ktap.case("runs of {} pages: an entry each", (1, 2, 5), ours_only=PER_PAGE)
def fragmented(pages):
    with fragment(pages), Nic() as nic, Gpu().alloc(SIZE) as gpu:
        ktap.expect_equal(len(gpu.segments()), -(-PAGES // pages), "runs of the allocation")
        ktap.expect_equal(entries(nic, gpu), -(-PAGES // pages), "entries")


@ktap.case("bytes {} + {} of memory in runs of four pages: as many entries as it touches runs",
           ((0, 1), (4 * GPU_PAGE - 1, 2), (4 * GPU_PAGE, 4 * GPU_PAGE), (1, SIZE - 2),
            (GPU_PAGE, GPU_PAGE), (7 * GPU_PAGE + 5, 5 * GPU_PAGE)), ours_only=PER_PAGE)
def part(offset, length):
    with fragment(4), Nic() as nic, Gpu().alloc(SIZE) as gpu:
        ktap.expect_equal(entries(nic, gpu, offset, length), runs(gpu, offset, length), "entries")


@ktap.case("limit of {} bytes: {} pages in an entry", (
    (4 * GPU_PAGE, 4), (5 * GPU_PAGE - 1, 4), (GPU_PAGE, 1), (3 * GPU_PAGE, 3), (SIZE, PAGES),
    (SIZE - 1, PAGES - 1)), ours_only=PER_PAGE)
def capped(limit, pages):
    with segment_cap(limit), Nic() as nic, Gpu().alloc(SIZE) as gpu:
        ktap.expect_equal(entries(nic, gpu), -(-PAGES // pages), "entries")


@ktap.case("limit of three pages on runs of seven", ours_only=PER_PAGE)
def capped_runs():
    with segment_cap(3 * GPU_PAGE), fragment(7), Nic() as nic, Gpu().alloc(14 * GPU_PAGE) as gpu:
        ktap.expect_equal(entries(nic, gpu), 2 * 3, "entries")


@ktap.case("{} pieces of a page, then {} pages in one: as many entries, and the data is right",
           ((62, 300), (70, 1), (130, 7), (300, 100)), ours_only=PER_PAGE)
def pieces_at_first(pieces, rest):
    size = (pieces + rest) * GPU_PAGE
    wanted = pattern("pieces", size)
    with (fragment(1), fragment_first(pieces), Nic() as nic, nic.loop() as loop,
          HostBuffer(size) as host, Gpu().alloc(size) as gpu):
        ktap.expect_equal(len(gpu.segments()), pieces + 1, "runs of the allocation")
        ktap.expect_equal(entries(nic, gpu), pieces + 1, "entries")
        host.write(wanted)
        with nic.register(host) as host_mr, nic.register(gpu) as gpu_mr:
            loop.write(host_mr, gpu_mr, size)
            expect_bytes(gpu.read(), wanted, "GPU memory")


@ktap.case("data is right across the entries of a limit")
def data():
    wanted = pattern("capped", SIZE)
    with (segment_cap(3 * GPU_PAGE), fragment(7), Nic() as nic, nic.loop() as loop,
          HostBuffer(SIZE) as host, Gpu().alloc(SIZE) as gpu, nic.register(host) as host_mr,
          nic.register(gpu) as gpu_mr):
        host.write(wanted)
        loop.write(host_mr, gpu_mr, SIZE)
        expect_bytes(gpu.read(), wanted, "GPU memory")


ktap.main(expect_nothing_left)

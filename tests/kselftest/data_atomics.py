#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""FETCH_ADD and COMPARE_SWAP work on GPU memory."""

import struct

from peermem import ktap
from peermem.equipment import counting, expect_nothing_left
from peermem.memory import GPU_PAGE, Gpu, HostBuffer, expect_bytes, pattern
from peermem.verbs import Nic

SIZE = 2 * GPU_PAGE
PLACES = (0, GPU_PAGE - 8, GPU_PAGE, SIZE - 8)
BEFORE = 0x0123_4567_89AB_CDEF
OTHER = 0xFEDC_BA98_7654_3210
GUARD = pattern("guard", SIZE)


def atomic(place, operate, after):
    """The eight bytes at the place become `after`, the old value comes back, no other byte moves."""
    with (Nic() as nic, nic.loop() as loop, HostBuffer(8) as result, Gpu().alloc(SIZE) as gpu,
          nic.register(result) as result_mr, nic.register(gpu) as gpu_mr):
        gpu.write(GUARD)
        gpu.write(struct.pack("=Q", BEFORE), place)
        with counting() as done:
            operate(loop, result_mr, gpu_mr)
        ktap.expect_equal(done["atomics"], 1, "atomic operations on GPU memory")
        ktap.expect_equal(struct.unpack("=Q", result.read()), (BEFORE,), "value returned")
        expect_bytes(gpu.read(), GUARD[:place] + struct.pack("=Q", after) + GUARD[place + 8:],
                     "GPU memory")


@ktap.case("FETCH_ADD at offset {}", PLACES)
def fetch_add(place):
    atomic(place, lambda loop, result, gpu: loop.fetch_add(result, gpu, OTHER, place),
           BEFORE + OTHER & (1 << 64) - 1)


@ktap.case("COMPARE_SWAP that compares equal at offset {}", PLACES)
def compare_swap(place):
    atomic(place, lambda loop, result, gpu: loop.compare_swap(result, gpu, BEFORE, OTHER, place),
           OTHER)


@ktap.case("COMPARE_SWAP that compares unequal at offset {}", PLACES[1:2])
def compare_only(place):
    atomic(place, lambda loop, result, gpu: loop.compare_swap(result, gpu, OTHER, OTHER, place),
           BEFORE)


ktap.main(expect_nothing_left)

#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""perftest registers GPU memory by its own --mmap option, unchanged, and gets its data through."""

from peermem import ktap, perftest
from peermem.equipment import counting, expect_nothing_left, pin_function
from peermem.memory import GPU_PAGE

QUICK = ("-n", "32", "-t", "8")


@ktap.case("{} of {} bytes", (("ib_write_bw", GPU_PAGE), ("ib_read_bw", GPU_PAGE),
                              ("ib_send_bw", 100_001)))
def between_two_gpus(tool, size):
    with counting() as done:
        output = perftest.run(tool, *QUICK, "-s", str(size))
    line = perftest.result(output)
    ktap.say(f"{tool}: {line[3]} MiB/s")
    ktap.expect_equal(line[:2], [str(size), "32"], "bytes and iterations of the result")
    pins = 2 if not ktap.REFERENCE else 4
    ktap.expect_equal(done[pin_function()], pins, "pins")
    ktap.expect_equal(done["num_alloc_mrs"], 2, "registrations of GPU memory")
    for counter in ("bytes_to_peer", "bytes_from_peer"):
        ktap.expect(done[counter] >= 32 * size, f"{counter} is only {done[counter]}")


@ktap.case("writes in both directions over four queue pairs")
def both_ways():
    with counting() as done:
        perftest.run("ib_write_bw", *QUICK, "-s", str(GPU_PAGE), "-q", "4", "-b")
    ktap.expect_equal(done["num_alloc_mrs"], 2, "registrations of GPU memory")


ktap.main(expect_nothing_left)

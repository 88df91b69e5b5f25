#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Where the instructions of a registration and its end go: samples of the instruction pointer,
one in ten thousand, by function. In a VM of scripts/bench:

    tests/vm/run --icount --load bench 'python3 -B /src/tests/bench/profile.py [rust | c]'
"""

import bisect
import collections
import ctypes
import fcntl
import mmap
import os
import struct
import sys

import guest
from peermem.memory import GPU_PAGE, Gpu

_SYS_PERF_EVENT_OPEN, _SOFTWARE, _CPU_CLOCK, _SAMPLE_IP, _SAMPLE = 298, 1, 0, 1, 9
_EXCLUDE_USER = 1 << 4
_PERIOD, _PAGES = 10_000, 1024
_DISABLE = 0x2401  # PERF_EVENT_IOC_DISABLE
_HEAD = 1024  # data_head in the first page of the ring


def _open():
    attributes = struct.pack("=IIQQQQQ", _SOFTWARE, 128, _CPU_CLOCK, _PERIOD, _SAMPLE_IP, 0,
                             _EXCLUDE_USER).ljust(128, b"\0")
    fd = ctypes.CDLL(None, use_errno=True).syscall(_SYS_PERF_EVENT_OPEN, attributes, 0, -1, -1, 0)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "perf_event_open")
    return fd


def _samples(ring):
    (head,) = struct.unpack_from("=Q", ring, _HEAD)
    at, data = 0, ring[mmap.PAGESIZE:]
    while at < min(head, len(data)):
        kind, _, size = struct.unpack_from("=IHH", data, at)
        if kind == _SAMPLE:
            yield struct.unpack_from("=Q", data, at + 8)[0]
        at += size


def _symbols():
    with open("/proc/kallsyms") as file:
        rows = (line.split() for line in file)
        return sorted((int(row[0], 16), " ".join(row[2:])) for row in rows if row[1] in "tTwW")


def main(variant="rust", cycles=20_000):
    with open("/proc/sys/kernel/perf_event_max_sample_rate", "w") as file:
        file.write("200000")
    with guest.loaded(variant), Gpu().alloc(GPU_PAGE) as buffer, guest.Bench() as bench:
        bench.cycle(buffer, 100)
        fd = _open()
        ring = mmap.mmap(fd, (1 + _PAGES) * mmap.PAGESIZE)
        bench.cycle(buffer, cycles)
        fcntl.ioctl(fd, _DISABLE)
        symbols, found = _symbols(), collections.Counter()
        for ip in _samples(ring):
            found[symbols[bisect.bisect_right(symbols, (ip, "~")) - 1][1]] += 1
    for name, count in found.most_common(70):
        print(f"{count * _PERIOD / cycles:8.0f}  {name}")


if __name__ == "__main__":
    main(*sys.argv[1:])

#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""debugfs: every registration in a line, the last failures, and how long calls took."""

import contextlib
import ctypes
import errno
import os
import re
import threading
import time

from peermem import ktap, surface
from peermem.equipment import (Stop, delay, dma_device, dma_fault, expect_nothing_left, fault,
                               fragment, override, pin_function)
from peermem.memory import GPU_PAGE, Gpu
from peermem.mode import CALLBACK
from peermem.surface import DEBUGFS, failures, latencies, registrations
from peermem.threads import Call

OURS = "files of our own"
PAGES = 4
SIZE = PAGES * GPU_PAGE
KEPT = 64
KEYS = ["id", "pid", "client", "gpu", "device", "address", "length", "pages", "entries", "state",
        "age_ms", "comm"]
FAILURE_KEYS = ["time", "pid", "length", "stage", "errno", "reason", "comm"]
_PR_SET_NAME = 15
_libc = ctypes.CDLL(None)


@contextlib.contextmanager
def called(name):
    """This thread: up to 15 bytes, of any kind but 0."""
    _libc.prctl(_PR_SET_NAME, name, 0, 0, 0)
    try:
        yield
    finally:
        _libc.prctl(_PR_SET_NAME, b"python3", 0, 0, 0)


def read_by(name, size):
    """The whole file, so many bytes at a time."""
    fd = os.open(DEBUGFS / name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(fd, size), b""))
    finally:
        os.close(fd)


@ktap.case("nothing registered: an empty file, that ends at once", ours_only=OURS)
def empty():
    ktap.expect_equal(read_by("registrations", 4096), b"", "contents")


@ktap.case("GPU {}, offset {}, {} bytes in runs of {}: every field is right", (
    (0, 0, SIZE, 0), (1, 0, SIZE, 0), (0, GPU_PAGE - 1, 2, 0), (1, 5, 3 * GPU_PAGE, 1)),
           ours_only=OURS)
def all_fields(index, offset, length, run):
    pages = (offset + length - 1) // GPU_PAGE - offset // GPU_PAGE + 1
    with fragment(run, index), Gpu(index).alloc(SIZE) as gpu, called(b"the owner"):
        with surface.nic().register(gpu, offset, length):
            (line,) = registrations()
        va = gpu.va + offset
    ktap.expect_equal(list(line), KEYS, "keys")
    age, number = int(line.pop("age_ms")), int(line.pop("id"))
    ktap.expect_equal(line, {
        "pid": str(os.getpid()), "client": "nv_mem", "gpu": surface.gpu_name(index),
        "device": surface.nic_name(), "address": f"{va:#x}", "length": str(length),
        "pages": str(pages), "entries": str(pages if run else 1), "state": "mapped",
        "comm": "the owner"}, "line")
    ktap.expect(0 <= age < 60_000, f"age {age} ms")
    ktap.expect(number > 0, f"id {number}")


@ktap.case("the owner is the process, and the name that of the thread", ours_only=OURS)
def owner():
    made = []

    def register(gpu):
        _libc.prctl(_PR_SET_NAME, b"a thread", 0, 0, 0)
        made.append(surface.nic().register(gpu))

    with Gpu().alloc(SIZE) as gpu:
        Call(lambda: register(gpu)).result()
        (line,) = registrations()
        made.pop().close()
    ktap.expect_equal((line["pid"], line["comm"]), (str(os.getpid()), "a thread"), "pid and comm")


@ktap.case("the age grows", ours_only=OURS)
def age():
    with Gpu().alloc(SIZE) as gpu, surface.nic().register(gpu):
        before = int(registrations()[0]["age_ms"])
        time.sleep(0.2)
        after = int(registrations()[0]["age_ms"])
    ktap.expect(200 <= after - before < 10_000, f"{before} ms, then {after} ms")


# What the thread is called, and what is shown.
NAMES = (
    (b"plain", "plain"), (b"two words", "two words"), (b"key=value", "key=value"),
    (b"x\nid=7 pid=1", "x?id=7 pid=1"), (b"\x01\t\x1b[31m\x7f", "???[31m?"),
    (b"\xff\xfe\x80", "???"), ("gr\u00fcn".encode(), "gr??n"), (b"", ""), (b"%s%n\\", "%s%n\\"),
    (b"fifteen letters", "fifteen letters"))


@ktap.case("a process called {}", NAMES, ours_only=OURS)
def odd_names(name, shown):
    with Gpu().alloc(SIZE) as gpu, called(name):
        with surface.nic().register(gpu):
            lines = (DEBUGFS / "registrations").read_bytes().splitlines()
        with fault(pin_function(), -errno.EIO):
            ktap.expect_equal(surface.nic().outcome(gpu.va, SIZE), "EIO", "errno")
        last = (DEBUGFS / "failures").read_bytes().splitlines()[-1]
    ktap.expect_equal(len(lines), 1, "lines")
    for line in (lines[0], last):
        ktap.expect_equal(line.partition(b" comm=")[2], shown.encode(), "name")


@ktap.case("a line goes with its registration, and no number comes twice", ours_only=OURS)
def vanish():
    with Gpu().alloc(SIZE) as gpu:
        made = [surface.nic().register(gpu, 0, i + 1) for i in range(5)]
        seen = [line["id"] for line in registrations()]
        for left in range(4, -1, -1):
            # From the middle.
            made.pop(left // 2).close()
            lengths = {int(line["length"]) for line in registrations()}
            ktap.expect_equal(lengths, {mr.length for mr in made}, "lengths of those that are left")
        with surface.nic().register(gpu):
            ktap.expect(registrations()[0]["id"] not in seen, "a number was used again")
    ktap.expect_equal(sorted(set(map(int, seen))), list(map(int, seen)), "numbers, in order")
    ktap.expect_equal(registrations(), [], "lines left")


MANY = 300


@ktap.case(f"{MANY} registrations: each is there once, whatever the size of reads", ours_only=OURS)
def many():
    with Gpu().alloc(SIZE) as gpu:
        made = [surface.nic().register(gpu, 0, i + 1) for i in range(MANY)]
        try:
            # Without the age, which goes on.
            texts = {size: re.sub(rb" age_ms=.*", b"", read_by("registrations", size))
                     for size in (1 << 20, 4096, 1000, 7, 1)}
        finally:
            for registration in made:
                registration.close()
    lengths = re.findall(rb"(?m)^id=\d+ .* length=(\d+) ", texts[1 << 20])
    ktap.expect_equal([int(n) for n in lengths], list(range(1, MANY + 1)), "lengths")
    for size, text in texts.items():
        ktap.expect(text == texts[1 << 20], f"another text in reads of {size}")
        ktap.expect_equal(len(text.splitlines()), MANY, f"lines in reads of {size}")


# Where a registration is stopped, and what is shown there.
PUT = "put_pages" if CALLBACK else "put_pages_persistent"
POINTS = (
    ("acquired", "acquired", False), ("got_pages", "pinned", False), ("dma_map", "mapping", True),
    ("mapped", "mapped", True), ("dma_unmap", "unmapping", True), ("unmapped", "pinned", True),
    ("put", "put", True), (PUT, "releasing", True))
if CALLBACK:
    POINTS = (("get_pages_return", "pinning", False), *POINTS)


@ktap.case("stopped at {}: {}", POINTS, ours_only=OURS)
def states(point, state, has_device):
    nic = surface.nic()
    with Gpu().alloc(SIZE) as gpu:
        with Stop(point) as stop:
            call = Call(lambda: nic.outcome(gpu.va, SIZE))
            stop.reached()
            (line,) = registrations()
        ktap.expect_equal(call.result(), "success", "outcome")
    ktap.expect_equal(line["state"], state, "state")
    ktap.expect_equal(line["device"], surface.nic_name() if has_device else "-", "device")
    if state not in ("mapped", "pinned", "unmapping", "put", "releasing"):
        ktap.expect_equal(line["entries"], "0", "entries")


@ktap.case("memory is being freed: invalidating", ours_only=OURS, only_if=CALLBACK)
def invalidating():
    gpu = Gpu().alloc(SIZE)
    with surface.nic().register(gpu):
        with Stop("invalidate") as stop:
            freeing = Call(gpu.cuda_free)
            stop.reached()
            (line,) = registrations()
        freeing.result()
        ktap.expect_equal(registrations(), [], "lines after that")
    gpu.free()
    ktap.expect_equal(line["state"], "invalidating", "state")


@ktap.case("a pin that the driver does not take back: orphan, until the memory is freed",
           ours_only=OURS, only_if=CALLBACK)
def orphan():
    with Gpu().alloc(SIZE) as gpu:
        with fault("put_pages", -errno.EIO):
            surface.nic().register(gpu).close()
        (line,) = registrations()
    ktap.expect_equal((line["state"], line["entries"], line["pages"]),
                      ("orphan", "0", str(PAGES)), "state, entries and pages")
    ktap.expect_equal(registrations(), [], "lines after that")


# failures

def fail(gpu, length=SIZE, error=-errno.EIO):
    with fault(pin_function(), error):
        ktap.expect(surface.nic().outcome(gpu.va, length) != "success", "it did not fail")


@ktap.case("a failure: every field is right", ours_only=OURS)
def failure_fields():
    with Gpu().alloc(SIZE) as gpu, called(b"the loser"):
        before = time.clock_gettime(time.CLOCK_MONOTONIC)
        fail(gpu, SIZE - 3, -errno.EBUSY)
        after = time.clock_gettime(time.CLOCK_MONOTONIC)
    line = failures()[-1]
    ktap.expect_equal(list(line), FAILURE_KEYS, "keys")
    when = line.pop("time")
    ktap.expect_equal(line, {"pid": str(os.getpid()), "length": str(SIZE - 3), "stage": "acquire",
                             "errno": str(-errno.EBUSY), "reason": "pin_other",
                             "comm": "the loser"}, "line")
    ktap.expect(re.fullmatch(r"\d+\.\d{6}", when), f"time {when}")
    # The kernel log has a clock of its own, which is not far from this one.
    ktap.expect(before - 1 < float(when) < after + 1, f"time {when}, between {before} and {after}")


@ktap.case(f"the last {KEPT} failures are kept, oldest first", ours_only=OURS)
def ring():
    with Gpu().alloc(SIZE) as gpu:
        for length in range(1, KEPT + 10):
            fail(gpu, length)
    lines = failures()
    lengths = [int(line["length"]) for line in lines]
    ktap.expect_equal(lengths, list(range(10, KEPT + 10)), "lengths")
    times = [float(line["time"]) for line in lines]
    ktap.expect_equal(times, sorted(times), "times")
    whole = (DEBUGFS / "failures").read_bytes()
    for size in (1, 7, 100, 4096):
        ktap.expect(read_by("failures", size) == whole, f"another text in reads of {size}")


def at_dma_map():
    return dma_fault() if CALLBACK else fault("dma_map_pages", -errno.EIO)


def early_free():
    """Freed between acquire and get_pages."""
    gpu = Gpu().alloc(SIZE)
    with Stop("acquired") as stop:
        call = Call(lambda: surface.nic().outcome(gpu.va, SIZE))
        stop.reached()
        Call(gpu.cuda_free).result()
    ktap.expect_equal(call.result(), "EFAULT", "errno")
    gpu.free()


def with_knob(knob):
    def register():
        with Gpu().alloc(SIZE) as gpu, knob():
            surface.nic().outcome(gpu.va, SIZE)

    return register


STAGES = [
    ("acquire", "page_table_version", -95, with_knob(lambda: override("table_version", "0x30000"))),
    ("acquire", "drain", -11, with_knob(surface.drained)),
    ("acquire", "limit", -12, with_knob(lambda: surface.limited(1))),
    ("dma_map", "map_eio", -5, with_knob(at_dma_map)),
    ("dma_map", "not_pci_device", -22, with_knob(lambda: dma_device("null"))),
]
if CALLBACK:
    STAGES += [
        ("get_pages", "freed", -14, early_free),
        ("release", "unpin", -5, with_knob(lambda: fault("put_pages", -errno.EIO)))]


@ktap.case("at {0} because of {1}", tuple(STAGES), ours_only=OURS)
def stages(stage, reason, error, provoke):
    provoke()
    line = failures()[-1]
    ktap.expect_equal((line["stage"], line["reason"], line["errno"], line["length"]),
                      (stage, reason, str(error), str(SIZE)), "stage, reason, errno and length")


@ktap.case("memory of nobody is no failure", ours_only=OURS)
def nobodys():
    before = failures()
    with Gpu().alloc(SIZE) as gpu:
        va = gpu.va
    surface.nic().outcome(va, SIZE)
    ktap.expect_equal(failures(), before, "failures")


# latency

def expect_consistent(kind, latency):
    ktap.expect_equal(len(latency.buckets), 40, f"{kind}: buckets")
    ktap.expect_equal(sum(latency.buckets), latency.count, f"{kind}: sum of the buckets")
    filled = [i for i, n in enumerate(latency.buckets) if n]
    # Bucket 0 has 0 ns, too.
    low = sum(n << i for i, n in enumerate(latency.buckets) if i)
    high = sum((2 << i) * n for i, n in enumerate(latency.buckets))
    ktap.expect(low <= latency.sum_ns <= high, f"{kind}: {latency.sum_ns} ns, {low} to {high}")
    if filled:
        ktap.expect_equal(max(latency.max_ns.bit_length() - 1, 0), filled[-1], f"{kind}: longest")


@ktap.case("as many as there were calls, and what adds up adds up", ours_only=OURS)
def latency_counts():
    with Gpu().alloc(SIZE) as gpu:
        surface.reset()
        zeroes = [(one.count, one.sum_ns, one.max_ns) for one in latencies().values()]
        ktap.expect_equal(zeroes, [(0, 0, 0)] * 4, "after a reset")
        for _ in range(7):
            surface.nic().register(gpu).close()
        with surface.nic().register(gpu):
            found = latencies()
    ktap.expect_equal({kind: one.count for kind, one in found.items()},
                      {"pin": 8, "map": 8, "unmap": 7, "unpin": 7}, "counts")
    for kind, one in found.items():
        expect_consistent(kind, one)
        ktap.expect(one.max_ns > 0, f"{kind} took no time")


@ktap.case("a call of {1} that takes 50 ms: {0} knows", (
    ("pin", pin_function()), ("unpin", PUT)), ours_only=OURS)
def latency_unit(kind, function):
    with Gpu().alloc(SIZE) as gpu:
        surface.reset()
        with delay(function, 50):
            surface.nic().register(gpu).close()
        found = latencies()
    ktap.expect(50_000_000 <= found[kind].max_ns < 5_000_000_000, f"{found[kind].max_ns} ns")
    expect_consistent(kind, found[kind])
    ktap.expect_equal(sum(found[kind].buckets[:25]), 0, "shorter ones")


# Eight threads

THREADS, ROUNDS = 8, 30


def watch(stop):
    """Reads all there is; gives the number of lines seen."""
    seen = 0
    while not stop.is_set():
        lines = registrations()
        for line in lines:
            ktap.expect_equal(list(line), KEYS, "keys")
        numbers = [int(line["id"]) for line in lines]
        ktap.expect_equal(numbers, sorted(set(numbers)), "numbers")
        seen += len(lines)
        for line in failures():
            ktap.expect_equal(list(line), FAILURE_KEYS, "keys of failures")
        ktap.expect_equal(list(latencies()), ["pin", "map", "unmap", "unpin"], "kinds")
    return seen


def register_often(gpu):
    for i in range(ROUNDS):
        surface.nic().outcome(gpu.va, i + 1)


@ktap.case(f"read while {THREADS} threads register, deregister and fail", ours_only=OURS)
def under_load():
    stop = threading.Event()
    surface.reset()
    # Some in the middle fail.
    with Gpu().alloc(SIZE) as gpu, fault(pin_function(), -errno.EIO, skip=20, times=40):
        watching = [Call(lambda: watch(stop)) for _ in range(2)]
        calls = [Call(lambda: register_often(gpu)) for _ in range(THREADS)]
        for call in calls:
            call.result(120)
        stop.set()
        seen = sum(call.result(60) for call in watching)
    ktap.say(f"{seen} lines seen")
    ktap.expect(seen, "the readers saw none of them")
    ktap.expect_equal(registrations(), [], "lines left")
    found = latencies()
    for kind, one in found.items():
        expect_consistent(kind, one)
    good = THREADS * ROUNDS - 40
    ktap.expect_equal({kind: one.count for kind, one in found.items()},
                      {"pin": good + 40, "map": good, "unmap": good, "unpin": good}, "counts")


ktap.main(expect_nothing_left)

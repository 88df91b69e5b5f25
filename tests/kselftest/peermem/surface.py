# SPDX-License-Identifier: GPL-2.0
"""What the administrator sees of nvidia_peermem: sysfs, debugfs, and the GPUs and devices in it."""

import collections
import contextlib
import functools
import os
from pathlib import Path

from peermem import ktap
from peermem.memory import GPU_PAGE, Gpu
from peermem.threads import Nic

SYSFS = Path("/sys/kernel/nvidia_peermem")
DEBUGFS = Path("/sys/kernel/debug/nvidia_peermem")
DEBUGFS_FILES = ("registrations", "failures", "latency")
WRITABLE = ("state", "max_pinned_bytes", "stats_reset")
# What the files of a module that is gone say: sysfs that there is no device, debugfs an error.
GONE = {"ENODEV", "EIO"}
# What goes down, too. A peak does with stats_reset alone.
GAUGES = ("active_mrs", "active_bytes", "pinned_bytes", "orphans")


def files(root=SYSFS):
    """All files below root, in order."""
    return sorted(path for path in root.rglob("*") if path.is_file())


def text(name):
    return (SYSFS / name).read_text().removesuffix("\n")


def number(name):
    return int(text(name))


def _read(path):
    """With no more system calls than it takes: an emulated CPU is slow."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


def numbers():
    """All files that have a number, by their path below SYSFS."""
    found = {}
    for directory, _, names in os.walk(SYSFS):
        for name in names:
            path = f"{directory}/{name}"
            value = _read(path).rstrip() if name != "stats_reset" else b""
            if value.isdigit():
                found[path.removeprefix(f"{SYSFS}/")] = int(value)
    return found


def write(name, value):
    """Into a file that is there: to make one would be another error."""
    fd = os.open(SYSFS / name, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, f"{value}\n".encode())
    finally:
        os.close(fd)


def reset():
    write("stats_reset", 1)


@functools.cache
def _nic_of(_pid):
    return Nic()


def nic():
    """One for all cases of a file: to open it takes seconds on an emulated CPU."""
    return _nic_of(os.getpid())


def _is_peak(name):
    return name.startswith("stats/peak_")


class Growth(dict):
    """What grew or shrank by how much, without what stayed the same; and after that the peaks."""

    peaks = None

    def of(self, directory):
        return {name.removeprefix(f"{directory}/"): n for name, n in self.items()
                if name.startswith(f"{directory}/")}


@contextlib.contextmanager
def growing():
    """Gives a Growth, which is filled at the end of the with statement, since a reset. What was
    not there before (a GPU that nobody had used) was 0."""
    reset()
    before, growth = numbers(), Growth()
    yield growth
    after = numbers()
    for name, value in after.items():
        if not _is_peak(name) and value != before.get(name, 0):
            growth[name] = value - before.get(name, 0)
    growth.peaks = {name.removeprefix("stats/"): value
                    for name, value in after.items() if _is_peak(name)}


@contextlib.contextmanager
def drained():
    write("state", "drain")
    try:
        yield
    finally:
        write("state", "live")


@contextlib.contextmanager
def limited(size):
    write("max_pinned_bytes", size)
    try:
        yield
    finally:
        write("max_pinned_bytes", 0)


def fields(line):
    """Those of a line of debugfs. The name of the process is the last: it may have spaces."""
    front, has_comm, comm = line.partition(" comm=")
    found = dict(word.split("=", 1) for word in front.split(" "))
    return found | {"comm": comm} if has_comm else found


def registrations():
    return [fields(line) for line in (DEBUGFS / "registrations").read_text().splitlines()]


def failures():
    return [fields(line) for line in (DEBUGFS / "failures").read_text().splitlines()]


Latency = collections.namedtuple("Latency", "count sum_ns max_ns buckets")


def latencies():
    """By the kind of call."""
    found = {}
    for line in (DEBUGFS / "latency").read_text().splitlines():
        kind, rest = line.split(" ", 1)
        values = fields(rest)
        buckets = [int(n) for n in values["buckets"].split(",")]
        found[kind] = Latency(int(values["count"]), int(values["sum_ns"]), int(values["max_ns"]),
                              buckets)
    return found


def gpu_name(index=0):
    """PCI address, which is the name of its directory."""
    return Gpu(index).pci_address


def nic_name():
    """PCI address of the device that the core asks to map for: the card below soft-RoCE."""
    netdev = Path("/sys/class/infiniband/rxe0/parent").read_text().strip()
    device = Path(f"/sys/class/net/{netdev}/device").resolve()
    while not (device / "vendor").exists() or not device.name.count(":"):
        device = device.parent
    return device.name


def show_all_peers():
    """Has both GPUs and the device used once, so that their directories are there."""

    for index in (0, 1):
        with Gpu(index).alloc(1) as gpu:
            ktap.expect_equal(nic().outcome(gpu.va, 1), "success", "a registration")


def _client_counters(made, gone, pages, size):
    return {"num_alloc_mrs": made, "num_dealloc_mrs": gone,
            "num_reg_pages": made * pages, "num_dereg_pages": gone * pages,
            "num_reg_bytes": made * size, "num_dereg_bytes": gone * size}


def expected(made, gone, pages, size, gpu=0, entries=1):
    """All that grows when as many regions are made, and as many of them are gone again."""
    live = made - gone
    wanted = {f"clients/nv_mem/{name}": n
              for name, n in _client_counters(made, gone, pages, size).items()}
    for place in ("stats", f"gpus/{gpu_name(gpu)}", f"devices/{nic_name()}"):
        wanted |= {f"{place}/active_mrs": live, f"{place}/active_bytes": live * size}
    for place in ("stats", f"gpus/{gpu_name(gpu)}"):
        wanted[f"{place}/pinned_bytes"] = live * pages * GPU_PAGE
    wanted |= {"stats/gpu_pages": made * pages, "stats/sg_entries": made * entries}
    return {name: n for name, n in wanted.items() if n}


def expect_peaks(growth, number_, pages, size):
    ktap.expect_equal(growth.peaks, {
        "peak_active_mrs": number_, "peak_active_bytes": number_ * size,
        "peak_pinned_bytes": number_ * pages * GPU_PAGE}, "peaks")

# SPDX-License-Identifier: GPL-2.0
"""Counters and knobs of the test equipment: mock GPU driver, peer-memory core, soft-RoCE."""

import collections
import contextlib
from pathlib import Path

from peermem.ktap import eventually, expect
from peermem.mode import CALLBACK

_DEBUGFS = Path("/sys/kernel/debug")
_MOCK = _DEBUGFS / "mock_nvidia"
_CORE = _DEBUGFS / "ib_peer_mem"
_RXE = _DEBUGFS / "rxe_peer"
_SEGMENT_CAP = Path("/sys/module/rdma_rxe/parameters/peer_max_seg_size")
CLIENT = "nv_mem"
# NVIDIA's 550 registers two clients; this one serves memory regions.
GAUGES = ("live_allocations", "live_page_tables", "live_persistent_tables", "live_dma_mappings",
          "pinned_bytes", "bar1_used_bytes")
# Pages that were given back while mapped: NVIDIA's driver unmaps them by itself.
FORGOTTEN = "put_pages_mapped"

Umem = collections.namedtuple("Umem", "client va length entries state")


def _number(path):
    return int(path.read_text().split()[0])


def counters():
    """All of them in one dict: those of the GPU driver, of the client in the core (when it is
    there), and of the NIC."""
    found = {}
    if _MOCK.exists():
        for line in (_MOCK / "counters").read_text().splitlines():
            name, value = line.split()
            found[name] = int(value)
    for path in (*(_CORE / "clients" / CLIENT).glob("num_*"), *_RXE.glob("*"),
                 *_CORE.glob("dma_map*")):
        found[path.name] = _number(path)
    return found


@contextlib.contextmanager
def counting():
    """Gives a dict that has, after the with statement, by how much each counter grew."""
    growth = collections.Counter()
    before = counters()
    yield growth
    for name, value in counters().items():
        growth[name] = value - before.get(name, 0)


def umems():
    """The registrations of peer memory that the core knows."""
    found = []
    for line in (_CORE / "umems").read_text().splitlines():
        client, va, length, entries, state = line.split()
        found.append(Umem(client, int(va, 0), int(length), int(entries), state))
    return found


_complaints_known = collections.Counter()


def _complaints():
    """How often the equipment found the module at fault, and what it said last."""
    found = {}
    if _MOCK.exists():
        found["misuse of the GPU driver"] = (counters()["misuse"], _MOCK / "misuse")
    if _CORE.exists():
        path = _CORE / "violations"
        found["violations of the core's contract"] = (_number(path), path)
    if _RXE.exists():
        found["DMA to nowhere"] = (_number(_RXE / "unresolved"), _RXE / "unresolved")
    return found


def new_complaints():
    """Those since the last call. (A counter that is lower than it was belongs to a new module.)"""
    found = {}
    for what, (count, path) in _complaints().items():
        if count > _complaints_known[what]:
            found[what] = path.read_text().splitlines()[-1]
        _complaints_known[what] = count
    return found


new_complaints()


def pci_references():
    """How often each PCI device is referred to."""
    if not _CORE.exists():
        return {}
    lines = (_CORE / "pci_references").read_text().splitlines()
    return dict(line.split() for line in lines)


_pci_references_known = pci_references()


def _references(name):
    """References on a module other than those of modules."""
    path = Path("/sys/module") / name
    if not (path / "refcnt").exists():
        return 0
    return _number(path / "refcnt") - len(list((path / "holders").iterdir()))


def leftovers():
    """What should be zero when nothing is registered, and is not."""
    found = {}
    if _MOCK.exists():
        values = counters()
        found |= {name: values[name] for name in (*GAUGES, FORGOTTEN) if values[name]}
    if _CORE.exists():
        values = {"umems": len(umems()), "dma_mappings": _number(_CORE / "dma_mappings"),
                  "dma_mapped_bytes": _number(_CORE / "dma_mapped_bytes")}
        found |= {name: value for name, value in values.items() if value}
    if _RXE.exists() and _number(_RXE / "live_mrs"):
        found["live_mrs"] = _number(_RXE / "live_mrs")
    for name in ("nvidia_peermem", "mock_nvidia", "ib_peer_mem"):
        if _references(name):
            found[f"references on {name}"] = _references(name)
    for address, number in pci_references().items():
        known = _pci_references_known.setdefault(address, number)
        if number != known:
            found[f"references on {address}"] = f"{number} instead of {known}"
    return found


def expect_nothing_left():
    """Files close a moment after their process has died: leave time for that."""
    with contextlib.suppress(AssertionError):
        eventually(lambda: not leftovers(), "nothing left", 20)
    complaints = new_complaints()
    expect(not complaints, f"complaints: {complaints}")
    expect(not leftovers(), f"left behind: {leftovers()}")


def _knob(path, value, restore):
    @contextlib.contextmanager
    def turned():
        path.write_text(f"{value}\n")
        try:
            yield
        finally:
            path.write_text(f"{restore}\n")

    return turned()


def fault(function, error, skip=0, times=1):
    """nvidia_p2p_FUNCTION lets skip calls pass, then fails times calls (0 = for ever)."""
    return _knob(_MOCK / "fault", f"{function} {error} {skip} {times}", "clear")


def override(field, value):
    """What the next page tables and DMA mappings claim to be."""
    return _knob(_MOCK / "override", f"{field} {value}", "clear")


def delay(function, milliseconds):
    return _knob(_MOCK / "delay", f"{function} {milliseconds}", "clear")


def dma_fault(skip=0, times=1):
    """The DMA layer lets skip mappings for the NIC pass, then fails times (0 = all)."""
    return _knob(_CORE / "dma_fault", f"{skip} {times}", "clear")


class Stop:
    """A point in the equipment (tests/modules/points.h) at which threads wait until go_on(), or
    the end of a with statement."""

    def __init__(self, point):
        self.point = point
        where = _CORE if point in _CORE_POINTS else _MOCK
        self._path = where / "stop"

    def __enter__(self):
        self._path.write_text(f"{self.point}\n")
        return self

    def __exit__(self, *_):
        self.go_on()

    def waiting(self):
        for line in self._path.read_text().splitlines():
            name, number = line.split()
            if name == self.point:
                return int(number)
        return 0

    def reached(self, number=1):
        """Waits until so many threads are there."""
        eventually(lambda: self.waiting() >= number, f"{number} threads at {self.point}")

    def go_on(self):
        self._path.write_text("clear\n")


_CORE_POINTS = ("acquired", "got_pages", "dma_map", "mapped", "invalidate", "invalidated",
                "stopped", "dma_unmap", "unmapped", "put")


def core_delay(point, milliseconds):
    return _knob(_CORE / "delay", f"{point} {milliseconds}", "clear")


def reclaim():
    """Persistent pins that nobody will give back are gone, as after a restart."""
    (_MOCK / "reclaim").write_text("1\n")


def forget_counters():
    """All but the gauges are zero again."""
    (_MOCK / "reset").write_text("1\n")


def _changed(path, value):
    return _knob(path, value, path.read_text().strip())


def fragment(pages, gpu=0):
    """New allocations are runs of so many GPU pages with holes between them."""
    return _changed(_MOCK / f"gpu{gpu}/fragment", pages)


def fragment_first(pages, gpu=0):
    """Only so many pages of them, the rest is one run."""
    return _changed(_MOCK / f"gpu{gpu}/fragment_first", pages)


def bar1_limit(size, gpu=0):
    return _changed(_MOCK / f"gpu{gpu}/bar1_limit_bytes", size)


def dma_device(kind):
    """What clients are asked to map for: real, null or nonpci."""
    return _changed(_CORE / "dma_device", kind)


def segment_cap(size):
    """Longest scatterlist entry that the NIC takes."""
    return _changed(_SEGMENT_CAP, size)


def clients():
    """Names of the peer-memory clients."""
    return sorted(path.name for path in (_CORE / "clients").iterdir())


def pin_function():
    """With which function of the GPU driver regions are pinned in the mode under test."""
    return "get_pages" if CALLBACK else "get_pages_persistent"

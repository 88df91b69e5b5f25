#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Measures both modules, in turn, in one VM (see scripts/bench). Writes /out/NAME.json: lists
of figures, one for each repetition, in ticks of the CPU's clock."""

import argparse
import ctypes
import json
import os
import sys
import threading
import time
from pathlib import Path

sys.path[:0] = ["/src/tests/kselftest", "/src/tests/bench"]
import timeline  # noqa: E402
from peermem import equipment, modules, perftest  # noqa: E402
from peermem.memory import GPU_PAGE, Gpu, HostBuffer  # noqa: E402
from peermem.verbs import Nic  # noqa: E402

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
KO = Path("/src/build") / os.uname().release / "ko"
FILES = {"rust": KO / "nvidia-peermem.ko", "c": KO / "reference/nvidia-peermem.ko",
         "no-statistics": KO / "bench/no-statistics.ko", "no-tracepoints": KO / "bench/no-tracepoints.ko"}
BOTH = ("rust", "c")
BENCH = Path("/sys/kernel/debug/ib_peer_mem/bench")
NETDEV = Path("/sys/class/net/eth0/device").resolve()
CARD = next(path.name for path in (NETDEV, *NETDEV.parents) if (path / "vendor").exists() and
            (path / "class").exists())
LAYOUTS = {"contiguous": 0, "fragmented": 1}


class loaded:
    """One of the modules, until the end of a with statement."""

    def __init__(self, variant, parameters=""):
        self.variant, self.parameters = variant, parameters

    def __enter__(self):
        modules.load_file(FILES[self.variant], self.parameters)
        return self

    def __exit__(self, *_):
        modules.unload(modules.PEERMEM)


class Bench:
    """Registrations that the equipment makes by itself (tests/modules/ib_peer_mem/bench.c)."""

    def __init__(self):
        self._fd = os.open(BENCH, os.O_RDWR | os.O_CLOEXEC)
        self._command("device", CARD)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._fd)

    def _command(self, *words):
        os.write(self._fd, " ".join(map(str, words)).encode())

    def cycle(self, buffer, count=1):
        self._command("cycle", hex(buffer.va), buffer.length, count)

    def register(self, buffer, count=1):
        self._command("register", hex(buffer.va), buffer.length, count)

    def end(self, count=1):
        self._command("end", count)

    def held(self):
        os.lseek(self._fd, 0, os.SEEK_SET)
        lines = os.read(self._fd, 4096).decode().splitlines()
        return {name: int(value) for name, value in map(str.split, lines)}


def say(text):
    print(f"# [{time.monotonic():.0f} s] {text}", flush=True)


def in_turn(rounds, variants=BOTH):
    """Which is first alternates, so that no order favours one."""
    for number in range(rounds):
        yield from variants if number % 2 == 0 else reversed(variants)


def repetitions(length):
    """Enough for a median, and not more than a few seconds."""
    return max(1, min(25, 4 * GIB // length))


def cycle_of(variant, layout, length, found):
    with equipment.fragment(LAYOUTS[layout]), loaded(variant), Gpu().alloc(length) as buffer:
        with Bench() as bench:
            if length <= 4 * GIB:
                bench.cycle(buffer, 2)
            with timeline.recording() as record:
                bench.cycle(buffer, repetitions(length))
            bench.register(buffer)
            held = bench.held()
    for figures in timeline.cycles(record.calls):
        figures |= {"entries": held["entries"], "bytes": held["bytes"]}
        for name, value in figures.items():
            found.setdefault(name, []).append(value)


def register_sizes(sizes, rounds, variants=BOTH, layouts=LAYOUTS):
    """(a) to (d): register and deregister, by size and layout."""
    found = {}
    for layout in layouts:
        for length in sizes:
            say(f"{layout} {length // KIB} KiB")
            for variant in in_turn(1 if length > GIB else rounds, variants):
                place = found.setdefault(variant, {}).setdefault(layout, {})
                cycle_of(variant, layout, length, place.setdefault(str(length), {}))
    return found


def slab_bytes():
    total = 0
    for line in Path("/proc/slabinfo").read_text().splitlines()[2:]:
        _, active, _, size, *_ = line.split()
        total += int(active) * int(size)
    return total


def many(live, window=64):
    """(e) the first and the last of many registrations that stay, and what each takes."""
    found = {}
    for variant in BOTH:
        say(f"{variant}: {live} registrations")
        with loaded(variant), Gpu().alloc(GPU_PAGE) as buffer, Bench() as bench:
            samples = {}
            bench.cycle(buffer, 2)
            before = slab_bytes()
            with timeline.recording() as record:
                bench.register(buffer, window)
            samples["first"] = list(timeline.registrations(record.calls))
            bench.register(buffer, live - 2 * window)
            with timeline.recording() as record:
                bench.register(buffer, window)
            samples["last"] = list(timeline.registrations(record.calls))
            slab = (slab_bytes() - before) / live
            bench.end(live)
        found[variant] = {name: [own for own, _ in values] for name, values in samples.items()}
        found[variant]["slab_bytes"] = slab
    return found


def at_once(count, work):
    """work(number) in each of count threads; how long all took."""
    barrier = threading.Barrier(count + 1)

    def run(number):
        barrier.wait()
        work(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    barrier.wait()
    start = time.monotonic_ns()
    for thread in threads:
        thread.join()
    return time.monotonic_ns() - start


def several_threads(counts=(1, 2, 4, 8), each=200, rounds=3):
    """(f) ns for each of the registrations that threads make at once."""
    found = {}
    for variant in in_turn(rounds):
        with loaded(variant), Gpu().alloc(MIB) as buffer:
            benches = [Bench() for _ in range(max(counts))]
            for count in counts:
                ns = at_once(count, lambda number: benches[number].cycle(buffer, each))
                found.setdefault(variant, {}).setdefault(str(count), []).append(ns / (count * each))
            for bench in benches:
                bench.__exit__()
    return found


def invalidation(sizes, times=15):
    """(g) how long the GPU driver waits in the free callback."""
    found = {}
    for variant in in_turn(2):
        with loaded(variant, "persistent_api_support=0" if variant == "rust" else ""), Nic() as nic:
            for length in sizes:
                samples = found.setdefault(variant, {}).setdefault(str(length), [])
                for _ in range(times):
                    buffer = Gpu().alloc(length)
                    with nic.register(buffer), timeline.recording() as record:
                        buffer.cuda_free()
                    samples += [c.ticks for c in record.calls if c.name == "free_callback"]
                    buffer.free()
    return found


PERFTEST = {"ib_write_bw": 3, "ib_read_bw": 3, "ib_write_lat": 4}  # column of the figure


def perftest_figure(tool, gpu):
    size = ("-s", "65536", "-n", "300") if tool.endswith("bw") else ("-s", "64", "-n", "300")
    gpus = {} if gpu else {"server_gpu": None, "client_gpu": None}
    return float(perftest.result(perftest.run(tool, *size, seconds=900, **gpus))[PERFTEST[tool]])


def data_path(rounds):
    """(h) perftest on GPU memory and on host memory: MiB/s, and us."""
    found = {}
    with loaded("rust"):
        for number in range(rounds):
            for tool in PERFTEST:
                kinds = ("gpu", "host") if number % 2 == 0 else ("host", "gpu")
                for kind in kinds:
                    say(f"{tool} {kind}")
                    figure = perftest_figure(tool, kind == "gpu")
                    found.setdefault(tool, {}).setdefault(kind, []).append(figure)
    return found


def staged(length=MIB, times=8):
    """(h) ns for moving GPU memory: directly, and by way of host memory."""
    found = {"direct": [], "staged": []}
    with (loaded("rust"), Nic() as nic, nic.loop() as loop, Gpu(0).alloc(length) as source,
          Gpu(1).alloc(length) as target, HostBuffer(length) as near, HostBuffer(length) as far,
          nic.register(source) as source_mr, nic.register(target) as target_mr,
          nic.register(near) as near_mr, nic.register(far) as far_mr):
        for _ in range(times):
            start = time.monotonic_ns()
            loop.write(source_mr, target_mr, length)
            found["direct"].append(time.monotonic_ns() - start)
            start = time.monotonic_ns()
            ctypes.memmove(near.va, source.va, length)
            loop.write(near_mr, far_mr, length)
            ctypes.memmove(target.va, far.va, length)
            found["staged"].append(time.monotonic_ns() - start)
    return {name: values[1:] for name, values in found.items()}


def load_time(rounds=5):
    """(j) ns for loading and unloading."""
    found = {}
    for variant in in_turn(rounds):
        start = time.monotonic_ns()
        modules.load_file(FILES[variant])
        middle = time.monotonic_ns()
        modules.unload(modules.PEERMEM)
        place = found.setdefault(variant, {"load": [], "unload": []})
        place["load"].append(middle - start)
        place["unload"].append(time.monotonic_ns() - middle)
    return found


FULL_SIZES = tuple(64 * KIB * 4 ** n for n in range(11))
SLOPE_SIZES = (64 * KIB, MIB, 16 * MIB, GIB)


SUITES = {
    "full": {
        "cost": lambda: register_sizes(SLOPE_SIZES[:3], 2, ("rust", "no-statistics", "no-tracepoints"),
                                       ("contiguous",)),
        "many": lambda: many(65536),
        "threads": several_threads,
        "load": load_time,
        "invalidation": lambda: invalidation((64 * KIB, 16 * MIB, 128 * MIB)),
        "staged": staged,
        "register": lambda: register_sizes(FULL_SIZES, 2),
        "data_path": lambda: data_path(3),
    },
    "short": {"register": lambda: register_sizes(SLOPE_SIZES[:3] + (256 * MIB,), 1, ("rust",))},
    "wall": {"register": lambda: register_sizes(SLOPE_SIZES, 2), "threads": several_threads},
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--only", nargs="*", help="measure no more than these")
    options = parser.parse_args()
    found = {"release": os.uname().release}
    for name, measure in SUITES[options.suite].items():
        if options.only is None or name in options.only:
            found[name] = measure()
            say(f"{name}: done")
            Path(f"/out/{options.suite}.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

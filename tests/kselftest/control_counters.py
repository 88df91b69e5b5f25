#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Counters and gauges in sysfs: exact for each client, GPU and device, and nothing else moves."""

import errno

from peermem import ktap, modules, surface
from peermem.equipment import (counting, expect_nothing_left, fault, fragment, override,
                               pin_function, segment_cap)
from peermem.memory import GPU_PAGE, Gpu
from peermem.mode import CALLBACK
from peermem.surface import expect_peaks, expected, growing, numbers, reset

OURS = "counters of our own"
PAGES = 4
SIZE = PAGES * GPU_PAGE


# Registrations at a time, how many of them end, offset, length, pages that it touches.
@ktap.case("{0} regions of {2} bytes at offset {3}, {1} of them deregistered", (
    (1, 0, SIZE, 0, PAGES), (1, 1, SIZE, 0, PAGES), (7, 3, SIZE, 0, PAGES), (7, 7, SIZE, 0, PAGES),
    (3, 1, 1, 0, 1), (3, 2, 2, GPU_PAGE - 1, 2), (2, 1, GPU_PAGE, 1, 2),
    (2, 2, SIZE - 7, 5, PAGES)), ours_only=OURS)
def exact(made, gone, size, offset, pages):
    nic = surface.nic()
    with Gpu().alloc(SIZE) as gpu:
        with growing() as growth:
            registrations = [nic.register(gpu, offset, size) for _ in range(made)]
            for registration in registrations[:gone]:
                registration.close()
        ktap.expect_equal(growth, expected(made, gone, pages, size), "growth")
        expect_peaks(growth, made, pages, size)
        for registration in registrations[gone:]:
            registration.close()


@ktap.case("two GPUs at once: each has its own", ours_only=OURS)
def each_gpu():
    nic = surface.nic()
    with Gpu(0).alloc(SIZE) as first, Gpu(1).alloc(2 * SIZE) as second:
        with growing() as growth, nic.register(first), nic.register(second):
            values = numbers()
            for index, size in ((0, SIZE), (1, 2 * SIZE)):
                place = f"gpus/{surface.gpu_name(index)}"
                shown = [values[f"{place}/{name}"]
                         for name in ("active_mrs", "active_bytes", "pinned_bytes")]
                ktap.expect_equal(shown, [1, size, size], place)
            place = f"devices/{surface.nic_name()}"
            ktap.expect_equal([values[f"{place}/active_mrs"], values[f"{place}/active_bytes"]],
                              [2, 3 * SIZE], place)
        ktap.expect_equal(growth.of("gpus") | growth.of("devices"), {}, "left")


@ktap.case("there are the GPUs and the device that were used, and no others", ours_only=OURS)
def peers():
    surface.show_all_peers()
    for what, names in (("gpus", [surface.gpu_name(i) for i in (0, 1)]),
                        ("devices", [surface.nic_name()])):
        shown = sorted(path.name for path in (surface.SYSFS / what).iterdir())
        ktap.expect_equal(shown, sorted(names), what)
    # The mock's UUID is its PCI address.
    for index in (0, 1):
        name = surface.gpu_name(index)
        raw = f"gpu:{name}".encode()[:16].hex()
        wanted = "GPU-" + "-".join((raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:]))
        ktap.expect_equal(surface.text(f"gpus/{name}/uuid"), wanted, "UUID")


@ktap.case("the core counts regions and bytes as we do", ours_only=OURS)
def as_the_core():
    names = ("num_alloc_mrs", "num_dealloc_mrs", "num_reg_bytes", "num_dereg_bytes",
             "num_free_callbacks")
    nic = surface.nic()
    with growing() as growth, counting() as done:
        for size in (1, SIZE, SIZE - 1):
            with Gpu().alloc(SIZE) as gpu, nic.register(gpu, 0, size):
                pass
        if CALLBACK:
            gpu = Gpu().alloc(SIZE)
            with nic.register(gpu):
                gpu.free()
    ours = growth.of("clients/nv_mem")
    ktap.expect_equal({name: ours.get(name, 0) for name in names},
                      {name: done[name] for name in names}, "counters")


@ktap.case("the client for what cannot be revoked is there, and serves no memory region",
           ours_only=OURS, only_if=CALLBACK)
def other_client():
    nic = surface.nic()
    with Gpu().alloc(SIZE) as gpu, growing() as growth:
        nic.register(gpu).close()
    ktap.expect(surface.text("clients/nv_mem_nc/version"), "no version")
    ktap.expect_equal(growth.of("clients/nv_mem_nc"), {}, "growth")


@ktap.case("runs of {0} pages: {1} pages, {2} entries", ((1, 12, 12), (5, 12, 3), (12, 12, 1)),
           ours_only=OURS)
def fragments(run, pages, entries):
    nic = surface.nic()
    with fragment(run), Gpu().alloc(pages * GPU_PAGE) as gpu:
        with growing() as growth, nic.register(gpu):
            pass
        size = pages * GPU_PAGE
        ktap.expect_equal(growth, expected(1, 1, pages, size, entries=entries), "growth")


@ktap.case("a NIC that takes three pages in an entry", ours_only=OURS)
def capped():
    nic = surface.nic()
    with segment_cap(3 * GPU_PAGE), Gpu().alloc(7 * GPU_PAGE) as gpu:
        with growing() as growth, nic.register(gpu):
            pass
        ktap.expect_equal(growth, expected(1, 1, 7, 7 * GPU_PAGE, entries=3), "growth")


@ktap.case("a reset: counters are 0, gauges stay, peaks are what is now", ours_only=OURS)
def resets():
    nic = surface.nic()
    with Gpu().alloc(SIZE) as gpu, fault(pin_function(), -errno.EIO):
        ktap.expect_equal(nic.outcome(gpu.va, SIZE), "EIO", "errno")
        with nic.register(gpu):
            nic.register(gpu).close()
            before = numbers()
            reset()
            after = numbers()
    gauges = {name for name in before if name.rsplit("/", 1)[-1] in surface.GAUGES}
    # As settings, they are not statistics.
    gauges.add("max_pinned_bytes")
    for name in before:
        if name.startswith("stats/peak_"):
            wanted = after["stats/" + name.removeprefix("stats/peak_")]
            ktap.expect(before[name] > wanted, f"{name} was no higher before")
        else:
            wanted = before[name] if name in gauges else 0
        ktap.expect_equal(after[name], wanted, name)
    ktap.expect_equal(after["stats/active_mrs"], 1, "regions now")


@ktap.case("a reset while a region lives: it is counted at its end, and no gauge goes below 0",
           ours_only=OURS)
def reset_in_between():
    nic = surface.nic()
    with Gpu().alloc(SIZE) as gpu:
        with nic.register(gpu):
            reset()
        now = numbers()
    ktap.expect_equal(now["clients/nv_mem/num_alloc_mrs"], 0, "made")
    ktap.expect_equal(now["clients/nv_mem/num_dealloc_mrs"], 1, "gone")
    ktap.expect_equal(now["stats/active_mrs"], 0, "regions now")
    ktap.expect_equal(now["stats/peak_active_mrs"], 1, "peak")


@ktap.case("a module that is loaded again starts from 0", ours_only=OURS)
def starts_at_zero():
    surface.show_all_peers()
    with modules.unloaded():
        pass
    ktap.expect_equal({name: n for name, n in numbers().items() if n}, {}, "numbers that are not 0")
    ktap.expect_equal(list((surface.SYSFS / "gpus").iterdir()), [], "GPUs")


@ktap.case("two GPUs whose memory is at no PCI device, as that of coherent ones: \"unknown\"",
           ours_only=OURS, only_if=not CALLBACK)
def unknown_gpus():
    # As they are known once, they stay.
    with modules.unloaded():
        pass
    with modules.KernelLog() as log, override("table_ram", 1):
        surface.show_all_peers()
        with Gpu(1).alloc(SIZE) as gpu, surface.nic().register(gpu):
            in_debugfs, in_sysfs = surface.registrations()[0]["gpu"], numbers()
        complaints = log.lines("duplicate")
    with modules.unloaded():
        pass
    ktap.expect_equal(complaints, [], "complaints")
    ktap.expect_equal(in_debugfs, "unknown", "GPU in debugfs")
    ktap.expect_equal(in_sysfs["gpus/unknown/active_mrs"], 1, "regions of the second")


ktap.main(expect_nothing_left)

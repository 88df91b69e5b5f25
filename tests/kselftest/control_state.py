#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""What the administrator can set: drain, a limit on pinned memory, and statistics from 0."""

import errno
import time

from peermem import ktap, modules, surface
from peermem.equipment import counting, expect_nothing_left, fault, pin_function
from peermem.errors import outcome
from peermem.memory import (GPU_PAGE, Gpu, HostBuffer, expect_bytes, map_memory, pattern,
                            unmap_memory)
from peermem.modules import KernelLog
from peermem.surface import drained, growing, limited, number, text
from peermem.threads import nic_and_loop

OURS = "a control surface of our own"
PAGES = 4
SIZE = PAGES * GPU_PAGE


def written(name, value):
    """The outcome of one write of these bytes."""
    return outcome(lambda: (surface.SYSFS / name).write_bytes(value))


@ktap.case("live by default, and after each load", ours_only=OURS)
def default():
    surface.write("state", "drain")
    surface.write("max_pinned_bytes", 1)
    with modules.unloaded():
        pass
    ktap.expect_equal(text("state"), "live", "state")
    ktap.expect_equal(text("max_pinned_bytes"), "0", "limit")


def let_log_breathe():
    """It takes ten lines about failures in 5 s."""
    time.sleep(6)


@ktap.case("drain: a new registration gets EAGAIN, and a line says why", ours_only=OURS)
def drain():
    let_log_breathe()
    nic = surface.nic()
    with (Gpu().alloc(SIZE) as gpu, KernelLog() as log, drained(),
          counting() as done, growing() as growth):
        ktap.expect_equal(text("state"), "drain", "state")
        ktap.expect_equal(nic.outcome(gpu.va, SIZE), "EAGAIN", "errno")
        lines = log.lines()
    ktap.say("\n".join(lines))
    ktap.expect_equal(len(lines), 1, "log lines")
    ktap.expect("drain" in lines[0], "the line does not say why")
    ktap.expect_equal(growth, {"failures/drain": 1}, "growth")
    ktap.expect_equal([done[name] for name in ("pinned_bytes", "live_page_tables",
                                               "live_dma_mappings")], [0, 0, 0], "left")


@ktap.case("live again: registrations succeed again", ours_only=OURS)
def live_again():
    nic = surface.nic()
    with Gpu().alloc(SIZE) as gpu:
        for _ in range(3):
            with drained():
                ktap.expect_equal(nic.outcome(gpu.va, SIZE), "EAGAIN", "drained")
            ktap.expect_equal(nic.outcome(gpu.va, SIZE), "success", "live")


@ktap.case("drain: what is registered goes on moving data, and can be deregistered", ours_only=OURS)
def existing_go_on():
    data = pattern("drain", SIZE)
    with (nic_and_loop() as (nic, loop), Gpu(0).alloc(SIZE) as src, Gpu(1).alloc(SIZE) as dst):
        src.write(data)
        source, target = nic.register(src), nic.register(dst)
        with drained():
            ktap.expect_equal(nic.outcome(src.va, SIZE), "EAGAIN", "a new one")
            loop.write(source, target, SIZE)
            expect_bytes(dst.read(), data, "what was written while drained")
            loop.read(source, target, SIZE)
            ktap.expect_equal(number("stats/active_mrs"), 2, "regions")
            source.close()
            target.close()
            ktap.expect_equal(number("stats/active_mrs"), 0, "regions left")
            ktap.expect_equal(modules.references(), 0, "references on the module")


@ktap.case("drain: host memory, and memory of nobody, are as ever", ours_only=OURS)
def others_go_on():
    nic = surface.nic()
    with HostBuffer(SIZE) as host, drained():
        va = map_memory(SIZE)
        unmap_memory(va, SIZE)
        ktap.expect_equal(nic.outcome(host.va, SIZE), "success", "host memory")
        ktap.expect_equal(nic.outcome(va, SIZE), "EFAULT", "memory of nobody")


@ktap.case("drain, then unload: what the state is for", ours_only=OURS)
def drain_and_unload():
    nic = surface.nic()
    with Gpu().alloc(SIZE) as gpu:
        with nic.register(gpu):
            surface.write("state", "drain")
            ktap.expect_equal(outcome(lambda: modules.unload(modules.PEERMEM, attempts=2)),
                              "EAGAIN", "unloading while registered")
        with modules.unloaded():
            pass
        ktap.expect_equal(text("state"), "live", "state")
        ktap.expect_equal(nic.outcome(gpu.va, SIZE), "success", "a registration after that")


@ktap.case("state takes {} as {}", (
    (b"drain", "drain"), (b"drain\n", "drain"), (b"live", "live"), (b"live\n", "live")),
           ours_only=OURS)
def good_state(value, wanted):
    surface.write("state", "live" if wanted == "drain" else "drain")
    try:
        ktap.expect_equal(written("state", value), "success", "outcome")
        ktap.expect_equal(text("state"), wanted, "state")
    finally:
        surface.write("state", "live")


BAD_STATES = (b"\n", b" drain", b"drain ", b"DRAIN", b"drai", b"drained", b"live\ndrain", b"1",
              b"drain\n\n", b"\0", b"\xff\xfe", b"x" * 4000)


@ktap.case("state takes nothing else: EINVAL, and it stays {}", ("live", "drain"), ours_only=OURS)
def bad_state(state):
    surface.write("state", state)
    try:
        for value in BAD_STATES:
            ktap.expect_equal(written("state", value), "EINVAL", f"{value[:20]!r}")
            ktap.expect_equal(text("state"), state, f"state after {value[:20]!r}")
    finally:
        surface.write("state", "live")


# Limit in bytes, then what is registered one after the other, and whether each fits.
@ktap.case("a limit of {} bytes: {} and {}", (
    (SIZE, "one fits exactly", (True, False)), (2 * SIZE, "two fit", (True, True, False)),
    (2 * SIZE - 1, "the second is a byte too much", (True, False)),
    (1, "none fits", (False,)), ((1 << 64) - 1, "all fit", (True, True, True))), ours_only=OURS)
def limit(size, _what, fits):
    kept = []
    nic = surface.nic()
    with Gpu().alloc(SIZE) as gpu, limited(size), growing() as growth:
        for fit in fits:
            if fit:
                kept.append(nic.register(gpu))
            else:
                ktap.expect_equal(nic.outcome(gpu.va, SIZE), "ENOMEM", "errno")
        ktap.expect_equal(number("stats/pinned_bytes"), fits.count(True) * SIZE, "bytes pinned")
        for registration in kept:
            registration.close()
    ktap.expect_equal(growth.of("failures"), {"limit": fits.count(False)} if False in fits else {},
                      "failures")


@ktap.case("the limit is about whole pages", ours_only=OURS)
def whole_pages():
    nic = surface.nic()
    with Gpu().alloc(SIZE) as gpu, limited(GPU_PAGE):
        with nic.register(gpu, 0, 1):
            # One byte, of a page that is over the limit.
            ktap.expect_equal(nic.outcome(gpu.va + GPU_PAGE, 1), "ENOMEM", "a second page")
        ktap.expect_equal(nic.outcome(gpu.va + GPU_PAGE - 1, 2), "ENOMEM", "two bytes of two pages")
        ktap.expect_equal(nic.outcome(gpu.va, GPU_PAGE), "success", "one page")


@ktap.case("what is registered goes on when the limit is set below it", ours_only=OURS)
def lowered():
    data = pattern("limit", SIZE)
    with (nic_and_loop() as (nic, loop), Gpu(0).alloc(SIZE) as src, Gpu(1).alloc(SIZE) as dst):
        src.write(data)
        with nic.register(src) as source, nic.register(dst) as target, limited(1):
            loop.write(source, target, SIZE)
            expect_bytes(dst.read(), data, "what was written above the limit")
            ktap.expect_equal(nic.outcome(src.va, SIZE), "ENOMEM", "a new one")
        ktap.expect_equal(nic.outcome(src.va, SIZE), "success", "without the limit")


@ktap.case("another failure is not the limit's, and the limit is not another's", ours_only=OURS)
def told_apart():
    nic = surface.nic()
    with Gpu().alloc(SIZE) as gpu, growing() as growth:
        with limited(SIZE), fault(pin_function(), -errno.ENOMEM):
            ktap.expect_equal(nic.outcome(gpu.va, SIZE), "ENOMEM", "no room on the GPU")
        with limited(SIZE - 1):
            ktap.expect_equal(nic.outcome(gpu.va, SIZE), "ENOMEM", "the limit")
    ktap.expect_equal(growth, {"failures/pin_enomem": 1, "failures/limit": 1}, "growth")


@ktap.case("limit: a line says why", ours_only=OURS)
def limit_is_logged():
    let_log_breathe()
    with Gpu().alloc(SIZE) as gpu, limited(SIZE - 1), KernelLog() as log:
        ktap.expect_equal(surface.nic().outcome(gpu.va, SIZE), "ENOMEM", "errno")
        lines = log.lines()
    ktap.expect(len(lines) == 1 and "max_pinned_bytes" in lines[0], f"log lines: {lines}")


@ktap.case("drain before limit, if both would refuse", ours_only=OURS)
def both():
    nic = surface.nic()
    with Gpu().alloc(SIZE) as gpu, limited(1), drained(), growing() as growth:
        ktap.expect_equal(nic.outcome(gpu.va, SIZE), "EAGAIN", "errno")
    ktap.expect_equal(growth, {"failures/drain": 1}, "growth")


@ktap.case("max_pinned_bytes takes {} as {}", (
    (b"0", "0"), (b"65536\n", "65536"), (b"0x10000", "65536"), (b"18446744073709551615",
                                                              "18446744073709551615")),
           ours_only=OURS)
def good_limit(value, wanted):
    surface.write("max_pinned_bytes", 7)
    try:
        ktap.expect_equal(written("max_pinned_bytes", value), "success", "outcome")
        ktap.expect_equal(text("max_pinned_bytes"), wanted, "limit")
    finally:
        surface.write("max_pinned_bytes", 0)


BAD_NUMBERS = (b"\n", b"-1", b"1G", b"1 2", b"1\n2", b"one", b"0x", b" 1", b"1.5", b"\0", b"\xff",
               b"9" * 4000)


def expect_bad(name, value):
    # Beyond 64 bits the kernel's own word is ERANGE.
    wanted = ("EINVAL", "ERANGE") if value.strip(b"9") == b"" else ("EINVAL",)
    ktap.expect(written(name, value) in wanted, f"{value[:20]!r}: {written(name, value)}")


@ktap.case("max_pinned_bytes takes nothing else: EINVAL, and it stays", ours_only=OURS)
def bad_limit():
    with limited(SIZE):
        for value in (*BAD_NUMBERS, b"18446744073709551616"):
            if value.strip(b"9") == b"" or len(value) == 20:
                ktap.expect_equal(written("max_pinned_bytes", value), "ERANGE", f"{value[:20]!r}")
            else:
                ktap.expect_equal(written("max_pinned_bytes", value), "EINVAL", f"{value[:20]!r}")
            ktap.expect_equal(text("max_pinned_bytes"), str(SIZE), f"limit after {value[:20]!r}")


@ktap.case("stats_reset takes 1 and nothing else: EINVAL, and nothing is reset", ours_only=OURS)
def bad_reset():
    nic = surface.nic()
    with Gpu().alloc(SIZE) as gpu:
        surface.reset()
        nic.register(gpu).close()
        before = surface.numbers()
        for value in (*BAD_NUMBERS, b"0", b"2", b"10"):
            expect_bad("stats_reset", value)
            ktap.expect_equal(surface.numbers(), before, f"numbers after {value[:20]!r}")
        ktap.expect_equal(written("stats_reset", b"1"), "success", "outcome")
        ktap.expect_equal(number("clients/nv_mem/num_alloc_mrs"), 0, "regions made")


@ktap.case("settings are no statistics: a reset leaves them", ours_only=OURS)
def settings_stay():
    with drained(), limited(SIZE):
        surface.reset()
        ktap.expect_equal((text("state"), text("max_pinned_bytes")), ("drain", str(SIZE)),
                          "settings")


ktap.main(expect_nothing_left)

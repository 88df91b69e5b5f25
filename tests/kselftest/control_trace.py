#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Tracepoints: one event for each call, with what it was about; and none when they are off."""

import contextlib
import ctypes
import errno
import re
from pathlib import Path

from peermem import ktap, modules, surface
from peermem.equipment import (Stop, delay, dma_device, expect_nothing_left, fault, fragment,
                               pin_function)
from peermem.memory import GPU_PAGE, Gpu, HostBuffer
from peermem.mode import CALLBACK, MODE
from peermem.threads import Call

OURS = "tracepoints of our own"
PAGES = 4
SIZE = PAGES * GPU_PAGE
TRACING = Path("/sys/kernel/tracing")
# Of its own: whoever else traces is not disturbed.
INSTANCE = TRACING / "instances/peermem_test"
EVENTS = ("acquire", "get_pages", "dma_map", "dma_unmap", "put_pages", "release", "free_callback")
REGISTRATION, DEREGISTRATION = EVENTS[:3], EVENTS[3:6]
FIELDS = {
    "acquire": ["id", "address", "length", "pages", "ret", "ns"],
    "dma_map": ["id", "length", "entries", "ret", "ns"],
    "free_callback": ["id", "length", "mapped", "ns"],
}
LINE = re.compile(r": (\w+): (id=.*)$")

if not (TRACING / "events").exists():
    ctypes.CDLL(None).mount(b"tracefs", bytes(TRACING), b"tracefs", 0, None)


def switch(on, events=EVENTS):
    for event in events:
        (INSTANCE / "events/nvidia_peermem" / event / "enable").write_text(str(on))


def clear():
    (INSTANCE / "trace").write_text("")


@contextlib.contextmanager
def instance():
    INSTANCE.mkdir()
    try:
        yield
    finally:
        INSTANCE.rmdir()


def traced_lines():
    lines = (INSTANCE / "trace").read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


@contextlib.contextmanager
def traced(events=EVENTS):
    """Gives a list that has, after the with statement, (event, fields) for each, in order."""
    found = []
    with instance():
        switch(1, events)
        try:
            yield found
        finally:
            switch(0, events)
            lines = traced_lines()
        for line in lines:
            match = LINE.search(line)
            ktap.expect(match, f"not understood: {line}")
            found.append((match[1], surface.fields(match[2])))


def names(found):
    return [event for event, _ in found]


def expect_fields(found):
    """The right keys, one number for the registration, and a duration."""
    for event, fields in found:
        ktap.expect_equal(list(fields), FIELDS.get(event, ["id", "length", "ret", "ns"]), event)
        ktap.expect(0 < int(fields["ns"]) < 60_000_000_000, f"{event}: {fields['ns']} ns")
    ktap.expect_equal(len({fields["id"] for _, fields in found}), 1, "numbers of registrations")


@ktap.case("there are these events, and no others", ours_only=OURS)
def events():
    shown = {path.name for path in (TRACING / "events/nvidia_peermem").iterdir() if path.is_dir()}
    ktap.expect_equal(shown, set(EVENTS), "events")


@ktap.case("registered and deregistered: each event once, in order, with its fields",
           ours_only=OURS)
def once():
    with fragment(2), Gpu().alloc(SIZE) as gpu:
        nic = surface.nic()
        with traced() as found, nic.register(gpu, 5, SIZE - 6):
            number = surface.registrations()[0]["id"]
        va = gpu.va + 5
    ktap.expect_equal(names(found), list(REGISTRATION + DEREGISTRATION), "events")
    expect_fields(found)
    for event, fields in found:
        ktap.expect_equal((fields["id"], fields["length"], fields["ret"]),
                          (number, str(SIZE - 6), "0"), f"{event}: id, length and ret")
    first, third = found[0][1], found[2][1]
    ktap.expect_equal((first["address"], first["pages"]), (f"{va:#x}", str(PAGES)), "acquire")
    ktap.expect_equal(third["entries"], str(PAGES // 2), "entries")


@ktap.case("10 registrations: 10 of each", ours_only=OURS)
def ten():
    with Gpu().alloc(SIZE) as gpu, traced() as found:
        for _ in range(10):
            surface.nic().register(gpu).close()
    ktap.expect_equal(names(found), list(REGISTRATION + DEREGISTRATION) * 10, "events")
    numbers = [int(fields["id"]) for event, fields in found if event == "acquire"]
    ktap.expect_equal(numbers, sorted(set(numbers)), "numbers of registrations")


@ktap.case("the pin fails: an acquire that says so, and no more", ours_only=OURS)
def pin_fails():
    with Gpu().alloc(SIZE) as gpu, traced() as found, fault(pin_function(), -errno.EBUSY):
        ktap.expect_equal(surface.nic().outcome(gpu.va, SIZE), "EBUSY", "errno")
    ktap.expect_equal(names(found), ["acquire"], "events")
    expect_fields(found)
    fields = found[0][1]
    ktap.expect_equal((fields["id"], fields["ret"]), ("0", str(-errno.EBUSY)), "id and ret")


@ktap.case("mapping fails: the core undoes what it did, and dma_unmap is not called",
           ours_only=OURS)
def map_fails():
    with Gpu().alloc(SIZE) as gpu, traced() as found, dma_device("null"):
        ktap.expect_equal(surface.nic().outcome(gpu.va, SIZE), "EINVAL", "errno")
    ktap.expect_equal(names(found), [*REGISTRATION, "put_pages", "release"], "events")
    expect_fields(found)
    fields = found[2][1]
    ktap.expect_equal((fields["entries"], fields["ret"]), ("0", str(-errno.EINVAL)), "dma_map")


@ktap.case("what is not GPU memory leaves no trace", ours_only=OURS)
def not_gpu_memory():
    with Gpu().alloc(SIZE) as gpu:
        va = gpu.va
    with HostBuffer(SIZE) as host, traced() as found:
        surface.nic().register(host).close()
        ktap.expect_equal(surface.nic().outcome(va, SIZE), "EFAULT", "errno")
    ktap.expect_equal(names(found), [], "events")


@ktap.case("memory freed while it is mapped: free_callback, and the core's calls once",
           ours_only=OURS, only_if=CALLBACK)
def freed():
    gpu = Gpu().alloc(SIZE)
    with traced() as found:
        with surface.nic().register(gpu):
            gpu.free()
            at_free = names(found_so_far())
    ktap.expect("free_callback" in at_free, "it came later")
    # Newer cores leave it to the client to unmap, and do not ask it to.
    wanted = set(EVENTS) if MODE == "callback-old" else set(EVENTS) - {"dma_unmap", "put_pages"}
    ktap.expect_equal(sorted(names(found)), sorted(wanted), "events")
    ktap.expect_equal(names(found)[-1], "release", "the last")
    expect_fields(found)
    fields = dict(found)["free_callback"]
    ktap.expect_equal((fields["mapped"], fields["length"]), ("1", str(SIZE)), "mapped and length")


def found_so_far():
    matches = map(LINE.search, traced_lines())
    return [(match[1], match[2]) for match in matches]


@ktap.case("memory freed while it is only pinned: not mapped", ours_only=OURS, only_if=CALLBACK)
def freed_early():
    gpu = Gpu().alloc(SIZE)
    with traced() as found, Stop("acquired") as stop:
        call = Call(lambda: surface.nic().outcome(gpu.va, SIZE))
        stop.reached()
        Call(gpu.cuda_free).result()
        stop.go_on()
        ktap.expect_equal(call.result(), "EFAULT", "errno")
    gpu.free()
    ktap.expect_equal(names(found), ["acquire", "free_callback", "get_pages", "release"], "events")
    expect_fields(found)
    ktap.expect_equal(found[1][1]["mapped"], "0", "mapped")
    ktap.expect_equal(found[2][1]["ret"], str(-errno.EFAULT), "get_pages")


@ktap.case("memory freed in persistent mode: no event", ours_only=OURS, only_if=not CALLBACK)
def stays():
    gpu = Gpu().alloc(SIZE)
    with traced() as found, surface.nic().register(gpu):
        gpu.free()
    ktap.expect_equal(names(found), list(REGISTRATION + DEREGISTRATION), "events")


@ktap.case("a pin that takes 50 ms takes as long in the trace", ours_only=OURS)
def duration():
    with Gpu().alloc(SIZE) as gpu, delay(pin_function(), 50), traced() as found:
        surface.nic().register(gpu).close()
    ns = {event: int(fields["ns"]) for event, fields in found}
    ktap.expect(ns["acquire"] >= 50_000_000, f"acquire: {ns['acquire']} ns")
    ktap.expect(ns["get_pages"] < 50_000_000, f"get_pages: {ns['get_pages']} ns")


@ktap.case("only {} is on: nothing else appears", EVENTS[:6], ours_only=OURS)
def one_event(event):
    with Gpu().alloc(SIZE) as gpu, traced((event,)) as found:
        surface.nic().register(gpu).close()
    ktap.expect_equal(names(found), [event], "events")


@ktap.case("off, and off again: nothing appears", ours_only=OURS)
def off():
    with instance(), Gpu().alloc(SIZE) as gpu:
        surface.nic().register(gpu).close()
        ktap.expect_equal(traced_lines(), [], "never on")
        switch(1)
        surface.nic().register(gpu).close()
        ktap.expect(traced_lines(), "on, and nothing appears")
        switch(0)
        clear()
        surface.nic().register(gpu).close()
        ktap.expect_equal(traced_lines(), [], "off again")


@ktap.case("switched on between acquire and release: whole events from there on", ours_only=OURS)
def in_between():
    with Gpu().alloc(SIZE) as gpu:
        registration = surface.nic().register(gpu)
        with traced() as found:
            registration.close()
    ktap.expect_equal(names(found), list(DEREGISTRATION), "events")
    expect_fields(found)


@ktap.case("the module goes while its events are on, and comes back with them off", ours_only=OURS)
def unload():
    with instance(), Gpu().alloc(SIZE) as gpu:
        switch(1)
        surface.nic().register(gpu).close()
        with modules.unloaded():
            ktap.expect(not (INSTANCE / "events/nvidia_peermem").exists(), "events are left")
            traced_lines()
        surface.nic().register(gpu).close()
        ktap.expect_equal([line for line in traced_lines() if LINE.search(line)], [], "events")


ktap.main(expect_nothing_left)

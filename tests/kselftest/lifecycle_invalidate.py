#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Memory freed while registered. In callback mode it is gone for the NIC when the free returns, in
persistent mode it stays, and in neither does a byte reach whoever has the memory next."""

import threading
import time

from peermem import ktap
from peermem.equipment import counting, counters, expect_nothing_left, fragment, umems
from peermem.memory import GPU_PAGE, Gpu, HostBuffer, expect_bytes, pattern
from peermem.mode import CALLBACK, MODE
from peermem.modules import KernelLog
from peermem.process import alone
from peermem.revoked import expect_access_fails, expect_nothing_held, expect_untouched, same_place
from peermem.threads import Call, CompletionError, nic_and_loop

SIZE = 16 * GPU_PAGE
FREES = ("cuda_free", "free")  # with the mapping left in place, and munmap


def host_registration(nic):
    """Host memory to write from and read into."""
    buffer = HostBuffer(SIZE)
    buffer.write(pattern("host", SIZE))
    return nic.register(buffer)


@ktap.case("after {}() every access ends in an error, and reaches nobody", FREES,
           only_if=CALLBACK)
@alone
def revoked(how):
    with nic_and_loop() as (nic, loop), host_registration(nic) as host:
        gpu = Gpu().alloc(SIZE)
        segments = gpu.segments()
        with nic.register(gpu) as registration:
            loop.write(host, registration, SIZE)
            getattr(gpu, how)()
            expect_nothing_held()
            expect_untouched(Gpu(), SIZE, segments,
                             lambda: expect_access_fails(loop, host, registration))


@ktap.case("freed and allocated again at the same address: the old key does not reach it")
@alone
def same_address():
    data = pattern("new", SIZE)
    with nic_and_loop() as (nic, loop), host_registration(nic) as host:
        old = Gpu().alloc(SIZE)
        va, segments = old.va, old.segments()
        with nic.register(old) as registration:
            old.free()
            with Gpu().alloc(SIZE, va) as new:
                # Where the old one was, or in persistent mode just not there.
                ktap.expect_equal(new.segments() == segments, CALLBACK, "the same place")
                new.write(data)
                if CALLBACK:
                    expect_access_fails(loop, host, registration)
                else:
                    loop.write(host, registration, SIZE)
                expect_bytes(new.read(), data, "the new memory")
                with nic.register(new) as again:
                    loop.write(host, again, SIZE)
                    expect_bytes(new.read(), pattern("host", SIZE), "the new memory by its own key")


@ktap.case("pins, BAR1 space, and DMA mappings go at once, for {} registrations", (1, 5),
           only_if=CALLBACK)
@alone
def at_once(number):
    with nic_and_loop() as (nic, _loop):
        gpu = Gpu().alloc(SIZE)
        registrations = [nic.register(gpu) for _ in range(number)]
        with counting() as done:
            gpu.cuda_free()
            expect_nothing_held()
            # An old core's words for it are those of a region that it unmapped itself.
            state = "unmapped" if MODE == "callback-old" else "invalidated"
            ktap.expect_equal([umem.state for umem in umems()], [state] * number, "states")
        ktap.expect_equal(done["free_callbacks"], number, "callbacks")
        ktap.expect_equal(done["num_free_callbacks"], number, "invalidations")
        for registration in registrations:
            registration.close()


@ktap.case("memory stays until deregistration", only_if=not CALLBACK)
@alone
def stays():
    with nic_and_loop() as (nic, loop), host_registration(nic) as host:
        gpu = Gpu().alloc(SIZE)
        segments = gpu.segments()
        with nic.register(gpu) as registration:
            gpu.cuda_free()
            values = counters()
            ktap.expect_equal(values["pinned_bytes"], SIZE, "bytes pinned")
            ktap.expect_equal(values["live_allocations"], 1, "allocations")
            # Nobody gets it, and the NIC still reaches it.
            with Gpu().alloc(SIZE) as other:
                ktap.expect(not {start for start, _ in other.segments()}
                            & {start for start, _ in segments}, "given away while pinned")
                data = pattern("other", SIZE)
                other.write(data)
                loop.write(host, registration, SIZE)
                loop.read(host, registration, SIZE)
                expect_bytes(other.read(), data, "memory of others")
        expect_nothing_held()
        same_place(Gpu(), SIZE, segments).free()


@ktap.case("a registration of fragments, freed", only_if=CALLBACK)
@alone
def fragments():
    with nic_and_loop() as (nic, loop), host_registration(nic) as host, fragment(1):
        gpu = Gpu().alloc(SIZE)
        with nic.register(gpu) as registration:
            ktap.expect_equal(counters()["dma_mappings"], SIZE // GPU_PAGE, "mappings, one a run")
            gpu.cuda_free()
            expect_nothing_held()
            expect_access_fails(loop, host, registration)


@ktap.case("two buffers, one freed: the other goes on")
@alone
def other_goes_on():
    with nic_and_loop() as (nic, loop), host_registration(nic) as host:
        gone, kept = Gpu().alloc(SIZE), Gpu().alloc(SIZE)
        with nic.register(gone), nic.register(kept) as registration:
            gone.free()
            loop.write(host, registration, SIZE)
            expect_bytes(kept.read(), pattern("host", SIZE), "the one that is kept")
        kept.free()


def write_until_error(loop, host, registration, freed):
    """How many writes succeeded; all must that begin and end before the memory is freed."""
    done = 0
    while True:
        status = loop.try_write(host, registration, SIZE)
        if status != "success":
            return done, status
        done += 1
        if freed.is_set() and not CALLBACK:
            return done, status


@ktap.case("freed in the middle of traffic: not a byte afterwards, round {}", (1, 2, 3, 4))
@alone
def traffic(round_):
    data = pattern(f"traffic {round_}", SIZE)
    freed = threading.Event()
    with nic_and_loop() as (nic, loop), host_registration(nic) as host:
        gpu = Gpu().alloc(SIZE)
        segments = gpu.segments()
        with nic.register(gpu) as registration:
            writing = Call(lambda: write_until_error(loop, host, registration, freed))
            start = counters()["bytes_to_peer"]
            ktap.eventually(lambda: counters()["bytes_to_peer"] > start + SIZE, "traffic")
            time.sleep(0.007 * round_)
            Call(gpu.cuda_free).result()
            if CALLBACK:
                with same_place(Gpu(), SIZE, segments) as now:
                    now.write(data)
                    count, status = writing.result(60)
                    expect_bytes(now.read(), data, "memory that was allocated later")
                ktap.expect(status != "success", "the write after the free succeeded")
            else:
                freed.set()
                count, status = writing.result(60)
                ktap.expect_equal(status, "success", "the write after the free")
            ktap.say(f"{count} writes before; then {status}")
            ktap.expect(count, "no traffic before the memory was freed")


@ktap.case("the log has no line about any of it")
@alone
def silent():
    with nic_and_loop() as (nic, loop), host_registration(nic) as host, KernelLog() as log:
        for _ in range(20):
            gpu = Gpu().alloc(SIZE)
            with nic.register(gpu) as registration:
                gpu.free()
                if CALLBACK:
                    try:
                        loop.write(host, registration, SIZE)
                        ktap.expect(False, "the write succeeded")
                    except CompletionError:
                        pass
        ktap.expect_equal(log.lines(), [], "log lines")


ktap.main(expect_nothing_left)

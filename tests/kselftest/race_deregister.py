#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Memory that is freed while its registration ends: each thing is given back once, by one side,
and neither waits for the other for ever."""

from peermem import ktap
from peermem.equipment import Stop, counting, expect_nothing_left
from peermem.memory import GPU_PAGE, Gpu
from peermem.mode import CALLBACK, MODE, REFERENCE
from peermem.process import alone
from peermem.revoked import expect_nothing_held
from peermem.threads import Call, nic_and_loop

SIZE = 4 * GPU_PAGE
OLD = MODE == "callback-old"

# Where the deregistration is when the memory goes, and whether freeing can end before the
# deregistration goes on. (None: it may.) For old cores the core's own lock is held up to "put".
CALLBACK_WINDOWS = (
    ("stopped", True), ("dma_unmap", None), ("unmapped", None if OLD else True),
    ("put", True), ("put_pages", None))
PERSISTENT_WINDOWS = (
    ("stopped", True), ("dma_unmap_pages", True), ("dma_unmap", True), ("unmapped", True),
    ("put_pages_persistent", True), ("put", True))
WINDOWS = CALLBACK_WINDOWS if CALLBACK else PERSISTENT_WINDOWS

# Where the free callback is when the registration ends.
CALLBACKS = ("free_callback", "invalidate", "dma_unmap", "invalidated", "free_callback_return")
# NVIDIA's module leaves the unmapping to the driver, which does it after the callback.
IN_CALLBACK = ("invalidate", "invalidated") + (() if REFERENCE else ("dma_unmap",))


def expect_put_once(done):
    """A put of a table that is gone does nothing; only one who comes too late may try it."""
    ktap.expect(done["put_pages_unknown"] <= 1, f"{done['put_pages_unknown']} puts of nothing")
    ktap.expect_equal(done["put_pages_foreign"], 0, "puts from another process")


@ktap.case("freed while the deregistration is at {}", WINDOWS)
@alone
def freed_in_deregistration(point, free_ends):
    with nic_and_loop() as (nic, _loop), counting() as done:
        gpu = Gpu().alloc(SIZE)
        registration = nic.register(gpu)
        with Stop(point) as stop:
            deregistering = Call(registration.close)
            stop.reached()
            freeing = Call(gpu.cuda_free)
            if free_ends:
                freeing.result()
            else:
                freeing.done(0.3)
        deregistering.result()
        freeing.result()
        expect_nothing_held()
    expect_put_once(done)


@ktap.case("deregistered while the free callback is at {}", CALLBACKS, only_if=CALLBACK)
@alone
def deregistered_in_callback(point):
    with nic_and_loop() as (nic, _loop), counting() as done:
        gpu = Gpu().alloc(SIZE)
        registration = nic.register(gpu)
        with Stop(point) as stop:
            freeing = Call(gpu.cuda_free)
            stop.reached()
            deregistering = Call(registration.close)
            ended = deregistering.done(0.5)
            if point in IN_CALLBACK:
                # What the callback is about to touch must still be there.
                ktap.expect(not ended, "the registration went before the callback was over")
        freeing.result()
        deregistering.result()
        expect_nothing_held()
    expect_put_once(done)


@ktap.case("deregistered after the memory went")
@alone
def afterwards():
    with nic_and_loop() as (nic, _loop):
        gpu = Gpu().alloc(SIZE)
        with counting() as done:
            registration = nic.register(gpu)
            gpu.cuda_free()
            if CALLBACK:
                expect_nothing_held()
            registration.close()
            expect_nothing_held()
        if CALLBACK:
            ktap.expect_equal(done["put_pages"] + done["dma_unmap_pages"], done["get_pages"] - 1,
                              "calls to the driver for what it took back itself")


@ktap.case("the memory is freed twice at once", only_if=CALLBACK)
@alone
def freed_twice():
    with nic_and_loop() as (nic, _loop):
        gpu = Gpu().alloc(SIZE)
        with nic.register(gpu):
            with counting() as done, Stop("invalidated") as stop:
                frees = Call(gpu.cuda_free), Call(gpu.free)
                stop.reached()
                stop.go_on()
                for free in frees:  # the one that comes later may find nothing
                    ktap.expect(free.errno_name() in ("success", "EINVAL"), "free")
            ktap.expect_equal(done["free_callbacks"], 1, "callbacks")


@ktap.case("three regions of the same memory, one deregistered, when it is freed")
@alone
def three_regions():
    with nic_and_loop() as (nic, _loop):
        gpu = Gpu().alloc(SIZE)
        first, second, third = [nic.register(gpu) for _ in range(3)]
        with Stop("stopped") as stop:
            deregistering = Call(second.close)
            stop.reached()
            freeing = Call(gpu.cuda_free)
            freeing.done(0.3)
        deregistering.result()
        freeing.result()
        if CALLBACK:
            expect_nothing_held()
        for registration in first, third:
            registration.close()
        expect_nothing_held()


ktap.main(expect_nothing_left)

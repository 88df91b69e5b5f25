#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Memory that is freed while it is being registered: an errno or a region that is revoked, and
never a hang, a stale pin, or a byte in memory of others."""

import mmap
import threading
import time

from peermem import ktap
from peermem.equipment import Stop, expect_nothing_left, pin_function
from peermem.errors import outcome
from peermem.memory import GPU_PAGE, Gpu, HostBuffer, map_memory
from peermem.mode import CALLBACK
from peermem.process import alone
from peermem.revoked import expect_access_fails, expect_nothing_held, expect_untouched
from peermem.threads import Call, nic_and_loop

SIZE = 4 * GPU_PAGE

# Where the registration is when the memory goes; whether freeing can end before the registration
# goes on; and what the registration ends with.
EITHER = ("success", "EFAULT")
CALLBACK_WINDOWS = (
    (pin_function(), True, ("EFAULT",)),  # before the pin: nobody's memory
    ("get_pages_return", None, EITHER),  # who is first after that is open
    ("acquired", True, ("EFAULT",)),
    ("got_pages", True, ("EFAULT",)),
    ("dma_map", None, EITHER),
    ("mapped", False, ("success",)),
)
PERSISTENT_WINDOWS = (
    (pin_function(), True, ("EFAULT",)),
    ("get_pages_return", True, ("success",)),
    ("acquired", True, ("success",)),
    ("got_pages", True, ("success",)),
    ("dma_map_pages", True, ("success",)),
    ("dma_map", False, ("success",)),  # the mock maps with its lock held
    ("mapped", True, ("success",)),
)
WINDOWS = CALLBACK_WINDOWS if CALLBACK else PERSISTENT_WINDOWS


def register(nic, gpu, place):
    """Gives the registration to place."""
    place.append(nic.register(gpu))


def expect_revoked(nic, loop, registration, segments):
    expect_nothing_held()
    with HostBuffer(SIZE) as buffer, nic.register(buffer) as host:
        expect_untouched(Gpu(), SIZE, segments,
                         lambda: expect_access_fails(loop, host, registration))


@ktap.case("freed while the registration is at {0}", WINDOWS)
@alone
def window(point, free_ends, wanted):
    made = []
    with nic_and_loop() as (nic, loop):
        gpu = Gpu().alloc(SIZE)
        segments = gpu.segments()
        with Stop(point) as stop:
            registering = Call(lambda: register(nic, gpu, made))
            stop.reached()
            freeing = Call(gpu.cuda_free)
            if free_ends:
                freeing.result()
            elif free_ends is False:
                ktap.expect(not freeing.done(0.3), "the memory went while it was being mapped")
            else:
                freeing.done(0.3)
        result = registering.errno_name()
        freeing.result()
        ktap.expect(result in wanted, f"registration: {result} instead of {wanted}")
        for registration in made:
            if CALLBACK:
                expect_revoked(nic, loop, registration, segments)
            registration.close()
        expect_nothing_held()
        # The range is nobody's now, and the NIC takes new memory as ever.
        ktap.expect_equal(nic.outcome(gpu.va, SIZE), "EFAULT", "a registration of freed memory")
        with Gpu().alloc(SIZE) as new:
            ktap.expect_equal(nic.outcome(new.va, SIZE), "success", "a registration of new memory")


@ktap.case("two threads register while a third frees")
@alone
def two_registrations():
    made = []
    with nic_and_loop() as (nic, _loop):
        gpu = Gpu().alloc(SIZE)
        with Stop("got_pages") as stop:
            calls = [Call(lambda: register(nic, gpu, made)) for _ in range(2)]
            stop.reached(2)
            freeing = Call(gpu.cuda_free)
            freeing.result()
        wanted = "EFAULT" if CALLBACK else "success"
        for call in calls:
            ktap.expect_equal(call.errno_name(), wanted, "registration")
        for registration in made:
            registration.close()
        expect_nothing_held()


@ktap.case("the neighbour's registration at {} is not disturbed", ("acquired", "got_pages"))
@alone
def neighbour(point):
    made = []
    with nic_and_loop() as (nic, _loop), Gpu().alloc(SIZE) as kept:
        gone = Gpu().alloc(SIZE)
        with Stop(point) as stop:
            registering = Call(lambda: register(nic, kept, made))
            stop.reached()
            Call(gone.cuda_free).result()
        registering.result()
        for registration in made:
            registration.close()


def reserve(va):
    """Frees what is there, and lets nobody else in the process have the range."""
    map_memory(SIZE, address=va, protection=0, flags=mmap.MAP_PRIVATE)


def allocate_and_free(va, until, freed):
    """The same range again and again, for moments of all lengths."""
    moment = 0
    while time.monotonic() < until:
        Gpu().alloc(SIZE, va)
        time.sleep(moment)
        moment = (moment + 0.00031) % 0.004
        reserve(va)
        freed.append(1)


@ktap.case("registered and freed at random for 5 seconds")
@alone
def random():
    results = {}
    freed = []
    with nic_and_loop() as (nic, _loop):
        va = Gpu().alloc(SIZE).va
        reserve(va)
        until = time.monotonic() + 5
        freeing = threading.Thread(target=allocate_and_free, args=(va, until, freed), daemon=True)
        freeing.start()
        while freeing.is_alive():
            result = outcome(lambda: nic.register_range(va, SIZE).close())
            results[result] = results.get(result, 0) + 1
    ktap.say(f"{len(freed)} times freed; registrations: {results}")
    # EINVAL would be a wrong range, and ENOMEM no room: neither is so.
    ktap.expect(set(results) <= {"success", "EFAULT"}, f"other errors: {results}")
    ktap.expect(results.get("success", 0) > 10 and results.get("EFAULT", 0) > 10, "not a race")


ktap.main(expect_nothing_left)

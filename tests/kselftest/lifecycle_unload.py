#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The module is unloaded and loaded while others register: refused or granted, and never both."""

import time

from peermem import ktap, modules
from peermem.equipment import expect_nothing_left
from peermem.errors import outcome
from peermem.memory import GPU_PAGE, Gpu
from peermem.modules import PEERMEM
from peermem.process import Child, alone, children
from peermem.revoked import expect_nothing_held
from peermem.threads import Call, Nic

SIZE = 4 * GPU_PAGE
CYCLES, RACES = 100, 25


def register_for_ever(child):
    """Until told to stop; tells the outcomes."""
    outcomes = set()
    waiting = Call(child.wait_for_parent)
    with Nic() as nic, Gpu().alloc(SIZE) as gpu:
        child.tell(True)
        while not waiting.done():
            outcomes.add(nic.outcome(gpu.va, SIZE))
            time.sleep(0.0005)  # the others need the CPUs, too
    child.tell(outcomes)


def free_for_ever(child):
    """As that, freeing what is registered."""
    outcomes = set()
    waiting = Call(child.wait_for_parent)
    with Nic() as nic:
        child.tell(True)
        while not waiting.done():
            with Gpu().alloc(SIZE) as gpu:
                try:
                    registration = nic.register(gpu)
                except OSError as error:
                    outcomes.add(error.errno)
                    continue
            outcomes.add("success")
            registration.close()
    child.tell(outcomes)


def try_unload():
    """Once, where modules.unload() is patient."""
    return outcome(lambda: modules.unload(PEERMEM, attempts=1))


@ktap.case(f"{CYCLES} times, and nothing is registered")
def idle():
    for _ in range(CYCLES):
        modules.unload(PEERMEM)
        modules.load(PEERMEM)
    with Child(lambda child: child.tell(register_once())) as child:
        ktap.expect_equal(child.told(), "success", "a registration after that")


def register_once():
    with Nic() as nic, Gpu().alloc(SIZE) as gpu:
        return nic.outcome(gpu.va, SIZE)


@ktap.case("two processes {0} meanwhile", (
    ("register", register_for_ever), ("register and free", free_for_ever)))
def busy(_what, function):
    granted = refused = 0
    with children(2, function) as workers:
        for worker in workers:
            worker.told()
        while granted < RACES and granted + refused < 400 * RACES:
            result = try_unload()
            if result == "success":
                granted += 1
                modules.load(PEERMEM)
            else:
                ktap.expect(result in ("EAGAIN", "EBUSY"), f"unloading: {result}")
                refused += 1
        ktap.say(f"granted {granted} times, refused {refused} times")
        for worker in workers:
            worker.go_on()
        outcomes = set.union(*(worker.told() for worker in workers))
    # Without the module, GPU memory is memory that cannot be pinned.
    ktap.expect(outcomes <= {"success", "EFAULT", 14}, f"registrations: {outcomes}")
    ktap.expect(granted and refused, "no race")
    expect_nothing_held()


@ktap.case("the last registration ends, and the module goes at once")
@alone
def at_once():
    with Nic() as nic, Gpu().alloc(SIZE) as gpu:
        for _ in range(20):
            registration = nic.register(gpu)
            ktap.expect(try_unload() != "success", "unloaded under a registration")
            registration.close()
            ktap.expect_equal(try_unload(), "success", "unloading")
            modules.load(PEERMEM)


ktap.main(expect_nothing_left)

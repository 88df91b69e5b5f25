#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Pins, mappings and module references go back, however a registration ends."""

import signal
import time

from peermem import ktap, modules
from peermem.equipment import counters, counting, expect_nothing_left
from peermem.memory import GPU_PAGE, Gpu, expect_bytes, pattern
from peermem.mode import CALLBACK
from peermem.process import Child
from peermem.verbs import Nic

SIZE = 8 * GPU_PAGE


def hold(child):
    """Registers memory of both GPUs, and waits to be told how to end."""
    nic = Nic()
    buffers = [Gpu(i).alloc(SIZE) for i in (0, 1)]
    registrations = [nic.register(buffer) for buffer in buffers]
    child.tell(len(registrations))
    child.wait_for_parent()


def traffic(child):
    """Writes from GPU 0 to GPU 1 for ever."""
    nic = Nic()
    loop = nic.loop()
    buffers = [Gpu(i).alloc(SIZE) for i in (0, 1)]
    src, dst = [nic.register(buffer) for buffer in buffers]
    loop.write(src, dst, SIZE)
    child.tell(2)
    while True:
        loop.write(src, dst, SIZE)


def expect_registered(child):
    ktap.expect_equal(child.told(), 2, "registrations of the child")
    ktap.expect_equal(modules.references(), 2, "references on the module")
    ktap.expect(counters()["pinned_bytes"] >= 2 * SIZE, "the child's memory is not pinned")


@ktap.case("exit without deregistration")
def exit_():
    with Child(hold) as child:
        expect_registered(child)
        child.go_on()
        ktap.expect_equal(child.wait(), 0, "exit status")


@ktap.case("SIGKILL")
def kill():
    with Child(hold) as child:
        expect_registered(child)
        ktap.expect_equal(child.kill(), -signal.SIGKILL, "exit status")


@ktap.case("SIGKILL in the middle of traffic, round {}", (1, 2, 3))
def kill_traffic(round_):
    with Child(traffic) as child:
        expect_registered(child)
        time.sleep(0.05 * round_)
        ktap.expect_equal(child.kill(), -signal.SIGKILL, "exit status")


@ktap.case("closing the device with registrations on it")
def close():
    with Gpu().alloc(SIZE) as gpu:
        nic = Nic()
        _first, _second = nic.register(gpu), nic.register(gpu)
        nic.close()
        ktap.expect_equal(modules.references(), 0, "references on the module")


@ktap.case("memory freed while registered stays until deregistration", only_if=not CALLBACK)
def freed():
    data = pattern("freed", SIZE)
    with (Nic() as nic, nic.loop() as loop, Gpu(1).alloc(SIZE) as copy,
          nic.register(copy) as copy_mr):
        gpu = Gpu().alloc(SIZE)
        gpu.write(data)
        free_before = Gpu().free_bytes
        with nic.register(gpu) as gpu_mr:
            gpu.free()
            ktap.expect_equal(Gpu().free_bytes, free_before, "free GPU memory")
            loop.write(gpu_mr, copy_mr, SIZE)
            expect_bytes(copy.read(), data, "what the NIC read from it")
        ktap.expect_equal(Gpu().free_bytes, free_before + SIZE, "free GPU memory at the end")


@ktap.case("one of two processes dies, the other goes on")
def neighbour():
    with Child(hold) as victim, Child(traffic) as survivor:
        victim.told()
        survivor.told()
        with counting() as done:
            victim.kill()
            before = counters()["bytes_to_peer"]
            ktap.eventually(lambda: counters()["bytes_to_peer"] > before, "traffic of the survivor")
        ktap.expect_equal(done["live_page_tables"], -2, "change in the number of pins")
        ktap.expect_equal(done["live_mrs"], -2, "change in the number of regions")


ktap.main(expect_nothing_left)

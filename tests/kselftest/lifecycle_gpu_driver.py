#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The GPU driver, or a GPU, is asked to go while memory is pinned."""

import threading
import time
from pathlib import Path

from peermem import ktap, modules
from peermem.equipment import counters, expect_nothing_left
from peermem.errors import outcome
from peermem.memory import GPU_PAGE, Gpu, HostBuffer, expect_bytes, pattern
from peermem.mode import CALLBACK
from peermem.process import Child
from peermem.revoked import expect_nothing_held
from peermem.threads import Nic, nic_and_loop

SIZE = 4 * GPU_PAGE
PCI = Path("/sys/bus/pci")


def hold(child):
    nic = Nic()
    gpu = Gpu(1).alloc(SIZE)
    registration = nic.register(gpu)
    child.tell(True)
    child.wait_for_parent()
    gpu.free()
    child.tell(True)
    child.wait_for_parent()
    registration.close()
    child.tell(True)
    child.wait_for_parent()


@ktap.case("the driver is not unloaded while memory is pinned")
def driver_stays():
    with Child(hold) as child:
        child.told()
        for name in ("mock_nvidia", "ib_peer_mem"):
            ktap.expect(outcome(lambda: modules.unload(name)) != "success", f"{name} is gone")
        child.go_on()
        child.told()
        ktap.expect_equal(counters()["pinned_bytes"], 0 if CALLBACK else SIZE, "bytes pinned")


def remove(gpu):
    """As its hot removal. Waits for the last user, as NVIDIA's driver does."""
    removing = threading.Thread(
        target=(PCI / "devices" / gpu.pci_address / "remove").write_text, args=("1",))
    removing.start()
    return removing


def bring_back():
    (PCI / "rescan").write_text("1")
    ktap.eventually(Path("/dev/mock_nvidia1").exists, "the GPU")


def expect_works():
    data = pattern("back", SIZE)
    with (nic_and_loop() as (nic, loop), Gpu(1).alloc(SIZE) as gpu, HostBuffer(SIZE) as buffer):
        buffer.write(data)
        with nic.register(gpu) as target, nic.register(buffer) as source:
            loop.write(source, target, SIZE)
        expect_bytes(gpu.read(), data, "memory of the GPU that came back")


@ktap.case("a GPU is removed while its memory is registered: {}", (
    "freed, then deregistered", "the process is killed"))
def gpu_removed(end):
    with Child(hold) as child:
        child.told()
        removing = remove(Gpu(1))
        try:
            time.sleep(0.3)
            ktap.expect(removing.is_alive(), "the GPU went with its memory pinned")
            if end == "the process is killed":
                child.kill()
            else:
                child.go_on()
                child.told()
                removing.join(0.3)
                ktap.expect_equal(removing.is_alive(), not CALLBACK, "waiting for the pin")
                child.go_on()
                child.told()
            removing.join(20)
            ktap.expect(not removing.is_alive(), "the removal still waits")
            expect_nothing_held()
        finally:
            child.kill()
            removing.join(20)
            bring_back()
    # In a process of its own: this one has no device open.
    with Child(lambda child: child.tell(expect_works())) as child:
        child.told()


ktap.main(expect_nothing_left)

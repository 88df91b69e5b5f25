#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The RDMA device goes while memory is registered on it, and comes back."""

import subprocess
import threading
from pathlib import Path

from peermem import ktap, modules
from peermem.equipment import counters, counting, expect_nothing_left
from peermem.errors import outcome
from peermem.memory import GPU_PAGE, Gpu
from peermem.mode import CALLBACK
from peermem.process import Child, in_child
from peermem.revoked import expect_nothing_held
from peermem.threads import Nic

SIZE = 4 * GPU_PAGE
DEVICE = Path("/sys/class/infiniband/rxe0")
NETDEV = (DEVICE / "parent").read_text().strip()


def needs_to_go_while_in_use():
    """Soft-RoCE before Linux 7.3 waits until nobody has it open."""
    if "rxe_disassociate_ucontext" not in Path("/proc/kallsyms").read_text():
        raise ktap.Skip("soft-RoCE of this kernel does not go while it is in use")


def run(*command):
    subprocess.run(command, check=True, timeout=60)


def add():
    run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", NETDEV)


def expect_works():
    def register():
        with Nic() as nic, Gpu().alloc(SIZE) as gpu:
            return nic.outcome(gpu.va, SIZE)

    ktap.eventually(lambda: list((DEVICE / "ports/1/gids").iterdir()), "addresses")
    ktap.expect_equal(in_child(register), "success", "a registration on the new device")


def hold(child):
    """Registers, with traffic if it has any luck with it, and waits."""
    nic = Nic()
    gpu = Gpu().alloc(SIZE)
    registration = nic.register(gpu)
    loop = nic.loop()

    def traffic():
        # Ends with the device.
        while loop.try_write(registration, registration, 4096) == "success":
            pass

    threading.Thread(target=lambda: outcome(traffic), daemon=True).start()
    child.tell(True)
    child.wait_for_parent()
    child.tell(nic.outcome(gpu.va, SIZE))
    child.wait_for_parent()
    gpu.free()
    child.tell(True)
    child.wait_for_parent()


def expect_kept_by_owner():
    """The region was ended by whoever removed the device, who does not have the memory."""
    ktap.eventually(lambda: counters()["live_mrs"] == 0, "no regions")
    if CALLBACK:
        ktap.expect_equal(counters()["pinned_bytes"], SIZE, "bytes pinned")
        ktap.expect_equal(counters()["dma_mappings"], 0, "DMA mappings")
        ktap.expect_equal(modules.references(), 1, "references on the module")
    else:
        expect_nothing_held()


def expect_all_gone():
    ktap.eventually(lambda: modules.references() == 0, "no references on the module")
    expect_nothing_held()


@ktap.case("removed under a registration with traffic, memory then {}", ("freed", "left to exit"))
def removed(end):
    needs_to_go_while_in_use()
    with Child(hold) as child, counting() as done:
        child.told()
        try:
            run("rdma", "link", "delete", "rxe0")
            expect_kept_by_owner()
            child.go_on()
            ktap.expect(child.told() != "success", "registered on a device that is gone")
            if end == "freed":
                child.go_on()
                child.told()
            else:
                child.kill()
            expect_all_gone()
        finally:
            add()
        expect_works()
    ktap.expect_equal(done["put_pages_foreign"], 0, "pins given back in vain")


@ktap.case("removed while the memory goes, round {}", (1, 2, 3, 4))
def removed_and_freed(round_):
    with Child(hold) as child:
        child.told()
        try:
            killer = threading.Timer(0.01 * round_, child.kill)
            killer.start()
            run("rdma", "link", "delete", "rxe0")
            killer.join()
            expect_all_gone()
        finally:
            add()
        expect_works()


def virtio_device():
    """Name of the device below the network interface, if it is virtio."""
    path = Path("/sys/class/net", NETDEV, "device").resolve()
    if path.parent.name[:5] != "0000:" or not path.name.startswith("virtio"):
        raise ktap.Skip("the network interface is not virtio")
    return path.name


def addresses():
    output = subprocess.run(["ip", "-o", "-4", "addr", "show", "dev", NETDEV], check=True,
                            capture_output=True, text=True).stdout
    return [line.split()[3] for line in output.splitlines()]


@ktap.case("the network interface goes under it, and comes back")
def netdev_unregistered():
    needs_to_go_while_in_use()
    device, had = virtio_device(), addresses()
    driver = Path("/sys/bus/virtio/drivers/virtio_net")
    with Child(hold) as child, counting() as done:
        child.told()
        (driver / "unbind").write_text(device)
        try:
            # Soft-RoCE removes its device from a worker.
            ktap.eventually(lambda: not DEVICE.exists(), "the RDMA device gone")
            expect_kept_by_owner()
            child.kill()
            expect_all_gone()
        finally:
            (driver / "bind").write_text(device)
            for address in had:
                run("ip", "addr", "add", address, "dev", NETDEV)
            run("ip", "link", "set", NETDEV, "mtu", "9000", "up")
            add()
        expect_works()
    ktap.expect_equal(done["put_pages_foreign"], 0, "pins given back in vain")


ktap.main(expect_nothing_left)

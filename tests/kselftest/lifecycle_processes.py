#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The device is shared with other processes, the memory is not. A pin can be given back in the
process that has the memory only, unless it is persistent: until then it is kept, and not lost."""

import os
import signal
import socket

from peermem import ktap, modules
from peermem.equipment import counters, counting, expect_nothing_left
from peermem.memory import GPU_PAGE, Gpu, expect_bytes, pattern
from peermem.mode import CALLBACK
from peermem.process import Child, alone
from peermem.revoked import expect_nothing_held
from peermem.threads import Nic, nic_and_loop

SIZE = 4 * GPU_PAGE


def expect_pinned(size):
    ktap.eventually(lambda: counters()["pinned_bytes"] == size, f"{size} bytes pinned")


def expect_all_gone():
    ktap.eventually(lambda: modules.references() == 0, "no references on the module")
    expect_nothing_held()


def expect_kept_by_owner():
    """What the end of the region leaves when another process ended it."""
    ktap.eventually(lambda: counters()["live_mrs"] == 0, "no regions")
    if CALLBACK:
        # Nothing is mapped for the NIC; the module stays for the callback to come.
        ktap.expect_equal(counters()["pinned_bytes"], SIZE, "bytes pinned")
        ktap.expect_equal(counters()["dma_mappings"], 0, "DMA mappings")
        ktap.expect_equal(modules.references(), 1, "references on the module")
    else:
        expect_all_gone()


@ktap.case("a forked child exits, the parent goes on")
@alone
def child_exits():
    data = pattern("fork", SIZE)
    with nic_and_loop() as (nic, loop), Gpu().alloc(SIZE) as src, Gpu(1).alloc(SIZE) as dst:
        src.write(data)
        with nic.register(src) as src_mr, nic.register(dst) as dst_mr:
            pid = os.fork()
            if not pid:
                os._exit(0)
            os.waitpid(pid, 0)
            ktap.expect_equal(counters()["pinned_bytes"], 2 * SIZE, "bytes pinned")
            loop.write(src_mr, dst_mr, SIZE)
            expect_bytes(dst.read(), data, "what was written after that")


@ktap.case("the parent dies, its child keeps the device open")
def parent_dies():
    def run(child):
        Nic().register(Gpu().alloc(SIZE))
        keeper = os.fork()
        if keeper:
            child.tell(keeper)
        signal.pause()

    with Child(run) as parent, counting() as done:
        keeper = parent.told()
        expect_pinned(SIZE)
        parent.kill()
        # The child never had the memory: a callback comes, and a persistent pin stays.
        expect_pinned(0 if CALLBACK else SIZE)
        ktap.expect_equal(modules.references(), 1, "references on the module")
        os.kill(keeper, signal.SIGKILL)
        expect_all_gone()
    ktap.expect_equal(done["put_pages_foreign"], 0, "pins given back in vain")


@ktap.case("deregistered by a forked child, then {} by the owner", ("freed", "exited"))
def child_deregisters(end):
    def run(child):
        nic, gpu = Nic(), Gpu().alloc(SIZE)
        registration = nic.register(gpu)
        pid = os.fork()
        if not pid:
            registration.close()
            os._exit(0)
        child.tell(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        child.wait_for_parent()
        if end == "freed":
            gpu.free()
            child.tell("freed")
            child.wait_for_parent()
        os._exit(0)

    with Child(run) as child, counting() as done:
        ktap.expect_equal(child.told(), 0, "exit status of its child")
        expect_kept_by_owner()
        child.go_on()
        if end == "freed":
            child.told()
        else:
            child.wait()
        expect_all_gone()
    ktap.expect_equal(done["put_pages_foreign"], 0, "pins given back in vain")


def give_device_away(child, theirs):
    """Registers, and passes the device on."""
    nic, gpu = Nic(), Gpu().alloc(SIZE)
    nic.register(gpu)
    socket.send_fds(theirs, [b"."], [nic.command_fd()])
    os.close(nic.command_fd())
    child.tell(True)
    child.wait_for_parent()
    gpu.free()
    child.tell(True)
    child.wait_for_parent()


def take_device(child, ours):
    fd = socket.recv_fds(ours, 1, 1)[1][0]
    child.tell(True)
    child.wait_for_parent()
    os.close(fd)
    child.tell(True)


@ktap.case("passed on to another process, which closes it before the memory is freed")
def passed_closed_first():
    ours, theirs = socket.socketpair()
    with (Child(lambda child: give_device_away(child, theirs)) as owner,
          Child(lambda child: take_device(child, ours)) as taker, counting() as done):
        owner.told(), taker.told()
        expect_pinned(SIZE)
        taker.go_on()
        taker.told()
        expect_kept_by_owner()
        # As long as a callback may come, the module must not go.
        if CALLBACK:
            refused = "refused"
            try:
                modules.unload(modules.PEERMEM)
                refused = "granted"
                modules.load(modules.PEERMEM)
            except OSError:
                pass
            ktap.expect_equal(refused, "refused", "unloading")
        owner.go_on()
        owner.told()
        expect_all_gone()
    ktap.expect_equal(done["put_pages_foreign"], 0, "pins given back in vain")


@ktap.case("passed on to another process, which closes it after the memory is freed")
def passed_freed_first():
    ours, theirs = socket.socketpair()
    with (Child(lambda child: give_device_away(child, theirs)) as owner,
          Child(lambda child: take_device(child, ours)) as taker, counting() as done):
        owner.told(), taker.told()
        owner.go_on()
        owner.told()
        expect_pinned(0 if CALLBACK else SIZE)
        taker.go_on()
        taker.told()
        expect_all_gone()
    ktap.expect_equal(done["put_pages_foreign"], 0, "pins given back in vain")


@ktap.case("passed on, and the owner is killed")
def passed_owner_killed():
    ours, theirs = socket.socketpair()
    with (Child(lambda child: give_device_away(child, theirs)) as owner,
          Child(lambda child: take_device(child, ours)) as taker, counting() as done):
        owner.told(), taker.told()
        owner.kill()
        expect_pinned(0 if CALLBACK else SIZE)
        taker.go_on()
        taker.told()
        expect_all_gone()
    ktap.expect_equal(done["put_pages_foreign"], 0, "pins given back in vain")


@ktap.case("20 pins that only the owner can give back, and it is killed")
def many_kept():
    def run(child):
        nic, gpu = Nic(), Gpu().alloc(SIZE)
        registrations = [nic.register(gpu) for _ in range(20)]
        pid = os.fork()
        if not pid:
            for registration in registrations:
                registration.close()
            os._exit(0)
        os.waitpid(pid, 0)
        child.tell(True)
        child.wait_for_parent()

    with Child(run) as child:
        child.told()
        ktap.expect_equal(modules.references(), 20 if CALLBACK else 0, "references on the module")
        child.kill()
        expect_all_gone()


ktap.main(expect_nothing_left)

#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""However a process or its registration ends, with traffic running: all goes back."""

import os
import signal
import threading

from peermem import ktap, modules
from peermem.equipment import counters, expect_nothing_left
from peermem.memory import GPU_PAGE, Gpu
from peermem.mode import CALLBACK
from peermem.process import Child, alone
from peermem.revoked import expect_nothing_held
from peermem.threads import Nic, nic_and_loop

SIZE = 8 * GPU_PAGE


def write_for_ever(nic, src, dst):
    with nic.loop() as loop:
        while True:
            loop.try_write(src, dst, SIZE)


def start_traffic(nic):
    """Between both GPUs, in a thread."""
    src, dst = [nic.register(Gpu(i).alloc(SIZE)) for i in (0, 1)]
    threading.Thread(target=write_for_ever, args=(nic, src, dst), daemon=True).start()
    before = counters()["bytes_to_peer"]
    ktap.eventually(lambda: counters()["bytes_to_peer"] > before + SIZE, "traffic")


def end(how):
    if how == "exit":
        os._exit(0)
    if how == "exec":
        os.execv("/bin/sleep", ["sleep", "60"])
    if how == "exec in a thread":
        # The kernel ends all other threads first, and gives this one their process' number.
        threading.Thread(target=end, args=("exec",)).start()
        threading.Event().wait()
    os.kill(os.getpid(), getattr(signal, how))


def expect_all_gone():
    ktap.eventually(lambda: modules.references() == 0, "no references on the module")
    ktap.eventually(lambda: counters()["live_mrs"] == 0, "no regions")
    expect_nothing_held()


@ktap.case("{} with traffic running", (
    "exit", "SIGKILL", "SIGSEGV", "SIGTERM", "exec", "exec in a thread"))
def process_ends(how):
    def run(child):
        start_traffic(Nic())
        child.tell(modules.references())
        child.wait_for_parent()
        end(how)

    with Child(run) as child:
        ktap.expect_equal(child.told(), 2, "references on the module")
        child.go_on()
        if not how.startswith("exec"):
            wanted = 0 if how == "exit" else -getattr(signal, how)
            ktap.expect_equal(child.wait(), wanted, "exit status")
        # The program that was started instead still runs.
        expect_all_gone()


@ktap.case("the device is closed without deregistration, the memory afterwards")
@alone
def device_first():
    nic, gpu = Nic(), Gpu().alloc(SIZE)
    nic.register(gpu), nic.register(gpu)
    ktap.expect_equal(modules.references(), 2, "references on the module")
    os.close(nic.command_fd())
    expect_all_gone()
    gpu.free()


@ktap.case("the memory is freed, and the device closed without deregistration")
@alone
def memory_first():
    nic, gpu = Nic(), Gpu().alloc(SIZE)
    nic.register(gpu), nic.register(gpu)
    gpu.free()
    ktap.expect_equal(counters()["pinned_bytes"], 0 if CALLBACK else 2 * SIZE, "bytes pinned")
    os.close(nic.command_fd())
    expect_all_gone()


@ktap.case("a hundred regions, all left to the end of the process")
def many():
    def run(child):
        nic, gpu = Nic(), Gpu().alloc(SIZE)
        for i in range(100):
            nic.register(gpu, i * 4096, 4096)
        child.tell(modules.references())

    with Child(run) as child:
        ktap.expect_equal(child.told(), 100, "references on the module")
        ktap.expect_equal(child.wait(), 0, "exit status")
        expect_all_gone()


@ktap.case("25 processes one after the other, killed in the middle of registering")
def killed_registering():
    def run(child):
        nic, gpu = Nic(), Gpu().alloc(SIZE)
        child.tell(True)
        while True:
            nic.register(gpu).close()

    for i in range(25):
        with Child(run) as child:
            child.told()
            threading.Event().wait(0.0014 * i)
            child.kill()
    expect_all_gone()


@ktap.case("deregistered with traffic running")
@alone
def deregistered():
    with nic_and_loop() as (nic, loop):
        src, dst = [nic.register(Gpu(i).alloc(SIZE)) for i in (0, 1)]
        done = threading.Event()

        def write():
            while not done.is_set():
                loop.try_write(src, dst, SIZE)

        writer = threading.Thread(target=write)
        writer.start()
        before = counters()["bytes_to_peer"]
        ktap.eventually(lambda: counters()["bytes_to_peer"] > before + SIZE, "traffic")
        dst.close()
        src.close()
        expect_nothing_held()
        ktap.expect_equal(modules.references(), 0, "references on the module")
        done.set()
        writer.join()


ktap.main(expect_nothing_left)

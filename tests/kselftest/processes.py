#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Threads, forks and inherited files: whoever owns the memory may register it, anyone may end it."""

import os
import threading

from peermem import ktap, modules
from peermem.equipment import counters, counting, expect_nothing_left, umems
from peermem.memory import GPU_PAGE, Gpu, expect_bytes, pattern
from peermem.process import Child, children, in_child
from peermem.verbs import Nic

SIZE = 4 * GPU_PAGE
CALLBACK = "NVIDIA's 550 module lets go when the owner does"


def expect_copies(nic, gpu, gpu_mr):
    data = pattern("copy", SIZE)
    with (Gpu(1).alloc(SIZE) as copy, nic.register(copy) as copy_mr, nic.loop() as loop):
        gpu.write(data)
        loop.write(gpu_mr, copy_mr, SIZE)
        expect_bytes(copy.read(), data, "the copy")


# Cases that fork come first: a child must not share this process's NIC.


@ktap.case("a child cannot register its parent's GPU memory")
def not_inherited():
    with Gpu().alloc(SIZE) as gpu:
        with counting() as done:
            answer = in_child(lambda: Nic().outcome(gpu.va, SIZE))
        ktap.expect_equal(answer, "EFAULT", "errno in the child")
        ktap.expect_equal(done["dma_map_pages"], 0, "mappings made")


@ktap.case("a child comes and goes, its parent's registration stays")
def child_exits():
    def parent(child):
        with Nic() as nic, Gpu().alloc(SIZE) as gpu, nic.register(gpu) as gpu_mr:
            with counting() as done:
                pid = os.fork()
                if not pid:
                    os._exit(0)
                os.waitpid(pid, 0)
            expect_copies(nic, gpu, gpu_mr)
            child.tell((len(umems()), done["dma_unmap_pages"]))

    with Child(parent) as child:
        ktap.expect_equal(child.told(), (1, 0), "registrations left, mappings undone")
        ktap.expect_equal(child.wait(), 0, "exit status")


@ktap.case("a registration whose owner is gone ends with the last holder of the file",
           ours_only=CALLBACK)
def orphan():
    def owner(child):
        nic = Nic()
        gpu = Gpu().alloc(SIZE)
        registration = nic.register(gpu)
        if not os.fork():
            child.wait_for_parent()
        os._exit(0 if registration else 1)

    with Child(owner) as child:
        ktap.expect_equal(child.wait(), 0, "exit status of the owner")
        ktap.expect_equal(modules.references(), 1, "references after the owner's death")
        ktap.expect_equal(counters()["pinned_bytes"], SIZE, "bytes pinned after the owner's death")
        with counting() as done:
            child.go_on()
            ktap.eventually(lambda: not modules.references(), "the registration ends")
    ktap.expect_equal(done["put_pages_persistent"], 1, "pins given back by another process")


@ktap.case("eight processes register and deregister at once")
def eight_processes():
    def work(child):
        nic = Nic()
        gpu = Gpu(os.getpid() % 2).alloc(SIZE)
        child.tell("ready")
        child.wait_for_parent()
        for _ in range(20):
            nic.register(gpu).close()

    with counting() as done, children(8, work) as crowd:
        for child in crowd:
            child.told()
        for child in crowd:
            child.go_on()
        for child in crowd:
            ktap.expect_equal(child.wait(), 0, "exit status")
    ktap.expect_equal(done["num_alloc_mrs"], 8 * 20, "registrations")
    ktap.expect_equal(done["num_dealloc_mrs"], 8 * 20, "deregistrations")


@ktap.case("a registration made by a thread, used and ended by another")
def by_thread():
    with Nic() as nic, Gpu().alloc(SIZE) as gpu:
        made = []
        thread = threading.Thread(target=lambda: made.append(nic.register(gpu)))
        thread.start()
        thread.join()
        expect_copies(nic, gpu, made[0])
        made[0].close()


@ktap.case("eight threads register and deregister the same buffer")
def eight_threads():
    rounds, failures = 20, []

    def work(nic, gpu):
        try:
            for _ in range(rounds):
                nic.register(gpu).close()
        except OSError as error:
            failures.append(error)

    with Nic() as nic, Gpu().alloc(SIZE) as gpu, counting() as done:
        workers = [threading.Thread(target=work, args=(nic, gpu)) for _ in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    ktap.expect_equal(failures, [], "failures")
    ktap.expect_equal(done["num_alloc_mrs"], 8 * rounds, "registrations")


ktap.main(expect_nothing_left)

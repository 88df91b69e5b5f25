#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Eight threads at once: counters are exact at the end, and go forwards all the time."""

import errno
import threading

from peermem import ktap, surface
from peermem.equipment import expect_nothing_left, fault, pin_function
from peermem.memory import GPU_PAGE, Gpu, map_memory, unmap_memory
from peermem.mode import CALLBACK
from peermem.surface import expected, growing, numbers, reset
from peermem.threads import Call

OURS = "counters of our own"
PAGES = 4
SIZE = PAGES * GPU_PAGE
THREADS, ROUNDS = 8, 40


def backwards(before, after):
    """What is less than it was and must not be."""
    gauges = surface.GAUGES
    return [name for name, value in after.items()
            if value < before.get(name, 0) and name.rsplit("/", 1)[-1] not in gauges]


def watch(stop, samples):
    """Reads all there is, again and again, and gives what it found wrong."""
    wrong, before = [], {}
    while not stop.is_set():
        now = numbers()
        wrong += backwards(before, now)
        # A gauge below zero would be a number beyond all bounds.
        wrong += [name for name, value in now.items() if value > 1 << 40]
        before = now
        samples.append(now["stats/active_mrs"])
    return wrong


def register_often(nic, gpu, size, enough=lambda: True):
    """At least so often, and until it is enough; gives the number."""
    done = 0
    while done < ROUNDS or not enough():
        nic.register(gpu, 0, size).close()
        done += 1
    return done


def fail_often(nic, va):
    for _ in range(ROUNDS):
        ktap.expect_equal(nic.outcome(va, SIZE), "EFAULT", "errno")


@ktap.case(f"{THREADS} threads, at least {ROUNDS} regions each, while a reader looks: exact",
           ours_only=OURS)
def threads():
    stop, samples = threading.Event(), []
    nic = surface.nic()
    with Gpu().alloc(SIZE) as gpu, growing() as growth:
        watching = Call(lambda: watch(stop, samples))
        # Sizes that differ, and touch as many pages.
        calls = [Call(lambda i=i: register_often(nic, gpu, SIZE - i, lambda: len(samples) > 5))
                 for i in range(THREADS)]
        done = [call.result(120) for call in calls]
        stop.set()
        ktap.expect_equal(watching.result(), [], "numbers that went backwards")
    wanted = expected(sum(done), sum(done), PAGES, SIZE)
    size = sum(n * (SIZE - i) for i, n in enumerate(done))
    wanted |= {"clients/nv_mem/num_reg_bytes": size, "clients/nv_mem/num_dereg_bytes": size}
    ktap.say(f"{done} regions, looked {len(samples)} times, peaks {growth.peaks}")
    ktap.expect_equal(growth, wanted, "growth")
    ktap.expect(max(samples) <= growth.peaks["peak_active_mrs"] <= THREADS, "peak")
    ktap.expect(growth.peaks["peak_active_mrs"] > 1, "not at once")


@ktap.case(f"{THREADS} threads, of which half fail: both are exact", ours_only=OURS)
def threads_that_fail():
    nobodys = map_memory(SIZE)
    unmap_memory(nobodys, SIZE)
    nic = surface.nic()
    with Gpu().alloc(SIZE) as gpu, growing() as growth:
        calls = [Call(lambda: register_often(nic, gpu, SIZE)) for _ in range(THREADS // 2)]
        calls += [Call(lambda: fail_often(nic, nobodys)) for _ in range(THREADS // 2)]
        for call in calls:
            call.result(120)
    good = THREADS // 2 * ROUNDS
    wanted = expected(good, good, PAGES, SIZE)
    wanted["stats/not_gpu_memory"] = good * (2 if CALLBACK else 1)
    ktap.expect_equal(growth, wanted, "growth")


@ktap.case(f"{THREADS} threads are refused: each is counted", ours_only=OURS)
def threads_refused():
    def run(nic, gpu):
        for _ in range(ROUNDS):
            ktap.expect_equal(nic.outcome(gpu.va, SIZE), "EIO", "errno")

    nic = surface.nic()
    with (Gpu().alloc(SIZE) as gpu, growing() as growth,
          fault(pin_function(), -errno.EIO, times=0)):
        for call in [Call(lambda: run(nic, gpu)) for _ in range(THREADS)]:
            call.result(120)
    ktap.expect_equal(growth, {"failures/pin_eio": THREADS * ROUNDS}, "growth")


def register_and_free(nic):
    for _ in range(ROUNDS):
        gpu = Gpu().alloc(SIZE)
        registration = nic.register(gpu)
        gpu.cuda_free()
        registration.close()
        gpu.free()


@ktap.case(f"{THREADS} threads register and free: each is an invalidation", ours_only=OURS,
           only_if=CALLBACK)
def threads_that_free():
    count = THREADS * ROUNDS
    nic = surface.nic()
    with growing() as growth:
        for call in [Call(lambda: register_and_free(nic)) for _ in range(THREADS)]:
            call.result(120)
    ktap.expect_equal(growth, expected(count, count, PAGES, SIZE) | {
        "stats/invalidations": count, "clients/nv_mem/num_free_callbacks": count}, "growth")


@ktap.case("resets under 8 threads: gauges are right at the end", ours_only=OURS)
def resets_under_load():
    stop = threading.Event()

    def keep_resetting():
        while not stop.is_set():
            reset()

    nic = surface.nic()
    with Gpu().alloc(SIZE) as gpu, growing() as growth:
        resetting = Call(keep_resetting)
        for call in [Call(lambda: register_often(nic, gpu, SIZE)) for _ in range(THREADS)]:
            call.result(120)
        stop.set()
        resetting.result()
        reset()
    ktap.expect_equal(growth, {}, "growth")
    ktap.expect_equal(set(growth.peaks.values()), {0}, "peaks")


ktap.main(expect_nothing_left)

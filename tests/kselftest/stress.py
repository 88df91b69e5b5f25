#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Everything at random and much of it at once (stress/stress.c): no wrong byte, no wrong errno, no
hang, and in the end nothing is left.

PEERMEM_STRESS has more options for the program, and --faults, which is served here, too:

    PEERMEM_STRESS='--seed 7 --operations 200000'
"""

import contextlib
import errno
import os
import random
import shlex
import subprocess
import threading
import time
from pathlib import Path

from peermem import ktap
from peermem.equipment import counters, expect_nothing_left, fault, dma_fault, pin_function
from peermem.memory import Gpu
from peermem.mode import CALLBACK
from peermem.modules import KernelLog
from peermem.threads import STRESS

OPTIONS = shlex.split(os.environ.get("PEERMEM_STRESS", ""))
DEFAULTS = ["--operations", "20000"]
FAILSLAB = Path("/sys/kernel/debug/failslab")

# Errors that the GPU driver may well have, each in what the module calls in this mode. What gives
# back is not among them: it has no second try, and a test of its own.
FAULTS = [(pin_function(), -code) for code in (
    errno.ENOMEM, errno.EBUSY, errno.EIO, errno.ENODEV, 524, errno.EINVAL)]
if not CALLBACK:
    FAULTS += [("dma_map_pages", -errno.EIO), ("dma_map_pages", -errno.ENOMEM)]


def limited():
    return any(option in OPTIONS for option in ("--operations", "--seconds"))


def arm_at_random(seed, stop):
    """Some fault again and again."""
    generator = random.Random(seed)
    while not stop.wait(generator.uniform(0.01, 0.2)):
        function, error = generator.choice(FAULTS)
        skip, times = generator.randrange(5), 1 + generator.randrange(3)
        with fault(function, error, skip, times), dma_fault(generator.randrange(40)):
            stop.wait(generator.uniform(0.01, 0.1))


@contextlib.contextmanager
def faults(seed):
    stop = threading.Event()
    thread = threading.Thread(target=arm_at_random, args=(seed, stop))
    thread.start()
    yield
    stop.set()
    thread.join()


@contextlib.contextmanager
def failing_allocations():
    """One of a hundred, of the threads that ask for it."""
    values = {"task-filter": "Y", "probability": 1, "times": -1, "interval": 1, "verbose": 0,
              "ignore-gfp-wait": "N"}
    for name, value in values.items():
        (FAILSLAB / name).write_text(f"{value}\n")
    yield
    (FAILSLAB / "probability").write_text("0\n")


def run(options):
    """The program's report. Its output is shown while it runs."""
    command = [str(STRESS), *options, *OPTIONS, *([] if limited() else DEFAULTS)]
    if CALLBACK:
        command.append("--callback")
    ktap.say(shlex.join(command))
    report = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as process:
        for line in process.stdout:
            ktap.say(line)
            name, *value = line.split()
            if len(value) == 1 and value[0].isdigit():
                report[name] = int(value[0])
    ktap.expect_equal(process.returncode, 0, "exit status (1: wrong, 3: hung)")
    return report


def expect_everything_done(report):
    """Each kind of operation, and races with both ends."""
    idle = [name for name, number in report.items()
            if not number and name not in ("seed", "failed_by_fault", "no_room", "lost_race")]
    ktap.expect(not idle, f"never done: {idle}")
    ktap.expect(report["lost_race"], "no registration lost a race")


def expect_gpus_free():
    ktap.eventually(lambda: all(Gpu(i).free_bytes == Gpu(i).total_bytes for i in (0, 1)),
                    "all memory of the GPUs free")


@ktap.case("stress")
def stress():
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(KernelLog())
        if "--faults" in OPTIONS:
            stack.enter_context(faults(repr(OPTIONS)))
        if "--fail-slab" in OPTIONS:
            stack.enter_context(failing_allocations())
        report = run([])
        if not {"--faults", "--fail-slab"} & set(OPTIONS):
            # Memory that went while it was being registered is a failure like others.
            lines = [line for line in log.lines()
                     if "freed meanwhile" not in line and "callbacks suppressed" not in line]
            ktap.expect_equal(lines, [], "log lines of the module")
    expect_everything_done(report)
    expect_gpus_free()
    seconds = time.monotonic() - began
    total = sum(report.values()) - sum(report[name] for name in (
        "seed", "lost_race", "failed_by_fault", "no_room"))
    ktap.say(f"{total / seconds:.0f} operations a second, "
             f"{counters()['num_free_callbacks']} callbacks")


ktap.main(expect_nothing_left)

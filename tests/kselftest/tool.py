#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The command-line tool on the real module: the four questions that an administrator has."""

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import tempfile
import termios
import time

from peermem import ktap, modules
from peermem.equipment import expect_nothing_left, fault
from peermem.memory import GPU_PAGE, Gpu
from peermem.modules import TOOL
from peermem.verbs import Nic

SIZE = 4 * GPU_PAGE
LIVE, NOT_LOADED, DRAINS = 0, 3, 4


def peermem(*arguments, status=0):
    """What it prints."""
    done = subprocess.run([TOOL, *arguments], capture_output=True, text=True, timeout=120,
                          check=False)
    ktap.expect_equal(done.returncode, status, f"exit status; {done.stdout}{done.stderr}")
    return done.stdout


def answer(*arguments, status=0):
    return json.loads(peermem("-j", *arguments, status=status))


@ktap.case("is GPUDirect on")
def on():
    text = peermem("status", status=LIVE)
    ktap.expect("live" in text and "mock_nvidia" in text and "ib_peer_mem" in text, text)
    ktap.expect(answer("status")["loaded"], "JSON says that it is not loaded")


@ktap.case("who holds GPU memory")
def who():
    with Nic() as nic, Gpu(1).alloc(SIZE) as gpu, nic.register(gpu, 100, 70000):
        [region] = answer("show", "mr")
        address = hex(gpu.va + 100)
    for key, wanted in (("pid", os.getpid()), ("length", 70000), ("pages", 2), ("entries", 1),
                        ("address", address), ("state", "mapped"), ("client", "nv_mem")):
        ktap.expect_equal(region[key], wanted, key)
    ktap.expect_equal(answer("show", "mr"), [], "regions after deregistration")


@ktap.case("why did a registration fail")
def why():
    with Nic() as nic, Gpu().alloc(SIZE) as gpu, fault("get_pages_persistent", -12):
        ktap.expect_equal(nic.outcome(gpu.va, SIZE), "ENOMEM", "registration")
    last = answer("show", "failures")[-1]
    ktap.expect_equal((last["pid"], last["length"], last["reason"]),
                      (os.getpid(), SIZE, "pin_enomem"), "last failure")


@ktap.case("drain, and back")
def drain():
    peermem("drain")
    try:
        peermem("status", status=DRAINS)
        with Nic() as nic, Gpu().alloc(SIZE) as gpu:
            ktap.expect_equal(nic.outcome(gpu.va, SIZE), "EAGAIN", "registration")
    finally:
        peermem("live")
    peermem("status", status=LIVE)


@ktap.case("a limit, and none")
def limit():
    peermem("limit", "64K")
    try:
        with Nic() as nic, Gpu().alloc(SIZE) as gpu:
            ktap.expect_equal(nic.outcome(gpu.va, SIZE), "ENOMEM", "over the limit")
            ktap.expect_equal(nic.outcome(gpu.va, GPU_PAGE), "success", "within the limit")
    finally:
        peermem("limit", "none")


@ktap.case("not loaded, and why")
def not_loaded():
    with modules.unloaded():
        absence = answer("status", status=NOT_LOADED)["absence"]
        ktap.expect(absence["reasons"], "no reason")


@ktap.case("the doctor looks, and finds the stand-in for the GPU driver")
def doctor():
    items = json.loads(subprocess.run([TOOL, "-j", "doctor", "M2", "G1", "S1", "S2"], text=True,
                                      capture_output=True, timeout=300, check=False).stdout)
    found = {item["id"]: item["status"] for item in items}
    ktap.expect_equal(found, {"M2": "OK", "G1": "WARN", "S1": "OK", "S2": "OK"}, "verdicts")


@ktap.case("figures for Prometheus")
def prometheus():
    text = peermem("stats", "--prometheus")
    for line in ("nvidia_peermem_up 1", "nvidia_peermem_active_mrs 0"):
        ktap.expect(line in text.splitlines(), f"{line!r} is missing")


def registered():
    return answer("stats")["clients"]["nv_mem"]["num_alloc_mrs"]


@ktap.case("bench registers GPU memory")
def bench():
    before = registered()
    with tempfile.NamedTemporaryFile(suffix=".svg") as plot:
        done = answer("bench", "--mmap", "/dev/mock_nvidia0", "--sizes", "64K:256K",
                      "--iterations", "5", "--warm-up", "2", "--svg", plot.name)
        ktap.expect(b"<svg" in plot.read(100), "no plot")
    lengths = [size["length"] for size in done["sizes"]]
    ktap.expect_equal(lengths, [GPU_PAGE, 2 * GPU_PAGE, 4 * GPU_PAGE], "sizes")
    for size in done["sizes"]:
        for times in (size["register"], size["deregister"]):
            in_order = [times[name] for name in ("min_ns", "median_ns", "p99_ns", "max_ns")]
            ktap.expect(0 < in_order[0] and in_order == sorted(in_order), f"times: {times}")
    ktap.expect_equal(registered() - before, 3 * (2 + 5), "registrations with the module")


def screen_until(terminal, wanted):
    """What top draws, until that is there."""
    drawn, end = "", time.monotonic() + 30
    while wanted not in drawn:
        ktap.expect(time.monotonic() < end, f"{wanted!r} is not in {drawn!r}")
        if select.select([terminal], [], [], 1)[0]:
            drawn += os.read(terminal, 65536).decode(errors="replace")
    return drawn


@ktap.case("top obeys its keys, and gives the terminal back")
def top():
    with Nic() as nic, Gpu().alloc(SIZE) as gpu, nic.register(gpu):
        pid, terminal = pty.fork()
        if not pid:
            os.execv(TOOL, [TOOL, "top", "--interval", "0.2"])
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 30, 120, 0, 0))
        screen_until(terminal, f"{os.getpid()} ")
        screen_until(terminal, "(by bytes)")
        for key, order in (("n", "name"), ("r", "name, reversed"), ("c", "change, reversed")):
            os.write(terminal, key.encode())
            screen_until(terminal, f"(by {order})")
        os.write(terminal, b"q")
        screen_until(terminal, "\x1b[?1049l")  # the screen as it was
        ktap.expect_equal(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0, "exit status")
        os.close(terminal)


@ktap.case("top ends with its terminal, of which it does not know the size")
def terminal_gone():
    pid, terminal = pty.fork()
    if not pid:
        os.execv(TOOL, [TOOL, "top"])
    screen_until(terminal, "(by bytes)")
    os.close(terminal)
    ktap.eventually(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid, "top has ended", seconds=20)


ktap.main(expect_nothing_left)

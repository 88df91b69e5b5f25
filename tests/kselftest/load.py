#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The module loads, says so, is what other software looks for, and leaves again."""

import subprocess

from peermem import ktap, modules
from peermem.equipment import CLIENT, clients, expect_nothing_left, leftovers
from peermem.errors import outcome
from peermem.memory import GPU_PAGE, Gpu
from peermem.modules import PEERMEM, KernelLog, unloaded
from peermem.verbs import Nic

OURS = "texts and fields of our own"
SIZE = 2 * GPU_PAGE


def modinfo(field):
    command = ["modinfo", "-F", field, str(modules.path_of(PEERMEM))]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@ktap.case("one line at load: version, client, mode, and the two modules it stands between",
           ours_only=OURS)
def one_line():
    modules.unload(PEERMEM)
    with KernelLog() as log:
        modules.load(PEERMEM)
        lines = log.lines()
    ktap.say("\n".join(lines))
    ktap.expect_equal(len(lines), 1, "log lines")
    for word in (modinfo("version"), CLIENT, "persistent", "mock_nvidia", "ib_peer_mem"):
        ktap.expect(word in lines[0], f"{word!r} is missing in: {lines[0]}")


@ktap.case("no line at unload", ours_only=OURS)
def silent_unload():
    with KernelLog() as log, unloaded():
        ktap.expect_equal(log.lines(), [], "log lines")


@ktap.case("/sys/module/nvidia_peermem/version is there and is that of the file")
def version():
    shown = (modules.sysfs(PEERMEM) / "version").read_text().strip()
    ktap.say(f"version {shown}")
    ktap.expect(shown, "it is empty")
    ktap.expect_equal(shown, modinfo("version"), "version in sysfs")


@ktap.case("the core shows the client nv_mem, and no other", ours_only=OURS)
def client():
    ktap.expect_equal(clients(), [CLIENT], "clients")


@ktap.case("licence, description and author are told")
def about():
    ktap.expect(modinfo("license") in ("GPL", "GPL v2", "Dual BSD/GPL"), modinfo("license"))
    for field in ("description", "author"):
        ktap.expect(modinfo(field), f"no {field}")


@ktap.case("with the module loaded, {} cannot be unloaded", ("mock_nvidia", "ib_peer_mem"))
def holds(name):
    ktap.expect_equal(outcome(lambda: modules.unload(name)), "EAGAIN", "errno")


@ktap.case("it loads beside the distribution's own mlx5_ib, and registers")
def beside_mlx5_ib():
    if subprocess.run(["modinfo", "mlx5_ib"], capture_output=True).returncode:
        raise ktap.Skip("this kernel has no mlx5_ib")
    try:
        with unloaded():
            subprocess.run(["modprobe", "mlx5_ib"], check=True)
        ktap.expect(modules.sysfs("mlx5_ib").exists(), "mlx5_ib is not there")
        with Nic() as nic, Gpu().alloc(SIZE) as gpu:
            ktap.expect_equal(nic.outcome(gpu.va, SIZE), "success", "a registration")
    finally:
        subprocess.run(["modprobe", "-r", "mlx5_ib"], check=True)


@ktap.case("after unloading, the core has no client and nothing is left")
def gone():
    with unloaded():
        ktap.expect_equal(clients(), [], "clients")
        ktap.expect_equal(leftovers(), {}, "left behind")


@ktap.case("30 times unloaded and loaded")
def cycles():
    for _ in range(30):
        modules.unload(PEERMEM)
        modules.load(PEERMEM)
    with Nic() as nic, Gpu().alloc(SIZE) as gpu:
        ktap.expect_equal(nic.outcome(gpu.va, SIZE), "success", "a registration after that")


ktap.main(expect_nothing_left)

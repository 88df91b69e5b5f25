#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Other software looks for us by these rules: they hold while a client is registered, and do not
when the module is not there, or could not be loaded."""

import contextlib
import os
import re
import subprocess
from pathlib import Path

from peermem import ktap, modules, surface
from peermem.equipment import CLIENT, clients, expect_nothing_left
from peermem.errors import outcome
from peermem.memory import GPU_PAGE, Gpu
from peermem.mode import CALLBACK
from peermem.modules import PEERMEM
from peermem.process import in_child
from peermem.threads import Nic

OURS = "this equipment and our parameters"
SIZE = GPU_PAGE
NOBODY = 65534
OFED = "/sys/kernel/mm/memory_peers"
VERSION = "/sys/module/nvidia_peermem/version"


def any_of(*paths):
    return lambda: any(os.access(path, os.F_OK) for path in paths)


def lsmod():
    """As its validator does: lsmod | grep -E '^nvidia_peermem\\s'."""
    output = subprocess.run(["lsmod"], check=True, capture_output=True, text=True).stdout
    return bool(re.search(r"(?m)^nvidia_peermem\s", output))


def loaded_module():
    """The first word of a line of /proc/modules."""
    lines = Path("/proc/modules").read_text().splitlines()
    return any(line.split()[0] == PEERMEM for line in lines)


def kallsyms():
    """Whoever has it. It is the core that does, and libfabric looks no further."""
    command = ["grep", "-q", "ib_register_peer_memory_client", "/proc/kallsyms"]
    return subprocess.run(command).returncode == 0


# By what they read (reference of the versions: NCCL 2.30.7 gdr.cc, UCX 1.22 ib_md.c, NVSHMEM 3.4.5
# transport_ib_common.cpp, gpu-operator's validator and its NodeFeatureRule, fabtests).
RULES = {
    "NCCL": any_of(f"{OFED}/nv_mem/version", f"{OFED}/nv_mem_nc/version", VERSION),
    "NCCL, GIN": any_of(VERSION),
    "UCX": any_of(f"{OFED}/nv_mem/version", VERSION, "/sys/module/nv_peer_mem/version"),
    "NVSHMEM": any_of(f"{OFED}/nv_mem/version", f"{OFED}/nvidia-peermem/version", VERSION),
    "gpu-operator": lsmod,
    "NFD": loaded_module,
    "fabtests": loaded_module,
}


def verdicts():
    return {who: rule() for who, rule in RULES.items()}


def expect_all(wanted):
    ktap.expect_equal(verdicts(), dict.fromkeys(RULES, wanted), "verdicts")
    ktap.expect_equal((surface.SYSFS.exists(), surface.DEBUGFS.exists()), (wanted, wanted),
                      "directories of our own")
    # When they say yes, it is true.
    if (Path("/sys/kernel/debug/ib_peer_mem/clients")).exists():
        ktap.expect_equal(CLIENT in clients(), wanted, "client nv_mem in the core")


def register_once():
    with Nic() as nic, Gpu().alloc(SIZE) as gpu:
        return nic.outcome(gpu.va, SIZE)


@ktap.case("loaded: all say yes, and GPU memory can be registered", ours_only=OURS)
def loaded():
    expect_all(True)
    ktap.expect_equal(in_child(register_once), "success", "a registration")


@ktap.case("loaded: all say so to an unprivileged user, too", ours_only=OURS)
def unprivileged():
    def ask():
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        return verdicts()

    ktap.expect_equal(in_child(ask), dict.fromkeys(RULES, True), "verdicts")


@ktap.case("loaded with {}: all say yes", (
    "persistent_api_support=1", "persistent_api_support=0",
    "persistent_api_support=0 peerdirect_support=1"), ours_only=OURS)
def each_mode(parameters):
    modules.unload(PEERMEM)
    try:
        modules.load(PEERMEM, parameters)
        expect_all(True)
        modules.unload(PEERMEM)
    finally:
        modules.load(PEERMEM)


@ktap.case("not loaded: all say no, and GPU memory cannot be registered", ours_only=OURS)
def not_loaded():
    with modules.unloaded():
        expect_all(False)
        ktap.expect_equal(in_child(register_once), "EFAULT", "a registration")
    expect_all(True)


@contextlib.contextmanager
def bad_parameter():
    with modules.unloaded():
        yield "persistent_api_support=2"


@contextlib.contextmanager
def squatter():
    with modules.unloaded():
        modules.load("nv_mem_squatter")
        try:
            yield ""
        finally:
            modules.unload("nv_mem_squatter")


@contextlib.contextmanager
def other_driver(name):
    with modules.other_gpu_driver(name):
        yield ""


@contextlib.contextmanager
def no_core():
    with modules.without_peer_memory_core():
        yield ""


FAILURES = {
    "a parameter is wrong": bad_parameter,
    "another client nv_mem is there": squatter,
    "there is no GPU driver": lambda: other_driver(None),
    "the GPU driver is too old": lambda: other_driver("mock_nvidia_old"),
    "the core has no peer memory": no_core,
}


@ktap.case("not loaded because {}: all say no", tuple(FAILURES), ours_only=OURS)
def load_fails(why):
    with FAILURES[why]() as parameters:
        ktap.expect(outcome(lambda: modules.load(PEERMEM, parameters)) != "success", "it loaded")
        if why == "another client nv_mem is there":
            ktap.expect_equal(verdicts(), dict.fromkeys(RULES, False), "verdicts")
            ktap.expect(not surface.SYSFS.exists() and not surface.DEBUGFS.exists(), "directories")
        else:
            expect_all(False)
    expect_all(True)


@ktap.case("a load that is refused because we are there changes nothing", ours_only=OURS)
def twice():
    ktap.expect_equal(outcome(lambda: modules.load(PEERMEM)), "EEXIST", "loading")
    expect_all(True)


@ktap.case("libfabric's rule is about the core: yes with it, no without", ours_only=OURS)
def libfabric():
    ktap.expect(kallsyms(), "not with core and module")
    with modules.without_peer_memory_core():
        ktap.expect(not kallsyms(), "yes without a core: we export it ourselves?")


@ktap.case("all that name a version name the same", ours_only=OURS)
def versions():
    version = Path(VERSION).read_text()
    for name in ("version", "clients/nv_mem/version"):
        ktap.expect_equal((surface.SYSFS / name).read_text(), version, name)
    command = ["modinfo", "-F", "version", str(modules.path_of(PEERMEM))]
    ktap.expect_equal(subprocess.run(command, check=True, capture_output=True, text=True).stdout,
                      version, "modinfo")


@ktap.case("mode, GPU driver and core in sysfs are those that are loaded", ours_only=OURS)
def mode():
    ktap.expect_equal(surface.text("mode"), "revocable" if CALLBACK else "persistent", "mode")
    for name, wanted in (("gpu_driver", "mock_nvidia"), ("peer_memory_core", "ib_peer_mem")):
        ktap.expect_equal(surface.text(name), wanted, name)
        holders = {path.name for path in (modules.sysfs(wanted) / "holders").iterdir()}
        ktap.expect(PEERMEM in holders, f"we do not hold {wanted}")
    wanted = ["nv_mem", "nv_mem_nc"] if CALLBACK else ["nv_mem"]
    shown = sorted(path.name for path in (surface.SYSFS / "clients").iterdir())
    ktap.expect_equal(shown, wanted, "clients in sysfs")
    ktap.expect_equal(clients(), wanted, "clients in the core")


ktap.main(expect_nothing_left)

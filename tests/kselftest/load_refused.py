#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Where the module cannot work it does not load, and says why in one line."""

import contextlib

from peermem import ktap, modules
from peermem.equipment import clients, expect_nothing_left
from peermem.errors import outcome
from peermem.modules import PEERMEM, KernelLog

OURS = "texts and errno of our own"


def expect_refused(wanted, *words, parameters=""):
    with KernelLog() as log:
        ktap.expect_equal(outcome(lambda: modules.load(PEERMEM, parameters)), wanted, "errno")
        lines = log.lines()
    ktap.say("\n".join(lines))
    ktap.expect_equal(len(lines), 1, "log lines")
    for word in ("not loaded", *words):
        ktap.expect(word in lines[0], f"{word!r} is missing in: {lines[0]}")


@ktap.case("no GPU driver", ours_only=OURS)
def no_driver():
    with modules.other_gpu_driver():
        expect_refused("ENOENT", "no GPU driver", "open")


@ktap.case("a GPU driver without persistent pins", ours_only=OURS)
def old_driver():
    with modules.other_gpu_driver("mock_nvidia_old"):
        expect_refused("EOPNOTSUPP", "nvidia_p2p_get_pages_persistent", "525.105.17")


@ktap.case("no peer-memory API", ours_only=OURS)
def no_core():
    with modules.without_peer_memory_core():
        expect_refused("ENOENT", "ib_register_peer_memory_client", "DOCA-OFED")


@ktap.case("a client nv_mem is there already", ours_only=OURS)
def squatter():
    modules.unload(PEERMEM)
    try:
        with loaded("nv_mem_squatter"):
            expect_refused("EBUSY", "nv_mem", "another module")
            ktap.expect_equal(clients(), ["nv_mem"], "clients")
    finally:
        modules.load(PEERMEM)


@contextlib.contextmanager
def loaded(name):
    modules.load(name)
    try:
        yield
    finally:
        modules.unload(name)


@ktap.case("no module but the first of its name", ours_only=OURS)
def twice():
    with KernelLog() as log:
        ktap.expect_equal(outcome(lambda: modules.load(PEERMEM)), "EEXIST", "errno")
        ktap.expect_equal(log.lines(), [], "log lines")


ktap.main(expect_nothing_left)

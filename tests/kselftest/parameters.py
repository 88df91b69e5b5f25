#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""NVIDIA's two parameters exist; a value that is not supported is refused by name."""

import subprocess

from peermem import ktap, modules
from peermem.equipment import clients, expect_nothing_left
from peermem.errors import outcome
from peermem.mode import MODE
from peermem.modules import PEERMEM, KernelLog, unloaded

OURS = "NVIDIA's 550 module has other parameters"
DEFAULTS = {"peerdirect_support": 0, "persistent_api_support": 1}


@ktap.case("{} is in sysfs, read-only, with its default", tuple(DEFAULTS), ours_only=OURS,
           only_if=MODE == "persistent")
def in_sysfs(name):
    path = modules.sysfs(PEERMEM) / "parameters" / name
    ktap.expect_equal(path.read_text().strip(), str(DEFAULTS[name]), "value")
    ktap.expect_equal(path.stat().st_mode & 0o777, 0o444, "mode")


@ktap.case("modinfo explains {}", tuple(DEFAULTS), ours_only=OURS)
def in_modinfo(name):
    command = ["modinfo", "-p", str(modules.path_of(PEERMEM))]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [line for line in text.splitlines() if line.startswith(f"{name}:")]
    ktap.say("\n".join(lines))
    ktap.expect_equal(len(lines), 1, "lines about it")
    sentence = lines[0].removeprefix(f"{name}:").removesuffix("(int)").strip()
    ktap.expect(len(sentence.split()) >= 5, "no sentence")
    ktap.expect("default" in sentence, "the default is not told")


@ktap.case("{}={} is refused in one line", (
    ("peerdirect_support", 2), ("peerdirect_support", -1), ("peerdirect_support", 2147483647),
    ("persistent_api_support", 2), ("persistent_api_support", -1),
    ("persistent_api_support", 2147483647)), ours_only=OURS)
def refused(name, value):
    with unloaded(), KernelLog() as log:
        result = outcome(lambda: modules.load(PEERMEM, f"{name}={value}"))
        lines = log.lines()
    ktap.say("\n".join(lines))
    ktap.expect_equal(result, "EINVAL", "errno")
    ktap.expect_equal(len(lines), 1, "log lines")
    for word in (f"{name}={value}", "0", "1"):
        ktap.expect(word in lines[0], f"{word!r} is missing")


@ktap.case("{} is no number", ("peerdirect_support=yes", "persistent_api_support="),
           ours_only=OURS)
def no_number(text):
    with unloaded():
        ktap.expect_equal(outcome(lambda: modules.load(PEERMEM, text)), "EINVAL", "errno")


@ktap.case("the defaults may be given", ours_only=OURS)
def defaults():
    modules.unload(PEERMEM)
    modules.load(PEERMEM, " ".join(f"{name}={value}" for name, value in DEFAULTS.items()))
    modules.unload(PEERMEM)
    modules.load(PEERMEM)


@ktap.case("persistent_api_support={} peerdirect_support={} loads with clients {}", (
    (1, 0, "nv_mem"), (1, 1, "nv_mem"), (0, 0, "nv_mem nv_mem_nc"), (0, 1, "nv_mem nv_mem_nc")),
           ours_only=OURS)
def accepted(persistent, old, names):
    modules.unload(PEERMEM)
    with KernelLog() as log:
        modules.load(PEERMEM, f"persistent_api_support={persistent} peerdirect_support={old}")
        lines = log.lines()
    found = clients()
    shown = (modules.sysfs(PEERMEM) / "parameters/persistent_api_support").read_text()
    modules.unload(PEERMEM)
    modules.load(PEERMEM)
    ktap.expect_equal(found, names.split(), "clients")
    ktap.expect_equal(shown.strip(), str(persistent), "value in sysfs")
    ktap.expect_equal(len(lines), 1, "log lines")
    ktap.expect(("persistent" if persistent else "revocable") in lines[0], f"words: {lines[0]}")


ktap.main(expect_nothing_left)

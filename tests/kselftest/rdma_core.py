#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""rdma-core's own tests give the same results with the module as without it."""

import gzip
import importlib
import os
import random
import shutil
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path

from peermem import ktap
from peermem.equipment import counting, expect_nothing_left, pin_function
from peermem.modules import unloaded
from peermem.process import in_child
from peermem.verbs import DEVICE, gid_index

INSTALLED = Path("/usr/share/doc/rdma-core/tests")
# What soft-RoCE can run. Not CQTest: it shrinks a queue that completions are still on their way
# to, and passes or not by chance. Not test_parent_domain: it crashes with the stock driver, too.
TESTS = ["test_mr", "test_pd", "test_qp", "test_cq.CQAPITest", "test_atomic", "test_srq"]
if os.environ.get("PEERMEM_FULL") == "1":
    TESTS += ["test_addr", "test_cqex", "test_cq_events", "test_device", "test_odp", "test_qpex",
              "test_rdmacm", "test_relaxed_ordering", "test_shared_pd"]
ENOUGH = 40


class Results(unittest.TestResult):
    """What each test came to."""

    def __init__(self):
        super().__init__()
        self.found = {}

    def addSuccess(self, test):
        self.found[test.id()] = "ok"

    def addSkip(self, test, reason):
        self.found[test.id()] = "skipped"

    def addFailure(self, test, _):
        self.found[test.id()] = "failed"

    def addError(self, test, _):
        self.found[test.id()] = "error"

    def addSubTest(self, test, _, error):
        if error:
            self.found[test.id()] = "failed"


def unpack(directory):
    """The package has most of them compressed. As a package they would all be imported."""
    for path in INSTALLED.iterdir():
        if path.suffix == ".gz":
            (directory / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        elif path.is_file():
            shutil.copy(path, directory)
    (directory / "__init__.py").write_text("")


def import_tests(directory):
    """Once for all runs, without their command line."""
    sys.path[:0] = [str(directory), str(directory / "tests")]
    importlib.import_module("args_parser").parser.args = {
        "dev": DEVICE, "port": 1, "gid": gid_index(), "pci_dev": None, "gpu": 0, "gtt": False}
    for test in TESTS:
        importlib.import_module(f"tests.{test.split('.')[0]}")


def run(names):
    """{test: result}, from a process of its own."""

    def results():
        found = Results()
        random.seed(0)  # they choose sizes and flags by chance: the same ones for all runs
        unittest.defaultTestLoader.loadTestsFromNames(names).run(found)
        return found.found

    return in_child(results)


def compare(names):
    """Results without the module, and those that differ with it."""
    with unloaded():
        without = run(names)
    with_module = run(names)
    return without, {name: f"{without.get(name)} without, {with_module.get(name)} with"
                     for name in without.keys() | with_module.keys()
                     if without.get(name) != with_module.get(name)}


def expect_same():
    with counting() as done:
        without, differences = compare([f"tests.{test}" for test in TESTS])
    totals = Counter(without.values())
    ktap.say(f"{len(without)} tests without the module: {dict(totals)}")
    ktap.expect(totals["ok"] >= ENOUGH, f"fewer than {ENOUGH} passed")
    ktap.expect_equal(done[pin_function()], 0, "attempts to pin GPU memory")
    if differences:
        ktap.say("\n".join(f"again: {name}: {what}" for name, what in differences.items()))
        _, differences = compare(list(differences))
    ktap.expect_equal(differences, {}, "differences, twice")


@ktap.case("the same results without the module and with it")
def same_results():
    if not INSTALLED.is_dir():
        raise ktap.Skip(f"no {INSTALLED}")
    with tempfile.TemporaryDirectory() as directory:
        tests = Path(directory) / "tests"
        tests.mkdir()
        unpack(tests)
        import_tests(Path(directory))
        expect_same()


ktap.main(expect_nothing_left)

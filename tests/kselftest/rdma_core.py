#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""rdma-core's own tests give the same results with the module as without it."""

import gzip
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from peermem import ktap
from peermem.equipment import counting, expect_nothing_left
from peermem.modules import unloaded
from peermem.verbs import DEVICE, gid_index

INSTALLED = Path("/usr/share/doc/rdma-core/tests")
# Those that soft-RoCE can run for the most part. (test_parent_domain crashes on it,
# test_odp, test_qpex and test_rdmacm pass as well, and take as long as all of these.)
FILES = ("test_mr", "test_pd", "test_qp", "test_cq", "test_cqex", "test_addr", "test_device",
         "test_atomic", "test_srq", "test_relaxed_ordering", "test_shared_pd")
RESULT = re.compile(r"^(test_\w+) \(tests\.([\w.]+)\).*?\.\.\. (ok|skipped|FAIL|ERROR)",
                    re.MULTILINE | re.DOTALL)


def unpack(directory):
    """The package has most of them compressed."""
    for path in INSTALLED.iterdir():
        if path.suffix == ".gz":
            (directory / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        elif path.is_file():
            shutil.copy(path, directory)


def run(directory):
    """What each test came to: {name: result}."""
    command = ["python3", "-B", "tests/run_tests.py", "--dev", DEVICE, "--port", "1",
               "--gid", str(gid_index()), "-v", *(word for file in FILES
                                                  for word in ("-k", f"tests.{file}.*"))]
    done = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=170)
    results = {f"{file}.{name}": result for name, file, result in RESULT.findall(done.stdout)}
    if not results or done.returncode not in (0, 1):
        ktap.say(done.stdout)
        raise AssertionError(f"the tests ended with status {done.returncode}")
    return results


@ktap.case("{}, without the module and with it", (f"{len(FILES)} test files",))
def same_results(_):
    if not INSTALLED.is_dir():
        raise ktap.Skip(f"no {INSTALLED}: python3-pyverbs without its documentation")
    with tempfile.TemporaryDirectory() as directory:
        tests = Path(directory) / "tests"
        tests.mkdir()
        unpack(tests)
        with unloaded():
            without = run(directory)
        with counting() as done:
            with_module = run(directory)
    totals = {result: list(without.values()).count(result) for result in set(without.values())}
    ktap.say(f"{len(without)} tests without the module: {totals}")
    differences = [f"{name}: {without.get(name)} without, {with_module.get(name)} with"
                   for name in sorted(without.keys() | with_module.keys())
                   if without.get(name) != with_module.get(name)]
    ktap.say("\n".join(differences))
    ktap.expect_equal(differences, [], "differences")
    ktap.expect(totals.get("ok", 0) > 80, "fewer than 80 tests passed: this proves nothing")
    ktap.expect_equal(done["num_alloc_mrs"], 0, "host memory registered as GPU memory")


ktap.main(expect_nothing_left)

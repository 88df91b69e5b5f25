#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Each kernel allocation on the way fails once, one after the other: ENOMEM, or success where it
could be done without, and nothing is lost. For kernels with fault injection."""

import time
from pathlib import Path

from peermem import ktap, modules
from peermem.equipment import counting, expect_nothing_left, fragment
from peermem.memory import GPU_PAGE, Gpu
from peermem.mode import PARAMETERS
from peermem.modules import PEERMEM
from peermem.process import alone
from peermem.revoked import expect_nothing_held
from peermem.threads import Nic, load_failing

SIZE = 8 * GPU_PAGE
DEBUGFS = Path("/sys/kernel/debug")
MOST = 2000
SECONDS = 150

if not Path("/proc/self/fail-nth").exists():
    raise SystemExit("this kernel has no fault injection (CONFIG_FAULT_INJECTION, CONFIG_FAILSLAB)")

# By default only atomic allocations fail.
for name in ("failslab", "fail_page_alloc"):
    for knob in ("ignore-gfp-wait", "ignore-gfp-highmem"):
        if (DEBUGFS / name / knob).exists():
            (DEBUGFS / name / knob).write_text("N\n")
    (DEBUGFS / name / "verbose").write_text("0\n")
if (DEBUGFS / "fail_page_alloc/min-order").exists():
    (DEBUGFS / "fail_page_alloc/min-order").write_text("0\n")


def each_allocation(attempt):
    """attempt(nth) gives outcome and whether the nth allocation was reached. Goes on until it is
    not; returns all outcomes."""
    outcomes = {}
    for nth in range(1, MOST):
        outcome, injected = attempt(nth)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        expect_nothing_held()
        if not injected:
            ktap.expect_equal(outcome, "success", "without a failing allocation")
            ktap.say(f"{nth - 1} allocations: {outcomes}")
            return outcomes
    raise AssertionError(f"no end after {MOST} allocations")


@ktap.case("registration of {}", ("one run", "fragments"))
@alone
def registration(what):
    with Nic() as nic, fragment(0 if what == "one run" else 1), Gpu().alloc(SIZE) as gpu:
        with counting() as done:
            outcomes = each_allocation(lambda nth: nic.failing(gpu, nth))
        ktap.expect(set(outcomes) <= {"success", "ENOMEM"}, f"other errors: {outcomes}")
        ktap.expect(outcomes.get("ENOMEM", 0) > 2, "hardly an allocation failed")
        ktap.expect_equal(modules.references(), 0, "references on the module")
        ktap.expect_equal(done["live_mrs"], 0, "regions left")


@ktap.case("deregistration")
@alone
def deregistration():
    with Nic() as nic, Gpu().alloc(SIZE) as gpu:
        outcomes = each_allocation(lambda nth: nic.failing_deregistration(gpu, nth))
        ktap.expect("lost" not in outcomes, "a region that cannot be ended")
        ktap.expect_equal(modules.references(), 0, "references on the module")


def load_attempt(nth):
    result, injected = load_failing(modules.path_of(PEERMEM), PARAMETERS, nth)
    if result == "success":
        modules.unload(PEERMEM)
    ktap.expect(not modules.is_loaded(PEERMEM), f"loaded after {result}")
    return result, injected


@ktap.case("loading the module")
def load():
    modules.unload(PEERMEM)
    end = time.monotonic() + SECONDS
    outcomes = {}
    try:
        for nth in range(1, MOST):
            result, injected = load_attempt(nth)
            outcomes[result] = outcomes.get(result, 0) + 1
            if not injected or time.monotonic() > end:
                break
    finally:
        modules.load(PEERMEM)
    ktap.say(f"{nth} allocations: {outcomes}")
    # The module loader turns some of its own failures into these.
    ktap.expect(set(outcomes) <= {"success", "ENOMEM", "ENOENT", "EINVAL"}, f"others: {outcomes}")
    ktap.expect(not injected, f"not through with it in {SECONDS} s")
    with Nic() as nic, Gpu().alloc(SIZE) as gpu:
        ktap.expect_equal(nic.outcome(gpu.va, SIZE), "success", "a registration after that")


ktap.main(expect_nothing_left)

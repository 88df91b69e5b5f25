#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Each single call that can fail does: a documented errno, and nothing is lost but what the GPU
driver itself does not take back."""

import contextlib
import errno

from peermem import ktap, modules
from peermem.equipment import (Stop, counters, counting, dma_device, dma_fault,
                                expect_nothing_left, fault, fragment, override, pin_function,
                                reclaim)
from peermem.memory import GPU_PAGE, Gpu
from peermem.mode import CALLBACK
from peermem.modules import KernelLog
from peermem.process import alone
from peermem.revoked import expect_nothing_held
from peermem.threads import Call, Nic, nic_and_loop

OURS = "errno and checks of our own"
PAGES = 4
SIZE = PAGES * GPU_PAGE

# What the pin returns, and what ibv_reg_mr() reports (Documentation/errors.rst).
PIN_ERRORS = (
    (-errno.ENOMEM, "ENOMEM"), (-errno.EBUSY, "EBUSY"), (-errno.ENODEV, "ENODEV"),
    (-errno.EIO, "EIO"), (-524, "EOPNOTSUPP"), (-errno.EINVAL, "EFAULT"), (-errno.EPERM, "EPERM"),
    (-512, "EIO"), (5, "EIO"))


def expect_refused(wanted):
    """One registration fails so; the next is fine again."""
    with Nic() as nic, Gpu().alloc(SIZE) as gpu:
        ktap.expect_equal(nic.outcome(gpu.va, SIZE), wanted, "errno")
        expect_nothing_held()
        ktap.expect_equal(modules.references(), 0, "references on the module")


def expect_registers():
    with Nic() as nic, Gpu().alloc(SIZE) as gpu:
        ktap.expect_equal(nic.outcome(gpu.va, SIZE), "success", "outcome")


@ktap.case("the driver's pin says {}: {}", PIN_ERRORS, ours_only=OURS)
@alone
def pin_fails(error, wanted):
    with fault(pin_function(), error), fault("get_pages_persistent", error):
        # With callbacks there is a second client, asked about what is not the first one's.
        expect_refused(wanted)
    expect_registers()


@ktap.case("the driver's pin fails after all, the callback {}", ("not called", "called meanwhile"),
           ours_only=OURS, only_if=CALLBACK)
@alone
def pin_fails_late(callback):
    with nic_and_loop() as (nic, _loop):
        gpu = Gpu().alloc(SIZE)
        with fault("get_pages_return", -errno.EBUSY):
            with Stop("get_pages_return") as stop:
                registering = Call(lambda: nic.outcome(gpu.va, SIZE))
                stop.reached()
                if callback != "not called":
                    Call(gpu.cuda_free).done(0.3)
            result = registering.result()
        ktap.expect(result in ("EBUSY", "EFAULT"), f"outcome {result}")
        ktap.eventually(lambda: not counters()["pinned_bytes"], "nothing pinned")
        expect_nothing_held()
    expect_registers()


@ktap.case("mapping for the NIC fails at run {} of 4", (0, 1, 2, 3))
@alone
def mapping_fails(run):
    with fragment(1), dma_fault(skip=run):
        expect_refused("EIO")
    expect_registers()


@ktap.case("a DMA device that is {}", ("null", "nonpci"), ours_only=OURS)
@alone
def no_pci_device(kind):
    with dma_device(kind):
        expect_refused("EINVAL")
    expect_registers()


@ktap.case("{} {} is not understood", (
    ("table_version", "0x00010001"), ("table_version", "0x00030000"),
    ("table_page_size", 0), ("table_page_size", 2),
    ("table_entries", 0), ("table_entries", PAGES - 1), ("table_entries", PAGES + 1)),
           ours_only=OURS)
@alone
def strange(field, value):
    with override(field, value):
        expect_refused("EOPNOTSUPP")
    expect_registers()


@contextlib.contextmanager
def coherent_gpu(how):
    with override("table_version", "0x20000"), override(*how):
        yield


@ktap.case("memory of a coherent GPU, told by {}", (
    ("its flag", ("table_flags", 1)), ("its address", ("table_ram", 1))), ours_only=OURS,
           only_if=CALLBACK)
@alone
def coherent(_what, how):
    with coherent_gpu(how):
        expect_refused("EOPNOTSUPP")
    expect_registers()


@ktap.case("a page table has no flags before 2.0, and others than the one may come")
@alone
def no_flags():
    with override("table_version", "0x00010002"):  # the mock writes nonsense there
        expect_registers()
    with override("table_version", "0x20000"), override("table_flags", 2):
        expect_registers()


@ktap.case("the driver does not take a pin back: kept until the memory is freed",
           only_if=CALLBACK, ours_only=OURS)
@alone
def put_fails():
    with Nic() as nic, Gpu().alloc(SIZE) as gpu:
        with counting() as done, fault("put_pages", -errno.EIO), KernelLog() as log:
            ktap.expect_equal(nic.outcome(gpu.va, SIZE), "success", "outcome")
            lines = log.lines()
        ktap.say("\n".join(lines))
        ktap.expect_equal(len(lines), 1, "log lines")
        ktap.expect_equal(done["put_pages"], 1, "attempts")
        ktap.expect_equal(modules.references(), 1, "references on the module")
        ktap.expect_equal(counters()["dma_mappings"], 0, "DMA mappings")
        # The same memory can be registered meanwhile.
        ktap.expect_equal(nic.outcome(gpu.va, SIZE), "success", "another registration")
        gpu.free()
        expect_nothing_held()
        ktap.expect_equal(modules.references(), 0, "references on the module")


@ktap.case("the driver does not take a persistent pin back: one line, and life goes on",
           only_if=not CALLBACK, ours_only=OURS)
@alone
def put_persistent_fails():
    with Nic() as nic, Gpu().alloc(SIZE) as gpu:
        with fault("put_pages_persistent", -errno.EIO), KernelLog() as log:
            ktap.expect_equal(nic.outcome(gpu.va, SIZE), "success", "outcome")
            lines = log.lines()
        ktap.say("\n".join(lines))
        ktap.expect_equal(len(lines), 1, "log lines")
        ktap.expect("error -5" in lines[0], f"words: {lines[0]}")
        ktap.expect_equal(counters()["pinned_bytes"], SIZE, "bytes that stay pinned")
        ktap.expect_equal(modules.references(), 0, "references on the module")
        ktap.expect_equal(nic.outcome(gpu.va, SIZE), "success", "another registration")
    reclaim()
    expect_nothing_held()


@ktap.case("200 failures of {} leave nothing behind", (pin_function(), "mapping"))
@alone
def many(what):
    knob = dma_fault(times=0) if what == "mapping" else fault(what, -errno.EBUSY, times=0)
    with Nic() as nic, Gpu().alloc(SIZE) as gpu, knob:
        outcomes = {nic.outcome(gpu.va, SIZE) for _ in range(200)}
        ktap.expect("success" not in outcomes and len(outcomes) == 1, f"outcomes {outcomes}")
    expect_registers()


ktap.main(expect_nothing_left)

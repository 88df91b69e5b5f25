#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""GPU memory that cannot be mapped for the NIC: documented errno, and the pin is given back."""

import errno

from peermem import ktap
from peermem.equipment import counting, dma_device, expect_nothing_left, fault, override
from peermem.memory import GPU_PAGE, Gpu
from peermem.verbs import Nic

OURS = "errno and checks of our own"
SIZE = 3 * GPU_PAGE

# What the GPU driver's mapping returns, and what ibv_reg_mr() reports (Documentation/errors.rst).
ERRORS = (
    (-errno.EINVAL, "EINVAL"),
    (-errno.ENOMEM, "ENOMEM"),
    (-errno.EBUSY, "EBUSY"),
    (-errno.ENODEV, "ENODEV"),
    (-errno.EIO, "EIO"),
    (-524, "EOPNOTSUPP"),
    (-errno.EPERM, "EPERM"),
    (-133, "EHWPOISON"),
    (-134, "EIO"),
    (-512, "EIO"),
    (-(1 << 31), "EIO"),
    (5, "EIO"),
)


def expect_refused(wanted):
    """The one registration fails so, gives back what it took, and the next is fine again."""
    with Nic() as nic, Gpu().alloc(SIZE) as gpu:
        with counting() as done:
            ktap.expect_equal(nic.outcome(gpu.va, SIZE), wanted, "errno")
        ktap.expect_equal(done["get_pages_persistent"], 1, "pins")
        ktap.expect_equal(done["put_pages_persistent"], 1, "pins given back")
        ktap.expect_equal(done["live_dma_mappings"], 0, "mappings left")
        ktap.expect_equal(done["pinned_bytes"], 0, "bytes left pinned")


def expect_registered():
    with Nic() as nic, Gpu().alloc(SIZE) as gpu:
        ktap.expect_equal(nic.outcome(gpu.va, SIZE), "success", "outcome")


@ktap.case("the driver says {}: {}", ERRORS, ours_only=OURS)
def map_fails(error, wanted):
    with fault("dma_map_pages", error):
        expect_refused(wanted)
    expect_registered()


@ktap.case("a DMA device that is {}", ("null", "nonpci"), ours_only=OURS)
def no_pci_device(kind):
    with dma_device(kind):
        expect_refused("EINVAL")
    expect_registered()


@ktap.case("{} {} is not understood", (
    ("table_version", "0x00010001"), ("table_version", "0x00030000"), ("table_version", "0"),
    ("table_version", "0x7fffffff"),
    ("table_page_size", 0), ("table_page_size", 2), ("table_page_size", 3),
    ("table_entries", 0), ("table_entries", 2), ("table_entries", 4),
    ("mapping_version", "0x00020002"), ("mapping_version", "0x00010003"),
    ("mapping_version", "0x00030003"), ("mapping_version", "0"),
    ("mapping_page_size", 0), ("mapping_page_size", 2),
    ("mapping_entries", 0), ("mapping_entries", 2), ("mapping_entries", 4)), ours_only=OURS)
def strange(field, value):
    with override(field, value):
        expect_refused("EOPNOTSUPP")
    expect_registered()


@ktap.case("{} {} is understood", (
    ("table_version", "0x00010002"), ("table_version", "0x00010003"),
    ("table_version", "0x00020000"), ("table_version", "0x00020001"),
    ("mapping_version", "0x00020003"), ("mapping_version", "0x00020004")))
def known(field, value):
    with override(field, value):
        expect_registered()


@ktap.case("200 failures leave nothing behind", ours_only=OURS)
def many():
    with (Nic() as nic, Gpu().alloc(SIZE) as gpu,
          fault("dma_map_pages", -errno.EIO, times=0), counting() as done):
        for _ in range(200):
            ktap.expect_equal(nic.outcome(gpu.va, SIZE), "EIO", "errno")
    ktap.expect_equal(done["put_pages_persistent"], 200, "pins given back")


ktap.main(expect_nothing_left)

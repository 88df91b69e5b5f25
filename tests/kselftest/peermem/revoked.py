# SPDX-License-Identifier: GPL-2.0
"""What must be true of registrations whose memory is gone."""

import os

from peermem import ktap
from peermem.equipment import counters
from peermem.memory import expect_bytes, pattern

_ERRORS = ("REM_ACCESS_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "REM_OP_ERR", "LOC_QP_OP_ERR")


def same_place(gpu, length, segments):
    """New memory where the freed one was. All else would prove nothing."""
    buffer = gpu.alloc(length)
    ktap.expect_equal(buffer.segments(), segments, "place of the new memory")
    return buffer


def expect_access_fails(loop, host, revoked):
    """Remotely and locally, for writing and for reading. host is a registration too."""
    length = min(host.length, revoked.length)
    for what, status in (
            ("writing to it", loop.try_write(host, revoked, length)),
            ("reading from it", loop.try_read(host, revoked, length)),
            ("sending from it", loop.try_write(revoked, host, length)),
            ("reading into it", loop.try_read(revoked, host, length))):
        ktap.expect(status in _ERRORS, f"{what}: {status} instead of an error")


def expect_untouched(gpu, length, segments, action):
    """action() changes nothing in the memory that now lies where the freed one was."""
    data = pattern(os.getpid(), length)
    with same_place(gpu, length, segments) as now:
        now.write(data)
        action()
        expect_bytes(now.read(), data, "memory that was allocated later")


def expect_nothing_held():
    """No pin, no BAR1 space, no page table, no DMA mapping."""
    values = counters()
    held = {name: values[name] for name in (
        "live_page_tables", "live_dma_mappings", "pinned_bytes", "bar1_used_bytes",
        "dma_mappings", "dma_mapped_bytes") if values[name]}
    ktap.expect(not held, f"still held: {held}")

#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""In the VM: RDMA between the memory of two mock GPUs.

No program here reads or writes that memory. The host fills it with random bytes behind the
GPUs' BARs, and compares it there after each operation; this end tells it where to look."""

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kselftest"))

from peermem import perftest
from peermem.equipment import counting, expect_nothing_left, fragment, umems
from peermem.ktap import expect, expect_equal
from peermem.memory import GPU_PAGE, PAGE, Gpu
from peermem.verbs import Nic

OUT = Path(sys.argv[1] if len(sys.argv) > 1 else "/out")
MIB = 1 << 20
ITERATIONS = 100


def ask_host(seconds=60, **request):
    """Files are the one thing that VM and host share besides the GPUs' memory."""
    ask_host.number = number = getattr(ask_host, "number", 0) + 1
    draft = OUT / "request.draft"
    draft.write_text(json.dumps(request))
    draft.rename(OUT / f"request-{number}.json")
    reply = OUT / f"reply-{number}.json"
    end = time.monotonic() + seconds
    while not reply.exists():
        expect(time.monotonic() < end, f"the host does not answer within {seconds} s")
        time.sleep(0.02)
    answer = json.loads(reply.read_text())
    expect("error" not in answer, answer.get("error"))
    return answer


def place(buffer, offset):
    return {"gpu": buffer.gpu.index, "segments": buffer.segments(), "offset": offset}


def transfer(operation, name, size, source_offset=GPU_PAGE, target_offset=GPU_PAGE):
    """From GPU 0 to GPU 1. Around the range that moves there is memory that must not change."""
    print(f"{name}: {size} bytes", flush=True)
    with (Nic() as nic, Gpu(0).alloc(source_offset + size + GPU_PAGE) as source,
          Gpu(1).alloc(target_offset + size + GPU_PAGE) as target):
        ask_host(do="fill", size=size, source=place(source, source_offset),
                 target=place(target, target_offset))
        with (counting() as done, nic.loop() as loop,
              nic.register(source, source_offset, size) as source_mr,
              nic.register(target, target_offset, size) as target_mr):
            entries = [umem.entries for umem in umems()]
            getattr(loop, operation)(source_mr, target_mr, size)
        expect_equal((done["bytes_from_peer"], done["bytes_to_peer"]), (size, size),
                     "bytes that the NIC read and wrote by DMA address")
        ask_host(do="compare", row=row(name, size, done, entries))


def row(name, size, done, entries):
    expect(done["num_alloc_mrs"], "no registration of GPU memory")
    pins = done["get_pages"] + done["get_pages_persistent"]
    return {"operation": name, "size": size, "pins": pins / done["num_alloc_mrs"],
            "entries": entries, "cpu": done["cpu_faults"] * PAGE}


def foreign(tool):
    """perftest registers, fills and moves by itself; it compares nothing."""
    print(f"{tool} --mmap", flush=True)
    with counting() as done:
        perftest.run(tool, "-s", str(GPU_PAGE), "-n", str(ITERATIONS), "-t", "16")
    expect(done["bytes_to_peer"] >= ITERATIONS * GPU_PAGE, "perftest moved too little")
    mean = done["num_reg_pages"] / done["num_alloc_mrs"]
    ask_host(do="note", row=row(f"perftest {tool}", ITERATIONS * GPU_PAGE, done, [mean] * 2))


def main():
    transfer("write", "RDMA WRITE", 16 * MIB)
    transfer("read", "RDMA READ", 16 * MIB)
    transfer("send", "SEND and RECEIVE", 16 * MIB)
    with fragment(4, gpu=0), fragment(1, gpu=1):
        transfer("write", "RDMA WRITE, fragments", MIB + 12_345, 70_001, 131_071)
    foreign("ib_write_bw")
    foreign("ib_read_bw")
    expect_nothing_left()
    version = Path("/sys/module/nvidia_peermem/version").read_text().strip()
    ask_host(do="report", about=[
        f"nvidia_peermem {version} on Linux {os.uname().release}, soft-RoCE as NIC.",
        "From GPU 0 ({}) to GPU 1 ({}), both mock GPUs:".format(*(
            Gpu(i).pci_address for i in (0, 1))), ""])


try:
    main()
except AssertionError as error:
    sys.exit(f"demo: {error}")

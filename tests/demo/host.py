#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""On the host: fills the memory of the mock GPUs, compares it, and shows what was measured.

usage: host.py RUN_DIR OUT_DIR

RUN_DIR has the files behind the GPUs' BARs, vram0 and vram1. Through OUT_DIR the VM asks
(request-N.json) and gets its answers (reply-N.json), while it runs. A file OUT_DIR/vm-ended says
that no more will come. The table goes to standard output; status 1 if anything was wrong."""

import json
import mmap
import os
import sys
import time
from pathlib import Path

LINE = "{:<21}{:>12}{:>15}{:>7}{:>13}{:>12}"
HEAD = (
    LINE.format("", "", "bytes right in", "pins /", "scatterlist", "bytes by"),
    LINE.format("operation", "bytes", "host's files", "MR", "entries", "the CPU"),
    "-" * 80,
)
NOTES = """
Right in host's files: all bytes of both buffers, compared in vram0 and vram1,
  the files behind the GPUs' BARs: those that moved, and those around, which
  must not. Pins / MR: calls of nvidia_p2p_get_pages*() for one registration.
Entries: of the source / of the target. A fragment is a run of GPU pages.
By the CPU: GPU memory that programs in the VM touched. Not in it: what soft-
  RoCE copies, by DMA address, in place of the hardware of a NIC.
(1) perftest compares nothing, and fills its buffers by itself at the start."""


class Buffer:
    """GPU memory of the VM, in the order of its virtual addresses."""

    def __init__(self, run_dir, size, gpu, segments, offset):
        self.path = run_dir / f"vram{gpu}"
        self.gpu, self.segments = gpu, segments
        self.start, self.end = offset, offset + size
        with open(self.path, "r+b") as file:
            self._bar = mmap.mmap(file.fileno(), 0)

    @property
    def length(self):
        return sum(length for _, length in self.segments)

    def fill(self):
        """With bytes that nobody in the VM can know."""
        self.wanted = os.urandom(self.length)
        at = 0
        for start, length in self.segments:
            self._bar[start:start + length] = self.wanted[at:at + length]
            at += length

    def expect_copy_of(self, source):
        """In the range; around it, what was there before."""
        self.wanted = (self.wanted[:self.start] + source.wanted[source.start:source.end]
                       + self.wanted[self.end:])

    def compare(self):
        """The number of bytes, all of them right."""
        at = 0
        for start, length in self.segments:
            got, wanted = self._bar[start:start + length], self.wanted[at:at + length]
            if got != wanted:
                i = next(i for i in range(length) if got[i] != wanted[i])
                raise ValueError(f"{self._where(at + i)} of GPU {self.gpu} (offset {start + i:#x} "
                                 f"of {self.path.name}) is {got[i]:#04x} instead of {wanted[i]:#04x}")
            at += length
        return at

    def _where(self, at):
        if at < self.start:
            return f"byte {self.start - at} in front of the range"
        return f"byte {at - self.start} of the range" if at < self.end else \
            f"byte {at - self.end} behind the range"


class Demo:
    """The answers to the VM's requests."""

    def __init__(self, run_dir):
        self._run_dir, self._rows, self.finished = run_dir, [], False

    def fill(self, size, source, target):
        self._source = Buffer(self._run_dir, size, **source)
        self._target = Buffer(self._run_dir, size, **target)
        self._source.fill()
        self._target.fill()

    def compare(self, row):
        self._target.expect_copy_of(self._source)
        try:
            verified = self._source.compare() + self._target.compare()
        except ValueError as error:
            raise ValueError(f"{row['operation']}: {error}") from None
        self._rows.append(row | {"verified": verified})

    def note(self, row):
        self._rows.append(row)

    def report(self, about):
        print(*about, *HEAD, *map(line, self._rows), NOTES, sep="\n", flush=True)
        self.finished = True


def line(row):
    """Of the table."""
    compared = "verified" in row
    return LINE.format(row["operation"], f"{row['size']:,}",
                       f"{row['verified']:,}" if compared else "(1)", f"{row['pins']:g}",
                       " / ".join(f"{n:g}" for n in row["entries"]),
                       f"{row['cpu']:,}" + ("" if compared else " (1)"))


def answer(demo, request):
    try:
        return getattr(demo, request.pop("do"))(**request) or {}
    except ValueError as error:
        print(f"WRONG: {error}", flush=True)
        return {"error": str(error)}


def serve(demo, out_dir):
    number, ended = 1, out_dir / "vm-ended"
    while not demo.finished:
        request = out_dir / f"request-{number}.json"
        if not request.exists():
            if ended.exists():
                sys.exit("the VM ended before the demo did")
            time.sleep(0.02)
            continue
        reply = answer(demo, json.loads(request.read_text()))
        draft = out_dir / "reply.draft"
        draft.write_text(json.dumps(reply))
        draft.rename(out_dir / f"reply-{number}.json")
        if "error" in reply:
            sys.exit(1)
        number += 1


serve(Demo(Path(sys.argv[1])), Path(sys.argv[2]))

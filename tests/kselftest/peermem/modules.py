# SPDX-License-Identifier: GPL-2.0
"""Kernel modules and the kernel log."""

import contextlib
import ctypes
import errno
import os
import re
import subprocess
import time
from pathlib import Path

from peermem.mode import PARAMETERS, REFERENCE

_KO = Path(os.environ.get("PEERMEM_KO_DIR", f"/src/build/{os.uname().release}/ko"))
TOOL = Path(os.environ.get("PEERMEM_BIN_DIR", f"/src/build/{os.uname().release}/bin")) / "peermem"
PEERMEM = "nvidia_peermem"
_FILES = {
    PEERMEM: _KO / ("reference/nvidia-peermem.ko" if REFERENCE else "nvidia-peermem.ko"),
    "rdma_rxe": _KO / "rdma_rxe.ko",
    "ib_peer_mem": _KO / "ib_peer_mem.ko",
    "mock_nvidia": _KO / "mock_nvidia.ko",
    "mock_nvidia_old": _KO / "mock_nvidia_old.ko",
    "nv_mem_squatter": _KO / "nv_mem_squatter.ko",
    "proprietary_nvidia": _KO / "proprietary_nvidia.ko",
}
TROUBLE = re.compile(r"BUG|WARNING|Oops|Call Trace|possible|KASAN|UBSAN|refcount_t|corruption"
                     r"|general protection|blocked for more than|stall")
_SYS_FINIT_MODULE, _SYS_DELETE_MODULE = 313, 176  # x86_64
_libc = ctypes.CDLL(None, use_errno=True)


def _system_call(number, *arguments):
    if _libc.syscall(number, *arguments):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def path_of(name):
    return _FILES[name]


def load(name, parameters=None):
    """insmod, with the kernel's own errno; peermem in the mode under test, or as told."""
    if parameters is None:
        parameters = PARAMETERS if name == PEERMEM else ""
    load_file(_FILES[name], parameters)


def load_file(path, parameters=""):
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _system_call(_SYS_FINIT_MODULE, fd, parameters.encode(), 0)
    finally:
        os.close(fd)


def unload(name, attempts=10):
    """rmmod. A reader of debugfs, say, may hold the module for a moment; a user does for long."""
    for attempt in range(attempts):
        if attempt:
            time.sleep(0.05)
        try:
            return _system_call(_SYS_DELETE_MODULE, name.encode(), os.O_NONBLOCK)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EBUSY):
                raise
            failure = error
    raise failure


def sysfs(name):
    return Path("/sys/module") / name


def is_loaded(name):
    return (sysfs(name) / "initstate").exists()


def references(name=PEERMEM):
    return int((sysfs(name) / "refcnt").read_text())


@contextlib.contextmanager
def unloaded(name=PEERMEM):
    unload(name)
    try:
        yield
    finally:
        load(name)


def into_mode():
    """Loads peermem again if it is not in the mode under test."""
    if PARAMETERS:
        unload(PEERMEM)
        load(PEERMEM)


def _run(*command):
    subprocess.run(command, check=True)


@contextlib.contextmanager
def without_peer_memory_core():
    """Neither peermem, nor soft-RoCE, nor the core it needs."""
    netdev = Path("/sys/class/infiniband/rxe0/parent").read_text().strip()
    unload(PEERMEM)
    _run("rdma", "link", "delete", "rxe0")
    unload("rdma_rxe")
    unload("ib_peer_mem")
    try:
        yield
    finally:
        load("ib_peer_mem")
        load("rdma_rxe")
        _run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", netdev)
        load(PEERMEM)


@contextlib.contextmanager
def other_gpu_driver(name=None):
    """Without peermem and its GPU driver, with another such driver or none."""
    unload(PEERMEM)
    unload("mock_nvidia")
    try:
        if name:
            load(name)
        yield
    finally:
        if name:
            unload(name)
        load("mock_nvidia")
        load(PEERMEM)


class KernelLog:
    """What the kernel logs from now on."""

    def __init__(self):
        self._fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(self._fd, 0, os.SEEK_END)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._fd)

    def _records(self):
        while True:
            try:
                yield os.read(self._fd, 8192).decode(errors="replace")
            except BlockingIOError:
                return
            except BrokenPipeError:  # the kernel wrote more than its buffer holds
                yield ";BUG in the test: lines of the kernel log were lost"

    def lines(self, word=PEERMEM):
        """Those with the word in them that came since the last call."""
        texts = (record.split(";", 1)[1].split("\n", 1)[0] for record in self._records())
        # What the debugging of kobjects says of each that is freed is no complaint.
        return [text for text in texts if word in text and not text.startswith("kobject: '")]

#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The module goes while its files are open or being read: a clean error, and nothing hangs."""

import contextlib
import os

from peermem import ktap, modules, surface
from peermem.equipment import expect_nothing_left
from peermem.errors import outcome
from peermem.modules import PEERMEM
from peermem.surface import DEBUGFS, DEBUGFS_FILES, GONE, SYSFS, WRITABLE
from peermem.threads import Call

OURS = "files of our own"


def opened(path):
    """For whatever its mode allows."""
    mode = path.stat().st_mode
    flags = {0o400: os.O_RDONLY, 0o200: os.O_WRONLY}.get(mode & 0o600, os.O_RDWR)
    return os.open(path, flags | os.O_CLOEXEC), flags


def everything():
    return surface.files(SYSFS) + surface.files(DEBUGFS)


def read_again(path, fd):
    """From the start in sysfs, which buffers; debugfs cannot seek, and does not."""
    return os.pread(fd, 4096, 0) if path.is_relative_to(SYSFS) else os.read(fd, 4096)


def expect_dead(path, fd, flags):
    if flags != os.O_WRONLY:
        result = outcome(lambda: read_again(path, fd))
        ktap.expect(result in GONE, f"reading {path}: {result}")
    if flags != os.O_RDONLY:
        result = outcome(lambda: os.pwrite(fd, b"live" if path.name == "state" else b"1", 0))
        ktap.expect(result in GONE, f"writing {path}: {result}")


def expect_all_dead(files):
    for path, fd, flags in files:
        expect_dead(path, fd, flags)
        os.close(fd)


def unload_at_once():
    """Who has a file open does not keep the module."""
    unloading = Call(lambda: modules.unload(PEERMEM, attempts=1))
    ktap.expect_equal(unloading.errno_name(20), "success", "unloading")


def one_of_each_kind():
    """A file of each directory, and all that have code of their own."""
    kinds = {path.parent: path for path in everything()}
    return sorted({*kinds.values(), *(SYSFS / name for name in WRITABLE),
                   *(DEBUGFS / name for name in DEBUGFS_FILES)})


@ktap.case("one file alone: open, unload, read and write, close", ours_only=OURS)
def one_by_one():
    surface.show_all_peers()
    for path in one_of_each_kind():
        if not path.exists():  # that of a GPU or device
            surface.show_all_peers()
        fd, flags = opened(path)
        unload_at_once()
        loaded_again_after(lambda: expect_all_dead([(path, fd, flags)]))


def loaded_again_after(check):
    try:
        check()
    finally:
        modules.load(PEERMEM)


@ktap.case("all files at once, read before and after", ours_only=OURS)
def all_at_once():
    surface.show_all_peers()
    files = [(path, *opened(path)) for path in everything()]
    ktap.expect(len(files) > 60, f"only {len(files)} files")
    for path, fd, flags in files:
        if flags != os.O_WRONLY:
            os.read(fd, 1)
    unload_at_once()
    loaded_again_after(lambda: expect_all_dead(files))


@ktap.case("a file that is still open is that of the old module, when a new one is there",
           ours_only=OURS)
def old_file():
    files = [(path, *opened(path)) for path in (SYSFS / "state", DEBUGFS / "registrations")]
    with modules.unloaded():
        pass
    expect_all_dead(files)
    ktap.expect_equal(surface.text("state"), "live", "state of the new one")


@ktap.case("closed while the module is away, and a directory that is open", ours_only=OURS)
def closed_meanwhile():
    surface.show_all_peers()
    files = [(path, *opened(path)) for path in everything()]
    directories = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in (
        SYSFS, SYSFS / "gpus", SYSFS / "gpus" / surface.gpu_name(), DEBUGFS)]
    with modules.unloaded():
        ktap.expect(not SYSFS.exists() and not DEBUGFS.exists(), "the directories are still there")
        for directory in directories:
            with contextlib.suppress(OSError):
                ktap.expect_equal(os.listdir(directory), [], "files of what is gone")
            os.close(directory)
        for _, fd, _ in files:
            os.close(fd)


@ktap.case("a load that fails leaves no file", ours_only=OURS)
def failed_load():
    with modules.unloaded():
        ktap.expect_equal(outcome(lambda: modules.load(PEERMEM, "persistent_api_support=7")),
                          "EINVAL", "loading")
        ktap.expect(not SYSFS.exists() and not DEBUGFS.exists(), "there are files")


ktap.main(expect_nothing_left)

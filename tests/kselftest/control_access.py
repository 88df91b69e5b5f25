#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Who may read and write what, and that nothing of it gives away an address or a process."""

import ctypes
import os
import re
import stat
from pathlib import Path

from peermem import ktap, surface
from peermem.equipment import expect_nothing_left, fault, pin_function
from peermem.errors import outcome
from peermem.memory import GPU_PAGE, Gpu
from peermem.process import Child
from peermem.surface import DEBUGFS, DEBUGFS_FILES, SYSFS, WRITABLE

OURS = "files of our own"
NOBODY = 65534
SIZE = 3 * GPU_PAGE
MODES = {"state": 0o644, "max_pinned_bytes": 0o644, "stats_reset": 0o200}
# What would be written to them if one could.
VALUES = {"state": "drain", "max_pinned_bytes": "1", "stats_reset": "1"}

PCI = r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
NUMBER = r"\d+"
FORMS = (
    (r"version|clients/nv_mem(_nc)?/version", r"\d+(\.\d+)+"),
    ("mode", "persistent|revocable"),
    ("gpu_driver|peer_memory_core", r"[a-z_]+"),
    ("state", "live|drain"),
    ("max_pinned_bytes", NUMBER),
    (r"clients/nv_mem(_nc)?/num_\w+", NUMBER),
    (r"(stats|failures)/\w+", NUMBER),
    (rf"gpus/{PCI}/uuid", r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    (rf"(gpus|devices)/{PCI}/\w+", NUMBER),
)
# Of the kernel's half of the address space.
KERNEL_ADDRESS = re.compile(rb"(?i)(0x)?f{4}[89a-f][0-9a-f]{11}")

surface.show_all_peers()
FILES = [str(path.relative_to(SYSFS)) for path in surface.files()]
READABLE = [name for name in FILES if name != "stats_reset"]

_libc = ctypes.CDLL(None, use_errno=True)


def become_nobody():
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def enter_namespaces():
    """As the root of a container that an unprivileged user started."""
    become_nobody()
    # A process that changed its user is not its own in /proc, until this.
    _libc.prctl(4, 1)
    os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNS | os.CLONE_NEWNET | os.CLONE_NEWPID)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {NOBODY} 1")
    Path("/proc/self/gid_map").write_text(f"0 {NOBODY} 1")
    ktap.expect_equal(os.getuid(), 0, "user in the namespace")


WHO = (("nobody", become_nobody), ("root of a container", enter_namespaces))


def as_other(become, function):
    """What function() returns there. Another user may not end our processes: it ends by itself."""

    def run(child):
        become()
        child.tell(function())

    with Child(run) as child:
        answer = child.told()
        ktap.expect_equal(child.wait(), 0, "exit status of the child")
    return answer


def read_all():
    return {name: (SYSFS / name).read_text() for name in READABLE}


@ktap.case("every file is one line with one value of its kind", ours_only=OURS)
def one_value():
    for name, text in read_all().items():
        forms = [value for path, value in FORMS if re.fullmatch(path, name)]
        ktap.expect(forms, f"nobody knows {name}")
        ktap.expect(re.fullmatch(f"(?:{forms[0]})\n", text), f"{name}: {text!r}")


@ktap.case("every path of the documentation is there", ours_only=OURS)
def all_there():
    for path, _ in FORMS:
        ktap.expect(any(re.fullmatch(path, name) for name in FILES), f"no {path}")


@ktap.case("modes and owners are as documented", ours_only=OURS)
def modes():
    for path in [SYSFS / name for name in FILES] + [DEBUGFS / name for name in DEBUGFS_FILES]:
        status = path.stat()
        wanted = 0o400 if path.is_relative_to(DEBUGFS) else MODES.get(path.name, 0o444)
        ktap.expect_equal(oct(stat.S_IMODE(status.st_mode)), oct(wanted), path)
        ktap.expect_equal((status.st_uid, status.st_gid), (0, 0), f"owner of {path}")
    ktap.expect_equal(sorted(path.name for path in DEBUGFS.iterdir()), sorted(DEBUGFS_FILES),
                      "files in debugfs")


@ktap.case("{0} reads every file, and sees what root sees", WHO, ours_only=OURS)
def readable(_who, become):
    ktap.expect_equal(as_other(become, read_all), read_all(), "contents")


def fresh_sysfs():
    """A sysfs of its own, as a container has. Names and what they say, or why there is none."""
    enter_namespaces()
    pid = os.fork()  # into the new process namespace
    if not pid:
        ok = _libc.mount(b"sysfs", b"/sys", b"sysfs", 0, None) == 0
        os._exit(0 if ok and read_all() else 1)
    return os.waitpid(pid, 0)[1]


@ktap.case("every file can be read in a container that mounts its own /sys", ours_only=OURS)
def own_sysfs():
    if as_other(lambda: None, fresh_sysfs):
        raise ktap.Skip("the kernel does not let it mount one here")


def outcomes_of_writing():
    return {name: outcome(lambda: (SYSFS / name).write_text(VALUES[name])) for name in WRITABLE}


@ktap.case("{0} can write none, and nothing changes", WHO, ours_only=OURS)
def not_writable(_who, become):
    before = read_all()
    ktap.expect_equal(as_other(become, outcomes_of_writing), dict.fromkeys(WRITABLE, "EACCES"),
                      "writing")
    ktap.expect_equal(read_all(), before, "contents")


@ktap.case("{0} cannot read stats_reset, or make files readable", WHO, ours_only=OURS)
def no_way_around(_who, become):
    def attempts():
        return (outcome(lambda: (SYSFS / "stats_reset").read_text()),
                outcome(lambda: (SYSFS / "state").chmod(0o666)),
                outcome(lambda: (SYSFS / "stats_reset").chmod(0o666)))

    ktap.expect_equal(as_other(become, attempts), ("EACCES", "EPERM", "EPERM"), "outcomes")


@ktap.case("a file that is not for writing refuses root, too", ours_only=OURS)
def root_writes():
    before = read_all()
    for name in READABLE:
        if name not in WRITABLE:
            ktap.expect(outcome(lambda: (SYSFS / name).write_text("1")) in ("EACCES", "EPERM"),
                        f"{name} took a value")
    ktap.expect(outcome(lambda: (SYSFS / "stats_reset").read_text()) in ("EACCES", "EPERM"),
                "stats_reset can be read")
    ktap.expect_equal(read_all(), before, "contents")


@ktap.case("{0} cannot read debugfs, even if its directory is open to all", WHO, ours_only=OURS)
def debugfs_closed(_who, become):
    def attempts():
        return {name: outcome(lambda: (DEBUGFS / name).read_text()) for name in DEBUGFS_FILES}

    top = DEBUGFS.parent
    mode = stat.S_IMODE(top.stat().st_mode)
    for bits in (mode, 0o755):
        top.chmod(bits)
        try:
            ktap.expect_equal(as_other(become, attempts), dict.fromkeys(DEBUGFS_FILES, "EACCES"),
                              f"debugfs with mode {bits:o}")
        finally:
            top.chmod(mode)


@ktap.case("files of debugfs take nothing from root", ours_only=OURS)
def debugfs_read_only():
    for name in DEBUGFS_FILES:
        def write(path=DEBUGFS / name):
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(fd, b"1")
            finally:
                os.close(fd)

        ktap.expect(outcome(write) != "success", f"{name} took a value")


def everything():
    """All that can be read, as bytes."""
    found = {name: (SYSFS / name).read_bytes() for name in READABLE}
    found |= {f"debugfs {name}": (DEBUGFS / name).read_bytes() for name in DEBUGFS_FILES}
    return found


@ktap.case("while registered and after a failure: no kernel address anywhere, no process or "
           "address of one in sysfs", ours_only=OURS)
def no_secrets():
    name = b"conspicuous"
    _libc.prctl(15, name, 0, 0, 0)
    nic = surface.nic()
    with Gpu().alloc(SIZE) as gpu:
        surface.reset()
        with fault(pin_function(), -5):
            ktap.expect_equal(nic.outcome(gpu.va, SIZE), "EIO", "errno")
        with nic.register(gpu):
            found = everything()
    pid, address = str(os.getpid()).encode(), f"{gpu_address(found):x}".encode()
    for where, text in found.items():
        ktap.expect(not KERNEL_ADDRESS.search(text), f"{where}: {text[:200]!r}")
        if where.startswith("debugfs"):
            continue
        ktap.expect(name not in text, f"{where} names a process")
        ktap.expect(text.strip() != pid, f"{where} may be a pid: {text!r}")
        ktap.expect(address not in text and str(int(address, 16)).encode() != text.strip(),
                    f"{where} has an address")
    # That this test looks at the right thing: root finds all of it in debugfs.
    lines = found["debugfs registrations"] + found["debugfs failures"]
    for word in (name, pid, address):
        ktap.expect(word in lines, f"{word!r} is not in debugfs either")


def gpu_address(found):
    return int(surface.fields(found["debugfs registrations"].decode())["address"], 16)


ktap.main(expect_nothing_left)

# SPDX-License-Identifier: GPL-2.0
"""A NIC whose calls let other threads of the process run (stress/nic.c through ctypes), and
calls in threads of their own. Memory belongs to a process, so that races need threads."""

import contextlib
import ctypes
import errno
import os
import threading
from pathlib import Path

from peermem import ktap
from peermem.errors import outcome
from peermem.verbs import DEVICE, CompletionError

_BIN = Path(os.environ.get("PEERMEM_BIN_DIR", f"/src/build/{os.uname().release}/bin"))
STRESS = _BIN / "stress"
_STATUS = {0: "success", 1: "LOC_LEN_ERR", 2: "LOC_QP_OP_ERR", 4: "LOC_PROT_ERR",
           5: "WR_FLUSH_ERR", 10: "REM_ACCESS_ERR", 11: "REM_OP_ERR", 12: "RETRY_EXC_ERR",
           -1: "no completion"}

_lib = ctypes.CDLL(_BIN / "libnic.so", use_errno=True)
_pointer, _u32 = ctypes.c_void_p, ctypes.c_uint32
_flag = ctypes.POINTER(ctypes.c_int)
for _name, _result, _arguments in (
        ("nic_open", _pointer, [ctypes.c_char_p]),
        ("nic_close", None, [_pointer]),
        ("nic_command_fd", ctypes.c_int, [_pointer]),
        ("nic_register", _pointer, [_pointer, ctypes.c_ulong, ctypes.c_size_t]),
        ("nic_lkey", _u32, [_pointer]),
        ("nic_rkey", _u32, [_pointer]),
        ("nic_deregister", ctypes.c_int, [_pointer]),
        ("nic_register_failing", _pointer,
         [_pointer, ctypes.c_ulong, ctypes.c_size_t, _u32, _flag]),
        ("nic_deregister_failing", ctypes.c_int, [_pointer, _u32, _flag]),
        ("load_failing", ctypes.c_int, [ctypes.c_int, ctypes.c_char_p, _u32, _flag]),
        ("loop_open", _pointer, [_pointer]),
        ("loop_close", None, [_pointer]),
        ("loop_write", ctypes.c_int, [_pointer, ctypes.c_ulong, _u32, ctypes.c_ulong, _u32, _u32]),
        ("loop_read", ctypes.c_int, [_pointer, ctypes.c_ulong, _u32, ctypes.c_ulong, _u32, _u32])):
    getattr(_lib, _name).restype = _result
    getattr(_lib, _name).argtypes = _arguments


def _made(pointer, what):
    if not pointer:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return pointer


class Registration:
    def __init__(self, nic, va, length):
        self.va, self.length = va, length
        self._mr = _made(_lib.nic_register(nic, va, length), "registration")
        self.lkey, self.rkey = _lib.nic_lkey(self._mr), _lib.nic_rkey(self._mr)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        mr, self._mr = self._mr, None
        error = _lib.nic_deregister(mr) if mr else 0
        if error:
            raise OSError(error, f"deregistration: {os.strerror(error)}")


class Nic:
    def __init__(self):
        self._nic = _made(_lib.nic_open(DEVICE.encode()), "open")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """All that was made from it must be closed before."""
        _lib.nic_close(self._nic)

    def command_fd(self):
        return _lib.nic_command_fd(self._nic)

    def register(self, buffer, offset=0, length=None):
        length = buffer.length - offset if length is None else length
        return self.register_range(buffer.va + offset, length)

    def register_range(self, va, length):
        return Registration(self._nic, va, length)

    def outcome(self, va, length):
        return outcome(lambda: self.register_range(va, length).close())

    def failing(self, buffer, nth):
        """Registers, with the nth allocation failing, and deregisters if that succeeded. The
        outcome, and whether there were so many allocations."""
        injected = ctypes.c_int()
        ctypes.set_errno(0)
        mr = _lib.nic_register_failing(self._nic, buffer.va, buffer.length, nth, injected)
        code = ctypes.get_errno()
        if mr:
            _lib.nic_deregister(mr)
            return "success", bool(injected.value)
        return errno.errorcode[code], bool(injected.value)

    def failing_deregistration(self, buffer, nth):
        """As failing(), for the other end. Tries again if it failed."""
        injected = ctypes.c_int()
        mr = _made(_lib.nic_register(self._nic, buffer.va, buffer.length), "registration")
        code = _lib.nic_deregister_failing(mr, nth, injected)
        if code and _lib.nic_deregister(mr):
            return "lost", bool(injected.value)
        return errno.errorcode[code] if code else "success", bool(injected.value)

    def loop(self):
        return Loop(self._nic)


def load_failing(path, parameters, nth):
    """Loads a module with the nth allocation failing. The outcome, and whether it was reached."""
    injected = ctypes.c_int()
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    code = _lib.load_failing(fd, parameters.encode(), nth, injected)
    os.close(fd)
    return errno.errorcode[code] if code else "success", bool(injected.value)


class Loop:
    """A connection from the NIC to itself, made anew after an error."""

    def __init__(self, nic):
        self._nic = nic
        self._loop = _made(_lib.loop_open(nic), "connection")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        _lib.loop_close(self._loop)

    def _again(self):
        _lib.loop_close(self._loop)
        self._loop = _made(_lib.loop_open(self._nic), "connection")

    def _status(self, function, local, remote, length):
        status = function(self._loop, local.va, local.lkey, remote.va, remote.rkey, length)
        if status:
            self._again()
        return _STATUS.get(status, str(status))

    def try_write(self, local, remote, length):
        """From local to remote; "success", or the status of the completion."""
        return self._status(_lib.loop_write, local, remote, length)

    def try_read(self, local, remote, length):
        """From remote to local."""
        return self._status(_lib.loop_read, local, remote, length)

    def write(self, local, remote, length):
        status = self.try_write(local, remote, length)
        if status != "success":
            raise CompletionError(status)

    def read(self, local, remote, length):
        status = self.try_read(local, remote, length)
        if status != "success":
            raise CompletionError(status)


class Call:
    """function() in a thread. result() is what it returned; errno_name() how it ended."""

    def __init__(self, function):
        self._value = self._error = None
        self._thread = threading.Thread(target=self._run, args=(function,), daemon=True)
        self._thread.start()

    def _run(self, function):
        try:
            self._value = function()
        except BaseException as error:
            self._error = error

    def done(self, seconds=0):
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def result(self, seconds=ktap.PATIENCE):
        ktap.expect(self.done(seconds), f"still not back after {seconds} s: hung")
        if self._error:
            raise self._error
        return self._value

    def errno_name(self, seconds=ktap.PATIENCE):
        return outcome(lambda: self.result(seconds))


@contextlib.contextmanager
def nic_and_loop():
    with Nic() as nic, nic.loop() as loop:
        yield nic, loop

# SPDX-License-Identifier: GPL-2.0
"""Child processes that use the NIC on their own."""

import contextlib
import ctypes
import os
import pickle
import signal
import sys
import traceback

from peermem import ktap

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class Child:
    """function(child) in a forked process, killed if it outlives the with statement. Open no NIC
    before: the child would share it."""

    def __init__(self, function):
        sys.stdout.flush()
        self._status = None
        self._from_child, self._to_parent = os.pipe()
        self._from_parent, self._to_child = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(function)
        os.close(self._to_parent)
        os.close(self._from_parent)

    def _run(self, function):
        status = 1
        try:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            os.close(self._from_child)
            os.close(self._to_child)
            function(self)
            status = 0
        except BaseException:
            self.tell(AssertionError(traceback.format_exc()))
        finally:
            os._exit(status)

    # In the child.

    def tell(self, what):
        os.write(self._to_parent, pickle.dumps(what))

    def wait_for_parent(self):
        os.read(self._from_parent, 1)

    # In the parent.

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        os.close(self._from_child)
        os.close(self._to_child)

    def told(self):
        """What the child tells next."""
        raw = os.read(self._from_child, 65536)
        ktap.expect(raw, "the child is gone without a word")
        what = pickle.loads(raw)
        if isinstance(what, AssertionError):
            raise what
        return what

    def go_on(self):
        os.write(self._to_child, b".")

    def kill(self):
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self):
        """Exit status, or minus the signal."""
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status


@contextlib.contextmanager
def children(number, function):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Child(function)) for _ in range(number)]


def in_child(function):
    """What function() returns, from a process of its own."""
    with Child(lambda self: self.tell(function())) as child:
        answer = child.told()
        ktap.expect_equal(child.wait(), 0, "exit status of the child")
    return answer

# SPDX-License-Identifier: GPL-2.0
"""Child processes that use the NIC on their own."""

import contextlib
import ctypes
import functools
import os
import pickle
import select
import signal
import sys
import time
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
        except (AssertionError, ktap.Skip) as error:
            self.tell(error)
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

    def told(self, seconds=120):
        """What the child tells next."""
        readable = select.select([self._from_child], [], [], seconds)[0]
        ktap.expect(readable, f"nothing from the child for {seconds} s: hung")
        raw = os.read(self._from_child, 65536)
        ktap.expect(raw, "the child is gone without a word")
        what = pickle.loads(raw)
        if isinstance(what, (AssertionError, ktap.Skip)):
            raise what
        return what

    def go_on(self):
        os.write(self._to_child, b".")

    def kill(self):
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self, seconds=ktap.PATIENCE):
        """Exit status, or minus the signal."""
        end = time.monotonic() + seconds
        while self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
            else:
                ktap.expect(time.monotonic() < end, f"the child does not end for {seconds} s: hung")
                time.sleep(0.005)
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


def alone(function, seconds=240):
    """The function in a process of its own: what hangs there does not hang the tests, and what
    it forgot to close is closed."""

    @functools.wraps(function)
    def wrapped(*arguments):
        def run(child):
            function(*arguments)
            child.tell(True)

        with Child(run) as child:
            child.told(seconds)
            ktap.expect_equal(child.wait(), 0, "exit status of the child")

    return wrapped

# SPDX-License-Identifier: GPL-2.0
"""Child processes that use the NIC on their own."""

import os
import pickle
import signal
import sys
import traceback

from peermem import ktap


class Child:
    """function(child) in a forked process. Open no NIC before: the child would share it."""

    def __init__(self, function):
        sys.stdout.flush()
        self._from_child, self._to_parent = os.pipe()
        self._from_parent, self._to_child = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._child(function)
        os.close(self._to_parent)
        os.close(self._from_parent)

    def _child(self, function):
        status = 1
        try:
            os.close(self._from_child)
            os.close(self._to_child)
            function(self)
            status = 0
        except BaseException:
            self.tell(("failed", traceback.format_exc()))
        finally:
            os._exit(status)

    # In the child.

    def tell(self, what):
        os.write(self._to_parent, pickle.dumps(what))

    def wait_for_parent(self):
        os.read(self._from_parent, 1)

    # In the parent.

    def told(self):
        """What the child tells next."""
        raw = os.read(self._from_child, 65536)
        what = pickle.loads(raw) if raw else ("failed", "the child is gone without a word")
        if isinstance(what, tuple) and what and what[0] == "failed":
            self.end()
            raise AssertionError(what[1])
        return what

    def go_on(self):
        os.write(self._to_child, b".")

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self):
        """Exit status, or minus the signal."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def end(self):
        try:
            self.kill()
        except (ChildProcessError, ProcessLookupError):
            pass


def in_child(function):
    """What function() returns, from a process of its own."""
    child = Child(lambda self: self.tell(function()))
    answer = child.told()
    ktap.expect_equal(child.wait(), 0, "exit status of the child")
    return answer

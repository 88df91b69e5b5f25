# SPDX-License-Identifier: GPL-2.0
"""What the two ends share: addresses, sizes, and JSON lines over TCP."""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

SERVER = os.environ.get("PEERMEM_SERVER", "192.168.77.1")
PORT = 18600
SIZE = 4 << 20


class Wire:
    """One JSON object a line, both ways."""

    def __init__(self, socket):
        self._file = socket.makefile("rw")

    def send(self, **message):
        self._file.write(json.dumps(message) + "\n")
        self._file.flush()

    def receive(self):
        line = self._file.readline()
        if not line:
            raise ConnectionError("the other end is gone")
        return json.loads(line)

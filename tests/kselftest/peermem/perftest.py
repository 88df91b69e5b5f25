# SPDX-License-Identifier: GPL-2.0
"""perftest, a client that nobody here wrote: server and client on one machine."""

import subprocess
import time
from pathlib import Path

from peermem.verbs import DEVICE, gid_index

_PORT = 18515
_LISTEN = "0A"  # state in /proc/net/tcp


def _listening():
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, _, state = line.split()[:4]
            if state == _LISTEN and int(local.rsplit(":", 1)[1], 16) == _PORT:
                return True
    return False


def _start(command):
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _finish(process, seconds):
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        return -1, f"{output}\nnot finished within {seconds} s"
    return process.returncode, output


def _memory(gpu):
    return () if gpu is None else (f"--mmap=/dev/mock_nvidia{gpu}",)


def run(tool, *options, server_gpu=0, client_gpu=1, seconds=90):
    """Runs ib_write_bw or another of perftest with both buffers in GPU memory, or in host
    memory where a GPU is None. Gives the output of the client; raises what both said if one of them fails."""
    common = [tool, "-d", DEVICE, "-x", str(gid_index()), "-F", "-p", str(_PORT), *options]
    server = _start([*common, *_memory(server_gpu)])
    end = time.monotonic() + seconds
    while not _listening() and server.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    client = _start([*common, *_memory(client_gpu), "127.0.0.1"])
    client_status, client_output = _finish(client, seconds)
    server_status, server_output = _finish(server, seconds if client_status == 0 else 1)
    if client_status or server_status:
        raise AssertionError(f"client: status {client_status}\n{client_output}\n"
                             f"server: status {server_status}\n{server_output}")
    return client_output


def result(output):
    """The line of numbers: bytes, iterations, peak and average MiB/s, message rate."""
    lines = output.splitlines()
    header = next(i for i, line in enumerate(lines) if line.lstrip().startswith("#bytes"))
    return lines[header + 1].split()

#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""GPU memory here, GPU memory on another machine, and RDMA between them."""

import socket
import struct
import time

from wire import PORT, SERVER, SIZE, Wire

from peermem import ktap
from peermem.equipment import expect_nothing_left
from peermem.memory import Gpu, HostBuffer, expect_bytes, pattern
from peermem.verbs import Endpoint, Nic

PARTS = ((0, SIZE), (4095, 100_001), (SIZE - 1, 1))


def reach_server(seconds=120):
    """It may still be booting."""
    end = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection((SERVER, PORT), timeout=60)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


class Server:
    """The other end: a method call is a request."""

    def __init__(self, wire):
        self._wire = wire

    def __getattr__(self, request):
        def ask(**arguments):
            self._wire.send(request=request, **arguments)
            answer = self._wire.receive()
            ktap.expect("error" not in answer, f"server: {answer.get('error')}")
            return answer

        return ask

    def end(self):
        self._wire.send(request="end")


class Client:
    """A buffer and its registration, connected to the server's; made for the first case."""

    def __init__(self):
        self.server = Server(Wire(reach_server()))
        self.nic = Nic()
        self.end = Endpoint(self.nic)
        self.gpu = Gpu().alloc(SIZE)
        self.mr = self.nic.register(self.gpu)
        self.there = self.server.connect(number=self.end.number, gid=self.nic.gid)
        self.end.connect(self.there["number"], self.there["gid"])

    def local(self, offset, length):
        return self.mr.va + offset, length, self.mr.lkey

    def remote(self, offset):
        return self.there["rkey"], self.there["va"] + offset

    def close(self):
        self.mr.close()
        self.gpu.free()
        self.end.close()
        self.nic.close()
        self.server.end()


client = Client()


@ktap.case("client: WRITE of bytes {} + {}", PARTS)
def write(offset, length):
    client.server.fill(seed="before")
    client.gpu.write(pattern(f"write {length}", length), offset)
    client.end.post_write(client.local(offset, length), *client.remote(offset))
    client.end.wait()
    client.server.expect(guard="before", seed=f"write {length}", offset=offset, length=length)


@ktap.case("client: READ of bytes {} + {}", PARTS)
def read(offset, length):
    client.server.fill(seed=f"read {length}")
    client.gpu.write(pattern("guard", SIZE))
    client.end.post_read(client.local(offset, length), *client.remote(offset))
    client.end.wait()
    wanted = bytearray(pattern("guard", SIZE))
    wanted[offset:offset + length] = pattern(f"read {length}", SIZE)[offset:offset + length]
    expect_bytes(client.gpu.read(), bytes(wanted), "the client's GPU memory")


@ktap.case("client: SEND of bytes {} + {}", PARTS)
def send(offset, length):
    client.server.fill(seed="before")
    client.server.post_receive(offset=offset, length=length)
    client.gpu.write(pattern(f"send {length}", length), offset)
    client.end.post_send(client.local(offset, length))
    client.end.wait()
    ktap.expect_equal(client.server.wait()["length"], length, "bytes received")
    client.server.expect(guard="before", seed=f"send {length}", offset=offset, length=length)


@ktap.case("client: FETCH_ADD on the server's GPU memory")
def fetch_add():
    client.server.fill(seed="atomic")
    (before,) = struct.unpack_from("=Q", pattern("atomic", 8))
    with HostBuffer(8) as old, client.nic.register(old) as old_mr:
        client.end.post_fetch_add((old_mr.va, 8, old_mr.lkey), *client.remote(0), 1)
        client.end.wait()
        ktap.expect_equal(struct.unpack("=Q", old.read()), (before,), "value returned")
        client.end.post_read((old_mr.va, 8, old_mr.lkey), *client.remote(0))
        client.end.wait()
        ktap.expect_equal(struct.unpack("=Q", old.read()), ((before + 1) % (1 << 64),),
                          "value there now")


@ktap.case("client: all is given back")
def close():
    client.close()
    expect_nothing_left()


ktap.main()

#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The passive end: has a GPU buffer, and fills, receives and compares as the client asks."""

import socket

from wire import PORT, SIZE, Wire

from peermem import ktap
from peermem.equipment import expect_nothing_left
from peermem.memory import Gpu, expect_bytes, pattern
from peermem.verbs import Endpoint, Nic


class Server:
    """Each method but serve() is a request; what it returns is the answer."""

    def __init__(self, nic, wire):
        self._wire = wire
        self._nic = nic
        self._end = Endpoint(nic)
        self._gpu = Gpu().alloc(SIZE)
        self._mr = nic.register(self._gpu)

    def connect(self, number, gid):
        self._end.connect(number, gid)
        return {"number": self._end.number, "gid": self._nic.gid, "va": self._mr.va,
                "rkey": self._mr.rkey}

    def fill(self, seed):
        self._gpu.write(pattern(seed, SIZE))

    def expect(self, guard, seed, offset, length):
        wanted = bytearray(pattern(guard, SIZE))
        wanted[offset:offset + length] = pattern(seed, length)
        expect_bytes(self._gpu.read(), bytes(wanted), "the server's GPU memory")

    def post_receive(self, offset, length):
        self._end.post_receive((self._mr.va + offset, length, self._mr.lkey))

    def wait(self):
        return {"length": self._end.wait()}

    def serve(self):
        served = 0
        while True:
            request = self._wire.receive()
            name = request.pop("request")
            if name == "end":
                return served
            try:
                self._wire.send(**(getattr(self, name)(**request) or {}))
            except Exception as error:
                self._wire.send(error=f"{name}: {error}")
            served += 1

    def close(self):
        self._mr.close()
        self._gpu.free()
        self._end.close()


@ktap.case("server: all requests of the client served")
def serve():
    with socket.create_server(("", PORT)) as listener:
        listener.settimeout(120)
        connection, _ = listener.accept()
    with connection, Nic() as nic:
        wire = Wire(connection)
        server = Server(nic, wire)
        try:
            ktap.say(f"{server.serve()} requests")
        finally:
            server.close()
    ktap.say("done")


ktap.main(expect_nothing_left)

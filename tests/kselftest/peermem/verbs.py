# SPDX-License-Identifier: GPL-2.0
"""RDMA with pyverbs: a NIC, registrations on it, and reliable connections."""

import time
from pathlib import Path
from types import SimpleNamespace

from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

from peermem.errors import outcome

try:
    import pyverbs.enums as e
except ImportError:  # newer ones have a class for each enum of C
    from pyverbs import libibverbs_enums

    e = SimpleNamespace()
    for name, group in vars(libibverbs_enums).items():
        vars(e).update({name: group}, **getattr(group, "__members__", {}))

DEVICE = "rxe0"
_PORT = 1
ACCESS = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
          | e.IBV_ACCESS_REMOTE_ATOMIC)


class CompletionError(Exception):
    """A work request failed."""


def gid_index():
    """The first RoCE v2 address that is IPv4."""
    port = Path(f"/sys/class/infiniband/{DEVICE}/ports/{_PORT}")
    for index in range(16):
        try:
            kind = (port / f"gid_attrs/types/{index}").read_text().strip()
        except OSError:  # an empty slot
            continue
        gid = (port / f"gids/{index}").read_text().strip()
        if kind == "RoCE v2" and gid.startswith("0000:0000:0000:0000:0000:ffff:"):
            return index
    raise RuntimeError(f"{DEVICE} has no IPv4 address")


class Registration:
    """A memory region on a range of addresses, until close() or the end of a with statement."""

    def __init__(self, pd, va, length, access):
        self.va, self.length = va, length
        try:
            self._mr = MR(pd, length, access, address=va)
        except PyverbsRDMAError as error:
            raise OSError(error.error_code, str(error)) from None
        self.lkey, self.rkey = self._mr.lkey, self._mr.rkey

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._mr.close()


class Nic:
    """The device, opened, with a protection domain."""

    def __init__(self):
        self._context = Context(name=DEVICE)
        self.pd = PD(self._context)
        self.gid_index = gid_index()
        self.gid = str(self._context.query_gid(_PORT, self.gid_index))
        self.mtu = self._context.query_port(_PORT).active_mtu

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._context.close()  # and all that was made from it

    def completion_queue(self):
        return CQ(self._context, 64)

    def register(self, buffer, offset=0, length=None, access=ACCESS):
        length = buffer.length - offset if length is None else length
        return self.register_range(buffer.va + offset, length, access)

    def register_range(self, va, length, access=ACCESS):
        return Registration(self.pd, va, length, access)

    def outcome(self, va, length, access=ACCESS):
        """Name of the errno that registering the range fails with, or "success"."""
        return outcome(lambda: self.register_range(va, length, access).close())

    def loop(self):
        return Loop(self)


class Endpoint:
    """One end of a reliable connection."""

    def __init__(self, nic):
        self._nic = nic
        self._cq = nic.completion_queue()
        capabilities = QPCap(max_send_wr=64, max_recv_wr=64)
        self._qp = QP(nic.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self._cq, rcq=self._cq,
                                         cap=capabilities))

    @property
    def number(self):
        return self._qp.qp_num

    def connect(self, number, gid):
        route = GlobalRoute(dgid=GID(gid), sgid_index=self._nic.gid_index)
        attributes = QPAttr(port_num=_PORT)
        attributes.ah_attr = AHAttr(port_num=_PORT, is_global=1, gr=route)
        attributes.dest_qp_num = number
        attributes.path_mtu = self._nic.mtu
        attributes.qp_access_flags = ACCESS
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
        attributes.min_rnr_timer = 12
        # Long enough for an emulated CPU: a repeat would only add to its work.
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = 17, 7, 7
        self._qp.to_rts(attributes)

    def close(self):
        self._qp.close()
        self._cq.close()

    def _post(self, opcode, local, prepare=None):
        request = SendWR(num_sge=1, sg=[SGE(*local)], opcode=opcode,
                         send_flags=e.IBV_SEND_SIGNALED)
        if prepare:
            prepare(request)
        self._qp.post_send(request)

    def post_write(self, local, rkey, va):
        """local: (address, length, lkey), as in all of these."""
        self._post(e.IBV_WR_RDMA_WRITE, local, lambda r: r.set_wr_rdma(rkey, va))

    def post_read(self, local, rkey, va):
        self._post(e.IBV_WR_RDMA_READ, local, lambda r: r.set_wr_rdma(rkey, va))

    def post_send(self, local):
        self._post(e.IBV_WR_SEND, local)

    def post_receive(self, local):
        self._qp.post_recv(RecvWR(num_sge=1, sg=[SGE(*local)]))

    def post_fetch_add(self, local, rkey, va, add):
        self._post(e.IBV_WR_ATOMIC_FETCH_AND_ADD, local, lambda r: r.set_wr_atomic(rkey, va, add, 0))

    def post_compare_swap(self, local, rkey, va, compare, swap):
        self._post(e.IBV_WR_ATOMIC_CMP_AND_SWP, local,
                   lambda r: r.set_wr_atomic(rkey, va, compare, swap))

    def wait(self, seconds=60):
        """The next completion; returns its length in bytes."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            count, completions = self._cq.poll(1)
            if count:
                status = completions[0].status
                if status != e.IBV_WC_SUCCESS:
                    raise CompletionError(e.ibv_wc_status(status).name)
                return completions[0].byte_len
            time.sleep(0.0005)
        raise CompletionError(f"no completion within {seconds} s")


class Loop:
    """A connection from the NIC to itself. src and dst are registrations."""

    def __init__(self, nic):
        self._near, self._far = Endpoint(nic), Endpoint(nic)
        self._near.connect(self._far.number, nic.gid)
        self._far.connect(self._near.number, nic.gid)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._near.close()
        self._far.close()

    def write(self, src, dst, length, src_offset=0, dst_offset=0):
        self._near.post_write((src.va + src_offset, length, src.lkey), dst.rkey,
                              dst.va + dst_offset)
        self._near.wait()

    def read(self, src, dst, length, src_offset=0, dst_offset=0):
        self._near.post_read((dst.va + dst_offset, length, dst.lkey), src.rkey,
                             src.va + src_offset)
        self._near.wait()

    def send(self, src, dst, length, src_offset=0, dst_offset=0):
        self._far.post_receive((dst.va + dst_offset, length, dst.lkey))
        self._near.post_send((src.va + src_offset, length, src.lkey))
        self._near.wait()
        return self._far.wait()

    def fetch_add(self, result, target, add, offset=0):
        """The old value goes to the start of result."""
        self._near.post_fetch_add((result.va, 8, result.lkey), target.rkey, target.va + offset, add)
        self._near.wait()

    def compare_swap(self, result, target, compare, swap, offset=0):
        self._near.post_compare_swap((result.va, 8, result.lkey), target.rkey,
                                     target.va + offset, compare, swap)
        self._near.wait()

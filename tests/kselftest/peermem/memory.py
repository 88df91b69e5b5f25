# SPDX-License-Identifier: GPL-2.0
"""Buffers: host memory, and memory of a mock GPU."""

import ctypes
import fcntl
import mmap
import os
import random
import struct

GPU_PAGE = 64 * 1024
PAGE = 4096

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                       ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_MAP_FAILED = ctypes.c_void_p(-1).value
_MAP_FIXED = 0x10

# include/uapi of the mock driver: _IOR('M', 1, info), _IOW('M', 2, free), _IOWR('M', 3, segments)
_INFO = struct.Struct("=IIQQ16s")
_FREE = struct.Struct("=Q")
_SEGMENTS = struct.Struct("=QQQQ")
_SEGMENT = struct.Struct("=QQ")
_IOC_INFO = 2 << 30 | _INFO.size << 16 | ord("M") << 8 | 1
_IOC_FREE = 1 << 30 | _FREE.size << 16 | ord("M") << 8 | 2
_IOC_SEGMENTS = 3 << 30 | _SEGMENTS.size << 16 | ord("M") << 8 | 3


def map_memory(length, fd=-1, address=None, protection=mmap.PROT_READ | mmap.PROT_WRITE,
               flags=mmap.MAP_SHARED):
    """mmap(2); Python's own mmap neither tells addresses nor takes them."""
    flags |= mmap.MAP_ANONYMOUS if fd < 0 else 0
    flags |= _MAP_FIXED if address else 0
    va = _libc.mmap(address, length, protection, flags, fd, 0)
    if va == _MAP_FAILED:
        code = ctypes.get_errno()
        raise OSError(code, f"mmap of {length} bytes: {os.strerror(code)}")
    return va


def unmap_memory(va, length):
    if _libc.munmap(va, length):
        raise OSError(ctypes.get_errno(), f"munmap of {length} bytes at {va:#x}")


class Buffer:
    """Memory of this process, until freed or the end of a with statement."""

    def __init__(self, va, length):
        self.va, self.length = va, length

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.free()

    def read(self, offset=0, length=None):
        return ctypes.string_at(self.va + offset, self.length - offset if length is None else length)

    def write(self, data, offset=0):
        ctypes.memmove(self.va + offset, data, len(data))

    def free(self):
        if self.va:
            unmap_memory(self.va, self.length)
        self.va = None


class HostBuffer(Buffer):
    def __init__(self, length):
        super().__init__(map_memory(length, flags=mmap.MAP_PRIVATE), length)


class GpuBuffer(Buffer):
    """cudaMalloc on a mock GPU. (The mapping keeps the memory, no fd has to stay open.)"""

    def __init__(self, gpu, length, address=None):
        fd = os.open(gpu.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            super().__init__(map_memory(length, fd, address), length)
        finally:
            os.close(fd)
        self.gpu = gpu

    def cuda_free(self):
        """The memory is gone, the address range stays, and is nobody's."""
        self.gpu.ioctl(_IOC_FREE, _FREE.pack(self.va))

    def segments(self):
        """Where it lies in the GPU: [(offset in the BAR, length)] in order of address."""
        capacity = (self.length + GPU_PAGE - 1) // GPU_PAGE
        room = ctypes.create_string_buffer(capacity * _SEGMENT.size)
        reply = self.gpu.ioctl(_IOC_SEGMENTS, _SEGMENTS.pack(
            self.va, capacity, 0, ctypes.addressof(room)))
        count = _SEGMENTS.unpack(reply)[2]
        return list(_SEGMENT.iter_unpack(room.raw[:count * _SEGMENT.size]))


class Gpu:
    """A mock GPU by its number."""

    def __init__(self, index=0):
        self.index = index
        self.path = f"/dev/mock_nvidia{index}"

    def alloc(self, length, address=None):
        return GpuBuffer(self, length, address)

    def ioctl(self, command, argument):
        fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return fcntl.ioctl(fd, command, argument)
        finally:
            os.close(fd)

    def _info(self):
        return _INFO.unpack(self.ioctl(_IOC_INFO, bytes(_INFO.size)))

    @property
    def free_bytes(self):
        return self._info()[3]

    @property
    def total_bytes(self):
        return self._info()[2]

    @property
    def pci_address(self):
        return self._info()[4].rstrip(b"\0").decode()


def pattern(seed, length):
    """Reproducible bytes. The period is prime: a shift by whole pages cannot go unseen."""
    period = random.Random(seed).randbytes(65521)
    return (period * (length // len(period) + 1))[:length]


def expect_bytes(got, wanted, where):
    """Says where the first difference is."""
    if got == wanted:
        return
    if len(got) != len(wanted):
        raise AssertionError(f"{where}: {len(got)} bytes instead of {len(wanted)}")
    blocks = [at for at in range(0, len(got), PAGE) if got[at:at + PAGE] != wanted[at:at + PAGE]]
    first = next(at for at in range(blocks[0], len(got)) if got[at] != wanted[at])
    raise AssertionError(f"{where}: byte {first} of {len(got)} is {got[first]:#04x} instead of "
                         f"{wanted[first]:#04x}; {len(blocks)} blocks of {PAGE} bytes differ")

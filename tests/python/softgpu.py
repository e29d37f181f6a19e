# SPDX-License-Identifier: Apache-2.0
"""Allocates memory of the stand-in driver in this process by ctypes, and makes arrays with __cuda_array_interface__ of
it."""
import ctypes
import os

import numpy as np
import pytest

from tmad import GPU, SANITIZED, SOFTGPU

MIB = 1 << 20
IS_THERE = not (GPU or SANITIZED) and os.path.exists(os.path.join(SOFTGPU, "libcuda.so.1"))
NEEDED = "needs the stand-in driver, and nothing else that is preloaded"
_driver = None


def require():
    """Skips a test file that needs devices if the stand-in driver cannot be used."""
    if not IS_THERE:
        pytest.skip(NEEDED, allow_module_level=True)


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location),
                ("win32", ctypes.c_void_p), ("flags", ctypes.c_uint8 * 8)]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


def driver():
    """Loads the stand-in libcuda.so.1 at the first call. A later dlopen of that name, as in the package, gets the same
    library."""
    global _driver
    if _driver is None:
        os.environ.setdefault("SOFTGPU_MEMORY", str(1 << 32))
        os.environ.setdefault("SOFTGPU_DEVICES", "2")
        _driver = ctypes.CDLL(os.path.join(SOFTGPU, "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)
        cuda("cuInit", 0)
        enter()
    return _driver


def enter(device=0):
    """Makes the primary context of a device the current one of this thread."""
    context = ctypes.c_void_p()
    cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    cuda("cuCtxSetCurrent", context)


def cuda(name, *args):
    rc = getattr(driver(), name)(*args)
    assert rc == 0, f"{name}: {rc}"


def u64(x):
    return ctypes.c_uint64(x)


class Stream:
    def __init__(self):
        handle = ctypes.c_void_p()
        cuda("cuStreamCreateWithPriority", ctypes.byref(handle), 1, 0)
        self.handle = handle.value

    def wait_all(self):
        cuda("cuStreamSynchronize", ctypes.c_void_p(self.handle))

    def close(self):
        cuda("cuStreamDestroy_v2", ctypes.c_void_p(self.handle))


class Span:
    """Consecutive allocations of cuMemCreate in one address range, as in an expandable segment of PyTorch."""

    def __init__(self, n=1, room=None, chunk=2 * MIB, device=0):
        self.n, self.room, self.chunk, self.device = 0, room or n, chunk, device
        start = ctypes.c_uint64()
        cuda("cuMemAddressReserve", ctypes.byref(start), ctypes.c_size_t(self.room * chunk), ctypes.c_size_t(0), u64(0),
             u64(0))
        self.start = start.value
        self.grow(n)

    def _map(self, i):
        properties = Properties(type=1, handles=1, location=Location(1, self.device))
        allocation = ctypes.c_uint64()
        cuda("cuMemCreate", ctypes.byref(allocation), ctypes.c_size_t(self.chunk), ctypes.byref(properties), u64(0))
        at, size = u64(self.start + i * self.chunk), ctypes.c_size_t(self.chunk)
        cuda("cuMemMap", at, size, ctypes.c_size_t(0), allocation, u64(0))
        cuda("cuMemSetAccess", at, size, ctypes.byref(Access(Location(1, self.device), 3)), ctypes.c_size_t(1))
        cuda("cuMemRelease", allocation)

    def grow(self, n):
        for _ in range(n):
            self._map(self.n)
            self.n += 1

    def remap(self, i):
        """Frees allocation i, and maps other memory at its address."""
        cuda("cuMemUnmap", u64(self.start + i * self.chunk), ctypes.c_size_t(self.chunk))
        self._map(i)

    def free(self):
        for i in range(self.n):
            cuda("cuMemUnmap", u64(self.start + i * self.chunk), ctypes.c_size_t(self.chunk))
        cuda("cuMemAddressFree", u64(self.start), ctypes.c_size_t(self.room * self.chunk))


class Array:
    """An array in device memory, with the stream in which it is used. stream None: the legacy default stream."""

    def __init__(self, address, shape, dtype, stream=None, strides=None, readonly=False):
        self.address, self.shape, self.dtype, self.stream = address, tuple(shape), np.dtype(dtype), stream
        self.strides, self.readonly = strides, readonly

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.address, self.readonly), "version": 3,
                "strides": self.strides, "stream": self.stream.handle if self.stream else 1}

    def _handle(self):
        return ctypes.c_void_p(self.stream.handle if self.stream else 1)

    def put(self, values):
        values = np.ascontiguousarray(values, self.dtype)
        cuda("cuMemcpyHtoDAsync_v2", u64(self.address), ctypes.c_void_p(values.ctypes.data),
             ctypes.c_size_t(values.nbytes), self._handle())
        cuda("cuStreamSynchronize", self._handle())

    def get(self):
        values = np.empty(self.shape, self.dtype)
        cuda("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(values.ctypes.data), u64(self.address),
             ctypes.c_size_t(values.nbytes), self._handle())
        cuda("cuStreamSynchronize", self._handle())
        return values


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class ExchangeTable(ctypes.Structure):
    """The struct DLPackExchangeAPI of DLPack 1.3."""

    LEND = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))
    STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("prev_api", ctypes.c_void_p),
                ("allocate", ctypes.c_void_p), ("from_object", ctypes.c_void_p), ("to_object", ctypes.c_void_p),
                ("lend", LEND), ("stream", STREAM)]


class Exchanged(Array):
    """An array whose type has DLPack's table of C functions, and the attributes of PyTorch's tensors that the table
    does not cover. The current stream is that of the array that was made last."""

    requires_grad = False
    current = 0  # handle of the current stream
    CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}

    def __init__(self, address, shape, dtype, stream, strides=None, room=None):
        super().__init__(address, shape, dtype, stream, strides)
        rank = len(self.shape)
        dense = np.cumprod((1, *self.shape[:0:-1]))[::-1] if rank else ()
        self._shape = (ctypes.c_int64 * rank)(*self.shape)
        self._strides = (ctypes.c_int64 * rank)(*(strides or (int(n) for n in dense)))
        self.room = room  # address of the memory that new_empty() uses
        self.negative = self.conjugate = False
        Exchanged.current = stream.handle

    def is_neg(self):
        return self.negative

    def is_conj(self):
        return self.conjugate

    def new_empty(self, shape):
        return type(self)(self.room, shape, self.dtype, self.stream)

    def lend(self, to):
        to.data, to.device_type, to.device_id, to.ndim = self.address, 2, 0, len(self.shape)
        to.code, to.bits, to.lanes = self.CODES[self.dtype.kind], 8 * self.dtype.itemsize, 1
        to.shape, to.strides, to.byte_offset = self._shape, self._strides, 0


def _lend(array, to):
    array.lend(to[0])
    return 0


def _current(device_type, device, to):
    assert (device_type, device) == (2, 0)
    to[0] = Exchanged.current
    return 0


def _capsule(table):
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(table), b"dlpack_exchange_api", None)


_table = ExchangeTable(1, 3, None, None, None, None, ExchangeTable.LEND(_lend), ExchangeTable.STREAM(_current))
_later = ExchangeTable(2, 0, ctypes.addressof(_table))  # a table of DLPack 2, whose prev_api is the other one
Exchanged.__dlpack_c_exchange_api__ = _capsule(_later)


class Device:
    """A device with a stream and arrays in its memory. Each allocation has arrays_per_span arrays, one behind the
    other.
    """

    def __init__(self, number):
        self.number, self.arrays_per_span = number, 1
        self._spans, self._n_arrays, self._allocated = [], 0, []
        enter(number)
        self.stream = Stream()

    def array(self, values, stream=None):
        enter(self.number)
        at = self._n_arrays % self.arrays_per_span
        if at == 0:
            self._spans.append(Span(1, device=self.number))
        self._n_arrays += 1
        span = self._spans[-1]
        start = span.start + 64 + at * (span.chunk // self.arrays_per_span)
        made = Array(start, values.shape, values.dtype, stream or self.stream)
        made.put(values)
        return made

    def allocate(self, size, at=0):
        """Returns an array of size bytes, from byte `at` on, in a new allocation of cuMemAlloc."""
        enter(self.number)
        start = ctypes.c_uint64()
        cuda("cuMemAlloc_v2", ctypes.byref(start), ctypes.c_size_t(at + size))
        self._allocated.append(start)
        return Array(start.value + at, (size,), "u1", self.stream)

    def get(self, array):
        enter(self.number)
        return array.get()

    def free(self):
        enter(self.number)
        self.stream.close()
        for span in self._spans:
            span.free()
        for start in self._allocated:
            cuda("cuMemFree_v2", start)

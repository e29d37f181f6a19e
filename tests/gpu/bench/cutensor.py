# SPDX-License-Identifier: Apache-2.0
"""cuTENSOR's permutation through ctypes, where there is a libcutensor.so.2.

It multiplies by a scalar, here 1, so elements travel as floating numbers of their size. It has no elements of one byte,
no pads, and no strides that are negative or zero.
"""
import ctypes
import os
import struct
import sys

IDENTITY = 1
ALGO_DEFAULT, JIT_NONE = -1, 0
MAX_ALIGN = 256
# By bytes of an element: cudaDataType_t, the type it computes in, and 1 as the scalar of that type.
KINDS = {
    2: (2, "CUTENSOR_COMPUTE_DESC_32F", struct.pack("f", 1)),
    4: (0, "CUTENSOR_COMPUTE_DESC_32F", struct.pack("f", 1)),
    8: (1, "CUTENSOR_COMPUTE_DESC_64F", struct.pack("d", 1)),
    16: (5, "CUTENSOR_COMPUTE_DESC_64F", struct.pack("dd", 1, 0)),
}


def find():
    """Returns the library that the loader or a Python package provides; None if there is none."""
    packaged = (os.path.join(folder, "cutensor/lib/libcutensor.so.2") for folder in sys.path)
    for name in ("libcutensor.so.2", *packaged):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def takes(row):
    return row.element in KINDS and row.kind in ("permute", "gaps", "crop") and min(row.strides, default=1) > 0


def alignment_of(address):
    return min(address & -address, MAX_ALIGN) if address else MAX_ALIGN


class CuTensor:
    def __init__(self, library):
        self.library, self.handle = library, ctypes.c_void_p()
        library.cutensorGetErrorString.restype = ctypes.c_char_p
        library.cutensorGetVersion.restype = ctypes.c_size_t
        self._call("cutensorCreate", ctypes.byref(self.handle))

    def _call(self, name, *args):
        status = getattr(self.library, name)(*args)
        if status:
            raise RuntimeError(f"{name}: {self.library.cutensorGetErrorString(status).decode()}")

    @property
    def version(self):
        version = self.library.cutensorGetVersion()
        return f"{version // 10000}.{version // 100 % 100}.{version % 100}"

    def _tensor(self, shape, strides, data_type, alignment):
        desc, n = ctypes.c_void_p(), len(shape)
        self._call("cutensorCreateTensorDescriptor", self.handle, ctypes.byref(desc), ctypes.c_uint32(n),
                   (ctypes.c_int64 * n)(*shape), (ctypes.c_int64 * n)(*strides), ctypes.c_int(data_type),
                   ctypes.c_uint32(alignment))
        return desc

    def permutation(self, dst, src, element, stream):
        """Returns run(dst, src) for tensors like these two, of one shape, whose axes correspond."""
        data_type, compute, one = KINDS[element]
        modes = (ctypes.c_int32 * dst.dim())(*range(dst.dim()))
        operation, preference, plan = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        of, to = (self._tensor(t.shape, t.stride(), data_type, alignment_of(t.data_ptr())) for t in (src, dst))
        self._call("cutensorCreatePermutation", self.handle, ctypes.byref(operation), of, modes, ctypes.c_int(IDENTITY),
                   to, modes, ctypes.c_void_p.in_dll(self.library, compute))
        self._call("cutensorCreatePlanPreference", self.handle, ctypes.byref(preference), ctypes.c_int(ALGO_DEFAULT),
                   ctypes.c_int(JIT_NONE))
        self._call("cutensorCreatePlan", self.handle, ctypes.byref(plan), operation, preference, ctypes.c_uint64(0))
        for kind, handle in (("TensorDescriptor", of), ("TensorDescriptor", to), ("OperationDescriptor", operation),
                             ("PlanPreference", preference)):
            self._call(f"cutensorDestroy{kind}", handle)
        scalar = ctypes.create_string_buffer(one)

        def run(to, of):
            self._call("cutensorPermute", self.handle, plan, scalar, ctypes.c_void_p(of.data_ptr()),
                       ctypes.c_void_p(to.data_ptr()), ctypes.c_void_p(stream))
            return to

        return run

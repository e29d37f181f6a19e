# SPDX-License-Identifier: Apache-2.0
"""HPTT's transposition through ctypes, where there is a libhptt.so: the one that HPTT_LIBRARY names, or the loader's.

It multiplies by a scalar, here 1, so elements travel as floating numbers of their size. It has none of one or two
bytes, no pads, and no strides that are negative or zero. Its C functions make a plan in each call.
"""
import ctypes
import ctypes.util
import os

MOST = (1 << 31) - 1  # an int counts the elements along an axis
# By bytes of an element: the function, the type of a part, and what a scalar has of these. The ABIs that there are
# pass the two parts of a complex number like two numbers.
KINDS = {4: ("sTensorTranspose", ctypes.c_float, 1), 8: ("dTensorTranspose", ctypes.c_double, 1),
         16: ("zTensorTranspose", ctypes.c_double, 2)}


def find():
    """Returns the library, or None."""
    name = os.environ.get("HPTT_LIBRARY") or ctypes.util.find_library("hptt")
    return ctypes.CDLL(name) if name else None


def outer_sizes(row):
    """Returns the sizes of the tensor of which the source is a part; None if it is no such part."""
    if min(row.strides) <= 0 or row.strides[-1] != 1:
        return None
    outer = [row.shape[0]]
    for shape, wide, narrow in zip(row.shape[1:], row.strides, row.strides[1:]):
        if wide % narrow or wide // narrow < shape:
            return None
        outer.append(wide // narrow)
    return outer


def takes(row):
    return (row.element in KINDS and row.kind in ("permute", "gaps", "crop") and outer_sizes(row) is not None and
            max(outer_sizes(row)) <= MOST)


class Hptt:
    def __init__(self, library, threads):
        self.threads, self.functions = ctypes.c_int(threads), {}
        axes, pointer = ctypes.POINTER(ctypes.c_int), ctypes.c_void_p
        for element, (name, part, parts) in KINDS.items():
            function = getattr(library, name)
            conjugate = [ctypes.c_bool] if parts == 2 else []
            function.argtypes = [axes, ctypes.c_int, *[part] * parts, *conjugate, pointer, axes, axes, *[part] * parts,
                                 pointer, axes, ctypes.c_int, ctypes.c_int]
            function.restype = None
            self.functions[element] = function

    def transposition(self, row, dst, src):
        """Returns a function that fills dst from src. src has the axes of the row's source, reduced to what is
        shown."""
        def ints(values):
            return (ctypes.c_int * len(values))(*values)

        rank = len(row.shape)
        one, zero, conjugate = ((1, 0), (0, 0), (False,)) if KINDS[row.element][2] == 2 else ((1,), (0,), ())
        arguments = (ints(row.perm), rank, *one, *conjugate, src.ctypes.data, ints(src.shape), ints(outer_sizes(row)),
                     *zero, dst.ctypes.data, None, self.threads, 1)
        function = self.functions[row.element]
        return lambda: function(*arguments)

# SPDX-License-Identifier: Apache-2.0
"""Blocked layouts by name: what the library says of them, applied by NumPy, against each written out in NumPy's own words."""
import ctypes
import json
import os
import random
import sys
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from raw import RawCase
from tmad import BUILD, NATIVE, tensor, tmactl

MAX_RANK = 32
CASES = int(os.environ.get("TEST_CASES", "10000"))
SERVED_CASES = 20  # of each layout
OUT_OF_BLOCKS = 0xffff  # what padding is filled with


class Blocking(ctypes.Structure):
    """struct tma_layout_blocking."""
    _fields_ = [("rank", ctypes.c_int), ("shape", ctypes.c_int64 * MAX_RANK), ("n_split", ctypes.c_int),
                ("split", ctypes.c_int64 * (2 * MAX_RANK)), ("perm", ctypes.c_int * MAX_RANK),
                ("inverse", ctypes.c_int * MAX_RANK), ("reserved", ctypes.c_uint64 * 8)]


def padded(x, *blocks):
    """Each dimension to a multiple of its block."""
    return np.pad(x, [(0, -extent % block) for extent, block in zip(x.shape, blocks)], constant_values=OUT_OF_BLOCKS)


def channels_in_blocks(block):
    def convert(x):
        x = padded(x, 1, block, *[1] * (x.ndim - 2))
        return np.moveaxis(x.reshape(x.shape[0], x.shape[1] // block, block, *x.shape[2:]), 2, -1)
    return convert


def channels_last(block):
    def convert(x):
        x = np.moveaxis(padded(x, 1, block, 1, 1), 1, -1)
        return x.reshape(*x.shape[:3], x.shape[3] // block, block)
    return convert


def oihw16i16o(x):
    x = padded(x, 16, 16, 1, 1)
    o, i, h, w = x.shape
    return x.reshape(o // 16, 16, i // 16, 16, h, w).transpose(0, 2, 4, 5, 3, 1)


def oihw4i16o4i(x):
    x = padded(x, 16, 16, 1, 1)
    o, i, h, w = x.shape
    return x.reshape(o // 16, 16, i // 16, 4, 4, h, w).transpose(0, 2, 5, 6, 3, 1, 4)


def col32(x):
    x = padded(x, 1, 32)
    return x.reshape(x.shape[0], x.shape[1] // 32, 32).transpose(1, 0, 2)


def scales_128x4(x):
    x = padded(x, 128, 4)
    m, k = x.shape
    return x.reshape(m // 128, 4, 32, k // 4, 4).transpose(0, 3, 2, 1, 4)


# Of each: its rank, the largest extents that are tried, and itself.
WRITTEN_OUT = {
    "nchw4c": ((3, 9, 4, 4), channels_in_blocks(4)),
    "nchw8c": ((3, 17, 4, 4), channels_in_blocks(8)),
    "nchw16c": ((3, 35, 4, 4), channels_in_blocks(16)),
    "nchw32c": ((3, 70, 4, 4), channels_in_blocks(32)),
    "ncdhw32c": ((3, 70, 3, 3, 3), channels_in_blocks(32)),
    "nhwc8c": ((3, 17, 4, 4), channels_last(8)),
    "nhwc16c": ((3, 35, 4, 4), channels_last(16)),
    "oihw16i16o": ((35, 35, 3, 3), oihw16i16o),
    "oihw4i16o4i": ((35, 35, 3, 3), oihw4i16o4i),
    "col32": ((9, 70), col32),
    "scales_128x4": ((300, 13), scales_128x4),
}


def split(x, pairs):
    """As the pairs say, one after the other."""
    for d, n in pairs:
        x = np.pad(x, [(0, -x.shape[d] % n if i == d else 0) for i in range(x.ndim)], constant_values=OUT_OF_BLOCKS)
        x = x.reshape(*x.shape[:d], x.shape[d] // n, n, *x.shape[d + 1:])
    return x


def blocking(name, shape):
    """What the library says of a layout and a plain shape."""
    library = ctypes.CDLL(os.path.join(BUILD, ".libs", "libtmaclient.so"))
    library.tma_layout_find.restype = ctypes.c_void_p
    layout = ctypes.c_void_p(library.tma_layout_find(name.encode()))
    ret = Blocking()
    rc = library.tma_layout_split(None, layout, len(shape), (ctypes.c_int64 * len(shape))(*shape), ctypes.byref(ret))
    assert rc == 0, f"{name} {shape}: {rc}"
    return ret


@unittest.skipUnless(NATIVE, "the library cannot be loaded into this Python")
class Blocked(unittest.TestCase):
    def check(self, name, shape):
        b = blocking(name, shape)
        x = np.arange(int(np.prod(shape)), dtype=np.uint16).reshape(shape)
        parts = split(x, [(b.split[2 * i], b.split[2 * i + 1]) for i in range(b.n_split)])
        blocked, want = parts.transpose(b.perm[:b.rank]), WRITTEN_OUT[name][1](x)
        self.assertEqual(tuple(b.shape[:b.rank]), want.shape, f"{name} {shape}")
        self.assertTrue(np.array_equal(blocked, want), f"{name} {shape}")
        self.assertTrue(np.array_equal(blocked.transpose(b.inverse[:b.rank]), parts), f"{name} {shape}: back")

    def test_each_is_here(self):
        listed = json.loads(tmactl("layouts", "--json").stdout)
        self.assertEqual([row["name"] for row in listed if row["blocked"]], list(WRITTEN_OUT))

    def test_random_shapes(self):
        chance = random.Random(7)
        for case in range(CASES):
            name = list(WRITTEN_OUT)[case % len(WRITTEN_OUT)]
            self.check(name, [chance.randint(0 if chance.random() < 0.02 else 1, most) for most in WRITTEN_OUT[name][0]])

    def test_whole_blocks(self):
        for name, (most, _) in WRITTEN_OUT.items():
            with self.subTest(name=name):
                self.check(name, [128 if extent > 4 else extent for extent in most])


@unittest.skipUnless(NATIVE, "the library cannot be loaded into this Python")
class Served(RawCase):
    def move(self, array, src, perm, shape, dst):
        """The destination's bytes: a transform of the array, split as src says, to a tensor that is split as dst says."""
        _, source = self.region(max(array.nbytes, 1), data=array.tobytes() or b"\0")
        memory, target = self.region(max(int(np.prod(shape)) * array.itemsize, 1))
        self.rpc.call("transform", {"dst": tensor(target, shape, "uint16", **dst), "src": tensor(source, array.shape, "uint16", **src),
                                    "perm": perm, "value": OUT_OF_BLOCKS})
        return memory[:int(np.prod(shape)) * array.itemsize]

    def test_there_and_back(self):
        """Each is one request in either direction, of whole blocks and of ragged ones."""
        chance = random.Random(11)
        for name, (most, written_out) in WRITTEN_OUT.items():
            for _ in range(SERVED_CASES):
                shape = [chance.randint(1, extent) for extent in most]
                with self.subTest(name=name, shape=shape):
                    b = blocking(name, shape)
                    x = np.arange(int(np.prod(shape)), dtype=np.uint16).reshape(shape)
                    split = {"split": list(b.split[:2 * b.n_split])}
                    there = self.move(x, split, list(b.perm[:b.rank]), list(b.shape[:b.rank]), {})
                    self.assertEqual(there, written_out(x).tobytes())
                    blocked = np.frombuffer(there, np.uint16).reshape(b.shape[:b.rank])
                    self.assertEqual(self.move(blocked, {}, list(b.inverse[:b.rank]), shape, split), x.tobytes(), "back")


if __name__ == "__main__":
    tap.main()

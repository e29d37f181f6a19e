# SPDX-License-Identifier: Apache-2.0
"""`tmactl copy` against NumPy, byte for byte, over types, orders, permutations and pads at random.

The seed is printed; TEST_SEED repeats a run, TEST_CASES sets its length by a number instead of TEST_SHARE.
"""
import os
import random
import sys
import tempfile
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import SANITIZED, Tmad, share, tmactl

MODES = ("constant", "edge", "reflect", "symmetric", "wrap")
PLAIN = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")
# Types that travel as bytes: nothing of them is known but their size.
OPAQUE = ("f16", "c32", "S1", "S7", "S16", "U1", "U4", "U5", "V1", "V3", "V24", "M8[s]", "M8[ns]", "m8[ms]", "S300",
          [("a", "<i4"), ("b", ">f8"), ("c", "S3")], [("x", "<f4", (3,)), ("y", "?")],
          {"names": ["p"], "formats": ["<u2"], "offsets": [4], "itemsize": 16})
SWAPPED = (">i2", ">u4", ">f8", ">c16", ">f2", ">U3", ">M8[us]")


def void_of(dtype):
    """Returns a void type, whose copies include every byte; those of a struct omit the padding between its fields."""
    return np.dtype((np.void, dtype.itemsize))


def random_array(rng, dtype, shape, order):
    """Returns random bytes, with NaNs of all kinds; bools are 0 or 1."""
    dtype = np.dtype(dtype)
    data = rng.integers(0, 256, int(np.prod(shape, dtype=np.int64)) * dtype.itemsize, dtype=np.uint8)
    if dtype.kind == "b":
        data &= 1
    elif dtype.kind == "U":
        data = np.full(data.size // 4, 0x41, dtype.byteorder + "u4").view(np.uint8)
        data = (data.view(dtype.byteorder + "u4") + rng.integers(0, 5000, data.size // 4)).astype(
            dtype.byteorder + "u4").view(np.uint8)
    array = np.frombuffer(data.tobytes(), void_of(dtype)).reshape(shape)
    return (np.asfortranarray(array) if order == "F" else array).view(dtype)


def source_index(mode, index, size):
    """Where output index `index` (0: the first element that is not padding) reads; None for the constant."""
    if 0 <= index < size:
        return index
    if mode == "constant":
        return None
    if mode == "edge":
        return min(max(index, 0), size - 1)
    if mode == "wrap":
        return index % size
    if mode == "reflect":
        if size == 1:
            return 0
        index %= 2 * (size - 1)
        return index if index < size else 2 * (size - 1) - index
    index %= 2 * size
    return index if index < size else 2 * size - 1 - index


def bytes_of(array):
    """Returns the elements as rows of bytes: the same shape with one more dimension."""
    raw = np.frombuffer(array.view(void_of(array.dtype)).tobytes(), np.uint8)
    return raw.reshape(array.shape + (array.dtype.itemsize,))


def oracle(array, perm, pads, mode, value_bytes):
    """Computes the result in the simplest way: an index for each output coordinate, on bytes."""
    out = bytes_of(array).transpose([*perm, array.ndim])
    for axis, (before, after) in enumerate(pads):
        low, high = max(-before, 0), max(-after, 0)
        out = out.take(range(low, out.shape[axis] - high), axis)
        before, after, size = max(before, 0), max(after, 0), out.shape[axis]
        picks = [source_index(mode, i, size) for i in range(-before, size + after)]
        padded = out.take([pick or 0 for pick in picks], axis) if size else np.zeros(
            out.shape[:axis] + (len(picks),) + out.shape[axis + 1:], np.uint8)
        holes = [i for i, pick in enumerate(picks) if pick is None]
        if holes:
            where = [slice(None)] * padded.ndim
            where[axis] = holes
            padded[tuple(where)] = np.frombuffer(value_bytes, np.uint8)
        out = padded
    return out


class Numpy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmad = Tmad()
        cls.addClassCleanup(cls.tmad.stop)
        cls.directory = tempfile.TemporaryDirectory(prefix="tmad-numpy-")
        cls.addClassCleanup(cls.directory.cleanup)

    def copy(self, array, *args, version=(1, 0)):
        """Passes the array through a file, tmactl and a file again."""
        src, dst = (os.path.join(self.directory.name, name) for name in ("in.npy", "out.npy"))
        with open(src, "wb") as file:
            np.lib.format.write_array(file, array, version=version)
        done = tmactl("copy", *args, src, dst, socket_path=self.tmad.path)
        self.assertEqual((done.returncode, done.stderr), (0, ""), args)
        result = np.load(dst)
        os.unlink(dst)
        return result

    def compare(self, result, dtype, expected_bytes, what):
        self.assertEqual(result.dtype, np.dtype(dtype), what)
        self.assertEqual(result.shape, expected_bytes.shape[:-1], what)
        wrong = np.argwhere((bytes_of(result) != expected_bytes).any(axis=-1))
        self.assertEqual(len(wrong), 0, f"{what}: elements {wrong[:3].tolist()} and others differ")

    def test_every_type_both_orders_every_version(self):
        rng = np.random.default_rng(11)
        rows = [*PLAIN, *OPAQUE, *SWAPPED]
        for i, dtype in enumerate(rows):
            for order in "CF":
                version = ((1, 0), (2, 0), (3, 0))[(i + (order == "F")) % 3]
                what = f"{dtype} {order} {version}"
                with self.subTest(what):
                    array = random_array(rng, dtype, (3, 5, 4), order)
                    result = self.copy(array, "--permute", "2,0,1", version=version)
                    self.compare(result, array.dtype, bytes_of(array).transpose(2, 0, 1, 3), what)

    def test_utf8_field_names(self):
        array = np.zeros((2, 3), [("größe", "<i4")])
        array["größe"] = [[1, 2, 3], [4, 5, 6]]
        result = self.copy(array, "--permute", "1,0", version=(3, 0))
        self.compare(result, array.dtype, bytes_of(array.T), "names in UTF-8")

    def test_shapes_at_the_edge(self):
        for shape, args in (((), ()), ((1,), ()), ((0,), ()), ((0, 4), ("--permute", "1,0")), ((1,) * 31 + (7,), ()),
                            ((2, 0, 3), ("--permute", "2,1,0"))):
            with self.subTest(shape=shape):
                array = np.arange(int(np.prod(shape)), dtype="<f4").reshape(shape)
                expected = array.transpose([int(p) for p in args[1].split(",")]) if args else array
                result = self.copy(array, *args)
                self.assertEqual((result.dtype, result.shape), (array.dtype, expected.shape))
                self.assertTrue(np.array_equal(result, expected))

    def test_against_np_pad(self):
        """Where np.pad of every version in use is right: pads no larger than the source."""
        rng = np.random.default_rng(12)
        array = random_array(rng, "<i4", (6, 7), "C")
        for mode in MODES:
            with self.subTest(mode=mode):
                result = self.copy(array, "--permute", "1,0", "--pad", "2:5,3:0", "--mode", mode)
                expected = np.pad(array.T, [(2, 5), (3, 0)], mode=mode)
                self.assertTrue(np.array_equal(result, expected))

    def test_values(self):
        rows = (("<f4", "1.5", 1.5), ("<f4", "-0.0", -0.0), ("<f8", "nan", np.nan), ("<f2", "inf", np.inf),
                ("<i1", "-7", -7), ("<u8", "18446744073709551615", 2**64 - 1), ("<i8", "-9223372036854775808", -2**63),
                ("?", "1", True), (">i4", "258", 258), (">f8", "2.5", 2.5))
        for dtype, text, value in rows:
            with self.subTest(dtype=dtype, value=text):
                array = np.zeros(2, dtype)
                result = self.copy(array, "--pad", "1:1", "--value", text)
                expected = np.zeros(4, dtype)
                expected[[0, 3]] = value
                self.compare(result, dtype, bytes_of(expected), text)

    def test_at_random(self):
        seed = int(os.environ.get("TEST_SEED") or random.SystemRandom().randrange(1 << 32))
        cases = int(os.environ.get("TEST_CASES") or share(800 if SANITIZED else 4000))
        print(f"# TEST_SEED={seed} TEST_CASES={cases}", flush=True)
        pick, rng = random.Random(seed), np.random.default_rng(seed)
        for case in range(cases):
            rank = pick.choice((1, 2, 2, 3, 3, 4, 5))
            extent = {1: 3000, 2: 90, 3: 24, 4: 9, 5: 6}[rank]
            dtype = pick.choice(PLAIN + PLAIN + OPAQUE + SWAPPED)
            large = pick.random() < 0.2  # more than --memory: the file passes through in boxes
            if large:
                extent = int((8e6 / np.dtype(dtype).itemsize) ** (1 / rank))
            shape = tuple(pick.randint(extent // 2 if large else 1, extent) for _ in range(rank))
            mode = pick.choice(MODES)
            array = random_array(rng, dtype, shape, pick.choice("CF"))
            perm = pick.sample(range(rank), rank)
            args, pads = ["--permute", ",".join(map(str, perm))], [(0, 0)] * rank
            if pick.random() < 0.7:
                pads = [self.pad_of(pick, shape[p]) for p in perm]
                args += ["--pad", ",".join(f"{before}:{after}" for before, after in pads), "--mode", mode]
            if large:
                args += ["--memory", pick.choice(("1M", "1500000", "3M"))]
            what = f"case {case}: {dtype} {shape} {' '.join(args)}"
            expected = oracle(array, perm, pads, mode, bytes(array.dtype.itemsize))
            with self.subTest(what):
                self.compare(self.copy(array, *args), array.dtype, expected, what)

    @staticmethod
    def pad_of(pick, size):
        """before:after of one dimension that leaves at least one element of the source."""
        kind = pick.random()
        if kind < 0.3:
            return 0, 0
        if kind < 0.7:
            return pick.randint(0, 5), pick.randint(0, 5)
        if kind < 0.8:
            return pick.randint(0, 3 * size), pick.randint(0, 2)
        low = pick.randint(0, size - 1)
        high = pick.randint(0, size - 1 - low)
        return pick.choice((-low, pick.randint(0, 4))), -high


if __name__ == "__main__":
    tap.main()

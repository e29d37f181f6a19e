# SPDX-License-Identifier: Apache-2.0
"""--split and --join of `tmactl copy`, against NumPy's pad, reshape and transpose, and of `tmactl explain`.

The seed is printed; TEST_SEED repeats a run, TEST_CASES sets its length by a number instead of TEST_SHARE.
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from blocked import blocked, joins_of, moved, random_view
from tmad import SANITIZED, TMACTL, Tmad, share, tmactl


def pairs(numbers):
    return ",".join(f"{a}:{b}" for a, b in numbers)


class SplitCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmad = Tmad()
        cls.addClassCleanup(cls.tmad.stop)
        cls.directory = tempfile.TemporaryDirectory(prefix="tmad-splits-")
        cls.addClassCleanup(cls.directory.cleanup)

    def path(self, name):
        return os.path.join(self.directory.name, name)

    def copy(self, array, *args):
        np.save(self.path("in.npy"), array)
        done = tmactl("copy", *args, self.path("in.npy"), self.path("out.npy"), socket_path=self.tmad.path)
        self.assertEqual((done.returncode, done.stderr), (0, ""), args)
        return np.load(self.path("out.npy"))


class Copies(SplitCase):
    # name, input, flags, splits and permutation of the input, output and its splits
    ROWS = (
        ("nChw16c", (2, 50, 6, 5), ["--split", "1:16", "--permute", "0,1,3,4,2"], [1, 16], (0, 1, 3, 4, 2),
         (2, 4, 6, 5, 16), []),
        ("nChw16c, from the last", (2, 50, 6, 5), ["--split=-3:16", "--permute", "0,1,-2,-1,2"], [1, 16],
         (0, 1, 3, 4, 2), (2, 4, 6, 5, 16), []),
        ("nChw16c back", (2, 4, 6, 5, 16), ["--permute", "0,1,4,2,3", "--join", "1:50"], [], (0, 1, 4, 2, 3),
         (2, 50, 6, 5), [1, 16]),
        ("OIhw4i16o4i back", (3, 2, 3, 3, 4, 16, 4), ["--permute", "0,5,1,4,6,2,3", "--join", "0:37,2:16,1:21"], [],
         (0, 5, 1, 4, 6, 2, 3), (37, 21, 3, 3), [0, 16, 2, 16, 3, 4]),
        ("COL32", (45, 100), ["--split", "1:32", "--permute", "1,0,2"], [1, 32], (1, 0, 2), (4, 45, 32), []),
        ("scale factors", (300, 10), ["--split", "0:128,1:32,3:4", "--permute", "0,3,2,1,4"],
         [0, 128, 1, 32, 3, 4], (0, 3, 2, 1, 4), (3, 3, 32, 4, 4), []),
        ("incomplete blocks on both sides", (29, 50), ["--split", "1:16", "--permute", "1,2,0", "--join", "0:58"], [1, 16],
         (1, 2, 0), (58, 29), [0, 16]),
    )

    def test_layouts(self):
        for name, shape, flags, split, perm, out, out_split in self.ROWS:
            with self.subTest(name):
                array = np.random.default_rng(6).integers(1, 60000, shape, dtype=np.uint16)
                self.assertEqual(self.copy(array, *flags).tolist(),
                                 moved(array, split, perm, out, out_split, 0).tolist())

    def test_value_and_pads_of_other_dimensions(self):
        array = np.arange(3 * 20, dtype="<f4").reshape(3, 20)
        result = self.copy(array, "--split", "1:16", "--permute", "1,0,2", "--pad", "0:0,1:2,0:0", "--value", "-1.5")
        expected = np.pad(blocked(array, [1, 16], -1.5).transpose(1, 0, 2), [(0, 0), (1, 2), (0, 0)],
                          constant_values=-1.5)
        self.assertTrue(np.array_equal(result, expected))

    def test_pipes(self):
        """There and back through pipes, more than is kept of them."""
        array = np.random.default_rng(8).integers(0, 1 << 32, (3, 1000, 333), dtype=np.uint32)
        np.save(self.path("pipe.npy"), array)
        with open(self.path("pipe.npy"), "rb") as source:
            command = [TMACTL, "copy", "-", "-", "--memory", "1M", "--socket", self.tmad.path]
            with subprocess.Popen([*command, "--split", "1:32", "--permute", "0,1,3,2"], stdin=source,
                                  stdout=subprocess.PIPE) as there:
                back = subprocess.run([*command, "--permute", "0,1,3,2", "--join", "1:1000"], stdin=there.stdout,
                                      stdout=subprocess.PIPE, timeout=120, check=True)
        self.assertEqual(there.returncode, 0)
        self.assertEqual(back.stdout[-array.nbytes:], array.tobytes())

    def test_random(self):
        seed = int(os.environ.get("TEST_SEED") or random.randrange(1 << 30))
        cases = int(os.environ.get("TEST_CASES") or share(100 if SANITIZED else 1000))
        print(f"# TEST_SEED={seed} TEST_CASES={cases}")
        for i in range(seed, seed + cases):
            draw, rng = random.Random(i), np.random.default_rng(i)
            extents, room = [], 4000 * draw.choice((1, 1, 50))
            for _ in range(draw.randint(1, 6)):
                extents.append(min(draw.choice((1, 2, 3, 4, 5, 8, 16, 17, 64)), room))
                room //= extents[-1]
            perm = draw.sample(range(len(extents)), len(extents))
            shape, split = random_view(draw, extents)
            out, out_split = random_view(draw, [extents[p] for p in perm])
            size = draw.choice((1, 2, 3, 4, 8, 16))
            array = rng.integers(0, 256, int(np.prod(shape)) * size, dtype=np.uint8).view(f"V{size}").reshape(shape)
            array = np.asfortranarray(array) if draw.random() < 0.3 else array
            flags = ["--permute", ",".join(map(str, perm)), "--memory", "1M"]
            flags += ["--split", pairs(zip(split[::2], split[1::2]))] if split else []
            flags += ["--join", pairs(joins_of(out, out_split))] if out_split else []
            result = self.copy(array, *flags)
            expected = moved(array, split, perm, out, out_split, np.zeros((), f"V{size}"))
            self.assertEqual(result.shape, expected.shape)
            self.assertEqual(result.tobytes(), expected.tobytes(), f"case {i}: {shape} {flags}")


class Refused(SplitCase):
    ROWS = (
        (["--split", "1"], "--split 1: expected dimension:block"),
        (["--split", "2:4"], "--split 2:4: there is no dimension 2 among 2"),
        (["--split", "0:0"], "--split 0:0: a block of 0 has no element"),
        (["--split", "0:4,1:3"], "blocks of 3 do not divide dimension 1, which is a block of 4"),
        (["--split", ",".join(["0:1"] * 17)], "more than 16 splits"),
        (["--split", "0:4", "--permute", "1,0"], "it names 2 dimensions"),
        (["--split", "0:4", "--pad", "0:0,1:0,0:0"], "dimension 1 comes of a split"),
        (["--split", "0:4", "--pad", "0:0,0:0,1:1", "--mode", "edge"], "only --mode constant can fill"),
        (["--join", "1:4"], "there are no dimensions 1 and 2 among 2"),
        (["--join", "0:61"], "61 elements, but 10 blocks of 6 hold 55 to 60"),
        (["--join", "0:54"], "54 elements, but 10 blocks of 6 hold 55 to 60"),
        (["--split", "0:4", "--join", "1:23,0:60"], "the last block of dimension 1 is incomplete"),
        (["--pad", "1:0,0:0", "--join", "0:66"], "--pad changes dimension 0 of what is joined"),
        (["--join", ",".join(["0:60"] * 17)], "more than 16 joins"),
    )

    def test_flags(self):
        np.save(self.path("in.npy"), np.zeros((10, 6), "u1"))
        for flags, words in self.ROWS:
            with self.subTest(flags=flags):
                done = tmactl("copy", *flags, self.path("in.npy"), self.path("out.npy"), socket_path=self.tmad.path)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(words, done.stderr)
                self.assertFalse(os.path.exists(self.path("out.npy")))


class Explained(SplitCase):
    def explain(self, *args):
        done = tmactl("explain", *args, socket_path=self.tmad.path)
        self.assertEqual((done.returncode, done.stderr), (0, ""), args)
        return done.stdout

    def test_parts(self):
        flags = ["--dtype", "u1", "--shape", "300,10", "--split", "0:128,1:32,3:4", "--permute", "0,3,2,1,4"]
        plan = json.loads(self.explain(*flags, "--json"))
        self.assertEqual((plan["parts"], plan["bytes"]), (6, 3000 + 3 * 3 * 512))
        self.assertIn("parts    6\n", self.explain(*flags, "--engine", "cuda"))

    def test_whole_blocks(self):
        flags = ["--dtype", "f2", "--shape", "8,64,28,28", "--split", "1:16", "--permute", "0,1,3,4,2"]
        self.assertNotIn("parts", json.loads(self.explain(*flags, "--json")))
        self.assertNotIn("parts", self.explain(*flags))

    def test_join(self):
        plan = json.loads(self.explain("--dtype", "f2", "--shape", "8,4,28,28,16", "--permute", "0,1,4,2,3", "--join",
                                       "1:50", "--json"))
        self.assertEqual((plan["parts"], plan["bytes"]), (2, 2 * 8 * 50 * 28 * 28 * 2))


if __name__ == "__main__":
    tap.main()

# SPDX-License-Identifier: Apache-2.0
"""Scales on the command line, bit for bit against NumPy: `tmactl copy --amax-block`, whose two files appear both or not at
all, `explain` and `bench`.

The seed is printed; TEST_SEED repeats a run, TEST_CASES sets its length by a number instead of TEST_SHARE.
"""
import io
import json
import os
import random
import subprocess
import sys
import threading

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from cases import KEEP, TmactlCase
from conversion import SMALL, check_same, random_values
from scales import encode, quantize
from tmad import SANITIZED, TMACTL, share, tmactl

FP8 = ["--dtype", "float8_e4m3fn"]
BLOCKS = ["--amax-block", "128,128"]
X = (np.random.default_rng(4).standard_normal((300, 260)) * 3).astype("f4")


class Case(TmactlCase):
    def setUp(self):
        super().setUp()
        self.scale = self.file("scale.npy")

    def run_copy(self, array, *flags):
        np.save(self.file("in.npy"), array)
        return tmactl("copy", self.file("in.npy"), self.dst, "--scale-output", self.scale, *flags, socket_path=self.tmad.path)

    def check(self, array, flags, values, full, target="float8_e4m3fn", what="", source="float32", **options):
        """values: the input as the output has it, of the source's codes; full: all extents of a block."""
        done = self.run_copy(array, *flags)
        self.assertEqual((done.returncode, done.stderr), (0, ""), what)
        self.check_files(np.load(self.dst), np.load(self.scale), values, full, target, what, source, **options)

    def check_files(self, data, scale, values, full, target, what, source="float32", **options):
        stored, wanted, _, _ = quantize(values, source, target, full, **options)
        self.assertEqual((data.shape, scale.shape), (stored.shape, wanted.shape), what)
        self.assertTrue(data.flags.c_contiguous and scale.flags.c_contiguous, what)
        check_same(self, data.view(stored.dtype) if data.ndim else data.reshape(1).view(stored.dtype).reshape(()), stored,
                   what, target)
        check_same(self, scale, encode(wanted, scale.dtype.name), what)


class Copies(Case):
    WIDE = np.arange(24 * 32, dtype="f4").reshape(24, 32) - 100
    CUBE = X[:, :256].reshape(3, 100, 256)
    # name, input, flags, the input as the output has it, block, options
    ROWS = (
        ("squares", X, [*FP8, *BLOCKS], X, (128, 128), {}),
        ("rows", X, [*FP8, "--amax-block", "128"], X, (1, 128), {}),
        ("of experts", CUBE, [*FP8, *BLOCKS], CUBE, (1, 128, 128), {}),
        ("whole rows", X, [*FP8, "--amax-block", "1,-1"], X, (1, 260), {}),
        ("whole columns", X, [*FP8, "--amax-block=-1,1"], X, (300, 1), {}),
        ("all", X, [*FP8, "--amax-block", "-1,-1"], X, X.shape, {}),
        ("more than there is", X, [*FP8, "--amax-block", "1000,4611686018427387904"], X, X.shape, {}),
        ("elements", X, [*FP8, "--amax-block", "1,1"], X, (1, 1), {}),
        ("elements, without extents", X, [*FP8, "--amax-block", ""], X, (1, 1), {}),
        ("turned", CUBE, [*FP8, *BLOCKS, "--permute", "2,0,1"], CUBE.transpose(2, 0, 1), (1, 128, 128), {}),
        ("cropped", X, [*FP8, "--amax-block", "7,16", "--pad=-1:-2,0:-9"], X[1:-2, :-9], (7, 16), {}),
        ("Fortran order", np.asfortranarray(X), [*FP8, *BLOCKS], X, (128, 128), {}),
        ("least", X * 0 + 1e-9, [*FP8, *BLOCKS, "--least", "1e-4"], X * 0 + 1e-9, (128, 128), {"least": 1e-4}),
        ("powers of two", X, [*FP8, *BLOCKS, "--power-of-two"], X, (128, 128), {"is_power": True}),
        ("exponents", X, [*FP8, "--amax-block", "32", "--power-of-two", "--scale-dtype", "u1"], X, (1, 32), {"is_power": True}),
        ("another type", X, ["--dtype", "float8_e5m2", *BLOCKS], X, (128, 128), {"target": "float8_e5m2"}),
        ("the same type", X, BLOCKS, X, (128, 128), {"target": "float32"}),
        ("NaN, infinity and zeros", np.array([[1, np.nan, 2, 3], [np.inf, 1, 0, 0]], "f4"), [*FP8, "--amax-block", "2"],
         np.array([[1, np.nan, 2, 3], [np.inf, 1, 0, 0]], "f4"), (1, 2), {}),
        ("in blocks", WIDE, ["--split", "0:8,2:16", "--permute", "0,2,1,3", *FP8, "--amax-block", "8,16"],
         WIDE.reshape(3, 8, 2, 16).transpose(0, 2, 1, 3), (1, 1, 8, 16), {}),
        ("nothing", np.zeros((0, 300), "f4"), [*FP8, *BLOCKS], np.zeros((0, 300), "f4"), (1, 128), {}),
        ("a number", np.float32(-3), [*FP8, "--amax-block", ""], np.float32(-3).reshape(()), (), {}),
        ("a number of one dimension", np.float32([5]), [*FP8, "--amax-block", "128"], np.float32([5]), (1,), {}),
    )

    def test_rows(self):
        for memory in ([], ["--memory", "1M"]):
            for name, array, flags, values, full, options in self.ROWS:
                with self.subTest(name, memory=memory):
                    self.check(array, [*flags, *memory], np.asarray(values, order="C"), full, what=name, **options)

    def test_types_that_numpy_has_not(self):
        codes = SMALL["bfloat16"].store(X.astype("f8"), True)
        self.check(codes.view("V2"), ["--from-dtype", "bfloat16", *FP8, *BLOCKS], codes, (128, 128), source="bfloat16")

    def test_more_than_memory(self):
        """Parts have whole blocks, so the files are the same as if there were one part."""
        array = np.random.default_rng(1).standard_normal((1500, 1050)).astype("f4")
        for block in ("128,128", "128", "1,-1", "-1,7", "600,7"):
            for flags, values in (([], array), (["--permute", "1,0"], array.T.copy())):
                with self.subTest(block=block, flags=flags):
                    full = tuple(n if b == "-1" else int(b) for n, b in zip(values.shape, ("1," + block).split(",")[-2:]))
                    self.check(array, [*FP8, "--amax-block", block, "--memory", "1M", *flags], values, full, what=block)

    def test_a_block_that_is_too_large(self):
        array = np.zeros((1000, 1000), "f4")
        for path in (self.dst, self.scale):
            with open(path, "wb") as file:
                file.write(KEEP)
        done = self.run_copy(array, *FP8, "--amax-block", "-1,-1", "--memory", "4M")
        self.assertEqual((done.returncode, done.stderr), (
            1, "tmactl: --amax-block -1,-1: a block, with its input, has 5000004 bytes, but there is memory for 4194304; "
            "--memory allows more\n"))
        for path in (self.dst, self.scale):
            with open(path, "rb") as file:
                self.assertEqual(file.read(), KEEP)
        done = self.run_copy(array, *FP8, "--amax-block", "-1,-1", "--memory", "5M")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_json(self):
        said = json.loads(self.run_copy(X, *FP8, *BLOCKS, "--power-of-two", "--scale-dtype", "uint8", "--json").stdout)
        self.assertEqual([said[key] for key in ("dtype", "scale_dtype", "scale_shape")], ["float8_e4m3fn", "uint8", [3, 3]])
        self.assertIn(f"in.npy -> {self.dst}, {self.scale}  ", self.run_copy(X, *FP8, *BLOCKS).stdout)

    def test_random(self):
        seed = int(os.environ.get("TEST_SEED") or random.randrange(1 << 30))
        cases = int(os.environ.get("TEST_CASES") or share(60 if SANITIZED else 600))
        print(f"# TEST_SEED={seed} TEST_CASES={cases}")
        for i in range(cases):
            self.random_case(np.random.default_rng([seed, i]), f"seed {seed}, case {i}")

    def random_case(self, rng, what):
        source, target = str(rng.choice(["float16", "float32"])), str(rng.choice([*SMALL, "float32"]))
        rank = int(rng.integers(1, 5))
        room = 4000 * int(rng.choice([1, 1, 1, 200]))
        shape = []
        for _ in range(rank):
            shape.append(int(min(rng.choice([1, 2, 3, 5, 16, 31, 64, 700]), room)))
            room //= shape[-1]
        codes = random_values(rng, source, shape)
        array = codes.view(source)
        array = np.asfortranarray(array) if rng.integers(0, 3) == 0 else array
        perm = [int(p) for p in rng.permutation(rank)]
        crop = [tuple(-int(p) for p in rng.integers(0, 2, 2)) if shape[p] > 2 and rng.integers(0, 3) == 0 else (0, 0)
                for p in perm]
        values = codes.transpose(perm)[tuple(slice(-b, n + a) for (b, a), n in zip(crop, (shape[p] for p in perm)))]
        block = [int(rng.choice([1, 2, 7, 16, 128, -1])) for _ in values.shape]
        while np.prod([-(-n // (n if b == -1 else b)) for n, b in zip(values.shape, block)]) > 4000:
            block[int(rng.integers(0, rank))] = -1
        full = [n if b == -1 else b for n, b in zip(values.shape, block)]
        power, least = bool(rng.integers(0, 2)), float(rng.choice([0, 0, 1e-4, 3]))
        flags = ["--permute", ",".join(map(str, perm)), f"--pad={','.join(f'{a}:{b}' for a, b in crop)}", "--dtype", target,
                 f"--amax-block={','.join(map(str, block))}", f"--least={least}", "--memory", "16M"]
        if power:
            flags += ["--power-of-two", "--scale-dtype", str(rng.choice(["float32", "uint8"]))]
        self.check(array, flags, np.ascontiguousarray(values), full, target, f"{what}: {source}{shape} {flags}", source,
                   least=least, is_power=power)


class Streams(Case):
    def test_from_pipe_to_pipe(self):
        """The array as it comes, its scales into a file."""
        np.save(self.file("in.npy"), X)
        for flags, values in (([], X), (["--permute", "1,0"], X.T.copy())):
            with open(self.file("in.npy"), "rb") as source:
                done = subprocess.run([TMACTL, "copy", "-q", "-", "-", *FP8, *BLOCKS, *flags, "--scale-output", self.scale,
                                       "--socket", self.tmad.path], stdin=source, stdout=subprocess.PIPE, timeout=120, check=True)
            self.check_files(np.load(io.BytesIO(done.stdout)), np.load(self.scale), values, (128, 128), "float8_e4m3fn", flags)

    def test_scales_to_a_pipe(self):
        np.save(self.file("in.npy"), X)
        done = subprocess.run([TMACTL, "copy", "-q", self.file("in.npy"), self.dst, *FP8, *BLOCKS, "--scale-output", "-",
                               "--socket", self.tmad.path], stdout=subprocess.PIPE, timeout=120, check=True)
        self.check_files(np.load(self.dst), np.load(io.BytesIO(done.stdout)), X, (128, 128), "float8_e4m3fn", "-")
        os.mkfifo(self.scale)
        read = []
        reader = threading.Thread(target=lambda: read.append(self.read(self.scale)))
        reader.start()
        done = self.run_copy(X, *FP8, *BLOCKS)
        reader.join(60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.check_files(np.load(self.dst), np.load(io.BytesIO(read[0])), X, (128, 128), "float8_e4m3fn", "fifo")

    @staticmethod
    def read(path):
        with open(path, "rb") as file:
            return file.read()


class Refused(Case):
    # name, input, flags, exit code, words
    ROWS = (
        ("no block", X, FP8, 2, "no scales are computed; --amax-block says for which blocks"),
        ("a block that is no list", X, [*FP8, "--amax-block", "128x128"], 2, "--amax-block 128x128: expected extents"),
        ("a block of 0", X, [*FP8, "--amax-block", "0,128"], 2, "--amax-block 0,128: expected extents"),
        ("a block of -2", X, [*FP8, "--amax-block", "-2"], 2, "--amax-block -2: expected extents"),
        ("a block of 3 dimensions", X, [*FP8, "--amax-block", "1,2,3"], 2, "it names 3 dimensions, but the output has 2"),
        ("a scale", X, [*FP8, *BLOCKS, "--scale", "2"], 2, "--scale beside --amax-block: elements are multiplied by"),
        ("a mean", X, [*FP8, *BLOCKS, "--mean", "2"], 2, "--mean beside --amax-block: elements are multiplied by"),
        ("a pad", X, [*FP8, *BLOCKS, "--pad", "0:0,0:1"], 2, "--pad 0:0,0:1 adds to dimension 1; beside blocks it can only crop"),
        ("a join", X, [*FP8, *BLOCKS, "--join", "0:78000"], 2, "--amax-block 128,128: not beside --join"),
        ("an incomplete block", X, [*FP8, *BLOCKS, "--split", "0:128"], 2, "the last block of --split 0:128 is incomplete"),
        ("least", X, [*FP8, *BLOCKS, "--least", "-1"], 2, "--least -1: expected a number of 0 or more"),
        ("least, NaN", X, [*FP8, *BLOCKS, "--least", "nan"], 2, "--least nan: expected"),
        ("a type of scales", X, [*FP8, *BLOCKS, "--scale-dtype", "f2"], 2, "--scale-dtype f2: scales are float32, or with"),
        ("exponents", X, [*FP8, *BLOCKS, "--scale-dtype", "u1"], 2, "or with --power-of-two uint8"),
        ("integers", X.astype("i4"), [*FP8, *BLOCKS], 1, "amax: src is int32, but it must be float32, or"),
        ("to integers", X, ["--dtype", "i1", *BLOCKS], 1, "amax: dst is int8, but it must be float32, or"),
        ("wide", X.astype("f8"), [*FP8, *BLOCKS], 1, "amax: src is float64, but it must be float32, or"),
        ("exact", X, [*FP8, *BLOCKS, "--cast", "exact"], 1, "are not values of float8_e4m3fn"),
    )

    def keep(self):
        for path in (self.dst, self.scale):
            with open(path, "wb") as file:
                file.write(KEEP)

    def check_kept(self, *paths):
        for path in paths or (self.dst, self.scale):
            with open(path, "rb") as file:
                self.assertEqual(file.read(), KEEP, path)
        self.assertEqual([name for name in os.listdir(self.directory) if name.startswith(".tmactl")], [])

    def test_rows(self):
        self.keep()
        for name, array, flags, code, words in self.ROWS:
            with self.subTest(name):
                done = self.run_copy(array, *flags)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(words, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1)
                self.check_kept()

    def test_options_without_a_block(self):
        np.save(self.file("in.npy"), X)
        for flags in (["--power-of-two"], ["--least", "1"], ["--scale-dtype", "f4"]):
            done = tmactl("copy", self.file("in.npy"), self.dst, *FP8, *flags, socket_path=self.tmad.path)
            self.assertEqual((done.returncode, done.stderr), (
                2, f"tmactl: {flags[0]}: no scales are computed; --amax-block says for which blocks\n"))
        done = tmactl("copy", self.file("in.npy"), self.dst, *FP8, *BLOCKS, socket_path=self.tmad.path)
        self.assertEqual((done.returncode, done.stderr), (
            2, "tmactl: --amax-block 128,128: --scale-output is missing, the file that scales are written to\n"))

    def test_one_output_for_both(self):
        np.save(self.file("in.npy"), X)
        self.keep()
        os.symlink(self.dst, self.file("link.npy"))
        other = os.path.join(self.directory, "..", os.path.basename(self.directory), "out.npy")
        for dst, scale in ((self.dst, self.dst), (self.dst, other), (self.dst, self.file("link.npy")), ("-", "-"),
                           ("/dev/stdout", "-"), (self.file("new.npy"), self.file("./new.npy"))):
            with self.subTest(dst=dst, scale=scale):
                done = tmactl("copy", self.file("in.npy"), dst, *FP8, *BLOCKS, "--scale-output", scale,
                              socket_path=self.tmad.path)
                self.assertEqual((done.returncode, done.stderr), (2, f"tmactl: --scale-output {scale}: it is DST, too\n"))
        self.check_kept()
        os.link(self.dst, self.file("hard.npy"))
        done = tmactl("copy", self.file("in.npy"), self.dst, *FP8, *BLOCKS, "--scale-output", self.file("hard.npy"),
                      socket_path=self.tmad.path)
        self.assertEqual((done.returncode, done.stderr), (0, ""), "two names, each of which is replaced")
        self.check_files(np.load(self.dst), np.load(self.file("hard.npy")), X, (128, 128), "float8_e4m3fn", "hard link")

    def test_a_late_failure_leaves_both(self):
        array = np.zeros((4096, 1024), "f4")
        array[::128, ::128] = 448  # scales of 1
        array[-1, -1] = 0.3
        self.keep()
        done = self.run_copy(array, *FP8, *BLOCKS, "--cast", "exact", "--memory", "1M")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "in.npy: cast: exact, but the values of 1 element of float32 are not values of float8_e4m3fn, "
                         r"among the \d+ elements of a part of the array, which has 4194304 in all; --cast saturate")
        self.check_kept()

    def test_a_place_that_scales_cannot_have(self):
        np.save(self.file("in.npy"), X)
        self.keep()
        for scale, words in ((self.directory, "is a directory; only a regular file is replaced"),
                             (self.file("none/scale.npy"), "cannot be created"),
                             ("/dev/full", "cannot be written (No space left on device)")):
            with self.subTest(scale):
                done = tmactl("copy", self.file("in.npy"), self.dst, *FP8, *BLOCKS, "--scale-output", scale,
                              socket_path=self.tmad.path)
                self.assertEqual(done.returncode, 1)
                self.assertIn(words, done.stderr)
                self.check_kept()

    def test_no_clobber(self):
        """Neither file is made if the other one is there."""
        for kept, made in ((self.dst, self.scale), (self.scale, self.dst)):
            with open(kept, "wb") as file:
                file.write(KEEP)
            done = self.run_copy(X, *FP8, *BLOCKS, "--no-clobber")
            self.assertEqual((done.returncode, done.stderr),
                             (1, f"tmactl: {kept}: already exists, and --no-clobber protects it\n"))
            self.check_kept(kept)
            self.assertFalse(os.path.exists(made))
            os.unlink(kept)
        self.assertEqual(self.run_copy(X, *FP8, *BLOCKS, "--no-clobber").returncode, 0)
        self.check_files(np.load(self.dst), np.load(self.scale), X, (128, 128), "float8_e4m3fn", "new")

    def test_modes_are_kept(self):
        self.keep()
        os.chmod(self.dst, 0o640)
        os.chmod(self.scale, 0o604)
        self.assertEqual(self.run_copy(X, *FP8, *BLOCKS).returncode, 0)
        self.assertEqual([os.stat(path).st_mode & 0o7777 for path in (self.dst, self.scale)], [0o640, 0o604])
        self.assertEqual(sorted(os.listdir(self.directory)), ["in.npy", "out.npy", "scale.npy"])


class Others(Case):
    ARRAY = ["--dtype", "bfloat16", "--shape", "3,300,260", "--to-dtype", "float8_e4m3fn"]

    def test_explain(self):
        rows = (
            (BLOCKS, ["x * (1 / scale), each step rounded in float32, then rounded to nearest even; saturate",
                      "scale float32 [3, 3, 3], for blocks of [1, 128, 128]: the largest magnitude of a block divided by the "
                      "largest finite float8_e4m3fn"]),
            (["--permute", "2,0,1", "--amax-block", "-1", "--power-of-two", "--scale-dtype", "uint8", "--least", "0.25"],
             ["scale uint8 [260, 3, 1], for blocks of [1, 1, 300]: the largest magnitude of a block, at least 0.25, divided "
              "by the largest finite float8_e4m3fn, rounded up to a power of two"]),
        )
        for flags, words in rows:
            done = tmactl("explain", *self.ARRAY, *flags, "--engine", "cpu", socket_path=self.tmad.path)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            flat = " ".join(done.stdout.split())
            for word in words:
                self.assertIn(word, flat)
            self.assertIn("family convert", flat)
        np.save(self.file("in.npy"), X)
        done = tmactl("explain", self.file("in.npy"), "--amax-block", "1,2,3", socket_path=self.tmad.path)
        self.assertEqual((done.returncode, done.stderr), (
            2, "tmactl: --amax-block 1,2,3: it names 3 dimensions, but the output has 2\n"))

    def test_bench(self):
        flags = ["bench", "--requests", "50", "--pipeline", "8", "--json", "--kind", "transform", *self.ARRAY, *BLOCKS]
        for more in ([], ["--prepared"], ["--connections", "2", "--prepared"]):
            done = tmactl(*flags, *more, socket_path=self.tmad.path)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            said = json.loads(done.stdout)
            self.assertEqual((said["requests"], said["errors"]), (50, {}))
        done = tmactl("bench", "--amax-block", "128", socket_path=self.tmad.path)
        self.assertEqual((done.returncode, done.stderr), (2, "tmactl: --amax-block belongs to --kind transform, not to ping\n"))


if __name__ == "__main__":
    tap.main()

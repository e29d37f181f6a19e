# SPDX-License-Identifier: Apache-2.0
"""Conversions on the command line, against NumPy: `tmactl copy --dtype` and what goes with it, `explain`, `bench`.

The seed is printed; TEST_SEED repeats a run, TEST_CASES sets its length by a number instead of TEST_SHARE.
"""
import json
import os
import random
import re
import subprocess
import sys
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from cases import KEEP, TmactlCase
from conversion import SMALL, convert, pad, random_values
from tmad import SANITIZED, TMACTL, share, tmactl

MODES = ("constant", "edge", "reflect", "symmetric", "wrap")
NUMPY = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64")
IMAGES = np.random.default_rng(21).integers(0, 256, (2, 5, 7, 3), dtype=np.uint8)
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


def numbers(values):
    return ",".join(repr(float(v)) for v in values)


def normalized(images):
    """As calculated in float32, with each step rounded."""
    scale = (1 / np.array(STD)).astype("f4")
    bias = (-np.array(MEAN) / np.array(STD)).astype("f4")
    return (images.astype("f4") * scale + bias).astype("f2")


class Case(TmactlCase):
    def run_copy(self, array, *flags, memory=()):
        np.save(self.file("in.npy"), array)
        return tmactl("copy", self.file("in.npy"), self.dst, *flags, *memory, socket_path=self.tmad.path)

    def copy(self, array, *flags):
        done = self.run_copy(array, *flags)
        self.assertEqual((done.returncode, done.stderr), (0, ""), flags)
        return np.load(self.dst)

    def same(self, got, expected, what):
        self.assertEqual((got.dtype, got.shape), (expected.dtype, expected.shape), what)
        if expected.dtype.kind != "f":
            self.assertEqual(got.tobytes(), expected.tobytes(), what)
        else:
            bits = f"u{expected.itemsize}"
            got, expected = np.ascontiguousarray(got), np.ascontiguousarray(expected)
            self.assertTrue(np.all((got.view(bits) == expected.view(bits)) | (np.isnan(got) & np.isnan(expected))), what)


class Copies(Case):
    RAMP = np.linspace(-300, 300, 60, dtype="f4").reshape(3, 4, 5)
    # name, input, flags, output
    ROWS = (
        ("a type", RAMP, ["--dtype", "f2"], RAMP.astype("f2")),
        ("towards zero, and clamped", RAMP, ["--dtype", "uint8"], np.clip(np.trunc(RAMP), 0, 255).astype("u1")),
        ("bool", RAMP - RAMP[0, 0, 0], ["--dtype", "bool"], RAMP != RAMP[0, 0, 0]),
        ("exact", np.arange(6, dtype="i8"), ["--dtype", "u1", "--cast", "exact"], np.arange(6, dtype="u1")),
        ("infinities stay", np.array([-np.inf, 65519, 65520, 0.1], "f4"), ["--dtype", "f2", "--cast", "ieee"],
         np.array([-np.inf, 65504, np.inf, 0.1], "f2")),
        ("low bits", np.array([300, -1, 1 << 40], "i8"), ["--dtype", "u1", "--cast", "ieee"], np.array([44, 255, 0], "u1")),
        ("rounded once", np.array([2**53 + 2**29 + 1, -(2**60 + 2**36 + 1)], "i8"), ["--dtype", "f4"],
         np.array([2**53 + 2**30, -(2**60 + 2**37)], "f4")),
        ("the same type is a copy", RAMP, ["--dtype", "float32"], RAMP),
        ("a scale keeps the type", RAMP, ["--scale", "0.1"], RAMP * np.float32(0.1)),
        ("a quotient", RAMP, ["--scale", "1/255"], RAMP * np.float32(1 / 255)),
        ("quotients", IMAGES, ["--scale", "1/255, 2/3,4", "--bias=-1/2", "--dtype", "fp32"],
         IMAGES * np.array([1 / 255, 2 / 3, 4], "f4") + np.float32(-.5)),
        ("quotients of means", IMAGES, ["--mean", "255/2", "--std", "1/4", "--dtype", "single"],
         IMAGES * np.float32(4) + np.float32(-510)),
        ("another name", RAMP, ["--dtype", "half"], RAMP.astype("f2")),
        ("NumPy's float", RAMP, ["--dtype", "float"], RAMP.astype(float)),
        ("a value that is a quotient", RAMP[0], ["--pad", "0:1,0:0", "--value", "1/3"],
         np.pad(RAMP[0], [(0, 1), (0, 0)], constant_values=1 / 3)),
        ("a whole quotient", np.arange(3, dtype="u1"), ["--pad", "0:1", "--value", "510/2"], np.array([0, 1, 2, 255], "u1")),
        ("a bias alone", RAMP, ["--bias=-2", "--dtype", "f8"], RAMP.astype("f8") - 2),
        ("two numbers", RAMP, ["--scale", "3", "--bias", "0.1"], RAMP * np.float32(3) + np.float32(0.1)),
        ("images, normalized", IMAGES, ["--permute", "0,3,1,2", "--dtype", "float16", "--mean", numbers(MEAN), "--std",
                                        numbers(STD)], normalized(IMAGES).transpose(0, 3, 1, 2)),
        ("images that have channels first", IMAGES.transpose(0, 3, 1, 2).copy(),
         ["--channel-axis", "1", "--dtype", "float16", "--mean", numbers(MEAN), "--std", numbers(STD)],
         normalized(IMAGES).transpose(0, 3, 1, 2)),
        ("one mean, three deviations", IMAGES, ["--mean", "127.5", "--std", "1,2,4", "--dtype", "f4"],
         IMAGES * np.array([1, .5, .25], "f4") + np.array([-127.5, -63.75, -31.875], "f4")),
        ("a mean alone", IMAGES, ["--mean", "1,2,3", "--dtype", "i2"], (IMAGES - np.arange(1., 4)).astype("i2")),
        ("channels that are cropped", IMAGES, ["--scale", "1,2,4", "--dtype", "u2", "--pad", "0:0,0:0,0:0,-1:0"],
         (IMAGES.astype("u2") * np.array([1, 2, 4], "u2"))[..., 1:]),
        ("channels that are mirrored", IMAGES, ["--scale", "1,2,4", "--dtype", "u2", "--pad", "0:0,0:0,0:0,4:5", "--mode",
                                                "symmetric"],
         np.pad(IMAGES.astype("u2") * np.array([1, 2, 4], "u2"), [(0, 0)] * 3 + [(4, 5)], "symmetric")),
        ("a value of the output", IMAGES, ["--dtype", "i2", "--pad", "0:0,1:0,0:0,0:0", "--value", "-700"],
         np.pad(IMAGES.astype("i2"), [(0, 0), (1, 0), (0, 0), (0, 0)], constant_values=-700)),
        ("a block that is incomplete", np.arange(30., dtype="f4").reshape(3, 10),
         ["--split", "1:4", "--permute", "1,0,2", "--scale", "1,10,100", "--channel-axis", "0", "--dtype", "i4"],
         np.pad(np.arange(30).reshape(3, 10) * np.array([[1], [10], [100]]), [(0, 0), (0, 2)]).reshape(3, 3, 4)
         .transpose(1, 0, 2).astype("i4")),
        ("blocks that are joined", np.arange(30., dtype="f4").reshape(5, 6), ["--join", "0:29", "--dtype", "u1"],
         np.arange(29, dtype="u1")),
        ("Fortran order", np.asfortranarray(RAMP), ["--scale", "1,2,3,4,5"], RAMP * np.arange(1, 6, dtype="f4")),
        ("nothing", np.zeros((0, 3), "f4"), ["--dtype", "u1", "--scale", "1,2,3"], np.zeros((0, 3), "u1")),
        ("nothing but a border", np.zeros((0, 3), "f4"), ["--dtype", "u1", "--pad", "1:0,0:0", "--value", "7"],
         np.full((1, 3), 7, "u1")),
        ("a number", np.float32(2.5), ["--dtype", "f8", "--scale", "2"], np.float64(5.0)),
    )

    def test_rows(self):
        for name, array, flags, expected in self.ROWS:
            with self.subTest(name):
                self.same(self.copy(array, *flags), np.asarray(expected), name)

    def test_types_that_numpy_has_not(self):
        """There and back, of all bits that are numbers."""
        for name, type_of in SMALL.items():
            if name == "float16":
                continue
            with self.subTest(name):
                codes = np.arange(1 << type_of.bits).astype(type_of.storage)
                values = type_of.load(codes)
                there = self.copy(values.astype("f4"), "--dtype", name, "--cast", "exact")
                self.assertEqual((there.dtype, there.shape), (np.dtype(f"V{type_of.bits // 8}"), codes.shape))
                is_number = ~np.isnan(values)
                self.assertEqual(there.view(type_of.storage)[is_number].tolist(), codes[is_number].tolist())
                back = self.copy(there, "--dtype", "f4", "--cast", "exact", "--from-dtype", name)
                self.same(back, values.astype("f4"), name)

    def saved(self, descr, values):
        """A file whose header has this descr, and the bytes of the values."""
        header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {values.shape}}}\n".encode()
        data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + values.tobytes()
        return self.file("saved.npy", data)

    def test_descrs_that_others_write(self):
        """As ml_dtypes saves its types, and by the names of types: copied as they are, and converted if it is certain what
        they are, or --from-dtype says so."""
        rows = (("<f1", "float8_e5m2", False), ("|f1", "float8_e5m2", False), ("float8_e5m2", "float8_e5m2", False),
                ("|V1", "float8_e5m2", True), ("<V1", "float8_e4m3fn", True), ("float8_e4m3fn", "float8_e4m3fn", False),
                ("<V2", "bfloat16", True), ("bfloat16", "bfloat16", False))
        for descr, name, is_bytes in rows:
            with self.subTest(descr=descr, name=name):
                type_of = SMALL[name]
                codes = np.array([0x38, 0x42, 0x47, 0], type_of.storage)
                values, path = type_of.load(codes).astype("f4"), self.saved(descr, codes)
                done = tmactl("copy", path, self.dst, "--pad", "1:0", socket_path=self.tmad.path)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                with open(self.dst, "rb") as file:
                    data = file.read()
                self.assertIn(f"'descr': '{descr}'".encode(), data)
                self.assertEqual(data[-codes.nbytes - codes.itemsize:], bytes(codes.itemsize) + codes.tobytes())
                for flags in ([], ["--from-dtype", name]):
                    done = tmactl("copy", path, self.dst, "--dtype", "float32", *flags, socket_path=self.tmad.path)
                    if is_bytes and not flags:
                        self.assertEqual(done.returncode, 1)
                        self.assertIn("items of void cannot be converted, unless --from-dtype says what numbers they are, "
                                      "such as ", done.stderr)
                        self.assertIn(name, done.stderr)
                    else:
                        self.assertEqual((done.returncode, done.stderr), (0, ""))
                        self.same(np.load(self.dst), values, descr)
                done = tmactl("copy", path, self.dst, "--dtype", name, "--from-dtype", name, "--pad", "0:1", "--value", "1.5",
                              socket_path=self.tmad.path)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                with open(self.dst, "rb") as file:
                    last = np.frombuffer(file.read()[-codes.itemsize:], codes.dtype)
                self.assertEqual(type_of.load(last).tolist(), [1.5])
        for descr in ("float32", "f", "single"):
            path = self.saved(descr, np.arange(3, dtype="f4"))
            done = tmactl("copy", path, self.dst, "--dtype", "i4", socket_path=self.tmad.path)
            self.assertEqual((done.returncode, done.stderr), (0, ""), descr)
            self.same(np.load(self.dst), np.arange(3, dtype="i4"), descr)
        for descr, words in (("float8_e8m0fnu", "items of float8_e8m0fnu cannot be converted"), ("int4", "items of int4 cannot")):
            done = tmactl("copy", self.saved(descr, np.zeros(3, "u1")), self.dst, "--dtype", "f4", socket_path=self.tmad.path)
            self.assertEqual(done.returncode, 1)
            self.assertIn(words, done.stderr)

    def test_pipes(self):
        np.save(self.file("in.npy"), IMAGES)
        with open(self.file("in.npy"), "rb") as source:
            done = subprocess.run([TMACTL, "copy", "-", "-", "--dtype", "f4", "--scale", "1,2,4", "--socket", self.tmad.path],
                                  stdin=source, stdout=subprocess.PIPE, timeout=120, check=True)
        expected = IMAGES * np.array([1, 2, 4], "f4")
        self.assertEqual(done.stdout[-expected.nbytes:], expected.tobytes())

    def test_json(self):
        done = self.run_copy(IMAGES, "--dtype", "bfloat16", "--json")
        said = json.loads(done.stdout)
        self.assertEqual([said[key] for key in ("dtype", "descr", "src_dtype", "path", "bytes")],
                         ["bfloat16", "|V2", "uint8", "convert", 3 * IMAGES.size])

    def test_json_of_descrs(self):
        """As numpy.lib.format.dtype_to_descr returns them."""
        fields = np.dtype([("a", "<f4"), ("it's", "V3"), ("b\\", ">i2", (2, 3)), ("n", [("\u00e9", "?"), ("m", "U2")])])
        for dtype in (np.dtype("u1"), np.dtype(">f8"), np.dtype("M8[25us]"), fields):
            with self.subTest(dtype=dtype):
                said = json.loads(self.run_copy(np.zeros(3, dtype), "--json").stdout)
                expected = json.loads(json.dumps(np.lib.format.dtype_to_descr(dtype)))
                self.assertEqual(said["descr"], expected)

    def test_random(self):
        seed = int(os.environ.get("TEST_SEED") or random.randrange(1 << 30))
        cases = int(os.environ.get("TEST_CASES") or share(100 if SANITIZED else 1000))
        print(f"# TEST_SEED={seed} TEST_CASES={cases}")
        for i in range(cases):
            self.random_case(np.random.default_rng([seed, i]), f"seed {seed}, case {i}")

    def random_case(self, rng, what):
        """The largest do not fit --memory at once."""
        source, target = (str(rng.choice(NUMPY)) for _ in range(2))
        rank = int(rng.integers(1, 5))
        room = 4000 * int(rng.choice([1, 1, 1, 200]))
        shape = []
        for _ in range(rank):
            shape.append(int(min(rng.choice([1, 2, 3, 5, 16, 31, 64, 700]), room)))
            room //= shape[-1]
        array = random_values(rng, source, shape)
        array = array.view("f2") if source == "float16" else array
        array = np.asfortranarray(array) if rng.integers(0, 3) == 0 else array
        perm, axis = [int(p) for p in rng.permutation(rank)], int(rng.integers(0, rank))
        flags = ["--permute", ",".join(map(str, perm)), "--dtype", target, f"--channel-axis={axis - rank}"]
        operands = {}
        for name in ("scale", "bias"):
            n = int(rng.choice([0, 1, shape[axis]]))
            if n:
                operands[name] = rng.standard_normal(n) * 10.0 ** int(rng.integers(-2, 3))
                flags.append(f"--{name}={numbers(operands[name])}")
        if max([1, *map(len, operands.values())]) == 1:
            flags.pop(4)
        mode = str(rng.choice(MODES))
        pads = [tuple(int(p) for p in rng.integers(0, n, 2)) if rng.integers(0, 3) == 0 and n < 40 else (0, 0)
                for n in (shape[p] for p in perm)]
        flags += [f"--pad={','.join(f'{a}:{b}' for a, b in pads)}", "--mode", mode, "--memory", "1M"]
        got = self.copy(array, *flags)
        along = [1] * rank
        along[axis] = -1
        shaped = {name: v.reshape(along) if len(v) > 1 else v[0] for name, v in operands.items()}
        stored = array.view("u2") if source == "float16" else array
        expected = convert(stored, source, target, "saturate", shaped.get("scale"), shaped.get("bias"))[0]
        expected = expected.view("f2") if target == "float16" else expected
        self.same(got, pad(expected.transpose(perm), pads, mode), f"{what}: {source}{shape} {flags}")


class Refused(Case):
    # name, input, flags, exit code, words
    ROWS = (
        ("exact", np.array([1.5, 2, 300], "f4"), ["--dtype", "u1", "--cast", "exact"], 1, "2 elements of float32"),
        ("complex", np.zeros(3, "c8"), ["--dtype", "f4"], 1, "complex64 to float32"),
        ("big-endian", np.zeros(3, ">f4"), ["--dtype", "f8"], 1, "big-endian items cannot be converted"),
        ("times", np.zeros(3, "M8[s]"), ["--dtype", "f8"], 1, "items of datetime64 cannot be converted"),
        ("bytes", np.zeros(3, "V2"), ["--dtype", "f8"], 1, "--from-dtype says"),
        ("another size", np.zeros(3, "V2"), ["--dtype", "f8", "--from-dtype", "f4"], 2, "have 4 bytes"),
        ("bytes of no number", np.zeros(3, "V3"), ["--dtype", "f8"], 1, "they have 3 bytes, but numbers have 1, 2, 4 or 8"),
        ("a type for nothing", np.zeros(3, "V2"), ["--from-dtype", "bfloat16"], 2, "nothing is converted"),
        ("no type", np.zeros(3), ["--dtype", "float7"], 2, "--dtype float7: not an element type"),
        ("no cast", np.zeros(3), ["--cast", "wrap"], 2, "expected one of saturate, exact, ieee"),
        ("no number", np.zeros(3), ["--scale", "1,x"], 2, "--scale 1,x: expected a number"),
        ("a quotient by 0", np.zeros(3), ["--scale", "1/0"], 2, "--scale 1/0: a quotient divides by 0; expected a number"),
        ("half a quotient", np.zeros(3), ["--bias", "1/"], 2, "--bias 1/: expected a number or a quotient"),
        ("an empty list", np.zeros(3), ["--bias", ""], 2, "--bias : expected a number"),
        ("two ways", np.zeros(3), ["--scale", "2", "--mean", "1"], 2, "--mean beside --scale"),
        ("two lengths", np.zeros(3), ["--scale", "1,2,3", "--bias", "1,2"], 2, "--scale has 3 numbers, but --bias has 2"),
        ("two lengths of others", np.zeros(3), ["--mean", "1,2", "--std", "1,2,3"], 2, "--mean has 2 numbers"),
        ("a deviation of 0", np.zeros(3), ["--std", "1,0,1"], 2, "--std 1,0,1: a standard deviation of 0"),
        ("other channels", np.zeros((3, 4)), ["--scale", "1,2,3"], 2,
         "the list 1,2,3 has 3 numbers, but dimension 1 of the input has 4 elements"),
        ("no dimension", np.zeros((3, 4)), ["--scale", "1,2,3", "--channel-axis", "2"], 2, "no such dimension among 2"),
        ("no list", np.zeros((3, 4)), ["--scale", "1", "--channel-axis", "0"], 2, "there is no list"),
        ("no axis", np.zeros((3, 4)), ["--scale", "1,2,3", "--channel-axis", "0x"], 2, "expected a dimension's number"),
        ("a value", np.zeros(3), ["--dtype", "u1", "--pad", "1:1", "--value", "300"], 2, "uint8 cannot hold it"),
    )

    def test_rows(self):
        for name, array, flags, code, words in self.ROWS:
            with self.subTest(name):
                self.file("out.npy", KEEP)
                done = self.run_copy(array, *flags)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(words, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1)
                with open(self.dst, "rb") as file:
                    self.assertEqual(file.read(), KEEP)

    def test_a_part_is_inexact(self):
        """The file, the array in it, and of how many elements the count is; the output is as it was."""
        array = np.zeros(1 << 21, "f4")
        array[-1] = 0.5
        np.savez(self.file("in.npz"), x=array)
        np.save(self.file("in.npy"), array)
        np.save(self.file("small.npy"), array[-5:].reshape(5, 1))
        part = r"the \d+ elements of a part of the array, which has 2097152 in all"
        for name, memory, among in (("in.npz:x", "1M", part),
                                    ("in.npy", "1M", part),
                                    ("small.npy", "64M", "the 5 elements of the array")):
            with self.subTest(name=name):
                self.file("out.npy", KEEP)
                done = tmactl("copy", self.file(name), self.dst, "--dtype", "i1", "--cast", "exact", "--memory", memory,
                              socket_path=self.tmad.path)
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, f"^tmactl: {re.escape(self.file(name))}: cast: exact, but the values of 1 "
                                 f"element of float32 are not values of int8, among {among}; --cast saturate takes")
                with open(self.dst, "rb") as file:
                    self.assertEqual(file.read(), KEEP)


class Others(Case):
    ARRAY = ["--dtype", "uint8", "--shape", "8,64,64,3", "--permute", "0,3,1,2"]
    # flags, what is said
    ROWS = (
        (["--to-dtype", "f2"], ["convert  uint8 to float16: x, in float32, then rounded to nearest even; saturate"]),
        (["--to-dtype", "i8"], ["convert  uint8 to int64: x; saturate"]),
        (["--to-dtype", "f8", "--cast", "exact"], ["x, in float64, then rounded", "exact: it fails"]),
        (["--to-dtype", "f2", "--cast", "ieee"], ["ieee: values beyond the range of float16 become infinity"]),
        (["--to-dtype", "float8_e4m3fn", "--cast", "ieee"], ["ieee: values beyond the range of float8_e4m3fn become NaN"]),
        (["--to-dtype", "i1", "--cast", "ieee"], ["uint8 to int8: x; ieee: values beyond the range of int8 keep their low"]),
        (["--dtype", "i8", "--to-dtype", "f4"], ["int64 to float32: x, rounded to nearest even; saturate"]),
        (["--to-dtype", "f2", "--mean", "1,2,3", "--std", "2"],
         ["x * scale + bias, each step rounded in float32, then rounded to nearest even", "scale    0.5\n",
          "bias     a number for each of the 3 elements of dimension 1 of the permuted source\n"]),
        (["--bias", "1"], ["uint8 to uint8: x + bias", "without what lies behind the point", "bias     1\n"]),
        (["--to-dtype", "bool", "--scale", "0.25"], ["x * scale", "true where it is not 0"]),
    )

    def explain(self, *flags, code=0):
        done = tmactl("explain", *flags, socket_path=self.tmad.path)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def test_explain(self):
        for flags, words in self.ROWS:
            with self.subTest(flags=flags):
                said = self.explain(*self.ARRAY, *flags)
                flat = " ".join(said.split())
                for word in words:
                    if word.endswith("\n"):
                        self.assertIn(word, said)
                    else:
                        self.assertIn(" ".join(word.split()), flat)
                self.assertIn("family   convert", said)
                self.assertEqual(json.loads(self.explain(*self.ARRAY, *flags, "--json"))["family"], "convert")

    def test_explain_a_file(self):
        np.save(self.file("in.npy"), IMAGES)
        self.assertIn("uint8 to bfloat16", self.explain(self.file("in.npy"), "--to-dtype", "bfloat16"))
        self.assertNotIn("convert", self.explain(self.file("in.npy")))

    def test_one_set_of_names(self):
        """--from-dtype and --to-dtype everywhere; --dtype is short for what each command had it for, and explain takes the
        command line of a copy."""
        np.save(self.file("bytes.npy"), np.zeros((40, 30), "V2"))
        plain = np.arange(12, dtype="f4").reshape(3, 4)
        path = self.file("bytes.npy")
        for flags in (["--from-dtype", "bfloat16", "--to-dtype", "f4"], ["--from-dtype", "bfloat16", "--dtype", "f4"],
                      ["--from-dtype", "bfloat16", "--dtype", "f4", "--to-dtype", "float32"]):
            with self.subTest(flags=flags):
                self.assertIn("bfloat16 to float32", self.explain(path, *flags))
                done = tmactl("copy", path, self.dst, *flags, socket_path=self.tmad.path)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertEqual(np.load(self.dst).dtype, "f4")
        self.same(self.copy(plain, "--to-dtype", "i2"), plain.astype("i2"), "copy")
        shape = ["--shape", "40,30"]
        said = self.explain("--dtype", "uint8", *shape, "--to-dtype", "f2")
        self.assertIn("uint8 to float16", said)
        for flags in (["--from-dtype", "u1"], ["--from-dtype", "u1", "--dtype", "uint8"]):
            self.assertEqual(self.explain(*flags, *shape, "--to-dtype", "f2").split("time")[0], said.split("time")[0])
            done = tmactl("bench", "--kind", "transform", "--requests", "3", *flags, *shape, "--to-dtype", "f2",
                          socket_path=self.tmad.path)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("convert", self.explain("--from", "nhd", "--to", "hnd", "--from-dtype", "f2", "--tokens", "4", "--heads",
                                              "2", "--head-size", "8"))
        two = "{} beside {}: both name the type of the {}; omit one".format
        rows = ((["explain", path, "--dtype", "f4"], 1, "unless --from-dtype says what numbers they are, such as bfloat16"),
                (["explain", path, "--from-dtype", "bfloat16"], 2, "--from-dtype bfloat16: nothing is converted; --to-dtype is"),
                (["explain", path, "--from-dtype", "f4", "--to-dtype", "f2"], 2, f"the items of {path} have 2"),
                (["explain", path, "--dtype", "f4", "--to-dtype", "f2"], 2, two("--dtype f4", "--to-dtype float16", "output")),
                (["explain", path, *shape], 2, f"--shape 40,30: the shape is that of {path}; omit one"),
                (["explain", *shape, "--dtype", "f4", "--from-dtype", "f2"], 2,
                 two("--dtype f4", "--from-dtype float16", "array")),
                (["explain", *shape], 2, "explain needs --from-dtype and --shape"),
                (["copy", path, self.dst, "--to-dtype", "f4", "--dtype", "f2"], 2,
                 two("--dtype f2", "--to-dtype float32", "output")),
                (["bench", "--kind", "transform", *shape, "--dtype", "f4", "--from-dtype", "f2"], 2,
                 two("--from-dtype f2", "--dtype float32", "array")))
        for line, code, words in rows:
            with self.subTest(line=line):
                done = tmactl(*line, socket_path=self.tmad.path)
                self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (code, "", 1), done.stderr)
                self.assertIn(words, done.stderr)

    def test_explain_refuses(self):
        self.assertIn("omit --scale", self.explain("--from", "nhd", "--to", "hnd", "--dtype", "f2", "--tokens", "4", "--heads",
                                                   "2", "--head-size", "8", "--scale", "2", code=2))
        self.assertIn("complex64 to float32", self.explain("--dtype", "c8", "--shape", "3", "--to-dtype", "f4", code=1))

    def test_bench(self):
        flags = ["bench", "--requests", "20", "--json", "--kind", "transform", *self.ARRAY, "--to-dtype", "f2", "--scale"]
        done = tmactl(*flags, "0.5", socket_path=self.tmad.path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(json.loads(done.stdout)["requests"], 20)
        done = tmactl(*flags, "1,2,3", socket_path=self.tmad.path)
        self.assertEqual((done.returncode, done.stderr), (2, "tmactl: bench converts by numbers, not by lists\n"))


if __name__ == "__main__":
    tap.main()

# SPDX-License-Identifier: Apache-2.0
"""compare_cpu.py: what bench writes, NumPy's operations element by element, those of torch and HPTT where they are
installed, and the tables. No figure is judged."""
import contextlib
import io
import itertools
import json
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

SOURCE = os.environ.get("TEST_SRCDIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
BUILD = os.environ.get("TEST_BUILDDIR", os.path.join(SOURCE, "build"))
HERE = os.path.join(SOURCE, "tests/bench/compare")
COMPARE = os.path.join(HERE, "compare_cpu.py")
BENCH = os.path.join(BUILD, "tests/bench/bench")
sys.path[:0] = [os.path.join(SOURCE, "tests/support"), HERE]
import compare_cpu
import compare_hptt
import compare_rows
import tap

try:
    import numpy as np

    import compare_cpu_measure
except ImportError:
    np = None

NODE = {"what": "zero pad 2,0,1(1:2)", "dtype": "float16", "shape": [4, 6, 5], "src_strides": [-37, 6, 1],
        "src_offset": 111, "dst_offset": 0, "perm": [2, 0, 1], "before": [0, 0, 1], "after": [0, 0, 2],
        "mode": "constant", "value": 0, "blocks": 0, "family": "strided", "bytes": 720, "isa": "avx2",
        "ratio": {"median": 2.0, "low": 1.0, "high": 3.0}, "base_ns": [30, 50, 40], "tmad_ns": [30, 10, 20]}
BARE = {"src_strides": [30, 5, 1], "src_offset": 0, "before": [0] * 3, "after": [0] * 3}
CROP = {"before": [0, -1, 0], "after": [-2, 0, -1]}
RUN = {"date": "today", "machine": "a machine", "engine": "cpu", "threads": 2, "random": "--random=7 2",
       "others": "NumPy"}


def row_of(**changes):
    return compare_rows.row_of({**NODE, **changes})


def result(label, tmad_ns, element=4, **others_ns):
    return {"label": label, "kind": "permute", "element": element, "family": "strided", "bytes": 2e8,
            "memcpy_ns": 1000, "tmad_ns": {"plain": 4 * tmad_ns, "avx2": tmad_ns}, "others_ns": others_ns}


def compare(*args):
    return subprocess.run([sys.executable, COMPARE, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          encoding="utf-8", check=False)


class RowsCase(unittest.TestCase):
    def test_a_row_has_times_by_each_instruction_set(self):
        other = {**NODE, "isa": "plain", "tmad_ns": [90, 80, 70], "ratio": {"median": 0.5}}
        blocks = {**NODE, "what": "gather 40", "blocks": 40}
        run, times = compare_cpu.read_times(json.dumps({"run": RUN, "rows": [other, NODE, blocks]}))
        self.assertEqual((run, len(times)), (RUN, 1))
        (row, one), = times.items()
        self.assertEqual(one, compare_cpu.Times([30, 50, 40], {"plain": [90, 80, 70], "avx2": [30, 10, 20]}))
        made = compare_cpu.result_of(row, one, {"numpy": 60})
        self.assertEqual(made["label"], "zero pad 2,0,1(1:2) float16 [4, 6, 5]")
        self.assertEqual((made["memcpy_ns"], made["tmad_ns"]), (40, {"plain": 80, "avx2": 20}))

    def test_another_json_is_refused(self):
        for text in ("{}", '{"run": {}, "rows": [{}]}', '{"run": {}, "rows": 7}', "no JSON"):
            with self.subTest(text), self.assertRaises(ValueError):
                compare_cpu.read_times(text)
            with self.subTest(text), self.assertRaises(ValueError):
                compare_cpu.read_results(text)

    def test_what_hptt_takes(self):
        for changes, takes in (({}, True), ({"dtype": "int8"}, False), ({"dtype": "complex128"}, True),
                               ({"src_strides": [37, 6, 1]}, False), ({"src_strides": [42, 6, 1]}, True),
                               ({"src_strides": [60, 10, 2]}, False), ({"src_strides": [0, 5, 1]}, False),
                               ({"src_strides": [-30, 5, 1]}, False), (CROP, True), ({"before": [1, 0, 0]}, False)):
            with self.subTest(changes):
                self.assertEqual(compare_hptt.takes(row_of(**{**BARE, "dtype": "float32", **changes})), takes)
        self.assertEqual(compare_hptt.outer_sizes(row_of(**{**BARE, "src_strides": [42, 6, 1]})), [4, 7, 6])


class TablesCase(unittest.TestCase):
    def test_the_tables(self):
        results = [result("one", 1000, numpy=2000, torch=500), result("two", 2000, numpy=2000, torch=None),
                   result("three", 500, element=1, numpy=4000, torch=1000)]
        text = "\n".join(compare_cpu.report_lines(results))
        for line in ("| tmad, plain | 3 | 0.250 | 0.125 | 0.125 |", "| tmad, avx2 | 3 | 1.000 | 0.500 | 0.500 |",
                     "| NumPy | 3 | 0.397 | 0.250 | 0.250 |", "| torch | 2 | 1.414 | 1.000 | 1.000 |",
                     "| avx2 | NumPy | 3 | 2.520 | 1.000 | 1.000 | 0 (0.0 %) |",
                     "| avx2 | torch | 2 | 1.000 | 0.500 | 0.500 | 1 (50.0 %) |",
                     "| avx2 | the fastest of them | 3 | 1.000 | 0.500 | 0.500 | 1 (33.3 %) |",
                     "| element |  1 bytes | 1 | 2.000 | 2.000 | 2.000 | 0 (0.0 %) |",
                     "\n0.50  one by strided: 1 us; NumPy 2, torch 0\n1.00  two by strided: 2 us; NumPy 2\n"):
            self.assertIn(line, text)
        self.assertNotIn("HPTT", text)

    def test_load_prints_them_again(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            for node in ({"run": RUN}, result("one", 1000, numpy=2000)):
                print(json.dumps(node), file=file)
            file.flush()
            done = compare("--load", file.name)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("today; a machine; cpu; NumPy; --random=7 2\n", done.stdout)
        self.assertIn("| tmad, avx2 | 1 | 1.000 |", done.stdout)

    def test_usage(self):
        for args, words in ((("--random", "7"), "expected 2 arguments"), ((), "required"),
                            (("--load", "/nowhere"), "compare_cpu.py: [Errno 2]")):
            with self.subTest(args):
                done = compare(*args)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(words, done.stderr)


def index_of(at, n, mode):
    """Of an axis of n elements, the one that is at a place outside; None: the value that borders have."""
    if 0 <= at < n:
        return at
    if mode == "edge":
        return min(max(at, 0), n - 1)
    if mode == "wrap":
        return at % n
    around = {"reflect": [*range(n), *range(n - 2, 0, -1)], "symmetric": [*range(n), *range(n - 1, -1, -1)]}
    return around[mode][at % len(around[mode])] if mode in around else None


@unittest.skipUnless(np, "no NumPy here")
class MeasureCase(unittest.TestCase):
    def arenas(self, row, places=2):
        src = np.random.default_rng(7).integers(compare_cpu_measure.LOW, compare_cpu_measure.HIGH,
                                                places * compare_cpu_measure.pitch_of(row), np.uint8)
        return np.zeros_like(src), src

    def expected(self, row, arena, place):
        """Bytes, element by element."""
        element, start = row.element, place * compare_cpu_measure.pitch_of(row)
        value = {("float16", 7): b"\x00\x47", ("bfloat16", 7): b"\xe0\x40", ("uint8", 7): b"\x07"}.get(
            (row.dtype, row.value), bytes(element))
        made = []
        for index in itertools.product(*map(range, row.dst_shape)):
            at, borders = row.src_offset, False
            for axis, i, before, after, shape in zip(row.perm, index, row.before, row.after, row.dst_shape):
                kept = shape - max(before, 0) - max(after, 0)
                inner = index_of(i - max(before, 0), kept, row.mode)
                borders = borders or inner is None
                at += 0 if borders else (inner + max(-before, 0)) * row.strides[axis]
            made.append(value if borders else arena[start + at * element:start + (at + 1) * element].tobytes())
        return b"".join(made)

    def rows(self):
        for changes in ({}, {"value": 7}, {"value": 7, "dtype": "bfloat16"}, {"value": 7, "dtype": "uint8"},
                        {"dtype": "complex128"}, {"dtype": "float64", **CROP}, BARE, {**BARE, "dtype": "int32"},
                        {"src_strides": [42, 6, 1], "src_offset": 5, "dst_offset": 3, "dtype": "float32", **CROP},
                        {"src_strides": [37, -6, -1], "src_offset": 34, **CROP},
                        *({"mode": mode, "dtype": dtype, "before": [0, 1, 2], "after": [0, 3, 0]}
                          for mode in ("edge", "reflect", "symmetric", "wrap") for dtype in ("float32", "bfloat16"))):
            yield row_of(**changes)

    def test_numpy(self):
        for row in self.rows():
            dst, src = self.arenas(row)
            for place in range(2):
                with self.subTest(row=row, place=place):
                    made = compare_cpu_measure.by_numpy(row, compare_cpu_measure.destination(row, dst, place),
                                                        compare_cpu_measure.source(row, src, place))()
                    self.assertEqual(made.shape, row.dst_shape)
                    self.assertEqual(made.tobytes(), self.expected(row, src, place))

    def test_the_others_agree_with_numpy(self):
        others = compare_cpu_measure.Others(1)
        for row in self.rows():
            with self.subTest(row=row):
                arenas = self.arenas(row)
                operations = others.operations(row, arenas, 2)
                compare_cpu_measure.check(row, operations, arenas, others)
                self.assertEqual("torch" in operations, others.torch is not None)
                if others.torch:
                    self.assertEqual(compare_cpu_measure.pitch_of(row), others.tensors.pitch_of(row))
                if others.hptt:
                    self.assertEqual(operations["hptt"] is not None, compare_hptt.takes(row))

    def test_wrong_bytes_are_found(self):
        others, row = compare_cpu_measure.Others(1), row_of(**BARE)
        arenas = self.arenas(row)
        operations = others.operations(row, arenas, 1)
        operations["hptt"] = [lambda: None]
        with self.assertRaisesRegex(ValueError, "hptt and NumPy differ"):
            compare_cpu_measure.check(row, operations, arenas, others)

    def test_measuring(self):
        if not os.path.exists(BENCH):
            self.skipTest("bench is not built")
        with tempfile.TemporaryDirectory() as room:
            out = os.path.join(room, "out.json")
            args = ["compare_cpu.py", "--random", "7", "3", "--least", "4", "--most", "16", "--runs", "1", "--quick",
                    "--bench", BENCH, "--out", out]
            printed = io.StringIO()
            with mock.patch.multiple(compare_cpu_measure, LEAST_ROUND=1, cache_bytes=lambda: 0, SAMPLE_NS=1, REST_S=0,
                                     ROW_NS=1), \
                 mock.patch.object(sys, "argv", args), contextlib.redirect_stdout(printed), \
                 contextlib.redirect_stderr(io.StringIO()):
                try:
                    compare_cpu.main()
                except SystemExit as exit_:
                    self.assertEqual(exit_.code, 2)
                    self.skipTest("bench was built without libjansson")
            _, results = compare_cpu.read_results(compare_cpu.text_of(out))
            loaded = compare("--load", out)
        self.assertEqual(loaded.stdout, printed.getvalue())
        self.assertEqual(len(results), 3)
        for one in results:
            self.assertIn("plain", one["tmad_ns"])
            self.assertGreater(one["others_ns"]["numpy"], 0)

    def test_no_row_after_its_time(self):
        with mock.patch.multiple(compare_cpu_measure, LEAST_ROUND=1, cache_bytes=lambda: 0):
            self.assertEqual(list(compare_cpu_measure.measure([row_of()], compare_cpu_measure.Others(1), -1)), [])


if __name__ == "__main__":
    tap.main()

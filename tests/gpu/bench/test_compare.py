# SPDX-License-Identifier: Apache-2.0
"""compare.py without a GPU: the rows that bench_gpu writes, the figures, and, where there is torch, its tensors and
operations on the CPU against NumPy."""
import json
import math
import os
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

import numpy as np

SOURCE = os.environ.get("TEST_SRCDIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
BUILD = os.environ.get("TEST_BUILDDIR", os.path.join(SOURCE, "build"))
COMPARE = os.path.join(SOURCE, "tests/gpu/bench/compare.py")
BENCH = os.path.join(BUILD, "tests/gpu/bench/bench_gpu")
SOFTGPU = os.path.join(BUILD, "tests/softgpu/lib")
sys.path[:0] = [os.path.join(SOURCE, "tests/support"), os.path.join(SOURCE, "tests/gpu/bench")]
import compare_rows
import cutensor
import tap

try:
    import torch

    import compare_measure
    import compare_torch
except ImportError:
    torch = None

NODE = {"what": "zero pad 2,0,1(1:2)", "dtype": "float16", "shape": [4, 6, 5], "src_strides": [-37, 6, 1],
        "src_offset": 111, "dst_offset": 0, "perm": [2, 0, 1], "before": [0, 0, 1], "after": [0, 0, 2],
        "mode": "constant", "value": 0, "blocks": 0, "family": "strided", "bytes": 720,
        "ratio": {"median": 0.5, "low": 0.4, "high": 0.6}, "tmad_ns": [30, 10, 20]}
RUN = {"date": "today", "machine": "a machine", "engine": "cuda", "random": "--random=7 2", "others": "torch"}


def bench(*args):
    """bench_gpu on the stand-in driver."""
    env = {**os.environ, "LD_LIBRARY_PATH": SOFTGPU + ":" + os.environ.get("LD_LIBRARY_PATH", "")}
    command = [*os.environ.get("EMULATOR", "").split(), BENCH, "--quick", "--json", "--runs", "1", *args]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", env=env,
                          check=False)


def result(label, tmad, element=4, **others):
    return {"label": label, "kind": "permute", "element": element, "family": "strided", "bytes": 2e8, "tmad": tmad,
            "tmad_ns": 100, "copy_ns": 100 * tmad, "others": others,
            "others_ns": {name: ratio and 100 * tmad / ratio for name, ratio in others.items()}}


class RowsCase(unittest.TestCase):
    def test_a_row_and_what_follows_from_it(self):
        row = compare_rows.row_of(NODE)
        self.assertEqual(row.label, "zero pad 2,0,1(1:2) float16 [4, 6, 5]")
        self.assertEqual((row.dst_shape, row.reversed, row.element), ((5, 4, 9), (0,), 2))
        self.assertEqual((row.src_low, row.src_elements, row.dst_elements), (0, 146, 180))
        self.assertEqual((row.ratio, row.tmad_ns, row.kind), (0.5, 20, "pad"))

    def test_kinds(self):
        bare = {**NODE, "before": [0] * 3, "after": [0] * 3}
        for changes, kind in (({"before": [0, 0, -1]}, "crop"),
                              ({"mode": "edge", "after": [1, 0, 0]}, "pad of another mode"), ({}, "reversed"),
                              ({"src_strides": [37, 6, 1]}, "gaps"),
                              ({"src_strides": [30, 5, 1]}, "permute")):
            with self.subTest(kind):
                self.assertEqual(compare_rows.row_of({**bare, **changes}).kind, kind)

    def test_another_json_is_refused(self):
        for text in ("{}", '{"run": {}, "rows": [{}]}', '{"run": {}, "rows": 7}', "no JSON"):
            with self.subTest(text), self.assertRaises(ValueError):
                compare_rows.read_report(text)

    def test_what_bench_gpu_writes_is_read(self):
        if not os.path.exists(BENCH):
            self.skipTest("built without CUDA")
        done = bench("--random", "7", "12", "--most", "16")
        if done.returncode == 2 and "libjansson" in done.stderr:
            self.skipTest("built without libjansson")
        self.assertEqual(done.returncode, 0, done.stderr)
        run, rows = compare_rows.read_report(done.stdout)
        self.assertEqual((run["random"], len(rows)), ("--random=7 12 --least=4 --most=16", 12))
        for row in rows:
            self.assertEqual(row.src_low, 0, row.label)
            self.assertLessEqual(row.bytes, 2 * row.dst_elements * row.element, row.label)
            self.assertGreater(row.ratio, 0, row.label)

    def test_cutensor_takes_permutations_of_two_bytes_and_more(self):
        row = {**NODE, "src_strides": [30, 5, 1], "before": [0] * 3, "after": [0] * 3}
        for changes, takes in (({}, True), ({"dtype": "int8"}, False), ({"src_strides": [37, 6, 1]}, True),
                               ({"src_strides": [0, 5, 1]}, False), ({"src_strides": [-30, 5, 1]}, False),
                               ({"before": [-1, 0, 0]}, True), ({"before": [1, 0, 0]}, False)):
            with self.subTest(changes=changes):
                self.assertEqual(cutensor.takes(compare_rows.row_of({**row, **changes})), takes)
        self.assertEqual([cutensor.alignment_of(n) for n in (6, 4096, 1 << 40, 0)], [2, 256, 256, 256])


class FiguresCase(unittest.TestCase):
    def test_distribution(self):
        d = compare_rows.Distribution.of([4, 1, 2, 8, 1, 4, 2, 8, 2, 4, 16])
        self.assertEqual((d.rows, d.tenth, d.worst), (11, 1, 1))
        self.assertAlmostEqual(d.mean, 2 ** (19 / 11))

    def test_size_classes(self):
        for mib, name in ((2, "1 to 4 MiB"), (7.9, "1 to 4 MiB"), (8, "4 to 16 MiB"), (500, "64 to 256 MiB"),
                          (4096, "1 to 4 GiB")):
            with self.subTest(mib):
                self.assertEqual(compare_rows.size_class(mib * (1 << 20)), name)

    def test_the_tables(self):
        results = [result("one", 0.8, eager=0.4, compile=0.8, cutensor=None),
                   result("two", 0.4, eager=0.5, compile=0.8),
                   result("three", 0.9, element=1, eager=0.2, compile=0.3)]
        text = "\n".join(compare_rows.report_lines(results))
        for line in ("| tmad | 3 | 0.660 | 0.400 | 0.400 |", "| eager | 3 | 0.342 | 0.200 | 0.200 |",
                     "| the best of the others | 3 | 0.577 | 0.300 | 0.300 |",
                     "|  | all | 3 | 1.145 | 0.500 | 0.500 | 1 (33.3 %) |",
                     "| element |  1 bytes | 1 | 3.000 | 3.000 | 3.000 | 0 (0.0 %) |",
                     "| element |  4 bytes | 2 | 0.707 | 0.500 | 0.500 | 1 (50.0 %) |",
                     "| side | 64 to 256 MiB | 3 | 1.145 ", "| compile | 3 | 1.145 | 0.500 | 0.500 | 1 (33.3 %) |",
                     "\n0.50  two by strided: 0.40; eager 0.50, compile 0.80\n1.00  one by strided: "):
            self.assertIn(line, text)
        self.assertNotIn("| cutensor", text)

    def test_load_prints_them_again(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            for node in ({"run": RUN}, result("one", 0.8, eager=0.4)):
                print(json.dumps(node), file=file)
            file.flush()
            done = subprocess.run([sys.executable, COMPARE, "--load", file.name], stdout=subprocess.PIPE,
                                  encoding="utf-8", check=True)
        self.assertIn("today; a machine; cuda; torch; --random=7 2\n", done.stdout)
        self.assertIn("| tmad | 1 | 0.800 |", done.stdout)

    def test_usage(self):
        for args, words in ((("--random", "7"), "expected 2 arguments"), ((), "required"),
                            (("--load", "/nowhere"), "compare.py: [Errno 2]")):
            with self.subTest(args):
                done = subprocess.run([sys.executable, COMPARE, *args], stderr=subprocess.PIPE, encoding="utf-8",
                                      check=False)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(words, done.stderr)


@unittest.skipUnless(torch, "no torch here")
class TorchCase(unittest.TestCase):
    """On the CPU."""

    @staticmethod
    def row(**changes):
        return compare_rows.row_of({**NODE, **changes})

    def expected(self, row, arena, place):
        """By NumPy, from the memory."""
        pitch = compare_torch.pitch_of(row)
        memory = arena.numpy()[place * pitch:(place + 1) * pitch]
        bits = np.dtype(f"u{min(row.element, 8)}") if row.element <= 8 else np.dtype("c16")
        start = memory[:len(memory) // row.element * row.element].view(bits)[row.src_offset:]
        src = np.lib.stride_tricks.as_strided(start, row.shape, [row.element * n for n in row.strides])
        view = src.transpose(row.perm)
        view = view[tuple(slice(max(-b, 0), n - max(-a, 0)) for n, b, a in zip(view.shape, row.before, row.after))]
        border = [(max(b, 0), max(a, 0)) for b, a in zip(row.before, row.after)]
        if row.mode != "constant":
            return np.pad(view, border, row.mode)
        value = torch.tensor([row.value], dtype=getattr(torch, row.dtype)).view(torch.uint8).numpy().view(bits)
        return np.pad(view, border, constant_values=value[0])

    def check(self, row):
        places, pitch = 2, compare_torch.pitch_of(row)
        src, dst = compare_torch.random_arena(places * pitch, "cpu"), torch.zeros(places * pitch, dtype=torch.uint8)
        for place in range(places):
            made = compare_torch.eager(row, "cpu")(compare_torch.destination(row, dst, place),
                                                   compare_torch.source(row, src, place))
            self.assertTrue(made.is_contiguous(), row)
            self.assertEqual(tuple(made.shape), row.dst_shape, row)
            self.assertEqual(made.reshape(-1).view(torch.uint8).numpy().tobytes(),
                             self.expected(row, src, place).tobytes(), row)

    def test_eager(self):
        crop = {"before": [0, -1, 0], "after": [-2, 0, -1]}
        for changes in ({}, {"value": 7}, {"dtype": "uint8", "value": 7}, {"dtype": "complex128"}, crop,
                        {"src_strides": [30, 5, 1], "src_offset": 0}, {"before": [0] * 3, "after": [0] * 3},
                        {"src_strides": [37, 6, 1], "src_offset": 5, "dst_offset": 3, **crop},
                        {"src_strides": [37, -6, -1], "src_offset": 34, **crop}):
            with self.subTest(changes=changes):
                self.check(self.row(**changes))

    def test_modes(self):
        for mode in ("edge", "reflect", "symmetric", "wrap"):
            for dtype in ("float32", "int64"):
                for sides in (([0, 0, 2], [0, 0, 3]), ([0, 1, 2], [0, 3, 0]), ([2, 0, 0], [1, 0, 2])):
                    with self.subTest(mode=mode, dtype=dtype, sides=sides):
                        row = self.row(mode=mode, dtype=dtype, before=sides[0], after=sides[1])
                        self.check(row)

    def test_places_do_not_meet(self):
        row = self.row()
        pitch = compare_torch.pitch_of(row)
        self.assertGreaterEqual(pitch, max(row.src_elements, row.dst_elements) * row.element)
        self.assertEqual(pitch % compare_torch.ALIGN, 0)

    def test_random_data_has_no_nan(self):
        data = compare_torch.random_arena(1 << 16, "cpu")
        for dtype in ("float16", "bfloat16", "float32", "float64"):
            self.assertTrue(bool((data.view(getattr(torch, dtype)).abs() > 1e-30).all()) or dtype == "float64", dtype)
            self.assertTrue(bool(data.view(getattr(torch, dtype)).isfinite().all()), dtype)

    def test_measuring(self):
        """With events that take one millisecond, the device of which begins late enough on the second attempt."""
        late = iter([True] + [False] * 1000)
        event = types.SimpleNamespace(record=lambda: None, query=lambda: next(late), synchronize=lambda: None,
                                      elapsed_time=lambda end: 1.0)
        rows = [self.row(), self.row(dtype="uint8", before=[0] * 3, after=[0] * 3)]
        with mock.patch.object(torch.cuda, "Event", lambda enable_timing: event), \
             mock.patch.object(torch.cuda, "get_device_properties",
                               lambda device: types.SimpleNamespace(L2_cache_size=1 << 12)), \
             mock.patch.object(compare_measure, "LEAD", 1 << 12), \
             mock.patch.object(compare_measure, "compiled", compare_torch.eager), torch.no_grad():
            results = list(compare_measure.measure(rows, None, 60, "cpu"))
            self.assertEqual(list(compare_measure.measure(rows, None, 0, "cpu")), [])
        self.assertEqual([one["label"] for one in results], [row.label for row in rows])
        for one in results:
            self.assertEqual(one["others"], {"eager": 1.0, "compile": 1.0, "cutensor": None})
            self.assertEqual(one["others_ns"]["eager"], 1e6 / compare_measure.MAX_CALLS)
            self.assertEqual((one["tmad"], one["tmad_ns"]), (0.5, 20))
        self.assertIn("| compile | 2 | 1.000 |", "\n".join(compare_rows.report_lines(results)))

    def test_wrong_bytes_are_found(self):
        def wrong(row, device):
            run = compare_torch.eager(row, device)
            return lambda dst, src: run(dst, src) ^ 1

        row = self.row(dtype="uint8")
        clock = types.SimpleNamespace(src=compare_torch.random_arena(2 * compare_torch.pitch_of(row), "cpu"))
        clock.dst = torch.zeros_like(clock.src)
        with mock.patch.object(compare_measure, "compiled", wrong), self.assertRaisesRegex(ValueError, "compile and"):
            compare_measure.operations_of(row, clock, None)

    def test_one_that_refuses_is_left_out(self):
        def refuse(row, device):
            raise RuntimeError("not that one\nat all")

        row = self.row()
        clock = types.SimpleNamespace(src=compare_torch.random_arena(2 * compare_torch.pitch_of(row), "cpu"))
        clock.dst = torch.zeros_like(clock.src)
        with mock.patch.object(compare_measure, "compiled", refuse), mock.patch.object(sys, "stderr"):
            operations = compare_measure.operations_of(row, clock, None)
        self.assertEqual([name for name, run in operations.items() if run], ["eager"])

    def test_compiled(self):
        if not hasattr(torch, "compile"):
            self.skipTest("no torch.compile here")
        for changes in ({}, {"mode": "symmetric"}, {"mode": "reflect", "dtype": "int64"}, {"dtype": "complex128"},
                        {"before": [0] * 3, "after": [0] * 3}):
            row = self.row(**changes)
            src = compare_torch.random_arena(compare_torch.pitch_of(row), "cpu")
            dst = torch.zeros_like(src)
            sides = ((compare_torch.compiled, dst), (compare_torch.eager, torch.zeros_like(src)))
            made, expected = (side(row, "cpu")(compare_torch.destination(row, to), compare_torch.source(row, src))
                              for side, to in sides)
            self.assertTrue(compare_torch.same_bytes(made, expected), row)
            self.assertEqual(made.data_ptr(), dst.data_ptr(), row)


if __name__ == "__main__":
    tap.main()

# SPDX-License-Identifier: Apache-2.0
"""tmactl explain: its text, hints that hold, and a drawing with the hardware's addresses."""
import json
import os
import re
import sys
import xml.etree.ElementTree

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from cases import TmactlCase
from liar import Liar
from tmad import ENGINE, SOURCE, RpcError, tmactl

SVG = "{http://www.w3.org/2000/svg}"
CHUNK, LINE = 16, 128


def swizzled(address, swizzle):
    """Returns where a byte lies by the documentation's table: address bits 4 up ^= address bits 7 up."""
    bits = {"none": 0, "32B": 1, "64B": 2, "128B": 3}[swizzle]
    return address ^ ((address >> 7) % (1 << bits) << 4)


class Case(TmactlCase):
    def setUp(self):
        super().setUp()
        self.svg = self.file("plan.svg")

    def explain(self, *args, code=0, path=None):
        done = tmactl("explain", *args, socket_path=path or self.tmad.path)
        self.assertEqual((done.returncode, done.stderr if code == 0 else ""), (code, ""), done.stderr)
        return done.stdout if code == 0 else done.stderr

    def plan(self, *args):
        return json.loads(self.explain("--json", *args))

    def hint(self, *args, path=None):
        """Returns the hint on one line; None if there is none."""
        lines = self.explain(*args, path=path).split("\n")
        start = [i for i, line in enumerate(lines) if line.startswith("hint")]
        if not start:
            return None
        end = start[0] + 1
        while lines[end].startswith(" "):
            end += 1
        return " ".join(line.removeprefix("hint").strip() for line in lines[start[0]:end])

    def explain_lie(self, plan):
        """Returns the output for a plan that no service would make."""
        plan = {"family": "memcpy", "engine": "cuda", "tile": [], "swizzle": "none", "rules": [], "bytes": 8, **plan}
        with Liar(self.file("lies"), lambda *_: plan) as liar:
            text = self.explain("--dtype", "int8", "--shape", "", path=liar.path)
        os.unlink(liar.path)
        return text


class Engines(Case):
    def test_a_plan_for_another_engine(self):
        shape = ["--dtype", "float16", "--shape", "4096,4096", "--permute", "1,0"]
        cuda, cpu = self.plan(*shape, "--engine", "cuda"), self.plan(*shape, "--engine", "cpu")
        self.assertEqual((cuda["engine"], cuda["family"], cuda["swizzle"]), ("cuda", "tile_transpose", "128B"))
        self.assertEqual((cuda["tile"], cuda["tile_element"], cuda["tile_row"]), ([128, 128], 2, 128))
        self.assertEqual((cuda["tile_src_strides"], cuda["tile_dst_strides"]), ([8192, 2], [2, 8192]))
        self.assertEqual((cpu["engine"], cpu["family"], cpu["swizzle"]), ("cpu", "tile_transpose", "none"))
        self.assertEqual((cpu["tile_src_strides"], cpu["tile_row"]), ([2, 8192], 0))
        own = self.plan(*shape)
        self.assertEqual(own["engine"], ENGINE)
        if ENGINE == "cpu":
            self.assertEqual(own, cpu)

    def test_plans_of_another_engine_are_not_kept(self):
        tensor = {"dtype": "int8", "shape": [7, 11, 13]}
        params = {"dst": tensor, "src": tensor}
        with self.tmad.rpc() as rpc:
            before = rpc.call("stats")["plan_cache"]
            other = "cpu" if ENGINE == "cuda" else "cuda"
            self.assertEqual(rpc.call("explain", {**params, "engine": other})["engine"], other)
            self.assertEqual(rpc.call("stats")["plan_cache"], before)
            self.assertEqual(rpc.call("explain", {**params, "engine": ENGINE})["engine"], ENGINE)
            self.assertEqual(rpc.call("stats")["plan_cache"]["entries"], before["entries"] + 1)

    def test_refused(self):
        tensor = {"region": 1, "dtype": "int8", "shape": [4]}
        with self.tmad.rpc() as rpc:
            for engine in ("", "gpu", "cud", "cudaa", 7):
                with self.assertRaises(RpcError) as caught:
                    rpc.call("explain", {"dst": tensor, "src": tensor, "engine": engine})
                self.assertEqual(caught.exception.name, "INVALID_ARGUMENT")
                self.assertIn("engine", caught.exception.message)
            for method in ("copy", "transform", "plan_prepare"):
                with self.assertRaises(RpcError) as caught:
                    rpc.call(method, {"dst": tensor, "src": tensor, "engine": "cpu"})
                self.assertIn("engine", caught.exception.message)
        self.assertIn("cpu, cuda", self.explain("--dtype", "int8", "--shape", "4", "--engine", "gpu", code=2))


class Words(Case):
    def test_fast_or_not_and_why(self):
        args = ["--dtype", "float16", "--permute", "1,0", "--shape"]
        text = self.explain(*args, "8191,8193", "--engine", "cuda")
        for words in ("family   tile_transpose (engine cuda", "boxes of several axes", "not      tile_copy: ",
                      "16386 bytes", " times a copy's)"):
            self.assertIn(words, text)
        text = self.explain(*args, "4096,4096", "--engine", "cuda")
        for words in ("Tensor Memory\n         Accelerator", "fast     yes: about", "swizzle 128B"):
            self.assertIn(words, text)
        self.assertNotIn("hint", text)
        text = self.explain(*args, "512,512", "--engine", "cpu")
        self.assertIn("fast     yes: it moves", text)
        text = self.explain(*args, "8192,8192", "--engine", "cpu")
        for words in ("(engine cpu, method tiles, tile ", "means    boxes of several axes, read run by run",
                      "fast     no: a copy of as many bytes is faster", " times a copy's predicted"):
            self.assertIn(words, text)

    def test_what_a_family_means(self):
        """The meaning depends on the tile that the family moves."""
        rows = (("tile_copy", [64, 4, 8], 0, "boxes of several axes: "), ("tile_copy", [32], 0, "boxes of several axes: "),
                ("tile_copy", [16, 256], 2048, "boxes, loaded into shared memory "),
                ("tile_copy", [1024], 16384, "long aligned runs, "),
                ("tile_transpose", [96, 256], 0, "boxes of several axes: "),
                ("tile_transpose", [64, 128], 128, "boxes, loaded into swizzled "), ("strided", [3, 512], 0, "tiles "),
                ("strided", [], 0, "rows, "))
        for family, tile, row_bytes, words in rows:
            with self.subTest(family=family, tile=tile):
                text = self.explain_lie({"family": family, "tile": tile, "tile_row": row_bytes})
                self.assertIn("means    " + words, text)

    def test_judged_by_the_prediction_or_else_by_the_family(self):
        rows = (("strided", {"predicted_ns": 1250, "copy_ns": 1000}, "yes: about as fast as a copy of as many bytes"),
                ("memcpy", {"predicted_ns": 1251, "copy_ns": 1000}, "no: a copy of as many bytes is faster"),
                ("strided", {"predicted_percent": 125}, "yes: about as fast as a copy of as many bytes"),
                ("memcpy", {"predicted_percent": 126}, "no: a copy of as many bytes is faster"),
                ("strided", {}, "no: the rules below rule the faster families out"),
                ("memcpy", {}, "yes: it moves as fast as memory does"))
        for family, times, words in rows:
            with self.subTest(family=family, times=times):
                self.assertIn("fast     " + words, self.explain_lie({"family": family, **times}))


class Hints(Case):
    """Hints of a service that is slow unless rows are whole multiples of 16 bytes, and of the real one, where they have
    to hold."""
    SLOW, FAST = 2, 1.1
    ARGS = ("--dtype", "float32", "--permute", "1,0", "--shape")

    def hint_of(self, is_fast, *args):
        """is_fast decides by dst and src of the request."""
        def answer(_, params):
            params, = params
            ratio = self.FAST if is_fast(params["dst"], params["src"]) else self.SLOW
            return {"family": "strided", "engine": "cuda", "tile": [], "swizzle": "none", "rules": [], "bytes": 8,
                    "predicted_ns": round(1000 * ratio), "copy_ns": 1000}
        with Liar(self.file("lies"), answer) as liar:
            hint = self.hint(*args, path=liar.path)
        os.unlink(liar.path)
        return hint

    def is_aligned(self, *tensors):
        """Returns whether rows begin at a multiple of 16 bytes."""
        return all((t["strides"][0] if t.get("strides") else t["shape"][-1]) * 4 % 16 == 0 for t in tensors)

    def is_whole(self, dst, src):
        """Returns whether rows begin and end at a multiple of 16 bytes."""
        return self.is_aligned(dst, src) and dst["shape"][-1] * 4 % 16 == 0

    def test_rows_further_apart(self):
        src = "the source's rows 512 elements (2048 bytes) apart instead of 510"
        dst = "the destination's rows 512 elements (2048 bytes) apart instead of 509"
        for shape, words in (("512,510", src), ("509,512", dst), ("509,510", f"{src} and {dst}")):
            with self.subTest(shape=shape):
                self.assertEqual(self.hint_of(self.is_aligned, *self.ARGS, shape),
                                 f"put {words}: the predicted time becomes 1.10 times a copy's")

    def test_larger_extents(self):
        self.assertEqual(self.hint_of(self.is_whole, *self.ARGS, "8191,8193"),
                         "pad columns of the source, which become rows of the destination, to 8192 elements (from 8191) and "
                         "rows of the source to 8196 elements (from 8193): the predicted time becomes 1.10 times a copy's")

    def test_larger_pads(self):
        def is_padded_by_whole_chunks(dst, _):
            return dst["shape"][-1] == 112
        self.assertEqual(self.hint_of(is_padded_by_whole_chunks, "--dtype", "float32", "--shape", "100,104", "--pad",
                                      "1:1,2:2"),
                         "pad rows of the destination by 4:4 elements (instead of 2:2): the predicted time becomes 1.10 times "
                         "a copy's")

    def test_a_file_has_no_rows_apart(self):
        path = os.path.join(self.directory, "a.npy")
        np.save(path, np.zeros((512, 510), "f4"))
        words = "pad rows of the source to 512 elements"
        self.assertIn(words, self.hint_of(self.is_whole, path, "--permute", "1,0", "--engine", "cuda"))
        np.save(path, np.asfortranarray(np.zeros((510, 512), "f4")))
        self.assertIn(words, self.hint_of(lambda _, src: src["strides"][1] == 512, path, "--engine", "cuda"))

    def test_no_hint_where_none_helps(self):
        self.assertIsNone(self.hint_of(lambda *_: False, *self.ARGS, "8191,8193"), "nothing helps")
        self.assertIsNone(self.hint_of(lambda *_: True, *self.ARGS, "8191,8193"), "it is fast")
        self.assertIsNone(self.hint(*self.ARGS, "8191,8193", "--engine", "cpu"), "no time is predicted")

    def test_a_hint_is_true(self):
        args = ["--dtype", "uint8", "--permute", "1,0", "--engine", "cuda"]
        slow = [*args, "--shape", "1000,1000", "--pad", "0:0,1:1"]
        hint = self.hint(*slow)
        self.assertTrue(hint.startswith("pad rows of the source to 1008 elements (from 1000) and rows of the destination by "
                                        "16:8 elements (instead of 1:1): "), hint)
        plan, better = self.plan(*slow), self.plan(*args, "--shape", "1000,1008", "--pad", "0:0,16:8")
        self.assertLess(better["predicted_ns"], plan["predicted_ns"])
        self.assertTrue(hint.endswith(f" {better['predicted_ns'] / better['copy_ns']:.2f} times a copy's"), hint)


class Times(Case):
    """Predicted and measured times side by side."""
    ARGS = ("--dtype", "float32", "--shape", "40,24", "--permute", "1,0")

    def time(self, *args, path=None):
        """Returns the line without its label; None if there is none."""
        done = tmactl("explain", *(args or self.ARGS), socket_path=path or self.tmad.path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.split("\n")
        start = [i for i, line in enumerate(lines) if line.startswith("time ")]
        if not start:
            return None
        end = next(i for i in range(start[0] + 1, len(lines)) if not lines[i].startswith(" "))
        return " ".join(line.removeprefix("time").strip() for line in lines[start[0]:end])

    def test_before_and_after_it_ran(self):
        self.assertTrue(self.time().endswith("not measured: the service has not run it"))
        self.assertEqual("predicted" in self.time(), ENGINE == "cuda")
        with self.tmad.rpc() as rpc:
            src, dst = (rpc.call("region_create", {"size": 4096})["region"] for _ in range(2))
            params = {"dst": {"region": dst, "dtype": "float32", "shape": [24, 40]},
                      "src": {"region": src, "dtype": "float32", "shape": [40, 24]}, "perm": [1, 0]}
            for runs in ("1 run", "median of 2 runs"):
                rpc.call("transform", params)
                self.assertRegex(self.time(), rf"[0-9] [mu]?s measured \({runs}\)$")
        plan = self.plan(*self.ARGS)
        self.assertEqual((plan["runs"], plan["measured_runs"]), (2, 2))
        self.assertGreater(plan["measured_ns"], 0)

    def test_another_engine(self):
        args = [*self.ARGS, "--engine"]
        other = self.time(*args, "cpu" if ENGINE == "cuda" else "cuda")
        if ENGINE == "cuda":
            self.assertIsNone(other, "a CPU of which nothing is known")
        else:
            self.assertRegex(other, r"^[0-9.]+ us predicted \([0-9]\.[0-9][0-9] times a copy's\)$")

    def test_words(self):
        cuda, cpu = {"engine": "cuda"}, {"engine": "cpu"}
        predicted = {"predicted_ns": 66123, "copy_ns": 60112}
        rows = (
            (cuda, None),
            ({**cuda, **predicted}, "66 us predicted (1.10 times a copy's)"),
            ({**cuda, **predicted, "runs": 0, "measured_runs": 0},
             "66 us predicted (1.10 times a copy's); not measured: the service has not run it"),
            ({**cuda, **predicted, "runs": 12, "measured_runs": 0},
             "66 us predicted (1.10 times a copy's); not measured: during its 12 runs, other transforms ran or data crossed "
             "the bus"),
            ({**cpu, "predicted_percent": 132}, "1.32 times a copy's predicted"),
            ({**cpu, "predicted_percent": 132, "runs": 1, "measured_runs": 1, "measured_ns": 9900},
             "1.32 times a copy's predicted; 9.9 us measured (1 run)"),
            ({**cpu, "runs": 1, "measured_runs": 0}, "not measured: during its 1 run, other transforms ran"),
            ({**cuda, **predicted, "runs": 12, "measured_runs": 7, "measured_ns": 1234567},
             "66 us predicted (1.10 times a copy's); 1.23 ms measured (median of 7 runs)"),
            ({**cpu, "runs": 12, "measured_runs": 8, "measured_ns": 432}, "0.4 us measured (median of the last 7 runs)"),
            ({**cpu, "runs": 1, "measured_runs": 1, "measured_ns": 9900}, "9.9 us measured (1 run)"),
        )
        answer = {}
        with Liar(self.file("lies"), lambda *_: answer) as liar:
            for plan, text in rows:
                with self.subTest(plan=plan):
                    answer = {"family": "memcpy", "tile": [], "swizzle": "none", "rules": [], "bytes": 8, **plan}
                    self.assertEqual(self.time(path=liar.path), text)


class Pictures(Case):
    def draw(self, *args):
        self.explain("--svg", self.svg, *args)
        plan = self.plan(*args)
        tree = xml.etree.ElementTree.parse(self.svg).getroot()
        self.assertEqual(tree.tag, SVG + "svg")
        width, height = int(tree.get("width")), int(tree.get("height"))
        for rect in tree.iter(SVG + "rect"):
            self.assertLessEqual(int(rect.get("x")) + int(rect.get("width")), width)
            self.assertLessEqual(int(rect.get("y")) + int(rect.get("height")), height)
        self.assertIn(plan["family"], "".join(tree.itertext()))
        return plan, tree

    def part(self, tree, name):
        found = [group for group in tree.iter(SVG + "g") if group.get("id") == name]
        self.assertEqual(len(found), 1, name)
        return found[0]

    def chunks(self, part):
        """Returns address, fill and position on the page by (row, chunk)."""
        got = {}
        for group in part.iter(SVG + "g"):
            if group.get("class") == "chunk":
                rect = group.find(SVG + "rect")
                key = int(group.get("data-row")), int(group.get("data-chunk"))
                self.assertNotIn(key, got)
                got[key] = int(group.get("data-address")), rect.get("fill"), int(rect.get("x")), int(rect.get("y"))
        return got

    def test_chunks_lie_where_the_unit_puts_them(self):
        rows = (["float16", "4096,4096", "--permute=1,0"], ["float32", "1024,1024", "--permute=1,0"],
                ["uint8", "4096,4096", "--permute=1,0"], ["float64", "512,1024", "--permute=1,0"],
                ["float32", "4,512,512", "--permute=0,2,1"])
        for dtype, shape, change in rows:
            with self.subTest(dtype=dtype, shape=shape):
                plan, tree = self.draw("--dtype", dtype, "--shape", shape, change, "--engine", "cuda")
                row_bytes = plan["tile_row"]
                self.assertGreater(row_bytes, 0)
                source, shared = self.chunks(self.part(tree, "source")), self.chunks(self.part(tree, "shared"))
                self.assertTrue(source and shared)
                for got in (source, shared):
                    for (row, chunk), (address, *_) in got.items():
                        self.assertEqual(address, swizzled(row * row_bytes + chunk * CHUNK, plan["swizzle"]))
                # On the right each chunk is in its line and under its banks; a colour stands for a group of banks.
                left, top = min(cell[2] for cell in shared.values()), min(cell[3] for cell in shared.values())
                across = sorted({cell[2] for cell in shared.values()})
                down = sorted({cell[3] for cell in shared.values()})
                self.assertEqual((across[0], down[0], len(across)), (left, top, 8))
                colours = {}
                for address, fill, x, y in shared.values():
                    self.assertEqual(across.index(x), address % LINE // CHUNK)
                    self.assertEqual(down.index(y), address // LINE)
                    self.assertEqual(colours.setdefault(x, fill), fill)
                self.assertEqual(len(set(colours.values())), 8)
                for address, fill, *_ in source.values():
                    self.assertEqual(fill, colours[across[address % LINE // CHUNK]])

    def test_a_column_is_in_all_banks(self):
        _, tree = self.draw("--dtype", "float16", "--shape", "4096,4096", "--permute", "1,0", "--engine", "cuda")
        source = self.chunks(self.part(tree, "source"))
        self.assertEqual(len({source[row, 0][1] for row in range(8)}), 8)
        self.assertIn("8 rows lie in 8 groups of banks", "".join(self.part(tree, "legend").itertext()))

    def test_elements_where_there_is_no_shared_memory(self):
        rows = (["--dtype", "float32", "--shape", "1000,1000", "--permute", "1,0", "--engine", "cpu"],
                ["--dtype", "float32", "--shape", "1000", "--engine", "cpu"],
                ["--dtype", "float32", "--shape", "", "--engine", "cuda"],
                ["--dtype", "float32", "--shape", "6,5", "--pad", "1:1,1:1", "--engine", "cpu"],
                ["--dtype", "float32", "--shape", "0,5", "--engine", "cpu"],
                ["--dtype", "float16", "--shape", "8191,8193", "--permute", "1,0", "--engine", "cuda"],
                ["--dtype", "uint8", "--shape", "640,480,4", "--permute", "2,0,1", "--engine", "cuda"])
        for args in rows:
            with self.subTest(args=args):
                plan, tree = self.draw(*args)
                numbers = []
                for side, key in (("source", "src_strides"), ("destination", "dst_strides")):
                    cells = {int(group.get("data-number")): int(group.get("data-offset"))
                             for group in self.part(tree, side).iter(SVG + "g") if group.get("class") == "element"}
                    numbers.append(set(cells))
                    strides = plan["tile_" + key] or plan[key]
                    for number, offset in cells.items():
                        if number == 1 and strides:
                            self.assertIn(offset, strides)
                self.assertEqual(numbers[0], numbers[1], "the same elements on both sides")

    def test_a_tile_of_many_axes(self):
        """The drawing shows the axes along which the tile is contiguous on either side."""
        plan, tree = self.draw("--dtype", "float64", "--shape", "15,15,15,15,15,15", "--permute", "5,4,3,2,1,0", "--engine",
                               "cuda")
        self.assertGreater(len(plan["tile"]), 2)
        for side in ("source", "destination"):
            offsets = [int(group.get("data-offset")) for group in self.part(tree, side).iter(SVG + "g")
                       if group.get("class") == "element"]
            self.assertEqual(sorted(offsets)[:3], [0, 8, 16], side)

    def test_a_file_that_cannot_be_written(self):
        args = ["--dtype", "int8", "--shape", "4", "--svg"]
        self.assertIn("nowhere/x.svg", self.explain(*args, os.path.join(self.directory, "nowhere/x.svg"), code=1))
        if os.path.exists("/dev/full"):
            self.assertIn("No space left", self.explain(*args, "/dev/full", code=1))


class Conversions(Case):
    SIZES = ("--layers", "3", "--blocks", "5", "--tokens", "7", "--heads", "8", "--head-size", "16", "--dtype", "bfloat16")

    def test_as_the_array_that_it_is(self):
        """A layout name gives the same plan as the corresponding strided array."""
        rows = (("nhd", "hnd", "30,7,8,16", "0,2,1,3"), ("flashinfer_nhd", "flashinfer_hnd", "30,7,8,16", "0,2,1,3"),
                ("layer_first", "page_first", "2,3,35,128", "0,2,1,3"), ("universal", "block_first", "5,8,6,7,16", "0,2,3,1,4"))
        for src, dst, shape, perm in rows:
            with self.subTest(src=src, dst=dst):
                converted = self.plan("--from", src, "--to", dst, *self.SIZES)
                permuted = self.plan("--dtype", "bfloat16", "--shape", shape, "--permute", perm)
                for key in ("family", "bytes", "shape", "dst_strides", "src_strides"):
                    self.assertEqual(converted[key], permuted[key], key)

    def test_heads_of_ranks(self):
        rows = (((), 8), (("--tp", "4", "--rank", "3"), 2), (("--from-tp", "2", "--from-rank", "1"), 4),
                (("--tp", "8", "--rank", "5", "--from-tp", "2", "--from-rank", "1"), 1), (("--tp", "16", "--rank", "1"), 1))
        for args, heads in rows:
            with self.subTest(args=args):
                plan = self.plan("--from", "nhd", "--to", "universal", *self.SIZES, *args)
                self.assertEqual(plan["bytes"], 2 * 2 * 3 * 2 * 5 * 7 * heads * 16)

    def test_in_words(self):
        lines = self.explain("--from", "nhd", "--to", "page_unified", *self.SIZES, "--group", "2", "--tp", "2", "--rank", "1",
                             "--kv", "1", "--engine", "cuda", "--svg", self.svg).split("\n")
        self.assertEqual(lines[:2], ["convert  nhd [l k n t h d] to page_unified [n g l k t h d] of rank 1 of 2",
                                     "         [3, 1, 5, 7, 2, 2, 16] of bfloat16"])
        self.assertIn("[3, 1, 5, 7, 2, 2, 16]", self.text_of(self.svg))

    def test_blocked_as_the_split_that_it_is(self):
        """A layout name, and --split, --permute and --join, give the same plan, also with an incomplete last block."""
        rows = (("nchw16c", "8,50,28,28", "8,4,28,28,16", "1:16", "0,1,3,4,2", "0,1,4,2,3", "1:50"),
                ("nhwc8c", "2,24,5,7", "2,5,7,3,8", "1:8", "0,3,4,1,2", "0,3,4,1,2", "1:24"),
                ("oihw4i16o4i", "32,16,3,3", "2,1,3,3,4,16,4", "0:16,2:16,3:4", "0,2,5,6,3,1,4", "0,5,1,4,6,2,3",
                 "3:16,2:16,0:32"),
                ("col32", "100,70", "3,100,32", "1:32", "1,0,2", "1,0,2", "1:70"),
                ("scales_128x4", "300,9", "3,3,32,4,4", "0:128,1:32,3:4", "0,3,2,1,4", "0,3,2,1,4", "3:9,1:128,0:300"))
        keys = ("family", "bytes", "shape", "dst_strides", "src_strides", "slabs", "parts")
        for layout, plain, blocked, split, perm, inverse, join in rows:
            with self.subTest(layout=layout):
                named = [self.plan(side, layout, "--dtype", "float16", "--shape", plain) for side in ("--to", "--from")]
                spelt = [self.plan("--dtype", "float16", "--shape", plain, "--split", split, "--permute", perm),
                         self.plan("--dtype", "float16", "--shape", blocked, "--permute", inverse, "--join", join)]
                for ours, theirs in zip(named, spelt):
                    self.assertEqual([ours.get(key) for key in keys], [theirs.get(key) for key in keys])

    def test_blocked_in_words(self):
        args = ("--dtype", "f4", "--shape", "8,50,28,28", "--svg", self.svg)
        self.assertEqual(self.explain("--to", "nchw16c", *args, "--value", "1").split("\n")[:2],
                         ["convert  a plain tensor to nchw16c [n C h w 16c]",
                          "         [8, 50, 28, 28] to [8, 4, 28, 28, 16] of float32"])
        self.assertEqual(self.explain("--from", "nchw16c", *args).split("\n")[:2],
                         ["convert  nchw16c [n C h w 16c] to a plain tensor",
                          "         [8, 4, 28, 28, 16] to [8, 50, 28, 28] of float32"])

    def test_blocked_refused(self):
        array = ("--dtype", "f4", "--shape", "8,50,28,28")
        rows = ((("--from", "nhd", "--to", "nchw16c", *array), ["--to nchw16c", "a plain tensor", "omit --from"]),
                (("--from", "nchw16c", "--to", "nhd", *self.SIZES), ["--from nchw16c", "a plain tensor", "omit --to"]),
                (("--from", "nchw16c", "--to", "nhwc8c", *array), ["--to nhwc8c", "a plain tensor", "omit --from"]),
                (("--to", "nchw16c", *array, "--heads", "8"), ["--to nchw16c", "--shape", "omit --heads"]),
                (("--to", "nchw16c", "--shape", "8,50,28,28"), ["--to", "needs --dtype"]),
                (("--from", "nchw16c", "--dtype", "f4"), ["--from", "needs --shape"]),
                (("--to", "nchw16c", "--dtype", "f4", "--shape", "8,50,28"), ["rank: 3", "nchw16c have 4"]),
                (("--to", "nchw16c", "--dtype", "f4", "--shape", f"8,50,{2**31},{2**31}"), ["--shape", "overflows"]),
                (("--to", "nchw16c", *array, "--permute", "0,1,2,3"), ["omit --permute"]),
                (("--from", "nchw16c", *array, "--value", "1"), ["--value 1", "nothing is padded"]),
                (("--to", "nchw16c", *array, "--mode", "edge"), ["--mode edge", "nothing is padded"]),
                (("--to", "nchw16c", *array[:2], "x.npy"), ["omit x.npy"]))
        for args, words in rows:
            with self.subTest(args=args):
                error = self.explain(*args, code=2)
                for word in words:
                    self.assertIn(word, error)

    def text_of(self, path):
        return " ".join(element.text or "" for element in xml.etree.ElementTree.parse(path).iter(SVG + "text"))

    def test_refused(self):
        pair = ("--from", "nhd", "--to", "hnd")
        rows = ((("--from", "nhd", *self.SIZES), ["needs --to"]), (("--tp", "2"), ["--tp", "needs --from"]),
                ((*pair, "--tokens", "3"), ["needs --dtype"]), ((*pair, *self.SIZES[:-4], "--dtype", "f2"), ["needs --head-size"]),
                (("--from", "nope"), ["--from nope", "tmactl layouts"]),
                ((*pair, *self.SIZES, "--shape", "4"), ["omit --shape"]),
                ((*pair, *self.SIZES, "--permute", "0"), ["omit --permute"]),
                ((*pair, *self.SIZES, "--split", "0:2"), ["omit --split"]),
                ((*pair, *self.SIZES, "--join", "0:2"), ["omit --join"]),
                ((*pair, *self.SIZES, "--pad", "0:0"), ["omit --pad"]), ((*pair, *self.SIZES, "x.npy"), ["omit x.npy"]),
                ((*pair, "--heads", "0"), ["--heads 0", "from 1 to"]), ((*pair, "--rank", "-1"), ["--rank -1", "from 0 to"]),
                ((*pair, "--blocks", "4294967296"), ["--blocks 4294967296"]), ((*pair, "--kv", "2x"), ["--kv 2x"]),
                ((*pair, *self.SIZES, "--tp", "3"), ["dst.heads: 8", "3 ranks"]),
                ((*pair, *self.SIZES, "--from-tp", "2", "--from-rank", "2"), ["src.rank: 2"]),
                ((*pair, *self.SIZES, "--tp", "2", "--from-tp", "2", "--from-rank", "1"), ["none is in both"]))
        for args, words in rows:
            with self.subTest(args=args):
                error = self.explain(*args, code=2)
                for word in words:
                    self.assertIn(word, error)


class Layouts(Case):
    def test_the_whole_table(self):
        with open(os.path.join(SOURCE, "client", "layouts.def"), encoding="utf-8") as file:
            rows = re.findall(r'^(KV|BLOCKED)\((\w+), (?:"[^"]*", )?"([^"]*)", "([^"]*)"\)$', file.read(), re.M)
        listed = json.loads(tmactl("layouts", "--json").stdout)
        self.assertEqual([(row["blocked"], row["name"], row["order"], row["doc"]) for row in listed],
                         [(kind == "BLOCKED", name, order, doc) for kind, name, order, doc in rows])
        words = tmactl("layouts").stdout
        for _, name, order, _ in rows:
            self.assertRegex(words, rf"(?m)^{name} +{order} ")


if __name__ == "__main__":
    tap.main()

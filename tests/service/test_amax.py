# SPDX-License-Identifier: Apache-2.0
"""Scales computed on the way, against NumPy, bit for bit: random transforms with amax, over blocks of all kinds.

The oracle of the casts is that of the other conversions (conversion.py); scales are calculated in float32. The seed is
printed; TEST_SEED repeats a run, TEST_CASES sets its length.
"""
import os
import random
import sys
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from conversion import SMALL, check_same, load, random_values, storage
from scales import blocks_of, encode, expand, power_of_two, quantize
from test_conversions import Bench
from tmad import RpcError, Tmad, share

TYPES = (*SMALL, "float32")


class Case:
    """A random request, its memory and what it should give."""

    def __init__(self, rng):
        self.source, self.target = (str(rng.choice(TYPES)) for _ in range(2))
        self.cast = str(rng.choice(("saturate", "saturate", "saturate", "exact")))
        rank = int(rng.integers(0, 5))
        most = int(rng.choice((3, 9, 40, 400, 3000))) if rank else 1
        self.shape = [int(rng.integers(1, most + 1)) for _ in range(rank)]
        room = int(rng.choice((60000, 60000, 60000, 600000)))
        while np.prod(self.shape, dtype=np.int64) > room:
            self.shape[int(rng.integers(0, rank))] = int(rng.integers(1, 30))
        self.perm = [int(d) for d in (rng.permutation(rank) if rng.integers(0, 2) else range(rank))]
        self.before, self.after = [0] * rank, [0] * rank
        cropped = [self.shape[d] for d in self.perm]
        for d in range(rank):
            if rng.integers(0, 4) == 0:
                self.before[d] = -int(rng.integers(0, min(3, cropped[d])))
                self.after[d] = -int(rng.integers(0, min(3, cropped[d] + self.before[d])))
                cropped[d] += self.before[d] + self.after[d]
        self.dst_shape = cropped
        self.block = [int(rng.choice((1, 2, 7, 16, 128, n, n, n + 5, max(n // 2, 1)))) for n in cropped]
        while np.prod(blocks_of(cropped, self.block), dtype=np.int64) > 4000:
            self.block[int(rng.integers(0, rank))] = 5000
        self.power_of_two = bool(rng.integers(0, 2))
        self.least = float(rng.choice((0, 0, 1e-4, 1.0, 1e30, 1e-45, 1e300)))
        self.dtypes = [str(rng.choice(("float32", "uint8"))) if self.power_of_two else "float32" for _ in range(2)]
        self.wanted = [("scale",), ("inverse",), ("scale", "inverse")][int(rng.integers(0, 3))]
        self.data = random_values(rng, self.source, self.shape)
        if rng.integers(0, 2):  # fewer of NaN, or none
            self._calm(rng)
        self.is_strided = bool(rng.integers(0, 3))

    def _calm(self, rng):
        values = load(self.data, self.source, np.float32)
        is_odd = ~np.isfinite(values) & (rng.random(self.data.shape) < 0.999)
        self.data = np.where(is_odd, np.zeros((), self.data.dtype), self.data)
        if self.source == "float32" and rng.integers(0, 2):
            with np.errstate(all="ignore"):
                self.data = (self.data * np.float32(rng.choice((2.0**-120, 2.0**-140)))).astype(np.float32)

    def expected(self):
        array = self.data.transpose(self.perm)
        array = array[tuple(slice(-b, n + a) for b, a, n in zip(self.before, self.after, array.shape))]
        stored, scale, inverse, same = quantize(array, self.source, self.target, self.block, self.least, self.power_of_two,
                                                self.cast == "saturate")
        self.fails = self.cast == "exact" and not same.all()
        return stored, {"scale": scale, "inverse": inverse}

    def __str__(self):
        return (f"{self.source} to {self.target} {self.cast} {self.shape} perm {self.perm} before {self.before} after "
                f"{self.after} block {self.block} power_of_two {self.power_of_two} least {self.least} {self.wanted} "
                f"{self.dtypes}")


def flipped(rng, view, at):
    """The same view, some of its dimensions backwards, and its description."""
    at = dict(at, strides=list(at["strides"]))
    for d in range(view.ndim):
        if rng.integers(0, 5) == 0 and view.shape[d] > 0:
            at["offset"] += (view.shape[d] - 1) * at["strides"][d] * view.itemsize
            at["strides"][d] = -at["strides"][d]
            view = np.flip(view, d)
    return view, at


class AmaxCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmad = Tmad()
        cls.addClassCleanup(cls.tmad.stop)

    def setUp(self):
        self.rpc = self.tmad.rpc()
        self.addCleanup(self.rpc.close)
        self.bench = Bench(self.rpc)
        self.addCleanup(self.bench.close)

    def place(self, rng, dtype, shape, strided=True):
        placed = self.bench.place(rng, dtype, shape, strided)
        return flipped(rng, *placed) if strided else placed

    def request(self, rng, case):
        """What to send, and the views of what is written with what is to be there."""
        self.bench.begin()
        data, numbers = case.expected()
        src, src_at = self.place(rng, storage(case.source), case.shape, case.is_strided)
        src[...] = case.data
        dst, dst_at = self.place(rng, storage(case.target), data.shape, case.is_strided)
        amax = {"block": case.block, "power_of_two": case.power_of_two, "least": case.least}
        written = [(case.target, dst, data)]
        for name, dtype in zip(("scale", "inverse"), case.dtypes):
            if name in case.wanted:
                view, at = self.place(rng, dtype, numbers[name].shape)
                amax[name] = {**at, "dtype": dtype}
                written.append((dtype, view, encode(numbers[name], dtype)))
        return {"dst": {**dst_at, "dtype": case.target}, "src": {**src_at, "dtype": case.source}, "perm": case.perm,
                "before": case.before, "after": case.after, "cast": case.cast, "amax": amax}, written

    def test_random_scales(self):
        seed = int(os.environ.get("TEST_SEED", random.randrange(1 << 31)))
        cases = int(os.environ.get("TEST_CASES", share(2000)))
        print(f"# seed {seed}, {cases} cases", flush=True)
        for i in range(cases):
            rng = np.random.default_rng([seed, i])
            case = Case(rng)
            params, written = self.request(rng, case)
            before = self.bench.bytes[:self.bench.at].copy()
            what = f"seed {seed} case {i}: {case}"
            status = None
            try:
                self.rpc.call("transform", params)
            except RpcError as e:
                status = e.name
                self.assertEqual(status, "OUT_OF_RANGE", f"{what}: {e}")
            self.assertEqual(status, "OUT_OF_RANGE" if case.fails else None, what)
            for place, (name, view, expected) in zip(("dst", "first", "second"), written):
                check_same(self, view, expected, f"{what}: {place}", name if place == "dst" else None)
            got = self.bench.bytes[:self.bench.at].copy()
            self.bench.bytes[:self.bench.at] = before
            untouched = np.ones(self.bench.at, bool)
            self.bench.bytes[:self.bench.at] = 0
            for _, view, _ in written:
                view.view(f"u{view.itemsize}")[...] = np.iinfo(f"u{view.itemsize}").max
            untouched[self.bench.bytes[:self.bench.at] != 0] = False
            self.assertTrue(np.array_equal(got[untouched], before[untouched]), f"{what}: other bytes were written")
        self.assertGreater(cases, 0)

    def check_request(self, method, params, written, what):
        reply = self.rpc.call(method, params)
        self.assertFalse(any(reply.get("statuses", ())), f"{what}: {reply}")
        for at, (name, view, expected) in enumerate(written):
            check_same(self, view, expected, f"{what}: {at}", name if at == 0 else None)

    # Large blocks are done in two passes, by all threads: (shape of the source, perm, block).
    LARGE = (([500, 900], [0, 1], [500, 900]), ([500, 900], [1, 0], [900, 500]), ([1300000], [0], [400001]),
             ([900, 1300], [0, 1], [401, 900]), ([900, 1300], [1, 0], [700, 400]), ([4, 300, 1250], [2, 0, 1], [1250, 3, 300]),
             ([6, 140000], [0, 1], [1, 140000]), ([140000, 6], [1, 0], [1, 140000]), ([7, 90000], [0, 1], [3, 90000]),
             ([140000, 6], [1, 0], [4, 70000]))

    def test_large_blocks(self):
        self.bench = LargeBench(self.rpc)
        self.addCleanup(self.bench.close)
        for i, (shape, perm, block) in enumerate(self.LARGE):
            source, target = (("float32", "float8_e4m3fn"), ("bfloat16", "float8_e5m2"))[i % 2]
            with self.subTest(shape=shape, perm=perm, block=block, source=source):
                rng = np.random.default_rng([7, i])
                case = Case(rng)
                case.source, case.target, case.shape, case.perm, case.block = source, target, shape, perm, block
                case.cast, case.before, case.after = "saturate", [0] * len(shape), [0] * len(shape)
                numbers = rng.standard_normal(shape)
                case.data = SMALL[source].store(numbers, True) if source in SMALL else numbers.astype(source)
                params, written = self.request(rng, case)
                self.check_request("transform", params, written, str(case))

    def test_deepgemm(self):
        """per_token_cast_to_fp8 and per_block_cast_to_fp8 of DeepGEMM, as they are defined there."""
        def to_e4m3(values):
            return SMALL["float8_e4m3fn"].store(values.astype(np.float64), True)

        def per_token(x):
            m, n = x.shape
            view = x.reshape(m, -1, 128)
            amax = np.maximum(np.abs(view).max(axis=2), np.float32(1e-4))
            sf = amax / np.float32(448)
            return to_e4m3((view * (np.float32(1) / sf)[:, :, None]).astype(np.float32)).reshape(m, n), sf

        def per_block(x):
            m, n = x.shape
            padded = np.zeros((-(-m // 128) * 128, -(-n // 128) * 128), np.float32)
            padded[:m, :n] = x
            view = padded.reshape(-1, 128, padded.shape[1] // 128, 128)
            amax = np.maximum(np.abs(view).max(axis=(1, 3), keepdims=True), np.float32(1e-4))
            sf = amax / np.float32(448)
            scaled = (view * (np.float32(1) / sf)).astype(np.float32)
            return to_e4m3(scaled).reshape(padded.shape)[:m, :n], sf.reshape(view.shape[0], view.shape[2])

        def ceil_to_ue8m0(x):
            return power_of_two(x)

        def with_ue8m0(cast):
            def cast_with(x):
                _, sf = cast(x)
                sf = ceil_to_ue8m0(sf)
                wide = expand(np.float32(1) / sf, x.shape, (1, 128) if cast is per_token else (128, 128))
                return to_e4m3((x * wide).astype(np.float32)), sf
            return cast_with

        rng = np.random.default_rng(3)
        x = (rng.standard_normal((300, 896)) * 10.0 ** rng.integers(-6, 3, (300, 1))).astype(np.float32)
        x = load(SMALL["bfloat16"].store(x.astype(np.float64), True), "bfloat16", np.float32)
        x[5, 128:256] = 0
        for name, cast, block, is_power in (("per token", per_token, [1, 128], False), ("per block", per_block, [128, 128], False),
                                            ("per token, ue8m0", with_ue8m0(per_token), [1, 128], True),
                                            ("per block, ue8m0", with_ue8m0(per_block), [128, 128], True)):
            with self.subTest(name):
                data, sf = cast(x)
                self.bench.begin()
                src, src_at = self.bench.place(rng, np.uint16, x.shape)
                src[...] = SMALL["bfloat16"].store(x.astype(np.float64), True)
                dst, dst_at = self.bench.place(rng, np.uint8, x.shape)
                scale, scale_at = self.bench.place(rng, np.float32, sf.shape)
                amax = {"block": block, "least": 1e-4, "power_of_two": is_power, "scale": {**scale_at, "dtype": "float32"}}
                self.check_request("copy", {"dst": {**dst_at, "dtype": "float8_e4m3fn"}, "src": {**src_at, "dtype": "bfloat16"},
                                            "cast": "saturate", "amax": amax},
                                   [("float8_e4m3fn", dst, data), ("float32", scale, np.ascontiguousarray(sf))], name)

    # ---- Plans, batches, errors -------------------------------------------------------------------------------------

    def small(self):
        """A request whose tensors lie one after the other in the region, and what is written."""
        rng = np.random.default_rng(11)
        self.bench.begin()
        data = rng.standard_normal((6, 8)).astype(np.float32)
        stored, scale, inverse, _ = quantize(data, "float32", "float8_e4m3fn", [2, 4])
        views = []
        places = []
        for array in (data, stored, scale, inverse):
            self.bench.at += -self.bench.at % 64
            view, at = self.bench.place(rng, array.dtype, array.shape, strided=False)
            views.append(view)
            places.append(at)
        views[0][...] = data
        src, dst, to_scale, to_inverse = places
        params = {"dst": {**dst, "dtype": "float8_e4m3fn"}, "src": {**src, "dtype": "float32"}, "cast": "saturate",
                  "amax": {"block": [2, 4], "scale": {**to_scale, "dtype": "float32"},
                           "inverse": {**to_inverse, "dtype": "float32"}}}
        return params, [("float8_e4m3fn", views[1], stored), ("float32", views[2], scale), ("float32", views[3], inverse)]

    @staticmethod
    def without_places(params):
        def bare(tensor):
            return {k: v for k, v in tensor.items() if k not in ("region", "offset")}
        amax = {**params["amax"], **{k: bare(params["amax"][k]) for k in ("scale", "inverse") if k in params["amax"]}}
        return {**params, "dst": bare(params["dst"]), "src": bare(params["src"]), "amax": amax}

    @staticmethod
    def places(params):
        def place(tensor):
            return [tensor["region"], tensor["offset"]]
        return {"dst": place(params["dst"]), "src": place(params["src"]), "amax_scale": place(params["amax"]["scale"]),
                "amax_inverse": place(params["amax"]["inverse"])}

    def test_plans_and_batches(self):
        params, written = self.small()

        def check(what, method, sent):
            for _, view, _ in written:
                view.view(np.uint8)[...] = 0xee
            self.check_request(method, sent, written, what)

        plan = self.rpc.call("plan_prepare", self.without_places(params))["plan"]
        run = {"plan": plan, **self.places(params)}
        check("plan_run", "plan_run", run)
        check("submit of a transform", "submit", {"items": [params]})
        check("submit of a plan", "submit", {"items": [run]})
        for change, status, message in (
                ({"amax_scale": None}, "INVALID_ARGUMENT", "amax_scale: missing, but the plan's is a tensor"),
                ({"scale": run["src"]}, "INVALID_ARGUMENT", "scale: a place, but the plan has no tensor for it"),
                ({"amax_inverse": run["dst"]}, "OVERLAP", "amax.inverse: it shares bytes with dst"),
                ({"amax_inverse": run["amax_scale"]}, "OVERLAP", "amax.inverse: it shares bytes with amax.scale"),
                ({"amax_scale": [run["dst"][0], Bench.SIZE - 4]}, "OUT_OF_RANGE", "amax.scale")):
            sent = {k: v for k, v in {**run, **change}.items() if v is not None}
            with self.subTest(change=change):
                with self.assertRaises(RpcError) as caught:
                    self.rpc.call("plan_run", sent)
                self.assertEqual(caught.exception.name, status, caught.exception)
                self.assertIn(message, str(caught.exception))
        with self.assertRaises(RpcError) as caught:
            self.rpc.call("plan_prepare", {**self.without_places(params), "amax": params["amax"]})
        self.assertIn("amax.scale.region: 1, but plan_prepare takes no region", str(caught.exception))
        only = self.without_places({**params, "amax": {k: v for k, v in params["amax"].items() if k != "inverse"}})
        plan = self.rpc.call("plan_prepare", only)["plan"]
        with self.assertRaises(RpcError) as caught:
            self.rpc.call("plan_run", {**run, "plan": plan})
        self.assertIn("amax_inverse: a place, but the plan has no tensor for it", str(caught.exception))

    def test_a_batch_of_large_blocks(self):
        """Of each item's own elements, though a device keeps their magnitudes in one place."""
        rng = np.random.default_rng(12)
        self.bench.begin()
        items, written = [], []
        for factor, shape, block in ((100, (700, 200), (700, 200)), (1, (700, 200), (350, 200)), (10, (40, 30), (40, 30)),
                                     (0.1, (500, 300), (500, 300))):
            data = (rng.standard_normal(shape) * factor).astype(np.float32)
            stored, scale, _, _ = quantize(data, "float32", "float8_e4m3fn", block)
            (src, src_at), (dst, dst_at), (to_scale, scale_at) = (
                self.bench.place(rng, array.dtype, array.shape, strided=False) for array in (data, stored, scale))
            src[...] = data
            items.append({"dst": {**dst_at, "dtype": "float8_e4m3fn"}, "src": {**src_at, "dtype": "float32"},
                          "cast": "saturate", "amax": {"block": list(block), "scale": {**scale_at, "dtype": "float32"}}})
            written += [("float8_e4m3fn", dst, stored), ("float32", to_scale, scale)]
        self.check_request("submit", {"items": items}, written, "four items")

    def test_refusals(self):
        params, _ = self.small()
        amax, scale = params["amax"], params["amax"]["scale"]

        def with_amax(**change):
            return {"amax": {k: v for k, v in {**amax, **change}.items() if v is not None}}

        def with_scale(**change):
            return with_amax(scale={**scale, **change})

        rows = (
            ("INVALID_ARGUMENT", "elements are converted only with cast", {"cast": None}),
            ("INVALID_ARGUMENT", "amax: only with cast", {"cast": None, "src": {**params["dst"], "offset": 4096}}),
            ("INVALID_ARGUMENT", "amax: beside scale;", {"scale": 2}),
            ("INVALID_ARGUMENT", "amax: beside bias;", {"bias": 2}),
            ("INVALID_ARGUMENT", "amax: src is int32, but", {"src": {**params["src"], "dtype": "int32"}}),
            ("INVALID_ARGUMENT", "amax: src is float64, but", {"src": {**params["src"], "dtype": "float64"}}),
            ("INVALID_ARGUMENT", "amax: dst is int8, but", {"dst": {**params["dst"], "dtype": "int8"}}),
            ("INVALID_ARGUMENT", "amax: dst is bool, but", {"dst": {**params["dst"], "dtype": "bool"}}),
            ("INVALID_ARGUMENT", "complex types are not converted", {"src": {**params["src"], "dtype": "complex64"}}),
            ("INVALID_ARGUMENT", "amax: dimension 1 is padded",
             {"after": [0, 1], "dst": {**params["dst"], "shape": [6, 9], "strides": [9, 1]}}),
            ("INVALID_ARGUMENT", "amax: dst is split;", {"dst": {**params["dst"], "split": [0, 2]}, "src": {**params["src"], "split": [0, 2]}}),
            ("INVALID_ARGUMENT", "amax: scale and inverse are missing;", with_amax(scale=None, inverse=None)),
            ("INVALID_ARGUMENT", "missing", with_amax(block=None)),
            ("INVALID_ARGUMENT", "amax.block: length 1, but dst has rank 2;", with_amax(block=[2])),
            ("INVALID_ARGUMENT", "amax.block: dimension 1 is 0, but", with_amax(block=[2, 0])),
            ("INVALID_ARGUMENT", "amax.block: dimension 0 is -1, but", with_amax(block=[-1, 4])),
            ("INVALID_ARGUMENT", "amax.least: -1, but it must be 0 or more", with_amax(least=-1)),
            ("INVALID_ARGUMENT", "amax.least: nan, but it must be 0 or more", with_amax(least=float("nan"))),
            ("INVALID_ARGUMENT", "amax.least: a complex number", with_amax(least=[1.0, 0.0])),
            ("INVALID_ARGUMENT", "amax.scale.dtype: float64, but", with_scale(dtype="float64")),
            ("INVALID_ARGUMENT", "amax.scale.dtype: uint8 has the exponents of powers of two;", with_scale(dtype="uint8")),
            ("INVALID_ARGUMENT", "amax.scale.shape: rank 1, but dst has rank 2;", with_scale(shape=[6], strides=[1])),
            ("INVALID_ARGUMENT", "amax.scale.shape: dimension 0 is 2, but dst has 3 blocks there",
             with_scale(shape=[2, 3], strides=[3, 1])),
            ("INVALID_ARGUMENT", "amax.scale.split: it is not split", with_scale(split=[0, 1])),
            ("INVALID_ARGUMENT", "amax.scale.region: missing", with_scale(region=None)),
            ("NOT_FOUND", "amax.scale.region: this connection has no region", with_scale(region=4711)),
            ("OUT_OF_RANGE", "amax.scale", with_scale(offset=Bench.SIZE)),
            ("OVERLAP", "amax.scale.strides: dimension 0 has stride 0", with_scale(strides=[0, 1])),
            ("OVERLAP", "amax.scale: it shares bytes with dst", with_scale(offset=params["dst"]["offset"] & ~3)),
            ("OVERLAP", "amax.scale: it shares bytes with src", with_scale(offset=params["src"]["offset"] + 8)),
            ("OVERLAP", "amax.inverse: it shares bytes with amax.scale", with_amax(inverse={**amax["inverse"],
                                                                                       "offset": scale["offset"] + 4})),
        )
        for status, message, change in rows:
            with self.subTest(message):
                sent = {k: v for k, v in {**params, **change}.items() if v is not None}
                for name in ("scale",):
                    if name in sent["amax"]:
                        sent["amax"] = {**sent["amax"], name: {k: v for k, v in sent["amax"][name].items() if v is not None}}
                with self.assertRaises(RpcError) as caught:
                    self.rpc.call("transform", sent)
                self.assertEqual(caught.exception.name, status, caught.exception)
                self.assertIn(message, str(caught.exception))

    def test_where_it_is_not(self):
        """gather has no amax, a plan with it takes no table, a region that is not writable takes no scale."""
        params, _ = self.small()
        with self.assertRaises(RpcError) as caught:
            self.rpc.call("gather", {**params, "index_dtype": "int32", "index": b"\0\0\0\0"})
        self.assertIn('unknown field "amax" of gather', str(caught.exception))
        plan = self.rpc.call("plan_prepare", self.without_places(params))["plan"]
        region, offset = params["dst"]["region"], params["dst"]["offset"]
        table = self.rpc.call("table_prepare", {"places": np.array([region, offset], "<u8").tobytes()})["table"]
        with self.assertRaises(RpcError) as caught:
            self.rpc.call("plan_run", {"plan": plan, "dst_table": table, "src": [region, params["src"]["offset"]]})
        self.assertEqual(caught.exception.name, "UNSUPPORTED")
        self.assertIn("all its runs would write the same scales", str(caught.exception))

    def test_explain(self):
        params, _ = self.small()
        for engine in ("cpu", "cuda"):
            self.assertEqual(self.rpc.call("explain", {**params, "engine": engine})["family"], "convert")


class LargeBench(Bench):
    SIZE = 64 << 20


if __name__ == "__main__":
    tap.main()

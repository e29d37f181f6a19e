# SPDX-License-Identifier: Apache-2.0
"""explain tells the time that the planner predicts, and the one that was measured when the plan ran."""
import math
import os
import signal
import statistics
import struct
import sys
import tempfile
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import scrape
import tap
from raw import RawCase
from tmad import ENGINE, Tmad, by_engine, tensor, wait_until

KEPT = 7  # measured times of a plan
ROWS, COLUMNS = 48, 80
SIZE = ROWS * COLUMNS * 4


class Times(RawCase):
    def setUp(self):
        super().setUp()
        self.src, self.dst = (self.rpc.call("region_create", {"size": 2 * SIZE})["region"] for _ in range(2))

    def params(self, dtype="uint32"):
        """Each test has a type of its own, and so a plan."""
        return {"dst": tensor(self.dst, [COLUMNS, ROWS], dtype), "src": tensor(self.src, [ROWS, COLUMNS], dtype),
                "perm": [1, 0]}

    def explain(self, params, **more):
        return self.rpc.call("explain", {**params, **more})

    def counts(self, params):
        plan = self.explain(params)
        self.assertEqual("measured_ns" in plan, plan["measured_runs"] > 0)
        return plan["runs"], plan["measured_runs"]

    def test_before_and_after_it_ran(self):
        params = self.params()
        self.assertEqual(self.counts(params), (0, 0))
        times = []
        for _ in range(KEPT + 4):
            times.append(self.rpc.call("transform", params)["ns"])
            plan = self.explain(params)
            self.assertEqual((plan["runs"], plan["measured_runs"]), (len(times), len(times)))
            self.assertEqual(plan["measured_ns"], int(statistics.median(times[-KEPT:])))
        for part in ("dst", "src"):
            del params[part]["region"]
        self.assertEqual(self.explain(params), plan, "and without regions")

    def test_a_prediction(self):
        plan = self.explain(self.params("int32"))
        for key in ("predicted_ns", "copy_ns"):
            self.assertEqual(key in plan, ENGINE == "cuda", key)
        if ENGINE == "cuda":
            self.assertGreater(plan["predicted_ns"], 0)
            self.assertGreater(plan["copy_ns"], 0)

    def test_the_cpus_ways(self):
        """By its model where the destination bypasses the cache; else not said."""
        rows = (("a copy", [4096, 4096], None, "microkernel", 1),
                ("bytes transposed", [4096, 4096], [1, 0], "tiles", 2),
                ("short axes", [4, 1024, 8, 512], [3, 2, 1, 0], "tiles", 3),
                ("what a cache may hold", [512, 512], [1, 0], None, 2))
        for name, shape, perm, method, least in rows:
            with self.subTest(name):
                out = [shape[p] for p in perm] if perm else shape
                params = {"dst": {"dtype": "uint8", "shape": out}, "src": {"dtype": "uint8", "shape": shape}}
                plan = self.explain({**params, **({"perm": perm} if perm else {})}, engine="cpu")
                self.assertEqual(plan.get("method"), method)
                self.assertEqual("predicted_percent" in plan, method is not None)
                self.assertNotIn("predicted_ns", plan)
                if method == "tiles":
                    self.assertGreaterEqual(len(plan["tile"]), least)
                    self.assertGreater(plan["predicted_percent"], 100)
                    for n, stride in zip(plan["tile"], plan["tile_dst_strides"]):
                        whole = plan["shape"][plan["dst_strides"].index(stride)]
                        self.assertTrue(1 < n <= whole, f"{n} of {whole}")
                elif method:
                    self.assertEqual((plan["predicted_percent"], plan["tile"]), (100, []))

    def test_only_the_cpu_has_ways(self):
        plan = self.explain({**self.params("float16"), "engine": "cuda"})
        self.assertFalse({"method", "predicted_percent"} & set(plan))

    def test_an_engine_that_is_not_here(self):
        params = self.params("float32")
        self.rpc.call("transform", params)
        plan = self.explain(params, engine=by_engine(cpu="cuda", cuda="cpu"))
        for key in ("runs", "measured_runs", "measured_ns"):
            self.assertNotIn(key, plan)
        for key in ("predicted_ns", "copy_ns"):
            self.assertEqual(key in plan, ENGINE == "cpu", f"{key} of an H200")
        self.assertEqual(self.explain(params, engine=ENGINE)["runs"], 1)

    def test_a_copy_on_an_h200(self):
        """8.6 GB take 2.0 ms (tests/bench/README.md)."""
        if ENGINE == "cuda":
            self.skipTest("this engine's device is another one")
        large = {"dtype": "float32", "shape": [32768, 32768]}
        plan = self.explain({"dst": large, "src": large}, engine="cuda")
        self.assertAlmostEqual(plan["copy_ns"] / 2020e3, 1, delta=0.03)
        self.assertEqual(plan["predicted_ns"], plan["copy_ns"], "it is a copy")

    def test_other_ways_to_run_it(self):
        """A prepared plan's runs count; those of many transforms together have no time of their own."""
        params = {"dst": tensor(self.dst, [SIZE]), "src": tensor(self.src, [SIZE])}
        layouts = {part: {key: value for key, value in params[part].items() if key != "region"} for part in ("dst", "src")}
        plan = self.rpc.call("plan_prepare", layouts)["plan"]
        self.rpc.call("plan_run", {"plan": plan, "dst": [self.dst, 0], "src": [self.src, 0]})
        self.assertEqual(self.counts(params), (1, 1))
        self.rpc.call("submit", {"items": [params, {"plan": plan, "dst": [self.dst, SIZE], "src": [self.src, 0]}]})
        self.rpc.call("gather", {**params, "index": struct.pack("<i", 0), "limit": 1})
        self.assertEqual(self.counts(params), (1, 1))
        self.refused("OUT_OF_RANGE", "plan_run", {"plan": plan, "dst": [self.dst, 2 * SIZE], "src": [self.src, 0]})
        self.assertEqual(self.counts(params), (1, 1))
        self.rpc.call("plan_release", {"plan": plan})

    def test_other_connections_have_the_same_plan(self):
        params = self.params("uint16")
        with self.tmad.rpc() as other:
            dst, src = (other.call("region_create", {"size": SIZE})["region"] for _ in range(2))
            other.call("transform", {**params, "dst": {**params["dst"], "region": dst},
                                     "src": {**params["src"], "region": src}})
            self.assertEqual(self.counts(params), (1, 1))

    def test_memory_of_the_host(self):
        """On a device its bytes cross the bus: that time says nothing of the plan."""
        params = self.params("float16")
        _, region = self.region(SIZE)
        self.rpc.call("transform", {**params, "src": {**params["src"], "region": region}})
        self.assertEqual(self.counts(params), (1, by_engine(cpu=1, cuda=0)))
        self.rpc.call("region_release", {"region": region})


if __name__ == "__main__":
    tap.main()

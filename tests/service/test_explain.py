# SPDX-License-Identifier: Apache-2.0
"""What explain says of time: what the planner predicts, what was measured when the plan ran, what else is tried."""
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


@unittest.skipUnless(ENGINE == "cuda", "only an engine that predicts times tries alternatives")
class Alternatives(RawCase):
    """The stand-in's memory is said to be so slow that transforms of 100 KB are worth it."""
    SHAPE, PERM = (20, 22, 14, 10), (3, 1, 2, 0)
    MADE = (10, 22, 14, 20)
    SIZE = 2 * math.prod(SHAPE)
    STEP = (SIZE + 255) // 256 * 256  # from a destination to the next: all have the same plan
    ROOM = 24  # destinations
    MOST_RUNS = 120

    def setUp(self):
        super().setUp()
        self.array = np.random.default_rng(5).integers(0, 1 << 16, self.SHAPE, np.uint16)
        self.src = self.rpc.call("region_create", {"size": self.SIZE})["region"]
        self.dst = self.rpc.call("region_create", {"size": self.ROOM * self.STEP})["region"]
        _, source = self.region(self.SIZE, data=self.array.tobytes())
        self.copy(self.src, source, self.SIZE)

    def copy(self, dst, src, size):
        """Host memory, so that it is not measured, and one run, of which there is one plan."""
        self.rpc.call("copy", {"dst": tensor(dst, [size]), "src": tensor(src, [size])})

    def params(self, i=0, dtype="uint16"):
        return {"dst": tensor(self.dst, self.MADE, dtype, offset=i * self.STEP),
                "src": tensor(self.src, self.SHAPE, dtype), "perm": list(self.PERM)}

    def explain(self, **fields):
        return self.rpc.call("explain", self.params(**fields))

    def check(self, places):
        """Each of the first destinations is the transpose."""
        result, region = self.region(self.ROOM * self.STEP)
        self.copy(region, self.dst, self.ROOM * self.STEP)
        expected = self.array.transpose(self.PERM).tobytes()
        for i in range(places):
            self.assertEqual(result[i * self.STEP:i * self.STEP + self.SIZE], expected, f"destination {i}")

    def check_plans(self, plan):
        """What is always so of the list."""
        plans = plan["alternatives"]
        in_use, = (one for one in plans if one["in_use"])
        self.assertEqual((in_use["family"], in_use["tile"], in_use["predicted_ns"]),
                         (plan["family"], plan["tile"], plan["predicted_ns"]))
        predicted = [one["predicted_ns"] for one in plans]
        self.assertEqual(predicted[1:], sorted(predicted[1:]))
        for one in plans:
            self.assertIn(one["state"], ("tried", "dropped", "untried"))
            self.assertTrue(one["state"] == "untried" or one["measured_ns"] > 0)
        return plans

    def test_a_layout_settles(self):
        untried = self.check_plans(self.explain())
        self.assertGreater(len(untried), 2)
        self.assertEqual({one["state"] for one in untried}, {"untried"})
        self.assertTrue(untried[0]["in_use"], "the one predicted to be the fastest")
        for runs in range(1, self.MOST_RUNS):
            self.rpc.call("transform", self.params((runs - 1) % self.ROOM))
            plan = self.explain()
            plans = self.check_plans(plan)
            self.assertEqual(plan["runs"], runs)
            self.assertEqual([one["predicted_ns"] for one in plans], [one["predicted_ns"] for one in untried])
            if plan["settled"]:
                break
        self.assertTrue(plan["settled"])
        self.assertNotIn("untried", {one["state"] for one in plans})
        self.assertIn("tried", [one["state"] for one in plans if one["in_use"]])
        self.assertGreater(runs, len(plans), "each has run at least once, the first one thrice")
        self.check(min(runs, self.ROOM))
        done = self.rpc.call("transform", self.params())
        self.assertEqual(done["path"], plan["family"])
        self.assertEqual(self.explain()["alternatives"], plans, "the search is over")

    def test_while_runs_are_queued(self):
        """Of the layout and of a prepared plan, by two connections; the second has the bytes of another type."""
        with self.tmad.rpc() as other:
            dst, src = (other.call("region_create", {"size": self.SIZE})["region"] for _ in range(2))
            layouts = {"dst": {"dtype": "int16", "shape": self.MADE}, "src": {"dtype": "int16", "shape": self.SHAPE}}
            prepared = other.call("plan_prepare", {**layouts, "perm": list(self.PERM)})["plan"]
            for _ in range(8):
                requests = [self.rpc.request("transform", self.params(i, "int16")) for i in range(self.ROOM)]
                run = other.request("plan_run", {"plan": prepared, "dst": [dst, 0], "src": [src, 0]})
                for msgid in requests:
                    self.rpc.reply(msgid)
                other.reply(run)
                self.check(self.ROOM)
                if self.explain(dtype="int16")["settled"]:
                    break
            plan = self.explain(dtype="int16")
            self.check_plans(plan)
            self.assertTrue(any(one["state"] != "untried" for one in plan["alternatives"]), plan["alternatives"])
            self.rpc.call("submit", {"items": [self.params(i, "int16") for i in range(self.ROOM)]})
            self.check(self.ROOM)

    def test_runs_from_host_memory_in_between(self):
        """They take part in nothing, and disturb nothing."""
        _, host = self.region(self.SIZE)
        for _ in range(self.MOST_RUNS):
            params = self.params(dtype="float16")
            self.rpc.call("transform", params)
            self.rpc.call("transform", {**params, "src": {**params["src"], "region": host}})
            if self.explain(dtype="float16")["settled"]:
                break
        self.assertTrue(self.explain(dtype="float16")["settled"])

    def test_what_is_brief_or_one_run_has_one_plan(self):
        for params in ({"dst": tensor(self.dst, [4, 4]), "src": tensor(self.src, [4, 4]), "perm": [1, 0]},
                       {"dst": tensor(self.dst, [self.SIZE]), "src": tensor(self.src, [self.SIZE])}):
            for _ in range(3):
                self.rpc.call("transform", params)
            plan = self.rpc.call("explain", params)
            self.assertNotIn("alternatives", plan)
            self.assertNotIn("settled", plan)

    def test_it_can_be_switched_off_and_on(self):
        """By a reload; metrics count what has been settled."""
        with tempfile.TemporaryDirectory() as directory:
            config, address = os.path.join(directory, "tmad.conf"), f"unix:{directory}/metrics"
            with open(config, "w", encoding="ascii") as file:
                file.write("[tmad]\ntune = off\n")
            with Tmad(f"--config={config}", f"--metrics={address}") as tmad, tmad.rpc() as rpc:
                dst, src = (rpc.call("region_create", {"size": self.SIZE})["region"] for _ in range(2))
                params = {"dst": tensor(dst, self.MADE, "uint16"), "src": tensor(src, self.SHAPE, "uint16"),
                          "perm": list(self.PERM)}
                for _ in range(5):
                    rpc.call("transform", params)
                plan = rpc.call("explain", params)
                self.assertEqual((plan["runs"], plan["measured_runs"]), (5, 5), "all by the same plan")
                self.assertNotIn("alternatives", plan)
                with open(config, "w", encoding="ascii") as file:
                    file.write("[tmad]\ntune = on\n")
                tmad.process.send_signal(signal.SIGHUP)
                wait_until(lambda: "alternatives" in rpc.call("explain", params), "the setting is in force")
                self.assertEqual(self.settled(address), (0, 0))
                for _ in range(self.MOST_RUNS):
                    rpc.call("transform", params)
                plan = rpc.call("explain", params)
                self.assertTrue(plan["settled"])
                self.assertEqual(self.settled(address), (1, 0 if plan["alternatives"][0]["in_use"] else 1))

    @staticmethod
    def settled(address):
        metrics = scrape.scrape(address)
        return metrics["tmad_plan_searches_total",], metrics["tmad_plan_improvements_total",]


if __name__ == "__main__":
    tap.main()

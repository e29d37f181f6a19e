# SPDX-License-Identifier: Apache-2.0
"""Pings, transforms whose plan is cached and prepared plans allocate no memory: counted in tmad and in the library."""
import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import allocations
import tap
from tmad import BUILD, SANITIZED, Memory, Tmad, pack_request, tensor, tmactl

ROUNDS, SIDE = 200, 16


@unittest.skipUnless(allocations.AVAILABLE, "a sanitizer's allocator, or no shared libraries")
class Allocations(unittest.TestCase):
    def setUp(self):
        self.counter = allocations.Counter()
        self.addCleanup(self.counter.close)


class Daemon(Allocations):
    def setUp(self):
        super().setUp()
        self.tmad = Tmad("--plan-cache-entries", "4", env=self.counter.env)
        self.addCleanup(self.tmad.stop)
        self.rpcs = [self.tmad.rpc() for _ in range(3)]
        self.memory = Memory(1 << 16)
        self.addCleanup(self.memory.close)
        self.regions = [self.memory.register(rpc) for rpc in self.rpcs]
        for rpc in self.rpcs:
            self.addCleanup(rpc.close)

    def transpose(self, region, rows, columns):
        return {"dst": tensor(region, [columns, rows], "float32", offset=1 << 15),
                "src": tensor(region, [rows, columns], "float32"), "perm": [1, 0]}

    def allocated(self, method, params, depth, rounds=ROUNDS):
        """Returns tmad's allocations while each connection sends so many requests at a time and reads the answers."""
        before = self.counter.counts()
        for _ in range(rounds):
            for rpc, region in zip(self.rpcs, self.regions):
                rpc.send(b"".join(pack_request(i, method, params and params(region)) for i in range(depth)))
            for rpc in self.rpcs:
                for i in range(depth):
                    self.assertIsNotNone(rpc.reply(i))
        after = self.counter.counts()
        return tuple(b - a for a, b in zip(before, after))

    def warm(self, method, params, depth):
        """Puts everything under way at once that the rounds may have under way: tmad is stopped until all is sent."""
        os.kill(self.tmad.pid, signal.SIGSTOP)
        for rpc, region in zip(self.rpcs, self.regions):
            rpc.send(b"".join(pack_request(i, method, params and params(region)) for i in range(depth)))
        os.kill(self.tmad.pid, signal.SIGCONT)
        for rpc in self.rpcs:
            for i in range(depth):
                self.assertIsNotNone(rpc.reply(i))

    def tries(self, *args):
        """Tries until one run has no allocations: on a busy machine a turn of the loop may end before its requests do,
        and the rest of them is then kept in a buffer."""
        seen = []
        while (0, 0) not in seen and len(seen) < 5:
            seen.append(self.allocated(*args))
        return seen

    def test_none_for_ping_and_cached_transforms(self):
        def params(region):
            return self.transpose(region, SIDE, SIDE + 1)

        rows = (("ping", None), ("transpose", params), ("transform", params))
        for method, values in rows:
            for depth in (1, 32):
                with self.subTest(method=method, depth=depth):
                    self.warm(method, values, depth)
                    self.assertIn((0, 0), self.tries(method, values, depth))

    def test_none_for_runs_of_prepared_plans(self):
        layouts = {"dst": {"dtype": "float32", "shape": [SIDE, SIDE]}, "src": {"dtype": "float32", "shape": [SIDE, SIDE]}}
        plans = {rpc.call("plan_prepare", {**layouts, "perm": [1, 0]})["plan"] for rpc in self.rpcs}
        self.assertEqual(len(plans), 1, "the first of each connection")
        for shape in range(1, 6):  # the cache holds other plans by now
            self.rpcs[0].call("plan_prepare", {part: {"dtype": "uint8", "shape": [shape]} for part in ("dst", "src")})
        plan = plans.pop()
        for what, at in (("aligned", 0), ("as elements are", 4)):
            def params(region, at=at):
                return {"plan": plan, "dst": [region, (1 << 15) + at], "src": [region, at]}

            for depth in (1, 32):
                with self.subTest(what=what, depth=depth):
                    self.warm("plan_run", params, depth)
                    self.assertIn((0, 0), self.tries("plan_run", params, depth))

    def test_a_plan_that_is_not_cached_is_seen(self):
        shapes = iter(range(1, 100))

        def params(region):
            return self.transpose(region, 1 + next(shapes), 3)

        self.allocated("transpose", lambda region: self.transpose(region, SIDE, SIDE), 1, rounds=3)
        taken, _ = self.allocated("transpose", params, 1, rounds=5)
        self.assertGreaterEqual(taken, 15, "five plans for each of three connections")
        _, given_back = self.allocated("transpose", params, 1, rounds=5)
        self.assertGreaterEqual(given_back, 15, "as many had to go")

    def test_a_connection_is_seen(self):
        before, _ = self.counter.counts()
        with self.tmad.rpc() as rpc:
            self.assertTrue(rpc.call("ping"))
        self.assertGreater(self.counter.counts()[0], before)


class Library(Allocations):
    def setUp(self):
        super().setUp()
        self.tmad = Tmad()
        self.addCleanup(self.tmad.stop)

    def allocated(self, *args):
        """Returns tmactl bench's allocations from its start to its end."""
        done = tmactl("--json", "bench", *args, socket_path=self.tmad.path, env=dict(os.environ, **self.counter.env))
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.counter.counts()

    def test_as_many_for_ten_requests_as_for_ten_thousand(self):
        for kind in ("ping", "transpose"):
            for load in (("--pipeline", 1), ("--pipeline", 32, "--connections", 4)):
                with self.subTest(kind=kind, load=load):
                    few = self.allocated("--kind", kind, "--requests", 500, *load)
                    self.assertGreater(few[0], 5, "the counter counts")
                    self.assertEqual(self.allocated("--kind", kind, "--requests", 10000, *load), few)


if __name__ == "__main__":
    tap.main()

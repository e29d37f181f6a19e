# SPDX-License-Identifier: Apache-2.0
"""Prepared plans: what a run does, what preparing and running refuse, and how long a plan lives."""
import os
import re
import sys
import unittest

import msgpack
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from raw import RawCase
from tmad import Memory, RpcError, Tmad, pack_request, share, tensor, wait_until


def layout(shape, dtype="uint8", **fields):
    """A tensor without a place."""
    return {"dtype": dtype, "shape": list(shape), **fields}


class PlanCase(RawCase):
    def prepare(self, dst, src, **fields):
        return self.rpc.call("plan_prepare", {"dst": dst, "src": src, **fields})["plan"]

    def run_plan(self, plan, dst, src, **fields):
        return self.rpc.call("plan_run", {"plan": plan, "dst": list(dst), "src": list(src), **fields})

    def plans(self):
        return self.rpc.call("stats")["plans"]

    def tearDown(self):
        self.rpc.close()
        with self.tmad.rpc() as rpc:
            wait_until(lambda: rpc.call("stats")["plans"] == 0, "plans end with their connection")
        super().tearDown()


class Plans(PlanCase):
    def test_runs_as_the_transform_does(self):
        array = np.random.default_rng(1).standard_normal((6, 5, 4))
        expected = np.pad(array.transpose(2, 0, 1), [(1, 0), (0, 2), (3, 3)], constant_values=2.5)
        _, src = self.region(array.nbytes, data=array.tobytes())
        dst, dst_region = self.region(expected.nbytes + 128, data=b"\xa5" * (expected.nbytes + 128))
        asked = {"perm": [2, 0, 1], "before": [1, 0, 3], "after": [0, 2, 3], "value": 2.5}
        plan = self.prepare(layout(expected.shape, "float64"), layout(array.shape, "float64"), **asked)
        done = self.run_plan(plan, [dst_region, 64], [src, 0])
        self.assertEqual(dst[64:-64], expected.tobytes())
        self.assertEqual((dst[:64], dst[-64:]), (b"\xa5" * 64, b"\xa5" * 64))
        same = self.rpc.call("transform", {"dst": tensor(dst_region, expected.shape, "float64", offset=64),
                                           "src": tensor(src, array.shape, "float64"), **asked})
        del done["ns"], same["ns"]
        self.assertEqual(done, same)

    def test_of_any_kind_anywhere(self):
        random = np.random.default_rng(7)
        src, src_region = self.region(1 << 16)
        dst, dst_region = self.region(1 << 16)
        src[:] = random.bytes(1 << 16)
        for _ in range(share(2000)):
            size = int(random.choice((1, 2, 4, 8)))
            shape = random.integers(1, 9, random.integers(1, 5))
            perm = random.permutation(len(shape))
            n = int(np.prod(shape)) * size
            plan = self.prepare(layout(shape[perm].tolist(), f"uint{8 * size}"),
                                layout(shape.tolist(), f"uint{8 * size}"), perm=perm.tolist())
            for _ in range(3):
                at, to = (int(random.integers(0, (1 << 16) - n + 1)) for _ in range(2))
                before = dst[:]
                self.run_plan(plan, [dst_region, to], [src_region, at])
                array = np.frombuffer(src[at:at + n], f"uint{8 * size}").reshape(shape)
                self.assertEqual(dst[to:to + n], array.transpose(perm).tobytes())
                self.assertEqual((dst[:to], dst[to + n:]), (before[:to], before[to + n:]))
            self.assertIs(self.rpc.call("plan_release", {"plan": plan}), True)
        self.assertEqual(self.plans(), 0)

    def test_one_plan_between_many_regions(self):
        plan = self.prepare(layout([4, 4]), layout([4, 4]), perm=[1, 0])
        array = np.arange(16, dtype=np.uint8).reshape(4, 4)
        memories = [self.region(64, data=array.tobytes()) for _ in range(4)]
        for (_, src), (dst, region) in zip(memories, memories[1:]):
            self.run_plan(plan, [region, 17], [src, 0])
            self.assertEqual(dst[17:33], array.T.tobytes())

    def test_a_thousand_runs_in_one_write(self):
        data = os.urandom(1000)
        _, src = self.region(1000, data=data)
        dst, region = self.region(1000)
        plan = self.prepare(layout([1]), layout([1]))
        self.rpc.send(b"".join(pack_request(i, "plan_run", {"plan": plan, "dst": [region, i], "src": [src, i]})
                               for i in range(1000)))
        for _ in range(1000):
            self.assertIsNone(self.rpc.receive()[2])
        self.assertEqual(dst[:], data)

    def test_runs_and_transforms_go_in_the_order_sent(self):
        n = 1 << 22
        _, a = self.region(n, data=b"\x33" * n)
        _, b = self.region(n)
        memory, c = self.region(n)
        plan = self.prepare(layout([n]), layout([n]))
        self.rpc.send(pack_request(1, "copy", {"dst": tensor(b, [n]), "src": tensor(a, [n])}) +
                      pack_request(2, "plan_run", {"plan": plan, "dst": [c, 0], "src": [b, 0]}))
        for _ in range(2):
            self.assertIsNone(self.rpc.receive()[2])
        self.assertEqual(memory[:], b"\x33" * n)

    def test_an_empty_one(self):
        _, region = self.region(64)
        plan = self.prepare(layout([0, 5]), layout([0, 5]))
        self.assertEqual(self.run_plan(plan, [region, 0], [region, 0])["bytes"], 0)

    def test_released_with_runs_under_way(self):
        n = 1 << 22
        _, src = self.region(n, data=b"\x44" * n)
        dst, region = self.region(n)
        plan = self.prepare(layout([n]), layout([n]))
        run = {"plan": plan, "dst": [region, 0], "src": [src, 0]}
        self.rpc.send(pack_request(1, "plan_run", run) + pack_request(2, "plan_run", run) +
                      pack_request(3, "plan_release", {"plan": plan}) + pack_request(4, "plan_run", run))
        replies = {message[1]: message[2:] for message in (self.rpc.receive() for _ in range(4))}
        self.assertEqual([replies[i][0] for i in (1, 2, 3)], [None] * 3)
        self.assertIs(replies[3][1], True)
        self.assertEqual(replies[4][0][2]["name"], "NOT_FOUND")
        self.assertEqual(dst[:], b"\x44" * n)

    def test_ids_are_not_given_twice(self):
        seen = set()
        for _ in range(100):
            plan = self.prepare(layout([4]), layout([4]))
            self.assertNotIn(plan, seen)
            seen.add(plan)
            self.rpc.call("plan_release", {"plan": plan})
            self.refused("NOT_FOUND", "plan_release", {"plan": plan}, [str(plan)])
        many = [self.prepare(layout([4]), layout([4])) for _ in range(100)]
        self.assertEqual(len(seen | set(many)), 200)
        self.assertEqual(self.plans(), 100)

    def test_plans_are_of_their_connection(self):
        plan = self.prepare(layout([4]), layout([4]))
        with self.tmad.rpc() as other:
            for method, params in (("plan_run", {"plan": plan, "dst": [1, 0], "src": [1, 0]}),
                                   ("plan_release", {"plan": plan})):
                with self.assertRaises(RpcError) as caught:
                    other.call(method, params)
                self.assertEqual(caught.exception.name, "NOT_FOUND")
            other.call("plan_prepare", {"dst": layout([4]), "src": layout([4])})
            self.assertEqual(self.plans(), 2)


class BadPlans(PlanCase):
    def test_prepare(self):
        good = layout([4])
        rows = (
            ("shapes differ", "INVALID_ARGUMENT", layout([4, 5]), layout([5, 4]), {}, ["4", "5"]),
            ("types differ", "INVALID_ARGUMENT", layout([4], "int8"), good, {}, ["int8", "uint8"]),
            ("dst repeats", "OVERLAP", layout([4], strides=[0]), good, {}, ["dst"]),
            ("perm twice", "INVALID_ARGUMENT", layout([4, 4]), layout([4, 4]), {"perm": [1, 1]}, ["perm"]),
            ("strides too few", "INVALID_ARGUMENT", layout([2, 2]), layout([2, 2], strides=[1]), {}, ["src.strides"]),
            ("value not of the type", "INVALID_ARGUMENT", layout([5]), good,
             {"before": [1], "after": [0], "value": 300}, ["value", "300"]),
            ("region of dst", "INVALID_ARGUMENT", layout([4], region=1), good, {}, ["dst.region", "plan_run"]),
            ("region of src", "INVALID_ARGUMENT", good, layout([4], region=0), {}, ["src.region", "plan_run"]),
            ("offset", "INVALID_ARGUMENT", good, layout([4], offset=8), {}, ["src.offset", "8", "plan_run"]),
            ("no dst", "INVALID_ARGUMENT", None, good, {}, ["dst"]),
            ("wait", "INVALID_ARGUMENT", good, good, {"wait": {"region": 1, "offset": 0, "value": 1}}, ["wait"]),
            ("reply", "INVALID_ARGUMENT", good, good, {"reply": "queued"}, ["reply"]),
            ("unknown", "INVALID_ARGUMENT", good, good, {"colour": 1}, ["colour"]),
        )
        for what, name, dst, src, extra, words in rows:
            with self.subTest(what=what):
                self.refused(name, "plan_prepare", {"dst": dst, "src": src, **extra}, words)
        self.assertEqual(self.plans(), 0)

    def test_run(self):
        data = os.urandom(64)
        a_memory, a = self.region(64, data=data)
        b_memory, b = self.region(64, data=data)
        readonly = a_memory.register(self.rpc, writable=False)
        plan = self.prepare(layout([16], "uint32"), layout([16], "uint32"))
        backwards = self.prepare(layout([16]), layout([16], strides=[-1]))
        rows = (
            ("no such plan", "NOT_FOUND", 77777, [b, 0], [a, 0], ["plan", "77777"]),
            ("plan 0", "NOT_FOUND", 0, [b, 0], [a, 0], ["plan"]),
            ("a region's id", "NOT_FOUND", 2**64 - 1, [b, 0], [a, 0], ["plan", str(2**64 - 1)]),
            ("no such dst", "NOT_FOUND", plan, [99, 0], [a, 0], ["dst", "99"]),
            ("no such src", "NOT_FOUND", plan, [b, 0], [99, 0], ["src", "99"]),
            ("dst is read-only", "PERMISSION", plan, [readonly, 0], [b, 0], ["dst", "read-only"]),
            ("dst past its region", "OUT_OF_RANGE", plan, [b, 4], [a, 0], ["dst", "64"]),
            ("src past its region", "OUT_OF_RANGE", plan, [b, 0], [a, 2**64 - 1], ["src"]),
            ("src before its region", "OUT_OF_RANGE", backwards, [b, 0], [a, 14], ["src"]),
            ("dst meets src", "OVERLAP", plan, [a, 0], [a, 0], []),
            ("plan a text", "INVALID_ARGUMENT", "1", [b, 0], [a, 0], ["plan"]),
            ("dst a number", "INVALID_ARGUMENT", plan, b, [a, 0], ["dst"]),
            ("dst too short", "INVALID_ARGUMENT", plan, [b], [a, 0], ["dst"]),
            ("dst too long", "INVALID_ARGUMENT", plan, [b, 0, 0], [a, 0], ["dst"]),
            ("src negative", "INVALID_ARGUMENT", plan, [b, 0], [a, -1], ["src"]),
            ("src of texts", "INVALID_ARGUMENT", plan, [b, 0], ["a", "b"], ["src"]),
        )
        for what, name, plan_id, dst, src, words in rows:
            with self.subTest(what=what):
                self.refused(name, "plan_run", {"plan": plan_id, "dst": dst, "src": src}, words)
        for missing in ("plan", "dst", "src"):
            with self.subTest(missing=missing):
                params = {"plan": plan, "dst": [b, 0], "src": [a, 0]}
                del params[missing]
                self.refused("INVALID_ARGUMENT", "plan_run", params, [missing])
        self.assertEqual((a_memory[:], b_memory[:]), (data, data), "nothing was moved")
        self.run_plan(plan, [b, 0], [a, 0])

    def test_a_released_region_is_refused(self):
        _, a = self.region(64)
        _, b = self.region(64)
        plan = self.prepare(layout([4]), layout([4]))
        self.run_plan(plan, [b, 0], [a, 0])
        self.rpc.call("region_release", {"region": a})
        self.refused("NOT_FOUND", "plan_run", {"plan": plan, "dst": [b, 0], "src": [a, 0]}, ["src", str(a)])

    def test_duplicate_field(self):
        key = msgpack.packb("plan")
        self.rpc.send(b"\x94\x00\x63" + msgpack.packb("plan_release") + b"\x91\x82" +
                      key + msgpack.packb(1) + key + msgpack.packb(2))
        error = self.rpc.receive()
        self.assertEqual((error[1], error[2][2]["name"]), (0x63, "INVALID_ARGUMENT"))


class Limits(unittest.TestCase):
    def test_plans_per_uid(self):
        with Tmad("--plans-per-uid", "3") as tmad, tmad.rpc() as first:
            params = {"dst": layout([4]), "src": layout([4])}
            with tmad.rpc() as second:
                plans = [rpc.call("plan_prepare", params)["plan"] for rpc in (first, first, second)]
                for rpc in (first, second):
                    with self.assertRaises(RpcError) as caught:
                        rpc.call("plan_prepare", params)
                    self.assertEqual(caught.exception.name, "QUOTA")
                    self.assertIn("plans_per_uid", caught.exception.message)
                first.call("plan_release", {"plan": plans[0]})
                second.call("plan_prepare", params)
            wait_until(lambda: first.call("stats")["plans"] == 1, "the other connection's go with it")
            for _ in range(2):
                first.call("plan_prepare", params)
            self.assertEqual(first.call("stats")["plans"], 3)

    def in_use(self, rpc, params):
        """What the user's plans take, and what one more would: as the refusal of that says."""
        with self.assertRaises(RpcError) as caught:
            rpc.call("plan_prepare", params)
        self.assertEqual(caught.exception.name, "QUOTA")
        for word in ("plan_bytes_per_uid", "limit on bytes of plans"):
            self.assertIn(word, caught.exception.message)
        return [int(n) for n in re.findall(r"(\d+) in use, (\d+) more", caught.exception.message)[0]]

    def test_plan_bytes_per_uid(self):
        params = {"dst": layout([4, 5]), "src": layout([5, 4]), "perm": [1, 0]}
        with Tmad("--plan-bytes-per-uid=1000") as tmad, tmad.rpc() as rpc:
            used, one = self.in_use(rpc, params)
            self.assertEqual(used, 0)
            self.assertGreater(one, 10000)
        with Tmad(f"--plan-bytes-per-uid={3 * one}") as tmad, tmad.rpc() as first:
            with tmad.rpc() as second:
                plans = [rpc.call("plan_prepare", params)["plan"] for rpc in (first, first, second)]
                self.assertEqual(self.in_use(second, params), [3 * one, one])
                first.call("plan_release", {"plan": plans[0]})
                second.call("plan_prepare", params)
            wait_until(lambda: first.call("stats")["plans"] == 1, "the other connection's go with it")
            parts = {"dst": layout([2] * 8), "src": layout([3] * 4, split=[0, 2, 2, 2, 4, 2, 6, 2])}
            used, many = self.in_use(first, parts)
            self.assertEqual(used, one)
            self.assertGreater(many, 8 * one, "it has 16 parts")

    def test_places_of_another_alignment_are_charged(self):
        """Plans are kept for them too, if there is room; without, a run goes on as it would."""
        params = {"dst": layout([4, 5]), "src": layout([5, 4]), "perm": [1, 0]}
        data = bytes(range(20))
        expected = np.frombuffer(data, np.uint8).reshape(5, 4).T.tobytes()
        with Tmad("--plan-bytes-per-uid=1000") as tmad, tmad.rpc() as rpc:
            one = self.in_use(rpc, params)[1]
        for room, kept in ((2 * one, True), (one, False)):
            with self.subTest(kept=kept), Memory(256) as memory, Tmad(f"--plan-bytes-per-uid={room}") as tmad, \
                    tmad.rpc() as rpc:
                memory[:20] = data
                region = memory.register(rpc)
                plan = rpc.call("plan_prepare", params)["plan"]
                for offset in (64, 129, 64, 131):
                    memory[offset:offset + 20] = bytes(20)
                    rpc.call("plan_run", {"plan": plan, "dst": [region, offset], "src": [region, 0]})
                    self.assertEqual(memory[offset:offset + 20], expected)
                used = self.in_use(rpc, params)[0]
                self.assertEqual(used > one, kept)
                rpc.call("plan_release", {"plan": plan})
                rpc.call("plan_prepare", params)


if __name__ == "__main__":
    tap.main()

# SPDX-License-Identifier: Apache-2.0
"""Transforms between tensors with split dimensions, against NumPy's pad, reshape and transpose.

The seed is printed; TEST_SEED repeats a run, TEST_CASES sets its length by a number instead of TEST_SHARE.
"""
import os
import random
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from blocked import moved, random_view
from raw import RawCase
from tmad import ENGINE, Memory, RpcError, Tmad, pack_request, share, tensor, wait_until

DTYPES = {1: "uint8", 2: "float16", 4: "float32", 8: "float64", 16: "complex128"}
GUARD = b"\xa5" * 64


# name, dtype, source, its split, perm, destination, its split
LAYOUTS = (
    ("nChw16c", "float32", (2, 50, 6, 5), [1, 16], (0, 1, 3, 4, 2), (2, 4, 6, 5, 16), []),
    ("nChw16c back", "float32", (2, 4, 6, 5, 16), [], (0, 1, 4, 2, 3), (2, 50, 6, 5), [1, 16]),
    ("NC/32HW32", "int8", (2, 70, 4, 7), [1, 32], (0, 1, 3, 4, 2), (2, 3, 4, 7, 32), []),
    ("NC/32HW32 back", "int8", (2, 3, 4, 7, 32), [], (0, 1, 4, 2, 3), (2, 70, 4, 7), [1, 32]),
    ("OIhw4i16o4i", "int8", (37, 21, 3, 3), [0, 16, 2, 16, 3, 4], (0, 2, 5, 6, 3, 1, 4), (3, 2, 3, 3, 4, 16, 4), []),
    ("OIhw4i16o4i back", "int8", (3, 2, 3, 3, 4, 16, 4), [], (0, 5, 1, 4, 6, 2, 3), (37, 21, 3, 3),
     [0, 16, 2, 16, 3, 4]),
    ("COL32", "int8", (45, 100), [1, 32], (1, 0, 2), (4, 45, 32), []),
    ("COL32 back", "int8", (4, 45, 32), [], (1, 0, 2), (45, 100), [1, 32]),
    ("scale factors, M and K ragged", "float8_e4m3fn", (300, 10), [0, 128, 1, 32, 3, 4], (0, 3, 2, 1, 4),
     (3, 3, 32, 4, 4), []),
    ("scale factors, M ragged", "uint8", (130, 16), [0, 128, 1, 32, 3, 4], (0, 3, 2, 1, 4), (2, 4, 32, 4, 4), []),
    ("scale factors, K ragged", "uint8", (256, 7), [0, 128, 1, 32, 3, 4], (0, 3, 2, 1, 4), (2, 2, 32, 4, 4), []),
    ("scale factors, whole", "uint8", (256, 16), [0, 128, 1, 32, 3, 4], (0, 3, 2, 1, 4), (2, 4, 32, 4, 4), []),
    ("scale factors, less than a row", "uint8", (3, 2), [0, 128, 1, 32, 3, 4], (0, 3, 2, 1, 4), (1, 1, 32, 4, 4), []),
    ("scale factors back", "uint8", (3, 3, 32, 4, 4), [], (0, 3, 2, 1, 4), (300, 10), [0, 128, 1, 32, 3, 4]),
    ("fp32 scales, transposed and padded to 4", "float32", (37, 9), [0, 4], (2, 0, 1), (9, 10, 4), []),
    ("fp32 scales back", "float32", (9, 10, 4), [], (1, 2, 0), (37, 9), [0, 4]),
    ("both sides ragged", "uint16", (29, 50), [1, 16], (1, 2, 0), (58, 29), [0, 16]),
)


class SplitCase(RawCase):
    def move(self, dtype, array, src_split, perm, dst_shape, dst_split, value, method="transform"):
        """The destination, after its guards were looked at."""
        size = int(np.prod(dst_shape)) * array.dtype.itemsize
        _, src = self.region(max(array.nbytes, 1), data=array.tobytes() or b"\0")
        dst_memory, dst = self.region(size + 2 * len(GUARD), data=GUARD + b"\x5a" * size + GUARD)
        fields = {"value": value} if method == "transform" else {}
        done = self.rpc.call(method, {"dst": tensor(dst, dst_shape, dtype, offset=len(GUARD), split=dst_split),
                                      "src": tensor(src, array.shape, dtype, split=src_split), "perm": list(perm),
                                      **fields})
        self.assertEqual((dst_memory[:len(GUARD)], dst_memory[len(GUARD) + size:]), (GUARD, GUARD))
        return dst_memory[len(GUARD):len(GUARD) + size], done


class Named(SplitCase):
    def test_layouts(self):
        rng = np.random.default_rng(3)
        for name, dtype, src, src_split, perm, dst, dst_split in LAYOUTS:
            with self.subTest(layout=name):
                itemsize = {"int8": 1, "uint8": 1, "float8_e4m3fn": 1, "uint16": 2, "float32": 4}[dtype]
                array = rng.integers(0, 255, src).astype(f"u{itemsize}")
                result, _ = self.move(dtype, array, src_split, perm, dst, dst_split, 0)
                self.assertEqual(result, moved(array, src_split, perm, dst, dst_split, 0).tobytes())

    def test_there_and_back(self):
        """Blocks lose nothing but their padding."""
        array = np.random.default_rng(4).integers(0, 1 << 32, (3, 37, 5, 6), dtype=np.uint32)
        blocks, _ = self.move("uint32", array, [1, 16], (0, 1, 3, 4, 2), (3, 3, 5, 6, 16), [], 7)
        there = np.frombuffer(blocks, np.uint32).reshape(3, 3, 5, 6, 16)
        self.assertTrue((there[:, 2, :, :, 5:] == 7).all())
        back, _ = self.move("uint32", there, [], (0, 1, 4, 2, 3), (3, 37, 5, 6), [1, 16], 0)
        self.assertEqual(back, array.tobytes())

    def test_bytes_are_those_of_all_parts(self):
        array = np.zeros((2, 50, 6, 5), np.float32)
        _, done = self.move("float32", array, [1, 16], (0, 1, 3, 4, 2), (2, 4, 6, 5, 16), [], 0)
        self.assertEqual(set(done), {"path", "bytes", "ns"})
        self.assertEqual(done["bytes"], array.nbytes + 2 * 64 * 30 * 4)

    def test_transpose_takes_splits(self):
        array = np.arange(64 * 6, dtype=np.uint16).reshape(64, 6)
        result, done = self.move("uint16", array, [0, 16], (0, 2, 1), (4, 6, 16), [], 0, method="transpose")
        self.assertEqual(result, array.reshape(4, 16, 6).transpose(0, 2, 1).tobytes())
        self.assertEqual(done["bytes"], 2 * array.nbytes)


class Everywhere(SplitCase):
    """The same transform by each kind of request."""

    def setUp(self):
        super().setUp()
        self.array = np.random.default_rng(5).integers(0, 255, (300, 10), dtype=np.uint8)
        self.params = {"perm": [0, 3, 2, 1, 4], "value": 127}
        self.split = [0, 128, 1, 32, 3, 4]
        self.shape = (3, 3, 32, 4, 4)
        self.expected = moved(self.array, self.split, self.params["perm"], self.shape, [], 127).tobytes()
        _, self.src = self.region(4096, data=self.array.tobytes() + bytes(1096))
        self.memory_of_dst, self.dst = self.region(3 * 8192)
        self.layouts = {"dst": {"dtype": "uint8", "shape": list(self.shape)},
                        "src": {"dtype": "uint8", "shape": [300, 10], "split": self.split}}

    def at(self, offset):
        return self.memory_of_dst[offset:offset + len(self.expected)]

    def transform(self, offset=0):
        return {"dst": {**self.layouts["dst"], "region": self.dst, "offset": offset},
                "src": {**self.layouts["src"], "region": self.src}, **self.params}

    def test_transform_and_pad(self):
        self.rpc.call("transform", self.transform())
        self.assertEqual(self.at(0), self.expected)

    def test_a_plan_runs_anywhere(self):
        plan = self.rpc.call("plan_prepare", {**self.layouts, **self.params})["plan"]
        for offset in (0, 4608, 9217):
            done = self.rpc.call("plan_run", {"plan": plan, "dst": [self.dst, offset], "src": [self.src, 0]})
            self.assertEqual(self.at(offset), self.expected)
            self.assertGreater(done["bytes"], len(self.expected))
        self.rpc.call("plan_release", {"plan": plan})

    def test_a_plan_is_charged_for_its_parts(self):
        """Six plans of a user are one of six parts."""
        params = {**self.layouts, **self.params}
        with Tmad("--plans-per-uid", "11") as tmad, tmad.rpc() as rpc:
            plan = rpc.call("plan_prepare", params)["plan"]
            with self.assertRaises(RpcError) as caught:
                rpc.call("plan_prepare", params)
            self.assertEqual(caught.exception.name, "QUOTA")
            self.assertIn("plans_per_uid", caught.exception.message)
            rpc.call("plan_release", {"plan": plan})
            rpc.call("plan_release", {"plan": rpc.call("plan_prepare", params)["plan"]})

    def test_items(self):
        plan = self.rpc.call("plan_prepare", {**self.layouts, **self.params})["plan"]
        done = self.rpc.call("submit", {"items": [
            self.transform(0),
            {"dst": tensor(self.dst, [16], offset=20000), "src": tensor(self.src, [16])},
            {**self.transform(4608), "perm": [0, 0, 2, 1, 4]},
            {"plan": plan, "dst": [self.dst, 9217], "src": [self.src, 0]}]})
        self.assertEqual([bool(status) for status in done["statuses"]], [False, False, True, False])
        self.assertEqual((self.at(0), self.at(9217)), (self.expected, self.expected))
        self.assertEqual(self.memory_of_dst[20000:20016], self.array.tobytes()[:16])
        self.assertEqual(self.at(4608), bytes(len(self.expected)))
        self.rpc.call("plan_release", {"plan": plan})

    def test_parts_of_a_message(self):
        """Each item has 16 parts. Those of one layout are planned once, and those of many layouts before the message is
        answered, however many they are."""
        split = [0, 2, 2, 2, 4, 2, 6, 2]
        items = [{"dst": tensor(self.dst, [2] * 7 + [i + 2]), "src": tensor(self.src, [3] * 3 + [2 * i + 3], split=split),
                  "perm": [0, 1, 2, 3, 4, 5, 7, 6]} for i in range(40)]
        done = self.rpc.call("submit", {"items": items[:1] * 40})
        self.assertEqual(done["statuses"], [0] * 40)
        for _ in range(2):
            misses = self.rpc.call("stats")["plan_cache"]["misses"]
            done = self.rpc.call("submit", {"items": items})
            self.assertEqual(done["statuses"], [0] * 40)
        self.assertEqual(self.rpc.call("stats")["plan_cache"]["misses"], misses, "they are cached")

    def test_signal(self):
        word_memory, word = self.region(4096)
        self.rpc.call("transform", {**self.transform(), "signal": {"region": word, "offset": 0, "value": 5}})
        self.assertEqual((self.at(0), word_memory[:8]), (self.expected, (5).to_bytes(8, "little")))

    def test_explain(self):
        plan = self.rpc.call("explain", {**self.layouts, **self.params})
        self.assertEqual(plan["parts"], 6)
        self.assertGreaterEqual(plan["slabs"], 6)
        self.assertEqual(plan["bytes"], 300 * 10 + len(self.expected))
        for key in ("alternatives", "settled", "runs", "measured_ns"):
            self.assertNotIn(key, plan)
        for engine in ("cpu", "cuda"):
            other = self.rpc.call("explain", {**self.layouts, **self.params, "engine": engine})
            self.assertEqual((other["engine"], other["parts"]), (engine, 6))
        whole = self.rpc.call("explain", {"dst": {"dtype": "uint8", "shape": [2, 4, 32, 4, 4]},
                                          "src": {"dtype": "uint8", "shape": [256, 16], "split": self.split},
                                          "perm": self.params["perm"]})
        self.assertNotIn("parts", whole)

    def test_gather_takes_whole_blocks(self):
        array = np.arange(3 * 64, dtype=np.uint8).reshape(3, 64)
        src_memory, src = self.region(192, data=array.tobytes())
        fields = {"dst": tensor(self.dst, [16, 4]), "src": tensor(src, [64], split=[0, 16]), "perm": [1, 0],
                  "index": np.array([2, 0], np.int32).tobytes()}
        done = self.rpc.call("gather", fields)
        self.assertEqual(done["moved"], 2)
        self.assertEqual(self.memory_of_dst[:128], array[[2, 0]].reshape(2, 4, 16).transpose(0, 2, 1).tobytes())
        fields["src"] = tensor(src, [63], split=[0, 16])
        self.refused("UNSUPPORTED", "gather", fields, ["src.split", "incomplete"])
        fields = {"dst": tensor(self.dst, [63], split=[0, 16]), "src": tensor(src, [4, 16]), "index": bytes(4)}
        self.refused("UNSUPPORTED", "scatter", fields, ["dst.split", "incomplete"])


class Refused(SplitCase):
    def test_named(self):
        _, a = self.region(4096)
        _, b = self.region(4096)

        def src(shape, split):
            return {"dst": tensor(b, [2, 32]), "src": tensor(a, shape, split=split)}

        rows = (
            ("half a pair", "INVALID_ARGUMENT", src([64], [0, 32, 1]), ["src.split", "3 entries"]),
            ("no dimension", "INVALID_ARGUMENT", src([64], [1, 32]), ["src.split[0]", "1 is not a dimension"]),
            ("of nothing", "INVALID_ARGUMENT", src([64], [0, 0]), ["src.split[0]", "blocks of 0"]),
            ("negative", "INVALID_ARGUMENT", src([64], [0, -32]), ["src.split[0]", "blocks of -32"]),
            ("huge", "INVALID_ARGUMENT", src([64], [0, 2**63 - 1]), ["dst.shape"]),
            ("blocks that overflow", "INVALID_ARGUMENT", src([64], [0, 2**62, 1, 2, 0, 8]), ["src.split", "63 bits"]),
            ("an incomplete block in each block", "INVALID_ARGUMENT", src([64], [0, 32, 1, 5]), ["src.split[1]", "32"]),
            ("a text", "INVALID_ARGUMENT", src([64], ["0", 32]), ["src.split"]),
            ("no list", "INVALID_ARGUMENT", src([64], 32), ["src.split"]),
            ("too many", "INVALID_ARGUMENT", src([64], [0, 1] * 17), ["src.split"]),
            ("33 dimensions", "INVALID_ARGUMENT", src([1] * 30 + [64], [0, 1, 0, 1]), ["src.split[1]", "32"]),
            ("pads", "INVALID_ARGUMENT", {**src([64], [0, 32]), "before": [0, 1], "after": [0, -1]},
             ["before", "split"]),
            ("a mode", "INVALID_ARGUMENT", {**src([60], [0, 32]), "mode": "edge"}, ["mode", "edge"]),
            ("dst and src meet", "OVERLAP", {"dst": tensor(a, [2, 32]), "src": tensor(a, [60], split=[0, 32])},
             ["dst"]),
            ("dst meets itself", "OVERLAP", {"dst": tensor(b, [64], strides=[0], split=[0, 32]),
                                             "src": tensor(a, [2, 32])}, ["dst"]),
        )
        for what, name, params, words in rows:
            with self.subTest(what=what):
                self.refused(name, "transform", params, words)

    def test_only_what_exists_has_to_lie_in_the_region(self):
        """60 of 64 elements: what the last block lacks is neither read nor written."""
        a_memory, a = self.region(60, data=bytes(range(60)))
        b_memory, b = self.region(64, data=b"\xff" * 64)
        self.rpc.call("transform", {"dst": tensor(b, [2, 32]), "src": tensor(a, [60], split=[0, 32]), "value": 9})
        self.assertEqual(b_memory[:], bytes(range(60)) + b"\x09" * 4)
        self.rpc.call("transform", {"dst": tensor(a, [60], split=[0, 32]), "src": tensor(b, [2, 32])})
        self.refused("OUT_OF_RANGE", "transform", {"dst": tensor(b, [2, 32]), "src": tensor(a, [61], split=[0, 32])},
                     ["src"])
        self.refused("OUT_OF_RANGE", "transform", {"dst": tensor(a, [61], split=[0, 32]), "src": tensor(b, [2, 32])},
                     ["dst"])

    def test_too_many_parts(self):
        _, a = self.region(4096)
        _, b = self.region(32768)
        split = [x for i in range(7) for x in (2 * i, 2)]
        self.refused("UNSUPPORTED", "transform", {"dst": tensor(b, [2] * 14), "src": tensor(a, [3] * 7, split=split)},
                     ["7 dimensions", "64 parts"])

    def test_splits_that_lie(self):
        """Numbers at their limits, alone and in submit: each is answered, and nothing outside the tensor is written."""
        draw = random.Random(9)
        numbers = (0, 1, 2, 3, 4, 7, 31, 32, 33, 63, 64, -1, 2**31, 2**62, 2**63 - 1, -2**63)
        _, a = self.region(4096)
        memory, b = self.region(4096, data=b"\xa5" * 4096)
        refused = 0
        for i in range(share(20000)):
            def split(most=4):
                return [draw.choice(numbers if draw.random() < 0.3 else numbers[:5])
                        for _ in range(2 * draw.randint(0, most))]
            shape = [draw.choice((1, 2, 3, 30, 64)) for _ in range(draw.randint(1, 3))]
            params = {"dst": tensor(b, draw.choice((shape, [2, 32], [64])), offset=1024, split=split()),
                      "src": tensor(a, shape, split=split())}
            if draw.random() < 0.3:
                params["perm"] = draw.sample(range(len(shape) + 1), len(shape) + 1)
            try:
                self.rpc.call("transform" if i % 2 else "explain", params)
            except RpcError as error:
                self.assertIn(error.name, ("INVALID_ARGUMENT", "OUT_OF_RANGE", "UNSUPPORTED"), (params, error.message))
                refused += 1
        self.assertGreater(refused, 0)
        self.assertEqual(memory[:1024], b"\xa5" * 1024)
        each = [x for i in range(16) for x in (2 * i, 2)]
        self.refused("UNSUPPORTED", "transform", {"dst": tensor(b, [3] * 16, split=each),
                                                  "src": tensor(a, [3] * 16, split=each)}, ["32 dimensions", "64 parts"])

    def test_parts_count_as_transforms(self):
        """A transform of six is let in where there is room for one, and others wait; items of a batch are counted."""
        with Tmad("--jobs-per-uid", "4") as tmad, tmad.rpc() as rpc, Memory(8192) as a, Memory(8192) as b:
            src, dst = a.register(rpc), b.register(rpc)
            params = {"dst": tensor(dst, [3, 3, 32, 4, 4]),
                      "src": tensor(src, [300, 10], split=[0, 128, 1, 32, 3, 4]), "perm": [0, 3, 2, 1, 4]}
            for i in range(20):
                rpc.send(pack_request(1000 + i, "transform", params))
            self.assertEqual([rpc.receive()[2] for _ in range(20)], [None] * 20)
            done = rpc.call("submit", {"items": [params]})
            self.assertEqual(done["errors"][0]["name"], "QUOTA")
            self.assertIn("jobs_per_uid", done["errors"][0]["message"])
            self.assertEqual(rpc.call("stats")["jobs"], 0)


class Planning(SplitCase):
    """Requests that need 64 plans each: none of them holds up another user's."""

    def setUp(self):
        super().setUp()
        self.draw = random.Random(9)

    def layouts(self):
        """Returns a layout that nobody has asked for."""
        shape = [self.draw.randrange(3, 30) * 2 + 1 for _ in range(6)]
        return {"dst": {"dtype": "uint8", "shape": [n for extent in shape for n in ((extent + 1) // 2, 2)]},
                "src": {"dtype": "uint8", "shape": shape, "split": [n for d in range(6) for n in (2 * d, 2)]}}

    def test_others_are_served_meanwhile(self):
        """A connection that waits for its plans is seen to wait by one that asks after it."""
        with self.tmad.rpc() as other:
            for _ in range(100):
                msgid = self.rpc.request("explain", {**self.layouts(), "engine": "cuda"})
                waiting = other.call("stats")["waiting"]
                self.assertEqual(self.rpc.reply(msgid)["parts"], 64)
                if waiting:
                    return
        self.fail("it never waited")

    def test_without_a_cache(self):
        """Plans that a request has had made are kept until it has been answered."""
        layouts = self.layouts()
        with Tmad("--plan-cache-entries=0") as tmad, tmad.rpc() as rpc:
            for engine in ("cpu", "cuda"):
                self.assertEqual(rpc.call("explain", {**layouts, "engine": engine})["parts"], 64)
            rpc.call("plan_release", {"plan": rpc.call("plan_prepare", layouts)["plan"]})
            self.assertEqual(rpc.call("stats")["plan_cache"]["entries"], 0)

    def test_requests_stay_in_order(self):
        msgids = [self.rpc.request("explain", {**self.layouts(), "engine": "cuda"}) for _ in range(3)]
        ping = self.rpc.request("ping")
        for msgid in msgids:
            self.assertEqual(self.rpc.reply(msgid)["parts"], 64)
        self.assertIs(self.rpc.reply(ping), True)

    def test_what_waits_is_charged(self):
        """A request that needs one plan is charged nothing, so that no limit keeps it from running."""
        layouts = {**self.layouts(), "engine": "cuda"}
        with Tmad("--list-bytes-per-uid=2000") as tmad, tmad.rpc() as rpc:
            with self.assertRaises(RpcError) as caught:
                rpc.call("explain", layouts)
            self.assertEqual(caught.exception.name, "QUOTA")
            for word in ("list_bytes_per_uid", "2000", "bytes of lists"):
                self.assertIn(word, caught.exception.message)
            del layouts["src"]["split"]
            layouts["dst"]["shape"] = layouts["src"]["shape"][::-1]
            rpc.call("explain", {**layouts, "perm": [5, 4, 3, 2, 1, 0]})
        with Tmad("--list-bytes-per-uid=3000000") as tmad, tmad.rpc() as rpc:
            for _ in range(8):
                rpc.call("explain", {**self.layouts(), "engine": "cuda"})

    def test_nobody_waits_for_them_any_longer(self):
        """Connections end while their plans are made."""
        with Tmad() as tmad, tmad.rpc() as rpc:
            for _ in range(10):
                with tmad.rpc() as gone:
                    gone.request("explain", {**self.layouts(), "engine": "cuda"})
            wait_until(lambda: rpc.call("stats")["connections"] == 1, "they are gone")

    def test_parts_that_are_refused_are_not_planned(self):
        """A user's limit on transforms bounds what a message has planned."""
        _, src = self.region(4096)
        _, dst = self.region(8192)
        shape = [3] * 6

        def item(i):
            return {"dst": tensor(dst, [2] * 12, offset=i),
                    "src": tensor(src, shape, split=[n for d in range(6) for n in (2 * d, 2)], strides=[
                        243 + i, 81, 27, 9, 3, 1])}
        with Tmad("--jobs-per-uid=70") as tmad, tmad.rpc() as rpc:
            for memory in self.memories:
                memory.register(rpc)
            done = rpc.call("submit", {"items": [item(i) for i in range(4)]})
            self.assertEqual([bool(status) for status in done["statuses"]], [False, True, True, True])
            self.assertIn("jobs_per_uid", done["errors"][0]["message"])
            self.assertEqual(rpc.call("stats")["plan_cache"]["misses"], 64)


class Random(SplitCase):
    def test_against_numpy(self):
        seed = int(os.environ.get("TEST_SEED") or random.randrange(1 << 30))
        cases = int(os.environ.get("TEST_CASES") or share(10000 if ENGINE == "cpu" else 400))
        print(f"# TEST_SEED={seed} TEST_CASES={cases}")
        src_memory, src = self.region(1 << 20)
        dst_memory, dst = self.region(1 << 20)
        rng = np.random.default_rng(seed)
        for i in range(cases):
            draw = random.Random(seed + i)
            itemsize = draw.choice(list(DTYPES))
            extents, room = [], 4000
            for _ in range(draw.randint(1, 7)):
                extents.append(min(draw.choice((1, 2, 3, 4, 5, 8, 16, 17)), room))
                room //= extents[-1]
            perm = draw.sample(range(len(extents)), len(extents))
            shape, split = random_view(draw, extents)
            dst_shape, dst_split = random_view(draw, [extents[p] for p in perm])
            array = rng.integers(0, 256, int(np.prod(shape)) * itemsize, dtype=np.uint8).view(f"V{itemsize}").reshape(shape)
            expected = moved(array, split, perm, dst_shape, dst_split, np.zeros((), f"V{itemsize}")).tobytes()
            what = f"case {seed + i}: {itemsize} bytes, {shape} split {split} perm {perm} to {dst_shape} split {dst_split}"
            at = draw.choice((64, 65, 72)) if itemsize > 1 else 64
            src_memory[:array.nbytes] = array.tobytes()
            dst_memory[:at + len(expected) + 64] = b"\xa5" * (at + len(expected) + 64)
            self.rpc.call("transform", {
                "dst": tensor(dst, dst_shape, DTYPES[itemsize], offset=at, split=dst_split),
                "src": tensor(src, shape, DTYPES[itemsize], split=split), "perm": perm})
            self.assertEqual(dst_memory[at:at + len(expected)], expected, what)
            self.assertEqual(dst_memory[:at] + dst_memory[at + len(expected):at + len(expected) + 64],
                             b"\xa5" * (at + 64), what)


if __name__ == "__main__":
    tap.main()

# SPDX-License-Identifier: Apache-2.0
"""Batches: what a submit moves, and the status of each of its items."""
import os
import random
import sys
import unittest

import msgpack
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from raw import RawCase
from tmad import Memory, RpcError, Tmad, pack_request, share, tensor, wait_until

CODES = {"INVALID_ARGUMENT": -1, "OUT_OF_RANGE": -2, "OVERLAP": -3, "NOT_FOUND": -4, "PERMISSION": -7, "QUOTA": -8}


def layout(shape, dtype="uint8", **fields):
    """A tensor without a place."""
    return {"dtype": dtype, "shape": list(shape), **fields}


def copy(dst, src, shape, to=0, at=0, dtype="uint8"):
    """An item that copies."""
    return {"dst": tensor(dst, shape, dtype, offset=to), "src": tensor(src, shape, dtype, offset=at)}


class SubmitCase(RawCase):
    def submit(self, items, **fields):
        return self.rpc.call("submit", {"items": items, **fields})

    def prepare(self, dst, src, **fields):
        return self.rpc.call("plan_prepare", {"dst": dst, "src": src, **fields})["plan"]


class Intricate(SubmitCase):
    """Items whose overlaps take long to search."""

    def setUp(self):
        super().setUp()
        _, self.src = self.region(64, data=b"\x11" * 64)
        self.dst, self.region_id = self.region(64)

    def test_a_message_has_so_many_steps(self):
        """Items that would hold up the service are refused with a reason; the items before them are moved."""
        draw = random.Random(7)
        hard = {"dst": tensor(self.region_id, [2] * 20, strides=[draw.randrange(1 << 56, 5 << 54) for _ in range(20)]),
                "src": tensor(self.src, [2] * 20)}
        done = self.submit([copy(self.region_id, self.src, [64])] + [hard] * 40 + [copy(self.region_id, self.src, [64])])
        statuses, last = done["statuses"], done["errors"][-1]
        looked_at = statuses.count(CODES["OVERLAP"])
        self.assertEqual(statuses, [0] + [CODES["OVERLAP"]] * looked_at + [CODES["QUOTA"]] * (41 - looked_at))
        self.assertTrue(4 <= looked_at <= 6, looked_at)
        self.assertEqual((last["item"], last["name"]), (41, "QUOTA"))
        for word in ("overlap", "steps", "65536"):
            self.assertIn(word, last["message"])
        self.assertEqual(self.dst[:], b"\x11" * 64)
        self.assertEqual(self.submit([copy(self.region_id, self.src, [64])])["statuses"], [0], "another message has its own")

    def test_what_is_in_use_has_enough(self):
        """Copies columns of a matrix to other columns of it, in as many items as a message can hold."""
        matrix, region = self.region(300 * 512, data=bytes(range(64)) * 8 * 300)
        plan = self.prepare(*(layout([8, 4, 2], strides=[64, 8, 2]) for _ in range(2)))
        items = [{"plan": plan, "dst": [region, 512 * i + 1], "src": [region, 512 * i]} for i in range(300)]
        self.assertEqual(self.submit(items)["statuses"], [0] * 300)
        self.assertEqual(matrix[:8], bytes((0, 0, 2, 2, 4, 5, 6, 7)))


class Batches(SubmitCase):
    def test_none(self):
        self.assertEqual(self.submit([]), {"statuses": [], "errors": [], "bytes": 0, "ns": 0})

    def test_of_one(self):
        _, src = self.region(64, data=b"\x11" * 64)
        dst, region = self.region(64)
        done = self.submit([copy(region, src, [64])])
        self.assertGreater(done.pop("ns"), 0)
        self.assertEqual(done, {"statuses": [0], "errors": [], "bytes": 128})
        self.assertEqual(dst[:], b"\x11" * 64)

    def test_transforms_and_plans_of_every_kind(self):
        random = np.random.default_rng(5)
        room = 1 << 20
        src, src_region = self.region(room)
        dst, dst_region = self.region(room)
        src[:] = random.bytes(room)
        for _ in range(share(300)):
            items, expected, at, total = [], bytearray(dst[:]), 0, 0
            for _ in range(random.integers(1, 100)):
                dtype = np.dtype(random.choice(("uint8", "uint16", "uint32", "uint64")))
                shape = random.integers(1, 7, random.integers(1, 4))
                if not random.integers(0, 20):
                    shape = np.array([random.integers(100, 300), random.integers(100, 300)])
                perm = random.permutation(len(shape))
                n = int(np.prod(shape)) * dtype.itemsize
                if at + n + 16 > room:
                    break
                at += int(random.integers(0, 9))
                origin = int(random.integers(0, room - n + 1))
                array = np.frombuffer(src[origin:origin + n], dtype).reshape(shape)
                expected[at:at + n] = array.transpose(perm).tobytes()
                total += 2 * n
                asked = [layout(shape[perm].tolist(), dtype.name), layout(shape.tolist(), dtype.name)]
                if random.integers(0, 2):
                    plan = self.prepare(*asked, perm=perm.tolist())
                    items.append({"plan": plan, "dst": [dst_region, at], "src": [src_region, origin]})
                else:
                    items.append({"dst": {**asked[0], "region": dst_region, "offset": at},
                                  "src": {**asked[1], "region": src_region, "offset": origin},
                                  "perm": perm.tolist()})
                at += n
            done = self.submit(items)
            self.assertEqual((done["statuses"], done["errors"], done["bytes"]), ([0] * len(items), [], total))
            self.assertEqual(dst[:], bytes(expected))
            for item in items:
                if "plan" in item:
                    self.rpc.call("plan_release", {"plan": item["plan"]})

    def test_pads(self):
        array = np.arange(12, dtype=np.int32).reshape(3, 4)
        _, src = self.region(48, data=array.tobytes())
        dst, region = self.region(4096)
        modes = ("constant", "edge", "reflect", "symmetric", "wrap")
        self.assertEqual(self.submit([{"dst": tensor(region, [6, 6], "int32", offset=512 * i),
                                       "src": tensor(src, [3, 4], "int32"), "before": [1, 2], "after": [2, 0],
                                       "mode": mode} for i, mode in enumerate(modes)])["statuses"], [0] * 5)
        for i, mode in enumerate(modes):
            with self.subTest(mode=mode):
                self.assertEqual(dst[512 * i:512 * i + 144], np.pad(array, [(1, 2), (2, 0)], mode=mode).tobytes())

    def test_many_blocks(self):
        n, block = 300, 4096
        blocks = np.random.default_rng(3).integers(0, 256, (n, block), dtype=np.uint8)
        order = np.random.default_rng(4).permutation(n)
        _, src = self.region(n * block, data=blocks.tobytes())
        dst, region = self.region(n * block)
        plan = self.prepare(layout([block]), layout([block]))
        items = [{"plan": plan, "dst": [region, i * block], "src": [src, int(j) * block]} for i, j in enumerate(order)]
        for _ in range(3):
            dst[:] = bytes(n * block)
            self.assertEqual(self.submit(items)["statuses"], [0] * n)
            self.assertEqual(dst[:], blocks[order].tobytes())

    def test_batches_and_transforms_go_in_the_order_sent(self):
        n = 1 << 20
        _, a = self.region(n, data=b"\x33" * n)
        _, b = self.region(n)
        memory, c = self.region(n)
        half = n // 2
        self.rpc.send(pack_request(1, "copy", copy(b, a, [n])) +
                      pack_request(2, "submit", {"items": [copy(c, b, [half], half, 0), copy(c, b, [half], 0, half)]}) +
                      pack_request(3, "copy", copy(a, c, [n])))
        self.assertEqual([self.rpc.receive()[2] for _ in range(3)], [None] * 3)
        self.assertEqual(memory[:], b"\x33" * n)

    def test_a_plan_and_a_region_released_under_way(self):
        n = 1 << 22
        _, src = self.region(n, data=b"\x44" * n)
        dst, region = self.region(n)
        plan = self.prepare(layout([n]), layout([n]))
        items = [{"plan": plan, "dst": [region, 0], "src": [src, 0]}]
        self.rpc.send(pack_request(1, "submit", {"items": items}) +
                      pack_request(2, "plan_release", {"plan": plan}) +
                      pack_request(3, "region_release", {"region": src}) + pack_request(4, "submit", {"items": items}))
        replies = {message[1]: message[2:] for message in (self.rpc.receive() for _ in range(4))}
        self.assertEqual([error for error, _ in replies.values()], [None] * 4)
        self.assertEqual((replies[1][1]["statuses"], replies[4][1]["statuses"]), ([0], [CODES["NOT_FOUND"]]))
        self.assertEqual(dst[:], b"\x44" * n)

    def test_counted_once_as_a_request_and_each_as_a_transform(self):
        _, src = self.region(64)
        _, dst = self.region(64)
        before = self.rpc.call("stats")
        self.submit([copy(dst, src, [16], 16 * i) for i in range(4)] + [{}])
        after = self.rpc.call("stats")
        self.assertEqual(after["requests_by_method"]["submit"] - before["requests_by_method"].get("submit", 0), 1)
        self.assertEqual(after["bytes"]["memcpy"] - before["bytes"].get("memcpy", 0), 4 * 32)
        count = [sum(bar["count"] for bar in stats["latency"]) for stats in (before, after)]
        self.assertEqual(count[1] - count[0], 4)
        self.assertEqual(after["errors"]["INVALID_ARGUMENT"] - before["errors"].get("INVALID_ARGUMENT", 0), 1)


class BadItems(SubmitCase):
    def test_each_alone(self):
        data = os.urandom(64)
        a_memory, a = self.region(64, data=data)
        b_memory, b = self.region(64)
        readonly = a_memory.register(self.rpc, writable=False)
        plan = self.prepare(layout([16]), layout([16]))
        good = copy(b, a, [4])
        rows = (
            ("empty", "INVALID_ARGUMENT", {}, ["items", "dst"]),
            ("nil", "INVALID_ARGUMENT", None, ["items"]),
            ("a list", "INVALID_ARGUMENT", [1, 2], ["items"]),
            ("a number", "INVALID_ARGUMENT", 7, ["items"]),
            ("no src", "INVALID_ARGUMENT", {"dst": tensor(b, [4])}, ["src"]),
            ("unknown field", "INVALID_ARGUMENT", {**good, "colour": 1}, ["colour"]),
            ("wait of its own", "INVALID_ARGUMENT", {**good, "wait": {"region": a, "offset": 0, "value": 1}}, ["wait"]),
            ("signal of its own", "INVALID_ARGUMENT", {**good, "signal": {"region": a, "offset": 0, "value": 1}},
             ["signal"]),
            ("reply of its own", "INVALID_ARGUMENT", {**good, "reply": "done"}, ["reply"]),
            ("unknown type", "INVALID_ARGUMENT", {**good, "src": tensor(a, [4], "float128")}, ["src.dtype", "float128"]),
            ("shapes differ", "INVALID_ARGUMENT", {**good, "dst": tensor(b, [5])}, ["4", "5"]),
            ("no region", "INVALID_ARGUMENT", {**good, "src": layout([4])}, ["src.region"]),
            ("no such region", "NOT_FOUND", copy(99, a, [4]), ["dst", "99"]),
            ("out of range", "OUT_OF_RANGE", copy(b, a, [4], to=62), ["dst", "64"]),
            ("overlaps itself", "OVERLAP", copy(a, a, [4], to=2), []),
            ("read-only", "PERMISSION", copy(readonly, b, [4]), ["read-only"]),
            ("no such plan", "NOT_FOUND", {"plan": 777, "dst": [b, 0], "src": [a, 0]}, ["plan", "777"]),
            ("plan without dst", "INVALID_ARGUMENT", {"plan": plan, "src": [a, 0]}, ["dst"]),
            ("plan with a perm", "INVALID_ARGUMENT", {"plan": plan, "dst": [b, 0], "src": [a, 0], "perm": [0]}, ["perm"]),
            ("plan between tensors", "INVALID_ARGUMENT", {"plan": plan, **good}, ["dst"]),
            ("plan a text", "INVALID_ARGUMENT", {"plan": "x", "dst": [b, 0], "src": [a, 0]}, ["plan"]),
            ("plan out of range", "OUT_OF_RANGE", {"plan": plan, "dst": [b, 49], "src": [a, 0]}, ["dst", "64"]),
            ("plan onto itself", "OVERLAP", {"plan": plan, "dst": [a, 0], "src": [a, 8]}, []),
            ("plan to read-only", "PERMISSION", {"plan": plan, "dst": [readonly, 0], "src": [b, 0]}, ["read-only"]),
            ("key no str", "INVALID_ARGUMENT", {1: 2}, ["items"]),
        )
        items, expected = [], bytearray(64)
        for i, (_, _, item, _) in enumerate(rows):
            items += [item, copy(b, a, [2], to=2 * i, at=2 * i)]
            expected[2 * i:2 * i + 2] = data[2 * i:2 * i + 2]
        done = self.submit(items)
        self.assertEqual(b_memory[:], bytes(expected), "what is good was moved")
        self.assertEqual(a_memory[:], data)
        self.assertEqual(done["bytes"], 4 * len(rows))
        self.assertEqual(done["statuses"][1::2], [0] * len(rows))
        self.assertEqual([error["item"] for error in done["errors"]], list(range(0, 2 * len(rows), 2)))
        for (what, name, _, words), error, code in zip(rows, done["errors"], done["statuses"][::2]):
            with self.subTest(what=what):
                self.assertEqual((error["name"], code), (name, CODES[name]), error["message"])
                for word in words:
                    self.assertIn(word, error["message"])
                self.assertNotIn("\n", error["message"])

    def test_casts(self):
        """Items that convert with scalars and with tensors, and two whose casts are not exact."""
        _, a = self.region(64, data=np.array([1, 2.5, 300, -1] * 2 + [2, 4, 8, 16], "f4").tobytes() + bytes(16))
        b_memory, b = self.region(64)
        src, byte = tensor(a, [4], "float32"), [tensor(b, [4], offset=at) for at in range(0, 24, 4)]
        plan = self.prepare(layout([4]), layout([4], "float32"), cast="exact", scale=layout([4], "float32"), bias=1)
        done = self.submit([
            {"dst": byte[0], "src": src, "cast": "saturate"},
            {"dst": byte[1], "src": src, "cast": "exact"},
            {"dst": byte[2], "src": src, "cast": "saturate", "scale": {**tensor(a, [4], "float32", offset=32)}},
            {"plan": plan, "dst": [b, 12], "src": [a, 32], "scale": [a, 32]},
            {"plan": plan, "dst": [b, 16], "src": [a, 0], "scale": [a, 32]},
            {"plan": plan, "dst": [b, 20], "src": [a, 32]},
        ])
        self.assertEqual(done["statuses"], [0, CODES["OUT_OF_RANGE"], 0, CODES["OUT_OF_RANGE"], CODES["OUT_OF_RANGE"],
                                            CODES["INVALID_ARGUMENT"]])
        self.assertEqual([error["message"] for error in done["errors"]][:3], [
            f"cast: exact, but the values of {n} element{s} of float32 are not values of uint8; dst has the nearest"
            for n, s in ((3, "s"), (1, ""), (2, "s"))])
        self.assertIn("scale", done["errors"][3]["message"])
        self.assertEqual(list(b_memory[:20]), [1, 2, 255, 0] * 2 + [2, 10, 255, 0] + [5, 17, 65, 255] + [3, 11, 255, 0])

    def test_all_bad(self):
        self.assertEqual(self.submit([{}] * 3)["statuses"], [CODES["INVALID_ARGUMENT"]] * 3)
        self.assertEqual(self.rpc.call("stats")["jobs"], 0)

    def test_all_bad_and_queued(self):
        for reply, n in (("queued", 2), ("done", 1)):
            with self.subTest(reply=reply):
                self.rpc.request("submit", {"items": [{}], "reply": reply})
                messages = [self.rpc.receive() for _ in range(n)]
                if n == 2:
                    self.assertEqual(messages[0], [1, self.rpc.msgid, None, {"queued": True}])
                    self.assertEqual(messages[1][:2], [2, "done"])
                    self.assertEqual(messages[1][2][:2], [self.rpc.msgid, None])
                    self.assertEqual(messages[1][2][2]["statuses"], [-1])
                else:
                    self.assertEqual(messages[0][3]["statuses"], [-1])

    def test_another_connections(self):
        _, a = self.region(64)
        plan = self.prepare(layout([4]), layout([4]))
        with self.tmad.rpc() as other:
            done = other.call("submit", {"items": [copy(a, a, [4], 8), {"plan": plan, "dst": [a, 0], "src": [a, 8]}]})
        self.assertEqual(done["statuses"], [CODES["NOT_FOUND"]] * 2)

    def test_foreign_text_in_a_sentence(self):
        bad = msgpack.packb({"items": [{}]}).replace(msgpack.packb({}), b"\x81\xa3\xff\x1b\n\x01")
        self.rpc.send(b"\x94\x00\x07" + msgpack.packb("submit") + b"\x91" + bad)
        message = self.rpc.receive()
        self.assertEqual(message[3]["statuses"], [-1])
        self.assertNotIn("\x1b", message[3]["errors"][0]["message"])

    def test_bad_requests(self):
        rows = (
            ("no items", {}, ["items"]),
            ("items a map", {"items": {}}, ["items"]),
            ("items a number", {"items": 1}, ["items"]),
            ("items nil", {"items": None}, ["items"]),
            ("unknown field", {"items": [], "colour": 1}, ["colour"]),
            ("signal alone", {"items": [], "reply": "signal"}, ["reply", "signal"]),
        )
        for what, params, words in rows:
            with self.subTest(what=what):
                self.refused("INVALID_ARGUMENT", "submit", params, words)

    def test_cut_anywhere(self):
        _, a = self.region(64)
        message = pack_request(1, "submit", {"items": [copy(a, a, [4], 8), {"plan": 1, "dst": [a, 0], "src": [a, 8]}]})
        for n in range(1, len(message)):
            with self.tmad.rpc() as rpc:
                rpc.send(message[:n])
        self.assertIs(self.rpc.call("ping"), True)


class Order(SubmitCase):
    """Batches that wait and signal."""

    def setUp(self):
        super().setUp()
        self.words, self.word = self.region(64)
        _, self.src = self.region(64, data=b"\x77" * 64)
        self.dst, self.to = self.region(64)

    def point(self, offset, value, **fields):
        return {"region": self.word, "offset": offset, "value": value, **fields}

    def value(self, offset):
        return int.from_bytes(self.words[offset:offset + 8], "little")

    def test_signals_when_all_went_well(self):
        good = copy(self.to, self.src, [8])
        self.assertEqual(self.submit([good, copy(self.to, self.src, [8], 8)], signal=self.point(0, 5))["statuses"], [0, 0])
        self.assertEqual(self.value(0), 5)
        for items in ([good, {}], [{}]):
            self.submit(items, signal=self.point(0, 6))
            self.assertEqual(self.value(0), 5, "whoever waits would take it that all was moved")

    def test_silent_when_all_went_well(self):
        good = copy(self.to, self.src, [8])
        silent = {"signal": self.point(8, 1), "reply": "signal"}
        for items in ([good, {}], [{}]):
            self.assertEqual(self.submit(items, **silent)["statuses"][-1], CODES["INVALID_ARGUMENT"])
        self.rpc.request("submit", {"items": [good], **silent})
        self.submit([good], wait=self.point(8, 1))
        self.assertEqual(self.value(8), 1)

    def test_of_none_is_a_point_between_two(self):
        self.words[16:24] = (3).to_bytes(8, "little")
        done = self.submit([], wait=self.point(16, 3), signal=self.point(24, 9))
        self.assertEqual((done["statuses"], done["bytes"]), ([], 0))
        self.assertEqual(self.value(24), 9)
        self.refused("TIMEOUT", "submit", {"items": [], "wait": self.point(32, 1, deadline_ms=1),
                                           "signal": self.point(24, 10)}, ["wait"])
        self.assertEqual(self.value(24), 9)

    def test_a_point_that_does_not_come(self):
        wait = self.point(40, 1, deadline_ms=1)
        self.refused("TIMEOUT", "submit", {"items": [copy(self.to, self.src, [8]), {}], "wait": wait}, ["wait"])
        self.assertEqual(self.dst[:], bytes(64))
        self.assertEqual(self.submit([{}], wait=self.point(40, 1))["statuses"], [CODES["INVALID_ARGUMENT"]],
                         "nothing is left to wait for")

    def test_canceled(self):
        msgid = self.rpc.request("submit", {"items": [copy(self.to, self.src, [8])], "wait": self.point(48, 1)})
        cancel = self.rpc.request("cancel", {"request": msgid})
        replies = {reply[1]: reply[2:] for reply in (self.rpc.receive(), self.rpc.receive())}
        self.assertEqual(replies[cancel][1], {"canceled": True})
        self.assertEqual(replies[msgid][0][2]["name"], "CANCELED")
        self.assertEqual(self.dst[:], bytes(64))

    def test_queued(self):
        msgid = self.rpc.request("submit", {"items": [copy(self.to, self.src, [8]), {}], "reply": "queued"})
        self.assertEqual(self.rpc.receive(), [1, msgid, None, {"queued": True}])
        kind, name, (done_id, error, result) = self.rpc.receive()
        self.assertEqual((kind, name, done_id, error), (2, "done", msgid, None))
        self.assertEqual(result["statuses"], [0, CODES["INVALID_ARGUMENT"]])

    def test_many_waiting_items_are_charged_until_they_go(self):
        items = [copy(self.to, self.src, [1], i) for i in range(60)]
        n = self.rpc.call("stats")["jobs"]
        msgid = self.rpc.request("submit", {"items": items, "wait": self.point(56, 1)})
        with self.tmad.rpc() as other:
            wait_until(lambda: other.call("stats")["jobs"] == n + 60, "each item counts")
        self.rpc.request("cancel", {"request": msgid})
        self.assertEqual({self.rpc.receive()[1] for _ in range(2)}, {msgid, msgid + 1})
        self.assertEqual(self.rpc.call("stats")["jobs"], n)

    def test_gone_while_it_waits(self):
        plan = self.prepare(layout([8]), layout([8]))
        self.rpc.request("submit", {"items": [{"plan": plan, "dst": [self.to, 0], "src": [self.src, 0]}, {}],
                                    "wait": self.point(56, 1)})


class First(unittest.TestCase):
    """The service has kept no batch yet."""

    def test_of_none_is_a_point(self):
        with Tmad() as tmad, tmad.rpc() as rpc, Memory(64) as words:
            signal = {"region": words.register(rpc), "offset": 8, "value": 4}
            self.assertEqual(rpc.call("submit", {"items": [], "signal": signal})["statuses"], [])
            self.assertEqual(words[8:16], (4).to_bytes(8, "little"))


class Limits(unittest.TestCase):
    def test_items_count_as_transforms(self):
        with Tmad("--jobs-per-uid", "8") as tmad, tmad.rpc() as rpc:
            self.assertEqual(rpc.call("submit", {"items": [{}] * 8})["statuses"], [-1] * 8)
            with self.assertRaises(RpcError) as caught:
                rpc.call("submit", {"items": [{}] * 9})
            self.assertEqual(caught.exception.name, "QUOTA")
            self.assertIn("jobs_per_uid", caught.exception.message)
            self.assertEqual(rpc.call("stats")["jobs"], 0)

    def test_errors_are_cut_and_statuses_are_not(self):
        with Tmad("--jobs-per-uid", "4096", "--reply-pause-bytes", "8192") as tmad, tmad.rpc() as rpc:
            done = rpc.call("submit", {"items": [{}] * 4000})
            self.assertEqual(done["statuses"], [-1] * 4000)
            self.assertEqual([error["item"] for error in done["errors"]], list(range(len(done["errors"]))))
            self.assertGreater(len(done["errors"]), 20)
            self.assertLess(len(done["errors"]), 200)
            self.assertEqual(rpc.call("submit", {"items": [{}] * 2})["statuses"], [-1] * 2)


if __name__ == "__main__":
    tap.main()

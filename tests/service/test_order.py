# SPDX-License-Identifier: Apache-2.0
"""When requests start, what they signal, when they are answered, and what they use: wait, signal, reply, priority,
multiprocessors, host_threads, cancel."""
import contextlib
import ctypes
import os
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from raw import RawCase
from tmad import ENGINE, Memory, RpcError, Tmad, pack_request, scaled, share, tensor, wait_until

MASK = (1 << 64) - 1
_libc = ctypes.CDLL(None, use_errno=True)
_FUTEX = {"x86_64": 202, "aarch64": 98}[os.uname().machine]
_FUTEX_WAKE = 1


class Word:
    """A 64-bit word of a memory, as a client in another process accesses it."""

    def __init__(self, memory, offset):
        self._words = memoryview(memory.map).cast("B")[offset:offset + 8].cast("Q")
        self._low = ctypes.c_uint32.from_buffer(memory.map, offset)

    def close(self):
        self._words.release()
        self._low = None

    def __int__(self):
        return self._words[0]

    def set(self, value):
        self._words[0] = value & MASK
        _libc.syscall(_FUTEX, ctypes.byref(self._low), _FUTEX_WAKE, 1 << 30, None, None, 0)

    def reach(self, value):
        deadline = time.monotonic() + scaled(20)
        while (int(self) - value) & MASK >= 1 << 63:
            assert time.monotonic() < deadline, f"the word does not come to {value}"
            os.sched_yield()


class Order(RawCase):
    def setUp(self):
        super().setUp()
        self.words = []
        self.time, self.timeline = self.region(4096)
        self.src, self.src_region = self.region(4096, data=bytes(range(256)) * 16)
        self.dst, self.dst_region = self.region(4096, data=b"\xee" * 4096)

    def tearDown(self):
        for word in self.words:
            word.close()
        super().tearDown()

    def word(self, offset):
        self.words.append(Word(self.time, offset))
        return self.words[-1]

    def copy(self, **order):
        return {"dst": tensor(self.dst_region, [4096]), "src": tensor(self.src_region, [4096]), **order}

    def point(self, offset, value, **more):
        return {"region": self.timeline, "offset": offset, "value": value & MASK, **more}

    # ---- what it passes and takes ----
    def test_any_priority_and_share(self):
        for priority in ("background", "normal", "urgent"):
            for share_of_it in (0, 1, 3, (1 << 64) - 1):
                with self.subTest(priority=priority, share=share_of_it):
                    self.dst[:] = b"\xee" * 4096
                    self.rpc.call("copy", self.copy(priority=priority, multiprocessors=share_of_it,
                                                    host_threads=share_of_it))
                    self.assertEqual(self.dst[:], self.src[:])

    def test_every_method_that_moves_takes_them(self):
        take = {"priority": "urgent", "multiprocessors": 1, "host_threads": 1}
        bare = {side: {"dtype": "uint8", "shape": [16]} for side in ("dst", "src")}
        plan = self.rpc.call("plan_prepare", bare)["plan"]
        self.rpc.call("plan_run", {"plan": plan, "dst": [self.dst_region, 0], "src": [self.src_region, 0], **take})
        self.rpc.call("submit", {"items": [self.copy()], **take})
        blocks = {"dst": tensor(self.dst_region, [16]), "src": tensor(self.src_region, [16]), "index": b"\0" * 4}
        for method in ("gather", "scatter"):
            self.rpc.call(method, {**blocks, **take})
        for method in ("plan_prepare", "explain"):
            self.refused("INVALID_ARGUMENT", method, {**bare, "priority": "urgent"}, ['unknown field', '"priority"'])

    def test_what_is_not_a_priority_or_share(self):
        rows = (({"priority": "high"}, ["priority", '"high"', "normal, background, urgent"]),
                ({"priority": 2}, ["priority", "a priority"]),
                ({"multiprocessors": -1}, ["multiprocessors", "a non-negative integer"]),
                ({"host_threads": "many"}, ["host_threads", "a non-negative integer"]))
        for fields, words in rows:
            with self.subTest(fields=fields):
                self.refused("INVALID_ARGUMENT", "copy", self.copy(**fields), words)
        self.assertEqual(self.dst[:], b"\xee" * 4096)

    def test_what_users_have_taken(self):
        """Checks the engine's time by user and, on a device, that time multiplied by multiprocessors, those of a
        request or of its limit."""
        with Tmad("--multiprocessors=1", "--host_threads=1") as tmad, tmad.rpc() as rpc:
            info, uid = rpc.call("info"), os.getuid()
            self.assertEqual([info["limits"][name] for name in ("multiprocessors", "host_threads")], [1, 1])
            here = [self.memory(1 << 20).register(rpc) for _ in range(2)]
            shape = {"dst": tensor(here[0], [512, 2048]), "src": tensor(here[1], [2048, 512]), "perm": [1, 0]}
            for asked in ({}, {"multiprocessors": 1, "priority": "urgent"}, {"multiprocessors": 99}):
                rpc.call("transpose", {**shape, **asked})
            mine = [user for user in rpc.call("stats")["users"] if user["uid"] == uid]
            self.assertEqual([(user["multiprocessors"], user["host_threads"]) for user in mine], [(1, 1)])
            self.assertGreater(mine[0]["ns"], 0)
            on_device = info.get("multiprocessors", 0) > 0
            self.assertEqual(on_device, ENGINE == "cuda")
            self.assertEqual(mine[0]["multiprocessor_ns"], mine[0]["ns"] if on_device else 0)
            row, = [row for row in rpc.call("session_list") if row["ns"]]
            self.assertEqual((row["ns"], row["multiprocessor_ns"]), (mine[0]["ns"], mine[0]["multiprocessor_ns"]))

    # ---- wait and signal ----
    def test_a_point_that_has_come(self):
        self.word(8).set(5)
        self.rpc.call("copy", self.copy(wait=self.point(8, 5)))
        self.assertEqual(self.dst[:], self.src[:])

    def test_a_wait_holds_its_connection_alone(self):
        wait, done = self.word(0), self.word(64)
        first = self.rpc.request("copy", self.copy(wait=self.point(0, 1), signal=self.point(64, 7)))
        second = self.rpc.request("transpose", {"dst": tensor(self.dst_region, [64, 64]), "perm": [1, 0],
                                                "src": tensor(self.src_region, [64, 64])})
        with self.tmad.rpc() as other:
            _, region = self.region(64)
            memory = self.memory(64, data=b"x" * 64)
            there = memory.register(other)
            mine = self.memory(64)
            other.call("copy", {"dst": tensor(mine.register(other), [64]), "src": tensor(there, [64])})
            self.assertEqual(mine[:], b"x" * 64)
            self.assertGreater(region, 0)
        self.assertEqual(self.dst[:], b"\xee" * 4096, "nothing has been moved")
        self.assertEqual(int(done), 0)
        wait.set(1)
        self.rpc.reply(first)
        self.assertEqual(int(done), 7)
        self.rpc.reply(second)

    def test_values_go_round(self):
        """A word has reached a value if it is at most 2^63 - 1 past it."""
        word = self.word(0)
        word.set(-3)
        self.rpc.call("copy", self.copy(wait=self.point(0, -4)))
        self.rpc.call("copy", self.copy(wait=self.point(0, -3)))
        late = self.rpc.request("copy", self.copy(wait=self.point(0, 2)))
        word.set(2)
        self.rpc.reply(late)

    def test_a_point_that_never_comes(self):
        done = self.word(64)
        self.refused("TIMEOUT", "copy",
                     self.copy(wait=self.point(0, 1, deadline_ms=30), signal=self.point(64, 1)),
                     ["wait", "byte 0", "reached 1", "30 ms"])
        self.assertEqual(self.dst[:], b"\xee" * 4096)
        self.assertEqual(int(done), 0, "what failed signals nothing")
        self.rpc.call("copy", self.copy())
        self.assertEqual(self.dst[:], self.src[:])
        self.word(0).set(1)

    def test_a_connection_that_waits_ends(self):
        """The request that waits, what it holds and the requests behind it end with the connection."""
        with self.tmad.rpc() as other:
            memory = self.memory(4096)
            region = memory.register(other)
            for i in range(80):  # more than are read, fewer than fill the socket
                other.request("copy", {"dst": tensor(region, [8], offset=8), "src": tensor(region, [8], offset=64),
                                       "wait": {"region": region, "offset": 0, "value": 1}})
        self.assertIs(self.rpc.call("ping"), True)

    def test_bad_points(self):
        other = self.memory(64).register(self.rpc, writable=False)
        for name, order, words in (
                ("NOT_FOUND", {"wait": {"region": 99, "offset": 0, "value": 1}}, ["wait.region", "99"]),
                ("NOT_FOUND", {"signal": {"region": 99, "offset": 0, "value": 1}}, ["signal.region", "99"]),
                ("PERMISSION", {"wait": {"region": other, "offset": 0, "value": 1}}, ["wait.region", "read-only"]),
                ("PERMISSION", {"signal": {"region": other, "offset": 0, "value": 1}}, ["signal.region"]),
                ("OUT_OF_RANGE", {"wait": self.point(4096, 1)}, ["wait.offset", "4096"]),
                ("OUT_OF_RANGE", {"wait": self.point(4089, 1)}, ["wait.offset", "4089"]),
                ("OUT_OF_RANGE", {"signal": self.point(MASK, 1)}, ["signal.offset", str(MASK)]),
                ("INVALID_ARGUMENT", {"signal": self.point(12, 1)}, ["signal.offset", "12", "aligned to 8 bytes"]),
                ("INVALID_ARGUMENT", {"wait": self.point(0, 1, deadline_ms=30001)},
                 ["wait.deadline_ms", "30001", "wait_deadline_ms"]),
                ("INVALID_ARGUMENT", {"wait": {"region": self.timeline, "offset": 0}}, ["wait.value"]),
                ("INVALID_ARGUMENT", {"signal": self.point(0, 1, deadline_ms=1)}, ["deadline_ms", "signal"]),
                ("INVALID_ARGUMENT", {"reply": "never"}, ["reply", "never", "queued"]),
                ("INVALID_ARGUMENT", {"reply": "signal"}, ["reply", "has no signal"])):
            with self.subTest(order):
                self.refused(name, "copy", self.copy(**order), words)
        self.refused("INVALID_ARGUMENT", "explain", self.copy(wait=self.point(0, 1)), ["wait"])
        self.assertEqual(self.dst[:], b"\xee" * 4096)

    # ---- The order itself ----
    def test_hand_over(self):
        """The host fills a buffer and signals; the service copies it out and signals. Only the words are used."""
        rounds = share(100000)
        full, free = self.word(0), self.word(64)
        at = [4096 * (i % 2) for i in range(2)]
        buffers = self.memory(8192)
        region = buffers.register(self.rpc)
        ahead = 16
        for i in range(1, rounds + 1):
            self.rpc.request("copy", {"dst": tensor(region, [4096], offset=at[1]), "src": tensor(region, [4096]),
                                      "wait": self.point(0, i), "signal": self.point(64, i), "reply": "signal"})
            if i <= ahead:
                continue
            self._hand_over(i - ahead, full, free, buffers)
        for i in range(max(1, rounds - ahead + 1), rounds + 1):
            self._hand_over(i, full, free, buffers)
        self.assertIs(self.rpc.call("ping"), True, "and not one of them was answered")

    def _hand_over(self, i, full, free, buffers):
        pattern = struct.pack("<Q", i * 0x9E3779B97F4A7C15 & MASK) * 512
        buffers[:4096] = pattern
        full.set(i)
        free.reach(i)
        self.assertEqual(buffers[4096:], pattern, i)
        self.assertEqual(int(free), i)

    def test_two_connections_hand_a_buffer_back_and_forth(self):
        """A writes what B moves on, each after the other has signalled; the host looks only at the end."""
        rounds = share(20000)
        words = self.memory(4096)
        pool = self.memory(4096 * 16, data=bytes(range(256)) * 256)
        with self.tmad.rpc() as other:
            sides = []
            for rpc in (self.rpc, other):
                sides.append((rpc, words.register(rpc), pool.register(rpc)))
            buffer, out = self.memory(4096), self.memory(4096 * 16)
            a_buffer, b_buffer = buffer.register(self.rpc), buffer.register(other)
            b_out = out.register(other)
            for i in range(rounds):
                slot = i % 16 * 4096
                rpc, word, data = sides[0]
                rpc.request("copy", {"dst": tensor(a_buffer, [4096]), "src": tensor(data, [4096], offset=slot),
                                     "wait": {"region": word, "offset": 0, "value": 2 * i},
                                     "signal": {"region": word, "offset": 0, "value": 2 * i + 1}, "reply": "signal"})
                rpc, word, data = sides[1]
                rpc.request("copy", {"dst": tensor(b_out, [4096], offset=slot), "src": tensor(b_buffer, [4096]),
                                     "wait": {"region": word, "offset": 0, "value": 2 * i + 1},
                                     "signal": {"region": word, "offset": 0, "value": 2 * i + 2}, "reply": "signal"})
            last = Word(words, 0)
            last.reach(2 * rounds)
            last.close()
            self.assertEqual(out[:4096 * min(16, rounds)], pool[:4096 * min(16, rounds)])

    # ---- reply ----
    def test_queued(self):
        word = self.word(0)
        msgid = self.rpc.request("copy", self.copy(wait=self.point(0, 1), reply="queued"))
        self.assertEqual(self.rpc.reply(msgid), {"queued": True})
        self.assertIs(self.rpc.call("ping"), True)
        word.set(1)
        kind, method, (request, error, result) = self.rpc.receive()
        self.assertEqual((kind, method, request, error), (2, "done", msgid, None))
        self.assertEqual(result["bytes"], 8192)
        self.assertEqual(self.dst[:], self.src[:])

    def test_queued_and_failed(self):
        msgid = self.rpc.request("copy", self.copy(wait=self.point(0, 1, deadline_ms=20), reply="queued"))
        self.assertEqual(self.rpc.reply(msgid), {"queued": True})
        kind, method, (request, error, result) = self.rpc.receive()
        self.assertEqual((kind, method, request, result), (2, "done", msgid, None))
        self.assertEqual(error[2]["name"], "TIMEOUT")
        self.refused("INVALID_ARGUMENT", "copy", {**self.copy(), "src": tensor(self.src_region, [3]), "reply": "queued"})
        self.word(0).set(1)

    def test_signal_alone(self):
        """Only failed requests are answered."""
        done = self.word(64)
        for i in range(1, 101):
            self.rpc.request("copy", self.copy(signal=self.point(64, i), reply="signal"))
        done.reach(100)
        self.assertIs(self.rpc.call("ping"), True)
        self.refused("NOT_FOUND", "copy", {"dst": tensor(77, [1]), "src": tensor(78, [1]),
                                           "signal": self.point(64, 200), "reply": "signal"}, ["77"])
        self.refused("TIMEOUT", "copy", self.copy(wait=self.point(0, 9, deadline_ms=20), signal=self.point(64, 200),
                                                  reply="signal"))
        self.assertEqual(int(done), 100)
        self.word(0).set(9)

    # ---- deadlines ----
    def test_a_request_that_begins_too_late(self):
        """The request waits behind another one until its deadline, and for its own point; a request that begins in time
        is carried out."""
        first = self.rpc.request("copy", self.copy(wait=self.point(0, 1)))
        late = self.rpc.request("transpose", {**self.copy(deadline_ms=20, signal=self.point(64, 1)), "perm": [0]})
        items = self.rpc.request("submit", {"items": [self.copy(), self.copy()], "deadline_ms": 20})
        waiting = {"wait": self.point(0, 2), "deadline_ms": 20}
        with self.tmad.rpc() as other:
            self.assertIs(other.call("ping"), True)
            time.sleep(0.03)
        self.assertEqual(self.dst[:], b"\xee" * 4096)
        self.word(0).set(1)
        self.assertEqual(self.rpc.reply(first)["bytes"], 8192)
        self.dst[:] = b"\xee" * 4096
        for msgid in (late, items):
            with self.assertRaises(RpcError) as caught:
                self.rpc.reply(msgid)
            self.assertEqual(caught.exception.name, "TIMEOUT")
            self.assertEqual(caught.exception.message, "deadline_ms: the request had not begun 20 ms after it came")
        self.refused("TIMEOUT", "copy", self.copy(**waiting), ["deadline_ms: ", "20 ms"])
        self.assertEqual(self.dst[:], b"\xee" * 4096)
        self.assertEqual(int(self.word(64)), 0)
        self.assertEqual(self.rpc.call("copy", self.copy(deadline_ms=3600000))["bytes"], 8192)
        self.assertEqual(self.dst[:], self.src[:])

    # ---- cancel ----
    def test_cancel(self):
        first = self.rpc.request("copy", self.copy(wait=self.point(0, 1), signal=self.point(64, 1)))
        second = self.rpc.request("copy", self.copy())
        replies = {}
        for msgid, expected in ((second, True), (first, True), (4711, False)):
            cancel = self.rpc.request("cancel", {"request": msgid})
            while cancel not in replies:
                message = self.rpc.receive()
                replies[message[1]] = message
            self.assertEqual(replies[cancel][3], {"canceled": expected}, msgid)
        while not {first, second} <= replies.keys():
            message = self.rpc.receive()
            replies[message[1]] = message
        for msgid in (first, second):
            self.assertEqual(replies[msgid][2][2]["name"], "CANCELED")
        self.assertEqual(self.dst[:], b"\xee" * 4096)
        self.assertEqual(int(self.word(64)), 0)
        self.rpc.call("copy", self.copy())
        self.assertEqual(self.rpc.call("cancel", {"request": self.rpc.msgid}), {"canceled": False})
        self.word(0).set(1)

    def test_jobs_behind_a_wait_are_bounded(self):
        """The bound leaves room for the uid's other connections."""
        limit = self.rpc.call("info")["limits"]["jobs_behind_wait"]
        waiting = [self.rpc.request("copy", self.copy(wait=self.point(0, 1))) for _ in range(limit + 30)]
        with self.tmad.rpc() as other:
            wait_until(lambda: other.call("stats")["jobs"] == limit, "as many as are allowed")
            for _ in range(20):
                time.sleep(0.001)
                self.assertEqual(other.call("stats")["jobs"], limit)
        self.word(0).set(1)
        for msgid in waiting:
            self.rpc.reply(msgid)

    def test_items_behind_a_wait_are_bounded(self):
        """The items of a batch count one by one: the batches of one connection cannot take everything that its uid may
        have."""
        limits = self.rpc.call("info")["limits"]
        items = [{"dst": tensor(self.dst_region, [64], offset=64 * i), "src": tensor(self.src_region, [64], offset=64 * i)}
                 for i in range(limits["jobs_behind_wait"])]
        waiting = [self.rpc.request("submit", {"items": items, "wait": self.point(0, 1)})
                   for _ in range(4)]  # more than are read, fewer than fill the socket
        with self.tmad.rpc() as other:
            wait_until(lambda: other.call("stats")["jobs"] == len(items), "one batch is under way")
            for _ in range(20):
                time.sleep(0.001)
                self.assertEqual(other.call("stats")["jobs"], len(items))
        self.word(0).set(1)
        for msgid in waiting:
            self.rpc.reply(msgid)

    def test_waits_of_a_uid_are_bounded(self):
        """Many connections that wait leave room for the others of their user."""
        with Tmad("--jobs-per-uid", "16", "--behind-waits-per-uid", "8") as tmad, contextlib.ExitStack() as close:
            memory = close.enter_context(Memory(4096))
            clients = [close.enter_context(tmad.rpc()) for _ in range(6)]
            regions = [memory.register(rpc) for rpc in clients]
            sent = []
            for i, (rpc, region) in enumerate(zip(clients[:4], regions)):
                params = {"dst": tensor(region, [8], offset=64 + 8 * i), "src": tensor(region, [8], offset=128)}
                sent.append([rpc.request("copy", {**params, "wait": {"region": region, "offset": 0, "value": 1}})])
                sent[-1] += [rpc.request("copy", params) for _ in range(9)]
            last, region = clients[5], regions[5]
            wait_until(lambda: last.call("stats")["jobs"] == 8, "as many as are allowed")
            params = {"dst": tensor(region, [8], offset=256), "src": tensor(region, [8], offset=512)}
            for _ in range(20):
                last.call("copy", params)  # it waits for nothing
                self.assertEqual(last.call("stats")["jobs"], 8)
            with self.assertRaises(RpcError) as caught:
                last.call("copy", {**params, "wait": {"region": region, "offset": 0, "value": 1}})
            self.assertEqual(caught.exception.name, "QUOTA")
            for word in ("timelines", "8", "behind_waits_per_uid"):
                self.assertIn(word, caught.exception.message)
            word = Word(memory, 0)
            word.set(1)
            word.close()
            n_done = 0
            for rpc, msgids in zip(clients, sent):
                for msgid in msgids:
                    reply = rpc.receive()
                    self.assertEqual(reply[1], msgid)
                    self.assertIn(reply[2] and reply[2][2]["name"], (None, "QUOTA") if msgid == msgids[0] else (None,))
                    n_done += reply[2] is None
            self.assertGreaterEqual(n_done, 36)
            last.call("copy", {**params, "wait": {"region": region, "offset": 0, "value": 1}})

    def test_queued_to_one_who_is_ended_by_it(self):
        """A reply that exceeds the limit of unread bytes ends the connection, and with it what was just queued."""
        with Tmad("--reply-pause-bytes", "64", "--reply-limit-bytes", "64") as tmad, Memory(64) as memory:
            with tmad.rpc() as rpc:
                region = memory.register(rpc)
                ping = pack_request(1, "ping")
                copy = pack_request(2, "copy", {"dst": tensor(region, [8], offset=16), "src": tensor(region, [8], offset=32),
                                                "wait": {"region": region, "offset": 0, "value": 1}, "reply": "queued"})
                rpc.send(ping * 12 + copy)  # 60 bytes of replies, and then 14
                while rpc.receive():
                    pass
                wait_until(lambda: tmad.mappings_of_memfds() == 0, "what waits has gone with its connection")

    def test_cancel_means_no_entry_of_a_ring(self):
        """Entries of a ring have no msgid, so cancel with 0 must not affect them."""
        plan = self.rpc.call("plan_prepare", {"dst": {"dtype": "uint8", "shape": [64]},
                                              "src": {"dtype": "uint8", "shape": [64]}})["plan"]
        ring, region = self.region(128 + 2 * 96)
        self.rpc.call("ring_open", {"at": [region, 0], "entries": 2, "spin_us": 0})
        waiting = self.rpc.request("copy", self.copy(wait=self.point(0, 1)))
        struct.pack_into("<6Q", ring.map, 128, plan, self.dst_region, 0, self.src_region, 0, 7)
        struct.pack_into("<I", ring.map, 0, 1)
        self.rpc.send(b"\x93\x02\xa4ring\x90")
        canceling = self.rpc.request("cancel", {"request": 0})
        self.assertEqual(self.rpc.reply(canceling), {"canceled": False})
        self.word(0).set(1)
        self.rpc.reply(waiting)
        wait_until(lambda: struct.unpack_from("<I", ring.map, 64)[0] == 1, "the entry ends")
        self.assertEqual(struct.unpack_from("<Qq", ring.map, 128 + 2 * 64), (7, 0))


if __name__ == "__main__":
    tap.main()

# SPDX-License-Identifier: Apache-2.0
"""Submission rings: runs of plans through shared memory, and what a client can do to that memory."""
import contextlib
import ctypes
import os
import random
import signal
import struct
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import msgpack
import tap
from raw import RawCase
from tmad import FAULTY, NATIVE, RpcError, Tmad, scaled, share, stopped, tensor, wait_until

ENTRIES = 64
SUBMITTED, REAPED, SLEEPS, DONE, AWAKE, FIRST = 0, 4, 8, 64, 68, 128
ENTRY, END = struct.Struct("<8Q"), struct.Struct("<QqQQ")
RING = msgpack.packb([2, "ring", []])
U32 = (1 << 32) - 1


class Ring:
    """The client's side of a ring, by the layout in protocol.md."""

    def __init__(self, case, entries=ENTRIES, spin_us=0, offset=0):
        self.case, self.rpc, self.entries = case, case.rpc, entries
        self.memory = case.memory(FIRST + entries * 96 + offset)
        self.region = self.memory.register(self.rpc)
        self.bytes = memoryview(self.memory.map)[offset:]
        self.words = self.bytes[:128].cast("I")
        self.submitted = self.reaped = 0
        self.granted = self.rpc.call("ring_open", {"at": [self.region, offset], "entries": entries, "spin_us": spin_us})

    def close(self):
        self.words.release()
        self.bytes.release()

    def push(self, *fields):
        at = FIRST + self.submitted % self.entries * 64
        ENTRY.pack_into(self.bytes, at, *fields, *[0] * (8 - len(fields)))
        self.submitted = self.submitted + 1 & U32
        self.words[SUBMITTED // 4] = self.submitted

    def ring(self):
        """Wakes the service if it sleeps. What Python executes between a store and a load is a sufficient fence."""
        if not self.words[AWAKE // 4]:
            self.rpc.send(RING)

    def pop(self):
        deadline = time.monotonic() + scaled(20)
        while self.words[DONE // 4] == self.reaped:
            assert time.monotonic() < deadline, "no end comes"
            os.sched_yield()
        end = END.unpack_from(self.bytes, FIRST + self.entries * 64 + self.reaped % self.entries * 32)
        self.reaped = self.reaped + 1 & U32
        self.words[REAPED // 4] = self.reaped
        return end


class Rings(RawCase):
    def setUp(self):
        super().setUp()
        self.rings = []
        self.src, self.src_region = self.region(65536, data=bytes(random.Random(1).randbytes(65536)))
        self.dst, self.dst_region = self.region(65536)
        self.plan = self.rpc.call("plan_prepare", {"dst": {"dtype": "uint8", "shape": [64]},
                                                   "src": {"dtype": "uint8", "shape": [64]}})["plan"]

    def tearDown(self):
        for ring in self.rings:
            ring.close()
        super().tearDown()

    def ring(self, **kwargs):
        self.rings.append(Ring(self, **kwargs))
        return self.rings[-1]

    def push(self, ring, tag, dst=0, src=0):
        ring.push(self.plan, self.dst_region, dst, self.src_region, src, tag)

    def test_runs(self):
        """Fills the ring several times over, with and without a service that polls it."""
        for spin_us in (0, 100):
            with self.subTest(spin_us=spin_us):
                if self.rings:
                    self.assertIs(self.rpc.call("ring_close"), True)
                ring = self.ring(spin_us=spin_us)
                self.assertEqual(ring.granted, {"spin_us": spin_us})
                draw = random.Random(spin_us)
                for _ in range(share(2000)):
                    batch = [(draw.randrange(1 << 64), 64 * k, 64 * draw.randrange(1024))
                             for k in range(draw.randrange(1, ENTRIES + 1))]
                    for tag, dst, src in batch:
                        self.push(ring, tag, dst, src)
                    ring.ring()
                    ends = [ring.pop() for _ in batch]
                    self.assertEqual([(end[0], end[1], end[2]) for end in ends], [(tag, 0, 128) for tag, _, _ in batch])
                    for _, dst, src in batch:
                        self.assertEqual(self.dst[dst:dst + 64], self.src[src:src + 64])
        stats = self.rpc.call("stats")
        self.assertGreater(stats["requests_by_method"]["plan_run"], share(2000))

    def test_counts_go_round(self):
        ring = self.ring(entries=2)
        for i in range(300):
            self.push(ring, i)
            ring.ring()
            self.assertEqual(ring.pop()[:2], (i, 0))

    def test_bad_entries(self):
        """Each bad entry ends with the code of its error; the others run."""
        ring = self.ring()
        read_only = self.memory(64).register(self.rpc, writable=False)
        d, s, p = self.dst_region, self.src_region, self.plan
        cases = [((p, d, 0, s, 0), 0), ((p + 1, d, 0, s, 0), -4), ((0, d, 0, s, 0), -4), ((p, 99, 0, s, 0), -4),
                 ((p, d, 0, 1 << 63, 0), -4), ((p, d, 65473, s, 0), -2), ((p, d, 0, s, (1 << 64) - 1), -2),
                 ((p, d, 0, d, 32), -3), ((p, read_only, 0, s, 0), -7), ((p, d, 0, s, 0, 7, 3), -1),
                 ((p, d, 0, s, 0, 7, 0, 1 << 63), -1), ((p, d, 64, s, 64, 7, 2 | 1 << 32, 1), 0)]
        for i, (fields, _) in enumerate(cases):
            fields = list(fields) + [0] * (8 - len(fields))
            fields[5] = i
            ring.push(*fields)
        ring.ring()
        ends = dict(ring.pop()[:2] for _ in cases)
        self.assertEqual(ends, {i: status for i, (_, status) in enumerate(cases)})
        self.assertEqual(self.dst[:128], self.src[:128])

    def test_open_and_close(self):
        other = self.memory(4096).register(self.rpc)
        read_only = self.memory(4096).register(self.rpc, writable=False)
        for name, params, words in (
                ("INVALID_ARGUMENT", {"at": [other, 0], "entries": 3}, ["entries", "3", "power of two"]),
                ("INVALID_ARGUMENT", {"at": [other, 0], "entries": 1}, ["entries"]),
                ("INVALID_ARGUMENT", {"at": [other, 0], "entries": 8192}, ["entries", "8192"]),
                ("INVALID_ARGUMENT", {"at": [other, 8], "entries": 2}, ["at", "8", "aligned to 64"]),
                ("INVALID_ARGUMENT", {"at": [other], "entries": 2}, ["at", "[region, offset]"]),
                ("OUT_OF_RANGE", {"at": [other, 0], "entries": 64}, ["at", "6272", "4096"]),
                ("OUT_OF_RANGE", {"at": [other, (1 << 64) - 64], "entries": 2}, ["at"]),
                ("NOT_FOUND", {"at": [99, 0], "entries": 2}, ["at", "99"]),
                ("PERMISSION", {"at": [read_only, 0], "entries": 2}, ["at", "read-only"])):
            with self.subTest(params):
                self.refused(name, "ring_open", params, words)
        self.refused("NOT_FOUND", "ring_close", None, ["no ring"])
        self.rpc.send(RING)  # from a connection without a ring, it has no effect
        ring = self.ring(spin_us=10 ** 9)
        self.assertEqual(ring.granted, {"spin_us": self.rpc.call("info")["limits"]["ring_spin_us"]})
        self.refused("ALREADY_EXISTS", "ring_open", {"at": [other, 0], "entries": 2}, ["has a ring"])
        self.assertEqual(self.rpc.call("region_release", {"region": ring.region}), {"state": "draining"})
        self.assertIs(self.rpc.call("ring_close"), True)
        self.ring(offset=64)

    def test_close_waits_for_nothing(self):
        """A ring with runs under way stays open; a connection that ends takes both with it."""
        word = self.memory(64)
        timeline = word.register(self.rpc)
        self.rpc.request("copy", {"dst": tensor(self.dst_region, [8]), "src": tensor(self.src_region, [8]),
                                  "wait": {"region": timeline, "offset": 0, "value": 1}})
        ring = self.ring()
        for i in range(10):
            self.push(ring, i)
        ring.ring()
        self.refused("BUSY", "ring_close", None, ["10"])

    def test_a_ring_that_lies(self):
        """A count beyond the ring's room ends that connection and no other."""
        for what, value in (("submitted", ENTRIES + 1), ("submitted", 1 << 31), ("submitted", U32), ("reaped", 1)):
            with self.subTest(what=what, value=value), self.tmad.rpc() as rpc:
                self.rpc, kept = rpc, self.rpc
                try:
                    ring = self.ring()
                    self.rpc = kept
                    if what == "submitted":
                        ring.words[SUBMITTED // 4] = value
                    else:
                        ring.words[REAPED // 4] = value
                        ring.words[SUBMITTED // 4] = 1
                    rpc.send(RING)
                    if what == "reaped":
                        continue  # it overwrote an end that it had not read, which harms only itself
                    self.assertTrue(rpc.ended())
                finally:
                    self.rpc = kept
        self.assertIs(self.rpc.call("ping"), True)

    def test_entries_that_change_under_its_eyes(self):
        """Every entry is processed as it was when it was copied, or refused; nothing outside is touched."""
        ring = self.ring(spin_us=100)
        dst = self.memory(65536, data=b"\xa5" * 65536)
        region = dst.register(self.rpc, size=61440)
        self.src[:] = b"\x5a" * 65536  # a random plan id may name it too
        self.src_region = self.memory(64, data=b"\x5a" * 64).register(self.rpc, writable=False)
        stop = threading.Event()

        def scribble():
            draw = random.Random(7)
            while not stop.is_set():
                at = FIRST + 64 * draw.randrange(ENTRIES) + 8 * draw.randrange(5)
                struct.pack_into("<Q", ring.bytes, at, draw.choice((self.plan, region, self.src_region, 0, 64, 61376, 61408,
                                                                    65536, 1 << 40, (1 << 64) - 8)))

        thread = threading.Thread(target=scribble)
        thread.start()
        try:
            for i in range(share(20000)):
                ring.push(self.plan, region, 64 * (i % 512), self.src_region, 0, i)
                ring.ring()
                self.assertIn(ring.pop()[1], (0, -1, -2, -3, -4, -7))
        finally:
            stop.set()
            thread.join()
        self.assertEqual(dst[61440:], b"\xa5" * 4096)
        self.assertEqual(set(dst[:61440]), {0xA5, 0x5A})
        self.assertIs(self.rpc.call("ping"), True)

    def test_a_hole_in_it(self):
        """A hole ends the ring's connection and allocates no page; where the kernel cannot tell, the page reads as
        zeros. Nothing is run, and no other client is affected."""
        ring = self.ring()
        libc = ctypes.CDLL(None, use_errno=True)
        with contextlib.suppress(BrokenPipeError):
            for i in range(50):
                self.push(ring, i)
                self.assertEqual(libc.fallocate(ring.memory.fd, 3, ctypes.c_long(0), ctypes.c_long(4096)), 0)
                self.rpc.send(RING)
                with self.tmad.rpc() as other:
                    self.assertIs(other.call("ping"), True)
        if "no userfaultfd" not in self.tmad.log():
            self.assertIn("the memory of its submission ring failed", self.tmad.log())
            self.assertTrue(self.rpc.ended())

    def test_who_sleeps_is_woken(self):
        """A client that sleeps is woken by a futex on `done`, as protocol.md says."""
        ring = self.ring()
        libc = ctypes.CDLL(None, use_errno=True)
        futex = {"x86_64": 202, "aarch64": 98}[os.uname().machine]
        done = ctypes.c_uint32.from_buffer(ring.memory.map, DONE)
        woken = []

        def sleep():
            ring.words[SLEEPS // 4] = 1
            while ring.words[DONE // 4] == 0:
                libc.syscall(futex, ctypes.byref(done), 0, 0, None, None, 0)
            woken.append(True)

        thread = threading.Thread(target=sleep)
        thread.start()
        wait_until(lambda: ring.words[SLEEPS // 4] == 1, "it goes to sleep")
        self.push(ring, 1)
        ring.ring()
        thread.join(scaled(20))
        self.assertEqual(woken, [True])
        del done

    def test_it_sleeps_and_is_rung_awake(self):
        """After spin_us without an entry `awake` is 0, and the loop uses no more CPU time."""
        ring = self.ring(spin_us=200)
        self.push(ring, 1)
        ring.ring()
        ring.pop()
        wait_until(lambda: ring.words[AWAKE // 4] == 0, "it falls asleep")
        self.push(ring, 2)
        ring.ring()
        self.assertEqual(ring.pop()[:2], (2, 0))


    @unittest.skipUnless(NATIVE, "the time of a process is its own only natively")
    def test_an_entry_now_and_then_keeps_nobody_awake(self):
        """Polling has to pay: a client cannot keep a CPU of the service busy with an entry every 190 us."""
        ring = self.ring(spin_us=200)
        start, before = time.monotonic(), self.cpu_s()
        i = 0
        while (now := time.monotonic()) < start + 1:
            self.push(ring, i)
            ring.ring()
            ring.pop()
            i += 1
            while time.monotonic() < now + 190e-6:
                continue
        used, took = self.cpu_s() - before, time.monotonic() - start
        self.assertGreater(i, 50)
        self.assertLess(used, took * 0.6)

    def cpu_s(self):
        """Returns the CPU seconds that the daemon has used."""
        with open(f"/proc/{self.tmad.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@unittest.skipUnless(NATIVE, "a relay is a thread apart only natively")
class Relayed(RawCase):
    """Rings in memory that may stall are accessed by a relay process, which is stopped here as by a page fault that
    does not return."""

    @classmethod
    def setUpClass(cls):
        cls.tmad = Tmad("--trust-own-uid=off")
        cls.addClassCleanup(cls.tmad.stop)
        with cls.tmad.rpc() as rpc:
            rpc.call("ping")
        cls.idle_fds = wait_until(cls.tmad.fds, "a number")

    def setUp(self):
        super().setUp()
        self.dst, self.dst_region = self.region(4096)
        self.word, self.timeline = self.region(64)
        self.plan = self.rpc.call("plan_prepare", {"dst": {"dtype": "uint8", "shape": [64]},
                                                   "src": {"dtype": "uint8", "shape": [64]}})["plan"]
        self.ring = Ring(self)
        [self.relay] = wait_until(lambda: self.tmad.children("ring-relay"), "its relay")

    def tearDown(self):
        self.ring.close()
        super().tearDown()

    def push(self, n):
        for tag in range(n):
            self.ring.push(self.plan, self.dst_region, 0, self.dst_region, 64, tag)

    def wait_for_the_word(self):
        """Submits a copy that waits for the word, and so holds up everything behind it."""
        return self.rpc.request("copy", {"dst": tensor(self.dst_region, [8]), "src": tensor(self.dst_region, [8], offset=8),
                                         "wait": {"region": self.timeline, "offset": 0, "value": 1}})

    def test_close_counts_ends_that_are_not_written(self):
        copy = self.wait_for_the_word()
        self.push(10)
        self.rpc.send(RING)
        with self.tmad.rpc() as other:
            wait_until(lambda: other.call("stats")["jobs"] == 11, "all of them are taken")
            with stopped(self.relay):
                struct.pack_into("<Q", self.word.map, 0, 1)
                self.rpc.reply(copy)
                wait_until(lambda: other.call("stats")["jobs"] == 0, "all of them have run")
                self.assertEqual(self.ring.words[DONE // 4], 0)
                self.refused("BUSY", "ring_close", None, ["under way: 10"])
        self.assertEqual([self.ring.pop()[:2] for _ in range(10)], [(tag, 0) for tag in range(10)])
        self.assertIs(self.rpc.call("ring_close"), True)

    def test_close_counts_entries_that_are_not_read(self):
        copy = self.wait_for_the_word()
        self.push(10)
        with stopped(self.relay):
            self.rpc.send(RING)
            close = self.rpc.request("ring_close")
            self.waits()
        with self.assertRaisesRegex(RpcError, "under way: 10'"):
            self.rpc.reply(close)
        struct.pack_into("<Q", self.word.map, 0, 1)
        self.rpc.reply(copy)
        self.assertEqual([self.ring.pop()[:2] for _ in range(10)], [(tag, 0) for tag in range(10)])
        self.assertIs(self.rpc.call("ring_close"), True)

    def test_close_when_there_was_nothing_to_read(self):
        """The client rings for entries that were read already, and may close the ring once it has their ends."""
        with stopped(self.relay):
            self.rpc.send(RING)
            close = self.rpc.request("ring_close")
            self.waits()
        self.assertIs(self.rpc.reply(close), True)

    def waits(self):
        """Checks that nothing sent behind the ring is answered, although the service has read it."""
        with self.tmad.rpc() as other:
            wait_until(lambda: other.call("stats")["waiting"] == 1, "it waits")


class Ends(RawCase):
    """What becomes of a ring when its service does not go on."""

    @classmethod
    def setUpClass(cls):
        """Starts a daemon for each test instead."""

    def setUp(self):
        self.memories = []

    def tearDown(self):
        for memory in self.memories:
            memory.close()

    def test_a_service_that_stops(self):
        """The service no longer reads rings, though the ring's connection still waits for an answer."""
        with Tmad("--jobs-behind-wait", "1", "--ring-spin-us", "1000000") as tmad, tmad.rpc() as self.rpc:
            word, region = self.region(64)
            ring = Ring(self, spin_us=1000000)
            with tmad.rpc() as other:
                waiting = self.rpc.request("copy", {"dst": tensor(region, [8], offset=16), "src": tensor(region, [8], offset=32),
                                                    "wait": {"region": region, "offset": 0, "value": 1}})
                self.rpc.send(RING)  # stays unread behind the wait
                wait_until(lambda: other.call("stats")["jobs"] == 1, "it waits")
                tmad.process.send_signal(signal.SIGTERM)
                self.assertTrue(other.ended(), "the service is about to stop")
            struct.pack_into("<Q", word.map, 0, 1)
            self.rpc.reply(waiting)
            self.assertTrue(self.rpc.ended())
            self.assertEqual(ring.words[AWAKE // 4], 0)
            ring.close()

    @unittest.skipIf(os.environ.get("EMULATOR"), "no emulator starts this tmad")
    def test_a_service_that_has_lost_its_device(self):
        """Entries are no longer held back then: a client that keeps submitting does not delay the restart."""
        with Tmad(engine="cuda", program=FAULTY) as tmad, tmad.rpc() as self.rpc, tmad.rpc() as other:
            ring = Ring(self, entries=4096)
            ahead, stop = 4000, threading.Event()

            def feed():
                while not stop.is_set():
                    done = ring.words[DONE // 4]
                    ring.words[REAPED // 4] = done
                    ring.words[SUBMITTED // 4] = done + ahead & U32

            regions = [other.call("region_create", {"size": 8192, "kind": "memfd"})["region"] for _ in range(2)]
            thread = threading.Thread(target=feed)
            thread.start()
            try:
                wait_until(lambda: ring.words[SUBMITTED // 4] == ahead, "there are entries, unrung")
                copy = other.request("copy", {"dst": tensor(regions[0], [6666]), "src": tensor(regions[1], [6666])})
                self.assertEqual(other.receive()[1:3][0], copy)
                with tmad.rpc() as again:
                    self.assertEqual(again.call("stats")["recoveries"], 1)
                self.assertLessEqual(ring.words[DONE // 4], ring.entries, "no more than there was room for")
            finally:
                stop.set()
                thread.join()
                ring.close()


class FullUid(RawCase):
    """A user with room for four jobs in all."""

    @classmethod
    def setUpClass(cls):
        cls.tmad = Tmad("--jobs-per-uid", "4")
        cls.addClassCleanup(cls.tmad.stop)
        cls.idle_fds = wait_until(cls.tmad.fds, "a number")

    def test_messages_behind_entries_that_wait(self):
        """Entries beyond the limit wait, and so do the messages behind the one that rang, each only once."""
        _, src = self.region(4096)
        _, dst = self.region(4096)
        word = self.memory(64)
        timeline = word.register(self.rpc)
        plan = self.rpc.call("plan_prepare", {"dst": {"dtype": "uint8", "shape": [64]},
                                              "src": {"dtype": "uint8", "shape": [64]}})["plan"]
        ring = Ring(self)
        self.rpc.request("copy", {"dst": tensor(dst, [8]), "src": tensor(src, [8]),
                                  "wait": {"region": timeline, "offset": 0, "value": 1}})
        for tag in range(8):
            ring.push(plan, dst, 0, src, 0, tag)
        ping = msgpack.packb([0, 4711, "ping", []])
        self.rpc.send(ping + RING + ping + ping)
        self.assertIs(self.rpc.reply(4711), True)  # with this reply, everything before has been handled
        struct.pack_into("<Q", word.map, 0, 1)
        self.assertEqual([ring.pop()[:2] for _ in range(8)], [(tag, 0) for tag in range(8)])
        ring.close()


class Alone(RawCase):
    """A user with room for one job."""

    @classmethod
    def setUpClass(cls):
        cls.tmad = Tmad("--jobs-per-uid=1")
        cls.addClassCleanup(cls.tmad.stop)
        cls.idle_fds = wait_until(cls.tmad.fds, "a number")

    def test_it_is_read_after_its_entries_have_waited(self):
        """The entries of the ring wait, not a message."""
        _, src = self.region(4096)
        _, dst = self.region(4096)
        plan = self.rpc.call("plan_prepare", {"dst": {"dtype": "uint8", "shape": [64]},
                                              "src": {"dtype": "uint8", "shape": [64]}})["plan"]
        ring = Ring(self)
        for _ in range(100):
            for tag in range(3):
                ring.push(plan, dst, 0, src, 0, tag)
            ring.ring()
            self.assertEqual([ring.pop()[:2] for _ in range(3)], [(tag, 0) for tag in range(3)])
            self.assertIs(self.rpc.call("ping"), True)
        ring.close()


if __name__ == "__main__":
    tap.main()

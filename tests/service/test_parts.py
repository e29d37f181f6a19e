# SPDX-License-Identifier: Apache-2.0
"""Regions of several allocations, by hand: what a list of parts may say, and what of it is refused.

The service is over the stand-in driver, whose allocations are memfds of a certain name. Whatever a test sends, the
service holds afterwards what it held before.
"""
import os
import signal
import socket
import sys
import time
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from raw import RawCase
from tmad import Memory, RpcError, Tmad, pack_request, tensor, wait_until

UNIT = 2 << 20  # the device's granularity
ALL = 253  # descriptors that a message may bring


class Parts(RawCase):
    @classmethod
    def setUpClass(cls):
        cls.tmad = Tmad("--pending-fds-per-uid=600", engine="cuda", env={"SOFTGPU_MEMORY": str(4 << 30)})
        cls.addClassCleanup(cls.tmad.stop)
        with cls.tmad.rpc() as rpc:
            rpc.call("ping")
        cls.idle_fds = wait_until(cls.tmad.fds, "a number")

    def setUp(self):
        super().setUp()
        self.fds = []

    def tearDown(self):
        for fd in self.fds:
            os.close(fd)
        with self.tmad.rpc() as rpc:
            wait_until(lambda: rpc.call("stats")["pending_fds"] == 0, "no descriptor is pending")
        super().tearDown()

    def allocation(self, units=1, device=0, data=b""):
        """An allocation of the stand-in driver's; its descriptor."""
        fd = os.memfd_create(f"softgpu-allocation-{device}-", os.MFD_CLOEXEC)
        os.ftruncate(fd, units * UNIT)
        os.pwrite(fd, data, 0)
        self.fds.append(fd)
        return fd

    def register(self, parts, fds=(), **fields):
        """The region's id."""
        size = sum(part["size"] for part in parts)
        return self.rpc.call("region_register", {"kind": "cuda_fd", "size": size, "parts": parts, **fields}, fds)["region"]

    def copy(self, dst, src):
        return self.rpc.call("copy", {"dst": dst, "src": src})

    def test_bytes_across_allocations(self):
        fds = [self.allocation(data=bytes([i]) * UNIT) for i in range(1, 4)]
        region = self.register([{"size": UNIT}] * 3, fds)
        out = self.memory(3 * UNIT)
        there = out.register(self.rpc)
        self.copy(tensor(there, [3 * UNIT]), tensor(region, [3 * UNIT]))
        self.assertEqual(out[:], b"".join(bytes([i]) * UNIT for i in range(1, 4)))
        turned = self.register([{"region": region, "offset": UNIT, "size": 2 * UNIT}, {"region": region, "size": UNIT}],
                               offset=UNIT - 1, size=2 * UNIT)
        self.rpc.call("region_release", {"region": region})
        self.copy(tensor(there, [2 * UNIT]), tensor(turned, [2 * UNIT]))
        self.assertEqual(out[:2 * UNIT], b"\2" + b"\3" * UNIT + b"\1" * (UNIT - 1))
        self.assertEqual(self.rpc.call("region_list")[-1]["size"], 2 * UNIT)

    def test_tables_in_a_pool_that_has_grown(self):
        """Layers move within it, between the old region and the new one, which have the old allocations in common."""
        fds = [self.allocation(data=bytes([i]) * UNIT) for i in range(1, 7)]
        old = self.register([{"size": UNIT}] * 4, fds[:4])
        new = self.register([{"region": old, "size": 4 * UNIT}] + [{"size": UNIT}] * 2, fds[4:])
        layer = {"dtype": "uint8", "shape": [UNIT]}

        def gather(dst, src):
            return self.rpc.call("gather", {
                "dst": layer, "src": layer, "index": bytes(4), "limit": 1,
                "dst_places": np.array(dst, "<u8").tobytes(), "src_places": np.array(src, "<u8").tobytes()})

        gather([(new, 5 * UNIT), (new, 1 * UNIT)], [(old, 0), (old, 2 * UNIT)])
        gather([(new, 4 * UNIT), (old, 3 * UNIT)], [(new, 2 * UNIT), (new, 0)])
        for message, dst, src in (
                ("dst_places: the blocks of entry 1 and those of entry 0 of src_places overlap in one memory",
                 [(new, 5 * UNIT), (new, UNIT)], [(old, UNIT + 1), (old, 3 * UNIT)]),
                ("dst_places: the blocks of entries 0 and 1 share bytes of an allocation that both regions have",
                 [(old, UNIT), (new, UNIT)], [(new, 4 * UNIT), (new, 4 * UNIT)])):
            with self.assertRaisesRegex(RpcError, message):
                gather(dst, src)
        out = self.memory(6)
        self.copy(tensor(out.register(self.rpc), [6]), tensor(new, [6], strides=[UNIT]))
        self.assertEqual(out[:6], bytes([1, 3, 3, 1, 3, 1]))

    def test_transforms_where_only_some_allocations_are_common(self):
        """By the distance of the one that is, elements in the other would be the same, and are not."""
        fds = [self.allocation(data=bytes([i]) * UNIT) for i in range(1, 4)]
        one = self.register([{"size": UNIT}] * 2, fds[:2])
        other = self.register([{"size": UNIT}, {"region": one, "offset": UNIT, "size": UNIT}], fds[2:])
        self.copy(tensor(one, [UNIT]), tensor(other, [UNIT]))
        with self.assertRaisesRegex(RpcError, "dst: it shares allocations with src, but not all of them; too complex"):
            self.copy(tensor(one, [2, 2], strides=[UNIT, 1]), tensor(other, [2, 2], strides=[UNIT, 1]))
        self.copy(tensor(one, [2, 2], strides=[UNIT, 1]), tensor(other, [2, 2], strides=[UNIT, 1], offset=2))

    def test_as_many_as_a_message_brings(self):
        before = self.rpc.call("stats")["mapped_bytes"]
        region = self.register([{"size": UNIT}] * ALL, [self.allocation(data=bytes([i])) for i in range(ALL)])
        self.assertEqual(self.rpc.call("stats")["mapped_bytes"] - before, ALL * UNIT)
        out = self.memory(4096)
        there = out.register(self.rpc)
        self.copy(tensor(there, [ALL]), tensor(region, [ALL], strides=[UNIT]))
        self.assertEqual(out[:ALL], bytes(range(ALL)))

    def test_refused(self):
        fd, two, stranger = self.allocation(), self.allocation(2), self.allocation(device=1)
        memory = self.memory(UNIT)
        host = memory.register(self.rpc)
        made = self.rpc.call("region_create", {"size": 3 * UNIT, "kind": "cuda_fd"})["region"]
        self.fds.append(self.rpc.fds.pop())
        gone = self.register([{"size": UNIT}], [fd])
        self.rpc.call("region_release", {"region": gone})
        one = {"size": UNIT}
        part = lambda **fields: {"region": made, "size": 3 * UNIT, **fields}
        rows = [
            ("no parts", [], [], "INVALID_ARGUMENT", "at least 1, got 0"),
            ("no list", {}, [], "INVALID_ARGUMENT", "parts: expected an array of maps"),
            ("no map", [7], [], "INVALID_ARGUMENT", "parts[0]: expected a map"),
            ("no size", [{}], [], "INVALID_ARGUMENT", "missing field parts[0].size"),
            ("a negative size", [one, {"size": -UNIT}], [fd, two], "INVALID_ARGUMENT", "parts[1].size: expected"),
            ("a negative offset", [part(offset=-UNIT)], [], "INVALID_ARGUMENT", "parts[0].offset: expected"),
            ("an unknown field", [{**one, "fd": 3}], [fd], "INVALID_ARGUMENT", "parts[0]"),
            ("size 0", [one, {"size": 0}], [fd, two], "INVALID_ARGUMENT", "parts[1].size: 0 bytes"),
            ("half a unit", [{"size": UNIT // 2}], [fd], "INVALID_ARGUMENT", "parts[0].size"),
            ("too few descriptors", [one, one], [fd], "INVALID_ARGUMENT", "2 of them are allocations, but 1 "),
            ("none", [one], [], "INVALID_ARGUMENT", "1 of them are allocations, but 0 "),
            ("too many", [one], [fd, two], "INVALID_ARGUMENT", "1 of them are allocations, but 2 "),
            ("for none", [part()], [fd], "INVALID_ARGUMENT", "0 of them are allocations, but 1 "),
            ("a lie, too small", [one, one], [fd, two], "OUT_OF_RANGE", "parts[1].size: it is mapped as a whole"),
            ("a lie, too large", [{"size": 2 * UNIT}, one], [fd, two], "OUT_OF_RANGE", "parts[0].size: it is mapped"),
            ("another device", [one, one], [fd, stranger], "INVALID_ARGUMENT", "parts[1]: fd:"),
            ("a memfd", [one], [memory.fd], "INVALID_ARGUMENT", "parts[0]: fd:"),
            ("a pipe", [one], [self.pipe()], "INVALID_ARGUMENT", "parts[0]: fd: it does not come"),
            ("more than the device has", [{"size": 3 << 30}] * 2, [fd, two], "OUT_OF_RANGE", "parts[1].size: 3221225472"),
            ("more than the user may have", [{"size": 1 << 62}] * 3, [fd, two, fd], "QUOTA", "mapped_bytes_per_uid"),
            ("more than 64 bits", [{"size": 1 << 63}] * 2, [fd, two], "OUT_OF_RANGE", "parts[1].size: with the parts"),
            ("no such region", [{"size": UNIT, "region": 1 << 40}], [], "NOT_FOUND", "parts[0].region"),
            ("a released one", [one, {"size": UNIT, "region": gone}], [fd], "NOT_FOUND", "parts[1].region"),
            ("host memory", [{"size": UNIT, "region": host}], [], "INVALID_ARGUMENT", "is of kind memfd"),
            ("part of an allocation", [part(size=UNIT)], [], "OUT_OF_RANGE", "are not whole allocations"),
            ("from within it", [part(size=2 * UNIT, offset=UNIT)], [], "OUT_OF_RANGE", "are not whole allocations"),
            ("past its end", [part(offset=3 * UNIT)], [], "OUT_OF_RANGE", "exceeds the memory of the region"),
            ("past 64 bits", [part(offset=(1 << 64) - UNIT)], [], "OUT_OF_RANGE", "exceeds the memory of the region"),
            ("twice", [part(), one, part()], [fd], "INVALID_ARGUMENT", "is there twice"),
            ("an offset alone", [{"size": UNIT, "offset": 0}], [fd], "INVALID_ARGUMENT", "parts[0].offset"),
        ]
        held = self.rpc.call("stats")
        for name, parts, fds, status, words in rows:
            with self.subTest(name):
                self.refused(status, "region_register", {"kind": "cuda_fd", "size": UNIT, "parts": parts}, [words], fds)
        for name, fields, status, words in [
            ("kind", {"kind": "memfd"}, "INVALID_ARGUMENT", "kind memfd has none"),
            ("kind ipc", {"kind": "cuda_ipc", "handle": bytes(64)}, "INVALID_ARGUMENT", "kind cuda_ipc has none"),
            ("allocation", {"allocation": UNIT}, "INVALID_ARGUMENT", "allocation: each part has its size"),
            ("size", {"size": UNIT + 1}, "OUT_OF_RANGE", "exceeds the parts, which have 2097152"),
            ("offset", {"offset": (1 << 64) - 1}, "OUT_OF_RANGE", "overflows 64 bits"),
            ("nothing", {"size": 0}, "INVALID_ARGUMENT", "at least 1 byte"),
        ]:
            with self.subTest(name):
                params = {"kind": "cuda_fd", "size": UNIT, "parts": [one], **fields}
                self.refused(status, "region_register", params, [words], [fd])
        now = wait_until(lambda: (stats := self.rpc.call("stats"))["pending_fds"] == 0 and stats, "they are closed")
        for counter in ("regions", "mapped_bytes"):
            self.assertEqual(now[counter], held[counter], counter)

    def pipe(self):
        self.fds += os.pipe()
        return self.fds[-1]

    def test_descriptors_of_the_next_request(self):
        """Two requests in one message: each takes its own."""
        fds = [self.allocation(data=bytes([i])) for i in (5, 6, 7)]
        params = [{"kind": "cuda_fd", "size": n * UNIT, "parts": [{"size": UNIT}] * n} for n in (2, 1)]
        self.rpc.send(b"".join(pack_request(90 + i, "region_register", p) for i, p in enumerate(params)), fds)
        replies = {reply[1]: reply[3] for reply in (self.rpc.receive(), self.rpc.receive())}
        first, second = (replies[90 + i]["region"] for i in range(2))
        out = self.memory(4096)
        there = out.register(self.rpc)
        self.copy(tensor(there, [2]), tensor(first, [2], strides=[UNIT]))
        self.copy(tensor(there, [1], offset=2), tensor(second, [1]))
        self.assertEqual(out[:3], b"\5\6\7")

    def test_descriptors_of_the_next_request_when_one_is_refused(self):
        """They stay that one's, whether its message has come with the other's or behind it."""
        alone = self.register([{"size": UNIT}], [self.allocation()])
        one, known, wrong = {"size": UNIT}, {"size": UNIT, "region": alone}, {"size": UNIT, "region": 1 << 40}
        out = self.memory(4096)
        there = out.register(self.rpc)
        for name, parts, n_fds, together, *others in [
                ("it takes none", [known, wrong], 0, False),
                ("it takes none, and cannot be read", [known, {"size": UNIT, "colour": 1}], 0, False),
                ("it takes two", [one, one, wrong], 2, True),
                ("it takes one, behind what is wrong", [wrong, one, known], 1, True),
                ("it asks for too much", [{"size": 1 << 62}] * 3, 3, True),
                ("it has a handle, too", [one, one], 2, True, ("handle", bytes(65)))]:
            with self.subTest(name):
                fds = [self.allocation(data=bytes([i])) for i in range(1, n_fds + 2)]
                refused, good = (pack_request(msgid, "region_register",
                                              {"kind": "cuda_fd", "size": UNIT, "parts": list_, **dict(more)})
                                 for msgid, list_, more in ((90, parts, others), (91, [one], [])))
                os.kill(self.tmad.pid, signal.SIGSTOP)  # so that it receives both at once
                if together:
                    self.rpc.send(refused + good, fds)
                else:
                    self.rpc.send(refused)
                    self.rpc.send(good, fds)
                os.kill(self.tmad.pid, signal.SIGCONT)
                replies = {reply[1]: reply for reply in (self.rpc.receive(), self.rpc.receive())}
                self.assertIsNotNone(replies[90][2])
                self.assertIsNone(replies[91][2])
                region = replies[91][3]["region"]
                self.copy(tensor(there, [1]), tensor(region, [1]))
                self.assertEqual(out[0], n_fds + 1)
                self.rpc.call("region_release", {"region": region})

    def test_charges(self):
        """Descriptors count until the request is answered, bytes in every region that has them."""
        with Tmad("--mapped-bytes-per-uid=10M", "--list-bytes-per-uid=100", "--pending-fds-per-uid=4", "--message-fds=4",
                  engine="cuda", env={"SOFTGPU_MAP_US": "200000"}) as tmad, tmad.rpc() as self_rpc:
            self.rpc, rpc = self_rpc, self.rpc
            fds = [self.allocation() for _ in range(4)]
            sent = self.rpc.request("region_register", {"kind": "cuda_fd", "size": 2 * UNIT, "parts": [{"size": UNIT}] * 2},
                                    fds[:2])
            with tmad.rpc() as other:
                wait_until(lambda: other.call("stats")["pending_fds"] == 2, "they are charged")
            region = self.rpc.reply(sent)["region"]
            wait_until(lambda: self.rpc.call("stats")["pending_fds"] == 0, "and then not any more")
            part = {"region": region, "size": 2 * UNIT}
            self.refused("QUOTA", "region_register", {"kind": "cuda_fd", "size": 1, "parts": [part] * 2 + [{"size": UNIT}]},
                         ["list_bytes_per_uid"], fds[:1])
            again = self.rpc.call("region_register", {"kind": "cuda_fd", "size": 1, "parts": [part]})["region"]
            self.refused("QUOTA", "region_register", {"kind": "cuda_fd", "size": 1, "parts": [part]},
                         ["mapped_bytes_per_uid", "8388608 in use, 4194304 more"])
            self.rpc.call("region_release", {"region": again})
            self.rpc.call("region_register", {"kind": "cuda_fd", "size": 1, "parts": [part]})
            self.rpc = rpc

    def test_a_region_released_while_it_is_referred_to(self):
        """Its release waits until the other one is mapped; the session may end meanwhile, too."""
        with Tmad(engine="cuda", env={"SOFTGPU_MAP_US": "100000"}) as tmad:
            fds = [self.allocation(data=b"12"), self.allocation(data=b"34")]
            with tmad.rpc() as rpc:
                region = rpc.call("region_register", {"kind": "cuda_fd", "size": 2 * UNIT, "parts": [{"size": UNIT}] * 2},
                                  fds)["region"]
                part = {"region": region, "size": 2 * UNIT}
                sent = rpc.request("region_register", {"kind": "cuda_fd", "size": 2 * UNIT, "parts": [part]})
                release = rpc.request("region_release", {"region": region})
                replies = {reply[1]: reply for reply in (rpc.receive(), rpc.receive())}
                self.assertEqual(replies[release][3]["state"], "draining")
                again = replies[sent][3]["region"]
                wait_until(lambda: [entry["region"] for entry in rpc.call("region_list")] == [again], "it is gone")
                with Memory(4096) as out:
                    there = out.register(rpc)
                    rpc.call("copy", {"dst": tensor(there, [2]), "src": tensor(again, [2], strides=[UNIT])})
                    self.assertEqual(out[:2], b"13")
                rpc.request("region_register", {"kind": "cuda_fd", "size": 1, "parts": [{"region": again, "size": 2 * UNIT}]})
                time.sleep(0.02)
            with tmad.rpc() as rpc:
                wait_until(lambda: (rpc.call("stats")["regions"], rpc.call("stats")["connections"]) == (0, 1), "all is gone")

    def test_descriptors_in_pieces(self):
        """They come with any of the request's bytes, as others do."""
        fds = [self.allocation(data=bytes([i])) for i in range(40)]
        message = pack_request(77, "region_register", {"kind": "cuda_fd", "size": UNIT, "parts": [{"size": UNIT}] * 40})
        socket.send_fds(self.rpc.socket, [message[:10]], fds[:20])
        socket.send_fds(self.rpc.socket, [message[10:60]], fds[20:])
        self.rpc.send(message[60:])
        self.rpc.reply(77)


if __name__ == "__main__":
    if os.environ.get("TEST_CUDA") == "no":
        print("1..0 # SKIP this build has no cuda engine")
    else:
        tap.main()

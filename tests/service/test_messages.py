# SPDX-License-Identifier: Apache-2.0
"""Messages over the wire, good and bad, and what the service says of itself."""
import os
import re
import struct
import sys

import msgpack

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from raw import RawCase
from tmad import BUILD, ENGINE, SOURCE, Rpc, RpcError, pack_request, tensor, wait_until


class Messages(RawCase):
    def test_unknown_method(self):
        self.refused("UNSUPPORTED", "frobnicate", None, ["frobnicate"])
        self.refused("INVALID_ARGUMENT", "ping", {"loud": True}, ["loud"])

    def test_method_as_bin_and_msgid_0(self):
        self.rpc.send(msgpack.packb([0, 0, b"ping", []], use_bin_type=True))
        self.assertEqual(self.rpc.receive(), [1, 0, None, True])

    def test_msgid_of_32_bits(self):
        self.rpc.send(pack_request(2**32 - 1, "ping"))
        self.assertEqual(self.rpc.receive(), [1, 2**32 - 1, None, True])

    def test_notifications_are_not_answered(self):
        self.rpc.send(msgpack.packb([2, "ping", []]) + msgpack.packb([2, "nothing", [1, 2, {"a": []}]]) +
                      pack_request(5, "ping"))
        self.assertEqual(self.rpc.receive(), [1, 5, None, True])

    def test_a_thousand_in_one_write(self):
        self.rpc.send(b"".join(pack_request(i, "ping") for i in range(1000)))
        replies = [self.rpc.receive() for _ in range(1000)]
        self.assertEqual(sorted(reply[1] for reply in replies), list(range(1000)))
        self.assertEqual({(reply[2], reply[3]) for reply in replies}, {(None, True)})

    def test_a_thousand_copies_in_one_write(self):
        data = os.urandom(1000)
        _, src = self.region(1000, data=data)
        dst, dst_region = self.region(1000)
        self.rpc.send(b"".join(
            pack_request(i, "copy", {"dst": tensor(dst_region, [1], offset=i), "src": tensor(src, [1], offset=i)})
            for i in range(1000)))
        for _ in range(1000):
            self.assertIsNone(self.rpc.receive()[2])
        self.assertEqual(dst[:], data)

    def test_requests_of_a_connection_run_in_order(self):
        _, a = self.region(1 << 22)
        memory, b = self.region(1 << 22)
        _, c = self.region(1 << 22, data=b"\x33" * (1 << 22))
        n = 1 << 22
        self.rpc.send(b"".join(pack_request(i, "copy", {"dst": tensor(dst, [n]), "src": tensor(src, [n])})
                               for i, (dst, src) in enumerate(((a, c), (b, a)))))
        for _ in range(2):
            self.assertIsNone(self.rpc.receive()[2])
        self.assertEqual(memory[:], b"\x33" * n)

    def test_single_bytes(self):
        for byte in pack_request(9, "info", {}):
            self.rpc.send(bytes([byte]))
        self.assertEqual(self.rpc.receive()[3]["engine"], ENGINE)

    def test_fd_on_a_message_in_pieces(self):
        memory = self.memory(4096)
        message = pack_request(1, "region_register", {"kind": "memfd", "size": 4096})
        self.rpc.send(message[:10], [memory.fd])
        self.rpc.send(message[10:])
        self.assertEqual(self.rpc.reply(1)["size"], 4096)

    def test_fds_are_taken_in_order(self):
        first, second = self.memory(4096, data=b"first"), self.memory(8192, data=b"second")
        self.rpc.send(pack_request(1, "region_register", {"kind": "memfd", "size": 4096}) +
                      pack_request(2, "region_register", {"kind": "memfd", "size": 8192}), [first.fd, second.fd])
        replies = {message[1]: message for message in (self.rpc.receive(), self.rpc.receive())}
        self.assertEqual((replies[1][3]["size"], replies[2][3]["size"]), (4096, 8192))

    def test_bytes_that_end_the_connection(self):
        rows = (("not an array", msgpack.packb({"a": 1})), ("a number", b"\x07"), ("reserved type", b"\xc1"),
                ("ext", b"\x94\x00\x01" + msgpack.packb(msgpack.ExtType(5, b"x")) + b"\x90"),
                ("fixext", b"\x94\x00\x01\xd4\x01\x00\x90"), ("empty array", b"\x90"),
                ("unknown kind", msgpack.packb([7, 1, "ping", []])),
                ("too short", msgpack.packb([0, 1, "ping"])), ("too long", msgpack.packb([0, 1, "ping", [], 1])),
                ("msgid a text", msgpack.packb([0, "1", "ping", []])),
                ("msgid of 33 bits", msgpack.packb([0, 2**32, "ping", []])),
                ("msgid negative", msgpack.packb([0, -1, "ping", []])),
                ("too deep", b"\x94\x00\x01\xa4ping" + b"\x91" * 20),
                ("too many elements", b"\x94\x00\x01\xa4ping\xdd" + struct.pack(">I", 0xFFFFFFFF)),
                ("a map of them", b"\x94\x00\x01\xa4ping\x91\xdf" + struct.pack(">I", 0x7FFFFFFF)),
                ("too large", b"\x94\x00\x01\xa4ping\x91\xc6" + struct.pack(">I", 1 << 20)),
                ("too large, text", b"\x94\x00\x01\xdb" + struct.pack(">I", 0xFFFFFFFF)))
        for what, data in rows:
            with self.subTest(what=what), self.tmad.rpc() as rpc:
                rpc.send(pack_request(1, "ping"))
                self.assertEqual(rpc.receive(), [1, 1, None, True])
                rpc.send(data)
                self.assertTrue(rpc.ended())
                self.assertIs(self.rpc.call("ping"), True)

    def test_params_that_are_refused(self):
        rows = ([1], ["x"], [{}, {}], [None], {"a": 1}, [[]], None)
        for i, params in enumerate(rows):
            with self.subTest(params=params):
                self.rpc.send(msgpack.packb([0, i, "ping", params], use_bin_type=True))
                message = self.rpc.receive()
                self.assertEqual(message[1], i)
                self.assertEqual(message[2][2]["name"], "INVALID_ARGUMENT")
                if not isinstance(params, list):
                    self.assertIn("ping: params must be an array", message[2][1])
        self.rpc.send(msgpack.packb([0, 9, 5, []]))
        _, msgid, error, _ = self.rpc.receive()
        self.assertEqual((msgid, error[1]), (9, "method: expected a str, got 5"))
        self.assertIs(self.rpc.call("ping"), True)

    def test_truncated_at_every_byte(self):
        _, region = self.region(64)
        message = pack_request(1, "copy", {"dst": tensor(region, [4]), "src": tensor(region, [4], offset=32)})
        for length in range(len(message)):
            with self.tmad.rpc() as rpc:
                rpc.send(message[:length])

    def test_every_byte_corrupted(self):
        message = pack_request(1, "transform", {"dst": tensor(1, [2, 2], strides=[2, 1]), "src": tensor(2, [2, 2]),
                                                "perm": [1, 0], "before": [0, 0], "after": [0, 0], "value": 1.5})
        for i in range(len(message)):
            for byte in (0x00, 0x7F, 0x80, 0xC1, 0xDF, 0xFF, message[i] ^ 1):
                with Rpc(self.tmad.path) as rpc:
                    rpc.send(message[:i] + bytes([byte]) + message[i + 1:])
        self.assertIs(self.rpc.call("ping"), True)

    def test_failing_requests_keep_no_fd(self):
        bad = self.memory(4096, fill=False)
        self.rpc.call("ping")  # this connection counts
        before = self.tmad.fds()
        for _ in range(300):
            with self.assertRaises(RpcError):
                self.rpc.call("region_register", {"kind": "memfd", "size": 4096}, [bad.fd])
            with self.assertRaises(RpcError):
                self.rpc.call("region_register", {"kind": "memfd", "size": 4096, "what": 1}, [bad.fd])
        wait_until(lambda: self.tmad.fds() <= before, "every descriptor is closed")


class Documents(RawCase):
    def test_info(self):
        info = self.rpc.call("info")
        on_device = {"multiprocessors"} if info["engine"] == "cuda" else set()
        self.assertEqual(set(info), {"version", "protocol", "boot_id", "engine", "device", "devices", "limits", "methods",
                                     "dtypes"} | on_device)
        self.assertEqual(info["boot_id"], self.rpc.call("info")["boot_id"])
        self.assertEqual(len(info["dtypes"]), 17)
        self.assertTrue(all(isinstance(value, int) for value in info["limits"].values()))

    def test_protocol_tells_the_same(self):
        """The methods, the element types and the fixed limits of protocol.md are those of info."""
        with open(os.path.join(SOURCE, "proto", "protocol.md"), encoding="utf-8") as file:
            protocol = file.read()
        info = self.rpc.call("info")
        methods = protocol[protocol.index("\n## Methods\n"):protocol.index("\n### Splits\n")]
        self.assertEqual(sorted(re.findall(r"^\| `(\w+)` \|", methods, re.MULTILINE)), sorted(info["methods"]))
        names = protocol[protocol.index("\n## Names\n"):protocol.index("\n## Parameters and results\n")]
        self.assertEqual(sorted(re.findall(r"^\| `(\w+)` \|", names, re.MULTILINE)), sorted(info["dtypes"]))
        fixed = dict(re.findall(r"`((?:message_)?(?:bytes|depth|elements|rank))` (\d+)", protocol))
        self.assertEqual({name: int(value) for name, value in fixed.items()},
                         {name: info["limits"][name] for name in ("message_bytes", "message_depth", "message_elements", "rank")})

    def test_manual_tells_the_same(self):
        """Every limit is an option in tmad(8), with its default."""
        made = [path for path in (os.path.join(top, "daemon", "tmad.8") for top in (BUILD, SOURCE)) if os.path.exists(path)]
        with open(made[0], encoding="utf-8") as file:
            manual = file.read()
        n_told = 0
        for name, value in self.rpc.call("info")["limits"].items():
            if name.startswith(("message_bytes", "message_depth", "message_elements", "rank")):
                continue  # of the protocol, no options
            entry = re.search(r"^\.It Fl -" + name.replace("_", "-") + r" Ns = Ns Ar N\n((?:(?!\.It|\.El|\.S[hs]).*\n)*)", manual,
                              re.MULTILINE)
            self.assertIsNotNone(entry, name)
            told = re.search(r"^Default: (\d+);", entry[1], re.MULTILINE)
            n_told += told is not None
            if told and name in ("queued_bytes_per_uid", "list_bytes_per_uid", "region_fds_per_uid"):
                self.assertGreaterEqual(int(told[1]), value, name)
            elif told:
                self.assertEqual(int(told[1]), value, name)
        self.assertGreater(n_told, 15)

    def test_stats(self):
        before = self.rpc.call("stats")
        self.refused("NOT_FOUND", "region_release", {"region": 1})
        _, src = self.region(4096)
        _, dst = self.region(4096)
        params = {"dst": tensor(dst, [4096]), "src": tensor(src, [4096])}
        for _ in range(3):
            self.rpc.call("copy", params)
        after = self.rpc.call("stats")
        self.assertEqual(after["errors"]["NOT_FOUND"], before["errors"].get("NOT_FOUND", 0) + 1)
        self.assertEqual(after["requests_by_method"]["copy"], before["requests_by_method"].get("copy", 0) + 3)
        self.assertEqual(after["bytes"]["memcpy"], before["bytes"].get("memcpy", 0) + 3 * 8192)
        self.assertEqual((after["regions"], after["mapped_bytes"]), (2, 8192))
        self.assertGreaterEqual(after["plan_cache"]["hits"], before["plan_cache"]["hits"] + 2)
        self.assertEqual(after["tensor_maps"], {"hits": 0, "misses": 0, "evictions": 0, "entries": 0})
        count = [sum(bar["count"] for bar in stats["latency"]) for stats in (before, after)]
        self.assertEqual(count[1], count[0] + 3)


if __name__ == "__main__":
    tap.main()

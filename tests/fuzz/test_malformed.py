# SPDX-License-Identifier: Apache-2.0
"""Malformed requests, enumerated completely for several kinds of damage: each is answered with a typed error or ends
its connection, and costs next to no memory.

Every method is called with everything that it accepts. Then, one at a time, each field holds each MessagePack type,
each value claims a length that is not there, each key appears twice, each field is missing, and the message ends at
each byte.
"""
import os
import socket
import struct
import sys
import unittest

import msgpack

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import NATIVE, Rpc, RpcError, Tmad, share, wait_until

A = {"region": 1, "offset": 0, "dtype": "uint8", "shape": [2, 3], "strides": [3, 1], "split": [1, 3]}
TRANSFORM = {"dst": A, "src": {**A, "offset": 8}, "perm": [0, 1, 2], "before": [0, 0, 0], "after": [0, 0, 0],
             "mode": "constant", "value": [1.5, -1]}
ORDER = {"wait": {"region": 1, "offset": 0, "value": 0, "deadline_ms": 1}, "deadline_ms": 1000,
         "signal": {"region": 1, "offset": 8, "value": 1}, "reply": "done"}
LAYOUTS = {**TRANSFORM, "dst": {key: A[key] for key in ("dtype", "shape", "strides", "split")},
           "src": {key: A[key] for key in ("dtype", "shape", "strides", "split")}}
RUN = {"plan": 1, "dst": [1, 0], "src": [1, 8]}
BLOCKS = {**TRANSFORM, "index_dtype": "int32", "index": bytes(8), "index_at": [1, 0], "count": 2, "limit": 1,
          "dst_step": 6, "src_step": 6, "layers": 1, "dst_layer_step": 0, "src_layer_step": 0,
          "dst_layers": bytes(8), "src_layers": bytes(8), "dst_table": 1, "src_table": 1, "dst_places": bytes(16),
          "src_places": bytes(16), **ORDER}
REQUESTS = {
    "info": None, "ping": None, "stats": None, "region_list": {"session": 1}, "session_list": {"after": 1},
    "region_register": {"kind": "memfd", "size": 64, "offset": 0, "handle": bytes(64), "device": "GPU-0",
                        "writable": True, "allocation": 64},
    "region_create": {"size": 64, "kind": "memfd"},
    "region_release": {"region": 1},
    "copy": {key: TRANSFORM[key] for key in ("dst", "src")},
    "transpose": {key: TRANSFORM[key] for key in ("dst", "src", "perm")},
    "pad": {key: TRANSFORM[key] for key in TRANSFORM if key != "perm"},
    "transform": {**TRANSFORM, **ORDER}, "explain": TRANSFORM,
    "plan_prepare": LAYOUTS, "plan_run": {**RUN, "dst_table": 1, "src_table": 1, **ORDER},
    "plan_release": {"plan": 1}, "table_prepare": {"places": struct.pack("<4Q", 1, 0, 1, 8)}, "table_release": {"table": 1},
    "submit": {"items": [RUN, TRANSFORM, {**RUN, "dst_table": 1, "src_table": 1}], **ORDER}, "gather": BLOCKS, "scatter": BLOCKS, "cancel": {"request": 1},
    "reshard": {"destinations": [{"tensor": A, "start": [0, 0]}], "sources": [{"tensor": {**A, "offset": 8}, "start": [0, 0]}],
                "shape": [2, 3], **ORDER},
    "ring_open": {"at": [1, 0], "entries": 2, "spin_us": 1}, "ring_close": None,
}
STATUSES = {"INVALID_ARGUMENT", "OUT_OF_RANGE", "OVERLAP", "NOT_FOUND", "UNSUPPORTED", "QUOTA", "NO_MEMORY"}
MUCH = (0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, 0x10000)
# An item of each type, in each width that the type has.
TYPES = {
    "nil": b"\xc0", "false": b"\xc2", "true": b"\xc3", "fixint": b"\x07", "negative fixint": b"\xff",
    "uint 8": b"\xcc\xff", "uint 16": b"\xcd\xff\xff", "uint 32": b"\xce" + b"\xff" * 4,
    "uint 64": b"\xcf" + b"\xff" * 8, "int 8": b"\xd0\x80", "int 16": b"\xd1\x80\x00",
    "int 32": b"\xd2\x80\x00\x00\x00", "int 64": b"\xd3\x80" + bytes(7), "float 32": b"\xca\x7f\xc0\x00\x01",
    "float 64": b"\xcb\x7f\xf8" + bytes(5) + b"\x01", "empty fixstr": b"\xa0", "fixstr": b"\xa3\xff\x00\"",
    "str 8": b"\xd9\x01x", "str 16": b"\xda\x00\x01x", "str 32": b"\xdb\x00\x00\x00\x01x", "bin 8": b"\xc4\x01\x00",
    "bin 16": b"\xc5\x00\x00", "bin 32": b"\xc6\x00\x00\x00\x01\xff", "empty array": b"\x90", "fixarray": b"\x92\xc0\x80",
    "array 16": b"\xdc\x00\x28" + bytes(40), "array 32": b"\xdd\x00\x00\x00\x00", "empty map": b"\x80",
    "fixmap": b"\x81\xa1a\x01", "map with nil": b"\x81\xc0\xc0", "map 16": b"\xde\x00\x01\x01\x02",
    "map 32": b"\xdf\x00\x00\x00\x00",
}
FORBIDDEN = {
    "reserved": b"\xc1", "ext 8": b"\xc7\x01\x05\x00", "ext 16": b"\xc8\x00\x00\x05", "ext 32": b"\xc9" + bytes(5),
    "fixext 1": b"\xd4\x01\x00", "fixext 2": b"\xd5\x01" + bytes(2), "fixext 4": b"\xd6\x01" + bytes(4),
    "fixext 8": b"\xd7\x01" + bytes(8), "fixext 16": b"\xd8\x01" + bytes(16), "timestamp": b"\xd6\xff" + bytes(4),
    **{f"{n} levels": b"\x91" * n + b"\xc0" for n in (9, 100, 10000)},
    **{f"{n} levels of maps": b"\x81\x01" * n + b"\xc0" for n in (9, 100, 10000)},
    **{f"a {kind} of {n}": head + struct.pack(">I", n) for n in MUCH for kind, head in
       (("str", b"\xdb"), ("bin", b"\xc6"), ("array", b"\xdd"), ("map", b"\xdf"))},
    "4097 elements": b"\xdc\x10\x01" + b"\xc0" * 4097, "65537 bytes": b"\xc6\x00\x01\x00\x01" + bytes(65537),
}


class Raw(bytes):
    """Stands for a value that is packed as it is."""


class Pairs(list):
    """A map given as a list of pairs."""


def pack(value):
    """Packs like msgpack, but also accepts Raw and Pairs."""
    if isinstance(value, Raw):
        return bytes(value)
    if isinstance(value, dict):
        value = Pairs(value.items())
    if isinstance(value, Pairs):
        return msgpack.Packer().pack_map_header(len(value)) + b"".join(pack(k) + pack(v) for k, v in value)
    if isinstance(value, list):
        return msgpack.Packer().pack_array_header(len(value)) + b"".join(pack(item) for item in value)
    return msgpack.packb(value, use_bin_type=True)


def message(method, params, msgid=1):
    return pack([0, msgid, method, [] if params is None else [params]])


def places(value, path=()):
    """Yields every value within a document by its path, and the document itself."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def replaced(value, path, other):
    if not path:
        return other
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(copy[path[0]], path[1:], other)
    return copy


def found(value, path):
    for key in path:
        value = value[key]
    return value


class Malformed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmad = Tmad("--frame-deadline-ms=60000", "--log-level=error", "--mapped-bytes-per-uid=16777216")
        cls.addClassCleanup(cls.tmad.stop)

    def setUp(self):
        self.rpc = self.tmad.rpc()
        self.addCleanup(lambda: self.rpc.close())
        self.counts = {"answers": 0, "errors": 0, "ends": 0}

    def tearDown(self):
        print("# " + ", ".join(f"{n} {what}" for what, n in self.counts.items()), flush=True)
        with self.tmad.rpc() as rpc:
            self.assertIs(rpc.call("ping"), True)

    def ask(self, what, data, *, may_succeed=False, has_to_end=False):
        """Sends a whole message. The answer has to be an error with a known status, or the end of the connection."""
        try:
            self.rpc.send(data)  # the connection may end before all of it is sent
            self.rpc.reply(1)
            self.assertTrue(may_succeed, f"{what}: accepted")
            self.counts["answers"] += 1
        except RpcError as error:
            self.assertFalse(has_to_end, f"{what}: {error}")
            self.assertIn(error.name, STATUSES, what)
            self.assertTrue(error.message.isprintable() and error.message, what)
            self.counts["errors"] += 1
            return
        except (BrokenPipeError, ConnectionResetError):
            self.counts["ends"] += 1
            self.rpc.close()
            self.rpc = self.tmad.rpc()
            return
        for fd in self.rpc.fds:
            os.close(fd)
        self.rpc.fds = []

    def each(self):
        for method, params in REQUESTS.items():
            for path in places(params):
                yield method, params, path

    def test_every_type_in_every_field(self):
        for method, params, path in self.each():
            for name, data in TYPES.items():
                with self.subTest(method=method, path=path, type=name):
                    self.ask(name, message(method, replaced(params, path, Raw(data))), may_succeed=True)

    def test_values_that_no_message_may_contain(self):
        """Ext types, excessive depth, and lengths beyond the end of the message end the connection, in any field."""
        for method, params, path in self.each():
            for name, data in FORBIDDEN.items():
                with self.subTest(method=method, path=path, type=name):
                    self.ask(name, message(method, replaced(params, path, Raw(data))), has_to_end=True)

    def test_every_key_twice(self):
        for method, params, path in self.each():
            inner = found(params, path)
            if not isinstance(inner, dict):
                continue
            for key, value in inner.items():
                for pairs in (Pairs([*inner.items(), (key, value)]), Pairs([(key, value), *inner.items()]),
                              Pairs([*inner.items(), ("nobody", value)]), Pairs([*inner.items(), (1, value)]),
                              Pairs([*inner.items(), (key.encode(), value)])):
                    with self.subTest(method=method, path=path, key=key):
                        self.ask(key, message(method, replaced(params, path, pairs)))

    def test_every_field_missing(self):
        for method, params, path in self.each():
            if path:
                inner = found(params, path[:-1])
                less = dict(inner) if isinstance(inner, dict) else list(inner)
                del less[path[-1]]
                with self.subTest(method=method, path=path):
                    self.ask(path, message(method, replaced(params, path[:-1], less)), may_succeed=True)

    def test_truncated_at_every_byte(self):
        """A truncated message alone is never answered; the bytes that follow are taken for its rest."""
        for method, params in REQUESTS.items():
            whole = message(method, params)
            for length in range(1, len(whole)):
                with self.subTest(method=method, length=length), self.tmad.rpc() as rpc:
                    rpc.send(whole[:length])
                    rpc.socket.shutdown(socket.SHUT_WR)
                    self.assertTrue(rpc.ended())
                    self.counts["ends"] += 1
                with self.subTest(method=method, length=length), self.tmad.rpc() as rpc:
                    rpc.send(whole[:length] + message(method, params, 2) * 2)
        with self.tmad.rpc() as rpc:
            wait_until(lambda: rpc.call("stats")["connections"] == 2, "the connections are gone")

    @unittest.skipUnless(NATIVE, "a process's memory is its own only natively")
    def test_memory_of_unfinished_messages(self):
        """Each connection holds as much as it can: most of a message of the maximum size, sent in small pieces."""
        n = share(1000)
        worst = (b"\x94\x00\x01\xa4ping\x91\xc5\xff\x00" + bytes(0xfe00),      # a bin without its end
                 b"\x94\x00\x01\xa4ping\x91\xdc\x0f\xf0" + b"\x90" * 0xfef,    # nested arrays that lack an element
                 b"\x94\x00\x01\xa4ping" + b"\x91" * 7)
        self.ask("warm", message("ping", None), may_succeed=True)
        before = self.tmad.status("VmRSS")
        clients = [Rpc(self.tmad.path) for _ in range(n)]
        try:
            for i, client in enumerate(clients):
                data = worst[i % len(worst)]
                for at in range(0, len(data), 8192):
                    client.send(data[at:at + 8192])
            with self.tmad.rpc() as rpc:
                self.assertIs(rpc.call("ping"), True)
            grown = self.tmad.status("VmRSS") - before
        finally:
            for client in clients:
                client.close()
        print(f"# {n} connections with unfinished messages hold {grown} KiB, {grown / n:.0f} each", flush=True)
        self.assertLessEqual(grown, 1024 * n)


if __name__ == "__main__":
    tap.main()

"""The protocol by hand: python3-msgpack and socket.send_fds, for what a good client sends and what a bad one
does."""
import fcntl
import os
import re
import struct
import sys
import tempfile
import unittest

import msgpack
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import SOURCE, Memory, Rpc, RpcError, Tmad, pack_request, scaled, tensor, wait_until

MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


class RawCase(unittest.TestCase):
    """One daemon for a class, one connection for a test; no test may leave fds or regions behind."""

    @classmethod
    def setUpClass(cls):
        cls.tmad = Tmad()
        cls.addClassCleanup(cls.tmad.stop)
        with cls.tmad.rpc() as rpc:  # what is opened once stays open
            rpc.call("ping")
        cls.idle_fds = wait_until(cls.tmad.fds, 1, "a number")

    def setUp(self):
        self.rpc = self.tmad.rpc()
        self.memories = []

    def tearDown(self):
        for memory in self.memories:
            memory.close()
        self.rpc.close()
        with self.tmad.rpc() as rpc:
            wait_until(lambda: self.levels(rpc) == (1, 0, 0, 0), 5, "only this connection is left, and no region")
        wait_until(lambda: self.tmad.fds() <= self.idle_fds, 5, "the daemon's fds are back where they were")
        self.assertEqual(self.tmad.mappings_of_memfds(), 0)

    @staticmethod
    def levels(rpc):
        stats = rpc.call("stats")
        return stats["connections"], stats["regions"], stats["mapped_bytes"], stats["jobs"]

    def memory(self, *args, **kwargs):
        self.memories.append(Memory(*args, **kwargs))
        return self.memories[-1]

    def region(self, size, **kwargs):
        memory = self.memory(size, **kwargs)
        return memory, memory.register(self.rpc)

    def refused(self, name, method, params=None, words=(), fds=()):
        """The call fails with the status and a sentence that has the words; the connection lives on."""
        with self.assertRaises(RpcError) as caught:
            self.rpc.call(method, params, fds)
        error = caught.exception
        self.assertEqual(error.name, name, error.message)
        self.assertIsInstance(error.code, int)
        self.assertLess(error.code, 0)
        for word in words:
            self.assertIn(word, error.message)
        self.assertNotIn("\n", error.message)
        self.assertIs(self.rpc.call("ping"), True)
        return error


class Moves(RawCase):
    def test_copy(self):
        data = os.urandom(1 << 16)
        src, src_region = self.region(1 << 16, data=data)
        dst, dst_region = self.region(1 << 16)
        done = self.rpc.call("copy", {"dst": tensor(dst_region, [1 << 16]), "src": tensor(src_region, [1 << 16])})
        self.assertEqual(dst[:], data)
        self.assertEqual(src[:], data)
        self.assertEqual(set(done), {"path", "bytes", "ns"})
        self.assertEqual((done["path"], done["bytes"]), ("memcpy", 2 << 16))
        self.assertGreater(done["ns"], 0)

    def test_transpose_leaves_the_rest_alone(self):
        array = np.random.default_rng(1).integers(0, 1 << 32, (61, 97), dtype=np.uint32)
        _, src_region = self.region(array.nbytes, data=array.tobytes())
        dst, dst_region = self.region(array.nbytes + 128, data=b"\xa5" * (array.nbytes + 128))
        done = self.rpc.call("transpose", {"dst": tensor(dst_region, [97, 61], "uint32", offset=64),
                                           "src": tensor(src_region, [61, 97], "uint32"), "perm": [1, 0]})
        self.assertEqual(dst[64:-64], array.T.tobytes())
        self.assertEqual((dst[:64], dst[-64:]), (b"\xa5" * 64, b"\xa5" * 64))
        self.assertEqual(done["path"], "tile_transpose")

    def test_strides(self):
        array = np.arange(120, dtype=np.int16).reshape(10, 12)
        _, src_region = self.region(array.nbytes, data=array.tobytes())
        dst, dst_region = self.region(array.nbytes)
        self.rpc.call("copy", {"dst": tensor(dst_region, [5, 12], "int16"),
                               "src": tensor(src_region, [5, 12], "int16", offset=(9 * 12 + 11) * 2,
                                             strides=[-24, -1])})
        self.assertEqual(dst[:120], array[::-2, ::-1].tobytes())
        self.rpc.call("copy", {"dst": tensor(dst_region, [10, 12], "int16"),
                               "src": tensor(src_region, [10, 12], "int16", strides=[0, 1])})
        self.assertEqual(dst[:], np.broadcast_to(array[0], (10, 12)).tobytes())

    def test_pad_modes(self):
        array = np.random.default_rng(2).integers(0, 255, (7, 9), dtype=np.uint8)
        _, src_region = self.region(array.nbytes, data=array.tobytes())
        dst, dst_region = self.region(4096)
        for mode in MODES:
            with self.subTest(mode=mode):
                expected = np.pad(array, [(2, 3), (5, 1)], mode=mode)
                self.rpc.call("pad", {"dst": tensor(dst_region, expected.shape), "src": tensor(src_region, [7, 9]),
                                      "before": [2, 5], "after": [3, 1], "mode": mode})
                self.assertEqual(dst[:expected.nbytes], expected.tobytes())

    def test_values(self):
        rows = (("float32", np.float32, 1.5, 1.5), ("float32", np.float32, -3, -3), ("int8", np.int8, -128, -128),
                ("uint64", np.uint64, 2**64 - 1, 2**64 - 1), ("bool", np.bool_, 1, 1),
                ("float16", np.float16, 0.1, np.float16(0.1)), ("complex64", np.complex64, [1.5, -2], 1.5 - 2j),
                ("complex128", np.complex128, 7, 7), ("float64", np.float64, float("inf"), np.inf))
        _, src_region = self.region(64)
        dst, dst_region = self.region(256)
        for dtype, numpy_dtype, value, element in rows:
            with self.subTest(dtype=dtype, value=value):
                self.rpc.call("pad", {"dst": tensor(dst_region, [4], dtype), "src": tensor(src_region, [1], dtype),
                                      "before": [2], "after": [1], "value": value})
                size = 4 * np.dtype(numpy_dtype).itemsize
                got = np.frombuffer(dst[:size], numpy_dtype)
                self.assertEqual(list(got), [element, element, 0, element])

    def test_transform_does_all_at_once(self):
        array = np.random.default_rng(3).standard_normal((6, 5, 4))
        expected = np.pad(array.transpose(2, 0, 1), [(1, 0), (0, 2), (3, 3)], constant_values=-0.0)
        _, src_region = self.region(array.nbytes, data=array.tobytes())
        dst, dst_region = self.region(expected.nbytes)
        self.rpc.call("transform", {"mode": "constant", "value": -0.0, "after": [0, 2, 3], "before": [1, 0, 3],
                                    "perm": [2, 0, 1], "src": tensor(src_region, [6, 5, 4], "float64"),
                                    "dst": tensor(dst_region, expected.shape, "float64")})
        self.assertEqual(dst[:], expected.tobytes())

    def test_rank_0_and_32(self):
        _, src_region = self.region(64, data=b"\x07\x08")
        dst, dst_region = self.region(64)
        self.rpc.call("copy", {"dst": tensor(dst_region, []), "src": tensor(src_region, [])})
        self.assertEqual(dst[0], 7)
        shape = [1] * 31 + [2]
        self.rpc.call("copy", {"dst": tensor(dst_region, shape), "src": tensor(src_region, shape)})
        self.assertEqual(dst[:2], b"\x07\x08")
        self.refused("INVALID_ARGUMENT", "copy", {"dst": tensor(dst_region, [1] * 33),
                                                  "src": tensor(src_region, [1] * 33)}, ["shape", "33", "32"])

    def test_no_elements(self):
        _, region = self.region(64)
        done = self.rpc.call("copy", {"dst": tensor(region, [0, 5]), "src": tensor(region, [0, 5])})
        self.assertEqual(done["bytes"], 0)

    def test_explain_agrees_with_what_is_taken(self):
        _, src_region = self.region(1 << 16)
        _, dst_region = self.region(1 << 16)
        for perm, shape in (([0, 1], [128, 128]), ([1, 0], [128, 128])):
            params = {"dst": tensor(dst_region, shape, "float32"), "src": tensor(src_region, shape, "float32"),
                      "perm": perm}
            plan = self.rpc.call("explain", params)
            self.assertEqual(plan["family"], self.rpc.call("transform", params)["path"])
            self.assertEqual((plan["engine"], plan["bytes"]), ("cpu", 2 * 128 * 128 * 4))
        for part in ("dst", "src"):
            del params[part]["region"]
        self.assertEqual(self.rpc.call("explain", params)["family"], plan["family"], "and without regions")


class Regions(RawCase):
    def test_create_hands_out_a_sealed_memfd(self):
        size = 12345
        made = self.rpc.call("region_create", {"size": size})
        self.assertEqual((made["size"], made["kind"], len(self.rpc.fds)), (size, "memfd", 1))
        fd = self.rpc.fds[0]
        self.assertGreaterEqual(os.fstat(fd).st_size, size)
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        self.assertTrue(seals & fcntl.F_SEAL_SHRINK and seals & fcntl.F_SEAL_GROW)
        self.assertEqual(os.pread(fd, size, 0), bytes(size), "new memory is zeroed")
        os.pwrite(fd, b"hello", 0)
        copy, region = self.region(64)
        self.rpc.call("copy", {"dst": tensor(region, [5]), "src": tensor(made["region"], [5])})
        self.assertEqual(copy[:5], b"hello")

    def test_list(self):
        memory = self.memory(8192)
        first = memory.register(self.rpc, size=4096, offset=100, writable=False)
        entries = self.rpc.call("region_list")
        self.assertEqual(entries, [{"region": first, "kind": "memfd", "size": 4096, "offset": 100,
                                    "writable": False, "state": "open", "jobs": 0}])

    def test_ids_are_of_the_connection(self):
        _, region = self.region(64)
        with self.tmad.rpc() as other:
            self.assertEqual(other.call("region_list"), [])
            with self.assertRaises(RpcError) as caught:
                other.call("region_release", {"region": region})
            self.assertEqual(caught.exception.name, "NOT_FOUND")

    def test_released_is_gone(self):
        _, region = self.region(64)
        _, other = self.region(64)
        self.assertIn(self.rpc.call("region_release", {"region": region})["state"], ("closed", "draining"))
        self.refused("NOT_FOUND", "copy", {"dst": tensor(other, [4]), "src": tensor(region, [4])},
                     ["src", str(region)])
        self.refused("NOT_FOUND", "region_release", {"region": region}, [str(region)])
        again = self.memory(64).register(self.rpc)
        self.assertNotEqual(again, region, "an id is not used twice")

    def test_release_drains(self):
        _, src = self.region(1 << 20)
        _, dst = self.region(1 << 20)
        params = {"dst": tensor(dst, [1 << 20]), "src": tensor(src, [1 << 20])}
        copies = [self.rpc.request("copy", params) for _ in range(20)]
        release = self.rpc.request("region_release", {"region": src})
        replies = {message[1]: message for message in (self.rpc.receive() for _ in range(21))}
        for msgid in copies:
            self.assertIsNone(replies[msgid][2], "a request sent before the release is answered")
        self.assertIn(replies[release][3]["state"], ("closed", "draining"))
        wait_until(lambda: len(self.rpc.call("region_list")) == 1, 5, "the released region is gone")

    def test_offset_and_read_only(self):
        data = bytes(range(256)) * 32
        memory = self.memory(len(data), data=data)
        src = memory.register(self.rpc, size=100, offset=4097, writable=False)
        dst, dst_region = self.region(100)
        self.rpc.call("copy", {"dst": tensor(dst_region, [100]), "src": tensor(src, [100])})
        self.assertEqual(dst[:], data[4097:4197])
        self.refused("PERMISSION", "copy", {"dst": tensor(src, [100]), "src": tensor(dst_region, [100])},
                     ["dst", "read-only"])
        self.assertEqual(memory[:], data)

    def test_read_only_fd(self):
        memory = self.memory(4096, data=b"read me")
        fd = os.open(f"/proc/self/fd/{memory.fd}", os.O_RDONLY)
        try:
            self.refused("PERMISSION", "region_register", {"kind": "memfd", "size": 4096}, fds=[fd])
            region = self.rpc.call("region_register", {"kind": "memfd", "size": 4096, "writable": False},
                                   [fd])["region"]
        finally:
            os.close(fd)
        dst, dst_region = self.region(64)
        self.rpc.call("copy", {"dst": tensor(dst_region, [7]), "src": tensor(region, [7])})
        self.assertEqual(dst[:7], b"read me")

    def test_memory_that_is_no_good(self):
        unsealed, short = self.memory(4096, seals=0), self.memory(4096)
        sparse = self.memory(0)
        rows = (("unsealed", "INVALID_ARGUMENT", {"size": 4096}, unsealed.fd, ["F_SEAL_SHRINK"]),
                ("short", "INVALID_ARGUMENT|OUT_OF_RANGE", {"size": 4097}, short.fd, ["4097", "4096"]),
                ("offset past its end", "INVALID_ARGUMENT|OUT_OF_RANGE", {"size": 4096, "offset": 1}, short.fd,
                 ["4096"]),
                ("offset overflows", "INVALID_ARGUMENT|OUT_OF_RANGE", {"size": 2, "offset": 2**64 - 1}, short.fd,
                 []),
                ("size overflows", "INVALID_ARGUMENT|OUT_OF_RANGE|QUOTA", {"size": 2**64 - 1}, short.fd, []),
                ("empty", "INVALID_ARGUMENT|OUT_OF_RANGE", {"size": 4096}, sparse.fd, []),
                ("no bytes", "INVALID_ARGUMENT", {"size": 0}, short.fd, ["size"]))
        for what, names, params, fd, words in rows:
            with self.subTest(what=what):
                with self.assertRaises(RpcError) as caught:
                    self.rpc.call("region_register", {"kind": "memfd", **params}, [fd])
                self.assertIn(caught.exception.name, names.split("|"), caught.exception.message)
                for word in words:
                    self.assertIn(word, caught.exception.message)
        self.assertEqual(self.rpc.call("region_list"), [])

    def test_fds_that_are_no_memory(self):
        read_end, write_end = os.pipe()
        kinds = {"pipe": read_end, "directory": os.open("/", os.O_RDONLY), "device": os.open("/dev/zero", os.O_RDWR),
                 "socket": os.dup(self.rpc.socket.fileno()), "path": os.open("/", os.O_PATH)}
        try:
            with tempfile.TemporaryFile() as file:
                file.truncate(4096)
                kinds["file"] = os.dup(file.fileno())
                for what, fd in kinds.items():
                    with self.subTest(what=what):
                        self.refused("INVALID_ARGUMENT", "region_register", {"kind": "memfd", "size": 4096}, fds=[fd])
        finally:
            for fd in (*kinds.values(), write_end):
                os.close(fd)

    def test_fd_missing_or_not_wanted(self):
        memory = self.memory(4096)
        self.refused("INVALID_ARGUMENT", "region_register", {"kind": "memfd", "size": 4096}, ["fd"])
        self.assertIs(self.rpc.call("ping", fds=[memory.fd, memory.fd]), True,
                      "fds that no request takes are dropped")
        self.refused("INVALID_ARGUMENT|UNSUPPORTED".split("|")[0], "region_register",
                     {"kind": "nothing", "size": 4096}, ["kind", "nothing"], [memory.fd])

    def test_other_kinds(self):
        self.refused("UNSUPPORTED", "region_register", {"kind": "cuda_ipc", "size": 4096, "handle": bytes(64)},
                     ["cuda_ipc"])
        self.refused("UNSUPPORTED", "region_create", {"size": 4096, "kind": "cuda_fd"}, ["cuda_fd"])

    def test_too_many_fds_end_the_connection(self):
        memory = self.memory(64)
        with self.tmad.rpc() as rpc:
            rpc.request("ping", fds=[memory.fd] * 200)
            self.assertTrue(rpc.ended())
        self.assertIs(self.rpc.call("ping"), True)


class BadTransforms(RawCase):
    def setUp(self):
        super().setUp()
        self.data = os.urandom(4096)
        self.src, self.a = self.region(4096, data=self.data)
        self.dst, self.b = self.region(4096, data=b"\x5a" * 4096)

    def tearDown(self):
        self.assertEqual((self.src[:], self.dst[:]), (self.data, b"\x5a" * 4096), "memory is as it was")
        super().tearDown()

    def test_rows(self):
        a, b = self.a, self.b
        t = tensor
        big = 2**62
        rows = (
            ("perm too short", "INVALID_ARGUMENT", "transpose", {"perm": [0]}, [4, 4], [4, 4], ["perm"]),
            ("perm twice", "INVALID_ARGUMENT", "transpose", {"perm": [1, 1]}, [4, 4], [4, 4], ["perm", "1"]),
            ("perm negative", "INVALID_ARGUMENT", "transpose", {"perm": [-1, 0]}, [4, 4], [4, 4], ["perm", "-1"]),
            ("perm past rank", "INVALID_ARGUMENT", "transpose", {"perm": [0, 2]}, [4, 4], [4, 4], ["perm", "2"]),
            ("perm left out", "INVALID_ARGUMENT", "transpose", {}, [4, 4], [4, 4], ["perm"]),
            ("shape product overflows", "INVALID_ARGUMENT", "copy", {}, [big, big], [big, big], [str(big)]),
            ("shape negative", "INVALID_ARGUMENT", "copy", {}, [-1], [-1], ["shape", "-1"]),
            ("shapes differ", "INVALID_ARGUMENT", "copy", {}, [4, 5], [5, 4], ["4", "5"]),
            ("ranks differ", "INVALID_ARGUMENT", "copy", {}, [20], [5, 4], []),
            ("crops everything", "INVALID_ARGUMENT", "pad", {"before": [-3], "after": [-3]}, [4], [4], ["-3"]),
            ("pad overflows", "INVALID_ARGUMENT", "pad", {"before": [2**63 - 1], "after": [1]}, [4], [4], []),
            ("pad too short", "INVALID_ARGUMENT", "pad", {"before": [1], "after": [0, 0]}, [5, 4], [4, 4], ["before"]),
            ("after left out", "INVALID_ARGUMENT", "pad", {"before": [0]}, [4], [4], ["after"]),
            ("unknown mode", "INVALID_ARGUMENT", "pad", {"before": [1], "after": [0], "mode": "mirror"}, [5], [4],
             ["mode", "mirror"]),
            ("value not of the type", "INVALID_ARGUMENT", "pad", {"before": [1], "after": [0], "value": 300}, [5], [4],
             ["value", "300"]),
            ("value a fraction", "INVALID_ARGUMENT", "pad", {"before": [1], "after": [0], "value": 0.5}, [5], [4],
             ["value", "0.5"]),
            ("value a text", "INVALID_ARGUMENT", "pad", {"before": [1], "after": [0], "value": "x"}, [5], [4],
             ["value"]),
            ("nothing to reflect", "INVALID_ARGUMENT", "pad", {"before": [1], "after": [0], "mode": "reflect"}, [1],
             [0], []),
            ("destination too small", "OUT_OF_RANGE", "copy", {}, [4097], [4097], ["4097", "4096"]),
        )
        for what, name, method, extra, dst_shape, src_shape, words in rows:
            with self.subTest(what=what):
                self.refused(name, method, {"dst": t(b, dst_shape), "src": t(a, src_shape), **extra}, words)

    def test_tensors(self):
        a, b = self.a, self.b
        good = tensor(a, [4])
        rows = (
            ("dst past its region", "OUT_OF_RANGE", tensor(b, [4], offset=4093), good, ["dst", "4096"]),
            ("src past its region", "OUT_OF_RANGE", tensor(b, [4]), tensor(a, [4], offset=4093), ["src", "4096"]),
            ("offset huge", "OUT_OF_RANGE", tensor(b, [4], offset=2**64 - 1), good, ["dst"]),
            ("negative stride leaves it", "OUT_OF_RANGE", tensor(b, [4]), tensor(a, [4], strides=[-1]), ["src"]),
            ("strides overflow", "INVALID_ARGUMENT", tensor(b, [4]), tensor(a, [4], strides=[2**62]), ["src"]),
            ("strides too few", "INVALID_ARGUMENT", tensor(b, [2, 2]), tensor(a, [2, 2], strides=[1]), ["strides"]),
            ("dst repeats", "OVERLAP", tensor(b, [4], strides=[0]), good, ["dst"]),
            ("dst meets itself", "OVERLAP", tensor(b, [4, 4], strides=[2, 1]), tensor(a, [4, 4]), ["dst"]),
            ("dst meets src", "OVERLAP", tensor(a, [4], offset=2), good, []),
            ("types differ", "INVALID_ARGUMENT", tensor(b, [4], "int8"), good, ["int8", "uint8"]),
            ("unknown type", "INVALID_ARGUMENT", tensor(b, [4], "float128"), good, ["dst.dtype", "float128"]),
            ("no such region", "NOT_FOUND", tensor(77777, [4]), good, ["dst", "77777"]),
            ("no region", "INVALID_ARGUMENT", {"dtype": "uint8", "shape": [4]}, good, ["dst.region"]),
            ("no shape", "INVALID_ARGUMENT", {"region": b, "dtype": "uint8"}, good, ["dst.shape"]),
            ("unknown field", "INVALID_ARGUMENT", tensor(b, [4], colour=1), good, ["dst", "colour"]),
            ("shape of texts", "INVALID_ARGUMENT", tensor(b, ["4"]), good, ["dst.shape"]),
            ("region a text", "INVALID_ARGUMENT", tensor("1", [4]), good, ["dst.region"]),
            ("offset negative", "INVALID_ARGUMENT", tensor(b, [4], offset=-1), good, ["dst.offset"]),
            ("tensor a list", "INVALID_ARGUMENT", [b, [4]], good, ["dst"]),
            ("tensor nil", "INVALID_ARGUMENT", None, good, ["dst"]),
        )
        for what, name, dst, src, words in rows:
            with self.subTest(what=what):
                self.refused(name, "copy", {"dst": dst, "src": src}, words)

    def test_overlap_across_registrations(self):
        again = self.src.register(self.rpc)
        self.refused("OVERLAP", "copy", {"dst": tensor(again, [4], offset=2), "src": tensor(self.a, [4])})
        with Memory(8192, data=b"\x11" * 8192) as whole:
            low = whole.register(self.rpc, size=4096)
            high = whole.register(self.rpc, size=4096, offset=4096)
            self.rpc.call("copy", {"dst": tensor(high, [4096]), "src": tensor(low, [4096])})

    def test_fields_of_another_method(self):
        params = {"dst": tensor(self.b, [4]), "src": tensor(self.a, [4])}
        self.refused("INVALID_ARGUMENT", "copy", {**params, "perm": [0]}, ["perm"])
        self.refused("INVALID_ARGUMENT", "pad", {**params, "before": [0], "after": [0], "perm": [0]}, ["perm"])
        self.refused("INVALID_ARGUMENT", "copy", {"dst": tensor(self.b, [4])}, ["src"])

    def test_duplicate_field(self):
        key = msgpack.packb("size")
        params = b"\x82" + key + msgpack.packb(1) + key + msgpack.packb(2)
        self.rpc.send(b"\x94\x00\x63" + msgpack.packb("region_create") + b"\x91" + params)
        error = self.rpc.receive()
        self.assertEqual(error[:2], [1, 0x63])
        self.assertEqual(error[2][2]["name"], "INVALID_ARGUMENT")
        self.assertIn("size", error[2][1])


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
        self.assertEqual(self.rpc.receive()[3]["engine"], "cpu")

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
                ("method a number", msgpack.packb([0, 1, 5, []])),
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
                if message is None:  # ending the connection is also an answer to what is no MessagePack-RPC
                    self.rpc = self.tmad.rpc()
                    continue
                self.assertEqual(message[1], i)
                self.assertEqual(message[2][2]["name"], "INVALID_ARGUMENT")

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
        bad = self.memory(4096, seals=0)
        self.rpc.call("ping")  # this connection counts
        before = self.tmad.fds()
        for _ in range(300):
            with self.assertRaises(RpcError):
                self.rpc.call("region_register", {"kind": "memfd", "size": 4096}, [bad.fd])
            with self.assertRaises(RpcError):
                self.rpc.call("region_register", {"kind": "memfd", "size": 4096, "what": 1}, [bad.fd])
        wait_until(lambda: self.tmad.fds() <= before, scaled(5), "every descriptor is closed")


class Documents(RawCase):
    def test_info(self):
        info = self.rpc.call("info")
        self.assertEqual(set(info), {"version", "protocol", "boot_id", "engine", "device", "limits", "methods",
                                     "dtypes"})
        self.assertEqual(info["boot_id"], self.rpc.call("info")["boot_id"])
        self.assertEqual(len(info["dtypes"]), 17)
        self.assertTrue(all(isinstance(value, int) for value in info["limits"].values()))

    def test_readme_tells_the_same(self):
        """The README's tables are those of info."""
        with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as file:
            readme = file.read()
        info = self.rpc.call("info")
        first_cells = re.findall(r"^\| `(\w+)` \| (.*?) \|", readme, re.MULTILINE)
        fixed = re.findall(r"`(\w+)` (\d+)", readme[readme.index("\nFixed, "):])
        self.assertLessEqual(set(info["methods"]), {name for name, _ in first_cells})
        told = {name: value for name, value in [*first_cells, *fixed] if name not in info["methods"]}
        self.assertEqual(set(told), set(info["limits"]))
        for name, value in told.items():
            if value.isdigit():
                self.assertEqual(int(value), info["limits"][name], name)

    def test_manual_tells_the_same(self):
        """Every limit is an option in tmad(8), with its default."""
        with open(os.path.join(SOURCE, "daemon", "tmad.8"), encoding="utf-8") as file:
            manual = file.read().replace("\\-", "-")
        for name, value in self.rpc.call("info")["limits"].items():
            if name.startswith(("message_bytes", "message_depth", "message_elements", "rank")):
                continue  # of the protocol, no options
            entry = re.search(r"^\.BI --" + name.replace("_", "-") + r"= N\n(.*)$", manual, re.MULTILINE)
            self.assertIsNotNone(entry, name)
            told = re.search(r"\(default (\d+)\)", entry[1])
            if told:
                self.assertEqual(int(told[1]), value, name)

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
        count = [sum(bar["count"] for bar in stats["latency"]) for stats in (before, after)]
        self.assertEqual(count[1], count[0] + 3)


if __name__ == "__main__":
    tap.main()

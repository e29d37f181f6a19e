# SPDX-License-Identifier: Apache-2.0
"""What a transform request does, and what it refuses."""
import os
import sys

import msgpack
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from raw import RawCase
from tmad import ENGINE, Memory, tensor

MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


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
            self.assertEqual((plan["engine"], plan["bytes"]), (ENGINE, 2 * 128 * 128 * 4))
        for part in ("dst", "src"):
            del params[part]["region"]
        self.assertEqual(self.rpc.call("explain", params)["family"], plan["family"], "and without regions")


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


if __name__ == "__main__":
    tap.main()

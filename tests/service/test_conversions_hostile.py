# SPDX-License-Identifier: Apache-2.0
"""Conversions by clients that mean harm: operands that change, vanish or lie elsewhere, numbers of every kind, and
requests that mean nothing. The service answers each by name, writes nothing but the destination, and goes on."""
import contextlib
import os
import signal
import sys
import threading
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from conversion import SMALL, convert, load, storage
from tmad import Memory, Rpc, RpcError, Tmad, share, tensor, wait_until

PAGE = os.sysconf("SC_PAGE_SIZE")
SIZE = 1 << 20
DST, SRC, OPERAND = 0, SIZE // 4, SIZE // 2  # where tensors lie in a region of SIZE bytes


@contextlib.contextmanager
def changing(operand, values):
    """A process that writes one value after the other to all elements, without end."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(tell, b"x")
            while True:
                for value in values:
                    operand[...] = value
        finally:
            os._exit(1)
    os.close(tell)
    try:
        with os.fdopen(told, "rb") as pipe:
            assert pipe.read(1) == b"x", "the writer did not start"
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmad = Tmad()
        cls.addClassCleanup(cls.tmad.stop)

    def setUp(self):
        self.rpc = self.tmad.rpc()
        self.addCleanup(self.rpc.close)
        self.memory = Memory(SIZE)
        self.addCleanup(self.memory.close)
        self.bytes = np.frombuffer(self.memory.map, np.uint8)
        self.addCleanup(delattr, self, "bytes")
        self.region = self.memory.register(self.rpc)

    def view(self, offset, shape, dtype):
        """An array of the region, and how the service sees it."""
        count = int(np.prod(shape, dtype=np.int64))
        array = self.bytes[offset:offset + count * storage(dtype).itemsize].view(storage(dtype)).reshape(shape)
        return array, tensor(self.region, shape, dtype, offset=offset)

    def status(self, method, params):
        try:
            self.rpc.call(method, params)
        except RpcError as e:
            return e.name
        return None


class Changes(Case):
    # name, shape of the source, permutation, shape of the scale, type of the destination
    ROWS = (
        ("one for all", (64, 96), [0, 1], (), "float32"),
        ("of rows", (64, 96), [0, 1], (64, 1), "float32"),
        ("of columns", (64, 96), [0, 1], (96,), "float32"),
        ("of columns, transposed", (64, 96), [1, 0], (64,), "float16"),
        ("of elements", (64, 96), [0, 1], (64, 96), "int32"),
        ("small", (3, 5), [1, 0], (3,), "float64"),
    )

    def test_each_element_has_some_scale(self):
        """Whichever values the service reads, each element of the result is that of one of them."""
        values = (2.0, 3.0, -1.0)
        for name, shape, perm, scale_shape, target in self.ROWS:
            with self.subTest(name):
                out = [shape[p] for p in perm]
                (dst, dst_at), (src, src_at) = self.view(DST, out, target), self.view(SRC, shape, "float32")
                scale, scale_at = self.view(OPERAND, scale_shape, "float32")
                src[...] = 1 + np.arange(src.size).reshape(shape) % 250
                scale[...] = values[0]
                params = {"dst": dst_at, "src": src_at, "perm": perm, "cast": "saturate", "scale": scale_at}
                with changing(scale, values):
                    for _ in range(share(300)):
                        self.rpc.call("transform", params)
                        got = load(dst, target, np.float64)
                        self.assertTrue(np.isin(got / src.transpose(perm), values).all())

    def test_exact_casts_count_some_scale(self):
        """With a scale that is 1 or 0.5: either done, or refused with what is counted of the elements."""
        (dst, dst_at), (src, src_at) = self.view(DST, (5000,), "int32"), self.view(SRC, (5000,), "float32")
        scale, scale_at = self.view(OPERAND, (1,), "float64")
        src[...] = 1
        scale[...] = 1
        seen = set()
        with changing(scale, (1.0, 0.5)):
            for _ in range(share(2000)):
                seen.add(self.status("transform", {"dst": dst_at, "src": src_at, "cast": "exact", "scale": scale_at}))
                self.assertLessEqual(set(dst.tolist()), {0, 1})
        self.assertLessEqual(seen, {None, "OUT_OF_RANGE"})

    def test_a_released_scale_is_held(self):
        """Requests before the release have it; those after it have not."""
        (dst, dst_at), (src, src_at) = self.view(DST, (20000,), "float32"), self.view(SRC, (20000,), "float32")
        src[...] = 3
        with Memory(PAGE, data=np.array([5], "f4").tobytes()) as operand:
            region = operand.register(self.rpc)
            params = {"dst": dst_at, "src": src_at, "cast": "saturate", "scale": tensor(region, [1], "float32")}
            before = [self.rpc.request("transform", params) for _ in range(30)]
            release = self.rpc.request("region_release", {"region": region})
            after = self.rpc.request("transform", params)
            errors = {}
            for _ in range(len(before) + 2):
                _, request, error, _ = self.rpc.receive()
                errors[request] = error and error[2]["name"]
            self.assertEqual([errors[request] for request in (*before, release)], [None] * 31)
            self.assertEqual(errors[after], "NOT_FOUND")
            self.assertEqual(set(dst.tolist()), {15.0})

    def test_a_plan_outlives_the_scale_of_a_run(self):
        (dst, dst_at), (src, src_at) = self.view(DST, (64,), "float32"), self.view(SRC, (64,), "float32")
        src[...] = 3
        plan = self.rpc.call("plan_prepare", {"dst": {"dtype": "float32", "shape": [64]},
                                              "src": {"dtype": "float32", "shape": [64]}, "cast": "saturate",
                                              "scale": {"dtype": "float32", "shape": [1]}})["plan"]
        run = {"plan": plan, "dst": [self.region, DST], "src": [self.region, SRC]}
        with Memory(PAGE, data=np.array([5], "f4").tobytes()) as operand:
            region = operand.register(self.rpc)
            self.rpc.call("plan_run", {**run, "scale": [region, 0]})
            self.assertEqual(set(dst.tolist()), {15.0})
            self.assertEqual(self.status("plan_run", {**run, "scale": [region, PAGE - 3]}), "OUT_OF_RANGE")
            self.rpc.call("region_release", {"region": region})
            self.assertEqual(self.status("plan_run", {**run, "scale": [region, 0]}), "NOT_FOUND")
        self.assertEqual(self.status("plan_run", run), "INVALID_ARGUMENT")
        self.assertEqual(self.status("plan_run", {**run, "scale": [self.region, DST]}), "OVERLAP")

    def test_a_scale_that_is_cut(self):
        """The file of the scale loses its pages: the requests that meet it fail, and nothing else does."""
        n = 1 << 16
        (dst, dst_at), (src, src_at) = self.view(DST, (n,), "float32"), self.view(SRC, (n,), "float32")
        src[...] = 3
        with Memory(4 * n, seals=0) as operand:
            region = operand.register(self.rpc)
            params = {"dst": dst_at, "src": src_at, "cast": "saturate", "scale": tensor(region, [n], "float32")}
            stop = threading.Event()

            def cut():
                while not stop.is_set():
                    os.ftruncate(operand.fd, 0)
                    os.ftruncate(operand.fd, 4 * n)
            thread = threading.Thread(target=cut)
            thread.start()
            try:
                seen = {self.status("transform", params) for _ in range(share(2000))}
            finally:
                stop.set()
                thread.join()
            self.assertLessEqual(seen, {None, "DEVICE"})
            os.ftruncate(operand.fd, 0)
            self.assertEqual(self.status("transform", params), "DEVICE")
            self.assertIs(self.rpc.call("ping"), True)
            self.assertIsNone(self.status("transform", {**params, "scale": 2}))
            self.assertEqual(set(dst.tolist()), {6.0})

    def test_operands_in_the_destination_of_a_list(self):
        """Which the service does not look for: what is written is any number, and nothing else is."""
        self.bytes[...] = 0x3f
        params = {"dst": tensor(self.region, [100], "float32", offset=DST), "src": tensor(self.region, [100], "uint8", offset=SRC),
                  "index_dtype": "int32", "index": np.arange(50, dtype="i4").tobytes(), "limit": 50, "cast": "saturate"}
        for name in ("scale", "bias"):
            for dtype in ("float32", "float64"):
                for offset in (DST, DST + 3, DST + 400 * 49):
                    self.rpc.call("gather", {**params, name: tensor(self.region, [100], dtype, offset=offset)})
        self.assertTrue((self.bytes[50 * 400:] == 0x3f).all())

    def test_clients_that_go(self):
        """With conversions under way, whose operands nobody else has."""
        with self.tmad.rpc() as stays:
            wait_until(lambda: stays.call("stats")["regions"] == 1, "those of other cases are gone")
            for _ in range(share(100)):
                with Rpc(self.tmad.path) as rpc, Memory(SIZE) as memory:
                    region = memory.register(rpc)
                    params = {"dst": tensor(region, [300, 200], "float16", offset=DST),
                              "src": tensor(region, [200, 300], "float32", offset=SRC), "perm": [1, 0], "cast": "saturate",
                              "scale": tensor(region, [300, 1], "float64", offset=OPERAND)}
                    for _ in range(10):
                        rpc.request("transform", params)
            wait_until(lambda: stays.call("stats")["regions"] == 1, "the regions are gone")


class Numbers(Case):
    SPECIAL = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 5e-324, -1e-310, 1e-45, 1e-40, 2.0 ** -126, 2.0 ** -133, 65504,
                        65519.99, 65520, 448, 464, 57344, 61440, 3.4e38, 3.5e38, 1e308, 1.7e308, 2.0 ** 31, 2.0 ** 63, 2.0 ** 64,
                        -2.0 ** 63, 0.5, 1.5, 2.5, 255.5, -128.5, 1 / 3])
    TARGETS = ("float64", "float32", "bfloat16", "float16", "float8_e5m2", "float8_e4m3fn", "int64", "uint64", "int8", "uint8",
               "bool")

    def test_special_numbers(self):
        """All of them as elements times all of them as scales, plus some as biases."""
        special = self.SPECIAL
        n = len(special)
        for source in ("float32", "float64"):
            for target in self.TARGETS:
                for i, cast in enumerate(("saturate", "exact")):
                    with self.subTest(source=source, target=target, cast=cast):
                        src, src_at = self.view(SRC, (n,), source)
                        dst, dst_at = self.view(DST, (n, n, 3), target)
                        scale, scale_at = self.view(OPERAND, (n, 1), ("float64", "float32")[i])
                        bias, bias_at = self.view(OPERAND + PAGE, (3,), "float64")
                        with np.errstate(all="ignore"):
                            src[...] = special
                            scale[...] = special.reshape(n, 1)
                            bias[...] = (-0.0, np.inf, 1e-310)
                            data = np.broadcast_to(src[:, None, None], (n, n, 3))
                            expected, same = convert(data, source, target, cast, scale, bias)
                        src_at.update(shape=[n, n, 3], strides=[1, 0, 0])
                        status = self.status("transform", {"dst": dst_at, "src": src_at, "cast": cast, "scale": scale_at,
                                                           "bias": bias_at})
                        self.assertEqual(status, None if cast == "saturate" or same.all() else "OUT_OF_RANGE")
                        bits = f"u{dst.itemsize}"
                        wrong = dst.view(bits) != np.ascontiguousarray(expected).view(bits)
                        if target in SMALL or target.startswith("float"):
                            values, wanted = load(dst, target, np.float64), load(expected, target, np.float64)
                            wrong &= ~(np.isnan(values) & np.isnan(wanted))
                        at = np.argwhere(wrong)
                        self.assertEqual(len(at), 0, f"{at[:5].tolist()}: {dst[wrong][:5]} not {expected[wrong][:5]}")

    def test_numbers_of_the_request(self):
        """As scale and bias themselves."""
        dst, dst_at = self.view(DST, (4,), "float32")
        src, src_at = self.view(SRC, (4,), "float32")
        src[...] = (1, -2, 0, np.inf)
        for scale in (0, -1, 1 << 63, (1 << 64) - 1, -(1 << 63), 1e308, 1e-310, float("inf"), float("nan"), True):
            with self.subTest(scale=scale):
                self.rpc.call("transform", {"dst": dst_at, "src": src_at, "cast": "exact", "scale": scale})
                with np.errstate(all="ignore"):
                    expected = src * np.float64(scale).astype("f4")
                self.assertTrue(np.array_equal(dst, expected, equal_nan=True), (dst, expected))

    def test_inexact_values_are_counted(self):
        """By the message, and by the service's counter of errors."""
        dst, dst_at = self.view(DST, (300, 50), "uint8")
        src, src_at = self.view(SRC, (50, 300), "float32")
        src[...] = 7
        src[13, 5::10] = 0.5
        before = self.rpc.call("stats")["errors"].get("OUT_OF_RANGE", 0)
        with self.assertRaises(RpcError) as refused:
            self.rpc.call("transform", {"dst": dst_at, "src": src_at, "perm": [1, 0], "cast": "exact"})
        self.assertEqual(refused.exception.name, "OUT_OF_RANGE")
        self.assertIn("30 elements of float32 are not values of uint8", str(refused.exception))
        self.assertEqual(dst.sum(), 7 * (15000 - 30))
        self.assertEqual(self.rpc.call("stats")["errors"]["OUT_OF_RANGE"], before + 1)


class Refused(Case):
    def operand(self, offset=OPERAND, shape=(4,), dtype="float32", **fields):
        return tensor(self.region, shape, dtype, offset=offset, **fields)

    def rows(self):
        """Name, what is other than in a request that is right, status, and words."""
        operand = self.operand
        return (
            ("past the end", {"scale": operand(SIZE)}, "OUT_OF_RANGE", "scale: bytes"),
            ("partly past the end", {"bias": operand(SIZE - 15)}, "OUT_OF_RANGE", "bias: bytes"),
            ("far away", {"scale": operand((1 << 64) - 1)}, "OUT_OF_RANGE", "scale: offset"),
            ("before the region", {"scale": operand(8, strides=[-1])}, "OUT_OF_RANGE", "before the region starts"),
            ("a huge stride", {"scale": operand(strides=[1 << 40])}, "OUT_OF_RANGE", "scale: bytes"),
            ("a stride that overflows", {"scale": operand(strides=[1 << 62])}, "INVALID_ARGUMENT", "overflow 63 bits"),
            ("the smallest stride", {"scale": operand(strides=[-(1 << 63)])}, "INVALID_ARGUMENT", "overflow 63 bits"),
            ("too few strides", {"scale": operand(strides=[])}, "INVALID_ARGUMENT", "scale.strides: 0 entries"),
            ("the destination", {"scale": operand(DST)}, "OVERLAP", "it shares bytes with scale"),
            ("into the destination", {"bias": operand(DST + 15)}, "OVERLAP", "it shares bytes with bias"),
            ("in place", {"dst": tensor(self.region, [4], "uint8", offset=SRC)}, "OVERLAP", "it shares bytes with src"),
            ("in place, as large", {"dst": tensor(self.region, [4], "int32", offset=SRC)}, "OVERLAP", "shares bytes with src"),
            ("complex", {"src": tensor(self.region, [4], "complex64", offset=SRC)}, "INVALID_ARGUMENT",
             "complex64 to int32; complex types are not converted"),
            ("to complex", {"dst": tensor(self.region, [4], "complex128")}, "INVALID_ARGUMENT", "float32 to complex128"),
            ("another extent", {"scale": operand(shape=[3])}, "INVALID_ARGUMENT", "scale.shape: dimension 0 is 3"),
            ("no extent", {"scale": operand(shape=[0])}, "INVALID_ARGUMENT", "it does not broadcast"),
            ("a negative extent", {"scale": operand(shape=[-1])}, "INVALID_ARGUMENT", "no dimension can be negative"),
            ("a rank too many", {"scale": operand(shape=[1, 4])}, "INVALID_ARGUMENT", "rank 2, but the permuted source has rank 1"),
            ("integers", {"scale": operand(dtype="int32")}, "INVALID_ARGUMENT", "int32, but it must be float32 or float64"),
            ("small floats", {"bias": operand(dtype="bfloat16")}, "INVALID_ARGUMENT", "must be float32 or float64"),
            ("a split", {"scale": operand(split=[0, 2])}, "INVALID_ARGUMENT", 'unknown field "split" of'),
            ("text", {"scale": "2"}, "INVALID_ARGUMENT", "scale: expected a number or a map"),
            ("nothing", {"bias": None}, "INVALID_ARGUMENT", "bias: expected a number or a map"),
            ("no memory", {"scale": {"dtype": "float32", "shape": [4]}}, "INVALID_ARGUMENT", "scale.region: missing"),
            ("memory of nobody", {"scale": tensor(999, [4], "float32")}, "NOT_FOUND", "scale.region"),
            ("no cast", {"cast": None}, "INVALID_ARGUMENT", "cast: expected"),
            ("another cast", {"cast": "wrap"}, "INVALID_ARGUMENT", "is not a cast (saturate, exact, ieee)"),
        )

    def test_rows(self):
        right = {"dst": tensor(self.region, [4], "int32", offset=DST), "src": tensor(self.region, [4], "float32", offset=SRC),
                 "cast": "saturate"}
        self.bytes[...] = 0x5a
        for name, change, status, words in self.rows():
            for method in ("transform", "submit"):
                with self.subTest(name, method=method):
                    params = {**right, **change}
                    if method == "transform":
                        with self.assertRaises(RpcError) as refused:
                            self.rpc.call(method, params)
                        self.assertEqual(refused.exception.name, status)
                        said = str(refused.exception)
                    else:
                        reply = self.rpc.call("submit", {"items": [params, right]})
                        self.assertEqual(reply["statuses"][1], 0)
                        self.assertLess(reply["statuses"][0], 0)
                        said = str(reply["errors"])
                        self.bytes[DST:DST + 16] = 0x5a
                    self.assertIn(words, said)
                    self.assertTrue((self.bytes == 0x5a).all(), "something was written")

    def test_operands_without_a_cast(self):
        params = {"dst": tensor(self.region, [4], "float32", offset=DST), "src": tensor(self.region, [4], "float32", offset=SRC)}
        for name in ("scale", "bias"):
            with self.assertRaises(RpcError) as refused:
                self.rpc.call("transform", {**params, name: 2})
            self.assertIn(f"{name}: only with cast", str(refused.exception))

    def test_what_is_allowed(self):
        """A region that is read-only, an operand beside the destination, one at an odd address, and one backwards."""
        (dst, dst_at), (src, src_at) = self.view(DST, (4,), "float32"), self.view(SRC, (4,), "float32")
        src[...] = 1
        read_only = self.memory.register(self.rpc, writable=False)
        values = np.array([1, 2, 3, 4], "f4")
        for name, region, offset, strides in (("read-only", read_only, OPERAND, [1]), ("beside dst", self.region, 16, [1]),
                                              ("at an odd address", self.region, OPERAND + 3, [1]),
                                              ("backwards", self.region, OPERAND + 12, [-1])):
            with self.subTest(name):
                at = offset - 12 if strides[0] < 0 else offset
                self.bytes[at:at + 16] = values.view("u1")
                self.rpc.call("transform", {"dst": dst_at, "src": src_at, "cast": "saturate",
                                            "scale": tensor(region, [4], "float32", offset=offset, strides=strides)})
                self.assertEqual(dst.tolist(), values[::strides[0]].tolist())


if __name__ == "__main__":
    tap.main()

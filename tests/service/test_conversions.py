# SPDX-License-Identifier: Apache-2.0
"""Conversions against NumPy, bit for bit: random transforms with a cast, operands of all kinds, pads, crops and strides.

The oracle is tests/support/conversion.py. The seed is printed; TEST_SEED repeats a run, TEST_CASES sets its length.
"""
import itertools
import os
import random
import sys
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from conversion import FLOATS, INTEGERS, SMALL, check_same, convert, pad, random_values, storage
from tmad import Memory, RpcError, Tmad, share

MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


class Case:
    """A random request, its memory and the expected result."""

    def __init__(self, rng):
        self.source, self.target = (str(rng.choice(INTEGERS + FLOATS)) for _ in range(2))
        self.cast = str(rng.choice(("saturate", "saturate", "exact", "ieee")))
        rank = int(rng.integers(0, 5))
        most = int(rng.choice((3, 9, 40, 400))) if rank else 1
        self.shape = [int(rng.integers(1, most + 1)) for _ in range(rank)]
        while np.prod(self.shape, dtype=np.int64) > 60000:
            self.shape[int(rng.integers(0, rank))] = int(rng.integers(1, 7))
        self.perm = [int(d) for d in rng.permutation(rank)]
        permuted = [self.shape[d] for d in self.perm]
        self.mode = str(rng.choice(MODES)) if rng.integers(0, 2) else "constant"
        self.before, self.after = [0] * rank, [0] * rank
        for d in range(rank):
            if rng.integers(0, 3) == 0:
                self.before[d] = int(rng.integers(-min(2, permuted[d] - 1), 4))
                left = permuted[d] + min(self.before[d], 0)
                self.after[d] = int(rng.integers(-min(2, left - 1), 4))
        if np.prod([n + b + a for n, b, a in zip(permuted, self.before, self.after)], dtype=np.int64) > 200000:
            self.before, self.after = [0] * rank, [0] * rank
        self.value = int(rng.integers(0, 2)) if self.mode == "constant" else 0
        self.scale, self.bias = (self._operand(rng, permuted) for _ in range(2))
        self.data = random_values(rng, self.source, self.shape)
        self.is_strided = bool(rng.integers(0, 3))

    def _operand(self, rng, permuted):
        kind = int(rng.integers(0, 4))
        if kind == 0 or kind == 3:
            return None
        if kind == 1:
            return float(rng.choice((0.5, -2.0, 1 / 255, 3.0, 1e-3, 1e6)))
        shape = [n if rng.integers(0, 2) else 1 for n in permuted[int(rng.integers(0, len(permuted) + 1)):]]
        dtype = str(rng.choice(("float32", "float64")))
        return np.asarray(rng.standard_normal(shape) * 4, dtype)

    def expected(self):
        array = self.data.transpose(self.perm)
        converted, same = convert(array, self.source, self.target, self.cast, self.scale, self.bias)
        crop = tuple(slice(max(-b, 0), n - max(-a, 0)) for b, a, n in zip(self.before, self.after, converted.shape))
        pads = [(max(b, 0), max(a, 0)) for b, a in zip(self.before, self.after)]
        converted = converted[crop]
        self.fails = self.cast == "exact" and not same[crop].all()
        if not pads:
            return converted
        if self.mode != "constant":
            return pad(converted, pads, self.mode)
        value = (SMALL[self.target].store(np.array(float(self.value)), True) if self.target in SMALL else self.value)
        return np.pad(converted, pads, constant_values=value)

    def __str__(self):
        def text(o):
            return o if not isinstance(o, np.ndarray) else f"{o.dtype}{list(o.shape)}"
        return (f"{self.source} to {self.target} {self.cast} {self.shape} perm {self.perm} before {self.before} after "
                f"{self.after} {self.mode} scale {text(self.scale)} bias {text(self.bias)}")


class Images(Case):
    """Pixels of bytes whose channels become planes, cropped or not, with factors for each channel or without."""

    def __init__(self, rng):
        self.is_strided = False
        self.source = str(rng.choice(("uint8", "int8", "bool", "float8_e4m3fn", "float8_e5m2")))
        self.target = str(rng.choice(INTEGERS + FLOATS))
        self.cast = str(rng.choice(("saturate", "saturate", "saturate", "exact", "ieee")))
        height, width = int(rng.integers(1, 20)), int(rng.choice((1, 4, 15, 16, 48, 100, 224, 1000)))
        self.shape = [int(rng.integers(1, 4)), height, width, int(rng.choice((3, 4)))]
        self.perm = [0, 3, 1, 2]
        self.before, self.after = [0] * 4, [0] * 4
        if rng.integers(0, 2):
            left = int(rng.integers(0, min(width, 17)))
            self.before[3], self.after[3] = -left, -int(rng.integers(0, min(width - left, 17)))
        self.mode, self.value = "constant", 0
        operands = [rng.standard_normal((self.shape[3], 1, 1)).astype(np.float32) for _ in range(2)]
        self.scale, self.bias = (o if rng.integers(0, 2) else None for o in operands)
        self.data = random_values(rng, self.source, self.shape)


class Bench:
    """A region that cases lay their tensors out in, one after the other with random gaps."""

    SIZE = 8 << 20

    def __init__(self, rpc):
        self.rpc = rpc
        self.memory = Memory(self.SIZE)
        self.region = self.memory.register(rpc)
        self.bytes = np.frombuffer(self.memory.map, dtype=np.uint8)
        self.at = 0

    def close(self):
        self.bytes = None
        self.memory.close()

    def begin(self):
        self.at = 0

    def place(self, rng, dtype, shape, strided=True):
        """Returns a view of so many elements somewhere in the region, and its description. Unless strided, it is
        contiguous, and often at a multiple of 16 bytes."""
        dtype = np.dtype(dtype)
        strides, step = [0] * len(shape), 1
        for d in reversed(range(len(shape))):
            strides[d] = step
            step *= shape[d]
            if strided and rng.integers(0, 4) == 0:
                step += int(rng.integers(1, 4))
        self.at += int(rng.integers(0, 70))
        if not strided:
            self.at += -self.at % (16 if rng.integers(0, 3) else dtype.itemsize)
        offset, self.at = self.at, self.at + max(step, 1) * dtype.itemsize
        flat = self.bytes[offset:self.at].view(dtype) if offset % dtype.itemsize == 0 else None
        if flat is None:
            flat = np.ndarray(max(step, 1), dtype, self.bytes, offset)
        view = np.lib.stride_tricks.as_strided(flat, shape, [s * dtype.itemsize for s in strides])
        return view, {"region": self.region, "offset": offset, "shape": list(shape), "strides": strides}


class ConversionsCase(unittest.TestCase):
    """A daemon, a connection and a bench."""

    @classmethod
    def setUpClass(cls):
        cls.tmad = Tmad()
        cls.addClassCleanup(cls.tmad.stop)

    def setUp(self):
        self.rpc = self.tmad.rpc()
        self.addCleanup(self.rpc.close)
        self.bench = Bench(self.rpc)
        self.addCleanup(self.bench.close)


class RandomCase(ConversionsCase):
    """Random transforms."""

    def request(self, rng, case):
        """Returns the request, and the destination's view."""
        self.bench.begin()
        expected = case.expected()
        src, src_at = self.bench.place(rng, storage(case.source), case.shape, case.is_strided)
        src[...] = case.data
        dst, dst_at = self.bench.place(rng, storage(case.target), expected.shape, case.is_strided)
        params = {"dst": {**dst_at, "dtype": case.target}, "src": {**src_at, "dtype": case.source}, "perm": case.perm,
                  "before": case.before, "after": case.after, "mode": case.mode, "cast": case.cast}
        if case.mode == "constant":
            params["value"] = case.value
        for name in ("scale", "bias"):
            operand = getattr(case, name)
            if isinstance(operand, np.ndarray):
                view, at = self.bench.place(rng, operand.dtype, operand.shape)
                view[...] = operand
                params[name] = {**at, "dtype": str(operand.dtype)}
            elif operand is not None:
                params[name] = operand
        return params, dst, expected

    def test_random_conversions(self):
        self.compare(Case, share(2000))

    def test_random_images(self):
        self.compare(Images, share(500))

    def compare(self, kind, cases):
        """Compares requests of a kind with the oracle, and checks that nothing else is written."""
        seed = int(os.environ.get("TEST_SEED", random.randrange(1 << 31)))
        cases = int(os.environ.get("TEST_CASES", cases))
        print(f"# seed {seed}, {cases} cases", flush=True)
        for i in range(cases):
            rng = np.random.default_rng([seed, i])
            case = kind(rng)
            params, dst, expected = self.request(rng, case)
            before, dst_before = self.bench.bytes[:self.bench.at].copy(), dst.copy()
            status = None
            try:
                self.rpc.call("transform", params)
            except RpcError as e:
                status = e.name
            self.assertEqual(status, "OUT_OF_RANGE" if case.fails else None, f"seed {seed} case {i}: {case}")
            got = dst.copy()
            dst[...] = dst_before
            self.assertTrue(np.array_equal(self.bench.bytes[:self.bench.at], before),
                            f"seed {seed} case {i}: {case}: bytes that are not the destination's were written")
            check_same(self, got, expected, f"seed {seed} case {i}: {case}", case.target)
        self.assertGreater(cases, 0)


class RequestsCase(ConversionsCase):
    """Conversions in every request that moves, among others; scale is that of the last dimension."""

    N, ROWS, COLUMNS = 24, 40, 32  # blocks, and their shape

    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(3)
        self.data = rng.standard_normal((self.N, self.ROWS, self.COLUMNS)).astype(np.float32)
        factors = rng.standard_normal(self.COLUMNS).astype(np.float32)
        self.expected = (self.data * factors).astype(np.float16)
        self.src = self.memory(data=self.data.tobytes())
        self.dst = self.memory(self.expected.nbytes)
        self.more = self.memory(data=bytes(8) + factors.tobytes())  # a word to signal with, and the scale
        self.regions = [each.register(self.rpc) for each in (self.src, self.dst, self.more)]
        self.point = {"region": self.regions[2], "offset": 0, "value": 1}

    def memory(self, size=None, data=None):
        memory = Memory(size or len(data), data=data)
        self.addCleanup(memory.close)
        return memory

    def result(self):
        return np.frombuffer(self.dst[:], dtype=np.float16).reshape(self.expected.shape)

    def take_word(self):
        word = int.from_bytes(self.more[:8], "little")
        self.more[:8] = bytes(8)
        return word

    def part(self, i, n=1, **fields):
        """The transform of n blocks from the i-th on."""
        shape = [n, self.ROWS, self.COLUMNS]
        block = self.ROWS * self.COLUMNS
        return {"src": {"region": self.regions[0], "offset": 4 * i * block, "dtype": "float32", "shape": shape},
                "dst": {"region": self.regions[1], "offset": 2 * i * block, "dtype": "float16", "shape": shape},
                "cast": "saturate", "scale": {"region": self.regions[2], "offset": 8, "dtype": "float32",
                                              "shape": [self.COLUMNS]}, **fields}

    def blocks(self, index, **fields):
        """A gather or a scatter of transposed blocks."""
        shape = [self.ROWS, self.COLUMNS]
        return {"src": {"region": self.regions[0], "offset": 0, "dtype": "float32", "shape": shape},
                "dst": {"region": self.regions[1], "offset": 0, "dtype": "float16", "shape": shape[::-1]},
                "perm": [1, 0], "cast": "saturate", "index": np.asarray(index, dtype="<i4").tobytes(), "limit": self.N,
                "scale": {"region": self.regions[2], "offset": 8, "dtype": "float32", "shape": [self.COLUMNS, 1]},
                **fields}

    def test_a_batch(self):
        done = self.rpc.call("submit", {"items": [self.part(i) for i in range(self.N)], "signal": self.point})
        self.assertEqual(done["statuses"], [0] * self.N)
        self.assertTrue(np.array_equal(self.result(), self.expected))
        self.assertEqual(self.take_word(), 1)

    def test_of_a_batch_one_is_not_exact(self):
        items = [self.part(0), self.part(1, cast="exact"), self.part(2, 3)]
        done = self.rpc.call("submit", {"items": items, "signal": self.point})
        self.assertEqual([bool(status) for status in done["statuses"]], [False, True, False])
        self.assertEqual(self.take_word(), 0, "whoever waits would take it that no value had changed")
        for rows in (slice(0, 1), slice(2, 5)):
            self.assertTrue(np.array_equal(self.result()[rows], self.expected[rows]))

    def test_exact_casts_signal_when_no_value_changed(self):
        for value, signalled in ((2048, 1), (2049, 0)):
            self.src[:] = np.full(self.data.size, value, dtype=np.float32).tobytes()
            requests = (("transform", self.part(0, cast="exact", signal=self.point)),
                        ("gather", self.blocks([1, 0], cast="exact", signal=self.point)))
            for method, params in requests:
                params.pop("scale")
                with self.subTest(method=method, value=value):
                    status = None
                    try:
                        self.rpc.call(method, params)
                    except RpcError as e:
                        status = e.name
                    self.assertEqual((status, self.take_word()), (None if signalled else "OUT_OF_RANGE", signalled))

    def test_a_plan(self):
        def layout(fields):
            return {key: value for key, value in fields.items() if key not in ("region", "offset")}

        params = self.part(0)
        plan = self.rpc.call("plan_prepare", {key: layout(value) if isinstance(value, dict) else value
                                              for key, value in params.items()})["plan"]
        for i in range(self.N):
            at = self.part(i)
            place = {name: [at[name]["region"], at[name]["offset"]] for name in ("dst", "src", "scale")}
            self.rpc.call("plan_run", {"plan": plan, **place})
        self.assertTrue(np.array_equal(self.result(), self.expected))

    def test_gather_and_scatter(self):
        index = np.random.default_rng(4).permutation(self.N)
        blocks = self.expected.transpose(0, 2, 1)
        done = self.rpc.call("gather", self.blocks(index))
        self.assertEqual((done["moved"], done["path"]), (self.N, "convert"))
        self.assertTrue(np.array_equal(self.result().reshape(blocks.shape), blocks[index]))
        self.rpc.call("scatter", self.blocks(index))
        self.assertTrue(np.array_equal(self.result().reshape(blocks.shape)[index], blocks))

    def test_entries_in_a_region_are_counted_once(self):
        entries = np.array([3, -1, 99, -1, 0, 7], dtype="<i4")
        listed = self.memory(data=entries.tobytes()).register
        at = [listed(self.rpc), 0]
        for columns, perm in ((self.COLUMNS, [1, 0]), (self.COLUMNS, [0, 1]), (1, [0, 1])):  # tiles, chunks, elements
            rows = self.ROWS if columns > 1 else 1
            params = self.blocks([], index_at=at, count=6, src_step=4 * self.ROWS * self.COLUMNS,
                                 dst_step=2 * self.ROWS * self.COLUMNS)
            params.pop("index"), params.pop("scale"), params.update(perm=perm)
            params["src"].update(shape=[rows, columns])
            params["dst"].update(shape=[[rows, columns][d] for d in perm])
            done = self.rpc.call("gather", params)
            self.assertEqual((done["moved"], done["passed"], done["beyond"]), (3, 2, 1), (columns, perm))

    def test_sources_that_end_with_their_region(self):
        """Nothing is read behind them, whatever is read at once."""
        page = np.random.default_rng(6).integers(0, 256, 1 << 16, dtype=np.uint8)
        src, dst = self.memory(data=page.tobytes()), self.memory(1 << 18)
        a, b = src.register(self.rpc), dst.register(self.rpc)
        for target, n in itertools.product(("float32", "float16", "int8"), (64, 1023, 4099, 60001)):
            for at in range(3):
                self.rpc.call("copy", {"src": {"region": a, "offset": page.size - n, "dtype": "uint8", "shape": [n]},
                                       "dst": {"region": b, "offset": 16 * at, "dtype": target, "shape": [n]},
                                       "cast": "saturate"})
                expected = convert(page[-n:], "uint8", target, "saturate", None, None)[0].tobytes()
                self.assertEqual(dst[16 * at:16 * at + len(expected)], expected, (target, n, at))

    def test_a_gather_into_blocks_with_a_border(self):
        rows, columns = self.ROWS - 1, self.COLUMNS - 2
        params = self.blocks([5, -1, 3], before=[1, 2], after=[0, 0], value=7, src_step=4 * self.ROWS * self.COLUMNS)
        params.pop("scale"), params.pop("perm")
        params["src"].update(shape=[rows, columns], strides=[self.COLUMNS, 1])
        params["dst"].update(shape=[self.ROWS, self.COLUMNS])
        done = self.rpc.call("gather", params)
        self.assertEqual((done["moved"], done["passed"]), (2, 1))
        for i, block in ((0, 5), (2, 3)):
            inner = self.data[block, :rows, :columns].astype(np.float16)
            self.assertTrue(np.array_equal(self.result()[i], np.pad(inner, ((1, 0), (2, 0)), constant_values=7)))


if __name__ == "__main__":
    tap.main()

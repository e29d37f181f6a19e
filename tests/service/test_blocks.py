# SPDX-License-Identifier: Apache-2.0
"""gather and scatter: against NumPy at random, and what they refuse.

The seed is printed; TEST_SEED repeats a run, TEST_CASES sets its length by a number instead of TEST_SHARE.
"""
import os
import random
import sys
import threading

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from raw import RawCase
from tmad import TSAN, Memory, RpcError, Tmad, by_engine, share, tensor, wait_until

SIZE = 1 << 15  # bytes of a region of a random case
FAMILIES = {"memcpy", "tile_copy", "tile_transpose", "strided", "fill"}  # strategies of lists that do not convert
MODES = ("constant", "edge", "reflect", "symmetric", "wrap")
DTYPES = {"uint8": "u1", "uint16": "<u2", "uint32": "<u4", "uint64": "<u8", "complex128": "<c16"}
INDEX_DTYPES = {"int32": "<i4", "int64": "<i8"}


class DoesNotFit(Exception):
    """The case is larger than its regions."""


# ---- Random cases ---------------------------------------------------------------------------------------
class Block:
    """A tensor's shape, its strides and where its bytes begin and end around element [0, ..., 0]."""

    def __init__(self, rng, shape, dtype, is_source):
        self.shape, self.dtype = shape, dtype
        size = np.dtype(DTYPES[dtype]).itemsize
        order = list(range(len(shape)))
        if rng.random() < 0.5:
            rng.shuffle(order)
        strides, reach = [0] * len(shape), 1
        for d in order:  # innermost first
            if is_source and rng.random() < 0.1:
                continue
            strides[d] = reach * rng.choice((1, 1, 1, 2)) * rng.choice((1, 1, 1, -1))
            reach = abs(strides[d]) * max(shape[d], 1)
        self.strides = strides
        steps = [(n - 1) * s * size for n, s in zip(shape, strides)] if 0 not in shape else []
        self.low = sum(step for step in steps if step < 0)
        self.high = sum(step for step in steps if step > 0) + size if 0 not in shape else 0

    @property
    def span(self):
        return self.high - self.low

    def tensor(self, region, offset):
        return tensor(region, self.shape, self.dtype, offset=offset, strides=self.strides)

    def view(self, memory, offset):
        dtype = np.dtype(DTYPES[self.dtype])
        if 0 in self.shape:
            return np.empty(self.shape, dtype)
        return np.ndarray(self.shape, dtype, memory, offset, [s * dtype.itemsize for s in self.strides])


class Side:
    """The blocks of a destination or a source: n in each layer, somewhere in a region."""

    def __init__(self, rng, name, block, n, layers):
        self.name, self.block, self.fields = name, block, {}
        self.step = block.span
        if rng.random() < 0.6:
            self.step += rng.choice((1, 3, 16, 64, -block.span % 16, block.span * layers))
            self.fields[f"{name}_step"] = self.step
        reach = (max(n, 1) - 1) * self.step + block.span
        together = self.step >= layers * block.span and rng.random() < 0.5  # all layers of a block, then the next
        distance = block.span if together else reach
        if name == "src" and rng.random() < 0.1:
            distance = 0
        offsets = [l * distance for l in range(layers)]
        if rng.random() < 0.5:
            rng.shuffle(offsets)
            start = rng.choice(offsets)
            offsets = [offset - start for offset in offsets]
            if not together and name == "src":
                offsets = [offset + rng.randrange(20) for offset in offsets]
            self.fields[f"{name}_layers"] = np.array(offsets, "<i8").tobytes()
        elif layers > 1 or rng.random() < 0.2:
            self.fields[f"{name}_layer_step"] = distance
        else:
            offsets = [0]
        self.offsets = offsets
        low = block.low + min(offsets)
        high = block.high + max(offsets) + (max(n, 1) - 1) * self.step
        if high - min(low, 0) > SIZE:
            raise DoesNotFit
        self.offset = rng.randrange(max(-low, 0), SIZE - high + 1)

    def view(self, memory, layer, i):
        return self.block.view(memory, self.offset + self.offsets[layer] + i * self.step)

    def room(self):
        """Returns how many blocks lie in the region in every layer."""
        first = self.offset + max(self.offsets) + self.block.high
        return (SIZE - first) // self.step + 1


class Case:
    """A valid transform of blocks, and its list."""

    MOST, LAYERS, SIDE = 24, (1, 1, 2, 3), Side  # most blocks of a side; choices of layers

    def __init__(self, rng):
        self.kind = rng.choice(("gather", "scatter", "pairs"))
        self.method = "scatter" if self.kind == "scatter" else "gather"
        self.params = {"pairs": True} if self.kind == "pairs" else {}
        self._transform(rng)
        n = rng.randrange(0, self.MOST)
        self.dst_count = n if self.kind == "gather" else rng.randrange(1, self.MOST)
        self.src_count = n if self.kind == "scatter" else rng.randrange(1, self.MOST)
        self.layers = rng.choice(self.LAYERS)
        self.dst = self.SIDE(rng, "dst", self.dst_block, self.dst_count, self.layers)
        self.src = self.SIDE(rng, "src", self.src_block, self.src_count, self.layers)
        self.params |= self.dst.fields | self.src.fields
        if self._needs_layers() or rng.random() < 0.2:
            self.params["layers"] = self.layers
        if self.kind != "gather":
            name = "dst_limit" if self.kind == "pairs" else "limit"
            self.dst_count = self._limit(rng, name, self.dst, self.dst_count, self.layers == 1)
        if self.kind != "scatter":
            self.src_count = self._limit(rng, "limit", self.src, self.src_count, True)
        self._list(rng, n)

    def _needs_layers(self):
        return self.layers > 1

    def _limit(self, rng, name, side, count, may_be_absent):
        """Returns the number of blocks of an indexed side; without the field, it is what its region has room for."""
        if rng.random() < 0.3 and side.step and may_be_absent:
            return side.room()
        self.params[name] = count
        return count

    def _transform(self, rng):
        shape = [rng.choice((0, 1, 1, 2, 2, 3, 4, 5, 8) if rng.random() < 0.1 else (1, 2, 3, 4, 5, 8, 16))
                 for _ in range(rng.randrange(0, 4))]
        dtype = rng.choice(list(DTYPES))
        self.perm = list(range(len(shape)))
        if rng.random() < 0.5:
            rng.shuffle(self.perm)
            self.params["perm"] = self.perm
        made = [shape[p] for p in self.perm]
        self.pads, self.mode, self.value = [(0, 0)] * len(shape), "constant", 0
        if rng.random() < 0.4:
            self.pads = [(rng.randrange(-1, 3), rng.randrange(-1, 3)) if n > 2 else (0, 0) for n in made]
            self.mode = rng.choice(MODES) if 0 not in shape else "constant"
            self.params |= {"before": [b for b, _ in self.pads], "after": [a for _, a in self.pads],
                            "mode": self.mode}
            if self.mode == "constant" and rng.random() < 0.7:
                self.value = rng.randrange(256)
                self.params["value"] = self.value
        self.cropped = [n + min(b, 0) + min(a, 0) for n, (b, a) in zip(made, self.pads)]
        target = [n + b + a for n, (b, a) in zip(made, self.pads)]
        self.src_block = Block(rng, shape, dtype, True)
        self.dst_block = Block(rng, target, dtype, False)

    def _list(self, rng, n):
        to = of = list(range(n))
        if self.kind != "gather":
            to = rng.sample(range(self.dst_count), min(n, self.dst_count)) + [-1] * max(n - self.dst_count, 0)
            rng.shuffle(to)
            to = [-1 if rng.random() < 0.1 else pick for pick in to]
        if self.kind != "scatter":
            of = [rng.randrange(-1, self.src_count) for _ in range(n)]
        self.dtype = rng.choice(list(INDEX_DTYPES))
        if self.dtype != "int32" or rng.random() < 0.5:
            self.params["index_dtype"] = self.dtype
        self.in_region = rng.random() < 0.4
        if self.in_region and self.kind != "gather":
            to = self._some_wrong(rng, to, self.dst_count)
        if self.in_region and self.kind != "scatter":
            of = self._some_wrong(rng, of, self.src_count)
        self.picks = list(zip(to, of))
        numbers = {"gather": of, "scatter": to, "pairs": list(zip(of, to))}[self.kind]
        self.index = np.array(numbers, INDEX_DTYPES[self.dtype]).tobytes()

    def _some_wrong(self, rng, picks, limit):
        wrong = (-2, limit, limit + 1, 2**31 - 1, -2**31) + ((2**62, -2**63) if self.dtype == "int64" else ())
        return [rng.choice(wrong) if rng.random() < 0.1 else pick for pick in picks]

    @property
    def counts(self):
        """Returns the expected counts of the answer: moved, passed, beyond."""
        if 0 in self.dst_block.shape:
            return 0, 0, 0
        passed = sum(-1 in pick for pick in self.picks)
        return self.moved, passed, len(self.picks) - self.moved - passed

    @property
    def moved(self):
        return sum(map(self._moves, self.picks))

    def _moves(self, pick):
        to, of = pick
        return 0 <= to < self.dst_count and 0 <= of < self.src_count

    def run(self, dst, src):
        """Carries out the list on two arrays of bytes."""
        for layer in range(self.layers):
            for to, of in filter(self._moves, self.picks):
                self.dst.view(dst, layer, to)[...] = self.made(self.src.view(src, layer, of))

    def made(self, block):
        block = block.transpose(self.perm)
        low, high = [max(-b, 0) for b, _ in self.pads], [max(-a, 0) for _, a in self.pads]
        block = block[tuple(slice(l, n - h) for l, h, n in zip(low, high, block.shape))]
        pads = [(max(b, 0), max(a, 0)) for b, a in self.pads]
        if block.ndim == 0 or not any(map(any, pads)):
            return block
        extra = {"constant_values": self.value} if self.mode == "constant" else {}
        return np.pad(block, pads, self.mode, **extra)

    def bytes(self):
        counts = [int(np.prod(shape, dtype=np.int64)) for shape in (self.dst_block.shape, self.cropped)]
        return self.moved * self.layers * sum(counts) * np.dtype(DTYPES[self.dst_block.dtype]).itemsize


class Random(RawCase):
    def setUp(self):
        super().setUp()
        self.src, self.src_region = self.region(SIZE)
        self.dst, self.dst_region = self.region(SIZE)
        self.index, self.index_region = self.region(4096)

    def params_of(self, case, rng):
        params = {"dst": case.dst.block.tensor(self.dst_region, case.dst.offset),
                  "src": case.src.block.tensor(self.src_region, case.src.offset), **case.params}
        if case.in_region:
            size = np.dtype(INDEX_DTYPES[case.dtype]).itemsize
            offset = rng.randrange(0, 4096 - len(case.index) + 1, size)
            self.index[offset:offset + len(case.index)] = case.index
            params |= {"index_at": [self.index_region, offset], "count": len(case.picks)}
        else:
            params["index"] = case.index
        return params

    def test_numpy(self):
        seed = int(os.environ.get("TEST_SEED") or random.randrange(1 << 32))
        cases = int(os.environ.get("TEST_CASES") or share(40000))
        print(f"# TEST_SEED={seed} TEST_CASES={cases}", flush=True)
        rng, bytes_rng = random.Random(seed), np.random.default_rng(seed)
        source = bytes_rng.integers(0, 256, SIZE, dtype=np.uint8)
        self.src[:] = source.tobytes()
        poison = bytes_rng.integers(0, 256, SIZE, dtype=np.uint8)
        done = fitted = 0
        while fitted < cases:
            try:
                case = Case(rng)
            except DoesNotFit:
                continue
            fitted += 1
            expected = poison.copy()
            self.dst[:] = poison.tobytes()
            case.run(expected, source)
            params = self.params_of(case, rng)
            result = self.rpc.call(case.method, params)
            what = f"TEST_SEED={seed}, case {fitted}: {params}"
            got = np.frombuffer(self.dst[:], np.uint8)
            wrong = np.flatnonzero(got != expected)
            self.assertEqual(wrong.size, 0, f"{what}: bytes {wrong[:4].tolist()} of {wrong.size}")
            self.assertIn(result["path"], FAMILIES)
            self.assertEqual((result["moved"], result["passed"], result["beyond"]), case.counts, what)
            self.assertEqual(result["bytes"], case.bytes(), what)
            done += case.moved
        self.assertGreater(done, cases)
        self.assertEqual(self.src[:], source.tobytes())


# ---- By hand ----------------------------------------------------------------------------------------------
class Pages(RawCase):
    """A pool of pages and a sequence of them."""

    def setUp(self):
        super().setUp()
        self.pool = np.random.default_rng(1).integers(0, 1 << 16, (64, 16, 8, 16), dtype=np.uint16)
        self.src, self.a = self.region(self.pool.nbytes, data=self.pool.tobytes())
        self.dst, self.b = self.region(self.pool.nbytes)
        self.picks = np.random.default_rng(2).permutation(64).astype("<i4")

    def blocks(self, method, **fields):
        shape = self.pool.shape[1:]
        return self.rpc.call(method, {"dst": tensor(self.b, shape, "uint16"), "src": tensor(self.a, shape, "uint16"),
                                      **fields})

    def test_take(self):
        done = self.blocks("gather", index=self.picks[:40].tobytes())
        self.assertEqual(self.dst[:], self.pool.take(self.picks[:40], 0).tobytes().ljust(self.pool.nbytes, b"\0"))
        self.assertEqual((done["path"], done["moved"], done["bytes"]), ("memcpy", 40, 40 * 2 * 4096))
        self.assertEqual(set(done), {"path", "bytes", "ns", "moved", "passed", "beyond"})
        self.assertGreater(done["ns"], 0)

    def test_pairs(self):
        expected = np.zeros_like(self.pool)
        expected[self.picks[:20]] = self.pool[self.picks[20:40]]
        pairs = np.stack((self.picks[20:40], self.picks[:20]), 1)
        done = self.blocks("gather", index=pairs.tobytes(), pairs=True)
        self.assertEqual(self.dst[:], expected.tobytes())
        self.assertEqual((done["moved"], done["passed"], done["beyond"]), (20, 0, 0))

    def test_pairs_within_a_pool(self):
        pool = tensor(self.a, self.pool.shape[1:], "uint16")
        expected = self.pool.copy()
        expected[self.picks[:20]] = self.pool[self.picks[20:40]]
        pairs = np.stack((self.picks[20:40], self.picks[:20]), 1)
        self.rpc.call("gather", {"dst": pool, "src": pool, "index": pairs.tobytes(), "pairs": True})
        self.assertEqual(self.src[:], expected.tobytes())

    def test_numbers_below_none(self):
        """Such a number names no block, whatever number of blocks the side is said to have."""
        numbers, index = self.region(16, data=np.array([-2, 1], "<i8").tobytes())
        done = self.blocks("gather", index_at=[index, 0], count=2, index_dtype="int64", src_step=0, limit=2**64 - 1)
        self.assertEqual((done["moved"], done["passed"], done["beyond"]), (1, 0, 1))
        self.assertEqual(self.dst[:4096], bytes(4096))

    def test_nothing_within_a_pool(self):
        """If nothing is moved, nothing is read or written."""
        pool = tensor(self.a, self.pool.shape[1:], "uint16")
        _, index = self.region(16)
        at = {"index_at": [index, 0], "pairs": True}
        done = self.rpc.call("gather", {"dst": pool, "src": pool, "count": 0, **at})
        self.assertEqual(done["moved"], 0)
        nothing = tensor(self.a, [4, 0], "uint16")
        self.rpc.call("gather", {"dst": nothing, "src": nothing, "count": 1, "limit": 1, "dst_limit": 1, **at})

    def test_put(self):
        expected = np.zeros_like(self.pool)
        expected[self.picks[:40]] = self.pool[:40]
        self.blocks("scatter", index=self.picks[:40].tobytes())
        self.assertEqual(self.dst[:], expected.tobytes())

    def test_there_and_back_with_a_permutation(self):
        heads = [8, 16, 16]
        done = self.rpc.call("gather", {"dst": tensor(self.b, heads, "uint16"), "perm": [1, 0, 2],
                                        "src": tensor(self.a, [16, 8, 16], "uint16"), "index": self.picks.tobytes()})
        self.assertEqual(done["path"], "tile_copy")
        self.assertEqual(self.dst[:], self.pool.take(self.picks, 0).transpose(0, 2, 1, 3).tobytes())
        self.src[:] = bytes(self.pool.nbytes)
        self.rpc.call("scatter", {"dst": tensor(self.a, [16, 8, 16], "uint16"), "perm": [1, 0, 2],
                                  "src": tensor(self.b, heads, "uint16"), "index": self.picks.tobytes()})
        self.assertEqual(self.src[:], self.pool.tobytes())

    def test_pages_that_are_not_aligned(self):
        """The strategy depends on all pages, not only on the first."""
        done = self.rpc.call("gather", {"dst": tensor(self.b, [4094]), "src": tensor(self.a, [4094]),
                                        "index": self.picks[:20].tobytes(), "src_step": 4096, "dst_step": 4094})
        self.assertEqual(self.dst[:20 * 4094], self.pool.take(self.picks[:20], 0).reshape(20, 2048).view(np.uint8)
                         [:, :4094].tobytes())
        self.assertEqual(done["path"], by_engine(cpu="memcpy", cuda="strided"))

    def test_layers(self):
        """The pool keeps the pages of a layer together, the destination all layers of a page."""
        layers = np.array([3, 0, 2, 1]) * 16
        done = self.blocks("gather", index=np.arange(15, -1, -1, dtype="<i4").tobytes(), layers=4, limit=16, src_layers=(layers * 4096).astype("<i8").tobytes(), dst_step=4 * 4096,
                           dst_layer_step=4096)
        pages = self.pool.reshape(4, 16, -1)
        self.assertEqual(self.dst[:], pages[[3, 0, 2, 1]][:, ::-1].transpose(1, 0, 2).tobytes())
        self.assertEqual((done["moved"], done["bytes"]), (16, 4 * 16 * 2 * 4096))

    def test_heads_between_each_other(self):
        """A block is one head of all tokens, so blocks interleave."""
        tokens = self.pool.reshape(128, 64, 16)
        heads = np.random.default_rng(3).permutation(64).astype("<i8")
        fields = {"strides": [64 * 16, 1]}
        self.rpc.call("scatter", {"dst": tensor(self.b, [128, 16], "uint16", **fields), "dst_step": 32, "limit": 64,
                                  "src": tensor(self.a, [128, 16], "uint16", **fields), "src_step": 32,
                                  "index": heads.tobytes(), "index_dtype": "int64"})
        expected = np.empty_like(tokens)
        expected[:, heads] = tokens
        self.assertEqual(self.dst[:], expected.tobytes())

    def test_one_block_to_many_places(self):
        self.blocks("scatter", index=np.arange(64, dtype="<i4").tobytes(), src_step=0)
        self.assertEqual(self.dst[:], self.pool[0].tobytes() * 64)

    def test_a_whole_message_of_entries(self):
        picks = np.random.default_rng(4).permutation(16000).astype("<i4")
        for method, expected in (("gather", picks), ("scatter", np.argsort(picks))):
            values = np.arange(16000, dtype="<u4")
            self.src[:64000] = values.tobytes()
            done = self.rpc.call(method, {"dst": tensor(self.b, [], "uint32"), "src": tensor(self.a, [], "uint32"),
                                          "index": picks.tobytes()})
            self.assertEqual(done["moved"], 16000)
            self.assertEqual(self.dst[:64000], values[expected].tobytes())

    def test_without_entries_or_bytes(self):
        nothing = {"bytes": 0, "moved": 0, "passed": 0, "beyond": 0}
        signal = {"region": self.b, "offset": 8}
        rows = (({"index": b""}, nothing), ({"index_at": [self.a, 0], "count": 0}, nothing),
                ({"index": b"\xff" * 12}, {**nothing, "passed": 3}))
        for value, (fields, expected) in enumerate(rows, 1):
            with self.subTest(fields=fields):
                done = self.blocks("gather", **fields, signal={**signal, "value": value})
                self.assertEqual({key: done[key] for key in expected}, expected)
                self.assertEqual(int.from_bytes(self.dst[8:16], "little"), value)
                self.assertEqual(self.dst[16:], bytes(self.pool.nbytes - 16))
        done = self.rpc.call("gather", {"dst": tensor(self.b, [4, 0]), "src": tensor(self.a, [4, 0]), "limit": 2**63,
                                        "index": bytes(4 * 4), "layers": 2**30, "dst_layer_step": 2**63,
                                        "src_layer_step": 0, "dst_step": 7})
        self.assertEqual({key: done[key] for key in nothing}, nothing)

    def test_answered_when_queued(self):
        shape = self.pool.shape[1:]
        msgid = self.rpc.request("gather", {"dst": tensor(self.b, shape, "uint16"), "reply": "queued",
                                            "src": tensor(self.a, shape, "uint16"), "index": bytes(4)})
        self.assertEqual(self.rpc.reply(msgid), {"queued": True})
        kind, name, (done, error, result) = self.rpc.receive()
        self.assertEqual((kind, name, done, error, result["moved"]), (2, "done", msgid, None, 1))
        self.assertEqual(self.dst[:4096], self.pool[0].tobytes())


class BadBlocks(RawCase):
    def setUp(self):
        super().setUp()
        self.data = os.urandom(1 << 16)
        self.src, self.a = self.region(1 << 16, data=self.data)
        self.dst, self.b = self.region(1 << 16, data=b"\x5a" * (1 << 16))
        self.index, self.i = self.region(4096)

    def tearDown(self):
        self.assertEqual((self.src[:], self.dst[:]), (self.data, b"\x5a" * (1 << 16)), "memory is as it was")
        super().tearDown()

    def bad(self, name, method, words, **fields):
        """Returns a list of 64 blocks of 1 KiB on both sides with some fields changed; None removes a field."""
        params = {"dst": tensor(self.b, [16, 16], "uint32"), "src": tensor(self.a, [16, 16], "uint32"),
                  "index": np.arange(8, dtype="<i4").tobytes(), **fields}
        with self.subTest(method=method, fields=fields):
            self.refused(name, method, {key: value for key, value in params.items() if value is not None}, words)

    def test_fields(self):
        at = {"index": None, "index_at": [self.i, 0], "count": 8}
        three = np.array([0, 1, 2], "<i8").tobytes()
        rows = (
            (["index: missing"], {"index": None}),
            (["index: index_at is given too"], {"index_at": [self.i, 0]}),
            (["count", "index"], {"count": 8}),
            (["count: missing"], {**at, "count": None}),
            (["index: 7 bytes", "4 bytes of an entry (int32)"], {"index": bytes(7)}),
            (["index: 12 bytes", "8 bytes of an entry (int64)"], {"index": bytes(12), "index_dtype": "int64"}),
            (["index: 12 bytes", "8 bytes of an entry (two of int32)"], {"index": bytes(12), "pairs": True}),
            (["dst_limit: 3", "only a list of pairs"], {"dst_limit": 3}),
            (["dst_limit: missing", "dst_step of 0"], {"index": bytes(16), "pairs": True, "dst_step": 0}),
            (["index_dtype: uint32", "int32 or int64"], {"index_dtype": "uint32"}),
            (["layers: 0"], {"layers": 0}),
            (["layers: 4294967296"], {"layers": 2**32}),
            (["dst_layer_step", "dst_layers", "layers is 2"], {"layers": 2}),
            (["src_layer_step", "src_layers", "layers is 2"], {"layers": 2, "dst_layer_step": 32768}),
            (["dst_layers", "dst_layer_step is given too"], {"dst_layers": bytes(8), "dst_layer_step": 1}),
            (["dst_layers: 24 bytes", "layers is 2"], {"layers": 2, "dst_layers": three}),
            (["src_layers: 24 bytes", "layers is 1"], {"src_layers": three}),
            (["src_layers: 9 bytes"], {"src_layers": bytes(9)}),
            (["index_at: byte 4 ", "aligned to the 8 bytes"],
             {**at, "index_at": [self.i, 4], "index_dtype": "int64"}),
            (["index_at: byte 2 "], {**at, "index_at": [self.i, 2]}),
            (["limit", "src_step of 0"], {"src_step": 0}),
            (["dst.shape"], {"dst": tensor(self.b, [16, 17], "uint32")}),
            (["perm"], {"perm": [0, 0]}),
            (["dst.region"], {"dst": {"dtype": "uint32", "shape": [16, 16]}}),
            (["index"], {"index": "text"}),
            (["index_at"], {**at, "index_at": [self.i]}),
            (["layers"], {"layers": -1}),
        )
        for words, fields in rows:
            self.bad("INVALID_ARGUMENT", "gather", words, **fields)
        self.bad("INVALID_ARGUMENT", "scatter", ["dst_step of 0"], dst_step=0)

    def test_ranges(self):
        ends = np.array([0, 70000], "<i8").tobytes()
        rows = (
            ("gather", ["src: the last byte of 65 blocks", "66559", "65536"], {"limit": 65}),
            ("scatter", ["dst: the last byte of 65 blocks", "66559", "65536"], {"limit": 65}),
            ("gather", ["dst: the last byte of 8 blocks", "65536"], {"dst_step": 10000}),
            ("gather", ["dst", "overflows 64 bits"], {"dst_step": 2**64 - 1}),
            ("gather", ["src", "overflows 64 bits"], {"limit": 2**64 - 1}),
            ("gather", ["src", "in 2 layers"], {"layers": 2, "dst_layer_step": 8192, "src_layers": ends, "limit": 1}),
            ("gather", ["src", "in 2 layers"], {"layers": 2, "dst_layer_step": 8192, "src_layers": ends}),
            ("gather", ["src: its first byte would be 8 bytes before"],
             {"src_layers": np.array([-8], "<i8").tobytes(), "limit": 1}),
            ("gather", ["dst: its first byte would be"], {"dst_layers": np.array([-2**63], "<i8").tobytes()}),
            ("gather", ["dst: offset 65537 is past the end"], {"dst": tensor(self.b, [16, 16], "uint32", offset=65537)}),
            ("gather", ["src", "65536"], {"src": tensor(self.a, [16, 16], "uint32", offset=65000)}),
            ("gather", ["index[7]: 64, but src has 64 blocks (limit)"],
             {"index": np.array([0, 1, 2, 3, 4, -1, 63, 64], "<i4").tobytes()}),
            ("scatter", ["index[1]: -2, but dst has 64 blocks (limit)"], {"index": np.array([5, -2], "<i4").tobytes()}),
            ("gather", ["index[0]: 4294967296", "10 blocks"],
             {"index": np.array([2**32], "<i8").tobytes(), "index_dtype": "int64", "limit": 10}),
            ("gather", ["index[0]: 0, but src has 0 blocks"], {"limit": 0}),
            ("gather", ["index[1][0]: 64, but src has 64 blocks (limit)"],
             {"index": np.array([0, 1, 64, 2], "<i4").tobytes(), "pairs": True}),
            ("gather", ["index[1][1]: 2, but dst has 2 blocks (dst_limit)"],
             {"index": np.array([0, 1, 63, 2], "<i4").tobytes(), "pairs": True, "dst_limit": 2}),
            ("gather", ["index_at: 8 entries of 8 bytes from byte 4036", "4096"],
             {"index": None, "index_at": [self.i, 4036], "count": 8, "pairs": True}),
            ("gather", ["index_at: 8 entries of 4 bytes from byte 4068", "4096"],
             {"index": None, "index_at": [self.i, 4068], "count": 8}),
            ("scatter", ["index_at"], {"index": None, "index_at": [self.i, 0], "count": 2**30, "src_step": 0}),
        )
        for method, words, fields in rows:
            self.bad("OUT_OF_RANGE", method, words, **fields)
        self.bad("INVALID_ARGUMENT", "scatter", ["layers: 4611686018427387904 entries in each of 1", "4294967296"], index=None,
                 index_at=[self.i, 0], count=2**62, src_step=0)

    def test_overlaps(self):
        irregular = np.array([0, 8192, 8192 + 4096], "<i8").tobytes()
        in_place = {"dst": tensor(self.a, [16, 16], "uint32"), "pairs": True}
        rows = (
            ("gather", ["dst_step", "1023"], {"dst_step": 1023}),
            ("gather", ["dst_step", "0 bytes"], {"dst_step": 0}),
            ("scatter", ["dst_step", "share"], {"dst_step": 512, "limit": 16}),
            ("gather", ["dst_layer_step", "8191"], {"layers": 2, "dst_layer_step": 8191, "src_layer_step": 0}),
            ("gather", ["dst_layers", "4096", "8192"], {"layers": 3, "dst_layers": irregular, "src_layer_step": 0}),
            ("gather", ["dst_layers"], {"layers": 3, "dst_layers": bytes(24), "src_layer_step": 0}),
            ("gather", ["dst", "must not overlap as a whole"],
             {"dst": tensor(self.a, [16, 16], "uint32", offset=1024), "dst_step": 2048, "src_step": 2048}),
            ("scatter", ["index[7]: 3, as index[1]"],
             {"index": np.array([2, 3, 4, -1, 5, -1, 6, 3], "<i4").tobytes()}),
            ("gather", ["index[3][1]: 3, as index[1][1]"],
             {"index": np.array([2, 9, 2, 3, -1, 3, 5, 3], "<i4").tobytes(), "pairs": True}),
            ("gather", ["index[0][0]: 3, as index[1][1]", "read and written"],
             {**in_place, "index": np.array([3, 4, 5, 3], "<i4").tobytes()}),
            ("gather", ["index_at: dst and src are the same blocks"],
             {**in_place, "index": None, "index_at": [self.i, 0], "count": 8}),
            ("gather", ["must not overlap as a whole"], {**in_place, "index": bytes(8), "dst_limit": 3}),
            ("gather", ["index_at", "dst"], {"index": None, "index_at": [self.b, 8188], "count": 8}),
            ("gather", ["dst.strides"], {"dst": tensor(self.b, [16, 16], "uint32", strides=[0, 1])}),
        )
        for method, words, fields in rows:
            self.bad("OVERLAP", method, words, **fields)

    def test_regions(self):
        self.bad("NOT_FOUND", "gather", ["index_at", "77777"], index=None, index_at=[77777, 0], count=8)
        self.bad("NOT_FOUND", "gather", ["src.region", "77777"], src=tensor(77777, [16, 16], "uint32"))
        read_only = self.dst.register(self.rpc, writable=False)
        for method in ("gather", "scatter"):
            self.bad("PERMISSION", method, ["dst.region"], dst=tensor(read_only, [16, 16], "uint32"))
        self.rpc.call("region_release", {"region": self.i})
        self.bad("NOT_FOUND", "gather", ["index_at"], index=None, index_at=[self.i, 0], count=8)


class Bounded(RawCase):
    """Lists that arrive in messages are charged to their user as long as they are kept."""

    @classmethod
    def setUpClass(cls):
        cls.tmad = Tmad("--list-bytes-per-uid", "100000")
        cls.addClassCleanup(cls.tmad.stop)
        cls.idle_fds = wait_until(cls.tmad.fds, "a number")

    def test_lists_are_charged(self):
        words, timeline = self.region(64)
        _, region = self.region(8192)
        params = {"dst": tensor(region, [1], offset=4096), "src": tensor(region, [1]), "limit": 4096,
                  "index": b"\xff" * 16000, "index_dtype": "int32"}
        waiting = [self.rpc.request("gather", {**params, "wait": {"region": timeline, "offset": 0, "value": 1}})
                   for _ in range(6)]
        with self.tmad.rpc() as other:
            wait_until(lambda: other.call("stats")["jobs"] == 6, "they wait")
        with self.assertRaises(RpcError) as refused:
            self.rpc.call("gather", params)
        self.assertEqual(refused.exception.name, "QUOTA")
        for word in ("16000", "96000", "100000", "list_bytes_per_uid"):
            self.assertIn(word, refused.exception.message)
        words[0] = 1
        replies = {reply[1]: reply for reply in (self.rpc.receive() for _ in waiting)}
        for msgid in waiting:
            self.assertIsNone(replies[msgid][2])
        self.rpc.call("gather", params)


class Hostile(RawCase):
    """A list in a region that changes meanwhile: no byte outside may ever be accessed."""

    BLOCK, BLOCKS, COUNT = 64, 256, 256

    def setUp(self):
        super().setUp()
        secret = b"\xee" * (self.BLOCK * 16)  # around the blocks, within the regions
        self.valid = b"".join(i.to_bytes(2, "little") * (self.BLOCK // 2) for i in range(self.BLOCKS))
        self.src, self.a = self.region(len(self.valid) + 2 * len(secret), data=secret + self.valid + secret)
        self.dst, self.b = self.region(self.src.size)
        self.index = self.memory(self.COUNT * 4)
        self.i = self.index.register(self.rpc, writable=False)
        self.offset = len(secret)

    def params(self, **fields):
        return {"dst": tensor(self.b, [self.BLOCK], offset=self.offset),
                "src": tensor(self.a, [self.BLOCK], offset=self.offset), "limit": self.BLOCKS,
                "index_at": [self.i, 0], "count": self.COUNT, **fields}

    def change(self, stop):
        rng = np.random.default_rng(5)
        good = rng.permutation(self.BLOCKS).astype("<i4")
        bad = rng.integers(-2**31, 2**31 - 1, self.COUNT).astype("<i4")
        near = rng.integers(-16, self.BLOCKS + 16, self.COUNT).astype("<i4")
        while not stop.is_set():
            for entries in (good, bad, near):
                self.index[:] = entries.tobytes()

    def test_changes_while_it_runs(self):
        poison = b"\x5a" * self.dst.size
        # If a scatter names a block twice, two threads write it, as requested, which ThreadSanitizer reports.
        methods = ("gather", "gather" if TSAN else "scatter")
        stop = threading.Event()
        thread = threading.Thread(target=self.change, args=(stop,))
        thread.start()
        beyond = 0
        try:
            for run in range(by_engine(cpu=share(3000), cuda=20)):
                self.dst[:] = poison
                done = self.rpc.call(methods[run % 2], self.params())
                self.assertEqual(done["moved"] + done["passed"] + done["beyond"], self.COUNT)
                beyond += done["beyond"]
                got = self.dst[:]
                self.assertEqual(got[:self.offset], poison[:self.offset])
                self.assertEqual(got[-self.offset:], poison[:self.offset])
                self.assertNotIn(b"\xee\xee", got[self.offset:-self.offset])
        finally:
            stop.set()
            thread.join()
        self.assertGreater(beyond, 0)

    def test_released_while_it_runs(self):
        """The list's region drains; the job keeps what it needs."""
        self.index[:] = np.arange(self.COUNT, dtype="<i4")[::-1].tobytes()
        with Memory(64 * self.BLOCK * self.COUNT) as large:
            region = large.register(self.rpc)
            first = self.rpc.request("gather", self.params(dst=tensor(region, [self.BLOCK]), layers=64,
                                                           dst_layer_step=self.BLOCK * self.COUNT,
                                                           src_layer_step=0))
            second = self.rpc.request("region_release", {"region": self.i})
            replies = {message[1]: message for message in (self.rpc.receive(), self.rpc.receive())}
            self.assertEqual(replies[first][3]["moved"], self.COUNT)
            self.assertIn(replies[second][3]["state"], ("closed", "draining"))
            pages = np.frombuffer(self.valid, np.uint8).reshape(self.BLOCKS, -1)
            self.assertEqual(large[:], pages[::-1].tobytes() * 64)
            self.rpc.call("region_release", {"region": region})
        self.refused("NOT_FOUND", "gather", self.params(), ["index_at"])


if __name__ == "__main__":
    tap.main()

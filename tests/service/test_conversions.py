# SPDX-License-Identifier: Apache-2.0
"""Conversions against NumPy, bit for bit: random transforms with a cast, operands of all kinds, pads, crops and strides.

The oracle is tests/support/conversion.py. The seed is printed; TEST_SEED repeats a run, TEST_CASES sets its length.
"""
import os
import random
import sys
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from conversion import FLOATS, INTEGERS, SMALL, convert, load, random_values, storage
from tmad import Memory, RpcError, Tmad, share

MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


class Case:
    """A random request, its memory and what it should give."""

    def __init__(self, rng):
        self.source, self.target = (str(rng.choice(INTEGERS + FLOATS)) for _ in range(2))
        self.cast = str(rng.choice(("saturate", "saturate", "exact")))
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
        self.value = int(rng.integers(0, 2)) if self.mode == "constant" else 0
        self.scale, self.bias = (self._operand(rng, permuted) for _ in range(2))
        self.data = random_values(rng, self.source, self.shape)

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
        converted, same = convert(array, self.source, self.target, self.cast == "saturate", self.scale, self.bias)
        crop = tuple(slice(max(-b, 0), n - max(-a, 0)) for b, a, n in zip(self.before, self.after, converted.shape))
        pads = [(max(b, 0), max(a, 0)) for b, a in zip(self.before, self.after)]
        converted = converted[crop]
        self.fails = self.cast == "exact" and not same[crop].all()
        if not pads:
            return converted
        if self.mode != "constant":
            return np.pad(converted, pads, mode=self.mode)
        value = (SMALL[self.target].store(np.array(float(self.value)), True) if self.target in SMALL else self.value)
        return np.pad(converted, pads, constant_values=value)

    def __str__(self):
        def text(o):
            return o if not isinstance(o, np.ndarray) else f"{o.dtype}{list(o.shape)}"
        return (f"{self.source} to {self.target} {self.cast} {self.shape} perm {self.perm} before {self.before} after "
                f"{self.after} {self.mode} scale {text(self.scale)} bias {text(self.bias)}")


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
        """A view of so many elements somewhere in the region, and its description."""
        dtype = np.dtype(dtype)
        strides, step = [0] * len(shape), 1
        for d in reversed(range(len(shape))):
            strides[d] = step
            step *= shape[d]
            if strided and rng.integers(0, 4) == 0:
                step += int(rng.integers(1, 4))
        self.at += int(rng.integers(0, 70))
        offset, self.at = self.at, self.at + max(step, 1) * dtype.itemsize
        flat = self.bytes[offset:self.at].view(dtype) if offset % dtype.itemsize == 0 else None
        if flat is None:
            flat = np.ndarray(max(step, 1), dtype, self.bytes, offset)
        view = np.lib.stride_tricks.as_strided(flat, shape, [s * dtype.itemsize for s in strides])
        return view, {"region": self.region, "offset": offset, "shape": list(shape), "strides": strides}


class ConversionsCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmad = Tmad()
        cls.addClassCleanup(cls.tmad.stop)

    def setUp(self):
        self.rpc = self.tmad.rpc()
        self.addCleanup(self.rpc.close)
        self.bench = Bench(self.rpc)
        self.addCleanup(self.bench.close)

    def request(self, rng, case):
        """What to send, and the destination's view."""
        self.bench.begin()
        expected = case.expected()
        src, src_at = self.bench.place(rng, storage(case.source), case.shape)
        src[...] = case.data
        dst, dst_at = self.bench.place(rng, storage(case.target), expected.shape)
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

    def check_same(self, name, got, expected, what):
        """Bit for bit, but for what a NaN carries."""
        bits = np.dtype(f"u{expected.dtype.itemsize}")
        got, expected = (np.ascontiguousarray(a).reshape(-1) for a in (got, expected))
        wrong = got.view(bits) != expected.view(bits)
        if name not in INTEGERS:
            wrong &= ~(np.isnan(load(got, name, np.float64)) & np.isnan(load(expected, name, np.float64)))
        at = np.flatnonzero(wrong)
        if len(at):
            self.fail(f"{what}: {len(at)} of {got.size} wrong, the first is {at[0]}: {got.view(bits)[at[0]]:#x}, not "
                      f"{expected.view(bits)[at[0]]:#x}")

    def test_random_conversions(self):
        seed = int(os.environ.get("TEST_SEED", random.randrange(1 << 31)))
        cases = int(os.environ.get("TEST_CASES", share(2000)))
        print(f"# seed {seed}, {cases} cases", flush=True)
        for i in range(cases):
            rng = np.random.default_rng([seed, i])
            case = Case(rng)
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
            self.check_same(case.target, got, expected, f"seed {seed} case {i}: {case}")
        self.assertGreater(cases, 0)


if __name__ == "__main__":
    tap.main()

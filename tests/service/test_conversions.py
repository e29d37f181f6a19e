# SPDX-License-Identifier: Apache-2.0
"""Conversions against NumPy, bit for bit: random transforms with a cast, operands of all kinds, pads, crops and strides.

The oracle knows a floating type by the values of all its codes and rounds by looking for the nearest one, so it shares
nothing with the service. The seed is printed; TEST_SEED repeats a run, TEST_CASES sets its length.
"""
import os
import random
import sys
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import Memory, RpcError, Tmad, share

MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


def decode(code, exponent_bits, fraction_bits, infinity):
    """The value of a code of a small floating type, by its definition."""
    sign = -1.0 if code >> (exponent_bits + fraction_bits) else 1.0
    exponent = code >> fraction_bits & (1 << exponent_bits) - 1
    fraction = code & (1 << fraction_bits) - 1
    bias = (1 << exponent_bits - 1) - 1
    if exponent == (1 << exponent_bits) - 1:
        if infinity:
            return sign * (np.inf if fraction == 0 else np.nan)
        if fraction == (1 << fraction_bits) - 1:
            return sign * np.nan
    if exponent == 0:
        return sign * fraction * 2.0 ** (1 - bias - fraction_bits)
    return sign * (1 + fraction / (1 << fraction_bits)) * 2.0 ** (exponent - bias)


class Small:
    """A floating type of 8 or 16 bits: its codes, and the values of those."""

    def __init__(self, name, exponent_bits, fraction_bits, infinity=True):
        self.name = name
        self.bits = 1 + exponent_bits + fraction_bits
        self.storage = np.dtype(f"u{self.bits // 8}")
        codes = range(1 << self.bits)
        self.values = np.array([decode(c, exponent_bits, fraction_bits, infinity) for c in codes])
        half = self.values[:1 << self.bits - 1]
        self.finite = half[np.isfinite(half)]  # ascending from 0, and code i has value i
        self.most = float(self.finite[-1])
        self.infinity = len(self.finite) if infinity else None
        self.nan = (((1 << exponent_bits) - 1) << fraction_bits | 1 << fraction_bits - 1 if infinity
                    else (1 << self.bits - 1) - 1)
        self.step = self.finite[-1] - self.finite[-2]

    def load(self, codes):
        return self.values[codes]

    def store(self, values, saturate):
        """Of float64s, rounded to nearest even."""
        magnitude = np.abs(values)
        if saturate:
            magnitude = np.where(np.isnan(magnitude), magnitude, np.minimum(magnitude, self.most))
        safe = np.where(np.isnan(magnitude), 0.0, np.minimum(magnitude, self.most))
        above = np.minimum(np.searchsorted(self.finite, safe), len(self.finite) - 1)
        below = np.maximum(above - 1, 0)
        up, down = self.finite[above] - safe, safe - self.finite[below]
        code = np.where(up < down, above, np.where(down < up, below, np.where(above % 2 == 0, above, below)))
        half = self.most + self.step / 2  # a tie goes to the even one, be it the one that does not exist
        over = magnitude >= half if len(self.finite) % 2 == 0 else magnitude > half
        code = np.where(over, self.infinity if self.infinity is not None else self.nan, code)
        code = np.where(np.isnan(values), self.nan, code)
        return (code | np.signbit(values).astype(int) << self.bits - 1).astype(self.storage)


SMALL = {t.name: t for t in (Small("float8_e4m3fn", 4, 3, False), Small("float8_e5m2", 5, 2), Small("float16", 5, 10),
                             Small("bfloat16", 8, 7))}
INTEGERS = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
FLOATS = (*SMALL, "float32", "float64")


def storage(name):
    return SMALL[name].storage if name in SMALL else np.dtype(name)


def is_wide(name):
    return name == "float64" or (name in INTEGERS and np.dtype(name).itemsize >= 4)


def load(array, name, arithmetic):
    if name in SMALL:
        return SMALL[name].load(array).astype(arithmetic)
    return array.astype(arithmetic)


def clamp_integers(values, name):
    """Python's integers, or floats without NaN, into the range of an integer type."""
    info = np.iinfo(name)
    flat = [min(max(int(v), info.min), info.max) if np.isfinite(v) else (info.max if v > 0 else info.min)
            for v in values.ravel().tolist()]
    return np.array(flat, dtype=name).reshape(values.shape)


def store(values, name, saturate):
    if name in SMALL:
        return SMALL[name].store(values.astype(np.float64), saturate)
    if name == "bool":
        return values != 0
    if name in INTEGERS:
        if values.dtype.kind == "f":
            values = np.where(np.isnan(values), 0, values)
        return clamp_integers(values, name)
    if saturate:
        most = np.finfo(name).max
        values = np.where(np.isnan(values), values, np.clip(values, -float(most), float(most)))
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(name)


def is_same(values, stored, target):
    """Which of the stored elements have the values that were to be stored, exactly."""
    if target in SMALL:
        back = SMALL[target].load(stored)
    else:
        back = stored
    if values.dtype == object or target in INTEGERS:
        pairs = zip(values.ravel().tolist(), np.asarray(back).ravel().tolist())
        return np.array([a == b for a, b in pairs], dtype=bool).reshape(values.shape)
    wide = values.astype(np.float64)
    return (wide == back) | (np.isnan(wide) & np.isnan(back))


def convert(array, source, target, saturate, scale, bias):
    """What the service does, in its words: proto/protocol.md, "Conversion"; and which elements keep their values."""
    plain = scale is None and bias is None
    if plain and source in INTEGERS and target in INTEGERS:
        stored = array != 0 if target == "bool" else clamp_integers(array.astype(object), target)
        return stored, is_same(array.astype(object), stored, target)
    arithmetic = np.float64 if is_wide(source) or is_wide(target) else np.float32
    values = load(array, source, arithmetic)
    with np.errstate(all="ignore"):
        if scale is not None:
            values = values * np.asarray(scale).astype(arithmetic)
        if bias is not None:
            values = values + np.asarray(bias).astype(arithmetic)
    stored = store(values, target, saturate)
    same = is_same(values, stored, target)
    if plain and source in INTEGERS:
        same &= is_same(array.astype(object), values, "float64" if arithmetic == np.float64 else "float32")
    return stored, same


def random_values(rng, name, shape):
    """Bits of any kind, or numbers of moderate size, which do not all end at the clamps."""
    dtype = storage(name)
    count = int(np.prod(shape, dtype=np.int64))
    bits = rng.integers(0, 256, count * dtype.itemsize, dtype=np.uint8).view(dtype)
    if name == "bool":
        return (rng.integers(0, 2, count) == 1).reshape(shape)
    if rng.integers(0, 2) and name not in INTEGERS:
        numbers = rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)
        bits = SMALL[name].store(numbers, True) if name in SMALL else numbers.astype(dtype)
    return bits.reshape(shape)


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

# SPDX-License-Identifier: Apache-2.0
"""Computes conversions in NumPy by "Conversion" in proto/protocol.md.

A floating-point type of 8 or 16 bits is represented by the values of all its codes, and rounding looks for the nearest
one, so that this shares nothing with the service."""
import numpy as np


def decode(code, exponent_bits, fraction_bits, infinity):
    """Returns the value of a code of a small floating-point type, by its definition."""
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
    """A floating-point type of 8 or 16 bits: its codes and their values."""

    def __init__(self, name, exponent_bits, fraction_bits, infinity=True):
        self.name = name
        self.bits = 1 + exponent_bits + fraction_bits
        self.storage = np.dtype(f"u{self.bits // 8}")
        codes = range(1 << self.bits)
        self.values = np.array([decode(c, exponent_bits, fraction_bits, infinity) for c in codes])
        half = self.values[:1 << self.bits - 1]
        self.finite = half[np.isfinite(half)]  # in ascending order from 0; code i has value i
        self.most = float(self.finite[-1])
        self.infinity = len(self.finite) if infinity else None
        self.nan = (((1 << exponent_bits) - 1) << fraction_bits | 1 << fraction_bits - 1 if infinity
                    else (1 << self.bits - 1) - 1)
        self.step = self.finite[-1] - self.finite[-2]

    def load(self, codes):
        return self.values[codes]

    def store(self, values, saturate):
        """Returns the codes of float64 values, rounded to nearest even."""
        magnitude = np.abs(values)
        if saturate:
            magnitude = np.where(np.isnan(magnitude), magnitude, np.minimum(magnitude, self.most))
        safe = np.where(np.isnan(magnitude), 0.0, np.minimum(magnitude, self.most))
        above = np.minimum(np.searchsorted(self.finite, safe), len(self.finite) - 1)
        below = np.maximum(above - 1, 0)
        up, down = self.finite[above] - safe, safe - self.finite[below]
        code = np.where(up < down, above, np.where(down < up, below, np.where(above % 2 == 0, above, below)))
        half = self.most + self.step / 2  # A tie goes to the even code, even if that code does not exist.
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
    """Clamps Python integers, or floats without NaN, to the range of an integer type."""
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


def store_integers(array, target, saturate):
    """Returns the codes of integers of any width, rounded once. For magnitudes from 2^53 on, the last 20 bits are
    merged into one that is set if any of them is, which makes no difference for any small type."""
    if target not in SMALL:
        return array.astype(target)

    def short(v):
        return v if abs(v) < 1 << 53 else (-1 if v < 0 else 1) * ((abs(v) >> 20 | (abs(v) % (1 << 20) > 0)) << 20)
    values = np.array([float(short(v)) for v in array.astype(object).ravel().tolist()])
    return SMALL[target].store(values.reshape(array.shape), saturate)


def is_same(values, stored, target):
    """Returns which stored elements have exactly the values that were to be stored."""
    if target in SMALL:
        back = SMALL[target].load(stored)
    else:
        back = stored
    if values.dtype == object or target in INTEGERS:
        pairs = zip(values.ravel().tolist(), np.asarray(back).ravel().tolist())
        return np.array([a == b for a, b in pairs], dtype=bool).reshape(values.shape)
    wide = values.astype(np.float64)
    return (wide == back) | (np.isnan(wide) & np.isnan(back))


def convert(array, source, target, cast, scale, bias):
    """Converts as the service does, in the words of "Conversion" in proto/protocol.md. Returns also which elements keep
    their values."""
    plain, saturate = scale is None and bias is None, cast == "saturate"
    if plain and source in INTEGERS and target in INTEGERS:
        if cast == "ieee" or target == "bool":
            stored = array.astype(target)
        else:
            stored = clamp_integers(array.astype(object), target)
        return stored, is_same(array.astype(object), stored, target)
    if plain and source in INTEGERS and target in FLOATS:
        stored = store_integers(array, target, saturate)
        return stored, is_same(array.astype(object), stored, target)
    arithmetic = np.float64 if is_wide(source) or is_wide(target) else np.float32
    values = load(array, source, arithmetic)
    with np.errstate(all="ignore"):
        if scale is not None:
            values = values * np.asarray(scale).astype(arithmetic)
        if bias is not None:
            values = values + np.asarray(bias).astype(arithmetic)
    stored = store(values, target, saturate)
    return stored, is_same(values, stored, target)


def random_values(rng, name, shape):
    """Returns random bits, or numbers of moderate size, not all of which are clamped."""
    dtype = storage(name)
    count = int(np.prod(shape, dtype=np.int64))
    bits = rng.integers(0, 256, count * dtype.itemsize, dtype=np.uint8).view(dtype)
    if name == "bool":
        return (rng.integers(0, 2, count) == 1).reshape(shape)
    if rng.integers(0, 2) and name not in INTEGERS:
        numbers = rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)
        bits = SMALL[name].store(numbers, True) if name in SMALL else numbers.astype(dtype)
    return bits.reshape(shape)


def pad(array, pads, mode):
    """Works like numpy.pad, whose wrap mode before 1.25 was wrong for arrays shorter than the pad."""
    if mode != "wrap":
        return np.pad(array, pads, mode=mode)
    for axis, (before, after) in enumerate(pads):
        n = array.shape[axis]
        array = array.take(np.arange(-before, n + after) % n, axis)
    return array


def check_same(test, got, expected, what, name=None):
    """Compares bit for bit; given the name of a floating-point type, ignores the payloads of NaNs."""
    bits = np.dtype(f"u{expected.dtype.itemsize}")
    got, expected = (np.ascontiguousarray(a).reshape(-1) for a in (got, expected))
    wrong = got.view(bits) != expected.view(bits)
    if name and name not in INTEGERS:
        wrong &= ~(np.isnan(load(got, name, np.float64)) & np.isnan(load(expected, name, np.float64)))
    at = np.flatnonzero(wrong)
    if len(at):
        test.fail(f"{what}: {len(at)} of {got.size} wrong, the first is {at[0]}: {got.view(bits)[at[0]]:#x}, not "
                  f"{expected.view(bits)[at[0]]:#x}")

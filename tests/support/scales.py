# SPDX-License-Identifier: Apache-2.0
"""Computes conversions with amax in NumPy by "Scales" in proto/protocol.md."""
import numpy as np

from conversion import SMALL, is_same, load, store

LARGEST = {**{name: small.most for name, small in SMALL.items()}, "float32": float(np.finfo("float32").max)}
NAN = np.uint32(0x7fc00000)


def blocks_of(shape, block):
    return [-(-n // b) for n, b in zip(shape, block)]


def expand(numbers, shape, block):
    """Repeats each block's number for each of its elements."""
    for d, (n, b) in enumerate(zip(shape, block)):
        numbers = numbers.repeat(min(b, max(n, 1)), axis=d).take(range(n), axis=d)
    return numbers


def power_of_two(scale):
    """Returns the least power of two that is not below a positive float32."""
    fraction, exponent = np.frexp(scale.astype(np.float64))
    return np.where(np.isfinite(scale), np.ldexp(1.0, exponent - (fraction == 0.5)), scale).astype(np.float32)


def scales_of(values, target, block, least, is_power):
    """Returns scale and inverse of each block of float32 values."""
    shape = blocks_of(values.shape, block)
    amax = np.zeros(shape, np.float32)
    for at in np.ndindex(*shape):
        part = values[tuple(slice(i * b, (i + 1) * b) for i, b in zip(at, block))]
        amax[at] = np.abs(part).max(initial=0)  # a NaN takes precedence
    with np.errstate(all="ignore"):
        amax = np.where(np.isnan(amax), amax, np.maximum(amax, np.float32(least))).astype(np.float32)
        scale = amax / np.float32(LARGEST[target])
        if is_power:
            scale = np.where(scale > 0, power_of_two(np.where(scale > 0, scale, np.float32(1))), scale)
        scale = np.where(amax == 0, np.float32(1), np.where(scale < 2.0**-126, np.float32(2.0**-126), scale))
        scale = np.asarray(scale, np.float32)
        inverse = np.asarray(np.float32(1) / scale, np.float32)
    return tuple(np.where(np.isnan(n), NAN, n.view(np.uint32)).astype(np.uint32).view(np.float32) for n in (scale, inverse))


def encode(numbers, dtype):
    """Returns the scales as they are encoded in memory."""
    if dtype == "float32":
        return numbers
    exponent = numbers.view(np.uint32) >> 23
    return np.maximum(exponent, 1).astype(np.uint8)


def quantize(array, source, target, block, least=0.0, is_power=False, saturate=True):
    """Returns the data, the scales, their inverses, and which elements keep their values."""
    values = load(array, source, np.float32)
    scale, inverse = scales_of(values, target, block, least, is_power)
    with np.errstate(all="ignore"):
        values = (values * expand(inverse, values.shape, block)).astype(np.float32)
    stored = store(values, target, saturate)
    return stored, scale, inverse, is_same(values, stored, target)

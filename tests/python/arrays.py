# SPDX-License-Identifier: Apache-2.0
"""Makes random arrays of every layout, and computes the expected results of transforms with NumPy, byte by byte."""
import numpy as np

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

NAMES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32",
         "float64", "complex64", "complex128"]
EXTENDED = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]
MODES = ["constant", "edge", "reflect", "symmetric", "wrap"]


def dtypes():
    """Returns all element types of tmad that NumPy has on this machine: 17 with ml_dtypes."""
    result = [np.dtype(name) for name in NAMES]
    if ml_dtypes is not None:
        result += [np.dtype(getattr(ml_dtypes, name)) for name in EXTENDED]
    return result


def raw(array):
    """Returns a view of an array whose elements are compared by their bytes."""
    return array.view(np.dtype((np.void, array.dtype.itemsize)))


def bits(array):
    """Returns the elements of an array as unsigned integers of the same size."""
    return np.asarray(array, order="C").view(f"u{array.dtype.itemsize}")


def shared(client, array):
    """Returns a copy of an array in memory that is shared with the service."""
    made = client.empty(array.shape, array.dtype)
    made[...] = array
    return made


def fill(rng, array):
    """Fills an array with random bytes, which include NaNs of every payload. Bools are 0 or 1."""
    flat = array.reshape(-1).view(np.uint8)
    flat[...] = rng.integers(0, 2 if array.dtype == bool else 256, flat.size, dtype=np.uint8)


class Layout:
    """A random layout of an array in its base: order of dimensions, steps, directions, gaps and stride-0 dimensions."""

    def __init__(self, rng, shape, may_broadcast):
        rank = len(shape)
        self.shape, self.order = tuple(shape), rng.permutation(rank)
        self.steps = [int(rng.choice([1, 1, 1, 2, 3])) for _ in range(rank)]
        self.offsets = [int(rng.choice([0, 0, 1, 2])) for _ in range(rank)]
        self.reversed = [rng.random() < 0.2 for _ in range(rank)]
        self.repeated = [may_broadcast and rng.random() < 0.1 and n > 0 for n in shape]
        if rng.random() < 0.4:
            self.order, self.steps, self.offsets = np.arange(rank), [1] * rank, [0] * rank
            self.reversed, self.repeated = [False] * rank, [False] * rank

    def base_shape(self):
        return tuple(self.offsets[d] + (1 if self.repeated[d] else self.shape[d]) * self.steps[d] for d in self.order)

    def view(self, base):
        """Returns the array in a base of shape base_shape()."""
        array = base.transpose(np.argsort(self.order)) if base.ndim else base
        slices = []
        for d, n in enumerate(self.shape):
            n = 1 if self.repeated[d] else n
            slices.append(slice(self.offsets[d], self.offsets[d] + n * self.steps[d], self.steps[d]))
        array = array[(*slices, ...)]
        array = array[(*(slice(None, None, -1 if r else None) for r in self.reversed), ...)]
        return np.broadcast_to(array, self.shape) if any(self.repeated) else array


def random_shape(rng, most=20000):
    rank = int(rng.integers(0, 7))
    limit = most if rng.random() < 0.25 else 600
    while True:
        top = max(2, int(limit ** (1 / max(rank, 1)) * 2))
        shape = [int(rng.integers(1, top + 1)) for _ in range(rank)]
        if rank and rng.random() < 0.05:
            shape[int(rng.integers(rank))] = 0
        if int(np.prod(shape, dtype=np.int64)) <= limit:
            return tuple(shape)


def random_pads(rng, shape, most=60000):
    """Returns random widths, a pair for each axis, and a mode. Some widths crop, and some are wider than the array."""
    mode = str(rng.choice(MODES))
    pads = []
    for n in shape:
        kind = rng.random()
        wide = int(rng.integers(0, max(1, 3 * n) + 1)) if kind > 0.9 else int(rng.integers(0, 4))
        pads.append([wide, int(rng.integers(0, 4))] if rng.random() < 0.7 else [0, 0])
        if rng.random() < 0.15 and n > 1:
            side = int(rng.integers(2))
            pads[-1][side] = -int(rng.integers(0, n))
        if n == 0 and mode != "constant":
            pads[-1] = [0, 0]
    while int(np.prod([n + a + b for n, (a, b) in zip(shape, pads)], dtype=np.int64)) > most:
        pads[int(rng.integers(len(pads)))] = [0, 0]
    return [tuple(p) for p in pads], mode


def random_value(rng, dtype):
    """Returns a random number that the type can represent."""
    if dtype == bool:
        return bool(rng.integers(2))
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return [info.min, info.max, 0, 1, 7][int(rng.integers(5))]
    if dtype.kind == "c":
        return complex(rng.choice([0.0, 1.5, -2.0]), rng.choice([0.0, -0.25, np.inf]))
    if dtype.kind == "f" and dtype.name in NAMES:
        return float(rng.choice([0.0, -0.0, 1.5, -np.inf, 2.0**-14]))
    return float(rng.choice([0.0, -0.0, 1.5, -2.0]))


def pad(x, pads, mode, **options):
    """Returns np.pad of an array, for pairs. Before version 2, NumPy pads wrongly if a border is wider than the array:
    then it is written out."""
    if mode in ("constant", "edge") or np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        return np.pad(x, pads, mode, **options)
    for axis, (before, after) in enumerate(pads):
        n = x.shape[axis]
        if not before and not after:
            continue
        at = np.arange(-before, n + after)
        if mode == "wrap":
            at %= n
        elif mode == "symmetric":
            at = np.minimum(at % (2 * n), 2 * n - 1 - at % (2 * n))
        else:
            at = np.minimum(at % max(2 * n - 2, 1), -at % max(2 * n - 2, 1))
        x = np.take(x, at, axis)
    return x


def expected(src, permute, pads, mode, value):
    """Returns the expected result of a transform, whose elements are compared by their bytes. NumPy crops and then pads
    an array of the elements' numbers, by which the elements are selected."""
    numbers = np.arange(src.size, dtype=np.int64).reshape(src.shape)
    if permute is not None:
        numbers = numbers.transpose(permute)
    if pads is not None and pads:
        numbers = numbers[tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(pads, numbers.shape))]
        options = {"constant_values": -1} if mode == "constant" else {}
        numbers = pad(numbers, [(max(a, 0), max(b, 0)) for a, b in pads], mode, **options)
    elements = np.concatenate([raw(np.ascontiguousarray(src).reshape(-1)), raw(np.array([value], src.dtype))])
    return np.asarray(elements[numbers])

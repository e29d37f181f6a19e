# SPDX-License-Identifier: Apache-2.0
"""Compares conversions between random types with astype at ties: values in the middle between two neighbours of the
other type, and right beside it, at all magnitudes; on each instruction set of the CPU engine, and on the stand-in for a
GPU.

NumPy's astype rounds once. That of ml_dtypes does so from types whose values float32 has; from others it rounds to
float32 first. For those, the tests first round to odd as float32, after which a second rounding does no harm.
"""
import subprocess

import pytest

np = pytest.importorskip("numpy")

import arrays
import softgpu
import tmaclient as tma
from tmad import ENGINE, ISA_TMAD, SANITIZED, Tmad, share

pytestmark = [
    pytest.mark.skipif(ENGINE != "cpu", reason="starts services on all engines"),
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:overflow:RuntimeWarning"),
]
PAIRS = 100_000
BLOCK = 500  # number of pairs in one test
MOST = 192  # largest number of elements of an array
CASTS = ("saturate", "ieee")
TYPES = [d for d in arrays.dtypes() if d.kind != "c"]
INTEGERS = [d for d in TYPES if d.kind in "iu"]
FRACTION = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7, "float8_e4m3fn": 3, "float8_e5m2": 2}
SMALL = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def instruction_sets():
    if not SANITIZED:
        return subprocess.run([ISA_TMAD], capture_output=True, text=True, check=True).stdout.split()
    return []


@pytest.fixture(scope="module")
def services():
    """Clients of all services that are compared, by name."""
    daemons = {"the best": Tmad(engine="cpu")}
    for isa in instruction_sets():
        daemons[isa] = Tmad(engine="cpu", program=ISA_TMAD, env={"TEST_ISA": isa})
    if softgpu.IS_THERE:
        daemons["softgpu"] = Tmad(engine="cuda")
    clients = {name: tma.connect(daemon.path, direct=False) for name, daemon in daemons.items()}
    yield clients
    for client in clients.values():
        client.close()
    for daemon in daemons.values():
        daemon.stop()


# ---- Values ------------------------------------------------------------------------------------------------
def finfo(dtype):
    return arrays.ml_dtypes.finfo(dtype) if dtype.name in SMALL else np.finfo(dtype)


def integers_at(rng, dtype, values):
    """Returns Python integers as an array; random numbers replace those that are out of range."""
    info = np.iinfo(dtype)
    return np.array([int(v) if info.min <= v <= info.max else int(rng.integers(100)) for v in values], dtype)


def integers_between(rng, dtype, fraction):
    """Returns integers with one significant bit more than a type of `fraction` bits has, and neighbours of such
    integers."""
    width, result = 8 * dtype.itemsize - (dtype.kind == "i"), []
    for _ in range(MOST):
        bits = min(fraction + 2, width)
        value = int(rng.integers(1 << bits - 1, 1 << bits, dtype="u8")) | 1
        value <<= int(rng.integers(width - bits + 1))
        value += (0, 0, 1, -1, 1 << int(rng.integers(width)), -(1 << int(rng.integers(width))))[int(rng.integers(6))]
        result.append(-value if dtype.kind == "i" and rng.random() < 0.5 else value)
    return integers_at(rng, dtype, result)


def integers_about(rng, dtype, target):
    """Returns integers near the limits of another integer type, and integers of all magnitudes."""
    width = 8 * dtype.itemsize
    ends = [np.iinfo(target).min, np.iinfo(target).max] if target.kind in "iu" else [0, 1]
    result = [end + d for end in ends for d in range(-2, 3)]
    while len(result) < MOST:
        value = int(rng.integers(1 << 63, dtype="u8")) >> int(rng.integers(64 - width, 64))
        result.append(-value if dtype.kind == "i" and rng.random() < 0.5 else value * 2 + 1)
    return integers_at(rng, dtype, result)


def beside(rng, values):
    """Returns some of the values unchanged, and moves others to a neighbour or a little further away."""
    wide = np.nextafter(values, np.where(rng.random(values.size) < 0.5, -np.inf, np.inf).astype(values.dtype))
    step = values * (1 + values.dtype.type(2.0) ** -rng.integers(8, 50, values.size) * rng.choice([-1, 1], values.size))
    return np.choose(rng.integers(0, 4, values.size), [values, values, wide, step.astype(values.dtype)])


def numbers_between(rng, dtype, target):
    """Returns the middles between adjacent values of a floating-point type, also between the last one and what would
    follow."""
    unsigned = np.dtype(f"u{target.itemsize}")
    last = int(np.array(finfo(target).max, target).view(unsigned))
    codes = rng.integers(0, last + 1, MOST, dtype="u8")
    codes[:4] = last - rng.integers(0, 2, 4, dtype="u8")
    low = codes.astype(unsigned).view(target).astype("f8")
    before = np.maximum(codes, 1) - 1
    step = np.where(codes < last, np.minimum(codes + 1, last).astype(unsigned).view(target).astype("f8") - low,
                    low - before.astype(unsigned).view(target).astype("f8"))
    return nearby(rng, low + step / 2, dtype)


def numbers_about(rng, dtype, target):
    """Returns whole numbers and halves of all magnitudes, and numbers near the limits of an integer type."""
    info = np.iinfo(target) if target.kind in "iu" else np.iinfo("i1")
    values = np.trunc(2.0 ** rng.uniform(-2, 66, MOST)) + rng.choice([0, 0.5, 0.25], MOST)
    values[:20] = np.array([float(end) + d for end in (info.min, info.max) for d in (-1, -0.5, 0, 0.5, 1)] * 2)
    return nearby(rng, values, dtype)


def nearby(rng, values, dtype):
    """Returns values in a floating-point type, some slightly changed, with random signs, and with zeros, infinities and
    a NaN."""
    values = values * rng.choice([-1, 1], values.size)
    values[-6:] = 0, -0.0, np.inf, -np.inf, np.nan, 1
    if dtype.name not in ("float32", "float64"):
        return values.astype(dtype)
    return beside(rng, values.astype(dtype))


def values_for(rng, dtype, target):
    if dtype == bool:
        return rng.integers(0, 2, MOST) == 1
    if dtype.kind in "iu":
        between = target.name in FRACTION and rng.random() < 0.9
        return (integers_between(rng, dtype, FRACTION[target.name]) if between
                else integers_about(rng, dtype, target))
    if target.name in FRACTION and rng.random() < 0.9:
        return numbers_between(rng, dtype, target)
    return numbers_about(rng, dtype, target)


# ---- What they become --------------------------------------------------------------------------------------
def to_odd(x):
    """Rounds to odd: returns numbers as float32, rounded towards zero, with the last bit set where that is not
    exact."""
    nearest = x.astype("f4")
    if x.dtype.kind == "f":
        exact, wide = nearest.astype("f8") == x, nearest.astype("f8")
        too_large = np.abs(wide) > np.abs(x)
    else:
        whole = [int(v) for v in nearest.tolist()]
        exact = np.array([a == b for a, b in zip(whole, x.tolist(), strict=True)])
        too_large = np.array([abs(a) > abs(b) for a, b in zip(whole, x.tolist(), strict=True)])
    below = np.where(too_large, nearest.view("u4") - 1, nearest.view("u4"))
    return np.where(exact | np.isnan(nearest), nearest.view("u4"), below | 1).astype("u4").view("f4")


def astype(x, target):
    """Returns numbers as another type, rounded only once."""
    if target.name in SMALL and x.dtype.name in ("uint32", "int32", "uint64", "int64", "float64"):
        return to_odd(x).astype(target)
    return x.astype(target)


def expected(x, target, cast):
    if target.kind in "iu" and x.dtype.kind in "iu":
        if cast == "ieee":
            return x.astype(target)
        info = np.iinfo(target)
        return np.array([min(max(v, info.min), info.max) for v in x.tolist()], target)
    if target.kind in "iu" and x.dtype != bool:
        info, whole = np.iinfo(target), np.trunc(np.nan_to_num(x.astype("f8"), nan=0, posinf=np.inf, neginf=-np.inf))
        low, high = whole <= info.min, whole >= info.max  # compared as float64, where 2^63 is out of range
        inside = np.where(low | high, 0, whole).astype(target)
        return np.where(low, target.type(info.min), np.where(high, target.type(info.max), inside))
    result = astype(x, target)
    if cast == "ieee" or target.name not in FRACTION:
        return result
    most = np.array(finfo(target).max, target)
    is_nan = np.isnan(x.astype("f8"))
    back = result.astype("f8")
    over = ~is_nan & ~np.isfinite(back)
    clamped = np.where(np.signbit(x.astype("f8")), (-most).view(bits_of(target)), most.view(bits_of(target)))
    return np.where(over, clamped, result.view(bits_of(target))).astype(bits_of(target)).view(target)


def bits_of(dtype):
    return np.dtype(f"u{dtype.itemsize}")


def difference(got, wanted):
    """Returns the positions where two arrays differ. NaNs are equal if their signs are."""
    wrong = got.view(bits_of(got.dtype)) != wanted.view(bits_of(wanted.dtype))
    if got.dtype.name in FRACTION:
        wide = got.astype("f8"), wanted.astype("f8")
        both = np.isnan(wide[0]) & np.isnan(wide[1])
        wrong &= ~(both & (np.signbit(wide[0]) == np.signbit(wide[1])))
    return np.flatnonzero(wrong.ravel())


# ---- Cases -------------------------------------------------------------------------------------------------
def laid_out(rng, x):
    """Returns values in a random layout, each of which takes another path in the engines, and the permutation."""
    kind = int(rng.integers(5))
    if kind == 0:
        return x, None
    if kind == 1:
        return x[1:], None
    if kind == 2:
        return np.repeat(x, 2)[::2], None
    rows = int(rng.choice([3, 4, 8, 16, 32]))
    return x[:x.size // rows * rows].reshape(-1, rows), (1, 0)


def by_operands(rng, x, target):
    """Returns a random scale and bias, and x with both applied step by step in float32 or float64."""
    arithmetic = np.dtype("f8" if any(d.name == "float64" or (d.kind in "iu" and d.itemsize >= 4)
                                      for d in (x.dtype, target)) else "f4")
    scale, bias = (rng.choice([None, 1.0, 0.5, 3.0, -1 / 3]), rng.choice([None, 0.0, 1.0, 0.1]))
    if scale is None and bias is None:
        return None, None, x
    result = x.astype(arithmetic)
    if scale is not None:
        result = result * arithmetic.type(scale)
    if bias is not None:
        result = result + arithmetic.type(bias)
    return scale, bias, result


@pytest.mark.skipif(arrays.ml_dtypes is not None, reason="ml_dtypes is there")
def test_small_types():
    pytest.skip("needs ml_dtypes for bfloat16 and float8, which the tests below leave out")


class Pair:
    """A move between random types, and its expected result."""

    def __init__(self, rng):
        source, target = (TYPES[int(rng.integers(len(TYPES)))] for _ in range(2))
        if rng.random() < 0.2:
            source = INTEGERS[-1 - int(rng.integers(4))]
        cast = CASTS[int(rng.integers(len(CASTS)))]
        x, axes = laid_out(rng, values_for(rng, source, target))
        scale, bias, result = by_operands(rng, x, target) if rng.random() < 0.2 else (None, None, x)
        self.x = x
        self.options = {"permute": axes, "dtype": target, "cast": cast, "scale": scale, "bias": bias}
        if source == target and scale is None and bias is None and cast != "saturate":
            wanted = x
        else:
            wanted = expected(result.ravel(), target, cast).reshape(x.shape)
        self.wanted = np.ascontiguousarray(wanted if axes is None else wanted.transpose(axes))

    def check(self, got, what):
        wrong = difference(got, self.wanted)
        if len(wrong):
            at, axes = wrong[0], self.options["permute"]
            came = (self.x if axes is None else self.x.transpose(axes)).ravel()[at]
            pytest.fail(f"{what}: {self.x.dtype} {self.x.shape} {self.options}: {len(wrong)} wrong; {came!r} became "
                        f"{got.ravel()[at]!r}, not {self.wanted.ravel()[at]!r}")


@pytest.mark.parametrize("block", range(-(-share(PAIRS) // BLOCK)))
def test_pairs(services, seed, block):
    """Moves are run one by one, or twenty in one request."""
    rng = np.random.default_rng([seed, block])
    left = min(BLOCK, share(PAIRS) - block * BLOCK)
    while left > 0:
        pairs = [Pair(rng) for _ in range(min(1 if rng.random() < 0.9 else 20, left))]
        left -= len(pairs)
        for name, client in services.items():
            if len(pairs) == 1:
                made = [client.transform(pairs[0].x, **pairs[0].options)]
            else:
                with client.batch() as b:
                    made = [b.transform(pair.x, **pair.options) for pair in pairs]
            for pair, got in zip(pairs, made, strict=True):
                pair.check(got, f"seed {seed}, block {block}, {name}")

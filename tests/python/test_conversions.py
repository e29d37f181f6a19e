# SPDX-License-Identifier: Apache-2.0
"""Tests conversions: every value of the small types against NumPy and ml_dtypes, random ones in every kind of memory,
and the conversions that DALI and DeepGEMM define."""
import os
import re

import pytest

np = pytest.importorskip("numpy")

import arrays
import conversion
import tmaclient as tma
from arrays import bits, shared
from tmad import ENGINE, share

pytestmark = pytest.mark.skipif(ENGINE != "cpu", reason="arrays of the host; the engine's own tests convert on a device")
TYPES = [d for d in arrays.dtypes() if d.kind != "c"]
BLOCK = 100  # number of random cases in one test


def count_of(error):
    return int(re.search(r"the values of (\d+) elements? of", str(error))[1])


# ---- Every value -------------------------------------------------------------------------------------------
def every_value(dtype, rng):
    """Returns all values of a type of up to 16 bits. For larger types, returns float32: random values, values of all
    exponents next to those where another type rounds, and the limits of integers."""
    if dtype.itemsize <= 2:
        return np.arange(2 if dtype == bool else 1 << 8 * dtype.itemsize).astype(f"u{dtype.itemsize}").view(dtype)
    low = [np.array([0, 1, half - 1, half, half + 1, 2 * half - 1]) for half in (1 << 9, 1 << 12, 1 << 17, 1 << 19, 1 << 20)]
    high = np.arange(1 << 14) << 18
    ends = np.array([s * 2.0**k for s in (1, -1) for k in (7, 8, 15, 16, 31, 32, 63, 64)], "f4").view("u4")
    numbers = [(high[:, None] | np.unique(np.concatenate(low))).ravel(), ends, ends + 1, ends - 1,
               rng.integers(0, 1 << 32, share(10_000_000))]
    return np.concatenate(numbers).astype("u4").view("f4")


def numpy_converts(x, dtype, saturate):
    """Returns the conversion by NumPy and ml_dtypes, after clamping."""
    wide = x.astype("f8")
    if dtype == bool:
        return wide != 0
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        wide = np.trunc(np.where(np.isnan(wide), 0, wide))
        # The limits are compared as float64, where 2^63 is out of range, as it should be.
        is_low, is_high = wide <= info.min, wide >= info.max
        inside = np.where(is_low | is_high, 0, wide).astype(dtype)
        return np.where(is_low, dtype.type(info.min), np.where(is_high, dtype.type(info.max), inside))
    if not saturate:
        return x.astype(dtype)
    plain = (x.astype("f4") if x.dtype == dtype else x).astype(dtype)  # the type has one NaN
    most = np.float64(arrays.ml_dtypes.finfo(dtype).max)
    clamped = np.clip(wide, -most, most).astype("f8" if dtype == "f8" else "f4").astype(dtype)
    return np.where(np.isnan(wide), plain, clamped)


def check_bits(result, wanted, what):
    """Compares bit for bit, except that a signaling NaN may have become quiet: processors differ in that."""
    quiet = {"float16": 1 << 9, "float32": 1 << 22, "float64": 1 << 51}.get(wanted.dtype.name)
    got, want = bits(result), bits(wanted)
    if quiet:
        is_nan = np.isnan(result) & np.isnan(wanted)
        got, want = (np.where(is_nan, b | got.dtype.type(quiet), b) for b in (got, want))
    wrong = np.flatnonzero(got != want)
    assert len(wrong) == 0, f"{what}: {len(wrong)} wrong; {wrong[0]}: {got.flat[wrong[0]]:#x}, not {want.flat[wrong[0]]:#x}"


@pytest.mark.skipif(arrays.ml_dtypes is None, reason="needs ml_dtypes")
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("source", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float32", "bool", "uint8",
                                    "int8", "uint16", "int16"])
def test_every_value(shared_client, seed, source):
    c = shared_client
    x = shared(c, every_value(next(d for d in TYPES if d.name == source), np.random.default_rng([seed, 1])))
    wide = x.astype("f8")
    for dtype in TYPES:
        out = c.empty(x.shape, dtype)
        c.copy(x, out, cast="saturate")
        check_bits(out, numpy_converts(x, dtype, True), f"seed {seed}: {source} to {dtype}")
        wanted = numpy_converts(x, dtype, False)
        back = wanted.astype("f8")
        changed = np.count_nonzero((back != wide) & ~(np.isnan(back) & np.isnan(wide)))
        out[...] = np.zeros((), dtype)
        try:
            c.copy(x, out, cast="exact")
            count = 0
        except tma.OutOfRangeError as e:
            count = count_of(e)
        assert count == changed, f"seed {seed}: {source} to {dtype}"
        check_bits(out, wanted, f"seed {seed}: {source} to {dtype}, exact")
        c.copy(x, out, cast="ieee")
        wraps = x.dtype.kind in "biu" and dtype.kind in "biu"
        check_bits(out, x.astype(dtype) if wraps else wanted, f"seed {seed}: {source} to {dtype}, ieee")


# ---- Random ones -------------------------------------------------------------------------------------------
def lay_out(rng, client, array):
    """Returns a copy of an array in a random layout, in shared memory or not."""
    layout = arrays.Layout(rng, array.shape, False)
    make = client.empty if rng.random() < 0.4 else np.empty
    view = layout.view(make(layout.base_shape(), array.dtype))
    view[...] = array
    return view


def random_operand(rng, client, shape):
    kind = int(rng.integers(5))
    if kind < 2:
        return None
    if kind == 2:
        return [0.5, -2, 1 / 255, np.float32(3), np.array(1e-3), True][int(rng.integers(6))]
    part = [n if rng.random() < 0.6 else 1 for n in shape[int(rng.integers(len(shape) + 1)):]]
    values = rng.standard_normal(part) * 4
    if rng.random() < 0.2 and len(part) == 1:
        return values.tolist()
    operand = lay_out(rng, client, np.asarray(values, rng.choice(["f4", "f8"])))
    return np.broadcast_to(operand, shape) if rng.random() < 0.1 else operand


def text_of(operand):
    return f"{operand.dtype}{operand.shape}{operand.strides}" if getattr(operand, "ndim", 0) else repr(operand)


def is_same(result, wanted):
    """Returns whether two arrays are equal bit for bit, except for the payload of NaNs that arithmetic made."""
    name = wanted.dtype.name
    if result.shape != wanted.shape or result.dtype != wanted.dtype:
        return False
    got, want = bits(result), bits(wanted)
    if wanted.dtype.kind in "biu":
        return np.array_equal(got, want)
    values = [conversion.load(b if name in conversion.SMALL else b.view(wanted.dtype), name, "f8") for b in (got, want)]
    return bool(((got == want) | (np.isnan(values[0]) & np.isnan(values[1]))).all())


def converted(array, dtype, cast, scale, bias):
    """Returns the oracle's conversion, and which elements keep their values."""
    raw = bits(array) if array.dtype.name in conversion.SMALL else array
    stored, same = conversion.convert(raw, array.dtype.name, dtype.name, cast, scale, bias)
    return np.asarray(stored).view(dtype), same


def transform_case(rng, clients):
    client = clients[int(rng.integers(len(clients)))]
    source, target = (TYPES[int(rng.integers(len(TYPES)))] for _ in range(2))
    shape = arrays.random_shape(rng, 4000)
    src = lay_out(rng, client, conversion.random_values(rng, source.name, shape).view(source))
    if rng.random() < 0.1 and shape and shape[0] > 1:
        src = np.broadcast_to(src[:1], shape)
    permute = tuple(int(d) for d in rng.permutation(len(shape)))
    turned = src.transpose(permute)
    pads, mode = arrays.random_pads(rng, turned.shape, 12000) if rng.random() < 0.6 else (None, "constant")
    value = arrays.random_value(rng, target) if mode == "constant" else 0
    cast = str(rng.choice(["saturate", "saturate", "exact", "ieee"]))
    scale, bias = (random_operand(rng, client, turned.shape) for _ in range(2))
    what = (f"{client._staging._limit} {source} to {target} {cast} {shape} {src.strides} {permute} {pads} {mode} {value!r} "
            f"scale {text_of(scale)} bias {text_of(bias)}")
    wanted, same = converted(turned, target, cast, scale, bias)
    if pads:
        crop = tuple(slice(max(-b, 0), n - max(-a, 0)) for (b, a), n in zip(pads, turned.shape))
        same = same[crop]
    wanted = arrays.expected(wanted, None, pads, mode, value).view(target)
    options = {"permute": permute, "pad": pads, "mode": mode, "value": value, "scale": scale, "bias": bias}
    if rng.random() < 0.5 and cast == "saturate":
        named = {"cast": cast} if source == target else {}  # with another type, cast may be omitted
        assert is_same(client.transform(src, dtype=target, **named, **options), wanted), what
        return
    out = lay_out(rng, client, np.zeros(wanted.shape, target))
    count = 0
    try:
        assert client.transform(src, out=out, cast=cast, **options) is out
    except tma.OutOfRangeError as e:
        count = count_of(e)
    changed = np.count_nonzero(~same) if cast == "exact" else 0
    if mode == "constant":
        assert count == changed, what
    else:
        assert (count > 0) == (changed > 0), what
    assert is_same(out, wanted), what


def blocks_case(rng, clients):
    client = clients[int(rng.integers(len(clients)))]
    source, target = (TYPES[int(rng.integers(len(TYPES)))] for _ in range(2))
    shape = arrays.random_shape(rng, 4000)
    if not shape or 0 in shape:
        return
    axis = int(rng.integers(len(shape)))
    n = shape[axis]
    permute = tuple(int(d) for d in rng.permutation(len(shape)))
    is_scatter = rng.random() < 0.5
    index = rng.permutation(n)[:int(rng.integers(0, n + 1))]
    src = lay_out(rng, client, conversion.random_values(rng, source.name, shape).view(source))
    if is_scatter:  # all blocks of src are scattered into a larger array
        turned, dst_axis = src.transpose(permute), permute.index(axis)
        into_shape = list(turned.shape)
        into_shape[dst_axis] = n + int(rng.integers(0, 5))
        index = rng.permutation(into_shape[dst_axis])[:n]
    else:
        turned = np.take(src, index, axis).transpose(permute)
        dst_axis = permute.index(axis)
    cast = str(rng.choice(["saturate", "saturate", "exact", "ieee"]))
    against = [1 if d == dst_axis else m for d, m in enumerate(turned.shape)]
    scale, bias = (random_operand(rng, client, against) for _ in range(2))
    what = (f"{client._staging._limit} {source} to {target} {cast} {shape} {src.strides} axis {axis} {index} {permute} "
            f"{is_scatter} scale {text_of(scale)} bias {text_of(bias)}")
    wanted, same = converted(turned, target, cast, scale, bias)
    count = 0
    try:
        if is_scatter:
            out = lay_out(rng, client, np.zeros(into_shape, target))
            client.scatter(out, index, src, axis=dst_axis, permute=permute, cast=cast, scale=scale, bias=bias)
        else:
            out = lay_out(rng, client, np.zeros(wanted.shape, target))
            client.gather(src, index, axis=axis, permute=permute, out=out, cast=cast, scale=scale, bias=bias)
    except tma.OutOfRangeError as e:
        count = count_of(e)
    assert count == (np.count_nonzero(~same) if cast == "exact" else 0), what
    if is_scatter:
        whole = np.zeros(into_shape, target)
        whole[(slice(None),) * dst_axis + (index,)] = wanted
        wanted = whole
    assert is_same(out, wanted), what


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("case", [transform_case, blocks_case])
@pytest.mark.parametrize("i", range(max(1, share(20))))
def test_random(clients, seed, case, i):
    rng = np.random.default_rng([seed, case is blocks_case, i])
    for k in range(BLOCK):
        try:
            case(rng, clients)
        except Exception as e:
            raise AssertionError(f"seed {seed}, test {i}, case {k}") from e


# ---- What others define ------------------------------------------------------------------------------------
MEAN, STD = (np.array(v, "f4") * 255 for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("memory", ["shared", "private"])
def test_images_as_dali_normalizes_them(c, memory, mirrored):
    """crop_mirror_normalize: out = scale * (in - mean) / std + shift, of a crop and perhaps mirrored, from uint8 NHWC to
    float16 NCHW, padded to 4 channels."""
    rng = np.random.default_rng(5)
    images = rng.integers(0, 256, (4, 60, 52, 3), dtype="u1")
    images = shared(c, images) if memory == "shared" else images
    top, left, height, width, fill = 7, 3, 48, 40, 0.5
    view = images[:, :, ::-1] if mirrored else images
    start = 52 - left - width if mirrored else left
    factor = np.float32(1) / STD
    out = c.transform(view, permute=(0, 3, 1, 2), dtype="float16", value=fill, scale=factor[:, None, None],
                      bias=(-MEAN * factor)[:, None, None],
                      pad=((0, 0), (0, 1), (-top, top + height - 60), (-start, start + width - 52)))
    assert out.shape == (4, 4, height, width) and out.dtype == np.float16 and (out[:, 3] == fill).all()
    cropped = images[:, top:top + height, left:left + width]
    if mirrored:
        cropped = cropped[:, :, ::-1]
    in_float32 = cropped * factor + -MEAN * factor
    assert in_float32.dtype == np.float32
    assert np.array_equal(out[:, :3], in_float32.astype("f2").transpose(0, 3, 1, 2))
    exact = ((cropped.astype("f8") - MEAN) / STD).transpose(0, 3, 1, 2)
    assert np.abs(out[:, :3] - exact).max() <= 0.5 * np.spacing(np.float16(np.abs(exact).max())) + 1e-6


def weights(rng, shape, dtype):
    """Returns weights whose blocks have very different magnitudes; one block is 0."""
    made = rng.standard_normal(shape) * np.exp2(rng.integers(-20, 6, (shape[0] // 128, 1, shape[1] // 128, 1)).repeat(
        128, 1).repeat(128, 3).reshape(shape))
    made[:128, :128] = 0
    return made.astype(dtype)


@pytest.mark.skipif(arrays.ml_dtypes is None, reason="needs ml_dtypes")
@pytest.mark.parametrize("memory", ["shared", "private"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("block", [(128, 128), (1, 128)])
def test_weights_as_deepgemm_scales_them(c, memory, dtype, block):
    """sf = amax / 448 of a block, amax at least 1e-4; the block is (x * (1 / sf)) cast to float8_e4m3fn."""
    ml = arrays.ml_dtypes
    w = weights(np.random.default_rng(6), (512, 384), np.dtype(getattr(ml, dtype, dtype)))
    blocks = w.reshape(512 // block[0], block[0], 384 // block[1], block[1])
    amax = np.abs(blocks.astype("f4")).max((1, 3), keepdims=True)
    factor = np.float32(1) / (np.maximum(amax, np.float32(1e-4)) / np.float32(448))
    wanted = (blocks.astype("f4") * factor).astype(ml.float8_e4m3fn)
    assert factor.dtype == np.float32 and np.abs(wanted.astype("f4")).max() == 448
    if memory == "shared":
        blocks, factor = shared(c, blocks), shared(c, factor)
    q = c.copy(blocks, dtype="float8_e4m3fn", scale=factor)
    assert q.dtype == ml.float8_e4m3fn and np.array_equal(bits(q), bits(wanted))
    back = c.copy(q, dtype="float32", scale=1 / factor)
    assert np.array_equal(back, q.astype("f4") * (1 / factor))


@pytest.mark.skipif(arrays.ml_dtypes is None, reason="needs ml_dtypes")
def test_what_the_readme_shows(c):
    readme = os.path.join(os.path.dirname(__file__), "..", "..", "client", "python", "README.md")
    with open(readme, encoding="utf-8") as file:
        example = re.search(r"## Conversions\n\n```python\n(.*?)```", file.read(), re.DOTALL)[1]
    rng, m, k = np.random.default_rng(9), 256, 384
    x = rng.standard_normal((3, 4), "f4")
    known = {"np": np, "c": c, "x": x, "m": m, "k": k, "images": rng.integers(0, 256, (2, 256, 256, 3), dtype="u1"),
             "weights": rng.standard_normal((m, k), "f4"), "factors": rng.random((m // 128, k // 128), "f4")}
    exec(example, known)
    assert np.array_equal(known["half"], x.astype("f2"))
    images = (known["images"][:, 16:-16, 16:-16].astype("f8") - known["mean"]) / known["std"]
    assert known["batch"].dtype == np.float16 and np.allclose(known["batch"], images.transpose(0, 3, 1, 2), atol=2e-3)
    scaled = known["weights"] * known["factors"].repeat(128, 0).repeat(128, 1)
    assert np.array_equal(bits(known["fp8"]), bits(scaled.astype(arrays.ml_dtypes.float8_e4m3fn)))

# SPDX-License-Identifier: Apache-2.0
"""Tests scales that are computed during a move: quantize, and amax of transforms, plans and batches. They are compared
bit for bit with NumPy, in every kind of memory, and with the definition of DeepGEMM."""
import asyncio

import pytest

np = pytest.importorskip("numpy")

import conversion
import scales
import tmaclient as tma
from arrays import Layout, bits, dtypes, ml_dtypes, random_shape, shared
from tmad import share

needs_ml_dtypes = pytest.mark.skipif(ml_dtypes is None, reason="needs ml_dtypes")
TYPES = [d for d in dtypes() if d.name in (*conversion.SMALL, "float32")]
FP8 = np.dtype(ml_dtypes.float8_e4m3fn if ml_dtypes else "f2")  # without ml_dtypes, the smallest floating-point type
E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu) if ml_dtypes else None
RNG = np.random.default_rng(2)
X = RNG.standard_normal((3, 300, 260)).astype("f4")


def quantize(client, *arguments, **options):
    """Calls quantize of a client, with FP8 as the default type."""
    if ml_dtypes is None and options.get("dtype") is None and options.get("out") is None:
        options["dtype"] = FP8
    return client.quantize(*arguments, **options)


def stored(array):
    """Returns an array in the form of the oracle, which has small floating-point types as integers."""
    return bits(array) if array.dtype.name in conversion.SMALL else array


def quantized(array, block, dtype=FP8, **options):
    """Returns the expected data, scale and inverse, and which elements keep their values. block has all extents."""
    data, scale, inverse, same = scales.quantize(stored(array), array.dtype.name, dtype.name, block, **options)
    return np.asarray(data).view(dtype), scale, inverse, same


def check_data(got, wanted, what=""):
    """Checks that data are equal bit for bit, except for the payload of NaNs."""
    assert got.shape == wanted.shape and got.dtype == wanted.dtype, what
    wide = [conversion.load(stored(a), a.dtype.name, "f4") for a in (got, wanted)]
    assert ((bits(got) == bits(wanted)) | (np.isnan(wide[0]) & np.isnan(wide[1]))).all(), what


def check(got, wanted, what=""):
    """Checks that data are equal, and scales bit for bit."""
    check_data(got[0], wanted[0], what)
    for g, w in zip(got[1:], wanted[1:]):
        assert g.shape == w.shape and np.array_equal(bits(g), bits(w.astype(g.dtype))), what


# ---- Results -------------------------------------------------------------------------------------------------
SHAPES = [  # shape of the array, the block as given, and the block that it stands for
    ("weights", (300, 260), (128, 128), (128, 128)),
    ("experts", (3, 300, 260), (128, 128), (1, 128, 128)),
    ("rows", (3, 300, 260), 128, (1, 1, 128)),
    ("rows as a list", (300, 260), [128], (1, 128)),
    ("whole rows", (300, 260), (1, -1), (1, 260)),
    ("whole columns", (300, 260), (-1, 1), (300, 1)),
    ("channels", (3, 300, 260), (1, -1, -1), (1, 300, 260)),
    ("all", (3, 300, 260), None, (3, 300, 260)),
    ("all of one dimension", (500,), None, (500,)),
    ("more than there is", (300, 260), (1 << 40, 1 << 62), (300, 260)),
    ("elements", (30, 26), (1, 1), (1, 1)),
    ("one element", (1, 1), (128, 128), (1, 1)),
    ("no dimension", (), (), ()),
    ("no dimension, all", (), None, ()),
    ("nothing", (0, 260), (128, 128), (1, 128)),
    ("nothing, all", (3, 0), None, (3, 1)),
]


@pytest.mark.parametrize("memory", ["shared", "private"])
@pytest.mark.parametrize("shape,given,block", [r[1:] for r in SHAPES], ids=[r[0] for r in SHAPES])
def test_blocks(c, clients, memory, shape, given, block):
    x = np.array(X.reshape(-1)[: int(np.prod(shape))].reshape(shape))
    wanted = quantized(x, block)[:3]
    for client in [c] if memory == "shared" else clients:
        placed = shared(client, x) if memory == "shared" else x
        result = quantize(client, placed, given, inverse=True)
        assert isinstance(result, tuple) and len(result) == 3
        check(result, wanted, client._staging._limit)
        assert result[1].dtype == np.float32 and result[1].shape == tuple(scales.blocks_of(shape, block))
        data, scale = quantize(client, placed, given)
        check((data, scale), wanted)
        assert not scale.size or client._core.is_shared(tma.Tensor(scale)) == (memory == "shared")


def test_defaults_are_those_of_weights(c):
    data, scale = quantize(c, X)
    check((data, scale), quantized(X, (1, 128, 128)))
    assert data.dtype == FP8 and scale.shape == (3, 3, 3)
    wide = scales.expand(scale, X.shape, (1, 128, 128))
    assert np.allclose(data.astype("f4") * wide, X, rtol=2**-4, atol=2**-10 * wide.max()), "scale is what readers multiply by"


def random_case(rng, clients):
    client = clients[int(rng.integers(len(clients)))]
    source, target = (TYPES[int(rng.integers(len(TYPES)))] for _ in range(2))
    shape = random_shape(rng, 30000)

    def lay_out(array):
        layout = Layout(rng, array.shape, False)
        make = client.empty if rng.random() < 0.4 else np.empty
        base = make(layout.base_shape(), "u1" if array.dtype == E8M0 else array.dtype)
        view = layout.view(base.view(array.dtype))
        view[...] = array
        return view

    src = lay_out(conversion.random_values(rng, source.name, shape).view(source))
    permute = tuple(int(d) for d in rng.permutation(len(shape)))
    crop = [(-int(rng.integers(0, 2)), -int(rng.integers(0, 2))) if n > 2 and rng.random() < 0.3 else (0, 0)
            for n in (shape[d] for d in permute)]
    turned = src.transpose(permute)[tuple(slice(-b, n + a) for (b, a), n in zip(crop, (shape[d] for d in permute)))]
    block = tuple(int(rng.choice([1, 2, 5, 16, 128, max(n, 1), -1])) for n in turned.shape)
    full = tuple(max(n, 1) if b == -1 else b for b, n in zip(block, turned.shape))
    power, least = bool(rng.integers(2)), float(rng.choice([0, 0, 1e-4, 2.0]))
    cast = str(rng.choice(["saturate", "saturate", "exact"]))
    data, scale, inverse, same = quantized(np.ascontiguousarray(turned).reshape(turned.shape), full, target, least=least,
                                           is_power=power, saturate=cast == "saturate")
    name = str(rng.choice(["float32", "uint8", "float8_e8m0fnu"][: 3 if ml_dtypes else 2])) if power else "float32"
    wanted = [n if name == "float32" else scales.encode(n, "uint8").view(E8M0 if name != "uint8" else "u1")
              for n in (scale, inverse)]
    what = (f"{client._staging._limit} {source} to {target} {cast} {shape} {src.strides} {permute} {crop} {block} {power} "
            f"{least} {name}")
    out, to = lay_out(np.zeros(turned.shape, target)), [lay_out(np.zeros_like(w)) for w in wanted]
    before = client._staging._limit
    try:
        if any(w for pair in crop for w in pair):
            amax = tma.Amax(block, *to, power_of_two=power, least=least)
            assert client.transform(src, permute=permute, pad=crop, out=out, cast=cast, amax=amax) is out
        else:
            options = {"permute": permute, "power_of_two": power, "least": least, "inverse": True}
            result = quantize(client, src, block, out=out, scale_out=to[0], inverse_out=to[1], cast=cast, **options)
            assert result[0] is out and result[1] is to[0] and result[2] is to[1], what
            if cast == "saturate":
                made = quantize(client, src, block, dtype=target, scale_dtype=name, **options)
                assert [m.dtype for m in made] == [target, to[0].dtype, to[1].dtype], what
                check(made, (data, *wanted), what)
        assert cast == "saturate" or same.all(), what
    except tma.OutOfRangeError as e:
        assert cast == "exact" and f" {np.count_nonzero(~same)} element" in str(e), f"{what}: {e}"
    check((out, *to), (data, *wanted), what)
    assert client._staging._limit == before


def test_random_ones(clients, seed):
    for i in range(share(3000)):
        random_case(np.random.default_rng([seed, 5, i]), clients)


@needs_ml_dtypes
def test_infinity_and_nan(clients):
    x = np.ones((4, 256), "f4")
    x[0, 3], x[1, 200], x[2, :128], x[3, 7] = np.inf, np.nan, 0, 2.0**-140
    x[3, 8:128], x[3, :7] = 0, 0
    for client in clients:
        data, scale, inverse = quantize(client, x, 128, inverse=True)
        check((data, scale, inverse), quantized(x, (1, 128)))
        assert np.isposinf(scale[0, 0]) and inverse[0, 0] == 0 and np.isnan(data[0, 3].astype("f4"))
        assert np.isnan(scale[1, 1]) and np.isnan(data[1, 128:].astype("f4")).all()
        assert scale[2, 0] == 1 and inverse[2, 0] == 1 and not data[2, :128].astype("f4").any()
        assert scale[3, 0] == 2.0**-126
        exponents = quantize(client, x, 128, power_of_two=True, scale_dtype=np.uint8)[1]
        assert exponents.tolist() == [[255, 119], [119, 255], [127, 119], [1, 119]]


# ---- As others define it -------------------------------------------------------------------------------------
def per_block_cast_to_fp8(x, least=1e-4):
    """DeepGEMM's per_block_cast_to_fp8, translated to NumPy."""
    m, n = x.shape
    padded = np.zeros((-(-m // 128) * 128, -(-n // 128) * 128), "f4")
    padded[:m, :n] = x
    view = padded.reshape(-1, 128, padded.shape[1] // 128, 128)
    sf = np.maximum(np.abs(view).max(axis=(1, 3), keepdims=True), np.float32(least)) / np.float32(448)
    return (view * (np.float32(1) / sf)).astype(FP8).reshape(padded.shape)[:m, :n], sf.reshape(view.shape[0], view.shape[2])


@needs_ml_dtypes
@pytest.mark.parametrize("memory", ["shared", "private"])
def test_deepgemm(c, memory):
    x = (X[0] * 10.0 ** RNG.integers(-6, 3, (300, 1))).astype(ml_dtypes.bfloat16)
    placed = shared(c, x) if memory == "shared" else x
    check(quantize(c, placed, least=1e-4), per_block_cast_to_fp8(x.astype("f4")))
    experts = np.stack([x, x[::-1]])
    data, scale = quantize(c, experts, least=1e-4)
    for i, expert in enumerate(experts):
        check((data[i], scale[i]), per_block_cast_to_fp8(expert.astype("f4")))
    x = x[:, :256].astype("f4")
    view = x.reshape(300, 2, 128)
    sf = np.maximum(np.abs(view).max(axis=2), np.float32(1e-4)) / np.float32(448)
    check(quantize(c, x, 128, least=1e-4), ((view * (np.float32(1) / sf)[:, :, None]).astype(FP8).reshape(x.shape), sf))


# ---- Kinds of arrays -----------------------------------------------------------------------------------------
@needs_ml_dtypes
def test_types_of_scales(c):
    _, scale, inverse, _ = quantized(X, (1, 128, 128), is_power=True)
    codes = scales.encode(scale, "uint8")
    for dtype, wanted in ((None, scale), ("float32", scale), (np.float32, scale), ("f4", scale), ("uint8", codes), ("u1", codes),
                          ("float8_e8m0fnu", codes.view(E8M0)), (E8M0, codes.view(E8M0)), (E8M0.type, codes.view(E8M0))):
        got = quantize(c, X, power_of_two=True, scale_dtype=dtype)[1]
        assert got.dtype == wanted.dtype and np.array_equal(bits(got), bits(wanted)), dtype
    exponents, inverses = np.empty(codes.shape, E8M0), np.empty(codes.shape, "f4")
    result = quantize(c, X, power_of_two=True, scale_out=exponents, inverse_out=inverses)
    assert result[1] is exponents and result[2] is inverses, "each of its type; inverse_out alone has it returned"
    assert np.array_equal(exponents.astype("f4"), scale) and np.array_equal(inverses, inverse)


@needs_ml_dtypes
def test_kinds_of_arrays(c):
    wanted = quantized(X[0], (128, 128))
    data, scale = quantize(c, memoryview(X[0]), scale_dtype="float32")
    assert isinstance(data, memoryview) and isinstance(scale, memoryview)
    check((np.asarray(data).view(FP8), np.asarray(scale)), wanted)
    assert quantize(c, memoryview(X[0]), power_of_two=True, scale_dtype="uint8")[1].format == "B"
    data, scale = quantize(c, tma.Tensor(shared(c, X[0])))
    assert isinstance(data, tma.Tensor) and data.dtype == "float8_e4m3fn" and scale.dtype == "float32"
    check((np.asarray(c.copy(data, np.empty(data.shape, FP8))), np.asarray(scale)), wanted)
    codes = np.empty(X[0].shape, "u1")  # this works without ml_dtypes
    assert np.array_equal(quantize(c, X[0], out=tma.Tensor(codes, "float8_e4m3fn"))[1], wanted[1])
    check_data(codes.view(FP8), wanted[0])
    with pytest.raises(TypeError, match="scale_dtype: tensor has no float8_e8m0fnu; uint8 has"):
        quantize(c, tma.Tensor(X), power_of_two=True, scale_dtype="float8_e8m0fnu")


def test_numpy_without_ml_dtypes(c, monkeypatch):
    """Without ml_dtypes, errors say what is missing, as for other conversions; types other than float8 work."""
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    with pytest.raises(TypeError, match="float8_e4m3fn only with the package ml_dtypes"):
        c.quantize(X)
    with pytest.raises(TypeError, match="float8_e8m0fnu only with the package ml_dtypes"):
        c.quantize(X, dtype="f2", power_of_two=True, scale_dtype="float8_e8m0fnu")
    data, scale = c.quantize(X, dtype="float16", power_of_two=True, scale_dtype="uint8")
    wanted = quantized(X, (1, 128, 128), np.dtype("f2"), is_power=True)
    check_data(data, wanted[0])
    assert np.array_equal(scale, scales.encode(wanted[1], "uint8"))


@needs_ml_dtypes
def test_out_decides_on_the_type(c):
    out = np.empty(X.shape, ml_dtypes.float8_e5m2)
    data, scale = quantize(c, X, out=out)
    assert data is out
    check((data, scale), quantized(X, (1, 128, 128), out.dtype))
    with pytest.raises(ValueError, match="out: float8_e5m2 .*; the result is float16"):
        quantize(c, X, out=out, dtype="float16")


@needs_ml_dtypes
def test_torch(c):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X).to(torch.bfloat16)
    block = (1, 128, 128)
    data, scale = quantize(c, x, least=1e-4)
    assert data.dtype == torch.float8_e4m3fn and scale.dtype == torch.float32 and scale.shape == (3, 3, 3)
    for i, expert in enumerate(x):
        check((data[i].view(torch.uint8).numpy().view(FP8), scale[i].numpy()), per_block_cast_to_fp8(expert.float().numpy()))
    wide = scale.repeat_interleave(128, 1)[:, :300].repeat_interleave(128, 2)[:, :, :260]
    assert torch.allclose(data.float() * wide, x.float(), rtol=2**-4, atol=float(scale.max()) * 2**-10)
    _, codes, _ = quantize(c, x, power_of_two=True, scale_dtype=torch.float8_e8m0fnu, inverse=True)
    assert codes.dtype == torch.float8_e8m0fnu
    wanted = quantized(X.astype(ml_dtypes.bfloat16), block, is_power=True)[1]
    assert np.array_equal(codes.float().numpy(), wanted)
    out, scale_out = torch.empty(x.shape, dtype=torch.float8_e5m2), torch.empty(codes.shape, dtype=torch.float8_e8m0fnu)
    result = quantize(c, x, power_of_two=True, out=out, scale_out=scale_out)
    assert result[0] is out and result[1] is scale_out
    wanted = quantized(X.astype(ml_dtypes.bfloat16), block, np.dtype(ml_dtypes.float8_e5m2), is_power=True)[1]
    assert np.array_equal(scale_out.float().numpy(), wanted)
    turned = quantize(c, x[0].T, 128)[1]
    assert turned.shape == (260, 3)
    with pytest.raises(TypeError, match="src: .*detach"):
        quantize(c, torch.zeros(128, 128, requires_grad=True))
    with pytest.raises(ValueError, match=r"scale_out: \[3, 3\]; there are \[3, 3, 3\] blocks"):
        quantize(c, x, scale_out=torch.empty(3, 3))


# ---- Staging -------------------------------------------------------------------------------------------------
STAGED = [
    ("blocks that a chunk has many of", (1000, 260), (128, 128)),
    ("one that is larger than a chunk", (1000, 700), (600, 512)),
    ("rows", (3, 70000), (1, -1)),
    ("columns", (70000, 3), (-1, 1)),
    ("all", (900, 700), None),
    ("elements", (300, 200), (1, 1)),
]


@pytest.mark.parametrize("shape,block", [r[1:] for r in STAGED], ids=[r[0] for r in STAGED])
@pytest.mark.parametrize("turn", [False, True], ids=["straight", "turned"])
def test_staged_as_shared(c, clients, shape, block, turn):
    """Staged arrays give the same bits as shared ones, and afterwards the staging memory kept is within the limit."""
    x = np.random.default_rng(3).standard_normal(shape[::-1] if turn else shape).astype("f4")
    permute = (1, 0) if turn else None
    wanted = quantize(c, shared(c, x), block, permute=permute, inverse=True)
    for client in clients:
        check(quantize(client, x, block, permute=permute, inverse=True), wanted, client._staging._limit)
        kept = client._staging._kept.values()
        assert sum(region.size for region in kept) <= client._staging._limit, "what one move needed"
        placed, to = shared(client, x), np.empty(wanted[1].shape, "f4")
        check(quantize(client, placed, block, permute=permute, scale_out=to), wanted[:2], "only scales are staged")
        out = client.empty(wanted[0].shape, FP8)
        check(quantize(client, x, block, permute=permute, out=out), wanted[:2], "only the source is staged")


def test_a_quota_of_a_large_block():
    """A block that does not fit into the quota of shared memory is refused; smaller blocks work."""
    from tmad import Tmad

    with Tmad("--mapped-bytes-per-uid", str(8 << 20), engine="cpu") as tmad, tma.connect(tmad.path, staging=1 << 20) as c:
        x = np.random.default_rng(3).standard_normal((2048, 1024)).astype("f4")
        with pytest.raises(tma.QuotaError):
            quantize(c, x, None)
        check(quantize(c, x), quantized(x, (128, 128)))


def test_where_arrays_lie_in_each_other(clients):
    """Results are written into the source, and scales beside data in one array, as in key caches."""
    width = 256 * FP8.itemsize

    def split(rows):
        return rows[:, :width].view(FP8), rows[:, width:].view("f4")

    for client in clients:
        base = X[0].copy()
        wanted = quantized(base, (1, 128))
        scale = base[:, :3]
        check(quantize(client, base, 128, scale_out=scale), wanted[:2], "what is read is copied first")
        data, scale = split(np.zeros((300, width + 8), "u1"))
        check(quantize(client, X[0, :, :256], 128, out=data, scale_out=scale), quantized(X[0, :, :256], (1, 128))[:2])
    c = clients[0]
    base = shared(c, X[0])
    with pytest.raises(tma.OverlapError, match="amax.scale: it shares bytes with src"):
        quantize(c, base, 128, scale_out=base[:, :3])
    data, scale = split(c.empty((300, width + 8), "u1"))
    quantize(c, shared(c, X[0, :, :256]), 128, out=data, scale_out=scale)
    check((data, scale), quantized(X[0, :, :256], (1, 128)))


class Bar:
    def __init__(self):
        self.bytes = 0

    def update(self, n):
        self.bytes += n

    def close(self):
        self.bytes += 0


def test_progress_and_timelines(clients):
    for client in clients:
        bar, t = Bar(), client.timeline()
        t.signal(1)
        quantize(client, X, progress=bar, wait=t.point(1), signal=t.point(2), priority="urgent")
        assert bar.bytes == X.size * (4 + FP8.itemsize) and t.value == 2


# ---- Errors --------------------------------------------------------------------------------------------------
READ_ONLY = np.zeros((3, 3, 3), "f4")
READ_ONLY.flags.writeable = False
REFUSED = [
    ("integers", ValueError, "amax: src is int64, but", {"src": np.ones((2, 2), "i8")}),
    ("float64", ValueError, "amax: src is float64, but", {"src": np.ones((2, 2))}),
    ("complex", ValueError, "complex", {"src": np.ones((2, 2), "c8")}),
    ("to integers", ValueError, "amax: dst is int8, but", {"dtype": "int8"}),
    ("to float64", ValueError, "amax: dst is float64, but", {"dtype": "f8"}),
    ("a list", TypeError, "src: ", {"src": [[1.0]]}),
    ("a block of too many dimensions", ValueError, r"block: \[1, 1, 128, 128\] for a result of 3 dimensions",
     {"block": (1, 1, 128, 128)}),
    ("a block of a vector", ValueError, r"block: \[128, 128\] for a result of 1 dimensions", {"src": np.ones(300, "f4")}),
    ("a block of 0", ValueError, "block: 0; an extent is 1 or more, or -1", {"block": (0, 128)}),
    ("a block of -2", ValueError, "block: -2; an extent", {"block": -2}),
    ("a block of fractions", TypeError, r"block: \(1.5, 2\); it is", {"block": (1.5, 2)}),
    ("a block of text", TypeError, "block: '128'; it is", {"block": "128"}),
    ("permute", ValueError, "permute: 2 axes", {"permute": (1, 0)}),
    ("scale beside it", ValueError, "scale: not beside amax", {"scale": 2}),
    ("bias beside it", ValueError, "bias: not beside amax", {"bias": np.ones(260, "f4")}),
    ("amax beside it", TypeError, "amax: quantize makes its own", {"amax": tma.Amax(128)}),
    ("scale_out: shape", ValueError, r"scale_out: \[3, 3\]; there are \[3, 3, 3\] blocks", {"scale_out": np.empty((3, 3), "f4")}),
    ("scale_out: type", TypeError, "scale_out: float64; it is float32, or", {"scale_out": np.empty((3, 3, 3))}),
    ("scale_out: exponents", ValueError, "scale_out: uint8 has the exponents", {"scale_out": np.empty((3, 3, 3), "u1")}),
    ("scale_out: read-only", ValueError, "scale_out: the array is read-only", {"scale_out": READ_ONLY}),
    ("scale_out: no array", TypeError, "scale_out: ", {"scale_out": 3}),
    ("inverse_out: shape", ValueError, r"inverse_out: \[3\]; there are", {"inverse_out": np.empty(3, "f4")}),
    ("scale_dtype", TypeError, "scale_dtype: float16; it is float32, or", {"scale_dtype": "f2"}),
    ("scale_dtype: no type", TypeError, "scale_dtype: decimal; it is", {"scale_dtype": "decimal"}),
    ("scale_dtype: exponents", ValueError, "scale_dtype: float8_e8m0fnu has the exponents", {"scale_dtype": "float8_e8m0fnu"}),
    ("least: negative", ValueError, "least: -1; it is 0 or more", {"least": -1}),
    ("least: NaN", ValueError, "least: nan; it is 0 or more", {"least": float("nan")}),
    ("least: text", TypeError, "least: 'x' is no real number", {"least": "x"}),
    ("least: complex", TypeError, "least: 1j is no real number", {"least": 1j}),
    ("cast", ValueError, "cast: 'round'", {"cast": "round"}),
    ("no keyword", TypeError, "unexpected keyword", {"blok": 3}),
]


@pytest.mark.parametrize("kind,words,arguments", [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refused(c, kind, words, arguments):
    """Arguments are refused in the same way for both kinds of memory, before anything is written."""
    given = arguments.get("src", X)
    rest = {name: value for name, value in arguments.items() if name != "src"}
    for src in [given] if isinstance(given, list) else [given, shared(c, given)]:
        with pytest.raises(kind, match=words):
            quantize(c, src, **rest)
        out = np.full(np.shape(src), 3, FP8)
        if "dtype" not in rest:
            with pytest.raises(kind, match=words):
                quantize(c, src, out=out, **rest)
            assert (bits(out) == bits(np.full(1, 3, FP8))).all()


def test_refused_of_others(c):
    scale = np.empty((3, 3, 3), "f4")
    for kind, words, call in [
        (TypeError, "amax: 128 is no tmaclient.Amax", lambda: c.copy(X, dtype="f2", amax=128)),
        (ValueError, "amax: scale and inverse are missing", lambda: c.copy(X, dtype="f2", amax=tma.Amax(128))),
        (ValueError, "amax.inverse: ", lambda: c.copy(X, dtype="f2", amax=tma.Amax((128, 128), scale, scale[0]))),
        (ValueError, "amax: the result is padded", lambda: c.pad(X, 1, dtype="f2", amax=tma.Amax((128, 128), scale))),
        (ValueError, "out: ", lambda: c.copy(X, np.empty(X.shape, FP8), amax=tma.Amax((128, 128), scale))),
        (TypeError, "amax: gather and scatter", lambda: c.gather(X, [0], dtype="f2", amax=tma.Amax((128, 128), scale))),
        (TypeError, "amax: gather and scatter", lambda: c.scatter(X.copy(), [0], X[:1], amax=tma.Amax((128, 128), scale))),
        (TypeError, "amax: each move of a batch", lambda: c.batch(amax=tma.Amax(128, scale))),
    ]:
        with pytest.raises(kind, match=words):
            call()


# ---- Plans, batches, asyncio ---------------------------------------------------------------------------------
def test_transforms(clients):
    """Transforms with amax crop and permute, to any type, also to the same one."""
    wanted = quantized(np.ascontiguousarray(X.transpose(2, 0, 1)[2:-3]), (7, 3, 128), np.dtype("f2"))
    for client in clients:
        scale, inverse = np.empty(wanted[1].shape, "f4"), np.empty(wanted[1].shape, "f4")
        amax = tma.Amax((7, -1, 128), scale, inverse)
        data = client.transform(X, permute=(2, 0, 1), pad={0: (-2, -3)}, dtype="f2", amax=amax)
        check((data, scale, inverse), wanted[:3])
        inverse[...] = 0
        check((client.copy(X, amax=tma.Amax(None, inverse=(one := np.empty((1, 1, 1), "f4")))),),
              (quantized(X, X.shape, np.dtype("f4"))[0],))
        assert one.item() == quantized(X, X.shape, np.dtype("f4"))[2].item() and not inverse.any()
        assert client.explain(X, dtype="f2", amax=tma.Amax(128, np.empty((3, 300, 3), "f4")))["family"] == "convert"


@pytest.mark.parametrize("memory", ["shared", "private"])
def test_plans(c, memory):
    def place(array):
        return shared(c, array) if memory == "shared" else array.copy()

    x, other = place(X), place(X * 3)
    scale, inverse = place(np.zeros((3, 3, 3), "f4")), place(np.zeros((3, 3, 3), "f4"))
    out = place(np.zeros(X.shape, FP8))
    amax = tma.Amax((128, 128), scale, inverse, least=1e-4)
    plan = c.plan(x, dtype=FP8, amax=amax)
    before = c.stats()["requests_by_method"].get("submit", 0)
    assert plan(x, out) is out
    check((out, scale, inverse), quantized(X, (1, 128, 128), least=1e-4))
    runs = c.stats()["requests_by_method"].get("submit", 0) - before
    assert runs == (memory == "shared"), "the plan's own, where the service has all"
    others = place(np.zeros((3, 3, 3), "f4")), place(np.zeros((3, 3, 3), "f4"))
    data = plan(other, amax=amax._replace(scale=others[0], inverse=others[1]))
    check((data, *others), quantized(X * 3, (1, 128, 128), least=1e-4))
    check((scale,), quantized(X, (1, 128, 128), least=1e-4)[1:2])
    private = np.zeros((3, 3, 3), "f4")
    check((plan(x, out, amax=amax._replace(scale=private)), private), quantized(X, (1, 128, 128), least=1e-4))
    assert plan.explain()["family"] == "convert"
    plain = c.plan(x, dtype=FP8)
    for words, call in [
        ("block, power_of_two and least are the plan's", lambda: plan(x, out, amax=amax._replace(block=(129, 128)))),
        ("block, power_of_two and least are the plan's", lambda: plan(x, out, amax=amax._replace(least=0))),
        ("block, power_of_two and least are the plan's", lambda: plan(x, out, amax=amax._replace(power_of_two=True))),
        ("amax.inverse: the plan writes it", lambda: plan(x, out, amax=amax._replace(inverse=None))),
        ("amax.scale: the plan was made for", lambda: plan(x, out, amax=amax._replace(scale=scale.T))),
        ("scale: not beside amax", lambda: plan(x, out, scale=2)),
        ("amax: the plan was made without it", lambda: plain(x, out, amax=amax)),
    ]:
        with pytest.raises(ValueError, match=words):
            call()
    only = c.plan(x, dtype=FP8, amax=amax._replace(inverse=None))
    with pytest.raises(ValueError, match="amax.inverse: the plan was made without it"):
        only(x, out, amax=amax)
    with pytest.raises(ValueError, match="amax: src is int32"):
        c.plan(X.view("i4"), dtype=FP8, amax=amax)


@pytest.mark.parametrize("memory", ["shared", "private"])
def test_batches(c, memory):
    """A batch exceeds one message, and its arrays have the largest number of dimensions."""
    def place(array):
        return shared(c, array) if memory == "shared" else array

    x = place(X.reshape(-1)[:4096].reshape((2,) * 12))
    wanted = quantized(x, (1,) * 10 + (2, 2))
    amax = tma.Amax((2, 2), place(np.zeros(wanted[1].shape, "f4")), place(np.zeros(wanted[1].shape, "f4")))
    plan = c.plan(x, dtype=FP8, amax=amax)
    with c.batch() as b:
        made = [quantize(b, x, (2, 2), inverse=True) for _ in range(70)]
        out = place(np.zeros(x.shape, FP8))
        assert b.run_plan(plan, x, out) is out
        other = amax._replace(scale=place(np.zeros(wanted[1].shape, "f4")), inverse=place(np.zeros(wanted[1].shape, "f4")))
        second = b.run_plan(plan, x, place(np.zeros(x.shape, FP8)), amax=other)
        exponents = quantize(b, place(X), dtype="f2", power_of_two=True, scale_dtype="uint8")
    for result in [*made, (out, amax.scale, amax.inverse), (second, other.scale, other.inverse)]:
        check(result, wanted[:3])
    data, scale, _, _ = quantized(X, (1, 128, 128), np.dtype("f2"), is_power=True)
    check(exponents, (data, scales.encode(scale, "uint8")))


@pytest.mark.parametrize("memory", ["shared", "private"])
@pytest.mark.parametrize("n", [1, 300], ids=["small", "large"])
def test_asyncio(tmad, memory, n):
    async def main():
        async with tma.aio.connect(tmad.path) as c:
            x = X[:, :n]
            if memory == "shared":
                x = await c.empty(x.shape)
                x[...] = X[:, :n]
            wanted = quantized(np.array(x), (1, 1, 128))[:3]
            for result in await asyncio.gather(*(quantize(c, x, 128, inverse=True) for _ in range(20))):
                check(result, wanted)
            scale = np.empty(wanted[1].shape, "f4")
            amax = tma.Amax(128, scale)
            check((await c.copy(x, dtype=FP8, amax=amax), scale), wanted[:2])
            scale[...] = 0
            plan = await c.plan(x, dtype=FP8, amax=amax)
            check((await plan(x), scale), wanted[:2])
            exponents = await quantize(c, x, None, power_of_two=True, scale_dtype="uint8")
            assert exponents[1].shape == (1, 1, 1) and exponents[1].dtype == np.uint8
            other = np.zeros_like(scale)
            async with c.batch() as b:
                made = [quantize(b, x, 128), quantize(b, x, 128, inverse=True), (b.copy(x, dtype=FP8, amax=amax), scale),
                        (b.run_plan(plan, x, np.zeros(x.shape, FP8), amax=amax._replace(scale=other)), other)]
            for result in made:
                check(result, wanted[:len(result)])
            exact = np.zeros(wanted[1].shape, "f4"), np.zeros(x.shape, FP8)
            with pytest.raises(tma.OutOfRangeError, match="cast: exact"):
                await quantize(c, x, 128, cast="exact", scale_out=exact[0], out=exact[1])
            assert np.array_equal(exact[0], wanted[1]), "what is nearest is there all the same"
            with pytest.raises(ValueError, match="scale_out: "):
                await quantize(c, x, 128, scale_out=np.empty(3, "f4"))
            with pytest.raises(ValueError, match="scale: not beside amax"):
                await quantize(c, x, 128, scale=2)

    asyncio.run(main())


@needs_ml_dtypes
@pytest.mark.parametrize("memory", ["shared", "private"])
def test_exponents_move_as_they_are(c, memory):
    """Arrays of exponents, as quantize returns them, are moved byte by byte and never converted."""
    e8m0, x, bytes_ = E8M0, np.ones((6, 4), "f4"), "pass array.view\\('uint8'\\)"
    s = c.empty((6, 4), "float8_e8m0fnu") if memory == "shared" else np.empty((6, 4), e8m0)
    assert s.dtype == e8m0
    s.view("u1")[...] = np.arange(100, 124).reshape(6, 4)
    index, other = [2, 0, 0], [5, 1, 2]
    plan = c.plan(s, permute=(1, 0))
    with c.batch() as b:
        batched = b.transpose(s)
    for result, expected in ((c.copy(s), s), (c.transpose(s), s.T), (c.gather(s, index), s[index]), (plan(s), s.T),
                             (c.gather([s, s], index), np.stack([s[index]] * 2)), (batched, s.T),
                             (c.copy(s, dtype="float8_e8m0fnu"), s), (c.copy(s, cast="exact"), s),
                             (c.pad(s, 1, "edge"), np.pad(s.view("u1"), 1, "edge").view(e8m0)),
                             (c.pad(s, -1), s[1:-1, 1:-1])):
        assert result.dtype == e8m0 and np.array_equal(result.view("u1"), expected.view("u1"))
        assert c._core.is_shared(tma.Tensor(result.view("u1"))) == (memory == "shared") or result is batched
    for out in (np.zeros_like(s), np.zeros(s.shape, "u1"), c.zeros(s.shape, e8m0)):
        assert c.copy(s, out=out) is out and np.array_equal(out.view("u1"), s.view("u1"))
        c.copy(s.view("u1")[::-1], out=out)
        c.scatter(out, other, s[:3])
        assert np.array_equal(out.view("u1")[other], s.view("u1")[:3])
    twin = np.zeros((2, *s.shape), e8m0)
    c.multicast(s, [twin[0], twin[1]])
    c.reshard([(twin[0], (0, 0))], [(s, (0, 0))])
    assert np.array_equal(twin.view("u1"), np.stack([s.view("u1")] * 2))
    for call, words in ((lambda: c.copy(s, dtype="float32"), f"^dtype: .*{bytes_}"),
                        (lambda: c.copy(s, scale=2), f"^scale: .*{bytes_}"),
                        (lambda: c.copy(x, out=s, scale=2.0, cast="saturate"), f"^scale: .*{bytes_}"),
                        (lambda: c.copy(x, dtype="float8_e8m0fnu"), "only quantize"),
                        (lambda: c.copy(x, dtype=e8m0), "only quantize"),
                        (lambda: c.gather(s, index, dtype="f4"), bytes_),
                        (lambda: c.scatter(x, index[:2], s[:2], dtype="f4"), bytes_),
                        (lambda: c.plan(s, bias=1), bytes_), (lambda: c.pad(s, 1), "no 0 to pad with; pad array.view"),
                        (lambda: c.copy(x, scale=s), "scale: float8_e8m0fnu; it is a number, or an array of float32"),
                        (lambda: c.multicast(x.view("u1")[:, :4], [np.zeros((6, 4), "u1"), s], scale=2, dtype="u1"), bytes_)):
        with pytest.raises(TypeError, match=words):
            call()
    with pytest.raises(ValueError, match="^out: float32"):
        c.copy(s, out=x)
    with pytest.raises(ValueError, match="^out: uint8"):
        c.copy(x, out=s)
    for call in (lambda: c.copy(x, out=s, cast="saturate"), lambda: c.gather(x, index, out=s[:3], cast="saturate"),
                 lambda: c.scatter(s, other, x[:3], cast="saturate"), lambda: c.plan(x, out=s, cast="saturate"),
                 lambda: c.multicast(x, [np.zeros((6, 4), "u1"), s], cast="saturate")):
        with pytest.raises(TypeError, match="^out: float8_e8m0fnu takes exponents as they are"):
            call()

# SPDX-License-Identifier: Apache-2.0
"""Tests calls that convert: their arguments, errors, staging, plans, batches and asyncio."""
import asyncio

import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
from arrays import bits, shared
from tmaclient._jobs import Options
from tmad import ENGINE

pytestmark = pytest.mark.skipif(ENGINE != "cpu", reason="arrays of the host; the engine's own tests convert on a device")
X = np.arange(-12, 12, dtype="f4").reshape(2, 3, 4) / 2


# ---- Arguments ----------------------------------------------------------------------------------------------
def test_dtypes(c):
    """Types are given by any of their names, for any kind of array. If no conversion is needed, elements stay as they
    are."""
    for dtype in ("float16", np.float16, np.dtype("f2"), "f2"):
        y = c.copy(X, dtype=dtype)
        assert y.dtype == np.float16 and np.array_equal(y, X.astype("f2"))
    for names, dtype in (("fp16 half", "f2"), ("fp32 single FP32", "f4"), ("fp64 double float", "f8"), ("complex", "c16")):
        for name in names.split():
            assert c.empty(3, name).dtype == dtype, name
    for names, dtype in (("bf16", "bfloat16"), ("fp8 fp8_e4m3 e4m3fn", "float8_e4m3fn"), ("fp8_e5m2", "float8_e5m2")):
        for name in names.split():
            assert c.copy(tma.Tensor(shared(c, X)), dtype=name).dtype == dtype, name
    assert tma.Tensor(np.zeros(3, "u1"), dtype="fp8").dtype == "float8_e4m3fn"
    for name in ("float8_e4m3", "fp", "", "half\0", "\ud800"):
        with pytest.raises(TypeError, match="tmad has no element type"):
            c.copy(X, dtype=name)
    infinite = np.array([np.inf, -np.inf, np.nan], "f4")
    assert np.array_equal(c.copy(infinite, dtype="f4"), infinite, equal_nan=True), "no conversion"
    assert np.array_equal(c.copy(infinite, dtype="f4", cast="exact"), infinite, equal_nan=True)
    most = np.finfo("f4").max
    assert np.array_equal(c.copy(infinite, cast="saturate"), np.array([most, -most, np.nan], "f4"), equal_nan=True)
    z = np.arange(3, dtype="c8")
    assert np.array_equal(c.copy(z, dtype="c8"), z)
    assert np.array_equal(c.copy(X, scale=2), X * 2) and c.copy(X, scale=2).dtype == np.float32
    x = shared(c, X)
    assert np.array_equal(c.transpose(x, dtype=bool), X.T.astype(bool))
    assert isinstance(c.copy(memoryview(X), dtype="int16"), memoryview)
    assert c.copy(memoryview(X), dtype="int16").tolist() == X.astype("i2").tolist()
    half = c.copy(memoryview(X), dtype="bfloat16")
    assert half.format == "H" and half.tolist() == (X.view("u4") >> 16).tolist(), "its bits, where Python has no such type"
    plan = c.plan(memoryview(X), dtype="bfloat16")
    assert plan(memoryview(X)).tolist() == half.tolist()
    own = c.copy(tma.Tensor(x), dtype="bfloat16")
    assert own.dtype == "bfloat16" and own.shape == X.shape
    assert np.array_equal(c.copy(own, np.empty(X.shape, "f4"), cast="exact"), X)
    out = np.empty((2, 3, 6), "u1")
    assert c.pad(X, ((0, 0), (0, 0), (1, 1)), "edge", out=out, dtype="u1") is out
    assert np.array_equal(out, np.pad(np.clip(X, 0, 255).astype("u1"), ((0, 0), (0, 0), (1, 1)), "edge"))
    assert np.array_equal(c.pad(X, 1, constant_values=300, dtype="u2"), np.pad(X.clip(0).astype("u2"), 1, constant_values=300))


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_the_cast_of_ieee_is_astype(tmad, clients):
    """Every call converts like astype: infinities stay, too large values become infinite, and integers keep their low
    bits."""
    mask = np.array([[0, 0.1, -np.inf, 1e6], [np.inf, 65519, 65520, np.nan]], "f4")
    wide = np.array([[300, -1, 1 << 40, -129], [255, 256, 127, 128]], "i8")
    for x, dtype in ((mask, "f2"), (mask * 0.5, "f2"), (mask, "f4"), (wide, "u1"), (wide, "i1"), (wide, "u8"), (wide, "?"),
                     (wide.view("u8"), "i8"), (wide.view("u8"), "i4")):
        wanted = x.astype(dtype)
        for client in clients:
            options = {"dtype": dtype, "cast": "ieee"}
            many = [client.copy(x, **options), client.transpose(x, **options).T, client.gather(x, [0, 1], **options),
                    client.plan(x, **options)(x), client.copy(shared(client, x), **options)]
            with client.batch() as b:
                many += [b.copy(x, **options), b.copy(shared(client, x), **options)]
            into = np.zeros_like(wanted)
            client.scatter(into, [1, 0], x[::-1], cast="ieee")
            outs = [client.empty(x.shape, dtype) for _ in range(2)]
            client.multicast(x, outs, cast="ieee")
            for y in (*many, into, *outs):
                assert y.dtype == wanted.dtype and np.array_equal(y, wanted, equal_nan=wanted.dtype.kind == "f")
            assert client.explain(x, **options)["family"] in ("convert", "memcpy")

        async def main(x=x, options=options, wanted=wanted):
            async with tma.aio.connect(tmad.path) as c:
                assert np.array_equal(await c.copy(x, **options), wanted, equal_nan=wanted.dtype.kind == "f")

        asyncio.run(main())
    scaled = clients[0].copy(np.array([1, -1, 0], "f4"), dtype="f2", scale=1e6, cast="ieee")
    assert scaled.tolist() == [np.inf, -np.inf, 0]
    assert clients[0].copy(np.array([300.7, -1, np.inf, np.nan]), dtype="u1", cast="ieee").tolist() == [255, 0, 255, 0]


def test_an_exact_cast_counts_all_chunks(clients):
    x = np.zeros((64, 1000), "f4")
    x[::7, 3] = 0.5
    for client in clients:
        out = np.full(x.shape, 9, "i1")
        with pytest.raises(tma.OutOfRangeError, match="values of 10 elements of float32 are not values of int8") as raised:
            client.copy(x, out, cast="exact")
        assert isinstance(raised.value, IndexError) and raised.value.status == tma.Status.OUT_OF_RANGE
        assert not out.any(), "the nearest"
        with pytest.raises(tma.OutOfRangeError, match="values of 1 element of float32"):
            client.gather(x, [1, 7, 8], dtype="i1", cast="exact")
        assert np.array_equal(client.copy(x * 2, dtype="i1", cast="exact"), x * 2)


REFUSED = [
    ("another type", ValueError, "out: float16", {"out": np.empty(X.shape, "f2")}),
    ("another type than dtype", ValueError, "out: float16", {"out": np.empty(X.shape, "f2"), "dtype": "f8"}),
    ("another type with a scale", ValueError, "out: float16", {"out": np.empty(X.shape, "f2"), "scale": 2}),
    ("no type", TypeError, "dtype: .*'decimal'", {"dtype": "decimal"}),
    ("a type that tmad lacks", TypeError, "dtype: ", {"dtype": "U3"}),
    ("no cast", ValueError, "cast: 'round'", {"cast": "round"}),
    ("a cast of no text", TypeError, "cast: 1", {"cast": 1}),
    ("complex", ValueError, "complex", {"dtype": "c8"}),
    ("scale: complex", TypeError, "scale: .*complex", {"dtype": "f2", "scale": 1j}),
    ("scale: a text", TypeError, "scale: ", {"dtype": "f2", "scale": "2"}),
    ("scale: a list of lists", TypeError, "scale: .*several dimensions", {"dtype": "f2", "scale": [[1.0, 2.0]]}),
    ("scale: integers", TypeError, "scale: int64; .*float32 or float64", {"scale": np.arange(4)}),
    ("bias: halves", TypeError, "bias: float16", {"bias": np.zeros(4, "f2")}),
    ("bias: too many dimensions", ValueError, r"bias: \[1, 2, 3, 4\] does not broadcast", {"bias": X[None]}),
    ("bias: 2 of 4", ValueError, r"bias: \[2\] does not broadcast against \[2, 3, 4\]", {"bias": [1.0, 2.0]}),
    ("bias: none of 4", ValueError, r"bias: \[0\] does not broadcast", {"bias": np.zeros(0, "f4")}),
    ("bias: of what is not permuted", ValueError, "bias: .*broadcast against",
     {"permute": (2, 1, 0), "bias": np.zeros(4, "f4")}),
    ("scale: too large", OverflowError, "scale: ", {"scale": 1 << 70}),
    ("value of the source's type", ValueError, "value: .*uint8", {"dtype": "u1", "pad": 1, "value": -1}),
]


@pytest.mark.parametrize("kind,words,arguments", [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refused(shared_client, kind, words, arguments):
    """Arguments are refused in the same way for both kinds of memory, before anything is written."""
    for x in (X, shared(shared_client, X)):
        out = arguments.get("out")
        before = None if out is None else out.copy()
        with pytest.raises(kind, match=words):
            shared_client.transform(x, **arguments)
        assert out is None or np.array_equal(bits(out), bits(before))


def test_refused_of_blocks(c):
    for words, call in [
        ("scale: 3 entries along the axis", lambda: c.gather(X, [0, 1, 1], scale=np.ones((3, 1, 1), "f4"))),
        ("bias: 4 entries along the axis", lambda: c.scatter(np.empty((2, 3, 9), "f4"), range(4), X, axis=2, bias=[1.0] * 4)),
        ("src: float32", lambda: c.scatter(np.empty((5, 3, 4), "f2"), [0, 4], X)),
        ("src: float64.* and cast", lambda: c.scatter(np.empty((5, 3, 4), "f2"), [0, 4], X, dtype="f8")),
        ("out: float16", lambda: c.gather(X, [0], out=np.empty((1, 3, 4), "f2"))),
    ]:
        with pytest.raises(ValueError, match=words):
            call()


def test_overlaps(c):
    """The service refuses overlaps in shared memory; sources in private memory are copied before they are
    overwritten."""
    def memory(make):
        base = make(48, "f4")
        base[:] = np.arange(48)
        return base, base[:24].view("f2")[::2]

    base, out = memory(c.empty)
    with pytest.raises(tma.OverlapError):
        c.copy(base[:24], out, cast="saturate")
    with pytest.raises(tma.OverlapError):
        c.copy(base[24:], base[:24], scale=base[:24])
    base, out = memory(np.empty)
    assert np.array_equal(c.copy(base[:24].copy(), out, cast="saturate"), np.arange(24))
    with tma.connect(c.path, staging=4 << 10) as client:  # the moves take many chunks
        base = np.arange(30000, dtype="f4")
        left, right = base[:10000].copy(), base[5000:15000].copy()
        client.copy(base[20000:], base[1000:11000], scale=base[5000:15000], bias=base[:10000])
        assert np.array_equal(base[1000:11000], np.arange(20000, 30000, dtype="f4") * right + left)


BOUNDED = [
    ("a small source", "u1", "f8", (1,), "f4"),
    ("a small result", "f8", "u1", (1,), "f4"),
    ("a large operand", "u1", "u1", (64, 4096), "f8"),
    ("all large", "f8", "f8", (64, 4096), "f8"),
]


@pytest.mark.parametrize("source,target,shape,dtype", [r[1:] for r in BOUNDED], ids=[r[0] for r in BOUNDED])
def test_staging_memory_is_bounded(tmad, source, target, shape, dtype):
    x = np.random.default_rng(7).integers(0, 200, (64, 4096)).astype(source)
    scale, bias = np.full(shape, 0.5, dtype), np.full(shape, 1.0, dtype)
    wanted = (x * 0.5 + 1).astype(target)
    with tma.connect(tmad.path, staging=64 << 10) as client:
        assert np.array_equal(client.copy(x, dtype=target, scale=scale, bias=bias), wanted)
        assert sum(region["size"] for region in client.regions()) <= 64 << 10
        index, row = [5, 2] * 50, slice(None, 1)
        sizes, taking = [], client._staging.take
        client._staging.take = lambda size: sizes.append(size) or taking(size)
        taken = client.gather(x, index, dtype=target, scale=scale[row], bias=bias[row])
        assert np.array_equal(taken, wanted[index])
        operands = scale[row].nbytes + bias[row].nbytes
        assert max(sizes) <= (64 << 10) + operands, "which each request has, however few its blocks"


def test_operands_that_repeat_are_staged_once(c):
    x, rows = np.ones((100, 300), "f4"), np.arange(100, dtype="f8")[:, None]
    job = c._transform_job(x, None, None, "constant", 0, None, Options(dtype="f8", scale=np.broadcast_to(rows, x.shape)))
    assert job.move.conversion.scale.shape == (100, 1)
    assert np.array_equal(c._run(job), x * rows)


class Bar:
    """A progress bar that counts bytes."""

    def __init__(self):
        self.bytes = 0

    def update(self, n):
        self.bytes += n

    def close(self):
        self.bytes += 0


def test_progress_counts_the_bytes_of_both_sides(clients):
    x = np.zeros((100, 300), "f4")
    for client in clients:
        bars = Bar(), Bar()
        client.copy(x, dtype="f2", scale=np.ones(300), progress=bars[0])
        client.gather(x, range(100), dtype="f2", progress=bars[1])
        assert [bar.bytes for bar in bars] == [x.size * (4 + 2)] * 2


# ---- Plans and batches -------------------------------------------------------------------------------------
@pytest.mark.parametrize("memory", ["shared", "private"])
def test_plans(c, memory):
    def place(array):
        return shared(c, array) if memory == "shared" else array

    x, factors, others = place(X), place(np.array([1, 2, 3, 4], "f4")), place(np.array([2, 0, 1, 5], "f4"))
    plan = c.plan(x, permute=(1, 0, 2), dtype="float16", scale=factors, bias=1)
    turned = X.transpose(1, 0, 2)
    assert plan.dst.dtype == "float16" and np.array_equal(plan(x), (turned * factors + 1).astype("f2"))
    out = place(np.zeros(turned.shape, "f2"))
    before = c.stats()["requests_by_method"].get("submit", 0)
    assert plan(x, out) is out and np.array_equal(out, turned * factors + 1)
    runs = c.stats()["requests_by_method"].get("submit", 0) - before
    assert runs == (memory == "shared"), "the plan's own, where the service has all"
    assert np.array_equal(plan(x, out, scale=others), turned * others + 1)
    assert plan(x, scale=np.array([2, 0, 1, 5], "f4")).dtype == np.float16, "of private memory, in any case"
    assert plan.explain()["family"] == "convert"
    numbers = c.plan(x, dtype="i1", scale=10, cast="exact")
    assert np.array_equal(numbers(x), X * 10)
    with pytest.raises(tma.OutOfRangeError, match="of 2 elements of float32"):
        numbers(place(np.array([100] * 2 + [0] * 22, "f4").reshape(X.shape)))
    for kind, words, call in [
        (ValueError, "scale: the plan was made for", lambda: plan(x, scale=np.zeros(4))),
        (ValueError, "scale: .*does not broadcast", lambda: plan(x, scale=np.zeros(5, "f4"))),
        (ValueError, "scale: a number", lambda: plan(x, scale=2)),
        (ValueError, "bias: the plan was made without one, or keeps", lambda: plan(x, bias=others)),
        (ValueError, "scale: a number", lambda: numbers(x, scale=2)),
        (ValueError, "out: the plan was made for", lambda: plan(x, np.zeros(turned.shape, "f4"))),
        (TypeError, "dtype", lambda: plan(x, dtype="f4")),
        (TypeError, "cast", lambda: plan(x, cast="exact")),
    ]:
        with pytest.raises(kind, match=words):
            call()


def test_a_plan_that_was_made_without_a_cast(c):
    plan = c.plan(X)
    with pytest.raises(ValueError, match="bias: the plan was made without one"):
        plan(X, bias=np.zeros(4, "f4"))
    with pytest.raises(ValueError, match="scale: a number"):
        plan(X, scale=2)
    assert np.array_equal(plan(X), X)


@pytest.mark.parametrize("memory", ["shared", "private"])
def test_batches(c, memory):
    """A batch exceeds one message, and its operands have the largest number of dimensions."""
    def place(array):
        return shared(c, array) if memory == "shared" else array

    x = place((np.arange(4096, dtype="f4") % 31).reshape((2,) * 12))
    factors = place(np.arange(64, dtype="f4").reshape((1,) * 6 + (2,) * 6))
    plan = c.plan(x, dtype="f2", scale=factors, bias=factors)
    outs = [c.empty(x.shape, "f2") for _ in range(300)]
    with c.batch() as b:
        made = [c.empty(x.shape, "f2")]
        made += [b.transpose(x, dtype="f8", scale=factors.T, bias=factors.T) for _ in range(100)]
        made.append(b.copy(x, dtype="i4", scale=2))
        made.append(b.pad(x[0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 1, dtype="u1", bias=1))
        made.append(b.transform(x, cast="saturate", bias=-1))
        made.append(b.copy(x))  # the keywords of the previous move do not apply to this one
        for out in outs:
            assert b.run_plan(plan, x, out) is out
        b.run_plan(plan, x, made[0], scale=place(np.ones_like(factors)))
    assert all(np.array_equal(out, (x * factors + factors).astype("f2")) for out in outs)
    assert all(np.array_equal(y, x.T.astype("f8") * factors.T + factors.T) for y in made[1:101])
    assert np.array_equal(made[0], x + factors)
    assert np.array_equal(made[101], x * 2) and np.array_equal(made[103], x - 1)
    assert made[104].dtype == x.dtype and np.array_equal(made[104], x)
    assert made[102].tolist() == [[0, 0, 0, 0], [0, 1, 2, 0], [0, 3, 4, 0], [0, 0, 0, 0]]
    for options in ({"dtype": "f2"}, {"cast": "exact"}, {"scale": 2}, {"bias": 2}):
        with pytest.raises(TypeError, match="each move of a batch has its own"):
            c.batch(**options)
    with pytest.raises(tma.OutOfRangeError, match=f"values of {np.count_nonzero(x)} elements"), c.batch() as b:
        b.copy(x, dtype="bool", cast="exact", scale=2)


# ---- asyncio -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("memory", ["shared", "private"])
@pytest.mark.parametrize("shape", [(8, 30), (400, 600)], ids=["small", "large"])
def test_asyncio(tmad, memory, shape):
    async def main():
        async with tma.aio.connect(tmad.path) as c:
            async def place(array):
                if memory == "private":
                    return array
                made = await c.empty(array.shape, array.dtype)
                made[...] = array
                return made

            rng = np.random.default_rng(8)
            data = rng.standard_normal(shape).astype("f4")
            x, rows = await place(data), await place(rng.standard_normal((shape[0], 1)))
            wanted = (data.T * rows.T.astype("f4")).astype("f2")  # the calculation is in float32
            many = await asyncio.gather(*(c.transpose(x, dtype="f2", scale=rows.T) for _ in range(20)))
            assert all(y.dtype == np.float16 and np.array_equal(y, wanted) for y in many)
            assert np.array_equal(await c.copy(x, dtype="f8", bias=rows), data + rows)
            assert np.array_equal(await c.pad(x, 1, dtype="f2"), np.pad(data.astype("f2"), 1))
            taken = await c.gather(x, [5, 2, 5], dtype="f2", scale=2)
            assert np.array_equal(taken, (data[[5, 2, 5]] * 2).astype("f2"))
            into = await place(np.zeros(shape, "f2"))
            await c.scatter(into, [3], data[:1], cast="saturate")
            assert np.array_equal(into[3], data[0].astype("f2")) and not into[2].any()
            plan = await c.plan(x, dtype="f2", scale=rows)
            out = await place(np.zeros(shape, "f2"))
            assert await plan(x, out) is out and np.array_equal(out.T, wanted)
            other = await place(np.ones_like(rows))
            assert np.array_equal(await plan(x, out, scale=other), data.astype("f2"))
            async with c.batch() as b:
                made = [b.copy(x, dtype="f2"), b.transpose(x, dtype="f2", scale=rows.T), b.run_plan(plan, x, out)]
            assert np.array_equal(made[0], data.astype("f2")) and np.array_equal(made[1], wanted)
            assert np.array_equal(made[2].T, wanted)
            assert (await c.explain(x, dtype="f2"))["family"] == "convert"
            whole = await place(np.trunc(data))
            out = await place(np.full(shape, 7, "u1"))
            with pytest.raises(tma.OutOfRangeError, match=f"values of {np.count_nonzero(whole < 0)} elements of float32"):
                await c.copy(whole, out, cast="exact")
            assert np.array_equal(out, whole.clip(0))
            for kind, words, call in [
                (ValueError, "scale", lambda: c.copy(x, scale=np.ones(7, "f4"))),
                (ValueError, "out", lambda: c.copy(x, np.zeros(shape, "f2"))),
                (TypeError, "dtype", lambda: c.copy(x, dtype="U1")),
            ]:
                with pytest.raises(kind, match=words):
                    await call()
            with pytest.raises(TypeError, match="scale"):
                c.batch(scale=2)

    asyncio.run(main())


def test_asyncio_with_many_and_large_operands(tmad):
    """A batch exceeds one message, and operands do not fit into a slot."""
    async def main():
        async with tma.aio.connect(tmad.path) as c:
            x, factors = await c.empty((2,) * 12), await c.empty((2,) * 12, "f8")
            x[...], factors[...] = (np.arange(4096) % 1000).reshape(x.shape), 0.5
            outs = [await c.empty(x.shape, "f2") for _ in range(60)]
            async with c.batch() as b:
                for out in outs:
                    b.transpose(x, out=out, cast="exact", scale=factors, bias=factors)
            assert all(np.array_equal(out, x.T * 0.5 + 0.5) for out in outs)
            x, factors = np.ones(10000, "u1"), np.arange(10000, dtype="f8") % 200
            many = await asyncio.gather(*(c.copy(x, dtype="u1", scale=factors, bias=factors * 0 + i) for i in range(20)))
            assert all(np.array_equal(y, factors + i) for i, y in enumerate(many))

    asyncio.run(main())

# SPDX-License-Identifier: Apache-2.0
"""Tests moves that this process launches into its own CUDA streams, on the stand-in driver: by a client without a
service, and by one that has a service, which then sees nothing of them."""
import asyncio
import ctypes
import threading

import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
import softgpu
from softgpu import MIB, Array, Span, Stream, cuda
from tmad import scaled, share

softgpu.require()
if not tma._core.HAS_CUDA:
    pytest.skip("the package was built without the engine for GPUs", allow_module_level=True)

X = np.arange(96 * 64, dtype="u4").reshape(96, 64)


@pytest.fixture(scope="module", autouse=True)
def stand_in():
    softgpu.driver()


@pytest.fixture(params=["local", "service"])
def c(request, gpus):
    softgpu.enter()
    with tma.connect("local:" if request.param == "local" else gpus.path) as client:
        yield client
        if request.param == "service":
            assert client.regions() == [], "the service has seen none of the memory"


@pytest.fixture
def span():
    made = Span(8)
    yield made
    softgpu.enter()
    made.free()


@pytest.fixture
def stream():
    made = Stream()
    yield made
    made.close()


@pytest.fixture
def arrays(span, stream):
    """Makes arrays of values, one behind the other in memory, which is freed only when the stream has finished."""
    at = span.start

    def make(values, dtype=None):
        nonlocal at
        values = np.asarray(values, dtype)
        made = Array(at, values.shape, values.dtype, stream)
        at += (values.nbytes + 511) // 512 * 512
        made.put(values)
        return made

    yield make
    stream.wait_all()


def test_transforms(c, arrays, stream):
    src, turned, padded, cast = arrays(X), arrays(X.T * 0), arrays(np.zeros((98, 70), "u4")), arrays(np.zeros_like(X, "f4"))
    for i in range(share(50)):
        src.put(X + i)
        assert c.transpose(src, out=turned) is turned
        c.pad(src, ((1, 1), (2, 4)), "edge", out=padded)
        c.copy(src, out=cast, dtype="float32", scale=0.5)
        stream.wait_all()
        assert np.array_equal(turned.get(), (X + i).T)
        assert np.array_equal(padded.get(), np.pad(X + i, ((1, 1), (2, 4)), "edge"))
        assert np.array_equal(cast.get(), (X + i).astype("f4") * np.float32(0.5))
    c.synchronize()


def exchanged(span, stream, values, at=0, **options):
    made = softgpu.Exchanged(span.start + at, values.shape, values.dtype, stream, **options)
    made.put(values)
    return made


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "f8", "c16", "?"])
def test_arrays_with_a_table(c, span, stream, dtype):
    """Permutes arrays whose type has DLPack's table of functions, into out and into new arrays."""
    x = (np.arange(5 * 6 * 7) % 101).astype(dtype).reshape(5, 6, 7)
    src = exchanged(span, stream, x, room=span.start + MIB)
    assert tma._core.has_exchange(src)
    for axes in ((1, 0, 2), [2, 0, 1], (-1, 1, 0)):
        assert np.array_equal(c.transpose(src, axes).get(), x.transpose(axes))
        assert np.array_equal(c.transform(src, permute=axes).get(), x.transpose(axes))
    assert np.array_equal(c.transpose(src).get(), x.T)
    assert np.array_equal(c.copy(src).get(), x)
    out = exchanged(span, stream, np.zeros_like(x, shape=(7, 6, 5)), MIB // 2)
    assert c.transpose(src, None, out) is out
    assert np.array_equal(out.get(), x.T)
    rows = exchanged(span, stream, x[:, :, :3], strides=(42, 7, 1), room=span.start + MIB)
    src.put(x)
    assert np.array_equal(c.transpose(rows).get(), x[:, :, :3].T)
    c.synchronize()


def test_arrays_with_a_table_run_in_the_current_stream(c, span, stream):
    word = exchanged(span, stream, np.zeros(1, "u8"))
    src, out = exchanged(span, stream, X, 4096), exchanged(span, stream, X.T * 0, MIB)
    other = Stream()
    cuda("cuStreamWaitValue64_v2", ctypes.c_void_p(stream.handle), softgpu.u64(word.address), softgpu.u64(1), 0)
    c.transpose(src, (1, 0), out)
    read = out.stream
    out.stream = other
    assert not out.get().any(), "the move waits for the word"
    out.stream = read
    cuda("cuStreamWriteValue64_v2", ctypes.c_void_p(other.handle), softgpu.u64(word.address), softgpu.u64(1), 0)
    c.synchronize()
    assert np.array_equal(out.get(), X.T)
    other.close()


def test_arrays_with_a_table_that_are_more_than_their_elements(c, span, stream):
    src, out = exchanged(span, stream, X), exchanged(span, stream, X.T * 0, MIB)
    for name in ("requires_grad", "negative"):
        setattr(src, name, True)
        assert tma._core.Tensor.exchanged(src) is None
        setattr(src, name, False)
    src.conjugate = True
    assert tma._core.Tensor.exchanged(src) is not None, "X has no complex elements"
    z = exchanged(span, stream, X.astype("c8"), 2 * MIB)
    assert tma._core.Tensor.exchanged(z) is not None
    z.conjugate = True
    assert tma._core.Tensor.exchanged(z) is None

    class More(softgpu.Exchanged):
        pass

    assert not tma._core.has_exchange(More(span.start, X.shape, X.dtype, stream)), "its own type has no table"
    with pytest.raises(ValueError, match="axes"):
        c.transpose(src, (0, 0), out)
    with pytest.raises(ValueError, match="out"):
        c.transpose(src, (0, 1), out)
    with pytest.raises(tma.OverlapError):
        c.transpose(src, (1, 0), exchanged(span, stream, X.T * 0, 64))
    with pytest.raises((ValueError, IndexError), match="axes"):
        c.transpose(src, (0, 1 << 70), out)


def test_in_order_with_the_stream(c, arrays, stream):
    """The calls do not wait, while the stream waits for a word that is not written yet."""
    word, src, dst, again = arrays(np.zeros(1, "u8")), arrays(X), arrays(X.T * 0), arrays(X * 0)
    other = Stream()
    cuda("cuStreamWaitValue64_v2", ctypes.c_void_p(stream.handle), softgpu.u64(word.address), softgpu.u64(1), 0)
    c.transpose(src, out=dst)
    c.transpose(dst, out=again)
    cuda("cuStreamWriteValue64_v2", ctypes.c_void_p(other.handle), softgpu.u64(word.address), softgpu.u64(1), 0)
    assert np.array_equal(again.get(), X)
    other.close()


def test_a_reshard_waits_for_the_stream(arrays, stream):
    """A reshard waits for its end, and does not begin before the earlier work in the stream has ended."""
    word, src, dst, out = arrays(np.zeros(1, "u8")), arrays(X), arrays(X * 0), arrays(X * 0)
    other = Stream()
    softgpu.enter()
    with tma.connect("local:") as c:
        cuda("cuStreamWaitValue64_v2", ctypes.c_void_p(stream.handle), softgpu.u64(word.address), softgpu.u64(1), 0)
        c.copy(src, out=dst)

        def go_on():
            softgpu.enter()
            cuda("cuStreamWriteValue64_v2", ctypes.c_void_p(other.handle), softgpu.u64(word.address), softgpu.u64(1), 0)

        later = threading.Timer(0.2, go_on)
        later.start()
        c.reshard([tma.Slice(out, (0, 0))], [tma.Slice(dst, (0, 0))])
        later.join()
    assert np.array_equal(out.get(), X)
    other.close()


def test_gathers_and_scatters(c, arrays, stream):
    index = np.array([5, 0, 95, 5])
    pool, picked, spread = arrays(X), arrays(np.zeros((4, 64), "u4")), arrays(X * 0)
    c.gather(pool, index, out=picked)
    assert np.array_equal(picked.get(), X[index])
    picked.put(picked.get() * 0)
    c.gather(pool, arrays(index), out=picked)
    assert np.array_equal(picked.get(), X[index])
    c.scatter(spread, [7, 8, 9, 11], picked)
    expected = X * 0
    expected[[7, 8, 9, 11]] = X[index]
    assert np.array_equal(spread.get(), expected)


def test_gathers_and_scatters_by_pairs(c, arrays, stream):
    pool, spread = arrays(X), arrays(X * 0)
    pairs = np.array([[5, 7], [0, 95], [5, 1]])
    expected = X * 0
    expected[[7, 95, 1]] = X[[5, 0, 5]]
    for listed in (pairs, arrays(pairs), arrays(pairs.astype("i4"))):
        spread.put(X * 0)
        c.gather_scatter(spread, pool, listed)
        assert np.array_equal(spread.get(), expected)
    expected = X.copy()
    expected[[7, 95, 1]] = X[[5, 0, 5]]
    c.gather_scatter(pool, pool, pairs)
    assert np.array_equal(pool.get(), expected)
    pools = [arrays(X), arrays(X + 7)]
    c.gather_scatter(pools, pools, pairs)
    assert np.array_equal(pools[0].get(), expected) and np.array_equal(pools[1].get(), expected + 7)
    with pytest.raises(tma.OverlapError, match=r"pairs\[0\]\[0\]"):
        c.gather_scatter(pool, pool, [(1, 2), (3, 1)])


def test_a_list_within_one_array_does_not_wait(c, arrays, stream):
    """The call does not wait, while the stream waits for a word that is not written yet."""
    word, pool = arrays(np.zeros(1, "u8")), arrays(X)
    other = Stream()
    cuda("cuStreamWaitValue64_v2", ctypes.c_void_p(stream.handle), softgpu.u64(word.address), softgpu.u64(1), 0)
    c.gather_scatter(pool, pool, [(5, 7), (0, 95)])
    cuda("cuStreamWriteValue64_v2", ctypes.c_void_p(other.handle), softgpu.u64(word.address), softgpu.u64(1), 0)
    expected = X.copy()
    expected[[7, 95]] = X[[5, 0]]
    assert np.array_equal(pool.get(), expected)
    other.close()


def test_layers(c, arrays, stream):
    index = [3, 90]
    pools, out = [arrays(X), arrays(X + 7)], arrays(np.zeros((2, 2, 64), "u4"))
    c.gather(pools, index, out=out)
    assert np.array_equal(out.get(), np.stack([X[index], (X + 7)[index]]))


def test_quantizes(c, arrays, stream):
    values = np.linspace(-3, 5, 64 * 32, dtype="f4").reshape(64, 32)
    src, out, scale = arrays(values), arrays(np.zeros((64, 32), "f2")), arrays(np.zeros((2, 1), "f4"))
    c.quantize(src, (32, 32), out=out, scale_out=scale)
    largest = np.abs(values.reshape(2, 32, 32)).max((1, 2)).reshape(2, 1)
    assert np.allclose(scale.get(), largest / 65504, rtol=1e-6)
    assert np.allclose(out.get().astype("f4") * np.repeat(scale.get(), 32, 0), values, rtol=1e-3, atol=1e-5)


def test_batches_and_several_results(c, arrays, stream):
    src, turned, same, other = arrays(X), arrays(X.T * 0), arrays(X * 0), arrays(X * 0)
    with c.batch() as b:
        b.transpose(src, out=turned)
        b.copy(src, out=same)
    assert np.array_equal(turned.get(), X.T)
    assert np.array_equal(same.get(), X)
    same.put(X * 0)
    c.multicast(src, [same, other])
    assert np.array_equal(same.get(), X)
    assert np.array_equal(other.get(), X)


def test_a_graph(c, arrays, stream):
    src, dst, picked = arrays(X), arrays(X.T * 0), arrays(np.zeros((3, 64), "u4"))
    handle, graph, run = ctypes.c_void_p(stream.handle), ctypes.c_void_p(), ctypes.c_void_p()
    cuda("cuStreamBeginCapture_v2", handle, 0)
    c.transpose(src, out=dst)
    c.gather(src, [1, 2, 90], out=picked)
    cuda("cuStreamEndCapture", handle, ctypes.byref(graph))
    cuda("cuGraphInstantiateWithFlags", ctypes.byref(run), graph, ctypes.c_uint64(0))
    for i in range(share(50)):
        src.put(X + i)
        cuda("cuGraphLaunch", run, handle)
        assert np.array_equal(dst.get(), (X + i).T)
        assert np.array_equal(picked.get(), (X + i)[[1, 2, 90]])
    cuda("cuGraphExecDestroy", run)
    cuda("cuGraphDestroy", graph)


def test_threads(c, gpus):
    failures = []

    def work(i):
        try:
            softgpu.enter()
            stream, span = Stream(), Span()
            src, dst = Array(span.start, X.shape, "u4", stream), Array(span.start + MIB, X.T.shape, "u4", stream)
            for n in range(share(50)):
                src.put(X * i + n)
                c.transpose(src, out=dst)
                assert np.array_equal(dst.get(), (X * i + n).T)
            stream.close()
            span.free()
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_refused(c, arrays, stream):
    src = arrays(X)
    with pytest.raises(ValueError, match="out: "):
        c.transpose(src, out=arrays(X))
    with pytest.raises(tma.OverlapError):
        c.transpose(src, out=Array(src.address, X.T.shape, "u4", stream))
    c.transpose(src, out=arrays(X.T * 0))


def test_exact_without_a_service(arrays, stream):
    with tma.connect("local:") as c:
        src, dst = arrays(np.array([1.5, 2, 3e9], "f4")), arrays(np.zeros(3, "i2"))
        c.copy(src, out=dst, cast="exact")
        with pytest.raises(tma.OutOfRangeError, match="2 values that moves in streams have cast were not values"):
            c.synchronize()
        c.synchronize()
        assert dst.get().tolist() == [1, 2, 32767]


def test_plans(c, arrays, stream):
    src, dst = arrays(X), arrays(X.T * 0)
    plan = c.plan(src, permute=(1, 0), out=dst)
    plan(src, dst)
    assert np.array_equal(dst.get(), X.T)
    dst.put(X.T * 0)
    with c.batch() as b:
        b.run_plan(plan, src, dst)
    assert np.array_equal(dst.get(), X.T)


def test_nothing(c, arrays, stream):
    c.transpose(Array(0, (0, 5), "u4", stream), out=Array(0, (5, 0), "u4", stream))


def test_a_long_list_by_the_service(gpus, arrays, stream):
    index = np.arange(7000) % 96
    with tma.connect(gpus.path) as c:
        out = arrays(np.zeros((7000, 64), "u4"))
        c.gather(arrays(X), index, out=out)
        c.synchronize()
        assert np.array_equal(out.get(), X[index])


def test_closed(gpus, arrays, stream):
    c = tma.connect(gpus.path)
    c.close()
    with pytest.raises(ValueError, match="closed"):
        c.transpose(arrays(X), out=arrays(X.T * 0))


def test_the_last_result(c, arrays, stream):
    c.transpose(arrays(X), out=arrays(X.T * 0))
    assert c.last_result()["bytes"] == 2 * X.nbytes


@pytest.mark.parametrize("dtype", ["i4", "i8"])
@pytest.mark.parametrize("n", [6145, 9000, 100000, 524288])
def test_long_lists(arrays, stream, n, dtype):
    """A list on the host is read before the call returns, however long it is."""
    index = (np.arange(n) * 7 % 96).astype(dtype)
    pool = arrays(np.arange(96, dtype="u4").reshape(96, 1))
    picked, spread = arrays(np.full((n, 1), 123, "u4")), arrays(np.full((n, 1), 321, "u4"))
    expected = index.astype("u4").reshape(n, 1)
    with tma.connect("local:") as c:
        mine = index.copy()
        c.gather(pool, mine, out=picked)
        mine[:] = 5
        assert np.array_equal(picked.get(), expected)
        order = np.arange(n - 1, -1, -1, dtype=dtype)
        c.scatter(spread, order, picked)
        order[:] = 0
        assert np.array_equal(spread.get(), expected[::-1])
        apart = np.stack([np.arange(n) % 96, np.arange(n)], 1).astype(dtype)
        c.gather_scatter(picked, pool, apart)
        assert np.array_equal(picked.get(), np.arange(n, dtype="u4").reshape(n, 1) % 96)
        c.gather(pool, index, out=picked)
        within = np.arange(n // 2 * 2, dtype=dtype).reshape(-1, 2)
        expected = spread.get()
        expected[within[:, 1]] = expected[within[:, 0]]
        c.gather_scatter(spread, spread, within)
        assert np.array_equal(spread.get(), expected)
        expected = index.astype("u4").reshape(n, 1)
        with pytest.raises(tma.OutOfRangeError, match=f"index: entry {n - 1} is 96, of 96 blocks"):
            c.gather(pool, np.append(index[:-1], 96).astype(dtype), out=picked)
        assert np.array_equal(picked.get(), expected)


def test_a_list_of_numbers(arrays, stream):
    pool, picked = arrays(X), arrays(np.zeros((9000, 64), "u4"))
    index = [i * 5 % 96 for i in range(9000)]
    tma.gather(pool, index, out=picked)
    assert np.array_equal(picked.get(), X[index])


def test_a_long_list_in_a_graph(arrays, stream):
    index, n = np.arange(20000) * 11 % 96, 20000
    src, picked = arrays(X), arrays(np.zeros((n, 64), "u4"))
    handle, graph, runs = ctypes.c_void_p(stream.handle), ctypes.c_void_p(), [ctypes.c_void_p(), ctypes.c_void_p()]
    with tma.connect("local:") as c:
        cuda("cuStreamBeginCapture_v2", handle, 0)
        mine = index.copy()
        c.gather(src, mine, out=picked)
        cuda("cuStreamEndCapture", handle, ctypes.byref(graph))
        for run in runs:
            cuda("cuGraphInstantiateWithFlags", ctypes.byref(run), graph, ctypes.c_uint64(0))
        cuda("cuGraphDestroy", graph)
        mine[:] = 3
        for i, run in enumerate(runs):
            src.put(X + i)
            cuda("cuGraphLaunch", run, handle)
            assert np.array_equal(picked.get(), (X + i)[index])
            cuda("cuGraphExecDestroy", run)


@pytest.fixture
def here():
    with tma.connect("local:") as client:
        yield client


def test_host_memory_without_a_service(here, arrays, stream):
    """The call waits for the work in the stream, and for its own end."""
    src, turned, back = arrays(X), arrays(X.T * 0), np.zeros_like(X)
    for i in range(share(50)):
        here.transpose(X + i, out=turned)
        here.transpose(turned, out=src)
        here.copy(src, out=back)
        assert np.array_equal(back, X + i)
    here.transpose(turned, out=back)
    assert np.array_equal(back, X + share(50) - 1)
    wide = np.zeros((96, 128), "f4")
    here.copy(src, out=wide[:, 1::2], dtype="float32", scale=0.5)
    assert np.array_equal(wide[:, 1::2], (X + share(50) - 1).astype("f4") * np.float32(0.5))
    assert not wide[:, ::2].any()


def test_views_of_the_host(here, arrays, stream):
    half = arrays(np.zeros((96, 32), "u4"))
    here.copy(X[::-1, ::2], out=half)
    assert np.array_equal(half.get(), X[::-1, ::2])
    here.pad(X[:, :30], ((0, 0), (1, 1)), "edge", out=half)
    assert np.array_equal(half.get(), np.pad(X[:, :30], ((0, 0), (1, 1)), "edge"))
    here.copy(np.broadcast_to(X[:1, :32], (96, 32)), out=half)
    assert np.array_equal(half.get(), np.broadcast_to(X[:1, :32], (96, 32)))


def test_more_than_the_slots_hold(here, arrays, stream):
    large = np.random.default_rng(1).integers(0, 2**32, (1500, 1500), "u4")
    there, back = arrays(large.T * 0), np.zeros_like(large)
    here.transpose(large, out=there)
    assert np.array_equal(there.get(), large.T)
    here.transpose(there, out=back)
    assert np.array_equal(back, large)


def test_blocks_of_the_host(here, arrays, stream):
    index = np.array([5, 0, 95, 5])
    picked, taken = arrays(np.full((4, 64), 7, "u4")), np.full((4, 64), 7, "u4")
    expected = X[index]
    here.gather(X, index, out=picked)
    assert np.array_equal(picked.get(), expected)
    here.gather(arrays(X), arrays(index), out=taken)
    assert np.array_equal(taken, expected)
    spread, kept = X * 0, X * 0
    here.scatter(spread, [7, 90], arrays(X[:2]))
    kept[[7, 90]] = X[:2]
    assert np.array_equal(spread, kept)
    layers = [X, X + 7], np.zeros((2, 2, 64), "u4")
    out = arrays(layers[1])
    here.gather(layers[0], [3, 90], out=out)
    assert np.array_equal(out.get(), np.stack([X[[3, 90]], (X + 7)[[3, 90]]]))


def test_scales_of_the_host(here, arrays, stream):
    values = np.linspace(-3, 5, 64 * 32, dtype="f4").reshape(64, 32)
    out, scale = arrays(np.zeros((64, 32), "f2")), np.zeros((2, 1), "f4")
    here.quantize(values, (32, 32), out=out, scale_out=scale)
    largest = np.abs(values.reshape(2, 32, 32)).max((1, 2)).reshape(2, 1)
    assert np.allclose(scale, largest / 65504, rtol=1e-6)
    assert np.allclose(out.get().astype("f4") * np.repeat(scale, 32, 0), values, rtol=1e-3, atol=1e-5)


def test_exact_casts_of_the_host(here, arrays, stream):
    dst = arrays(np.zeros(3, "i2"))
    with pytest.raises(tma.OutOfRangeError, match="2 elements of float32 are not values of int16"):
        here.copy(np.array([1.5, 2, 3e9], "f4"), out=dst, cast="exact")
    assert dst.get().tolist() == [1, 2, 32767]


def test_functions_of_the_module(arrays, stream):
    src, dst = arrays(X), arrays(X.T * 0)
    assert tma.transpose(src, (1, 0), out=dst) is dst
    assert np.array_equal(dst.get(), X.T)


def test_aio_without_a_service(arrays, stream):
    async def run():
        async with await tma.aio.connect("local:") as c:
            src, dst = arrays(X), arrays(X.T * 0)
            await c.transpose(src, out=dst)
            assert np.array_equal(dst.get(), X.T)
            await c.transpose(X + 1, out=dst)
            assert np.array_equal(dst.get(), (X + 1).T)
            back = X * 0
            await c.transpose(dst, out=back)
            assert np.array_equal(back, X + 1)
            await c.gather(X, [3, 90], out=dst_of_two)
            assert np.array_equal(dst_of_two.get(), X[[3, 90]])

    dst_of_two = arrays(np.zeros((2, 64), "u4"))
    asyncio.run(run())


def test_points(here, arrays, stream):
    """The stream waits for points and signals them; the calls do not wait."""
    t, src, dst = here.timeline(), arrays(X), arrays(X.T * 0)
    table, rows, copied = arrays(X), arrays(np.zeros((2, 64), "u4")), arrays(X * 0)
    plan = here.plan(src, permute=(1, 0), out=dst)

    def batch(**order):
        with here.batch(**order) as b:
            b.transpose(src, out=dst)
            b.copy(table, out=copied)

    moves = [
        lambda **order: here.transpose(src, out=dst, **order),
        lambda **order: plan(src, dst, **order),
        lambda **order: here.gather(table, [3, 90], out=rows, **order),
        lambda **order: here.gather(table, [], out=arrays(np.zeros((0, 64), "u4")), **order),
        batch,
    ]
    for i, move in enumerate(moves):
        dst.put(X.T * 0)
        rows.put(np.zeros((2, 64), "u4"))
        move(wait=t.point(4 * i + 1), signal=t.point(4 * i + 2))
        t.wait(4 * i + 3, stream=stream)
        assert not t.wait(4 * i + 2, 0.02), i
        t.signal(4 * i + 1)
        assert t.wait(4 * i + 2, scaled(10)), i
        t.signal(4 * i + 3)
        assert not rows.get().any() or np.array_equal(rows.get(), X[[3, 90]])
        assert not dst.get().any() or np.array_equal(dst.get(), X.T)
        assert rows.get().any() == (i == 2) and dst.get().any() == (i in (0, 1, 4))
    assert np.array_equal(copied.get(), X)
    with pytest.raises(ValueError, match="wait_timeout: a stream waits without a limit"):
        here.transpose(src, out=dst, wait=t.point(100), wait_timeout=1)


def test_layers_wait_and_signal_once(here, arrays, stream):
    t, src = here.timeline(), [arrays(X), arrays(X + 1)]
    dst = [arrays(X * 0), arrays(X * 0)]
    here.gather(src, np.arange(96), out=dst, wait=t.point(1), signal=t.point(2))
    assert not t.wait(2, 0.02)
    t.signal(1)
    assert t.wait(2, scaled(10))
    assert all(np.array_equal(d.get(), X + i) for i, d in enumerate(dst))


def test_left_to_the_service(gpus, arrays, stream):
    with tma.connect(gpus.path, direct=False) as c:
        src, dst = arrays(X), arrays(X.T * 0)
        c.transpose(src, out=dst)
        assert np.array_equal(dst.get(), X.T)
        assert len(c.regions()) > 0

# SPDX-License-Identifier: Apache-2.0
"""Tests device memory and streams on the stand-in driver, which tmad and this process each have loaded."""
import gc
import threading
import time

import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
import softgpu
from softgpu import MIB, Array, Span, Stream
from tmad import Tmad, scaled, share

softgpu.require()


@pytest.fixture(scope="module", autouse=True)
def stand_in():
    softgpu.driver()


@pytest.fixture(scope="module")
def tmad(gpus):
    return gpus


@pytest.fixture
def span():
    made = Span(4, room=8)
    yield made
    softgpu.enter()
    made.free()


@pytest.fixture
def stream():
    made = Stream()
    yield made
    made.close()


X = np.arange(512 * 256, dtype="u4").reshape(512, 256)


def test_between_device_arrays(c, span, stream):
    src, dst = Array(span.start + 64, X.shape, "u4", stream), Array(span.start + 2 * MIB, X.T.shape, "u4", stream)
    for i in range(share(50)):
        src.put(X + i)
        assert c.transpose(src, out=dst) is dst
        stream.wait_all()
        assert np.array_equal(dst.get(), X.T + i)
    assert len(c.regions()) == 2, "the span, and the words of the streams"
    c.synchronize()


def test_in_a_default_stream_of_a_thread_without_a_context(c, span):
    """In a thread without a context, the default stream is that of the arrays' device."""
    src, dst = Array(span.start, X.shape, "u4"), Array(span.start + 2 * MIB, X.T.shape, "u4")
    src.put(X)
    failures = []

    def run():
        try:
            c.transpose(src, out=dst)
            c.synchronize()
        except tma.Error as e:
            failures.append(e)

    for _ in range(2):  # the first call may create a context
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert failures == []
    assert np.array_equal(dst.get(), X.T)


def test_between_host_and_device(c, span, stream):
    device = Array(span.start, X.T.shape, "u4", stream)
    shared = c.empty(X.shape, "u4")
    shared[...] = X
    for x in (X, shared):
        device.put(np.zeros(X.T.shape, "u4"))
        c.transpose(x, out=device)
        assert np.array_equal(device.get(), X.T)
        back = np.zeros_like(X) if x is X else c.empty(X.shape, "u4")
        c.transpose(device, out=back)
        assert np.array_equal(back, X)
    plan = c.plan(X, permute=(1, 0))
    plan(X, device)
    assert np.array_equal(device.get(), X.T)
    with pytest.raises(TypeError, match="pass out="):
        c.copy(device)


@pytest.mark.parametrize("mode", ["constant", "edge", "wrap"])
def test_host_memory_passes_in_chunks(gpus, span, stream, mode):
    with tma.connect(gpus.path, staging=64 << 10, direct=False) as c:
        pads = ((1, 2), (0, 3))
        wanted = np.pad(X.T, pads, mode=mode)
        device = Array(span.start, wanted.shape, "u4", stream)
        device.put(np.zeros(wanted.shape, "u4"))
        c.transform(X, permute=(1, 0), pad=pads, mode=mode, out=device)
        assert np.array_equal(device.get(), wanted)
        back = np.zeros((wanted.shape[1] + 2, wanted.shape[0] + 1), "u4")
        c.transform(device, permute=(1, 0), pad=((2, 0), (0, 1)), mode=mode, out=back)
        assert np.array_equal(back, np.pad(wanted.T, ((2, 0), (0, 1)), mode=mode))
        plain = Array(span.start + 2 * MIB, X.T.shape, "u4", stream)
        c.transpose(X, out=plain)
        assert np.array_equal(plain.get(), X.T)
        assert max(r["size"] for r in c.regions() if r["kind"] == "memfd") <= 1 << 20


def test_gathers(c, span, stream):
    src, dst = Array(span.start, X.shape, "u4", stream), Array(span.start + MIB, (5, 256), "u4", stream)
    src.put(X)
    dst.put(np.zeros((5, 256)))
    index = [3, 500, -1, 0, 7]
    c.gather(src, index, out=dst, synchronous=True)
    assert np.array_equal(dst.get(), X[index])
    listed = Array(span.start + 2 * MIB, (5,), "i4", stream)
    listed.put([9, -1, 100, 512, 1])
    c.gather(src, listed, out=dst, synchronous=True)
    wanted = X[index]
    wanted[[0, 2, 4]] = X[[9, 100, 1]]
    assert np.array_equal(dst.get(), wanted), "-1 and what is out of range leave the result as it was"
    listed.put([0, 1, 2, 3, 4])
    c.scatter(src, listed, dst, synchronous=True)
    assert np.array_equal(src.get()[:5], wanted)
    with pytest.raises(TypeError, match="index"):
        c.gather(src, Array(span.start, (4,), "f4", stream), out=dst)


def test_gathers_and_scatters_by_pairs(c, span, stream):
    src, dst = Array(span.start, X.shape, "u4", stream), Array(span.start + MIB, (600, 256), "u4", stream)
    src.put(X)
    wanted = np.zeros((600, 256), "u4")
    dst.put(wanted)
    pairs = [(3, 599), (500, 0), (-1, 7), (3, -2)]
    c.gather_scatter(dst, src, pairs, synchronous=True)
    wanted[[599, 0, 7, 598]] = X[[3, 500, 511, 3]]
    assert np.array_equal(dst.get(), wanted)
    for dtype in ("i4", "i8"):
        listed = Array(span.start + 3 * MIB, (5, 2), dtype, stream)
        listed.put([(9, 1), (-1, 2), (4, -1), (512, 3), (5, 600)])
        c.gather_scatter(dst, src, listed, synchronous=True)
        wanted[1] = X[9]
        assert np.array_equal(dst.get(), wanted), "a pair with -1 or out of range is skipped"
    for shape, strides, error, words in (
            ((5, 2, 1), None, ValueError, "3 dimensions"), ((5, 3), None, ValueError, r"\[5, 3\]; each is of two"),
            ((5, 2), (32, 8), TypeError, r"int64 with strides \(4, 1\)")):
        with pytest.raises(error, match=words):
            c.gather_scatter(dst, src, Array(listed.address, shape, "i8", stream, strides))
    with pytest.raises(ValueError, match="pairs: a list on a device takes no array with a negative stride"):
        c.gather_scatter(c.empty((600, 256), "u4")[::-1], src, listed)
    with pytest.raises(ValueError, match="pairs: a list on a device takes no src with a stride of 0"):
        c.gather_scatter(dst, Array(src.address, X.shape, "u4", stream, (0, 4)), listed)


def test_within_one_array(c, span, stream):
    """Blocks move within one array if the list is on the host; it may be long."""
    pool = Array(span.start, (8000, 16), "u4", stream)
    values = np.arange(8000 * 16, dtype="u4").reshape(8000, 16)
    pool.put(values)
    pairs = np.random.default_rng(6).permutation(8000).reshape(-1, 2)
    c.gather_scatter(pool, pool, pairs)
    values[pairs[:, 1]] = values[pairs[:, 0]]
    assert np.array_equal(pool.get(), values)
    with pytest.raises(tma.OverlapError, match=r"pairs\[1\]\[0\]: 2, as pairs\[0\]\[1\]"):
        c.gather_scatter(pool, pool, [(1, 2), (2, 3)])
    listed = Array(span.start + 3 * MIB, (1, 2), "i4", stream)
    listed.put([(0, 1)])
    with pytest.raises(tma.OverlapError, match="pairs: .* a list on a device does not prove"):
        c.gather_scatter(pool, pool, listed)
    host = c.empty(values.shape, "u4")
    c.gather_scatter(host, pool, pairs)
    assert np.array_equal(host[pairs[:, 1]], values[pairs[:, 0]])
    c.gather_scatter(pool, np.zeros((1, 16), "u4"), [(0, 5), (0, 7999)])
    assert not pool.get()[[5, 7999]].any()


@pytest.mark.parametrize("memory", ["device", "shared", "private", "number"])
def test_conversions(c, span, stream, memory):
    """Converts between arrays on a device, and between device and host, with operands in any memory."""
    x = (X % 997).astype("f4")
    factors = np.arange(256, dtype="f4") % 5 - 1
    scale = factors
    if memory == "device":
        scale = Array(span.start + 3 * MIB, (256,), "f4", stream)
        scale.put(factors)
    elif memory == "shared":
        scale = c.empty(256)
        scale[...] = factors
    elif memory == "number":
        scale = factors = 3
    wanted = (x * factors + 0.5).astype("f2")
    src, dst = Array(span.start + 64, x.shape, "f4", stream), Array(span.start + MIB, x.shape, "f2", stream)
    turned = Array(span.start + 2 * MIB, (256, 512), "f8", stream)
    src.put(x)
    for source in (src, x):
        dst.put(np.zeros(x.shape))
        assert c.copy(source, out=dst, cast="saturate", scale=scale, bias=0.5) is dst
        assert np.array_equal(dst.get(), wanted)
    back = np.zeros(x.shape, "f2")
    assert np.array_equal(c.copy(src, out=back, dtype="f2", scale=scale, bias=0.5), wanted)
    c.transpose(dst, out=turned, dtype="f8")
    assert np.array_equal(turned.get(), wanted.T)
    plan = c.plan(src, out=dst, cast="saturate", scale=scale)
    before = c.stats()["requests_by_method"]
    plan(src, dst)
    method = {"number": "plan_run", "private": "transform"}.get(memory, "submit")
    assert c.stats()["requests_by_method"][method] > before.get(method, 0), "the plan's own, where the service has all"
    assert np.array_equal(dst.get(), (x * factors).astype("f2"))
    with c.batch() as b:
        b.copy(src, out=dst, cast="saturate", scale=scale, bias=0.5)
    assert np.array_equal(dst.get(), wanted)
    dst.put(np.zeros(x.shape))
    index = [3, 500, 9]
    c.scatter(dst, index, Array(src.address, (3, 256), "f4", stream), cast="saturate", scale=scale)
    assert np.array_equal(dst.get()[index], (x[:3] * factors).astype("f2")) and not dst.get()[4:9].any()
    c.gather(src, index, out=Array(dst.address, (3, 256), "f2", stream), cast="saturate", scale=scale, synchronous=True)
    assert np.array_equal(dst.get()[:3], (x[index] * factors).astype("f2"))
    c.synchronize()


@pytest.mark.parametrize("block", [(1, 128), (128, 128), None])
def test_scales(c, span, stream, block):
    """Scales of arrays on a device are computed there, for blocks that fit into a tile and for a whole array."""
    x = (X % 997).astype("f4") - 500
    extents = block or x.shape
    parts = x.reshape(512 // extents[0], extents[0], 256 // extents[1], extents[1])
    scale = np.abs(parts).max(axis=(1, 3)) / np.float32(65504)
    wanted = (parts * (np.float32(1) / scale)[:, None, :, None]).reshape(x.shape).astype("f2")
    src, dst = Array(span.start, x.shape, "f4", stream), Array(span.start + MIB, x.shape, "f2", stream)
    scales = Array(span.start + 2 * MIB, scale.shape, "f4", stream)
    src.put(x)
    dst.put(np.zeros(x.shape))
    out, made = c.quantize(src, block, out=dst, scale_out=scales)
    assert out is dst and made is scales
    assert np.array_equal(scales.get(), scale) and np.array_equal(dst.get(), wanted)
    plan = c.plan(src, out=dst, cast="saturate", amax=tma.Amax(extents, scale=scales))
    dst.put(np.zeros(x.shape))
    plan(src, dst)
    assert np.array_equal(dst.get(), wanted)
    c.synchronize()


def test_an_exact_cast_in_a_stream(c, span, stream):
    """The error is raised by a later call, and says how many elements were changed."""
    x = X.astype("f4")
    src, dst = Array(span.start, x.shape, "f4", stream), Array(span.start + 2 * MIB, x.shape, "u2", stream)
    src.put(x)
    wrong = np.count_nonzero(x > 65535)
    c.copy(src, out=dst, cast="exact")
    with pytest.raises(tma.OutOfRangeError, match=f"values of {wrong} elements of float32 are not values of uint16"):
        c.synchronize()
    assert np.array_equal(dst.get(), X.clip(0, 65535))
    with pytest.raises(tma.OutOfRangeError, match=f"values of {wrong} elements of float32 are not values of uint16"):
        c.copy(x, out=dst, cast="exact")
    assert np.array_equal(dst.get(), X.clip(0, 65535))
    c.synchronize()


def test_a_stream_orders(c, span):
    """Runs a chain of moves in one stream without waiting in between, and moves in two streams at once."""
    streams = [Stream(), Stream()]
    arrays = [[Array(span.start + (4 * s + k) * MIB // 2, (256, 256), "u4", stream) for k in range(3)]
              for s, stream in enumerate(streams)]
    for _ in range(share(20)):
        for a in arrays:
            a[0].put(X[:256])
        for _ in range(10):
            for a in arrays:
                c.transpose(a[0], out=a[1])
                c.copy(a[1], out=a[2])
                c.transpose(a[2], out=a[0])
        for a, stream in zip(arrays, streams):
            stream.wait_all()
            assert np.array_equal(a[0].get(), X[:256])
    c.synchronize()
    for stream in streams:
        stream.close()


def test_streams_and_timelines(c, span, stream):
    t = c.timeline()
    src, dst = Array(span.start, (1024,), "u4", stream), Array(span.start + MIB, (1024,), "u4", stream)
    src.put(np.arange(1024))
    dst.put(np.zeros(1024))
    assert t.wait(1, stream=stream.handle)
    c.copy(src, out=dst)
    t.signal(2, stream=stream.handle)
    time.sleep(0.05)
    assert t.value == 0
    t.signal(1)
    assert t.wait(2, scaled(10))
    assert np.array_equal(dst.get(), np.arange(1024))
    with pytest.raises(ValueError, match="ordered by its stream"):
        c.copy(src, out=dst, wait=t.point(1))


def test_host_memory_stays_until_a_stream_has_used_it(c, span, stream):
    """A caller that waits for a move to the host may be interrupted and free the destination, which then stays until
    the end."""
    t, src = c.timeline(), Array(span.start, (4096,), "u1", stream)
    src.put(np.full(4096, 7))
    keeper, x = c.empty(4096, "u1"), c.empty(4096, "u1")
    at = tma.Tensor(x).data
    assert t.wait(1, stream=stream.handle)
    request = tma._core.Request.transform(tma.Tensor(x), tma.Tensor(src), None, None, None, "constant", 0)
    c._core.enqueue(request, (stream.handle, 0))
    try:
        del request, x
        gc.collect()
        others = [c.empty(4096, "u1") for _ in range(40)]
        assert at not in {tma.Tensor(y).data for y in others}
    finally:
        t.signal(1)
    c.synchronize()
    assert not any(y.any() for y in (keeper, *others))
    others = [c.empty(4096, "u1") for _ in range(40)] + others
    assert at in {tma.Tensor(y).data for y in others}, "it is free now"


def test_failures_do_not_hang_the_stream(c, span, stream):
    """The service refuses a request after the call has returned."""
    src, dst = Array(span.start, (1024,), "u4", stream), Array(span.start + 512, (1024,), "u4", stream)
    other = Array(span.start + MIB, (1024,), "u4", stream)
    src.put(np.arange(1024))
    with pytest.raises(tma.OverlapError):
        c.copy(src, out=dst)
        c.synchronize()
    stream.wait_all()
    for _ in range(share(20)):
        try:
            c.copy(src, out=dst)
        except tma.OverlapError:
            pass
        stream.wait_all()
    try:
        c.synchronize()
    except tma.OverlapError as e:
        assert "earlier request" in str(e)
    c.copy(src, out=other)
    stream.wait_all()
    assert np.array_equal(other.get(), np.arange(1024))
    c.synchronize()


def test_memory_at_the_same_address(c, span, stream):
    src, dst = Array(span.start + 2 * MIB, (1024,), "u4", stream), Array(span.start, (1024,), "u4", stream)
    for i in range(1, share(50) + 2):
        src.put(np.full(1024, i))
        c.copy(src, out=dst, synchronous=True)
        assert (dst.get() == i).all()
        span.remap(1)
    assert len(c.regions()) <= 3


def test_segments_grow(c, span, stream):
    rows = Array(span.start + 2 * MIB - 2048, (3, 4096), "u1", stream, strides=(2 * MIB, 1))
    out = Span(1)
    dst = Array(out.start, (4096, 3), "u1", stream)
    for n in (4, 6, 8):
        span.grow(n - span.n)
        whole = Array(span.start, (n * 2 * MIB,), "u1", stream)
        whole.put(np.arange(n * 2 * MIB, dtype="u4").astype("u1") * 7 + n)
        values = whole.get()
        c.transpose(rows, out=dst, synchronous=True)
        at = [2 * MIB - 2048 + i * 2 * MIB for i in range(3)]
        assert np.array_equal(dst.get(), np.stack([values[a:a + 4096] for a in at]).T)
    with pytest.raises(tma.Error):
        c.copy(Array(span.start, (9 * 2 * MIB,), "u1", stream), out=Array(span.start, (9 * 2 * MIB,), "u1", stream))
    with pytest.raises(tma.Error, match="."):
        c.copy(Array(1 << 20, (16,), "u1", stream), out=Array(out.start, (16,), "u1", stream))
    region = c.register(Array(span.start, (100,), "u1", stream))
    assert region.kind == "cuda_fd" and region.address in (0, None)
    region.release()
    out.free()


def test_batches_and_plans(c, span, stream):
    arrays = [Array(span.start + k * MIB, X.shape, "u4", stream) for k in range(4)]
    turned = Array(span.start + 5 * MIB, X.T.shape, "u4", stream)
    arrays[0].put(X)
    with c.batch() as b:
        for k in (1, 2, 3):
            b.copy(arrays[0], out=arrays[k])
    stream.wait_all()
    assert all(np.array_equal(a.get(), X) for a in arrays)
    plan = c.plan(arrays[0], permute=(1, 0))
    plan(arrays[0], turned, synchronous=True)
    assert np.array_equal(turned.get(), X.T)
    with pytest.raises(ValueError, match="the plan was made"):
        plan(turned, arrays[0])


def test_threads(c, span):
    errors = []

    def work(i):
        try:
            softgpu.enter()
            stream = Stream()
            src = Array(span.start + i * MIB, (128, 128), "u4", stream)
            dst = Array(span.start + i * MIB + MIB // 2, (128, 128), "u4", stream)
            for k in range(share(100)):
                src.put(X[:128, :128] + k)
                c.transpose(src, out=dst)
                assert np.array_equal(dst.get(), (X[:128, :128] + k).T)
            stream.close()
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


@pytest.mark.parametrize("trust", ["on", "off"])
def test_killed_with_work_in_streams(span, stream, trust):
    daemon = Tmad("--trust-own-uid=" + trust, engine="cuda")
    try:
        with tma.connect(daemon.path, reconnect=20, direct=False) as c:
            src, dst = Array(span.start, (4096,), "u4", stream), Array(span.start + MIB, (4096,), "u4", stream)
            for i in range(share(20)):
                src.put(np.full(4096, i + 1))
                dst.put(np.zeros(4096))
                t = c.timeline()
                t.wait(1, stream=stream.handle)
                c.copy(src, out=dst)
                daemon.kill()
                t.signal(1)
                stream.wait_all()
                daemon.start()
                try:
                    c.synchronize()
                    c.copy(src, out=dst, synchronous=True)
                except tma.DisconnectedError:
                    c.copy(src, out=dst, synchronous=True)
                assert (dst.get() == i + 1).all()
    finally:
        daemon.stop()


def test_closing_with_work_in_streams(gpus, span, stream):
    for _ in range(share(20)):
        c = tma.connect(gpus.path, direct=False)
        src, dst = Array(span.start, (4096,), "u4", stream), Array(span.start + MIB, (4096,), "u4", stream)
        for _ in range(10):
            c.copy(src, out=dst)
        if _ % 2:
            c.close()
        del c
        stream.wait_all()


def test_several_devices():
    with Tmad(engine="cuda", env={"SOFTGPU_DEVICES": "3"}) as daemon, tma.connect(daemon.path, direct=False) as client:
        uuids = [device["uuid"] for device in client.info()["devices"]]
        arrays = [client.empty(X.shape, "u4", device=device) for device in (None, 2, uuids[1])]
        assert [region["device"] for region in client.regions()] == [uuids[0], uuids[2], uuids[1]]
        arrays[0][...] = X
        for src, dst in zip(arrays, [*arrays[1:], client.zeros(X.shape, "u4", device=0)]):
            assert client.copy(src, out=dst) is dst
        assert (client.transpose(arrays[2]) == X.T).all()
        with pytest.raises(tma.NotFoundError, match="no device 3"):
            client.empty(4, device=3)


def test_default_streams_of_two_devices():
    """Work in the default stream of one device holds up the arrays of that device, and of no other."""
    with (
        Tmad(engine="cuda", env={"SOFTGPU_DEVICES": "2"}) as daemon,
        tma.connect(daemon.path, direct=False) as first,
        tma.connect(daemon.path, direct=False) as second,
    ):
        spans = [Span(2, device=device) for device in (0, 1)]
        timeline = second.timeline()
        arrays = []
        for device, span in enumerate(spans):
            softgpu.enter(device)
            src, dst = Array(span.start, X.shape, "u4"), Array(span.start + 2 * MIB, X.T.shape, "u4")
            src.put(X + device)
            dst.put(np.zeros(X.T.shape, "u4"))
            arrays.append((src, dst))
        softgpu.enter(1)
        assert timeline.wait(1, stream=1)
        for thread_is_on in (0, 1):
            softgpu.enter(thread_is_on)
            for client, (src, dst) in ((second, arrays[1]), (first, arrays[0])):
                client.transpose(src, out=dst)
        softgpu.enter(0)
        assert np.array_equal(arrays[0][1].get(), X.T), "its stream has nothing to wait for"
        time.sleep(0.05)
        softgpu.enter(1)
        aside = Stream()
        assert not Array(spans[1].start + 2 * MIB, X.T.shape, "u4", aside).get().any(), "its stream has"
        aside.close()
        timeline.signal(1)
        assert np.array_equal(arrays[1][1].get(), X.T + 1)
        first.synchronize()
        second.synchronize()
        for device, span in enumerate(spans):
            softgpu.enter(device)
            span.free()
        softgpu.enter(0)

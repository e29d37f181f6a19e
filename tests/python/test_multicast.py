# SPDX-License-Identifier: Apache-2.0
"""Tests multicast, which makes several results of one move, in any kinds of memory."""
import asyncio

import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
import tmaclient.aio
import softgpu
from softgpu import MIB, Array, Span, Stream
from tmad import Tmad, share

X = np.arange(96 * 70, dtype="f4").reshape(96, 70)


def shared(c, values):
    array = c.empty(values.shape, values.dtype)
    array[...] = values
    return array


def outs_of(c, shape, dtype="f4"):
    """Returns shared and private arrays for results, in C order and in other layouts."""
    wide = c.empty((shape[0], shape[1] + 5), dtype)
    return [c.empty(shape, dtype), np.zeros(shape, dtype), np.zeros(shape[::-1], dtype).T, wide[:, 2:-3],
            c.empty(shape, dtype)[::-1]]


def test_of_every_kind(c):
    for source in (X, shared(c, X)):
        outs = outs_of(c, (70, 96))
        got = c.multicast(source, outs, permute=(1, 0))
        assert all(a is b for a, b in zip(got, outs, strict=True))
        assert all((out == X.T).all() for out in outs)


def test_shared_arrays_in_one_request(c):
    source, outs = shared(c, X), [c.empty(X.T.shape, "f4") for _ in range(4)]
    before = c.stats()["requests"]
    c.multicast(source, outs, permute=(1, 0))
    assert c.stats()["requests"] == before + 2, "with stats itself"
    assert c.last_result()["bytes"] == 4 * 2 * X.nbytes
    assert all((out == X.T).all() for out in outs)


def test_pads_and_casts(c):
    outs = [c.empty((98, 70), "f8"), np.zeros((98, 70))]
    c.multicast(X, outs, pad=[(1, 1), (0, 0)], mode="edge", cast="saturate", scale=0.5)
    assert all((out == np.pad(X * 0.5, [(1, 1), (0, 0)], mode="edge")).all() for out in outs)


def test_one(c):
    out = c.empty(X.shape, "f4")
    assert c.multicast(X, [out])[0] is out
    assert (out == X).all()


def test_at_random(c, seed):
    rng = np.random.default_rng(seed)
    for _ in range(share(100)):
        shape = tuple(int(n) for n in rng.integers(1, 40, 2))
        source = rng.integers(0, 100, shape).astype("u1")
        if rng.integers(0, 2):
            source = shared(c, source)
        every = outs_of(c, shape[::-1], "i4")
        outs = [every[i] for i in rng.permutation(len(every))[:int(rng.integers(1, 6))]]
        c.multicast(source, outs, permute=(1, 0), cast="exact")
        assert all((out == source.T).all() for out in outs)


def test_points(c):
    source, outs = shared(c, X), [c.empty(X.shape, "f4"), np.zeros(X.shape, "f4")]
    timeline = c.timeline()
    timeline.signal(1)
    for some in (outs[:1] + [c.empty(X.shape, "f4")], outs):
        value = timeline.value
        c.multicast(source, some, wait=timeline.point(value), signal=timeline.point(value + 1))
        assert timeline.value == value + 1


def test_refused(c):
    a, b = c.empty(X.shape, "f4"), c.empty(X.shape, "f4")
    readonly = np.zeros(X.shape, "f4")
    readonly.setflags(write=False)
    for error, words, outs in ((ValueError, "outs: it is empty", []), (TypeError, "outs", 3),
                               (ValueError, "outs.1.: float32 .3.", [a, np.zeros(3, "f4")]),
                               (ValueError, "outs.1.: float64", [a, np.zeros(X.shape)]),
                               (ValueError, "outs.1.: the array is read-only", [a, readonly]),
                               (TypeError, "outs.1.", [a, None]),
                               (tma.OverlapError, "further_dst.1.", [a, b, a])):
        with pytest.raises(error, match=words):
            c.multicast(X, outs) if outs != [a, b, a] else c.multicast(shared(c, X), outs)
    with pytest.raises(TypeError, match="amax"):
        c.multicast(X, [a], amax=tma.Amax((1,), a))
    with pytest.raises(tma.OutOfRangeError):
        c.multicast(X, [c.empty(X.shape, "u1"), c.empty(X.shape, "u1")], cast="exact")


def test_in_a_loop(tmad):
    async def run():
        async with tma.aio.connect(tmad.path) as c:
            source = await asyncio.to_thread(np.array, X)
            outs = [await c.empty(X.T.shape, "f4") for _ in range(2)]
            for every in (outs, [*outs, np.zeros(X.T.shape, "f4")]):
                for out in every:
                    out[...] = 0
                got = await c.multicast(source, every, permute=(1, 0))
                assert all(a is b and (b == X.T).all() for a, b in zip(got, every, strict=True))
            shared_source = await c.empty(X.shape, "f4")
            shared_source[...] = X + 1
            await c.multicast(shared_source, outs, permute=(1, 0))
            assert all((out == (X + 1).T).all() for out in outs)

    asyncio.run(run())


@pytest.mark.skipif(not softgpu.IS_THERE, reason=softgpu.NEEDED)
def test_on_devices():
    """Results are on two devices and on the host, each in its own stream."""
    softgpu.driver()
    with Tmad("--device-chunk-bytes=4096", engine="cuda", env={"SOFTGPU_DEVICES": "2"}) as daemon:
        client = tma.connect(daemon.path, direct=False)
        made = []
        for device in (0, 1):
            softgpu.enter(device)
            made.append((Span(2, device=device), Stream()))
        softgpu.enter()
        arrays = [Array(span.start + at, X.T.shape, "f4", stream) for span, stream in made for at in (0, MIB)]
        source = Array(made[0][0].start + 2 * MIB, X.shape, "f4", made[0][1])
        host = [client.empty(X.T.shape, "f4"), np.zeros(X.T.shape, "f4")]
        for i, outs in enumerate((arrays[:2], arrays, [*arrays, host[0]], [host[1], *arrays])):
            source.put(X + i)
            for array in arrays:
                array.put(np.zeros(X.T.shape))
            client.multicast(source, outs, permute=(1, 0))
            client.synchronize()
            for out in outs:
                assert np.array_equal(out if isinstance(out, np.ndarray) else out.get(), (X + i).T), i
        assert [a.get().any() for a in arrays] == [True] * 4
        client.multicast(X, arrays, permute=(1, 0))  # the service does not reach X
        assert all(np.array_equal(array.get(), X.T) for array in arrays)
        client.close()
        for span, stream in made:
            span.free()
            stream.close()

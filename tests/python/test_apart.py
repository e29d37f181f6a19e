# SPDX-License-Identifier: Apache-2.0
"""Tests that destinations which share bytes are refused, in any memory: by the service if it sees the memory, and by
the package if the memory is staged."""
import asyncio

import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
import tmaclient.aio
from numpy.lib.stride_tricks import as_strided


def strided(x, shape, strides):
    """Makes a view from the first element on; strides are in elements."""
    return as_strided(x.reshape(-1), shape, [x.itemsize * s for s in strides])


class Memory:
    """Makes arrays in shared memory (kind s) or in this process's memory (kind p); several kinds are used in turn."""

    def __init__(self, c, kinds):
        self._c, self._kinds, self.made = c, kinds, []

    def __call__(self, *shape, dtype="f4"):
        kind = self._kinds[len(self.made) % len(self._kinds)]
        x = self._c.empty(shape, dtype) if kind == "s" else np.empty(shape, dtype)
        x[...] = np.arange(x.size).reshape(shape) % 100
        self.made.append((x, x.copy()))
        return x


def _stride_0(c, m):
    return c.copy(m(4, 5), out=strided(m(5), (4, 5), (0, 1)))


def _rows_that_overlap(c, m):
    return c.transpose(m(5, 4), out=strided(m(20), (4, 5), (3, 1)))


def _cast_into_stride_0(c, m):
    return c.copy(m(4, 5), out=strided(m(5, dtype="f2"), (4, 5), (0, 1)), dtype="float16")


def _padded_into_rows_that_overlap(c, m):
    return c.pad(m(2, 3), 1, out=strided(m(20), (4, 5), (3, 1)))


def _multicast_twice(c, m):
    x, a, b = m(4, 5), m(4, 5), m(4, 5)
    return c.multicast(x, [a, b, a])


def _multicast_shifted(c, m):
    x, a = m(4, 5), m(30)
    return c.multicast(x, [a[:20].reshape(4, 5), a[10:].reshape(4, 5)])


def _scale_within_out(c, m):
    x, out = m(64, 32), m(64 * 32, dtype="u1")
    return c.quantize(x, 32, out=out.reshape(64, 32).view(F8_TYPE), scale_out=out[:256].view("f4").reshape(64, 1))


def _scale_and_inverse_alike(c, m):
    x, scale, out = m(64, 32), m(64, 1), m(64, 32, dtype="u1")
    return c.quantize(x, 32, out=out.view(F8_TYPE), scale_out=scale, inverse_out=scale)


def _scale_of_stride_0(c, m):
    x, scale, out = m(64, 32), m(1, 1), m(64, 32, dtype="u1")
    return c.quantize(x, 32, out=out.view(F8_TYPE), scale_out=strided(scale, (64, 1), (0, 1)))


def _scatter_twice(c, m):
    return c.scatter(m(4, 5), [1, -3, 2], m(3, 5))


def _scatter_many_twice(c, m):
    index = np.arange(9000)
    index[7000] = 5
    return c.scatter(m(9001, 2), index, m(9000, 2))


def _scatter_twice_far_apart(c, m):
    return c.scatter(m(1000, 2), [999, 5, -1], m(3, 2))


def _scatter_into_stride_0(c, m):
    return c.scatter(strided(m(4), (4, 5), (1, 0)), [1, 2], m(2, 5))


def _scatter_into_rows_that_overlap(c, m):
    return c.scatter(strided(m(20), (4, 5), (3, 1)), [0, 1], m(2, 5))


def _gather_into_stride_0(c, m):
    return c.gather(m(4, 5), [1, 2], out=strided(m(5), (2, 5), (0, 1)))


def _gather_into_rows_that_overlap(c, m):
    return c.gather(m(4, 5), [1, 2], out=strided(m(20), (2, 5), (3, 1)))


def _one_layer_twice(c, m):
    a, b = m(4, 5), m(4, 5)
    return c.scatter([a, b, a], [1, 2], m(3, 2, 5))


def _layers_that_overlap(c, m):
    a = m(30)
    return c.gather([m(4, 5), m(4, 5)], [0, 1, 2, 3], out=[a[:20].reshape(4, 5), a[10:].reshape(4, 5)])


def _slices_that_overlap(c, m):
    x, flat = m(8), m(6)
    return c.reshard([(flat[:4], (0,)), (flat[2:], (4,))], [(x, (0,))])


def _slice_of_stride_0(c, m):
    return c.reshard([(strided(m(1), (4,), (0,)), (0,))], [(m(4), (0,))])


def _slice_within_its_source(c, m):
    x = m(8)
    return c.reshard([(x[:4], (4,))], [(x, (0,))])


try:
    import ml_dtypes

    F8_TYPE = np.dtype(ml_dtypes.float8_e4m3fn)
except ImportError:
    F8_TYPE = None

CALLS = [value for name, value in list(globals().items()) if name.startswith("_") and callable(value)
         and getattr(value, "__module__", "") == __name__]
SCALES = {_scale_within_out, _scale_and_inverse_alike, _scale_of_stride_0}


def skip_unless_it_has_types(call):
    if call in SCALES and F8_TYPE is None:
        pytest.skip("no ml_dtypes")


def assert_untouched(memory):
    for x, before in memory.made:
        assert np.array_equal(x, before)


@pytest.mark.parametrize("kinds", ["s", "p", "sp", "ps"])
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__[1:])
def test_refused(shared_client, call, kinds):
    skip_unless_it_has_types(call)
    memory = Memory(shared_client, kinds)
    with pytest.raises(tma.OverlapError):
        call(shared_client, memory)
    assert_untouched(memory)


@pytest.mark.parametrize("size", [1, 100])
def test_refused_by_asyncio(tmad, size):
    """The asyncio client refuses them, too, for small arrays, which pass through slots, and large ones, which pass
    through a thread."""
    async def run():
        async with tma.aio.connect(tmad.path) as c:
            for call in CALLS:
                if call in SCALES and F8_TYPE is None:
                    continue
                memory = Memory(c, "p")
                with pytest.raises(tma.OverlapError):
                    await call(c, memory)
                assert_untouched(memory)
            x, out = np.ones((size * 40, 100), "f4"), np.zeros(size * 120 + 100, "f4")
            with pytest.raises(tma.OverlapError, match="out: two elements share bytes"):
                await c.copy(x, out=strided(out, x.shape, (3, 1)))
            with pytest.raises(tma.OverlapError):
                async with c.batch() as b:
                    b.copy(x, out=(first := np.zeros_like(x)))
                    b.copy(x, out=strided(out, x.shape, (3, 1)))
            assert not out.any() and not first.any()

    asyncio.run(run())


def test_a_batch_is_refused_as_a_whole(c):
    x, first, second, out = np.ones((4, 5)), c.empty((4, 5), "f8"), np.zeros((4, 5)), np.zeros(5)
    with pytest.raises(tma.OverlapError, match="out: dimension 0 has stride 0, so its 4 elements overlap"), \
            c.batch() as b:
        b.copy(c.copy(x, out=c.empty(x.shape, x.dtype)), out=first)
        b.copy(x, out=second)
        b.copy(x, out=strided(out, (4, 5), (0, 1)))
    assert not first.any() and not second.any() and not out.any()


def test_words(c):
    x, a = np.zeros((4, 5)), np.zeros(30)
    one, other = a[:20].reshape(4, 5), a[10:].reshape(4, 5)
    with pytest.raises(tma.OverlapError, match=r"^outs\[0\]: it shares bytes with outs\[1\]"):
        c.multicast(x, [one, other])
    with pytest.raises(tma.OverlapError, match=r"^dst\[0\]: it shares bytes with dst\[1\]"):
        c.scatter([one, other], [0], np.zeros((2, 1, 5)))
    with pytest.raises(tma.OverlapError, match=r"^index\[2\]: 3, as index\[0\]: two blocks would be written to the same"):
        c.scatter(x, [3, 0, -1], x[:3])
    with pytest.raises(tma.OverlapError, match=r"^dst: two elements share bytes: it has shape \(4, 5\) and strides \(3, 1\)"):
        c.scatter(strided(a, (4, 5), (3, 1)), [0], x[:1])


def test_the_value_is_checked_before_anything_moves(c):
    x, out = np.ones((2000, 300), "u1"), np.zeros((2002, 302), "u1")
    with pytest.raises(tma.InvalidArgumentError, match="value: 300 is no value of uint8"):
        c.pad(x, 1, constant_values=300, out=out)
    assert not out.any()


@pytest.mark.parametrize("kinds", ["s", "p", "sp", "ps"])
def test_what_only_looks_like_it(shared_client, kinds):
    """Arguments that only look as if they shared bytes are accepted: interleaved views, empty arrays, adjacent
    destinations."""
    c, m = shared_client, Memory(shared_client, kinds)
    x, a = m(4, 5), m(4, 10)
    c.multicast(x, [a[:, ::2], a[:, 1::2]])
    assert np.array_equal(a, np.repeat(x, 2, 1))
    c.scatter([a[:, :5], a[:, 5:]], [3, 0], np.stack([x[:2], x[2:]]))
    assert np.array_equal(a[[3, 0]], np.hstack([x[:2], x[2:]]))
    c.scatter(strided(m(5), (4, 5), (0, 1)), [], x[:0])
    c.copy(np.empty((0, 4), "f4"), out=strided(m(4), (0, 4), (0, 1)))
    c.copy(x[:1], out=strided(m(5), (1, 5), (0, 1)))
    c.reshard([(a[:, ::2], (0, 0)), (a[:, 1::2], (0, 5))], [(x, (0, 0)), (x[::-1], (0, 5))])
    assert np.array_equal(a[:, ::2], x) and np.array_equal(a[:, 1::2], x[::-1])

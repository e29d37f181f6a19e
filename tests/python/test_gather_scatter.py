# SPDX-License-Identifier: Apache-2.0
"""Tests that blocks are gathered and scattered at once, by pairs, as NumPy does it."""
import asyncio

import pytest

np = pytest.importorskip("numpy")

import arrays
import tmaclient as tma
import tmaclient.aio
from test_numpy_random import check_into, make
from tmad import share

X = np.arange(6 * 4 * 5, dtype="f4").reshape(6, 4, 5)
PAIRS = [[3, 1], [0, 5], [3, -2]]


def moved(dst, src, pairs, axis=0, permute=None):
    """Returns the expected contents of dst after a call."""
    after, pairs = dst.copy(), np.asarray(pairs, "i8").reshape(-1, 2)
    blocks = src if permute is None else src.transpose(permute)
    arrays.raw(np.moveaxis(after, axis, 0))[pairs[:, 1]] = arrays.raw(np.moveaxis(blocks, axis, 0).copy())[pairs[:, 0]]
    return after


def given(rng, pairs):
    """Returns the pairs in one of the forms that callers may pass."""
    kind = rng.choice(["list", "tuples", "int16", "int32", "int64", "strided", "turned"])
    if kind == "list":
        return pairs.tolist()
    if kind == "tuples":
        return [tuple(pair) for pair in pairs]
    if kind == "strided":
        wide = np.zeros((2 * len(pairs), 3), "i4")
        wide[::2, ::2] = pairs
        return wide[::2, ::2]
    if kind == "int16" and len(pairs) and np.abs(pairs).max() > np.iinfo("i2").max:
        kind = "int32"  # the numbers do not fit into int16
    return pairs.T.copy().T if kind == "turned" else pairs.astype(kind)


def random_pairs(rng, n_dst, n_src, is_one_pool):
    """Returns pairs that name each block of dst at most once, and within one pool write no block that they read."""
    order = rng.permutation(n_dst)
    count = int(rng.integers(0, n_dst + 1))
    if is_one_pool:
        written, read = order[: count // 2], order[count // 2 :]
        pairs = np.stack([rng.choice(read, len(written)), written], 1)
    else:
        count = count if n_src else 0
        pairs = np.stack([rng.integers(0, max(n_src, 1), count), order[:count]], 1)
    negative = rng.random(pairs.shape) < 0.3
    return np.where(negative, pairs - np.array([n_src, n_dst]), pairs)


def random_case(rng, clients):
    client = clients[int(rng.integers(len(clients)))]
    dtype = arrays.dtypes()[int(rng.integers(len(arrays.dtypes())))]
    shape = arrays.random_shape(rng)
    if not shape or 0 in shape:
        return
    axis = int(rng.integers(len(shape)))
    is_one_pool = rng.random() < 0.3
    base, layout = make(rng, client, shape, dtype, False)
    dst = layout.view(base)
    if is_one_pool:
        pairs = random_pairs(rng, shape[axis], shape[axis], True)
        wanted = moved(dst, dst, pairs, axis)
        assert check_into(lambda out: client.gather_scatter(out, out, given(rng, pairs), axis=axis), base, layout,
                          arrays.raw(wanted)), f"{client._staging._limit} {dtype} {shape} {dst.strides} {axis} {pairs}"
        return
    n = int(rng.integers(1, 2 * shape[axis] + 1))
    permute = tuple(int(d) for d in rng.permutation(len(shape))) if rng.random() < 0.5 else None
    permuted = shape[:axis] + (n,) + shape[axis + 1:]
    source = permuted if permute is None else tuple(permuted[permute.index(d)] for d in range(len(shape)))
    src_base, src_layout = make(rng, client, source, dtype, True)
    src = src_layout.view(src_base)
    pairs = random_pairs(rng, shape[axis], n, False)
    what = f"{client._staging._limit} {dtype} {shape} {dst.strides} {src.strides} {axis} {permute} {pairs.tolist()}"
    wanted = moved(dst, src, pairs, axis, permute)
    axis -= len(shape) if rng.random() < 0.3 else 0
    assert check_into(lambda out: client.gather_scatter(out, src, given(rng, pairs), axis=axis, permute=permute), base,
                      layout, arrays.raw(wanted)), what


@pytest.mark.parametrize("i", range(max(1, share(4))))
def test_random(clients, seed, i):
    rng = np.random.default_rng([seed, 3, i])
    for k in range(300):
        try:
            random_case(rng, clients)
        except Exception as e:
            raise AssertionError(f"seed {seed}, test {i}, case {k}") from e


def memories(c):
    """Returns functions that copy an array into shared memory, and into that of this process."""
    return [lambda a: arrays.shared(c, a), lambda a: a.copy()]


def test_pairs_of_all_kinds(c):
    for make_dst in memories(c):
        for make_src in memories(c):
            for pairs in (PAIRS, np.array(PAIRS), np.array(PAIRS, "i4"), np.array(PAIRS, "i1").tolist(), tuple(PAIRS),
                          [np.array(pair) for pair in PAIRS], [iter(pair) for pair in PAIRS]):
                dst = make_dst(-X)
                assert c.gather_scatter(dst, make_src(X[:4]), pairs) is None
                assert np.array_equal(dst, moved(-X, X[:4], PAIRS))
            for nothing in ([], (), np.zeros((0, 2), "i4")):
                dst = make_dst(-X)
                c.gather_scatter(dst, make_src(X), nothing)
                c.gather_scatter(dst, make_src(X[:0]), nothing)
                assert np.array_equal(dst, -X)


def test_within_one_array(c):
    """Blocks move to other places within one cache, also if that takes several requests."""
    many = np.random.default_rng(1).permutation(30000).reshape(-1, 2)
    for make_pool in memories(c):
        pool = make_pool(np.arange(30000 * 3, dtype="i4").reshape(-1, 3))
        wanted = moved(pool, pool, many)
        c.gather_scatter(pool, pool, many)
        assert np.array_equal(pool, wanted)
        turned = make_pool(np.arange(8 * 5 * 5).reshape(5, 8, 5).transpose(0, 2, 1))
        wanted = moved(turned, turned, [(0, 1), (0, 2), (7, 3)], 2, (1, 0, 2))
        c.gather_scatter(turned, turned, [(0, 1), (0, -6), (7, 3)], axis=-1, permute=(1, 0, 2))
        assert np.array_equal(turned, wanted)
        backwards = pool[::-1, ::-1]
        wanted = moved(backwards, backwards, [(0, 2), (0, -1)])
        c.gather_scatter(backwards, backwards, [(0, 2), (0, -1)])
        assert np.array_equal(backwards, wanted)


def test_a_block_that_is_read_and_written(c):
    many = np.stack([np.arange(10000) % 7, 10000 + np.arange(10000)], 1)
    many[9000, 0] = 10005
    for make_pool in memories(c):
        pool = make_pool(np.arange(20000 * 3, dtype="i4").reshape(-1, 3))
        before = pool.copy()
        for pairs, words in (([(3, 1), (0, 2), (1, 5)], r"pairs\[2\]\[0\]: 1, as pairs\[0\]\[1\]"),
                             ([(3, 1), (-1, -1)], r"pairs\[1\]\[0\]: 19999, as pairs\[1\]\[1\]"),
                             (many, r"pairs\[9000\]\[0\]: 10005, as pairs\[5\]\[1\]")):
            with pytest.raises(tma.OverlapError, match=f"^{words}: dst and src are the same blocks"):
                c.gather_scatter(pool, pool, pairs)
            with pytest.raises(tma.OverlapError, match=f"^{words}: dst and src are the same blocks"):
                c.gather_scatter([pool], [pool], pairs)
        assert np.array_equal(pool, before)


def test_long_lists(c):
    pairs = np.stack([np.random.default_rng(2).integers(-9, 9, 20000), np.random.default_rng(3).permutation(20000)], 1)
    src = np.arange(9 * 4, dtype="u2").reshape(9, 4)
    for make_dst in memories(c):
        for make_src in memories(c):
            dst = make_dst(np.zeros((20000, 4), "u2"))
            c.gather_scatter(dst, make_src(src), pairs)
            assert np.array_equal(dst, moved(dst, src, pairs))
            dst[...] = 0
            c.gather_scatter(dst[::-1], make_src(src)[::-1], pairs.astype("i4"))
            assert np.array_equal(dst[::-1], moved(dst[::-1], src[::-1], pairs))


def test_sources_that_repeat(c):
    """All blocks of the source are the same memory."""
    for make_dst in memories(c):
        for one in (arrays.shared(c, X[2]), X[2]):
            dst = make_dst(-X)
            c.gather_scatter(dst, np.broadcast_to(one, (9, 4, 5)), [(8, 0), (-1, 3), (2, -1)])
            assert np.array_equal(dst[[0, 3, 5]], X[[2, 2, 2]]) and np.array_equal(dst[[1, 2, 4]], -X[[1, 2, 4]])


def test_conversions(c):
    factors = np.arange(1, 6, dtype="f4")
    for make_dst in memories(c):
        for make_src in memories(c):
            dst = make_dst(np.zeros((6, 5, 4), "f2"))
            c.gather_scatter(dst, make_src(X), PAIRS, permute=(0, 2, 1), cast="saturate", scale=factors[:, None], bias=-1)
            wanted = (X[[3, 0, 3]].transpose(0, 2, 1) * factors[:, None] - 1).astype("f2")
            assert np.array_equal(dst[[1, 5, 4]], wanted) and not dst[[0, 2, 3]].any()
            with pytest.raises(tma.OutOfRangeError, match="the values of 10 elements"):
                c.gather_scatter(make_dst(np.zeros((6, 4, 5), "u1")), make_src(X - 100), [(0, 1)], cast="exact", bias=90)
    with pytest.raises(TypeError, match="amax"):
        c.gather_scatter(np.zeros((6, 4, 5), "f2"), X, PAIRS, dtype="f2", amax=tma.Amax((1, 1), np.zeros((6, 4, 5), "f4")))


def test_layers(c):
    values = [X + 1000 * i for i in range(5)]
    for make_dst in memories(c):
        for make_src in memories(c):
            layers, sources = [make_dst(-v) for v in values], [make_src(v.transpose(0, 2, 1)) for v in values]
            for given_sources in (sources, make_src(np.stack(sources))):
                for layer, v in zip(layers, values):
                    layer[...] = -v
                c.gather_scatter(layers, given_sources, PAIRS, permute=(0, 2, 1))
                for layer, v in zip(layers, values):
                    assert np.array_equal(layer, moved(-v, v, PAIRS))


def test_layers_of_one_pool(c):
    values = np.stack([X + 1000 * i for i in range(5)])
    pairs = [(0, 1), (0, 3), (5, -2)]
    for one, other in (memories(c), memories(c)[::-1], memories(c)[:1] * 2, memories(c)[1:] * 2):
        layers = [(one if i % 2 else other)(v) for i, v in enumerate(values)]
        c.gather_scatter(layers, layers, pairs)
        assert all(np.array_equal(layer, moved(v, v, pairs)) for layer, v in zip(layers, values))
        stacked = one(values)
        for sources in (list(stacked), stacked):
            stacked[...] = values
            c.gather_scatter(list(stacked), sources, pairs)
            assert all(np.array_equal(layer, moved(v, v, pairs)) for layer, v in zip(stacked, values))
        many = [one(np.arange(9000 * 2).reshape(9000, 2) + i) for i in range(3)]
        wanted = [moved(m, m, np.arange(9000).reshape(-1, 2)) for m in many]
        c.gather_scatter(many, many, np.arange(9000).reshape(-1, 2))
        assert np.array_equal(many, wanted)


WRONG = [
    (tma.OutOfRangeError, r"^pairs\[1\]\[0\]: 6, but src has 6 blocks", lambda c: c.gather_scatter(-X, X, [(0, 0), (6, 1)])),
    (tma.OutOfRangeError, r"^pairs\[0\]\[1\]: -7, but dst has 6 blocks", lambda c: c.gather_scatter(-X, X[:1], [(0, -7)])),
    (tma.OutOfRangeError, r"^pairs\[0\]\[1\]: 6, but dst has 6", lambda c: c.gather_scatter(-X, X, np.array([[0, 6]], "u1"))),
    (tma.OutOfRangeError, r"^pairs: .* is beyond any of 6", lambda c: c.gather_scatter(-X, X[:4], [(1 << 70, 0)])),
    (tma.OverlapError, r"^pairs\[2\]\[1\]: 5, as pairs\[0\]\[1\]: two blocks",
     lambda c: c.gather_scatter(-X, X, [(0, 5), (1, 1), (2, -1)])),
    (ValueError, r"^pairs: 1 dimensions", lambda c: c.gather_scatter(-X, X, np.array([0, 1]))),
    (ValueError, r"^pairs: \[2, 3\]; each is of two", lambda c: c.gather_scatter(-X, X, np.zeros((2, 3), "i8"))),
    (ValueError, r"^pairs\[1\]: \(1, 2, 3\) is no pair", lambda c: c.gather_scatter(-X, X, [(0, 0), (1, 2, 3)])),
    (TypeError, r"^pairs\[0\]: 1 is no sequence", lambda c: c.gather_scatter(-X, X, [1, 2])),
    (TypeError, r"^pairs: 0.5 is no integer", lambda c: c.gather_scatter(-X, X, [(0, 0.5)])),
    (TypeError, r"elements of float64", lambda c: c.gather_scatter(-X, X, np.zeros((1, 2)))),
    (TypeError, r"^pairs", lambda c: c.gather_scatter(-X, X, 3)),
    (ValueError, r"^src: float32 \[6, 4, 4\] as permuted; the blocks of dst are like float32 \[6, 4, 5\]",
     lambda c: c.gather_scatter(-X, X[:, :, :4], PAIRS)),
    (ValueError, r"^src: float64", lambda c: c.gather_scatter(-X, X.astype("f8"), PAIRS)),
    (ValueError, r"^src: 2 dimensions", lambda c: c.gather_scatter(-X, X[0], PAIRS)),
    (ValueError, r"^dst: the array is read-only", lambda c: c.gather_scatter(np.broadcast_to(X, X.shape), X, PAIRS)),
    (IndexError, r"^axis: 3", lambda c: c.gather_scatter(-X, X, PAIRS, axis=3)),
    (ValueError, r"^permute", lambda c: c.gather_scatter(-X, X, PAIRS, permute=(0, 0, 1))),
    (ValueError, r"^src: 1 layer; dst has 2", lambda c: c.gather_scatter([-X, -X], [X], PAIRS)),
    (TypeError, r"^src: ", lambda c: c.gather_scatter(-X, [X], PAIRS)),
]


@pytest.mark.parametrize("i", range(len(WRONG)))
def test_wrong_arguments(shared_client, i):
    error, words, call = WRONG[i]
    with pytest.raises(error, match=words):
        call(shared_client)


def test_sides_that_overlap(c):
    """Staged sides that overlap are copied first. Shared ones are refused, unless both sides are the same blocks."""
    x = arrays.shared(c, np.arange(40.0).reshape(8, 5))
    with pytest.raises(tma.OverlapError):
        c.gather_scatter(x[1:], x[:-1], [(0, 5)])
    with pytest.raises(tma.OverlapError):
        c.gather_scatter(x, x[::-1], [(2, 5)])
    assert np.array_equal(x, np.arange(40.0).reshape(8, 5))
    c.gather_scatter(x, x[::-1], [(0, 5)])
    assert np.array_equal(x[5], x[7])


def test_what_is_staged_may_overlap(c):
    x = np.arange(40.0).reshape(8, 5)
    wanted = x.copy()
    wanted[1:][[1, 2, 3]] = x[:-1][[0, 1, 2]]
    c.gather_scatter(x[1:], x[:-1], [(0, 1), (1, 2), (2, 3)])
    assert np.array_equal(x, wanted)


def test_timelines(c):
    """A call waits for a point before all its requests, and signals one after all of them."""
    timeline = c.timeline()
    many = np.random.default_rng(4).permutation(20000).reshape(-1, 2)
    for i, make_pool in enumerate(memories(c), 1):
        pool = make_pool(np.arange(20000 * 2).reshape(-1, 2))
        wanted = moved(pool, pool, many)
        with pytest.raises(tma.WaitTimeoutError):
            c.gather_scatter(pool, pool, many, wait=timeline.point(100), wait_timeout=0.01)
        c.gather_scatter(pool, pool, many, signal=timeline.point(i))
        assert timeline.value == i and np.array_equal(pool, wanted)


def test_asyncio(tmad):
    async def run():
        async with tma.aio.connect(tmad.path) as c:
            shared = await c.empty(X.shape, "f4")
            for dst in (shared, np.empty_like(X)):
                dst[...] = -X
                assert await c.gather_scatter(dst, X, PAIRS) is None
                assert np.array_equal(dst, moved(-X, X, PAIRS))
                await c.gather_scatter(dst, dst, [(0, 2)], axis=1)
                assert np.array_equal(dst[:, 2], dst[:, 0])
                with pytest.raises(tma.OverlapError, match=r"pairs\[0\]\[0\]: 2, as pairs\[1\]\[1\]"):
                    await c.gather_scatter(dst, dst, [(2, 3), (0, 2)])
            many = np.random.default_rng(5).permutation(20000).reshape(-1, 2)
            large = await c.empty((20000, 2), "i8")
            for pool in (large, np.empty((20000, 2), "i8")):
                pool[...] = np.arange(40000).reshape(-1, 2)
                wanted = moved(pool, pool, many)
                await c.gather_scatter(pool, pool, many)
                assert np.array_equal(pool, wanted)
                await c.gather_scatter(pool, np.zeros((1, 2), "i8"), [(0, i) for i in range(5000)])
                assert not pool[:5000].any() and np.array_equal(pool[5000:], wanted[5000:])
            layers = [await c.empty(X.shape, "f4") for _ in range(3)]
            for layer in layers:
                layer[...] = X
            await c.gather_scatter(layers, layers, [(0, 1)])
            assert all(np.array_equal(layer, moved(X, X, [(0, 1)])) for layer in layers)

    asyncio.run(run())


def test_of_the_module():
    dst = -X
    tma.gather_scatter(dst, X, PAIRS)
    assert np.array_equal(dst, moved(-X, X, PAIRS))
    tma.gather_scatter(dst, dst, [(1, 0)], axis=2)
    assert np.array_equal(dst[:, :, 0], dst[:, :, 1])

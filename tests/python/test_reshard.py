# SPDX-License-Identifier: Apache-2.0
"""Tests reshard against NumPy, for arrays of any kind and in any memory."""
import asyncio

import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
from tmad import share


def whole_of(rng, shape, dtype="u2"):
    return rng.integers(0, 1 << 16, shape).astype(dtype)


def parts_of(whole, ranks, axis, make):
    """Returns the shards of a tensor, in arrays that make() makes."""
    made = []
    for part in np.array_split(whole, ranks, axis):
        array = make(part.shape, part.dtype)
        array[...] = part
        made.append(array)
    return made


def blank_of(whole, ranks, axis, make):
    return parts_of(np.zeros_like(whole), ranks, axis, make)


@pytest.fixture(params=["shared", "own", "both", "reversed"])
def make(request, c):
    """Returns a function that makes arrays: in shared or private memory, both in turn, or as views with negative
    strides."""
    made = [0]

    def array(shape, dtype):
        made[0] += 1
        if request.param == "own" or (request.param == "both" and made[0] % 2):
            return np.empty(shape, dtype)
        if request.param == "reversed":
            return c.empty(shape, dtype)[tuple(slice(None, None, -1) for _ in shape)]
        return c.empty(shape, dtype)

    return array


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize(("old", "new"), [(2, 4), (4, 8), (8, 1), (1, 8), (3, 5)])
def test_sizes(c, make, axis, old, new):
    rng = np.random.default_rng(1)
    whole = whole_of(rng, (24, 40, 16))
    sources = parts_of(whole, old, axis, make)
    destinations = blank_of(whole, new, axis, make)
    c.reshard(tma.shards(destinations, axis), tma.shards(sources, axis), shape=whole.shape)
    for got, wanted in zip(destinations, np.array_split(whole, new, axis), strict=True):
        assert np.array_equal(got, wanted)
    assert c.last_result()["bytes"] == 2 * whole.nbytes
    assert c.last_result()["pieces"] == (7 if (old, new) == (3, 5) else max(old, new))


def test_from_one_axis_to_another(c, make):
    rng = np.random.default_rng(2)
    whole = whole_of(rng, (32, 48), "f4")
    destinations = blank_of(whole, 4, 1, make)
    assert c.reshard(tma.shards(destinations, 1), tma.shards(parts_of(whole, 8, 0, make))) is None
    assert np.array_equal(np.concatenate(destinations, 1), whole)


def test_at_random(c, seed):
    """Slices of random tensors are moved, some of them twice, in shared memory and in this process's."""
    rng = np.random.default_rng(seed)

    def array(shape):
        return c.empty(shape, "u2") if rng.integers(0, 2) else np.empty(shape, "u2")

    for _ in range(share(200)):
        shape = tuple(int(n) for n in rng.integers(1, 12, int(rng.integers(0, 4))))
        whole = whole_of(rng, shape)
        tiles = [tuple(slice(0, n) for n in shape)]
        for d in range(len(shape)):
            at = int(rng.integers(0, shape[d] + 1))
            tiles = [(*t[:d], s, *t[d + 1:]) for t in tiles for s in (slice(0, at), slice(at, shape[d]))]
        boxes = []
        for _ in range(int(rng.integers(0, 4))):
            edges = [sorted(int(i) for i in rng.integers(0, n + 1, 2)) for n in shape]
            boxes.append(tuple(slice(*e) for e in edges))
        sources, destinations = [], []
        for box in tiles + boxes[:1]:
            made = array(whole[box].shape)
            made[...] = whole[box]
            sources.append(tma.Slice(made, [s.start for s in box]))
        for box in boxes:
            destinations.append((array(whole[box].shape), [s.start for s in box]))
        c.reshard(destinations, sources)
        for (got, _), box in zip(destinations, boxes, strict=True):
            assert np.array_equal(got, whole[box]), (seed, shape, box)


def test_shards():
    x = [np.empty((2, 3)), np.empty((2, 5)), np.empty((2, 1))]
    assert [s.start for s in tma.shards(x, axis=1)] == [(0, 0), (0, 3), (0, 8)]
    assert [s.start for s in tma.shards(x, axis=-1)] == [(0, 0), (0, 3), (0, 8)]
    assert [s.start for s in tma.shards(x)] == [(0, 0), (2, 0), (4, 0)]
    assert [s.array for s in tma.shards(iter(x))] == x
    assert tma.shards([]) == []
    assert tma.shards([b"abc", bytearray(2)])[1].start == (3,)
    with pytest.raises(IndexError, match="axis: 2 is no axis"):
        tma.shards(x, axis=2)


def test_errors(c):
    x, y = c.empty((4, 4)), c.empty((4, 4))
    whole = [(x, (0, 0))]
    for destinations, sources, kind, words in [
        ([y], whole, TypeError, r"destinations\[0\]: ndarray; a slice is a pair"),
        ([(y, (0,))], whole, ValueError, r"destinations\[0\]\[1\]: 1 numbers for an array of 2 dimensions"),
        ([(y, 0)], whole, TypeError, r"destinations\[0\]\[1\]: 0 is no sequence"),
        ([(y, (0, 0.5))], whole, TypeError, r"destinations\[0\]\[1\]: 0.5 is no integer"),
        ([("text", (0, 0))], whole, TypeError, r"destinations\[0\]\[0\]"),
        ([(y, (0, 0))], 7, TypeError, "sources: 7 is no sequence"),
        ([(b"ab", (0,))], [(b"ab", (0,))], ValueError, r"destinations\[0\]: the array is read-only"),
        ([(y, (1, 0))], whole, tma.OutOfRangeError, r"destinations\[0\]: no source has element \[4, 0\]"),
        ([(y, (-1, 0))], whole, tma.InvalidArgumentError, "starts at -1"),
        ([(y, (0, 0))], [(x.astype("f8"), (0, 0))], tma.InvalidArgumentError, r"sources\[0\].tensor.dtype"),
        ([(x, (0, 0))], whole, tma.OverlapError, r"destinations\[0\]: it shares bytes with sources\[0\]"),
        ([(y, (0, 0)), (y[:2], (0, 0))], whole, tma.OverlapError, r"shares bytes with destinations\[1\]"),
    ]:
        with pytest.raises(kind, match=words):
            c.reshard(destinations, sources)
    with pytest.raises(tma.OutOfRangeError, match="the global tensor has 3"):
        c.reshard([(y, (0, 0))], whole, shape=(4, 3))
    with pytest.raises(ValueError, match="shape: 1 entries for 2 dimensions"):
        c.reshard([(y, (0, 0))], whole, shape=(4,))
    with pytest.raises(TypeError, match="dtype: a reshard moves elements as they are"):
        c.reshard([(y, (0, 0))], whole, dtype="float16")
    with pytest.raises(TypeError, match="progress"):
        c.reshard([(y, (0, 0))], whole, progress=True)
    c.reshard([], [])
    c.reshard([], whole)


@pytest.mark.parametrize("is_shared", [True, False])
def test_points(c, is_shared):
    x = c.empty((8,), "u1")
    x[...] = np.arange(8)
    y = c.empty((8,), "u1") if is_shared else np.empty(8, "u1")
    timeline = c.timeline()
    with pytest.raises(tma.WaitTimeoutError):
        c.reshard([(y, (0,))], [(x, (0,))], wait=timeline.point(1), signal=timeline.point(3), wait_timeout=0.02)
    assert timeline.value == 0
    timeline.signal(1)
    c.reshard([(y, (0,))], [(x, (0,))], wait=timeline.point(1), signal=timeline.point(2), priority="urgent")
    assert timeline.value == 2
    assert y.tolist() == x.tolist()


def test_asyncio(tmad):
    async def run():
        async with tma.aio.connect(tmad.path) as c:
            rng = np.random.default_rng(3)
            whole = whole_of(rng, (24, 16))
            for is_shared in (True, False):
                async def make(part, is_shared=is_shared):
                    array = await c.empty(part.shape, part.dtype) if is_shared else np.empty(part.shape, part.dtype)
                    array[...] = part
                    return array

                old = [await make(p) for p in np.split(whole, 2)]
                new = [await make(np.zeros_like(p)) for p in np.split(whole, 4, 1)]
                timeline = await c.timeline()
                pending = asyncio.gather(*(
                    c.reshard(tma.shards(new, 1), tma.shards(old), wait=timeline.point(1)) for _ in range(3)))
                await asyncio.sleep(0)
                timeline.signal(1)
                await pending
                assert np.array_equal(np.concatenate(new, 1), whole)
                await c.reshard(tma.shards(new, 1), tma.shards(old), signal=timeline.point(2))
                assert timeline.value == 2
                with pytest.raises(tma.OutOfRangeError):
                    await c.reshard(tma.shards(new, 1), tma.shards(old[:1]))

    asyncio.run(run())


def test_torch(tmad):
    torch = pytest.importorskip("torch")
    import tmaclient.torch as operators

    with tma.connect(tmad.path) as client:
        operators.use(client)
        try:
            whole = torch.arange(24 * 16, dtype=torch.bfloat16).reshape(24, 16)
            old, new = list(whole.split(12)), [torch.zeros(24, 4, dtype=torch.bfloat16) for _ in range(4)]
            torch.ops.tma.reshard(new, old, [0, 0, 0, 4, 0, 8, 0, 12], [0, 0, 12, 0])
            assert torch.equal(torch.cat(new, 1), whole)
            client.reshard(tma.shards(new, 1), tma.shards(old))
            torch.library.opcheck(torch.ops.tma.reshard.default, (new, old, [0, 0, 0, 4, 0, 8, 0, 12], [0, 0, 12, 0]),
                                  test_utils=("test_schema", "test_faketensor"))
            with pytest.raises(ValueError, match="source_starts: 3 numbers for tensors of 4 dimensions together"):
                torch.ops.tma.reshard(new, old, [0] * 8, [0, 0, 12])
        finally:
            operators.use(None)



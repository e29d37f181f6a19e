# SPDX-License-Identifier: Apache-2.0
"""Tests gathers and scatters of layers, which are lists of arrays in any memory, against NumPy's stack of them."""
import asyncio

import pytest

np = pytest.importorskip("numpy")

import arrays
import tmaclient as tma
from tmaclient._moves import Layers
from tmad import share

CASES = 150  # number of random cases in one test


def bases(rng, client, layout, n, dtype, memory):
    """Makes a base for each layer: in shared memory, in this process's memory, in both by turns, or all in one
    array."""
    shape = layout.base_shape()
    if memory == "one":
        whole = client.empty((n, *shape), dtype)
        made = list(whole)
    else:
        is_shared = [memory == "shared" or (memory == "mixed" and rng.random() < 0.5) for _ in range(n)]
        made = [client.empty(shape, dtype) if shared else np.empty(shape, dtype) for shared in is_shared]
    for base in made:
        arrays.fill(rng, base)
    return made


def check_into(call, made, layout, wanted, what):
    """Checks that a call changes the arrays in the bases to the wanted values, and nothing else."""
    after = [base.copy() for base in made]
    for base, one in zip(after, wanted, strict=True):
        arrays.raw(layout.view(base))[...] = one
    call([layout.view(base) for base in made])
    for i, (base, one) in enumerate(zip(made, after, strict=True)):
        assert base.tobytes() == one.tobytes(), f"{what}: layer {i}"


class Case:
    """A random case: layers of any layout, an axis, an index and a permutation."""

    def __init__(self, rng, clients):
        self.rng, self.client = rng, clients[int(rng.integers(len(clients)))]
        self.dtype = arrays.dtypes()[int(rng.integers(len(arrays.dtypes())))]
        self.n = int(rng.choice([1, 2, 3, 7]))
        while True:
            self.shape = arrays.random_shape(rng, 2000)
            if self.shape and 0 not in self.shape and len(self.shape) < 6:
                break
        self.axis = int(rng.integers(len(self.shape)))
        self.permute = tuple(int(d) for d in rng.permutation(len(self.shape))) if rng.random() < 0.5 else None
        self.is_scatter = rng.random() < 0.5
        extent = self.shape[self.axis]
        count = int(rng.integers(0, extent + 1 if self.is_scatter else 2 * extent + 1))
        self.index = rng.permutation(extent)[:count] if self.is_scatter else rng.integers(-extent, extent, count)
        self.given = self.index if rng.random() < 0.5 else [int(i) for i in self.index]
        self.layout, self.memory = arrays.Layout(rng, self.shape, not self.is_scatter), self.choose_memory()
        self.made = bases(rng, self.client, self.layout, self.n, self.dtype, self.memory)
        self.layers = [self.layout.view(base) for base in self.made]
        self.what = (f"{self.client._staging._limit} {self.n} {self.dtype} {self.memory} {self.shape} "
                     f"{self.layers[0].strides} {self.axis} {self.index} {self.permute} {self.is_scatter}")

    def choose_memory(self):
        return str(self.rng.choice(["shared", "shared", "own", "mixed", "one"]))

    def permuted(self, array):
        return array if self.permute is None else array.transpose(self.permute)

    def stacked(self, shape):
        """Returns a base for one array of all layers, and its random layout, in which the dimension of layers may be
        any."""
        layout = arrays.Layout(self.rng, (self.n, *shape), False)
        base = (self.client.empty if self.rng.random() < 0.6 else np.empty)(layout.base_shape(), self.dtype)
        arrays.fill(self.rng, base)
        return base, layout

    def gather(self):
        wanted = [arrays.raw(np.ascontiguousarray(self.permuted(np.take(a, self.index, self.axis)))) for a in self.layers]
        how, shape = self.rng.random(), wanted[0].shape
        arguments = {"axis": self.axis, "permute": self.permute}
        if how < 0.3:
            result = self.client.gather(self.layers, self.given, **arguments)
            assert result.shape == (self.n, *shape) and result.dtype == self.dtype, self.what
            assert result.tobytes() == np.stack(wanted).tobytes(), self.what
        elif how < 0.6:
            base, layout = self.stacked(shape)
            check_into(lambda out: self.client.gather(tuple(self.layers), self.given, out=out[0], **arguments), [base],
                       layout, [np.stack(wanted)], f"{self.what} into {layout.view(base).strides}")
        else:
            layout, memory = arrays.Layout(self.rng, shape, False), self.choose_memory()
            made = bases(self.rng, self.client, layout, self.n, self.dtype, memory)
            check_into(lambda out: self.client.gather(Layers.parse(self.layers, "src"), self.given, out=out, **arguments),
                       made, layout, wanted, f"{self.what} into {memory}")

    def scatter(self):
        part = self.shape[:self.axis] + (len(self.index),) + self.shape[self.axis + 1:]
        inverse = None if self.permute is None else [self.permute.index(d) for d in range(len(part))]
        shape = part if inverse is None else tuple(part[d] for d in inverse)
        if self.rng.random() < 0.5:
            base, layout = self.stacked(shape)
            src = layout.view(base)
        else:
            layout, memory = arrays.Layout(self.rng, shape, True), self.choose_memory()
            src = [layout.view(base) for base in bases(self.rng, self.client, layout, self.n, self.dtype, memory)]
        wanted = [arrays.raw(a.copy()) for a in self.layers]
        for one, s in zip(wanted, src, strict=True):
            one[(slice(None),) * self.axis + (self.index,)] = arrays.raw(np.ascontiguousarray(self.permuted(s)))
        check_into(lambda out: self.client.scatter(out, self.given, src, axis=self.axis, permute=self.permute), self.made,
                   self.layout, wanted, self.what)


@pytest.mark.parametrize("i", range(max(1, share(8))))
def test_random(clients, seed, i):
    rng = np.random.default_rng([seed, 9, i])
    for k in range(CASES):
        try:
            case = Case(rng, clients)
            case.scatter() if case.is_scatter else case.gather()
        except Exception as e:
            raise AssertionError(f"seed {seed}, test {i}, case {k}") from e


# ---- One request, and several ----------------------------------------------------------------------------


N, SHAPE = 5, (8, 3, 4)
INDEX = [6, 0, -1]


def numbers(n=N, dtype="f4", shape=SHAPE):
    """Returns n layers in this process's memory, whose elements are all different."""
    return list(np.arange(n * int(np.prod(shape)), dtype=dtype).reshape(n, *shape))


def taken(layers, axis=0):
    return np.stack([np.take(a, INDEX, axis) for a in layers])


def test_is_one_request(c):
    layers = [arrays.shared(c, a) for a in numbers()]
    out = c.gather(layers, INDEX)
    assert np.array_equal(out, taken(layers)) and c._core.is_shared(tma.Tensor(out)), "of the same memory as src"
    assert c.last_result()["moved"] == len(INDEX) and c.last_result()["bytes"] == 2 * out.nbytes
    c.scatter(layers, [1, 2, 3], out)
    assert c.last_result()["bytes"] == 2 * out.nbytes
    assert all(np.array_equal(a[1:4], o) for a, o in zip(layers, out))


def test_what_is_returned(c):
    layers, outs = numbers(), [np.empty((3, 3, 4), "f4") for _ in range(N)]
    assert c.gather(layers, INDEX, out=outs) is outs and np.array_equal(outs, taken(layers))
    assert c.gather([memoryview(a) for a in layers], INDEX).tolist() == taken(layers).tolist()
    assert c.gather(layers, []).shape == (N, 0, 3, 4) and c.gather(layers[:1], INDEX).shape == (1, 3, 3, 4)
    assert c.scatter(outs, [], np.empty((N, 0, 3, 4), "f4")) is None and np.array_equal(outs, taken(layers))


@pytest.mark.parametrize("is_shared", [True, False])
def test_more_than_a_request_has(c, is_shared):
    n, t = 2100, c.timeline()
    layers = numbers(n, "i4", (3, 2))
    if is_shared:
        whole = arrays.shared(c, np.stack(layers))
        layers = list(whole)
    t.signal(1)
    out = c.gather(layers, INDEX[1:], wait=t.point(1), signal=t.point(2))
    assert np.array_equal(out, np.stack([a[[0, -1]] for a in layers])) and t.value == 2
    beyond = int((out > 127).sum())
    with pytest.raises(tma.OutOfRangeError, match=f"the values of {beyond} elements of int32"):
        c.gather(layers, INDEX[1:], dtype="i1", cast="exact", signal=t.point(3))
    assert t.value == 2, "it did not go well"


@pytest.mark.parametrize("n", [1, 64, 1024])
def test_a_long_list(c, n):
    """A block list that does not fit into the request beside the list of layers is put into shared memory."""
    layers = [arrays.shared(c, a) for a in numbers(n, "i2", (4, 1))]
    for length in (1500, 5000, 7000):
        index = np.arange(length) % 4
        outs = [c.empty((length, 1), "i2") for _ in range(n)] if n < 1024 else c.empty((n, length, 1), "i2")
        c.gather(layers, index, out=outs)
        assert all(np.array_equal(o, a[index]) for o, a in zip(outs, layers)), length


@pytest.mark.parametrize("memory", ["shared", "own", "mixed"])
def test_conversions(c, memory):
    rng = np.random.default_rng(3)
    layers = [arrays.shared(c, a) if memory == "shared" or (memory == "mixed" and i % 2) else a
              for i, a in enumerate(numbers(dtype="f4"))]
    scale, bias = rng.integers(1, 4, (3, 1)).astype("f4"), rng.integers(-9, 9, 4).astype("f4")
    wanted = np.clip(taken(layers) * scale + bias, -(2**15), 2**15 - 1).astype("i2")
    assert np.array_equal(c.gather(layers, INDEX, dtype="i2", scale=scale, bias=bias), wanted)
    outs = [np.empty((3, 3, 4), "i2") for _ in range(N)]
    c.gather(layers, INDEX, out=outs, cast="saturate", scale=scale, bias=bias)
    assert np.array_equal(outs, wanted)
    c.scatter(layers, [0, 1, 2], wanted, cast="saturate", scale=0.5)
    assert all(np.array_equal(a[:3], w * np.float32(0.5)) for a, w in zip(layers, wanted))
    many = int((np.abs(taken(numbers())) > 127).sum())
    with pytest.raises(tma.OutOfRangeError, match=f"the values of {many} elements of float32"):
        c.gather(numbers(), INDEX, dtype="i1", cast="exact")


def test_progress(c):
    class Bar:
        n = 0

        def update(self, n):
            self.n += n

        def close(self):
            self.closed = True

    bar, layers = Bar(), numbers()
    out = c.gather(layers, INDEX, progress=bar)
    assert bar.closed and bar.n == 2 * out.nbytes


# ---- Memory that several have ----------------------------------------------------------------------------


def test_staged_layers_that_are_both_sides(c):
    """No layer is written before it is read."""
    layers = numbers()
    before = np.stack(layers)
    c.gather(layers, range(8), out=layers[::-1])
    assert np.array_equal(layers, before[::-1])
    c.scatter(layers, range(8), [a.transpose(0, 2, 1) for a in layers[1:] + layers[:1]], permute=(0, 2, 1))
    assert np.array_equal(layers, before[[3, 2, 1, 0, 4]])


@pytest.mark.parametrize("is_shared", [True, False])
def test_what_overlaps(c, is_shared):
    layers = [arrays.shared(c, a) if is_shared else a for a in numbers()]
    out = c.empty((3, 3, 4), "f4") if is_shared else np.empty((3, 3, 4), "f4")
    other = out.copy() if not is_shared else arrays.shared(c, out)
    with pytest.raises(tma.OverlapError):
        c.gather(layers[:3], INDEX, out=[out, other, out])
    with pytest.raises(tma.OverlapError):
        c.scatter([layers[0], layers[0]], INDEX, np.zeros((2, 3, 3, 4), "f4"))
    same = c.gather([layers[1]] * 3, INDEX)
    assert np.array_equal(same, np.stack([layers[1][INDEX]] * 3)), "read as often as they are asked for"


def test_repeated_sources(c):
    one = arrays.shared(c, numbers(1)[0][:3])
    pools = [c.empty(SHAPE, "f4") for _ in range(3)]
    c.scatter(pools, INDEX, np.broadcast_to(one, (3, *one.shape)))
    assert all(np.array_equal(p[INDEX], one) and p.sum() == one.sum() for p in pools)
    c.scatter([p[::-1] for p in pools], [0], arrays.shared(c, np.ones((3, 1, 3, 4), "f4"))[::-1])
    assert all((p[-1] == 1).all() for p in pools)


# ---- Layers ----------------------------------------------------------------------------------------------


def test_layers_that_were_adapted(c):
    pools = [arrays.shared(c, a) for a in numbers()]
    layers = Layers.parse(pools, "src")
    assert len(layers) == N and len(layers[1:3]) == 2 and layers[1:3].tensors == layers.tensors[1:3]
    assert np.array_equal(c.gather(layers[1:4], INDEX), taken(pools[1:4]))
    c.scatter(layers[::2], [0], c.gather(layers[::2], [5]))
    assert all(np.array_equal(p[0], p[5]) == (i % 2 == 0) for i, p in enumerate(pools))
    with pytest.raises(ValueError, match="there are 5, and a move has at least one"):
        layers[5:]


def test_requests_of_a_job(c):
    """The requests of jobs that move parts of layers do what one job would."""
    pools, out = [arrays.shared(c, a) for a in numbers()], c.empty((N, 3, 3, 4), "f4")
    layers, options = Layers.parse(pools, "src"), tma._jobs.Options()
    tickets = []
    for i in range(N):
        job = c._gather_job(layers[i:i + 1], INDEX, 0, None, tma.Tensor(out[i:i + 1]), options)
        tickets.append(c._core.submit(job.move.request(c._core), None))
    for ticket in tickets:
        c._core.wait(ticket)
    assert np.array_equal(out, taken(pools))


# ---- Errors ----------------------------------------------------------------------------------------------


def read_only(array):
    array.flags.writeable = False
    return array


A, LAYERS = np.zeros(SHAPE, "f4"), numbers()
ERRORS = [
    (ValueError, "src: it is empty; there is at least one layer", lambda c: c.gather([], [0])),
    (TypeError, "src[2]: <class 'int'> is no array", lambda c: c.gather([A, A, 3], [0])),
    (ValueError, "src[1]: float32 [8, 3, 5] with strides [15, 5, 1]; src[0] is float32 [8, 3, 4] with strides "
     "[12, 4, 1]: layers are laid out alike", lambda c: c.gather([A, np.zeros((8, 3, 5), "f4")], [0])),
    (ValueError, "src[2]: int32 [8, 3, 4]", lambda c: c.gather([A, A, A.astype("i4")], [0])),
    (ValueError, "src[1]: float32 [8, 3, 4] with strides [-12, 4, 1]", lambda c: c.gather([A, A[::-1]], [0])),
    (ValueError, "out[1]: the array is read-only",
     lambda c: c.gather([A, A], [0], out=[np.zeros((1, 3, 4), "f4"), read_only(np.zeros((1, 3, 4), "f4"))])),
    (ValueError, "out: 1 layer; the result has 2", lambda c: c.gather([A, A], [0], out=[np.zeros((1, 3, 4), "f4")])),
    (ValueError, "out[0]: float32 [2, 3, 4]; the result is float32 [1, 3, 4]",
     lambda c: c.gather([A, A], [0], out=[np.zeros((2, 3, 4), "f4")] * 2)),
    (ValueError, "out: float32 [1, 3, 4]; the result is float32 [2, 1, 3, 4]",
     lambda c: c.gather([A, A], [0], out=np.zeros((1, 3, 4), "f4"))),
    (TypeError, "out: <class 'list'> is no array", lambda c: c.gather(A, [0], out=[A])),
    (IndexError, "axis: 3 is no axis of an array of 3 dimensions", lambda c: c.gather([A, A], [0], axis=3)),
    (ValueError, "dst[1]: the array is read-only",
     lambda c: c.scatter([A, read_only(A.copy())], [0], np.zeros((2, 1, 3, 4), "f4"))),
    (ValueError, "src: [3, 1, 3, 4]; dst has 2 layers of 3 dimensions",
     lambda c: c.scatter(LAYERS[:2], [0], np.zeros((3, 1, 3, 4), "f4"))),
    (ValueError, "src: []; dst has 1 layer of 3", lambda c: c.scatter(LAYERS[:1], [0], np.float32(3))),
    (ValueError, "src: 1 layer; dst has 2", lambda c: c.scatter(LAYERS[:2], [0], [A[:1]])),
    (ValueError, "src[1]: float32 [2, 3, 4]", lambda c: c.scatter(LAYERS[:2], [0], [A[:1], A[:2]])),
    (ValueError, "src: float32 [2, 3, 4] as permuted; the blocks of dst that the index selects are float32 [1, 3, 4]",
     lambda c: c.scatter(LAYERS[:2], [0], [A[:2], A[:2]])),
    (TypeError, "src: <class 'list'> is no array", lambda c: c.scatter(A, [0], [A[:1]])),
    (IndexError, "index: entry 0 is 8, of 8 blocks", lambda c: c.gather([A, A], [8])),
]


@pytest.mark.parametrize("error, words, call", ERRORS, ids=[words[:24] for _, words, _ in ERRORS])
def test_errors(shared_client, error, words, call):
    with pytest.raises(error) as caught:
        call(shared_client)
    assert str(caught.value).startswith(words), caught.value


def test_what_the_core_refuses(c):
    t, u = tma.Tensor(c.empty(4, "u1")), tma.Tensor(c.empty((2, 4), "u1"))
    index = tma.Tensor(np.zeros(1, "i8"))

    def blocks(*layers):
        part = t.part(0, (), ())
        tma._core.Request.blocks(False, part, part, None, t, u, index, False, 4, 4, 1, 1, None, None, None, *layers)

    for error, words, layers in (
            (TypeError, "dst_layers: [] is no tuple", ([], (t,))),
            (TypeError, "src_layers[1]: it is no Tensor", (4, (t, 1))),
            (ValueError, "src_layers: -4 bytes from layer to layer", ((t, t), -4)),
            (ValueError, "layers: 1 of dst and 2 of src", ((t,), (t, t))),
            (ValueError, "layers: 0 of dst and 0 of src", ((), ())),
            (ValueError, "layers: -1 of dst and -1 of src", (4, 4))):
        with pytest.raises(error) as caught:
            blocks(*layers)
        assert str(caught.value).startswith(words), caught.value


@pytest.mark.parametrize("is_scatter", [False, True])
def test_again(c, is_scatter):
    """Request.again() makes a request for another list, other layers and other bytes."""
    layers = [[arrays.shared(c, a + 100 * k) for a in numbers()] for k in range(2)]
    parsed = [tma._jobs.Layers.parse(each, "layers") for each in layers]
    slots = [c.empty(4 * N * 3 * 12 + 4, "u1") for _ in range(2)]
    views = [slot[:-4].view("f4").reshape(N, 3, 3, 4) for slot in slots]
    for k, view in enumerate(views):
        view[...] = np.arange(view.size, dtype="f4").reshape(view.shape) + 1000 * k
    lists = [tma._moves.Index.parse(blocks, 8).tensor for blocks in ([4, 0, 7], [1, 2, 3])]
    options = tma._jobs.Options()
    if is_scatter:
        job = c._scatter_job(parsed[0], lists[0], views[0], 0, None, options)
    else:
        job = c._gather_job(parsed[0], lists[0], 0, None, views[0], options)
    request, tensors = job.move.request(c._core), parsed[1].tensors
    slot = tma._core.Tensor(slots[1])
    c._core.run(request.again(lists[1], slot, tensors))
    here, there = np.stack(layers[1])[:, 1:4], views[1]
    assert np.array_equal(here, there) and np.all(there >= 1000) == is_scatter
    c._core.run(request)
    assert np.array_equal(np.stack(layers[0])[:, [4, 0, 7]], views[0])
    c._core.run(request.again(lists[1], slot, tensors).again(lists[0], tma._core.Tensor(slots[0]), parsed[0].tensors))
    assert np.array_equal(np.stack(layers[0])[:, [4, 0, 7]], views[0])

    move = tma._core.Request.transform(tensors[0], tensors[1], None, None, None, "constant", 0)
    one = c._gather_job(layers[0][0], lists[0], 0, None, views[0][0], options).move.request(c._core)
    short, other = tma._moves.Index.parse([1], 8).tensor, tma._core.Tensor(layers[0][0][:, 1:])
    for like, arguments, error, words in (
        (request, (short, slot, tensors), ValueError, "index: a list of int64 that is sent, as long as"),
        (request, (lists[1], slot, tensors[1:]), ValueError, "layers: 4; the request has 5"),
        (request, (lists[1], slot, (*tensors[1:], other)), ValueError, r"layers\[4\]: it is not laid out as"),
        (request, (lists[1], slot, (*tensors[1:], 5)), ValueError, r"layers\[4\]: it is not laid out as"),
        (request, (lists[1], slot.part(0, (16,), (1,)), tensors), ValueError, "bytes: .* at least 720 bytes"),
        (request, (lists[1], slot.part(0, (362,), (2,)), tensors), ValueError, "bytes: .* at least 720 bytes"),
        (request, (lists[1], tma._core.Tensor(views[1]), tensors), ValueError, "bytes: .* at least 720 bytes"),
        (move, (lists[1], slot, tensors), TypeError, "again: the request has to be of blocks"),
        (one, (lists[1], slot, tensors), TypeError, "again: the request has to be of blocks"),
    ):
        with pytest.raises(error, match=words):
            like.again(*arguments)


# ---- A service that comes back, and a loop ---------------------------------------------------------------


def test_after_the_service_was_killed(own):
    with tma.connect(own.path, reconnect=20) as c:
        layers, outs = [arrays.shared(c, a) for a in numbers()], [c.empty((3, 3, 4), "f4") for _ in range(N)]
        for i in range(share(30)):
            for out in outs:
                out[...] = i
            if i % 3:
                c.gather(layers, INDEX, out=outs)
            else:
                c._core.ping()
                own.kill()
                own.start()
                job = c._gather_job(layers, INDEX, 0, None, outs, tma._jobs.Options())
                c._core.run(job.move.request(c._core))
            assert np.array_equal(outs, taken(layers)), i


@pytest.mark.parametrize("memory", ["shared", "own", "mixed"])
def test_in_a_loop(tmad, memory):
    async def main():
        async with tma.aio.connect(tmad.path) as c:
            async def made(a, i):
                if memory == "own" or (memory == "mixed" and i % 2):
                    return a
                result = await c.empty(a.shape, a.dtype)
                result[...] = a
                return result

            layers = [await made(a, i) for i, a in enumerate(numbers())]
            t, long = await c.timeline(), np.arange(3000) % 8
            results = await asyncio.gather(*(c.gather(layers, INDEX) for _ in range(20)))
            assert all(np.array_equal(r, taken(layers)) for r in results)
            assert np.array_equal(await c.gather(layers, long), np.stack([a[long] for a in layers]))
            many = layers * 300
            out = await c.gather(many, INDEX, signal=t.point(1))
            assert np.array_equal(out, taken(many)) and t.value == 1
            with pytest.raises(tma.OutOfRangeError, match=f"the values of {int((out > 127).sum())} elements"):
                await c.gather(many, INDEX, dtype="i1", cast="exact", signal=t.point(2))
            assert t.value == 1
            await c.scatter(layers, [1, 2, 3], out[:N])
            assert all(np.array_equal(a[1:4], o) for a, o in zip(layers, out))
            with pytest.raises(ValueError, match=r"src\[1\]: "):
                await c.gather([A, A[1:]], [0])

    asyncio.run(main())

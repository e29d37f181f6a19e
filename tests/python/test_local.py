# SPDX-License-Identifier: Apache-2.0
"""Tests moves in this process, without a service: the functions of the module, and clients of "local:"."""
import asyncio
import os
import signal
import threading
import time

import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
import tmaclient.aio
from test_numpy_random import blocks_case, transform_case
from tmad import Tmad, scaled, share


def test_no_service(monkeypatch):
    """The functions work without a service, and do not look for one."""
    monkeypatch.setenv("TMAD_SOCKET", "/nowhere")
    x = np.random.default_rng(1).random((200, 300))
    assert np.array_equal(tma.transpose(x), x.T)
    assert np.array_equal(tma.pad(x, 3, "edge"), np.pad(x, 3, "edge"))
    assert np.array_equal(tma.copy(x[::-1, ::2]), x[::-1, ::2])
    assert np.array_equal(tma.transform(x, permute=(1, 0), pad={0: (1, 2)}, value=7),
                          np.pad(x.T, ((1, 2), (0, 0)), constant_values=7))
    assert str(tma.explain(x, permute=(1, 0))).startswith("Plan of engine cpu: tile_transpose")
    outs = [np.empty((300, 200)) for _ in range(3)]
    tma.multicast(x, outs, permute=(1, 0))
    assert all(np.array_equal(out, x.T) for out in outs)


def test_its_client():
    client = tma.local()
    assert client is tma.local() and repr(client) == "<tmaclient.Client of local:>"
    with tma.connect("local:") as other:
        assert other is not client and other.info()["engine"] == "cpu"
        made = other.zeros((4, 4))
        other.copy(np.eye(4, dtype="float32"), out=made)
        assert np.array_equal(made, np.eye(4))
    client.close()
    assert tma.local() is not client


@pytest.fixture
def unnamed(monkeypatch, tmp_path):
    """Makes sure that nothing names a service. Returns the last of the usual paths, which is in a folder of the
    test."""
    if os.path.exists("/run/tmad/tmad.sock"):
        pytest.skip("a service runs at /run/tmad/tmad.sock")
    monkeypatch.delenv("TMAD_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "tmad").mkdir()
    return str(tmp_path / "tmad" / "tmad.sock")


async def connect_and_move(x, **options):
    async with tma.aio.connect(**options) as c:
        return repr(c), await c.transpose(x)


def test_connect_finds_a_service_or_none(unnamed):
    x = np.arange(12.0).reshape(3, 4)
    with tma.connect() as c:
        assert repr(c) == "<tmaclient.Client of local:>" and np.array_equal(c.transpose(x), x.T)
    of, moved = asyncio.run(connect_and_move(x))
    assert of == "<tmaclient.aio.AsyncClient of local:>" and np.array_equal(moved, x.T)
    with pytest.raises(tma.DisconnectedError, match="no tmad"):
        tma.connect(local=False)
    with pytest.raises(tma.DisconnectedError, match="no tmad"):
        asyncio.run(connect_and_move(x, local=False))
    tmad = Tmad(engine="cpu", start=False)
    tmad.path = tmad.command[tmad.command.index("--socket") + 1] = unnamed
    tmad.start()
    with tmad, tma.connect() as c:
        assert repr(c) == f"<tmaclient.Client of {unnamed}>" and np.array_equal(c.transpose(x), x.T)


def test_a_service_that_is_named_is_the_one(monkeypatch):
    with pytest.raises(tma.DisconnectedError, match="no tmad at /nowhere"):
        tma.connect("/nowhere")
    monkeypatch.setenv("TMAD_SOCKET", "/nowhere")
    with pytest.raises(tma.DisconnectedError, match="no tmad at /nowhere"):
        tma.connect()


def test_results_are_the_callers():
    """Results are ordinary arrays: no memory is shared, as a service would need."""
    x = np.ones((64, 64))
    results = [tma.transpose(x), tma.copy(x), tma.pad(x, 1), tma.local().transpose(x)]
    assert all(result.flags.owndata for result in results)


def test_random():
    rng = np.random.default_rng(20)
    clients = [tma.local()]
    for _ in range(share(2000)):
        for case in (transform_case, blocks_case):
            case(rng, clients)
        transpose_case(rng)


def transpose_case(rng):
    shape = tuple(int(n) for n in rng.integers(1, 12, int(rng.integers(0, 6))))
    base = rng.integers(0, 256, (*shape, 2), dtype=np.uint8)
    dtype = ("uint8", "<u2", "float32", "float64", "complex128", "bool")[int(rng.integers(6))]
    x = base[..., 0].astype(dtype)
    if rng.random() < 0.5 and x.ndim:
        x = x[tuple(slice(None, None, int(rng.choice([1, 2, -1]))) for _ in shape)]
    axes = tuple(int(d) for d in rng.permutation(x.ndim))
    given = None if rng.random() < 0.2 else tuple(a - x.ndim * int(rng.integers(2)) for a in axes)
    result, wanted = tma.transpose(x, given), np.transpose(x, given)
    assert result.dtype == wanted.dtype and result.flags.c_contiguous
    assert np.array_equal(result, wanted)


@pytest.mark.parametrize("axes, error", [((0, 0), ValueError), ((0,), ValueError), ((0, 2), IndexError),
                                         ((0, 1.5), TypeError), ("ab", TypeError), ((1, 2**70), IndexError)])
def test_axes_that_are_none(axes, error):
    with pytest.raises(error, match="axes"):
        tma.transpose(np.ones((2, 3)), axes)


def test_other_arrays():
    """Subclasses, other buffers, empty arrays and types that tmad does not have take the general way."""
    class Own(np.ndarray):
        pass

    x = np.arange(6.0).reshape(2, 3)
    assert np.array_equal(tma.transpose(x.view(Own)), x.T)
    assert np.array_equal(np.asarray(tma.transpose(memoryview(x))), x.T)
    assert tma.transpose(np.empty((0, 3))).shape == (3, 0)
    assert tma.transpose(np.float32(3) * np.ones(())).shape == ()
    with pytest.raises(TypeError):
        tma.transpose(np.array(["a", "b"]))
    with pytest.raises(TypeError):
        tma.transpose(x.astype(">f8"))
    with pytest.raises(tma.OverlapError):
        tma.copy(x, out=x)


def test_reshard_and_statistics():
    x, y = np.arange(12.0).reshape(3, 4), np.empty((3, 4))
    with tma.connect("local:") as c:
        before = c.stats()["requests_by_method"].get("reshard", 0)
        c.reshard([tma.Slice(y[:, :1], (0, 0)), tma.Slice(y[:, 1:], (0, 1))], [tma.Slice(x, (0, 0))])
        assert np.array_equal(x, y)
        assert c.stats()["requests_by_method"]["reshard"] == before + 1


def test_plans_and_batches():
    rng = np.random.default_rng(9)
    x, out = rng.random((40, 30)), np.empty((30, 40))
    plan = tma.local().plan(x, permute=(1, 0))
    assert np.array_equal(plan(x), x.T) and plan(x, out) is out and np.array_equal(out, x.T)
    scaled = tma.local().plan(x, dtype="float32", scale=rng.random(30))
    assert scaled(x).dtype == "float32"
    arrays = [rng.random((int(n), 7)) for n in rng.integers(1, 50, 200)]
    with tma.local().batch() as batch:
        results = [batch.transpose(a) for a in arrays]
    assert all(np.array_equal(r, a.T) for r, a in zip(results, arrays))


def test_lists():
    """A list too long for a message is read from a region, and layers are moved one after the other."""
    rng = np.random.default_rng(5)
    x = rng.random((40000, 3))
    index = rng.permutation(40000)
    assert np.array_equal(tma.gather(x, index), x[index])
    back = np.zeros_like(x)
    tma.scatter(back, index, x[index])
    assert np.array_equal(back, x)
    layers = [rng.random((64, 4, 8)).astype("float32") for _ in range(5)]
    assert np.array_equal(tma.gather(layers, [3, -1, 3]), [layer[[3, -1, 3]] for layer in layers])
    with pytest.raises(tma.OutOfRangeError):
        tma.gather(x, [40000])
    before = [layer.copy() for layer in layers]
    with pytest.raises(tma.OverlapError):
        tma.gather(layers[:2], range(64), out=layers[1:3])
    with pytest.raises(tma.OverlapError):
        tma.gather(layers[:2], range(64), out=[layers[3], layers[3]])
    assert all(np.array_equal(layer, was) for layer, was in zip(layers, before))


def test_asyncio():
    async def main():
        async with tma.aio.connect("local:") as c:
            x = np.random.default_rng(6).random((50, 60))
            assert all(np.array_equal(y, x.T) for y in await asyncio.gather(*(c.transpose(x) for _ in range(20))))
            layers = [x, x + 1, x + 2]
            assert np.array_equal(await c.gather(layers, [1, 0]), [layer[[1, 0]] for layer in layers])

    asyncio.run(main())


def test_waits_that_are_interrupted():
    """Ctrl-C ends a wait for a point: the request is canceled, nothing moves, and the client can still be used."""
    with tma.connect("local:") as c:
        x, out, t = np.arange(1000), np.zeros(1000, "i8"), c.timeline()
        for i in range(share(10)):
            start = time.monotonic()
            timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                c.copy(x, out=out, wait=t.point(i + 1))
            assert 0.05 < time.monotonic() - start < scaled(2)
            timer.join()
            t.signal(i + 1)
            c.ping()
            assert not out.any()
        c.copy(x, out=out, wait=t.point(1))
        assert np.array_equal(out, x)


def test_waits_that_time_out():
    with tma.connect("local:", timeout=0.1) as c:
        x, out, t = np.arange(1000), np.zeros(1000, "i8"), c.timeline()
        with pytest.raises(tma.NoReplyError, match="transform had not started after 100 ms; it is canceled"):
            c.copy(x, out=out, wait=t.point(1))
        t.signal(1)
        c.ping()
        assert not out.any()
        c.copy(x, out=out, wait=t.point(1))
        assert np.array_equal(out, x)


def test_waits_that_are_canceled():
    """The arrays of a canceled task are released, and nothing writes to them."""
    async def main():
        async with tma.aio.connect("local:") as c:
            x, out, t = np.arange(1000), np.zeros(1000, "i8"), await c.timeline()
            for i in range(share(20)):
                tasks = [asyncio.create_task(c.copy(x, out=out, wait=t.point(i + 1))),
                         asyncio.create_task(c.copy(np.arange(1 << 16), wait=t.point(i + 1)))]
                await asyncio.sleep(0.01)
                for task in tasks:
                    task.cancel()
                for result in await asyncio.gather(*tasks, return_exceptions=True):
                    assert isinstance(result, asyncio.CancelledError)
                t.signal(i + 1)
                assert not out.any()
            copied = asyncio.create_task(c.copy(x, out=out, wait=t.point(1000), signal=t.point(1001)))
            await asyncio.sleep(0.01)
            t.signal(1000)
            assert (await copied == x).all() and t.value == 1001

    asyncio.run(main())


def test_threads():
    """Each thread has its own client; large moves of several threads run concurrently."""
    wrong, clients = [], set()

    def move(seed):
        rng = np.random.default_rng(seed)
        clients.add(id(tma.local()))
        for _ in range(20):
            x = rng.random((int(rng.integers(1, 700)), int(rng.integers(1, 700))))
            if not (np.array_equal(tma.transpose(x), x.T) and np.array_equal(tma.copy(x), x)):
                wrong.append(x.shape)

    threads = [threading.Thread(target=move, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(clients) == 4


def test_children():
    """A child that is forked while other threads move arrays can move arrays, too."""
    x = np.random.default_rng(3).random((600, 500))
    done = threading.Event()

    def move():
        while not done.is_set():
            tma.transpose(x)

    tma.copy(x)
    thread = threading.Thread(target=move)
    thread.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                os._exit(0 if np.array_equal(tma.transpose(x), x.T) and np.array_equal(tma.copy(x), x) else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        done.set()
        thread.join()

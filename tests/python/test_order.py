# SPDX-License-Identifier: Apache-2.0
"""Tests timelines, batches and plans: the order of moves, and how many requests they take."""
import threading
import time

import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
from tmad import scaled, share


@pytest.fixture(params=["shared", "ordinary", "gather"])
def mover(request, c):
    """Returns the source, the destination and the call of a move that is one request, or several."""
    if request.param == "shared":
        src, dst = c.empty(1000, "u4"), c.empty(1000, "u4")
    else:
        src, dst = np.zeros(1000, "u4"), np.zeros(1000, "u4")
    if request.param == "gather":
        return src, dst, lambda client, **o: client.gather(src, np.arange(1000), out=dst, **o)
    return src, dst, lambda client, **o: client.copy(src, out=dst, **o)


def test_a_move_waits_and_signals(tmad, c, mover):
    src, dst, move = mover
    go, done = c.timeline(), c.timeline()
    for i in range(1, share(50) + 2):
        thread = threading.Thread(target=move, args=(c,), kwargs={"wait": go.point(i), "signal": done.point(i)})
        thread.start()
        time.sleep(0.02)
        assert not done.wait(i, 0)
        src[...] = i  # the move reads the values that are there when the point is reached
        go.signal(i)
        assert done.wait(i, scaled(10)) and (dst == i).all(), "all of it is there at the signal"
        thread.join()
    assert go.value == i and done.value == i and repr(done) == f"<tmaclient.Timeline at {i}>"


def test_waits_end(c, mover):
    _, dst, move = mover
    t, done = c.timeline(), c.timeline()
    start = time.monotonic()
    with pytest.raises(tma.WaitTimeoutError) as e:
        move(c, wait=t.point(1), wait_timeout=0.1, signal=done.point(1))
    assert 0.09 < time.monotonic() - start < scaled(2) and e.value.status == tma.Status.TIMEOUT
    assert done.value == 0 and not t.wait(1, 0.01) and t.wait(0)
    t.signal(1)
    move(c, wait=t.point(1), signal=done.point(1))
    assert done.value == 1


def test_a_deadline(c):
    t, done = c.timeline(), c.timeline()
    src, dst = c.empty(64, "u1"), c.empty(64, "u1")
    src[...], dst[...] = 7, 9
    with pytest.raises(tma.WaitTimeoutError, match="deadline_ms: the request had not begun 50 ms after it came"):
        c.copy(src, out=dst, wait=t.point(1), deadline=0.05, signal=done.point(1))
    assert (dst == 9).all() and done.value == 0
    c.copy(src, out=dst, deadline=3600, signal=done.point(1))
    assert (dst == 7).all() and done.value == 1
    assert c.gather(c.empty((4, 8), "u1"), np.array([], "i4"), deadline=1).shape == (0, 8)
    with pytest.raises(ValueError, match="deadline: -1"):
        c.copy(src, out=dst, deadline=-1)


def test_failures_signal_nothing(c):
    done, x = c.timeline(), c.empty(10, "u1")
    for call in (lambda: c.copy(x[:5], out=x[3:8], signal=done.point(1)),
                 lambda: c.pad(np.zeros(3, "u1"), 1, "constant", 999, signal=done.point(1))):
        with pytest.raises(tma.Error):
            call()
        assert done.value == 0
    for value, kind in ((-1, OverflowError), (1 << 64, OverflowError), ("x", TypeError), (1.5, TypeError)):
        with pytest.raises(kind):
            done.signal(value)
        with pytest.raises(kind):
            done.wait(value, 0)
    with pytest.raises((ValueError, TypeError)):
        done.wait(1, 1, stream=1)
    with done as same:
        assert same is done


def test_nothing_to_move_waits_and_signals_too(c):
    t = c.timeline()
    for i, x in enumerate((np.zeros((0, 3), "u1"), c.empty((0, 3), "u1")), 1):
        c.copy(x, signal=t.point(2 * i - 1))
        c.gather(x, [], signal=t.point(2 * i))
        assert t.value == 2 * i


def test_clients_order_each_other(tmad, c):
    """A point in the memory of one client may be signaled by another."""
    with tma.connect(tmad.path) as other:
        t = c.timeline()
        x, y, z = c.empty(1000, "u4"), c.empty(1000, "u4"), other.empty(1000, "u4")
        for i in range(1, share(100) + 2):
            x[...] = i
            c.copy(x, out=y, signal=t.point(i))
            assert t.wait(i, scaled(5))
            other.copy(y, out=z)
            assert (z == i).all()


# ---- Batches -------------------------------------------------------------------------------------------
def test_batches(c):
    x, shared = np.arange(24).reshape(2, 3, 4), c.empty((2, 3, 4), "i8")
    shared[...] = x
    plan = c.plan(x, permute=(2, 0, 1))
    with c.batch() as b:
        results = [(b.copy(s), x) for s in (x, shared)] + [(b.transpose(s), x.T) for s in (x, shared)]
        results += [(b.pad(s, 1, constant_values=5), np.pad(x, 1, constant_values=5)) for s in (x, shared)]
        results += [(b.transform(s, permute=(1, 0, 2), pad=1, mode="edge"), np.pad(x.transpose(1, 0, 2), 1, "edge"))
                    for s in (x, shared)]
        results.append((b.run_plan(plan, shared, c.empty((4, 2, 3), "i8")), x.transpose(2, 0, 1)))
        assert not any(np.array_equal(r, w) for r, w in results if c._core.is_shared(tma.Tensor(r)))
    for result, wanted in results:
        assert np.array_equal(result, wanted)
    with c.batch():
        pass
    many = [c.empty(4, "u4") for _ in range(10)]
    with c.batch() as b:
        outs = [b.copy(many[i % 10]) for i in range(1000)]
    assert len(outs) == 1000


def test_a_block_that_raises_runs_nothing(c):
    x, y = c.empty(10, "u1"), c.empty(10, "u1")
    x[...] = 1
    with pytest.raises(KeyError), c.batch() as b:
        b.copy(x, out=y)
        raise KeyError
    assert not y.any()
    with pytest.raises(ValueError), c.batch() as b:
        b.copy(x, out=y)
        b.copy(x, out=np.zeros(3))
    assert not y.any()


def test_one_bad_item_does_not_keep_the_others(c):
    x, y, done = c.empty(10, "u1"), c.empty(10, "u1"), c.timeline()
    x[...] = 1
    with pytest.raises(tma.OverlapError), c.batch(signal=done.point(1)) as b:
        b.copy(x[:5], out=x[3:8])
        b.copy(x, out=y)
    assert y.all() and done.value == 0


def test_a_batch_signals_when_all_is_done(c):
    t, go = c.timeline(), c.timeline()
    shared, ordinary = c.empty(10, "u1"), np.zeros(1 << 20, "u1")
    out, far = c.empty(10, "u1"), np.zeros(1 << 20, "u1")

    def work():
        with c.batch(wait=go.point(1), signal=t.point(1)) as b:
            b.copy(shared, out=out)
            b.copy(ordinary, out=far)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.05)
    assert not out.any()
    shared[...] = ordinary[...] = 7
    go.signal(1)
    assert t.wait(1, scaled(10)) and (out == 7).all() and (far == 7).all()
    thread.join()


# ---- Plans ---------------------------------------------------------------------------------------------
def test_plans(tmad, c):
    x = np.arange(12, dtype="f4").reshape(3, 4)
    shared = c.empty((3, 4), "f4")
    shared[...] = x
    plan = c.plan(x, permute=(1, 0), pad=1, mode="edge")
    wanted = np.pad(x.T, 1, "edge")
    for src in (x, shared):
        assert np.array_equal(plan(src), wanted)
        for out in (np.empty((6, 5), "f4"), c.empty((6, 5), "f4")):
            assert plan(src, out) is out and np.array_equal(out, wanted)
    for src, out in ((x.T, None), (x.astype("f8"), None), (x[:2], None), (x[:, ::-1], None),
                     (x, np.empty((6, 5), "f4", "F")), (x, np.empty((5, 6), "f4")), (shared, c.empty((6, 5), "i4"))):
        with pytest.raises(ValueError, match="the plan was made for <"):
            plan(src, out)
    for out in (bytes(120), np.broadcast_to(np.float32(0), (6, 5))):
        with pytest.raises(ValueError, match="read-only|plan was made"):
            plan(shared, out)
    readonly = c.empty((6, 5), "f4")
    readonly.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        plan(shared, readonly)
    with pytest.raises(TypeError):
        plan(5, readonly)
    with pytest.raises(TypeError):
        plan()
    assert repr(plan).startswith("<tmaclient.PreparedPlan: float32 (3, 4) -> float32 (6, 5), permute (1, 0), pad")
    assert plan.explain()["family"] and plan.src.shape == (3, 4)
    plan.release()
    plan.release()
    with pytest.raises(ValueError, match="released"):
        plan(shared, c.empty((6, 5), "f4"))
    with tma.connect(tmad.path) as other, pytest.raises(ValueError, match="another client"):
        mine = other.plan(x)
        with c.batch() as b:
            b.run_plan(mine, shared, c.empty((3, 4), "f4"))


def test_plans_of_nothing(c):
    for shape in ((0,), (3, 0, 2), ()):
        plan = c.plan(np.zeros(shape, "u1"))
        assert plan(np.zeros(shape, "u1")).shape == shape and plan(c.empty(shape, "u1")).shape == shape

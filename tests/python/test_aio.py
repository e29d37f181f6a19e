# SPDX-License-Identifier: Apache-2.0
"""Tests tmaclient.aio: many calls in flight, cancellation, back-pressure, and a tmad that stops, dies and restarts."""
import asyncio
import contextlib
import gc
import os
import random
import signal
import time
import warnings

import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
from tmad import ENGINE, NATIVE, scaled, share, wait_until

pytestmark = pytest.mark.skipif(ENGINE != "cpu", reason="what is tested is the loop, not the engine")


def run(main, path, seconds=60, **options):
    """Runs main(client) on a new loop. Fails if anything is left over, or asyncio complains."""
    complaints = []

    async def body():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with asyncio.timeout(scaled(seconds)):
            async with tma.aio.connect(path, **options) as c:
                await main(c)
                await settle(c)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others, others

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(body())
        gc.collect()
    assert not complaints, complaints


async def settle(c):
    """Waits until all turns and slots are free again, and the requests of canceled tasks are over."""
    if c.closed:
        return
    end = time.monotonic() + scaled(10)
    while c._tasks or c._turns._value != c._limit_for_tests or c._slots.qsize() != (64 if c._slots_region else 0):
        assert time.monotonic() < end, (c._tasks, c._turns, c._slots)
        await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def limits(monkeypatch):
    """Returns how many turns a client has, for settle()."""
    made = tma.aio.AsyncClient.__init__

    def init(self, core, thread, reconnect, server_uid, staging, in_flight):
        made(self, core, thread, reconnect, server_uid, staging, in_flight)
        self._limit_for_tests = in_flight

    monkeypatch.setattr(tma.aio.AsyncClient, "__init__", init)


async def begun(c):
    """Waits until a service that does not answer keeps the core in its thread, and others wait for it."""
    end = time.monotonic() + scaled(20)
    while not (c._is_busy and c._waiting):
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


class Ticker:
    """A task that wakes every 5 ms, and records the longest time for which the loop did not let it run."""

    async def __aenter__(self):
        self.gap, self._task = 0.0, asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *_):
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _tick(self):
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.005)
            now = time.monotonic()
            self.gap, last = max(self.gap, now - last), now

    def check(self, limit=0.3):
        assert self.gap < limit or not NATIVE, f"the loop stood still for {self.gap:.3f} s"


@contextlib.contextmanager
def stopped(tmad):
    os.kill(tmad.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(tmad.pid, signal.SIGCONT)


def array_of(i):
    return np.full((17, 5 + i % 7), i, "i4") + np.arange(5 + i % 7, dtype="i4")


# ---- Calls -------------------------------------------------------------------------------------------------
def test_every_call(tmad):
    async def main(c):
        x = np.arange(60, dtype="i2").reshape(3, 4, 5)
        shared = await c.empty(x.shape, x.dtype)
        shared[...] = x
        for a in (x, shared, x[::-1, :, ::2], np.broadcast_to(x[:1], (3, 4, 5))):
            assert np.array_equal(await c.copy(a), a)
            assert np.array_equal(await c.transpose(a), np.transpose(a))
            assert np.array_equal(await c.transpose(a, (1, -1, 0)), np.transpose(a, (1, -1, 0)))
            assert np.array_equal(await c.pad(a, 2, "reflect"), np.pad(a, 2, "reflect"))
            assert np.array_equal(await c.pad(a, 1, constant_values=7), np.pad(a, 1, constant_values=7))
            y = await c.transform(a, permute=(2, 0, 1), pad={0: 1}, mode="edge")
            assert np.array_equal(y, np.pad(a.transpose(2, 0, 1), ((1, 1), (0, 0), (0, 0)), "edge"))
            assert np.array_equal(await c.gather(a, [2, -3, 2], axis=1), a[:, [2, -3, 2]])
            assert np.array_equal(await c.gather(a, [], axis=1), a[:, []])
            into = np.zeros(a.shape, a.dtype)
            await c.scatter(into, [2, 0], a[:2], axis=0)
            assert np.array_equal(into[[2, 0]], a[:2]) and not into[1].any()
        out = np.empty((5, 4, 3), "i2")
        assert await c.transpose(x, out=out) is out and np.array_equal(out, x.T)
        assert (await c.copy(np.empty((0, 3)))).shape == (0, 3)
        assert (await c.zeros(7)).tolist() == [0.0] * 7
        assert np.array_equal(await c.gather(shared, np.arange(2000) % 3), x[np.arange(2000) % 3])

        plan = await c.plan(x, permute=(2, 1, 0))
        assert np.array_equal(await plan(x), x.T)
        assert await plan(x, out) is out and np.array_equal(await plan(shared), x.T)
        assert "AsyncPlan" in repr(plan)
        plan.release()

        async with c.batch() as b:
            made, into = b.transpose(x), await c.empty((3, 6, 5), "i2")
            b.pad(shared, {1: 1}, out=into)
            copy = b.copy(shared)
            padded = b.transform(x, permute=(0, 2, 1), pad=1)
        assert np.array_equal(made, x.T) and np.array_equal(copy, x)
        assert np.array_equal(into, np.pad(x, ((0, 0), (1, 1), (0, 0))))
        assert np.array_equal(padded, np.pad(x.transpose(0, 2, 1), 1))

        plan, outs = await c.plan(x, permute=(2, 1, 0)), [np.empty((5, 4, 3), "i2"), await c.empty((5, 4, 3), "i2")]
        async with c.batch() as b:
            assert b.run_plan(plan, x, outs[0]) is outs[0]
            b.run_plan(plan, shared, outs[1])
        assert all(np.array_equal(made, x.T) for made in outs)

        assert (await c.explain(x, permute=(2, 1, 0)))["engine"] == "cpu"
        assert (await c.info())["engine"] == "cpu" and "requests" in str(await c.stats())
        assert await c.regions()
        await c.ping()
        assert c.path == tmad.path and tmad.path in repr(c) and not c.closed

    run(main, tmad.path)


def test_buffers(tmad):
    async def main(c):
        rows = memoryview(bytes(range(12))).cast("B", (3, 4))
        assert (await c.transpose(rows)).tolist() == [list(range(i, 12, 4)) for i in range(4)]

    run(main, tmad.path)


def test_errors(tmad):
    async def main(c):
        x = np.arange(12, dtype="f4").reshape(3, 4)
        shared = await c.empty(100, "u1")
        for kind, call in [
            (ValueError, lambda: c.transpose(x, (0, 0))), (IndexError, lambda: c.transpose(x, (0, 2))),
            (TypeError, lambda: c.copy("text")), (TypeError, lambda: c.copy(x, unknown=1)),
            (ValueError, lambda: c.pad(x, 1, "mean")),
            (tma.OverlapError, lambda: c.copy(shared[:50], out=shared[25:75])),
            (tma.OutOfRangeError, lambda: c.gather(x, [3])), (ValueError, lambda: c.copy(x, out=np.empty(3, "f4"))),
            (tma.UnsupportedError, lambda: c.register(x)), (ValueError, lambda: c.empty(-1)),
            (ValueError, lambda: c.copy(x, priority="high")),
        ]:
            with pytest.raises(kind):
                await call()
        with pytest.raises(tma.InvalidArgumentError) as e:
            await c.pad(np.zeros(3, "u1"), 1, constant_values=300)
        assert e.value.status is tma.Status.INVALID_ARGUMENT and "300" in str(e.value) or "uint8" in str(e.value)
        with pytest.raises(ZeroDivisionError):
            async with c.batch() as b:
                out = b.copy(x)
                out[...] = -1
                raise ZeroDivisionError
        assert (out == -1).all()
        with pytest.raises(tma.Error):
            async with c.batch() as b:
                b.copy(shared[:50], out=shared[25:75])
                good = b.copy(x)
        assert np.array_equal(good, x)

    run(main, tmad.path)
    with pytest.raises(tma.DisconnectedError):
        run(lambda c: c.ping(), tmad.path + "-not")
    with pytest.raises(ValueError):
        run(lambda c: c.ping(), tmad.path, in_flight=0)


def test_a_thousand_in_flight(tmad):
    async def main(c):
        ordinary = [array_of(i) for i in range(1000)]
        shared = []
        for i in range(100):
            shared.append(await c.empty(ordinary[i].shape, "i4"))
            shared[-1][...] = ordinary[i]
        plans = [await c.plan(a, permute=(1, 0)) for a in ordinary[:7]]
        calls = [c.transpose(a) for a in ordinary]
        calls += [c.transpose(shared[i % 100]) for i in range(1000)]
        calls += [plans[i % 7](shared[i % 7], np.empty(shared[i % 7].T.shape, "i4")) for i in range(1000)]
        calls += [c.gather(ordinary[i], [0, 16, 3]) for i in range(1000)]
        results = await asyncio.gather(*calls)
        for i in range(1000):
            assert np.array_equal(results[i], ordinary[i].T)
            assert np.array_equal(results[1000 + i], ordinary[i % 100].T)
            assert np.array_equal(results[2000 + i], ordinary[i % 7].T)
            assert np.array_equal(results[3000 + i], ordinary[i][[0, 16, 3]])

    run(main, tmad.path)


def test_large_beside_small(tmad):
    async def main(c):
        large = np.arange(12 << 20, dtype="u4").reshape(12, 1024, 1024)
        order = []

        async def move(a):
            result = await c.transpose(a)
            order.append(a.nbytes)
            return result

        async with Ticker() as ticker:
            results = await asyncio.gather(move(large), move(large[:1]), *(move(array_of(i)) for i in range(200)))
        assert np.array_equal(results[0], large.T) and np.array_equal(results[1], large[:1].T)
        for i in range(200):
            assert np.array_equal(results[2 + i], array_of(i).T)
        assert order.index(large.nbytes) > 0  # small moves do not wait for the large one
        ticker.check()

    run(main, tmad.path)


# ---- Cancellation ------------------------------------------------------------------------------------------
def test_one_canceled(tmad):
    async def main(c):
        tasks = [asyncio.create_task(c.transpose(array_of(i))) for i in range(1000)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        tasks[3].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for i, result in enumerate(results):
            if i == 3:
                assert isinstance(result, asyncio.CancelledError)
            else:
                assert np.array_equal(result, array_of(i).T)

    run(main, tmad.path)


def test_many_canceled(tmad, seed):
    async def main(c):
        rng = random.Random(seed)
        shared = await c.empty((40, 30), "i4")
        shared[...] = np.arange(1200).reshape(40, 30)
        large = np.arange(1 << 20, dtype="u4").reshape(1024, 1024)
        plan, out = await c.plan(shared, permute=(1, 0)), await c.empty((30, 40), "i4")
        calls = [lambda: c.transpose(shared), lambda: c.transpose(array_of(2)), lambda: plan(shared, out),
                 lambda: c.transpose(large), lambda: c.gather(shared, np.arange(1000) % 40), lambda: c.ping(),
                 lambda: c.empty(3)]
        for _ in range(share(10)):
            tasks = [asyncio.create_task(rng.choice(calls)()) for _ in range(100)]
            for task in rng.sample(tasks, 100):
                if rng.random() < 0.3:
                    await asyncio.sleep(rng.random() * 0.001)
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert np.array_equal(await c.transpose(shared), shared.T)
            assert np.array_equal(await c.transpose(array_of(5)), array_of(5).T)
            await settle(c)

    run(main, tmad.path)


def test_canceled_while_stopped(own):
    """The request is canceled before it starts, and its slot is free again."""
    async def main(c):
        x = await c.empty(100, "u1")
        out = await c.empty(100, "u1")
        await c.copy(np.arange(4))
        x[:] = 7
        with stopped(own):
            async with Ticker() as ticker:
                tasks = [asyncio.create_task(c.copy(x, out=out)), asyncio.create_task(c.copy(np.arange(9))),
                         asyncio.create_task(c.empty(1 << 20)), asyncio.create_task(c.transpose(np.ones((2048, 2048))))]
                await asyncio.sleep(0.2)
                for task in tasks:
                    task.cancel()
                results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
                assert all(isinstance(r, asyncio.CancelledError) for r in results)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await c.info()
            ticker.check()
        assert np.array_equal(await c.copy(np.arange(9)), np.arange(9))

    run(main, own.path)


def test_canceled_is_over(tmad):
    """After CancelledError nothing is written any more, however often the call is canceled."""
    async def main(c):
        x, out, t = await c.empty(100, "u1"), await c.empty(100, "u1"), await c.timeline()
        x[:] = 1
        for i in range(share(100)):
            point = t.point(i + 1)
            tasks = [asyncio.create_task(call) for call in (c.copy(x, out=out, wait=point), batch(c, x, out, point))]
            await asyncio.sleep(0.002)
            for _ in range(1 + i % 4):
                for task in tasks:
                    task.cancel()
                await asyncio.sleep(0)
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(r, asyncio.CancelledError) for r in results)
            out[:] = 7
            t.signal(i + 1)
            assert (await c.copy(x) == 1).all()  # requests run in order, so the canceled one is over
            assert (out == 7).all()

    async def batch(c, x, out, point):
        async with c.batch(wait=point) as b:
            b.copy(x, out=out)

    run(main, tmad.path)


@pytest.mark.parametrize("is_shared", [False, True])
def test_canceled_in_the_thread_is_over(tmad, is_shared):
    """After CancelledError nothing is written any more, also if the thread moves chunks."""
    class Bar:
        def __init__(self, task):
            self.task, self.is_over, self.late = task, False, 0

        def update(self, n):
            self.late += self.is_over
            for _ in range(3):
                loop.call_soon_threadsafe(self.task.cancel)
            time.sleep(0.005)

        def close(self):
            self.late += self.is_over

    async def main(c):
        nonlocal loop
        loop = asyncio.get_running_loop()
        large = np.arange(9 << 20, dtype="u1").reshape(3072, 3072)
        out = await c.empty(large.shape, "u1") if is_shared else np.empty_like(large)
        for _ in range(share(50)):
            bar = Bar(None)
            bar.task = asyncio.create_task(c.transpose(large, out=out, progress=bar))
            with pytest.raises(asyncio.CancelledError):
                await bar.task
            bar.is_over = True
            out[...] = 7
            await c.copy(np.arange(3))
            assert (out == 7).all() and not bar.late

    loop = None
    run(main, tmad.path)


# ---- Back-pressure -----------------------------------------------------------------------------------------
def test_in_flight(tmad):
    async def main(c):
        results = await asyncio.gather(*(c.transpose(array_of(i)) for i in range(200)))
        assert all(np.array_equal(r, array_of(i).T) for i, r in enumerate(results))

    run(main, tmad.path, in_flight=4)
    run(main, tmad.path, in_flight=1)


@pytest.mark.parametrize("in_flight", [4, 256, 5000])
def test_a_stopped_tmad_does_not_hold_up_the_loop(own, in_flight):
    async def main(c):
        shared = await c.empty((17, 5), "i4")
        shared[...] = array_of(0)
        wide = np.zeros((2,) * 16, "u1")
        large = np.arange(1 << 20, dtype="u4").reshape(1024, 1024)
        timeline = await c.timeline()
        plan = await c.plan(shared, permute=(1, 0))
        async with Ticker() as ticker:
            with stopped(own):
                calls = [c.transpose(array_of(i)) for i in range(400)] + [c.transpose(shared) for _ in range(400)]
                calls += [plan(shared) for _ in range(100)]
                calls += [c.gather(shared, np.arange(300) % 17) for _ in range(300)]
                calls += [c.pad(wide, 0) for _ in range(300)]
                calls += [c.transpose(large), c.empty((3, 3)), c.ping(), c.plan(shared), c.explain(shared), c.info()]
                calls += [c.copy(shared, wait=timeline.point(1))]
                tasks = [asyncio.create_task(call) for call in calls]
                await asyncio.sleep(0.5)
                later = [asyncio.create_task(c.empty(3)) for _ in range(3)]
                await asyncio.sleep(0.7)
                assert not any(task.done() for task in tasks)
            timeline.signal(1)
            results = await asyncio.gather(*tasks)
            await asyncio.gather(*later)
        ticker.check()
        for i in range(400):
            assert np.array_equal(results[i], array_of(i).T)
            assert np.array_equal(results[400 + i], array_of(0).T)
        assert all(np.array_equal(r, array_of(0).T) for r in results[800:900])
        assert all(np.array_equal(r, shared[np.arange(300) % 17]) for r in results[900:1200])
        assert np.array_equal(results[1500], large.T)

    run(main, own.path, in_flight=in_flight)


def test_arrays_are_freed_without_waiting(own):
    async def main(c):
        arrays = [await c.empty(1 << 18) for _ in range(20)]
        plan = await c.plan(arrays[0])
        n = len(await c.regions())
        async with Ticker() as ticker:
            with stopped(own):
                del arrays, plan
                gc.collect()
                await asyncio.sleep(0.4)
        ticker.check()
        while len(await c.regions()) > n - 20:
            await asyncio.sleep(0.01)

    run(main, own.path)


# ---- Restarts ----------------------------------------------------------------------------------------------
def test_killed_and_started_again(own):
    async def main(c):
        shared = await c.empty((17, 5), "i4")
        shared[...] = array_of(0)
        plan = await c.plan(shared, permute=(1, 0))
        large = np.arange(1 << 20, dtype="u4").reshape(1024, 1024)
        outcome = {"right": 0, "lost": 0}

        async def check(call, expected):
            try:
                assert np.array_equal(await call, expected)
                outcome["right"] += 1
            except tma.DisconnectedError:
                outcome["lost"] += 1

        def many():
            for i in range(200):
                yield check(c.transpose(array_of(i)), array_of(i).T)
                yield check(c.transpose(shared), array_of(0).T)
                yield check(plan(shared), array_of(0).T)
                yield check(c.gather(shared, np.arange(300) % 17), shared[np.arange(300) % 17])
            yield check(c.transpose(large), large.T)

        for k in range(3):
            tasks = [asyncio.create_task(call) for call in many()]
            await asyncio.sleep(0.02 * k)
            own.kill()
            await asyncio.sleep(0.1)
            tasks += [asyncio.create_task(call) for call in many()]
            async with Ticker() as ticker:
                await asyncio.sleep(0.2)
            ticker.check()
            await asyncio.to_thread(own.start)
            await asyncio.gather(*tasks)
            assert np.array_equal(await c.transpose(shared), array_of(0).T)
        assert outcome["lost"] == 0, outcome  # every call could be repeated

    run(main, own.path, reconnect=30)


def test_gone_for_good(own):
    async def main(c):
        await c.copy(np.arange(3))
        own.kill()
        results = await asyncio.gather(*(c.copy(np.arange(i)) for i in range(50)), c.empty(3), c.info(),
                                       c.copy(np.ones(1 << 18)), return_exceptions=True)
        assert all(isinstance(r, tma.DisconnectedError) for r in results[1:]), results
        own.start()
        assert np.array_equal(await c.copy(np.arange(3)), np.arange(3))
        own.kill()

    run(main, own.path, reconnect=0.2)


def test_no_reconnect(own):
    async def main(c):
        x = await c.empty(5)
        own.kill()
        own.start()
        with pytest.raises(tma.DisconnectedError):
            await c.copy(x)

    run(main, own.path, reconnect=-1)


# ---- The end -----------------------------------------------------------------------------------------------
def test_close_with_requests_in_flight(own):
    async def main(c):
        shared = await c.empty((17, 5), "i4")
        with stopped(own):
            tasks = [asyncio.create_task(c.transpose(a)) for a in [shared, array_of(3)] * 300]
            tasks.append(asyncio.create_task(c.transpose(np.ones((1024, 1024)))))
            await begun(c)
            closing = [asyncio.create_task(c.close()) for _ in range(2)]
            async with Ticker() as ticker:
                await asyncio.sleep(0.3)
            ticker.check()
        await asyncio.gather(*closing)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        ends = [r for r in results if isinstance(r, Exception)]
        assert all(isinstance(r, ValueError) and "closed" in str(r) for r in ends), ends[:3]
        assert len(ends) < len(results)
        for call in (c.copy(shared), c.copy(np.arange(3)), c.ping(), c.empty(3), c.copy(np.ones(1 << 20))):
            with pytest.raises(ValueError, match="closed"):
                await call
        await c.close()
        assert c.closed and "closed" in repr(c)

    run(main, own.path, in_flight=50)


def test_close_that_is_canceled(own):
    async def main(c):
        x, out = await c.empty(5), await c.empty(5)
        with stopped(own):
            task = asyncio.create_task(c.copy(x, out=out))
            await asyncio.sleep(0.05)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(c.close(), 0.1)
        assert (await task).shape == (5,)
        await c.close()

    run(main, own.path)


def test_close_that_ends_with_its_loop(tmad):
    """asyncio.run cancels all tasks that are left at its end, including the one of the client that closes it."""
    async def main():
        c = await tma.aio.connect(tmad.path)
        await c.copy(np.arange(3))
        closing = asyncio.create_task(c.close())
        await asyncio.sleep(0)  # close() has begun, but the task that it waits for has not
        return c, closing

    before = len(os.listdir("/proc/self/fd"))
    c, closing = asyncio.run(main())
    assert closing.cancelled()
    wait_until(lambda: c.closed, "the client is closed")
    del c, closing
    gc.collect()
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before, "its descriptors are, too")


def test_forgotten(tmad):
    """A client that is dropped without close() warns, and its descriptors are closed."""
    async def main():
        c = await tma.aio.connect(tmad.path)
        await c.copy(np.arange(3))

    before = len(os.listdir("/proc/self/fd"))
    with pytest.warns(ResourceWarning, match="not closed"):
        asyncio.run(main())
        gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_nothing_is_left(tmad):
    async def main(c):
        await asyncio.gather(*(c.copy(np.ones(n)) for n in (10, 100000)))

    run(main, tmad.path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        run(main, tmad.path)
    assert len(os.listdir("/proc/self/fd")) <= before


# ---- Together ----------------------------------------------------------------------------------------------
def test_two_clients_on_one_loop(tmad, own):
    async def main(a):
        async with tma.aio.connect(own.path) as b, tma.aio.connect(tmad.path) as d:
            of_a = await a.empty((17, 9), "i4")
            of_a[...] = array_of(4)
            calls = [client.transpose(x) for x in (of_a, array_of(4)) for client in (a, b, d) for _ in range(100)]
            for result in await asyncio.gather(*calls):
                assert np.array_equal(result, array_of(4).T)

    run(main, tmad.path)


def test_beside_the_synchronous_client(tmad):
    async def main(c):
        with tma.connect(tmad.path) as client:
            x = client.empty((17, 5), "i4")
            x[...] = array_of(0)

            def work():
                return [client.transpose(x) for _ in range(100)]

            threads = [asyncio.to_thread(work) for _ in range(2)]
            results = await asyncio.gather(*threads, *(c.transpose(x) for _ in range(100)))
            for result in [*results[0], *results[1], *results[2:]]:
                assert np.array_equal(result, array_of(0).T)

    run(main, tmad.path)


def test_order(tmad):
    """Staged moves wait for points and signal them like moves that are not staged."""
    async def main(c):
        timeline = await c.timeline()
        shared = await c.empty((17, 9), "i4")
        for source in (np.zeros((17, 9), "i4"), shared, np.zeros((170, 900), "i4")):
            v = timeline.value
            call = asyncio.create_task(c.transpose(source, wait=timeline.point(v + 1), signal=timeline.point(v + 2)))
            await asyncio.sleep(0.05)
            assert not call.done() and timeline.value == v
            source[...] = 5
            timeline.signal(v + 1)
            assert (await call == 5).all() and timeline.value == v + 2
            async with c.batch(wait=timeline.point(v + 2), signal=timeline.point(v + 3)) as b:
                first, second = b.copy(source), b.transpose(source)
            assert timeline.value == v + 3 and (first == 5).all() and (second == 5).all()
            with pytest.raises(tma.WaitTimeoutError):
                await c.copy(source, wait=timeline.point(v + 9), wait_timeout=0.05)

    run(main, tmad.path)


def test_large_batches(tmad):
    """Large batches are split into as many requests as needed. The moves have every field of a transform."""
    async def main(c):
        timeline = await c.timeline()
        for rank in range(9):
            base = await c.empty((4,) * rank, "u1")
            base[...] = np.arange(base.size).reshape(base.shape) % 251
            shared = base[(slice(None, None, -2),) * rank]
            expected = np.pad(shared.T, 1, constant_values=3) if rank else shared
            outs = await c.empty((300, *expected.shape[::-1]), "u1")
            outs = outs.transpose(0, *range(rank, 0, -1))
            async with c.batch(signal=timeline.point(rank + 1)) as b:
                for out in outs:
                    b.transform(shared, permute=range(rank)[::-1], pad=1, value=3, out=out[...])
            assert timeline.value == rank + 1
            assert all(np.array_equal(out, expected) for out in outs)

    run(main, tmad.path)

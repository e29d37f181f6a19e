# SPDX-License-Identifier: Apache-2.0
"""Tests a service that is killed and restarted: results are correct, or a call reports that the outcome is unknown."""
import contextlib
import threading
import time

import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
from tmad import share


def restart_often(own, stop, n):
    try:
        for _ in range(n):
            time.sleep(0.15)
            own.kill()
            own.start()
    finally:
        stop.set()


WORK = ["plain", "staged", "plan", "gather", "batch", "fresh"]


# For a service that does not trust the user memory is sealed, and copied to a new file at each restart.
@pytest.mark.parametrize("own", [(), ["--trust-own-uid=off"]], ids=["trusted", "not trusted"], indirect=True)
@pytest.mark.parametrize("name", WORK)
def test_killed_while_calls_run(own, name):
    with tma.connect(own.path, reconnect=20, staging=1 << 16) as c:
        x = np.arange(1 << 16, dtype="u4").reshape(256, 256)
        shared, out = c.empty(x.shape, "u4"), c.empty(x.shape, "u4")
        shared[...] = x
        plan = c.plan(shared, permute=(1, 0), out=out)

        def batch():
            with c.batch() as b:
                b.transpose(shared, out=out)
            return out

        def fresh():
            y = c.empty(x.shape, "u4")
            y[...] = x
            return c.transpose(y)

        call = {"plain": lambda: c.transpose(shared, out=out), "staged": lambda: c.transpose(x),
                "plan": lambda: plan(shared, out), "batch": batch, "fresh": fresh,
                "gather": lambda: c.gather(x, np.arange(256)).T}[name]
        stop = threading.Event()
        killer = threading.Thread(target=restart_often, args=(own, stop, share(20)))
        killer.start()
        n = failed = 0
        while not stop.is_set() or n == 0:
            out[...] = 0
            try:
                assert np.array_equal(call(), x.T)
                n += 1
            except tma.DisconnectedError:
                failed += 1
        killer.join()
        with contextlib.suppress(tma.DisconnectedError):
            call()  # The connection may have been lost since the last call.
        assert np.array_equal(call(), x.T) and n > 0
        assert np.array_equal(shared, x), "what was shared keeps its contents"


def test_without_reconnecting(own):
    with tma.connect(own.path, reconnect=-1) as c:
        x = c.empty(10, "u1")
        own.kill()
        for _ in range(2):
            with pytest.raises(tma.DisconnectedError):
                c.copy(x)
        own.start()
        with pytest.raises(tma.DisconnectedError):
            c.copy(x)
        x[:] = 1


def test_gone_for_good(own):
    with tma.connect(own.path, reconnect=0.3) as c:
        x, plan = c.empty(10, "u1"), c.plan(np.zeros(10, "u1"))
        own.kill()
        for call in (lambda: c.copy(x), lambda: c.copy(np.zeros(3)), lambda: plan(x, x), c.ping, lambda: c.empty(3), c.info):
            start = time.monotonic()
            with pytest.raises((tma.DisconnectedError, ValueError)):
                call()
            assert time.monotonic() - start < 5
        del x
        own.start()
        c.ping()
        assert np.array_equal(c.copy(np.arange(3)), np.arange(3)) and np.array_equal(plan(np.ones(10, "u1")), np.ones(10, "u1"))


def test_submitted_requests_end(own):
    with tma.connect(own.path) as c:
        t, x, y = c.timeline(), c.empty(10, "u1"), c.empty(10, "u1")
        request = tma._core.Request.transform(tma.Tensor(y), tma.Tensor(x), None, None, None, "constant", 0)
        tickets = [c._core.submit(request, i, wait=t.point(1).parts()) for i in range(3)]
        own.kill()
        own.start()
        with pytest.raises(tma.DisconnectedError):
            c._core.wait(tickets[1])
        assert [(token, status) for token, status, _ in c._core.completed()] == [
            (0, tma.Status.DISCONNECTED), (2, tma.Status.DISCONNECTED)]
        with pytest.raises(tma.NotFoundError):
            c._core.wait(tickets[1])

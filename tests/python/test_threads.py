# SPDX-License-Identifier: Apache-2.0
"""Tests threads, signals, timeouts, and the lifetimes of arrays and clients."""
import ctypes
import gc
import os
import signal
import sys
import threading
import time

import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
from tmad import scaled, share, wait_until


def fds():
    return len(os.listdir("/proc/self/fd"))


def maps():
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
        return sum("memfd:" in line for line in lines)


class Stopped:
    """Stops the tmad with SIGSTOP for the duration of a block."""

    def __init__(self, tmad):
        self.pid = tmad.pid

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGCONT)


def after(seconds, call):
    timer = threading.Timer(seconds, call)
    timer.start()
    return timer


def test_one_client_of_many_threads(c):
    errors = []

    def work(seed):
        rng = np.random.default_rng(seed)
        plan = c.plan(np.empty((16, 8), "f4"), permute=(1, 0))
        try:
            for _ in range(share(500)):
                x = rng.random((int(rng.integers(1, 40)), int(rng.integers(1, 40))), "f4")
                if rng.random() < 0.5:
                    shared = c.empty(x.shape, "f4")
                    shared[...] = x
                    x = shared
                assert np.array_equal(c.transpose(x), x.T)
                assert np.array_equal(c.gather(x, [0, -1]), x[[0, -1]])
                y = rng.random((16, 8), "f4")
                assert np.array_equal(plan(y), y.T)
                with c.batch() as b:
                    z = b.pad(x, 1)
                assert np.array_equal(z, np.pad(x, 1))
        except BaseException as e:
            errors.append(e)
            raise

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_other_threads_run_during_a_call(own):
    with tma.connect(own.path) as c:
        done = []
        with Stopped(own):
            thread = threading.Thread(target=lambda: done.append(c.copy(np.arange(10))))
            thread.start()
            n, end = 0, time.monotonic() + 0.3
            while time.monotonic() < end:
                n += 1
            assert n > 1000 and not done
        thread.join(scaled(10))
        assert np.array_equal(done[0], np.arange(10))


# ---- Ctrl-C --------------------------------------------------------------------------------------------
def calls(c):
    """Returns one call for each way to wait for the service, by name."""
    shared, ordinary = c.empty(1000, "u4"), np.arange(1000, dtype="u4")
    large = np.arange(1 << 20, dtype="u4")
    plan, timeline, out = c.plan(shared), c.timeline(), c.empty(1000, "u4")

    def batch():
        with c.batch() as b:
            b.copy(shared)

    return {
        "ping": c.ping, "info": c.info, "run": lambda: c.copy(shared), "staged": lambda: c.copy(ordinary),
        "chunks": lambda: c.copy(large), "plan": lambda: plan(shared, out),
        "gather": lambda: c.gather(ordinary, [1]), "batch": batch, "empty": lambda: c.empty(5),
        "explain": lambda: c.explain(shared), "prepare": lambda: c.plan(ordinary), "timeline": lambda: timeline.wait(1),
        "order": lambda: c.copy(shared, wait=timeline.point(1)),
        "staged order": lambda: c.copy(ordinary, wait=timeline.point(1)),
    }


@pytest.mark.parametrize("name", ["ping", "info", "run", "staged", "chunks", "plan", "gather", "batch", "empty", "explain",
                                  "prepare", "timeline", "order", "staged order"])
def test_ctrl_c(own, name):
    with tma.connect(own.path, staging=1 << 20) as c:
        call = calls(c)[name]
        with Stopped(own):
            start = time.monotonic()
            timer = after(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                call()
            assert time.monotonic() - start < scaled(1.2)
            timer.join()
        x = np.arange(1 << 19, dtype="u4")
        assert np.array_equal(c.copy(x), x)
        for call in (c.ping, calls(c)["run"], calls(c)["plan"]):
            call()
        gc.collect()
        assert len(c.regions()) < 30


def test_ctrl_c_while_another_thread_waits(own):
    """Ctrl-C interrupts the main thread while it waits for the client's lock, which another thread holds."""
    with tma.connect(own.path) as c:
        with Stopped(own):
            other = threading.Thread(target=c.ping)
            other.start()
            time.sleep(0.1)
            timer = after(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
            start = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                c.ping()
            assert time.monotonic() - start < scaled(1.2)
            timer.join()
        other.join(scaled(10))
        c.ping()


def test_close_is_interrupted(own):
    c = tma.connect(own.path)
    x, t = c.empty(4, "u1"), c.timeline()
    request = tma._core.Request.transform(tma.Tensor(c.empty(4, "u1")), tma.Tensor(x), None, None, None, "constant", 0)
    c._core.submit(request, "token", wait=t.point(1).parts())
    timer = after(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        c.close()
    timer.join()
    assert c.closed
    (token, status, message), = c._core.completed()
    assert token == "token" and status == tma.Status.DISCONNECTED and "closed" in message


def test_a_handler_may_not_use_the_client(own):
    said = []

    def handler(number, frame):
        try:
            c.ping()
        except RuntimeError as e:
            said.append(str(e))

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with tma.connect(own.path) as c:
            with Stopped(own):
                timers = [after(0.1, lambda: os.kill(os.getpid(), signal.SIGUSR1)),
                          after(0.5, lambda: os.kill(own.pid, signal.SIGCONT))]
                c.ping()
            for timer in timers:
                timer.join()
            assert said and "signal's handler" in said[0]
            c.ping()
    finally:
        signal.signal(signal.SIGUSR1, before)


class Alarm:
    """Raises an exception in the main thread if a block hangs."""

    def __enter__(self):
        self._before = signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, scaled(20))

    def __exit__(self, *_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def _ring(self, number, frame):
        raise AssertionError("it hangs")


class Bar:
    """A progress bar that calls a function at each update."""

    def __init__(self, call):
        self.call, self.results = call, []

    def update(self, n):
        self.results.append(self.call())

    def close(self):
        pass


LARGE, SMALL = np.arange(9 << 20, dtype="u1").reshape(3072, 3072), np.arange(12).reshape(3, 4)


def in_a_handler(call):
    before, results = signal.signal(signal.SIGUSR1, lambda *_: results.append(call())), []
    try:
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    return results[0]


def in_a_finalizer(call):
    class Node:
        def __init__(self):
            self.me = self

        def __del__(self):
            results.append(call())

    results = []
    Node()
    gc.collect()
    return results[0]


def in_a_thread(call):
    results = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    return results[0]


@pytest.mark.parametrize("where", [lambda call: call(), in_a_handler, in_a_finalizer, in_a_thread],
                         ids=["callback", "handler", "finalizer", "thread"])
@pytest.mark.parametrize("call", [lambda c, x: c.transpose(x), lambda c, x: c.gather(x, range(len(x))).T],
                         ids=["transpose", "gather"])
def test_a_move_within_a_staged_move(c, where, call):
    """The progress bar moves arrays itself between the chunks of a staged move."""
    bar = Bar(lambda: where(lambda: call(c, SMALL)))
    with Alarm():
        assert np.array_equal(c.transpose(LARGE, progress=bar), LARGE.T)
        assert len(bar.results) > 1 and all(np.array_equal(r, SMALL.T) for r in bar.results)
        bar.results.clear()
        assert np.array_equal(c.gather(LARGE, range(3072), progress=bar), LARGE)
        assert len(bar.results) > 1 and all(np.array_equal(r, SMALL.T) for r in bar.results)


def test_a_large_move_within_another_one(tmad):
    with tma.connect(tmad.path, staging=1 << 20) as c, Alarm():
        bar = Bar(lambda: None)
        bar.call = lambda: bar.results or c.transpose(LARGE)
        assert np.array_equal(c.transpose(LARGE, progress=bar), LARGE.T)
        assert np.array_equal(bar.results[0], LARGE.T)
        assert sum(region["size"] for region in c.regions()) <= 1 << 20


def test_an_exception_in_a_release_is_raised(own):
    """An exception that a handler raises while a destructor waits for the service is raised afterwards."""
    class Unusual(Exception):
        pass

    def handler(number, frame):
        raise Unusual

    before, unraisable = signal.signal(signal.SIGUSR1, handler), []
    hook, sys.unraisablehook = sys.unraisablehook, unraisable.append
    try:
        with tma.connect(own.path) as c:
            for make in (lambda: c.empty(1000), lambda: c.plan(np.ones(3))):
                x = [make()]
                with Stopped(own):
                    timer = after(0.2, lambda: os.kill(os.getpid(), signal.SIGUSR1))
                    with pytest.raises(Unusual):
                        x.clear()
                        assert not x  # the exception is raised at a later bytecode
                    timer.join()
            c.ping()
    finally:
        signal.signal(signal.SIGUSR1, before)
        sys.unraisablehook = hook
    assert not unraisable


def test_what_nobody_waits_for_is_forgotten(c):
    """A request whose ticket is lost between two bytecodes is forgotten."""
    before, timeline = len(c.regions()), c.timeline()
    for is_waiting in (False, True):
        for _ in range(10):
            request = tma._core.Request.transform(
                tma.Tensor(c.empty(9)), tma.Tensor(c.empty(9)), None, None, None, "constant", 0)
            order = {"wait": timeline.point(1).parts()} if is_waiting else {}
            ticket = c._core.submit(request, None, **order)
            if not is_waiting:
                c._core.settle(request)
            del ticket, request
    timeline.signal(1)
    wait_until(lambda: len(c.regions()) == before + 1, "only the timeline is left")


def test_what_was_interrupted_writes_nothing_more(own):
    """When an exception ends a staged move into shared memory, nothing writes there any more."""
    with tma.connect(own.path) as c:
        out = c.empty(LARGE.shape, "u1")

        def fail():
            raise ZeroDivisionError

        for _ in range(share(100)):
            out[...] = 7
            with pytest.raises(ZeroDivisionError):
                c.transpose(LARGE, out=out, progress=Bar(fail))
            seen = out.copy()
            c.ping()
            assert np.array_equal(out, seen)


@pytest.mark.parametrize("name", ["ping", "run", "staged", "chunks", "plan", "batch", "empty", "gather"])
def test_timeouts(own, name):
    with tma.connect(own.path, timeout=0.2, staging=1 << 20) as c:
        call = calls(c)[name]
        with Stopped(own):
            for _ in range(2):
                start = time.monotonic()
                with pytest.raises((tma.NoReplyError, tma.DisconnectedError)) as e:
                    call()
                assert time.monotonic() - start < scaled(2), e.value
        x = np.arange(1000)
        wait_until(lambda: not isinstance(attempt(c, x), tma.Error), "the client works again")
        assert np.array_equal(c.copy(x), x)


def attempt(c, x):
    try:
        return c.copy(x)
    except tma.Error as e:
        return e


# ---- Lives ---------------------------------------------------------------------------------------------
def test_arrays_outlive_their_client(tmad):
    c = tma.connect(tmad.path)
    x = c.empty((100, 100), "u2")
    x[...] = 12345
    y = c.transpose(x)
    view = y[10:20]
    c.close()
    del c, y
    gc.collect()
    assert (x == 12345).all() and (view == 12345).all()
    x[...] = 1
    assert x.sum() == 10000


def test_regions_end_with_their_arrays(tmad):
    gc.collect()
    before = fds(), maps()
    with tma.connect(tmad.path) as c:
        theirs = tmad.mappings_of_memfds()
        arrays = [c.empty(1 << 17, "f8") for _ in range(50)]  # smaller arrays share regions, see test_slabs.py
        views = [a[3:] for a in arrays]
        assert len(c.regions()) == 50 and tmad.mappings_of_memfds() >= theirs + 50
        del arrays
        assert len(c.regions()) == 50
        del views[10:]
        assert len(c.regions()) == 10
        del views
        wait_until(lambda: not c.regions() and tmad.mappings_of_memfds() == theirs, "both sides let go")
    wait_until(lambda: (fds(), maps()) == before, "descriptors and mappings are as before")


def test_garbage_is_collected_while_calls_run(c):
    stop, errors = threading.Event(), []

    def litter():
        try:
            while not stop.is_set():
                ring = [c.empty(100, "u1"), None]
                ring[1] = ring
                plan = c.plan(ring[0])
                del ring, plan
                gc.collect()
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=litter) for _ in range(2)]
    for thread in threads:
        thread.start()
    x = np.arange(5000, dtype="u4").reshape(50, 100)
    for _ in range(share(500)):
        assert np.array_equal(c.transpose(x), x.T)
    stop.set()
    for thread in threads:
        thread.join()
    gc.collect()
    assert not errors
    wait_until(lambda: len(c.regions()) <= 2, "what is garbage is released")


def test_close_while_others_call(tmad):
    for _ in range(share(100)):
        c = tma.connect(tmad.path)
        ended = []

        def work(c=c, ended=ended):
            x = np.arange(100)
            try:
                while True:
                    assert np.array_equal(c.copy(x), x)
            except ValueError as e:
                assert "closed" in str(e)
                ended.append(1)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.01)
        c.close()
        for thread in threads:
            thread.join()
        assert len(ended) == 3


def test_clients_that_nobody_closes(tmad):
    gc.collect()
    before = fds(), maps(), threading.active_count()
    for _ in range(share(200)):
        c = tma.connect(tmad.path)
        x = c.empty(10)
        c.copy(np.arange(10.0), out=None)
        request = tma._core.Request.transform(tma.Tensor(x), tma.Tensor(c.empty(10)), None, None, None, "constant", 0)
        c._core.forget(c._core.submit(request, object()))
        c.ping()
        del c, x, request
    gc.collect()
    wait_until(lambda: (fds(), maps(), threading.active_count()) == before, "nothing is left")


def test_timer_slack():
    """set_timer_slack() changes the slack of the calling thread alone."""
    libc, seen = ctypes.CDLL(None), {}

    def work():
        tma._core.set_timer_slack(12345)
        seen["set"] = libc.prctl(30)  # 30 is PR_GET_TIMERSLACK

    before = libc.prctl(30)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen["set"] == 12345 and libc.prctl(30) == before
    with pytest.raises((TypeError, OverflowError)):
        tma._core.set_timer_slack(-1)

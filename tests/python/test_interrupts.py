# SPDX-License-Identifier: Apache-2.0
"""Tests signals at random places of every kind of call. The exception of a handler is the one that is raised, and
nothing is left behind; a handler may move arrays itself.

A timer of the kernel sends each signal after a random time. `make check` runs a share of the interrupts, and `make
stress`, or TEST_SHARE=1, all 20,000.
"""
import asyncio
import ctypes
import gc
import mmap
import os
import random
import signal
import sys
import threading
import time

import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
import tmaclient.aio
from tmad import NATIVE, scaled, share, wait_until

INTERRUPTS = 20_000
MIB = 1 << 20


class Timer:
    """Sends a signal to this process once, after some seconds."""

    def __init__(self, number):
        event = (ctypes.c_int * 16)(0, 0, number, 0)  # struct sigevent: SIGEV_SIGNAL
        self._libc, self._timer = ctypes.CDLL(None, use_errno=True), ctypes.c_void_p()
        assert self._libc.timer_create(time.CLOCK_MONOTONIC, event, ctypes.byref(self._timer)) == 0, ctypes.get_errno()

    def set(self, seconds):
        self._set(max(1, int(seconds * 1e9)))

    def stop(self):
        self._set(0)

    def _set(self, ns):
        value = (ctypes.c_long * 4)(0, 0, 0, ns)  # struct itimerspec: less than a second
        self._libc.timer_settime(self._timer, 0, value, None)

    def delete(self):
        self._libc.timer_delete(self._timer)


class Interrupted(Exception):
    """The exception that handlers raise. It is an Exception, which more code catches than KeyboardInterrupt."""


class Signals:
    """Interrupts each call by a signal, and counts the exceptions that handlers have raised and that have arrived."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.raised = self.caught = 0
        self.unraisable = []
        self._last, self._seconds = None, 0.0
        self._timers = [Timer(signal.SIGALRM), Timer(signal.SIGINT)]

    def __enter__(self):
        self._before = [signal.signal(number, self._handle) for number in (signal.SIGALRM, signal.SIGINT)]
        self._hook, sys.unraisablehook = sys.unraisablehook, lambda args: self.unraisable.append(repr(args))
        return self

    def __exit__(self, *_):
        for timer in self._timers:
            timer.delete()
        for number, handler in zip((signal.SIGALRM, signal.SIGINT), self._before, strict=True):
            signal.signal(number, handler)
        sys.unraisablehook = self._hook

    def _handle(self, number, frame):
        self.raised += 1
        self._last = KeyboardInterrupt(self.raised) if number == signal.SIGINT else Interrupted(self.raised)
        raise self._last

    def measure(self, call):
        start = time.monotonic()
        call()
        self._seconds = min(time.monotonic() - start, 0.9)

    def raise_within(self, call):
        """Repeats a call until a handler has raised an exception, which leaves this function."""
        self.random.choice(self._timers).set(self.random.random() * 0.001)
        while True:
            call()
            time.sleep(0)  # lets Python run a handler, as in interrupt()

    def interrupt(self, call):
        """Calls a function and interrupts it at a random time. Returns whether the signal came before the call
        returned."""
        is_running = True
        timer, delay = self.random.choice(self._timers), self.random.random() * self._seconds
        try:
            timer.set(delay)
            call()
            is_running = False
            while self.raised == self.caught:
                time.sleep(0)  # a C handler that ran in another thread may be noticed only later
            for _ in range(1000):  # after this, the exception has arrived, or is lost
                pass
        except BaseException as e:
            if e is not self._last:
                timer.stop()
                raise AssertionError(f"{e!r} is not what the handler raised, {self._last!r}") from e
            self.caught += 1
        assert self.raised == self.caught, "a handler's exception was lost"
        self._last = None
        # Adjusts the delays so that three of four signals come during the call.
        self._seconds = min(self._seconds * (1.01 if is_running else 0.97), 0.9)
        return is_running


def left():
    """Returns the numbers of descriptors, of mappings of shared memory and of threads of this process."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
        return len(os.listdir("/proc/self/fd")), sum("memfd:" in line for line in lines), threading.active_count()


def is_within(held, before, more=0):
    return all(now <= then + more for now, then in zip(held, before, strict=True))


def memory():
    with open("/proc/self/statm", encoding="ascii") as numbers:
        return int(numbers.read().split()[1]) * mmap.PAGESIZE


def pair(c, is_shared, shape, dtype="f4"):
    """Returns a source with values, and a destination."""
    make = c.empty if is_shared else np.empty
    src, out = make(shape, dtype), make(shape, dtype)
    src[...] = np.arange(src.size).reshape(shape) % 100
    return src, out


class Bar:
    def update(self, n):
        pass

    def close(self):
        pass


def moves(c, is_shared):
    """Returns calls that move arrays of one kind, by name."""
    small, small_out = pair(c, is_shared, (30, 40))
    large, large_out = pair(c, is_shared, (1500, 1600), "u1")
    scale, fp8 = c.empty((30, 20), "f4"), c.empty((30, 40), "f2")
    layers = [pair(c, is_shared, (8, 50))[0] for _ in range(3)]
    other = pair(c, not is_shared, (30, 40))[1]
    plan = c.plan(small, permute=(1, 0))
    turned = pair(c, is_shared, (40, 30))[1]
    timeline = c.timeline()
    index = list(range(0, 30, 2))

    def batch():
        with c.batch() as b:
            b.copy(small, out=small_out)
            b.transpose(small)

    def signal_and_wait():
        c.copy(small, out=small_out, wait=timeline.point(0), signal=timeline.point(timeline.value + 1))

    return {
        "copy": lambda: c.copy(small, out=small_out),
        "large": lambda: c.transpose(large),
        "large out": lambda: c.copy(large, out=large_out, progress=Bar()),
        "half shared": lambda: c.copy(small, out=other),
        "pad": lambda: c.pad(small, 3, "wrap"),
        "convert": lambda: c.copy(small, dtype="f2", scale=np.ones(40, "f4")),
        "quantize": lambda: c.quantize(small, (1, 2), out=fp8, scale_out=scale),
        "gather": lambda: c.gather(small, index),
        "scatter": lambda: c.scatter(small_out, index, small[::2]),
        "layers": lambda: c.gather(layers, [1, 2, 5]),
        "multicast": lambda: c.multicast(small, [small_out, other]),
        "reshard": lambda: c.reshard([(small_out, (0, 0))], [(small, (0, 0))]),
        "batch": batch,
        "plan": lambda: plan(small, turned),
        "points": signal_and_wait,
    }


def others(c, path):
    """Returns calls that move nothing, by name."""
    array, timeline = np.ones((30, 40), "f4"), c.timeline()

    def connect():
        with tma.connect(path) as other:
            other.copy(array)

    def forget():
        request = tma._core.Request.transform(tma.Tensor(c.empty(9)), tma.Tensor(c.empty(9)), None, None, None, "constant", 0)
        c._core.submit(request, None)

    return {
        "ping": c.ping, "info": c.info, "explain": lambda: c.explain(array), "prepare": lambda: c.plan(array),
        "empty": lambda: c.empty((30, 40)), "many": lambda: [c.empty(9) for _ in range(9)], "timeline": c.timeline,
        "wait": lambda: timeline.wait(1, 0.001), "connect": connect, "forget": forget,
    }


KINDS = [f"{kind} {name}" for kind in ("shared", "ordinary") for name in (
    "copy", "large", "large out", "half shared", "pad", "convert", "quantize", "gather", "scatter", "layers", "multicast",
    "reshard", "batch", "plan", "points")]
KINDS += ["ping", "info", "explain", "prepare", "empty", "many", "timeline", "wait", "connect", "forget"]


def call_of(c, path, kind):
    first, _, name = kind.partition(" ")
    return moves(c, first == "shared")[name] if name else others(c, path)[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_handlers_that_raise(tmad, seed, kind):
    n = share(INTERRUPTS / len(KINDS))
    with tma.connect(tmad.path, staging=1 * MIB) as c, Signals(f"{seed} {kind}") as signals:
        call = call_of(c, tmad.path, kind)
        call()
        signals.measure(call)
        gc.collect()
        regions, before, n_running = len(c.regions()), left(), 0
        while n_running < n:
            if n_running <= n // 2:
                halfway = memory()
            n_running += signals.interrupt(call)
        call()
        gc.collect()
        c.ping()
        assert not signals.unraisable, signals.unraisable
        assert len(c.regions()) <= regions + 1  # one more region may be staging memory
        wait_until(lambda: is_within(left(), before, 1), f"{left()} is {before}")
        assert memory() < halfway + 16 * MIB or not NATIVE
        print(f"{kind}: {n_running} interrupts within the call, {signals.caught - n_running} after it")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if " " in kind])
def test_handlers_that_move(tmad, seed, kind):
    """Calls in handlers are served, or raise an error that says that the client is in a call of this thread."""
    def handler(number, frame):
        try:
            assert np.array_equal(c.copy(array), array)
            outcomes.add("served")
        except RuntimeError as e:
            assert "in a call of this thread" in str(e)
            outcomes.add("refused")

    rng, outcomes, array, timer = random.Random(f"{seed} {kind}"), set(), np.arange(6), Timer(signal.SIGALRM)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with tma.connect(tmad.path, staging=1 * MIB) as c:
            call = call_of(c, tmad.path, kind)
            for _ in range(share(200)):
                timer.set(rng.random() * 0.001)
                call()
            time.sleep(0.002)
    finally:
        timer.delete()
        signal.signal(signal.SIGALRM, before)
    assert outcomes


def test_a_stage_is_left_free(hosts, seed):
    """No frame of the traceback of a handler's exception keeps the stage's lock."""
    def take():
        stage._lock.acquire()
        stage._lock.release()
        taken.append(True)

    stage, kept, taken = hosts.start("a"), [], []
    with Signals(seed) as signals:
        for _ in range(share(2000)):
            try:
                signals.raise_within(stage.progress)
            except (Interrupted, KeyboardInterrupt) as e:
                kept.append(e)
                thread = threading.Thread(target=take, daemon=True)
                thread.start()
                thread.join(scaled(20))
                assert len(taken) == len(kept)


def test_asyncio(tmad, seed):
    """A signal cancels the main task. Nothing is left behind, whatever the task was waiting for."""
    task = None

    def handler(number, frame):
        if task is not None and not task.done():
            task.get_loop().call_soon_threadsafe(task.cancel)

    async def main():
        nonlocal task
        task = asyncio.current_task()
        async with tma.aio.connect(tmad.path, staging=1 * MIB) as c:
            shared = await c.empty((30, 40))
            await c.copy(small)
            await asyncio.gather(c.transpose(shared), c.transpose(small), c.transpose(large))

    small, large = np.ones((30, 40), "f4"), np.ones((1500, 1600), "u1")
    rng, timer, n_canceled = random.Random(seed), Timer(signal.SIGALRM), 0
    before = signal.signal(signal.SIGALRM, handler)
    try:
        asyncio.run(main())
        start = time.monotonic()
        asyncio.run(main())
        seconds = time.monotonic() - start
        gc.collect()
        held = left()
        for _ in range(share(1000)):
            timer.set(rng.random() * seconds)
            try:
                asyncio.run(main())
            except asyncio.CancelledError:
                n_canceled += 1
    finally:
        timer.delete()
        signal.signal(signal.SIGALRM, before)
    task = None  # the traceback of the task keeps the last client alive
    gc.collect()
    wait_until(lambda: is_within(left(), held), f"{left()} is {held}")
    assert n_canceled

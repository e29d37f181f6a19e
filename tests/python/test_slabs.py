# SPDX-License-Identifier: Apache-2.0
"""Tests small shared arrays, which share regions: where they are, how long they keep their memory, and when it may be
reused."""
import asyncio
import contextlib
import gc
import os
import resource
import signal
import threading
import weakref

import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
import tmaclient.aio
from tmad import Tmad, share, wait_until

MIB = 1 << 20


def address(x):
    return x.__array_interface__["data"][0]


def descriptors():
    return len(os.listdir("/proc/self/fd"))


@contextlib.contextmanager
def room_for(n):
    """Limits this process to n more descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(map(int, os.listdir("/proc/self/fd"))) + 1 + n
    null = os.open("/dev/null", os.O_RDONLY)
    fill = [null]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                fill.append(os.dup(null))
        for _ in range(n):
            os.close(fill.pop())
        yield limit
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in fill:
            os.close(fd)


class Stopped:
    """Stops the tmad with SIGSTOP for the duration of a block."""

    def __init__(self, daemon):
        self.pid = daemon.pid

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGCONT)


# ---- Descriptors and regions -----------------------------------------------------------------------------
def test_results_outnumber_descriptors(tmad):
    with tma.connect(tmad.path) as c:
        x = c.empty((32, 32), "f4")
        x[...] = np.arange(1024).reshape(32, 32)
        with room_for(40):
            results = [c.transform(x, permute=(1, 0)) for _ in range(2000)]
            made = [c.empty(1000, "u1") for _ in range(2000)]
        assert all(np.array_equal(r, x.T) for r in results) and not any(m.any() for m in made)
        assert len({address(a) for a in (x, *results, *made)}) == 4001
        assert len(c.regions()) < 20
        assert all(c._core.is_shared(tma.Tensor(a)) for a in (x, *results, *made))


def test_the_limit_is_named(c):
    with room_for(4) as limit:
        held = []
        with pytest.raises(tma.NoMemoryError, match=f"RLIMIT_NOFILE of this process is {limit}.*ulimit -n"):
            while len(held) < 100:
                held.append(c.empty(MIB, "u1"))
        with pytest.raises(tma.NoMemoryError, match=f"RLIMIT_NOFILE of this process is {limit},"):
            while True:
                held.append(c.empty(65536, "u1"))
    assert c.empty(MIB, "u1").size == MIB


def test_slabs_end_with_their_arrays(tmad):
    gc.collect()
    before = descriptors()
    with tma.connect(tmad.path) as c:
        inside = descriptors()
        held = [c.empty(n, "u1") for n in (1, 100, 4000, 5000, 70000, MIB - 1) for _ in range(50)]
        views = [a[:1] for a in held]
        n = len(c.regions())
        assert 2 <= n < 60
        del held
        assert len(c.regions()) == n
        del views
        wait_until(lambda: c.regions() == [] and descriptors() == inside, "no slab is left")
    wait_until(lambda: descriptors() == before, "nor a descriptor")


def test_alignment_and_sizes(c):
    held = []
    for n in (0, 1, 63, 64, 65, 4095, 4096, 4097, 65536, MIB - 1, MIB, MIB + 1):
        x = c.empty(n, "u1")
        assert x.shape == (n,) and address(x) % (4096 if n >= 4096 else 64) == 0, n
        assert c._core.is_shared(tma.Tensor(x))
        held.append(x)
    sizes = sorted(r["size"] for r in c.regions())
    assert sizes.count(MIB) >= 1 and sizes.count(MIB + 1) == 1, "large arrays have regions of their own"


def test_many_sizes(c, seed):
    """Arrays do not overlap, keep their contents, and are zeroed at first."""
    rng = np.random.default_rng(seed)
    held = []
    for i in range(share(20000)):
        if held and rng.random() < 0.49:
            k = int(rng.integers(len(held)))
            held[k], held[-1] = held[-1], held[k]
            x, value = held.pop()
            assert (x == value).all(), f"seed {seed}, step {i}"
            del x
            continue
        x = c.empty(int(2 ** rng.uniform(0, 19)), "u1")
        assert not x.any(), f"seed {seed}, step {i}"
        x[...] = i % 255 + 1
        held.append((x, i % 255 + 1))
    spans = sorted((address(x), address(x) + x.size) for x, _ in held)
    assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:]))
    assert all((x == value).all() for x, value in held)


def test_of_many_threads(c):
    errors = []

    def work(number):
        rng, held = np.random.default_rng(number), []
        try:
            for _ in range(share(3000)):
                x = c.empty(int(2 ** rng.uniform(0, 17)), "u1")
                assert not x.any()
                x[...] = number
                held.append(x)
                if len(held) > 30:
                    k = int(rng.integers(len(held)))
                    assert (held.pop(k) == number).all()
            y = c.copy(held[0])
            assert (y == number).all()
        except BaseException as e:
            errors.append(e)
            raise

    threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_finalizers_that_allocate(c):
    """A finalizer that runs within the allocation of an array frees arrays and makes new ones."""
    made = []

    class Owner:
        def __init__(self):
            self.array, self.cycle = c.empty(3000, "u1"), self

    def again():
        made.append(c.empty(3000, "u1"))
        del made[:-3]

    before = gc.get_threshold()
    gc.set_threshold(5)
    try:
        for _ in range(share(3000)):
            weakref.finalize(Owner(), again)
            c.empty(100, "u1")
    finally:
        gc.set_threshold(*before)
    gc.collect()
    made.clear()
    wait_until(lambda: c.regions() == [], "no slab is left")


def test_a_quota_leaves_room_for_small_arrays():
    """If the quota has no room for a slab, it may still have room for a single array."""
    with Tmad("--mapped-bytes-per-uid=256K", engine="cpu") as tmad, tma.connect(tmad.path) as c:
        held = []
        with pytest.raises(tma.QuotaError, match="mapped_bytes_per_uid"):
            while True:
                held.append(c.empty(4096, "u1"))
        assert len(held) == 64
        with pytest.raises(tma.QuotaError, match="100000 more requested"):
            c.empty(100000, "u1")
        held.pop()
        held.append(c.empty(4096, "u1"))


# ---- Memory that may still be somebody's -----------------------------------------------------------------
def reuse(c, n=4096):
    """Returns the addresses of new arrays, which are so many that they use all free memory of the slabs."""
    held = [c.empty(n, "u1") for _ in range(40)]
    return {address(x) for x in held}


def pair(c):
    """Returns an array that keeps its slab alive, and one behind it, whose memory would be used next if it were
    freed."""
    keeper, x = c.empty(4096, "u1"), c.empty(4096, "u1")
    assert address(x) - address(keeper) == 4096
    return keeper, x


def test_freed_memory_is_used_again(c):
    keeper, x = pair(c)
    at = address(x)
    del x
    assert at in reuse(c)


def test_while_a_request_is_under_way(c):
    t = c.timeline()
    keeper, x = pair(c)
    at = address(x)
    request = tma._core.Request.transform(tma.Tensor(x), tma.Tensor(keeper), None, None, None, "constant", 0)
    ticket = c._core.submit(request, None, wait=t.point(1).parts())
    del request, x
    gc.collect()
    assert at not in reuse(c)
    c._core.forget(ticket)  # nobody knows when x is free, so its slab gives out no more memory
    assert at not in reuse(c)
    keeper[...] = 5
    t.signal(1)
    assert at not in reuse(c)


def test_after_canceled_tasks(tmad, seed):
    """The service may have begun with the request of a task when the task is canceled."""
    rng = np.random.default_rng(seed)

    async def main():
        async with tma.aio.connect(tmad.path) as c:
            src = await c.empty((400, 500), "f4")
            src[...] = 7
            for _ in range(share(500)):
                out = await c.empty((500, 400), "f4")
                task = asyncio.create_task(c.transpose(src, out=out))
                await asyncio.sleep(float(rng.choice([0, 0, 1e-4, 3e-4])))
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                del out, task
                other = await c.empty((500, 400), "f4")
                other[...] = 3
                await c.ping()
                assert (other == 3).all()
                del other

    asyncio.run(main())


def test_after_a_lost_connection(own):
    """The service may go on with a request after its caller has timed out."""
    with tma.connect(own.path, timeout=0.3) as c:
        keeper, x = pair(c)
        keeper[...] = 7
        at = address(x)
        with Stopped(own), pytest.raises(tma.NoReplyError):
            c.copy(keeper, out=x)
        del x
        wait_until(lambda: attempt(c.ping), "connected again")
        assert at not in reuse(c)
        out = c.empty(4096, "u1")
        assert (c.copy(keeper, out=out) == 7).all(), "what is in the old slab is moved all the same"


def attempt(call):
    try:
        call()
    except tma.Error:
        return False
    return True


def test_after_an_interrupt(own):
    with tma.connect(own.path) as c:
        keeper, x = pair(c)
        at = address(x)
        with Stopped(own):
            timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                c.copy(keeper, out=x)
            timer.join()
        del x
        assert at not in reuse(c)


def test_after_a_fork(c):
    """A forked child keeps the arrays that its parent had, whatever the parent does with them afterwards."""
    keeper, x = pair(c)
    x[...] = 7
    at = address(x)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(write)
            os.read(read, 1)  # waits until the parent has closed its end of the pipe
            os._exit(0 if (x == 7).all() else 1)
        finally:
            os._exit(2)
    try:
        del x
        held = [c.empty(4096, "u1") for _ in range(40)]
        for a in held:
            a[...] = 9
        is_reused = at in map(address, held)
    finally:
        os.close(write)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.close(read)
    assert status == 0 and not is_reused


def test_a_child_leaves_its_parents_slabs(c):
    keeper, x = pair(c)
    x[...] = 7
    child = os.fork()
    if child == 0:
        try:
            del x, keeper
            gc.collect()
            os._exit(0)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (x == 7).all() and np.array_equal(c.copy(x), x)


def test_registered_by_another_client(tmad, c):
    keeper, x = pair(c)
    at = address(x)
    with tma.connect(tmad.path) as other:
        region = other.register(x)
        assert np.array_equal(other.copy(x), x)
        region.release()
    del x, region
    assert at not in reuse(c)


def test_arrays_outlive_their_client(tmad):
    c = tma.connect(tmad.path)
    held = [c.empty(1000, "u2") for _ in range(10)]
    for i, x in enumerate(held):
        x[...] = i
    c.close()
    del c
    gc.collect()
    assert all((x == i).all() for i, x in enumerate(held))
    del held[3:5], x
    gc.collect()
    assert all((x == i).all() for i, x in enumerate(held[:3]))

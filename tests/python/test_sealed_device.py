# SPDX-License-Identifier: Apache-2.0
"""Tests a service with a GPU, on the stand-in driver, that does not trust the user: memory that the client makes is
sealed, and the service refuses shared memory that it cannot seal, which is then staged."""
import asyncio
import ctypes
import gc
import mmap
import os
import signal
from multiprocessing import shared_memory

import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
import tmaclient.aio
import softgpu
from softgpu import Array
from tmad import Tmad, engines, share, wait_until

softgpu.require()

KIB = 1 << 10
REFUSED = "fd: a device cannot use the file"
X = np.arange(64 * 48, dtype="f4").reshape(64, 48)
INDEX = [9, 0, 63, 17]


@pytest.fixture(scope="module", autouse=True)
def stand_in():
    softgpu.driver()


@pytest.fixture(scope="module")
def tmad():
    with Tmad("--trust-own-uid=off", engine="cuda") as daemon:
        yield daemon


@pytest.fixture
def mine():
    """A tmad for one test, which may kill it and start it again."""
    daemon = Tmad("--trust-own-uid=off", engine="cuda")
    yield daemon
    daemon.stop()


@pytest.fixture
def device():
    made = softgpu.Device(0)
    yield made
    made.free()


# ---- Files that cannot be sealed -------------------------------------------------------------------------
SIZE = 256 * KIB


def shared_memory_():
    shm = shared_memory.SharedMemory(create=True, size=SIZE)
    shm.unlink()
    return np.frombuffer(shm.buf, "u1", SIZE), shm.close


def file_of_tmpfs():
    path = f"/dev/shm/tmaclient-test-{os.getpid()}"
    mapped = np.memmap(path, "u1", "w+", shape=SIZE)
    os.unlink(path)
    return mapped, mapped._mmap.close


def memfd(flags=0):
    fd = os.memfd_create("test", os.MFD_CLOEXEC | flags)
    os.truncate(fd, SIZE)
    mapped = mmap.mmap(fd, SIZE)
    os.close(fd)  # the mmap has a duplicate of the descriptor
    return np.frombuffer(mapped, "u1"), mapped.close


def tensor_of_torch():
    torch = pytest.importorskip("torch")
    return torch.zeros(SIZE, dtype=torch.uint8).share_memory_().numpy(), lambda: None


FILES = [shared_memory_, file_of_tmpfs, memfd, tensor_of_torch]


@pytest.mark.parametrize("make", FILES)
def test_are_refused_by_register(tmad, c, make):
    async def wait_for(array):
        async with tma.aio.connect(tmad.path) as client:
            await client.register(array)

    array, close = make()
    for refused in (array, array[1:100:3], array[KIB:].view("f4")[::-1]):
        for register in (c.register, lambda a: c.register(a, readonly=True), lambda a: asyncio.run(wait_for(a))):
            with pytest.raises(tma.UnsupportedError) as e:
                register(refused)
            assert str(e.value).startswith(REFUSED), "as it came: the remedy is in it"
    assert c.regions() == []
    del array, refused, e
    gc.collect()
    close()


def test_a_descriptor_that_is_open_for_reading_is_refused(c):
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(fd, SIZE)
    mapped = mmap.mmap(fd, SIZE, prot=mmap.PROT_READ)
    os.close(fd)
    with pytest.raises(tma.Error):
        c.register(np.frombuffer(mapped, "u1"))
    assert c.regions() == []


def test_a_memfd_that_can_be_sealed_is_registered(c):
    array, close = memfd(os.MFD_ALLOW_SEALING)
    x, out = (array[at:at + X.nbytes].view("f4").reshape(shape) for at, shape in ((0, X.shape), (KIB * 64, X.T.shape)))
    x[...] = X
    region = c.register(array)
    c.transpose(x, out=out)
    assert np.array_equal(out, X.T) and not c._staging._kept
    region.release()
    del array, x, out
    close()


class Arena:
    """Makes arrays in a file that the service refuses: dense ones, or views with gaps between their elements."""

    def __init__(self, c, make, is_dense):
        self.memory, self.at, self.step = make()[0], 0, 1 if is_dense else 2
        with pytest.raises(tma.UnsupportedError):
            c.register(self.memory)

    def __call__(self, shape, dtype="f4"):
        whole = (*shape[:-1], shape[-1] * self.step)
        n = int(np.prod(whole)) * np.dtype(dtype).itemsize
        made = self.memory[self.at:self.at + n].view(dtype).reshape(whole)[..., ::-self.step if self.step > 1 else 1]
        self.at += -(-n // 64) * 64
        assert self.at <= SIZE
        return made

    def of(self, values):
        made = self(values.shape, values.dtype)
        made[...] = values
        return made


# Each of these calls a client with new arrays of an arena, and returns the result and the expected one.
def copy(c, a):
    return lambda x, out: c.copy(x, out=out), lambda: (a.of(X), a(X.shape)), X


def transpose(c, a):
    return lambda x, out: c.transpose(x, out=out), lambda: (a.of(X), a(X.T.shape)), X.T


def pad(c, a):
    return (lambda x, out: c.pad(x, 1, "reflect", out=out), lambda: (a.of(X), a((66, 50))), np.pad(X, 1, "reflect"))


def convert(c, a):
    return (lambda x, s, out: c.transform(x, permute=(1, 0), out=out, cast="saturate", scale=s),
            lambda: (a.of(X), a.of(np.full((48, 1), 0.5, "f4")), a(X.T.shape, "f2")), (X.T * 0.5).astype("f2"))


def gather(c, a):
    return lambda x, out: c.gather(x, INDEX, out=out), lambda: (a.of(X), a((4, 48))), X[INDEX]


def gather_layers(c, a):
    return (lambda x, y, out: c.gather([x, y], INDEX, out=out), lambda: (a.of(X), a.of(-X), a((2, 4, 48))),
            np.stack([X[INDEX], -X[INDEX]]))


def scatter(c, a):
    scattered = np.zeros_like(X)
    scattered[INDEX] = X[:4]
    return (lambda x, out: c.scatter(out, INDEX, x), lambda: (a.of(X[:4]), a.of(np.zeros_like(X))), scattered)


def multicast(c, a):
    return lambda x, y, out: c.multicast(x, [y, out]), lambda: (a.of(X), a(X.shape), a(X.shape)), X


def reshard(c, a):
    return (lambda x, y, out: c.reshard(tma.shards([out], axis=0), tma.shards([x, y], axis=0)),
            lambda: (a.of(X[:32]), a.of(X[32:]), a(X.shape)), X)


def quantize(c, a):
    data = np.where(X.astype("i4") % 2, 448, -448).astype("f4").reshape(X.shape)
    return (lambda x, scale, out: c.quantize(x, 16, dtype="float16", out=out, scale_out=scale),
            lambda: (a.of(data), a((64, 3)), a(X.shape, "f2")), np.sign(data) * 65504)


CALLS = [copy, transpose, pad, convert, gather, gather_layers, scatter, multicast, reshard, quantize]


@pytest.mark.parametrize("is_dense", [True, False], ids=["dense", "with gaps"])
@pytest.mark.parametrize("call", CALLS)
def test_are_staged(c, call, is_dense):
    for make in (file_of_tmpfs, memfd):  # a SharedMemory cannot be closed while it has arrays
        run, arrays, expected = call(c, Arena(c, make, is_dense))
        for _ in range(2):
            *given, out = arrays()
            run(*given, out)
            assert np.array_equal(out, expected), make.__name__


@pytest.mark.parametrize("call", CALLS)
def test_are_staged_on_a_loop(tmad, c, call):
    async def main():
        async with tma.aio.connect(tmad.path) as client:
            run, arrays, expected = call(client, Arena(c, file_of_tmpfs, False))
            every = [arrays() for _ in range(3)]
            await asyncio.gather(*(run(*each) for each in every))
            assert all(np.array_equal(out, expected) for *_, out in every)

    asyncio.run(main())


def test_are_staged_in_a_batch_and_by_a_plan(tmad, c):
    async def main():
        async with tma.aio.connect(tmad.path) as client:
            y, out = a(X.shape), a(X.T.shape)
            async with client.batch() as b:
                b.copy(x, out=y)
                b.transpose(shared, out=out)
            assert np.array_equal(y, X) and np.array_equal(out, X.T)

    a = Arena(c, file_of_tmpfs, False)
    x, y, out = a.of(X), a(X.shape), a(X.T.shape)
    shared = c.empty(X.shape, "f4")
    shared[...] = X
    with c.batch() as b:
        b.copy(x, out=y)
        b.transpose(shared, out=out)
    assert np.array_equal(y, X) and np.array_equal(out, X.T)
    plan, out = c.plan(x, permute=(1, 0), out=out), a(X.T.shape)
    plan(y, out)
    assert np.array_equal(out, X.T)
    asyncio.run(main())


def test_are_staged_to_and_from_a_device(c, device):
    a = Arena(c, file_of_tmpfs, False)
    there, turned = device.array(np.zeros_like(X)), device.array(np.zeros_like(X.T))
    c.copy(a.of(X), out=there)
    c.transpose(there, out=turned)
    back, some = a(X.T.shape), a((4, 48))
    c.copy(turned, out=back)
    c.gather(there, INDEX, out=some)
    assert np.array_equal(back, X.T) and np.array_equal(some, X[INDEX])


# ---- What the service has sealed -------------------------------------------------------------------------
class Pins:
    """Keeps pages in use as a driver that has pinned them does, whatever this process maps at their address. The
    stand-in driver does not do that itself."""

    def __init__(self):
        self._libc = ctypes.CDLL(None)
        self._libc.mremap.restype = ctypes.c_void_p
        self._libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
        self._known, self._made = self._mapped(), []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for start, size in self._made:
            self._libc.munmap(ctypes.c_void_p(start), ctypes.c_size_t(size))

    def _mapped(self):
        """Returns the sizes of the mappings of the library's memfds, by address."""
        with open("/proc/self/maps", encoding="ascii") as maps:
            lines = [line.split()[0].split("-") for line in maps if "/memfd:tmad" in line]
        return {int(start, 16): int(end, 16) - int(start, 16) for start, end in lines}

    def words(self):
        """Pins the memory that is mapped for the first time, which has the words of streams."""
        mapped = self._mapped().items()
        ((start, size),) = ((start, size) for start, size in mapped if start not in self._known and size == 64 * KIB)
        again = self._libc.mremap(start, 0, size, 1)  # MREMAP_MAYMOVE; it maps the same pages again
        assert again != ctypes.c_void_p(-1).value
        self._made.append((again, size))
        self._known |= {start: size, again: size}


def test_arrays_and_streams_come_along_to_the_next_service(mine, device):
    """Shared arrays are moved to the next service. The words of streams, which the driver has pinned, are replaced by
    others."""
    with tma.connect(mine.path, reconnect=20, direct=False) as c:
        x, timeline = c.empty(X.shape, "f4"), c.timeline()
        x[...] = X
        there, turned = device.array(np.zeros_like(X)), device.array(np.zeros_like(X.T))
        with Pins() as pins:
            c.copy(x, out=there, synchronous=True)
            pins.words()
            for i in range(share(20)):
                c.copy(x, signal=timeline.point(i + 1))
                mine.kill()
                mine.start()
                if i % 2:
                    c.ping()
                c.transpose(there, out=turned, synchronous=True)
                pins.words()
                assert np.array_equal(turned.get(), x.T) and timeline.value == i + 1
                x[...] = X + i
                c.copy(x, out=there, synchronous=True)
                assert np.array_equal(c.transpose(x), (X + i).T)


def test_come_along_on_a_loop(mine, device):
    async def main():
        async with tma.aio.connect(mine.path, reconnect=20) as c:
            x = await c.empty(X.shape, "f4")
            x[...] = X
            there = device.array(np.zeros_like(X))
            with Pins() as pins:
                await c.copy(x, out=there)
                pins.words()
                for i in range(share(10)):
                    mine.kill()
                    mine.start()
                    x[...] = X + i
                    await c.copy(x, out=there)
                    pins.words()
                    assert np.array_equal(there.get(), X + i) and np.array_equal(await c.transpose(x), (X + i).T)

    asyncio.run(main())


def test_a_stream_that_waits_goes_on_after_the_service(mine, device):
    """A stream that still waits for a word of the old service goes on, while another one has new words."""
    other = softgpu.Stream()
    with tma.connect(mine.path, reconnect=20, direct=False) as c, Pins() as pins:
        src, dst = device.array(X), device.array(np.zeros_like(X))
        there, back = (Array(array.address, X.shape, "f4", other) for array in (device.array(X), device.array(X)))
        c.copy(there, out=back, synchronous=True)
        pins.words()
        for i in range(share(10)):
            back.put(np.zeros_like(X))
            first = c.timeline()
            first.wait(1, stream=device.stream.handle)
            try:
                for _ in range(3):
                    c.copy(src, out=dst)
                mine.kill()
                mine.start()
                c.ping()
                with pytest.raises(tma.DisconnectedError, match="an earlier request in a stream failed"):
                    c.synchronize()
                c.copy(there, out=back, synchronous=True)
                pins.words()
                assert np.array_equal(back.get(), X), i
            finally:
                first.signal(1)
            device.stream.wait_all()
            c.copy(src, out=dst, synchronous=True)
            assert np.array_equal(dst.get(), X), i
    other.close()


def test_a_timeline_that_is_pinned_is_lost(mine, device):
    with tma.connect(mine.path, reconnect=20, direct=False) as c:
        x = c.empty(X.shape, "f4")
        timeline, unused = c.timeline(), c.timeline()
        c.copy(x, signal=timeline.point(1))
        assert timeline.wait(1, stream=device.stream.handle) and unused.wait(0, stream=device.stream.handle)
        mine.kill()
        mine.start()
        with pytest.raises(tma.NotFoundError, match="make another region"):
            c.ping()
        with pytest.raises(tma.NotFoundError, match="make another region"):
            c.copy(x, signal=timeline.point(2))
        timeline.signal(2)
        assert timeline.wait(2, stream=device.stream.handle), "the program has it still"
        device.stream.wait_all()
        c.copy(x, signal=unused.point(1))
        c.copy(x, signal=c.timeline().point(1))


# ---- The next process of a device ------------------------------------------------------------------------
def test_arrays_come_along_when_devices_are_lost():
    devices = 3
    with Tmad("--trust-own-uid=off", "--restart-pause-ms=0", engine="cuda",
              env={"SOFTGPU_DEVICES": str(devices)}) as daemon, tma.Client(daemon.path) as c:
        shared = c.empty(X.shape, "f4")
        shared[...] = X
        for _ in range(3):
            assert np.array_equal(c.transpose(shared, (1, 0)), X.T)
            assert np.array_equal(c.transpose(X, (1, 0)), X.T)
            before = daemon.log().count("is back")
            for engine in engines(daemon.pid):
                os.kill(engine, signal.SIGKILL)
            wait_until(lambda: daemon.log().count("is back") == before + devices, "the devices are back")
        assert np.array_equal(c.transpose(shared, (1, 0)), X.T)

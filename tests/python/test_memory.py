# SPDX-License-Identifier: Apache-2.0
"""Tests shared memory that is made, registered and released, and the amount that staging takes."""
import ctypes
import gc
import mmap
import os
import threading
from multiprocessing import shared_memory

import pytest

np = pytest.importorskip("numpy")

import arrays
import tmaclient as tma
from tmad import has_memory, wait_until


@pytest.mark.parametrize("make", ["empty", "zeros"])
def test_made(c, make):
    make = getattr(c, make)
    for dtype in arrays.dtypes():
        x = make((3, 4), dtype)
        assert x.shape == (3, 4) and x.dtype == dtype and x.flags.c_contiguous and x.flags.writeable
        assert not any(x.tobytes())
    assert make(5).shape == (5,) and make(np.int64(5)).shape == (5,) and make([2, 0]).size == 0
    assert make(()).shape == () and make(2, float).dtype == np.float64 and make(2, "f4").dtype == np.float32
    x = make((100, 100), "i4")
    assert c._core.is_shared(tma.Tensor(x[3:, ::-2].T)) and c.copy(x[::-1]).shape == (100, 100)
    assert not c._staging._kept


def in_place(c, x):
    """Returns whether the service moves an array without staging."""
    wanted = np.array(x.T)
    out = c.empty(wanted.shape, x.dtype)
    c._staging._kept.clear()
    c.transpose(x, out=out)
    assert np.array_equal(out, wanted)
    return not c._staging._kept


def test_shared_memory(c):
    shm = shared_memory.SharedMemory(create=True, size=1 << 16)
    try:
        x = np.frombuffer(shm.buf, "u2", 10000).reshape(100, 100)
        x[...] = np.arange(10000).reshape(100, 100)
        assert not in_place(c, x)
        region = c.register(x)
        assert region.kind == "memfd" and region.size == 20000 and region.address == tma.Tensor(x).data
        assert in_place(c, x) and in_place(c, x[3:50, ::-1])
        assert bytes(memoryview(region)[:4]) == x.tobytes()[:4]
        c.copy(c.copy(x) + 1, out=x)
        assert x[0, 0] == 1 and shm.buf[0] == 1
        view = memoryview(region)
        region.release()
        region.release()
        assert region.kind == "released" and view[0] == 1 and not c._core.is_shared(tma.Tensor(x))
        for call in (lambda: memoryview(region), lambda: region.tensor(0, "int8", (1,), (1,))):
            with pytest.raises((BufferError, ValueError)):
                call()
        del view, x, region
        gc.collect()
    finally:
        shm.close()
        shm.unlink()


def test_registered_memory_stays_while_it_is(c):
    shm = shared_memory.SharedMemory(create=True, size=1 << 16)
    x = np.frombuffer(shm.buf, "u1")
    region = c.register(x)
    del x
    with pytest.raises(BufferError):
        shm.close()
    region.release()
    shm.close()
    shm.unlink()


def test_memory_of_an_array_stays_while_it_is(c):
    """The memory of a registered array stays mapped, though np.ndarray drops its buffer and a view's base is another
    array."""
    shm = shared_memory.SharedMemory(create=True, size=1 << 16)
    path = f"/dev/shm/tmaclient-test-{os.getpid()}"
    mapped = np.memmap(path, "u1", "w+", shape=1 << 16)
    os.unlink(path)
    for close, x in ((shm.close, np.ndarray(shm.buf.nbytes, "u1", shm.buf)), (mapped._mmap.close, mapped)):
        region = c.register(memoryview(x[64:].view("u4").reshape(2, -1)[::-1]))
        with pytest.raises(BufferError):
            close()
        assert in_place(c, x[64:])
        region.release()
        del x
    mapped._mmap.close()
    shm.close()
    shm.unlink()


def test_what_lies_there_now_is_no_registered_memory(c):
    """If other memory is mapped at the address of a registered array, that is not taken for the registered memory."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, *[ctypes.c_size_t] * 5]

    def map_at(address, fd):
        fixed = mmap.MAP_ANONYMOUS if fd < 0 else 0
        flags = mmap.MAP_SHARED | (0x10 if address else 0) | fixed
        return libc.mmap(address, 1 << 16, mmap.PROT_READ | mmap.PROT_WRITE, flags, fd & 0xFFFFFFFF, 0)

    fd = os.memfd_create("same")
    os.ftruncate(fd, 1 << 16)
    address = map_at(None, fd)
    for replacement in (-1, os.memfd_create("same")):
        x = np.frombuffer((ctypes.c_float * (1 << 14)).from_address(address), "f4").reshape(128, 128)
        x[...] = 7
        region = c.register(x)
        assert in_place(c, x)
        if replacement >= 0:
            os.ftruncate(replacement, 1 << 16)
        assert map_at(address, replacement) == address
        x[...] = np.arange(1 << 14).reshape(128, 128)
        assert not in_place(c, x) and np.array_equal(c.transpose(x), x.T)
        c.copy(np.full_like(x, 3), out=x)
        assert (x == 3).all()
        region.release()
        assert map_at(address, fd) == address
        if replacement >= 0:
            os.close(replacement)
    os.close(fd)


def test_memmaps(c, tmp_path):
    path = f"/dev/shm/tmaclient-test-{os.getpid()}"
    with open(path, "wb") as file:
        file.write(os.urandom(1 << 16))
    try:
        for mode, readonly in (("r+", False), ("r", True)):
            x = np.memmap(path, "u4", mode).reshape(128, 128)
            region = c.register(x, readonly=readonly)
            assert in_place(c, x)
            if readonly:
                with pytest.raises(ValueError, match="read-only"):
                    c.copy(np.zeros((128, 128), "u4"), out=x)
            region.release()
        with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as map_:
            t = tma.Tensor(map_)
            region = c.register(map_)
            assert region.size == 1 << 16 and c._core.is_shared(t)
            region.release()
            del t, region
    finally:
        os.unlink(path)
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(4096))
    with pytest.raises((tma.InvalidArgumentError, tma.UnsupportedError)):
        c.register(np.memmap(disk, "u1", "r+"))


@pytest.mark.parametrize("make", [lambda: np.zeros(1 << 16), lambda: bytearray(100), lambda: mmap.mmap(-1, 4096),
                                  lambda: mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)])
def test_anonymous_memory_is_refused(c, make):
    with pytest.raises((tma.UnsupportedError, tma.InvalidArgumentError)) as e:
        region = c.register(make())
        assert region.kind == "memfd"  # Python's shared anonymous mapping is a file in memory to the kernel
        region.release()
        raise tma.UnsupportedError("empty() this test")
    assert "empty()" in str(e.value), e.value


def test_staging_is_bounded(tmad):
    if not has_memory(2 << 30):
        pytest.skip("not enough memory")
    limit = 8 << 20
    with tma.connect(tmad.path, staging=limit) as c:
        x = np.arange(64 << 20, dtype="u8").reshape(8192, 8192)  # the array has 512 MiB
        out = np.empty_like(x)
        out[...] = 0
        mapped, resident, stop = [], [], threading.Event()
        watcher = tma.connect(tmad.path)

        def watch():
            while not stop.wait(0.005):
                mapped.append(watcher.stats()["mapped_bytes"])
                with open("/proc/self/statm", encoding="ascii") as statm:
                    resident.append(int(statm.read().split()[1]) * mmap.PAGESIZE)

        with open("/proc/self/statm", encoding="ascii") as statm:
            before = int(statm.read().split()[1]) * mmap.PAGESIZE
        theirs = watcher.stats()["mapped_bytes"]
        thread = threading.Thread(target=watch)
        thread.start()
        c.transpose(x, out=out)
        stop.set()
        thread.join()
        watcher.close()
        assert np.array_equal(out[:100], x.T[:100]) and np.array_equal(out[-1], x.T[-1])
        assert max(mapped) - theirs <= limit and len(mapped) > 5
        assert max(resident) - before < 2 * limit + (32 << 20), "this process holds no copy"


@pytest.mark.parametrize("limit", [1, 4096, 65536, 1 << 20])
def test_wide_borders_are_bounded(tmad, limit):
    with tma.connect(tmad.path, staging=limit) as c:
        for mode in arrays.MODES:
            x = np.arange(3, dtype="u4")
            assert np.array_equal(c.pad(x, (300000, 200000), mode), arrays.pad(x, [(300000, 200000)], mode)), mode
            assert sum(r["size"] for r in c.regions()) <= max(limit, 4096)


def test_regions_that_nobody_holds(tmad):
    with tma.connect(tmad.path) as c:
        for _ in range(20):
            c._core.create(4096)
            c.timeline()
        gc.collect()
        wait_until(lambda: c.regions() == [], "released")
        c.register(shm := np.memmap(f"/dev/shm/tmaclient-test-{os.getpid()}", "u1", "w+", shape=4096))
        os.unlink(shm.filename)
        assert c.regions() == []

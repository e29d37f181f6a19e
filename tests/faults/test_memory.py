# SPDX-License-Identifier: Apache-2.0
"""Memory that is invalid or becomes invalid: typed errors, no fatal SIGBUS, no OOM kill.

Memory that a region had is gone, by truncation or because its file system is full. The job that meets it fails
alone.
"""
import contextlib
import fcntl
import mmap
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from raw import RawCase
from tmad import SEALS, Memory, RpcError, Tmad, share, tensor
import tap

MIB = 1 << 20
FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 1, 2
F_SEAL_FUTURE_WRITE = 0x10
SIDE = 1536  # larger than the part of a transform that is written past the cache
PICTURE = np.random.default_rng(3).integers(0, 1 << 32, (SIDE, SIDE), dtype=np.uint32)  # 9 MiB


def punch(fd, offset, size):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, ctypes.c_long(offset), ctypes.c_long(size))
    assert done == 0, os.strerror(ctypes.get_errno())


def transforms(a, b):
    """Yields transforms of the picture in a to b on several threads: method, parameters, expected result."""
    src = tensor(a, PICTURE.shape, "uint32")
    return (("copy", {"dst": tensor(b, PICTURE.shape, "uint32"), "src": src}, PICTURE),
            ("transpose", {"dst": tensor(b, PICTURE.shape, "uint32"), "src": src, "perm": [1, 0]}, PICTURE.T),
            ("pad", {"dst": tensor(b, [SIDE, SIDE], "uint32"), "src": src, "before": [3, -5], "after": [-3, 5],
                     "mode": "reflect"}, np.pad(PICTURE[:-3, 5:], [(3, 0), (0, 5)], mode="reflect")))


class Neighbour:
    """Another client, whose transforms have to be right all the while."""

    def __init__(self, tmad):
        self.tmad = tmad
        self.done = 0
        self.error = None
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        try:
            with self.tmad.rpc() as rpc, Memory(PICTURE.nbytes, data=PICTURE.tobytes()) as src, \
                    Memory(PICTURE.nbytes) as dst:
                requests = transforms(src.register(rpc), dst.register(rpc))
                while not self.stop.is_set() or self.done < 3:
                    method, params, expected = requests[self.done % 3]
                    dst[:16] = b"\x5a" * 16
                    rpc.call(method, params)
                    assert dst[:] == expected.tobytes(), f"the neighbour's {method} is wrong"
                    self.done += 1
        except Exception as error:  # for the test's thread
            self.error = error

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, value, trace):
        self.stop.set()
        self.thread.join()
        if self.error and kind is None:
            raise self.error


class InvalidMemory(RawCase):
    def sealed(self, size, seals):
        return self.memory(size, seals=SEALS | seals)

    def test_what_is_no_good(self):
        huge = os.memfd_create("huge", os.MFD_ALLOW_SEALING | os.MFD_HUGETLB)
        fcntl.fcntl(huge, fcntl.F_ADD_SEALS, SEALS)
        sparse = os.memfd_create("sparse", os.MFD_ALLOW_SEALING)
        os.ftruncate(sparse, 1 << 40)
        fcntl.fcntl(sparse, fcntl.F_ADD_SEALS, SEALS)
        short = self.memory(4096)
        read_only = os.open(f"/proc/self/fd/{short.fd}", os.O_RDONLY)
        write_only = os.open(f"/proc/self/fd/{short.fd}", os.O_WRONLY)
        future = os.memfd_create("future", os.MFD_ALLOW_SEALING)
        os.posix_fallocate(future, 0, 4096)
        fcntl.fcntl(future, fcntl.F_ADD_SEALS, SEALS | F_SEAL_FUTURE_WRITE)
        directory = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.addCleanup(directory.cleanup)
        file = os.open(os.path.join(directory.name, "file"), os.O_RDWR | os.O_CREAT)
        os.ftruncate(file, 4096)
        rows = (("holes of a tmpfs", "INVALID_ARGUMENT", file, {"size": 4096}),
                ("short of a tmpfs", "OUT_OF_RANGE", file, {"size": 4097}),
                ("short", "OUT_OF_RANGE", short.fd, {"size": 4097}),
                ("short by its offset", "OUT_OF_RANGE", short.fd, {"size": 4096, "offset": 1}),
                ("huge pages that there are not", "OUT_OF_RANGE", huge, {"size": 2 * MIB}),
                ("1 TiB", "QUOTA", sparse, {"size": 1 << 40}),
                ("a hole at the end of 1 TiB", "INVALID_ARGUMENT", sparse, {"size": MIB, "offset": (1 << 40) - MIB}),
                ("past 1 TiB", "OUT_OF_RANGE", sparse, {"size": 2, "offset": (1 << 40) - 1}),
                ("open for reading", "PERMISSION", read_only, {"size": 4096}),
                ("open for writing", "PERMISSION", write_only, {"size": 4096, "writable": False}),
                ("sealed against new writers", "PERMISSION", future, {"size": 4096}))
        try:
            for what, name, fd, params in rows:
                with self.subTest(what=what):
                    self.refused(name, "region_register", {"kind": "memfd", **params}, fds=[fd])
            os.pwrite(sparse, b"x" * 4096, (1 << 40) - 4096)
            for what, fd, params in (("the end of 1 TiB", sparse, {"size": 4096, "offset": (1 << 40) - 4096}),
                                     ("read only, to read", read_only, {"size": 4096, "writable": False}),
                                     ("no new writers, to read", future, {"size": 4096, "writable": False})):
                with self.subTest(what=what):
                    self.rpc.call("region_register", {"kind": "memfd", **params}, [fd])
        finally:
            for fd in (huge, sparse, read_only, write_only, future, file):
                os.close(fd)

    def test_a_destination_that_is_read_only(self):
        src, a = self.region(4096)
        dst = self.memory(4096)
        b = dst.register(self.rpc, writable=False)
        self.refused("PERMISSION", "copy", {"dst": tensor(b, [4096]), "src": tensor(a, [4096])}, ["read-only"])
        src[:4] = b"1234"
        self.assertEqual(dst[:], bytes(4096))

    def test_huge_pages_that_there_are_not(self):
        fd = os.memfd_create("huge", os.MFD_ALLOW_SEALING | os.MFD_HUGETLB)
        try:
            os.ftruncate(fd, 2 * MIB)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
            try:
                mmap.mmap(fd, 2 * MIB).close()
                self.skipTest("this machine has huge pages set aside")
            except OSError:
                self.refused("INVALID_ARGUMENT", "region_register", {"kind": "memfd", "size": 2 * MIB}, fds=[fd])
        finally:
            os.close(fd)

    def test_more_than_the_machine_has(self):
        """The quota allows a region larger than the machine's memory; no page is allocated for it."""
        with Tmad("--mapped-bytes-per-uid", str(1 << 42), "--created-bytes-per-uid", str(1 << 42)) as tmad, \
                tmad.rpc() as rpc:
            fd = os.memfd_create("sparse", os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, 1 << 40)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
            for method, params, fds, name in (
                    ("region_register", {"kind": "memfd", "size": 1 << 40}, [fd], "INVALID_ARGUMENT"),
                    ("region_create", {"size": 1 << 40}, [], "NO_MEMORY")):
                with self.subTest(method=method), self.assertRaises(RpcError) as caught:
                    rpc.call(method, params, fds)
                self.assertEqual(caught.exception.name, name, caught.exception.message)
            self.assertEqual(os.fstat(fd).st_blocks, 0)
            os.close(fd)
            self.assertEqual(rpc.call("stats")["mapped_bytes"], 0)

    def test_holes_during_transforms(self):
        """A transform that meets a hole fails alone and allocates no page."""
        src, a = self.region(PICTURE.nbytes, data=PICTURE.tobytes())
        dst, b = self.region(PICTURE.nbytes)
        requests = transforms(a, b)
        jobs, holes, failed = share(2000), 0, 0
        start_s = time.monotonic()
        with Neighbour(self.tmad) as neighbour:
            for i in range(jobs):
                method, params, _ = requests[i % 3]
                sent = self.rpc.request(method, params)
                for at in range(i % 8 * 4096, PICTURE.nbytes, MIB):
                    punch((src, dst)[i % 2].fd, at, 64 << 10)
                    holes += 1
                try:
                    self.rpc.reply(sent)
                except RpcError as error:
                    self.assertEqual(error.name, "DEVICE", error.message)
                    failed += 1
                if i % 4 == 3:
                    src[:] = PICTURE.tobytes()
                    dst[:] = bytes(PICTURE.nbytes)
        src[:] = PICTURE.tobytes()
        dst[:] = bytes(PICTURE.nbytes)
        for method, params, expected in requests:
            self.rpc.call(method, params)
            self.assertEqual(dst[:], expected.tobytes(), method)
        print(f"# {holes} holes during {jobs} transforms, of which {failed} failed, {neighbour.done} right ones of a neighbour, "
              f"{time.monotonic() - start_s:.1f} s", flush=True)
        if "no userfaultfd" not in self.tmad.log():
            self.assertGreater(failed, 0)


class LostMemory(unittest.TestCase):
    """Memory that disappears under a region."""

    @classmethod
    def setUpClass(cls):
        cls.tmad = Tmad("--threads", "3")
        cls.addClassCleanup(cls.tmad.stop)

    @contextlib.contextmanager
    def pair(self):
        with self.tmad.rpc() as rpc, Memory(PICTURE.nbytes, seals=0, data=PICTURE.tobytes()) as src, \
                Memory(PICTURE.nbytes, seals=0) as dst:
            yield rpc, src, dst, transforms(src.register(rpc), dst.register(rpc))

    def fails(self, rpc, method, params, name="DEVICE"):
        with self.assertRaises(RpcError) as caught:
            rpc.call(method, params)
        self.assertEqual(caught.exception.name, name, caught.exception.message)
        self.assertIs(rpc.call("ping"), True)

    def test_before_the_transform(self):
        """Covers source and destination, all of it or its end, on several threads and in the submitting thread."""
        with Neighbour(self.tmad) as neighbour:
            for which in (0, 1):
                for left in (0, PICTURE.nbytes // 2, PICTURE.nbytes - 16 * SIDE):  # 4 rows: the pad leaves 3 rows out
                    with self.pair() as (rpc, src, dst, requests):
                        os.ftruncate((src, dst)[which].fd, left)
                        for method, params, _ in requests:
                            with self.subTest(method=method, which=which, left=left):
                                self.fails(rpc, method, params)
                        small = {key: dict(requests[0][1][key], shape=[8], offset=PICTURE.nbytes - 32)
                                 for key in ("dst", "src")}
                        self.fails(rpc, "copy", small)
                        os.ftruncate((src, dst)[which].fd, PICTURE.nbytes)
                        src[:] = PICTURE.tobytes()
                        dst[:] = bytes(PICTURE.nbytes)
                        for method, params, expected in requests:
                            rpc.call(method, params)
                            self.assertEqual(dst[:], expected.tobytes(), "with its memory back it is right")
        print(f"# 24 transforms without memory, {neighbour.done} right ones of a neighbour", flush=True)

    def test_during_the_transform(self):
        jobs, names = share(1000), []
        with Neighbour(self.tmad) as neighbour:
            with self.pair() as (rpc, src, dst, requests):
                for i in range(jobs):
                    method, params, _ = requests[i % 3]
                    sent = rpc.request(method, params)
                    time.sleep(i % 10 * 0.0001)
                    os.ftruncate((src, dst)[i % 2].fd, i % 4 * MIB)
                    try:
                        rpc.reply(sent)
                        names.append("done")
                    except RpcError as error:
                        names.append(error.name)
                    os.ftruncate((src, dst)[i % 2].fd, PICTURE.nbytes)
        counts = {name: names.count(name) for name in sorted(set(names))}
        print(f"# {jobs} transforms whose memory goes: {counts}, {neighbour.done} right ones of a neighbour",
              flush=True)
        self.assertLessEqual(set(counts), {"done", "DEVICE"})
        self.assertIn("DEVICE", counts)

    def test_while_it_is_mapped(self):
        """The file loses its end before its pages are populated."""
        with self.tmad.rpc() as rpc:
            for i in range(share(200)):
                with Memory(PICTURE.nbytes, seals=0) as memory:
                    sent = rpc.request("region_register", {"kind": "memfd", "size": memory.size}, [memory.fd])
                    time.sleep(i % 10 * 0.0001)
                    os.ftruncate(memory.fd, 4096)
                    try:
                        rpc.call("region_release", {"region": rpc.reply(sent)["region"]})
                    except RpcError as error:
                        self.assertIn(error.name, ("NO_MEMORY", "OUT_OF_RANGE", "INVALID_ARGUMENT"), error.message)
            self.assertEqual(rpc.call("region_list"), [])

    def test_a_full_file_system(self):
        directory = tempfile.mkdtemp(prefix="tmad-full-")
        self.addCleanup(os.rmdir, directory)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={2 * PICTURE.nbytes}", "none", directory],
                                 capture_output=True, check=False)
        if mounted.returncode:
            self.skipTest("only root can mount a small tmpfs")
        self.addCleanup(subprocess.run, ["umount", "-l", directory], check=True)
        src, dst, rest = (os.open(os.path.join(directory, name), os.O_RDWR | os.O_CREAT) for name in "abc")
        try:
            for fd in (src, dst):
                os.posix_fallocate(fd, 0, PICTURE.nbytes)
            os.ftruncate(rest, MIB)
            with self.tmad.rpc() as rpc, Neighbour(self.tmad):
                regions = [rpc.call("region_register", {"kind": "memfd", "size": PICTURE.nbytes}, [fd])["region"]
                           for fd in (src, dst)]
                with self.assertRaises(RpcError) as caught:
                    rpc.call("region_register", {"kind": "memfd", "size": MIB}, [rest])
                self.assertEqual(caught.exception.name, "INVALID_ARGUMENT", caught.exception.message)
                for fd in (src, dst):
                    punch(fd, PICTURE.nbytes // 2, MIB)
                    os.pwrite(rest, bytes(MIB), 0)  # uses up the space that the hole freed
                    for method, params, _ in transforms(*regions):
                        with self.subTest(method=method):
                            self.fails(rpc, method, params)
                    os.ftruncate(rest, 0)
                    os.pwrite(src, PICTURE.tobytes(), 0)
                    os.pwrite(dst, PICTURE.tobytes(), 0)
                    for method, params, expected in transforms(*regions):
                        rpc.call(method, params)
                        self.assertEqual(os.pread(dst, PICTURE.nbytes, 0), expected.tobytes(), method)
        finally:
            for fd in (src, dst, rest):
                os.close(fd)


if __name__ == "__main__":
    if os.environ.get("EMULATOR"):
        print("1..0 # SKIP the shim is no emulator's")
    else:
        tap.main()

# SPDX-License-Identifier: Apache-2.0
"""Hugetlb memory of clients is served as it is, and none of its pages is allocated during a request: for a page of 1
GiB, that takes a quarter of a second, for which everybody would wait."""
import ctypes
import fcntl
import mmap
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from raw import RawCase
from tmad import ENGINE, SEALS, tensor, wait_until

PUNCH = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE


class Pool:
    """Provides at least one free page of a size, made for the test where possible."""

    def __init__(self, size):
        self.path = f"/sys/kernel/mm/hugepages/hugepages-{size >> 10}kB/"
        try:
            self.before = self._read("nr_hugepages")
            if self._read("free_hugepages") < 1:
                self._write(self.before + 1)
        except OSError as why:
            raise unittest.SkipTest(f"no pool of pages of {size >> 20} MiB: {why.strerror}") from None
        if self._read("free_hugepages") < 1:
            self.close()
            raise unittest.SkipTest(f"no page of {size >> 20} MiB to be had")

    def _read(self, name):
        with open(self.path + name, encoding="ascii") as file:
            return int(file.read())

    def _write(self, n):
        with open(self.path + "nr_hugepages", "w", encoding="ascii") as file:
            file.write(str(n))

    def close(self):
        if self._read("nr_hugepages") != self.before:
            self._write(self.before)


class Hugetlb(RawCase):
    def memfd(self, size, seals=SEALS):
        pool = Pool(size)
        self.addCleanup(pool.close)
        fd = os.memfd_create("hugetlb", os.MFD_ALLOW_SEALING | os.MFD_HUGETLB | (size.bit_length() - 1) << 26)
        self.addCleanup(os.close, fd)
        os.ftruncate(fd, size)
        if seals:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        return fd

    def fallocate(self, fd, mode, size):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.fallocate(fd, mode, ctypes.c_long(0), ctypes.c_long(size)) < 0:
            self.skipTest(f"the page cannot be had: {os.strerror(ctypes.get_errno())}")

    def check(self, size):
        fd = self.memfd(size)
        register = {"kind": "memfd", "size": size}
        if size > 2 << 20 and "no userfaultfd" in self.tmad.log():
            self.refused("UNSUPPORTED", "region_register", register, [f"pages have {size} bytes"], [fd])
            return
        self.refused("INVALID_ARGUMENT", "region_register", register, ["hole at byte 0"], [fd])
        self.fallocate(fd, 0, size)
        src, a = self.region(64, data=b"s" * 64)
        b = self.rpc.call("region_register", register, [fd])["region"]
        copy = {"dst": tensor(b, [64], offset=4096), "src": tensor(a, [64])}
        self.rpc.call("copy", copy)
        with mmap.mmap(fd, size) as mapped:
            self.assertEqual(mapped[4096:4160], src[:])
        if "no userfaultfd" in self.tmad.log():
            return
        self.fallocate(fd, PUNCH, size)
        self.refused("DEVICE", "copy", copy)
        for word in ("wait", "signal"):
            self.refused("DEVICE", "copy", {"dst": tensor(a, [8]), "src": tensor(a, [8], offset=8),
                                            word: {"region": b, "offset": 0, "value": 1}})
        self.assertEqual(os.fstat(fd).st_blocks, 0, "a page was made")
        self.fallocate(fd, 0, size)
        self.rpc.call("copy", copy)

    @unittest.skipIf(ENGINE != "cpu", "a device has pinned the pages")
    def test_pages_of_2_mib(self):
        self.check(2 << 20)

    @unittest.skipIf(ENGINE != "cpu", "a device has pinned the pages")
    def test_pages_of_1_gib(self):
        self.check(1 << 30)

    def check_shrinks(self, fd, size):
        """Uses a region that neither begins nor ends at a page boundary."""
        self.fallocate(fd, 0, size)
        register = {"kind": "memfd", "size": size - 200, "offset": 100}
        region = self.rpc.call("region_register", register, [fd])["region"]
        src, a = self.region(64, data=b"s" * 64)
        copy = {"dst": tensor(region, [64], offset=size - 264), "src": tensor(a, [64])}
        self.rpc.call("copy", copy)
        with mmap.mmap(fd, size) as mapped:
            self.assertEqual(mapped[size - 164:size - 100], src[:])
        os.ftruncate(fd, 0)
        self.refused("DEVICE", "copy", copy, [f"region {region} shrank to 0 bytes"])
        os.ftruncate(fd, size)
        self.fallocate(fd, 0, size)
        if ENGINE == "cuda":
            self.refused("DEVICE", "copy", copy, ["register it again"])
        else:
            self.rpc.call("copy", copy)
        self.rpc.call("region_release", {"region": region})

    def test_a_memfd_that_shrinks(self):
        self.check_shrinks(self.memfd(2 << 20, seals=0), 2 << 20)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to mount")
    def test_a_file_of_hugetlbfs(self):
        pool = Pool(2 << 20)
        self.addCleanup(pool.close)
        with tempfile.TemporaryDirectory() as directory:
            mounted = subprocess.run(["mount", "-t", "hugetlbfs", "-o", "pagesize=2M", "none", directory],
                                     stderr=subprocess.PIPE, text=True, check=False)
            if mounted.returncode != 0:
                self.skipTest(f"cannot mount: {mounted.stderr.strip()}")
            try:
                fd = os.open(os.path.join(directory, "file"), os.O_RDWR | os.O_CREAT)
                try:
                    os.ftruncate(fd, 2 << 20)
                    self.check_shrinks(fd, 2 << 20)
                finally:
                    os.close(fd)
            finally:
                wait_until(lambda: subprocess.run(["umount", directory], stderr=subprocess.DEVNULL,
                                                  check=False).returncode == 0, "it is unmounted")


if __name__ == "__main__":
    tap.main()

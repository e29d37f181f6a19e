# SPDX-License-Identifier: Apache-2.0
"""Files that are cut while a transform is under way: each request ends with an error or with the right bytes, and
nobody else notices.

A client's file in /dev/shm is one side of a transform, and is cut at a random moment: to nothing, to the middle or
within its last page, and may grow again at once. Meanwhile another client on a connection of its own moves and checks
its own memory. The process stays the same one.

What a file loses within a page and gets back at once are zeros in a page that is still its own: those are right, too.
"""
import mmap
import os
import random
import sys
import threading
import time
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import BUILD, ENGINE, GPU, NATIVE, Memory, RpcError, Tmad, share, tensor, wait_until

ROUNDS = 1000
SIDES = {"src": "dst", "dst": "src"}
BLOCK = 4096
HAS_SOFTGPU = os.environ.get("TEST_CUDA") != "no" and os.path.exists(os.path.join(BUILD, "tests/softgpu/lib/libcuda.so.1"))


class Way:
    """A transform of all of n x n int32: its request, and the expected bytes."""

    def __init__(self, n):
        self.n, self.size = n, 4 * n * n

    def method(self):
        return type(self).__name__.lower()

    def tensors(self, **regions):
        return {side: tensor(region, [self.size]) for side, region in regions.items()}

    def makes(self, data):
        return data


class Copy(Way):
    pass


class Transpose(Way):
    def tensors(self, **regions):
        square = {side: tensor(region, [self.n, self.n], "int32") for side, region in regions.items()}
        return {**square, "perm": [1, 0]}

    def makes(self, data):
        return np.frombuffer(data, "<i4").reshape(self.n, self.n).T.tobytes()


class Gather(Way):
    """A gather of blocks, the last one first."""

    def tensors(self, **regions):
        blocks = {side: tensor(region, [BLOCK]) for side, region in regions.items()}
        index = np.arange(self.size // BLOCK, dtype="<i4")[::-1]
        return {**blocks, "index_dtype": "int32", "index": index.tobytes(), "src_step": BLOCK, "dst_step": BLOCK}

    def makes(self, data):
        return np.frombuffer(data, "u1").reshape(-1, BLOCK)[::-1].tobytes()


def is_one_or_other(got, one, other):
    got, one, other = (np.frombuffer(each, "u1") for each in (got, one, other))
    return bool(np.all((got == one) | (got == other)))


class Neighbour:
    """Moves its own memory until it is told to stop, and checks every byte."""

    def __init__(self, tmad, size):
        self.rpc, self.size = tmad.rpc(), size
        self.src, self.dst = Memory(size), Memory(size)
        self.tensors = {"dst": tensor(self.dst.register(self.rpc), [size]), "src": tensor(self.src.register(self.rpc), [size])}
        self.stops = threading.Event()
        self.moved, self.why = 0, None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            while not self.stops.is_set():
                self.src[:] = bytes([self.moved % 255 + 1]) * self.size
                self.rpc.call("copy", self.tensors)
                assert self.dst[:] == self.src[:], "a byte is wrong"
                self.moved += 1
        except Exception as why:  # pylint: disable=broad-exception-caught
            self.why = why

    def stop(self):
        self.stops.set()
        self.thread.join()
        for each in (self.rpc, self.src, self.dst):
            each.close()


class Cutter:
    """One client, whose file is cut under its transforms."""

    def __init__(self, tmad, engine, n, seed, ways):
        self.engine, self.n, self.size, self.rng = engine, n, 4 * n * n, random.Random(seed)
        self.rpc = tmad.rpc()
        self.fd = os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR, 0o600)
        self.other = Memory(self.size)
        self.other_region = self.other.register(self.rpc)
        self.device_region = None
        if engine == "cuda":
            self.device_region = self.rpc.call("region_create", {"size": self.size, "kind": "cuda_fd"})["region"]
        self.region = None
        self.grows = engine == "cuda" or "no userfaultfd" not in tmad.log()
        self.ways = [way(n) for way in ways]
        data = [self.rng.randbytes(self.size) for _ in range(2)]
        self.data = [(each, [way.makes(each) for way in self.ways]) for each in data]
        self.typical_s = 0.0
        self.ends = {}

    def close(self):
        self.rpc.close()
        self.other.close()
        os.close(self.fd)

    def fill(self, data):
        os.ftruncate(self.fd, self.size)
        os.pwrite(self.fd, data, 0)

    def register(self):
        if self.region is not None:
            self.rpc.call("region_release", {"region": self.region})
        self.region = self.rpc.call("region_register", {"kind": "memfd", "size": self.size}, [self.fd])["region"]

    def cut(self):
        """Returns where to cut, and whether the file grows again."""
        to = self.rng.choice((0, self.size // 2, self.size // 2 + 1234, self.size - 1))
        return to, self.grows and self.rng.random() < 0.4

    def request(self, side, way, other):
        return self.rpc.request(way.method(), way.tensors(**{side: self.region, SIDES[side]: other}))

    def carry(self, dst, src):
        if dst != src:
            self.rpc.call("copy", {"dst": tensor(dst, [self.size]), "src": tensor(src, [self.size])})

    def has_zeros(self, got, plain, to, way):
        """Returns whether the bytes are what was right before, or zeros that the rest of the last page then had."""
        end = min(self.size, -(-to // mmap.PAGESIZE) * mmap.PAGESIZE)
        zeros = plain[:to] + bytes(end - to) + plain[end:]
        return is_one_or_other(got, way.makes(plain), way.makes(zeros))

    def round(self, i, is_cut=True):
        side, which = self.rng.choice(("src", "dst")), self.rng.randrange(len(self.ways))
        way, plain, wanted = self.ways[which], self.data[i % 2][0], self.data[i % 2][1][which]
        stale = self.data[(i + 1) % 2][0]
        self.fill(plain if side == "src" else stale)
        self.other[:] = stale if side == "src" else plain
        other = self.rng.choice((self.other_region, self.device_region or self.other_region))
        self.carry(other, self.other_region)
        if self.region is None or self.engine == "cuda" or self.rng.random() < 0.1:
            self.register()
        to, grows = self.cut()
        start = time.perf_counter()
        msgid = self.request(side, way, other)
        if is_cut:
            at = start + self.rng.random() * 1.2 * self.typical_s
            while time.perf_counter() < at:
                pass
            os.ftruncate(self.fd, to)
            if grows:
                os.ftruncate(self.fd, self.size)
        try:
            self.rpc.reply(msgid)
        except RpcError as error:
            assert error.name == "DEVICE" and is_cut, error
            end = "failed"
        else:
            end = "moved"
            kept = to if is_cut else self.size
            self.carry(self.other_region, other)
            got, size = (self.other[:], self.size) if side == "src" else (os.pread(self.fd, kept, 0), kept)
            assert got == wanted[:size] or (side == "src" and grows and self.has_zeros(got, plain, to, way)), (
                f"round {i}: wrong bytes: {way.method()}, {side} cut to {to}, grows {grows}")
        self.typical_s = self.typical_s or time.perf_counter() - start
        self.ends[end] = self.ends.get(end, 0) + 1


class Shrinks(unittest.TestCase):
    def check(self, engine, n, rounds, ways=(Copy, Transpose, Gather)):
        if not os.path.isdir("/dev/shm"):
            self.skipTest("no /dev/shm")
        with Tmad(engine=engine) as tmad:
            pid, fds = tmad.pid, tmad.fds()
            seed = random.randrange(1 << 32)
            cutter = Cutter(tmad, engine, n, seed, ways)
            for i in range(3):
                cutter.typical_s = 0.0
                cutter.round(i, is_cut=False)
            cutter.ends.clear()
            neighbour = Neighbour(tmad, 1 << 16)
            start = time.monotonic()
            try:
                for i in range(rounds):
                    cutter.round(i)
                    self.assertIsNone(neighbour.why)
            finally:
                neighbour.stop()
                cutter.close()
            self.assertIsNone(neighbour.why)
            self.assertGreater(neighbour.moved, 0)
            self.assertEqual(sum(cutter.ends.values()), rounds)
            if NATIVE and rounds >= 100:
                self.assertGreater(cutter.ends.get("failed", 0), 0)
            self.assertEqual(tmad.pid, pid)
            with tmad.rpc() as rpc:
                wait_until(lambda: rpc.call("stats")["regions"] == 0, "no region is left")
            wait_until(lambda: tmad.fds() <= fds, "no descriptor is left")
            self.assertEqual(tmad.log().count("ready on"), 1)
            print(f"# seed {seed}: {rounds} cuts in {time.monotonic() - start:.1f} s: {cutter.ends}; the neighbour moved "
                  f"{neighbour.moved} times", flush=True)

    def test_files_are_cut(self):
        small = not NATIVE or (ENGINE == "cuda" and not GPU)
        self.check(ENGINE, 192 if small else 1024, share(ROUNDS))

    @unittest.skipUnless(HAS_SOFTGPU and ENGINE == "cpu", "no stand-in driver, or it is used anyway")
    def test_files_are_cut_under_a_device(self):
        self.check("cuda", 192, share(ROUNDS))

    @unittest.skipUnless(HAS_SOFTGPU or ENGINE == "cuda", "no stand-in driver")
    def test_files_are_cut_under_packers(self):
        """Lists that are long enough for the service's own threads to carry the blocks."""
        self.check("cuda", 640, share(ROUNDS // 4), (Gather,))


if __name__ == "__main__":
    tap.main()

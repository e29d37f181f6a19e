# SPDX-License-Identifier: Apache-2.0
"""What one user does to its memory costs the service's cgroup nothing that outlives a region: it is never killed for
memory, and others are served."""
import contextlib
import ctypes
import mmap
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from memory_group import MemoryGroup
from tmad import NATIVE, Memory, RpcError, Tmad, share, tensor, wait_until

MIB = 1 << 20
LIMIT = 512 * MIB
QUOTA = 64 * MIB
ROUNDS = max(40, share(200))
GREEDY, POLITE = 1, 2
PUNCH = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE


def punch(fd, size):
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.fallocate(fd, PUNCH, ctypes.c_long(0), ctypes.c_long(size)) == 0, os.strerror(ctypes.get_errno())


@unittest.skipUnless(os.geteuid() == 0, "needs root, to be two users")
@unittest.skipUnless(NATIVE, "a sanitizer's or an emulator's memory is in the cgroup too")
class Cgroup(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.group = self.stack.enter_context(MemoryGroup(LIMIT))
        self.kept = []
        self.stack.callback(lambda: [os.close(fd) for fd in self.kept])
        self.tmad = Tmad(f"--mapped-bytes-per-uid={QUOTA}", start=False)
        self.start()
        self.stack.enter_context(self.tmad)

    def start(self):
        self.tmad.start(preexec_fn=self.group.enter)
        os.chmod(self.tmad.directory, 0o755)
        os.chmod(self.tmad.path, 0o666)

    def rpc_as(self, uid):
        os.seteuid(uid)
        try:
            return self.tmad.rpc()
        finally:
            os.seteuid(0)

    def keep(self, memory):
        """Keeps the descriptor beyond the life of the region."""
        self.kept.append(os.dup(memory.fd))

    def release(self, rpc, region):
        rpc.call("region_release", {"region": region})

    def copy(self, rpc, dst, src, size):
        """Copies from one byte that is repeated. Returns False if the destination failed."""
        try:
            rpc.call("copy", {"dst": tensor(dst, [size]), "src": tensor(src, [size], strides=[0])})
        except RpcError as error:
            self.assertEqual(error.name, "DEVICE", error.message)
            return False
        return True

    def be_greedy(self, rpc, src):
        """Runs one round. Afterwards only what the client itself has written may still be in memory."""
        with Memory(QUOTA - MIB, fill=False) as sparse:
            self.keep(sparse)
            try:
                self.release(rpc, sparse.register(rpc))
            except RpcError as error:
                self.assertEqual(error.name, "INVALID_ARGUMENT", error.message)
                self.assertIn("hole at byte 0", error.message)
        with Memory(QUOTA // 2, data=b"x" * (QUOTA // 2)) as full:
            self.keep(full)
            region = full.register(rpc)
            punch(full.fd, full.size)
            self.copy(rpc, region, src, full.size)
            self.release(rpc, region)
        size = QUOTA // 4
        region = rpc.call("region_create", {"size": size, "kind": "memfd"})["region"]
        fd = rpc.fds.pop()
        self.kept.append(fd)
        with mmap.mmap(fd, size) as mapped:
            self.assertTrue(self.copy(rpc, region, src, size))
            self.assertEqual(len(set(mapped[::4096])), 1)
            punch(fd, size // 2)
            self.copy(rpc, region, src, size)
            self.release(rpc, region)

    def be_polite(self, rpc):
        """Registers 16 MiB, and moves half of it into the other half."""
        half = 8 * MIB
        with Memory(2 * half, data=os.urandom(64) * (half // 64)) as memory:
            region = memory.register(rpc)
            rpc.call("copy", {"dst": tensor(region, [half], offset=half), "src": tensor(region, [half])})
            self.assertEqual(memory[half:half + 64], memory[:64])
            self.release(rpc, region)

    def test_rounds_of_one_user(self):
        """Descriptors are kept all the while, and across a restart."""
        usage, seconds = [], []
        with self.rpc_as(GREEDY) as greedy, self.rpc_as(POLITE) as polite, Memory(4096, data=b"\x07" * 4096) as one:
            src = one.register(greedy)
            for i in range(ROUNDS):
                try:
                    self.be_greedy(greedy, src)
                    start = time.monotonic()
                    self.be_polite(polite)
                    seconds.append(time.monotonic() - start)
                except (ConnectionError, OSError) as why:
                    code = self.tmad.process.wait(10)
                    self.fail(f"tmad ended with {code} after {i} rounds: {why}")
                usage.append(self.group.usage())
            held = greedy.call("region_create", {"size": QUOTA // 2, "kind": "memfd"})
            self.kept.append(greedy.fds.pop())
            self.assertEqual(held["size"], QUOTA // 2)
        print(f"# {ROUNDS} rounds, {len(self.kept)} descriptors kept: the service's cgroup held "
              f"{usage[4] / MIB:.1f} MiB after 5 rounds, {usage[-1] / MIB:.1f} MiB after the last, at most "
              f"{max(usage) / MIB:.1f}; the other user's 16 MiB took {max(seconds) * 1e3:.0f} ms at most", flush=True)
        self.assertLess(max(usage[4:]), usage[4] + 32 * MIB)
        for fd in self.kept:
            wait_until(lambda fd=fd: os.fstat(fd).st_blocks == 0, "nothing is left in it")
        self.restart()

    def restart(self):
        self.tmad.kill()
        os.unlink(self.tmad.path)
        self.start()
        with self.rpc_as(POLITE) as polite:
            for _ in range(5):
                self.be_polite(polite)

    def test_what_is_made_is_limited(self):
        """The limit applies by itself in a small cgroup; the memory is gone when its charge is."""
        with self.rpc_as(GREEDY) as greedy, self.rpc_as(POLITE) as polite:
            limits = greedy.call("info")["limits"]
            self.assertLessEqual(limits["created_bytes_per_uid"], LIMIT // 4)
            self.assertLessEqual(limits["queued_bytes_per_uid"], LIMIT // 16)
            self.assertLessEqual(limits["list_bytes_per_uid"], LIMIT // 32)
            idle = self.group.usage()
            for _ in range(4):
                made = [greedy.call("region_create", {"size": 15 * MIB, "kind": "memfd"})["region"] for _ in range(4)]
                fds, greedy.fds = greedy.fds, []
                with self.assertRaises(RpcError) as caught:
                    greedy.call("region_create", {"size": 15 * MIB, "kind": "memfd"})
                self.assertEqual(caught.exception.name, "QUOTA")
                self.be_polite(polite)
                for region in made:
                    self.release(greedy, region)
                self.assertEqual([os.fstat(fd).st_blocks for fd in fds], [0] * 4)
                self.kept += fds
            self.assertLess(self.group.usage(), idle + 32 * MIB)


if __name__ == "__main__":
    tap.main()

# SPDX-License-Identifier: Apache-2.0
"""What one user asks of the kernel does not keep the loop: others' pings go on while a large region is released, while
thousands of regions are, and while thousands of threads are woken.

A ping is due every millisecond and its time counts from then, so one that takes long counts for all that it delays.
The other user's processes have SCHED_IDLE where they are many: how the kernel divides the CPUs among them is no part of
it. Others on the machine can only make things slower, and a loop that stands still does so each time: so of a few
tries the best counts.
"""
import contextlib
import os
import select
import socket
import struct
import subprocess
import sys
import time
import traceback
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import BUILD, NATIVE, Memory, Rpc, Tmad, has_memory, scaled, share, tensor, wait_until

NOBODY = 65534
MIB = 1 << 20
LIMIT = 0.010 if NATIVE else 0.050  # limit of the 99th percentile of pings, in seconds
SHARE = 4  # fraction of the time of releasing many regions for which another user's region may wait
TRIES = 20
DUE = 0.001  # seconds between pings
FULL = share(10) > 1
LARGE = (4096 if FULL else 1024) * MIB if NATIVE else 256 * MIB
MANY, MANY_BYTES = (4000 if FULL else 1200) if NATIVE else 100, 5 * MIB
LISTED = 1500  # regions of the connection that lists its own
SLEEPERS = (8000 if FULL else 4000) if NATIVE else 200
ROUNDS = share(40) + 4


# ---- The other user ---------------------------------------------------------------------------------------
class Other:
    """Runs work(path, self, *args) in another user's process. Both sides exchange words."""

    def __init__(self, work, path, *args):
        self.work = work.__name__
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.child = os.fork()
        if self.child == 0:
            try:
                here.close()
                self.socket = there
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
                work(path, self, *args)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        there.close()
        self.socket = here

    def say(self, word):
        self.socket.send(str(word).encode())

    def hear(self):
        """Returns a word; an empty one if the other side is gone."""
        return self.socket.recv(64).decode()

    def go(self):
        """Called in the process: waits until the other side measures. Returns False at the end."""
        self.say("ready")
        return self.hear() == "go"

    def begin(self):
        assert (word := self.hear()) == "ready", f"{self.work}: {word}"
        self.say("go")

    def has_said(self, seconds):
        return bool(select.select([self.socket], [], [], seconds)[0])

    def end(self):
        """Ends the process, which is about to wait for a word or has ended."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.say("end")
            while self.hear():
                continue
        self.socket.close()
        _, status = os.waitpid(self.child, 0)
        assert status == 0, f"{self.work}: status {status}"


def touch(rpc, region, size):
    """Has the service touch every page of a region."""
    half = size // 2
    rpc.call("copy", {"dst": tensor(region, [half], offset=half), "src": tensor(region, [half])})


def release_large(path, tell):
    with Rpc(path, timeout=120) as rpc, Memory(LARGE) as memory:
        os.posix_fallocate(memory.fd, 0, LARGE)
        while True:
            region = memory.register(rpc)
            touch(rpc, region, LARGE)
            if not tell.go():
                return
            start = time.monotonic()
            rpc.call("region_release", {"region": region})
            tell.say(time.monotonic() - start)


def release_many(path, tell):
    """Releases all at once by ending their connection."""
    with Rpc(path) as stays, Memory(MANY_BYTES) as memory:
        os.posix_fallocate(memory.fd, 0, MANY_BYTES)
        while True:
            with Rpc(path, timeout=120) as rpc:
                for _ in range(MANY):
                    touch(rpc, memory.register(rpc), MANY_BYTES)
                if not tell.go():
                    return
                start = time.monotonic()
            wait_until(lambda: stays.call("stats")["regions"] <= 1, "they are gone", 120)  # one is the measurer's
            tell.say(time.monotonic() - start)


def list_regions(path, tell):
    """Requests a long list repeatedly."""
    with Rpc(path) as rpc, Memory(4096) as memory:
        for _ in range(LISTED):
            memory.register(rpc)
        tell.go()
        while not tell.has_said(0):
            assert len(rpc.call("region_list")) == LISTED


def wake_sleepers(path, tell):
    """Sends signalling copies of 8 bytes, each of which wakes all threads."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with Rpc(path, timeout=120) as rpc, Memory(4096) as memory:
        region = memory.register(rpc)
        move = {"dst": tensor(region, [8], offset=1024), "src": tensor(region, [8], offset=2048)}
        command = [os.path.join(BUILD, "stress_sleepers"), str(memory.fd), str(SLEEPERS)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[memory.fd]) as sleepers:
            n = 0
            wait_until(lambda: count(memory, 68) == SLEEPERS, "all are about to sleep", 120)
            while tell.go():
                for _ in range(ROUNDS):
                    wait_until(lambda: count(memory, 68) == SLEEPERS, "all are about to sleep", 120)
                    time.sleep(0.02)
                    n += 1
                    rpc.call("copy", {**move, "signal": {"region": region, "offset": 0, "value": n}})
                    wait_until(lambda: count(memory, 64) == n * SLEEPERS, "all have been woken", 120)
                tell.say("woken")
            sleepers.stdin.close()
            assert sleepers.wait() == 0


def count(memory, offset):
    return struct.unpack_from("<I", memory.map, offset)[0]


# ---- What this one sees ----------------------------------------------------------------------------------
class Calls:
    """Makes calls at an interval until the other user sends a word."""

    def __init__(self, call, interval):
        self.call = call
        self.interval = interval
        self.times = []

    def until_said(self, other):
        due = time.monotonic()
        while True:
            self.call()
            now = time.monotonic()
            while due <= now:
                self.times.append(now - due)
                due += self.interval
            if other.has_said(max(0, due - time.monotonic())):
                return other.hear()

    def p99(self):
        return sorted(self.times)[len(self.times) * 99 // 100]

    def text(self):
        return f"p99 {self.p99() * 1e3:.1f} ms, worst {max(self.times) * 1e3:.1f} ms of {len(self.times)}"


@unittest.skipUnless(os.geteuid() == 0, "needs root, to be two users")
class Stalls(unittest.TestCase):
    def setUp(self):
        self.tmad = Tmad("--threads", str(max(1, os.cpu_count() - 1)), "--mapped-bytes-per-uid", str(1 << 40))
        self.addCleanup(self.tmad.stop)
        os.chmod(self.tmad.directory, 0o755)
        os.chmod(self.tmad.path, 0o666)
        self.rpc = self.tmad.rpc()
        self.addCleanup(self.rpc.close)

    def other(self, work):
        other = Other(work, self.tmad.path)
        self.addCleanup(other.end)
        return other

    def pings(self):
        return Calls(lambda: self.rpc.call("ping"), DUE)

    def holds(self, other, measure):
        """Returns whether the result of measure(), which is printed, is ever below the limit that it returns."""
        for _ in range(TRIES):
            other.begin()
            found, limit = measure()
            if found < limit:
                break
        self.assertLess(found, limit)

    def test_large_region(self):
        if not has_memory(2 * LARGE):
            self.skipTest(f"needs {2 * LARGE >> 20} MiB of memory")
        lister = self.other(list_regions)
        lister.begin()
        other = self.other(release_large)

        def measure():
            pings = self.pings()
            ms = float(pings.until_said(other)) * 1e3
            print(f"# {LARGE >> 20} MiB released in {ms:.0f} ms: pings meanwhile {pings.text()}", flush=True)
            return pings.p99(), LIMIT
        self.holds(other, measure)

    def test_many_regions(self):
        other = self.other(release_many)
        memory = self.enterContext(Memory(MIB))

        def register():
            self.rpc.call("region_release", {"region": memory.register(self.rpc)})

        def measure():
            calls = Calls(register, DUE)
            took = float(calls.until_said(other))
            print(f"# {MANY} regions released in {took * 1e3:.0f} ms: a region registered and released meanwhile "
                  f"{calls.text()}", flush=True)
            return calls.p99(), max(LIMIT, took / SHARE)
        self.holds(other, measure)

    def test_many_regions_pings(self):
        other = self.other(release_many)

        def measure():
            pings = self.pings()
            ms = float(pings.until_said(other)) * 1e3
            print(f"# {MANY} regions released in {ms:.0f} ms: pings meanwhile {pings.text()}", flush=True)
            return pings.p99(), LIMIT
        self.holds(other, measure)

    def test_sleepers(self):
        other = self.other(wake_sleepers)

        def measure():
            pings = self.pings()
            start = time.monotonic()
            self.assertEqual(pings.until_said(other), "woken")
            print(f"# {ROUNDS} times {SLEEPERS} threads woken in {time.monotonic() - start:.1f} s: pings meanwhile "
                  f"{pings.text()}", flush=True)
            return pings.p99(), LIMIT
        self.holds(other, measure)


if __name__ == "__main__":
    tap.main()

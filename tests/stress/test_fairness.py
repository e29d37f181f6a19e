# SPDX-License-Identifier: Apache-2.0
"""While another user floods the service, a polite user keeps half of the speed that it has alone.

What is measured is the order in which the service serves; how the kernel divides the CPUs among processes and
threads is no part of it. So the flood's process has SCHED_IDLE, once it has filled what the service and the
sockets hold of it: it runs when nobody else wants to. The engine has one thread less than there are CPUs, so that
the loop has one. CPUs are kept awake, because one that sleeps wakes late, and a speed alone would be that of its
sleep. What the service spends on the flood counts, whatever it is.

The polite client has one request under way at a time (tmactl bench, so that little of the time is its own). Its
speed alone and beside the flood are measured in turn, a fraction of a second each. Others on the machine can only
make it slower, and an order of service that is unfair makes it slow each time: so its best speed beside the flood
counts, against the median of those alone, and measuring goes on for a few pairs while that is too low.

Each engine is measured. On the stand-in driver a transform takes a thousand times as long as on a GPU, and what is
under way runs to its end: less is asked there, and of smaller ones.
"""
import contextlib
import json
import os
import select
import signal
import socket
import statistics
import sys
import time
import traceback
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import GPU, NATIVE, SANITIZED, Memory, Rpc, Tmad, pack_request, share, tensor, tmactl

NOBODY = 65534
LEAST = 0.5 if NATIVE else 0.1  # elsewhere one small transform, the shortest turn, may take long compared with a ping
LEAST_IN_SOFTWARE = 0.1
SMALL, LARGE = 256, 1024 if SANITIZED else 4096  # sides of squares of bytes
LARGE_IN_SOFTWARE = 512
FLOODERS = 32  # connections
START = 0.1  # seconds in which a flood fills the service's and the sockets' buffers
SECONDS = 0.2  # duration of one measurement
PAIRS = share(10)  # least pairs that are measured
MOST_PAIRS = PAIRS + 29


def transpose(region, side):
    return {"dst": tensor(region, [side] * 2), "src": tensor(region, [side] * 2, offset=side * side), "perm": [1, 0]}


# ---- In processes of their own, for ever -----------------------------------------------------------------
def pipeline(path, side=0):
    """Opens connections that always have more requests than are answered: pings, or transposes."""
    unsent = {}
    many = {}
    for _ in range(FLOODERS):
        rpc = Rpc(path)
        request = pack_request(1, "ping")
        if side:
            with Memory(2 * side * side) as memory:
                request = pack_request(1, "transpose", transpose(memory.register(rpc), side))
        rpc.socket.setblocking(False)
        rpc.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        many[rpc.socket] = request * (32768 // len(request))
        unsent[rpc.socket] = b""
    while True:
        readable, writable, _ = select.select(list(many), list(many), [])
        for client in readable:
            with contextlib.suppress(BlockingIOError):
                client.recv(1 << 18)
        for client in writable:
            left = unsent[client] or many[client]
            with contextlib.suppress(BlockingIOError):
                left = left[client.send(left):]
            unsent[client] = left


def pings(path):
    pipeline(path)


def small_transposes(path):
    pipeline(path, SMALL)


def large_transposes(path):
    pipeline(path, LARGE)


def shorter_transposes(path):
    pipeline(path, LARGE_IN_SOFTWARE)


def connects(path):
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(path)


def regions(path):
    """Creates and releases regions, many at once."""
    with Rpc(path) as rpc:
        while True:
            made = [rpc.request("region_create", {"size": 1 << 20}) for _ in range(16)]
            for _ in range(2 * len(made)):
                result = rpc.receive()[3]
                if "region" in result:
                    rpc.request("region_release", {"region": result["region"]})
                    os.close(rpc.fds.pop())


FLOODS = pings, small_transposes, large_transposes, connects, regions
FLOODS_IN_SOFTWARE = pings, small_transposes, shorter_transposes, connects, regions


def spin(_):
    while True:
        pass


@contextlib.contextmanager
def in_background(work, path):
    """Runs work(path) in another user's process, which after its start runs only when the CPU is idle."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            work(path)
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(1)
    try:
        time.sleep(START)
        os.sched_setscheduler(child, os.SCHED_IDLE, os.sched_param(0))
        yield
        assert os.waitpid(child, os.WNOHANG) == (0, 0), f"{work.__name__}: the process ended"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


class Fairness:
    engine = "cpu"
    least, large, floods = LEAST, LARGE, FLOODS

    def setUp(self):
        self.tmad = Tmad("--threads", str(max(1, os.cpu_count() - 1)), engine=self.engine)
        self.addCleanup(self.tmad.stop)
        os.chmod(self.tmad.directory, 0o755)
        os.chmod(self.tmad.path, 0o666)
        self.asks = self.tmad.rpc()
        self.addCleanup(self.asks.close)
        for _ in range(os.cpu_count()):  # Keeps CPUs from sleeping: waking would dominate the speed alone.
            self.enterContext(in_background(spin, None))

    def served(self):
        """Returns the requests and connections served so far."""
        stats = self.asks.call("stats")
        return stats["requests"] + stats["connections_accepted"]

    def polite(self, load):
        """Returns requests per second, and their number."""
        done = tmactl("--json", "bench", "--duration", SECONDS, "--connections", 1, "--pipeline", 1, *load,
                      socket_path=self.tmad.path)
        self.assertEqual(done.returncode, 0, done.stderr)
        bench = json.loads(done.stdout)
        return bench["requests_per_s"], bench["requests"]

    def pair(self, work, load):
        """Returns the polite client's requests per second alone and under the flood, and how many requests of the flood
        were served."""
        alone, _ = self.polite(load)
        before = self.served()
        with in_background(work, self.tmad.path):
            flooded, own = self.polite(load)
            return alone, flooded, self.served() - before - own - 2  # without this client's connection and this query

    def beside_floods(self, *load):
        for work in self.floods:
            with self.subTest(work.__name__):
                pairs = []
                while len(pairs) < PAIRS or (len(pairs) < MOST_PAIRS and ratio(pairs) < self.least):
                    pairs.append(self.pair(work, load))
                alone, flooded, flood = zip(*pairs)
                print(f"# {self.engine}: {self.id().rpartition('_')[2]} beside {work.__name__}: "
                      f"{statistics.median(alone):.0f}/s alone, {max(flooded):.0f}/s beside it, {ratio(pairs):.2f} "
                      f"of it ({len(pairs)} pairs); the flood was served {statistics.median(flood):.0f}", flush=True)
                self.assertGreaterEqual(ratio(pairs), self.least)
                self.assertGreater(max(flood), 0)

    def test_polite_user_beside_floods_ping(self):
        self.beside_floods("--kind", "ping")

    def test_polite_user_beside_floods_small(self):
        self.beside_floods(*transform(SMALL))

    def test_polite_user_beside_floods_large(self):
        self.beside_floods(*transform(self.large))


@unittest.skipUnless(os.geteuid() == 0, "needs root, to be two users")
class OnCpu(Fairness, unittest.TestCase):
    pass


@unittest.skipUnless(os.geteuid() == 0, "needs root, to be two users")
@unittest.skipIf(os.environ.get("TEST_CUDA") == "no", "this build has no cuda engine")
class OnDevice(Fairness, unittest.TestCase):
    engine = "cuda"
    if not GPU:
        least, large, floods = LEAST_IN_SOFTWARE, LARGE_IN_SOFTWARE, FLOODS_IN_SOFTWARE


def transform(side):
    return "--kind", "transform", "--dtype", "uint8", "--shape", f"{side},{side}", "--permute", "1,0"


def ratio(pairs):
    alone, flooded, _ = zip(*pairs)
    return max(flooded) / statistics.median(alone)


if __name__ == "__main__":
    tap.main()

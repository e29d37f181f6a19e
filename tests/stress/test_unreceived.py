# SPDX-License-Identifier: Apache-2.0
"""Descriptors that clients do not receive: however one user goes about it, the others get theirs.

The service runs as a user for whom the kernel limits descriptors on their way (RLIMIT_NOFILE). The attacker is a third
user: on many connections it has regions made and releases them, whose ids can be told beforehand, and reads nothing.
"""
import contextlib
import os
import resource
import signal
import socket
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import NATIVE, Rpc, Tmad, own_uid, pack_request, share, wait_until

SERVICE, ATTACKER = own_uid(0), own_uid(1)
CONNECTIONS = max(share(330), 33)
DESCRIPTORS = max(share(20000), 2000)  # RLIMIT_NOFILE of the service; fewer than 128 for each connection
WARM = 130  # more rounds than needed to fill the connections
MOST_KEPT = DESCRIPTORS // 8 + CONNECTIONS  # more connections than needed to reach the limit with 8 descriptors each
MOST_S = 0.05  # longest acceptable region_create of another user, in seconds
SECONDS = 2
TRIES = 3
CREATE = pack_request(1, "region_create", {"size": 1})


def release(i):
    """Releases the regions that a connection was given before the i-th: an id consists of a count and a place in a
    table."""
    return b"".join(pack_request(2, "region_release", {"region": count << 20 | place})
                    for count in range(max(i - 2, 0), i) for place in (1, 2))


@contextlib.contextmanager
def attacking(path, how):
    """Runs a method of Attack in a process of the attacker, which has written a byte; the process is killed with
    SIGKILL."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (2 * MOST_KEPT, 2 * MOST_KEPT))
            os.setgroups([])
            os.setgid(ATTACKER)
            os.setuid(ATTACKER)
            getattr(Attack(path, tell), how)()
        finally:
            os._exit(1)
    os.close(tell)
    try:
        with os.fdopen(told, "rb") as pipe:
            assert pipe.read(1) == b"x", "the attacker did not start"
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


class Attack:
    """Connections that only cause load. A round creates a region on each and releases the previous one; it begins when
    the regions of the last round exist, or after a timeout."""

    def __init__(self, path, tell):
        self.path, self.tell, self.patience = path, tell, 2
        self.asks = Rpc(path)

    def connect(self):
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.connect(self.path)
        client.setblocking(False)
        return client

    def round(self, clients, i):
        """Runs the i-th round on these connections. The others hold little meanwhile."""
        self.send(clients, release(i), lambda regions: regions < len(clients) / 2)
        if self.send(clients, CREATE, lambda regions: regions >= len(clients)):
            self.patience = 2
        else:
            self.patience = max(self.patience / 4, 0.005)  # perhaps no more are created

    def send(self, clients, data, is_done):
        """Returns whether the service has answered in time."""
        for client in clients:
            with contextlib.suppress(OSError):
                client.send(data)
        end = time.monotonic() + self.patience
        while not (done := is_done(self.asks.call("stats")["regions"])) and time.monotonic() < end:
            time.sleep(0.001)
        return done

    def stay(self):
        """Keeps connections open that the service ends, without receiving what they were sent."""
        clients = [self.connect() for _ in range(CONNECTIONS)]
        told = False
        for i in range(1 << 30):
            self.round(clients, i)
            if not told and (i == WARM or self.patience < 0.01):
                told = os.write(self.tell, b"x")

    def leave(self):
        """Opens new connections continuously; the old ones have ended except for the descriptors sent to them."""
        kept = []
        while len(kept) < MOST_KEPT:
            clients = [self.connect() for _ in range(CONNECTIONS)]
            for i in range(8):
                self.round(clients, i)
            for client in clients:
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_WR)
            kept += clients
        os.write(self.tell, b"x")
        signal.pause()


@unittest.skipUnless(os.geteuid() == 0, "needs root, to be users for whom descriptors on their way are limited")
class Unreceived(unittest.TestCase):
    def start(self, *args):
        tmad = Tmad(*args, start=False)
        self.addCleanup(tmad.stop)
        os.chown(tmad.directory, SERVICE, SERVICE)
        os.chmod(tmad.directory, 0o755)

        def become_service():
            resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
            os.setgroups([])
            os.setgid(SERVICE)
            os.setuid(SERVICE)
        tmad.start(preexec_fn=become_service)
        os.chmod(tmad.path, 0o666)
        return tmad

    def time_creates(self, path, seconds):
        """Returns the seconds that each region_create took, each on a connection made for a few of them."""
        times = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with Rpc(path, timeout=3) as rpc:
                for _ in range(20):
                    start = time.perf_counter()
                    made = rpc.call("region_create", {"size": 4096})
                    times.append(time.perf_counter() - start)
                    self.assertEqual(len(rpc.fds), 1, "its descriptor came with the reply")
                    os.close(rpc.fds.pop())
                    rpc.call("region_release", {"region": made["region"]})
        return sorted(times)

    def time_windows(self, path):
        """Returns the times of windows of SECONDS. Other load of the machine may disturb a window, so windows are added
        until nothing took long in one, at most TRIES times."""
        n, windows = max(share(10), 1), []
        while len(windows) < n or (len(windows) < TRIES * n and min(times[-1] for times in windows) > MOST_S):
            windows.append(self.time_creates(path, SECONDS))
        return windows

    def attacked(self, how):
        tmad = self.start()
        fds = tmad.fds()
        with attacking(tmad.path, how) as child:
            windows = self.time_windows(tmad.path)
            held = tmad.fds()
            with tmad.rpc() as rpc:
                outgoing = rpc.call("stats").get("outgoing_fds")
            self.assertEqual(os.waitpid(child, os.WNOHANG), (0, 0), "the attacker goes on")
        times, most = sorted(sum(windows, [])), min(times[-1] for times in windows)
        p99 = times[len(times) * 99 // 100]
        print(f"# they {how}: {CONNECTIONS} connections, {DESCRIPTORS} descriptors: another user's region_create: "
              f"{len(times)} in {len(windows) * SECONDS} s, p99 {p99 * 1e3:.2f} ms, most {times[-1] * 1e3:.2f} ms, within "
              f"{SECONDS} s {most * 1e3:.2f} ms; {held} descriptors held, {outgoing} unreceived", flush=True)
        with tmad.rpc() as rpc:
            wait_until(lambda: rpc.call("stats")["connections"] == 1, "the attacker's connections are gone")
            wait_until(lambda: rpc.call("stats")["regions"] == 0, "the attacker's regions are gone")
            wait_until(lambda: rpc.call("stats").get("outgoing_fds") == 0, "nothing is charged for them")
        wait_until(lambda: tmad.fds() <= fds, "no descriptor is left")
        tmad.stop()
        if NATIVE:
            self.assertLessEqual(p99, MOST_S)
            self.assertLessEqual(most, MOST_S)

    def test_another_user_gets_its_own(self):
        self.attacked("stay")

    def test_another_user_gets_its_own_when_connections_end(self):
        """Descriptors sent to a connection stay on their way after the service has closed it."""
        self.attacked("leave")


if __name__ == "__main__":
    tap.main()

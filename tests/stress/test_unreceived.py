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
DESCRIPTORS = max(share(20000), 2000)  # RLIMIT_NOFILE of the service: fewer than 128 for each connection
WARM = 130  # rounds that are more than fill them
MOST_KEPT = DESCRIPTORS // 8 + CONNECTIONS  # connections: more than fill them with 8 descriptors each
MOST_S = 0.05  # that another user's region_create may take
SECONDS = 2
TRIES = 3
CREATE = pack_request(1, "region_create", {"size": 1})


def release(i):
    """Of the regions that a connection was given before the i-th: an id is a count and a place in a table."""
    return b"".join(pack_request(2, "region_release", {"region": count << 20 | place})
                    for count in range(max(i - 2, 0), i) for place in (1, 2))


@contextlib.contextmanager
def attacking(path, how):
    """A method of Attack's in a process of the attacker's, which has written a byte; it gets SIGKILL in the end."""
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
    """Connections that are asked for nothing but trouble. A round makes a region on each and releases the one before:
    it begins when those of the last one are there, or not in time."""

    def __init__(self, path, tell):
        self.path, self.tell, self.patience = path, tell, 2
        self.asks = Rpc(path)

    def connect(self):
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.connect(self.path)
        client.setblocking(False)
        return client

    def round(self, clients, i):
        """The i-th of these connections. What others hold meanwhile is little."""
        self.send(clients, release(i), lambda regions: regions < len(clients) / 2)
        if self.send(clients, CREATE, lambda regions: regions >= len(clients)):
            self.patience = 2
        else:
            self.patience = max(self.patience / 4, 0.005)  # perhaps no more are made

    def send(self, clients, data, is_done):
        """Whether the service has done it in time."""
        for client in clients:
            with contextlib.suppress(OSError):
                client.send(data)
        end = time.monotonic() + self.patience
        while not (done := is_done(self.asks.call("stats")["regions"])) and time.monotonic() < end:
            time.sleep(0.001)
        return done

    def stay(self):
        """Connections that the service ends stay open: what they were sent is not received."""
        clients = [self.connect() for _ in range(CONNECTIONS)]
        told = False
        for i in range(1 << 30):
            self.round(clients, i)
            if not told and (i == WARM or self.patience < 0.01):
                told = os.write(self.tell, b"x")

    def leave(self):
        """New connections all the time; the old ones have ended, but for the descriptors that were sent to them."""
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
        """Seconds that each region_create took, on a connection made for a few of them."""
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
        """The times of windows of SECONDS. The rest of the machine may stand in the way of one; of some of them it
        does not: more are added until there is one in which nothing took long, as many as TRIES times."""
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
        """What a connection was sent is on its way also when the service has closed it."""
        self.attacked("leave")


if __name__ == "__main__":
    tap.main()

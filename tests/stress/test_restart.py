# SPDX-License-Identifier: Apache-2.0
"""The daemon is killed and stopped under load, repeatedly.

Clients (tests/stress/history.c) write down what they asked and what they were told, and compare every destination with
the oracle. Their histories have to show: each request ended once; no success with bytes that are wrong, and no byte that
is neither what it was nor what it has to be; a call is lost only when the library had made it twice; a ticket may be.
"""
import collections
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import BUILD, TMAD, Memory, Rpc, Tmad, has_memory, pack_request, scaled, share, tensor, wait_until

HISTORY = os.path.join(BUILD, "stress_history")
DEATHS = 400
CLIENTS = 3
STOP_SECONDS = 10
MUCH = 4 << 30  # bytes; allocating them takes longer than a deadline of 100 ms
LIFE_SECONDS = (0.05, 0.2)  # seconds from a daemon's first answer to its end


class Service:
    """A daemon that is restarted repeatedly; subclasses say how."""

    def start(self):
        raise NotImplementedError

    def end(self, number):
        """Ends it. Returns the seconds that took."""
        start = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(scaled(60))
        assert code == (-number if number == signal.SIGKILL else 0), f"it ended with {code}"
        return time.monotonic() - start


class OnItsPath(Service):
    """The daemon makes its own socket each time."""

    def __init__(self, directory):
        self.path = os.path.join(directory, "s")
        self.start()

    def start(self):
        self.process = subprocess.Popen([TMAD, "--engine=cpu", "--log-level=error", "--socket", self.path])


class OnAPassedSocket(Service):
    """The test holds the socket, as a service manager does: connections queue while no daemon runs."""

    def __init__(self, directory):
        self.path = os.path.join(directory, "s")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        self.listener.listen(1024)
        self.start()

    def start(self):
        # The shell becomes tmad, so that LISTEN_PID is tmad's pid.
        self.process = subprocess.Popen(
            ["sh", "-c", f'exec 3<&{self.listener.fileno()}; LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" "$@"', TMAD,
             "--engine=cpu", "--log-level=error"], pass_fds=(self.listener.fileno(),))


def wait_ready(path):
    """Waits until a connection is accepted, as a client would."""
    end = time.monotonic() + scaled(10)
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            try:
                client.settimeout(scaled(10))
                client.connect(path)
                client.sendall(pack_request(1, "ping"))
                if client.recv(100):
                    return
            except (FileNotFoundError, ConnectionError):
                pass
        assert time.monotonic() < end, "it does not answer"
        time.sleep(0.002)


def wait_for_clients(path):
    """Waits until all clients are connected."""
    with Rpc(path) as rpc:
        wait_until(lambda: rpc.call("stats")["connections"] > CLIENTS, "the clients are connected")


class Restart(unittest.TestCase):
    def deaths(self, service, n, chance):
        """Ends and starts it n times. Returns the signals, and the longest time that a stop took."""
        numbers, slowest = collections.Counter(), 0.0
        for _ in range(n):
            wait_ready(service.path)
            time.sleep(chance.uniform(*LIFE_SECONDS))
            number = chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
            numbers[number.name] += 1
            seconds = service.end(number)
            if number != signal.SIGKILL:
                slowest = max(slowest, seconds)
            service.start()
        return numbers, slowest

    def check(self, text, deaths):
        """Checks one client's history. Returns its lines as lists."""
        lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
        for line in lines:
            self.assertEqual(len(line), 6, line)
        self.assertEqual(sorted(int(line[0]) for line in lines), list(range(1, len(lines) + 1)),
                         "each request ended once")
        unsent = 0  # calls for which the service went away each time the library tried to register their regions
        for number, way, status, repeats, _, content in lines:
            what = f"request {number} ({way}): {status}, made again {repeats} times, {content}"
            if status == "OK":
                self.assertEqual(content, "right", what)
            else:
                self.assertEqual(status, "DISCONNECTED", what)
                self.assertIn(content, ("right", "part"), what)
                if way == "call" and repeats == "0":
                    unsent += 1
        self.assertLessEqual(unsent, max(1, deaths / 4))
        return lines

    def under_load(self, kind, n, seed):
        with tempfile.TemporaryDirectory() as directory:
            service = kind(directory)
            try:
                wait_ready(service.path)
                clients = [subprocess.Popen([HISTORY, service.path, str(seed + i)], stdin=subprocess.PIPE,
                                            stdout=open(os.path.join(directory, f"{i}"), "wb")) for i in range(CLIENTS)]
                wait_for_clients(service.path)
                start = time.monotonic()
                numbers, slowest = self.deaths(service, n, random.Random(seed))
                seconds = time.monotonic() - start
                wait_ready(service.path)
                wait_for_clients(service.path)
                for client in clients:
                    client.stdin.close()
                ends = [client.wait(scaled(60)) for client in clients]
                service.end(signal.SIGTERM)
            finally:
                service.process.kill()
            lines = []
            for i, end in enumerate(ends):
                with open(os.path.join(directory, f"{i}"), encoding="utf-8") as history:
                    text = history.read()
                self.assertEqual(end, 0, text[-2000:])
                mine = self.check(text, n)
                self.assertGreater(int(mine[-1][4]), n / 4, "it has connected again")
                lines += mine
        answers = collections.Counter(f"{line[1]} {line[2]}" for line in lines)
        repeats = sum(line[3] == "1" for line in lines)
        print(f"# {dict(numbers)} in {seconds:.1f} s; {len(lines)} requests: {dict(answers)}, {repeats} of them made "
              f"twice; the slowest stop took {slowest * 1000:.0f} ms", flush=True)
        self.assertLess(slowest, STOP_SECONDS)
        self.assertGreater(len(lines), n)
        if n >= 20:  # with fewer deaths, possibly none interrupts a call
            self.assertGreater(repeats, 0)

    def test_under_load_on_its_own_path(self):
        self.under_load(OnItsPath, share(DEATHS // 2), 1)

    def test_under_load_on_a_passed_socket(self):
        self.under_load(OnAPassedSocket, share(DEATHS // 2), 2)


class Drain(unittest.TestCase):
    """Requests sent before the stop are answered; later ones are not read."""

    SIZE = 64 << 10
    REQUESTS = 1200  # requests of a client; more than the daemon reads at once

    def requests(self, region):
        """Returns requests to be sent at once: msgids from 1, and the beginning of one more."""
        copy = {"dst": tensor(region, [self.SIZE], offset=2 * self.SIZE - 1, strides=[-1]),
                "src": tensor(region, [self.SIZE])}
        kinds = [("transform", copy), ("ping", None)] * 15 + [("region_create", {"size": 4096})]
        return b"".join(pack_request(i + 1, *kinds[i % len(kinds)])
                        for i in range(self.REQUESTS)) + pack_request(0, "ping")[:3]

    def drain(self, number, *args):
        tmad = Tmad(*args)
        self.addCleanup(tmad.stop)
        memory = Memory(2 * self.SIZE)
        self.addCleanup(memory.close)
        clients = [tmad.rpc() for _ in range(4)]
        for client in clients:
            self.addCleanup(client.close)
        regions = [memory.register(client) for client in clients]
        os.kill(tmad.pid, signal.SIGSTOP)
        for client, region in zip(clients, regions):
            client.send(self.requests(region))
        os.kill(tmad.pid, number)
        os.kill(tmad.pid, signal.SIGCONT)
        start = time.monotonic()
        for client in clients:
            replies = [client.receive() for _ in range(self.REQUESTS)]
            self.assertNotIn(None, replies, "it ended before all was answered")
            self.assertEqual(sorted(reply[1] for reply in replies), list(range(1, self.REQUESTS + 1)))
            self.assertEqual([reply[2] for reply in replies], [None] * self.REQUESTS)
            self.assertTrue(client.ended())
        self.assertEqual(tmad.process.wait(scaled(STOP_SECONDS)), 0)
        seconds = time.monotonic() - start
        print(f"# {4 * self.REQUESTS} requests answered and stopped in {seconds * 1000:.0f} ms", flush=True)
        self.assertLess(seconds, scaled(STOP_SECONDS))

    def test_what_was_sent_is_answered(self):
        self.drain(signal.SIGTERM)

    def test_also_what_waits_for_a_limit(self):
        self.drain(signal.SIGTERM, "--jobs-per-uid=2")

    def test_also_what_waits_for_its_replies_to_be_read(self):
        self.drain(signal.SIGTERM, "--reply-pause-bytes=100")

    def test_a_stop_does_not_wait_for_a_long_mapping(self):
        """A mapping that would outlast the deadline is given up."""
        if not has_memory(2 * MUCH):
            self.skipTest(f"needs {2 * MUCH >> 30} GiB of memory")
        tmad = Tmad("--drain-deadline-ms=100")
        self.addCleanup(tmad.stop)
        with tmad.rpc() as client:
            client.request("region_create", {"size": MUCH})
            time.sleep(0.02)
            tmad.process.send_signal(signal.SIGTERM)
            self.assertEqual(tmad.process.wait(scaled(STOP_SECONDS)), 0)
        self.assertIn("not drained", tmad.log())
        self.assertNotIn("work did not end", tmad.log())


class End(unittest.TestCase):
    def test_a_connection_ends_after_its_transforms(self):
        """A client that sees the end of its connection may use the memory again: nothing writes to it any more."""
        size = 64 << 20
        with Tmad("--threads=1") as tmad, tmad.rpc() as rpc, Memory(2 * size) as memory:
            for _ in range(5):
                with tmad.rpc() as client:
                    region = memory.register(client)
                    copy = {"dst": tensor(region, [size], offset=2 * size - 1, strides=[-1]),
                            "src": tensor(region, [size])}
                    client.send(pack_request(1, "copy", copy) * 4)
                    time.sleep(0.002)
                    client.send(b"\xc1")
                    while client.receive() is not None:
                        pass
                    self.assertEqual(rpc.call("stats")["jobs"], 0)


if __name__ == "__main__":
    tap.main()

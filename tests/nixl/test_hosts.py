# SPDX-License-Identifier: Apache-2.0
"""The ground on which transfers between hosts are tested: what a link does to packets, and that nothing is left."""
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from hosts import DEVICE, HERE, Hosts
from tmad import Rpc, own_environment, scaled, wait_until

PORT = 5001
SO_RCVBUFFORCE = 33  # Python does not name it
LINKS = ("veth", "tun")


class Datagrams:
    """A socket on each host of a pair."""

    def __init__(self, pair):
        self.sockets = [host.run(self._open, host.address) for host in (pair.a, pair.b)]
        self.addresses = [(host.address, PORT) for host in (pair.a, pair.b)]

    @staticmethod
    def _open(address):
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
        opened.bind((address, PORT))
        return opened

    def send(self, number, source=0):
        self.sockets[source].sendto(number.to_bytes(4, "little"), self.addresses[1 - source])

    def receive(self, seconds, sink=1):
        """The number of the next one, or None if none comes."""
        self.sockets[sink].settimeout(seconds)
        try:
            return int.from_bytes(self.sockets[sink].recv(16), "little")
        except TimeoutError:
            return None

    def round_trips(self, count):
        """Seconds, from the shortest on."""
        times = []
        for i in range(count):
            start = time.monotonic()
            self.send(i)
            assert self.receive(scaled(20)) == i
            self.send(i, source=1)
            assert self.receive(scaled(20), sink=0) == i
            times.append(time.monotonic() - start)
        return sorted(times)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for opened in self.sockets:
            opened.close()


def stream(pair, size, connections=1, during=None):
    """Bytes from a to b over TCP, which are compared; returns the seconds until the last has come."""
    data = os.urandom(1 << 20)
    pieces, wrong = size // connections // len(data), []

    def read(source):
        buffer = memoryview(bytearray(len(data)))
        with source:
            for _ in range(pieces):
                got = 0
                while got < len(data):
                    count = source.recv_into(buffer[got:])
                    if count == 0:
                        wrong.append("it ended early")
                        return
                    got += count
                if buffer != data:
                    wrong.append("bytes differ")

    def write(sink):
        with sink:
            for _ in range(pieces):
                sink.sendall(data)

    with contextlib.ExitStack() as stack:
        server = stack.enter_context(pair.b.run(socket.create_server, (pair.b.address, PORT)))
        threads = []
        for _ in range(connections):
            sink = pair.a.run(socket.create_connection, (pair.b.address, PORT))
            threads += [threading.Thread(target=write, args=[sink]), threading.Thread(target=read, args=[server.accept()[0]])]
        start = time.monotonic()
        for thread in threads:
            thread.start()
        if during:
            during()
        for thread in threads:
            thread.join()
    assert wrong == []
    return time.monotonic() - start


# ---- What a link does ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("link", LINKS)
def test_both_ways(hosts, link):
    with Datagrams(hosts(link)) as datagrams:
        datagrams.round_trips(20)


def test_delay(hosts):
    pair = hosts("tun", delay_ms=20)
    with Datagrams(pair) as datagrams:
        assert datagrams.round_trips(5)[0] >= 2 * 0.020
        pair.link.change(delay_ms=5)
        assert 2 * 0.005 <= datagrams.round_trips(5)[0] < 2 * 0.020
        for i in range(200):  # they wait beside each other
            datagrams.send(i)
        assert [datagrams.receive(scaled(20)) for _ in range(200)] == list(range(200))


def lost_of(pair, count):
    """The numbers of those that did not arrive."""
    with Datagrams(pair) as datagrams:
        for i in range(count):
            datagrams.send(i)
        wait_until(lambda: pair.link.counts()[0][0] == count, "all are sent")
        pair.link.change(loss=0)
        datagrams.send(count)
        arrived = set()
        while (number := datagrams.receive(scaled(20))) != count:
            assert number is not None, "the last one was lost"
            arrived.add(number)
    return set(range(count)) - arrived


def test_loss(hosts):
    """By a seed, so that a run can be repeated."""
    count, probability = 2000, 0.1
    deviation = (count * probability * (1 - probability)) ** 0.5
    first, again, other = (lost_of(hosts("tun", loss=probability, seed=seed), count) for seed in (1, 1, 2))
    assert first == again and first != other
    for lost in (first, other):
        assert abs(len(lost) - count * probability) < 5 * deviation, len(lost)


def test_loss_is_counted(hosts):
    pair = hosts("tun", loss=0.5)
    lost = lost_of(pair, 200)
    assert pair.link.counts() == ((201, len(lost)), (0, 0))


@pytest.mark.parametrize("link", LINKS)
def test_rate(hosts, link):
    rate, size = 200_000_000, 8 << 20
    pair = hosts(link, rate=rate)
    assert stream(pair, size) >= 0.9 * size * 8 / rate


def test_cut(hosts):
    """What is on its way is lost, and what is sent meanwhile; a connection lasts."""
    pair = hosts("tun", delay_ms=50)
    with Datagrams(pair) as datagrams:
        datagrams.send(1)
        wait_until(lambda: pair.link.counts()[0][0] == 1, "the first is on its way")
        pair.link.cut()
        datagrams.send(2)
        wait_until(lambda: pair.link.counts()[0] == (2, 2), "both are lost")
        pair.link.restore()
        datagrams.send(3)
        assert datagrams.receive(scaled(20)) == 3

    def interrupt():
        for _ in range(3):
            before = pair.link.counts()[0][0]
            wait_until(lambda before=before: pair.link.counts()[0][0] > before, "packets are sent")
            pair.link.cut()
            time.sleep(0.05)
            pair.link.restore()

    pair.link.change(delay_ms=1)
    stream(pair, 64 << 20, during=interrupt)


def test_losses_are_repaired(hosts):
    """By TCP, whose bytes are compared."""
    stream(hosts("tun", delay_ms=2, loss=0.02), 8 << 20)


@pytest.mark.parametrize(("link", "options"), [
    ("veth", {}), ("tun", {}), ("tun", {"mtu": 65000}), ("tun", {"delay_ms": 1}), ("tun", {"delay_ms": 1, "mtu": 65000})])
def test_throughput(hosts, capsys, link, options):
    """It is shown, and decides nothing."""
    pair, size = hosts(link, **options), 64 << 20
    with Datagrams(pair) as datagrams:
        trip = datagrams.round_trips(20)[10]
    rates = [size / stream(pair, size, connections) * 8 / 1e9 for connections in (1, 4)]
    with capsys.disabled():
        print(f"{link} {options}: {trip * 1e6:.0f} us there and back; {rates[0]:.1f} Gbit/s over one connection, "
              f"{rates[1]:.1f} over four", file=sys.__stderr__)


def test_what_a_veth_is_not(hosts):
    with pytest.raises(ValueError, match="delay_ms=1.*only a tun link"):
        hosts("veth", delay_ms=1)


# ---- What is in a host ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("link", LINKS)
def test_processes_are_inside(hosts, link):
    pair = hosts(link)
    for host in (pair.a, pair.b):
        code = "import os, sys; print(sorted(os.listdir('/sys/class/net')), os.path.samefile('/proc/self/ns/net', sys.argv[1]))"
        process = host.start([sys.executable, "-c", code, host.namespace], stdout=subprocess.PIPE, encoding="utf-8")
        assert process.communicate(timeout=scaled(60))[0] == f"{sorted([DEVICE, 'lo'])} True\n"
    assert not os.path.samefile(pair.a.namespace, pair.b.namespace)
    assert not os.path.samefile(pair.a.namespace, "/proc/self/ns/net")


def test_tmad(hosts):
    """Each host has one of its own, whose socket is reached from anywhere."""
    pair = hosts("tun")
    for host in (pair.a, pair.b):
        tmad = host.tmad(engine="cpu")
        assert os.path.samefile(f"/proc/{tmad.pid}/ns/net", host.namespace)
        with Rpc(tmad.path) as rpc:
            rpc.call("ping")


# ---- The end -------------------------------------------------------------------------------------------------
def processes_in(namespaces):
    """Those whose network is one of these inodes."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}/ns/net").st_ino in namespaces:
                found.append(int(pid))
    return found


@pytest.mark.parametrize("link", LINKS)
def test_nothing_is_left(link, hosts):
    """Of what is started in it, a failure in the middle included."""
    hosts(link)  # or the reason why not
    with pytest.raises(ZeroDivisionError), Hosts(link) as pair:
        namespaces = {os.stat(host.namespace).st_ino for host in (pair.a, pair.b)}
        pair.a.start(["sh", "-c", "sleep 1000 & wait"])
        pair.b.start(["sleep", "1000"])
        tmad = pair.b.tmad(engine="cpu")
        directory = tmad.directory
        wait_until(lambda: len(processes_in(namespaces)) >= 4, "all have started")
        raise ZeroDivisionError
    wait_until(lambda: processes_in(namespaces) == [], "all have ended")
    assert not os.path.exists(directory)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_by_one_that_is_killed(hosts, number, tmp_path):
    hosts("tun")
    code = f"""
import os, sys, time
sys.path.insert(0, {HERE!r})
from hosts import Hosts
pair = Hosts("tun")
pair.a.start(["sleep", "1000"])
pair.b.tmad(engine="cpu", directory={str(tmp_path)!r})
print(*[os.stat(host.namespace).st_ino for host in (pair.a, pair.b)], flush=True)
time.sleep(1000)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, encoding="utf-8",
                          env=own_environment()) as owner:
        try:
            namespaces = set(map(int, owner.stdout.readline().split()))
            assert len(processes_in(namespaces)) == 4  # the link's process, sleep, tmad and its scout
        finally:
            owner.send_signal(number)
    assert owner.returncode == -number
    wait_until(lambda: processes_in(namespaces) == [], "all have ended")

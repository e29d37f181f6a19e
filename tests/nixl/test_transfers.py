# SPDX-License-Identifier: Apache-2.0
"""Transfers by NIXL between hosts, each with a tmad of its own: every byte, and what is left when a side is killed."""
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

pytest.importorskip("numpy")
pytest.importorskip("nixl", reason="nixl is not installed: pip install nixl")

from hosts import HERE
from tmad import scaled, share, wait_until

PORT = 5600
ETCD_PORT = 2379


class Peer:
    """A process of peer.py on a host."""

    def __init__(self, host, name, tmad, port, env=None):
        self.host, self.name, self.port = host, name, port
        self._process = host.start([sys.executable, os.path.join(HERE, "peer.py"), name, tmad.path, str(port)],
                                   env={"NIXL_LOG_LEVEL": "FATAL", **(env or {})}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   encoding="utf-8", bufsize=1)
        assert self.answer() == "ready"

    def tell(self, command, *arguments):
        self._process.stdin.write(json.dumps([command, arguments]) + "\n")

    def answer(self):
        line = self._process.stdout.readline()
        assert line, f"{self.name} ended with {self._process.wait()}"
        return json.loads(line)

    def ask(self, command, *arguments):
        self.tell(command, *arguments)
        return self.answer()

    def connect(self, other):
        """Exchanges NIXL's metadata: one side asks, and sends its own."""
        self.ask("connect", other.name, other.host.address, other.port)
        deadline = time.monotonic() + scaled(20)
        while not other.ask("knows", self.name):
            if time.monotonic() > deadline:
                other.ask("connect", self.name, self.host.address, self.port)
            time.sleep(0.01)

    def introduce(self, other):
        """Exchanges metadata through the test, because NIXL's listener keeps a socket of each peer that has ever asked
        it."""
        for one, another in ((self, other), (other, self)):
            one.ask("add", another.name, another.ask("metadata"))

    def signal(self, number):
        self._process.send_signal(number)

    def kill(self):
        self._process.kill()
        self._process.wait()


def move_lists(sender, receiver, n, seed):
    """Moves random lists from one side to the other. Returns how many transfers that took."""
    sender.ask("fill", True)
    receiver.ask("fill", False)
    first = seed % (1 << 31)
    sender.tell("send_pairs", receiver.name, first, n)
    wrong, transfers = receiver.ask("receive_pairs", sender.name, first, n)
    sender.answer()
    assert wrong == 0
    return transfers


def test_block_lists(hosts, seed):
    """Random lists between random sizes of tensor parallelism and layouts, with four layers."""
    pair = hosts("veth")
    sender, receiver = (Peer(h, h.name, h.tmad("--threads", "1"), PORT) for h in (pair.a, pair.b))
    sender.connect(receiver)
    n, start = share(10000), time.monotonic()
    print(f"{n} lists, {move_lists(sender, receiver, n, seed)} transfers, {time.monotonic() - start:.1f} s")
    for peer in (sender, receiver):
        assert peer.ask("settled", scaled(5))
        peer.ask("close")


def test_a_lossy_link(hosts, seed):
    """The same over a link that delays and loses packets."""
    pair = hosts("tun", delay_ms=2, loss=0.01, seed=seed)
    sender, receiver = (Peer(h, h.name, h.tmad("--threads", "1"), PORT) for h in (pair.a, pair.b))
    sender.connect(receiver)
    n = max(60, share(300))  # enough packets for some to be lost
    transfers = move_lists(sender, receiver, n, seed)
    (sent, lost), (back, lost_back) = pair.link.counts()
    print(f"{n} lists, {transfers} transfers; {lost + lost_back} of {sent + back} packets lost")
    assert lost + lost_back > 0


@contextlib.contextmanager
def etcd_of(host):
    """Runs an etcd at the host's address, whose data is deleted with it. Yields its address for clients."""
    url = f"http://{host.address}:{ETCD_PORT}"
    with tempfile.TemporaryDirectory() as directory:
        process = host.start(["etcd", "--data-dir", directory, "--listen-client-urls", url, "--advertise-client-urls", url],
                             env={"ETCD_UNSUPPORTED_ARCH": "arm64"})  # version 3.4 requires this
        try:
            wait_until(lambda: host.run(_is_open, host.address, ETCD_PORT), f"etcd is at {url}")
            yield url
        finally:
            process.kill()
            process.wait()


def _is_open(address, port):
    with socket.socket() as opened:
        return opened.connect_ex((address, port)) == 0


@pytest.mark.skipif(not shutil.which("etcd"), reason="etcd is not installed: apt-get install etcd-server")
def test_etcd(hosts, seed):
    """Peers learn of each other only through etcd, where one registers before the other; agents do not listen."""
    pair = hosts("veth")
    tmads = [host.tmad("--threads", "1") for host in (pair.a, pair.b)]
    with etcd_of(pair.a) as url:
        env = {"NIXL_ETCD_ENDPOINTS": url}
        sender = Peer(pair.a, "a", tmads[0], 0, env)
        sender.tell("connect", "b")
        receiver = Peer(pair.b, "b", tmads[1], 0, env)
        receiver.ask("connect", "a")
        sender.answer()
        n = share(300)
        print(f"{n} lists, {move_lists(sender, receiver, n, seed)} transfers")
        for peer in (receiver, sender):
            peer.ask("close")


@pytest.mark.parametrize("role", ["send", "receive"])
def test_killed(hosts, seed, role):
    """One side is killed repeatedly during transfers: the other one goes on with a third, gets no wrong data, and has
    all of its slots, descriptors and regions back."""
    rng, pair = random.Random(seed), hosts("veth")
    other_role = "receive" if role == "send" else "send"
    tmads = {host: host.tmad("--threads", "1") for host in (pair.a, pair.b)}
    survivor = Peer(pair.b, "survivor", tmads[pair.b], PORT)
    third = Peer(pair.a, "third", tmads[pair.a], PORT + 1)
    third.introduce(survivor)
    survivor.ask("make_big", 16)
    third.ask("make_big", 2)
    ends, held = {}, []
    rounds = max(8, share(100))
    for number in range(rounds):
        victim = Peer(pair.a, "victim", tmads[pair.a], 0)
        victim.introduce(survivor)
        victim.ask("make_big", 16)
        survivor.ask("begin", other_role, "victim", number)
        victim.ask("begin", role, "survivor", number)
        time.sleep(rng.random() * 0.03 if number > 0 else 0)
        victim.kill()
        end = survivor.ask("end", other_role, number)
        ends[end] = ends.get(end, 0) + 1
        assert survivor.ask("settled", scaled(10))
        survivor.ask("make_big", 2)  # at the same time, with the third
        survivor.ask("begin", other_role, "third", number)
        assert third.ask("round", role, "survivor", number) == "whole"
        assert survivor.ask("end", other_role, number) == "whole"
        survivor.ask("make_big", 16)
        held.append(survivor.ask("held"))
    print(f"{rounds} kills: {ends}; descriptors {held[0][0]} to {held[-1][0]}, regions {held[0][2]} to {held[-1][2]}")
    assert "wrong" not in ends and set(ends) <= {"whole", "DisconnectedError"}
    assert ends.get("DisconnectedError", 0) > 0
    assert held[-1][0] <= held[0][0] + 2 and held[-1][2] <= held[0][2]


def test_a_peer_that_hangs(hosts):
    """Transfers with others go on; the hung peer's slots are not lent to anybody, and only it fails when it wakes
    up."""
    pair = hosts("veth")
    tmads = {host: host.tmad("--threads", "1") for host in (pair.a, pair.b)}
    survivor, third, hung = (Peer(h, name, tmads[h], PORT + i) for i, (h, name) in enumerate(
        ((pair.b, "survivor"), (pair.a, "third"), (pair.a, "hung"))))
    third.connect(survivor)
    hung.connect(survivor)
    for peer in (survivor, third, hung):
        peer.ask("make_big", 8)
    survivor.ask("begin", "receive", "hung", 1)
    hung.ask("begin", "send", "survivor", 1)
    hung.signal(signal.SIGSTOP)
    time.sleep(0.3)
    survivor.ask("begin", "receive", "third", 2)
    assert third.ask("round", "send", "survivor", 2) == "whole"
    assert survivor.ask("end", "receive", 2) == "whole"
    hung.signal(signal.SIGCONT)
    assert hung.ask("end", "send", 1) == "whole"
    assert survivor.ask("settled", scaled(10))


def test_a_link_that_is_cut(hosts, seed):
    """The link is cut for a while: transfers under way go on afterwards."""
    pair = hosts("tun", delay_ms=1, seed=seed)
    sender, receiver = (Peer(h, h.name, h.tmad("--threads", "1"), PORT) for h in (pair.a, pair.b))
    sender.connect(receiver)
    for peer in (sender, receiver):
        peer.ask("make_big", 64)
    receiver.ask("begin", "receive", "a", 1)
    sender.ask("begin", "send", "b", 1)
    time.sleep(0.05)
    pair.link.cut()
    time.sleep(1.5)
    pair.link.restore()
    assert sender.ask("end", "send", 1) == "whole"
    assert receiver.ask("end", "receive", 1) == "whole"

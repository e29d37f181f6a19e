# SPDX-License-Identifier: Apache-2.0
"""Transfers by NIXL between hosts, each with a tmad of its own: every byte, and what is left when a side is killed."""
import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("numpy")
pytest.importorskip("nixl", reason="nixl is not installed: pip install nixl")

from hosts import HERE
from tmad import scaled, share

PORT = 5600


class Peer:
    """A process of peer.py on a host."""

    def __init__(self, host, name, tmad, port):
        self.host, self.name, self.port = host, name, port
        self._process = host.start([sys.executable, os.path.join(HERE, "peer.py"), name, tmad.path, str(port)],
                                   env={"NIXL_LOG_LEVEL": "FATAL"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
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
        """NIXL's exchange of metadata: one side asks, and tells of itself."""
        self.ask("connect", other.name, other.host.address, other.port)
        deadline = time.monotonic() + scaled(20)
        while not other.ask("knows", self.name):
            if time.monotonic() > deadline:
                other.ask("connect", self.name, self.host.address, self.port)
            time.sleep(0.01)

    def introduce(self, other):
        """The same by the test: NIXL's listener keeps a socket of each peer that has ever asked it."""
        for one, another in ((self, other), (other, self)):
            one.ask("add", another.name, another.ask("metadata"))

    def signal(self, number):
        self._process.send_signal(number)

    def kill(self):
        self._process.kill()
        self._process.wait()


def test_block_lists(hosts, seed):
    """Lists at random between sizes of tensor parallelism and layouts at random, of four layers."""
    pair = hosts("veth")
    sender, receiver = (Peer(h, h.name, h.tmad("--threads", "1"), PORT) for h in (pair.a, pair.b))
    sender.connect(receiver)
    sender.ask("fill", True)
    receiver.ask("fill", False)
    n, first = share(10000), seed % (1 << 31)
    start = time.monotonic()
    sender.tell("send_pairs", "b", first, n)
    wrong, transfers = receiver.ask("receive_pairs", "a", first, n)
    sender.answer()
    print(f"{n} lists, {transfers} transfers, {wrong} bytes wrong, {time.monotonic() - start:.1f} s")
    assert wrong == 0
    for peer in (sender, receiver):
        assert peer.ask("settled", scaled(5))
        peer.ask("close")


def test_a_lossy_link(hosts, seed):
    """The same over a link that is late and loses packets."""
    pair = hosts("tun", delay_ms=2, loss=0.01, seed=seed)
    sender, receiver = (Peer(h, h.name, h.tmad("--threads", "1"), PORT) for h in (pair.a, pair.b))
    sender.connect(receiver)
    sender.ask("fill", True)
    receiver.ask("fill", False)
    n, first = max(60, share(300)), seed % (1 << 31)  # enough packets for some to be lost
    sender.tell("send_pairs", "b", first, n)
    wrong, transfers = receiver.ask("receive_pairs", "a", first, n)
    sender.answer()
    (sent, lost), (back, lost_back) = pair.link.counts()
    print(f"{n} lists, {transfers} transfers; {lost + lost_back} of {sent + back} packets lost")
    assert wrong == 0 and lost + lost_back > 0


@pytest.mark.parametrize("role", ["send", "receive"])
def test_killed(hosts, seed, role):
    """One side again and again, mid-transfer: the other one goes on with a third, is told nothing wrong, and has all of
    its slots, descriptors and regions again."""
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
        survivor.ask("make_big", 2)  # beside it: with the third
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
    """Others go on, its slots are lent to nobody, and it fails alone when it wakes up."""
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
    """For a while: what was under way goes on."""
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

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A process with a stage, for tests of transfers: it reads commands and writes their results, a line of JSON each.

Its caches have the same heads for each size of tensor parallelism: a list of layers for each rank, each an array of
blocks. A "pair" has transfers between all ranks that share heads; what it moves, and where, follows from its number, so
that both sides know it, and the receiving one can check every byte of its caches.
"""
import json
import os
import sys
import time

import numpy as np

import tmaclient as tma
import tmaclient.nixl
from nixl._api import nixl_agent, nixl_agent_config

RANKS = (1, 2, 4, 8)
LAYERS, BLOCKS, TOKENS, HEADS, DIM = 4, 48, 4, 8, 24
POISON = 0x5A
# Of a layer's array: the axis of the blocks, and the order of (blocks, tokens, heads, dim).
LAYOUTS = ((0, (0, 1, 2, 3)), (0, (0, 2, 1, 3)), (1, (1, 0, 2, 3)), (2, (2, 1, 0, 3)))


class Pair:
    """What is moved in the pair of that number: sizes of both sides, layouts and lists of blocks."""

    def __init__(self, number):
        rng = np.random.default_rng([17, number])
        self.senders, self.receivers = (int(n) for n in rng.choice(RANKS, 2))
        self.from_, self.to = (int(n) for n in rng.integers(0, len(LAYOUTS), 2))
        n = int(rng.integers(0, BLOCKS + 1))
        self.blocks, self.places = rng.integers(0, BLOCKS, n).tolist(), rng.permutation(BLOCKS)[:n].tolist()
        self.parts = list(tma.nixl.shared_parts(HEADS, self.senders, self.receivers))


class Caches:
    """For each layout and size, the ranks' layers, filled from the same contents."""

    def __init__(self, client, is_sender):
        self.content = np.random.default_rng(23).integers(0, 256, (LAYERS, BLOCKS, TOKENS, HEADS, DIM), "uint8")
        self.ranks = {}
        for number, (_, order) in enumerate(LAYOUTS):
            for n in RANKS:
                self.ranks[number, n] = [[self._layer(client, i, rank, n, order, is_sender) for i in range(LAYERS)]
                                         for rank in range(n)]

    def _layer(self, client, layer, rank, ranks, order, is_sender):
        part = self.part(self.content[layer], rank, ranks).transpose(order)
        array = client.empty(part.shape, "uint8")
        array[...] = part if is_sender else POISON
        return array

    @staticmethod
    def part(layer, rank, ranks):
        return layer[:, :, rank * HEADS // ranks : (rank + 1) * HEADS // ranks]

    def heads(self, layout, ranks, rank, part):
        """Returns the layers of a rank, restricted to these heads."""
        index = [slice(None)] * 4
        index[LAYOUTS[layout][1].index(2)] = part
        return [layer[tuple(index)] for layer in self.ranks[layout, ranks][rank]]

    def wrong_bytes(self, pair):
        """Returns the bytes of the receiver's arrays that are wrong; poisons what has arrived."""
        n_wrong = 0
        for rank, layers in enumerate(self.ranks[pair.to, pair.receivers]):
            for i, layer in enumerate(layers):
                expected = np.full((BLOCKS, TOKENS, HEADS, DIM), POISON, "uint8")
                expected[pair.places] = self.content[i][pair.blocks]
                expected = self.part(expected, rank, pair.receivers).transpose(LAYOUTS[pair.to][1])
                n_wrong += int((layer != expected).sum())
                layer[...] = POISON
        return n_wrong


class Peer:
    """Implements the commands."""

    def __init__(self, name, socket, port):
        self.client = tma.connect(socket)
        listening = {"enable_listen_thread": True, "listen_port": port} if port else {}
        config = nixl_agent_config(enable_prog_thread=False, **listening)
        self.stage = tma.nixl.Stage(self.client, nixl_agent(name, config), slot_bytes=16384, timeout=60.0)
        self.caches, self.big = None, None

    def connect(self, peer, ip="", port=0):
        """Returns once both know each other; without an ip, they find each other by etcd."""
        self.stage.connect(peer, ip, port)

    def metadata(self):
        return self.stage.metadata().hex()

    def add(self, peer, metadata):
        """Adds metadata that arrived in another way, once the earlier agent of that name is gone."""
        end = time.monotonic() + 20
        while self.knows(peer) and time.monotonic() < end:
            time.sleep(0.01)
        self.stage.add(bytes.fromhex(metadata))

    def fill(self, is_sender):
        self.caches = Caches(self.client, is_sender)

    def send_pairs(self, peer, first, n, ahead=8):
        """Sends pairs, some of them before the receiver asks for them."""
        under_way = []
        for number in range(first, first + n):
            pair = Pair(number)
            axis, order = LAYOUTS[pair.from_]
            back = [order.index(d) for d in range(4)]  # on the wire: (blocks, tokens, heads, dim)
            under_way.append([
                self.stage.send(peer, f"{number}, {a} to {b}", self.caches.heads(pair.from_, pair.senders, a, part),
                                pair.blocks, axis=axis, permute=back)
                for a, b, part, _ in pair.parts
            ])
            while len(under_way) > ahead or (number == first + n - 1 and under_way):
                for transfer in under_way.pop(0):
                    transfer.result(120)

    def receive_pairs(self, peer, first, n):
        """Receives pairs. Returns how many bytes were wrong, and how many transfers there were."""
        n_wrong = n_transfers = 0
        for number in range(first, first + n):
            pair = Pair(number)
            axis, order = LAYOUTS[pair.to]
            transfers = [
                self.stage.receive(peer, f"{number}, {a} to {b}", self.caches.heads(pair.to, pair.receivers, b, part),
                                   pair.places, axis=axis, permute=order)
                for a, b, _, part in pair.parts
            ]
            for transfer in transfers:
                transfer.result(120)
            n_transfers += len(transfers)
            n_wrong += self.caches.wrong_bytes(pair)
        return [n_wrong, n_transfers]

    # ---- One transfer after the other, of which either side may be killed

    def make_big(self, mib):
        """Makes an array of blocks of 4 KiB with distinct contents."""
        self.big = self.client.empty((mib << 8, 4096), "uint8")

    def _content(self, number):
        rng = np.random.default_rng([29, number])
        return rng.integers(0, 256, (1, 4096), "uint8") ^ np.arange(len(self.big), dtype="uint8")[:, None]

    def begin(self, what, peer, number):
        """Starts to send or to receive, and does not wait."""
        if what == "send":
            self.big[...] = self._content(number)
            self.transfer = self.stage.send(peer, str(number), self.big)
        else:
            self.big[...] = POISON
            order = np.random.default_rng([31, number]).permutation(len(self.big))
            self.transfer = self.stage.receive(peer, str(number), self.big, order)

    def end(self, what, number):
        """Waits for the transfer. Returns "whole", "wrong", or the name of an exception."""
        error = self.transfer.exception(120)
        if error is not None:
            return type(error).__name__
        if what == "send":
            return "whole"
        order = np.random.default_rng([31, number]).permutation(len(self.big))
        return "whole" if np.array_equal(self.big[order], self._content(number)) else "wrong"

    def round(self, what, peer, number):
        self.begin(what, peer, number)
        return self.end(what, number)

    def settled(self, seconds):
        """Waits until all slots are free. Returns whether they are."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            stats = self.stage.stats()
            if all(stats[side]["free"] == stats[side]["total"] for side in ("send_slots", "receive_slots")):
                return True
            time.sleep(0.01)
        return False

    def held(self):
        """Returns the descriptors and mapped bytes of this process, and the regions of its client."""
        with open("/proc/self/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1])
        return [len(os.listdir("/proc/self/fd")), resident, len(self.client.regions())]

    def knows(self, peer):
        return self.stage._agent.knows(peer)

    def close(self):
        self.stage.close()
        self.client.close()


def main():
    name, socket, port = sys.argv[1:4]
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # NIXL writes there
    peer = Peer(name, socket, int(port))
    print(json.dumps("ready"), file=out)
    for line in sys.stdin:
        command, arguments = json.loads(line)
        print(json.dumps(getattr(peer, command)(*arguments)), file=out)
        if command == "close":
            break
    out.flush()
    os._exit(0)  # without waiting for NIXL's threads


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""KV blocks from a prefill instance to a decode instance on another host: other ranks, another layout, other blocks.

The prefill instance has keys and values of each layer as (2, blocks, tokens, heads, dim), the decode instance as
(2, blocks, heads, tokens, dim), and each divides the heads among ranks of its own number. For each request, each pair
of ranks that share heads has a transfer of all layers. Start both, in any order:

    python prefill_decode.py prefill --listen 5555 --peer 10.0.0.2:5556 --ranks 2 --peer-ranks 4
    python prefill_decode.py decode  --listen 5556 --peer 10.0.0.1:5555 --ranks 4 --peer-ranks 2

An instance is one process here, with the arrays of all its ranks; in a server each rank has a process, and a Stage.
What a request consists of, a server tells the other instance by its own means; here both compute it from the request's
number.
"""

import argparse
import time
from typing import Any

import numpy as np

import tmaclient as tma
import tmaclient.nixl

TOKENS, HEADS, DIM = 16, 8, 128  # of a block
BLOCKS = 64  # of a cache
TIMEOUT = 30.0


def request_of(number: int, layers: int) -> tuple[int, Any]:
    """How many blocks a request has, and what is in them: (layers, 2, blocks, tokens, heads, dim)."""
    rng = np.random.default_rng(number)
    n = int(rng.integers(1, 9))
    return n, rng.integers(0, 1 << 16, (layers, 2, n, TOKENS, HEADS, DIM), "uint16").view("float16")


class Instance:
    """The caches of all ranks, as lists of layers, and the stage."""

    def __init__(self, client: tma.Client, stage: tma.nixl.Stage, options: argparse.Namespace) -> None:
        self.stage, self.options, self.peer = stage, options, "prefill" if options.role == "decode" else "decode"
        heads = max(1, HEADS // options.ranks)
        block = (TOKENS, heads, DIM) if options.role == "prefill" else (heads, TOKENS, DIM)
        self.ranks = [
            [client.empty((2, BLOCKS, *block), "float16") for _ in range(options.layers)] for _ in range(options.ranks)
        ]

    def heads_of(self, rank: int) -> slice:
        """The heads that a rank has."""
        first = rank * HEADS // self.options.ranks
        return slice(first, first + max(1, HEADS // self.options.ranks))

    def prefill(self, number: int) -> int:
        """Computes a request, which here is made up, and sends it."""
        n, content = request_of(number, self.options.layers)
        blocks = np.random.default_rng().permutation(BLOCKS)[:n]
        for rank, cache in enumerate(self.ranks):
            for layer, array in enumerate(cache):
                array[:, blocks] = content[layer][..., self.heads_of(rank), :]
        return self._wait(
            self.stage.send(
                self.peer, f"{number}, {a} to {b}", [x[..., here, :] for x in self.ranks[a]], blocks, axis=1
            )
            for a, b, here, _ in tma.nixl.shared_parts(HEADS, self.options.ranks, self.options.peer_ranks)
        )

    def decode(self, number: int) -> int:
        """Receives a request, and checks every byte."""
        n, content = request_of(number, self.options.layers)
        blocks = np.random.default_rng().permutation(BLOCKS)[:n]
        moved = self._wait(
            self.stage.receive(
                self.peer,
                f"{number}, {a} to {b}",
                [x[:, :, there] for x in self.ranks[b]],
                blocks,
                axis=1,
                permute=(0, 1, 3, 2, 4),
            )
            for a, b, _, there in tma.nixl.shared_parts(HEADS, self.options.peer_ranks, self.options.ranks)
        )
        for rank, cache in enumerate(self.ranks):
            for layer, array in enumerate(cache):
                expected = content[layer][..., self.heads_of(rank), :].swapaxes(2, 3)
                if array[:, blocks].tobytes() != expected.tobytes():
                    raise SystemExit(f"request {number}, rank {rank}, layer {layer}: a byte is wrong")
        return moved

    def _wait(self, transfers: Any) -> int:
        return sum(transfer.result() for transfer in list(transfers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=("prefill", "decode"))
    parser.add_argument("--listen", type=int, required=True, metavar="PORT", help="for NIXL's metadata")
    parser.add_argument("--peer", required=True, metavar="ADDRESS:PORT", help="where the other instance listens")
    parser.add_argument("--ranks", type=int, default=1, help="of this instance (%(default)s)")
    parser.add_argument("--peer-ranks", type=int, default=1, help="of the other one (%(default)s)")
    parser.add_argument("--layers", type=int, default=32, help="(%(default)s)")
    parser.add_argument("--requests", type=int, default=10, help="(%(default)s)")
    parser.add_argument("--socket", metavar="PATH", help="tmad's")
    options = parser.parse_args()
    address, _, port = options.peer.rpartition(":")
    with tma.connect(options.socket) as client:
        with tma.nixl.Stage(client, options.role, port=options.listen, timeout=TIMEOUT) as stage:
            instance = Instance(client, stage, options)
            stage.connect(instance.peer, address, int(port))
            run = instance.prefill if options.role == "prefill" else instance.decode
            start = time.monotonic()
            moved = sum(run(number) for number in range(options.requests))
            seconds = time.monotonic() - start
        print(
            f"{options.role}: {options.requests} requests, {moved / 1e6:.1f} MB in {seconds:.2f} s: every byte is right"
        )


if __name__ == "__main__":
    main()

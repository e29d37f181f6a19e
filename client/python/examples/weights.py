# SPDX-License-Identifier: Apache-2.0
"""Weights from a trainer's shards to servers' shards on another host, cast to float8 on the way.

Each tensor of the trainer lies in shards along one axis, each of the servers' along the same one, but in another
number of them. Where two shards share rows or columns there is a transfer of these, whose blocks are the rows; its
elements are scaled and cast as they are gathered, so that half the bytes travel. Start both, in any order:

    python weights.py trainer --listen 5555 --peer 10.0.0.2:5556 --shards 4 --peer-shards 2
    python weights.py servers --listen 5556 --peer 10.0.0.1:5555 --shards 2 --peer-shards 4

Both make up the same weights here, so that the servers can check every byte; scales would travel with the request. It
needs the package ml_dtypes.
"""

import argparse
import functools
import time
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

import tmaclient as tma
import tmaclient.nixl

MODEL = {  # name: shape, and the axis that is divided
    "attention.qkv": ((3072, 1024), 0),
    "attention.out": ((1024, 1024), 1),
    "mlp.up": ((4096, 1024), 0),
    "mlp.down": ((1024, 4096), 1),
}
FP8 = "float8_e4m3fn"


@functools.cache
def weights_of(name: str, step: int) -> Any:
    """A tensor after a step of training."""
    shape, _ = MODEL[name]
    rng = np.random.default_rng([step, *name.encode()])
    return (rng.standard_normal(shape, "float32") * 0.05).astype(ml_dtypes.bfloat16)


@functools.cache
def scale_of(name: str, step: int) -> float:
    """What its elements are divided by, so that the largest is float8's."""
    return float(np.abs(weights_of(name, step)).max()) / float(ml_dtypes.finfo(FP8).max)


class Side:
    """All shards of a side."""

    def __init__(self, client: tma.Client, stage: tma.nixl.Stage, options: argparse.Namespace) -> None:
        self.stage, self.options = stage, options
        self.peer = "servers" if options.role == "trainer" else "trainer"
        dtype = "bfloat16" if options.role == "trainer" else FP8
        self.shards = {
            name: [client.empty(part, dtype) for part in self._shapes(shape, axis)]
            for name, (shape, axis) in MODEL.items()
        }

    def _shapes(self, shape: tuple[int, ...], axis: int) -> Iterator[tuple[int, ...]]:
        for i in range(self.options.shards):
            n = (i + 1) * shape[axis] // self.options.shards - i * shape[axis] // self.options.shards
            yield tuple(n if d == axis else extent for d, extent in enumerate(shape))

    def _parts(self) -> Iterator[tuple[str, str, Any]]:
        """Each transfer: its tensor, its tag, and its part of a shard of this side."""
        is_trainer, counts = self.options.role == "trainer", (self.options.shards, self.options.peer_shards)
        for name, (shape, axis) in MODEL.items():
            for a, b, sent, received in tma.nixl.shared_parts(shape[axis], *(counts if is_trainer else counts[::-1])):
                shard, part = (a, sent) if is_trainer else (b, received)
                yield name, f"{name} {a} to {b}", self.shards[name][shard][(slice(None),) * axis + (part,)]

    def train(self, step: int) -> int:
        """Makes up the weights of a step, and sends them."""
        for name, (_, axis) in MODEL.items():
            for shard, part in zip(
                self.shards[name], np.array_split(weights_of(name, step), self.options.shards, axis), strict=True
            ):
                shard[...] = part
        transfers = [
            self.stage.send(self.peer, f"{step} {tag}", part, dtype=FP8, scale=1 / scale_of(name, step))
            for name, tag, part in self._parts()
        ]
        return sum(t.result() for t in transfers)

    def serve(self, step: int) -> int:
        """Receives the weights of a step, and checks them."""
        transfers = [self.stage.receive(self.peer, f"{step} {tag}", part) for _, tag, part in self._parts()]
        moved = sum(t.result() for t in transfers)
        for name, (_, axis) in MODEL.items():
            got = np.concatenate([shard.view("uint8") for shard in self.shards[name]], axis)
            scaled = weights_of(name, step).astype("float32") * np.float32(1 / scale_of(name, step))
            if not np.array_equal(got, np.clip(scaled, -448, 448).astype(ml_dtypes.float8_e4m3fn).view("uint8")):
                raise SystemExit(f"step {step}, {name}: a byte is wrong")
        return moved


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=("trainer", "servers"))
    parser.add_argument("--listen", type=int, required=True, metavar="PORT", help="for NIXL's metadata")
    parser.add_argument("--peer", required=True, metavar="ADDRESS:PORT", help="where the other side listens")
    parser.add_argument("--shards", type=int, default=1, help="of this side (%(default)s)")
    parser.add_argument("--peer-shards", type=int, default=1, help="of the other one (%(default)s)")
    parser.add_argument("--steps", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--socket", metavar="PATH", help="tmad's")
    options = parser.parse_args()
    address, _, port = options.peer.rpartition(":")
    with tma.connect(options.socket) as client:
        with tma.nixl.Stage(client, options.role, port=options.listen) as stage:
            side = Side(client, stage, options)
            stage.connect(side.peer, address, int(port))
            start = time.monotonic()
            moved = sum((side.train if options.role == "trainer" else side.serve)(i) for i in range(options.steps))
            seconds = time.monotonic() - start
        print(f"{options.role}: {options.steps} steps, {moved / 1e6:.1f} MB in {seconds:.2f} s: every byte is right")


if __name__ == "__main__":
    main()

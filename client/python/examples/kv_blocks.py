# SPDX-License-Identifier: Apache-2.0
"""Moves KV blocks from one process to another, through a staging buffer that both share with tmad.

Each process has a pool in memory of multiprocessing.shared_memory, which it registers: (blocks, layers, heads, tokens,
dim). The sender gathers the blocks of a sequence, wherever they lie, and in the order that the receiver's attention
wants: (blocks, layers, tokens, heads, dim). The receiver scatters them to where it has room.

    python kv_blocks.py [--socket PATH]
"""

import argparse
import multiprocessing
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory

import numpy as np

import tmaclient as tma

BLOCKS, LAYERS, HEADS, TOKENS, DIM = 64, 4, 8, 16, 32
SENT = 24  # blocks of a sequence
ORDER = (0, 1, 3, 2, 4)  # heads and tokens change places
POOL, MOVED = (BLOCKS, LAYERS, HEADS, TOKENS, DIM), (BLOCKS, LAYERS, TOKENS, HEADS, DIM)


class Pool:
    """An array in shared memory that is registered with tmad."""

    def __init__(self, client: tma.Client, memory: SharedMemory, shape: tuple[int, ...]) -> None:
        self.memory = memory
        self.array = np.ndarray(shape, "float16", memory.buf)
        self._region = client.register(self.array)

    def close(self) -> None:
        """The memory can be unmapped when nothing is left that views it."""
        self._region.release()
        del self.array, self._region
        self.memory.close()


def memory_of(shape: tuple[int, ...]) -> SharedMemory:
    """New memory for halves."""
    return SharedMemory(create=True, size=2 * int(np.prod(shape)))


def receive(socket: str | None, name: str, connection: Connection) -> None:
    """The process that continues the sequence."""
    with tma.connect(socket) as client:
        memory = memory_of(MOVED)
        staging, pool = Pool(client, SharedMemory(name), (SENT, *MOVED[1:])), Pool(client, memory, MOVED)
        free = np.random.default_rng(2).permutation(BLOCKS)[:SENT]
        connection.recv()  # the blocks are there
        client.scatter(pool.array, free, staging.array)
        connection.send((free, pool.array.copy()))  # to be checked; a server would go on here
        pool.close()
        staging.close()
        memory.unlink()


def send(socket: str | None, name: str, connection: Connection) -> None:
    """The process that has computed the blocks."""
    with tma.connect(socket) as client:
        memory = memory_of(POOL)
        staging, pool = Pool(client, SharedMemory(name), (SENT, *MOVED[1:])), Pool(client, memory, POOL)
        pool.array[...] = np.random.default_rng(1).random(POOL)
        blocks = np.random.default_rng(3).permutation(BLOCKS)[:SENT]
        client.gather(pool.array, blocks, permute=ORDER, out=staging.array)
        connection.send("there")
        placed, received = connection.recv()
        expected = np.zeros(MOVED, "float16")
        expected[placed] = pool.array[blocks].transpose(ORDER)
        assert received.tobytes() == expected.tobytes(), "a byte is wrong"
        print(f"{SENT} blocks of {LAYERS} layers, {staging.memory.size / 1e6:.1f} MB: every byte is right")
        pool.close()
        staging.close()
        memory.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--socket", metavar="PATH", help="tmad's socket")
    socket = parser.parse_args().socket
    processes = multiprocessing.get_context("spawn")
    staging = memory_of((SENT, *MOVED[1:]))
    here, there = processes.Pipe()
    receiver = processes.Process(target=receive, args=(socket, staging.name, there), daemon=True)
    receiver.start()
    there.close()
    try:
        send(socket, staging.name, here)
        receiver.join()
    finally:
        staging.close()
        staging.unlink()
    assert receiver.exitcode == 0


if __name__ == "__main__":
    main()

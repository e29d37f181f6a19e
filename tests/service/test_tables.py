# SPDX-License-Identifier: Apache-2.0
"""Tables: layers in many regions, against NumPy, and what they refuse. TEST_SEED repeats a random run."""
import os
import random
import signal
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from raw import RawCase
from tmad import ENGINE, GPU, RpcError, Tmad, by_engine, share, tensor, wait_until

LAYERS = 80  # and as many for V


def places(*entries):
    """The entries of a table as they travel: region and offset."""
    return np.array(entries, "<u8").tobytes()


def layout(shape, dtype="uint8", **fields):
    """A tensor whose region a table names."""
    return {"dtype": dtype, "shape": list(shape), **fields}


class TableCase(RawCase):
    def prepare(self, *entries):
        return self.rpc.call("table_prepare", {"places": places(*entries)})["table"]

    def layers(self, n, size, fill=None):
        """So many regions of a layer each: their memory and their ids."""
        made = [self.region(size, data=fill(i) if fill else None) for i in range(n)]
        return [memory for memory, _ in made], [region for _, region in made]


# ---- Caches of keys and values ------------------------------------------------------------------------------
class Cache(TableCase):
    """80 + 80 regions, as engines that serve models have them: K and V of each layer are allocations of their own."""

    BLOCKS, SHAPE = 64, (4, 2, 16)  # of a region; of a block: tokens, heads, bytes

    def setUp(self):
        super().setUp()
        self.block = int(np.prod(self.SHAPE))
        rng = np.random.default_rng(11)
        self.pad = [int(rng.integers(0, 9)) * 16 for _ in range(2 * LAYERS)]  # before block 0 of each region
        self.pool = rng.integers(0, 256, (2 * LAYERS, self.BLOCKS, *self.SHAPE), dtype=np.uint8)
        size = self.BLOCKS * self.block + 9 * 16
        self.src, self.src_regions = self.layers(
            2 * LAYERS, size, lambda i: bytes(self.pad[i]) + self.pool[i].tobytes())
        self.dst, self.b = self.region(2 * LAYERS * self.BLOCKS * self.block)
        self.table = self.prepare(*zip(self.src_regions, self.pad))
        self.picks = rng.permutation(self.BLOCKS).astype("<i4")

    def gather(self, **fields):
        params = {"dst": tensor(self.b, self.SHAPE), "src": layout(self.SHAPE), "src_table": self.table,
                  "dst_layer_step": self.BLOCKS * self.block, "index": self.picks.tobytes(), "limit": self.BLOCKS}
        return self.rpc.call("gather", {key: value for key, value in {**params, **fields}.items() if value is not None})

    def test_gather_and_scatter_back(self):
        done = self.gather()
        self.assertEqual(self.dst[:], self.pool.take(self.picks, 1).tobytes())
        self.assertEqual((done["moved"], done["bytes"]), (self.BLOCKS, 2 * self.pool.nbytes))
        for memory in self.src:
            memory[:] = bytes(memory.size)
        done = self.rpc.call("scatter", {"dst": layout(self.SHAPE), "src": tensor(self.b, self.SHAPE),
                                         "dst_table": self.table, "src_layer_step": self.BLOCKS * self.block,
                                         "index": self.picks.tobytes(), "limit": self.BLOCKS})
        self.assertEqual((done["moved"], done["bytes"]), (self.BLOCKS, 2 * self.pool.nbytes))
        for i, memory in enumerate(self.src):
            expected = bytes(self.pad[i]) + self.pool[i].tobytes()
            self.assertEqual(memory[:], expected.ljust(memory.size, b"\0"), f"entry {i}")

    def test_places_in_the_request(self):
        self.gather(src_table=None, src_places=places(*zip(self.src_regions, self.pad)))
        self.assertEqual(self.dst[:], self.pool.take(self.picks, 1).tobytes())

    def test_heads_of_a_slice(self):
        """The tensor's offset is added to each entry: the second head, head first."""
        heads = (1, 4, 16)
        self.gather(src=layout((4, 1, 16), offset=16, strides=[32, 16, 1]), src_step=self.block, perm=[1, 0, 2],
                    dst=tensor(self.b, heads), dst_layer_step=self.BLOCKS * 64)
        expected = self.pool.take(self.picks, 1)[:, :, :, 1:]
        self.assertEqual(self.dst[:expected.size], expected.transpose(0, 1, 3, 2, 4).tobytes())

    def test_blocks_that_fit_everywhere(self):
        """Without a limit there are as many as the smallest rest of a region has room for."""
        room = min(memory.size - pad for memory, pad in zip(self.src, self.pad)) // self.block
        self.gather(limit=None, index=np.array([room - 1], "<i4").tobytes())
        error = self.refused("OUT_OF_RANGE", "gather", {
            "dst": tensor(self.b, self.SHAPE), "src": layout(self.SHAPE), "src_table": self.table,
            "dst_layer_step": self.block, "index": np.array([room], "<i4").tobytes()})
        self.assertIn(f"src has {room} blocks", error.message)

    def test_one_launch(self):
        """The stand-in driver's trace has a line for each operation of the device."""
        if ENGINE != "cuda" or GPU:
            self.skipTest("for the stand-in driver")
        self.assertEqual(self.count_launches(self.gather), 1)


    def count_launches(self, work):
        before = launches(self.trace.name)
        work()
        return launches(self.trace.name) - before

    @classmethod
    def setUpClass(cls):
        cls.trace = tempfile.NamedTemporaryFile(prefix="tmad-trace-")
        cls.addClassCleanup(cls.trace.close)
        cls.tmad = Tmad(env={"SOFTGPU_TRACE": cls.trace.name})
        cls.addClassCleanup(cls.tmad.stop)
        with cls.tmad.rpc() as rpc:
            rpc.call("ping")
        cls.idle_fds = wait_until(cls.tmad.fds, "a number")


def launches(path):
    with open(path, encoding="ascii") as trace:
        return sum(line.startswith("begin kernels ") for line in trace)


if __name__ == "__main__":
    tap.main()

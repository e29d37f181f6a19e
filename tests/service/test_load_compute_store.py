# SPDX-License-Identifier: Apache-2.0
"""The introductory example of the Tensor Memory Accelerator, by requests: an 8 x 8 matrix is loaded in tiles of 4 x 4, each
element of a tile is increased by its index there, and the tiles are stored. A bias that broadcasts over the tiles does it."""
import os
import sys
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import Memory, RpcError, Tmad, tensor

SIDE, TILE = 8, 4
BYTES = 4 * SIDE * SIDE
SRC, DST, BIAS = 0, BYTES, 2 * BYTES


class Tiles(unittest.TestCase):
    def setUp(self):
        tmad = Tmad()
        self.addCleanup(tmad.stop)
        self.rpc = tmad.rpc()
        self.addCleanup(self.rpc.close)
        memory = Memory(3 * BYTES)
        self.addCleanup(memory.close)
        matrix = np.arange(SIDE * SIDE, dtype="f4")
        memory[:BYTES] = matrix.tobytes()
        memory[BIAS:BIAS + 4 * TILE * TILE] = np.arange(TILE * TILE, dtype="f4").tobytes()
        self.memory = memory
        self.region = memory.register(self.rpc)
        self.expected = matrix.reshape(SIDE, SIDE) + np.tile(np.arange(TILE * TILE, dtype="f4").reshape(TILE, TILE), (2, 2))

    def at(self, offset, shape, **fields):
        return tensor(self.region, shape, "float32", offset=offset, **fields)

    def result(self, offset=DST):
        return np.frombuffer(self.memory[offset:offset + BYTES], "f4").reshape(SIDE, SIDE)

    def check(self):
        self.assertTrue(np.array_equal(self.result(), self.expected))
        # The tile of the lower right, as the example prints it.
        self.assertEqual(self.result()[TILE:, TILE:].tolist(), [[36, 38, 40, 42], [48, 50, 52, 54], [60, 62, 64, 66],
                                                                [72, 74, 76, 78]])

    def test_one_request(self):
        """Both sides are seen as 2 x 2 tiles, [2, 4, 2, 4]; the bias is [4, 1, 4]."""
        split = [0, TILE, 2, TILE]
        reply = self.rpc.call("transform", {"dst": self.at(DST, [SIDE, SIDE], split=split),
                                            "src": self.at(SRC, [SIDE, SIDE], split=split), "cast": "exact",
                                            "bias": self.at(BIAS, [TILE, 1, TILE])})
        self.assertEqual((reply["path"], reply["bytes"]), ("convert", 2 * BYTES))
        self.check()

    def tile(self, side, x, y):
        return self.at(side + 4 * (y * SIDE + x), [TILE, TILE], strides=[SIDE, 1])

    def test_a_request_for_each_tile(self):
        """As the blocks of threads of the example."""
        items = [{"dst": self.tile(DST, x, y), "src": self.tile(SRC, x, y), "cast": "saturate", "bias": self.at(BIAS, [TILE, TILE])}
                 for y in (0, TILE) for x in (0, TILE)]
        self.assertEqual(self.rpc.call("submit", {"items": items})["statuses"], [0] * 4)
        self.check()

    def test_a_plan_for_each_tile(self):
        layout = {"dtype": "float32", "shape": [TILE, TILE], "strides": [SIDE, 1]}
        plan = self.rpc.call("plan_prepare", {"dst": layout, "src": layout, "cast": "saturate",
                                              "bias": {"dtype": "float32", "shape": [TILE, TILE]}})["plan"]
        for y in (0, TILE):
            for x in (0, TILE):
                at = 4 * (y * SIDE + x)
                self.rpc.call("plan_run", {"plan": plan, "dst": [self.region, DST + at], "src": [self.region, SRC + at],
                                           "bias": [self.region, BIAS]})
        self.check()

    def test_in_place_is_refused(self):
        """The example stores where it loads; a conversion does not, because it may read an element after it is written."""
        before = self.result(SRC).copy()
        with self.assertRaises(RpcError) as refused:
            self.rpc.call("transform", {"dst": self.tile(SRC, 0, 0), "src": self.tile(SRC, 0, 0), "cast": "saturate",
                                        "bias": self.at(BIAS, [TILE, TILE])})
        self.assertEqual(refused.exception.name, "OVERLAP")
        self.assertTrue(np.array_equal(self.result(SRC), before))


if __name__ == "__main__":
    tap.main()

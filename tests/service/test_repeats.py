# SPDX-License-Identifier: Apache-2.0
"""A request that comes again plans nothing: whatever it moves, no further plans are made after the first one."""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from raw import RawCase
from tmad import Tmad, share, tensor

REPEATS = 1000
SIDE = 1024  # float32 elements, so that a tensor is more than is moved without scratch memory
SIZE = 4 * SIDE * SIDE


def part(of, start):
    """Returns a slice of the tensor that a reshard puts together."""
    return {"tensor": of, "start": start}


class Repeats(RawCase):
    def setUp(self):
        super().setUp()
        self.src_memory, self.src = self.region(SIZE, data=os.urandom(SIZE))
        self.dst_memory, self.dst = self.region(SIZE)
        self.array = np.frombuffer(self.src_memory[:], np.float32)

    def made(self):
        return self.rpc.call("stats")["plan_cache"]["misses"]

    def repeat(self, method, params, least=3):
        """Checks that the calls after the first one make no plans and write the same."""
        self.rpc.call(method, params)
        before, written = self.made(), self.dst_memory[:]
        for _ in range(max(least, share(REPEATS))):
            self.dst_memory[:64] = bytes(64)
            self.rpc.call(method, params)
        self.assertEqual(self.made(), before)
        self.assertEqual(self.dst_memory[:], written)

    def test_a_transposition_that_is_staged(self):
        self.repeat("transform", {"dst": tensor(self.dst, [SIDE, SIDE], "float32"), "perm": [1, 0],
                                  "src": tensor(self.src, [SIDE, SIDE], "float32")})
        self.assertEqual(self.dst_memory[:], self.array.view(np.uint32).reshape(SIDE, SIDE).T.tobytes())

    def test_a_gather_by_a_list(self):
        index = np.random.default_rng(1).permutation(64).astype("<i4")
        for shape, fields in (([64], {}), ([8, 16], {"strides": [20, 1]})):  # a run of bytes, and rows with gaps
            self.repeat("gather", {"dst": tensor(self.dst, shape), "src": tensor(self.src, shape, **fields),
                                   "dst_step": 128, "src_step": 256, "limit": 64, "index": index.tobytes()})

    def test_a_gather_by_tables(self):
        places = [np.array([(region, i * 65536) for i in range(16)], "<u8").tobytes() for region in (self.dst, self.src)]
        tables = [self.rpc.call("table_prepare", {"places": place})["table"] for place in places]
        index = np.arange(7, -1, -1, dtype="<i4").tobytes()
        self.repeat("gather", {"dst": {"dtype": "uint8", "shape": [64]}, "src": {"dtype": "uint8", "shape": [64]},
                               "dst_table": tables[0], "src_table": tables[1], "dst_step": 64, "src_step": 64,
                               "limit": 64, "index": index})

    def test_a_batch(self):
        def item(i):
            return {"dst": tensor(self.dst, [9, 7 + i, 5], offset=i * 4096), "perm": [2, 0, 1],
                    "src": tensor(self.src, [7 + i, 5, 9], offset=i * 4096 + i)}
        self.repeat("submit", {"items": [item(i) for i in range(32)]})

    def test_a_reshard(self):
        rows = SIDE // 4
        self.repeat("reshard", {
            "destinations": [part(tensor(self.dst, [SIDE, rows], "float32", offset=i * SIZE // 4), [0, i * rows])
                             for i in range(4)],
            "sources": [part(tensor(self.src, [rows, SIDE], "float32", offset=i * SIZE // 4), [i * rows, 0])
                        for i in range(4)]})

    def test_a_run_of_a_plan(self):
        plan = self.rpc.call("plan_prepare", {"dst": {"dtype": "float32", "shape": [100, 300]}, "perm": [1, 0],
                                              "src": {"dtype": "float32", "shape": [300, 100]}})["plan"]
        self.repeat("plan_run", {"plan": plan, "dst": [self.dst, 4], "src": [self.src, 8]})

    def test_what_does_not_fit(self):
        """Without a cache every call plans again, and moves the right bytes."""
        with Tmad("--plan-cache-entries=0") as tmad, tmad.rpc() as rpc:
            dst, src = self.dst_memory.register(rpc), self.src_memory.register(rpc)
            for n in range(3):
                rpc.call("transform", {"dst": tensor(dst, [SIDE, SIDE], "float32"), "perm": [1, 0],
                                       "src": tensor(src, [SIDE, SIDE], "float32")})
                self.assertGreater(rpc.call("stats")["plan_cache"]["misses"], n)
            self.assertEqual(rpc.call("stats")["plan_cache"]["entries"], 0)
            self.assertEqual(self.dst_memory[:], self.array.view(np.uint32).reshape(SIDE, SIDE).T.tobytes())


if __name__ == "__main__":
    tap.main()

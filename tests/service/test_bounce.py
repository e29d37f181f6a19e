# SPDX-License-Identifier: Apache-2.0
"""Transforms between devices that do not reach each other: through a bounce buffer in host memory.

TEST_SEED repeats a random run; TEST_CASES sets its length by a number instead of TEST_SHARE.
"""
import os
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
import test_multicast as multicast
from test_devices import DEVICES, DeviceCase
from tmad import SANITIZED, tensor, wait_until

CHUNK = 4096  # a half of a buffer has a quarter of it, or what a row takes
SIZE = multicast.SIZE


class NoLinks(DeviceCase):
    args = (f"--device-chunk-bytes={CHUNK}", "--jobs-per-uid=8192")
    env = {"SOFTGPU_LINKS": "all:none"}

    def bounces(self):
        return [entry for entry in self.rpc.call("region_list") if entry["region"] not in self.known]

    def test_at_random(self):
        multicast.run(self, 100 if SANITIZED else 3000, range(DEVICES), is_one=True)

    def test_what_is_held(self):
        """One buffer for a connection, which requests cannot name, and which other connections do not share."""
        regions = [self.create(i, SIZE) for i in range(DEVICES)]
        self.known = regions
        self.assertEqual(self.bounces(), [])
        for _ in range(2):
            for dst, src in zip(regions, regions[1:] + regions[:1]):
                self.rpc.call("copy", {"dst": tensor(dst, [4096]), "src": tensor(src, [4096])})
        entry, = self.bounces()
        self.assertEqual((entry["kind"], entry["size"], entry["jobs"]), ("memfd", 2 * CHUNK // 4, 0))
        at = tensor(entry["region"], [64])
        self.refused("NOT_FOUND", "copy", {"dst": at, "src": tensor(regions[0], [64])}, ["dst.region"])
        self.refused("NOT_FOUND", "region_release", {"region": entry["region"]})
        self.refused("NOT_FOUND", "table_prepare", {"places": np.array([entry["region"], 0], "<u8").tobytes()})
        with self.tmad.rpc() as other:
            a, b = (self.create(i, SIZE, rpc=other) for i in (0, 1))
            other.call("copy", {"dst": tensor(a, [64]), "src": tensor(b, [64])})
            self.assertEqual(len(other.call("region_list")), 3)
        wait_until(lambda: self.rpc.call("stats")["regions"] == DEVICES + 1, "it ends with its connection")

    def test_a_larger_one(self):
        """A row that is larger than a half takes another buffer instead."""
        a, b = self.create(0, SIZE), self.create(2, SIZE)
        self.known = [a, b]
        for n, size in ((64, 512), (SIZE // 2, 2 * 1024), (64, 2 * 1024)):
            self.rpc.call("copy", {"dst": tensor(a, [n]), "src": tensor(b, [n])})
            self.assertEqual([entry["size"] for entry in self.bounces()], [size])
        wide = {"shape": [2, 3 * 8192], "dtype": "uint8"}
        self.rpc.call("pad", {"dst": {**wide, "region": a, "shape": [2, 3 * 8192 + 1]}, "src": {**wide, "region": b},
                              "before": [0, 1], "after": [0, 0]})
        self.assertEqual([entry["size"] for entry in self.bounces()], [2 * 3 * 8192])

    def test_bytes_and_counters(self):
        a, b = self.create(0, SIZE), self.create(2, SIZE)
        done = self.rpc.call("copy", {"dst": tensor(a, [5000]), "src": tensor(b, [5000])})
        self.assertEqual((done["bytes"], done["path"]), (4 * 5000, "memcpy"))
        rows = self.rpc.call("stats")["devices"]
        self.assertEqual([row["transforms"] for row in rows], [1, 0, 0, 0])

    def test_an_exact_cast(self):
        memory, host = self.memory(SIZE, data=np.arange(0, 1000, 0.5, "<f4").tobytes())
        a, b = self.create(1, SIZE), self.create(3, SIZE)
        self.rpc.call("copy", {"dst": tensor(b, [2000], "float32"), "src": tensor(host, [2000], "float32")})
        self.refused("OUT_OF_RANGE", "transform", {"dst": tensor(a, [2000], "int16"), "cast": "exact",
                                                   "src": tensor(b, [2000], "float32")},
                     ["of 1000 elements of float32 are not values of int16"])
        self.rpc.call("copy", {"dst": tensor(host, [2000], "int16"), "src": tensor(a, [2000], "int16")})
        self.assertEqual(np.frombuffer(memory[:4000], "<i2").tolist(), [i // 2 for i in range(2000)])

    def test_amax(self):
        """In one box."""
        values = np.random.default_rng(1).normal(size=(8, 64)).astype("<f4")
        memory, host = self.memory(SIZE, data=values.tobytes())
        a, b = self.create(1, SIZE), self.create(3, SIZE)
        self.rpc.call("copy", {"dst": tensor(b, [8, 64], "float32"), "src": tensor(host, [8, 64], "float32")})
        params = {"src": tensor(b, [8, 64], "float32"), "cast": "saturate"}
        results = []
        for dst, region in ((a, a), (host, host)):
            scale = tensor(region, [8, 1], "float32", offset=8192)
            src = {"src": tensor(host, [8, 64], "float32")} if dst == host else {}
            self.rpc.call("transform", {**params, **src, "dst": tensor(dst, [8, 64], "float8_e4m3fn", offset=4096),
                                        "amax": {"block": [1, 64], "scale": scale}})
            if dst == a:
                for at, n in ((4096, 512), (8192, 32)):
                    self.rpc.call("copy", {"dst": tensor(host, [n], offset=at), "src": tensor(a, [n], offset=at)})
            results.append(memory[4096:4608] + memory[8192:8224])
        self.assertEqual(*results)

    def test_refused(self):
        a, b = self.create(0, SIZE), self.create(2, SIZE)
        at = {"dst": tensor(a, [64]), "src": tensor(b, [64])}
        self.refused("OUT_OF_RANGE", "copy", {**at, "src": tensor(b, [64], offset=SIZE)}, ["src"])
        self.refused("INVALID_ARGUMENT", "copy", {**at, "dst": tensor(a, [65])}, ["dst.shape"])
        done = self.rpc.call("submit", {"items": [at]})
        self.assertEqual(done["errors"][0]["name"], "UNSUPPORTED")
        self.refused("UNSUPPORTED", "transform", {**at, "further_dst": [tensor(a, [64], offset=64)]}, ["cannot reach"])
        self.rpc.call("copy", at)


class Large(DeviceCase):
    env = {"SOFTGPU_LINKS": "all:none", "SOFTGPU_MEMORY": str(1 << 30)}

    def test_what_cannot_be_cut(self):
        n = 65 << 20
        a, b = self.create(0, n + 1), self.create(1, n)
        self.refused("UNSUPPORTED", "pad", {"dst": tensor(a, [n + 1]), "src": tensor(b, [n]), "before": [1], "after": [0]},
                     ["no link", str(n)])


class Quotas(DeviceCase):
    args = ("--regions-per-uid=3",)
    env = {"SOFTGPU_LINKS": "all:none"}

    def test_the_buffer_counts(self):
        a, b = self.create(0), self.create(1)
        params = {"dst": tensor(a, [64]), "src": tensor(b, [64])}
        self.refused("QUOTA", "copy", params, ["regions_per_uid"])
        self.assertEqual(len(self.rpc.call("region_list")), 3, "the buffer, but not its mapping for the other device")


class Ends(DeviceCase):
    args = (f"--device-chunk-bytes={CHUNK}",)
    env = {"SOFTGPU_LINKS": "all:none", "SOFTGPU_SLOW_US": "1000", "SOFTGPU_MAP_US": "20000"}

    def test_of_a_connection(self):
        """While the buffer is made, while it is mapped, and in the middle of the boxes (Tmad.stop looks)."""
        for seconds in (0, 0.01, 0.03, 0.06, 0.1, 0.2):
            with self.tmad.rpc() as rpc:
                a, b = (self.create(i, SIZE, rpc=rpc) for i in (0, 1))
                rpc.request("copy", {"dst": tensor(a, [SIZE]), "src": tensor(b, [SIZE])})
                time.sleep(seconds)
            wait_until(lambda: self.rpc.call("stats")["regions"] == 0, "all is unmapped")

    def test_points(self):
        word, timeline = self.memory(4096)
        memory, host = self.memory(SIZE, data=os.urandom(SIZE))
        before = memory[:SIZE]
        a, b = self.create(0, SIZE), self.create(1, SIZE)
        self.rpc.call("copy", {"dst": tensor(b, [SIZE]), "src": tensor(host, [SIZE])})
        memory[:SIZE] = bytes(SIZE)
        point = {"region": timeline, "offset": 0, "value": 1}
        first = self.rpc.request("copy", {"dst": tensor(a, [SIZE]), "src": tensor(b, [SIZE]), "wait": point,
                                          "signal": {**point, "offset": 8}})
        back = self.rpc.request("copy", {"dst": tensor(host, [SIZE]), "src": tensor(a, [SIZE])})
        time.sleep(0.2)
        self.assertEqual((word[8], memory[:64]), (0, bytes(64)))
        word[:8] = (1).to_bytes(8, "little")
        self.rpc.reply(first)
        self.assertEqual(word[8], 1)
        self.rpc.reply(back)
        self.assertEqual(memory[:SIZE], before)


if __name__ == "__main__":
    if not multicast.HAS_DEVICES:
        print("1..0 # SKIP this build has no cuda engine")
    else:
        tap.main()

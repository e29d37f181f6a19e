# SPDX-License-Identifier: Apache-2.0
"""One service for several devices, which the stand-in driver plays: at random against NumPy, and what is said of them.

TEST_SEED repeats a random run; TEST_CASES sets its length, or the number of losses, instead of TEST_SHARE.
"""
import ctypes
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import scrape
import tap
from tmad import (SANITIZED, SOFTGPU, Memory, RpcError, Tmad, arguments_of, children, command_of, engines, own_uid, share, tensor,
                  tmactl, wait_until)

DEVICES = 4
SIZE = 1 << 17  # bytes of a place
UNIT = 2 << 20  # the stand-in driver's granularity
WIDTH = {"uint8": 1, "uint16": 2, "float32": 4, "uint64": 8}
LIBRARY = os.path.join(SOFTGPU, "libcuda.so.1")


def cases(full):
    """Returns the number of cases for a random run whose full number is given."""
    return int(os.environ.get("TEST_CASES") or share(full))


class DeviceCase(unittest.TestCase):
    engine = "cuda"
    args = ()
    env = {}

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.metrics = f"unix:{self.directory.name}/metrics"
        self.tmad = Tmad(*self.args, f"--metrics={self.metrics}", engine=self.engine,
                         env={"SOFTGPU_DEVICES": str(DEVICES), **self.env})
        self.addCleanup(self.tmad.stop)
        self.rpc = self.tmad.rpc()
        self.addCleanup(self.rpc.close)

    def memory(self, size=SIZE, rpc=None, data=None, **fields):
        """Makes host memory and its region."""
        memory = Memory(size, data=data)
        self.addCleanup(memory.close)
        return memory, memory.register(rpc or self.rpc, **fields)

    def create(self, device, size=SIZE, rpc=None, **fields):
        """Creates a region on a device."""
        made = (rpc or self.rpc).call("region_create", {"size": size, "device": device, **fields})
        while (rpc or self.rpc).fds:
            os.close((rpc or self.rpc).fds.pop())
        return made["region"]

    def refused(self, name, method, params, words=(), fds=(), rpc=None):
        with self.assertRaises(RpcError) as caught:
            (rpc or self.rpc).call(method, params, fds)
        self.assertEqual(caught.exception.name, name, caught.exception.message)
        for word in words:
            self.assertIn(word, caught.exception.message)

    def uuids(self):
        return [device["uuid"] for device in self.rpc.call("info")["devices"]]


# ---- At random ----------------------------------------------------------------------------------------------
class Places:
    """Regions of the host and of all devices, with their expected contents."""

    MOST = 256  # each byte of their contents is less than this

    def __init__(self, case, rng):
        self.case, self.rng = case, rng
        self.names, self.regions, self.held = [], [], []
        self.stage, self.staged = case.memory()
        for i in range(2):
            memory, region = case.memory(device=case.uuids()[i * 2])
            self.add(f"host {i}", region, memory)
        for device in range(DEVICES):
            for kind in ("cuda_fd", "cuda_ipc"):
                self.add(f"{kind} of device {device}", case.create(device, kind=kind))

    def add(self, name, region, memory=None):
        data = self.rng.integers(0, self.MOST, SIZE, dtype=np.uint8)
        self.names.append(name)
        self.regions.append(region)
        self.held.append(data)
        (memory or self.stage)[:SIZE] = data.tobytes()
        if not memory:
            self.case.rpc.call("copy", {"dst": tensor(region, [SIZE]), "src": tensor(self.staged, [SIZE])})

    def check(self, words):
        for name, region, held in zip(self.names, self.regions, self.held):
            self.case.rpc.call("copy", {"dst": tensor(self.staged, [SIZE]), "src": tensor(region, [SIZE])})
            self.case.assertEqual(self.stage[:SIZE], held.tobytes(), f"{name} {words}")


def view(held, offset, shape, width):
    n = int(np.prod(shape)) * width
    return held[offset:offset + n].reshape(*shape, width)


class AtRandom(DeviceCase):
    """Transforms between any two places, sent without waiting for replies: each sees what earlier ones wrote."""

    def transform(self, rng, places, between=None):
        """Draws a transform, applies it to the expected contents, and returns its parameters."""
        dtype = list(WIDTH)[rng.integers(0, len(WIDTH))]
        width = WIDTH[dtype]
        rank = int(rng.integers(1, 5))
        shape = [int(rng.integers(1, (160, 40, 12, 6)[rank - 1])) for _ in range(rank)]
        perm = [int(i) for i in rng.permutation(rank)]
        pads = [(int(rng.integers(0, 3)), int(rng.integers(0, 3))) if rng.integers(0, 3) == 0 else (0, 0)
                for _ in range(rank)]
        out = [shape[p] + sum(pad) for p, pad in zip(perm, pads)]
        src, dst = between or (int(i) for i in rng.integers(0, len(places.held), 2))
        half = SIZE // 2  # two in one region do not overlap
        offset = [int(rng.integers(0, (half - int(np.prod(s)) * width) // width + 1)) * width for s in (out, shape)]
        offset[1] += half
        read = view(places.held[src], offset[1], shape, width).transpose([*perm, rank])
        view(places.held[dst], offset[0], out, width)[...] = np.pad(read, [*pads, (0, 0)])
        return {"dst": tensor(places.regions[dst], out, dtype, offset=offset[0]),
                "src": tensor(places.regions[src], shape, dtype, offset=offset[1]),
                "perm": perm, "before": [b for b, _ in pads], "after": [a for _, a in pads]}

    def batch(self, rng, places):
        """Returns items whose order does not matter: none reads or writes what another writes."""
        order = [int(i) for i in rng.permutation(len(places.held))]
        n = int(rng.integers(1, 7))
        return [self.transform(rng, places, (int(rng.choice(order[n:])), dst)) for dst in order[:n]]

    def test_transforms(self):
        seed = int(os.environ.get("TEST_SEED") or random.randrange(2**32))
        print(f"# seed {seed}", flush=True)
        rng = np.random.default_rng(seed)
        places = Places(self, rng)
        left = cases(200 if SANITIZED else 3000)
        while left > 0:
            n = min(left, int(rng.integers(1, 24)))
            left -= n
            wanted = set()
            for _ in range(n):
                if rng.integers(0, 4):
                    wanted.add(self.rpc.request("transform", self.transform(rng, places)))
                    continue
                wanted.add(self.rpc.request("submit", {"items": self.batch(rng, places)}))
            while wanted:
                kind, msgid, error, result = self.rpc.receive()
                self.assertEqual((kind, error), (1, None))
                self.assertFalse(any(result.get("statuses", [])), result)
                wanted.remove(msgid)
            if rng.integers(0, 20) == 0:
                places.check(f"of seed {seed}")
        places.check(f"of seed {seed}")

    def test_gathers(self):
        """Of layers that lie on several devices, by tables, and the index on the device or the host."""
        seed = int(os.environ.get("TEST_SEED") or random.randrange(2**32))
        print(f"# seed {seed}", flush=True)
        rng = np.random.default_rng(seed)
        places = Places(self, rng)
        on_devices = range(2, len(places.held))
        for _ in range(cases(40 if SANITIZED else 600)):
            layers, blocks, width = int(rng.integers(1, 9)), int(rng.integers(1, 17)), int(rng.integers(1, 9)) * 16
            n = int(rng.integers(1, blocks + 1))
            sources = [(int(rng.choice(on_devices)), SIZE // 2 + 16 * int(rng.integers(0, 512))) for _ in range(layers)]
            dst = int(rng.integers(0, len(places.held)))
            scatter = bool(rng.integers(0, 2))
            picks = rng.permutation(blocks)[:n].astype("<i4")
            sent = np.array([(places.regions[p], at) for p, at in sources], "<u8").tobytes()
            params = {"index": picks.tobytes(), "limit": blocks, "src_step": width, "dst_step": width,
                      "dst": tensor(places.regions[dst], [width]), "src": {"dtype": "uint8", "shape": [width]},
                      "dst_layer_step": blocks * width, "layers": layers}
            if rng.integers(0, 2):
                params["src_places"] = sent
            else:
                params["src_table"] = self.rpc.call("table_prepare", {"places": sent})["table"]
            for l, (place, at) in enumerate(sources):
                pool = places.held[place][at:at + blocks * width].reshape(blocks, width)
                out = places.held[dst][l * blocks * width:(l + 1) * blocks * width].reshape(blocks, width)
                if scatter:
                    out[picks] = pool[:n]
                else:
                    out[:n] = pool[picks]
            done = self.rpc.call("scatter" if scatter else "gather", params)
            self.assertEqual(done["moved"], n)
            if "src_table" in params:
                self.rpc.call("table_release", {"table": params["src_table"]})
        places.check(f"of seed {seed}")

    def test_runs_of_plans_over_tables(self):
        """Destinations on several devices are one request too."""
        rng = np.random.default_rng(5)
        places = Places(self, rng)
        plan = self.rpc.call("plan_prepare", {"dst": {"dtype": "uint8", "shape": [24, 16]},
                                              "src": {"dtype": "uint8", "shape": [16, 24]}, "perm": [1, 0]})["plan"]
        dst = [(p, 384 * i) for i, p in enumerate(range(2, len(places.held)))]
        src = [(p, SIZE // 2 + 384 * i) for i, p in enumerate(reversed(range(2, len(places.held))))]
        tables = [self.rpc.call("table_prepare", {"places": np.array([(places.regions[p], at) for p, at in side],
                                                                     "<u8").tobytes()})["table"]
                  for side in (dst, src)]
        for (d, to), (s, at) in zip(dst, src):
            view(places.held[d], to, [24, 16], 1)[...] = view(places.held[s], at, [16, 24], 1).transpose([1, 0, 2])
        self.rpc.call("plan_run", {"plan": plan, "dst_table": tables[0], "src_table": tables[1]})
        places.check("after the run")
        done = self.rpc.call("submit", {"items": [{"plan": plan, "dst_table": tables[0], "src_table": tables[1]}]})
        self.assertEqual(done["statuses"], [0])
        places.check("after the batch")

    def test_runs_at_random(self):
        """Of plans over tables of any devices or of the host, alone and among other items of a batch."""
        seed = int(os.environ.get("TEST_SEED") or random.randrange(2**32))
        print(f"# seed {seed}", flush=True)
        rng = np.random.default_rng(seed)
        places = Places(self, rng)
        sorts = (range(2), range(2, len(places.held)))
        for _ in range(cases(30 if SANITIZED else 300)):
            rows, columns = (int(n) for n in rng.integers(1, 33, 2))
            width = rows * columns
            plan = self.rpc.call("plan_prepare", {"dst": {"dtype": "uint8", "shape": [columns, rows]},
                                                  "src": {"dtype": "uint8", "shape": [rows, columns]}, "perm": [1, 0]})
            items, used = [], 0
            for _ in range(int(rng.integers(1, 4))):
                n = int(rng.integers(1, 13))
                dst = [(int(p), 2 * width * (used + i)) for i, p in enumerate(rng.choice(sorts[rng.integers(0, 2)], n))]
                used += n
                src = [(int(p), SIZE // 2 + int(rng.integers(0, 1024))) for p in rng.choice(sorts[rng.integers(0, 2)], n)]
                for (d, to), (s, at) in zip(dst, src):
                    view(places.held[d], to, [columns, rows], 1)[...] = \
                        view(places.held[s], at, [rows, columns], 1).transpose([1, 0, 2])
                tables = [self.rpc.call("table_prepare", {"places": np.array([(places.regions[p], at) for p, at in side],
                                                                             "<u8").tobytes()})["table"]
                          for side in (dst, src)]
                items.append({"plan": plan["plan"], "dst_table": tables[0], "src_table": tables[1]})
            if rng.integers(0, 2):
                for item in items:
                    done = self.rpc.call("plan_run", item)
                    self.assertGreater(done["bytes"], 0)
            else:
                done = self.rpc.call("submit", {"items": [{"dst": tensor(99, [1]), "src": tensor(99, [1])}, *items]})
                self.assertEqual([bool(status) for status in done["statuses"]], [True] + [False] * len(items))
                self.assertEqual(done["errors"][0]["item"], 0)
            for item in items:
                for side in ("dst_table", "src_table"):
                    self.rpc.call("table_release", {"table": item[side]})
            self.rpc.call("plan_release", {"plan": plan["plan"]})
        places.check(f"of seed {seed}")


# ---- What is said of devices --------------------------------------------------------------------------------
class Devices(DeviceCase):
    env = {"SOFTGPU_LINKS": "all:18,0-2:pcie,1-3:none", "SOFTGPU_MULTIPROCESSORS": "3"}

    def test_info(self):
        info = self.rpc.call("info")
        devices = info["devices"]
        uuids = [device["uuid"] for device in devices]
        self.assertEqual(len(set(uuids)), DEVICES)
        self.assertTrue(info["device"].startswith("4 devices, the first: "), info["device"])
        for device in devices:
            self.assertEqual((device["name"], device["memory"], device["multiprocessors"]), ("softgpu", 1 << 30, 3))
        self.assertEqual({link["device"]: (link["kind"], link["rank"]) for link in devices[0]["links"]},
                         {uuids[1]: ("nvlink", 0), uuids[2]: ("pcie", 1), uuids[3]: ("nvlink", 0)})
        self.assertEqual([link["device"] for link in devices[3]["links"]], [uuids[0], uuids[2]])

    def test_tmactl_bench(self):
        """A load between two devices, and one that names a device that is not there."""
        command = ["bench", "--kind", "copy", "--size", "64K", "--requests", "20", "--src-device", "0"]
        done = tmactl(*command, "--dst-device", "3", socket_path=self.tmad.path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([row["bytes"] for row in self.rpc.call("stats")["devices"]], [0, 0, 0, 20 * 2 * 65536])
        refused = tmactl(*command, "--dst-device", "4", socket_path=self.tmad.path)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("device: the service has no device 4", refused.stderr)

    def test_tmactl_info(self):
        done = tmactl("info", socket_path=self.tmad.path)
        self.assertEqual(done.returncode, 0, done.stderr)
        for uuid in self.uuids():
            self.assertIn(uuid, done.stdout)

    def test_explain(self):
        """The device that a transform would run on."""
        uuids = self.uuids()
        a, b = self.create(3), self.create(2)
        _, host = self.memory(64)
        for dst, src, device in ((a, b, 3), (b, a, 2), (a, host, 3), (host, b, 2), (host, host, 0), (None, None, 0)):
            params = {name: {key: value for key, value in tensor(region, [8], offset=offset).items()
                             if region or key not in ("region", "offset")}
                      for name, region, offset in (("dst", dst, 0), ("src", src, 32))}
            with self.subTest(dst=dst, src=src):
                self.assertEqual(self.rpc.call("explain", params)["device"], uuids[device])
        self.assertNotIn("device", self.rpc.call("explain", {**params, "engine": "cpu"}))

    def test_a_question_maps_nothing(self):
        tmad = Tmad("--regions-per-uid=2", engine="cuda", env={"SOFTGPU_DEVICES": str(DEVICES), **self.env})
        self.addCleanup(tmad.stop)
        with tmad.rpc() as rpc:
            a, b = (tensor(self.create(device, rpc=rpc), [64]) for device in (0, 2))
            self.assertEqual(rpc.call("explain", {"dst": b, "src": a})["device"], rpc.call("info")["devices"][2]["uuid"])
            self.refused("QUOTA", "copy", {"dst": b, "src": a}, ["regions_per_uid"], rpc=rpc)
        c, d = (tensor(self.create(device), [64]) for device in (1, 3))
        self.refused("UNSUPPORTED", "explain", {"dst": c, "src": d}, ["no peer access"])

    def test_counters(self):
        """What each device has done, in stats, in the metrics, and in tmactl."""
        uuids = self.uuids()
        regions = [self.create(i) for i in (0, 2, 2)]
        for dst, src, n in ((0, 0, 100), (1, 2, 200), (2, 1, 300)):
            self.rpc.call("copy", {"dst": tensor(regions[dst], [n]), "src": tensor(regions[src], [n], offset=SIZE // 2)})
        stats = self.rpc.call("stats")
        self.assertEqual([row["device"] for row in stats["devices"]], uuids)
        self.assertEqual([(row["transforms"], row["bytes"], row["regions"], row["mapped_bytes"], row["jobs"], row["up"])
                          for row in stats["devices"]],
                         [(1, 200, 1, SIZE, 0, True), (0, 0, 0, 0, 0, True), (2, 1000, 2, 2 * SIZE, 0, True),
                          (0, 0, 0, 0, 0, True)])
        self.assertEqual(sum(row["ns"] for row in stats["devices"]), sum(stats["ns"].values()))
        self.assertEqual((stats["regions"], stats["mapped_bytes"]), (3, 3 * SIZE))
        self.assertEqual(stats["links"], [])
        text = scrape.get(self.metrics).text
        for name, device, value in (("tmad_gpu_up", 3, 1), ("tmad_gpu_moved_bytes_total", 2, 1000),
                                    ("tmad_gpu_transforms_total", 0, 1), ("tmad_gpu_regions", 2, 2)):
            self.assertIn(f'{name}{{device="{uuids[device]}"}} {value}\n', text)
        done = tmactl("--json", "top", "--once", socket_path=self.tmad.path)
        rows = json.loads(done.stdout)["devices"]
        self.assertEqual([(row["device"], row["regions"]) for row in rows], list(zip(uuids, (1, 0, 2, 0))))
        for command in (["top", "--once"], ["stats"]):
            self.assertTrue(all(uuid in tmactl(*command, socket_path=self.tmad.path).stdout for uuid in uuids), command)

    def test_links(self):
        """What has been read on one device for another: by transforms, batches, and lists over tables."""
        uuids = self.uuids()
        regions = [self.create(i) for i in range(3)]
        _, host = self.memory()
        a, b, c, h = (tensor(region, [100]) for region in (*regions, host))
        for dst, src in ((a, b), (a, h), (h, b), (a, tensor(regions[0], [100], offset=1000))):
            self.rpc.call("copy", {"dst": dst, "src": src})
        self.rpc.call("pad", {"dst": tensor(regions[2], [300]), "src": b, "before": [150], "after": [50]})
        self.rpc.call("submit", {"items": [{"dst": c, "src": a}, {"dst": b, "src": a}, {"dst": c, "src": tensor(99, [100])}]})
        places = np.array([(regions[1], 0), (regions[2], 0), (regions[2], 512)], "<u8").tobytes()
        self.rpc.call("gather", {"index": np.array([1, -1, 3], "<i4").tobytes(), "limit": 4, "src_step": 32,
                                 "dst_step": 32, "dst": tensor(regions[0], [32], offset=4096), "src_places": places,
                                 "src": {"dtype": "uint8", "shape": [32]}, "dst_layer_step": 128, "layers": 3})
        expected = {(1, 0): 100 + 64, (1, 2): 100, (0, 2): 100, (0, 1): 100, (2, 0): 2 * 64}
        links = self.rpc.call("stats")["links"]
        self.assertEqual({(uuids.index(link["from"]), uuids.index(link["to"])): link["bytes"] for link in links}, expected)
        text = scrape.get(self.metrics).text
        for (src, dst), n in expected.items():
            self.assertIn(f'tmad_gpu_link_bytes_total{{from="{uuids[src]}",to="{uuids[dst]}"}} {n}\n', text)
        self.assertEqual(text.count("tmad_gpu_link_bytes_total{"), len(expected))
        rows = json.loads(tmactl("--json", "top", "--once", socket_path=self.tmad.path).stdout)["devices"]
        self.assertEqual({(i, j) for i, row in enumerate(rows) for j, n in enumerate(row["sent_bytes_per_s"]) if n},
                         set(expected))
        line = next(line for line in tmactl("top", "--once", socket_path=self.tmad.path).stdout.splitlines()
                    if line.startswith("device 0"))
        self.assertIn("  to 1: ", line)
        self.assertIn("  to 2: ", line)
        self.assertIn("  2 to 0: 128 B\n", tmactl("stats", socket_path=self.tmad.path).stdout)
        self.rpc.call("transform", {"dst": a, "src": b, "further_dst": [c]})
        links = self.rpc.call("stats")["links"]
        self.assertEqual(sum(link["bytes"] for link in links), sum(expected.values()) + 200)

    def test_tmactl_regions(self):
        """By the numbers of `tmactl info`."""
        for device in (2, 0):
            self.create(device)
        lines = tmactl("regions", socket_path=self.tmad.path).stdout.splitlines()
        self.assertEqual([line.split()[-1] for line in lines[:3]], ["DEVICE", "2", "0"])

    def test_create(self):
        uuids = self.uuids()
        for device, where in ((0, 0), (3, 3), (uuids[2], 2), (uuids[1].upper(), 1), (uuids[1][len("GPU-"):], 1)):
            with self.subTest(device=device):
                made = self.rpc.call("region_create", {"size": 64, "device": device})
                self.assertEqual(made["device"], uuids[where])
        self.assertEqual(self.rpc.call("region_create", {"size": 64})["device"], uuids[0])
        made = self.rpc.call("region_create", {"size": 64, "kind": "memfd", "device": 3})
        self.assertEqual((made["kind"], made["device"]), ("memfd", uuids[3]))
        self.assertEqual([entry["device"] for entry in self.rpc.call("region_list")],
                         [uuids[i] for i in (0, 3, 2, 1, 1, 0, 3)])
        for device, words in ((4, ["no device 4"]), ("GPU-0", ["no device GPU-0", uuids[1], "and 2 more"]), (-1, ["device"])):
            with self.subTest(device=device):
                self.refused("INVALID_ARGUMENT" if device == -1 else "NOT_FOUND", "region_create",
                             {"size": 64, "device": device}, words)

    def test_without_peer_access(self):
        """What does not pass through host memory (test_bounce.py)."""
        uuids = self.uuids()
        a, b = self.create(1), self.create(3)
        words = [uuids[1], uuids[3], "no peer access"]
        self.refused("UNSUPPORTED", "explain", {"dst": tensor(a, [64]), "src": tensor(b, [64])}, words)
        self.refused("UNSUPPORTED", "explain", {"dst": tensor(b, [64]), "src": tensor(a, [64])}, words)
        done = self.rpc.call("submit", {"items": [{"dst": tensor(a, [64]), "src": tensor(b, [64])},
                                                  {"dst": tensor(a, [64]), "src": tensor(a, [64], offset=64)}]})
        self.assertEqual([status != 0 for status in done["statuses"]], [True, False])
        memory, host = self.memory(64, data=b"x" * 64)
        self.rpc.call("copy", {"dst": tensor(b, [64]), "src": tensor(host, [64])})
        memory[:64] = bytes(64)
        self.rpc.call("copy", {"dst": tensor(host, [64]), "src": tensor(b, [64])})
        self.assertEqual(memory[:64], b"x" * 64)


class Start(unittest.TestCase):
    def start(self, *args, engine="cuda", **env):
        tmad = Tmad(*args, engine=engine, env={"SOFTGPU_DEVICES": str(DEVICES), **env})
        self.addCleanup(tmad.stop)
        with tmad.rpc() as rpc:
            return tmad, rpc.call("info")

    def test_choice(self):
        _, info = self.start()
        uuids = [device["uuid"] for device in info["devices"]]
        for option, expected in (("all", [0, 1, 2, 3]), ("2", [2]), ("3,1", [3, 1]), (f"{uuids[2]},0", [2, 0]),
                                 (uuids[1], [1])):
            with self.subTest(device=option):
                tmad, info = self.start(f"--device={option}")
                self.assertEqual([device["uuid"] for device in info["devices"]], [uuids[i] for i in expected])
                self.assertEqual(tmad.log().count("\n"), 1, tmad.log())

    def test_auto_takes_all(self):
        _, info = self.start(engine="auto", LD_LIBRARY_PATH=SOFTGPU)
        self.assertEqual((info["engine"], len(info["devices"])), ("cuda", DEVICES))

    def test_one_that_cannot_be_used(self):
        tmad, info = self.start(SOFTGPU_CAPABILITY="9.0,8.0,9.0")
        self.assertEqual(len(info["devices"]), 3)
        lines = [line for line in tmad.log().splitlines() if "not used" in line]
        self.assertEqual(len(lines), 1, tmad.log())
        self.assertIn("device 1 is not used: device 1 (softgpu) has compute capability 8.0", lines[0])

    def test_one_that_can(self):
        """Then all is as with a single device."""
        tmad, info = self.start(SOFTGPU_CAPABILITY="8.0,8.0,9.0,8.0")
        self.assertEqual((len(info["devices"]), info["device"]), (1, "softgpu, sm_90, driver 13.0"))
        names = [command_of(child) for child in children(tmad.pid)]
        self.assertEqual(names, ["tmad-scout"], "its engine is in no process of its own")

    def test_mig(self):
        """The stand-in driver has no such devices, but UUIDs."""
        _, info = self.start("--device=MIG-50f79002")
        self.assertEqual([device["uuid"] for device in info["devices"]], ["MIG-50f79002-0000-4000-8000-000000000000"])
        _, info = self.start()
        wanted = [device["uuid"].replace("GPU-", "MIG-") for device in info["devices"][1:3]]
        _, info = self.start(f"--device={','.join(wanted)}")
        self.assertEqual([device["uuid"] for device in info["devices"]], wanted)

    def test_the_same_twice(self):
        _, info = self.start()
        tmad, info = self.start(f"--device=1,{info['devices'][1]['uuid']}")
        self.assertEqual(len(info["devices"]), 1)
        self.assertIn("it is the same device as 1", tmad.log())

    def test_refused(self):
        for option, word in (("1,", "separated by commas"), ("0,all", "separated by commas"), ("7,8", "device 7: there"),
                             ("7", "device 7: there")):
            with self.subTest(device=option), self.assertRaises(AssertionError) as caught:
                Tmad(f"--device={option}", engine="cuda", env={"SOFTGPU_DEVICES": str(DEVICES)})
            with self.subTest(device=option):
                self.assertIn(word, str(caught.exception))


# ---- Order, waits and ends ----------------------------------------------------------------------------------
class Order(DeviceCase):
    env = {"SOFTGPU_SLOW_US": "2000"}

    def word(self):
        memory, region = self.memory(4096)
        return memory, region

    def test_behind_a_wait_on_another_device(self):
        """What waits on one device holds up what comes after it on another, of its connection alone."""
        word, timeline = self.word()
        memory, host = self.memory(128, data=b"a" * 64 + b"b" * 64)
        a, b = self.create(1), self.create(2)
        first = self.rpc.request("copy", {"dst": tensor(a, [64]), "src": tensor(host, [64]), "reply": "queued",
                                          "wait": {"region": timeline, "offset": 0, "value": 1}})
        second = self.rpc.request("copy", {"dst": tensor(b, [64]), "src": tensor(a, [64]), "reply": "queued"})
        third = self.rpc.request("copy", {"dst": tensor(host, [64], offset=64), "src": tensor(b, [64])})
        got = [self.rpc.receive() for _ in range(2)]
        self.assertEqual({message[1] for message in got}, {first, second})
        self.assertTrue(all(message[3] == {"queued": True} for message in got), got)
        with self.tmad.rpc() as other:
            c, d = (self.create(i, rpc=other) for i in (1, 2))
            other.call("copy", {"dst": tensor(c, [64]), "src": tensor(d, [64])})
        self.assertEqual(memory[64:128], b"b" * 64)
        word[:8] = (1).to_bytes(8, "little")
        messages = [self.rpc.receive() for _ in range(3)]
        self.assertEqual([m[1] if m[0] == 1 else m[2][0] for m in messages], [first, second, third],
                         messages)
        self.assertEqual(memory[64:128], b"a" * 64)

    def test_cancel_what_is_held(self):
        word, timeline = self.word()
        _, host = self.memory(64)
        a, b = self.create(0), self.create(3)
        first = self.rpc.request("copy", {"dst": tensor(a, [64]), "src": tensor(host, [64]),
                                          "wait": {"region": timeline, "offset": 0, "value": 1}})
        second = self.rpc.request("copy", {"dst": tensor(b, [64]), "src": tensor(host, [64])})
        cancel = self.rpc.request("cancel", {"request": second})
        messages = {}
        while cancel not in messages:
            kind, msgid, error, result = self.rpc.receive()
            messages[msgid] = (error, result)
        self.assertEqual(messages[cancel], (None, {"canceled": True}))
        word[:8] = (1).to_bytes(8, "little")
        while len(messages) < 3:
            kind, msgid, error, result = self.rpc.receive()
            messages[msgid] = (error, result)
        self.assertIsNone(messages[first][0])
        self.assertEqual(messages[second][0][2]["name"], "CANCELED")

    def test_words_of_other_devices(self):
        """A word of one device's memory, set behind another's transform, and waited for by a third's."""
        word = self.create(2, 4096)
        zero, region = self.memory(4096)
        self.rpc.call("copy", {"dst": tensor(word, [4096]), "src": tensor(region, [4096])})
        memory, host = self.memory(64, data=b"s" * 64)
        a, b = self.create(0), self.create(1)
        point = {"region": word, "offset": 8, "value": 7}
        self.rpc.call("copy", {"dst": tensor(a, [64]), "src": tensor(host, [64]), "signal": point})
        self.rpc.call("copy", {"dst": tensor(b, [64]), "src": tensor(a, [64]), "wait": point,
                               "signal": {**point, "offset": 16}})
        memory[:64] = bytes(64)
        self.rpc.call("submit", {"items": [], "wait": {**point, "offset": 16}, "signal": {**point, "offset": 24}})
        self.rpc.call("copy", {"dst": tensor(host, [64]), "src": tensor(b, [64])})
        self.rpc.call("copy", {"dst": tensor(region, [4096]), "src": tensor(word, [4096])})
        self.assertEqual(memory[:64], b"s" * 64)
        self.assertEqual(np.frombuffer(zero[:32], "<u8").tolist(), [0, 7, 7, 7])
        self.refused("TIMEOUT", "copy", {"dst": tensor(b, [64]), "src": tensor(host, [64]),
                                         "wait": {**point, "value": 8, "deadline_ms": 50}})

    def test_a_batch_on_several(self):
        """It waits as one and signals as one; what is wrong with an item is that item's."""
        word, timeline = self.word()
        memory, host = self.memory(256, data=b"t" * 64)
        regions = [self.create(i) for i in range(DEVICES)]
        items = [{"dst": tensor(region, [64]), "src": tensor(host, [64])} for region in regions]
        point = {"region": timeline, "offset": 0, "value": 1}
        msgid = self.rpc.request("submit", {"items": items, "wait": point, "signal": {**point, "offset": 8}})
        back = [self.rpc.request("copy", {"dst": tensor(host, [64], offset=64), "src": tensor(region, [64])})
                for region in regions[2:]]
        self.rpc.request("ping")
        self.assertTrue(self.rpc.receive()[3])
        self.assertEqual((word[8], memory[64:128]), (0, bytes(64)))
        word[:8] = (1).to_bytes(8, "little")
        done = self.rpc.reply(msgid)
        self.assertEqual((done["statuses"], done["bytes"], word[8]), ([0] * 4, 4 * 128, 1))
        self.assertGreater(done["ns"], 0)
        for msgid in back:
            self.rpc.reply(msgid)
        self.assertEqual(memory[64:128], b"t" * 64)
        self.refused("TIMEOUT", "submit", {"items": items, "wait": {**point, "value": 9, "deadline_ms": 20},
                                           "signal": {**point, "offset": 16}})
        self.assertEqual(word[16], 0)
        cast = {"dst": tensor(regions[1], [4], "uint8"), "src": tensor(host, [4], "float32"), "cast": "exact"}
        memory[:4] = np.array([0.5], "<f4").tobytes()
        done = self.rpc.call("submit", {"items": [items[0], cast, items[2], {**items[3], "dst": tensor(99, [64])}]})
        self.assertEqual([status != 0 for status in done["statuses"]], [False, True, False, True])
        self.assertEqual([(error["item"], error["name"]) for error in done["errors"]],
                         [(1, "OUT_OF_RANGE"), (3, "NOT_FOUND")])

    def test_cancel_a_batch_on_several(self):
        """A batch is canceled everywhere or nowhere, even if what it waits for comes at that moment. How many are canceled
        is chance, so the test goes on until some were, of those that waited too, and some were not."""
        word, timeline = self.word()
        memory, host = self.memory(8 * 64)
        regions = [self.create(i) for i in range(DEVICES)]
        rng, outcomes, waited, i = random.Random(4), [], [], 0
        while i < cases(1000) or set(outcomes) != {True, False} or not any(waited):
            i += 1
            data = os.urandom(64)
            memory[:64] = data
            items = [{"dst": tensor(region, [64]), "src": tensor(host, [64])} for region in regions]
            point = {"region": timeline, "offset": 0, "value": i}
            msgid = self.rpc.request("submit", {"items": items, "wait": point, "signal": {**point, "offset": 8}})
            if i % 4:
                time.sleep(rng.uniform(0, 0.002))
                writer = threading.Timer(rng.uniform(0, 0.001), word.__setitem__,
                                         (slice(0, 8), i.to_bytes(8, "little")))
                writer.start()
            cancel = self.rpc.request("cancel", {"request": msgid})
            got = {}
            while len(got) < 2:
                _, of, error, result = self.rpc.receive()
                got[of] = (error, result)
                if of == cancel and not i % 4:  # an engine that does not answer at once has not canceled it
                    word[:8] = i.to_bytes(8, "little")
            self.assertIsNone(got[cancel][0])
            canceled = got[cancel][1]["canceled"]
            outcomes.append(canceled)
            if i % 4:
                writer.join()
            else:
                waited.append(canceled)
            self.assertEqual(got[msgid][0][2]["name"] if got[msgid][0] else got[msgid][1]["statuses"],
                             "CANCELED" if canceled else [0] * DEVICES, f"batch {i}")
            self.assertEqual(int.from_bytes(word[8:16], "little") == i, not canceled, f"batch {i}")
            for place, region in enumerate(regions):
                self.rpc.call("copy", {"dst": tensor(host, [64], offset=64 * (place + 1)), "src": tensor(region, [64])})
            back = [memory[64 * (p + 1):64 * (p + 2)] == data for p in range(DEVICES)]
            self.assertEqual(back, [not canceled] * DEVICES, f"batch {i}")
        print(f"# {sum(outcomes)} of {len(outcomes)} canceled, {sum(waited)} of {len(waited)} that waited")

    def test_the_end_of_a_connection(self):
        """With jobs on one device, held ones, and regions on all: nothing of it stays (Tmad.stop looks)."""
        with self.tmad.rpc() as rpc:
            word = Memory(4096)
            self.addCleanup(word.close)
            timeline = word.register(rpc)
            regions = [self.create(i, rpc=rpc) for i in range(DEVICES)]
            for i in range(DEVICES):
                rpc.call("copy", {"dst": tensor(regions[i], [64]), "src": tensor(regions[i - 1], [64])})
            rpc.request("copy", {"dst": tensor(regions[0], [64]), "src": tensor(regions[1], [64]),
                                 "wait": {"region": timeline, "offset": 0, "value": 1}})
            for i in range(1, 20):
                rpc.request("submit", {"items": [{"dst": tensor(regions[(i + n) % 4], [64]),
                                                  "src": tensor(regions[i % 3], [64], offset=64)} for n in range(2)]})
            wait_until(lambda: self.rpc.call("stats")["jobs"] == 39, "all are queued")
        wait_until(lambda: self.rpc.call("stats")["regions"] == 0, "all is unmapped")


class Spread(DeviceCase):
    """A run over a table whose entries lie on several devices: each device moves its own."""
    env = {"SOFTGPU_LINKS": "all:18,1-3:none"}
    args = ("--regions-per-uid=5",)  # which further mappings would exceed

    def setUp(self):
        super().setUp()
        self.on = [self.create(device) for device in (1, 3, 1)]
        for region, device in zip(self.on, (1, 3, 1)):
            _, host = self.memory(data=np.arange(1024, dtype="<f4").tobytes(), device=self.uuids()[device])
            self.rpc.call("copy", {"dst": tensor(region, [1024], "float32"), "src": tensor(host, [1024], "float32")})
            self.rpc.call("region_release", {"region": host})

    def table(self, *places):
        return self.rpc.call("table_prepare", {"places": np.array(places, "<u8").tobytes()})["table"]

    def transforms(self):
        return [row["transforms"] for row in self.rpc.call("stats")["devices"]]

    def plan(self, **more):
        return self.rpc.call("plan_prepare", {"dst": {"dtype": "float32", "shape": [16]},
                                              "src": {"dtype": "float32", "shape": [16]}, **more})["plan"]

    def test_each_its_own(self):
        """Nothing is mapped for another device, and no link is needed, where source and destination lie together."""
        before, plan = self.transforms(), self.plan()
        params = {"plan": plan, "dst_table": self.table(*((region, 8192) for region in self.on)),
                  "src_table": self.table(*((region, 64 * i) for i, region in enumerate(self.on)))}
        regions = self.rpc.call("stats")["regions"]
        done = self.rpc.call("plan_run", params)
        self.assertEqual((done["bytes"], done["path"] != ""), (3 * 128, True))
        self.assertEqual([b - a for a, b in zip(before, self.transforms())], [0, 1, 0, 1])
        done = self.rpc.call("submit", {"items": [params, params]})
        self.assertEqual((done["statuses"], done["bytes"]), ([0, 0], 6 * 128))
        self.assertEqual([b - a for a, b in zip(before, self.transforms())], [0, 3, 0, 3])
        self.assertEqual((self.rpc.call("stats")["regions"], self.rpc.call("stats")["links"]), (regions, []))
        params["src_table"] = self.table(*((region, 0) for region in reversed(self.on[:2])), (self.on[2], 0))
        self.refused("UNSUPPORTED", "plan_run", params, ["no peer access"])

    def test_order(self):
        word, timeline = self.memory(4096, device=self.uuids()[1])
        params = {"plan": self.plan(), "dst_table": self.table(*((region, 8192) for region in self.on)),
                  "src_table": self.table(*((region, 0) for region in self.on)),
                  "signal": {"region": timeline, "offset": 0, "value": 3}}
        self.rpc.call("plan_run", params)
        self.assertEqual(word[0], 3)

    def test_each_run_counts(self):
        """The service keeps them all until the request has ended."""
        word, timeline = self.memory(4096, device=self.uuids()[1])
        params = {"plan": self.plan(), "dst_table": self.table(*((region, 8192) for region in self.on)),
                  "src_table": self.table(*((region, 0) for region in self.on)),
                  "wait": {"region": timeline, "offset": 0, "value": 1}}
        msgid = self.rpc.request("plan_run", params)
        with self.tmad.rpc() as other:
            wait_until(lambda: other.call("stats")["jobs"] == 3, "all three are under way")
            word[0] = 1
            self.rpc.reply(msgid)
            self.assertEqual(other.call("stats")["jobs"], 0)

    def test_a_run_that_fails(self):
        """It fails as a whole, and as one item."""
        plan = self.rpc.call("plan_prepare", {"dst": {"dtype": "uint8", "shape": [16]}, "cast": "exact",
                                              "src": {"dtype": "float32", "shape": [16]}})["plan"]
        params = {"plan": plan, "dst_table": self.table(*((region, 8192) for region in self.on)),
                  "src_table": self.table((self.on[0], 0), (self.on[1], 64 * 16), (self.on[2], 64 * 32))}
        self.refused("OUT_OF_RANGE", "plan_run", params, ["cast: exact, but the values of 32 elements"])
        errors = self.rpc.call("stats")["errors"].get("OUT_OF_RANGE", 0)
        good = {"plan": self.plan(), "dst_table": params["dst_table"], "src_table": params["src_table"]}
        done = self.rpc.call("submit", {"items": [good, params, good]})
        self.assertEqual([bool(status) for status in done["statuses"]], [False, True, False])
        self.assertEqual([(error["item"], error["name"]) for error in done["errors"]], [(1, "OUT_OF_RANGE")])
        self.assertIn("the values of 32 elements", done["errors"][0]["message"])
        self.assertEqual(self.rpc.call("stats")["errors"]["OUT_OF_RANGE"] - errors, 1)


class Failures(DeviceCase):
    def test_each_is_told_once(self):
        """To the request that waited for the memory: where two could not be mapped, later ones try both again."""
        dst = self.create(1)
        memories = [Memory(1 << 16, seals=0) for _ in range(2)]
        for memory in memories:
            self.addCleanup(memory.close)
        src, scale = (memory.register(self.rpc) for memory in memories)
        params = {"dst": tensor(dst, [64]), "src": tensor(src, [64], "float32"), "cast": "saturate",
                  "scale": tensor(scale, [64], "float32")}
        for memory in memories:
            os.ftruncate(memory.fd, 0)
        with self.assertRaises(RpcError) as caught:
            self.rpc.call("transform", params)
        self.assertIn(f"region {src} cannot be mapped", caught.exception.message)
        for memory in memories:
            os.posix_fallocate(memory.fd, 0, 1 << 16)
        self.rpc.call("transform", params)


class ManyMappings(DeviceCase):
    env = {"SOFTGPU_MAP_US": "10000"}
    args = ("--regions-per-uid=130",)

    def test_a_refusal_meanwhile(self):
        """Of a request that has more memory mapped by then than a connection may have replies under way."""
        src = self.create(1)
        dst = [tensor(self.memory(4096)[1], [64]) for _ in range(65)]
        self.refused("QUOTA", "transform", {"dst": dst[0], "further_dst": dst[1:], "src": tensor(src, [64])},
                     ["regions_per_uid"])
        self.assertIs(self.rpc.call("ping"), True)


class Slow(DeviceCase):
    env = {"SOFTGPU_MAP_US": "300000"}

    def test_mapping_keeps_nobody_waiting(self):
        a, b = self.create(0), self.create(1)
        with self.tmad.rpc() as other:
            msgid = self.rpc.request("copy", {"dst": tensor(a, [64]), "src": tensor(b, [64])})
            for _ in range(20):
                other.call("ping")
            wait_until(lambda: other.call("stats")["waiting"] == 1, "the connection waits")
            before = other.call("stats")["requests_by_method"].get("copy", 0)
            self.rpc.reply(msgid)
            self.assertEqual(other.call("stats")["requests_by_method"]["copy"], before, "it counts once")

    def test_the_end_meanwhile(self):
        a, b = self.create(0), self.create(1)
        with self.tmad.rpc() as rpc:
            c, d = (self.create(i, rpc=rpc) for i in (2, 3))
            rpc.request("copy", {"dst": tensor(c, [64]), "src": tensor(d, [64])})
            wait_until(lambda: self.rpc.call("stats")["waiting"] == 1, "the connection waits")
        wait_until(lambda: self.rpc.call("stats")["regions"] == 2, "all is unmapped")
        self.assertNotEqual(a, b)


class ClosedDescriptors(DeviceCase):
    def test_processes_of_engines(self):
        """Started by a service whose caller closed descriptors 0 to 2, they have no other files in their place."""
        tmad = Tmad(engine="cuda", env={"SOFTGPU_DEVICES": "2"}, start=False)
        tmad.start(preexec_fn=lambda: os.closerange(0, 3))
        self.addCleanup(tmad.stop)
        found = [[os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)] for pid in engines(tmad.pid)]
        self.assertEqual(found, [["/dev/null"] * 3] * 2)


class LosingCase(DeviceCase):
    def setUp(self):
        self.lose = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "lose")
        self.env = {**self.env, "SOFTGPU_LOSE": self.lose}
        super().setUp()

    def lose_device(self, device):
        with open(self.lose + ".new", "w", encoding="ascii") as file:
            file.write(f"{device} 719\n")
        os.rename(self.lose + ".new", self.lose)

    def copy(self, rpc, dst, src):
        rpc.call("copy", {"dst": tensor(dst, [SIZE]), "src": tensor(src, [SIZE])})

    def until_lost(self, rpc, dst, src):
        with self.assertRaises(RpcError) as caught:
            while True:
                self.copy(rpc, dst, src)
        self.assertEqual(caught.exception.name, "DEVICE_LOST")

    def until_back(self, rpc, dst, src):
        def is_back():
            try:
                self.copy(rpc, dst, src)
            except RpcError as e:
                self.assertEqual(e.name, "DEVICE_LOST")
                return False
            return True
        wait_until(is_back, "the device is back")

    def process(self, uuid, ordinal):
        """Of the device's engine: the first one has the ordinal that the service was started with."""
        for pid in engines(self.tmad.pid):
            if arguments_of(pid)[1:3] in (["cuda", word] for word in (uuid, str(ordinal))):
                return pid
        raise AssertionError(f"no process runs the engine of device {ordinal}")


class Lost(LosingCase):
    def test_a_process_that_hangs(self):
        """It is ended, as if it had ended by itself; the service and the other devices answer all the while."""
        uuids = self.uuids()
        _, source = self.memory(data=b"h" * SIZE)
        back, target = self.memory()
        made = [self.create(device) for device in (1, 2)]
        for region in made:
            self.copy(self.rpc, region, source)
        hung = self.process(uuids[2], 2)
        os.kill(hung, signal.SIGSTOP)
        msgid = self.rpc.request("copy", {"dst": tensor(made[1], [SIZE]), "src": tensor(source, [SIZE])})
        with self.tmad.rpc() as rpc:
            own = [self.create(1, rpc=rpc) for _ in range(2)]
            silent = False
            while f"device {uuids[2]} is lost" not in self.tmad.log():
                self.copy(rpc, *own)
                up = [device["up"] for device in rpc.call("stats")["devices"]]
                silent |= not up[2]
                self.assertEqual(up[:2] + up[3:], [True] * 3)
                time.sleep(0.05)
        self.assertTrue(silent, "stats said so")
        with self.assertRaises(RpcError) as caught:
            self.rpc.reply(msgid)
        self.assertEqual(caught.exception.name, "DEVICE_LOST")
        self.until_back(self.rpc, target, made[1])
        self.assertEqual(bytes(back.map[:SIZE]), b"h" * SIZE)
        self.assertNotEqual(self.process(uuids[2], 2), hung)
        log = self.tmad.log()
        self.assertIn(f"{uuids[2]}: process {hung}, which runs the engine: no sign of life; the process is ended", log)
        self.assertIn(f"process {hung}, which ran the engine, has given no sign of life for 15000 ms, and was ended; "
                      "its engine starts again", log)
        self.assertNotIn("shows signs of life again", log)
        self.assertEqual(self.rpc.call("stats")["recoveries"], 0)

    def test_one_of_several(self):
        """What is under way on it ends as DEVICE_LOST, nobody else notices, and it comes back with its memory."""
        uuids, ended, failures = self.uuids(), threading.Event(), []
        data = np.random.default_rng(3).integers(0, 256, SIZE, np.uint8)
        _, source = self.memory(data=data.tobytes())
        back, target = self.memory()
        made = [self.create(device) for device in (1, 2)]
        self.copy(self.rpc, made[0], source)
        self.copy(self.rpc, made[1], source)

        def work_on_another():
            with self.tmad.rpc() as rpc:
                own = [self.create(1, rpc=rpc) for _ in range(2)]
                while not ended.is_set():
                    try:
                        self.copy(rpc, own[0], own[1])
                    except RpcError as e:
                        failures.append(e)
                        return

        thread = threading.Thread(target=work_on_another)
        thread.start()
        try:
            for _ in range(3):
                self.lose_device(2)
                self.until_lost(self.rpc, made[1], made[0])
                self.until_back(self.rpc, target, made[1])
                self.assertEqual(bytes(back.map[:SIZE]), data.tobytes())
                back.map[:SIZE] = bytes(SIZE)
        finally:
            ended.set()
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual(self.rpc.call("stats")["recoveries"], 0)
        self.assertEqual(self.tmad.log().count(f"device {uuids[2]} is lost"), 3)
        wait_until(lambda: self.tmad.log().count(f"device {uuids[2]} is back") == 3, "the log says so")


class Stuck(DeviceCase):
    """A device that answers nothing, where the process of its engine does."""
    env = {"SOFTGPU_STUCK": "1", "SOFTGPU_SLOW_US": "60000000"}

    def test_it_is_lost(self):
        uuids = self.uuids()
        a, b = self.create(2), self.create(2)
        msgid = self.rpc.request("transpose", {"dst": tensor(a, [64, 63]), "src": tensor(b, [63, 64]), "perm": [1, 0]})
        with self.tmad.rpc() as rpc:
            wait_until(lambda: not rpc.call("stats")["devices"][2]["up"], "it is silent")
        with self.assertRaises(RpcError) as caught:
            self.rpc.reply(msgid)
        self.assertEqual(caught.exception.name, "DEVICE_LOST")
        wait_until(lambda: f"device {uuids[2]} is back" in self.tmad.log(), "it is back")
        self.assertIn("which runs the engine: the device: no sign of life; the process is ended", self.tmad.log())
        self.assertEqual(self.rpc.call("stats")["recoveries"], 0)


class Neighbour(threading.Thread):
    """Moves random data to a device, from there to another one, and back, until it is told to end, and compares."""

    def __init__(self, case, devices, seed):
        super().__init__()
        self.rng = np.random.default_rng(seed)
        self.rpc = case.tmad.rpc()
        self.memory, self.host = case.memory(2 * SIZE, rpc=self.rpc)
        self.regions = [case.create(device, rpc=self.rpc) for device in devices]
        self.ended, self.rounds, self.failure = threading.Event(), 0, None

    def move(self):
        rows, columns = (int(n) for n in self.rng.integers(1, 300, 2))
        data = self.rng.integers(0, 256, (rows, columns), np.uint8)
        a, b = self.regions
        there, back = [rows, columns], [columns, rows]
        self.memory[:data.nbytes] = data.tobytes()
        for dst, src, perm in ((tensor(a, there), tensor(self.host, there), [0, 1]),
                               (tensor(b, back), tensor(a, there), [1, 0]),
                               (tensor(self.host, back, offset=SIZE), tensor(b, back), [0, 1])):
            self.rpc.call("transpose", {"dst": dst, "src": src, "perm": perm})
        assert self.memory[SIZE:SIZE + data.nbytes] == data.T.tobytes(), f"round {self.rounds}: {rows} x {columns}"

    def run(self):
        try:
            while not self.ended.is_set():
                self.move()
                self.rounds += 1
        except Exception as failure:  # of whatever sort: the test says which
            self.failure = failure

    def end(self):
        self.ended.set()
        self.join()
        self.rpc.close()


@unittest.skipIf(os.geteuid() != 0, "only root is many users, and one who loses a device thrice is refused")
class OverAndOver(LosingCase):
    """One device is lost again and again while work is under way on it, by an error and by the end of its process: it
    returns each time with its memory, and clients of the others have every byte right. Each loss is another user's."""
    args = ("--restart-pause-ms=0",)
    env = {"SOFTGPU_SLOW_US": "500"}
    others = (0, 1, 3)

    def connect(self, uid):
        os.seteuid(uid)
        try:
            return self.tmad.rpc()
        finally:
            os.seteuid(0)

    def lose_somehow(self, i, uuid):
        if i % 2:
            os.kill(self.process(uuid, 2), signal.SIGKILL)
        else:
            self.lose_device(2)

    def read(self, rpc, region):
        """What it holds; None while the device is away. By a file of its own: one that a device has used before it was
        lost is sealed, and cannot be mapped again."""
        with Memory(SIZE) as memory:
            try:
                host = memory.register(rpc)
            except RpcError as e:
                self.assertEqual(e.name, "DEVICE_LOST")
                return None
            try:
                self.copy(rpc, host, region)
                return memory[:SIZE]
            except RpcError as e:
                self.assertEqual(e.name, "DEVICE_LOST")
                return None
            finally:
                rpc.call("region_release", {"region": host})

    def lose_in_flight(self, i, uuid, rng):
        """Whether anything that was under way has failed at once."""
        data = rng.integers(0, 256, SIZE, np.uint8)
        with self.connect(own_uid() + 4 * i) as rpc:
            _, host = self.memory(rpc=rpc, data=data.tobytes())
            regions = [self.create(2, rpc=rpc) for _ in range(2)]
            self.copy(rpc, regions[0], host)
            wanted = {rpc.request("transpose", {"dst": tensor(regions[1], [256, 512]),
                                                "src": tensor(regions[0], [512, 256]), "perm": [1, 0]})
                      for _ in range(20)}
            self.lose_somehow(i, uuid)
            names = []
            while wanted:
                kind, msgid, error, _ = rpc.receive()
                self.assertEqual(kind, 1)
                wanted.remove(msgid)
                names += [error[2]["name"]] if error else []
            self.assertLessEqual(set(names), {"DEVICE_LOST"})
            if not names:
                self.until_lost(rpc, regions[1], regions[0])
            wait_until(lambda: self.read(rpc, regions[0]) == data.tobytes(), f"loss {i}: the device and its memory")
        return len(names) > 0

    def test_losses(self):
        n, uuid = cases(100), self.uuids()[2]
        seed = int(os.environ.get("TEST_SEED") or random.randrange(2**32))
        print(f"# seed {seed}", flush=True)
        rng = np.random.default_rng(seed)
        os.chmod(self.tmad.directory, 0o755)
        os.chmod(self.tmad.path, 0o666)
        kept = rng.integers(0, 256, SIZE, np.uint8).tobytes()
        memory, host = self.memory(data=kept)
        region = self.create(2)
        self.copy(self.rpc, region, host)
        neighbours = [Neighbour(self, (device, self.others[i - 1]), [seed, i]) for i, device in enumerate(self.others)]
        for neighbour in neighbours:
            neighbour.start()
        try:
            in_flight = sum(self.lose_in_flight(i, uuid, rng) for i in range(n))
        finally:
            for neighbour in neighbours:
                neighbour.end()
        print(f"# {n} losses, {in_flight} of them in mid-flight; {[x.rounds for x in neighbours]} rounds beside them")
        self.assertEqual([neighbour.failure for neighbour in neighbours], [None] * len(neighbours))
        self.assertGreaterEqual(min(neighbour.rounds for neighbour in neighbours), n)
        self.assertGreater(in_flight, 0)
        memory[:SIZE] = bytes(SIZE)
        self.copy(self.rpc, host, region)
        self.assertEqual(memory[:SIZE], kept)
        self.assertEqual(self.rpc.call("stats")["recoveries"], 0)
        wait_until(lambda: self.tmad.log().count(f"device {uuid} is back") == n, "the log says that it is back")
        self.assertEqual(self.tmad.log().count(" is lost: "), n)


# ---- Quotas -------------------------------------------------------------------------------------------------
class Quotas(DeviceCase):
    args = ("--regions-per-uid=5", f"--mapped-bytes-per-uid={5 * SIZE}")

    def test_over_all_devices(self):
        regions = [self.create(i) for i in range(DEVICES)]
        self.rpc.call("copy", {"dst": tensor(regions[0], [64]), "src": tensor(regions[1], [64])})
        words = ["regions_per_uid"]
        self.refused("QUOTA", "region_create", {"size": 64, "device": 3}, words)
        self.refused("QUOTA", "copy", {"dst": tensor(regions[0], [64]), "src": tensor(regions[2], [64])}, words)
        self.rpc.call("region_release", {"region": regions[1]})
        self.rpc.call("copy", {"dst": tensor(regions[0], [64]), "src": tensor(regions[2], [64])})
        self.create(3, 64)
        self.refused("QUOTA", "region_create", {"size": 64}, words)
        self.rpc.call("region_release", {"region": regions[2]})
        self.refused("QUOTA", "region_create", {"size": 3 * SIZE, "device": 2}, ["mapped_bytes_per_uid"])
        self.create(2, 3 * SIZE - 64)


class KeptDescriptors(DeviceCase):
    """What the service keeps to map regions again is charged, as much as it is."""
    limit = 12
    args = (f"--region-fds-per-uid={limit}",)
    words = [f"region_fds_per_uid: this uid's limit on descriptors kept for regions is {limit}"]

    def count(self):
        return len(os.listdir(f"/proc/{self.tmad.process.pid}/fd"))

    def release_all(self):
        for entry in self.rpc.call("region_list"):
            self.rpc.call("region_release", {"region": entry["region"]})

    def settled(self):
        """How many there are, once those that nobody needs are closed."""
        counts = [0, 1]
        while len(set(counts[-4:])) > 1:
            time.sleep(0.05)
            counts.append(self.count())
        return counts[-1]

    def allocation(self, device):
        fd = os.memfd_create(f"softgpu-allocation-{device}-", os.MFD_CLOEXEC)
        self.addCleanup(os.close, fd)
        os.ftruncate(fd, UNIT)
        return fd

    def test_regions(self):
        for name, add in (("host", lambda: self.memory(4096)), ("made", lambda: self.create(1, kind="memfd")),
                          ("device", lambda: self.create(2))):
            with self.subTest(name):
                add()  # what is opened once
                self.release_all()
                before = self.settled()
                for _ in range(self.limit // 2):
                    add()
                with self.assertRaises(RpcError) as caught:
                    add()
                self.assertEqual(caught.exception.name, "QUOTA")
                self.assertIn(self.words[0], caught.exception.message)
                self.assertEqual(self.settled() - before, self.limit)
                self.release_all()
        before = self.settled()
        for _ in range(self.limit):
            self.create(3, kind="cuda_ipc")
        self.assertEqual(self.settled(), before, "handles are no descriptors")

    def test_parts(self):
        """Each of its allocations, also those that another region has brought."""
        def parts(n, *more):
            return {"kind": "cuda_fd", "size": UNIT, "parts": [*more, *[{"size": UNIT}] * n]}

        fds = [self.allocation(1) for _ in range(self.limit)]
        before = self.settled()
        first = self.rpc.call("region_register", parts(7), fds[:7])["region"]
        whole = {"region": first, "size": 7 * UNIT}
        self.refused("QUOTA", "region_register", parts(6), self.words, fds[7:12] + fds[7:8])
        self.refused("QUOTA", "region_register", parts(1, whole), [*self.words, "8 more requested"], fds[7:8])
        again = self.rpc.call("region_register", parts(2, {"region": first, "size": 3 * UNIT}), fds[7:9])["region"]
        self.rpc.call("region_release", {"region": first})
        self.assertEqual(self.settled() - before, 5)
        self.rpc.call("region_register", parts(3), fds[9:])
        self.create(0)
        self.create(0)
        self.refused("QUOTA", "region_create", {"size": 64, "device": 0}, self.words)
        self.rpc.call("region_release", {"region": again})
        self.create(0)

    def test_further_devices(self):
        source, there = self.create(0), [self.create(device) for device in (1, 2, 3)]
        _, host = self.memory(4096)
        for region in there[:2]:
            self.rpc.call("copy", {"dst": tensor(region, [64]), "src": tensor(source, [64])})
        self.refused("QUOTA", "copy", {"dst": tensor(there[2], [64]), "src": tensor(source, [64])}, self.words)
        self.rpc.call("region_release", {"region": host})
        self.rpc.call("copy", {"dst": tensor(there[2], [64]), "src": tensor(source, [64])})

    def test_one_device(self):
        """Nothing of the kind."""
        tmad = Tmad("--region-fds-per-uid=1", engine="cuda", env={"SOFTGPU_DEVICES": "1"})
        self.addCleanup(tmad.stop)
        with tmad.rpc() as rpc:
            self.memory(4096, rpc=rpc)
            self.create(0, rpc=rpc)
            fds = [self.allocation(0) for _ in range(3)]
            rpc.call("region_register", {"kind": "cuda_fd", "size": UNIT, "parts": [{"size": UNIT}] * 3}, fds)


# ---- Memory of clients --------------------------------------------------------------------------------------
class PoolProperties(ctypes.Structure):
    """CUmemPoolProps."""
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("place", ctypes.c_int), ("device", ctypes.c_int),
                ("win32", ctypes.c_void_p), ("most", ctypes.c_size_t), ("rest", ctypes.c_uint8 * 56)]


class Driver:
    """The stand-in driver in this process, which has allocations on all devices."""

    def __init__(self):
        os.environ["SOFTGPU_DEVICES"] = str(DEVICES)
        self.library = ctypes.CDLL(LIBRARY)
        self.call("cuInit", 0)
        self.contexts = []
        for i in range(DEVICES):
            context = ctypes.c_void_p()
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), i)
            self.contexts.append(context)

    def call(self, name, *args):
        result = getattr(self.library, name)(*args)
        assert result == 0, f"{name}: {result}"

    def ipc(self, device, size=SIZE):
        """The handle of new memory there."""
        address, handle = ctypes.c_uint64(), ctypes.create_string_buffer(64)
        self.call("cuCtxSetCurrent", self.contexts[device])
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self.call("cuIpcGetMemHandle", handle, address)
        return handle.raw

    def pool(self, device, size=SIZE):
        """The descriptor of a new pool there, and the bytes of a pointer to memory of it."""
        pool, stream, address, fd = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_int()
        pointer = ctypes.create_string_buffer(64)
        self.call("cuCtxSetCurrent", self.contexts[device])
        self.call("cuStreamCreateWithPriority", ctypes.byref(stream), 1, 0)
        properties = PoolProperties(type=1, handles=1, place=1, device=device)
        self.call("cuMemPoolCreate", ctypes.byref(pool), ctypes.byref(properties))
        self.call("cuMemAllocFromPoolAsync", ctypes.byref(address), ctypes.c_size_t(size), pool, stream)
        self.call("cuMemPoolExportToShareableHandle", ctypes.byref(fd), pool, 1, ctypes.c_uint64(0))
        self.call("cuMemPoolExportPointer", pointer, address)
        return fd.value, pointer.raw


class Registration(DeviceCase):
    @unittest.skipIf(SANITIZED, "Python itself is not sanitized")
    def test_finds_the_device(self):
        driver, uuids = Driver(), self.uuids()
        memory, host = self.memory(data=os.urandom(SIZE))
        regions = []
        for device in (2, 0, 3, 1):
            handle = driver.ipc(device)
            made = self.rpc.call("region_register", {"kind": "cuda_ipc", "size": SIZE, "handle": handle})
            self.assertEqual(made["device"], uuids[device])
            regions.append(made["region"])
            again = self.rpc.call("region_register", {"kind": "cuda_ipc", "size": SIZE, "handle": handle,
                                                      "device": uuids[device]})
            self.assertEqual(again["device"], uuids[device])
            self.rpc.call("region_release", {"region": again["region"]})
            self.refused("INVALID_ARGUMENT", "region_register",
                         {"kind": "cuda_ipc", "size": SIZE, "handle": handle, "device": uuids[device - 1]},
                         ["is on device"])
        before = memory[:SIZE]
        for dst, src in zip([*regions, host], [host, *regions]):
            self.rpc.call("copy", {"dst": tensor(dst, [SIZE]), "src": tensor(src, [SIZE])})
            memory[:SIZE] = bytes(SIZE)
        self.rpc.call("copy", {"dst": tensor(host, [SIZE]), "src": tensor(regions[-1], [SIZE])})
        self.assertEqual(memory[:SIZE], before)

    @unittest.skipIf(SANITIZED, "Python itself is not sanitized")
    def test_pools(self):
        """Two regions of one allocation, each of which other devices reach, and which go one after the other."""
        driver, uuids = Driver(), self.uuids()
        memory, host = self.memory(data=os.urandom(SIZE))
        before = memory[:SIZE]
        for device in (3, 1):
            fd, pointer = driver.pool(device)
            self.addCleanup(os.close, fd)
            params = {"kind": "cuda_pool", "size": SIZE, "allocation": SIZE, "handle": pointer}
            made = [self.rpc.call("region_register", params, [fd]) for _ in range(2)]
            self.assertEqual([region["device"] for region in made], [uuids[device]] * 2)
            self.rpc.call("copy", {"dst": tensor(made[0]["region"], [SIZE]), "src": tensor(host, [SIZE])})
            for region in (made[0]["region"], made[1]["region"]):
                for other in range(DEVICES):
                    there = self.create(other)
                    self.rpc.call("copy", {"dst": tensor(there, [SIZE]), "src": tensor(region, [SIZE])})
                    self.rpc.call("copy", {"dst": tensor(region, [SIZE]), "src": tensor(there, [SIZE])})
                    self.rpc.call("region_release", {"region": there})
                self.rpc.call("region_release", {"region": region})
            again = self.rpc.call("region_register", params, [fd])["region"]
            memory[:SIZE] = bytes(SIZE)
            self.rpc.call("copy", {"dst": tensor(host, [SIZE]), "src": tensor(again, [SIZE])})
            self.assertEqual(memory[:SIZE], before)

    def allocation(self, device, units=1, data=b""):
        """An allocation of the stand-in driver's; its descriptor."""
        fd = os.memfd_create(f"softgpu-allocation-{device}-", os.MFD_CLOEXEC)
        self.addCleanup(os.close, fd)
        os.ftruncate(fd, units * UNIT)
        os.pwrite(fd, data, 0)
        return fd

    def test_finds_the_device_of_a_descriptor(self):
        uuids, memory = self.uuids(), os.urandom(SIZE)
        fds = [self.allocation(device, data=memory) for device in (1, 3)]
        made = [self.rpc.call("region_register", {"kind": "cuda_fd", "size": SIZE}, [fd]) for fd in fds]
        self.assertEqual([region["device"] for region in made], [uuids[1], uuids[3]])
        a, b = (region["region"] for region in made)
        self.rpc.call("copy", {"dst": tensor(a, [SIZE // 2]), "src": tensor(b, [SIZE // 2], offset=SIZE // 2)})
        self.assertEqual(os.pread(fds[0], SIZE, 0), memory[SIZE // 2:] * 2)
        self.refused("INVALID_ARGUMENT", "region_register", {"kind": "cuda_fd", "size": SIZE, "device": 0},
                     ["device 1, but this service uses device 0"], [fds[0]])

    def test_parts(self):
        """Regions of several allocations, of which two have one in common, as other devices have them too."""
        uuids = self.uuids()
        fds = [self.allocation(2, data=bytes([i]) * UNIT) for i in range(3)]
        parts = [{"size": UNIT}] * 2
        first = self.rpc.call("region_register", {"kind": "cuda_fd", "size": 2 * UNIT, "parts": parts}, fds[:2])
        self.assertEqual(first["device"], uuids[2])
        grown = self.rpc.call("region_register", {"kind": "cuda_fd", "size": 2 * UNIT, "parts": [
            {"size": UNIT, "region": first["region"], "offset": UNIT}, {"size": UNIT}]}, fds[2:])
        self.assertEqual(grown["device"], uuids[2])
        there = self.create(0, 64)
        memory, host = self.memory(64)
        for region, expected in ((first, (0, 1)), (grown, (1, 2))):
            src = tensor(region["region"], [64], offset=UNIT - 32)
            self.rpc.call("copy", {"dst": tensor(there, [64]), "src": src})
            self.rpc.call("copy", {"dst": tensor(host, [64]), "src": tensor(there, [64])})
            self.assertEqual(memory[:64], bytes(expected[:1]) * 32 + bytes(expected[1:]) * 32)
        self.rpc.call("region_release", {"region": first["region"]})
        self.rpc.call("copy", {"dst": tensor(there, [64]), "src": src})
        other = self.create(3, UNIT, kind="cuda_fd")
        self.refused("INVALID_ARGUMENT", "region_register", {"kind": "cuda_fd", "size": 2 * UNIT, "parts": [
            {"size": UNIT, "region": grown["region"]}, {"size": UNIT, "region": other}]},
            ["parts[1].region", uuids[2], uuids[3]])
        self.refused("INVALID_ARGUMENT", "region_register", {"kind": "cuda_fd", "size": 2 * UNIT, "parts": parts},
                     ["none of the 4 devices has the memory"], [fds[0], self.allocation(3)])

    def test_nobody_has_it(self):
        self.refused("INVALID_ARGUMENT", "region_register", {"kind": "cuda_ipc", "size": 64, "handle": bytes(64)},
                     ["handle: the driver cannot open it"])
        self.refused("INVALID_ARGUMENT", "region_register",
                     {"kind": "cuda_ipc", "size": 64, "handle": bytes(64), "device": "GPU-1"},
                     ["device: the memory is on GPU-1", self.uuids()[0]])


if __name__ == "__main__":
    if not os.path.exists(LIBRARY):
        print("1..0 # SKIP this build has no cuda engine")
    else:
        tap.main()

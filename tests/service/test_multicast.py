# SPDX-License-Identifier: Apache-2.0
"""Transforms with several destinations: at random against NumPy, on the CPU and on several devices, which the stand-in
driver plays; what is refused; and what becomes of those that do not end.

TEST_SEED repeats a random run; TEST_CASES sets its length by a number instead of TEST_SHARE.
"""
import os
import random
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
import test_devices
from test_devices import DEVICES, LIBRARY, SIZE, DeviceCase, cases
from tmad import SANITIZED, Memory, RpcError, tensor, wait_until

SLOT = SIZE // 4  # bytes of a destination, and of a source, at most; a place has three for destinations
CHUNK = 4096
CASTS = {"uint8": ("float32", "int32", "float16"), "int16": ("float32", "int64"), "float32": ("float64",)}
HAS_DEVICES = os.path.exists(LIBRARY)


# ---- At random ----------------------------------------------------------------------------------------------
class Places(test_devices.Places):
    """Regions of the host and of some devices; no four bytes of them are a NaN."""

    MOST = 100

    def __init__(self, case, rng, devices=()):
        self.case, self.rng = case, rng
        self.names, self.regions, self.held = [], [], []
        self.stage, self.staged = case.memory(SIZE)
        self.operands, self.region = case.memory(16 * SLOT)
        self.n_operands = 0
        for i in range(3):
            memory, region = case.memory(SIZE)
            self.add(f"host {i}", region, memory)
        for device in devices:
            for kind in ("cuda_fd", "cuda_ipc"):
                self.add(f"{kind} of device {device}", case.create(device, SIZE, kind=kind))

    def operand(self, array):
        """Returns a tensor of the place, valid until 15 others are made."""
        offset = self.n_operands % 16 * SLOT
        self.n_operands += 1
        self.operands[offset:offset + array.nbytes] = array.tobytes()
        return tensor(self.region, array.shape, "float32", offset=offset)

    def view(self, place, offset, dtype, shape, strides):
        """An array on what the place holds; strides in elements, offset that of element [0, ..., 0]."""
        width = np.dtype(dtype).itemsize
        return np.ndarray(shape, dtype, self.held[place], offset, [width * s for s in strides])


def layout(rng, shape):
    """Strides of a tensor that may have gaps, dimensions in any order and backwards; the first element's place, and
    the extent of all."""
    if rng.integers(0, 2):
        order = list(range(len(shape)))
    else:
        order = [int(d) for d in rng.permutation(len(shape))]
    strides, extent, first = [0] * len(shape), 1, 0
    for d in reversed(order):
        strides[d] = extent
        extent = extent * shape[d] + (int(rng.integers(1, 9)) if rng.integers(0, 4) == 0 else 0)
    for d, n in enumerate(shape):
        if rng.integers(0, 8) == 0:
            first += (n - 1) * strides[d]
            strides[d] = -strides[d]
    return strides, first, extent


class Random:
    """Requests, each carried out on what the places have to hold; with several destinations, unless it is to be one."""

    def __init__(self, rng, places, is_one=False):
        self.rng, self.places, self.is_one = rng, places, is_one

    def shape(self):
        rank = int(self.rng.integers(1, 5))
        return [int(self.rng.integers(1, (1500, 50, 13, 7)[rank - 1])) for _ in range(rank)]

    def conversion(self, dtype, permuted):
        """Returns the destination's type, the request's parameters for it, and what NumPy makes of the permuted
        source."""
        if dtype not in CASTS or self.rng.integers(0, 2):
            return dtype, {}, lambda a: a
        to = str(self.rng.choice(CASTS[dtype]))
        if to != "float32" or self.rng.integers(0, 2):
            return to, {"cast": str(self.rng.choice(["saturate", "exact"]))}, lambda a: a.astype(to)
        shape = [n if self.rng.integers(0, 2) else 1 for n in permuted][int(self.rng.integers(0, len(permuted))):]
        scale = self.rng.normal(size=shape).astype("<f4")
        operand = self.places.operand(scale)
        return (to, {"cast": "saturate", "bias": 2, "scale": operand},
                lambda a: a.astype("f4") * scale + np.float32(2))

    def request(self):
        rng, places = self.rng, self.places
        dtype = str(rng.choice(["uint8", "int16", "float32", "uint64"]))
        shape = self.shape()
        perm = [int(i) for i in rng.permutation(len(shape))]
        permuted = [shape[p] for p in perm]
        to, params, convert = self.conversion(dtype, permuted)
        pads = [(int(rng.integers(0, 4)), int(rng.integers(0, 4))) if rng.integers(0, 5) == 0 else (0, 0) for _ in shape]
        mode = str(rng.choice(["constant", "edge"]))
        out = [n + sum(pad) for n, pad in zip(permuted, pads)]
        strides, first, extent = layout(rng, shape)
        width = np.dtype(dtype).itemsize
        if extent * width > SLOT // 2:
            return None
        src = int(rng.integers(0, len(places.held)))
        src_offset = 3 * SLOT + first * width
        read = places.view(src, src_offset, dtype, shape, strides).transpose(perm)
        result = np.pad(convert(read), pads, mode=mode)
        slots = [(p, s) for p in range(len(places.held)) for s in range(3)]
        dsts, views = [], []
        for i in rng.permutation(len(slots))[:1 if self.is_one else int(rng.integers(2, 9))]:
            place, slot = slots[i]
            dst_strides, dst_first, dst_extent = layout(rng, out)
            dst_width = np.dtype(to).itemsize
            if dst_extent * dst_width > SLOT:
                return None
            offset = slot * SLOT + dst_first * dst_width
            dsts.append(tensor(places.regions[place], out, to, offset=offset, strides=dst_strides))
            views.append(places.view(place, offset, to, out, dst_strides))
        for view in views:
            view[...] = result
        return {"dst": dsts[0], "further_dst": dsts[1:], "perm": perm, "before": [b for b, _ in pads],
                "after": [a for _, a in pads], "mode": mode,
                "src": tensor(places.regions[src], shape, dtype, offset=src_offset, strides=strides), **params}


def run(case, full, devices=(), is_one=False):
    seed = int(os.environ.get("TEST_SEED") or random.randrange(2**32))
    print(f"# seed {seed}", flush=True)
    rng = np.random.default_rng(seed)
    places = Places(case, rng, devices)
    source = Random(rng, places, is_one)
    left = cases(full)
    while left > 0:
        wanted = set()
        for _ in range(min(left, int(rng.integers(1, 6)))):
            params = source.request()
            if params is None:
                continue
            if rng.integers(0, 3) == 0:
                params["deadline_ms"] = 3600000  # of all chunks but the first, none has one
            wanted.add(case.rpc.request("transform", params))
            left -= 1
        while wanted:
            kind, msgid, error, result = case.rpc.receive()
            case.assertEqual((kind, error), (1, None))
            wanted.remove(msgid)
        if rng.integers(0, 10) == 0:
            places.check(f"of seed {seed}")
    places.check(f"of seed {seed}")


@unittest.skipUnless(HAS_DEVICES, "this build has no cuda engine")
class OnDevices(DeviceCase):
    """In chains of chunks."""
    args = (f"--device-chunk-bytes={CHUNK}", "--jobs-per-uid=8192")

    def test_at_random(self):
        run(self, 100 if SANITIZED else 3000, range(DEVICES))


class OnDevicesThatAreFar(OnDevices):
    """Each reaches the next alone, so that chains go on from where they can."""
    env = {"SOFTGPU_LINKS": "all:18,0-2:none,1-3:none,0-3:pcie"}

    def test_at_random(self):
        """Between host memory and two neighbours: others cannot be reached."""
        run(self, 50 if SANITIZED else 1000, (1, 2))


@unittest.skipUnless(HAS_DEVICES, "this build has no cuda engine")
class Stars(DeviceCase):
    args = ("--jobs-per-uid=8192",)

    def test_at_random(self):
        run(self, 50 if SANITIZED else 1000, range(DEVICES))


class OnOneEngine(DeviceCase):
    engine = "cpu"

    def test_at_random(self):
        run(self, 100 if SANITIZED else 2000)


class InChunksOnOneEngine(OnOneEngine):
    args = (f"--device-chunk-bytes={CHUNK}",)


# ---- What is moved --------------------------------------------------------------------------------------------
@unittest.skipUnless(HAS_DEVICES, "this build has no cuda engine")
class Moves(DeviceCase):
    args = (f"--device-chunk-bytes={CHUNK}",)
    ROWS, COLUMNS = 64, 512

    def setUp(self):
        super().setUp()
        self.data = np.random.default_rng(1).integers(0, 256, (self.ROWS, self.COLUMNS), np.uint8)
        self.source, self.src = self.memory(self.data.nbytes, data=self.data.tobytes())
        self.back, self.to = self.memory(4 * self.data.nbytes)

    def params(self, regions, **fields):
        shape = [self.COLUMNS, self.ROWS]
        dst = [tensor(region, shape, "float32") for region in regions]
        return {"dst": dst[0], "further_dst": dst[1:], "cast": "saturate", "perm": [1, 0],
                "src": tensor(self.src, [self.ROWS, self.COLUMNS]), **fields}

    def check(self, regions):
        shape, expected = [self.COLUMNS, self.ROWS], self.data.T.astype("<f4").tobytes()
        for region in regions:
            self.rpc.call("copy", {"dst": tensor(self.to, shape, "float32"), "src": tensor(region, shape, "float32")})
            self.assertEqual(self.back[:len(expected)], expected)
            self.back[:len(expected)] = bytes(len(expected))

    def test_the_source_is_read_once(self):
        """A conversion reads a quarter of what a copy does: the bytes tell one from the other."""
        n = self.data.nbytes
        _, host = self.memory(4 * n)
        regions = [self.create(i, 4 * n) for i in (2, 0, 1, 3, 2)] + [host]
        before = [row["transforms"] for row in self.rpc.call("stats")["devices"]]
        done = self.rpc.call("transform", self.params(regions))
        self.assertEqual(done["path"], "convert")
        self.assertEqual(done["bytes"], n + 4 * n + 5 * 8 * n)
        stats = self.rpc.call("stats")["devices"]
        self.assertEqual([row["transforms"] - b for row, b in zip(stats, before)], [1, 1, 3, 1])
        self.assertEqual([row["bytes"] for row in stats], [8 * n, 8 * n, 5 * n + 16 * n, 8 * n])
        uuids = self.uuids()
        self.assertEqual({(uuids.index(link["from"]), uuids.index(link["to"])): link["bytes"]
                          for link in self.rpc.call("stats")["links"]},
                         {(2, 3): 4 * n, (3, 0): 4 * n, (0, 1): 4 * n}, "a chain")
        self.check(regions)

    def test_what_is_small_is_made_from_the_source(self):
        regions = [self.create(i, 64) for i in range(DEVICES)]
        dst = [tensor(region, [16], "float32") for region in regions]
        done = self.rpc.call("transform", {"dst": dst[0], "further_dst": dst[1:], "src": tensor(self.src, [16]),
                                           "cast": "saturate"})
        self.assertEqual(done["bytes"], DEVICES * (16 + 64))

    def test_an_exact_cast_counts_once(self):
        """All destinations are written, with the nearest values."""
        _, src = self.memory(64, data=np.array([1, 2.5, 3, 300], "<f4").tobytes())
        regions = [self.create(i, 64) for i in (1, 3)]
        dst = [tensor(region, [4]) for region in regions]
        self.refused("OUT_OF_RANGE", "transform", {"dst": dst[0], "further_dst": dst[1:], "cast": "exact",
                                                   "src": tensor(src, [4], "float32")}, ["of 2 elements of float32"])
        for region in regions:
            self.rpc.call("copy", {"dst": tensor(self.to, [4]), "src": tensor(region, [4])})
            self.assertEqual(list(self.back[:4]), [1, 2, 3, 255])

    def test_splits(self):
        """Incomplete last blocks, of the destination or of the source."""
        n, rows = 1000, 16
        data = np.random.default_rng(2).integers(0, 256, (n, rows), np.uint8)
        _, src = self.memory(data.nbytes, data=data.tobytes())
        regions = [self.create(i) for i in (0, 0, 1, 2)]
        blocks = -(-n // 48)
        dst = [tensor(region, [blocks, rows, 48]) for region in regions]
        self.rpc.call("transform", {"dst": dst[0], "further_dst": dst[1:], "perm": [0, 2, 1], "value": 7,
                                    "src": tensor(src, [n, rows], split=[0, 48])})
        padded = np.full((blocks * 48, rows), 7, np.uint8)
        padded[:n] = data
        expected = padded.reshape(blocks, 48, rows).transpose(0, 2, 1).tobytes()
        for region in regions:
            self.rpc.call("copy", {"dst": tensor(self.to, [len(expected)]), "src": tensor(region, [len(expected)])})
            self.assertEqual(self.back[:len(expected)], expected)
        plain = [self.create(i) for i in (3, 1, 0)]
        dst = [tensor(region, [n, rows], offset=16 * i, strides=[rows + i, 1]) for i, region in enumerate(plain)]
        self.rpc.call("transform", {"dst": {**dst[0], "split": [0, 48]}, "further_dst": dst[1:], "perm": [0, 2, 1],
                                    "src": tensor(regions[2], [blocks, rows, 48])})
        for to in dst:
            self.rpc.call("copy", {"dst": tensor(self.to, [n, rows]), "src": to})
            self.assertEqual(self.back[:data.nbytes], data.tobytes())


@unittest.skipUnless(HAS_DEVICES, "this build has no cuda engine")
class Links(DeviceCase):
    """Devices in a line: each reaches its neighbours alone."""
    args = (f"--device-chunk-bytes={CHUNK}",)
    env = {"SOFTGPU_LINKS": "all:none,0-1:18,1-2:18,2-3:18"}

    def test_along_the_line(self):
        data = os.urandom(SIZE)
        memory, host = self.memory(SIZE, data=data)
        regions = [self.create(i, SIZE) for i in range(DEVICES)]
        self.rpc.call("copy", {"dst": tensor(regions[0], [SIZE]), "src": tensor(host, [SIZE])})
        params = {"src": tensor(regions[0], [SIZE]), "dst": tensor(regions[3], [SIZE]),
                  "further_dst": [tensor(regions[i], [SIZE]) for i in (2, 1)]}
        self.rpc.call("transform", params)
        small = {key: {**value, "shape": [8]} if isinstance(value, dict) else [{**t, "shape": [8]} for t in value]
                 for key, value in params.items()}
        self.rpc.call("transform", small)
        for region in regions[1:]:
            memory[:SIZE] = bytes(SIZE)
            self.rpc.call("copy", {"dst": tensor(host, [SIZE]), "src": tensor(region, [SIZE])})
            self.assertEqual(memory[:SIZE], data)
        self.refused("UNSUPPORTED", "transform", {**params, "further_dst": params["further_dst"][:1]},
                     ["cannot reach", self.uuids()[0]])


# ---- What is refused ------------------------------------------------------------------------------------------
class Refused(DeviceCase):
    engine = "cpu"
    args = ("--jobs-per-uid=4",)

    def setUp(self):
        super().setUp()
        self.mem, self.region = self.memory(4096, data=bytes(range(256)) * 16)
        _, self.other = self.memory(4096)
        self.good = {"dst": tensor(self.region, [64]), "src": tensor(self.other, [64])}

    def further(self, *tensors, **fields):
        return {**self.good, "further_dst": list(tensors), **fields}

    def test_each(self):
        at = tensor(self.region, [64], offset=64)
        table = (
            ("another shape", "INVALID_ARGUMENT", {"further_dst": [{**at, "shape": [8, 8]}]},
             ["further_dst[0]: shape: [8, 8], but dst has [64]"]),
            ("another type", "INVALID_ARGUMENT", {"further_dst": [at, {**at, "dtype": "int8"}]},
             ["further_dst[1]: dtype: int8, but dst has uint8"]),
            ("a split", "INVALID_ARGUMENT", {"further_dst": [{**at, "split": [0, 8]}]}, ["further_dst[0]: split"]),
            ("no region", "INVALID_ARGUMENT", {"further_dst": [{"dtype": "uint8", "shape": [64]}]},
             ["further_dst[0]: dst.region: missing"]),
            ("no such region", "NOT_FOUND", {"further_dst": [{**at, "region": 77}]}, ["further_dst[0]", "77"]),
            ("out of its region", "OUT_OF_RANGE", {"further_dst": [{**at, "offset": 4090}]}, ["further_dst[0]"]),
            ("strides of another rank", "INVALID_ARGUMENT", {"further_dst": [{**at, "strides": [1, 1]}]},
             ["further_dst[0]: dst.strides"]),
            ("over itself", "OVERLAP", {"further_dst": [{**at, "strides": [0]}]}, ["further_dst[0]"]),
            ("over dst", "OVERLAP", {"further_dst": [{**at, "offset": 63}]}, ["dst", "further_dst[0]"]),
            ("over another", "OVERLAP", {"further_dst": [at, {**at, "offset": 256}, {**at, "offset": 300}]},
             ["further_dst[1]", "further_dst[2]"]),
            ("over the source", "OVERLAP", {"further_dst": [{**at, "region": self.other, "offset": 32}]},
             ["further_dst[0]", "src"]),
            ("too many", "INVALID_ARGUMENT", {"further_dst": [at] * 65}, ["65 tensors, at most 64"]),
            ("more than jobs_per_uid", "QUOTA",
             {"further_dst": [{**at, "offset": 64 * i} for i in range(1, 5)]}, ["jobs_per_uid"]),
            ("no list", "INVALID_ARGUMENT", {"further_dst": 3}, ["further_dst"]),
            ("no tensor", "INVALID_ARGUMENT", {"further_dst": [3]}, ["further_dst[0]"]),
            ("an unknown field", "INVALID_ARGUMENT", {"further_dst": [{**at, "stride": [1]}]},
             ["further_dst[0]", "stride"]),
        )
        for name, status, fields, words in table:
            with self.subTest(name):
                self.refused(status, "transform", {**self.good, **fields}, words)
        self.assertEqual(self.mem[:4096], bytes(range(256)) * 16)

    def test_over_what_it_converts_by(self):
        scale = tensor(self.region, [64], "float32", offset=1024)
        self.refused("OVERLAP", "transform", self.further(tensor(self.region, [64], offset=1100), cast="saturate",
                                                          scale=scale), ["further_dst[0]", "scale"])

    def test_amax(self):
        amax = {"block": [64], "scale": tensor(self.region, [1], "float32", offset=1024)}
        self.refused("INVALID_ARGUMENT", "transform", {
            "dst": tensor(self.region, [64], "int8"), "src": tensor(self.other, [64], "float32"), "cast": "saturate",
            "further_dst": [tensor(self.region, [64], "int8", offset=64)], "amax": amax}, ["further_dst: not with amax"])

    def test_read_only(self):
        _, readonly = self.memory(64, writable=False)
        self.refused("PERMISSION", "transform", self.further(tensor(readonly, [64])), ["further_dst[0]"])

    def test_elsewhere(self):
        """Only transform has them."""
        params = self.further(tensor(self.region, [64], offset=64))
        for method in ("copy", "plan_prepare", "explain"):
            self.refused("INVALID_ARGUMENT", method, params, ["further_dst", method])
        self.refused("INVALID_ARGUMENT", "transpose", {**params, "perm": [0]}, ["further_dst"])
        self.refused("INVALID_ARGUMENT", "pad", {**params, "before": [0], "after": [0]}, ["further_dst"])
        done = self.rpc.call("submit", {"items": [params]})
        self.assertIn("further_dst", done["errors"][0]["message"])

    def test_none(self):
        self.rpc.call("transform", self.further())
        self.assertEqual(self.mem[:64], bytes(64))

    def test_intricate_layouts(self):
        """The search for overlaps is bounded."""
        _, big = self.memory(1 << 22)
        strides = [3001, 2003, 1009, 509, 251, 127, 61]
        dst = [tensor(big, [3] * 7, offset=i, strides=strides) for i in range(0, 128, 2)]
        with self.assertRaises(RpcError) as caught:
            self.rpc.call("transform", {"dst": dst[0], "further_dst": dst[1:], "src": tensor(self.other, [3] * 7)})
        self.assertIn(caught.exception.name, ("OVERLAP", "QUOTA"))


class ManyPlans(DeviceCase):
    engine = "cpu"

    def test_many_plans(self):
        """A request has as many made as it needs, and they are kept: nine parts for each of 65 layouts."""
        _, src = self.memory(4096)
        _, region = self.memory(65 * 2048)
        shape = [3, 4, 4, 2, 4, 4]
        dst = [tensor(region, shape, offset=2048 * i, strides=[512 + i, 128, 32, 16, 4, 1]) for i in range(65)]
        params = {"dst": dst[0], "further_dst": dst[1:],
                  "src": tensor(src, [37, 21], split=[0, 16, 1, 4, 3, 16, 4, 4])}
        self.rpc.call("transform", params)
        self.assertEqual(self.rpc.call("stats")["plan_cache"]["misses"], 9 * 65)
        self.rpc.call("transform", params)
        self.assertEqual(self.rpc.call("stats")["plan_cache"]["misses"], 9 * 65)


# ---- Order, waits and ends ------------------------------------------------------------------------------------
@unittest.skipUnless(HAS_DEVICES, "this build has no cuda engine")
class Order(DeviceCase):
    args = (f"--device-chunk-bytes={CHUNK}",)
    env = {"SOFTGPU_SLOW_US": "1000"}

    def setUp(self):
        super().setUp()
        self.data = os.urandom(SIZE)
        self.source, self.src = self.memory(SIZE, data=self.data)
        self.back, self.to = self.memory(SIZE)
        self.word, self.timeline = self.memory(4096)
        self.regions = [self.create(i, SIZE) for i in range(DEVICES)]

    def params(self, **fields):
        return {"dst": tensor(self.regions[0], [SIZE]), "src": tensor(self.src, [SIZE]),
                "further_dst": [tensor(region, [SIZE]) for region in self.regions[1:]], **fields}

    def test_points(self):
        """It waits as one and signals as one; what comes after it on any device waits for all of it."""
        point = {"region": self.timeline, "offset": 0, "value": 1}
        msgid = self.rpc.request("transform", self.params(wait=point, signal={**point, "offset": 8}, reply="queued"))
        self.assertEqual(self.rpc.reply(msgid), {"queued": True})
        back = self.rpc.request("copy", {"dst": tensor(self.to, [SIZE]), "src": tensor(self.regions[3], [SIZE])})
        time.sleep(0.05)
        self.assertEqual(self.word[8], 0)
        self.word[:8] = (1).to_bytes(8, "little")
        messages = [self.rpc.receive() for _ in range(2)]
        self.assertEqual((messages[0][0], messages[0][2][0], messages[1][1]), (2, msgid, back), messages)
        self.assertEqual((self.word[8], self.back[:SIZE]), (1, self.data))

    def test_a_point_that_does_not_come(self):
        point = {"region": self.timeline, "offset": 0, "value": 1, "deadline_ms": 20}
        self.refused("TIMEOUT", "transform", self.params(wait=point, signal={
            "region": self.timeline, "offset": 8, "value": 1}))
        self.assertEqual(self.word[8], 0)
        self.rpc.call("transform", self.params())

    def test_the_end_of_a_connection(self):
        """In the middle of a chain: nothing of it stays (Tmad.stop looks)."""
        for seconds in (0.0, 0.005, 0.02, 0.05):
            with self.tmad.rpc() as rpc:
                memory = Memory(SIZE, data=self.data)
                self.addCleanup(memory.close)
                src = memory.register(rpc)
                regions = [self.create(i, SIZE, rpc=rpc) for i in range(DEVICES)]
                dst = [tensor(region, [SIZE]) for region in regions]
                for _ in range(4):
                    rpc.request("transform", {"dst": dst[0], "further_dst": dst[1:], "src": tensor(src, [SIZE])})
                wait_until(lambda: self.rpc.call("stats")["jobs"] > 0, "it is under way")
                time.sleep(seconds)
            wait_until(lambda: self.rpc.call("stats")["regions"] == 3 + DEVICES, "all is unmapped")
        self.rpc.call("transform", self.params())

    def test_a_region_is_released_meanwhile(self):
        region = self.create(2, SIZE)
        params = self.params()
        params["further_dst"].append(tensor(region, [SIZE]))
        msgid = self.rpc.request("transform", params)
        released = self.rpc.request("region_release", {"region": region})
        self.assertEqual(self.rpc.reply(released)["state"], "draining")
        self.rpc.reply(msgid)


@unittest.skipUnless(HAS_DEVICES, "this build has no cuda engine")
class Lost(DeviceCase):
    args = (f"--device-chunk-bytes={CHUNK}",)

    def setUp(self):
        self.lose = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "lose")
        self.env = {"SOFTGPU_LOSE": self.lose, "SOFTGPU_SLOW_US": "500"}
        super().setUp()

    def test_in_the_middle(self):
        """It ends as DEVICE_LOST, sets no signal, and works again when the device is back."""
        data = os.urandom(SIZE)
        _, src = self.memory(SIZE, data=data)
        word, timeline = self.memory(4096)
        back, to = self.memory(SIZE)
        regions = [self.create(i, SIZE, kind="cuda_fd") for i in range(DEVICES)]
        dst = [tensor(region, [SIZE]) for region in regions]
        params = {"dst": dst[0], "further_dst": dst[1:], "src": tensor(src, [SIZE])}
        self.rpc.call("transform", params)
        for device in (0, 2):  # a third loss would be held against the user
            stop = threading.Timer(0.02, self.lose_device, [device])
            stop.start()
            value = 0
            with self.assertRaises(RpcError) as caught:
                while True:
                    self.rpc.call("transform", {**params, "signal": {"region": timeline, "offset": 0,
                                                                     "value": value + 1}})
                    value += 1
            stop.join()
            self.assertEqual(caught.exception.name, "DEVICE_LOST")
            self.assertEqual(int.from_bytes(word[:8], "little"), value)
            wait_until(self.works(params), "the device is back")
            for region in regions:
                self.rpc.call("copy", {"dst": tensor(to, [SIZE]), "src": tensor(region, [SIZE])})
                self.assertEqual(back[:SIZE], data)
            word[:8] = bytes(8)

    def lose_device(self, device):
        with open(self.lose + ".new", "w", encoding="ascii") as file:
            file.write(f"{device} 719\n")
        os.rename(self.lose + ".new", self.lose)

    def works(self, params):
        def try_it():
            try:
                self.rpc.call("transform", params)
            except RpcError as e:
                self.assertEqual(e.name, "DEVICE_LOST")
                return False
            return True
        return try_it


if __name__ == "__main__":
    tap.main()

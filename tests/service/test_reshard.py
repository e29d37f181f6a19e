# SPDX-License-Identifier: Apache-2.0
"""Slices of a global tensor from other slices of it, bit for bit against NumPy: as tensor-parallel sizes change, and at
random, between host memory and any device of several; what is refused, and in which words.

TEST_SEED repeats a random run; TEST_CASES sets its length by a number instead of TEST_SHARE.
"""
import itertools
import os
import random
import sys
import tempfile
import time
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import BUILD, ENGINE, GPU, SANITIZED, Memory, RpcError, Tmad, share, tensor, wait_until

DEVICES = 8 if ENGINE == "cuda" and not GPU else 0
DTYPES = {"uint8": "u1", "bfloat16": "<u2", "float32": "<u4", "float64": "<u8", "complex128": "V16"}
GUARD = 0xa5


def cases(full):
    """How many, of a random run's full number."""
    return int(os.environ.get("TEST_CASES") or share(full))


def boxes_of(shape, parts):
    """A grid: of each dimension, where it is divided, so many parts as equal as can be."""
    edges = [[extent * i // n for i in range(n + 1)] for extent, n in zip(shape, parts)]
    return [tuple(slice(e[i], e[i + 1]) for e, i in zip(edges, at)) for at in itertools.product(*map(range, parts))]


class ReshardCase(unittest.TestCase):
    args = ()
    env = {}
    devices = DEVICES

    def setUp(self):
        devices = {"SOFTGPU_DEVICES": str(self.devices)} if self.devices else {}
        self.tmad = Tmad(*self.args, env={**devices, **self.env})
        self.addCleanup(self.tmad.stop)
        self.rpc = self.tmad.rpc()
        self.addCleanup(self.rpc.close)

    def host(self, size, data=None):
        memory = Memory(size, data=data)
        self.addCleanup(memory.close)
        return memory, memory.register(self.rpc)

    def create(self, place, size):
        """A region of a device, or of host memory (None)."""
        fields = {"kind": "memfd"} if place is None else {"device": place}
        made = self.rpc.call("region_create", {"size": size, **fields})
        while self.rpc.fds:
            os.close(self.rpc.fds.pop())
        return made["region"]

    def refused(self, name, params, words=(), method="reshard"):
        with self.assertRaises(RpcError) as caught:
            self.rpc.call(method, params)
        self.assertEqual(caught.exception.name, name, caught.exception.message)
        for word in words:
            self.assertIn(word, caught.exception.message)


# ---- Memory that slices lie in -------------------------------------------------------------------------------
class Arena:
    """Regions, one in host memory and one on each device, and what they have to hold: slices are laid out one behind the
    other, each with guard bytes around it, in any order of its dimensions, with gaps and reversed."""

    def __init__(self, case, size):
        self.case, self.size = case, size
        self.stage, self.staged = case.host(size)
        self.places = [None, *range(case.devices)]
        self.regions = [case.create(place, size) for place in self.places]
        self.held = [np.full(size, GUARD, np.uint8) for _ in self.places]
        self.ends = [0] * len(self.places)

    def clear(self):
        for held in self.held:
            held[:] = GUARD
        self.ends = [0] * len(self.places)

    def slice(self, rng, place, dtype, shape, start, plain=False):
        """One of that shape: as it travels, and the view of what its region has to hold."""
        kind = np.dtype(DTYPES[dtype])
        order = list(range(len(shape))) if plain else [int(i) for i in rng.permutation(len(shape))]
        strides, step = [0] * len(shape), 1
        for d in reversed(order):
            strides[d] = step
            step *= max(shape[d], 1) + (0 if plain else int(rng.integers(0, 3) == 0) * int(rng.integers(1, 4)))
        if not plain:
            strides = [-s if rng.integers(0, 5) == 0 else s for s in strides]
        low = sum((n - 1) * s for n, s in zip(shape, strides) if s < 0 and n > 0)
        high = sum((n - 1) * s for n, s in zip(shape, strides) if s > 0 and n > 0) + 1
        gap = int(rng.integers(0, 40))  # elements; the place is aligned to no more
        begin = -(-self.ends[place] // kind.itemsize) * kind.itemsize + gap * kind.itemsize
        offset = begin - low * kind.itemsize
        self.ends[place] = offset + high * kind.itemsize
        assert self.ends[place] <= self.size, "the arena is too small"
        view = np.ndarray(shape, kind, self.held[place], offset, [s * kind.itemsize for s in strides])
        sent = tensor(self.regions[place], shape, dtype, offset=offset, strides=strides)
        return {"tensor": sent, "start": list(start)}, view

    def write(self):
        for region, held, end in zip(self.regions, self.held, self.ends):
            end = min(end + 64, self.size)
            self.stage[:end] = held[:end].tobytes()
            self.case.rpc.call("copy", {"dst": tensor(region, [end]), "src": tensor(self.staged, [end])})

    def check(self, words):
        for place, region, held, end in zip(self.places, self.regions, self.held, self.ends):
            end = min(end + 64, self.size)
            self.case.rpc.call("copy", {"dst": tensor(self.staged, [end]), "src": tensor(region, [end])})
            got = np.frombuffer(self.stage[:end], np.uint8)
            if not np.array_equal(got, held[:end]):
                at = int(np.flatnonzero(got != held[:end])[0])
                self.case.fail(f"place {place}, byte {at} of {end}: {got[at]}, not {held[at]}, {words}")


def random_bytes(rng, dtype, shape):
    kind = np.dtype(DTYPES[dtype])
    count = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(rng.bytes(count * kind.itemsize), kind, count).reshape(shape)


def starts(box):
    return [b.start for b in box]


def extents(box):
    return [b.stop - b.start for b in box]


# ---- As tensor-parallel sizes change -------------------------------------------------------------------------
class TensorParallel(ReshardCase):
    def change(self, arena, rng, shape, dtype, axis, old, new):
        """From old to new shards along an axis, each rank on a device of its own where there are devices."""
        arena.clear()
        whole = random_bytes(rng, dtype, shape)
        sides = []
        for ranks in (old, new):
            parts = [ranks if d == axis else 1 for d in range(len(shape))]
            sides.append([(box, *arena.slice(rng, 1 + rank % self.devices if self.devices else 0, dtype, extents(box),
                                             starts(box), plain=True))
                          for rank, box in enumerate(boxes_of(shape, parts))])
        for box, _, view in sides[0]:
            view[...] = whole[box]
        arena.write()
        done = self.rpc.call("reshard", {"sources": [sent for _, sent, _ in sides[0]],
                                         "destinations": [sent for _, sent, _ in sides[1]], "shape": list(shape)})
        for box, _, view in sides[1]:
            view[...] = whole[box]
        arena.check(f"{shape} {dtype} along {axis}, {old} to {new}")
        self.assertEqual((done["bytes"], done["pieces"]), (2 * whole.nbytes, max(old, new)))

    def test_sizes(self):
        rng = np.random.default_rng(7)
        arena = Arena(self, 1 << 20)
        for shape, dtype in (((64, 48), "bfloat16"), ((16, 24, 40), "float32"), ((8, 136), "uint8")):
            for axis in range(len(shape)):
                for old, new in ((2, 4), (4, 8), (8, 1), (1, 8), (8, 2)):
                    self.change(arena, rng, shape, dtype, axis, old, new)

    def test_sizes_that_do_not_divide_each_other(self):
        rng = np.random.default_rng(8)
        arena = Arena(self, 1 << 20)
        arena.clear()
        whole = random_bytes(rng, "float32", (30, 7))
        sources, destinations = ([(box, *arena.slice(rng, 0, "float32", extents(box), starts(box)))
                                  for box in boxes_of(whole.shape, (ranks, 1))] for ranks in (3, 5))
        for box, _, view in sources:
            view[...] = whole[box]
        arena.write()
        done = self.rpc.call("reshard", {"sources": [s[1] for s in sources],
                                         "destinations": [d[1] for d in destinations]})
        for box, _, view in destinations:
            view[...] = whole[box]
        arena.check("3 to 5")
        self.assertEqual((done["pieces"], done["bytes"]), (7, 2 * whole.nbytes))


# ---- At random ------------------------------------------------------------------------------------------------
class AtRandom(ReshardCase):
    def boxes(self, rng, shape, n):
        """A grid of about so many boxes, in any order, some of them divided once more."""
        parts = [1] * len(shape)
        while shape and np.prod(parts) < n:
            d = int(rng.integers(0, len(shape)))
            parts[d] += 1
            if rng.integers(0, 4) == 0:
                break
        boxes = [box for box in boxes_of(shape, parts) if all(b.stop > b.start for b in box)]
        for i in range(len(boxes)):
            if shape and rng.integers(0, 4) == 0:
                d = int(rng.integers(0, len(shape)))
                b = boxes[i][d]
                at = int(rng.integers(b.start, b.stop + 1))
                boxes.append((*boxes[i][:d], slice(at, b.stop), *boxes[i][d + 1:]))
                boxes[i] = (*boxes[i][:d], slice(b.start, at), *boxes[i][d + 1:])
        return [boxes[i] for i in rng.permutation(len(boxes))]

    def box(self, rng, shape):
        """Any, of which dimensions may be empty."""
        edges = [sorted(int(i) for i in rng.integers(0, n + 1, 2)) for n in shape]
        return tuple(slice(a, b) for a, b in edges)

    def one(self, rng, arena, words):
        dtype = list(DTYPES)[rng.integers(0, len(DTYPES))]
        rank = int(rng.integers(0, 5))
        shape = [int(rng.integers(1, (1, 900, 50, 14, 7)[rank])) for _ in range(rank)]
        whole = random_bytes(rng, dtype, shape)
        arena.clear()
        boxes = self.boxes(rng, shape, int(rng.integers(1, 9)))
        boxes += [self.box(rng, shape) for _ in range(int(rng.integers(0, 4)))]  # replicas of parts
        if rng.integers(0, 4) == 0:
            boxes += self.boxes(rng, shape, 4)  # of everything
        sides = []
        for side in (boxes, self.boxes(rng, shape, int(rng.integers(1, 9)))
                     + [self.box(rng, shape) for _ in range(int(rng.integers(0, 4)))]):
            places = rng.integers(0, len(arena.places), len(side))
            sides.append([(box, *arena.slice(rng, int(place), dtype, extents(box), starts(box)))
                          for box, place in zip(side, places)])
        for box, _, view in sides[0]:
            view[...] = whole[box]
        arena.write()
        params = {"sources": [s[1] for s in sides[0]], "destinations": [s[1] for s in sides[1]]}
        if rng.integers(0, 2):
            params["shape"] = shape
        done = self.rpc.call("reshard", params)
        for box, _, view in sides[1]:
            view[...] = whole[box]
        arena.check(words)
        size = np.dtype(DTYPES[dtype]).itemsize
        moved = sum(int(np.prod(extents(box), dtype=np.int64)) for box, _, _ in sides[1])
        self.assertEqual(done["bytes"], 2 * size * moved, words)

    def test_tilings(self):
        seed = int(os.environ.get("TEST_SEED") or random.randrange(2**32))
        print(f"# TEST_SEED={seed}", flush=True)
        rng = np.random.default_rng(seed)
        arena = Arena(self, 1 << 20)
        for i in range(cases(200 if SANITIZED else 2000)):
            self.one(rng, arena, f"case {i} of seed {seed}")


# ---- What is chosen -------------------------------------------------------------------------------------------
@unittest.skipUnless(DEVICES, "the stand-in driver has several devices")
class Nearness(ReshardCase):
    devices = 4
    env = {"SOFTGPU_LINKS": "all:18,0-2:pcie,1-3:none"}

    def test_order(self):
        """The same device, then the fastest link, then a slower one, then the host; replicas tell where bytes are from."""
        _, back = memory, region = self.host(4096)
        places = [0, 1, 2, None]
        sources = []
        for i, place in enumerate(places):
            source = self.create(place, 64)
            memory[:64] = bytes([i + 1]) * 64
            self.rpc.call("copy", {"dst": tensor(source, [64]), "src": tensor(region, [64])})
            sources.append({"tensor": tensor(source, [64]), "start": [0]})
        target = self.create(0, 64)
        for i in range(len(places)):
            for order in (sources[i:], sources[i:][::-1]):
                done = self.rpc.call("reshard", {"destinations": [{"tensor": tensor(target, [64]), "start": [0]}],
                                                 "sources": order})
                self.assertEqual(done["pieces"], 1)
                self.rpc.call("copy", {"dst": tensor(back, [64]), "src": tensor(target, [64])})
                self.assertEqual(memory[:64], bytes([i + 1]) * 64)

    def test_what_cannot_be_reached(self):
        """Is refused if nothing else has the elements."""
        _, host = self.host(64)
        far, target = self.create(1, 64), self.create(3, 64)
        slices = [{"tensor": tensor(region, [64]), "start": [0]} for region in (far, host, target)]
        self.refused("UNSUPPORTED", {"destinations": slices[2:], "sources": slices[:1]})
        self.assertEqual(self.rpc.call("reshard", {"destinations": slices[2:], "sources": slices[:2]})["pieces"], 1)

    def test_replicas_share_the_work(self):
        """Four destinations on other devices, from two replicas that are as near: each gives half."""
        memory, region = self.host(4096)
        replicas = [self.create(place, 256) for place in (0, 1)]
        for i, replica in enumerate(replicas):
            memory[:256] = bytes([i + 1]) * 256
            self.rpc.call("copy", {"dst": tensor(replica, [256]), "src": tensor(region, [256])})
        target = self.create(2, 256)
        self.rpc.call("reshard", {
            "destinations": [{"tensor": tensor(region, [64], offset=64 * i), "start": [64 * i]} for i in range(4)],
            "sources": [{"tensor": tensor(replica, [256]), "start": [0]} for replica in replicas]})
        self.assertEqual(sorted(memory[64 * i] for i in range(4)), [1, 1, 2, 2])
        self.assertEqual(len({memory[64 * i:64 * i + 64] for i in range(4)}), 2)
        self.rpc.call("region_release", {"region": target})


# ---- Errors ---------------------------------------------------------------------------------------------------
class Errors(ReshardCase):
    def setUp(self):
        super().setUp()
        self.memory, self.region = self.host(1 << 16)

    def slice(self, shape, start, offset=0, **fields):
        return {"tensor": tensor(fields.pop("region", self.region), shape, fields.pop("dtype", "uint8"), offset=offset,
                                 **fields), "start": start}

    def test_gaps(self):
        """The first element, in C order, that no source has."""
        sources = [self.slice([4, 4], [0, 0], 1024), self.slice([4, 3], [4, 1], 2048), self.slice([4, 4], [0, 4], 3072)]
        self.memory[:64] = b"x" * 64
        for shape, start, gap in (([8, 4], [0, 0], "[4, 0]"), ([4, 9], [0, 0], "[0, 8]"), ([3, 3], [4, 2], "[4, 4]"),
                                  ([1, 1], [9, 9], "[9, 9]"), ([8, 8], [0, 0], "[4, 0]")):
            self.refused("OUT_OF_RANGE", {"destinations": [self.slice([2, 2], [0, 0], 512), self.slice(shape, start)],
                                          "sources": sources},
                         ["destinations[1]: no source has element " + gap])
        self.refused("OUT_OF_RANGE", {"destinations": [self.slice([], [])], "sources": []}, ["element []"])
        self.assertEqual(self.memory[:64], b"x" * 64)

    def test_arguments(self):
        good, other = self.slice([4], [0]), self.slice([4], [0], 64)
        split = self.slice([4], [0])
        split["tensor"]["split"] = [0, 2]
        without = self.slice([4], [0])
        del without["tensor"]["region"]
        for name, destination, words in (
                ("INVALID_ARGUMENT", self.slice([4], [0, 0]), ["destinations[0].start: 2 entries", "rank 1"]),
                ("INVALID_ARGUMENT", self.slice([4], [-1]), ["destinations[0].start: dimension 0 starts at -1"]),
                ("INVALID_ARGUMENT", self.slice([4], [2**63 - 2]), ["destinations[0].start", "overflows"]),
                ("INVALID_ARGUMENT", self.slice([-4], [0]), ["destinations[0].tensor.shape", "-4"]),
                ("INVALID_ARGUMENT", self.slice([4], [0], strides=[1, 1]), ["destinations[0].tensor.strides"]),
                ("INVALID_ARGUMENT", split, ["destinations[0].tensor.split"]),
                ("INVALID_ARGUMENT", without, ["destinations[0].tensor.region: missing"]),
                ("INVALID_ARGUMENT", {"tensor": tensor(self.region, [4])}, ["missing field destinations[0].start"]),
                ("INVALID_ARGUMENT", {**good, "stop": [4]}, ["stop", "destinations[0]"]),
                ("INVALID_ARGUMENT", 7, ["destinations[0]: expected a map"]),
                ("NOT_FOUND", self.slice([4], [0], region=99), ["destinations[0].tensor.region"]),
                ("OUT_OF_RANGE", self.slice([4], [0], (1 << 16) - 3), ["destinations[0].tensor"]),
                ("OVERLAP", self.slice([4], [0], strides=[0]), ["destinations[0].tensor.strides"])):
            with self.subTest(words=words):
                self.refused(name, {"destinations": [destination], "sources": [other]}, words)
        for name, source, words in (
                ("INVALID_ARGUMENT", self.slice([4, 1], [0, 0], 64), ["sources[0].tensor.shape: rank 2", "rank 1"]),
                ("INVALID_ARGUMENT", self.slice([4], [0], 64, dtype="int8"), ["sources[0].tensor.dtype: int8", "uint8"]),
                ("NOT_FOUND", self.slice([4], [0], region=99), ["sources[0].tensor.region"])):
            with self.subTest(words=words):
                self.refused(name, {"destinations": [good], "sources": [source]}, words)
        for shape, name, words in (([4, 4], "INVALID_ARGUMENT", ["shape: 2 entries"]),
                                   ([-1], "INVALID_ARGUMENT", ["shape: dimension 0 is -1"]),
                                   ([3], "OUT_OF_RANGE", ["destinations[0]: dimension 0 ends at element 4", "has 3"])):
            self.refused(name, {"destinations": [good], "sources": [other], "shape": shape}, words)
        self.refused("INVALID_ARGUMENT", {"destinations": [good]}, ["missing field sources"])
        read_only = Memory(64)
        self.addCleanup(read_only.close)
        region = read_only.register(self.rpc, writable=False)
        self.refused("PERMISSION", {"destinations": [self.slice([4], [0], region=region)], "sources": [other]},
                     ["destinations[0].tensor.region"])
        self.rpc.call("reshard", {"destinations": [good], "sources": [self.slice([4], [0], region=region)]})

    def test_overlap(self):
        source = self.slice([64], [0], 4096)
        self.refused("OVERLAP", {"destinations": [self.slice([64], [0]), self.slice([64], [0], 63)], "sources": [source]},
                     ["destinations[0]: it shares bytes with destinations[1]"])
        self.refused("OVERLAP", {"destinations": [self.slice([64], [0]), self.slice([8], [0], 4159)], "sources": [source]},
                     ["destinations[1]: it shares bytes with sources[0]"])
        # Also of one that nothing is taken from, and in another region of the same memory.
        again = self.memory.register(self.rpc)
        self.refused("OVERLAP", {"destinations": [self.slice([64], [0])],
                                 "sources": [source, self.slice([8], [100], 8, region=again)]},
                     ["destinations[0]: it shares bytes with sources[1]"])
        # Columns of one matrix lie between each other and share nothing; nor do sources that do.
        columns = [self.slice([16, 4], [0, 4 * i], 4 * i, strides=[64, 1]) for i in range(16)]
        rows = [self.slice([2, 64], [i, 0], 8192 + 64 * i) for i in range(15)]
        self.assertEqual(self.rpc.call("reshard", {"destinations": columns, "sources": rows})["bytes"], 2 * 1024)

    def test_nothing_to_do(self):
        source = self.slice([4, 4], [0, 0], 64)
        for destinations in ([], [self.slice([0, 4], [2, 0])], [self.slice([0, 4], [9, 9])]):
            for sources in ([], [source]):
                self.assertEqual(self.rpc.call("reshard", {"destinations": destinations, "sources": sources}),
                                 {"bytes": 0, "pieces": 0, "ns": 0})
        point = {"region": self.region, "offset": 256, "value": 1}
        self.rpc.call("reshard", {"destinations": [], "sources": [], "signal": point})
        self.assertEqual(self.memory[256], 1)

    def test_scalars(self):
        self.memory[:2] = b"ab"
        self.assertEqual(self.rpc.call("reshard", {"destinations": [self.slice([], [], 8)], "sources": [self.slice([], [])]}
                                       )["pieces"], 1)
        self.assertEqual(self.memory[8], ord("a"))

    def test_most_dimensions(self):
        ones = [1] * 30
        self.memory[:6] = b"abcdef"
        done = self.rpc.call("reshard", {"destinations": [self.slice([*ones, 2, 3], [0] * 32, 64)],
                                         "sources": [self.slice([*ones, 2, 1], [0] * 31 + [i], 2 * i) for i in range(3)]})
        self.assertEqual((done["pieces"], self.memory[64:70]), (3, b"acebdf"))


class Hostile(ReshardCase):
    args = ("--jobs-per-uid=300",)

    def setUp(self):
        super().setUp()
        self.memory, self.region = self.host(1 << 16)

    def slice(self, shape, start, offset, **fields):
        return {"tensor": {"region": self.region, "offset": offset, "dtype": "uint8", "shape": shape, **fields},
                "start": start}

    def test_pieces_are_charged(self):
        """Each counts as a transform of the user's."""
        columns = [self.slice([64, 1], [0, i], 64 * i) for i in range(64)]
        rows = [self.slice([1, 64], [i, 0], 4096 + 64 * i) for i in range(8)]
        self.refused("QUOTA", {"destinations": rows, "sources": columns}, ["jobs_per_uid"])
        self.assertEqual(self.rpc.call("stats")["jobs"], 0)
        self.assertEqual(self.rpc.call("reshard", {"destinations": rows[:4], "sources": columns})["pieces"], 256)
        self.assertEqual(self.rpc.call("stats")["jobs"], 0)

    def test_layouts(self):
        """A request has as many plans made as it needs."""
        at = [i * (i + 1) // 2 for i in range(18)]  # rows and columns of different extents
        columns = [self.slice([136, i + 1], [0, at[i]], 256 * i, strides=[0, 1]) for i in range(17)]
        rows = [self.slice([i + 1, 153], [at[i], 0], 8192 + 153 * at[i]) for i in range(16)]
        params = {"destinations": rows, "sources": columns}
        self.assertEqual(self.rpc.call("reshard", params)["pieces"], 272)

    def test_pieces(self):
        rows = [self.slice([1, 70], [i, 0], 70 * i) for i in range(66)]
        columns = [self.slice([70, 1], [0, i], 8192 + 70 * i) for i in range(70)]
        self.refused("QUOTA", {"destinations": rows, "sources": columns},
                     ["destinations[58]: the pieces up to here are more than the 4096 that a request has"])

    def test_a_fragmented_box(self):
        """Sources of single elements of a tensor of many dimensions leave more boxes than are kept at a time."""
        rank, rng = 15, random.Random(5)
        whole = self.slice([2] * rank, [0] * rank, 0)
        points = [self.slice([1] * rank, [rng.randrange(2) for _ in range(rank)], 40000 + i) for i in range(80)]
        self.refused("QUOTA", {"destinations": [whole], "sources": points},
                     ["destinations[0]: the sources divide it into more than 512 boxes at a time"])
        self.refused("OUT_OF_RANGE", {"destinations": [whole], "sources": points[:4]}, ["no source has element"])

    def test_intricate_strides(self):
        """What would hold up the service is refused, and the sentence says why."""
        rng = random.Random(7)
        hard = [self.slice([2] * 12, [0] * 12, i, strides=[rng.randrange(100, 4000) for _ in range(12)])
                for i in range(40)]
        source = self.slice([2] * 12, [0] * 12, 60000)
        begin = time.monotonic()
        with self.assertRaises(RpcError) as caught:
            self.rpc.call("reshard", {"destinations": hard, "sources": [source]})
        self.assertIn(caught.exception.name, ("OVERLAP", "QUOTA"))
        self.assertLess(time.monotonic() - begin, 20)

    def test_slices_between_each_other(self):
        """As many interleaved ones as a message has room for take steps to be told apart."""
        n = 90
        destinations = [self.slice([64], [0], i, strides=[n]) for i in range(n)]
        sources = [self.slice([64], [0], 8192 + i, strides=[n]) for i in range(n)]
        self.assertEqual(self.rpc.call("reshard", {"destinations": destinations, "sources": sources})["pieces"], n)

    def test_random_values(self):
        """Fields of any value, large ones above all: each is refused or done, and the service goes on."""
        seed = int(os.environ.get("TEST_SEED") or random.randrange(2**32))
        print(f"# TEST_SEED={seed}", flush=True)
        rng = random.Random(seed)
        values = (0, 1, 2, 3, 7, 64, 2**31, 2**32, 2**62, 2**63 - 1, -1, -2**63)

        def ints(rank):
            return [rng.choice(values[:6] if rng.random() < 0.8 else values) for _ in range(rank)]

        for _ in range(cases(3000)):
            rank = rng.randrange(4)
            sides = [[self.slice(ints(rank), ints(rank), rng.choice((0, 1, 4096, 1 << 15, 2**63)))
                      for _ in range(rng.randrange(5))] for _ in range(2)]
            params = {"destinations": sides[0], "sources": sides[1]}
            if rng.random() < 0.3:
                params["shape"] = ints(rank)
            try:
                self.rpc.call("reshard", params)
            except RpcError as e:
                self.assertIn(e.name, ("INVALID_ARGUMENT", "OUT_OF_RANGE", "OVERLAP", "QUOTA"), e.message)
                self.assertTrue(e.message)
        self.rpc.call("ping")


# ---- Order ----------------------------------------------------------------------------------------------------
class Order(ReshardCase):
    def test_points(self):
        """It waits as one, and signals when all of it is there; what follows on the connection sees it."""
        words, timeline = self.host(4096)
        memory, host = self.host(512, data=bytes(range(256)))
        targets = [self.create(i if self.devices else None, 64) for i in range(4)]
        point = {"region": timeline, "offset": 0, "value": 1}
        params = {"destinations": [{"tensor": tensor(region, [64]), "start": [64 * i]}
                                   for i, region in enumerate(targets)],
                  "sources": [{"tensor": tensor(host, [256]), "start": [0]}],
                  "wait": point, "signal": {**point, "offset": 8}}
        msgid = self.rpc.request("reshard", {**params, "reply": "queued"})
        self.assertEqual(self.rpc.reply(msgid), {"queued": True})
        back = [self.rpc.request("copy", {"dst": tensor(host, [64], offset=256 + 64 * i), "src": tensor(region, [64])})
                for i, region in enumerate(targets)]
        self.assertEqual(words[8], 0)
        words[:8] = (1).to_bytes(8, "little")
        kind, name, (done, error, result) = self.rpc.receive()
        self.assertEqual((kind, name, done, error), (2, "done", msgid, None))
        self.assertEqual((result["pieces"], result["bytes"], words[8]), (4, 512, 1))
        for msgid in back:
            self.rpc.reply(msgid)
        self.assertEqual(memory[256:512], bytes(range(256)))
        self.refused("TIMEOUT", {**params, "wait": {**point, "value": 9, "deadline_ms": 20},
                                 "signal": {**point, "offset": 16}})
        self.assertEqual(words[16], 0)
        self.rpc.request("reshard", {**params, "wait": point, "signal": {**point, "offset": 24}, "reply": "signal"})
        wait_until(lambda: words[24] == 1, "it has signalled")

    def test_memory_that_fails(self):
        """The whole fails, and the sentence names the region. On a GPU, memory of several moves is looked at when they have
        ended, behind the signal."""
        memory = Memory(1 << 16, seals=0)
        self.addCleanup(memory.close)
        region = memory.register(self.rpc)
        _, host = self.host(1 << 16)
        words, timeline = self.host(4096)
        os.ftruncate(memory.fd, 0)
        target = self.create(0 if self.devices else None, 1 << 16)
        self.refused("DEVICE", {
            "destinations": [{"tensor": tensor(target, [1 << 16]), "start": [0]}],
            "sources": [{"tensor": tensor(host, [1 << 15]), "start": [0]},
                        {"tensor": tensor(region, [1 << 16]), "start": [0]}],
            "signal": {"region": timeline, "offset": 0, "value": 1}}, [f"region {region}"])
        if ENGINE == "cpu":
            self.assertEqual(words[0], 0)


@unittest.skipUnless(DEVICES, "the stand-in driver has several devices")
class Lost(ReshardCase):
    devices = 4

    def setUp(self):
        self.lose = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "lose")
        self.env = {"SOFTGPU_LOSE": self.lose}
        super().setUp()

    def lose_device(self, device):
        with open(self.lose + ".new", "w", encoding="ascii") as file:
            file.write(f"{device} 719\n")
        os.rename(self.lose + ".new", self.lose)

    def test_one_of_several(self):
        """The request fails as one, and works again once the device is back."""
        memory, host = self.host(4096, data=os.urandom(1024))
        whole = memory[:1024]
        targets = [self.create(i, 256) for i in range(4)]
        params = {"destinations": [{"tensor": tensor(region, [256]), "start": [256 * i]}
                                   for i, region in enumerate(targets)],
                  "sources": [{"tensor": tensor(host, [1024]), "start": [0]}]}
        self.rpc.call("reshard", params)
        self.lose_device(2)
        with self.assertRaises(RpcError) as caught:
            while True:
                self.rpc.call("reshard", params)
        self.assertEqual(caught.exception.name, "DEVICE_LOST", caught.exception.message)

        def is_back():
            try:
                return self.rpc.call("reshard", params)["pieces"] == 4
            except RpcError as e:
                self.assertEqual(e.name, "DEVICE_LOST", e.message)
                return False
        wait_until(is_back, "the device is back")
        self.rpc.call("reshard", {"destinations": [{"tensor": tensor(host, [1024], offset=2048), "start": [0]}],
                                  "sources": params["destinations"]})
        self.assertEqual(memory[2048:3072], whole)

    def test_the_end_of_a_connection(self):
        """While requests wait; nothing of it stays (Tmad.stop looks)."""
        with self.tmad.rpc() as rpc:
            memory = Memory(4096)
            self.addCleanup(memory.close)
            region = memory.register(rpc)
            targets = []
            for i in range(4):
                targets.append(rpc.call("region_create", {"size": 256, "device": i})["region"])
            for _ in range(10):
                rpc.request("reshard", {"destinations": [{"tensor": tensor(target, [64]), "start": [0]}
                                                         for target in targets],
                                        "sources": [{"tensor": tensor(region, [64]), "start": [0]}],
                                        "wait": {"region": region, "offset": 1024, "value": 1}})
            wait_until(lambda: self.rpc.call("stats")["jobs"] == 40, "all are queued")
        wait_until(lambda: self.rpc.call("stats")["regions"] == 0, "all is unmapped")


if __name__ == "__main__":
    if ENGINE == "cpu" or GPU or os.path.exists(os.path.join(BUILD, "tests/softgpu/lib/libcuda.so.1")):
        tap.main()
    else:
        print("1..0 # SKIP this build has no cuda engine")

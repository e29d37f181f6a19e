# SPDX-License-Identifier: Apache-2.0
"""Tables: layers in many regions, against NumPy, and what they refuse. TEST_SEED repeats a random run."""
import ctypes
import os
import random
import sys
import tempfile
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from test_blocks import Case, DoesNotFit, FAMILIES
from raw import RawCase
from tmad import ENGINE, GPU, Memory, RpcError, Tmad, by_engine, share, tensor, wait_until

LAYERS = 80  # and as many for V
PUNCH = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
LIBC = ctypes.CDLL(None, use_errno=True)


def places(*entries):
    """Returns the entries of a table as requests have them: region and offset."""
    return np.array(entries, "<u8").tobytes()


def layout(shape, dtype="uint8", **fields):
    """A tensor whose region a table names."""
    return {"dtype": dtype, "shape": list(shape), **fields}


class TableCase(RawCase):
    def prepare(self, *entries):
        return self.rpc.call("table_prepare", {"places": places(*entries)})["table"]

    def layers(self, n, size, fill=None):
        """Registers so many regions of a layer each. Returns their memory and ids."""
        made = [self.region(size, data=fill(i) if fill else None) for i in range(n)]
        return [memory for memory, _ in made], [region for _, region in made]


# ---- Caches of keys and values ------------------------------------------------------------------------------
class Cache(TableCase):
    """160 regions as in inference engines: K and V of each of 80 layers are separate allocations."""

    BLOCKS, SHAPE = 64, (4, 2, 16)  # of a region; of a block: tokens, heads, bytes

    def setUp(self):
        super().setUp()
        self.block = int(np.prod(self.SHAPE))
        rng = np.random.default_rng(11)
        self.pad = [int(rng.integers(0, 9)) * 16 for _ in range(2 * LAYERS)]  # before block 0 of each region
        self.pool = rng.integers(0, 256, (2 * LAYERS, self.BLOCKS, *self.SHAPE), dtype=np.uint8)
        self.size = self.BLOCKS * self.block + 9 * 16
        self.src_regions = self.make_layers([bytes(self.pad[i]) + self.pool[i].tobytes() for i in range(2 * LAYERS)])
        self.dst, self.b = self.region(2 * LAYERS * self.BLOCKS * self.block)
        self.table = self.prepare(*zip(self.src_regions, self.pad))
        self.picks = rng.permutation(self.BLOCKS).astype("<i4")

    def make_layers(self, data):
        self.src, regions = self.layers(len(data), self.size, lambda i: data[i])
        return regions

    def write_layers(self, data):
        for memory, layer in zip(self.src, data):
            memory[:] = layer.ljust(self.size, b"\0")

    def read_layers(self):
        return [memory[:] for memory in self.src]

    def gather(self, **fields):
        params = {"dst": tensor(self.b, self.SHAPE), "src": layout(self.SHAPE), "src_table": self.table,
                  "dst_layer_step": self.BLOCKS * self.block, "index": self.picks.tobytes(), "limit": self.BLOCKS}
        return self.rpc.call("gather", {key: value for key, value in {**params, **fields}.items() if value is not None})

    def test_gather_and_scatter_back(self):
        done = self.gather()
        self.assertEqual(self.dst[:], self.pool.take(self.picks, 1).tobytes())
        self.assertEqual((done["moved"], done["bytes"]), (self.BLOCKS, 2 * self.pool.nbytes))
        self.write_layers([b""] * 2 * LAYERS)
        done = self.rpc.call("scatter", {"dst": layout(self.SHAPE), "src": tensor(self.b, self.SHAPE),
                                         "dst_table": self.table, "src_layer_step": self.BLOCKS * self.block,
                                         "index": self.picks.tobytes(), "limit": self.BLOCKS})
        self.assertEqual((done["moved"], done["bytes"]), (self.BLOCKS, 2 * self.pool.nbytes))
        for i, layer in enumerate(self.read_layers()):
            expected = bytes(self.pad[i]) + self.pool[i].tobytes()
            self.assertEqual(layer, expected.ljust(self.size, b"\0"), f"entry {i}")

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
        room = (self.size - max(self.pad)) // self.block
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


@unittest.skipUnless(ENGINE == "cuda", "the CPU engine has host memory alone")
class DeviceCache(Cache):
    """The same with 160 allocations of device memory."""

    def make_layers(self, data):
        self.staging, self.staged = self.region(self.size * len(data))
        self.regions = [self.rpc.call("region_create", {"size": self.size, "kind": "cuda_ipc"})["region"] for _ in data]
        self.write_layers(data)
        return self.regions

    def copy(self, way):
        for i, region in enumerate(self.regions):
            pair = (tensor(region, [self.size]), tensor(self.staged, [self.size], offset=i * self.size))
            self.rpc.call("copy", dict(zip(("dst", "src"), pair[::way])))

    def write_layers(self, data):
        self.staging[:] = b"".join(layer.ljust(self.size, b"\0") for layer in data)
        self.copy(1)

    def read_layers(self):
        self.staging[:] = bytes(self.staging.size)
        self.copy(-1)
        return [self.staging[i * self.size:(i + 1) * self.size] for i in range(len(self.regions))]

    def test_one_launch_within_the_device(self):
        if GPU:
            self.skipTest("for the stand-in driver")
        made = self.rpc.call("region_create", {"size": self.dst.size, "kind": "cuda_ipc"})["region"]
        self.assertEqual(self.count_launches(lambda: self.gather(dst=tensor(made, self.SHAPE))), 1)
        self.rpc.call("copy", {"dst": tensor(self.b, [self.dst.size]), "src": tensor(made, [self.dst.size])})
        self.assertEqual(self.dst[:], self.pool.take(self.picks, 1).tobytes())


def launches(path):
    with open(path, encoding="ascii") as trace:
        return sum(line.startswith("begin kernels ") for line in trace)


# ---- Random cases -----------------------------------------------------------------------------------------
SIZE, REGIONS = 1 << 12, 6  # of a side


class Places:
    """The blocks of a side: n in each layer, each layer somewhere in one of the regions."""

    def __init__(self, rng, name, block, n, layers):
        self.name, self.block, self.fields = name, block, {}
        self.step = block.span
        if rng.random() < 0.6:
            self.step += rng.choice((1, 3, 16, 64, -block.span % 16, block.span * layers))
            self.fields[f"{name}_step"] = self.step
        reach = (max(n, 1) - 1) * self.step + block.span
        self.added = rng.choice((0, 0, rng.randrange(64)))  # to each entry
        if self.step >= layers * block.span and rng.random() < 0.3:  # all layers of a block, then the next
            starts = self._together(rng, layers, reach)
        else:
            starts = self._apart(rng, layers, reach)
        self.entries = [(region, start - block.low - self.added) for region, start in starts]
        self.is_sent = rng.random() < 0.5  # with the request

    def _start(self, rng, reach):
        least = max(self.block.low + self.added, 0)
        if least + max(reach, 1) > SIZE:
            raise DoesNotFit
        return rng.randrange(least, SIZE - max(reach, 1) + 1)

    def _together(self, rng, layers, reach):
        region, span = rng.randrange(REGIONS), self.block.span
        start = self._start(rng, reach + (layers - 1) * span)
        return rng.sample([(region, start + i * span) for i in range(layers)], layers)

    def _apart(self, rng, layers, reach):
        used = []
        while len(used) < layers:
            region, start = rng.randrange(REGIONS), self._start(rng, reach)
            if self.name == "dst" and any(r == region and abs(s - start) < reach for r, s in used):
                if rng.random() < 0.1:
                    raise DoesNotFit
                continue
            used.append((region, start))
        return used

    def view(self, memories, layer, i):
        region, offset = self.entries[layer]
        return self.block.view(memories[region], offset + self.added + i * self.step)

    def room(self):
        """Returns how many blocks lie in the region of every entry."""
        return min((SIZE - offset - self.added - self.block.high) // self.step + 1 for _, offset in self.entries)


class RandomCase(Case):
    """A list of blocks with a table on one side or on both."""

    MOST, LAYERS, SIDE = 12, (1, 2, 3, 8), Places

    def __init__(self, rng):
        super().__init__(rng)
        if self.in_region:
            raise DoesNotFit  # test_blocks.py has those

    def _needs_layers(self):
        return False  # a table says how many


class Random(TableCase):
    def setUp(self):
        super().setUp()
        self.src, self.src_regions = self.layers(REGIONS, SIZE)
        self.dst, self.dst_regions = self.layers(REGIONS, SIZE)

    def side(self, side, regions, params, tables):
        params[side.name] = layout(side.block.shape, side.block.dtype, strides=side.block.strides)
        if side.added:
            params[side.name]["offset"] = side.added
        entries = [(regions[region], offset) for region, offset in side.entries]
        if side.is_sent:
            params[f"{side.name}_places"] = places(*entries)
        else:
            tables.append(self.prepare(*entries))
            params[f"{side.name}_table"] = tables[-1]

    def test_numpy(self):
        seed = int(os.environ.get("TEST_SEED") or random.randrange(1 << 32))
        cases = int(os.environ.get("TEST_CASES") or share(by_engine(cpu=20000, cuda=3000)))
        print(f"# TEST_SEED={seed} TEST_CASES={cases}", flush=True)
        rng, bytes_rng = random.Random(seed), np.random.default_rng(seed)
        source, poison = bytes_rng.integers(0, 256, (2, REGIONS, SIZE), dtype=np.uint8)
        for memory, data in zip(self.src, source):
            memory[:] = data.tobytes()
        done = fitted = 0
        while fitted < cases:
            try:
                case = RandomCase(rng)
            except DoesNotFit:
                continue
            fitted += 1
            done += self.check(case, source, poison, f"TEST_SEED={seed}, case {fitted}")
        self.assertGreater(done, cases)
        for memory, data in zip(self.src, source):
            self.assertEqual(memory[:], data.tobytes())

    def check(self, case, source, poison, what):
        expected, tables, params = poison.copy(), [], {**case.params, "index": case.index}
        for memory, data in zip(self.dst, poison):
            memory[:] = data.tobytes()
        case.run(expected, source)
        self.side(case.dst, self.dst_regions, params, tables)
        self.side(case.src, self.src_regions, params, tables)
        result = self.rpc.call(case.method, params)
        for i, memory in enumerate(self.dst):
            wrong = np.flatnonzero(np.frombuffer(memory[:], np.uint8) != expected[i])
            self.assertEqual(wrong.size, 0, f"{what}: {params}: region {i}: bytes {wrong[:4].tolist()} of {wrong.size}")
        self.assertIn(result["path"], FAMILIES)
        self.assertEqual((result["moved"], result["passed"], result["beyond"]), case.counts, what)
        self.assertEqual(result["bytes"], case.bytes(), what)
        for table in tables:
            self.rpc.call("table_release", {"table": table})
        return case.moved


# ---- Plans ------------------------------------------------------------------------------------------------
class Plans(TableCase):
    """Runs of a plan over tables."""

    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(5)
        self.arrays = rng.integers(0, 1 << 16, (24, 6, 10), dtype=np.uint16)
        self.src, self.a = self.layers(24, 256, lambda i: bytes(8) + self.arrays[i].tobytes())
        self.dst, self.b = self.layers(24, 256, lambda i: b"\x5a" * 256)
        self.plan = self.rpc.call("plan_prepare", {"dst": layout([10, 6], "uint16"), "src": layout([6, 10], "uint16"),
                                                   "perm": [1, 0]})["plan"]
        self.of = self.prepare(*[(region, 8) for region in self.a])
        self.to = self.prepare(*[(region, 2 * (i % 5)) for i, region in enumerate(self.b)])

    def expected(self, arrays):
        return [(b"\x5a" * (2 * (i % 5)) + array.T.tobytes()).ljust(256, b"\x5a") for i, array in enumerate(arrays)]

    def run_plan(self, **fields):
        return self.rpc.call("plan_run", {"plan": self.plan, "dst_table": self.to, **fields})

    def test_from_table_to_table(self):
        for _ in range(3):
            done = self.run_plan(src_table=self.of)
            self.assertEqual([memory[:] for memory in self.dst], self.expected(self.arrays))
            self.assertEqual(set(done), {"path", "bytes", "ns"})
            self.assertEqual(done["bytes"], 2 * self.arrays.nbytes)
            self.assertIn(done["path"], FAMILIES)
            self.rpc.call("plan_run", {"plan": self.plan, "dst": [self.b[0], 0], "src": [self.a[1], 8]})
            self.assertEqual(self.dst[0][:120], self.arrays[1].T.tobytes(), "as before, between two places")

    def test_one_source_for_all(self):
        self.run_plan(src=[self.a[3], 8])
        self.assertEqual([memory[:] for memory in self.dst], self.expected([self.arrays[3]] * 24))

    def test_order(self):
        words, timeline = self.region(64)
        msgid = self.rpc.request("plan_run", {
            "plan": self.plan, "dst_table": self.to, "src_table": self.of, "reply": "queued",
            "wait": {"region": timeline, "offset": 0, "value": 1},
            "signal": {"region": timeline, "offset": 8, "value": 7}})
        self.assertEqual(self.rpc.reply(msgid), {"queued": True})
        for method, fields in (("plan_release", {"plan": self.plan}), ("table_release", {"table": self.of}),
                               ("table_release", {"table": self.to})):
            self.assertIs(self.rpc.call(method, fields), True)
        self.assertEqual(self.dst[0][:], b"\x5a" * 256)
        words[0] = 1
        self.assertEqual(self.rpc.receive()[1], "done")
        self.assertEqual([memory[:] for memory in self.dst], self.expected(self.arrays))
        self.assertEqual(int.from_bytes(words[8:16], "little"), 7)

    def test_items(self):
        """Runs over tables beside other items; each has one status, and bytes are counted of all."""
        extra, extra_region = self.region(256)
        late = self.prepare(*[(region, 8 if i != 17 else 137) for i, region in enumerate(self.a)])
        few = self.prepare((self.a[0], 8))
        items = [{"plan": self.plan, "dst": [extra_region, 0], "src": [self.a[2], 8]},
                 {"plan": self.plan, "dst_table": self.to, "src_table": self.of},
                 {"plan": self.plan, "dst_table": self.to, "src_table": late},
                 {"plan": self.plan, "dst_table": self.to, "src_table": few},
                 {"plan": self.plan, "dst_table": self.to},
                 {"plan": self.plan, "src": [self.a[2], 8]},
                 {"dst": tensor(extra_region, [100], offset=156), "src": tensor(self.a[5], [100], offset=8)}]
        done = self.rpc.call("submit", {"items": items})
        self.assertEqual(done["statuses"], [0, 0, -2, -1, -1, -1, 0])
        self.assertEqual([error["item"] for error in done["errors"]], [2, 3, 4, 5])
        self.assertIn("src_table: entry 17", done["errors"][0]["message"])
        self.assertIn("src_table: 1 entries", done["errors"][1]["message"])
        self.assertEqual(done["bytes"], 25 * 240 + 200)
        self.assertEqual([memory[:] for memory in self.dst], self.expected(self.arrays))
        self.assertEqual(extra[:120], self.arrays[2].T.tobytes())
        self.assertEqual(extra[156:], self.arrays[5].tobytes()[:100])

    def test_pads_of_items(self):
        """The value has the same bytes wherever an entry lies, also between the multiples of an element."""
        offsets = (0, 1, 2, 3, 6, 9)
        for shape, pads, perm, dtype, value in (
                ((5, 7), ((1, 2), (3, 1)), (0, 1), "<f4", 1.5), ((6, 9), ((2, 2), (1, 1)), (1, 0), "<f4", 1.5),
                ((3, 40), ((0, 1), (2, 3)), (0, 1), "<i2", 0x1234), ((4, 200), ((1, 1), (9, 2)), (0, 1), "<f8", -3.25),
                ((0, 20), ((7, 0), (0, 1)), (0, 1), "<f4", 1.5), ((300, 900), ((3, 3), (5, 2)), (0, 1), "<f4", 1.5),
                ((40, 40), ((1, 3), (2, 2)), (1, 0), "<c16", [1.5, 2])):
            array = np.random.default_rng(3).integers(0, 99, shape).astype(dtype)
            number = complex(*value) if isinstance(value, list) else value
            expected = np.pad(array.transpose(perm), pads, constant_values=number)
            size = expected.nbytes + max(offsets)
            memories, regions = self.layers(len(offsets), size, lambda i, size=size: b"\x5a" * size)
            _, region = self.region(max(array.nbytes, 16), data=array.tobytes().ljust(16))
            params = {"dst": layout(expected.shape, np.dtype(dtype).name),
                      "src": layout(shape, np.dtype(dtype).name), "perm": list(perm),
                      "before": [before for before, _ in pads], "after": [after for _, after in pads], "value": value}
            plan = self.rpc.call("plan_prepare", params)["plan"]
            item = {"plan": plan, "dst_table": self.prepare(*zip(regions, offsets)), "src": [region, 0]}
            for method, run in (("submit", {"items": [item]}), ("plan_run", item)):
                with self.subTest(shape=shape, dtype=dtype, method=method):
                    self.assertEqual(self.rpc.call(method, run).get("statuses", [0]), [0])
                    for offset, memory in zip(offsets, memories):
                        wanted = (b"\x5a" * offset + expected.tobytes()).ljust(size, b"\x5a")
                        self.assertTrue(memory[:] == wanted, f"the entry at byte {offset}")
                for memory in memories:
                    memory[:] = b"\x5a" * size

    def test_many_items(self):
        """More moves than a batch has items; then the batch that is kept is used again."""
        for _ in range(2):
            for memory in self.dst:
                memory[:] = b"\x5a" * 256
            item = {"plan": self.plan, "dst_table": self.to, "src": [self.a[3], 8]}
            halves = [self.prepare(*[(self.b[i], 2 * (i % 5))]) for i in range(24)]
            items = [{**item, "dst_table": table} for table in halves] + [{**item, "src": [99, 0]}]
            done = self.rpc.call("submit", {"items": items})
            self.assertEqual(done["statuses"], [0] * 24 + [-4])
            self.assertEqual([memory[:] for memory in self.dst], self.expected([self.arrays[3]] * 24))
            done = self.rpc.call("submit", {"items": [{"plan": self.plan, "dst_table": self.to, "src_table": self.of}]})
            self.assertEqual(done["statuses"], [0])
            self.assertEqual([memory[:] for memory in self.dst], self.expected(self.arrays))
            for table in halves:
                self.rpc.call("table_release", {"table": table})

    def test_items_are_charged(self):
        """By their entries: what does not fit is refused by itself."""
        with Tmad("--jobs-per-uid", "100") as tmad, tmad.rpc() as rpc:
            src, dst = self.src[0].register(rpc), self.dst[0].register(rpc)
            plan = rpc.call("plan_prepare", {"dst": layout([1]), "src": layout([1])})["plan"]
            table = rpc.call("table_prepare", {"places": places(*[(dst, i) for i in range(60)])})["table"]
            item = {"plan": plan, "dst_table": table, "src": [src, 8]}
            done = rpc.call("submit", {"items": [item, item, {"plan": plan, "dst": [dst, 70], "src": [src, 8]}]})
            self.assertEqual(done["statuses"], [0, -8, 0])
            self.assertIn("jobs_per_uid", done["errors"][0]["message"])
            self.assertEqual(rpc.call("submit", {"items": [item]})["statuses"], [0], "all of it was given back")

    def test_items_that_do_not_fit_are_not_gone_through(self):
        """What is refused for its charge takes none of the message's steps, and leaves room for what is behind it."""
        with Tmad("--jobs-per-uid", "120") as tmad, tmad.rpc() as rpc, Memory(4096) as memory:
            src, dst = self.src[0].register(rpc), memory.register(rpc)
            plan = rpc.call("plan_prepare", {"dst": layout([1]), "src": layout([1])})["plan"]
            table = rpc.call("table_prepare", {"places": places(*[(dst, i) for i in range(1024)])})["table"]
            items = [{"plan": plan, "dst_table": table, "src": [src, 8]}] * 110
            done = rpc.call("submit", {"items": items + [{"plan": plan, "dst": [dst, 70], "src": [src, 8]}]})
            self.assertEqual(done["statuses"], [-8] * 110 + [0])
            for error in done["errors"]:
                self.assertIn("jobs_per_uid", error["message"])

    def test_items_that_are_refused_keep_no_charge(self):
        """Neither as transforms nor as such that wait, whether it is the charge that is refused or the item."""
        with Tmad("--jobs-per-uid", "200", "--behind-waits-per-uid", "100") as tmad, tmad.rpc() as rpc, \
                tmad.rpc() as other, Memory(64) as words:
            src, dst, word = (memory.register(rpc) for memory in (self.src[0], self.dst[0], words))
            plan, wide = (rpc.call("plan_prepare", {"dst": layout([n]), "src": layout([n])})["plan"] for n in (1, 2))
            fits, ends = (rpc.call("table_prepare", {"places": places(*[(dst, at + i) for i in range(60)])})["table"]
                          for at in (0, 196))
            item = {"plan": plan, "dst_table": fits, "src": [src, 200]}
            items = [{**item, "plan": wide, "dst_table": ends}, item, item,
                     {"plan": plan, "dst": [dst, 99], "src": [src, 8]}]
            msgid = rpc.request("submit", {"items": items, "wait": {"region": word, "offset": 0, "value": 1}})
            charged = wait_until(lambda: other.call("stats")["jobs"], "it waits")
            words[0] = 1
            done = rpc.reply(msgid)
            self.assertEqual(done["statuses"], [-2, 0, -8, 0])
            self.assertIn("behind_waits_per_uid", done["errors"][1]["message"])
            self.assertEqual(charged, 4 + 59)

    def test_nothing_to_move(self):
        plan = self.rpc.call("plan_prepare", {"dst": layout([0, 6]), "src": layout([0, 6])})["plan"]
        self.assertEqual(self.run_plan(plan=plan, src_table=self.of)["bytes"], 0)

    def test_a_scale_that_does_not_fit(self):
        """The plan is still there after any number of refused runs."""
        plan = self.rpc.call("plan_prepare", {"dst": layout([10, 6], "float32"), "src": layout([6, 10], "uint16"),
                                              "perm": [1, 0], "cast": "saturate",
                                              "scale": {"dtype": "float32", "shape": [1, 6]}})["plan"]
        wide = self.prepare(*[(region, 0) for region in self.b])
        for _ in range(5):
            self.refused("OUT_OF_RANGE", "plan_run", {"plan": plan, "dst_table": wide, "src_table": self.of,
                                                      "scale": [self.a[0], 252]}, ["scale"])
        self.rpc.call("plan_run", {"plan": plan, "dst_table": wide, "src_table": self.of, "scale": [self.a[0], 0]})

    def test_refused(self):
        few = self.prepare((self.a[0], 8))
        late = self.prepare(*[(region, 8 if i != 17 else 137) for i, region in enumerate(self.a)])
        near = self.prepare(*([(region, 0) for region in self.b[:22]] + [(self.b[22], 100), (self.b[22], 0)]))
        rows = (
            ("INVALID_ARGUMENT", ["dst_table: missing", f"src_table is {few}"], {"dst_table": None, "src_table": few}),
            ("INVALID_ARGUMENT", ["dst: dst_table is given too"], {"dst": [self.b[0], 0], "src_table": self.of}),
            ("INVALID_ARGUMENT", ["src: src_table is given too"], {"src": [self.a[0], 0], "src_table": self.of}),
            ("INVALID_ARGUMENT", ["src: missing, as is src_table"], {}),
            ("INVALID_ARGUMENT", ["src: missing, as is src_table"], {"dst_table": None, "dst": [self.b[0], 0]}),
            ("INVALID_ARGUMENT", ["dst: missing, as is dst_table"], {"dst_table": None, "src": [self.b[0], 0]}),
            ("INVALID_ARGUMENT", ["src_table: 1 entries, but dst_table has 24"], {"src_table": few}),
            ("NOT_FOUND", ["dst_table", "no table 99"], {"dst_table": 99, "src_table": self.of}),
            ("NOT_FOUND", ["src_table", "no table 99"], {"src_table": 99}),
            ("NOT_FOUND", ["src", "no region 99"], {"src": [99, 0]}),
            ("NOT_FOUND", ["no plan 99"], {"plan": 99, "src_table": self.of}),
            ("OUT_OF_RANGE", ["src_table: entry 17: the last byte of 1 blocks is byte 256",
                              f"region {self.a[17]} has 256"], {"src_table": late}),
            ("OVERLAP", ["dst_table: entries 23 and 22 are 100 bytes apart"], {"dst_table": near, "src_table": self.of}),
            # Which entry is named depends on where the regions are mapped.
            ("OVERLAP", ["dst_table: the blocks of entry ", " of src_table overlap in one memory"],
             {"src_table": self.to}),
        )
        for name, words, fields in rows:
            with self.subTest(words=words):
                params = {"plan": self.plan, "dst_table": self.to, **fields}
                self.refused(name, "plan_run", {key: value for key, value in params.items() if value is not None}, words)
        self.assertEqual([memory[:] for memory in self.dst], [b"\x5a" * 256] * 24)


# ---- By hand ----------------------------------------------------------------------------------------------
class Bad(TableCase):
    """Checks that a request is refused and touches nothing."""

    def setUp(self):
        super().setUp()
        self.data = os.urandom(4096)
        self.src, self.a = self.layers(3, 4096, lambda i: self.data)
        self.dst, self.b = self.layers(3, 4096, lambda i: b"\x5a" * 4096)

    def tearDown(self):
        for src, dst in zip(self.src, self.dst):
            self.assertEqual((src[:], dst[:]), (self.data, b"\x5a" * 4096), "memory is as it was")
        super().tearDown()

    def test_tables(self):
        a = self.a
        rows = (
            ("INVALID_ARGUMENT", ["places: no entries"], b""),
            ("INVALID_ARGUMENT", ["places: 17 bytes", "16 bytes of an entry (region, offset)"], bytes(17)),
            ("INVALID_ARGUMENT", ["places: 1025 entries, at most 1024"], places((a[0], 0)) * 1025),
            ("NOT_FOUND", ["places: entry 1: this connection has no region 77777"], places((a[0], 0), (77777, 0))),
            ("OUT_OF_RANGE", [f"places: entry 2: byte 4096, but region {a[2]} has 4096 bytes"],
             places((a[0], 0), (a[1], 4095), (a[2], 4096))),
            ("OUT_OF_RANGE", ["places: entry 0: byte 18446744073709551615"], places((a[0], 2**64 - 1))),
        )
        for name, words, entries in rows:
            with self.subTest(words=words):
                self.refused(name, "table_prepare", {"places": entries}, words)
        self.refused("INVALID_ARGUMENT", "table_prepare", {"places": "text"}, ["places"])
        self.refused("INVALID_ARGUMENT", "table_prepare", {}, ["places"])
        self.refused("NOT_FOUND", "table_release", {"table": 5}, ["table: this connection has no table 5"])
        most = self.prepare(*[(a[0], i) for i in range(1024)])
        self.rpc.call("table_release", {"table": most})
        self.refused("NOT_FOUND", "table_release", {"table": most}, ["no table"])

    def bad(self, name, words, method="gather", **fields):
        """Returns 3 layers of 4 blocks of 1 KiB with some fields changed; None removes a field."""
        params = {"dst": layout([1024]), "src": layout([1024]), "dst_table": self.to, "src_table": self.of,
                  "index": np.arange(4, dtype="<i4").tobytes(), **fields}
        with self.subTest(method=method, fields=fields):
            return self.refused(name, method, {key: value for key, value in params.items() if value is not None}, words)

    def test_requests(self):
        a, b = self.a, self.b
        self.to = self.prepare(*[(region, 0) for region in b])
        self.of = self.prepare(*[(region, 0) for region in a])
        two = self.prepare((a[0], 0), (a[1], 0))
        late = self.prepare((a[0], 0), (a[1], 1), (a[2], 0))
        twice = self.prepare((b[0], 0), (b[1], 0), (b[0], 512))
        uneven = self.prepare((b[0], 0), (b[0], 512), (b[0], 1025))
        both = self.prepare((a[0], 0), (b[1], 0), (a[2], 0))
        rows = (
            ("NOT_FOUND", ["dst_table: this connection has no table 77"], {"dst_table": 77}),
            ("INVALID_ARGUMENT", ["src_places: src_table is given too"], {"src_places": places((a[0], 0))}),
            ("INVALID_ARGUMENT", ["src_table: src_layer_step is given too"], {"src_layer_step": 0}),
            ("INVALID_ARGUMENT", ["dst_table: dst_layers is given too"], {"dst_layers": bytes(24)}),
            ("INVALID_ARGUMENT", [f"src.region: {a[0]}, but src_table names regions"], {"src": tensor(a[0], [1024])}),
            ("INVALID_ARGUMENT", ["src_table: 2 entries, but there are 3 layers"], {"src_table": two}),
            ("INVALID_ARGUMENT", ["dst_table: 3 entries, but there are 2 layers"], {"layers": 2}),
            ("INVALID_ARGUMENT", ["src_layer_step: missing", "layers is 3"], {"src_table": None,
                                                                              "src": tensor(a[0], [1024])}),
            ("INVALID_ARGUMENT", ["src.region: missing"], {"src_table": None, "src_layer_step": 0}),
            ("INVALID_ARGUMENT", ["src_places: 9 bytes"], {"src_table": None, "src_places": bytes(9)}),
            ("NOT_FOUND", ["src_places: entry 2", "77777"],
             {"src_table": None, "src_places": places((a[0], 0), (a[1], 0), (77777, 0))}),
            ("OUT_OF_RANGE", ["src_table: entry 1: the last byte of 4 blocks is byte 4096", f"region {a[1]} has 4096"],
             {"src_table": late, "limit": 4}),
            ("OUT_OF_RANGE", ["dst_table: entry 0: the last byte of 4 blocks is byte 4103"],
             {"dst": layout([1024], offset=8)}),
            ("OUT_OF_RANGE", ["dst_table: entry 0: its first byte would be 1023 bytes before"],
             {"dst": layout([1024], strides=[-1])}),
            ("OUT_OF_RANGE", ["dst_table: entry 0", "overflows 64 bits"], {"dst_step": 2**63}),
            ("OUT_OF_RANGE", ["index[3]: 3, but src has 3 blocks (limit)"], {"src_table": late}),
            ("OVERLAP", ["dst_table: entries 0 and 2 are 512 bytes apart"], {"dst_table": twice,
                                                                             "index": bytes(4)}),
            ("OVERLAP", ["dst_table: entries 0 and 1 are 512 bytes apart", "at least 1024 apart"],
             {"dst_table": uneven, "index": bytes(8), "dst": layout([512]), "src": layout([512])}),
            ("OVERLAP", ["dst_table: the blocks of entry 1 and those of entry 1 of src_table"], {"src_table": both}),
            ("OVERLAP", ["dst_table: the blocks of entry 1 and src overlap"],
             {"src_table": None, "src": tensor(b[1], [1024]), "src_layer_step": 0}),
            ("OVERLAP", ["src_table: the blocks of entry 2 and dst overlap"],
             {"dst_table": None, "dst": tensor(a[2], [1]), "src": layout([1]), "dst_layer_step": 4}),
            ("OVERLAP", ["dst_table: the blocks of entry 2 and the entries at index_at"],
             {"index": None, "index_at": [b[2], 4092], "count": 1, "dst_step": 4096, "dst": layout([1024], offset=3072),
              "limit": 4}),
        )
        for name, words, fields in rows:
            self.bad(name, words, **fields)

    def test_what_may_not_be_written(self):
        read_only = self.dst[1].register(self.rpc, writable=False)
        self.to = self.prepare((self.b[0], 0), (read_only, 0), (self.b[2], 0))
        self.of = self.prepare(*[(region, 0) for region in self.a])
        for method in ("gather", "scatter"):
            self.bad("PERMISSION", [f"dst_table: entry 1: region {read_only} is read-only"], method)

    def test_of_another_connection(self):
        with self.tmad.rpc() as other:
            region = self.src[0].register(other)
            for _ in range(3):  # ids are a connection's own: this one has no third
                table = other.call("table_prepare", {"places": places((region, 0), (region, 0), (region, 0))})["table"]
            self.to, self.of = self.prepare(*[(region, 0) for region in self.b]), table
            self.bad("NOT_FOUND", [f"src_table: this connection has no table {table}"])

    def test_host_and_device_memory(self):
        """Where a device has memory of its own, a table is of one sort."""
        if ENGINE != "cuda":
            self.skipTest("the CPU engine has host memory alone")
        made = self.rpc.call("region_create", {"size": 4096, "kind": "cuda_ipc"})["region"]
        error = self.refused("INVALID_ARGUMENT", "table_prepare", {"places": places((made, 0), (self.a[0], 0))})
        self.assertEqual(error.message, f"places: entry 1: region {self.a[0]} is host memory, but entry 0, region "
                                        f"{made}, is device memory; a table is of one of the two")


class Life(TableCase):
    """How long a table and its regions live."""

    def setUp(self):
        super().setUp()
        self.data = [os.urandom(1024) for _ in range(3)]
        self.src, self.a = self.layers(3, 1024, lambda i: self.data[i])
        self.dst, self.b = self.region(3 * 1024)

    def gather(self, table, **fields):
        return {"dst": tensor(self.b, [1024]), "src": layout([1024]), "src_table": table, "dst_layer_step": 1024,
                "index": bytes(4), **fields}

    def test_regions_drain_until_it_is_released(self):
        first, second = (self.prepare(*[(region, 0) for region in self.a]) for _ in range(2))
        for region in self.a:
            self.assertEqual(self.rpc.call("region_release", {"region": region}), {"state": "draining"})
        self.assertEqual([entry["state"] for entry in self.rpc.call("region_list") if entry["region"] in self.a],
                         ["draining"] * 3)
        self.rpc.call("gather", self.gather(first))
        self.assertEqual(self.dst[:], b"".join(self.data))
        self.refused("NOT_FOUND", "table_prepare", {"places": places((self.a[1], 0))},
                     [f"places: entry 0: region {self.a[1]} has been released"])
        self.assertIs(self.rpc.call("table_release", {"table": first}), True)
        self.assertEqual(len(self.rpc.call("region_list")), 4)
        self.assertIs(self.rpc.call("table_release", {"table": second}), True)
        wait_until(lambda: len(self.rpc.call("region_list")) == 1, "the regions go with the last table")
        wait_until(lambda: self.rpc.call("stats")["regions"] == 1, "and are unmapped")

    def test_released_while_a_request_waits(self):
        words, timeline = self.region(64)
        table = self.prepare(*[(region, 0) for region in self.a])
        msgid = self.rpc.request("gather", self.gather(table, wait={"region": timeline, "offset": 0, "value": 1}))
        released = self.rpc.request("table_release", {"table": table})
        self.assertIs(self.rpc.reply(released), True)
        for region in self.a:
            self.assertEqual(self.rpc.call("region_release", {"region": region}), {"state": "draining"})
        self.refused("NOT_FOUND", "gather", self.gather(table), ["no table"])
        words[0] = 1
        self.assertEqual(self.rpc.reply(msgid)["moved"], 1)
        self.assertEqual(self.dst[:], b"".join(self.data))
        wait_until(lambda: len(self.rpc.call("region_list")) == 2, "the regions go with the request")

    def test_client_is_killed(self):
        """With tables, with draining regions, and with requests that wait: tearDown sees that nothing stays."""
        for _ in range(share(100)):
            rpc = self.tmad.rpc()
            regions = [memory.register(rpc) for memory in self.src]
            timeline, dst = self.dst.register(rpc), self.dst.register(rpc)
            tables = [rpc.call("table_prepare", {"places": places(*[(region, 0) for region in regions])})["table"]
                      for _ in range(3)]
            rpc.request("gather", {**self.gather(tables[0]), "dst": tensor(dst, [1024]),
                                   "wait": {"region": timeline, "offset": 0, "value": 2**62}})
            rpc.call("table_release", {"table": tables[0]})
            rpc.call("region_release", {"region": regions[1]})
            rpc.close()
        with self.tmad.rpc() as rpc:
            wait_until(lambda: rpc.call("stats")["regions"] == 4, "only this test's regions are left")


    def test_a_layer_whose_memory_fails(self):
        """A hole punched later, in one layer of many: that request ends, and no other."""
        if "no userfaultfd" in self.tmad.log() or ENGINE != "cpu":
            self.skipTest("holes that are punched later are not noticed here")
        for blocks, size in ((1, 64), (300, 128), (2, 65536)):  # by the loop, by threads, and in partitions
            room = max(4096, blocks * size)  # a hole is of pages
            made = [self.region(room, data=bytes([i]) * room) for i in range(1, 21)]
            dst, region = self.region(20 * blocks * size)
            table = self.prepare(*[(a, 0) for _, a in made])
            params = {"dst": tensor(region, [size]), "src": layout([size]), "src_table": table, "limit": blocks,
                      "dst_layer_step": blocks * size, "index": np.arange(blocks, dtype="<i4").tobytes()}
            for i in (0, 13, 19):
                with self.subTest(blocks=blocks, size=size, layer=i):
                    memory = made[i][0]
                    punched = LIBC.fallocate(memory.fd, PUNCH, ctypes.c_long(0), ctypes.c_long(memory.size))
                    self.assertEqual(punched, 0)
                    self.refused("DEVICE", "gather", params)
                    memory[:] = bytes([i + 1]) * memory.size
                    self.rpc.call("gather", params)
                    self.assertEqual(dst[:], b"".join(memory[:blocks * size] for memory, _ in made))

    def test_they_are_charged(self):
        with Tmad("--table-bytes-per-uid", "20000") as tmad, tmad.rpc() as rpc:
            region = self.dst.register(rpc)
            entries = {"places": places((region, 0)) * 100}
            first = rpc.call("table_prepare", entries)["table"]
            rpc.call("table_prepare", entries)
            with self.assertRaises(RpcError) as refused:
                rpc.call("table_prepare", entries)
            self.assertEqual(refused.exception.name, "QUOTA")
            for word in ("table_bytes_per_uid", "20000", "bytes of tables"):
                self.assertIn(word, refused.exception.message)
            rpc.call("table_release", {"table": first})
            rpc.call("table_prepare", entries)
            rpc.call("gather", {"dst": tensor(region, [1], offset=500), "src": layout([1]), "src_places": entries["places"],
                                "dst_layer_step": 1, "limit": 1, "index": bytes(4)})  # charged as a list

    def test_charges_of_lists_are_given_back(self):
        """Of requests that are refused when some of their lists have been charged, or all, and of one that is done."""
        with Tmad("--list-bytes-per-uid", "20000") as tmad, tmad.rpc() as rpc:
            src, dst = self.src[0].register(rpc), self.dst.register(rpc)
            sent = [places(*[(region, i) for i in range(100)]) for region in (src, dst)]
            good = {"dst": layout([1]), "src": layout([1]), "src_places": sent[0], "dst_places": sent[1], "limit": 1,
                    "index": bytes(4)}
            rows = (("QUOTA", {"index": bytes(4000)}), ("QUOTA", {"dst_places": sent[1] * 2}),
                    ("NOT_FOUND", {"dst_places": sent[1][:-16] + places((99, 0))}),
                    ("INVALID_ARGUMENT", {"layers": 99}), ("OUT_OF_RANGE", {"index": b"\1\0\0\0"}))
            for _ in range(3):
                for name, fields in rows:
                    with self.subTest(name=name), self.assertRaises(RpcError) as refused:
                        rpc.call("gather", {**good, **fields})
                    self.assertEqual(refused.exception.name, name, refused.exception.message)
                rpc.call("gather", good)



if __name__ == "__main__":
    tap.main()

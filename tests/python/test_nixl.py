# SPDX-License-Identifier: Apache-2.0
"""Transfers between hosts over a stand-in for NIXL, which loses peers and delivers late and out of order."""
import concurrent.futures
import json
import os
import random
import subprocess
import sys
import threading
import time

import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
from tmad import share

FAKE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fake_nixl")
TYPES = ("uint8", "float16", "int32", "float64")


@pytest.fixture(scope="module", autouse=True)
def stand_in():
    """In place of NIXL, installed or not."""
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "nixl"}
    sys.path.insert(0, FAKE)
    import tmaclient.nixl  # noqa: F401

    yield
    sys.path.remove(FAKE)
    for name in [n for n in sys.modules if n.split(".")[0] == "nixl" or n.startswith("tmaclient.nixl")]:
        del sys.modules[name]
    del tma.nixl
    sys.modules.update(before)


@pytest.fixture
def network(seed):
    from nixl import _api

    _api.network = _api.Network(seed)
    return _api.network


class Hosts:
    """Stages that know each other, moved on by the test."""

    def __init__(self, client, **options):
        self.client, self.options = client, {"slot_bytes": 64 << 10, "thread": False, "timeout": 20.0, **options}
        self.stages = {}

    def start(self, name, **options):
        """A stage, or another one in place of a host that has ended; all learn of it."""
        from nixl._api import nixl_agent

        stage = tma.nixl.Stage(self.client, nixl_agent(name), **{**self.options, **options})
        for other in self.stages.values():
            if other.agent.is_running:
                other.forget(name)
                assert other.add(stage.metadata()) == name
                stage.add(other.metadata())
        self.stages[name] = stage
        return stage

    def step(self):
        return sum(stage.progress() for stage in self.stages.values() if stage.agent.is_running) > 0

    def until(self, condition, seconds=20.0):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, [s.stats() for s in self.stages.values()]
            if not self.step():
                time.sleep(0.0002)

    def wait(self, *transfers):
        self.until(lambda: all(t.done() for t in transfers))

    def settle(self):
        """All slots are free again."""
        self.until(lambda: all(_is_free(s) for s in self.stages.values() if s.agent.is_running))

    def close(self):
        for stage in self.stages.values():
            if stage.agent.is_running:
                stage.close()


def _is_free(stage):
    stats = stage.stats()
    return all(stats[k]["free"] == stats[k]["total"] for k in ("send_slots", "receive_slots")) and not stats["sends"]


@pytest.fixture
def hosts(network, tmad):
    with tma.connect(tmad.path) as client:
        all_ = Hosts(client)
        yield all_
        all_.close()


def filled(client, rng, shape, dtype):
    array = client.empty(shape, dtype)
    array.view("u1")[...] = rng.integers(0, 256, array.view("u1").shape, "u1")
    return array


class Case:
    """A transfer at random: arrays of both sides, and what has to come."""

    def __init__(self, client, rng):
        rank = int(rng.integers(1, 5))
        self.dtype = TYPES[rng.integers(0, len(TYPES))]
        wire = [int(n) for n in rng.integers(1, 6, rank - 1)]
        n_layers = int(rng.integers(1, 6))
        n = int(rng.integers(0, 40))
        self.source, self.blocks, self.sent = self._side(client, rng, wire, n_layers, 40, rng.integers(0, 40, n))
        self.into, self.places, self.received = self._side(
            client, rng, wire, n_layers, 50, rng.permutation(50)[:n], is_receiver=True
        )
        self.expected = [self._expected(i) for i in range(n_layers)]
        if n_layers == 1 and rng.integers(0, 2):
            self.source, self.into = self.source[0], self.into[0]

    def _side(self, client, rng, wire, n_layers, limit, blocks, is_receiver=False):
        """Arrays whose blocks, permuted, are those of the wire; the list of them; and the keywords."""
        rank = len(wire) + 1
        axis_on_wire = int(rng.integers(0, rank))
        on_wire = [*wire[:axis_on_wire], limit, *wire[axis_on_wire:]]
        order = [int(d) for d in rng.permutation(rank)]
        if is_receiver:  # the wire, permuted, is the array
            shape, axis = [on_wire[d] for d in order], order.index(axis_on_wire)
        else:  # the array, permuted, is what is on the wire
            shape, axis = [0] * rank, order[axis_on_wire]
            for d, n in zip(order, on_wire, strict=True):
                shape[d] = n
        arrays = []
        for _ in range(n_layers):
            wide = filled(client, rng, [*shape[:-1], shape[-1] + 2], self.dtype)
            arrays.append(wide[..., 1:-1] if rng.integers(0, 2) or arrays else wide[..., 1:-1])
        return arrays, [int(b) for b in blocks], {"axis": axis, "permute": order}

    def _expected(self, layer):
        to = self.received["axis"]
        wire = np.moveaxis(
            np.take(self.source[layer], self.blocks, self.sent["axis"]).transpose(self.sent["permute"]),
            self.sent["permute"].index(self.sent["axis"]),
            self.received["permute"][to],
        )
        result = self.into[layer].copy()
        index = [slice(None)] * result.ndim
        index[to] = self.places
        result[tuple(index)] = wire.transpose(self.received["permute"])
        return result

    def start(self, sender, receiver, tag):
        received = lambda: receiver.receive(sender.name, tag, self.into, self.places, **self.received)  # noqa: E731
        if random.random() < 0.5:
            into = received()
            return sender.send(receiver.name, tag, self.source, self.blocks, **self.sent), into
        return sender.send(receiver.name, tag, self.source, self.blocks, **self.sent), received()

    def check(self):
        into = self.into if isinstance(self.into, list) else [self.into]
        for got, wanted in zip(into, self.expected, strict=True):
            assert got.tobytes() == wanted.tobytes()


# ---- What arrives ----------------------------------------------------------------------------------------


def test_at_random(hosts, seed):
    """Between three hosts, in all directions, some at once: other axes, orders, layers and slots on either side."""
    rng = np.random.default_rng(seed)
    for name, slot_bytes, slots in (("a", 4096, 2), ("b", 8192, 1), ("c", 65536, 5)):
        hosts.start(name, slot_bytes=slot_bytes, send_slots=slots, receive_slots=slots)
    stages = list(hosts.stages.values())
    for i in range(share(100)):
        cases = [Case(hosts.client, rng) for _ in range(int(rng.integers(1, 8)))]
        transfers = []
        for j, case in enumerate(cases):
            sender, receiver = (stages[k] for k in rng.permutation(3)[:2])
            transfers += case.start(sender, receiver, f"{i} {j}")
        hosts.wait(*transfers)
        for transfer, case in zip(transfers[::2], cases, strict=True):
            size = sum(a.itemsize * a.size // max(1, a.shape[case.sent["axis"]]) for a in case.source) if isinstance(
                case.source, list
            ) else case.source.itemsize * case.source.size // case.source.shape[case.sent["axis"]]
            assert transfer.result() == size * len(case.blocks)
            case.check()
        for transfer in transfers:
            transfer.result()
    hosts.settle()


@pytest.mark.parametrize(("from_", "to"), [(a, b) for a in (1, 2, 4, 8) for b in (1, 2, 4, 8)])
def test_tensor_parallelism(hosts, from_, to):
    """Heads of from_ ranks to those of other ranks, with another order of dimensions."""
    rng = np.random.default_rng(1)
    a, b = hosts.start("a"), hosts.start("b")
    heads, layers, n = 8, 3, 5
    old = [[filled(hosts.client, rng, (9, 4, heads // from_, 6), "float16") for _ in range(layers)] for _ in range(from_)]
    new = [[hosts.client.empty((7, heads // to, 4, 6), "float16") for _ in range(layers)] for _ in range(to)]
    source, places = [int(i) for i in rng.integers(0, 9, n)], [int(i) for i in rng.permutation(7)[:n]]
    transfers = []
    for i in range(from_):
        for j in range(to):
            first, last = max(i * heads // from_, j * heads // to), min((i + 1) * heads // from_, (j + 1) * heads // to)
            if first >= last:
                continue
            here, there = slice(first - i * heads // from_, last - i * heads // from_), slice(
                first - j * heads // to, last - j * heads // to
            )
            transfers.append(a.send("b", f"{i} to {j}", [x[:, :, here] for x in old[i]], source))
            transfers.append(
                b.receive("a", f"{i} to {j}", [x[:, there] for x in new[j]], places, permute=(0, 2, 1, 3))
            )
    hosts.wait(*transfers)
    for layer in range(layers):
        whole = np.concatenate([rank[layer] for rank in old], 2)
        got = np.concatenate([rank[layer] for rank in new], 1)
        assert got[places].tobytes() == whole[source].transpose(0, 2, 1, 3).tobytes()


@pytest.mark.parametrize("where", ["sender", "receiver"])
def test_conversion(hosts, where):
    rng = np.random.default_rng(2)
    a, b = hosts.start("a"), hosts.start("b")
    x, y = hosts.client.empty((20, 8, 16), "float32"), hosts.client.empty((20, 8, 16), "float16")
    x[...] = rng.standard_normal(x.shape)
    options = {"scale": 0.5, "cast": "saturate"}
    sent = a.send("b", "t", x, **({"dtype": "float16", **options} if where == "sender" else {}))
    received = b.receive("a", "t", y, **(options if where == "receiver" else {}))
    hosts.wait(sent, received)
    assert sent.result() == received.result() == (y.nbytes if where == "sender" else x.nbytes)
    assert np.array_equal(y, (x * np.float32(0.5)).astype("float16"))


def test_memory_is_bounded(hosts):
    """By the slots, however long a list is."""
    a, b = hosts.start("a"), hosts.start("b")
    x, y = hosts.client.empty((40000, 64), "float32"), hosts.client.empty((40000, 64), "float32")
    x[...] = np.arange(40000)[:, None]
    blocks = np.random.default_rng(3).permutation(40000)
    before = sum(r["size"] for r in hosts.client.regions())
    transfers = a.send("b", "t", x, blocks), b.receive("a", "t", y)
    most = 0
    while not all(t.done() for t in transfers):
        hosts.step()
        most = max(most, sum(r["size"] for r in hosts.client.regions()))
    assert [t.result() for t in transfers] == [x.nbytes] * 2
    assert np.array_equal(y[:, 0], blocks)
    assert most - before < 1 << 20


def test_by_threads(network, tmad):
    """Stages with threads of their own, used by several at once."""
    with tma.connect(tmad.path) as ours, tma.connect(tmad.path) as theirs:
        hosts = Hosts(ours, thread=True)
        a = hosts.start("a")
        hosts.client = theirs
        b = hosts.start("b")
        x, y = ours.empty((64, 1000), "int32"), theirs.empty((64, 1000), "int32")
        x[...] = np.random.default_rng(4).integers(0, 1 << 30, x.shape)
        transfers = [(a.send("b", str(i), x, [i]), b.receive("a", str(i), y, [63 - i])) for i in range(64)]
        for sent, received in transfers:
            assert sent.result(20) == received.result(20) == 4000
        assert np.array_equal(y, x[::-1])
        hosts.close()
        with pytest.raises(ValueError, match="closed"):
            a.send("b", "t", x)


def test_a_client_of_several(network, tmad):
    """Its other threads copy by it, in chunks that they wait for, and another stage has it, too."""
    with tma.connect(tmad.path, staging=16 << 10) as client:
        hosts = Hosts(client, thread=True)
        a, b = hosts.start("a"), hosts.start("b")
        x, y = client.empty((64, 1000), "int32"), client.empty((64, 1000), "int32")
        x[...] = np.random.default_rng(4).integers(0, 1 << 30, x.shape)
        wrong, is_over = [], threading.Event()

        def copy():
            z = np.random.default_rng(5).integers(0, 1 << 30, (64, 300), "int32")
            while not is_over.is_set():
                try:
                    assert np.array_equal(client.transform(z, permute=(1, 0)), z.T)
                except Exception as e:
                    wrong.append(e)
                    return

        thread = threading.Thread(target=copy)
        thread.start()
        for i in range(share(20)):
            y[...] = 0
            transfers = [(a.send("b", f"{i} {j}", x, [j]), b.receive("a", f"{i} {j}", y, [63 - j])) for j in range(64)]
            for sent, received in transfers:
                assert sent.result(20) == received.result(20) == 4000
            assert np.array_equal(y, x[::-1])
        is_over.set()
        thread.join()
        assert not wrong
        hosts.close()


def test_scales_anywhere(hosts):
    """Also in memory that the service does not have, or as a list."""
    a, b = hosts.start("a"), hosts.start("b")
    x, y = hosts.client.empty((9000, 6), "float32"), hosts.client.empty((9000, 6), "float32")
    x[...] = np.random.default_rng(6).standard_normal(x.shape)
    scale, bias = np.arange(1, 7, dtype="float32"), [0.5, 1, 2, 3, 4, 5]
    transfers = a.send("b", "t", x, scale=scale), b.receive("a", "t", y, bias=bias)
    scale[...] = 0
    del bias
    hosts.wait(*transfers)
    assert [t.result() for t in transfers] == [x.nbytes] * 2
    wanted = x * np.arange(1, 7, dtype="float32") + np.float32([0.5, 1, 2, 3, 4, 5])
    assert np.allclose(y, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (3,)])
def test_next_to_nothing(hosts, shape):
    a, b = hosts.start("a"), hosts.start("b")
    x, y = hosts.client.empty(shape, "int32"), hosts.client.empty(shape, "int32")
    x[...] = 7
    transfers = a.send("b", "t", x[::-1]), b.receive("a", "t", y)
    hosts.wait(*transfers)
    assert [t.result() for t in transfers] == [x.nbytes] * 2
    assert np.array_equal(x, y)


def test_many_slots(hosts):
    """More than one message can grant."""
    hosts.options["slot_bytes"] = 1
    a = hosts.start("a", send_slots=12000, receive_slots=0, memory=hosts.client.empty(12000, "u1"))
    b = hosts.start("b", send_slots=0, receive_slots=12000, memory=hosts.client.empty(12000, "u1"))
    x, y = filled(hosts.client, np.random.default_rng(7), 11000, "u1"), hosts.client.empty(11000, "u1")
    sent, received = a.send("b", "t", x), b.receive("a", "t", y)
    hosts.until(lambda: b.stats()["receive_slots"]["free"] == 1000)
    hosts.until(lambda: a._senders._all[1].grants or a.stats()["bytes_sent"])
    for transfer in (sent, received):
        transfer.cancel()
    hosts.settle()


@pytest.mark.parametrize("extent", [1, 2, 6, 8])
def test_shared_parts(extent):
    """Each receiver has each of its parts once, from a sender that has it; copies share the work."""

    def held(rank, ranks):
        return list(range(rank * extent // ranks, rank * extent // ranks + max(1, extent // ranks)))

    sizes = [n for n in (1, 2, 3, 4, 6, 8, 16, 24) if extent % n == 0 or n % extent == 0]
    for senders in sizes:
        for receivers in sizes:
            got = {rank: [] for rank in range(receivers)}
            used = set()
            for a, b, here, there in tma.nixl.shared_parts(extent, senders, receivers):
                part = held(b, receivers)[there]
                assert part and held(a, senders)[here] == part
                got[b] += part
                used.add(a)
            assert all(parts == held(rank, receivers) for rank, parts in got.items())
            assert len(used) == senders or receivers < senders
    with pytest.raises(ValueError, match="receivers: 3 ranks do not divide 8"):
        list(tma.nixl.shared_parts(8, 2, 3))


def test_pieces(seed):
    """Each block of each layer is in one piece, and each piece fits; there are few more than there have to be."""
    from tmaclient.nixl._pieces import MOST_BLOCKS, MOST_LAYERS, Pieces

    rng = random.Random(seed)
    for _ in range(share(2000)):
        layers, blocks, size = rng.choice((0, 1, 7, 80, 1500)), rng.choice((0, 1, 3, 100, 9000)), rng.choice((1, 64, 999))
        slot = size * rng.choice((1, 2, 5, 100, 3000, 100000)) + rng.randrange(size)
        pieces = Pieces(layers, blocks, size, slot)
        if len(pieces) > 5000:
            continue
        seen = sum(p.n_layers * p.n_blocks for p in pieces)
        assert seen == layers * blocks
        covered = set()
        for p in pieces:
            assert 0 < p.n_layers <= MOST_LAYERS and 0 < p.n_blocks <= MOST_BLOCKS
            assert p.n_layers * p.n_blocks * size <= slot
            assert p.first_layer + p.n_layers <= layers and p.first_block + p.n_blocks <= blocks
            covered.add((p.first_layer, p.first_block))
        assert len(covered) == len(pieces)
        least = -(-layers * blocks // min(slot // size, MOST_BLOCKS * MOST_LAYERS)) if seen else 0
        assert len(pieces) >= least
    with pytest.raises(ValueError, match="a block has 10 bytes; the slots have 9"):
        Pieces(1, 1, 10, 9)


def test_connect(hosts):
    """Metadata of a peer that has no stage yet lacks its slots; who connects waits for the stage, and for them."""
    from nixl._api import nixl_agent

    a, agent = hosts.start("a"), nixl_agent("b")
    a.agent.add_remote_agent(agent.get_agent_metadata())
    connecting = threading.Thread(target=a.connect, args=("b", "", agent.number))
    connecting.start()
    time.sleep(0.2)
    assert connecting.is_alive()
    b = tma.nixl.Stage(hosts.client, agent, **hosts.options)
    hosts.stages["b"] = b
    hosts.until(lambda: not connecting.is_alive())
    connecting.join()
    x = hosts.client.empty((2, 8), "u1")
    hosts.wait(*(transfers := (a.send("b", "t", x), b.receive("a", "t", x))))
    assert [t.result() for t in transfers] == [16, 16]
    with pytest.raises(tma.NoReplyError, match="no answer from 'nobody'"):
        a.connect("nobody", "", 99, timeout=0.2)


# ---- Failures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("received", "message"),
    [
        ({"blocks": [1, 2, 3]}, "blocks: the sender has 2, the receiver 3"),
        ({"layers": 2}, "layers: the sender has 1, the receiver 2"),
        ({"shape": (4, 5)}, "a block: the sender has [5, 4], the receiver [4, 5]"),
        ({"dtype": "int32"}, "dtype: the sender has float32, the receiver int32"),
    ],
)
def test_sides_that_do_not_fit(hosts, received, message):
    a, b = hosts.start("a"), hosts.start("b")
    x = hosts.client.empty((8, 5, 4), "float32")
    shape, dtype = (8, *received.get("shape", (5, 4))), received.get("dtype", "float32")
    layers = [hosts.client.empty(shape, dtype) for _ in range(received.get("layers", 1))]
    sent = a.send("b", "t", x, [1, 2])
    got = b.receive("a", "t", layers, received.get("blocks", [3, 4]))
    hosts.wait(sent, got)
    for transfer in (sent, got):
        with pytest.raises(tma.InvalidArgumentError) as e:
            transfer.result()
        assert message in str(e.value)
    hosts.settle()


def test_arguments(hosts):
    a, b = hosts.start("a", receive_slots=0), hosts.start("b", send_slots=0)
    x = hosts.client.empty((8, 5), "float32")
    wrong = [
        (lambda: a.send("nobody", "t", x), tma.NotFoundError, "no metadata of 'nobody'"),
        (lambda: a.send("b", "t" * 300, x), ValueError, "tag"),
        (lambda: a.send("b", 7, x), ValueError, "tag: 7"),
        (lambda: a.send("b", "t", []), ValueError, "layers: it is empty"),
        (lambda: a.send("b", "t", [x, x[1:]]), ValueError, "layers[1]: "),
        (lambda: a.send("b", "t", np.zeros((8, 5))), ValueError, "layers[0]: the service does not have its memory"),
        (lambda: a.send("b", "t", x, [8]), IndexError, "8"),
        (lambda: a.send("b", "t", x, wait=3), TypeError, "wait"),
        (lambda: a.send("b", "t", x, timeout=0), ValueError, "timeout: 0"),
        (lambda: a.send("b", "t", hosts.client.empty((1, 100000), "u1")), ValueError, "a block has 100000 bytes"),
        (lambda: b.send("a", "t", x), ValueError, "send_slots=0"),
        (lambda: a.send("b", "t", x, timeout=float("nan")), ValueError, "timeout: nan"),
        (lambda: b.receive("a", "t", x, [1, 2, -6]), ValueError, "block 2 is there twice"),
        (lambda: b.receive("a", "t", [x, x]), ValueError, "layers[1]: it is the memory of layers[0]"),
        (lambda: hosts.start("c", send_slots=-1), ValueError, "send_slots: -1"),
        (lambda: hosts.start("c", send_slots=0, receive_slots=0), ValueError, "both are 0"),
        (lambda: hosts.start("c", memory=x), ValueError, "memory: float32 [8, 5]"),
    ]
    for call, kind, message in wrong:
        with pytest.raises(kind) as e:
            call()
        assert message in str(e.value), message
    sent, received = b_to_a = (b.receive("a", "t", x, timeout=10**400), a.send("b", "t", x, timeout=float("inf")))
    hosts.wait(*b_to_a)
    assert sent.result() == received.result() == x.nbytes


def test_no_slots_to_receive(hosts):
    a, b = hosts.start("a"), hosts.start("b", receive_slots=0)
    x = hosts.client.empty((8, 5), "float32")
    transfers = a.send("b", "t", x), b.receive("a", "t", x)
    hosts.wait(*transfers)
    for transfer in transfers:
        with pytest.raises(tma.QuotaError, match="receive_slots=0"):
            transfer.result()


def test_timeouts(hosts):
    a, b = hosts.start("a"), hosts.start("b")
    x = hosts.client.empty((8, 5), "float32")
    transfers = a.send("b", "one", x, timeout=0.3), b.receive("a", "other", x, timeout=0.3)
    hosts.wait(*transfers)
    for transfer, message in zip(transfers, ("it was offered", "no offer has come"), strict=True):
        with pytest.raises(tma.NoReplyError, match=message):
            transfer.result()
    hosts.until(lambda: b.stats()["offers"] == 0)
    hosts.settle()


def test_a_peer_that_hangs(hosts):
    """Its slots are nobody's until it wakes up, and says that it writes no more; others go on meanwhile."""
    a, b, c = hosts.start("a"), hosts.start("b"), hosts.start("c")
    x, y = filled(hosts.client, np.random.default_rng(5), (200, 4096), "u1"), hosts.client.empty((200, 4096), "u1")
    received = b.receive("a", "t", y, timeout=0.5)
    sent = a.send("b", "t", x, timeout=60)
    hosts.until(lambda: a.stats()["bytes_sent"] > 0)
    del hosts.stages["a"]
    hosts.wait(received)
    with pytest.raises(tma.NoReplyError):
        received.result()
    left = b.stats()["receive_slots"]
    assert left["left"] > 0 and left["left"] + left["free"] == left["total"] and left["free"] > 0
    y[...] = 0
    transfers = c.send("b", "u", x[:9]), b.receive("c", "u", y[:9])
    hosts.wait(*transfers)
    assert np.array_equal(y[:9], x[:9])
    hosts.stages["a"] = a
    hosts.wait(sent)
    with pytest.raises(tma.NoReplyError, match="b: receive 't'"):
        sent.result()
    hosts.settle()
    assert np.array_equal(y[:9], x[:9]) and not y[9:].any()


def test_forget(hosts):
    a, b = hosts.start("a"), hosts.start("b")
    x, y = hosts.client.empty((200, 4096), "u1"), hosts.client.empty((200, 4096), "u1")
    transfers = a.send("b", "t", x), b.receive("a", "t", y)
    hosts.until(lambda: a.stats()["bytes_sent"] > 0)
    for stage, peer, transfer in ((b, "a", transfers[1]), (a, "b", transfers[0])):
        stage.forget(peer)
        hosts.wait(transfer)  # tmad may be at work for it
        with pytest.raises(tma.DisconnectedError, match="forgotten"):
            transfer.result()
    hosts.settle()


@pytest.mark.parametrize("side", ["sender", "receiver"])
def test_cancel(hosts, side):
    a, b = hosts.start("a"), hosts.start("b")
    x, y = hosts.client.empty((200, 4096), "u1"), hosts.client.empty((200, 4096), "u1")
    sent, received = a.send("b", "t", x), b.receive("a", "t", y)
    canceled, other = (sent, received) if side == "sender" else (received, sent)
    hosts.until(lambda: a.stats()["bytes_sent"] > 0)
    assert canceled.cancel()
    hosts.wait(other)
    with pytest.raises(tma.CanceledError, match="it was canceled"):
        other.result()
    hosts.settle()


def test_close(hosts):
    a, b = hosts.start("a"), hosts.start("b")
    x, y = hosts.client.empty((200, 4096), "u1"), hosts.client.empty((200, 4096), "u1")
    sent, received = a.send("b", "t", x), b.receive("a", "t", y)
    hosts.until(lambda: a.stats()["bytes_sent"] > 0)
    del hosts.stages["a"]
    a.close()
    a.close()
    with pytest.raises(tma.CanceledError, match="closed"):
        sent.result(0)
    hosts.wait(received)
    with pytest.raises(tma.CanceledError, match="a: the stage was closed"):
        received.result()
    hosts.settle()


def test_a_peer_that_hangs_with_many(hosts):
    """It does not get the last slot, however many transfers it has."""
    a, b, c = hosts.start("a"), hosts.start("b"), hosts.start("c")
    x, y = filled(hosts.client, np.random.default_rng(5), (200, 4096), "u1"), hosts.client.empty((200, 4096), "u1")
    hung = [(a.send("b", str(i), x), b.receive("a", str(i), y, timeout=0.3)) for i in range(8)]
    hosts.until(lambda: b.stats()["offers"] == 0 and a.stats()["bytes_sent"] > 0)
    del hosts.stages["a"]
    for _ in range(20):
        hosts.step()
    z = hosts.client.empty((200, 4096), "u1")
    transfers = c.send("b", "u", x), b.receive("c", "u", z)
    hosts.wait(*transfers)
    assert np.array_equal(z, x)
    hosts.wait(*(received for _, received in hung))
    transfers = c.send("b", "v", x), b.receive("c", "v", z)
    hosts.wait(*transfers)
    assert [t.result() for t in transfers] == [x.nbytes] * 2
    hosts.stages["a"] = a
    hosts.wait(*(sent for sent, _ in hung))
    hosts.settle()


def test_close_under_a_write(hosts, monkeypatch):
    """Memory that a peer may still write to is kept, and that which no one writes to is not."""
    from tmaclient.nixl import _stage

    monkeypatch.setattr(_stage, "_CLOSE_S", 0.2)
    monkeypatch.setattr(_stage, "_kept", [])
    x, y = hosts.client.empty((200, 4096), "u1"), hosts.client.empty((200, 4096), "u1")
    for is_hung in (False, True):
        a, b = hosts.start("a"), hosts.start("b")
        transfers = a.send("b", "t", x), b.receive("a", "t", y)
        hosts.until(lambda: a.stats()["bytes_sent"] > 0)  # noqa: B023
        if not is_hung:
            hosts.wait(*transfers)
        b.close()
        assert _stage._kept == ([b._owner] if is_hung else [])
        with pytest.raises(ValueError, match="the stage is closed"):
            b.forget("a")
        if is_hung:
            with pytest.raises(tma.CanceledError):
                transfers[1].result(0)
        a.close()
        hosts.stages.clear()


def test_close_while_tmad_hangs(network, own, monkeypatch):
    """Futures end, and when they have, tmad is done with their arrays."""
    from tmaclient.nixl import _stage

    monkeypatch.setattr(_stage, "_CLOSE_S", 0.1)
    with tma.connect(own.path) as client:
        hosts = Hosts(client)
        a, b = hosts.start("a"), hosts.start("b")
        x = client.empty((200, 4096), "u1")
        sent, received = a.send("b", "t", x), b.receive("a", "t", client.empty((200, 4096), "u1"))
        hosts.until(lambda: a.stats()["bytes_sent"] > 0)
        os.kill(own.pid, 19)  # SIGSTOP
        for _ in range(100):
            hosts.step()
        assert b._exchange.is_running
        timer = threading.Timer(0.5, os.kill, (own.pid, 18))  # SIGCONT
        timer.start()
        start = time.monotonic()
        b.close()
        assert time.monotonic() - start > 0.2 and not b._exchange.is_running
        with pytest.raises(tma.CanceledError):
            received.result(0)
        a.close()
        assert sent.done()
        timer.join()


def test_callbacks(network, tmad):
    """They may call anything: the stage, other threads that do, and close()."""
    with tma.connect(tmad.path) as client:
        hosts = Hosts(client, thread=True)
        a, b = hosts.start("a"), hosts.start("b")
        x = filled(client, np.random.default_rng(8), (64, 256), "u1")
        y = client.empty((64, 256), "u1")
        seen, over = [], threading.Event()

        def exit_(_):
            raise SystemExit

        def next_(transfer):
            other = threading.Thread(target=lambda: seen.append(a.stats()["sends"]))
            other.start()
            other.join(10)
            n = int(transfer.tag) + 1
            if n < 20:
                received = b.receive("a", str(n), y)
                received.add_done_callback(exit_)
                a.send("b", str(n), x).add_done_callback(next_)
                return
            unmet = a.send("b", "unmet", x)
            assert unmet.cancel()
            a.close()
            over.set()

        b.receive("a", "0", y)
        a.send("b", "0", x).add_done_callback(next_)
        assert over.wait(20)
        assert len(seen) == 20
        a._thread.join(10)
        assert not a._thread.is_alive() and b._thread.is_alive()
        with pytest.raises(ValueError, match="closed"):
            a.send("b", "t", x)
        assert not a.agent.registered
        b.stats()
        b.close()


def test_it_is_not_closed(tmad):
    """A process that ends all the same ends the thread first, which may be in NIXL."""
    program = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(stage._thread.is_alive()))\n"  # the last to be called
        f"sys.path.insert(0, {FAKE!r})\n"
        "import tmaclient as tma, tmaclient.nixl\n"
        "stage = tma.nixl.Stage(tma.connect(sys.argv[1]), 'a')\n"
    )
    done = subprocess.run([sys.executable, "-c", program, tmad.path], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_many_callbacks_in_each_other(hosts):
    """No matter how many end at once, and what they call."""
    a, b = hosts.start("a"), hosts.start("b")
    x = hosts.client.empty((2, 8), "u1")
    called = []

    def call(transfer):
        called.append(transfer)
        b.forget("nobody")

    for i in range(3000):
        a.send("b", str(i), x).add_done_callback(call)
    a.forget("b")
    b.forget("a")
    assert len(called) == 3000


def test_the_end_of_what_was_canceled(hosts, monkeypatch):
    """concurrent.futures.wait() waits for it, as long as the arrays are used."""
    a, b = hosts.start("a"), hosts.start("b")
    x = hosts.client.empty((200, 4096), "u1")
    sent, received = a.send("b", "t", x), b.receive("a", "t", x)
    with monkeypatch.context() as patch:
        patch.setattr(b._exchange, "step", lambda now: False)  # it has not heard of tmad that a scatter has ended
        hosts.until(lambda: next(iter(b._receivers)).n_scatters > 0)
        assert received.cancel()
        hosts.wait(sent)
        assert not concurrent.futures.wait([received], 0).done
    hosts.settle()
    assert concurrent.futures.wait([received], 0).done


@pytest.mark.parametrize("side", ["a", "b"])
def test_one_that_cannot_be_run(hosts, monkeypatch, side):
    """It fails alone, on both sides; whatever is raised."""
    a, b = hosts.start("a"), hosts.start("b")
    exchange = hosts.stages[side]._exchange

    class Core:
        def submit(self, *_, **__):
            raise RuntimeError("no way")

        def __getattr__(self, name):
            return getattr(hosts.client._core, name)

    x = hosts.client.empty((20, 8), "u1")
    core, exchange.core = exchange.core, Core()
    transfers = a.send("b", "t", x), b.receive("a", "t", hosts.client.empty((20, 8), "u1"))
    hosts.wait(*transfers)
    assert all("no way" in str(t.exception()) for t in transfers)
    exchange.core = core
    transfers = a.send("b", "u", x), b.receive("a", "u", hosts.client.empty((20, 8), "u1"))
    hosts.wait(*transfers)
    assert [t.result() for t in transfers] == [x.nbytes] * 2
    hosts.settle()


@pytest.mark.parametrize("verb", ["send", "receive"])
def test_one_that_cannot_begin(hosts, monkeypatch, verb):
    """It leaves nothing behind."""
    from tmaclient.nixl._sides import Side

    def fail(*_):
        raise tma.DisconnectedError("no stream")

    a, _ = hosts.start("a"), hosts.start("b")
    x = hosts.client.empty((20, 8), "u1")
    with monkeypatch.context() as patch:
        patch.setattr(Side, "streams", lambda self: {(1, 0)})
        patch.setattr(a._exchange, "await_stream", fail)
        with pytest.raises(tma.DisconnectedError, match="no stream"):
            getattr(a, verb)("b", "t", x)
    assert a.stats()["sends"] == a.stats()["receives"] == 0


def test_a_fork(network, tmad):
    """The child does nothing to what it shares with its parent, not even by ending."""
    with tma.connect(tmad.path) as client:
        hosts = Hosts(client, thread=True)
        a, b = hosts.start("a"), hosts.start("b")
        x, y = filled(client, np.random.default_rng(9), (64, 256), "u1"), client.empty((64, 256), "u1")
        unmet = a.send("b", "t", x)
        is_held, is_over = threading.Event(), threading.Event()

        def hold():
            with a._lock:
                is_held.set()
                is_over.wait(10)

        holder = threading.Thread(target=hold)
        holder.start()
        is_held.wait(10)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                try:
                    a.send("b", "u", x)
                except ValueError as e:
                    code = 0 if "forked" in str(e) else 2
                a.close()
                code = code if a.agent.registered else 3
            finally:
                os._exit(code)
        is_over.set()
        holder.join()
        assert os.waitpid(pid, 0)[1] == 0
        received = b.receive("a", "t", y)
        assert unmet.result(20) == received.result(20) == x.nbytes
        assert np.array_equal(x, y)
        hosts.close()


@pytest.mark.parametrize("killed", ["a", "b"])
def test_killed(hosts, seed, killed):
    """Sender or receiver, again and again, at any moment. Others go on; what is delivered is right, and slots and the
    name are free again."""
    rng = np.random.default_rng(seed)
    x, y, z = (filled(hosts.client, rng, (100, 2048), "u1") for _ in range(3))
    for name in "abc":
        hosts.start(name, slot_bytes=8192)
    n_failed = 0
    for i in range(share(60)):
        blocks, places = rng.integers(0, 100, 80), rng.permutation(100)[:80]
        for memory in (y, z):
            memory[...] = 7
        a, b, c = (hosts.stages[name] for name in "abc")
        sent, received = a.send("b", f"{i}", x, blocks), b.receive("a", f"{i}", y, places)
        peer = "b" if killed == "a" else "a"
        beside = c.send(peer, f"beside {i}", x, blocks), hosts.stages[peer].receive("c", f"beside {i}", z, places)
        for _ in range(int(rng.integers(0, 40)) if i > 0 else 0):  # the first is lost before anything has moved
            hosts.step()
        hosts.stages[killed].agent.end()
        other = received if killed == "a" else sent
        hosts.wait(other, *beside)
        expected = np.full_like(y, 7)
        expected[places] = x[blocks]
        assert all(t.result() == 80 * 2048 for t in beside)
        assert z.tobytes() == expected.tobytes()
        if other.exception() is None:
            assert y.tobytes() == expected.tobytes()
        else:
            assert isinstance(other.exception(), tma.DisconnectedError)
            n_failed += 1
        hosts.start(killed, slot_bytes=8192)
    hosts.settle()
    print(f"{n_failed} of {share(60)} were lost with their peer")
    assert n_failed > 0


def test_tmad_restarts(network, own):
    """What a transfer had asked of it is asked again."""
    with tma.connect(own.path) as client:
        hosts = Hosts(client)
        a, b = hosts.start("a"), hosts.start("b")
        x, y = filled(client, np.random.default_rng(6), (400, 4096), "u1"), client.empty((400, 4096), "u1")
        transfers = a.send("b", "t", x), b.receive("a", "t", y)
        hosts.until(lambda: a.stats()["bytes_sent"] > 0)
        own.kill()
        own.start()
        hosts.wait(*transfers)
        assert [t.result() for t in transfers] == [x.nbytes] * 2
        assert np.array_equal(x, y)
        hosts.close()


# ---- Peers that speak otherwise ----------------------------------------------------------------------------


def test_messages_of_anybody(hosts, seed):
    """Nothing that a peer says harms the transfers of others, or this one's slots."""
    rng = random.Random(seed)
    a, b, c = hosts.start("a"), hosts.start("b"), hosts.start("c")
    x, y = filled(hosts.client, np.random.default_rng(7), (50, 4096), "u1"), hosts.client.empty((50, 4096), "u1")
    numbers = [-1, 0, 1, 2, 3, 7, 1 << 40, (1 << 63) - 1, 1 << 64, 1 << 80, True, None, "1", 1.5, [], [1], {}]
    members = {
        "kind": ["offer", "grant", "data", "done", "failed", "closed", "ping", "nothing", 7, None],
        "tag": ["t", "u", "x" * 5000, 3], "dtype": ["uint8", "float16", "nothing", 3],
        "shape": [[4096], [], [-1], [1 << 62, 1 << 62], ["a"], 4096, [1] * 40],
        "slots": [[], [[0, 1, 4096]], [[0, 1]], [7], [[1, 2, -3]], "slots"], "memory": ["DRAM", "VRAM", "", 5],
        "by": ["sender", "receiver", "?"], "message": ["why", 5], "status": [-1, -5, 0, 99, 1 << 40],
    }  # fmt: skip
    known = [a._exchange.number, b._exchange.number]
    for i in range(share(100)):
        y[...] = 0
        beside = c.send("b", f"{i}", x), b.receive("c", f"{i}", y)
        for _ in range(20):
            message = {name: rng.choice(values) for name, values in members.items() if rng.random() < 0.9}
            for name in ("from", "to", "id", "layers", "blocks", "slot_bytes", "piece", "slot", "loan", "device"):
                if rng.random() < 0.95:
                    message[name] = rng.choice(known if name in ("from", "to") and rng.random() < 0.8 else numbers)
            raw = b"tmad/1 " + json.dumps(message).encode()
            if rng.random() < 0.1:
                raw = raw[: rng.randrange(len(raw))] + rng.randbytes(3)
            a.agent.send_notif("b", raw)
            hosts.step()
        hosts.wait(*beside)
        assert [t.result() for t in beside] == [x.nbytes] * 2
        assert np.array_equal(x, y)
    b.forget("a")
    hosts.settle()


def test_many_offers(hosts):
    """A peer that offers without end is refused, and the others are not."""
    from tmaclient.nixl import _receiving

    a, b = hosts.start("a"), hosts.start("b")
    x = hosts.client.empty((2, 8), "u1")
    n = _receiving.MOST_OFFERS + 5
    sent = [a.send("b", str(i), x) for i in range(n)]
    hosts.until(lambda: sum(t.done() for t in sent) == 5)
    refused = [t for t in sent if t.done()]
    for transfer in refused:
        with pytest.raises(tma.BusyError, match="4096 offers of 'a'"):
            transfer.result()
    a.close()
    del hosts.stages["a"]
    hosts.until(lambda: b.stats()["offers"] == 0)


def test_offers_that_are_no_use(hosts):
    """They are not kept: those that are huge, twice there, of nobody that could be answered, or of an earlier stage."""
    from tmaclient.nixl import _receiving
    from tmaclient.nixl._messages import encode

    a, b = hosts.start("a"), hosts.start("b")

    def offer(stage, number, **others):
        members = {"tag": "t", "dtype": "uint8", "shape": [8], "layers": 1, "blocks": 2, "slot_bytes": 64, **others}
        return encode("offer", stage, id=number, **members)

    sizes = {"dtype": "x" * 100000}, {"shape": [[0] * 50000]}, {"tag": "t" * 1000}, {"shape": [1] * 1000}
    for raw in [offer(5, i, **other) for i, other in enumerate(sizes)]:
        b._take("a", raw)
    assert b.stats()["offers"] == 0
    for _ in range(3):
        b._take("a", offer(5, 1))
        b._take("a", offer(5, 2))
    assert b.stats()["offers"] == 2
    b._take("a", offer(6, 1))
    assert b.stats()["offers"] == 1
    for i in range(_receiving.MOST_OFFERS + 100):
        b._take(f"stranger {i % 200}", offer(7 + i % 200, i))
    assert b.stats()["offers"] == _receiving.MOST_OFFERS + 1
    x, y = filled(hosts.client, np.random.default_rng(1), (2, 8), "u1"), hosts.client.empty((2, 8), "u1")
    transfers = a.send("b", "u", x), b.receive("a", "u", y)
    hosts.wait(*transfers)
    assert np.array_equal(x, y)
    hosts.settle()


def test_a_message_that_cannot_be_taken(hosts, monkeypatch):
    """Its sender is given up, and nobody else."""
    a, b, c = hosts.start("a"), hosts.start("b"), hosts.start("c")
    x, y = filled(hosts.client, np.random.default_rng(1), (50, 4096), "u1"), hosts.client.empty((50, 4096), "u1")
    on_data = b._receivers.on_data

    def fail(peer, message):
        if peer == "a":
            raise KeyError("a bug")
        on_data(peer, message)

    monkeypatch.setattr(b._receivers, "on_data", fail)
    lost = a.send("b", "t", x), b.receive("a", "t", hosts.client.empty((50, 4096), "u1"))
    kept = c.send("b", "t", x), b.receive("c", "t", y)
    hosts.wait(lost[1], *kept)
    with pytest.raises(tma.DisconnectedError, match="cannot be taken"):
        lost[1].result()
    assert [t.result() for t in kept] == [x.nbytes] * 2
    a.forget("b")
    hosts.settle()


def test_names_without_end(hosts):
    """Of peers whose metadata is not here nothing is kept but a bounded number of offers."""
    from nixl._api import nixl_agent
    from tmaclient.nixl._messages import encode

    b, known = hosts.start("b"), {"dtype": "uint8", "shape": [1], "layers": 1, "blocks": 1, "slot_bytes": 4096}
    for i in range(50):
        agent = nixl_agent(f"nobody {i}")
        agent.add_remote_agent(b.metadata())
        agent.send_notif("b", encode("offer", i, id=1, tag="t", **known))
    hosts.until(lambda: b.stats()["offers"] == 50)
    assert not b._receivers._stages and not b._peers


def test_others_use_the_agent(hosts):
    """Notifications without the prefix are the caller's."""
    a, b = hosts.start("a"), hosts.start("b")
    x = hosts.client.empty((2, 8), "u1")
    a.agent.send_notif("b", b"of somebody else")
    hosts.wait(a.send("b", "t", x), b.receive("a", "t", x))
    hosts.until(lambda: b.agent.notifs.get("a") == [b"of somebody else"])


def test_it_is_not_installed():
    """One sentence says what to install, and the rest works."""
    program = (
        "import sys; sys.modules['nixl'] = None\n"
        "import tmaclient\n"
        "try:\n    import tmaclient.nixl\nexcept ImportError as e:\n    print(e)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "tmaclient.nixl needs the package nixl, which is not installed: pip install nixl\n"

# SPDX-License-Identifier: Apache-2.0
"""Tests transfers between hosts, and the calls, over a stand-in for NIXL that delivers late and out of order."""
import concurrent.futures
import random
import subprocess
import sys
import threading
import time

import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
from nixl_hosts import Hosts, filled
from tmad import share

pytestmark = pytest.mark.usefixtures("fake_nixl")
TYPES = ("uint8", "float16", "int32", "float64")


class Case:
    """A random transfer: arrays of both sides, and the expected result."""

    def __init__(self, client, rng):
        rank = int(rng.integers(1, 5))
        self.dtype = TYPES[rng.integers(0, len(TYPES))]
        wire = [int(n) for n in rng.integers(1, 6, rank - 1)]
        n_layers = int(rng.integers(1, 6))
        n = int(rng.integers(0, 40))
        converting = rng.choice(["", "", "sender", "receiver"]) if self.dtype in ("uint8", "int32") else ""
        into_dtype = "float64" if converting else self.dtype
        self.wire_itemsize = np.dtype(into_dtype if converting == "sender" else self.dtype).itemsize
        self.source, self.blocks, self.sent = self._side(
            client, rng, self.dtype, wire, n_layers, 40, rng.integers(0, 40, n)
        )
        self.into, self.places, self.received = self._side(
            client, rng, into_dtype, wire, n_layers, 50, rng.permutation(50)[:n], is_receiver=True
        )
        if converting == "sender":
            self.sent["dtype"] = into_dtype
        elif converting:
            self.received["cast"] = "exact"
        self.expected = [self._expected(i) for i in range(n_layers)]
        if n_layers == 1 and rng.integers(0, 2):
            self.source, self.into = self.source[0], self.into[0]

    def _side(self, client, rng, dtype, wire, n_layers, limit, blocks, is_receiver=False):
        """Returns arrays of one side, whose permuted blocks have the shape on the wire, the block list, and the
        keywords."""
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
        wide = [*shape[:-1], shape[-1] + 2]
        arrays = [filled(client, rng, wide, dtype)[..., 1:-1] for _ in range(n_layers)]
        if rng.random() < 0.3:
            flipped = int(rng.integers(0, rank))
            arrays = [np.flip(a, flipped) for a in arrays]
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


# ---- What arrives --------------------------------------------------------------------------------------


def test_at_random(hosts, seed):
    """Three hosts run transfers in all directions, several at once, with different axes, orders and slots on both
    sides."""
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
            layers = case.source if isinstance(case.source, list) else [case.source]
            size = case.wire_itemsize * sum(a.size // a.shape[case.sent["axis"]] for a in layers)
            assert transfer.result() == size * len(case.blocks)
            case.check()
        for transfer in transfers:
            transfer.result()
    hosts.settle()


@pytest.mark.parametrize(("from_", "to"), [(a, b) for a in (1, 2, 4, 8) for b in (1, 2, 4, 8)])
def test_tensor_parallelism(hosts, from_, to):
    """Heads go from from_ ranks to another number of ranks, with another order of dimensions."""
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


def test_scales_anywhere(hosts):
    """scale and bias may be in memory that the service does not reach, or lists."""
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


def test_memory_is_bounded(hosts):
    """The slots bound the memory, however long a list is."""
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


def test_many_slots(hosts):
    """A receive grants more slots than fit into one message."""
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


def test_by_threads(network, tmad):
    """Stages with threads are used by several threads at once."""
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
    """Two stages and other threads, which copy in chunks and wait, use one client."""
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


def test_others_use_the_agent(hosts):
    """Notifications without the prefix are left to the caller."""
    a, b = hosts.start("a"), hosts.start("b")
    x = hosts.client.empty((2, 8), "u1")
    a.agent.send_notif("b", b"of somebody else")
    hosts.wait(a.send("b", "t", x), b.receive("a", "t", x))
    hosts.until(lambda: b.agent.notifs.get("a") == [b"of somebody else"])


# ---- Parts and pieces ----------------------------------------------------------------------------------


@pytest.mark.parametrize("extent", [1, 2, 6, 8])
def test_shared_parts(extent):
    """Each receiver gets each of its parts once, from a sender that has it; senders with the same part share the
    work."""

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
    """Each block of each layer is in one piece, each piece fits into a slot, and the number of pieces is near the
    least."""
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


# ---- Peers that find each other ------------------------------------------------------------------------


def test_a_ping_moves_nothing(hosts, network):
    """Pings of peers do not count as movement, so an idle stage sleeps as long as without them."""
    a, b = hosts.start("a"), hosts.start("b")
    hosts.until(lambda: not a.progress() and not b.progress())
    b._exchange.tell("a", "ping")
    moved = []
    hosts.until(lambda: moved.append(a.progress()) or (network.step(), not network.messages)[1])
    moved.append(a.progress())
    assert not any(moved)
    x = hosts.client.empty((2, 8), "u1")
    transfer = b.send("a", "t", x)
    hosts.until(lambda: a.stats()["offers"] == 1)
    hosts.wait(transfer, a.receive("b", "t", x))


def test_descriptors_are_bounded(hosts, monkeypatch):
    from tmaclient.nixl import _agent

    monkeypatch.setattr(_agent, "_MOST_DESCRIPTORS", 3)
    a, b = hosts.start("a"), hosts.start("b")
    x, y = (filled(hosts.client, np.random.default_rng(1), (123, 4096), "u1") for _ in range(2))
    hosts.wait(*(transfers := (a.send("b", "t", x), b.receive("a", "t", y))))
    assert [t.result() for t in transfers] == [x.nbytes, x.nbytes] and np.array_equal(x, y)
    assert 0 < len(a._agent._descriptors) <= 3


def test_the_agent_that_a_stage_makes(hosts):
    """The agent has no progress thread, which would poll all the time, and listens only if there is a port."""
    for port, listens in ((None, False), (5600, True)):
        stage = tma.nixl.Stage(hosts.client, "a", port=port, **hosts.options)
        options = stage.agent.options
        assert options["enable_prog_thread"] is False and options.get("enable_listen_thread", False) is listens
        assert options.get("listen_port") == port
        stage.close()


def test_connect(hosts):
    """Metadata of a peer that has no stage yet does not cover its slots; connect() waits for the stage and for them."""
    from nixl._api import nixl_agent

    a, agent = hosts.start("a"), nixl_agent("b")
    a.agent.add_remote_agent(agent.get_agent_metadata())
    connecting = threading.Thread(target=a.connect, args=("b", "host-b", agent.number))
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
    with pytest.raises(tma.NoReplyError, match="'nobody', which host-c port 99 was asked for, within 0.2 s"):
        a.connect("nobody", "host-c", 99, timeout=0.2)


@pytest.fixture
def etcd(monkeypatch):
    monkeypatch.setenv("NIXL_ETCD_ENDPOINTS", "http://host-e:2379")


def meet(hosts, *pairs):
    """Connects the stage of each pair to its peer by etcd, all at once."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        calls = [pool.submit(stage.connect, peer, timeout=4.0) for stage, peer in pairs]
        hosts.until(lambda: all(call.done() for call in calls))
    for call in calls:
        call.result()


def exchange(hosts, a, b):
    """Has both stages send to each other."""
    rng, transfers, arrays = np.random.default_rng(10), [], []
    for sender, receiver in ((a, b), (b, a)):
        arrays.append((filled(hosts.client, rng, (20, 256), "u1"), hosts.client.empty((20, 256), "u1")))
        transfers += sender.send(receiver.name, "t", arrays[-1][0]), receiver.receive(sender.name, "t", arrays[-1][1])
    hosts.wait(*transfers)
    assert [t.result() for t in transfers] == [20 * 256] * 4
    assert all(np.array_equal(x, y) for x, y in arrays)


def test_connect_by_etcd(hosts, etcd):
    """Two stages connect at once: neither waits for the other's metadata before it has sent its own."""
    a, b = hosts.start_unknown("a"), hosts.start_unknown("b")
    meet(hosts, (a, "b"), (b, "a"))
    exchange(hosts, a, b)


@pytest.mark.parametrize("patience_s", [5.0, 0.1])
def test_connect_by_etcd_to_one_that_comes_later(hosts, network, etcd, monkeypatch, patience_s):
    """The peer comes while NIXL waits for its metadata, or after NIXL has given up."""
    from nixl import _api

    monkeypatch.setattr(_api, "ETCD_PATIENCE_S", patience_s)
    a = hosts.start_unknown("a")
    connecting = threading.Thread(target=a.connect, args=("b",))
    connecting.start()
    if patience_s > 1:
        hosts.until(lambda: a.agent.etcd_since)
    else:
        hosts.until(lambda: "a" in network.etcd and not a.agent.etcd_requests)
    assert connecting.is_alive()
    b = hosts.start_unknown("b")
    meet(hosts, (b, "a"))
    hosts.until(lambda: not connecting.is_alive())
    connecting.join()
    exchange(hosts, a, b)


def test_connect_by_etcd_to_another_in_its_place(hosts, etcd):
    """A stage connects to one that replaces another, while etcd still has the metadata of the earlier one."""
    a, b = hosts.start_unknown("a"), hosts.start_unknown("b")
    meet(hosts, (a, "b"), (b, "a"))
    b.agent.end()
    b = hosts.start_unknown("b")
    meet(hosts, (a, "b"), (b, "a"))
    exchange(hosts, a, b)


def test_etcd_is_not_set(hosts, monkeypatch):
    monkeypatch.delenv("NIXL_ETCD_ENDPOINTS", raising=False)
    with pytest.raises(tma.UnsupportedError) as e:
        hosts.start_unknown("a").connect("b")
    assert "peer: NIXL cannot ask etcd (NIXL_ETCD_ENDPOINTS) for the metadata of 'b': NIXL_ERR_INVALID_PARAM" in str(e.value)


def test_etcd_does_not_have_it(hosts, etcd):
    with pytest.raises(tma.NoReplyError, match="peer: no answer from 'b', which etcd was asked for, within 0.3 s"):
        hosts.start_unknown("a").connect("b", timeout=0.3)


# ---- Calls ---------------------------------------------------------------------------------------------


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


def test_callbacks(network, tmad):
    """Callbacks may call the stage, wait for other threads that call it, and close it."""
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


def test_many_callbacks_in_each_other(hosts):
    """Any number of transfers may end at once, and their callbacks may call the stage."""
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


def test_it_is_not_installed():
    """Without the package nixl, the import says what to install, and the rest of tmaclient works."""
    program = (
        "import sys; sys.modules['nixl'] = None\n"
        "import tmaclient\n"
        "try:\n    import tmaclient.nixl\nexcept ImportError as e:\n    print(e)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "tmaclient.nixl needs the package nixl, which is not installed: pip install nixl\n"

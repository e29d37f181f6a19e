# SPDX-License-Identifier: Apache-2.0
"""Tests transfers that fail, over a stand-in for NIXL that loses peers: the errors, and that nothing is left behind."""
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
from nixl_hosts import FAKE, Hosts, filled
from tmad import share

pytestmark = pytest.mark.usefixtures("fake_nixl")


# ---- Sides that do not meet ----------------------------------------------------------------------------


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


# ---- Peers that hang or die ----------------------------------------------------------------------------


def test_a_peer_that_hangs(hosts):
    """The slots of a peer that hangs are not reused until it says that it writes no more; other transfers go on."""
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


def test_a_peer_that_hangs_with_many(hosts):
    """A peer that hangs does not get the last slot, however many transfers it has."""
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


@pytest.mark.parametrize("killed", ["a", "b"])
def test_killed(hosts, seed, killed):
    """A sender or a receiver is killed repeatedly, at random moments. Others go on, delivered data is correct, and the
    slots and the name can be used again."""
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
        for _ in range(int(rng.integers(0, 40)) if i > 0 else 0):  # in round 0, nothing has moved yet
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


# ---- Ended by a side -----------------------------------------------------------------------------------


def test_forget(hosts):
    a, b = hosts.start("a"), hosts.start("b")
    x, y = hosts.client.empty((200, 4096), "u1"), hosts.client.empty((200, 4096), "u1")
    transfers = a.send("b", "t", x), b.receive("a", "t", y)
    hosts.until(lambda: a.stats()["bytes_sent"] > 0)
    b.forget("a")
    a.forget("b")
    hosts.wait(*transfers)  # requests of the transfers may still be under way in tmad
    for transfer in transfers:
        with pytest.raises(tma.DisconnectedError, match="forgotten"):
            transfer.result()
    hosts.settle()


@pytest.mark.parametrize("failure", ["ERR", "the network is down"])
def test_a_write_that_does_not_start(hosts, network, monkeypatch, failure):
    """A write that fails to start may be under way nevertheless: its slot is not reused before the peer is removed."""
    a, b, c = (hosts.start(name, send_slots=2) for name in "abc")
    x, y, z = (filled(hosts.client, np.random.default_rng(1), (200, 4096), "u1") for _ in range(3))
    events, slots, remove = [], a._senders.slots, a.agent.remove_remote_agent
    give, take = slots.give, slots.take
    monkeypatch.setattr(slots, "give", lambda slot: (events.append(("give", slot)), give(slot)))
    monkeypatch.setattr(slots, "take", lambda peer: (slot := take(peer), events.append(("take", slot)))[0])
    monkeypatch.setattr(a.agent, "remove_remote_agent", lambda peer: (events.append(("remove", peer)), remove(peer)))
    network.failures.append(failure)
    transfers = a.send("b", "t", x), b.receive("a", "t", y)
    hosts.wait(transfers[0])
    told = "the write failed" if failure == "ERR" else failure
    with pytest.raises(tma.DisconnectedError, match=f"peer 'b' is gone \\({told}\\)"):
        transfers[0].result()
    removed = events.index(("remove", "b"))
    first = events[0][1]
    assert ("give", first) in events[removed:] and ("give", first) not in events[:removed]
    beside = a.send("c", "t", x), c.receive("a", "t", z)
    hosts.wait(*beside)
    assert np.array_equal(x, z)
    b.forget("a")
    hosts.wait(transfers[1])
    with pytest.raises(tma.DisconnectedError, match="forgotten"):
        transfers[1].result()
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


def test_the_end_of_what_was_canceled(hosts, monkeypatch):
    """concurrent.futures.wait() waits for a canceled transfer as long as its arrays are in use."""
    a, b = hosts.start("a"), hosts.start("b")
    x = hosts.client.empty((200, 4096), "u1")
    sent, received = a.send("b", "t", x), b.receive("a", "t", x)
    with monkeypatch.context() as patch:
        patch.setattr(b._exchange, "step", lambda now: False)  # the stage does not learn that a scatter has ended
        hosts.until(lambda: next(iter(b._receivers)).n_scatters > 0)
        assert received.cancel()
        hosts.wait(sent)
        assert not concurrent.futures.wait([received], 0).done
    hosts.settle()
    assert concurrent.futures.wait([received], 0).done


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


def test_close_under_a_write(hosts, monkeypatch):
    """close() keeps memory that a peer may still write to, and frees other memory."""
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
    """All futures end, and tmad does not use their arrays any more when they have."""
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


def test_it_is_not_closed(tmad):
    """A process that ends without close() stops the thread first, which may be in NIXL."""
    program = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(stage._thread.is_alive()))\n"  # this runs after the stage's own function
        f"sys.path.insert(0, {FAKE!r})\n"
        "import tmaclient as tma, tmaclient.nixl\n"
        "stage = tma.nixl.Stage(tma.connect(sys.argv[1]), 'a')\n"
    )
    done = subprocess.run([sys.executable, "-c", program, tmad.path], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_fork(network, tmad):
    """A forked child does not affect the connections that it shares with its parent, not even when it ends."""
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


# ---- tmad ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["send", "receive"])
def test_one_that_cannot_begin(hosts, monkeypatch, verb):
    """A transfer that cannot begin leaves nothing behind."""
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


@pytest.mark.parametrize("side", ["a", "b"])
def test_one_that_cannot_be_run(hosts, monkeypatch, side):
    """A transfer whose requests cannot be run fails on both sides, whatever is raised, and others do not."""
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


def test_tmad_restarts(network, own):
    """The requests of a transfer are submitted again after tmad has restarted."""
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


# ---- Peers that speak otherwise ------------------------------------------------------------------------


def test_messages_of_anybody(hosts, seed):
    """No message of a peer harms the transfers of others, or the slots of this stage."""
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


def test_a_message_that_cannot_be_taken(hosts, monkeypatch):
    """The sender of such a message is dropped, and no other peer."""
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


def test_many_offers(hosts):
    """A peer that makes too many offers is refused, and other peers are not."""
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
    """Offers are not kept if they are huge, repeated, from unknown peers beyond the limit, or from an earlier stage."""
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


def test_names_without_end(hosts):
    """Of peers without metadata, only a bounded number of offers is kept."""
    from nixl._api import nixl_agent
    from tmaclient.nixl._messages import encode

    b, known = hosts.start("b"), {"dtype": "uint8", "shape": [1], "layers": 1, "blocks": 1, "slot_bytes": 4096}
    for i in range(50):
        agent = nixl_agent(f"nobody {i}")
        agent.add_remote_agent(b.metadata())
        agent.send_notif("b", encode("offer", i, id=1, tag="t", **known))
    hosts.until(lambda: b.stats()["offers"] == 50)
    assert not b._receivers._stages and not b._peers

# SPDX-License-Identifier: Apache-2.0
"""Tests transfers of arrays in device memory between hosts, through slots in device memory or host memory, on the
stand-in driver and over the stand-in for NIXL."""
import ctypes
import os
import time

import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
import softgpu
from nixl_hosts import Hosts
from softgpu import Array, Stream
from tmad import share

softgpu.require()

SLOT_BYTES, N_SLOTS = 16 << 10, 4
N, SHAPE = 3, (40, 6, 32)  # number of layers, and extents of each: blocks, heads and elements
VALUES = np.arange(N * 40 * 6 * 32, dtype="f4").reshape(N, *SHAPE)
BLOCKS, PLACES = [9, 0, 39, 9, *range(10, 30)], [1, 39, 2, 0, *range(35, 15, -1)]


@pytest.fixture(scope="module")
def tmad(gpus):
    return gpus


@pytest.fixture
def hosts(hosts):
    hosts.options.update(slot_bytes=SLOT_BYTES, send_slots=N_SLOTS // 2, receive_slots=N_SLOTS // 2)
    return hosts


@pytest.fixture
def other_client(gpus):
    with tma.connect(gpus.path, direct=False) as client:
        yield client


@pytest.fixture
def place(hosts, devices):
    """Returns a function that makes memory for slots: None for "host", or memory of device "0" or "1"."""
    size = N_SLOTS * SLOT_BYTES
    return lambda where: None if where == "host" else devices[int(where)].allocate(size, int(where) * 4096)


def after(values, sent=VALUES):
    """Returns the expected contents of arrays with these values after the blocks have been received."""
    result = values.copy()
    result[:, PLACES] = sent[:, BLOCKS]
    return result


def are(device, arrays, expected):
    return all(np.array_equal(device.get(a), e) for a, e in zip(arrays, expected, strict=True))


# ---- What arrives ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["host", "0", "1"])
@pytest.mark.parametrize("from_", ["host", "0", "1"])
def test_slots(hosts, devices, place, from_, to):
    """Slots on either side are in host memory or on either device, with arrays on both devices."""
    a, b = hosts.start("a", memory=place(from_)), hosts.start("b", memory=place(to))
    for stage, where in ((a, from_), (b, to)):
        kind = ("DRAM", 0) if where == "host" else ("VRAM", int(where))
        assert [tuple(rest) for _, _, *rest in stage.agent.registered] == [kind]
    here, there = devices
    source, into = [here.array(v) for v in VALUES], [there.array(np.zeros_like(v)) for v in VALUES]
    for i in range(share(20)):
        transfers = a.send("b", f"{i}", source, BLOCKS), b.receive("a", f"{i}", into, PLACES)
        hosts.wait(*transfers)
        assert [t.result() for t in transfers] == [N * len(BLOCKS) * 6 * 32 * 4] * 2
    assert are(there, into, after(np.zeros_like(VALUES)))
    assert are(here, source, VALUES)
    back = a.receive("b", "back", source, BLOCKS[4:]), b.send("a", "back", into, PLACES[:20])
    hosts.wait(*back)
    expected = VALUES.copy()
    expected[:, BLOCKS[4:]] = after(np.zeros_like(VALUES))[:, PLACES[:20]]
    assert [t.exception() for t in back] == [None, None] and are(here, source, expected)
    hosts.settle()


@pytest.mark.parametrize("slots", ["host", "1"])
def test_host_memory_on_one_side(hosts, devices, place, slots):
    a, b = hosts.start("a", memory=place(slots)), hosts.start("b", memory=place(slots))
    on_host, on_device = [], [devices[0].array(np.zeros_like(v)) for v in VALUES]
    for v in VALUES:
        on_host.append(hosts.client.empty(v.shape, v.dtype))
        on_host[-1][...] = v
    transfers = [a.send("b", "t", on_host, BLOCKS), b.receive("a", "t", on_device, PLACES)]
    hosts.wait(*transfers)
    assert are(devices[0], on_device, after(np.zeros_like(VALUES)))
    transfers += [b.send("a", "u", on_device), a.receive("b", "u", on_host)]
    hosts.wait(*transfers)
    assert np.array_equal(on_host, after(np.zeros_like(VALUES)))
    assert [t.exception() for t in transfers] == [None] * 4
    hosts.settle()


@pytest.mark.parametrize("slots", ["host", "0"])
def test_layers_on_several_devices(hosts, devices, place, slots):
    a, b = hosts.start("a", memory=place(slots)), hosts.start("b", memory=place(slots))
    source = [devices[i % 2].array(v) for i, v in enumerate(VALUES)]
    into = [devices[1 - i % 2].array(np.zeros_like(v)) for i, v in enumerate(VALUES)]
    transfers = a.send("b", "t", source, BLOCKS), b.receive("a", "t", into, PLACES)
    hosts.wait(*transfers)
    assert [t.exception() for t in transfers] == [None, None]
    expected = after(np.zeros_like(VALUES))
    assert all(are(devices[1 - i % 2], into[i : i + 1], expected[i : i + 1]) for i in range(N))


@pytest.mark.parametrize(("senders", "receivers"), [(1, 2), (2, 1), (2, 3), (3, 2)])
def test_tensor_parallelism(hosts, devices, place, senders, receivers):
    """Heads go between ranks on both devices, with another order of dimensions on the other side."""
    a, b = hosts.start("a", memory=place("0")), hosts.start("b", memory=place("1"))
    old = [[devices[i % 2].array(p) for p in v] for i, v in enumerate(np.split(VALUES, senders, 2))]
    new = []
    for i in range(receivers):
        empty = np.zeros((40, 6 // receivers, 32), "f4").transpose(1, 0, 2).copy()
        new.append([devices[i % 2].array(empty) for _ in range(N)])
    transfers = []
    for i, j, here, there in tma.nixl.shared_parts(6, senders, receivers):
        source = [_part(x, (slice(None), here)) for x in old[i]]
        into = [_part(x, (there,)) for x in new[j]]
        transfers.append(a.send("b", f"{i} {j}", source, BLOCKS, permute=(1, 0, 2)))
        transfers.append(b.receive("a", f"{i} {j}", into, PLACES, axis=1))
    hosts.wait(*transfers)
    assert [t.exception() for t in transfers] == [None] * len(transfers)
    expected = np.split(after(np.zeros_like(VALUES)).transpose(0, 2, 1, 3), receivers, 1)
    assert all(are(devices[i % 2], new[i], expected[i]) for i in range(receivers))
    hosts.settle()


def _part(array, index):
    view = np.empty(array.shape, array.dtype)
    part = view[index]
    at = part.__array_interface__["data"][0] - view.__array_interface__["data"][0]
    return Array(array.address + at, part.shape, array.dtype, array.stream, strides=part.strides)


@pytest.mark.parametrize("side", ["sender", "receiver"])
@pytest.mark.parametrize("slots", ["host", "1"])
def test_conversions(hosts, devices, place, slots, side):
    a, b = hosts.start("a", memory=place(slots)), hosts.start("b", memory=place(slots))
    scale = devices[0].array(np.array([0.5] * 16 + [2.0] * 16, "f4"))
    here = {"dtype": "f2", "scale": scale} if side == "sender" else {}
    there = {"cast": "saturate", "scale": scale} if side == "receiver" else {}
    source, into = [devices[0].array(v) for v in VALUES], [devices[0].array(np.zeros(SHAPE, "f2")) for _ in VALUES]
    transfers = a.send("b", "t", source, BLOCKS, **here), b.receive("a", "t", into, PLACES, **there)
    hosts.wait(*transfers)
    assert [t.exception() for t in transfers] == [None, None]
    expected = after(np.zeros((N, *SHAPE), "f2"), np.minimum(VALUES * scale.get(), 65504).astype("f2"))
    assert are(devices[0], into, expected)


def test_with_threads(network, gpus, devices, place):
    """Stages that each have a client and a thread transfer between the devices."""
    with tma.connect(gpus.path, direct=False) as one, tma.connect(gpus.path, direct=False) as other:
        hosts = Hosts(one, slot_bytes=SLOT_BYTES, send_slots=2, receive_slots=2, thread=True)
        a = hosts.start("a", memory=place("1"))
        hosts.client = other
        b = hosts.start("b", memory=place("0"))
        transfers = []
        for i in range(share(100)):
            source, into = [devices[i % 2].array(v) for v in VALUES], devices[1].array(np.zeros_like(VALUES))
            layers = [Array(into.address + i * VALUES[0].nbytes, SHAPE, "f4", into.stream) for i in range(N)]
            transfers.append((a.send("b", f"{i}", source, BLOCKS), b.receive("a", f"{i}", layers, PLACES), into))
        for sent, received, into in transfers:
            assert sent.result(20) == received.result(20)
            assert np.array_equal(devices[1].get(into), after(np.zeros_like(VALUES)))
        hosts.close()


# ---- Streams ---------------------------------------------------------------------------------------------


class Held:
    """A stream of the first device that can be held up until the test releases it."""

    def __init__(self, client):
        softgpu.enter()
        self.client, self.stream, self.timeline = client, Stream(), client.timeline()

    def hold(self):
        self.timeline.wait(1, stream=self.stream.handle)

    def go_on(self):
        if self.timeline.value < 1:
            self.timeline.signal(1)

    def close(self):
        self.go_on()
        softgpu.enter()
        self.stream.wait_all()
        self.stream.close()


@pytest.fixture
def held(gpus, devices):
    with tma.connect(gpus.path, direct=False) as client:
        made = Held(client)
        yield made
        made.close()


def step_on(hosts, seconds=0.2):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        hosts.step()


@pytest.mark.parametrize("slots", ["host", "0"])
def test_a_send_follows_its_stream(hosts, devices, place, held, slots):
    """A send has the values that a request queued earlier in the stream of its array writes."""
    a, b = hosts.start("a", memory=place(slots)), hosts.start("b", memory=place(slots))
    d = devices[0]
    first, into = d.array(VALUES[0]), d.array(np.zeros_like(VALUES[0]))
    array = d.array(np.zeros_like(VALUES[0]), held.stream)
    held.hold()
    held.client.copy(first, out=array)
    transfers = b.receive("a", "t", into), a.send("b", "t", array)
    step_on(hosts)
    assert not transfers[1].done() and a.stats()["bytes_sent"] == 0
    held.go_on()
    hosts.wait(*transfers)
    assert np.array_equal(d.get(into), VALUES[0])


@pytest.mark.parametrize("slots", ["host", "0"])
def test_a_receive_follows_its_stream(hosts, devices, place, held, slots):
    """A request queued earlier in the stream of the receive's array still reads the previous values."""
    a, b = hosts.start("a", memory=place(slots)), hosts.start("b", memory=place(slots))
    d = devices[0]
    array, copy = d.array(VALUES[0]), d.array(np.zeros_like(VALUES[0]))
    into = d.array(VALUES[1], held.stream)
    held.hold()
    held.client.copy(into, out=copy)
    transfers = b.receive("a", "t", into), a.send("b", "t", array)
    step_on(hosts)
    assert not transfers[0].done()
    assert np.array_equal(np.frombuffer((ctypes.c_char * VALUES[1].nbytes).from_address(into.address), "f4"),
                          VALUES[1].ravel())
    held.go_on()
    hosts.wait(*transfers)
    assert np.array_equal(d.get(into), VALUES[0])
    held.client.synchronize()
    assert np.array_equal(d.get(copy), VALUES[1])


def test_operands_follow_their_stream(hosts, devices, held):
    """A transfer waits for a scale that a request queued in the stream of the scale still has to write."""
    a, b = hosts.start("a"), hosts.start("b")
    d = devices[0]
    source, into = [d.array(v) for v in VALUES], [d.array(np.zeros_like(v)) for v in VALUES]
    two, scale = d.array(np.array([2], "f4")), d.array(np.array([1], "f4"), held.stream)
    held.hold()
    held.client.copy(two, out=scale)
    transfers = a.send("b", "t", source, BLOCKS, scale=scale), b.receive("a", "t", into, PLACES)
    step_on(hosts)
    assert not transfers[0].done()
    held.go_on()
    hosts.wait(*transfers)
    assert [t.exception() for t in transfers] == [None, None]
    assert are(d, into, after(np.zeros_like(VALUES), VALUES * 2))


def test_a_stream_that_does_not_go_on(hosts, devices, held):
    """Transfers of a stream that hangs time out and end; those of other streams go on."""
    a, b = hosts.start("a"), hosts.start("b")
    d = devices[0]
    array, into = d.array(VALUES[0]), d.array(np.zeros_like(VALUES[0]))
    stuck = d.array(np.zeros_like(VALUES[0]), held.stream)
    held.hold()
    transfers = a.send("b", "t", stuck, timeout=0.3), b.receive("a", "u", stuck, timeout=0.3)
    told = a.send("b", "u", array)
    beside = a.send("b", "v", array), b.receive("a", "v", into)
    hosts.wait(*transfers, told, *beside)
    for transfer, verb in zip(transfers, ("send 't'", "receive 'u'"), strict=True):
        with pytest.raises(tma.NoReplyError, match=f"^{verb}, peer .*the stream of its arrays has work before it"):
            transfer.result()
    with pytest.raises(tma.NoReplyError, match="^b: receive 'u'"):
        told.result()
    assert [t.exception() for t in beside] == [None, None] and np.array_equal(d.get(into), VALUES[0])
    assert a.stats()["sends"] == 0 and b.stats()["receives"] == 0
    again = a.send("b", "w", stuck), b.receive("a", "w", into, timeout=0.3)
    a.close()
    del hosts.stages["a"]
    with pytest.raises(tma.CanceledError, match="closed"):
        again[0].result(0)
    hosts.wait(again[1])
    with pytest.raises(tma.NoReplyError, match="no offer has come"):
        again[1].result()
    hosts.settle()


# ---- Devices that are lost -------------------------------------------------------------------------------


def lose_device(path, device):
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(f"{device} 719\n")
    os.rename(path + ".new", path)


@pytest.mark.parametrize("slots", ["host", "1"])
def test_a_lost_device(hosts, devices, place, lose, slots, request):
    """Transfers of arrays on a lost device fail, others go on, and the device is used again when it is back."""
    a, b = hosts.start("a", memory=place(slots)), hosts.start("b", memory=place(slots))
    hosts.client = request.getfixturevalue("other_client")
    c, d = hosts.start("c"), hosts.start("d")
    here, there = devices
    source, into = [there.array(v) for v in VALUES], [there.array(np.zeros_like(v)) for v in VALUES]
    other, beside = [here.array(v) for v in VALUES], [here.array(np.zeros_like(v)) for v in VALUES]
    n_failed = 0
    for i in range(share(30)):
        lose_device(lose, 1)
        while os.path.exists(lose) or n_failed == 0:
            if not os.path.exists(lose):  # the device was lost between two transfers
                lose_device(lose, 1)
            transfers = a.send("b", f"{i}", source, BLOCKS), b.receive("a", f"{i}", into, PLACES)
            others = c.send("d", f"{i}", other, BLOCKS), d.receive("c", f"{i}", beside, PLACES)
            hosts.wait(*transfers, *others)
            assert [t.exception() for t in others] == [None, None]
            errors = [t.exception() for t in transfers]
            if any(errors):
                assert all(isinstance(e, tma.DeviceLostError) for e in errors), errors
                n_failed += 1
        hosts.settle()
    assert are(here, beside, after(np.zeros_like(VALUES)))

    def is_back():
        transfers = a.send("b", "back", source, BLOCKS), b.receive("a", "back", into, PLACES)
        hosts.wait(*transfers)
        return not any(t.exception() for t in transfers)

    hosts.until(is_back)
    hosts.settle()
    assert n_failed and are(there, into, after(np.zeros_like(VALUES)))

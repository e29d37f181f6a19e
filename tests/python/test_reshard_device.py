# SPDX-License-Identifier: Apache-2.0
"""Tests reshard on several devices and in host memory, in the streams of each device, on the stand-in driver."""
import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
import softgpu

softgpu.require()

WHOLE = np.arange(64 * 96, dtype="u4").reshape(64, 96)
HALVES = np.split(WHOLE, 2)
QUARTERS = np.split(WHOLE, 4, 1)


@pytest.fixture(scope="module")
def tmad(gpus):
    return gpus


@pytest.fixture
def devices(devices):
    """Devices whose arrays are in one allocation each."""
    for device in devices:
        device.arrays_per_span = 8
    return devices


def test_on_one_device(c, devices):
    """The move runs in the device's stream, after the work that is queued there and before later work."""
    d = devices[0]
    old, new = [d.array(h) for h in HALVES], [d.array(np.zeros_like(q)) for q in QUARTERS]
    c.reshard(tma.shards(new, 1), tma.shards(old))
    assert all(np.array_equal(d.get(a), q) for a, q in zip(new, QUARTERS, strict=True))
    c.synchronize()
    with pytest.raises(ValueError, match="ordered by its stream"):
        c.reshard(tma.shards(new, 1), tma.shards(old), wait=c.timeline().point(1))


def test_on_several(c, devices):
    """The ranks are on two devices; the call waits for the streams of both, and for its own end."""
    old = [d.array(h) for d, h in zip(devices, HALVES, strict=True)]
    new = [devices[i % 2].array(np.zeros_like(q)) for i, q in enumerate(QUARTERS)]
    for _ in range(3):
        c.reshard(tma.shards(new, 1), tma.shards(old))
        assert c.last_result()["pieces"] == 8
        for i, q in enumerate(QUARTERS):
            assert np.array_equal(devices[i % 2].get(new[i]), q)
            new[i].put(np.zeros_like(q))
    with pytest.raises(tma.OutOfRangeError):
        c.reshard(tma.shards(new, 1), tma.shards(old[:1]))


@pytest.mark.parametrize("is_shared", [True, False])
def test_with_host_memory(c, devices, is_shared):
    """Arrays are moved from the host to both devices, and back."""
    def on_host(values):
        array = c.empty(values.shape, values.dtype) if is_shared else np.empty_like(values)
        array[...] = values
        return array

    old, back = [on_host(h) for h in HALVES], [on_host(np.zeros_like(h)) for h in HALVES]
    new = [devices[i % 2].array(np.zeros_like(q)) for i, q in enumerate(QUARTERS)]
    c.reshard(tma.shards(new, 1), tma.shards(old))
    c.reshard(tma.shards(back), tma.shards(new, 1))
    assert np.array_equal(np.concatenate(back), WHOLE)
    c.reshard(tma.shards(back), tma.shards(old))
    one = [devices[1].array(np.zeros_like(h)) for h in HALVES]
    c.reshard(tma.shards(one), tma.shards(old))
    assert all(np.array_equal(devices[1].get(a), h) for a, h in zip(one, HALVES, strict=True))


def test_asyncio(gpus, devices):
    import asyncio

    async def run():
        async with tma.aio.connect(gpus.path) as c:
            old = [d.array(h) for d, h in zip(devices, HALVES, strict=True)]
            new = [devices[i % 2].array(np.zeros_like(q)) for i, q in enumerate(QUARTERS)]
            await asyncio.gather(*(c.reshard(tma.shards(new, 1), tma.shards(old)) for _ in range(3)))
            timeline = await c.timeline()
            timeline.signal(1)
            await c.reshard(tma.shards(new, 1), tma.shards(old), wait=timeline.point(1), signal=timeline.point(2))
            assert timeline.value == 2
            for i, q in enumerate(QUARTERS):
                assert np.array_equal(devices[i % 2].get(new[i]), q)

    asyncio.run(run())

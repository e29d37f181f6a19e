# SPDX-License-Identifier: Apache-2.0
"""Tests layers in the memory of one or two devices, and of devices and the host, on the stand-in driver."""
import asyncio

import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
import softgpu
from tmad import share


softgpu.require()

N, SHAPE, INDEX = 4, (16, 8, 4), [9, 0, 15]
VALUES = np.arange(N * 512, dtype="f4").reshape(N, *SHAPE)
TAKEN = np.stack([a[INDEX].transpose(2, 0, 1) for a in VALUES])  # the expected result, permuted


@pytest.fixture(scope="module")
def tmad(gpus):
    return gpus


def test_default_streams_are_each_device_s(devices):
    """Default streams of different devices are told apart, although the interface numbers them all 1."""
    arrays = [device.array(VALUES[0]) for device in devices]
    for array in arrays:
        array.stream = None
    adapted = [tma._arrays.adapt(array, "src") for array in arrays]
    assert [a.tensor.device for a in adapted] == [(2, i) for i in range(len(devices))]
    assert list(tma._jobs.streams_of(adapted)) == [(1, i) for i in range(len(devices))]


def test_between_allocations(c, devices):
    device = devices[0]
    layers = [device.array(a) for a in VALUES]
    out, outs = device.array(np.zeros_like(TAKEN)), [device.array(np.zeros_like(a)) for a in TAKEN]
    for _ in range(share(20)):
        assert c.gather(layers, INDEX, permute=(2, 0, 1), out=out) is out
        c.gather(layers, INDEX, permute=(2, 0, 1), out=outs)
    assert np.array_equal(device.get(out), TAKEN)
    assert all(np.array_equal(device.get(o), t) for o, t in zip(outs, TAKEN))
    listed = device.array(np.array([1, -1, 2], "i4"))
    c.scatter(layers, listed, out, permute=(1, 2, 0), synchronous=True)
    for i, layer in enumerate(layers):
        after = VALUES[i].copy()
        after[[1, 2]] = VALUES[i][[9, 15]]
        assert np.array_equal(device.get(layer), after), i


def test_pairs(c, devices):
    device = devices[0]
    layers, others = [device.array(a) for a in VALUES], [device.array(-a) for a in VALUES]
    c.gather_scatter(layers, others, device.array(np.array([(0, 1), (-1, 2), (3, 5)], "i4")), synchronous=True)
    c.gather_scatter(layers, layers, [(9, 0), (9, 15)], synchronous=True)
    for layer, value in zip(layers, VALUES):
        after = value.copy()
        after[[1, 5]] = -value[[0, 3]]
        after[[0, 15]] = value[[9, 9]]
        assert np.array_equal(device.get(layer), after)


def test_conversions(c, devices):
    device = devices[0]
    layers = [device.array(a) for a in VALUES]
    out, scale = device.array(np.zeros_like(TAKEN, "f2")), device.array(np.array([2], "f4"))
    c.gather(layers, INDEX, permute=(2, 0, 1), out=out, cast="saturate", scale=scale, bias=0.5, synchronous=True)
    assert np.array_equal(device.get(out), (TAKEN * 2 + 0.5).astype("f2"))


@pytest.mark.parametrize("is_shared", [True, False])
def test_from_and_to_host_memory(c, devices, is_shared):
    device = devices[0]
    layers, outs = [device.array(a) for a in VALUES], []
    for a in TAKEN:
        outs.append(c.empty(a.shape, "f4") if is_shared else np.zeros_like(a))
    c.gather(layers, INDEX, permute=(2, 0, 1), out=outs)
    assert np.array_equal(outs, TAKEN), "the call waits"
    c.scatter(layers, [3, 4, 5], [-o for o in outs] if not is_shared else outs, permute=(1, 2, 0))
    for i, layer in enumerate(layers):
        assert np.array_equal(device.get(layer)[3:6], VALUES[i][INDEX] * (1 if is_shared else -1))
    with pytest.raises(ValueError, match=r"src\[1\]: host memory; src\[0\] is device memory"):
        c.gather([layers[0], VALUES[1]], INDEX)
    with pytest.raises(TypeError, match="pass out="):
        c.gather(layers, INDEX)


def test_on_two_devices(c, devices):
    layers = [devices[i % 2].array(a) for i, a in enumerate(VALUES)]
    out, outs = devices[1].array(np.zeros_like(TAKEN)), [devices[i % 2].array(np.zeros_like(a)) for i, a in enumerate(TAKEN)]
    c.gather(layers, INDEX, permute=(2, 0, 1), out=outs)
    assert all(np.array_equal(devices[i % 2].get(o), t) for i, (o, t) in enumerate(zip(outs, TAKEN)))
    c.gather(layers, INDEX, permute=(2, 0, 1), out=out)
    assert np.array_equal(devices[1].get(out), TAKEN)


def test_in_a_loop(gpus, devices):
    async def main():
        async with tma.aio.connect(gpus.path) as c:
            layers, out = [devices[0].array(a) for a in VALUES], devices[0].array(np.zeros_like(TAKEN))
            await c.gather(layers, INDEX, permute=(2, 0, 1), out=out)
            assert np.array_equal(devices[0].get(out), TAKEN)
            outs = [devices[i % 2].array(np.zeros_like(a)) for i, a in enumerate(TAKEN)]
            await c.gather(layers, INDEX, permute=(2, 0, 1), out=outs)
            assert all(np.array_equal(devices[i % 2].get(o), t) for i, (o, t) in enumerate(zip(outs, TAKEN)))
            own = [np.zeros_like(a) for a in TAKEN]
            await c.gather(layers, INDEX, permute=(2, 0, 1), out=own)
            assert np.array_equal(own, TAKEN)

    asyncio.run(main())

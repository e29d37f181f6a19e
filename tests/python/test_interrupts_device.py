# SPDX-License-Identifier: Apache-2.0
"""Tests signals whose handlers raise, in calls on device memory: they must not break the order of streams."""
import contextlib
import gc

import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
import softgpu
from softgpu import MIB, Array, Span, Stream
from test_interrupts import Signals, is_within, left
from tmad import share, wait_until

softgpu.require()

X = np.arange(512 * 256, dtype="u4").reshape(512, 256)
KINDS = ["between", "from the host", "to the host", "synchronous", "layers", "point"]


@pytest.fixture(scope="module", autouse=True)
def stand_in():
    softgpu.driver()


@pytest.fixture(scope="module")
def tmad(gpus):
    return gpus


def calls(c, src, dst, host, timeline, stream):
    def point():
        value = timeline.value + 1
        timeline.signal(value, stream=stream.handle)
        timeline.wait(value, stream=stream.handle)

    return {
        "between": lambda: c.transpose(src, out=dst),
        "from the host": lambda: c.transpose(X, out=dst),
        "to the host": lambda: c.transpose(src, out=host),
        "synchronous": lambda: c.transpose(src, out=dst, synchronous=True),
        "layers": lambda: c.gather([src], [1, 2, 3], out=host.reshape(1, *host.shape)[:, :3, :256]),
        "point": point,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_handlers_that_raise(c, seed, kind):
    span, stream = Span(4, room=8), Stream()
    src, dst = Array(span.start + 64, X.shape, "u4", stream), Array(span.start + 2 * MIB, X.T.shape, "u4", stream)
    src.put(X)
    call = calls(c, src, dst, np.empty(X.T.shape, "u4"), c.timeline(), stream)[kind]
    with Signals(f"{seed} {kind}") as signals:
        call()
        c.synchronize()
        signals.measure(call)
        gc.collect()
        held, n_running, n = left(), 0, share(500)
        while n_running < n:
            n_running += signals.interrupt(call)
            # The signal may have closed the connection of the request that is in the stream.
            with contextlib.suppress(tma.NoReplyError):
                c.synchronize()
        assert not signals.unraisable
    c.synchronize()
    stream.wait_all()
    src.put(X + 1)
    c.transpose(src, out=dst)
    stream.wait_all()
    assert np.array_equal(dst.get(), X.T + 1)
    gc.collect()
    wait_until(lambda: is_within(left(), held, 1), f"{left()} is {held}")
    stream.close()
    softgpu.enter()
    span.free()

# SPDX-License-Identifier: Apache-2.0
"""Tests that many calls, failing ones included, leak nothing in this process or in the service."""
import gc
import mmap
import os
import sys

import pytest

np = pytest.importorskip("numpy")

import tmaclient as tma
from tmad import NATIVE, share, wait_until

MIB = 1 << 20


def fails(kind, call):
    def run():
        try:
            call()
        except kind:
            return
        raise AssertionError("it did not fail")

    return run


def kinds(c):
    """Returns calls of every kind, by name."""
    shared, out, ordinary = c.empty((8, 8), "f4"), c.empty((8, 8), "f4"), np.zeros((8, 8), "f4")
    plan, timeline, t = c.plan(shared, out=out), c.timeline(), tma.Tensor(shared)
    released = c.plan(shared)
    released.release()
    factors, halves = c.empty(8, "f4"), c.empty((8, 8), "f2")
    factors[...] = 0.5
    converting = c.plan(shared, dtype="f2", scale=factors, bias=1)

    scale, fp8 = c.empty((8, 4), "f4"), tma.Tensor(c.empty((8, 8), "u1"), "float8_e4m3fn")
    layers = [shared] * 2
    stacked = c.empty((2, 2, *shared.shape[1:]), shared.dtype)
    part = tma.Tensor(shared)
    amax = tma.Amax((1, 2), scale, scale.copy())
    scaling = c.plan(shared, dtype="f2", amax=amax)

    def batch():
        with c.batch() as b:
            b.copy(shared, out=out)
            b.copy(ordinary)
            b.copy(shared, out=halves, dtype="f2", bias=factors)
            b.run_plan(converting, shared, halves)
            b.quantize(shared, (1, 2), out=fp8, scale_out=scale)

    def submit():
        request = tma._core.Request.transform(tma.Tensor(out), t, None, None, None, "constant", 0)
        c._core.wait(c._core.submit(request, object()))
        c._core.submit(request, object())
        c._core.forget(c._core.submit(request, object()))
        c.ping()
        c._core.completed()

    class Wrong:
        __cuda_array_interface__ = {"shape": (2,), "typestr": "<f4", "data": (0, False)}

    return {
        "copy": lambda: c.copy(shared, out=out), "staged": lambda: c.transpose(ordinary), "pad": lambda: c.pad(shared, 1),
        "plan": lambda: plan(shared, out), "staged plan": lambda: plan(ordinary), "prepare": lambda: c.plan(ordinary),
        "gather": lambda: c.gather(shared, [1, 2], out=out[:2]), "staged gather": lambda: c.gather(ordinary, [1]),
        "layers": lambda: c.gather(layers, [1, 2], out=stacked), "staged layers": lambda: c.gather([ordinary] * 2, [1]),
        "wrong layers": fails(ValueError, lambda: c.gather([shared, ordinary[:1]], [0])),
        "wrong request of layers": fails(ValueError, lambda: tma._core.Request.blocks(
            False, part, part, None, part, part, part, False, 1, 1, 1, 1, "exact", None, None, (part,), (part, part))),
        "scatter": lambda: c.scatter(out, [3], shared[:1]), "pairs": lambda: c.gather_scatter(out, shared, [(1, 3)]),
        "wrong pairs": fails(tma.OverlapError, lambda: c.gather_scatter(out, out, [(1, 0), (0, 2)])),
        "batch": batch, "submit": submit,
        "convert": lambda: c.copy(shared, out=halves, dtype="f2", scale=factors, bias=-1),
        "staged convert": lambda: c.transpose(ordinary, dtype="u1", scale=np.ones(8), bias=factors),
        "converting plan": lambda: converting(shared, halves), "staged converting plan": lambda: converting(ordinary),
        "converting gather": lambda: c.gather(shared, [1, 2], out=halves[:2], cast="exact", scale=factors),
        "quantize": lambda: c.quantize(shared, (1, 2), out=fp8, scale_out=scale),
        "staged quantize": lambda: c.quantize(ordinary, 3, dtype="f2", inverse=True),
        "scaling plan": lambda: scaling(shared, halves), "scaled by amax": lambda: c.copy(shared, dtype="f2", amax=amax),
        "wrong block": fails(ValueError, lambda: c.quantize(shared, 0)),
        "wrong scale_out": fails(ValueError, lambda: c.quantize(shared, out=fp8, scale_out=scale)),
        "wrong amax of a plan": fails(ValueError, lambda: scaling(shared, halves, amax=amax._replace(inverse=None))),
        "quantized integers": fails(ValueError, lambda: c.quantize(shared.view("i4"), out=fp8)),
        "inexact": fails(tma.OutOfRangeError, lambda: c.copy(factors, dtype="u1", cast="exact", scale=factors[:1])),
        "wrong scale": fails(ValueError, lambda: c.copy(shared, scale=factors[:3])),
        "complex scale": fails(TypeError, lambda: c.copy(shared, scale=factors, bias=1j)),
        "wrong scale of a plan": fails(ValueError, lambda: converting(shared, halves, scale=factors[:1])),
        "empty": lambda: c.empty(4), "timeline": c.timeline, "signal": lambda: c.copy(shared, out=out, signal=timeline.point(1)),
        "explain": lambda: c.explain(shared), "picture": lambda: c.explain(shared)._repr_svg_(), "info": c.info,
        "stats": c.stats, "regions": c.regions, "last_result": c.last_result, "buffer": lambda: memoryview(t).tobytes(),
        "dlpack": lambda: tma.Tensor(np.from_dlpack(t)), "capsule": lambda: (t.__dlpack__(), t.__dlpack__(max_version=(1, 0))),
        "part": lambda: t.part(0, (2,), (1,)), "bytes": lambda: c.copy(b"abcd"), "repr": lambda: (repr(t), repr(plan)),
        "wrong axes": fails(ValueError, lambda: c.transpose(shared, (0, 0))),
        "wrong out": fails(ValueError, lambda: c.copy(shared, out=out[:2])),
        "wrong array": fails(TypeError, lambda: c.copy([1])), "wrong device": fails(ValueError, lambda: c.copy(Wrong())),
        "overlap": fails(tma.OverlapError, lambda: c.copy(out[:4], out=out[2:6])),
        "overlap in a batch": fails(tma.OverlapError, lambda: c._core.run(tma._core.Request.items([
            tma._core.Request.transform(tma.Tensor(out[2:6]), tma.Tensor(out[:4]), None, None, None, "constant", 0)]))),
        "wrong plan": fails(ValueError, lambda: plan(shared.T, out)),
        "released plan": fails(ValueError, lambda: released(shared, out)),
        "wrong index": fails(tma.OutOfRangeError, lambda: c.gather(shared, [9])),
        "wrong value": fails(tma.Error, lambda: c.pad(np.zeros(2, "u1"), 1, "constant", 1j)),
        "wrong order": fails(TypeError, lambda: c.copy(shared, wait=1)),
        "wait": fails(tma.WaitTimeoutError, lambda: c.copy(ordinary, wait=timeline.point(1 << 40), wait_timeout=0.001)),
        "register": fails(tma.UnsupportedError, lambda: c.register(ordinary)),
        "shape": fails(ValueError, lambda: t.part(0, (99,), (1,))), "layout": fails(ValueError, lambda: t.viewed("int8", (-1,))),
        "no ticket": fails(tma.NotFoundError, lambda: c._core.wait(12345)),
    }


NAMES = ["copy", "staged", "pad", "plan", "staged plan", "prepare", "gather", "staged gather", "layers",
         "staged layers", "wrong layers", "wrong request of layers", "scatter", "pairs", "wrong pairs", "batch", "submit",
         "convert", "staged convert", "converting plan", "staged converting plan", "converting gather", "inexact",
         "quantize", "staged quantize", "scaling plan", "scaled by amax", "wrong block", "wrong scale_out",
         "wrong amax of a plan", "quantized integers",
         "wrong scale", "complex scale", "wrong scale of a plan",
         "empty", "timeline", "signal", "explain", "picture", "info", "stats", "regions", "last_result", "buffer", "dlpack",
         "capsule", "part", "bytes", "repr", "wrong axes", "wrong out", "wrong array", "wrong device", "overlap",
         "overlap in a batch", "wrong plan", "released plan", "wrong index", "wrong value", "wrong order", "wait", "register",
         "shape", "layout", "no ticket"]
SLOW = {"picture": 100, "explain": 20, "info": 20, "stats": 20, "wait": 100, "prepare": 5, "empty": 5, "timeline": 5, "submit": 5,
        "regions": 10, "batch": 5, "pad": 5, "register": 20}


def rss():
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * mmap.PAGESIZE


def counts(c, tmad):
    gc.collect()
    return {"objects": len(gc.get_objects()), "fds": len(os.listdir("/proc/self/fd")), "regions": len(c.regions()),
            "theirs": tmad.mappings_of_memfds(), "plans": c.stats().get("plans"),
            "references": [sys.getrefcount(t) for t in (tma.Tensor, tma.Region, tma.PreparedPlan, type(c._core),
                                                        tma._core.Request)]}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_grows(tmad, c, name):
    call = kinds(c)[name]
    n = max(100, share(100_000 // SLOW.get(name, 1)))
    for _ in range(min(n, 300)):
        call()
    counts(c, tmad)
    before, resident, blocks = counts(c, tmad), rss(), sys.getallocatedblocks()
    for _ in range(n):
        call()
    after = {}

    def is_same():
        nonlocal after
        after = counts(c, tmad)
        return all(after[k] == before[k] for k in before if k != "objects") and after["objects"] <= before["objects"] + 80

    try:
        wait_until(is_same, "as before", 3)
    except AssertionError:
        assert after == before, name
    for _ in range(3):  # a few objects are made once; a leak grows every time
        if (more := sys.getallocatedblocks() - blocks) < max(200, n // 10):
            break
        blocks += more
        for _ in range(n):
            call()
    assert more < max(200, n // 10), "no object for each call"
    if NATIVE and "LD_PRELOAD" not in os.environ:
        for _ in range(2):  # a heap may grow once; a leak grows every time
            if (grown := rss() - resident) < max(MIB, n * 40):
                break
            resident = rss()
            for _ in range(n):
                call()
        else:
            raise AssertionError(f"{name}: memory grows by {grown} bytes in {n} calls, and again")


def test_connections(tmad):
    for _ in range(20):
        tma.connect(tmad.path).close()
    gc.collect()
    before, resident = (len(os.listdir("/proc/self/fd")), len(gc.get_objects())), rss()
    n = share(5000)
    for i in range(n):
        client = tma.connect(tmad.path)
        if i % 2:
            client.close()
        with pytest.raises(tma.Error):
            tma.connect(tmad.path + "-none", reconnect=0)
    del client
    gc.collect()
    now = len(os.listdir("/proc/self/fd")), len(gc.get_objects())
    assert now[0] == before[0] and now[1] <= before[1] + 50
    assert rss() - resident < max(4 * MIB, n * 100) or "LD_PRELOAD" in os.environ

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package on a GPU, with PyTorch's tensors: TAP.

    torch_streams.py SOCKET [PIDFILE]      PIDFILE: of a tmad that is started again when it ends; it is killed

Each result is compared with PyTorch's on the device, in the stream that asked for it, so that a stream that went on too
early is seen. Run it with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, too.
"""
import asyncio
import os
import signal
import sys
import threading
import time
import traceback

import numpy as np
import torch

import tmaclient as tma
import tmaclient.torch
from tmaclient import aio

RUNS = int(os.environ.get("STREAM_RUNS", "10000"))
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.uint8, torch.int64, torch.bool, torch.complex64,
          torch.float8_e4m3fn]


def filled(shape, dtype):
    """Random bytes."""
    n = int(np.prod(shape)) * torch.empty((), dtype=dtype).element_size()
    data = torch.randint(0, 256, (n,), dtype=torch.uint8, device="cuda")
    return (data % 2 if dtype is torch.bool else data).view(dtype).reshape(shape)


def is_same(a, b):
    """To the bit, whatever the elements mean."""
    a, b = (t.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8) for t in (a, b))
    return torch.equal(a, b)


def random_transforms(c):
    draw = np.random.default_rng(5)
    for i in range(400):
        rank = int(draw.integers(1, 6))
        x = filled(tuple(int(n) for n in draw.integers(1, 24, rank)), DTYPES[i % len(DTYPES)])
        if i % 3 == 0:
            x = x[::2]
        axes = tuple(int(d) for d in draw.permutation(rank))
        assert is_same(c.transform(x, permute=axes), x.permute(axes)), (x.shape, x.dtype, axes)
    x = torch.randn(4, 3, 50, 60, device="cuda")
    for mode, theirs in (("edge", "replicate"), ("reflect", "reflect"), ("wrap", "circular")):
        y = c.transform(x, pad=((0, 0), (0, 0), (2, 3), (4, 1)), mode=mode)
        assert is_same(y, torch.nn.functional.pad(x, (4, 1, 2, 3), mode=theirs)), mode


def lists_of_blocks(c):
    pool, index = filled((1000, 16, 128), torch.float16), torch.randint(0, 1000, (777,), device="cuda")
    assert is_same(c.gather(pool, index), pool[index])
    assert is_same(c.gather(pool, index.cpu().numpy()), pool[index])
    assert is_same(c.gather(pool, index % 16, axis=1, permute=(1, 0, 2)), pool[:, index % 16].permute(1, 0, 2))
    into, order, blocks = torch.zeros_like(pool), torch.randperm(1000, device="cuda")[:500], filled((500, 16, 128), torch.float16)
    expected = into.clone()
    expected[order] = blocks
    c.scatter(into, order, blocks)
    assert is_same(into, expected)


def host_memory_on_one_side(c):
    x, host, shared = torch.randn(300, 500, device="cuda"), np.empty((500, 300), "f4"), c.empty((500, 300))
    for out in (host, shared):
        c.transpose(x, out=out)
        assert np.array_equal(out, x.cpu().numpy().T)
        back = torch.empty_like(x)
        c.transpose(out, out=back)
        assert torch.equal(back, x)


def the_host_does_not_wait(c):
    x, stream = torch.randn(1024, 1024, device="cuda"), torch.cuda.Stream()
    out = c.transpose(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1_000_000_000)
        start = time.perf_counter()
        for _ in range(50):
            c.transpose(x, out=out)
        host = time.perf_counter() - start
        is_idle = stream.query()
    stream.synchronize()
    assert not is_idle
    return f"50 calls behind {time.perf_counter() - start:.2f} s of work took {host * 1e3:.1f} ms"


def side_streams(c):
    streams = [torch.cuda.Stream() for _ in range(4)]
    base = torch.randn(256, 192, device="cuda")
    xs, outs = [torch.empty_like(base) for _ in streams], [torch.empty(192, 256, device="cuda") for _ in streams]
    stale = [torch.zeros((), dtype=torch.int64, device="cuda") for _ in streams]
    torch.cuda.synchronize()
    calls, worst = 0.0, 0.0
    for i in range(RUNS):
        k = i % len(streams)
        with torch.cuda.stream(streams[k]):
            torch.add(base, float(i), out=xs[k])
            start = time.perf_counter()
            c.transpose(xs[k], out=outs[k])
            took = time.perf_counter() - start
            calls, worst = calls + took, max(worst, took)
            stale[k] += (outs[k] != xs[k].T).any()
    torch.cuda.synchronize()
    c.synchronize()
    assert not any(int(n) for n in stale), [int(n) for n in stale]
    return f"{RUNS} runs, 0 stale; a call took {calls / RUNS * 1e6:.1f} us, the longest {worst * 1e3:.2f} ms"


def failures_between(c):
    """Requests that are refused, behind work in the stream: no stale byte, and the stream goes on."""
    xs = [torch.randn(256, 128, device="cuda") for _ in range(8)]
    outs, wrong, told = [torch.zeros(128, 256, device="cuda") for _ in xs], torch.zeros((), dtype=torch.int64, device="cuda"), 0
    from tmaclient._moves import Move

    onto_itself = Move(
        tma.Tensor.at(xs[0].data_ptr(), "float32", (128, 256), (256, 1), (2, 0), xs[0]),
        tma.Tensor.at(xs[0].data_ptr(), "float32", (256, 128), (128, 1), (2, 0), xs[0]), (1, 0)).request()
    for i in range(2000):
        k = i % 8
        if i % 100 == 0:
            torch.cuda._sleep(2_000_000)
        torch.add(xs[k], 1.0, out=xs[k])
        try:
            if i % 7 == 3:
                c._core.enqueue(onto_itself, 1)
            c.transpose(xs[k], out=outs[k])
        except tma.OverlapError:
            told += 1
            continue
        wrong += (outs[k] != xs[k].T).any()
    torch.cuda.synchronize()
    try:
        c.synchronize()
    except tma.OverlapError:
        told += 1
    assert told and int(wrong) == 0, (told, int(wrong))
    return f"{told} errors told"


def memory_is_freed_and_grows(c):
    for i in range(60):
        x = torch.randint(0, 255, ([1 << 20, 3 << 20, 64 << 20][i % 3] + i * 4096,), dtype=torch.uint8, device="cuda")
        y = c.copy(x)
        assert torch.equal(x, y)
        del x, y
        if i % 5 == 0:
            torch.cuda.empty_cache()
    kept = []
    for _ in range(40):
        kept.append(torch.randint(0, 255, (40 << 20,), dtype=torch.uint8, device="cuda"))
        assert torch.equal(c.copy(kept[-1]), kept[-1])
    regions = c.regions()
    return f"{len(regions)} regions of {sum(r['size'] for r in regions) >> 20} MiB"


def operators(c):
    from torch.library import opcheck

    tmaclient.torch.use(c)
    x, out = torch.randn(3, 8, 9, 4, device="cuda"), torch.empty(3, 4, 10, 11, device="cuda")
    index, blocks = torch.tensor([2, 0], device="cuda"), torch.empty(2, 8, 9, 4, device="cuda")
    results = [opcheck(torch.ops.tma.transform, (x, out, [0, 3, 1, 2], [0, 0, 0, 0, 1, 1, 1, 1], "edge", 0.0)),
               opcheck(torch.ops.tma.gather, (x, index, blocks)),
               opcheck(torch.ops.tma.scatter, (x.clone(), index, blocks))]
    assert {r for result in results for r in result.values()} == {"SUCCESS"}, results

    @torch.compile(fullgraph=True)
    def f(x):
        out = torch.empty(x.shape[0], x.shape[3], x.shape[1], x.shape[2], device=x.device)
        torch.ops.tma.transform(x * 2, out, [0, 3, 1, 2])
        return out + 1

    assert torch.equal(f(x), (x * 2).permute(0, 3, 1, 2) + 1)


def in_event_loops(c):
    async def main():
        async with aio.connect(c.path) as a:
            xs = [torch.randn(128, 64, device="cuda") for _ in range(300)]
            ys = await asyncio.gather(*(a.transpose(x) for x in xs))
            assert all(torch.equal(y, x.T) for x, y in zip(xs, ys))

    asyncio.run(main())


def in_threads(c):
    failed = []

    def work(k):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(200):
                    x = torch.randn(100 + k, 77, device="cuda")
                    assert torch.equal(c.transpose(x), x.T)
        except BaseException:
            failed.append(traceback.format_exc())

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]


def arrays_of_cupy(c):
    try:
        import cupy
    except ImportError:
        return "no CuPy here"
    for dtype in ("f4", "u1", "c16", "?"):
        x = cupy.random.random((100, 70)).astype(dtype)
        y = c.transpose(x)
        assert isinstance(y, cupy.ndarray) and bool((y == x.T).all()), dtype
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for i in range(200):
            x = cupy.full((128, 96), i, "f4")
            assert bool((c.pad(x, 1, constant_values=i) == i).all()), i
        stream.synchronize()
    host = cupy.asnumpy(x)
    assert np.array_equal(c.transpose(x, out=np.empty((96, 128), "f4")), host.T)
    t = torch.from_dlpack(x)
    assert torch.equal(c.transpose(x, out=torch.empty(96, 128, device="cuda")), t.T)
    return None


def timelines_of_streams(c):
    with c.timeline() as t:
        stream, x = torch.cuda.Stream(), torch.zeros(1 << 20, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            t.wait(1, stream=stream)
            x += 1
            t.signal(2, stream=stream)
        assert not t.wait(2, 0.05) and not stream.query()
        t.signal(1)
        assert t.wait(2, 10) and t.value == 2
        stream.synchronize()
        assert bool((x == 1).all())


def the_service_is_killed(c):
    """With work in streams: they go on, the error is told, and the next call works."""
    pids, longest = sys.argv[2], 0.0
    for i in range(6):
        x, told = torch.randn(512, 512, device="cuda"), []
        out = c.transpose(x)

        def call(x=x, out=out, told=told):
            try:
                c.transpose(x, out=out)
            except tma.Error as e:
                told.append(e)

        torch.cuda.synchronize()
        if i % 2:
            torch.cuda._sleep(100_000_000)
        for _ in range([30, 300, 5][i % 3]):
            call()
        with open(pids, encoding="ascii") as file:
            os.kill(int(file.read()), signal.SIGKILL)
        start = time.perf_counter()
        for _ in range(5):
            call()
        torch.cuda.synchronize()
        longest = max(longest, time.perf_counter() - start)
        try:
            c.synchronize()
        except tma.Error as e:
            told.append(e)
        assert all(isinstance(e, tma.DisconnectedError) for e in told), told
        assert torch.equal(c.transpose(x), x.T)
    return f"streams went on after {longest:.2f} s at most"


PARTS = [random_transforms, lists_of_blocks, host_memory_on_one_side, the_host_does_not_wait, side_streams, failures_between,
         memory_is_freed_and_grows, operators, in_event_loops, in_threads, arrays_of_cupy,
         timelines_of_streams, the_service_is_killed]


def main():
    if not torch.cuda.is_available():
        print("1..0 # SKIP PyTorch has no GPU")
        return 0
    parts = PARTS if len(sys.argv) > 2 else PARTS[:-1]
    print(f"1..{len(parts)}")
    c, failures = tma.connect(sys.argv[1], timeout=60, direct=False), 0
    for i, part in enumerate(parts, 1):
        try:
            note = part(c)
            print(f"ok {i} - {part.__name__}" + (f"\n# {note}" if note else ""), flush=True)
        except Exception:
            failures += 1
            print(f"not ok {i} - {part.__name__}", *traceback.format_exc().splitlines(), sep="\n# ", flush=True)
    c.close()
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())

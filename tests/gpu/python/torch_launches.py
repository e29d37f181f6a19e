#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Moves that the Python package launches into PyTorch's own streams, without a service: TAP, and figures as comments.

    torch_launches.py       ROWS: permutations that are timed, REPLAYS: of a graph, by environment
"""
import os
import statistics
import time
import traceback

import numpy as np
import torch

import tmaclient as tma
import tmaclient.torch

ROWS, REPLAYS = int(os.environ.get("ROWS", "36")), int(os.environ.get("REPLAYS", "10000"))
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.uint8, torch.int64, torch.float8_e4m3fn]
MIB = 1 << 20


def note(text):
    print(f"# {text}", flush=True)


def filled(shape, dtype):
    """Random bytes."""
    n = int(np.prod(shape)) * torch.empty((), dtype=dtype).element_size()
    return torch.randint(0, 256, (n,), dtype=torch.uint8, device="cuda").view(dtype).reshape(shape)


def is_same(a, b):
    """To the bit, whatever the elements mean."""
    a, b = (t.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8) for t in (a, b))
    return torch.equal(a, b)


# ---- What the first use costs ----------------------------------------------------------------------------------------
def first_use():
    x = filled((512, 512), torch.float32)
    torch.cuda.synchronize()
    free, _ = torch.cuda.mem_get_info()
    times = []
    for n in (0, 0, 1, 2, 3):
        y = x[: 512 - n, n:]
        start = time.perf_counter()
        tma.transpose(y)
        times.append((time.perf_counter() - start) * 1e6)
        torch.cuda.synchronize()
    note(f"the first call {times[0]:.0f} us, again {times[1]:.0f} us; further layouts {times[2:]} us; "
         f"{(free - torch.cuda.mem_get_info()[0]) / MIB:.1f} MiB of the device")


# ---- Results ---------------------------------------------------------------------------------------------------------
def random_moves():
    draw = np.random.default_rng(5)
    streams = [torch.cuda.Stream() for _ in range(8)]
    for i in range(2000):
        with torch.cuda.stream(streams[i % 8]):
            rank = int(draw.integers(1, 6))
            x = filled(tuple(int(n) for n in draw.integers(1, 24, rank)), DTYPES[i % len(DTYPES)])
            if i % 3 == 0:
                x = x[::2]
            axes = tuple(int(d) for d in draw.permutation(rank))
            assert is_same(tma.transform(x, permute=axes), x.permute(axes)), (x.shape, x.dtype, axes)
    torch.cuda.synchronize()


def lists():
    pool = filled((1000, 16, 128), torch.float16)
    for n in (1, 40, 777, 9000, 524288):
        index = torch.randint(0, 1000, (n,), device="cuda")
        assert is_same(tma.gather(pool, index), pool[index])
        assert is_same(tma.gather(pool, index.tolist()), pool[index])


def scales():
    x = torch.randn(512, 1024, device="cuda", dtype=torch.bfloat16)
    data, scale = tma.quantize(x, (1, 128))
    largest = x.float().reshape(512, 8, 128).abs().amax(-1)
    assert torch.allclose(scale, largest / 448, rtol=1e-6)
    assert torch.allclose(data.float() * scale.repeat_interleave(128, 1), x.float(), rtol=0.07, atol=1e-2)


def host_and_device():
    """NumPy's arrays, which are not pinned, and pinned tensors beside tensors of the device."""
    draw = np.random.default_rng(11)
    for i in range(200):
        shape = tuple(int(n) for n in draw.integers(1, 90, 3))
        axes = tuple(int(d) for d in draw.permutation(3))
        x = torch.randint(-1000, 1000, shape, device="cuda", dtype=torch.int32)
        host = np.empty([shape[d] for d in axes], "int32")
        tma.transform(x, permute=axes, out=host)
        assert np.array_equal(host, x.cpu().numpy().transpose(axes))
        back = torch.empty(shape, dtype=torch.int32, device="cuda")
        tma.transform(host, permute=tuple(axes.index(d) for d in range(3)), out=back)
        assert torch.equal(back, x)
        some = draw.integers(0, shape[0], 30)
        picked = np.empty((30, *shape[1:]), "int32")
        tma.gather(x, some, out=picked)
        assert np.array_equal(picked, x.cpu().numpy()[some])
        pinned = torch.empty((shape[0], shape[2], shape[1]), dtype=torch.int32, pin_memory=True)
        tma.transform(x, permute=(0, 2, 1), out=pinned)
        torch.cuda.synchronize()
        assert torch.equal(pinned, x.cpu().transpose(1, 2))
    big = torch.randn(256 << 20, device="cuda").view(torch.uint8)
    for name, is_pinned in (("ordinary", False), ("pinned", True)):
        host = torch.empty_like(big, device="cpu", pin_memory=is_pinned)
        for way, (dst, src) in {"out": (host, big), "in": (big, host)}.items():
            gbs = [big.nbytes / min(wall_us(lambda c=call: c(), 3) for _ in range(2)) / 1e3
                   for call in (lambda: tma.copy(src, out=dst), lambda: dst.copy_(src))]
            note(f"1 GiB {way}, {name} memory of the host: {gbs[0]:.1f} GB/s, by torch {gbs[1]:.1f}")


def operations(x):
    """Twenty different ones."""
    ops = torch.ops.tma
    index = torch.tensor([3, 1, 60], device="cuda")
    yield lambda: ops.transposed(x, [1, 0, 2])
    yield lambda: ops.transposed(x, [2, 1, 0])
    yield lambda: ops.transposed(x, [0, 2, 1])
    yield lambda: ops.transposed(x, [2, 0, 1])
    yield lambda: ops.padded(x, [1, 1, 0, 0, 0, 0])
    yield lambda: ops.padded(x, [0, 0, 2, 3, 0, 0])
    yield lambda: ops.padded(x, [0, 0, 0, 0, 5, 1])
    yield lambda: ops.padded(x, [-1, -2, 0, 0, 0, 0])
    yield lambda: ops.padded(x, [0, 0, 2, 2, 0, 0], "reflect")
    yield lambda: ops.padded(x, [0, 0, 0, 0, 2, 2], "edge")
    yield lambda: ops.converted(x, torch.bfloat16)
    yield lambda: ops.converted(x, torch.float16)
    yield lambda: ops.converted(x, torch.float8_e4m3fn)
    yield lambda: ops.converted(x, torch.bfloat16, "saturate", [1, 0, 2])
    yield lambda: ops.converted(x, torch.float16, "ieee", [2, 1, 0])
    yield lambda: ops.gathered(x, index)
    yield lambda: ops.gathered(x, index, 1)
    yield lambda: tma.gather(x, [5, 6, 1] * 1000)
    yield lambda: ops.quantized(x.view(64, -1), [1, 128])[0]
    yield lambda: ops.quantized(x.view(64, -1), [32, 32])[1]


def a_graph():
    x = torch.randn(64, 64, 128, device="cuda")
    calls = list(operations(x))
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = [call() for call in calls]
    times = []
    for i in range(REPLAYS):
        x.normal_()
        torch.cuda.synchronize()
        start = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e6)
        if i % 100 == 0:
            for call, result in zip(calls, results, strict=True):
                assert is_same(call(), result), i
    note(f"a graph of {len(calls)} operations: p50 of {REPLAYS} replays {statistics.median(times):.1f} us")


def compiled():
    def step(x, w):
        y = torch.ops.tma.transposed(x @ w, [1, 0])
        return torch.ops.tma.converted(torch.ops.tma.padded(y, [0, 8, 0, 0]), torch.bfloat16) * 2

    fast = torch.compile(step, mode="reduce-overhead", fullgraph=True)
    w = torch.randn(128, 256, device="cuda")
    for _ in range(100):
        x = torch.randn(512, 128, device="cuda")
        assert torch.allclose(fast(x, w).float(), step(x, w).float(), rtol=1e-2, atol=1e-2)


# ---- Figures ---------------------------------------------------------------------------------------------------------
def wall_us(call, n):
    times = []
    for _ in range(n):
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def stream_us(call, calls=20, rounds=7):
    for _ in range(5 if rounds > 1 else 0):
        call()
    times = []
    for _ in range(rounds):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        for _ in range(calls):
            call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / calls * 1e3)
    return statistics.median(times)


def settle(call):
    """Until the library knows the fastest of its plans for a layout, which it finds out while it is used."""
    for _ in range(40):
        call()
        torch.cuda.synchronize()


def between_products(ways, a, rounds=60):
    """What a way adds to each of four matrix products, in the median: the ways take turns, as clocks change."""
    def step(move):
        for _ in range(4):
            a @ a
            move()

    turns = {name: [] for name in ("none", *ways)}
    for _ in range(rounds):
        for name, times in turns.items():
            move = ways.get(name, lambda: None)
            times.append(stream_us(lambda m=move: step(m), 3, 1))
    none = statistics.median(turns.pop("none"))
    return {name: (statistics.median(times) - none) / 4 for name, times in turns.items()}


def small_moves():
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    for rows in (64, 128, 512):
        x = torch.randn(rows, rows, device="cuda")
        out = torch.empty_like(x)
        ways = {"eager": lambda: out.copy_(x.t()), "tmad": lambda: tma.transpose(x, (1, 0), out=out)}
        between = between_products(ways, a)
        for name, move in ways.items():
            note(f"{x.nbytes >> 10} KiB by {name}: {wall_us(move, 500):.1f} us alone and a synchronize, "
                 f"{stream_us(move, 200):.1f} us back to back, {between[name]:+.1f} us between matrix products")


def random_permutation(draw):
    """A type, extents of 64 MiB to 1 GiB in all, and axes that are not in order."""
    while True:
        dtype, rank = DTYPES[int(draw.integers(0, 4))], int(draw.integers(2, 6))
        size = torch.empty((), dtype=dtype).element_size()
        elements = int(2 ** draw.uniform(26, 30)) // size
        cuts = np.sort(draw.uniform(0, 1, rank - 1))
        shape = [max(2, int(elements ** part)) for part in np.diff(np.concatenate([[0], cuts, [1]]))]
        axes = tuple(int(d) for d in draw.permutation(rank))
        if axes != tuple(range(rank)) and 64 * MIB <= np.prod(shape, dtype=np.int64) * size <= 1024 * MIB:
            return dtype, shape, axes


def permutations():
    draw = np.random.default_rng(int(os.environ.get("SEED", "7")))
    fast = torch.compile(lambda x, axes, out: out.copy_(x.permute(axes)), dynamic=False)
    ratios, gains = [], []
    for _ in range(ROWS):
        dtype, shape, axes = random_permutation(draw)
        x = filled(tuple(shape), dtype)
        out = torch.empty([shape[d] for d in axes], dtype=dtype, device="cuda")
        assert is_same(tma.transform(x, permute=axes, out=out), x.permute(axes)), (shape, dtype, axes)
        torch._dynamo.reset()
        settle(lambda: tma.transform(x, permute=axes, out=out))
        us = {"tmad": stream_us(lambda: tma.transform(x, permute=axes, out=out), 5),
              "eager": stream_us(lambda: out.copy_(x.permute(axes)), 5),
              "compile": stream_us(lambda: fast(x, axes, out), 5),
              "copy": stream_us(lambda: out.view(-1).copy_(x.reshape(-1)), 5)}
        ratios.append(us["copy"] / us["tmad"])
        gains.append(min(us["eager"], us["compile"]) / us["tmad"])
        note(f"{str(dtype)[6:]} {shape} by {axes}: {x.nbytes >> 20} MiB, " +
             ", ".join(f"{name} {t:.1f} us" for name, t in us.items()))
    note(f"{ROWS} permutations, of a copy: mean {np.mean(ratios):.3f}, p10 {np.quantile(ratios, 0.1):.3f}, worst "
         f"{min(ratios):.3f}; against the best of torch: mean {np.mean(gains):.3f}, worst {min(gains):.3f}, ahead on "
         f"{sum(g > 1 for g in gains)}")


CASES = [first_use, random_moves, lists, scales, host_and_device, a_graph, compiled, small_moves, permutations]


def main():
    torch.cuda.init()
    tmaclient.torch.use(tma.local())
    failed = 0
    for i, case in enumerate(CASES, 1):
        try:
            case()
            print(f"ok {i} - {case.__name__}", flush=True)
        except Exception:
            failed += 1
            print(f"not ok {i} - {case.__name__}", flush=True)
            for line in traceback.format_exc().splitlines():
                note(line)
    print(f"1..{len(CASES)}")
    return failed > 0


if __name__ == "__main__":
    raise SystemExit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Permutations of PyTorch's tensors by tmad through the Python package, by PyTorch eagerly and by torch.compile, in
microseconds of the caller's stream, one call after another; and a copy of as many bytes.

    torch_table.py SOCKET
"""
import statistics
import sys

import torch

import tmaclient as tma

CALLS, ROUNDS = 20, 7
ROWS = [
    ((64, 56, 56, 256), (0, 3, 1, 2), torch.float16),
    ((32, 3, 1024, 1024), (0, 2, 3, 1), torch.uint8),
    ((8192, 8192), (1, 0), torch.float32),
    ((8191, 8193), (1, 0), torch.float16),
    ((32, 128, 2048, 64), (0, 2, 1, 3), torch.bfloat16),
    ((7, 127, 1024, 16), (2, 1, 3, 0), torch.float16),
    ((128, 1024), (1, 0), torch.float32),
    ((16, 128, 128), (1, 0, 2), torch.float16),
]


@torch.compile(dynamic=False)
def compiled(x, axes, out):
    return out.copy_(x.permute(axes))


def stream_us(call):
    for _ in range(5):
        call()
    times = []
    for _ in range(ROUNDS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        for _ in range(CALLS):
            call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / CALLS * 1e3)
    return statistics.median(times)


def main():
    c = tma.connect(sys.argv[1], direct=False)
    print(f"{'':44} {'MiB':>6} {'tmad':>8} {'eager':>8} {'compile':>8} {'copy':>8}")
    for shape, axes, dtype in ROWS:
        n = 1
        for extent in shape:
            n *= extent
        x = torch.empty(n * torch.empty((), dtype=dtype).element_size(), dtype=torch.uint8, device="cuda")
        x = x.random_().view(dtype).reshape(shape)
        out = torch.empty([shape[d] for d in axes], dtype=dtype, device="cuda")
        calls = {
            "tmad": lambda: c.transform(x, permute=axes, out=out),
            "eager": lambda: out.copy_(x.permute(axes)),
            "compile": lambda: compiled(x, axes, out),
            "copy": lambda: out.view(-1).copy_(x.view(-1)),
        }
        us = {name: stream_us(call) for name, call in calls.items()}
        name = f"{str(dtype)[6:]} {list(shape)} by {','.join(map(str, axes))}"
        print(f"{name:44} {2 * x.nbytes >> 20:6} " + " ".join(f"{us[key]:8.1f}" for key in us), flush=True)
    c.close()


if __name__ == "__main__":
    main()

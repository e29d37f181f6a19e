#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Blocks beyond whole pages from pool to host, in this process: heads of blocks between a pool of a rank and pages of all
heads in pinned memory; blocks of one tensor on the device to blocks of another, by two lists; and a small request beside
an offload. Each against what PyTorch's users write. GB/s are bytes that arrive, of two lists bytes read and written.

    torch_blocks.py [--own]

The neighbour of torch_offload.py is a process, or with --own a thread of this one.
"""
import sys
import threading
import time

import torch

import tmaclient as tma
from torch_offload import ALONE_S, BESIDE_S, IDLE_S, Neighbour, gb_per_s

HEADS, TOKENS = 8, 16
HEAD_ROWS = ((4, 512), (1, 512), (1, 128))  # heads of a rank, elements of a token of a head, both key and value
HEAD_BYTES = 384 << 20
PAIRS, PAIR_BYTES = 8192, 16 << 10
SMALL, URGENT_S = 64 << 10, 3.0


class Heads:
    """Blocks [token, head, element] of a rank that has some of the heads, and pages [head, token, element] of all."""

    def __init__(self, heads, run):
        self.nbytes = HEAD_BYTES * heads // 4
        n = self.nbytes // (TOKENS * heads * run * 2)
        self.name = f"{n} x {TOKENS} runs of {run / 512:g} KiB for each of {heads} heads"
        self.pool = torch.randn(2 * n, TOKENS, heads, run, device="cuda").half()
        self.pages = torch.empty(n, HEADS, TOKENS, run, dtype=torch.float16, pin_memory=True)
        self.mine, self.others = self.pages[:, HEADS - heads:], self.pages[:, : HEADS - heads]
        self.list = torch.randperm(2 * n)[:n]
        self.index = self.list.cuda()

    def tmad_out(self, client):
        client.gather(self.pool, self.list, permute=(0, 2, 1, 3), out=self.mine)

    def tmad_in(self, client):
        client.scatter(self.pool, self.list, self.mine, permute=(0, 2, 1, 3))

    def loop_out(self, _):
        self.mine.copy_(self.pool.index_select(0, self.index).transpose(1, 2).contiguous())
        torch.cuda.current_stream().synchronize()

    def loop_in(self, _):
        self.pool.index_copy_(0, self.index, self.mine.cuda(non_blocking=True).transpose(1, 2))
        torch.cuda.current_stream().synchronize()

    def check(self, client):
        wanted = self.pool[self.index].transpose(1, 2).cpu()
        self.pages.fill_(7)
        self.tmad_out(client)
        torch.cuda.synchronize()
        assert torch.equal(self.mine, wanted), "heads, out"
        assert bool((self.others == 7).all()), "heads of other ranks"
        before = self.pool.clone()
        self.pool.zero_()
        self.tmad_in(client)
        torch.cuda.synchronize()
        assert torch.equal(self.pool[self.index], before[self.index]), "heads, in"
        assert int(self.pool.count_nonzero()) == int(before[self.index].count_nonzero()), "heads, in"


class Pairs:
    """Blocks of one tensor on the device become blocks of another."""

    def __init__(self):
        self.dst, self.src = (torch.randn(2 * PAIRS, PAIR_BYTES // 2, device="cuda").half() for _ in range(2))
        self.to, self.of = (torch.randperm(2 * PAIRS, device="cuda")[:PAIRS] for _ in range(2))
        self.on_device = torch.stack((self.of, self.to), 1)
        self.on_host = self.on_device.cpu()
        self.nbytes = 2 * PAIRS * PAIR_BYTES

    def tmad_device(self, client):
        client.gather_scatter(self.dst, self.src, self.on_device)

    def tmad_host(self, client):
        client.gather_scatter(self.dst, self.src, self.on_host)

    def two_operations(self, _):
        self.dst.index_copy_(0, self.to, self.src.index_select(0, self.of))

    def assignment(self, _):
        self.dst[self.to] = self.src[self.of]

    def check(self, client):
        wanted = self.dst.clone()
        wanted[self.to] = self.src[self.of]
        for move in (self.tmad_device, self.tmad_host):
            self.dst[self.to] = 0
            move(client)
            torch.cuda.synchronize()
            assert torch.equal(self.dst, wanted), move.__name__


def urgent(client, heads):
    """The p50 and p99 of a small transposition that is waited for, in us, alone and beside an offload that goes on."""
    small = torch.randn(128, SMALL // 256, device="cuda").half()
    out = torch.empty(SMALL // 256, 128, dtype=torch.float16, device="cuda")
    ends = threading.Event()

    def offload():
        own = tma.local()  # a client serves one call at a time, and this one waits
        with torch.cuda.stream(torch.cuda.Stream()):
            while not ends.is_set():
                heads.tmad_out(own)
                torch.cuda.current_stream().synchronize()

    def times():
        taken, end = [], time.perf_counter() + URGENT_S
        with torch.cuda.stream(torch.cuda.Stream(priority=-1)) as _:
            while time.perf_counter() < end:
                start = time.perf_counter()
                client.transpose(small, out=out)
                torch.cuda.current_stream().synchronize()
                taken.append(1e6 * (time.perf_counter() - start))
                time.sleep(0.001)
        taken.sort()
        return taken[len(taken) // 2], taken[len(taken) * 99 // 100]

    alone = times()
    thread = threading.Thread(target=offload)
    thread.start()
    beside = times()
    ends.set()
    thread.join()
    return alone, beside


def row(name, of, move, client, neighbour):
    """Prints GB/s alone and beside the neighbour, and what that keeps."""
    for _ in range(3):
        move(client)
    torch.cuda.synchronize()
    alone = gb_per_s(of, move, client, ALONE_S)
    neighbour.go()
    idle, _ = neighbour.rate(lambda: time.sleep(IDLE_S))
    busy, beside = neighbour.rate(lambda: gb_per_s(of, move, client, BESIDE_S))
    neighbour.pause()
    time.sleep(0.01)
    print(f"| {name:52} | {alone:7.1f} | {beside:7.1f} | {busy / idle:5.3f} |", flush=True)


def main():
    client = tma.local()
    neighbour = Neighbour("--own" in sys.argv[1:])
    pairs = Pairs()
    pairs.check(client)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}; GB/s alone, beside, what the neighbour keeps\n")
    print("| | alone | beside | keeps |\n|---|---|---|---|")
    for size in HEAD_ROWS:
        heads = Heads(*size)
        heads.check(client)
        row(heads.name + ", out", heads, heads.tmad_out, client, neighbour)
        row("the same, in", heads, heads.tmad_in, client, neighbour)
    row("the same by PyTorch, out", heads, heads.loop_out, client, neighbour)
    row("in", heads, heads.loop_in, client, neighbour)
    heads = Heads(*HEAD_ROWS[0])
    row("8192 x 16 KiB by two lists on the device", pairs, pairs.tmad_device, client, neighbour)
    row("by two lists on the host", pairs, pairs.tmad_host, client, neighbour)
    row("index_select and index_copy_", pairs, pairs.two_operations, client, neighbour)
    row("dst[j] = src[i]", pairs, pairs.assignment, client, neighbour)
    (p50, p99), (beside50, beside99) = urgent(client, heads)
    print(f"\n64 KiB transposed and waited for: p50 {p50:.0f}, p99 {p99:.0f} us; beside an offload of 384 MiB that goes on "
          f"p50 {beside50:.0f}, p99 {beside99:.0f} us")
    neighbour.end()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Blocks of many layers, scattered over tensors of PyTorch's, to one piece of host memory and back: by tmad, into memory
that `empty` gives, and by the loop that everybody writes, index_select of each layer into a buffer on the device with
one copy into pinned memory, or one copy with index_copy_ of each layer. Alone, and beside a process that multiplies
matrices; GB/s are bytes that arrive, and what the neighbour keeps is its rate as a part of its rate without company.

    torch_offload.py SOCKET|local: [--quick] [--own] [--lists-on-device]

SOCKET is a service's. With local:, this process moves the blocks, into pinned memory of PyTorch's. --quick: 6 rows.
--own: the neighbour is a thread of this process, on a stream of its own. --lists-on-device: so are the lists of blocks,
which otherwise are on the host if a request can bring them.
"""
import multiprocessing
import statistics
import sys
import threading
import time

import numpy as np
import torch

import tmaclient as tma

ROW_BYTES = 768 << 20
MOST_ENTRIES = 524288
MOST_IN_A_REQUEST = 4096  # entries of a list that a service takes with the request
SPREAD = 2  # times as many blocks to pick from
SIZES = (512, 2 << 10, 4 << 10, 16 << 10, 32 << 10, 128 << 10)
ROWS = [(layers, size) for layers in (1, 32, 96) for size in SIZES]
QUICK = [(96, 32 << 10), (96, 4 << 10), (1, 512)]
WARM_UP = 2
ALONE_S, BESIDE_S, IDLE_S, SETTLE_S = 0.1, 0.3, 0.1, 0.05
SIDE, AHEAD = 4096, 4  # of the neighbour's matrices, and of its products that are queued


# ---- The neighbour -------------------------------------------------------------------------------------


def multiply(goes, ends, done):
    """A process: products while it is told to go on, counted once they have ended."""
    a, b = (torch.randn(SIDE, SIDE, dtype=torch.float16, device="cuda") for _ in range(2))
    out = torch.empty_like(a)
    events = [torch.cuda.Event() for _ in range(AHEAD)]
    torch.mm(a, b, out=out)
    torch.cuda.synchronize()
    done.value += 1
    while not ends.is_set():
        if not goes.wait(0.1):
            continue
        for event in events:
            torch.mm(a, b, out=out)
            event.record()
        while goes.is_set() and not ends.is_set():
            for event in events:
                event.synchronize()
                done.value += 1
                torch.mm(a, b, out=out)
                event.record()
        torch.cuda.synchronize()


class Count:
    value = 0


def multiply_here(*args):
    with torch.cuda.stream(torch.cuda.Stream()):
        multiply(*args)


class Neighbour:
    def __init__(self, is_own):
        context = multiprocessing.get_context("spawn")
        self._goes, self._ends = (threading.Event(), threading.Event()) if is_own else (context.Event(), context.Event())
        self._done = Count() if is_own else context.Value("Q", 0, lock=False)
        args = (self._goes, self._ends, self._done)
        self._process = (threading.Thread(target=multiply_here, args=args, daemon=True) if is_own else
                         context.Process(target=multiply, args=args, daemon=True))
        self._process.start()
        self._wait_for(1)

    def _wait_for(self, count):
        end = time.monotonic() + 120
        while self._done.value < count:
            if not self._process.is_alive() or time.monotonic() > end:
                sys.exit("torch_offload.py: the neighbour does not compute")
            time.sleep(0.001)

    def go(self):
        count = self._done.value
        self._goes.set()
        self._wait_for(count + AHEAD)
        time.sleep(SETTLE_S)

    def pause(self):
        self._goes.clear()

    def end(self):
        self._ends.set()
        self._process.join(20)

    def rate(self, work):
        """Products a second while work runs, and what work gives."""
        count, start = self._done.value, time.perf_counter()
        result = work()
        return (self._done.value - count) / (time.perf_counter() - start), result


# ---- A row ---------------------------------------------------------------------------------------------


class Row:
    """The tensors of a row, views of memory that all rows share."""

    def __init__(self, memory, layers, size):
        self.layers, self.size = layers, size
        self.n = min(ROW_BYTES // layers // size, MOST_ENTRIES)
        width, count = size // 2, layers * self.n
        pool = memory.pool[: SPREAD * count * width].view(layers, SPREAD * self.n, width)
        self.pool = list(pool)
        self.buffer = memory.buffer[: count * width].view(layers, self.n, width)
        self.pinned = memory.pinned[: count * width].view(layers, self.n, width)
        self.host = memory.host[: count * width].reshape(layers, self.n, width)
        generator = torch.Generator().manual_seed(11)
        order = torch.randperm(SPREAD * self.n, generator=generator)[: self.n]
        self.index = order.cuda()
        self.list = order.numpy() if self.n <= memory.most_on_host else self.index
        self.nbytes = count * size

    def tmad_out(self, client):
        client.gather(self.pool, self.list, out=self.host)

    def tmad_in(self, client):
        client.scatter(self.pool, self.list, self.host)

    def loop_out(self, _):
        for pool, into in zip(self.pool, self.buffer):
            torch.index_select(pool, 0, self.index, out=into)
        self.pinned.copy_(self.buffer, non_blocking=True)
        torch.cuda.current_stream().synchronize()

    def loop_in(self, _):
        self.buffer.copy_(self.pinned, non_blocking=True)
        for pool, source in zip(self.pool, self.buffer):
            pool.index_copy_(0, self.index, source)
        torch.cuda.current_stream().synchronize()

    def check(self, client):
        """Out what a random pool has, and in again to where it came from."""
        self.loop_out(client)
        self.host[:] = 0
        self.tmad_out(client)
        torch.cuda.synchronize()
        made = torch.from_numpy(self.host.view(np.int16))
        assert torch.equal(made, self.pinned.view(torch.int16)), (self.layers, self.size, "out")
        for pool in self.pool:
            pool.zero_()
        torch.cuda.synchronize()
        self.tmad_in(client)
        torch.cuda.synchronize()
        self.buffer.copy_(self.pinned)
        for pool, source in zip(self.pool, self.buffer):
            assert torch.equal(pool[self.index].view(torch.int16), source.view(torch.int16)), (self.layers, self.size, "in")
            assert int(pool.view(torch.int16).count_nonzero()) == int(source.view(torch.int16).count_nonzero())


class Memory:
    def __init__(self, client, most_on_host):
        self.most_on_host = most_on_host
        self.pool = torch.randint(-(1 << 15), 1 << 15, (SPREAD * ROW_BYTES // 2,), dtype=torch.int16, device="cuda")
        self.pool = self.pool.view(torch.float16)
        self.buffer = torch.empty(ROW_BYTES // 2, dtype=torch.float16, device="cuda")
        self.pinned = torch.empty(ROW_BYTES // 2, dtype=torch.float16, pin_memory=True)
        if client is not None:
            self.host = client.empty(ROW_BYTES // 2, "float16")
        else:
            self.host = torch.empty(ROW_BYTES // 2, dtype=torch.float16, pin_memory=True).numpy()

    def refill(self):
        self.pool.view(torch.int16).random_(-(1 << 15), 1 << 15)


# ---- Times ---------------------------------------------------------------------------------------------


def gb_per_s(row, call, client, seconds):
    """By the median of calls one after another."""
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        call(client)
        torch.cuda.current_stream().synchronize()
        times.append(time.perf_counter() - start)
    return row.nbytes / statistics.median(times) / 1e9


def measure(row, call, client, neighbour):
    """GB/s alone and beside the neighbour, and what that keeps."""
    for _ in range(WARM_UP):
        call(client)
    alone = gb_per_s(row, call, client, ALONE_S)
    neighbour.go()
    idle, _ = neighbour.rate(lambda: time.sleep(IDLE_S))
    busy, beside = neighbour.rate(lambda: gb_per_s(row, call, client, BESIDE_S))
    neighbour.pause()
    time.sleep(0.01)
    return alone, beside, busy / idle


def row_print(name, row, tmad, loop):
    what = f"{name:3} {row.layers:2} x {row.n:6} x {row.size / 1024:g} KiB"
    print(f"| {what:26} | {tmad[0]:5.1f} | {loop[0]:5.1f} | {tmad[0] / loop[0]:4.2f} "
          f"| {tmad[1]:5.1f} | {loop[1]:5.1f} | {tmad[1] / loop[1]:4.2f} | {tmad[2]:5.3f} | {loop[2]:5.3f} |", flush=True)


def main():
    rows = QUICK if "--quick" in sys.argv[2:] else ROWS
    is_local, is_own = sys.argv[1] == "local:", "--own" in sys.argv[2:]
    client = tma.local() if is_local else tma.connect(sys.argv[1], direct=False)
    most_on_host = 0 if "--lists-on-device" in sys.argv[2:] else MOST_ENTRIES if is_local else MOST_IN_A_REQUEST
    memory, neighbour = Memory(None if is_local else client, most_on_host), Neighbour(is_own)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}; GB/s of tmad and of the loop, their ratio, and "
          "what the neighbour keeps beside each\n")
    print("| layers x blocks | tmad | loop | ratio | beside | loop | ratio | keeps | loop |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for layers, size in rows:
        row = Row(memory, layers, size)
        memory.refill()
        row.check(client)
        for name, tmad, loop in (("out", row.tmad_out, row.loop_out), ("in", row.tmad_in, row.loop_in)):
            row_print(name, row, measure(row, tmad, client, neighbour), measure(row, loop, client, neighbour))
    neighbour.end()
    if not is_local:
        client.close()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tmaclient.nixl on GPUs, with PyTorch's tensors and the real NIXL: TAP.

    torch_stages.py SOCKET

Stages in this process and in one that is killed, each with an agent of its own; on the first and on the last GPU of the
host, which may be the same. What arrives is compared on the device, and what lies around it.
"""
import os
import subprocess
import sys
import time
import traceback

os.environ.setdefault("UCX_TLS", "cuda_ipc,cuda_copy,tcp")
os.environ.setdefault("UCX_NET_DEVICES", "lo")

import numpy as np
import torch

import tmaclient as tma

try:
    import tmaclient.nixl
except ImportError as error:
    print(f"1..0 # SKIP {error}")
    sys.exit()
if not torch.cuda.is_available():
    print("1..0 # SKIP PyTorch has no GPU")
    sys.exit()

RUNS = int(os.environ.get("STAGE_RUNS", "300"))
FIRST, LAST = "cuda:0", f"cuda:{torch.cuda.device_count() - 1}"
DTYPES = [torch.uint8, torch.float16, torch.bfloat16, torch.int32, torch.float64]
SLOT_BYTES, SLOTS, LARGE_SLOT_BYTES = 1 << 16, 3, 16 << 20
SENT = (256, 1 << 20)  # between processes


def filled(shape, dtype, device):
    """Random bytes, in memory that is wider than the tensor."""
    wide = (*shape[:-1], shape[-1] + 2)
    n = int(np.prod(wide)) * torch.empty((), dtype=dtype).element_size()
    made = torch.randint(0, 256, (n,), dtype=torch.uint8, device=device).view(dtype).reshape(wide)
    return made, made[..., 1:-1]


def is_same(a, b):
    """To the bit, whatever the elements mean."""
    a, b = (t.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8) for t in (a, b))
    return torch.equal(a, b)


class Host:
    """A client and a stage; slots are on a device, or host memory."""

    def __init__(self, name, device=None, slot_bytes=SLOT_BYTES, **options):
        self.client = tma.connect(sys.argv[1])
        memory = None
        if device is not None:
            memory = torch.empty(2 * SLOTS * slot_bytes, dtype=torch.uint8, device=device)
        self.stage = tma.nixl.Stage(self.client, name, slot_bytes=slot_bytes, send_slots=SLOTS, receive_slots=SLOTS,
                                    memory=memory, **options)

    def meet(self, other):
        other.stage.add(self.stage.metadata())
        self.stage.add(other.stage.metadata())

    def close(self):
        self.stage.close()
        self.client.close()


class Pair:
    """Two that know each other."""

    number = 0

    def __init__(self, a, b, **options):
        Pair.number += 1
        self.a, self.b = Host(f"a{Pair.number}", a, **options), Host(f"b{Pair.number}", b, **options)
        self.a.meet(self.b)

    def __enter__(self):
        return self.a.stage, self.b.stage

    def __exit__(self, kind, value, trace):
        self.a.close()
        self.b.close()


def random_lists(a, b):
    """Layers, axes and orders at random, from the first device to the last one and back."""
    draw = np.random.default_rng(int(os.environ.get("TEST_SEED", "5")))
    for i in range(RUNS):
        ends = [(a, FIRST), (b, LAST)]
        (sender, here), (receiver, there) = ends if i % 2 else ends[::-1]
        rank, dtype = int(draw.integers(1, 5)), DTYPES[i % len(DTYPES)]
        wire, layers = [int(n) for n in draw.integers(1, 9, rank - 1)], int(draw.integers(1, 9))
        blocks = draw.integers(0, 60, int(draw.integers(0, 60)))
        places = draw.permutation(70)[:len(blocks)]

        # The wire has the blocks in front; the source permuted is the wire, and the wire permuted is the destination.
        from_, to = (tuple(int(d) for d in draw.permutation(rank)) for _ in range(2))
        shape = [0] * rank
        for d, n in zip(from_, (60, *wire)):
            shape[d] = n
        sources = [filled(tuple(shape), dtype, here)[1] for _ in range(layers)]
        targets = [filled(tuple((70, *wire)[d] for d in to), dtype, there) for _ in range(layers)]
        wanted = [whole.clone() for whole, _ in targets]
        for source, whole in zip(sources, wanted):
            into = whole[..., 1:-1].permute([to.index(d) for d in range(rank)])
            into[torch.from_numpy(places).to(there)] = source.permute(from_)[torch.from_numpy(blocks).to(here)].to(there)
        transfers = (sender.send(receiver.name, f"{i}", sources, blocks, axis=from_[0], permute=from_),
                     receiver.receive(sender.name, f"{i}", [t for _, t in targets], places, axis=to.index(0), permute=to))
        assert transfers[0].result(60) == transfers[1].result(60)
        for (whole, _), expected in zip(targets, wanted):
            assert is_same(whole, expected), (i, shape, dtype, from_, to)


def through_device_slots():
    with Pair(FIRST, LAST) as stages:
        random_lists(*stages)


def through_host_slots():
    with Pair(None, None) as stages:
        random_lists(*stages)


def from_device_slots_to_host_slots():
    with Pair(FIRST, None) as stages:
        random_lists(*stages)


def conversions():
    with Pair(FIRST, LAST) as (a, b):
        x = [torch.randn(40, 16, 128, device=FIRST) for _ in range(4)]
        blocks = list(range(39, -1, -1))
        for sent, received in (({"dtype": "bfloat16"}, {}), ({}, {"cast": "saturate"})):
            y = [torch.zeros(40, 16, 128, dtype=torch.bfloat16, device=LAST) for _ in x]
            transfers = a.send(b.name, "t", x, blocks, **sent), b.receive(a.name, "t", y, **received)
            for transfer in transfers:
                transfer.result(60)
            for i, j in zip(x, y):
                assert is_same(i.flip(0).to(torch.bfloat16).to(LAST), j)


def streams():
    """What is queued before a call happens before it, on either side."""
    with Pair(FIRST, LAST) as (a, b):
        x, y = torch.zeros(64, 4096, device=FIRST), torch.zeros(64, 4096, device=LAST)
        here, there = torch.cuda.Stream(FIRST), torch.cuda.Stream(LAST)
        torch.cuda.synchronize(FIRST)
        torch.cuda.synchronize(LAST)
        for i in range(1, 30):
            with torch.cuda.stream(here):
                torch.cuda._sleep(20_000_000)
                x.fill_(i)
                sent = a.send(b.name, "t", [x])
            with torch.cuda.stream(there):
                torch.cuda._sleep(20_000_000 * (i % 3))
                before = y.clone()  # of the last time
                received = b.receive(a.name, "t", [y])
            sent.result(60), received.result(60)
            torch.cuda.synchronize(LAST)
            assert bool((before == i - 1).all()) and bool((y == i).all()), i


class Sender:
    """A process that sends to "receiver" as long as it lives: over NVLink, which UCX does not take within a process."""

    def __init__(self, host):
        self.process = subprocess.Popen([sys.executable, __file__, sys.argv[1], host.stage.metadata().hex()],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="ascii")
        host.stage.add(bytes.fromhex(self.process.stdout.readline()))
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def send_for_ever(metadata):
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what NIXL says is no answer
    host, x = Host("sender", FIRST, LARGE_SLOT_BYTES), torch.full(SENT, 7, dtype=torch.uint8, device=FIRST)
    host.stage.add(bytes.fromhex(metadata))
    print(host.stage.metadata().hex(), file=answers, flush=True)
    sys.stdin.readline()
    while True:
        host.stage.send("receiver", "t", x).result(60)


def between_processes():
    host, y = Host("receiver", LAST, LARGE_SLOT_BYTES), torch.zeros(SENT, dtype=torch.uint8, device=LAST)
    sender, rates = None, []
    try:
        sender = Sender(host)
        for _ in range(6):
            y.zero_()
            torch.cuda.synchronize(LAST)
            start = time.perf_counter()
            assert host.stage.receive("sender", "t", y).result(60) == y.nbytes
            rates.append(y.nbytes / (time.perf_counter() - start) / 1e9)
            assert bool((y == 7).all())
    finally:
        if sender is not None:
            sender.kill()
        host.close()
    return f"{y.nbytes >> 20} MiB at {', '.join(f'{rate:.0f}' for rate in rates)} GB/s"


def a_sender_is_killed():
    """The other side fails alone, has its slots again, and takes what the next one of that name sends."""
    host, ends = Host("receiver", LAST, LARGE_SLOT_BYTES), []
    y = torch.zeros(SENT, dtype=torch.uint8, device=LAST)
    try:
        for i in range(8):
            sender = Sender(host)
            assert host.stage.receive("sender", "t", y).result(60) == y.nbytes
            assert bool((y == 7).all())
            y.zero_()
            torch.cuda.synchronize(LAST)
            more = [host.stage.receive("sender", "t", y) for _ in range(3)]
            time.sleep(0.001 * i)
            sender.kill()
            ends += [type(transfer.exception(60)).__name__ for transfer in more]
            end = time.monotonic() + 20
            while host.stage.stats()["receive_slots"]["free"] < SLOTS and time.monotonic() < end:
                time.sleep(0.01)
            assert host.stage.stats()["receive_slots"]["free"] == SLOTS
            host.stage.forget("sender")  # it may have moved everything
        assert set(ends) <= {"NoneType", "DisconnectedError"} and "DisconnectedError" in ends, ends
    finally:
        host.close()
    return f"8 times: {ends.count('DisconnectedError')} of {len(ends)} transfers were lost with it"


PARTS = [through_device_slots, through_host_slots, from_device_slots_to_host_slots, conversions, streams, between_processes,
         a_sender_is_killed]


def main():
    if len(sys.argv) > 2:
        send_for_ever(sys.argv[2])
    print(f"1..{len(PARTS)}")
    failures = 0
    for i, part in enumerate(PARTS, 1):
        try:
            note = part()
            print(f"ok {i} - {part.__name__}" + (f"\n# {note}" if note else ""), flush=True)
        except Exception:
            failures += 1
            print(f"not ok {i} - {part.__name__}", *traceback.format_exc().splitlines(), sep="\n# ", flush=True)
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())

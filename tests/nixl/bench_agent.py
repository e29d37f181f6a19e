# SPDX-License-Identifier: Apache-2.0
"""One side of bench.py: a process with memory and an agent, which obeys lines of JSON on standard input and answers each
with one.

    bench_agent.py NAME WAY THREAD POLL-US SLOTS SLOT-BYTES DEVICE

    THREAD: on or off, one that makes progress; DEVICE: host, or the number of a GPU, whose memory PyTorch allocates

Both sides draw the same block lists from a seed, so the one that receives knows what it must have.
"""
import concurrent.futures
import json
import os
import select
import sys
import time

import numpy as np

LAYERS = 32


class Cache:
    """LAYERS layers of blocks of slice_bytes, twice as many as a transfer moves; two buffers if slice_bytes is 0."""

    def __init__(self, moved_bytes, slice_bytes):
        self.slice_bytes = slice_bytes or moved_bytes
        self.layers = LAYERS if slice_bytes else 1
        self.moved = moved_bytes // self.slice_bytes // self.layers
        self.blocks = 2 * self.moved

    def lists(self, seed):
        """Returns random blocks of the source, and the blocks of the destination that receive them."""
        rng = np.random.default_rng(seed)
        return tuple(rng.permutation(self.blocks)[:self.moved].astype(np.int32) for _ in range(2))

    def view(self, memory):
        return memory[:self.layers * self.blocks * self.slice_bytes].reshape(self.layers, self.blocks, self.slice_bytes)

    def slices(self, address, device):
        """Returns a descriptor for each slice as NIXL takes them: address, length, device."""
        count = self.layers * self.blocks
        descriptors = np.zeros((count, 3), np.uint64)
        descriptors[:, 0] = address + np.arange(count, dtype=np.uint64) * np.uint64(self.slice_bytes)
        descriptors[:, 1] = self.slice_bytes
        descriptors[:, 2] = device
        return descriptors

    def indexes(self, blocks):
        """Returns the indexes of these blocks' slices, layer by layer."""
        return (np.arange(self.layers, dtype=np.int32)[:, None] * self.blocks + blocks).ravel()


_STEP = 0x9E3779B97F4A7C15  # of the words that memory is filled with, no two of which are the same


class HostMemory:
    """Host memory that a way has allocated."""

    def __init__(self, array):
        self.array = array

    def _pattern(self):
        return (np.arange(self.array.nbytes // 8, dtype=np.uint64) * np.uint64(_STEP)).view(np.uint8)

    def fill(self):
        self.array[:] = self._pattern()

    def is_moved(self, cache, source, destination):
        """Returns whether the source's blocks are in their places and zeros around them."""
        expected = np.zeros_like(self.array)
        cache.view(expected)[:, destination] = cache.view(self._pattern())[:, source]
        return np.array_equal(self.array, expected)

    def clear(self):
        self.array[:] = 0


class DeviceMemory:
    """The same on a GPU."""

    def __init__(self, size, device):
        import torch
        self._torch = torch
        self.array = torch.zeros(size, dtype=torch.uint8, device=f"cuda:{device}")
        torch.cuda.synchronize(device)

    def _pattern(self):
        words = self._torch.arange(self.array.nbytes // 8, dtype=self._torch.int64, device=self.array.device)
        return (words * (_STEP - (1 << 64))).view(self._torch.uint8)

    def fill(self):
        self.array.copy_(self._pattern())
        self._torch.cuda.synchronize(self.array.device)

    def is_moved(self, cache, source, destination):
        expected, pattern = self._torch.zeros_like(self.array), cache.view(self._pattern())
        source, destination = (self._torch.from_numpy(blocks).long() for blocks in (source, destination))
        for into, layer in zip(cache.view(expected), pattern):
            into[destination] = layer[source]
        return self._torch.equal(self.array, expected)

    def clear(self):
        self.array.zero_()
        self._torch.cuda.synchronize(self.array.device)


class Alone:
    """NIXL by itself, with a descriptor for each slice. All slices are prepared once; a transfer selects its own by
    index."""

    def __init__(self, name, thread, pause_s, slots, slot_bytes, device):
        from nixl._api import nixl_agent, nixl_agent_config
        self.agent = nixl_agent(name, nixl_agent_config(enable_prog_thread=thread))
        self.pause_s, self._device = pause_s, device
        self._handles = ()

    def open(self, size):
        """Allocates so many bytes of memory. Returns it, and what the other side has to know."""
        if self._device is None:
            memory, self._kind = HostMemory(np.zeros(size, np.uint8)), "DRAM"
            self._address = memory.array.ctypes.data
        else:
            memory, self._kind = DeviceMemory(size, self._device), "VRAM"
            self._address = memory.array.data_ptr()
        self.agent.register_memory([(self._address, size, self._device or 0, "")], self._kind)
        return memory, {"metadata": self.agent.get_agent_metadata().hex(), "address": self._address, "device": self._device or 0,
                        "kind": self._kind}

    def connect(self, metadata, address, device, kind):
        self._peer = self.agent.add_remote_agent(bytes.fromhex(metadata))
        self._ends = (("NIXL_INIT_AGENT", self._address, self._device or 0, self._kind), (self._peer, address, device, kind))

    def prepare(self, cache):
        for handle in self._handles:
            handle.release()
        self._handles = [self.agent.prep_xfer_dlist(name, cache.slices(address, device), kind)
                         for name, address, device, kind in self._ends]

    def send(self, cache, source, destination):
        """Sends these blocks of each layer. Returns the seconds that making the request took, and the bytes to move."""
        start = time.perf_counter()
        ours, theirs = self._handles
        handle = self.agent.make_prepped_xfer("WRITE", ours, cache.indexes(source), theirs, cache.indexes(destination), b"moved")
        made = time.perf_counter()
        state = self.agent.transfer(handle)
        while state == "PROC":
            if self.pause_s:
                time.sleep(self.pause_s)
            state = self.agent.check_xfer_state(handle)
        moved = time.perf_counter()
        handle.release()
        assert state == "DONE", f"the transfer ended as {state}"
        return made - start, moved - made

    def expect(self, cache, destination):
        """Announces the next transfer's destination; here only the sender needs to know it."""

    def progress(self):
        """Returns how many transfers have completed here since the last call."""
        if self.pause_s:
            time.sleep(self.pause_s)
        return sum(map(len, self.agent.get_new_notifs().values()))


class Staged:
    """tmaclient.nixl, by a tmad on each host. With THREAD the stage has a progress thread; otherwise it makes progress
    when asked to."""

    def __init__(self, name, thread, pause_s, slots, slot_bytes, device):
        import tmaclient
        import tmaclient.nixl
        self.client = tmaclient.connect(os.environ["TMAD_SOCKET"])
        self._device = device
        memory = None if device is None else DeviceMemory(2 * slots * slot_bytes, device).array
        self.stage = tmaclient.nixl.Stage(self.client, name, thread=thread, send_slots=slots, receive_slots=slots,
                                          slot_bytes=slot_bytes, memory=memory)
        self.thread, self.pause_s = thread, pause_s or 20e-6  # the cores are tmad's too
        self._receiving = None

    def open(self, size):
        if self._device is None:
            self._memory = HostMemory(self.client.empty((size,), "uint8"))
        else:
            self._memory = DeviceMemory(size, self._device)
        return self._memory, {"metadata": self.stage.metadata().hex()}

    def connect(self, metadata):
        self._peer = self.stage.add(bytes.fromhex(metadata))

    def prepare(self, cache):
        self._view = cache.view(self._memory.array)

    def _arguments(self, cache, blocks):
        """Returns the arguments of a transfer. A block has to fit into a slot, so a buffer is sent as blocks of 1
        MiB."""
        if cache.layers == 1:
            return self._view[0, blocks[0]].reshape(-1, 1 << 20), None
        return list(self._view), blocks

    def send(self, cache, source, destination):
        start = time.perf_counter()
        sending = self.stage.send(self._peer, "moved", *self._arguments(cache, source))
        made = time.perf_counter()
        while not self.thread and not sending.done():
            self._step()
        sending.result()
        return made - start, time.perf_counter() - made

    def expect(self, cache, destination):
        self._receiving = self.stage.receive(self._peer, "moved", *self._arguments(cache, destination))

    def progress(self):
        if self.thread:
            concurrent.futures.wait([self._receiving] if self._receiving else [], 0.001)
        else:
            self._step()
        if self._receiving is None or not self._receiving.done():
            return 0
        self._receiving.result()
        self._receiving = None
        return 1

    def _step(self):
        if not self.stage.progress():
            time.sleep(self.pause_s)


WAYS = {"alone": Alone, "staged": Staged}


class Side:
    """Carries out commands by name."""

    def __init__(self, way):
        self._way, self._arrived = way, 0  # transfers that have come, and have not been checked

    def open(self, moved_bytes, filled):
        self._moved_bytes = moved_bytes
        self._memory, known = self._way.open(2 * moved_bytes)
        if filled:
            self._memory.fill()
        return known

    def connect(self, **known):
        self._way.connect(**known)

    def prepare(self, slice_bytes):
        self._cache = Cache(self._moved_bytes, slice_bytes)
        start = time.perf_counter()
        self._way.prepare(self._cache)
        return time.perf_counter() - start

    def send(self, seed):
        return self._way.send(self._cache, *self._cache.lists(seed))

    def expect(self, seed):
        self._way.expect(self._cache, self._cache.lists(seed)[1])

    def check(self, seed):
        """Waits for the transfer, compares every byte of the memory, and clears it."""
        while self._arrived == 0:
            self.progress()
        self._arrived -= 1
        same = self._memory.is_moved(self._cache, *self._cache.lists(seed))
        self._memory.clear()
        return same

    def progress(self):
        self._arrived += self._way.progress()


def main():
    name, way, thread, poll_us, slots, slot_bytes, device = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # NIXL's output must not be taken for an answer
    device = None if device == "host" else int(device)
    side = Side(WAYS[way](name, thread == "on", float(poll_us) / 1e6, int(slots), int(slot_bytes), device))
    receives = False
    while True:
        # Without a thread of its own, UCX moves data only when it is called.
        while receives and not select.select([0], [], [], 0)[0]:
            side.progress()
        line = sys.stdin.readline()
        if not line:
            return
        command, arguments = json.loads(line)
        receives = command == "expect"
        print(json.dumps(getattr(side, command)(**arguments)), file=answers, flush=True)


if __name__ == "__main__":
    main()

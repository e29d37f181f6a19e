# SPDX-License-Identifier: Apache-2.0
"""Feeds a model: frames of uint8 in NHWC become normalized batches of float16 in NCHW with a border of zeros, in memory
shared with tmad: layout, border, normalization and cast are one pass.

With PyTorch, torch.utils.data collects the frames and batches are tensors; without it, threads do and batches are NumPy
arrays. The arrays of batches are used again in turn: a batch is valid until two more have been taken.

    python data_loader.py [--socket PATH] [--batches N]
"""

import argparse
import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import tmaclient as tma

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment,unused-ignore]

BATCH, HEIGHT, WIDTH, BORDER, SLOTS = 32, 224, 224, 3, 3
AXES, PAD = (0, 3, 1, 2), {2: BORDER, 3: BORDER}
MEAN = np.array([123.675, 116.28, 103.53], "float32").reshape(3, 1, 1)  # of the channels of ImageNet
STD = np.array([58.395, 57.12, 57.375], "float32").reshape(3, 1, 1)


class Frames:
    """A data set: frame i, as a decoder would give it."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._noise = np.random.default_rng(1).integers(0, 256, (HEIGHT + 256, WIDTH, 3), "uint8")

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, i: int) -> np.ndarray:
        return self._noise[i % 256 : i % 256 + HEIGHT]


class Batches:
    """Moves NHWC frames into NCHW batches. A slot is a pair of shared arrays, and a plan that was checked once."""

    def __init__(self, client: tma.Client) -> None:
        self._slots = []
        for _ in range(SLOTS):
            frames = client.empty((BATCH, HEIGHT, WIDTH, 3), "uint8")
            batch = client.empty((BATCH, 3, HEIGHT + 2 * BORDER, WIDTH + 2 * BORDER), "float16")
            self._slots.append((frames, batch))
        scale, bias = client.empty(STD.shape), client.empty(STD.shape)
        scale[...], bias[...] = 1 / STD, -MEAN / STD
        self._plan = client.plan(frames, permute=AXES, pad=PAD, out=batch, dtype="float16", scale=scale, bias=bias)
        self._turns, self._lock = itertools.cycle(self._slots), threading.Lock()

    def collate(self, frames: list[np.ndarray]) -> Any:
        """A batch of frames."""
        with self._lock:
            slot, batch = next(self._turns)
        np.stack(frames, out=slot)
        self._plan(slot, batch)
        return torch.from_numpy(batch) if torch is not None else batch


def load(frames: Frames, batches: Batches) -> Iterator[Any]:
    """All batches. While one is used, the next is made."""
    if torch is not None:
        yield from torch.utils.data.DataLoader(frames, BATCH, drop_last=True, collate_fn=batches.collate)
        return
    groups = [range(i, i + BATCH) for i in range(0, len(frames) - BATCH + 1, BATCH)]
    with ThreadPoolExecutor(1) as threads:
        coming = None
        for group in groups:
            following = threads.submit(batches.collate, [frames[i] for i in group])
            if coming is not None:
                yield coming.result()
            coming = following
        if coming is not None:
            yield coming.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--socket", metavar="PATH", help="tmad's socket")
    parser.add_argument("--batches", metavar="N", type=int, default=20)
    arguments = parser.parse_args()
    frames = Frames(arguments.batches * BATCH)
    with tma.connect(arguments.socket) as client:
        start, n = time.perf_counter(), 0
        for k, batch in enumerate(load(frames, Batches(client))):
            n += len(batch)
            if k % 7 == 0:  # the model's turn; here it is looked at
                nhwc = np.stack([frames[i] for i in range(k * BATCH, (k + 1) * BATCH)])
                nchw = (nhwc.transpose(AXES) * (1 / STD) + -MEAN / STD).astype("float16")
                expected = np.pad(nchw, ((0, 0), (0, 0), (BORDER, BORDER), (BORDER, BORDER)))
                assert np.array_equal(np.asarray(batch), expected), f"batch {k}"
        seconds = time.perf_counter() - start
    assert n == len(frames)
    by = f"torch {torch.__version__}" if torch is not None else "threads"
    print(f"{n} frames as NCHW batches by {by}: {n / seconds:.0f} images/s, equal to NumPy's")


if __name__ == "__main__":
    main()

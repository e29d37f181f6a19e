# SPDX-License-Identifier: Apache-2.0
"""Transposes images from NHWC to NCHW in three ways, and compares them with NumPy's.

python numpy_transpose.py [--socket PATH]
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tmaclient as tma

AXES = (0, 3, 1, 2)


def timed(name: str, call: Callable[[], Any], nbytes: int) -> Any:
    """Calls a few times and prints the best one."""
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        result = call()
        best = min(best, time.perf_counter() - start)
    print(f"{name:<28} {best * 1e3:7.2f} ms {2 * nbytes / best / 1e9:6.1f} GB/s")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--socket", metavar="PATH", help="tmad's socket")
    with tma.connect(parser.parse_args().socket) as c:
        x = np.random.default_rng(1).random((8, 56, 56, 256), "float32")
        expected = timed("np.transpose, copied", lambda: np.ascontiguousarray(x.transpose(AXES)), x.nbytes)

        # Ordinary arrays pass through shared memory, in chunks.
        y = timed("ordinary arrays", lambda: c.transpose(x, AXES), x.nbytes)
        assert np.array_equal(y, expected)

        # Arrays of empty() are shared with the service, which moves them where they are.
        shared, out = c.empty(x.shape, x.dtype), c.empty(expected.shape, x.dtype)
        shared[...] = x
        timed("shared arrays", lambda: c.transpose(shared, AXES, out=out), x.nbytes)
        assert np.array_equal(out, expected)

        # A plan is checked once. It saves time when arrays are small and moved often.
        plan = c.plan(shared, permute=AXES, out=out)
        out[...] = 0
        timed("shared arrays, with a plan", lambda: plan(shared, out), x.nbytes)
        assert np.array_equal(out, expected)

        # Transposed and padded in one pass, for a convolution that needs a border.
        z = c.transform(shared, permute=AXES, pad={2: 1, 3: 1}, mode="edge")
        assert np.array_equal(z, np.pad(expected, ((0, 0), (0, 0), (1, 1), (1, 1)), "edge"))
        print(f"all equal to NumPy's; {z.shape} moved by {c.last_result()['path']}")


if __name__ == "__main__":
    main()

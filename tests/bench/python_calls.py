#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the Python package adds to the C library, in one run.

    PYTHONPATH=build/python-site python3 tests/bench/python_calls.py SOCKET [TMACTL]

Calls: the median of a plan on shared arrays, one at a time, against that of tmactl bench, in turns. Arrays: a whole
transpose of 1 GiB that is not shared, against np.ascontiguousarray.
"""
import json
import statistics
import subprocess
import sys
import time

import numpy as np
import tmaclient as tma

ROUNDS, CALLS, SIDE = 25, 4000, 64


def median_us(call):
    """Returns the median of CALLS calls."""
    clock, times = time.perf_counter_ns, []
    for _ in range(CALLS):
        start = clock()
        call()
        times.append(clock() - start)
    return statistics.median(times) / 1e3


def library_us(tmactl, path):
    """Returns the same for the C library."""
    command = [tmactl, "bench", "--socket", path, "--kind", "transform", "--prepared", "--shape", f"{SIDE},{SIDE}",
               "--permute", "1,0", "--requests", str(CALLS), "--duration", "60", "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["latency_us"]["p50"]


def compare_calls(c, tmactl):
    """Prints the median of the rounds' differences: other load of the machine varies, and affects both sides."""
    a, b = c.empty((SIDE, SIDE)), c.empty((SIDE, SIDE))
    plan = c.plan(a, permute=(1, 0), out=b)
    rounds = [(median_us(lambda: plan(a, b)), library_us(tmactl, c.path)) for _ in range(ROUNDS)]
    mine, theirs = (statistics.median(us) for us in zip(*rounds))
    added = statistics.median(m - t for m, t in rounds)
    print(f"a plan on shared arrays   {mine:6.2f} us, by the C library {theirs:6.2f} us: {added:+.2f} us")
    print(f"a transform of them       {median_us(lambda: c.transform(a, permute=(1, 0), out=b)):6.2f} us")


def compare_arrays(c):
    x = np.random.default_rng(1).random((16384, 16384), np.float32)
    mine, theirs = [], []
    for _ in range(3):
        start = time.perf_counter()
        y = c.transpose(x)
        mine.append(time.perf_counter() - start)
        start = time.perf_counter()
        z = np.ascontiguousarray(x.T)
        theirs.append(time.perf_counter() - start)
        assert np.array_equal(y, z)
        del y, z
    a, b = statistics.median(mine), statistics.median(theirs)
    print(f"1 GiB transposed          {a:6.3f} s, by np.ascontiguousarray {b:6.3f} s: {b / a:.1f} times as fast")


def main():
    path, tmactl = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "build/tmactl"
    with tma.connect(path) as c:
        compare_calls(c, tmactl)
        compare_arrays(c)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""How long NumPy, torch on the CPU and HPTT take for a row: medians of runs in which they take turns.

As in bench, a source and its destination are places in two arenas that all rows share and that were touched before;
calls of small rows go round in more memory than the caches hold. Calls that fill a border, NumPy's and torch's pads,
return memory of their own, as in a program.
"""
import functools
import importlib.util
import subprocess
import sys
import time

import numpy as np

import compare_hptt
from compare_rows import median

ALIGN = 256
LOW, HIGH = 16, 64  # bytes of random data: as the highest byte of a float, they make no NaN and nothing denormal
LEAST_ROUND = 64 << 20
MAX_PLACES = 1 << 14
SAMPLE_NS = 2e6  # a run repeats a call for at least this long
ROW_NS = 1e9
MIN_RUNS, MAX_RUNS = 3, 9
REST_S = 0.01  # OpenMP's threads spin for about this long, on CPUs that the next operation needs


# ---- A row in NumPy --------------------------------------------------------------------------------------------------


def pitch_of(row):
    """Returns the bytes from one place to the next on either side, as in compare_torch, which uses the same arenas."""
    most = max(row.src_elements * row.element, row.dst_elements * row.element, int(row.bytes) // 2)
    return (most // ALIGN + 2) * ALIGN


def dtype_of(row):
    return np.dtype("uint16" if row.dtype == "bfloat16" else row.dtype)


def elements(row, arena, place, first):
    return arena.view(dtype_of(row))[place * pitch_of(row) // row.element + first:]


def source(row, arena, place=0):
    return np.lib.stride_tricks.as_strided(elements(row, arena, place, row.src_offset), row.shape,
                                           [row.element * stride for stride in row.strides])


def destination(row, arena, place=0):
    return elements(row, arena, place, row.dst_offset)[:row.dst_elements - row.dst_offset].reshape(row.dst_shape)


def shown(row, src):
    """Returns what the destination shows of a source, in the order of the source's axes."""
    index = [None] * len(row.perm)
    for axis, before, after in zip(row.perm, row.before, row.after):
        index[axis] = slice(max(-before, 0), row.shape[axis] - max(-after, 0))
    return src[tuple(index)]


def border_of(row):
    return [(max(before, 0), max(after, 0)) for before, after in zip(row.before, row.after)]


def has_border(row):
    return any(map(any, border_of(row)))


def value_of(row):
    """Returns the value of a constant border."""
    if row.dtype == "bfloat16":
        return np.float32(row.value).view(np.uint32) >> 16
    return np.array(row.value).astype(dtype_of(row))


# ---- What is timed ---------------------------------------------------------------------------------------------------


def by_numpy(row, dst, src):
    """Returns a function without arguments that returns what it filled. So do the functions below, or None where a
    library lacks the operation."""
    view = shown(row, src).transpose(row.perm)
    if not has_border(row):
        def copy():
            np.copyto(dst, view)
            return dst
        return copy
    options = {"constant_values": value_of(row)} if row.mode == "constant" else {}
    return functools.partial(np.pad, view, border_of(row), row.mode, **options)


class Others:
    """The libraries besides NumPy that are installed here."""

    def __init__(self, threads):
        self.threads, self.torch, self.hptt = threads, None, None
        library = compare_hptt.find()
        if library:
            self.hptt = compare_hptt.Hptt(library, threads)
        if importlib.util.find_spec("torch"):
            self._import_torch()

    def _import_torch(self):
        try:
            import compare_torch
            import torch
        except ImportError as error:
            print(f"torch is left out: {error}", file=sys.stderr)
            return
        self.torch, self.tensors = torch, compare_torch
        torch.set_num_threads(self.threads)

    @property
    def text(self):
        torch = f"torch {self.torch.__version__}" if self.torch else "no torch"
        return f"NumPy {np.__version__} with 1 thread, {torch}, {'HPTT' if self.hptt else 'no HPTT'}"

    def by_torch(self, row, arenas, places):
        """Returns a function for each place."""
        dst, src = map(self.torch.from_numpy, arenas)
        run = self.tensors.eager(row, "cpu")
        return [functools.partial(run, self.tensors.destination(row, dst, place), self.tensors.source(row, src, place))
                for place in range(places)]

    def by_hptt(self, row, arenas, places):
        dst, src = arenas
        return [self.hptt.transposition(row, destination(row, dst, place), shown(row, source(row, src, place)))
                for place in range(places)]

    def operations(self, row, arenas, places):
        """Returns by name a function for each place, or None."""
        dst, src = arenas
        ret = {"numpy": [by_numpy(row, destination(row, dst, place), source(row, src, place))
                         for place in range(places)]}
        if self.torch:
            ret["torch"] = self.by_torch(row, arenas, places)
        if self.hptt:
            ret["hptt"] = self.by_hptt(row, arenas, places) if compare_hptt.takes(row) else None
        return ret

    def bytes_of(self, made):
        """Returns the bytes of what a function returned."""
        if isinstance(made, np.ndarray):
            return np.ascontiguousarray(made).reshape(-1).view(np.uint8)
        return made.contiguous().reshape(-1).view(self.torch.uint8).numpy()


def check(row, operations, arenas, others):
    """Calls each at the first place. Raises ValueError if the bytes are not NumPy's."""
    dst = destination(row, arenas[0])
    expected = others.bytes_of(operations["numpy"][0]()).copy()
    for name, functions in operations.items():
        if not functions or name == "numpy":
            continue
        dst.reshape(-1).view(np.uint8)[:] = 0xa5
        made = functions[0]()
        if not np.array_equal(others.bytes_of(dst if made is None else made), expected):
            raise ValueError(f"{row.label}: {name} and NumPy differ")


def cache_bytes():
    """Returns the size of the last-level cache by the C library, as in bench; 0 if unknown."""
    done = subprocess.run(["getconf", "LEVEL3_CACHE_SIZE"], stdout=subprocess.PIPE, encoding="utf-8", check=False)
    return int(done.stdout) if done.stdout.strip().isdigit() else 0


class Clock:
    def __init__(self, rows):
        self.round = max(LEAST_ROUND, 2 * cache_bytes())
        size = max(pitch_of(row) * self.places(row) for row in rows)
        self.arenas = (np.zeros(size, np.uint8), np.random.default_rng(1).integers(LOW, HIGH, size, np.uint8))
        self.arenas[0].fill(1)
        self.at = 0

    def places(self, row):
        return max(1, min(MAX_PLACES, self.round // pitch_of(row)))

    def call_ns(self, functions, calls):
        """Returns the nanoseconds of a call. Each call uses the next place, whoever used the earlier ones."""
        turn = [functions[(self.at + i) % len(functions)] for i in range(calls)]
        self.at = (self.at + calls) % len(functions)
        time.sleep(REST_S)
        start = time.perf_counter_ns()
        for function in turn:
            function()
        return (time.perf_counter_ns() - start) / calls

    def time(self, operations):
        """Returns the median nanoseconds of a call by name."""
        sides = {name: functions for name, functions in operations.items() if functions}
        self.at = 0
        calls = {name: max(1, int(SAMPLE_NS / self.call_ns(functions, 1))) for name, functions in sides.items()}
        warm = {name: calls[name] * self.call_ns(functions, calls[name]) for name, functions in sides.items()}
        n_runs = max(MIN_RUNS, min(MAX_RUNS, int(ROW_NS / sum(warm.values()))))
        runs = [{name: self.call_ns(functions, calls[name]) for name, functions in sides.items()}
                for _ in range(n_runs)]
        return {name: median([run[name] for run in runs]) if name in sides else None for name in operations}


def measure(rows, others, seconds):
    """Yields nanoseconds by name for each row; none after so many seconds."""
    clock, deadline = Clock(rows), time.monotonic() + seconds
    for row in rows:
        if time.monotonic() > deadline:
            return
        operations = others.operations(row, clock.arenas, clock.places(row))
        check(row, operations, clock.arenas, others)
        yield clock.time(operations)

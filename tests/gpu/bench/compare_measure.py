# SPDX-License-Identifier: Apache-2.0
"""How long eager torch, torch.compile and cuTENSOR take for a row on a GPU, by the device's events, next to its copy of
as many bytes.

Memory is shared by all rows. Each call uses the next place in it. The host enqueues all calls of a run while a copy of
something else, which is not timed, keeps the device busy, so that none of them waits for Python.
"""
import os
import subprocess
import sys
import time

import torch

import cutensor
from compare_rows import median
from compare_torch import compiled, destination, eager, pitch_of, random_arena, same_bytes, source, viewer

SAMPLE_BYTES = 128 << 20  # moved by all calls of a run together, as in bench_gpu
MAX_CALLS = 32
LEAD = 128 << 20  # bytes read by a copy before the calls; more than the L2 holds
MAX_LEADS = 256
ROW_SECONDS = 0.15
MIN_RUNS, MAX_RUNS = 3, 9


def calls_of(row):
    return max(1, min(MAX_CALLS, int(SAMPLE_BYTES // max(row.bytes, 1))))


class Clock:
    def __init__(self, rows, device):
        self.l2 = torch.cuda.get_device_properties(device).L2_cache_size
        size = max(pitch_of(row) * self.places(row) for row in rows)
        self.src, self.dst = random_arena(size, device), torch.zeros(size, dtype=torch.uint8, device=device)
        self.lead_src, self.lead_dst = random_arena(LEAD, device), torch.zeros(LEAD, dtype=torch.uint8, device=device)
        self.leads = 1

    def places(self, row):
        """Returns the number of places: more than the L2 can hold, but at most one for each call, as the copy before a
        run empties the L2."""
        return max(2, min(MAX_CALLS, 2 * self.l2 // pitch_of(row) + 1))

    def call_ns(self, call, calls):
        """Returns the nanoseconds of one of so many calls, all of which the host enqueues before the device begins the
        first."""
        while True:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            for _ in range(self.leads):
                self.lead_dst.copy_(self.lead_src)
            start.record()
            for _ in range(calls):
                call()
            end.record()
            was_ahead = not start.query()
            end.synchronize()
            if was_ahead or self.leads >= MAX_LEADS:
                return 1e6 * start.elapsed_time(end) / calls
            self.leads *= 2

    def time(self, row, operations):
        """operations has run(dst, src) by name. Returns, by name and for "copy", the nanoseconds of a call, and the
        ratios of the copy's time to theirs: medians of runs in which all take turns."""
        calls, half, pitch = calls_of(row), int(row.bytes) // 2, pitch_of(row)
        places = [(destination(row, self.dst, i), source(row, self.src, i), self.dst[i * pitch:i * pitch + half],
                   self.src[i * pitch:i * pitch + half]) for i in range(self.places(row))]
        at = 0

        def next_place():
            nonlocal at
            at = (at + 1) % len(places)
            return places[at]

        def copy():
            _, _, to, of = next_place()
            to.copy_(of)

        def caller(run):
            def call():
                dst, src, _, _ = next_place()
                run(dst, src)
            return call

        sides = {"copy": copy, **{name: caller(run) for name, run in operations.items()}}
        warm = {name: self.call_ns(call, calls) for name, call in sides.items()}
        n_runs = int(ROW_SECONDS / (1e-9 * calls * sum(warm.values())))
        runs = [{name: self.call_ns(call, calls) for name, call in sides.items()}
                for _ in range(max(MIN_RUNS, min(MAX_RUNS, n_runs)))]
        return ({name: median([run[name] for run in runs]) for name in sides},
                {name: median([run["copy"] / run[name] for run in runs]) for name in operations})


# ---- What is timed ---------------------------------------------------------------------------------------------------


def compile_ahead(report, limit, jobs):
    """Compiles the first rows of a report's text in separate processes, which use no time of the device. They are not
    made by multiprocessing, under which torch's cache has other keys."""
    code = "import compare_torch; compare_torch.compile_only({}, {}, {})"
    workers = [subprocess.Popen([sys.executable, "-c", code.format(limit, i, jobs)], stdin=subprocess.PIPE,
                                cwd=os.path.dirname(os.path.abspath(__file__)), encoding="utf-8") for i in range(jobs)]
    for worker in workers:
        worker.stdin.write(report)
        worker.stdin.close()
    for worker in workers:
        worker.wait()


def by_cutensor(row, tensors, dst, src):
    """Returns run(dst, src), or None if cuTENSOR has no such transforms."""
    if not tensors or not cutensor.takes(row):
        return None
    view = viewer(row)
    run = tensors.permutation(dst, view(src), row.element, torch.cuda.current_stream().cuda_stream)
    return lambda to, of: run(to, view(of))


def operations_of(row, clock, tensors):
    """Returns run(dst, src) by name, or None for one that refused, after each has moved the same bytes as eager torch.
    Raises ValueError if one has not."""
    dst, src = destination(row, clock.dst, 1), source(row, clock.src)
    expected = eager(row, clock.src.device)(destination(row, clock.dst), src)
    makers = {"eager": lambda: eager(row, clock.src.device), "compile": lambda: compiled(row, clock.src.device),
              "cutensor": lambda: by_cutensor(row, tensors, dst, src)}
    operations = {}
    for name, make in makers.items():
        made = None
        dst.zero_()
        try:
            operations[name] = make()
            made = operations[name](dst, src) if operations[name] else None
        except Exception as error:  # pylint: disable=broad-except  # each library has its own
            print(f"{row.label}: {name}: {str(error).splitlines()[0]}", file=sys.stderr)
            operations[name] = None
        if made is not None and not same_bytes(expected, made):
            raise ValueError(f"{row.label}: {name} and eager torch differ")
    return operations


def measure(rows, tensors, seconds, device="cuda"):
    """Yields a result for each row, for compare_rows.report_lines; none after so many seconds."""
    clock, deadline = Clock(rows, device), time.monotonic() + seconds
    for row in rows:
        if time.monotonic() > deadline:
            return
        operations = operations_of(row, clock, tensors)
        ns, ratios = clock.time(row, {name: run for name, run in operations.items() if run})
        yield {"label": row.label, "kind": row.kind, "element": row.element, "family": row.family, "bytes": row.bytes,
               "tmad": row.ratio, "tmad_ns": row.tmad_ns, "copy_ns": ns["copy"],
               "others": {name: ratios.get(name) for name in operations},
               "others_ns": {name: ns.get(name) for name in operations}}

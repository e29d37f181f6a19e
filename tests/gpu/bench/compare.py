#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random rows by tmad's kernels, eager torch, torch.compile and cuTENSOR on a GPU, each next to a device copy of as
many bytes in the same process: how the ratios are distributed, and tmad's against the best of the others, by class.

    compare.py --random SEED N                     # runs bench_gpu, then the others on the same rows
    compare.py --random SEED N --least 1024 --most 16384
    compare.py --report FILE                       # the rows that bench_gpu --json wrote
    compare.py --load FILE                         # measures nothing: the tables of an earlier --out

torch.compile is warmed up: every kernel is compiled ahead by --jobs processes, and tuned by its first call. What the
others make of a row is compared with what eager torch makes of it, byte for byte; bench_gpu compares with the oracle.
It needs a GPU and torch, and takes cuTENSOR if it finds it. Exit status: 1 for wrong bytes.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import compare_rows

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("TEST_BUILDDIR") or os.path.join(HERE, "..", "..", "..", "build")
BUNDLED = os.path.join(HERE, "bin", "bench_gpu")  # made by make gpu-bundle
BENCH = BUNDLED if os.path.exists(BUNDLED) else os.path.join(BUILD, "tests/gpu/bench/bench_gpu")


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def run_bench(options):
    """Returns bench_gpu's report of the rows that the options name."""
    command = [options.bench, "--json", "--random", *options.random]
    for name in ("least", "most"):
        command += [f"--{name}={getattr(options, name)}"] if getattr(options, name) else []
    paths = [os.path.join(os.path.dirname(options.bench), "..", "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, encoding="utf-8", check=False,
                          env={**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, paths))})
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def measure(options):
    """Returns the run and the results. They are also written as they come, so that an interrupted run loses none."""
    text = text_of(options.report) if options.report else run_bench(options)
    run, rows = compare_rows.read_report(text)
    rows = rows[:options.limit]
    with tempfile.TemporaryDirectory(prefix="tmad-compare-") as cache:
        os.environ.update(TORCHINDUCTOR_CACHE_DIR=cache, TORCHINDUCTOR_COMPILE_THREADS="1")
        import torch

        import compare_measure
        import cutensor

        if not torch.cuda.is_available():
            sys.exit("compare.py: torch sees no GPU here")
        start = time.monotonic()
        compare_measure.compile_ahead(text, options.limit, options.jobs)
        print(f"{len(rows)} rows, compiled in {time.monotonic() - start:.0f} s", file=sys.stderr)
        library = cutensor.find()
        tensors = library and cutensor.CuTensor(library)
        run["others"] = f"torch {torch.__version__}, " + (f"cuTENSOR {tensors.version}" if tensors else "no cuTENSOR")
        results = []
        out = open(options.out, "w", encoding="utf-8") if options.out else open(os.devnull, "w", encoding="utf-8")
        with out, torch.no_grad():
            print(json.dumps({"run": run}), file=out)
            for result in compare_measure.measure(rows, tensors, options.seconds):
                results.append(result)
                print(json.dumps(result), file=out, flush=True)
        print(f"measured {len(results)} of {len(rows)} rows, {time.monotonic() - start:.0f} s", file=sys.stderr)
    return run, results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--random", nargs=2, metavar=("SEED", "N"), help="rows for bench_gpu to draw and measure")
    what.add_argument("--report", metavar="FILE", help="take the rows that bench_gpu --json wrote")
    what.add_argument("--load", metavar="FILE", help="measure nothing: print the tables of an earlier --out")
    parser.add_argument("--least", metavar="KIB", help="as for bench_gpu")
    parser.add_argument("--most", metavar="KIB", help="as for bench_gpu")
    parser.add_argument("--bench", metavar="PATH", default=BENCH, help="bench_gpu [%(default)s]")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N rows")
    parser.add_argument("--seconds", type=float, default=600, metavar="N",
                        help="measure no row after so many seconds, not counting bench_gpu and compiling [%(default)s]")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N",
                        help="processes that compile [one a CPU]")
    parser.add_argument("--out", metavar="FILE", help="write each result as JSON, for --load")
    options = parser.parse_args()
    try:
        run, results = compare_rows.read_results(text_of(options.load)) if options.load else measure(options)
    except (OSError, ValueError) as error:
        sys.exit(f"compare.py: {error}")
    print(f"{run['date']}; {run['machine']}; {run['engine']}; {run['others']}; {run['random']}\n")
    for line in compare_rows.report_lines(results):
        print(line)


if __name__ == "__main__":
    main()

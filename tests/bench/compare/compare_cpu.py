#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random rows by tmad's CPU engine, NumPy, torch on the CPU and HPTT, as ratios to memcpy, and tmad's speed to each.

    compare_cpu.py --random SEED N                 # runs bench for each row, next to the others
    compare_cpu.py --random SEED N --least 1024 --most 16384 --isa avx2
    compare_cpu.py --report FILE                   # the rows that bench --json wrote
    compare_cpu.py --load FILE                     # measures nothing: the tables of an earlier --out

torch and HPTT have as many threads as tmad, and NumPy has one. What is not installed is left out: HPTT is the
libhptt.so that HPTT_LIBRARY names or the loader finds. Times are the clock's, of calls from Python, which takes about a
microsecond to make one; memcpy's are bench's. A row is measured by all of them before the next one, because machines
drift. Results are compared with NumPy's, byte for byte; bench compares with the oracle. Exit status: 1 for wrong bytes.
"""
import argparse
import dataclasses
import json
import math
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("TEST_BUILDDIR") or os.path.join(HERE, "..", "..", "..", "build")
BUNDLED = os.path.join(HERE, "bin", "bench")  # by make gpu-bundle, with all scripts in one folder
BENCH = BUNDLED if os.path.exists(BUNDLED) else os.path.join(BUILD, "tests/bench/bench")
sys.path.append(os.path.join(HERE, "..", "..", "gpu", "bench"))
import compare_rows
from compare_rows import Distribution, cells_of, median

NAMES = {"numpy": "NumPy", "torch": "torch", "hptt": "HPTT"}
LEAST = "64"  # KiB of a source; for smaller ones, the call from Python takes the larger part
DISTRIBUTION = "rows | geometric mean | 10th percentile | worst"


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


# ---- tmad ------------------------------------------------------------------------------------------------------------


def run_bench(options, *more):
    """Returns bench's report of the rows that the options name."""
    command = [*os.environ.get("EMULATOR", "").split(), options.bench, "--json", "--random", *options.random, *more]
    for name in ("least", "most", "isa", "threads"):
        command += [f"--{name}={getattr(options, name)}"] if getattr(options, name) else []
    command += ["--quick"] if options.quick else []
    paths = [os.path.join(os.path.dirname(options.bench), "..", "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, encoding="utf-8", check=False,
                          env={**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, paths))})
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


@dataclasses.dataclass
class Times:
    """The nanoseconds of each run of a row."""
    base: list
    tmad: dict  # by instruction set


def read_times(text):
    """What bench --json printed: what it says of the run, and the Times of each row, by the row without its figures.
    ValueError: it is something else."""
    run, rows = compare_rows.read_report(text)
    nodes = (node for node in json.loads(text)["rows"] if not node["blocks"])
    times = {}
    for row, node in zip(rows, nodes):
        key = dataclasses.replace(row, ratio=0, tmad_ns=0)
        one = times.setdefault(key, Times(node["base_ns"], {}))
        one.tmad[node.get("isa", "tmad")] = node["tmad_ns"]
    return run, times


def result_of(row, times, others_ns):
    return {"label": row.label, "kind": row.kind, "element": row.element, "family": row.family, "bytes": row.bytes,
            "memcpy_ns": median(times.base), "tmad_ns": {isa: median(runs) for isa, runs in times.tmad.items()},
            "others_ns": others_ns}


# ---- Tables ----------------------------------------------------------------------------------------------------------


def names_of(results, key):
    return list(dict.fromkeys(name for result in results for name in result[key]))


def best_other(result):
    return min(ns for ns in result["others_ns"].values() if ns)


def speed_to(isa, name):
    """Returns tmad's speed relative to that of one of the others, or of the fastest: "best"."""
    def ratio(result):
        other = best_other(result) if name == "best" else result["others_ns"].get(name)
        return other and other / result["tmad_ns"][isa]
    return ratio


def report_lines(results):
    """The tables, line by line. A result: label, kind, element, family, bytes; memcpy_ns; tmad_ns by instruction set,
    others_ns by name, None for what one of them cannot."""
    isas, others = names_of(results, "tmad_ns"), names_of(results, "others_ns")
    yield f"| ratio to memcpy | {DISTRIBUTION} |"
    yield "|---|---|---|---|---|"
    sides = [(f"tmad, {isa}", "tmad_ns", isa) for isa in isas]
    sides += [(NAMES[name], "others_ns", name) for name in others]
    for title, key, name in sides:
        values = [result["memcpy_ns"] / result[key][name] for result in results if result[key].get(name)]
        if values:
            d = Distribution.of(values)
            yield f"| {title} | {d.rows} | {d.mean:.3f} | {d.tenth:.3f} | {d.worst:.3f} |"
    yield ""
    yield f"| speed of tmad | to that of | {DISTRIBUTION} | under {compare_rows.NEAR} |"
    yield "|---|---|---|---|---|---|---|"
    for isa in isas:
        for name in [*others, "best"]:
            values = list(filter(None, map(speed_to(isa, name), results)))
            if values:
                yield f"| {isa} | {NAMES.get(name, 'the fastest of them')} {cells_of(values)}"
    fastest = isas[-1]
    yield ""
    yield f"| speed of tmad, {fastest}, to the fastest of the others | | {DISTRIBUTION} | under {compare_rows.NEAR} |"
    yield "|---|---|---|---|---|---|---|"
    ratio = speed_to(fastest, "best")
    for (group, name), values in compare_rows.grouped(results, ratio).items():
        yield f"| {group} | {name} {cells_of(values)}"
    yield ""
    yield f"the ten rows in which tmad, {fastest}, is furthest behind the fastest of the others:"
    for result in sorted(results, key=ratio)[:10]:
        times = ", ".join(f"{NAMES[name]} {1e-3 * ns:.0f}" for name, ns in result["others_ns"].items() if ns)
        yield (f"{ratio(result):.2f}  {result['label']} by {result['family']}: "
               f"{1e-3 * result['tmad_ns'][fastest]:.0f} us; {times}")


# ---- The program -----------------------------------------------------------------------------------------------------


def measure(options):
    """Returns the run and the results. They are also written as they come, so that an interrupted run loses none."""
    import compare_cpu_measure

    run, times = read_times(text_of(options.report) if options.report else run_bench(options, "--runs=1"))
    rows = list(times)[:options.limit]
    others = compare_cpu_measure.Others(run["threads"])
    run["others"] = others.text
    start, results = time.monotonic(), []
    with open(options.out or os.devnull, "w", encoding="utf-8") as out:
        print(json.dumps({"run": run}), file=out)
        for row, others_ns in zip(rows, compare_cpu_measure.measure(rows, others, options.seconds)):
            if options.random:
                again = run_bench(options, f"--rows={row.label}", f"--runs={options.runs}")
                times[row] = read_times(again)[1][row]
            results.append(result_of(row, times[row], others_ns))
            print(json.dumps(results[-1]), file=out, flush=True)
    print(f"measured {len(results)} of {len(rows)} rows, {time.monotonic() - start:.0f} s", file=sys.stderr)
    return run, results


def read_results(text):
    """Reads what --out wrote. Raises ValueError if it is something else."""
    try:
        first, *results = map(json.loads, text.splitlines())
        if not results:
            raise ValueError("not what compare_cpu.py --out writes: there is no result")
        list(report_lines(results))
        return first["run"], results
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not what compare_cpu.py --out writes: {error!r} is missing or wrong") from error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--random", nargs=2, metavar=("SEED", "N"), help="rows for bench to draw and measure")
    what.add_argument("--report", metavar="FILE", help="take the rows that bench --json wrote")
    what.add_argument("--load", metavar="FILE", help="measure nothing: print the tables of an earlier --out")
    parser.add_argument("--least", metavar="KIB", default=LEAST, help="as for bench [%(default)s]")
    parser.add_argument("--most", metavar="KIB", help="as for bench")
    parser.add_argument("--threads", metavar="N", help="as for bench")
    parser.add_argument("--runs", default="9", metavar="N", help="of bench [%(default)s]")
    parser.add_argument("--isa", metavar="NAME,...", default="all", help="as for bench [%(default)s]")
    parser.add_argument("--bench", metavar="PATH", default=BENCH, help="bench [%(default)s]")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N rows")
    parser.add_argument("--seconds", type=float, default=math.inf, metavar="N",
                        help="measure no row after so many seconds")
    parser.add_argument("--quick", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", metavar="FILE", help="write each result as JSON, for --load")
    options = parser.parse_args()
    try:
        run, results = read_results(text_of(options.load)) if options.load else measure(options)
    except (OSError, ValueError) as error:
        sys.exit(f"compare_cpu.py: {error}")
    print(f"{run['date']}; {run['machine']}; {run['engine']}; {run['others']}; {run['random']}\n")
    for line in report_lines(results):
        print(line)


if __name__ == "__main__":
    main()

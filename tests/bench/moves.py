# SPDX-License-Identifier: Apache-2.0
"""Many small moves, in one run and one table: lists of blocks, batches, runs of plans and the submission ring through a
service of its own on a temporary socket, each next to what it is held against, and the engine's own rows of blocks.

    make bench-moves              # or: make bench-moves BENCH='--threads 1'

No figure decides the exit status; wrong bytes do.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile

from service import BUILD, TMAD, Server

MOVES = os.path.join(BUILD, "tests/bench/bench_moves")
BENCH = os.path.join(BUILD, "tests/bench/bench")
ENGINE_ROWS = [f"{kind} 8192{rest}" for kind in ("gather", "scatter")
               for rest in (" float16 [16384]", " float16 [2048]", ", permute 1,0,2")]
GPU_ROWS = [f"GPU: {kib} KiB blocks gathered and scattered" for kib in (4, 16, 64)]
GPU_BASES = ("cuMemcpyBatchAsync", "a loop of cuMemcpyAsync")


def of_runs(row):
    """Returns the figures of a row of bench_moves: medians, and the bounds of the middle half of the runs' ratios."""
    ratios = sorted(ours / base for ours, base in zip(row["ours"], row["base"]))
    cut = len(ratios) // 4
    return {"what": row["what"], "against": row["against"], "unit": row["unit"],
            "base": statistics.median(row["base"]), "ours": statistics.median(row["ours"]),
            "ratio": statistics.median(ratios), "low": ratios[cut], "high": ratios[-1 - cut],
            "bar": row["bar"], "at_most": row["at_most"]}


def of_report(row):
    """Returns the same figures of a row of bench's report."""
    shape = " x ".join(map(str, row["shape"]))
    return {"what": f"{row['what']} of {shape} {row['dtype']}, the engine alone", "against": "memcpy", "unit": "GB/s",
            "base": row["base_gb_s"]["median"], "ours": row["tmad_gb_s"]["median"], "bar": row["bar"], "at_most": False,
            **{"ratio" if key == "median" else key: value for key, value in row["ratio"].items()}}


def verdict(row):
    if not row["bar"]:
        return ""
    return "held" if (row["ratio"] <= row["bar"] if row["at_most"] else row["ratio"] >= row["bar"]) else "under"


def print_row(row):
    bar = f"{'<=' if row['at_most'] else '>='} {row['bar']:.2f}" if row["bar"] else "-"
    print(f"| {row['what']} | {row['against']} | {row['base']:.2f} {row['unit']} | {row['ours']:.2f} {row['unit']} "
          f"| {row['ratio']:.2f} | {row['low']:.2f}..{row['high']:.2f} | {bar} | {verdict(row)} |", flush=True)
    return verdict(row)


def rows_of(part, tmad, options, place, cpus):
    """Yields each row of a part of bench_moves. cpus are those of the service's main thread and of the client."""
    os.sched_setaffinity(tmad.process.pid, cpus[0])
    with subprocess.Popen([MOVES, tmad.path, str(options.threads), part] + ["quick"] * options.quick,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, encoding="utf-8",
                          preexec_fn=lambda: os.sched_setaffinity(0, cpus[1])) as moves:
        for line in moves.stdout:
            row = of_runs(json.loads(line))
            yield {**row, "what": row["what"] + place}
    if moves.returncode:
        sys.exit(1)


def service_rows(options):
    free = os.sched_getaffinity(0)
    first, last = {min(free)}, {max(free)}
    with tempfile.TemporaryDirectory(prefix="tmad-bench-") as directory:
        path = os.path.join(directory, "t")
        command = [TMAD, "--engine", "cpu", "--threads", str(options.threads), "--socket", path]
        with Server("tmad", path, command, free) as tmad:
            yield from rows_of("blocks", tmad, options, "", (free, free))
            yield from rows_of("rates", tmad, options, ", on one CPU", (first, first))
            if first == last:  # with a single CPU, the side that spins keeps the other from working
                return
            yield from rows_of("rates", tmad, options, ", a CPU each", (first, last))
            yield from rows_of("ring", tmad, options, ", a CPU each", (first, last))


def engine_rows(options):
    wanted = ["gather", "scatter"] if options.quick else ENGINE_ROWS
    command = [BENCH, "--json", "--threads", str(options.threads)] + ["--quick"] * options.quick
    done = subprocess.run(command + [arg for row in wanted for arg in ("--rows", row)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, encoding="utf-8", check=False)
    if done.returncode == 2:  # it lacks a library for JSON, and has said so
        return []
    if done.returncode:
        sys.exit(1)
    return map(of_report, json.loads(done.stdout)["rows"])


def main():
    cpus = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description="many small moves through tmad, each next to what it is held against")
    parser.add_argument("--threads", type=int, default=cpus, help="of the engine and of memcpy [one a CPU]")
    parser.add_argument("--quick", action="store_true", help="little of everything, to try the program")
    options = parser.parse_args()
    print(f"{cpus} CPUs ({platform.machine()}), Linux {platform.release()}; engine and memcpy with {options.threads} threads; "
          "medians; spread: what the middle half of the runs' ratios lies between\n\n"
          "| what | against | that | tmad | ratio | spread | bar | |\n|---|---|---|---|---|---|---|---|", flush=True)
    verdicts = [print_row(row) for rows in (service_rows, engine_rows) for row in rows(options)]
    for what in GPU_ROWS:
        for base in GPU_BASES:
            print(f"| {what} | {base} | - | - | - | - | > 1.00 | not measured here |")
    print(f"\nrows that hold their bar: {verdicts.count('held')} of {len(verdicts) - verdicts.count('')}")


if __name__ == "__main__":
    main()

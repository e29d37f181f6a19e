#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tmactl copy` against a NumPy script and cp, whole commands, files included: one table from one run.

    make bench-copy, or python3 tests/bench/copy.py [--runs N] [--json] [PART-OF-A-NAME]

Files are made in $TMPDIR, of random bytes, and are in the page cache when they are read; outputs are removed before
each run. hyperfine takes the times where it is installed. What each row wrote is compared byte for byte.
"""
import argparse
import filecmp
import json
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from tmad import TMACTL, Tmad

# Name, shape, type, flags of tmactl copy, what the script does to its array `a`.
ROWS = (
    ("transpose float32, 1 GiB", (16384, 16384), "f4", "--permute 1,0", "np.ascontiguousarray(a.T)"),
    ("NHWC->NCHW float32, 514 MB", (160, 56, 56, 256), "f4", "--permute 0,3,1,2",
     "np.ascontiguousarray(a.transpose(0, 3, 1, 2))"),
    ("unchanged float32, 1 GiB", (16384, 16384), "f4", "", "a"),
    ("pad float32 1:1,1:1, 1 GiB", (16384, 16384), "f4", "--pad 1:1,1:1", "np.pad(a, 1)"),
    ("transpose uint8, 256 MiB", (16384, 16384), "u1", "--permute 1,0", "np.ascontiguousarray(a.T)"),
)
SCRIPT = "import numpy as np; a = np.load({src!r}{how}); np.save({dst!r}, {work})"


def make_file(path, shape, dtype):
    """Writes the array in pieces, so that it is never in memory as a whole."""
    rng = np.random.default_rng(1)
    count = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    with open(path, "wb") as file:
        header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for at in range(0, count, 1 << 26):
            file.write(rng.bytes(min(1 << 26, count - at)))


def time_by_hand(commands, outputs, runs):
    """Returns the seconds of each run of each command. A first run, which is not counted, warms up."""
    times = []
    for command, output in zip(commands, outputs):
        times.append([])
        for run in range(runs + 1):
            if os.path.exists(output):
                os.unlink(output)
            start = time.perf_counter()
            subprocess.run(command, check=True)
            if run:
                times[-1].append(time.perf_counter() - start)
    return times


def time_by_hyperfine(commands, outputs, runs, directory):
    report = os.path.join(directory, "times.json")
    command = ["hyperfine", "-N", "--style", "none", "--warmup", "1", "--runs", str(runs), "--export-json", report]
    for output in outputs:
        command += ["--prepare", shlex.join(["rm", "-f", output])]
    done = subprocess.run(command + [shlex.join(c) for c in commands], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout)
    with open(report, encoding="utf-8") as file:
        return [result["times"] for result in json.load(file)["results"]]


def run_row(row, tmad, directory, runs):
    name, shape, dtype, flags, work = row
    src = os.path.join(directory, "in.npy")
    outputs = [os.path.join(directory, f"{who}.npy") for who in ("tmactl", "numpy", "mapped", "cp")]
    commands = [
        [TMACTL, "--socket", tmad.path, "copy", "-q", src, outputs[0], *flags.split()],
        [sys.executable, "-c", SCRIPT.format(src=src, dst=outputs[1], how="", work=work)],
        [sys.executable, "-c", SCRIPT.format(src=src, dst=outputs[2], how=", mmap_mode='r'", work=work)],
        ["cp", "--reflink=never", src, outputs[3]],
    ]
    make_file(src, shape, dtype)
    if shutil.which("hyperfine"):
        times = time_by_hyperfine(commands, outputs, runs, directory)
    else:
        times = time_by_hand(commands, outputs, runs)
    for output in outputs[1:3]:
        assert filecmp.cmp(outputs[0], output, shallow=False), f"{name}: {outputs[0]} and {output} differ"
    for path in (src, *outputs):
        os.unlink(path)
    return {"row": name, **dict(zip(("tmactl", "numpy", "numpy_mmap", "cp"), times))}


def machine(directory):
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine())
    kind = subprocess.run(["df", "--output=fstype", directory], stdout=subprocess.PIPE, text=True, check=True)
    return (f"{cpu}, {len(os.sched_getaffinity(0))} cores, Linux {platform.release()}, {kind.stdout.split()[-1]}, "
            f"NumPy {np.__version__}, {'hyperfine' if shutil.which('hyperfine') else 'timed by the script'}")


def cell(times):
    """Returns the median, and half the difference between the slowest and the fastest run."""
    return f"{statistics.median(times):.3f} ± {(max(times) - min(times)) / 2:.3f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="of each command; 5 unless given")
    parser.add_argument("--json", action="store_true", help="all times, for programs")
    parser.add_argument("part", nargs="?", default="", help="only rows whose name has this in it")
    args = parser.parse_args()
    rows = [row for row in ROWS if args.part in row[0]]
    if not rows:
        parser.error(f"no row has {args.part!r} in its name")
    with tempfile.TemporaryDirectory(prefix="tmad-bench-") as directory, Tmad(engine="cpu") as tmad:
        if args.json:
            results = [run_row(row, tmad, directory, args.runs) for row in rows]
            print(json.dumps({"machine": machine(directory), "rows": results}, indent=1))
            return
        print(f"{machine(directory)}; seconds: median of {args.runs} ± half the range\n")
        print("| Row | tmactl copy | NumPy | NumPy, mmap_mode | cp | NumPy / tmactl | mmap_mode / tmactl | tmactl / cp |")
        print("|---|---|---|---|---|---|---|---|", flush=True)
        for row in rows:
            result = run_row(row, tmad, directory, args.runs)
            middle = {key: statistics.median(times) for key, times in result.items() if key != "row"}
            cells = [result["row"]] + [cell(result[key]) for key in middle]
            cells += [f"{middle['numpy'] / middle['tmactl']:.1f}", f"{middle['numpy_mmap'] / middle['tmactl']:.1f}",
                      f"{middle['tmactl'] / middle['cp']:.2f}"]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

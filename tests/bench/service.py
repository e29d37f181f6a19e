# SPDX-License-Identifier: Apache-2.0
"""The service's path, in one run: requests a second and their latency by `tmactl bench`, next to redis-server's PING
by redis-benchmark, with as many connections, as deep. Both servers listen on temporary Unix sockets and take turns.

    make bench-service            # or: make bench-service BENCH='--repeat 9 --seconds 2'
"""
import argparse
import csv
import json
import os
import platform
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = os.environ.get("TEST_BUILDDIR") or "build"
TMAD = os.environ.get("TEST_TMAD") or os.path.join(BUILD, "tmad")
TMACTL = os.environ.get("TEST_TMACTL") or os.path.join(BUILD, "tmactl")
CALLS = os.path.join(BUILD, "tests/bench/bench_calls")
LOADS = ((1, 1), (16, 1), (16, 32))  # connections, pipeline
TICK = os.sysconf("SC_CLK_TCK")
START_SECONDS = 10


class Server:
    """A process that listens on a Unix socket, ended with the `with`."""

    def __init__(self, name, path, command, cpus):
        self.name, self.path = name, path
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, cpus))
        deadline = time.monotonic() + START_SECONDS
        while not os.path.exists(path):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                sys.exit(f"service.py: {name} did not start")
            time.sleep(0.01)

    def cpu(self):
        """Seconds of a core that it has used."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.stop()


def measured(server, command):
    """Runs a load to its end: its output, and what part of a core the server and the load kept busy."""
    before, used, start = resource.getrusage(resource.RUSAGE_CHILDREN), server.cpu(), time.monotonic()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          encoding="utf-8", check=False)
    if done.returncode:
        sys.exit(f"service.py: {' '.join(command)}: {done.stderr or done.stdout}")
    seconds = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    load = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, {"server": (server.cpu() - used) / seconds, "load": load / seconds}


def bench_tmad(server, seconds, connections, pipeline, *args):
    text, busy = measured(server, [TMACTL, "--socket", server.path, "--json", "bench", "--connections",
                                   str(connections), "--pipeline", str(pipeline), "--duration", str(seconds), *args])
    result = json.loads(text)
    return {"rate": result["requests_per_s"], "p50": result["latency_us"]["p50"],
            "p99": result["latency_us"]["p99"], "engine": result["engine_us"], **busy}


def bench_redis(server, requests, connections, pipeline):
    text, busy = measured(server, ["redis-benchmark", "-s", server.path, "-t", "ping_mbulk", "-c", str(connections),
                                   "-P", str(pipeline), "-n", str(requests), "--csv"])
    row = list(csv.DictReader(text.splitlines()))[-1]
    return {"rate": float(row["rps"]), "p50": 1e3 * float(row["p50_latency_ms"]),
            "p99": 1e3 * float(row["p99_latency_ms"]), **busy}


def median(runs, key):
    return statistics.median(run[key] for run in runs)


def ratios(runs, others):
    """Of the rates, turn by turn: their median and spread."""
    each = [run["rate"] / other["rate"] for run, other in zip(runs, others)]
    middle = statistics.median(each)
    return middle, (max(each) - min(each)) / middle


def ping_row(options, redis, tmad, connections, pipeline):
    # redis-benchmark ends after a number of requests: one that takes about as long.
    requests = int(bench_redis(redis, 20000 * pipeline, connections, pipeline)["rate"] * options.seconds) + 1
    theirs, ours = [], []
    for _ in range(options.repeat):
        theirs.append(bench_redis(redis, requests, connections, pipeline))
        ours.append(bench_tmad(tmad, options.seconds, connections, pipeline))
    ratio, spread = ratios(ours, theirs)
    load = f"{connections} x {pipeline}"
    print(f"| {load} | {median(theirs, 'rate'):.0f} | {median(ours, 'rate'):.0f} | {ratio:.2f} | {spread:.0%} "
          f"| {median(theirs, 'p50'):.0f} | {median(ours, 'p50'):.1f} | {median(theirs, 'p99'):.0f} "
          f"| {median(ours, 'p99'):.1f} | {median(theirs, 'server'):.2f} + {median(theirs, 'load'):.2f} "
          f"| {median(ours, 'server'):.2f} + {median(ours, 'load'):.2f} |", flush=True)


def transform_rows(options, tmad, calls):
    """64 KiB on one connection against ping on one, in turns."""
    kinds = ("ping", "copy", "transpose")
    runs = {kind: [] for kind in kinds}
    for _ in range(options.repeat):
        for kind in kinds:
            runs[kind].append(bench_tmad(tmad, options.seconds, 1, 1, "--kind", kind))
    for kind in kinds:
        ratio, spread = ratios(runs[kind], runs["ping"])
        call = calls.get(f"{kind}_64k_ns")
        print(f"| {kind} | {median(runs[kind], 'rate'):.0f} | {ratio:.2f} | {spread:.0%} "
              f"| {median(runs[kind], 'p50'):.1f} | {median(runs[kind], 'engine'):.1f} "
              f"| {'-' if call is None else f'{call / 1e3:.1f}'} "
              f"| {median(runs[kind], 'server'):.2f} + {median(runs[kind], 'load'):.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description="tmad's service path against redis-server's, in one run")
    parser.add_argument("--repeat", type=int, default=7, help="turns of each row")
    parser.add_argument("--seconds", type=float, default=1, help="of each turn")
    parser.add_argument("--place", choices=("apart", "together", "free"), default="free",
                        help="server and load on a CPU each, both on one, or where the kernel puts them")
    options = parser.parse_args()
    missing = [name for name in ("redis-server", "redis-benchmark") if not shutil.which(name)]
    if missing:
        print(f"skipped: no {' and no '.join(missing)} here (Debian: redis-server, redis-tools)")
        return
    cpus = sorted(os.sched_getaffinity(0))
    server_cpus = set(cpus if options.place == "free" else cpus[:1])
    calls = json.loads(subprocess.run([CALLS], stdout=subprocess.PIPE, check=True).stdout)
    print(f"{len(cpus)} CPUs ({platform.machine()}), Linux {platform.release()}; server and load {options.place}; "
          f"medians of {options.repeat} turns of {options.seconds:g} s; busy: cores of server + load\n")
    if options.place != "free":
        os.sched_setaffinity(0, {cpus[-1] if options.place == "apart" else cpus[0]})
    with tempfile.TemporaryDirectory(prefix="tmad-bench-") as directory:
        redis_path, tmad_path = os.path.join(directory, "r"), os.path.join(directory, "t")
        with Server("redis-server", redis_path, ["redis-server", "--port", "0", "--unixsocket", redis_path, "--save", "",
                                                 "--appendonly", "no", "--dir", directory], server_cpus) as redis, \
                Server("tmad", tmad_path, [TMAD, "--engine", "cpu", "--socket", tmad_path], server_cpus) as tmad:
            print("| ping, connections x depth | redis /s | tmad /s | ratio | spread | redis p50 us | tmad p50 us "
                  "| redis p99 us | tmad p99 us | redis busy | tmad busy |\n|---|---|---|---|---|---|---|---|---|---|---|")
            for connections, pipeline in LOADS:
                ping_row(options, redis, tmad, connections, pipeline)
            print("\n| 64 KiB, 1 x 1 | /s | to ping | spread | p50 us | in the engine us | as a call us | busy |\n"
                  "|---|---|---|---|---|---|---|---|")
            transform_rows(options, tmad, calls)
    print("\n| plan | found again ns | one of 8 in turn ns | made ns | made to found again, in turn |\n|---|---|---|---|---|")
    for plan, name in (("matrix", "transpose float32 128x128"), ("image", "NHWC to NCHW with a border of one")):
        again, turn, made = (calls[plan][key] for key in ("again_ns", "in_turn_ns", "made_ns"))
        print(f"| {name} | {again:.0f} | {turn:.0f} | {made:.0f} | {made / again:.0f}, {made / turn:.0f} |")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Blocks of a cache of 32 layers from one host to another: by NIXL alone, a descriptor for each slice, and by
tmaclient.nixl. Bytes a second, in one table from one run.

    make bench-nixl, or python3 tests/nixl/bench.py [--link tun] [--delay MS] [--loss P] [--rate BITS/S] [--gib N]
    python3 tests/nixl/bench.py --link none --devices 0,1 --transports cuda_ipc,cuda_copy,tcp --gib 1

The hosts are network namespaces of this machine, unless there is no link; the transport is UCX's TCP, unless others
are named. With devices, memory and slots are on GPUs, which takes PyTorch. Each transfer moves blocks that are
drawn at random to places that are drawn at random, and every byte is compared. Descriptors of all slices are prepared
once; a transfer's own request is made from indexes, and counts in "with making". A transfer has ended when NIXL says so
to the side that writes; with a stage, when that knows that the other side has scattered the last slot. Ways take turns,
and the processes of those whose turn it is not are stopped. It takes nixl and tmaclient, and root for a link.
"""
import argparse
import contextlib
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys

from hosts import HERE, Hosts, OneHost, unavailable

SLICES = (4096, 65536, 0)  # 0: one contiguous buffer
WAYS = {
    "NIXL without its progress thread": ("alone", "off"),
    "NIXL with its progress thread": ("alone", "on"),
    "Stage without a thread": ("staged", "off"),
    "Stage with a thread": ("staged", "on"),
}
MIB = 1 << 20


class Agent:
    """A process on a host."""

    def __init__(self, host, tmad, way, thread, device, options):
        program = os.path.join(HERE, "bench_agent.py")
        environment = {"NIXL_LOG_LEVEL": "WARN", "TMAD_SOCKET": tmad.path, "UCX_TLS": options.transports}
        self._process = host.start([sys.executable, program, f"host-{host.name}", way, thread, str(options.poll_us),
                                    str(options.slots), str(options.slot_bytes), device], env=environment, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, encoding="utf-8", bufsize=1)

    def ask(self, command, **arguments):
        with contextlib.suppress(BrokenPipeError):  # it has ended, and its output with it
            self._process.stdin.write(json.dumps([command, arguments]) + "\n")
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"bench.py: an agent's process ended with {self._process.wait()}")
        return json.loads(line)

    def signal(self, number):
        self._process.send_signal(number)


class Pair:
    """A way to move blocks, with an agent on each host. It runs only inside its `with`."""

    def __init__(self, hosts, tmads, way, thread, options):
        self._agents = self._a, self._b = [Agent(host, tmad, way, thread, device, options) for host, tmad, device in
                                           zip((hosts.a, hosts.b), tmads, options.devices)]
        known = [agent.ask("open", moved_bytes=options.moved_bytes, filled=agent is self._a) for agent in self._agents]
        for agent, other in zip(self._agents, reversed(known)):
            agent.ask("connect", **other)
        self._stop()

    def _stop(self):
        for agent in self._agents:
            agent.signal(signal.SIGSTOP)

    def __enter__(self):
        for agent in self._agents:
            agent.signal(signal.SIGCONT)
        return self

    def __exit__(self, kind, value, trace):
        self._stop()

    def prepare(self, slice_bytes):
        """Returns the seconds of preparation on the sending side."""
        return [agent.ask("prepare", slice_bytes=slice_bytes) for agent in self._agents][0]

    def move(self, seed):
        """Returns the seconds to make the request, and the seconds to carry it out."""
        self._b.ask("expect", seed=seed)
        seconds = self._a.ask("send", seed=seed)
        if not self._b.ask("check", seed=seed):
            raise SystemExit(f"bench.py: wrong bytes after the transfer of seed {seed}")
        return seconds


def measure(pairs, slice_bytes, options):
    """Measures each way. Returns rows by name."""
    prepare_s, times = {}, {name: [] for name in pairs}
    for turn in range(options.repeat + 1):
        for name, pair in pairs.items():
            with pair:
                if turn == 0:
                    prepare_s[name] = pair.prepare(slice_bytes)
                seconds = pair.move(options.seed + turn)
                if turn:  # the first transfer connects
                    times[name].append(seconds)
    rows = []
    for name in pairs:
        rates = [options.moved_bytes / (made + moved) for made, moved in times[name]]
        rows.append({"slice_bytes": slice_bytes, "way": name, "by": WAYS[name][0], "prepare_s": prepare_s[name],
                     "make_s": statistics.median(made for made, _ in times[name]),
                     "moved_rate": statistics.median(options.moved_bytes / moved for _, moved in times[name]),
                     "rate": statistics.median(rates), "spread": (max(rates) - min(rates)) / 2})
    return rows


def size_of(row):
    return f"{row['slice_bytes'] >> 10} KiB" if row["slice_bytes"] else "contiguous"


def ratios_of(rows):
    """Returns by size how many times the bytes per second of NIXL alone a stage moves, where each uses its better
    way."""
    best = {}
    for row in rows:
        key = size_of(row), row["by"]
        best[key] = max(best.get(key, 0), row["rate"])
    return {size: rate / best[size, "alone"] for (size, by), rate in best.items() if by == "staged" and (size, "alone") in best}


def show(row, options):
    count = options.moved_bytes // row["slice_bytes"] if row["slice_bytes"] else 1
    print(f"| {size_of(row)} | {count} | {row['way']} | {row['prepare_s'] * 1e3:.1f} | {row['make_s'] * 1e3:.1f} "
          f"| {row['moved_rate'] / 1e6:.0f} | {row['rate'] / 1e6:.0f} ± {row['spread'] / 1e6:.0f} |", flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--link", choices=("veth", "tun", "none"), default="veth", help="none: one host; veth unless given")
    parser.add_argument("--rate", type=int, default=0, help="of the link, in bits a second; 0, any, unless given")
    parser.add_argument("--delay", type=float, default=0.0, help="of a tun, one way, in ms")
    parser.add_argument("--loss", type=float, default=0.0, help="of packets in a tun, a probability")
    parser.add_argument("--mtu", type=int, default=9000, help="of the link; 9000 unless given")
    parser.add_argument("--gib", type=float, default=0.125, help="that a transfer moves; 0.125 unless given")
    parser.add_argument("--repeat", type=int, default=5, help="transfers of each row; 5 unless given")
    parser.add_argument("--slots", type=int, default=8, help="of a stage, to send and to receive each; 8 unless given")
    parser.add_argument("--slot-mib", type=float, default=4, help="size of a stage's slots; 4 unless given")
    parser.add_argument("--devices", default="host,host", help="of both sides: host, or the number of a GPU")
    parser.add_argument("--transports", default="tcp", help="of UCX (UCX_TLS); tcp unless given")
    parser.add_argument("--ways", default=",".join(WAYS), help="all unless given")
    parser.add_argument("--seed", type=int, default=1, help="of block lists and losses; 1 unless given")
    parser.add_argument("--poll-us", type=float, default=0, help="pause between looks at a transfer; 0 unless given")
    parser.add_argument("--json", action="store_true", help="for programs")
    options = parser.parse_args()
    options.devices, options.ways = options.devices.split(","), options.ways.split(",")
    options.slot_bytes = round(options.slot_mib * MIB)
    if len(options.devices) != 2 or not all(device == "host" or device.isdecimal() for device in options.devices):
        parser.error(f"--devices {','.join(options.devices)}: two, each host or the number of a GPU")
    if options.link == "none" and (options.rate or options.delay or options.loss):
        parser.error("--rate, --delay, --loss: they are a link's, and --link none has none")
    for way in options.ways:
        if way not in WAYS:
            parser.error(f"--ways {way}: they are {', '.join(WAYS)}")
    # The sizes are whole numbers of blocks for each slice size.
    unit = 32 * max(SLICES)
    options.moved_bytes = max(1, round(options.gib * 1024 * MIB / unit)) * unit
    return options


def main():
    options = parse()
    for name, remedy in (("nixl", "pip install nixl"), ("tmaclient", "PYTHONPATH=build/python-site after make check")):
        if importlib.util.find_spec(name) is None:
            sys.exit(f"bench.py: {name} is not installed: {remedy}")
    if options.link != "none" and (reason := unavailable()):
        sys.exit(f"bench.py: {reason}")
    rows = []
    with contextlib.ExitStack() as stack:
        hosts = stack.enter_context(OneHost() if options.link == "none" else Hosts(
            options.link, rate=options.rate, delay_ms=options.delay, loss=options.loss, seed=options.seed, mtu=options.mtu))
        threads = str(max(1, len(os.sched_getaffinity(0)) // 2))  # the hosts share the cores
        engine = "cpu" if options.devices == ["host", "host"] else "cuda"
        tmads = [host.tmad("--threads", threads, engine=engine) for host in (hosts.a, hosts.b)]
        pairs = {name: Pair(hosts, tmads, *WAYS[name], options) for name in options.ways}
        if not options.json:
            link = "one host" if options.link == "none" else (
                f"{options.link}, MTU {options.mtu}, rate {options.rate or 'any'}, delay {options.delay} ms, loss {options.loss}")
            print(f"{len(os.sched_getaffinity(0))} cores; {link}; {options.transports} from {' to '.join(options.devices)}; "
                  f"{options.moved_bytes / MIB:.0f} MiB a transfer, {options.slots} slots of {options.slot_mib:g} MiB, seed "
                  f"{options.seed}; medians of {options.repeat} ± half the range\n")
            print("| Slice | Descriptors | Way | Prepared once, ms | Made, ms | MB/s | MB/s with making |")
            print("|---|---|---|---|---|---|---|", flush=True)
        for slice_bytes in SLICES:
            measured = measure(pairs, slice_bytes, options)
            rows += measured
            if not options.json:
                for row in measured:
                    show(row, options)
    ratios = ratios_of(rows)
    if options.json:
        print(json.dumps({"bytes": options.moved_bytes, "rows": rows, "ratios": ratios}, indent=1))
    else:
        print("\nStage / NIXL alone, the better way of each: " + ", ".join(f"{k} {v:.2f}" for k, v in ratios.items()))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws chart.svg from the results that are kept beside it, and puts their figures into the README of tests/bench.

    make bench-chart                                # again, from what is kept
    make bench-chart BENCH='--gpu gpu.json'         # keeps a new result, of bench_gpu --random SEED N --json, first

A file is kept as it is: cpu.json is of bench, gpu.json of bench_gpu, others.json of compare.py --out, which has tmad's
ratios as well. What is in none of them was not measured, and the chart says so. It takes Matplotlib.
"""
import argparse
import json
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "gpu", "bench"))
from compare_rows import Distribution, best_of, read_report, read_results

try:
    import matplotlib.pyplot
except ImportError:
    matplotlib = None

NAMES = {"cpu": "bench --random SEED N --json", "gpu": "bench_gpu --random SEED N --json", "others": "compare.py --out"}
START, END = "<!-- figures: make bench-chart -->\n", "<!-- end of figures -->\n"
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2)
COLOURS = {"tmad": "#0b6e99", "torch.compile": "#d9730d", "cuTENSOR": "#6940a5", "eager torch": "#9b9a97"}


class Results:
    """Of each engine, ratios to the copy by name, slowest first, and what was said of the run: from the files that a
    folder keeps, or from new ones in their place."""

    def __init__(self, folder, **new):
        self.paths = {name: new.get(name) or os.path.join(folder, f"{name}.json") for name in NAMES}
        self.cpu, self.cpu_run = self._report("cpu")
        self.gpu, self.gpu_run = self._report("gpu")
        self.against = []
        if os.path.exists(self.paths["others"]):
            self._add_others()

    def _report(self, name):
        if not os.path.exists(self.paths[name]):
            return {}, None
        text = text_of(self.paths[name])
        run, rows = read_report(text)
        if len({node.get("isa") for node in json.loads(text)["rows"]}) > 1:
            raise ValueError(f"{name}.json is of several instruction sets: keep a run of one")
        return {"tmad": sorted(row.ratio for row in rows)}, run

    def _add_others(self):
        run, results = read_results(text_of(self.paths["others"]))
        if self.gpu_run and (run["date"], run["random"]) != (self.gpu_run["date"], self.gpu_run["random"]):
            raise ValueError("gpu.json and others.json are of different runs: keep both of one, or one of them")
        for key, name in (("compile", "torch.compile"), ("cutensor", "cuTENSOR"), ("eager", "eager torch")):
            ratios = sorted(result["others"][key] for result in results if result["others"].get(key))
            if ratios:
                self.gpu[name] = ratios
        self.gpu_run = run
        self.gpu.setdefault("tmad", sorted(result["tmad"] for result in results))
        self.against = [result["tmad"] / best_of(result) for result in results if best_of(result)]


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


# ---- Figures ---------------------------------------------------------------------------------------------------------


def cells(name, ratios):
    if not ratios:
        return f"| {name} | not measured | | | |"
    d = Distribution.of(ratios)
    return f"| {name} | {d.rows} | {d.mean:.2f} | {d.tenth:.2f} | {d.worst:.3f} |"


def figures(results):
    """Returns lines for README.md."""
    yield "| random transforms | rows | geometric mean | 10th percentile | worst |"
    yield "|---|---|---|---|---|"
    yield cells("CPU engine, to memcpy", results.cpu.get("tmad"))
    yield cells("GPU engine, to the device's copy", results.gpu.get("tmad"))
    for name in list(COLOURS)[1:]:
        yield cells(f"{name}, to the device's copy", results.gpu.get(name))
    yield cells("GPU engine, to the best of these three", results.against)
    yield ""
    for run in filter(None, (results.cpu_run, results.gpu_run)):
        others = f", {run['others']}" if "others" in run else ""
        yield f"- {run['date']}, {run['machine']}, {run['engine']}{others}: `{run['random']}`"


def put_figures(readme, results):
    """Returns the README's text, with the figures between the marks replaced."""
    before, rest = readme.split(START)
    return before + START + "\n".join(figures(results)) + "\n" + END + rest.split(END)[1]


# ---- The chart -------------------------------------------------------------------------------------------------------


def draw_panel(axes, title, base, sides):
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.set_xlabel("transforms, slowest first")
    axes.set_yscale("log")
    axes.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.set_yticks([], minor=True)
    axes.set_xticks((0, 10, 50, 100), ("0", "10 %", "50 %", "100 %"))
    axes.set_xlim(0, 100)
    axes.set_ylim(TICKS[0], TICKS[-1] * 1.25)
    axes.grid(color="#e6e6e4", linewidth=0.8)
    axes.axhline(1, color="#37352f", linewidth=1)
    axes.text(1, 1.06, base, fontsize=9)
    for spine in ("top", "right"):
        axes.spines[spine].set_visible(False)
    if "tmad" not in sides:
        axes.text(50, 0.14, "not measured", ha="center", color="#787774", fontsize=12)
    for name, ratios in sorted(sides.items(), key=lambda side: side[0] == "tmad"):
        places = [100 * (i + 0.5) / len(ratios) for i in range(len(ratios))]
        axes.plot(places, [max(ratio, TICKS[0]) for ratio in ratios], color=COLOURS[name],
                  linewidth=2.4 if name == "tmad" else 1.4,
                  label=f"{name}, geometric mean {Distribution.of(ratios).mean:.2f}")
    if sides:
        axes.legend(loc="lower right", frameon=False, fontsize=9)


def draw(results, path):
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "tmad", "font.family": "sans-serif"}):
        chart, (cpu, gpu) = matplotlib.pyplot.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
        draw_panel(cpu, "CPU", "memcpy", results.cpu)
        draw_panel(gpu, "GPU", "the device's copy", results.gpu)
        cpu.set_ylabel("speed, as a ratio to a copy")
        chart.savefig(path, metadata={"Date": None, "Creator": None}, facecolor="white")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, program in NAMES.items():
        parser.add_argument(f"--{name}", metavar="FILE", help=f"keep what {program} wrote")
    parser.add_argument("--folder", metavar="PATH", default=HERE, help="where the results and the chart are kept")
    options = parser.parse_args()
    new = {name: getattr(options, name) for name in NAMES if getattr(options, name)}
    readme = os.path.join(options.folder, "..", "README.md")
    if not matplotlib:
        sys.exit("chart.py: the chart takes Matplotlib: python3-matplotlib in Debian and Ubuntu")
    results = Results(options.folder, **new)
    text = put_figures(text_of(readme), results)
    draw(results, os.path.join(options.folder, "chart.svg"))
    with open(readme, "w", encoding="utf-8") as file:
        file.write(text)
    for name, path in new.items():
        kept = os.path.join(options.folder, f"{name}.json")
        if not (os.path.exists(kept) and os.path.samefile(path, kept)):
            shutil.copyfile(path, kept)


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError) as error:
        sys.exit(f"chart.py: {error}")

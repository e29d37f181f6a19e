# SPDX-License-Identifier: Apache-2.0
"""The chart and the figures of tests/bench/README.md: they are those of the results that are kept, and new results
replace them. What draws is tested where there is Matplotlib."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

SOURCE = os.environ.get("TEST_SRCDIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
CHART = os.path.join(SOURCE, "tests/bench/chart")
README = os.path.join(SOURCE, "tests/bench/README.md")
sys.path[:0] = [os.path.join(SOURCE, "tests/support"), CHART]
import chart
import tap

try:
    import matplotlib
except ImportError:
    matplotlib = None

RUN = {"date": "2026-01-01", "machine": "a card", "engine": "cuda engine's kernels", "random": "--random=1 3"}


def report(*ratios):
    """What bench_gpu --json would print of such rows."""
    row = {"what": "permute 1,0", "dtype": "float32", "shape": [2, 3], "src_strides": [3, 1], "src_offset": 0,
           "dst_offset": 0, "perm": [1, 0], "before": [0, 0], "after": [0, 0], "mode": "constant", "value": 0,
           "blocks": 0, "family": "tile_copy", "bytes": 48, "tmad_ns": [1]}
    return json.dumps({"run": RUN, "rows": [{**row, "ratio": {"median": ratio}} for ratio in ratios]})


def results(*rows, **run):
    """What compare.py --out would write."""
    lines = [{"run": {**RUN, "others": "torch 9", **run}}]
    lines += [{"tmad": tmad, "others": {"eager": eager, "compile": compiled, "cutensor": None}}
              for tmad, eager, compiled in rows]
    return "\n".join(map(json.dumps, lines))


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class KeptCase(unittest.TestCase):
    def test_the_readme_has_the_figures_of_what_is_kept(self):
        self.assertEqual(chart.put_figures(text_of(README), chart.Results(CHART)), text_of(README),
                         "make bench-chart puts them there")

    def test_the_chart_too(self):
        kept = chart.Results(CHART)
        words = " ".join(xml.parse(os.path.join(CHART, "chart.svg")).getroot().itertext())
        for sides in (kept.cpu, kept.gpu):
            for name, ratios in sides.items():
                self.assertIn(f"{name}, geometric mean {chart.Distribution.of(ratios).mean:.2f}", words)
        self.assertEqual(words.count("not measured"), (not kept.cpu) + (not kept.gpu))

    def test_links_lead_somewhere(self):
        for page in ("README.md", "EXPERIMENTS.md"):
            path = os.path.join(SOURCE, "tests/bench", page)
            links = re.findall(r"\]\(([^)#:]+)\)", text_of(path))
            self.assertTrue(links, page)
            for link in links:
                self.assertTrue(os.path.exists(os.path.join(os.path.dirname(path), link)), f"{page}: {link}")


class FolderCase(unittest.TestCase):
    """A folder like tests/bench, with a result that is to be kept."""

    def setUp(self):
        self.room = tempfile.mkdtemp(prefix="tmad-chart-")
        self.addCleanup(shutil.rmtree, self.room)
        self.folder = os.path.join(self.room, "chart")
        os.mkdir(self.folder)
        self.write("README.md", f"before\n{chart.START}old\n{chart.END}after\n")

    def write(self, name, text):
        with open(os.path.join(self.room, name), "w", encoding="utf-8") as file:
            file.write(text)
        return os.path.join(self.room, name)

    def run_chart(self, *args, **env):
        return subprocess.run([sys.executable, os.path.join(CHART, "chart.py"), "--folder", self.folder, *args],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", check=False,
                              env={**os.environ, **env})

    def figures(self):
        return "\n".join(chart.figures(chart.Results(self.folder)))

    def test_nothing_was_measured(self):
        self.assertEqual(self.figures().count("| not measured | | | |"), 6)

    def test_a_report(self):
        self.write("chart/gpu.json", report(0.5, 2, 1))
        self.assertIn("| GPU engine, to the device's copy | 3 | 1.00 | 0.50 | 0.500 |", self.figures())
        self.assertIn("- 2026-01-01, a card, cuda engine's kernels: `--random=1 3`", self.figures())
        self.assertEqual(self.figures().count("| not measured | | | |"), 5)

    def test_a_report_of_several_instruction_sets_is_refused(self):
        one = json.loads(report(0.5, 1))
        for row, isa in zip(one["rows"], ("plain", "avx2")):
            row["isa"] = isa
        self.write("chart/cpu.json", json.dumps(one))
        with self.assertRaisesRegex(ValueError, "several instruction sets"):
            chart.Results(self.folder)

    def test_the_others(self):
        self.write("chart/others.json", results((0.8, 0.4, 0.5), (0.8, 0.2, None)))
        for line in ("| GPU engine, to the device's copy | 2 | 0.80 |",
                     "| torch.compile, to the device's copy | 1 | 0.50 |",
                     "| eager torch, to the device's copy | 2 | 0.28 |",
                     "| cuTENSOR, to the device's copy | not measured |",
                     "| GPU engine, to the best of these three | 2 | 2.53 | 1.60 | 1.600 |", "kernels, torch 9: "):
            self.assertIn(line, self.figures())

    def test_both_of_one_run_alone(self):
        self.write("chart/gpu.json", report(0.5))
        self.write("chart/others.json", results((0.8, 0.4, 0.5)))
        self.assertIn("| GPU engine, to the device's copy | 1 | 0.50 |", self.figures())
        self.write("chart/others.json", results((0.8, 0.4, 0.5), date="2026-01-02"))
        with self.assertRaisesRegex(ValueError, "of different runs"):
            chart.Results(self.folder)

    @unittest.skipUnless(matplotlib, "no Matplotlib here")
    def test_what_is_no_result_is_not_kept(self):
        self.write("chart/gpu.json", report(0.5))
        for option, text in (("--gpu", "{}"), ("--gpu", "no JSON"), ("--others", report(1)),
                             ("--cpu", results((1, 1, 1))), ("--others", results((1, 1, 1), date="2026-01-02"))):
            with self.subTest(option=option, text=text[:20]):
                done = self.run_chart(option, self.write("new.json", text))
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertTrue(done.stderr.startswith("chart.py: "), done.stderr)
                self.assertEqual(os.listdir(self.folder), ["gpu.json"])
                self.assertEqual(text_of(os.path.join(self.folder, "gpu.json")), report(0.5))

    def test_without_matplotlib(self):
        self.write("matplotlib.py", "raise ImportError")
        self.write("chart/gpu.json", report(0.5))
        done = self.run_chart("--gpu", self.write("new.json", report(1)), PYTHONPATH=self.room)
        self.assertEqual((done.returncode, done.stderr),
                         (1, "chart.py: the chart takes Matplotlib: python3-matplotlib in Debian and Ubuntu\n"))
        self.assertIn("old", text_of(os.path.join(self.room, "README.md")))
        self.assertEqual(text_of(os.path.join(self.folder, "gpu.json")), report(0.5))

    @unittest.skipUnless(matplotlib, "no Matplotlib here")
    def test_drawing(self):
        done = self.run_chart("--gpu", self.write("new.json", report(0.5, 2, 1)))
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertEqual(text_of(os.path.join(self.folder, "gpu.json")), report(0.5, 2, 1))
        words = " ".join(xml.parse(os.path.join(self.folder, "chart.svg")).getroot().itertext())
        self.assertIn("tmad, geometric mean 1.00", words)
        self.assertEqual(words.count("not measured"), 1)
        readme = text_of(os.path.join(self.room, "README.md"))
        self.assertIn("| GPU engine, to the device's copy | 3 | 1.00 | 0.50 | 0.500 |", readme)
        self.assertTrue(readme.startswith("before\n") and readme.endswith("after\n") and "old" not in readme)
        first = text_of(os.path.join(self.folder, "chart.svg"))
        self.run_chart()
        self.assertEqual(text_of(os.path.join(self.folder, "chart.svg")), first)


if __name__ == "__main__":
    tap.main()

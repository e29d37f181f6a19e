# SPDX-License-Identifier: Apache-2.0
"""tmactl bench: what it says it did is what the service counted, and it ends as asked."""
import json
import os
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import TMACTL, Tmad, scaled, tmactl


class Bench(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmad = Tmad("--connections-per-uid", "8")
        cls.addClassCleanup(cls.tmad.stop)

    def stats(self):
        with self.tmad.rpc() as rpc:
            return rpc.call("stats")

    def transforms(self):
        """How many the service has been asked for. Unlike all requests, they do not include those that look."""
        return self.stats()["requests_by_method"].get("transform", 0)

    def bench(self, *args, code=0, **options):
        """What it measured, by --json."""
        options.setdefault("socket_path", self.tmad.path)
        done = tmactl("--json", "bench", *args, **options)
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout), done.stderr

    def test_counts_are_the_services(self):
        rows = (
            ("ping", "ping", ["--requests", 1], 1, 0),
            ("ping", "ping", ["--requests", 1000, "--connections", 3, "--pipeline", 7], 1000, 0),
            ("copy", "transform", ["--requests", 100, "--size", "1K"], 100, 2048),
            ("transpose", "transform", ["--requests", 50, "--pipeline", 40, "--size", 24], 50, 48),
            ("transpose", "transform", ["--requests", 9, "--connections", 2], 9, 2 * 65536),
            ("transpose", "transform", ["--requests", 3, "--priority", "urgent", "--host-threads", 1], 3, 2 * 65536),
            ("copy", "plan_run", ["--requests", 3, "--prepared", "--priority", "background", "--multiprocessors", 1], 3, 2 * 65536),
            ("copy", "plan_run", ["--requests", 60, "--size", "4K", "--prepared", "--pipeline", 8], 60, 8192),
            ("transform", "plan_run", ["--requests", 6, "--connections", 3, "--shape", "4,4", "--permute", "1,0", "--prepared"], 6, 128),
            ("transform", "transform", ["--requests", 20, "--dtype", "uint8", "--shape", "3,5", "--permute", "1,0",
                                        "--pad", "0:0,1:0", "--mode", "edge"], 20, None),
        )
        for kind, method, args, requests, each in rows:
            with self.subTest(kind=kind, args=args):
                before = self.stats()
                result, _ = self.bench("--kind", kind, *args)
                after = self.stats()
                self.assertEqual(after["requests_by_method"][method] - before["requests_by_method"].get(method, 0), requests)
                self.assertEqual((result["requests"], result["errors"]), (requests, {}))
                self.assertEqual(result["prepared"], method == "plan_run")
                moved = sum(after["bytes"].values()) - sum(before["bytes"].values())
                self.assertEqual(result["bytes"], moved)
                if each is not None:
                    self.assertEqual(moved, each * requests)

    def test_what_it_measured_agrees_with_itself(self):
        start = time.monotonic()
        result, _ = self.bench("--duration", "0.5", "--connections", 2, "--pipeline", 8)
        outside = time.monotonic() - start
        latency = result["latency_us"]
        self.assertEqual((result["kind"], result["connections"], result["pipeline"]), ("ping", 2, 8))
        self.assertGreaterEqual(outside, 0.5)
        self.assertLessEqual(result["seconds"], outside)
        self.assertAlmostEqual(result["requests_per_s"] * result["seconds"], result["requests"], delta=result["requests"] / 1000 + 1)
        self.assertEqual(sorted(latency.values()), list(latency.values()), "from p50 to max")
        # Little's law: what is under way is rate times latency, here at most 16.
        self.assertLess(result["requests_per_s"] * latency["p50"] / 1e6 / 2, 16)
        self.assertGreater(latency["p50"], 0)

    def test_words_for_people(self):
        done = tmactl("bench", "--requests", 10, "--kind", "transpose", socket_path=self.tmad.path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for word in ("transpose float32 128,128 -> 128,128", "requests  10, ", "p99.9", "errors    none", "a second"):
            self.assertIn(word, done.stdout)
        done = tmactl("-q", "bench", "--requests", 10, socket_path=self.tmad.path)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_refused_requests_are_counted(self):
        result, error = self.bench("--kind", "transform", "--dtype", "int8", "--shape", "4", "--pad", "1:1", "--value", "300",
                                   "--requests", 30, "--pipeline", 4, code=1)
        self.assertEqual((result["requests"], result["errors"], result["bytes"]), (30, {"INVALID_ARGUMENT": 30}, 0))
        self.assertIn("30 of 30", error)
        self.assertEqual([result[key] for key in ("status", "message", "exit_code")],
                         ["FAILED", "30 of 30 requests were refused", 1])

    def test_signals_end_it_with_what_was_measured(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                before = self.transforms()
                process = subprocess.Popen([TMACTL, "--socket", self.tmad.path, "--json", "bench", "--duration", "600",
                                            "--connections", "2", "--kind", "copy"], stdin=subprocess.DEVNULL,
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
                while self.transforms() - before < 100:
                    time.sleep(0.01)
                process.send_signal(number)
                out, error = process.communicate(timeout=scaled(10))
                self.assertEqual((process.returncode, error), (0, ""))
                self.assertGreater(json.loads(out)["requests"], 50)

    def test_bad_usage(self):
        rows = (
            (["extra"], ["extra"]), (["--kind", "pong"], ["--kind pong", "transpose"]), (["--connections", "0"], ["--connections 0"]),
            (["--connections", "5000"], ["4096"]), (["--pipeline", "x"], ["--pipeline x"]), (["--pipeline", "-1"], ["--pipeline -1"]),
            (["--duration", "0"], ["--duration 0"]), (["--duration", "nan"], ["--duration nan"]),
            (["--duration", "3601"], ["3600"]), (["--requests", "0"], ["--requests 0"]),
            (["--requests", "99999999999999999999999"], ["--requests"]), (["--kind", "copy", "--size", "0"], ["--size 0"]),
            (["--kind", "copy", "--size", "6"], ["--size 6"]), (["--size", "64"], ["--size", "ping"]),
            (["--priority", "urgent"], ["--priority", "ping"]), (["--kind", "copy", "--priority", "high"], ["--priority high", "urgent"]),
            (["--kind", "copy", "--multiprocessors", "0"], ["--multiprocessors 0"]), (["--kind", "copy", "--host-threads", "x"], ["--host-threads x"]),
            (["--prepared"], ["--prepared", "ping"]),
            (["--kind", "copy", "--permute", "0"], ["--permute", "transform", "copy"]), (["--kind", "transform"], ["--shape"]),
            (["--kind", "transform", "--shape", "2,3", "--permute", "0,0"], ["--permute 0,0"]),
            (["--kind", "transform", "--shape", "4611686018427387904,4"], ["--shape"]), (["--pipeline"], ["--pipeline"]),
        )
        for args, words in rows:
            with self.subTest(args=args):
                done = tmactl("bench", *args, socket_path=self.tmad.path)
                self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done.stderr)
                for word in words:
                    self.assertIn(word, done.stderr)

    def test_a_limit_is_named(self):
        done = tmactl("bench", "--connections", 9, "--requests", 10, socket_path=self.tmad.path)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), "8 connections are allowed")
        self.assertIn("connections", done.stderr)


class Gone(unittest.TestCase):
    def test_no_service(self):
        done = tmactl("bench", socket_path="/nonexistent/s")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("/nonexistent/s", done.stderr)


if __name__ == "__main__":
    tap.main()

# SPDX-License-Identifier: Apache-2.0
"""tmactl goes on when the service ends and is started again: a copy has the right bytes, and a load gets all its
answers."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import NATIVE, TMACTL, Tmad, scaled, wait_until

SIDE = 8192 if NATIVE else 2048  # 256 MiB
RESTARTS = 4


class Case(unittest.TestCase):
    def setUp(self):
        self.tmad = Tmad()
        self.addCleanup(self.tmad.stop)

    def start(self, *args):
        command = subprocess.Popen([TMACTL, "--socket", self.tmad.path, "--json", *args], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
        self.addCleanup(command.kill)
        return command

    def end(self, command):
        out, error = command.communicate(timeout=scaled(60))
        self.assertEqual((command.returncode, error), (0, ""))
        return json.loads(out)

    def served(self, command, key, least):
        """Waits until this tmad has moved that much. Returns whether the command still runs then."""
        def enough():
            done = rpc.call("stats")[key]
            return (sum(done.values()) if isinstance(done, dict) else done) >= least or command.poll() is not None
        with self.tmad.rpc() as rpc:
            wait_until(enough, f"{least} {key}")
        return command.poll() is None

    def restart(self, number):
        """Ends the service by the signal while requests are under way, and starts it again."""
        process = self.tmad.process
        if number == signal.SIGKILL:
            os.kill(process.pid, signal.SIGSTOP)
            self.tmad.kill()
        else:
            process.send_signal(number)
            self.assertEqual(process.wait(scaled(20)), 0)
        self.tmad.start()


class Copies(Case):
    def setUp(self):
        super().setUp()
        self.directory = tempfile.mkdtemp(prefix="tmad-restarts-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.src, self.dst = (os.path.join(self.directory, name) for name in ("in.npy", "out.npy"))
        np.save(self.src, np.arange(SIDE * SIDE, dtype="<u4").reshape(SIDE, SIDE) * np.uint32(2654435761))

    def test_a_copy_goes_on(self):
        for number in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(signal=number.name):
                self.restart(signal.SIGTERM)  # the new service has done nothing yet
                copy = self.start("copy", self.src, self.dst, "--permute", "1,0", "--memory", "4M")
                restarts = 0
                while restarts < RESTARTS and self.served(copy, "bytes", SIDE * SIDE // 4):
                    self.restart(number)
                    restarts += 1
                done = self.end(copy)
                self.assertEqual(restarts, RESTARTS)
                self.assertGreaterEqual(done["reconnects"], 1)
                self.assertLessEqual(done["reconnects"], restarts, "workers do not count a restart again")
                source, result = (np.load(path, mmap_mode="r") for path in (self.src, self.dst))
                self.assertTrue(np.array_equal(source.T, result))
                self.assertEqual(sorted(os.listdir(self.directory)), ["in.npy", "out.npy"])


class Loads(Case):
    def test_a_load_goes_on(self):
        rows = (("ping", []), ("copy", ["--size", "16K"]), ("copy", ["--size", "16K", "--prepared"]))
        for number in (signal.SIGKILL, signal.SIGTERM):
            for kind, args in rows:
                with self.subTest(signal=number.name, kind=kind, args=args):
                    self.restart(signal.SIGTERM)
                    bench = self.start("bench", "--kind", kind, *args, "--connections", "3", "--pipeline", "8",
                                       "--duration", "600")
                    for _ in range(RESTARTS):
                        self.assertTrue(self.served(bench, "requests", 500))
                        self.restart(number)
                    self.assertTrue(self.served(bench, "requests", 500))
                    bench.send_signal(signal.SIGINT)
                    result = self.end(bench)
                    self.assertEqual(result["reconnects"], RESTARTS, "connections do not count a restart again")
                    self.assertEqual(result["errors"], {})
                    self.assertGreater(result["requests"], 500 * RESTARTS)

    def test_each_request_is_counted_once(self):
        bench = self.start("bench", "--connections", "2", "--pipeline", "4", "--requests", "100000")
        self.assertTrue(self.served(bench, "requests", 500))
        self.restart(signal.SIGKILL)
        result = self.end(bench)
        self.assertEqual((result["requests"], result["reconnects"]), (100000, 1))

    def test_words_for_people(self):
        bench = subprocess.Popen([TMACTL, "--socket", self.tmad.path, "bench", "--duration", "600"], encoding="utf-8",
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(bench.kill)
        self.assertTrue(self.served(bench, "requests", 500))
        self.restart(signal.SIGKILL)
        self.assertTrue(self.served(bench, "requests", 500))
        bench.send_signal(signal.SIGTERM)
        out, error = bench.communicate(timeout=scaled(20))
        self.assertEqual((bench.returncode, error), (0, ""))
        self.assertRegex(out, r"(?m)^reconnected 1 time; \d requests? had no answer$")

    def test_a_service_that_does_not_come_back(self):
        bench = subprocess.Popen([TMACTL, "--socket", self.tmad.path, "--timeout", "1000", "--json", "bench", "--duration",
                                  "600"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 encoding="utf-8")
        self.addCleanup(bench.kill)
        self.assertTrue(self.served(bench, "requests", 1000))
        self.tmad.kill()
        out, error = bench.communicate(timeout=scaled(20))
        self.assertEqual(bench.returncode, 1)
        self.assertGreater(json.loads(out)["requests"], 500)
        self.assertIn(self.tmad.path, error)
        self.assertIn("it did not come back within 1 s", error)


if __name__ == "__main__":
    tap.main()

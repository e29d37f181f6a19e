# SPDX-License-Identifier: Apache-2.0
"""Fault injection, client side: each libc call of libtmaclient and tmactl fails once.

A library's call fails with a status and a sentence, or its success is one; the client is of use afterwards.
tmactl ends with 1 and a line, or with 0 and what was asked for: nothing is half written under the destination's
name, and nothing lies beside it. Under a sanitizer leaks are looked for each time.

FAULTS_ONLY=CLASSES:FIRST:N:VARIANT runs each program with that failure.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from faults import FAULT_SESSION, FAULT_TMACTL, MEMORY, SYSTEM, Plan, each_failure, levels
from tmad import _REPORT, Tmad, scaled, wait_until
import tap

ARRAY = np.arange(500 * 700, dtype="<i4").reshape(500, 700)


def run(plan, *command):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, encoding="utf-8", timeout=scaled(6), check=False,
                          env=dict(os.environ, **plan.env))
    assert not _REPORT.search(done.stderr), done.stderr
    assert done.returncode in (0, 1), (done.returncode, done.stdout, done.stderr)
    return done


def told(done):
    """Checks for one line if the program failed, and none otherwise. If the service cannot be reached there is a second
    line."""
    lines = 0 if not done.returncode else 2 if "start it:" in done.stderr else 1
    assert done.stderr.count("\n") == lines and done.stderr.startswith("tmactl: " * (lines > 0)), done


def outcome(plan, done):
    return "not reached" if not plan.failed else "an error" if done.returncode else "nothing seen"


class FailingCalls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmad = Tmad()
        cls.addClassCleanup(cls.tmad.stop)
        cls.directory = tempfile.mkdtemp(prefix="tmad-faults-")
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        cls.source = os.path.join(cls.directory, "in.npy")
        np.save(cls.source, ARRAY)

    def tearDown(self):
        wait_until(lambda: levels(self.tmad) == (1, 0, 0, 0), "what clients had is gone")

    def each(self, one):
        """Runs one(plan) with the errors of each kind."""
        def with_failure(*failure):
            with Plan(*failure) as plan:
                return one(plan)

        if "FAULTS_ONLY" in os.environ:
            print("#", with_failure(*map(int, os.environ["FAULTS_ONLY"].split(":"))))
            return
        for classes, variants in ((MEMORY, 1), (SYSTEM, 3)):
            with Plan(classes) as plan:
                self.assertEqual(one(plan), "not reached")
                total = plan.calls
            for variant in range(variants):
                each_failure(with_failure, total, classes, 1, variant)

    def library(self, plan):
        done = run(plan, FAULT_SESSION, self.tmad.path)
        assert done.returncode or not done.stdout, done
        return outcome(plan, done)

    def test_library(self):
        self.each(self.library)

    def copy(self, plan):
        with tempfile.TemporaryDirectory(dir=self.directory) as directory:
            path = os.path.join(directory, "out.npy")
            np.save(path, ARRAY[0])
            done = run(plan, FAULT_TMACTL, "--socket", self.tmad.path, "copy", self.source, path, "--pad", "1:2,0:0",
                       "--memory", "1M")
            wanted = ARRAY[0] if done.returncode else np.pad(ARRAY, ((1, 2), (0, 0)))
            assert np.array_equal(np.load(path), wanted), "the destination is neither as it was nor as it should be"
            assert os.listdir(directory) == ["out.npy"], os.listdir(directory)
            told(done)
            return outcome(plan, done)

    def test_copy(self):
        self.each(self.copy)

    def document(self, plan, *args):
        done = run(plan, FAULT_TMACTL, "--socket", self.tmad.path, *args)
        told(done)
        assert done.returncode or done.stdout, done
        return outcome(plan, done)

    def test_info(self):
        self.each(lambda plan: self.document(plan, "info", "--json"))

    def test_explain(self):
        self.each(lambda plan: self.document(plan, "explain", "--shape", "64,96", "--dtype", "float32", "--permute",
                                             "1,0"))


if __name__ == "__main__":
    if os.environ.get("EMULATOR"):
        print("1..0 # SKIP the shim is no emulator's")
    else:
        tap.main()

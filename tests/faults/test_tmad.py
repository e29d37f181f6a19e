# SPDX-License-Identifier: Apache-2.0
"""Fault injection, tmad: each of its libc calls fails once during a scripted session with several clients.

However it goes, tmad does not crash, hang, leak or lose a reply: a request that is not done is refused with an
error that may be, or its connection ends; one failure costs one request or one connection; another client is
served afterwards; what cannot start says why in one line. Under a sanitizer leaks are looked for each time.

FAULTS_ONLY=CLASSES:FIRST:N:VARIANT runs one failure, as the note of one that went wrong names it.
"""
import os
import resource
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from faults import MEMORY, SYSTEM, FaultTmad, Plan, Script, each_failure, served, settled
from tmad import Tmad, wait_until
import tap

SESSION = 69  # requests that are done when nothing fails


class Unstarted(Exception):
    """It said why, in one line."""


def start(tmad, **options):
    try:
        tmad.start(**options)
    except AssertionError as error:
        log = tmad.log()
        if tmad.process.returncode != 1 or log.count("\n") != 1:
            raise AssertionError(f"it did not start, and ended with {tmad.process.returncode}") from error
        raise Unstarted(log) from None


def session(tmad, plan, idle_fds, failures):
    """Its script. One failure is one trouble at most."""
    start(tmad)
    script = Script(tmad.path)
    script.run()
    served(tmad, failures)
    if idle_fds is None:
        idle_fds = wait_until(tmad.fds, "a number")
    settled(tmad, idle_fds)
    assert len(script.troubles) <= failures, script.troubles
    tmad.stop()
    return script, idle_fds


def one(idle_fds, *failure):
    """A whole life of a tmad: what it was like, as a word. failure: classes, first, n, variant."""
    with Plan(*failure) as plan:
        tmad = FaultTmad(plan)
        try:
            script, _ = session(tmad, plan, idle_fds, failure[2])
            return "not reached" if not plan.failed else "trouble" if script.troubles else "nothing seen"
        except Unstarted:
            return "refused to start"
        except Exception as error:
            log = tmad.log()
            if tmad.process and tmad.process.poll() is None:
                tmad.kill()
            raise AssertionError(f"{plan.what}: {error!r}: {log}") from error
        finally:
            tmad._clean()


class Frugal(Tmad):
    """One that may have no descriptor for a client, and then says so."""

    def _answers(self):
        try:
            return super()._answers()
        except ConnectionError:
            return "Too many open files" in self.log()


class FailingCalls(unittest.TestCase):
    def idle(self):
        """A session without a failure: calls of each class, and descriptors that are open for good."""
        with Plan(MEMORY) as memory, Plan(SYSTEM) as system:
            for plan in (memory, system):
                tmad = FaultTmad(plan)
                self.addCleanup(tmad._clean)
                script, idle_fds = session(tmad, plan, None, 0)
                self.assertEqual((script.done, script.troubles), (SESSION, []))
            return {MEMORY: memory.calls, SYSTEM: system.calls}, idle_fds

    def each(self, classes, n, variant):
        calls, idle_fds = self.idle()
        each_failure(lambda *failure: one(idle_fds, *failure), calls[classes], classes, n, variant)

    def test_memory(self):
        self.each(MEMORY, 1, 0)

    def test_memory_thrice(self):
        self.each(MEMORY, 3, 0)

    def test_system(self):
        self.each(SYSTEM, 1, 0)

    def test_system_otherwise(self):
        self.each(SYSTEM, 1, 1)

    def test_system_yet_otherwise(self):
        self.each(SYSTEM, 1, 2)

    def test_few_descriptors(self):
        """With too few for itself it says so; with none to spare it tells clients so; with more it serves."""
        refused = served_nobody = 0
        for most in range(4, 32):  # the loader needs one
            tmad = Frugal(start=False, env={"ASAN_OPTIONS": "detect_leaks=0"})  # that takes some too
            self.addCleanup(tmad._clean)
            try:
                start(tmad, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)))
            except Unstarted:
                refused += 1
                continue
            served_nobody += "Too many open files" in tmad.log()
            tmad.stop()
        print(f"# with 4 to {3 + refused} descriptors it does not start, with {served_nobody} more there is "
              "none for a client", flush=True)
        self.assertGreater(refused, 5)
        self.assertLess(refused + served_nobody, 28)


if __name__ == "__main__":
    if os.environ.get("EMULATOR"):
        print("1..0 # SKIP the shim is no emulator's")
    elif "FAULTS_ONLY" in os.environ:
        print(one(64, *map(int, os.environ["FAULTS_ONLY"].split(":"))))
    else:
        tap.main()

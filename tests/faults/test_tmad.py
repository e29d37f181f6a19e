# SPDX-License-Identifier: Apache-2.0
"""Fault injection, tmad: each of its libc calls fails once during a scripted session with several clients.

However it goes, tmad does not crash, hang, leak or lose a reply: a request that is not done is refused with an
error that may be, or its connection ends; one failure costs one request or one connection; another client is
served afterwards; what cannot start says why in one line. Under a sanitizer leaks are looked for each time.

FAULTS_ONLY=CLASSES:FIRST:N:VARIANT runs one failure, as the note of one that went wrong names it.
"""
import os
import resource
import struct
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from faults import MEMORY, SYSTEM, FaultTmad, Plan, Script, each_failure, served, settled
from tmad import Memory, Rpc, Tmad, tensor, wait_until
import tap

SESSION = 71  # requests that are carried out if nothing fails


class Unstarted(Exception):
    """tmad did not start, and said why in one line."""


def start(tmad, **options):
    try:
        tmad.start(**options)
    except AssertionError as error:
        log = tmad.log()
        if tmad.process.returncode != 1 or log.count("\n") != 1:
            raise AssertionError(f"it did not start, and ended with {tmad.process.returncode}") from error
        raise Unstarted(log) from None


def session(tmad, plan, idle_fds, failures):
    """Runs the script. One failure may cause at most one trouble."""
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
    """Runs a tmad from start to end and returns a word for the outcome. failure is (classes, first, n, variant)."""
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
    """A tmad that may have no descriptor for a client and then says so."""

    def _answers(self):
        try:
            return super()._answers()
        except ConnectionError:
            return "Too many open files" in self.log()


class FailingCalls(unittest.TestCase):
    def idle(self):
        """Runs a session without a failure. Returns the calls of each class and the descriptors that stay open."""
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
        """With too few descriptors for itself tmad says so; with none to spare it tells clients so; with more it
        serves."""
        refused = served_nobody = 0
        for most in range(4, 32):  # the loader needs one
            tmad = Frugal(start=False, env={"ASAN_OPTIONS": "detect_leaks=0"})  # that needs some too
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


class Charges(unittest.TestCase):
    """A request that is refused for lack of memory keeps no charge, while its other items are under way."""

    LIMITS = "--jobs-per-uid=10000", "--behind-waits-per-uid=10000", "--jobs-behind-wait=10000"
    ENTRIES = 1024  # more than fit into the batch that the service keeps

    def test_items(self):
        """A batch whose items need increasing room: runs over tables, a transform of several parts, one of a single
        part."""
        with Plan(MEMORY) as plan:
            tmad = FaultTmad(plan, *self.LIMITS)
            self.addCleanup(tmad._clean)
            start(tmad)
            statuses, charged = self.submit(tmad, plan, None)
            self.assertEqual(statuses, [0] * 4)
            extra = [self.ENTRIES - 1] * 2 + [charged - 4 - 2 * (self.ENTRIES - 1), 0]
            self.assertGreater(extra[2], 0)
            refused, calls, failed = set(), 0, -1
            while plan.failed != failed:
                failed = plan.failed
                statuses, charged = self.submit(tmad, plan, calls)
                self.assertLessEqual(set(statuses), {0, -16}, plan.what)
                kept = 4 + sum(n for n, status in zip(extra, statuses) if status == 0) if statuses else 0
                self.assertEqual(charged, kept, f"{statuses}, {plan.what}")
                refused |= {i for i, status in enumerate(statuses) if status}
                calls += 1
            print(f"# {calls} calls of a submit, of which some are for items {sorted(refused)}", flush=True)
            self.assertLessEqual({1, 2}, refused)
            tmad.stop()

    def submit(self, tmad, plan, calls):
        """Makes a later call fail. Returns the statuses of the items (none if all of it was refused), and what it was
        charged for while it waited."""
        with Rpc(tmad.path) as rpc, Rpc(tmad.path) as other, Memory(8192) as src, Memory(8192) as dst, Memory(64) as words:
            wait_until(lambda: other.call("stats")["jobs"] == 0, "what an ended connection had is gone")
            a, b, timeline = (memory.register(rpc) for memory in (src, dst, words))
            byte = {"dtype": "uint8", "shape": [1]}
            run = {"plan": rpc.call("plan_prepare", {"dst": byte, "src": byte})["plan"], "src": [a, 0]}
            runs = []
            for at in (0, self.ENTRIES):
                places = struct.pack(f"<{2 * self.ENTRIES}Q", *(n for i in range(self.ENTRIES) for n in (b, at + i)))
                runs.append({**run, "dst_table": rpc.call("table_prepare", {"places": places})["table"]})
            parts = {"dst": tensor(b, [3, 16], offset=4096), "src": tensor(a, [40], split=[0, 16])}
            items = [*runs, parts, {"dst": tensor(b, [8], offset=8000), "src": tensor(a, [8])}]
            plan.fail_after(calls)
            try:
                sent = rpc.request("submit", {"items": items, "wait": {"region": timeline, "offset": 0, "value": 1}})
                ping, replies = rpc.request("ping"), {}
                while ping not in replies:  # the other request has then been handled
                    message = rpc.receive()
                    if message is None:
                        return [], 0
                    replies[message[1]] = message
            except ConnectionError:
                return [], 0
            finally:
                plan.fail_after(None)
            charged = other.call("stats")["jobs"]
            words[0] = 1
            error, result = (replies.get(sent) or self.last(rpc, sent))[2:]
            return ([], charged) if error else (result["statuses"], charged)

    def last(self, rpc, sent):
        message = rpc.receive()
        self.assertEqual(message[1], sent)
        return message


if __name__ == "__main__":
    if os.environ.get("EMULATOR"):
        print("1..0 # SKIP the shim is no emulator's")
    elif "FAULTS_ONLY" in os.environ:
        print(one(64, *map(int, os.environ["FAULTS_ONLY"].split(":"))))
    else:
        tap.main()

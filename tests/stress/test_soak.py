# SPDX-License-Identifier: Apache-2.0
"""Mixed load and churn for a long time: SOAK_S seconds, 30 minutes at full length.

Clients of several users (tests/stress/soak.c) use every method at all sizes, make, register and release regions,
connect and go, and ask for what has to be refused. Once warm the daemon may not grow: not a descriptor, mapping, thread
or charge more when they are gone, and no more bytes allocated. (Resident memory says less: the heap keeps up to 32 MiB
of free memory, and touches other parts of it each time.) Every error that it counted is one that a client had asked for.
"""
import collections
import os
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import allocations
import tap
from tmad import BUILD, ENGINE, NATIVE, Tmad, scaled, share, wait_until

SOAK = os.path.join(BUILD, "stress_soak")
FULL, SHORT = 1800, 5  # seconds; a tenth would be too long for every build
SECONDS = float(os.environ.get("SOAK_S") or (FULL if share(FULL) == FULL else SHORT))
USERS = (0, 0, 65534, 12345) if os.geteuid() == 0 else (os.geteuid(),) * 3
CHARGES = ("connections", "regions", "mapped_bytes", "jobs", "pending_fds", "queued_bytes")
ROUNDS = 10
PLANS = 64  # that the service keeps
WARM = 40  # rounds at most, until the bytes allocated grow by less than STEADY_BYTES in four of them
STEADY_BYTES = 16 << 10
GROWTH_BYTES = 64 << 10  # in all rounds after those
COUNTED = NATIVE and allocations.AVAILABLE and ENGINE == "cpu"  # an engine's process would count into the same file


class Soak(unittest.TestCase):
    def setUp(self):
        env = {}
        if COUNTED:
            self.counter = allocations.Counter()
            self.addCleanup(self.counter.close)
            env = self.counter.env
        self.tmad = Tmad("--log-level=error", f"--plan-cache-entries={PLANS}", env=env)
        self.addCleanup(self.tmad.stop)
        os.chmod(self.tmad.directory, 0o755)
        os.chmod(self.tmad.path, 0o666)
        self.rpc = self.tmad.rpc()
        self.addCleanup(self.rpc.close)
        self.done = collections.Counter()
        self.asked_for = collections.Counter()

    def levels(self):
        stats = self.rpc.call("stats")
        return {"fds": self.tmad.fds(), "mappings": self.tmad.mappings_of_memfds(),
                **{name: stats[name] for name in CHARGES}}

    def work(self, seconds, seed):
        clients = [subprocess.Popen([SOAK, self.tmad.path, str(seed + i), str(uid)], stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                   for i, uid in enumerate(USERS)]
        time.sleep(seconds)
        for client in clients:
            output, errors = client.communicate(timeout=scaled(60))
            self.assertEqual((client.returncode, errors), (0, ""))
            connections, calls, transforms, *asked_for = output.split()
            self.done.update(connections=int(connections), calls=int(calls), transforms=int(transforms))
            self.asked_for.update({name: int(n) for name, n in (word.split("=") for word in asked_for)})

    def settled(self, before):
        try:
            wait_until(lambda: self.levels() == before, "", seconds=1)
        except AssertionError:
            self.fail(f"{self.levels()}, not {before}")
        self.forget_plans()
        return self.counter.bytes() if COUNTED else 0

    def forget_plans(self):
        """Has the same plans in the cache each time: those of the clients' layouts keep tiles of many sizes."""
        for n in range(1, 2 * PLANS):
            line = {"dtype": "uint8", "shape": [n]}
            self.rpc.call("explain", {"dst": line, "src": line})

    def test_soak(self):
        self.work(0.2, 0)  # what is opened once stays open
        time.sleep(1.5)
        before, threads, allocated = self.levels(), self.tmad.status("Threads"), []
        while len(allocated) < WARM and (len(allocated) < 5 or allocated[-1] - allocated[-5] > STEADY_BYTES):
            self.work(SHORT / ROUNDS, 100 * (len(allocated) + 1))
            allocated.append(self.settled(before))
        allocated = allocated[-1:]
        for i in range(ROUNDS):
            self.work(SECONDS / ROUNDS, 100 * (WARM + i + 1))
            allocated.append(self.settled(before))
        stats = self.rpc.call("stats")
        print(f"# {SECONDS:.0f} s with {len(USERS)} clients at a time: {dict(self.done)}; errors {stats['errors']}; "
              f"allocated {allocated}", flush=True)
        self.assertEqual(stats["errors"], dict(self.asked_for), "errors that nobody had asked for")
        self.assertEqual((stats["sessions_ended"], stats["connections_refused"]), (0, 0))
        self.assertEqual(self.tmad.log(), "")
        wait_until(lambda: self.tmad.status("Threads") == threads, "no thread more")
        self.assertGreaterEqual(len(stats["bytes"]), 4, "families")
        self.assertLess(max(allocated) - allocated[0], GROWTH_BYTES, allocated)


if __name__ == "__main__":
    tap.main()

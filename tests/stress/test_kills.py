# SPDX-License-Identifier: Apache-2.0
"""Clients that are killed at random points leave nothing behind.

tests/stress/victims.c has 4 clients at a time work on everything there is, flood, and send half of messages; it kills
each after 0 to 6 ms. After every batch the daemon's descriptors, mappings and charges have to be back within 1 s.
"""
import os
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import BUILD, Tmad, has_memory, scaled, share, wait_until

VICTIMS = os.path.join(BUILD, "stress_victims")
KILLS = 10**4
BATCH = 100
MUCH = 4 << 30  # bytes; allocating them takes more than a second
CHARGES = ("connections", "regions", "mapped_bytes", "jobs", "pending_fds", "queued_bytes")


class Kills(unittest.TestCase):
    def setUp(self):
        self.tmad = Tmad()
        self.addCleanup(self.tmad.stop)
        self.rpc = self.tmad.rpc()
        self.addCleanup(self.rpc.close)

    def levels(self):
        stats = self.rpc.call("stats")
        return {"fds": self.tmad.fds(), "mappings": self.tmad.mappings_of_memfds(),
                **{name: stats[name] for name in CHARGES}}

    def kill(self, n, seed, *uid):
        """Returns what the victims had done: connections, calls, transforms, halves of messages."""
        done = subprocess.run([VICTIMS, self.tmad.path, str(n), str(seed), *uid], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=scaled(60), check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [int(word) for word in done.stdout.split()[:4]]

    def batches(self, n, seed, *uid):
        self.kill(20, seed, *uid)  # what is opened once stays open
        wait_until(lambda: self.rpc.call("stats")["connections"] == 1, "all are gone")
        time.sleep(0.2)
        before, deeds, slowest = self.levels(), [0] * 4, 0.0
        start = time.monotonic()
        for first in range(0, n, BATCH):
            done = self.kill(min(BATCH, n - first), seed + first, *uid)
            deeds = [a + b for a, b in zip(deeds, done)]
            killed = time.monotonic()
            try:
                wait_until(lambda: self.levels() == before, "", seconds=1)
            except AssertionError:
                self.fail(f"after {first + BATCH} kills, {scaled(1)} s later: {self.levels()}, not {before}")
            slowest = max(slowest, time.monotonic() - killed)
        for n_done, what in zip(deeds, ("connects", "calls", "transforms", "half a message")):
            self.assertGreater(n_done, n / 20, what)
        print("# {} kills in {:.1f} s, of clients that had made {} connections, {} calls, {} transforms and sent {} "
              "halves of messages; all back within {:.0f} ms".format(
                  n, time.monotonic() - start, *deeds, slowest * 1000), flush=True)

    def test_clients_are_killed(self):
        self.batches(share(KILLS), 1)

    def test_clients_are_killed_while_much_is_mapped(self):
        """Memory that nobody waits for any more is not allocated to its end."""
        if not has_memory(2 * MUCH):
            self.skipTest(f"needs {2 * MUCH >> 30} GiB of memory")
        wait_until(lambda: self.rpc.call("stats")["connections"] == 1, "those of the start are gone")
        before = self.levels()
        for i in range(5):
            with self.tmad.rpc() as client:
                client.request("region_create", {"size": MUCH})
                time.sleep(0.01 * i)
            wait_until(lambda: self.levels() == before, f"what there was before, {before}")
        self.assertGreater(self.rpc.call("stats")["errors"].get("CANCELED", 0), 0)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be another user")
    def test_clients_of_another_user_are_killed(self):
        """Nothing of theirs is left, so their account ends, where every charge is asserted to be 0."""
        os.chmod(self.tmad.directory, 0o755)
        os.chmod(self.tmad.path, 0o666)
        self.batches(max(100, share(KILLS // 10)), 2, "65534")  # of fewer, chance may leave out a deed


if __name__ == "__main__":
    tap.main()

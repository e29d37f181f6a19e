# SPDX-License-Identifier: Apache-2.0
"""session_list, and region_list of others: what they say is what was done, and nobody sees what is not theirs."""
import contextlib
import os
import struct
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import Memory, Rpc, RpcError, Tmad, tensor, wait_until

NOBODY, OTHER = 65534, 12345
PAGE = 256
BARS = 26


@contextlib.contextmanager
def user(uid):
    """Connects as uid: the kernel tells the service who the caller is at that moment."""
    before = os.geteuid()
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(before)


def connect(tmad, uid):
    with user(uid):
        return Rpc(tmad.path)


def open_to_all(tmad):
    os.chmod(tmad.directory, 0o755)
    os.chmod(tmad.path, 0o666)


def sessions(rpc):
    """All that it is shown, page by page."""
    found, after = [], 0
    while page := rpc.call("session_list", {"after": after} if after else None):
        assert len(page) <= PAGE, len(page)
        found += page
        after = page[-1]["session"]
    return found


class Entries(unittest.TestCase):
    """One connection does something, another one looks."""

    def setUp(self):
        self.tmad = Tmad()
        self.addCleanup(self.tmad.stop)
        self.busy, self.looking = self.tmad.rpc(), self.tmad.rpc()
        self.addCleanup(self.busy.close)
        self.addCleanup(self.looking.close)
        self.busy.call("ping")
        both = wait_until(lambda: len(found := sessions(self.looking)) == 2 and found, "two connections are listed")
        self.theirs, self.own = [entry["session"] for entry in both]

    def entry(self):
        return next(entry for entry in sessions(self.looking) if entry["session"] == self.theirs)

    def test_counts_what_the_connection_did(self):
        before = self.entry()
        self.assertEqual((before["requests"], before["errors"], before["bytes"], before["ns"], before["latency"]),
                         (1, 0, 0, 0, []))
        with Memory(65536) as src, Memory(32768) as dst:
            a, b = src.register(self.busy), dst.register(self.busy)
            params = {"dst": tensor(b, [32768]), "src": tensor(a, [32768])}
            done = [self.busy.call("copy", params) for _ in range(3)]
            layout = {"dtype": "uint8", "shape": [16]}
            plan = self.busy.call("plan_prepare", {"dst": layout, "src": layout})["plan"]
            run = {"plan": plan, "dst": [b, 0], "src": [a, 0]}
            batch = self.busy.call("submit", {"items": [run, run | {"dst": [b, 16]}, {**run, "plan": 77}]})
            self.assertEqual([status == 0 for status in batch["statuses"]], [True, True, False])
            with self.assertRaises(RpcError):
                self.busy.call("region_release", {"region": 1 << 60})
            entry = self.entry()
            self.assertEqual(entry["uid"], os.geteuid())
            self.assertEqual(entry["pid"], os.getpid())
            self.assertEqual(entry["requests"], 9)
            self.assertEqual(entry["errors"], 2)  # an item, and a request
            self.assertEqual(entry["bytes"], 3 * 65536 + 2 * 32)
            self.assertEqual(entry["ns"], sum(reply["ns"] for reply in done) + batch["ns"])
            self.assertEqual((entry["regions"], entry["mapped_bytes"], entry["plans"], entry["tables"]), (2, 98304, 1, 0))
            self.assertEqual(entry["jobs"], 0)
            self.assertEqual(sum(entry["latency"]), 5)
            self.assertNotEqual(entry["latency"][-1], 0)
            self.assertLessEqual(len(entry["latency"]), BARS)
            self.assertEqual(sum(bar["count"] for bar in self.looking.call("stats")["latency"]), 5)
            self.busy.call("region_release", {"region": a})
            self.assertEqual((self.entry()["regions"], self.entry()["mapped_bytes"]), (1, 32768))
            table = self.busy.call("table_prepare", {"places": struct.pack("<2Q", b, 0)})["table"]
            self.assertEqual((self.entry()["tables"], self.looking.call("stats")["tables"]), (1, 1))
            self.busy.call("table_release", {"table": table})
            self.assertEqual((self.entry()["tables"], self.looking.call("stats")["tables"]), (0, 0))
        own = next(entry for entry in sessions(self.looking) if entry["session"] == self.own)
        self.assertEqual(own["bytes"], 0)

    def test_age_goes_on(self):
        before = self.entry()["age_ms"]
        time.sleep(0.05)
        self.assertGreaterEqual(self.entry()["age_ms"], before + 50)

    def test_a_connection_that_ended_is_gone(self):
        self.busy.close()
        wait_until(lambda: [entry["session"] for entry in sessions(self.looking)] == [self.own],
                   "only one is left")

    def test_what_waits_is_a_job(self):
        with Memory(4096) as memory:
            region = memory.register(self.busy)
            first = self.busy.request("copy", {"dst": tensor(region, [8], offset=64), "src": tensor(region, [8], offset=128),
                                               "wait": {"region": region, "offset": 0, "value": 1}})
            wait_until(lambda: self.entry()["jobs"] == 1, "it is queued")
            self.busy.request("cancel", {"request": first})
            wait_until(lambda: self.entry()["jobs"] == 0, "it is given up")

    def test_regions_of_another(self):
        with Memory(4096) as memory:
            region = memory.register(self.busy, writable=False)
            self.assertEqual(self.looking.call("region_list"), [])
            self.assertEqual(self.looking.call("region_list", {"session": self.own}), [])
            self.assertEqual(self.looking.call("region_list", {"session": 0}), [])
            listed = self.looking.call("region_list", {"session": self.theirs})
            self.assertEqual(listed, self.busy.call("region_list"))
            self.assertEqual([(entry["region"], entry["size"], entry["writable"]) for entry in listed],
                             [(region, 4096, False)])

    def test_regions_of_none(self):
        for session in (self.own + 1, 1 << 40, (1 << 64) - 1):
            with self.assertRaises(RpcError) as caught:
                self.looking.call("region_list", {"session": session})
            self.assertEqual(caught.exception.name, "NOT_FOUND")
            self.assertIn(str(session), caught.exception.message)


class Pages(unittest.TestCase):
    def test_many_connections(self):
        with Tmad() as tmad, contextlib.ExitStack() as stack:
            rpcs = [stack.enter_context(tmad.rpc()) for _ in range(2 * PAGE + 10)]
            for rpc in rpcs:
                rpc.call("ping")
            page = rpcs[0].call("session_list")
            self.assertEqual(len(page), PAGE)
            found = wait_until(lambda: len(found := sessions(rpcs[0])) == len(rpcs) and found,
                               "the first connection of all has gone")
            ids = [entry["session"] for entry in found]
            self.assertEqual(ids, sorted(set(ids)))
            self.assertEqual(rpcs[0].call("session_list", {"after": ids[-1]}), [])
            self.assertEqual(rpcs[0].call("session_list", {"after": (1 << 64) - 1}), [])

    def test_a_page_fits_small_replies(self):
        """No reply is larger than what a session may have unread."""
        with Tmad("--reply-pause-bytes=4096", "--reply-limit-bytes=8192") as tmad, \
                contextlib.ExitStack() as stack:
            rpcs = [stack.enter_context(tmad.rpc()) for _ in range(40)]
            for rpc in rpcs:
                rpc.call("ping")
            self.assertLess(len(rpcs[0].call("session_list")), 40)
            wait_until(lambda: len(sessions(rpcs[0])) == 40, "all are found, page by page")


@unittest.skipUnless(os.geteuid() == 0, "needs root, to be several users")
class Users(unittest.TestCase):
    def see(self, tmad, service_uid):
        """Who sees whom; root, the service's user, and two others."""
        uids = (0, service_uid, OTHER, OTHER + 1, OTHER)
        open_to_all(tmad)
        with contextlib.ExitStack() as stack:
            rpcs = [stack.enter_context(contextlib.closing(connect(tmad, uid))) for uid in uids]
            for rpc in rpcs:
                rpc.call("ping")
            memory = stack.enter_context(Memory(4096))
            for rpc in rpcs:
                memory.register(rpc)
            everybody = wait_until(lambda: len(found := sessions(rpcs[0])) == len(uids) and found,
                                   "root sees everybody")
            self.assertEqual([entry["uid"] for entry in everybody], list(uids))
            for rpc, uid in zip(rpcs, uids):
                all_seen = uid in (0, service_uid)
                shown = [(entry["session"], entry["uid"]) for entry in sessions(rpc)]
                self.assertEqual(shown, [(entry["session"], entry["uid"]) for entry in everybody
                                         if all_seen or entry["uid"] == uid], f"uid {uid}")
                for entry in everybody:
                    params = {"session": entry["session"]}
                    if all_seen or entry["uid"] == uid:
                        self.assertEqual(len(rpc.call("region_list", params)), 1)
                        continue
                    with self.assertRaises(RpcError) as hidden:
                        rpc.call("region_list", params)
                    with self.assertRaises(RpcError) as missing:
                        rpc.call("region_list", {"session": 1 << 40})
                    self.assertEqual(hidden.exception.name, "NOT_FOUND")
                    self.assertEqual(hidden.exception.message.replace(str(entry["session"]), "N"),
                                     missing.exception.message.replace(str(1 << 40), "N"))

    def test_of_a_service_of_root(self):
        with Tmad() as tmad:
            self.see(tmad, 0)

    def test_of_a_service_of_a_user(self):
        tmad = Tmad(start=False)
        os.chown(tmad.directory, NOBODY, NOBODY)
        os.chmod(tmad.directory, 0o755)
        tmad.start(user=NOBODY, group=NOBODY, extra_groups=[])
        with tmad:
            self.see(tmad, NOBODY)


if __name__ == "__main__":
    tap.main()

# SPDX-License-Identifier: Apache-2.0
"""tmactl top and regions: connections as the service's own counters show them; the terminal is restored."""
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from liar import Liar
from terminal import ENTER, HIDE, LEAVE, SHOW, Terminal
from tmad import NATIVE, TMACTL, Memory, Tmad, tmactl, wait_until

PR_SET_NAME = 15
COPY = 65536


def micro(us):
    """Formats microseconds as tmactl does."""
    return f"{us} us" if us < 1000 else f"{us / 1000:.{2 if us < 9995 else 1 if us < 99950 else 0}f} ms"


class Case(unittest.TestCase):
    def setUp(self):
        self.tmad = Tmad()
        self.addCleanup(self.tmad.stop)

    def client(self, regions=2):
        """Opens a connection of this process that has regions."""
        rpc = self.tmad.rpc()
        self.addCleanup(rpc.close)
        for _ in range(regions):
            memory = Memory(COPY)
            self.addCleanup(memory.close)
            rpc.call("region_register", {"kind": "memfd", "size": COPY}, [os.dup(memory.fd)])
        return rpc

    def copy(self, rpc, n):
        ids = [region["region"] for region in rpc.call("region_list")]
        for _ in range(n):
            rpc.call("copy", {"dst": {"region": ids[0], "dtype": "uint8", "shape": [COPY]},
                              "src": {"region": ids[1], "dtype": "uint8", "shape": [COPY]}})

    def top(self, *args, **options):
        done = tmactl("top", *args, socket_path=self.tmad.path, **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def page(self, *args, **options):
        terminal = Terminal([TMACTL, "--socket", self.tmad.path, "top", *args], **options)
        self.addCleanup(terminal.__exit__, None, None, None)
        return terminal


class Lists(Case):
    def test_numbers_are_the_services(self):
        busy, idle = self.client(), self.client(1)
        self.copy(busy, 40)
        with self.assertRaises(Exception):
            idle.call("copy", {"dst": {}, "src": {}})
        look = json.loads(self.top("--json", "--once"))
        rows = {row["session"]: row for row in look["sessions"]}
        sessions = {entry["session"]: entry for entry in busy.call("session_list") if entry["pid"] == os.getpid()}
        self.assertEqual(set(rows), set(sessions), "all but its own")
        for number, row in rows.items():
            entry = sessions[number]
            self.assertEqual((row["pid"], row["uid"]), (os.getpid(), os.geteuid()))
            for key in ("errors", "regions", "mapped_bytes"):
                self.assertEqual(row[key], entry[key], key)
        self.assertEqual(sorted(row["errors"] for row in rows.values()), [0, 1])
        moved = [row for row in rows.values() if row["bytes_per_s"]]
        self.assertEqual(len(moved), 1)
        # The bars of 40 copies contain both percentiles, and one bounds the other.
        self.assertGreaterEqual(moved[0]["p99_us"], moved[0]["p50_us"])
        # Nobody else moved anything, so the total equals that client's.
        self.assertEqual([look[key] for key in ("p50_us", "p99_us")], [moved[0][key] for key in ("p50_us", "p99_us")])
        text = tmactl("stats", socket_path=self.tmad.path).stdout
        self.assertIn(f"p50 < {micro(look['p50_us'])}, p99 < {micro(look['p99_us'])}", text)
        self.assertEqual(look["connections"], 3)
        self.assertEqual(look["regions"], 3)

    def test_empty_bars_are_left_out(self):
        """The service has moved nothing in less than 2 ms, and something in more than 16 s."""
        bars = [{"below_ns": 4096000, "count": 99}, {"below_ns": 0, "count": 1}]
        stats = {"latency": bars, "requests": 100, "connections": 1}
        lies = {"stats": stats, "session_list": [], "info": {"boot_id": "b", "version": "v"}}
        with Liar(os.path.join(self.tmad.directory, "lies"), lambda method, _: lies[method]) as liar:
            look = json.loads(tmactl("top", "--once", "--json", socket_path=liar.path).stdout)
            self.assertEqual((look["p50_us"], look["p99_us"]), (4096, 4096))
            text = tmactl("stats", socket_path=liar.path).stdout
        self.assertIn("p50 < 4.10 ms, p99 < 4.10 ms", text)
        self.assertRegex(text, r"(?m)^  < 4\.10 ms +99 +99\.0 %")
        self.assertRegex(text, r"(?m)^  longer +1 +1\.0 %")

    def test_rates_are_of_the_time_between(self):
        """Work done before the first display is not part of the second one's rates; work done in between is."""
        rpc = self.client()
        self.copy(rpc, 300)
        with subprocess.Popen([TMACTL, "--socket", self.tmad.path, "--json", "top", "-d", "1", "-n", "3"],
                              stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, encoding="utf-8") as top:
            first = json.loads(top.stdout.readline())
            second = json.loads(top.stdout.readline())
            self.copy(rpc, 10)
            third = json.loads(top.stdout.readline())
            self.assertEqual(top.wait(), 0)
        self.assertGreater(first["sessions"][0]["bytes_per_s"], 0)
        self.assertEqual((second["sessions"][0]["bytes_per_s"], second["sessions"][0]["p50_us"]), (0, None))
        seconds = third["time"] - second["time"]
        # Clocks of a busy machine are imprecise; the rate of all copies would be fifteen times as high.
        for rate in (third["sessions"][0]["bytes_per_s"], third["bytes_per_s"]):
            self.assertTrue(1 / 3 < rate * seconds / (10 * 2 * COPY) < 3, rate)

    def test_tables_follow_each_other(self):
        self.client()
        text = self.top("-n", "2", "-d", "0.1")
        self.assertEqual(text.count("tmad "), 2)
        self.assertEqual(text.count("REQ/S"), 2)
        self.assertNotIn("\x1b", text)

    def test_sorted(self):
        for regions in (1, 3, 2):
            self.client(regions)
        look = json.loads(self.top("--json", "--once", "--sort", "mapped"))
        mapped = [row["mapped_bytes"] for row in look["sessions"]]
        self.assertEqual(mapped, [3 * COPY, 2 * COPY, COPY])

    @unittest.skipIf(not NATIVE, "a process renames itself")
    def test_a_name_is_hostile(self):
        """A process chooses its own name: no byte of it that could move the cursor reaches the terminal."""
        libc = ctypes.CDLL(None)
        with open("/proc/self/comm", "rb") as comm:
            before = comm.read().strip()
        self.addCleanup(libc.prctl, PR_SET_NAME, before, 0, 0, 0)
        self.client(1)
        libc.prctl(PR_SET_NAME, b"\x1b[2J\x9b\n\\x\"", 0, 0, 0)
        with open("/proc/self/comm", "rb") as comm:
            self.assertIn(b"\x1b", comm.read(), "it is the name now")
        for text in (self.top("--once"), tmactl("regions", socket_path=self.tmad.path).stdout):
            self.assertNotIn("\x1b", text)
            self.assertIn("\\x1b[2J\\x9b\\x0a\\\\x\"", text)
        row = json.loads(self.top("--json", "--once"))["sessions"][0]
        self.assertEqual(row["name"], "\\x1b[2J\\x9b\\x0a\\\\x\"")

    def test_the_service_starts_anew(self):
        rpc = self.client()
        self.copy(rpc, 5)
        with subprocess.Popen([TMACTL, "--socket", self.tmad.path, "--json", "top", "-d", "0.1", "-n", "10000"],
                              stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, encoding="utf-8") as top:
            self.addCleanup(top.kill)
            first = json.loads(top.stdout.readline())
            self.tmad.kill()
            while "error" not in (look := json.loads(top.stdout.readline())):
                pass
            self.assertIn("trying again", look["error"])
            self.tmad.start()
            while "error" in (look := json.loads(top.stdout.readline())):
                pass
            self.assertNotEqual(look["boot_id"], first["boot_id"])
            self.assertEqual(look["sessions"], [])
            top.terminate()
            self.assertEqual(top.wait(), -signal.SIGTERM)

    def test_bad_usage(self):
        for args in (["-d", "0"], ["-d", "x"], ["-n", "0"], ["-n", "-1"], ["--sort", "name"], ["extra"]):
            done = tmactl("top", *args, socket_path=self.tmad.path)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), args)


class Pages(Case):
    def test_the_terminal_is_left_as_it_was(self):
        self.client()
        ways = {
            "q": (lambda page: page.type("q"), 0),
            "Ctrl-C": (lambda page: page.type("\x03"), 0),
            "SIGTERM": (lambda page: page.process.terminate(), -signal.SIGTERM),
            "SIGHUP": (lambda page: page.process.send_signal(signal.SIGHUP), -signal.SIGHUP),
            "its last look": (lambda page: None, 0),
        }
        for name, (way, code) in ways.items():
            with self.subTest(way=name):
                page = self.page("-d", "0.2", "-n", "2" if name == "its last look" else "1000")
                page.wait_for("REQ/S")
                way(page)
                self.assertEqual(page.end(), code)
                self.assertTrue(page.is_as_before(), "echo and lines")
                for pair in ((ENTER, LEAVE), (HIDE, SHOW)):
                    self.assertEqual([page.output.count(word) for word in pair], [1, 1])
                self.assertTrue(page.output.index(ENTER) < page.output.index(LEAVE))

    def test_suspended(self):
        page = self.page("-d", "1000")
        page.wait_for("REQ/S")
        page.process.send_signal(signal.SIGTSTP)
        wait_until(lambda: os.waitpid(page.process.pid, os.WUNTRACED | os.WNOHANG)[0], "it is stopped")
        page.wait_for(LEAVE)
        self.assertTrue(page.is_as_before())
        page.process.send_signal(signal.SIGCONT)
        page.wait_for("REQ/S")
        self.assertFalse(page.is_as_before(), "keys are heard again")
        page.type("q")
        self.assertEqual(page.end(), 0)
        self.assertTrue(page.is_as_before())

    def test_nothing_is_wider_or_longer_than_the_terminal(self):
        for _ in range(12):
            self.client(1)
        for columns, lines in ((100, 24), (40, 10), (20, 5), (7, 3), (1, 1)):
            with self.subTest(columns=columns, lines=lines):
                page = self.page("-d", "1000", columns=columns, lines=lines)
                page.wait_for("\x1b[J")
                frame = page.frames()[-1].replace("\r", "").split("\n")
                self.assertLessEqual(max(map(len, frame)), columns)
                self.assertLessEqual(len(frame), lines)
                page.type("q")
                self.assertEqual(page.end(), 0)

    def test_it_follows_the_size_and_the_keys(self):
        for regions in (1, 2):
            self.client(regions)
        page = self.page("-d", "1000", columns=100)
        page.wait_for("JOBS")

        def last():
            """Returns the last complete screenful."""
            page.read()
            end = page.output.rindex("\x1b[J") if "\x1b[J" in page.output else 0
            return page.output[page.output.rindex("\x1b[H", 0, end):end] if end else ""
        for columns, has_room in ((50, False), (100, True)):
            page.resize(columns, 24)
            page.process.send_signal(signal.SIGWINCH)
            wait_until(lambda: ("JOBS" in last()) == has_room and "USER" in last(), f"{columns} columns")
        for title in ("GB/S", "P50", "P99", "ERRORS", "MAPPED"):
            page.type("s")
            wait_until(lambda: re.search(r"\x1b\[7m *" + title, last()), title)
        self.assertLess(last().index("131 kB"), last().rindex("65.5 kB"))
        page.type("\x1b[D")
        wait_until(lambda: re.search(r"\x1b\[7m *ERRORS", last()), "back")
        page.type("q")
        self.assertEqual(page.end(), 0)

    def test_the_service_starts_anew(self):
        page = self.page("-d", "0.1", columns=200)
        page.wait_for("REQ/S")
        self.tmad.kill()
        page.wait_for("does not answer")
        self.tmad.start()
        page.wait_for("has been restarted")
        page.type("q")
        self.assertEqual(page.end(), 0)

    def test_without_a_page(self):
        for args, env in ((["--once"], {}), (["--json", "-n", "2", "-d", "0.1"], {}), (["-n", "2", "-d", "0.1"], {"TERM": "dumb"})):
            with self.subTest(args=args, env=env):
                page = self.page(*args, **env)
                self.assertEqual(page.end(), 0)
                self.assertNotIn(ENTER, page.output)


class Regions(Case):
    def regions(self, **options):
        done = tmactl("--json", "regions", socket_path=self.tmad.path, **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)

    def test_with_owners(self):
        one, other = self.client(2), self.client(1)
        got = self.regions()
        want = sorted(region["region"] for rpc in (one, other) for region in rpc.call("region_list"))
        self.assertEqual(sorted(row["region"] for row in got), want)
        self.assertEqual({(row["pid"], row["uid"], row["size"], row["kind"]) for row in got},
                         {(os.getpid(), os.geteuid(), COPY, "memfd")})
        self.assertEqual(len({row["session"] for row in got}), 2)
        text = tmactl("regions", socket_path=self.tmad.path).stdout
        self.assertIn("3 regions of 2 connections, 197 kB", text)
        self.assertEqual(len(text.splitlines()), 1 + 3 + 2)

    def test_none(self):
        self.assertEqual(self.regions(), [])
        self.assertIn("no regions", tmactl("regions", socket_path=self.tmad.path).stdout)

    @unittest.skipIf(os.geteuid() != 0, "only root can be somebody else")
    def test_another_user_sees_none_of_these(self):
        self.client(2)
        os.chmod(self.tmad.directory, 0o755)
        os.chmod(self.tmad.path, 0o666)
        args = ["--server-user", "0", "--json"]
        done = tmactl(*args, "regions", socket_path=self.tmad.path, user=65534)
        self.assertEqual((done.returncode, done.stdout), (0, "[]\n"), done.stderr)
        done = tmactl(*args, "top", "--once", socket_path=self.tmad.path, user=65534)
        self.assertEqual(json.loads(done.stdout)["sessions"], [])


if __name__ == "__main__":
    tap.main()

# SPDX-License-Identifier: Apache-2.0
"""What tmad logs: to stderr, and to a journal of the test's own, which stands where systemd's would for a tmad in
a mount namespace."""
import contextlib
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from manager import Manager, listening
from scrape import scrape
from terminal import Terminal, plain
from tmad import FAULTY, TMAD, Memory, Rpc, RpcError, pack_request, scaled, tensor, wait_until

# Mounts another /run for what follows.
UNDER = ["unshare", "-m", "sh", "-c", 'mount --make-rprivate / && mount --bind "$0" /run && exec "$@"']


def entry(data):
    """Parses a datagram as journald does: NAME=VALUE lines, or NAME, a length and as many bytes."""
    fields = {}
    while data:
        name, newline, rest = data.partition(b"\n")
        key, equals, value = name.partition(b"=")
        if not equals:
            (length,) = struct.unpack("<Q", rest[:8])
            value, rest = rest[8:8 + length], rest[9 + length:]
        fields[key.decode("ascii")] = value.decode("utf-8")
        data = rest
    return fields


class LogCase(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="tmad-log-")
        self.addCleanup(scratch.cleanup)
        self.directory = scratch.name
        self.path = os.path.join(self.directory, "s")
        self.stderr_path = os.path.join(self.directory, "stderr")
        self.stderr = open(self.stderr_path, "ab")
        self.addCleanup(self.stderr.close)

    def stream(self):
        """Writes what systemd says about the stderr that it connects."""
        status = os.fstat(self.stderr.fileno())
        return f"{status.st_dev}:{status.st_ino}"

    def lines(self):
        with open(self.stderr_path, encoding="utf-8", errors="surrogateescape") as log:
            return log.read().splitlines()

    def started(self, *args, **options):
        manager = Manager(*args, sockets=[("clients", listening(self.path))], stderr=self.stderr, **options)
        self.addCleanup(manager.close)
        manager.start()
        manager.wait_told("READY")
        return manager

    def refused(self, rpc, method="region_release", params=None):
        with self.assertRaises(RpcError) as caught:
            rpc.call(method, params if params is not None else {"region": 7})
        return caught.exception


class Stderr(LogCase):
    def test_plain_where_it_is_nobody_s(self):
        for stream in ("", "1:1", "nonsense", "18446744073709551615:18446744073709551615"):
            with self.subTest(stream=stream):
                manager = self.started(**({"JOURNAL_STREAM": stream} if stream else {}))
                with Rpc(self.path) as rpc:
                    error = self.refused(rpc)
                self.assertEqual(manager.stop(), 0)
                lines = self.lines()
                for line in lines:
                    self.assertTrue(line.startswith("tmad: "), line)
                self.assertRegex("\n".join(lines), rf"tmad: uid {os.getuid()} pid {os.getpid()} session \d+ request 1: "
                                                   f"refused region_release: NOT_FOUND: {re.escape(error.message)}")
                os.unlink(self.path)

    def test_time_where_it_is_asked_for(self):
        """Lines have times where asked for, even those from before the settings were read."""
        stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}"
        manager = self.started("--log-format=time", "--config=")
        with Rpc(self.path) as rpc:
            self.refused(rpc)
        self.assertEqual(manager.stop(), 0)
        lines = self.lines()
        for line in lines:
            self.assertRegex(line, rf"^{stamp} (info   |notice |warning) tmad: ")
        self.assertRegex("\n".join(lines), rf"(?m)^{stamp} notice  tmad: uid \d+ pid \d+ session \d+ request 1: refused ")
        done = subprocess.run([TMAD, "--config=/nowhere", "--log-format=time"], stdin=subprocess.DEVNULL, encoding="utf-8",
                              stderr=subprocess.PIPE, check=False, timeout=scaled(20))
        self.assertRegex(done.stderr, rf"^{stamp} error   tmad: /nowhere: No such file")

    def test_one_line_each_whatever_a_client_says(self):
        manager = self.started()
        hostile = "\ntmad: uid 0: all is well\x1b[2J\r\x7f\u0085\u009b31m"
        with Rpc(self.path) as rpc:
            for method, params in ((hostile, {}), ("region_release", {hostile: 1}),
                                   ("copy", {"dst": {"region": 1, "dtype": hostile, "shape": [1]}, "src": hostile}),
                                   ("region_register", {"kind": hostile, "size": 1})):
                before = len(self.lines())
                self.refused(rpc, method, params)
                new = wait_until(lambda: self.lines()[before:], "a line")
                self.assertEqual(len(new), 1, new)
                self.assertRegex(new[0], r"^tmad: uid \d+ pid \d+ session \d+ request \d+: refused ")
                self.assertNotRegex(new[0], "[\x00-\x1f\x7f-\x9f\udc80-\udcff]")
        with Rpc(self.path) as rpc:  # ending the session causes a line
            before = len(self.lines())
            rpc.send(b"\xc1" + hostile.encode())
            self.assertTrue(rpc.ended())
            new = wait_until(lambda: self.lines()[before:], "a line")
            self.assertEqual(len(new), 1, new)
            self.assertIn("ended: ", new[0])
        self.assertEqual(manager.stop(), 0)

    def test_a_few_a_second_and_the_others_are_counted(self):
        refusals = 500
        manager = self.started()
        with Rpc(self.path) as rpc:
            start = time.monotonic()
            for _ in range(refusals):
                self.refused(rpc)
            seconds = time.monotonic() - start
            time.sleep(1.1)
            self.refused(rpc)
        lines = self.lines()
        written = sum("refused region_release" in line for line in lines)
        counted = [int(match[1]) for line in lines if (match := re.search(r": (\d+) lines about clients dropped", line))]
        self.assertGreaterEqual(written, 20)
        self.assertLessEqual(written, 20 * (int(seconds) + 3))
        self.assertEqual(written + sum(counted), refusals + 1, lines[-3:])
        self.assertEqual(manager.stop(), 0)


# A client that needs none of the project's files, so that any user can run it. It sends invalid requests repeatedly;
# each refusal is logged.
COMPLAINS = """
import socket, sys, time
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    sock.sendall(bytes.fromhex(sys.argv[2]))
    sock.recv(65536)
    time.sleep(0.02)
"""
LOST = re.compile(r"(\d+) lines? (?:was|were) lost here: nobody read the log")


class NobodyReads(LogCase):
    """Standard error blocks: clients are served nevertheless, and lines that could not be written are counted."""

    def setUp(self):
        super().setUp()
        self.reader, self.writer = os.pipe()
        self.addCleanup(lambda: [os.close(fd) for fd in (self.reader, self.writer)])
        self.text = ""

    def fill(self):
        os.set_blocking(self.writer, False)  # applies to the daemon's end of the pipe as well
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.writer, b"." * 4096)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.writer, b".")
        os.set_blocking(self.writer, True)

    def read(self, until):
        """Reads from now on; returns everything up to and including a match."""
        def reads():
            with contextlib.suppress(OSError):
                while piece := os.read(self.reader, 65536):
                    self.text += piece.decode()
        if not hasattr(self, "thread"):
            self.thread = threading.Thread(target=reads, daemon=True)
            self.thread.start()
        return wait_until(lambda: re.search(until, self.text), f"{until} in the log").string

    def read_once(self, until):
        """Reads up to a match and nothing after it, so that the pipe can then be filled."""
        while not re.search(until, self.text):
            self.text += os.read(self.reader, 65536).decode()

    def start(self, *args):
        os.chmod(self.directory, 0o755)
        self.stderr.close()
        self.stderr = os.fdopen(os.dup(self.writer), "ab", buffering=0)
        manager = self.started(*args)
        os.chmod(self.path, 0o666)
        return manager

    def complain(self, uids, seconds):
        """Has clients of these users cause lines as often as they can. Returns how long another client's pings took
        meanwhile."""
        message = pack_request(1, "region_release", {"region": 7}).hex()
        clients = [subprocess.Popen([sys.executable, "-I", "-c", COMPLAINS, self.path, message, str(seconds)], user=uid, cwd="/",
                                    stdin=subprocess.DEVNULL) for uid in uids]
        took = []
        with Rpc(self.path) as rpc:
            while any(client.poll() is None for client in clients):
                start = time.monotonic()
                self.assertIs(rpc.call("ping"), True)
                took.append(time.monotonic() - start)
                time.sleep(0.002)
        self.assertEqual([client.wait() for client in clients], [0] * len(clients))
        took.sort()
        print(f"# {len(took)} pings: p50 {took[len(took) // 2] * 1e3:.2f} ms, p99 {took[len(took) * 99 // 100] * 1e3:.2f} ms, "
              f"the longest {took[-1] * 1e3:.1f} ms", flush=True)
        return took

    def uids(self):
        return [None] if os.geteuid() else list(range(70000, 70016))

    def test_clients_are_served(self):
        manager = self.start("--metrics=unix:" + self.directory + "/m")
        self.fill()
        took = self.complain(self.uids(), 4 if len(self.uids()) > 1 else 1)
        self.assertLess(took[len(took) * 99 // 100], scaled(1))
        with Rpc(self.path) as rpc:  # until there is no more room in its queue either
            def is_full():
                for _ in range(200):
                    self.refused(rpc)
                return rpc.call("stats")["log_lines_lost"] > 0
            wait_until(is_full, "lines are lost", 60)
        lost = int(scrape(f"unix:{self.directory}/m")["tmad_log_lines_lost_total"])
        self.assertGreater(lost, 0)
        self.read(LOST.pattern)
        with Rpc(self.path) as rpc:
            lost = rpc.call("stats")["log_lines_lost"]
        self.assertEqual(manager.stop(), 0)
        self.read("tmad: stopped\n")
        self.assertEqual(sum(int(n) for n in LOST.findall(self.text)), lost)
        for line in self.text.lstrip(".").splitlines():
            self.assertRegex(line, r"^\.*tmad: ")

    def test_what_it_has_to_say_comes_out_later(self):
        manager = self.start()
        self.fill()
        with Rpc(self.path) as rpc:
            self.refused(rpc)
            self.refused(rpc, "region_release", {"region": 8})
        text = self.read("no region 8")
        self.assertIn("no region 7", text)
        self.assertNotRegex(text, LOST)
        self.assertEqual(manager.stop(), 0)
        self.read("tmad: stopped\n")

    def test_it_ends(self):
        manager = self.start()
        self.fill()
        begun = time.monotonic()
        self.assertEqual(manager.stop(), 0)
        self.assertLess(time.monotonic() - begun, scaled(5))

    def test_it_ends_at_once_where_it_is_read(self):
        manager = self.start()
        self.read("ready")
        self.assertEqual(manager.stop(), 0)
        self.read("tmad: stopped\n")

    def test_it_says_why_it_does_not_start(self):
        done = subprocess.run([TMAD, "--config=/nowhere"], stdin=subprocess.DEVNULL, stderr=self.writer, check=False,
                              timeout=scaled(20))
        self.assertEqual(done.returncode, 2)
        self.read("tmad: /nowhere: No such file")

    def test_from_life_to_life(self):
        """The device is lost, and the program restarts, while nobody reads."""
        process = subprocess.Popen([FAULTY, "--config=", "--engine=cuda", "--socket=" + self.path], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=self.writer)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.read_once("ready on")  # the socket's path exists before it listens
        with Rpc(self.path) as rpc, Memory(65536) as memory:
            region = memory.register(rpc)
            self.fill()
            rpc.request("copy", {"dst": tensor(region, [6666]), "src": tensor(region, [6666], offset=32768)})
            while rpc.receive() is not None:
                continue
        with Rpc(self.path) as rpc:
            self.assertEqual(rpc.call("stats")["recoveries"], 1)
            lost = rpc.call("stats")["log_lines_lost"]
            self.assertGreater(lost, 0)
        text = self.read("ready on .*\n(.*\n)*.*ready on")
        self.assertEqual(int(LOST.search(text)[1]), lost, text)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(scaled(20)), 0)


class OnATerminal(LogCase):
    def setUp(self):
        super().setUp()
        self.terminal = Terminal([TMAD, "--config=", "--engine=cpu", "--socket=" + self.path], TZ="UTC")
        self.addCleanup(self.terminal.__exit__, None, None, None)
        self.terminal.wait_for("ready on")

    def test_time_and_severity(self):
        self.terminal.wait_for("\n")
        before = time.time()
        with Rpc(self.path) as rpc:
            self.refused(rpc)
        self.terminal.wait_for("no region 7\r\n")
        self.terminal.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.terminal.end(), 0)
        lines = plain(self.terminal.output).split("\r\n")
        stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}"
        self.assertRegex(lines[0], rf"^{stamp} info    tmad: ready on {self.path}, engine cpu")
        self.assertRegex(lines[1], rf"^{stamp} notice  tmad: uid \d+ pid \d+ session 1 request 1: refused region_release: NOT_FOUND")
        self.assertRegex(lines[-2], rf"^{stamp} info    tmad: stopped$")
        told = time.mktime(time.strptime(lines[1][:19], "%Y-%m-%d %H:%M:%S")) - time.timezone
        self.assertLess(abs(told - before), scaled(30), lines[1])

    def test_one_that_is_stopped(self):
        """Stopped as by Ctrl-S."""
        termios.tcflow(self.terminal._slave, termios.TCOOFF)
        with Rpc(self.path) as rpc:
            for _ in range(5):
                self.refused(rpc)
                self.assertIs(rpc.call("ping"), True)
        termios.tcflow(self.terminal._slave, termios.TCOON)
        self.terminal.wait_for("request 9: refused")


class Journal(LogCase):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0 or not shutil.which("unshare"):
            self.skipTest("only root may put a journal in systemd's place, with unshare")
        self.run_directory = os.path.join(self.directory, "run")
        os.makedirs(os.path.join(self.run_directory, "systemd/journal"))
        probe = subprocess.run([*UNDER, self.run_directory, "true"], stdin=subprocess.DEVNULL, capture_output=True,
                               encoding="utf-8", check=False, timeout=scaled(20))
        if probe.returncode:
            self.skipTest("no mount namespaces here: " + probe.stderr.strip())
        self.journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.journal.close)
        self.journal.bind(os.path.join(self.run_directory, "systemd/journal/socket"))
        self.journal.settimeout(scaled(10))

    def start(self, *args, stream=None):
        return self.started(*args, under=[*UNDER, self.run_directory], JOURNAL_STREAM=stream or self.stream())

    def wait_entry(self, text):
        while True:
            fields = entry(self.journal.recv(65536))
            if text in fields["MESSAGE"]:
                return fields

    def test_lines_have_fields(self):
        manager = self.start()
        ready = self.wait_entry("ready on")
        self.assertEqual((ready["PRIORITY"], ready["SYSLOG_IDENTIFIER"]), ("6", "tmad"))
        self.assertEqual([name for name in ready if name.startswith("TMAD_")], [])
        with Rpc(self.path) as rpc:
            rpc.call("ping")
            error = self.refused(rpc)
        fields = self.wait_entry("refused region_release")
        duration = int(fields.pop("TMAD_DURATION_US"))
        self.assertLess(duration, scaled(10) * 1000000)
        self.assertEqual({name: value for name, value in fields.items() if not name.startswith("_")}, {
            "MESSAGE": f"uid {os.getuid()} pid {os.getpid()} session 1 request 2: refused region_release: "
                       f"NOT_FOUND: {error.message}",
            "PRIORITY": "5", "SYSLOG_IDENTIFIER": "tmad", "TMAD_UID": str(os.getuid()), "TMAD_PID": str(os.getpid()),
            "TMAD_SESSION": "1", "TMAD_REQUEST": "2", "TMAD_METHOD": "region_release", "TMAD_STATUS": "NOT_FOUND"})
        self.assertEqual(manager.stop(), 0)
        self.assertEqual(self.wait_entry("stopped")["PRIORITY"], "6")
        self.assertEqual([line for line in self.lines() if "ready" in line or "refused" in line], [], "twice")

    def test_another_format(self):
        """A format that is asked for goes to stderr, and nothing to the journal."""
        for option, front in (("plain", "tmad: "), ("time", r"\d{4}-\d\d-\d\d \S+ (info   |notice |warning) tmad: ")):
            with self.subTest(format=option):
                before = len(self.lines())
                manager = self.start(f"--log-format={option}")
                self.assertEqual(manager.stop(), 0)
                lines = self.lines()[before:]
                for line in lines:
                    self.assertRegex(line, f"^{front}")
                self.assertRegex(lines[-1], "tmad: stopped$")
                self.assertEqual(select.select([self.journal], [], [], 0)[0], [])
                os.unlink(self.path)
        self.start("--log-format=auto")
        self.wait_entry("ready on")

    def test_how_long_a_request_took(self):
        """The request waits for a word until its deadline."""
        manager = self.start()
        with Rpc(self.path) as rpc:
            region = rpc.call("region_create", {"size": 4096})["region"]
            side = {"region": region, "dtype": "uint8", "shape": [8]}
            self.refused(rpc, "copy", {"dst": side, "src": {**side, "offset": 64},
                                       "wait": {"region": region, "offset": 128, "value": 1, "deadline_ms": 150}})
        fields = self.wait_entry("refused copy")
        self.assertGreaterEqual(int(fields["TMAD_DURATION_US"]), 150000)
        self.assertEqual(fields["TMAD_STATUS"], "TIMEOUT")
        self.assertEqual(manager.stop(), 0)

    def test_a_limit_is_a_warning(self):
        manager = self.start("--regions-per-uid=1")
        with Rpc(self.path) as rpc:
            rpc.call("region_create", {"size": 4096})
            self.refused(rpc, "region_create", {"size": 4096})
        fields = self.wait_entry("refused region_create: QUOTA")
        self.assertEqual((fields["PRIORITY"], fields["TMAD_STATUS"]), ("4", "QUOTA"))
        self.assertEqual(manager.stop(), 0)

    def test_a_refused_connection(self):
        manager = self.start("--connections-per-uid=1")
        with Rpc(self.path) as rpc, Rpc(self.path) as other:
            rpc.call("ping")
            self.assertTrue(other.ended())
        fields = self.wait_entry("refused a connection")
        self.assertEqual((fields["TMAD_UID"], fields["TMAD_PID"], fields["TMAD_STATUS"]),
                         (str(os.getuid()), str(os.getpid()), "QUOTA"))
        self.assertNotIn("TMAD_SESSION", fields)
        self.assertEqual(fields["PRIORITY"], "4", "the limit is the operator's")
        self.assertEqual(manager.stop(), 0)

    def test_stderr_that_went_elsewhere(self):
        manager = self.start(stream="1:1")
        self.assertEqual(manager.stop(), 0)
        self.assertTrue(any(line.startswith("tmad: ready on") for line in self.lines()))
        self.journal.setblocking(False)
        with self.assertRaises(BlockingIOError):
            self.journal.recv(1)

    def test_a_journal_that_does_not_read(self):
        """The journal's queue is full after some lines: further lines are dropped, and nobody waits for it."""
        manager = self.start("--log-level=debug")
        for _ in range(2000):
            with Rpc(self.path) as rpc:
                self.assertIs(rpc.call("ping"), True)
        with Rpc(self.path) as rpc:
            self.assertGreater(rpc.call("stats")["log_lines_lost"], 0)
            self.journal.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    self.journal.recv(65536)
            self.journal.settimeout(scaled(10))
            self.refused(rpc)
            self.assertRegex(self.wait_entry("lost here")["MESSAGE"], LOST)
            self.wait_entry("refused region_release")
        self.assertEqual(manager.stop(), 0)

    def test_a_journal_that_does_not_take_it(self):
        """The lines then go to stderr, each with its priority in front."""
        self.journal.close()
        manager = self.start()
        self.assertEqual(manager.stop(), 0)
        self.assertTrue(any(line.startswith("<6>ready on") for line in self.lines()), self.lines())


if __name__ == "__main__":
    tap.main()

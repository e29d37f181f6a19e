# SPDX-License-Identifier: Apache-2.0
"""Exit codes of every command of tmactl: 0 done, 1 refused or failed, 2 bad usage; and progress and colours, which
appear on a terminal only."""
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
from terminal import Terminal, plain
from tmad import TMACTL, RpcError, Tmad, scaled, tmactl, wait_until

ARRAY = ["--dtype", "float32", "--shape", "64,64"]

# For each command: a valid command line, an invalid one, and whether it connects to the service.
COMMANDS = {
    "bench": (["--requests", "3"], ["--kind", "nothing"], True),
    "completion": (["bash"], ["tcsh"], False),
    "copy": (["IN", "OUT"], ["IN"], True),
    "explain": (ARRAY, ["--dtype", "float32"], True),
    "help": (["copy"], ["nothing"], False),
    "info": ([], ["extra"], True),
    "layouts": ([], ["extra"], False),
    "ping": ([], ["extra"], True),
    "regions": ([], ["--nothing"], True),
    "stats": ([], ["--json=1"], True),
    "top": (["--once"], ["--sort", "nothing"], True),
}


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmad = Tmad("--connections-per-uid", "8")
        cls.addClassCleanup(cls.tmad.stop)

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="tmactl-codes-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.names = {"IN": os.path.join(self.directory, "in.npy"), "OUT": os.path.join(self.directory, "out.npy")}
        np.save(self.names["IN"], np.zeros((8, 8), "f4"))

    def line(self, command, args):
        return [command, *(self.names.get(arg, arg) for arg in args)]


class Codes(Case):
    def test_the_table_has_every_command(self):
        self.assertEqual(tmactl("bench", "--help").returncode, 0)
        text = tmactl("--help").stdout
        listed = [line.split()[0] for line in text[text.index("commands"):text.index("options")].splitlines()[1:]
                  if line[:3].strip()]
        self.assertEqual(listed, sorted(COMMANDS))

    def test_done(self):
        for command, (good, _, _) in COMMANDS.items():
            with self.subTest(command=command):
                done = tmactl(*self.line(command, good), socket_path=self.tmad.path)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertNotEqual(done.stdout, "")
                self.assertNotIn("\x1b", done.stdout, "no colours where there is no terminal")

    def test_bad_usage(self):
        for command, (_, bad, _) in COMMANDS.items():
            for args in (bad, ["--nothing"], ["--timeout", "0"], ["--color", "red"], ["--socket"]):
                with self.subTest(command=command, args=args):
                    done = tmactl(*self.line(command, args), socket_path=self.tmad.path)
                    self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done.stderr)
                    self.assertTrue(done.stderr.startswith("tmactl: "))

    def said(self, done, code, stream="stdout"):
        """Returns the document of a failure, which has its message and its name."""
        self.assertEqual(done.returncode, code, done.stderr)
        people, start = done.stderr, "tmactl: "
        if stream == "stderr":  # only an array goes to standard output
            self.assertEqual(done.stdout, "")
            people, found, document = done.stderr.partition('{"status"')
            text = json.loads(found + document)
        else:
            text = json.loads(done.stdout)
        self.assertEqual(people, f"{start}{text['message']}\n")
        self.assertEqual((sorted(text), text["exit_code"]), (["exit_code", "message", "status"], code))
        return text["status"]

    def test_json_of_failures(self):
        """The document goes to standard output, wherever --json stands, in addition to the line on standard error."""
        nobody = os.path.join(self.directory, "nobody")
        for command, (good, bad, asks) in COMMANDS.items():
            for args in (bad, ["--nothing"], ["--timeout", "0"], ["--color", "red"], ["--socket"]):
                if "--json=1" in args:
                    continue
                for line in (["--json", *self.line(command, args)], [command, "--json", *self.line(command, args)[1:]],
                             [*self.line(command, args), "--json"]):
                    if line[-2:] == ["--socket", "--json"]:
                        continue
                    with self.subTest(line=line):
                        self.assertEqual(self.said(tmactl(*line, socket_path=self.tmad.path), 2), "USAGE")
            if asks:
                with self.subTest(command=command):
                    done = tmactl(*self.line(command, good), "--json", socket_path=nobody)
                    self.assertEqual(self.said(done, 1), "DISCONNECTED")
        for line in (["--json"], ["--nothing", "--json"], ["nothing", "--json"]):
            self.assertEqual(self.said(tmactl(*line, socket_path=nobody), 2), "USAGE")

    def test_statuses_of_failures(self):
        src, dst = self.names["IN"], self.names["OUT"]
        odd = os.path.join(self.directory, "\udcff\u00e9\".npy")  # bytes of a path that are no UTF-8
        rows = ((["copy", "missing.npy", dst], 1, "FAILED"), (["copy", odd, dst], 1, "FAILED"),
                (["copy", src, dst, "--bias", "0.5", "--dtype", "u1", "--cast", "exact"], 1, "OUT_OF_RANGE"),
                (["explain", "--dtype", "c8", "--shape", "3", "--to-dtype", "f4"], 1, "INVALID_ARGUMENT"),
                (["explain", "missing.npy"], 1, "FAILED"))
        for line, code, status in rows:
            with self.subTest(line=line):
                done = tmactl(*line, "--json", socket_path=self.tmad.path, errors="replace")
                if odd in line:
                    self.assertEqual((done.returncode, json.loads(done.stdout)["status"]), (code, status))
                    self.assertIn("\ufffd\u00e9\".npy", json.loads(done.stdout)["message"])
                else:
                    self.assertEqual(self.said(done, code), status)
        for line in (["copy", "missing.npy", "-"], ["copy", src, "-", "--mode", "x"], ["copy", "--mode", "x", src, "-"],
                     ["copy", src, "/dev/stdout", "--nothing"], ["copy", "missing.npy", dst, "--scale-output", "-"]):
            with self.subTest(line=line):
                self.said(tmactl(*line, "--json", socket_path=self.tmad.path), 1 if "missing.npy" in line[1:3] and
                          "--scale-output" not in line else 2, "stderr")
        done = tmactl("copy", "-", dst, "--mode", "x", "--json", socket_path=self.tmad.path)
        self.assertEqual(self.said(done, 2), "USAGE")

    def test_no_service(self):
        nobody = os.path.join(self.directory, "nobody")
        for command, (good, _, asks) in COMMANDS.items():
            with self.subTest(command=command):
                done = tmactl(*self.line(command, good), socket_path=nobody)
                self.assertEqual((done.returncode, nobody in done.stderr), (1, True) if asks else (0, False), done.stderr)

    def test_refused(self):
        """The service refuses every connection."""
        def only_one():
            rpc = tmad.rpc()
            try:
                rpc.call("ping")
            except (ConnectionError, RpcError):  # the connection that found the service ready is still open
                rpc.close()
                return None
            return rpc
        with Tmad("--connections-per-uid", "1") as tmad, wait_until(only_one, "it has room for one"):
            for command, (good, _, asks) in COMMANDS.items():
                with self.subTest(command=command):
                    done = tmactl(*self.line(command, good), socket_path=tmad.path)
                    self.assertEqual(done.returncode, 1 if asks else 0, done.stderr)
                    # The result depends on whether the command had printed something by then.
                    said = [words in done.stderr for words in ("connections_per_uid", f"{tmad.path} closed the connection",
                                                               f"{tmad.path} went away")]
                    self.assertEqual(any(said), asks, done.stderr)
                    if asks:
                        done = tmactl(*self.line(command, good), "--json", socket_path=tmad.path)
                        self.assertIn(self.said(done, 1), ("QUOTA", "DISCONNECTED"))

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full here")
    def test_output_that_cannot_be_written(self):
        for command, (good, _, _) in [*COMMANDS.items(), ("--help", ([], [], False)), ("--version", ([], [], False))]:
            with self.subTest(command=command), open("/dev/full", "wb") as full:
                done = subprocess.run([TMACTL, "--socket", self.tmad.path, *self.line(command, good)], stdout=full,
                                      stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=scaled(30), check=False)
                self.assertEqual((done.returncode, b"standard output cannot be written" in done.stderr), (1, True))

    def test_output_that_is_closed(self):
        for command, (good, _, _) in COMMANDS.items():
            with self.subTest(command=command):
                done = subprocess.run(["sh", "-c", "exec \"$@\" >&-", "sh", TMACTL, "--socket", self.tmad.path,
                                       *self.line(command, good)], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                      timeout=scaled(30), check=False)
                self.assertEqual((done.returncode, b"standard output cannot be written" in done.stderr), (1, True))

    def test_input_that_is_closed(self):
        """A closed input is an error: it is not taken for an empty one, nor is another file with the same descriptor
        number."""
        with tempfile.TemporaryDirectory() as directory:
            done = subprocess.run(["sh", "-c", "exec \"$@\" <&-", "sh", TMACTL, "--socket", self.tmad.path, "copy", "-",
                                   os.path.join(directory, "out.npy")], stderr=subprocess.PIPE, timeout=scaled(30),
                                  encoding="utf-8", check=False)
            self.assertEqual((done.returncode, os.listdir(directory)), (1, []), done.stderr)
            self.assertIn("Bad file descriptor", done.stderr)

    def test_output_that_nobody_reads(self):
        """As in `tmactl stats | true`: the command fails without a message."""
        for command, (good, _, _) in COMMANDS.items():
            with self.subTest(command=command):
                reader, writer = os.pipe()
                os.close(reader)
                with os.fdopen(writer, "wb") as pipe:
                    done = subprocess.run([TMACTL, "--socket", self.tmad.path, *self.line(command, good)], stdout=pipe,
                                          stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=scaled(30), check=False)
                self.assertEqual((done.returncode, done.stderr), (1, b""))


class Terminals(Case):
    def on_terminal(self, *args, columns=100, **env):
        terminal = Terminal([TMACTL, "--socket", self.tmad.path, *args], columns=columns, **env)
        self.addCleanup(terminal.__exit__, None, None, None)
        return terminal

    def test_colours(self):
        explain = ["explain", *ARRAY, "--permute", "1,0"]
        rows = (([], {}, True), ([], {"NO_COLOR": "1"}, False), ([], {"NO_COLOR": ""}, True), ([], {"TERM": "dumb"}, False),
                (["--color=never"], {}, False), (["--color=always"], {"NO_COLOR": "1"}, True))
        for args, env, want in rows:
            with self.subTest(args=args, env=env):
                terminal = self.on_terminal(*explain, *args, **env)
                self.assertEqual(terminal.end(), 0)
                self.assertEqual("\x1b[" in terminal.output, want)
                self.assertIn("family   tile_transpose", plain(terminal.output))
        done = tmactl(*explain, "--color=always", socket_path=self.tmad.path)
        self.assertIn("\x1b[", done.stdout)

    def big(self):
        path = os.path.join(self.directory, "big.npy")
        np.lib.format.open_memmap(path, mode="w+", dtype="f4", shape=(16384, 8192)).flush()
        return path

    def last_line(self, text):
        return plain(text.split("\r")[-1])

    def copy_held(self, columns, *args):
        """Runs a copy whose service is stopped, so that its progress can be examined."""
        copy = self.on_terminal("copy", self.big(), self.names["OUT"], "--permute", "1,0", "--memory", "2M", *args,
                                columns=columns)
        self.addCleanup(os.kill, self.tmad.pid, signal.SIGCONT)
        return copy

    def test_progress_of_a_copy(self):
        copy = self.copy_held(120)
        with self.tmad.rpc() as rpc:
            while not sum(rpc.call("stats")["bytes"].values()) > 8 << 20:
                self.assertIsNone(copy.process.poll())
        os.kill(self.tmad.pid, signal.SIGSTOP)
        copy.wait_for(" left")
        shown = self.last_line(copy.output[:copy.output.index(" left") + 5])
        self.assertRegex(shown, r"out\.npy  \[#*\.+\]  +\d+ %  [\d.]+ [kMG]B/s  .* left$")
        os.kill(self.tmad.pid, signal.SIGCONT)
        copy.type("\x03")
        self.assertEqual(copy.end(30), -signal.SIGINT)
        self.assertTrue(copy.output.endswith("\r\x1b[K"), "the line is taken away")

    def test_progress_on_a_narrow_terminal(self):
        for columns in (60, 30, 10):
            with self.subTest(columns=columns):
                copy = self.copy_held(columns)
                with self.tmad.rpc() as rpc:
                    before = sum(rpc.call("stats")["bytes"].values())
                    while not sum(rpc.call("stats")["bytes"].values()) > before + (4 << 20):
                        self.assertIsNone(copy.process.poll())
                os.kill(self.tmad.pid, signal.SIGSTOP)
                copy.wait_for("\x1b[K")
                copy.wait_for("%")
                os.kill(self.tmad.pid, signal.SIGCONT)
                copy.process.terminate()
                copy.end(30)
                for line in copy.output.replace("\r", "\n").split("\n"):
                    self.assertLess(len(plain(line)), columns)

    def test_no_progress(self):
        """There is no progress if the copy is over soon, if it is not wanted, or in documents."""
        rows = (["copy", self.names["IN"], self.names["OUT"]], ["bench", "--requests", "10"],
                ["bench", "--duration", "1.3", "--quiet"])
        for args in rows:
            with self.subTest(args=args):
                terminal = self.on_terminal(*args)
                self.assertEqual(terminal.end(), 0)
                self.assertNotIn("\x1b[K", terminal.output)

    def test_progress_of_bench(self):
        bench = self.on_terminal("bench", "--duration", "1.6")
        self.assertEqual(bench.end(), 0)
        self.assertRegex(plain(bench.output), r"bench ping  \[#+\.+\]  +\d+ %  [\d ]+ req/s  \d+ s left")
        self.assertIn("\r\x1b[Kkind", bench.output, "taken away before the report")


if __name__ == "__main__":
    tap.main()

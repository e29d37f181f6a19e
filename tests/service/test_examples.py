# SPDX-License-Identifier: Apache-2.0
"""The manual's examples do what the text above them says, and the README's session prints what it shows."""
import contextlib
import glob
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import includes
import tap
from tmad import BUILD, SOURCE, TMACTL, TMAD, Tmad, own_environment, scaled, wait_until

FOLDER = os.path.join("client", "examples")
ELSEWHERE = {"stream_order"}  # test_softgpu.c calls it
NIXL = os.path.join(BUILD, FOLDER, "nixl")


def listens(port):
    """Whether a socket of this machine listens there; connecting to it would be an event of its own."""
    with open("/proc/net/tcp", encoding="ascii") as table:
        return any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for line in list(table)[1:])


class Examples(unittest.TestCase):
    def setUp(self):
        self.tmad = Tmad()
        self.addCleanup(self.tmad.stop)

    def start(self, name, *args, tmad=None, env=None, **options):
        return subprocess.Popen([os.path.join(BUILD, FOLDER, name), *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env={**os.environ, "TMAD_SOCKET": (tmad or self.tmad).path, **(env or {})}, **options)

    def run_to_end(self, name):
        """What it prints."""
        example = self.start(name, stdin=subprocess.DEVNULL, encoding="utf-8")
        self.addCleanup(example.kill)
        out, errors = example.communicate(timeout=scaled(60))
        self.assertEqual((example.returncode, errors), (0, ""))
        return out

    def test_transpose(self):
        self.assertEqual(self.run_to_end("transpose"),
                         "   0    4    8\n   1    5    9\n   2    6   10\n   3    7   11\nmoved by tile_transpose\n")

    def test_gather(self):
        self.assertEqual(self.run_to_end("gather"), "42\n7\n0\n13\n3 moved, 1 skipped\n")

    def test_kv_cache(self):
        self.assertEqual(self.run_to_end("kv_cache"), "81920 of 327680 bytes: heads 6 and 7\n")

    @unittest.skipUnless(os.path.exists(NIXL), "NIXL was not there when configure looked for it")
    def test_nixl(self):
        """Two hosts on one machine: each has a tmad and an agent of its own."""
        other = Tmad()
        self.addCleanup(other.stop)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        options = {"env": {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo", "NIXL_LOG_LEVEL": "ERROR"}, "encoding": "utf-8"}
        decode = self.start("nixl", "decode", port, tmad=other, **options)
        self.addCleanup(decode.kill)
        wait_until(lambda: decode.poll() is not None or listens(int(port)), "decode listens for metadata")
        prefill = self.start("nixl", "prefill", "127.0.0.1", port, **options)
        self.addCleanup(prefill.kill)
        for process, words in ((prefill, "10 pieces of 524288 bytes sent\n"), (decode, "10 pieces received\n")):
            out, errors = process.communicate(timeout=scaled(60))
            self.assertEqual((process.returncode, out), (0, words), errors)

    def test_poll_loop(self):
        self.assertEqual(self.run_to_end("poll_loop"), "".join(f"{i}: tile_transpose\n" for i in range(8)))

    def test_ring(self):
        self.assertEqual(self.run_to_end("ring"), "0 64 128 ...\n")

    def test_ring_reopen(self):
        """It answers before, between and after restarts, of which one is a crash."""
        matrix = np.arange(64 * 64, dtype="<f4").reshape(64, 64)
        example = self.start("ring_reopen", stdin=subprocess.PIPE)
        self.addCleanup(example.kill)
        for restart in (None, signal.SIGTERM, signal.SIGKILL):
            if restart:
                self.tmad.process.send_signal(restart)
                self.tmad.process.wait(scaled(20))
                self.tmad.start()
            matrix = matrix + 1
            example.stdin.write(matrix.tobytes())
            example.stdin.flush()
            result = np.frombuffer(example.stdout.read(matrix.nbytes), dtype="<f4").reshape(64, 64)
            self.assertTrue(np.array_equal(result, matrix.T), restart)
        out, errors = example.communicate(timeout=scaled(60))
        self.assertEqual((example.returncode, out, errors), (0, b"", b"reconnected 2 times\n"))


class Sources(unittest.TestCase):
    def test_each_is_run(self):
        names = {os.path.splitext(name)[0] for name in os.listdir(os.path.join(SOURCE, FOLDER))
                 if name.endswith((".c", ".cpp"))}
        self.assertEqual(names, {name[5:] for name in dir(Examples) if name.startswith("test_")} | ELSEWHERE)


def text_of(*names):
    with open(os.path.join(SOURCE, *names), encoding="utf-8") as file:
        return file.read()


FOLDERS = [folder + "/README.md" for folder in (
    "client", "client/local", "client/python", "client/tmactl", "daemon", "kernels", "kernels/cpu", "kernels/cuda",
    "kernels/cuda/device", "kernels/cuda/strategy", "kernels/process", "proto", "systemd", "tests")]


class Readme(unittest.TestCase):
    SOCKET = "/tmp/tmad.sock"
    VARIES = ((r"(?m)^\d{4}-\d\d-\d\d [\d:.]+ info    ", ""),  # a log that is no terminal's has no times
              (r"[\d.]+ [KMGT]?B/s  [\d.]+ s$", "RATE"), (r"answered in .*", "answered in TIME"),
              (r"engine cpu \(.*\)", "engine cpu (MACHINE)"),
              (r"stopping: \d+ connections?", "stopping: CONNECTIONS"))  # that of ping may be there still

    def masked(self, line):
        for pattern, word in self.VARIES:
            line = re.sub(pattern, word, line)
        return line

    def end(self, shell):
        """Ends the shell and what runs in its background, if the session did not come to its end."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()

    def test_session(self):
        """Each command prints what is shown below it, except for what varies."""
        block = re.search(r"```console\n(.*?)```", text_of("README.md"), re.S)[1]
        steps = [step.splitlines() for step in re.split(r"^\$ ", block, flags=re.M)[1:]]
        self.assertGreater(len(steps), 6)
        with tempfile.TemporaryDirectory(prefix="tmad-readme-") as room:
            path = os.path.join(room, "tmad.sock")
            with open(os.path.join(room, "python3"), "w", encoding="utf-8") as file:
                file.write(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
            os.chmod(file.name, 0o755)
            env = own_environment()
            env["PATH"] = os.pathsep.join([room, os.path.dirname(TMACTL), os.path.dirname(TMAD), env["PATH"]])
            env["XDG_RUNTIME_DIR"] = room
            env.pop("TMAD_SOCKET", None)
            shell = subprocess.Popen(["sh"], cwd=room, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, encoding="utf-8", start_new_session=True)
            self.addCleanup(shell.stdout.close)
            self.addCleanup(self.end, shell)
            watchdog = threading.Timer(scaled(60), self.end, [shell])
            watchdog.start()
            self.addCleanup(watchdog.cancel)
            for command, *wanted in steps:
                shell.stdin.write(command.replace(self.SOCKET, path) + "\necho END\n")
                shell.stdin.flush()
                printed, has_ended = [], False
                while not has_ended or len(printed) < len(wanted):  # what runs in the background prints when it likes
                    line = shell.stdout.readline()
                    self.assertNotEqual(line, "", f"{command}: {printed}")
                    if line == "END\n":
                        has_ended = True
                    else:
                        printed.append(line.rstrip("\n").removeprefix("tmad: ").replace(path, self.SOCKET))
                self.assertEqual([self.masked(line) for line in printed],
                                 [self.masked(line).removeprefix("tmad: ") for line in wanted], command)
            shell.stdin.close()
            self.assertEqual((shell.stdout.read(), shell.wait(scaled(20))), ("", 0))

    def test_figures(self):
        """They are those of tests/bench/README.md."""
        readme = " ".join(text_of("README.md").split())
        bench = text_of("tests", "bench", "README.md")
        cpus = re.search(r"Processor, (\d+ CPUs)", bench)[1]
        cpu, gpu, best = (re.search(rf"^\| {row} \| \d+ \| ([\d.]+) \|", bench, re.M)[1] for row in (
            "CPU engine, to memcpy", "GPU engine, to the device's copy", "GPU engine, to the best of these three"))
        ours, numpy = re.search(r"`tmactl copy` of 1 GiB of float32, transposed \| ([\d.]+ s); NumPy: ([\d.]+ to [\d.]+ s);", bench).groups()
        for words in (f"at {cpu} of the speed of memcpy on {cpus}", f"at {gpu} of that of the device's own copy",
                      f"{best} times as fast as the best", f"a file of 1 GiB in {ours}, where NumPy takes {numpy}"):
            self.assertIn(words, readme)

    def test_lengths(self):
        """These pages are for reading, so they have a length."""
        for name, most in (("README.md", 120), ("ARCHITECTURE.md", 150), *((name, 25) for name in FOLDERS if name != "client/python/README.md")):
            lines = text_of(name).splitlines()
            self.assertLessEqual(len(lines), most, name)
            self.assertEqual([line for line in lines if len(line) > 120 and not line.startswith("|")], [], name)

    def test_folders(self):
        """Each room of includes.py is in the README of its folder, or of the one above it."""
        for room in includes.ROOMS:
            folder = room
            while os.path.join(folder, "README.md") not in FOLDERS:
                folder = os.path.dirname(folder)
            if folder != room:
                name = os.path.relpath(room, folder)
                self.assertRegex(text_of(folder, "README.md"), rf"[`(]{name}/?[`/)]", room)

    def test_links(self):
        """What the pages about the source link to is there, and so is what they name by its path."""
        for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "GLOSSARY.md", *FOLDERS):
            page = text_of(name)
            for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page):
                self.assertTrue(os.path.exists(os.path.join(SOURCE, os.path.dirname(name), target)), f"{name}: {target}")
            for path in re.findall(r"`((?:client|daemon|kernels|proto|systemd|tests)/[\w/.*-]*)`", page):
                self.assertTrue(glob.glob(os.path.join(SOURCE, path.replace("method_NAME", "method_*").replace("NAME", "*"))), f"{name}: {path}")


if __name__ == "__main__":
    tap.main()

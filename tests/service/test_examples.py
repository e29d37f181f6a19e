# SPDX-License-Identifier: Apache-2.0
"""The manual's examples do what the text above them says."""
import os
import re
import signal
import socket
import subprocess
import sys
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import BUILD, SOURCE, Tmad, scaled, wait_until

FOLDER = os.path.join("client", "examples")
ELSEWHERE = {"stream_order"}  # test_softgpu.c calls it
NIXL = os.path.join(BUILD, FOLDER, "nixl")


def source(name):
    with open(os.path.join(SOURCE, FOLDER, name + ".c"), encoding="utf-8") as file:
        return re.sub(r"\A.*SPDX-.*\n", "", file.read())


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

    def test_readme(self):
        """It shows transpose.c."""
        with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as file:
            shown = re.search(r"<!-- example.c -->\n```c\n(.*?)```\n<!-- end of example -->", file.read(), re.S)
        self.assertEqual(shown.group(1), source("transpose"))


if __name__ == "__main__":
    tap.main()

"""Clients that mean harm, or are merely unlucky: what they do stays their own."""
import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import TMAD, Memory, Rpc, Tmad, pack_request, scaled, tensor

NOT_A_MESSAGE = b"\xc1"


class Hostile(unittest.TestCase):
    def start(self, *args):
        tmad = Tmad(*args)
        self.addCleanup(tmad.stop)
        return tmad

    def connect(self, tmad):
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.settimeout(scaled(10))
        client.connect(tmad.path)
        self.addCleanup(client.close)
        return client

    def test_what_waits_unread_does_not_age(self):
        """A message whose end the service does not want to read yet is not late."""
        tmad = self.start("--jobs-per-uid=1", "--frame-deadline-ms=200")
        size = 64 << 20
        with tmad.rpc() as busy, Memory(2 * size) as memory:
            region = memory.register(busy)
            copy = {"dst": tensor(region, [size], offset=2 * size - 1, strides=[-1]), "src": tensor(region, [size])}
            patient = self.connect(tmad)
            ping = pack_request(9, "ping")
            patient.sendall(ping[:3])
            time.sleep(0.05)
            requests = [busy.request("copy", copy) for _ in range(20)]
            time.sleep(0.05)
            patient.sendall(ping[3:])
            for request in requests:
                busy.reply(request)
            self.assertEqual(patient.recv(100)[:1], b"\x94")

    def test_log_lines_are_bounded(self):
        tmad = self.start("--connections-per-uid=2")
        with tmad.rpc() as keeps:
            for _ in range(300):
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                    client.connect(tmad.path)
                    client.sendall(NOT_A_MESSAGE)
                    try:
                        client.recv(1)
                    except ConnectionResetError:
                        pass
            for _ in range(300):
                with self.connect(tmad), self.connect(tmad):
                    pass
            self.assertIs(keeps.call("ping"), True)
        time.sleep(1.1)
        with tmad.rpc() as rpc:
            with self.connect(tmad) as client:
                client.sendall(NOT_A_MESSAGE)
                self.assertEqual(client.recv(1), b"")
            self.assertIs(rpc.call("ping"), True)
        lines = tmad.log().count("\n")
        self.assertLess(lines, 200, tmad.log()[-2000:])
        self.assertIn("dropped", tmad.log())

    def test_a_log_that_nobody_reads(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "s")
            with subprocess.Popen([TMAD, "--engine", "cpu", "--socket", path], stderr=subprocess.PIPE) as tmad:
                try:
                    self.assertIn(b"ready", tmad.stderr.readline())
                    tmad.stderr.close()
                    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                        client.connect(path)
                        client.sendall(NOT_A_MESSAGE)
                        self.assertEqual(client.recv(1), b"")
                    with Rpc(path) as rpc:
                        self.assertIs(rpc.call("ping"), True)
                finally:
                    tmad.terminate()
                self.assertEqual(tmad.wait(scaled(20)), 0)

    def test_one_who_asks_much_takes_turns(self):
        """A thousand pipelined requests of one connection do not come before another's one."""
        tmad = self.start()
        flood = pack_request(1, "explain", {"dst": tensor(0, [4] * 8), "src": tensor(0, [4] * 8)}) * 400
        with tmad.rpc() as polite:
            client = self.connect(tmad)
            client.setblocking(False)
            sent = 0
            for _ in range(50):
                try:
                    sent += client.send(flood)
                except BlockingIOError:
                    pass
                self.assertIs(polite.call("ping"), True)
                try:
                    client.recv(1 << 20)
                except BlockingIOError:
                    pass
            self.assertGreater(sent, 0)


if __name__ == "__main__":
    tap.main()

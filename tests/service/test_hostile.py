"""Clients that mean harm, or are merely unlucky: what they do stays their own."""
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import msgpack

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import SANITIZED, TMAD, Memory, Rpc, Tmad, pack_request, scaled, tensor

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
            sent, left = 0, b""
            for _ in range(50):
                left = left or flood
                try:
                    n = client.send(left)
                    sent, left = sent + n, left[n:]
                except BlockingIOError:
                    pass
                self.assertIs(polite.call("ping"), True)
                try:
                    client.recv(1 << 20)
                except BlockingIOError:
                    pass
            self.assertGreater(sent, 0)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be two users")
    def test_another_user_floods(self):
        """Another uid's many connections, all with large transposes to run, leave a polite one its part."""
        tmad = self.start()
        os.chmod(tmad.directory, 0o755)
        os.chmod(tmad.path, 0o666)
        side = 2048 if SANITIZED else 8192
        with tmad.rpc() as polite, Memory(2 * side * side) as memory:
            transpose = big_transpose(memory.register(polite), side)
            alone = requests_a_second(polite, transpose)
            with flood(tmad.path, connections=100, side=side // 4):
                flooded = requests_a_second(polite, transpose)
                self.assertIs(polite.call("ping"), True)
        print(f"# {alone:.0f} requests/s alone, {flooded:.0f} with the flood: {flooded / alone:.2f}", flush=True)
        self.assertGreater(flooded, alone / 5)


def big_transpose(region, side):
    """uint8 [side, side] transposed within a region of twice its size."""
    return {"dst": tensor(region, [side] * 2), "src": tensor(region, [side] * 2, offset=side * side), "perm": [1, 0]}


def requests_a_second(rpc, params, seconds=2):
    start, n = time.monotonic(), 0
    while time.monotonic() < start + seconds:
        rpc.call("transpose", params)
        n += 1
    return n / (time.monotonic() - start)


@contextlib.contextmanager
def flood(path, connections, side, uid=65534):
    """Another user's process: every connection has more to ask than is ever answered."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            flooding(path, connections, side, tell)
        finally:
            os._exit(1)
    os.close(tell)
    try:
        with os.fdopen(told, "rb") as pipe:
            assert pipe.read(1) == b"x", "the flood did not start"
        yield
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "the flood ended"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def flooding(path, connections, side, tell):
    """Keeps some requests of each connection waiting, for good."""
    clients = {}
    with Memory(2 * side * side) as memory:
        for _ in range(connections):
            rpc = Rpc(path)
            request = pack_request(1, "transpose", big_transpose(memory.register(rpc), side))
            clients[rpc.socket] = (request, msgpack.Unpacker())
            rpc.send(request * 20)
        os.write(tell, b"x")
        while True:
            for client in select.select(list(clients), [], [])[0]:
                request, replies = clients[client]
                data = client.recv(1 << 16)
                if not data:
                    return
                replies.feed(data)
                client.sendall(request * sum(1 for _ in replies))


if __name__ == "__main__":
    tap.main()

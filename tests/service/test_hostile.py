# SPDX-License-Identifier: Apache-2.0
"""Clients that mean harm, or are merely unlucky: what they do stays their own."""
import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import unittest

import msgpack

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import SANITIZED, TMAD, Memory, Rpc, RpcError, Tmad, pack_request, scaled, tensor, wait_until

NOT_A_MESSAGE = b"\xc1"
PATIENCE = 2  # seconds, scaled: how soon others have to be answered; what hangs does so for longer


def slow_to_close(seconds, cleanup):
    """Returns a socket whose last close(2) takes that long: it lingers, and what it has sent is not read."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        slow = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
    cleanup(peer.close)
    slow.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            slow.send(bytes(65536))
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, seconds))
    return slow


@contextlib.contextmanager
def paused(tmad):
    """Pauses the service: it then finds everything sent meanwhile at once, when the sender has closed its own
    descriptors."""
    os.kill(tmad.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(tmad.pid, signal.SIGCONT)


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
        """The deadline of a message does not run while the service does not want to read its end."""
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
                    with contextlib.suppress(ConnectionError):  # the client may be refused before it sends anything
                        client.sendall(NOT_A_MESSAGE)
                        client.recv(1)
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
        """A thousand pipelined requests of one connection do not precede those of another one."""
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

    # ---- Descriptors that take their time ------------------------------------------------------------
    def give(self, client, data, seconds, n=1, flags=0):
        """Sends data with n descriptors that are slow to close, and keeps none of them."""
        slow = [slow_to_close(seconds, self.addCleanup) for _ in range(n)]
        self.assertEqual(socket.send_fds(client, [data], [each.fileno() for each in slow], flags), len(data))
        for each in slow:
            each.close()

    def slow_ping(self, tmad, seconds):
        ping = pack_request(1, "ping")
        client = self.connect(tmad)
        self.give(client, ping[:3], seconds)
        client.sendall(ping[3:])

    def slow_refused(self, tmad, seconds):
        self.give(self.connect(tmad), pack_request(1, "region_register", {"kind": "memfd"}), seconds)

    def slow_not_a_memfd(self, tmad, seconds):
        self.give(self.connect(tmad), pack_request(1, "region_register", {"kind": "memfd", "size": 1}), seconds)

    def slow_handle_too_long(self, tmad, seconds):
        params = {"kind": "memfd", "size": 1, "handle": bytes(1000)}
        self.give(self.connect(tmad), pack_request(1, "region_register", params), seconds)

    def slow_too_many(self, tmad, seconds):
        self.give(self.connect(tmad), pack_request(1, "ping"), seconds, 5)

    def slow_half_a_message(self, tmad, seconds):
        client = self.connect(tmad)
        self.give(client, pack_request(1, "ping")[:3], seconds)
        client.close()

    def slow_urgent(self, tmad, seconds):
        client = self.connect(tmad)
        self.give(client, b"x", seconds, flags=socket.MSG_OOB)
        client.sendall(pack_request(1, "ping"))

    def slow_unread(self, tmad, seconds):
        """One read ends with the first bytes that bring descriptors; the session ends before a second one."""
        client = self.connect(tmad)
        self.give(client, NOT_A_MESSAGE, seconds)
        self.give(client, b"x", seconds)

    def slow_not_let_in(self, tmad, seconds):
        for _ in range(8):
            self.give(self.connect(tmad), b"x", seconds)

    def test_descriptors_that_are_slow_to_close(self):
        """Nobody waits for a close(2) that a client has made slow."""
        ways = [name for name in dir(self) if name.startswith("slow_")]
        self.assertEqual(len(ways), 9)
        for way in ways:
            with self.subTest(way), Tmad("--drain-deadline-ms=1", "--connections-per-uid=8") as tmad:
                with tmad.rpc() as rpc:
                    with paused(tmad):
                        getattr(self, way)(tmad, 60)
                    end = time.monotonic() + 0.3
                    while time.monotonic() < end:
                        start = time.monotonic()
                        self.assertIs(rpc.call("ping"), True)
                        self.assertLess(time.monotonic() - start, scaled(PATIENCE))

    def test_a_descriptor_is_charged_until_it_is_closed(self):
        tmad = self.start("--pending-fds-per-uid=1")
        half = pack_request(1, "ping")[:3]
        with paused(tmad), self.connect(tmad) as client:
            self.give(client, half, 3)
        with self.connect(tmad) as client, open("/dev/null", "rb") as null:
            socket.send_fds(client, [half], [null.fileno()])
            self.assertEqual(client.recv(1), b"")
        self.assertIn("pending_fds_per_uid", tmad.log())

        def taken():
            with self.connect(tmad) as client, open("/dev/null", "rb") as null:
                socket.send_fds(client, [half], [null.fileno()])
                with contextlib.suppress(OSError):
                    client.sendall(pack_request(1, "ping")[3:])
                    return client.recv(100)
        wait_until(taken, "the charge comes back")

    def test_a_connection_is_charged_until_it_is_closed(self):
        tmad = self.start("--connections-per-uid=2")
        with tmad.rpc() as rpc:
            with paused(tmad):
                self.slow_unread(tmad, 2)
            with self.assertRaises(RpcError), tmad.rpc() as other:
                other.call("ping")
            self.assertIs(rpc.call("ping"), True)

            def let_in():
                with contextlib.suppress(RpcError), tmad.rpc() as other:
                    return other.call("ping")
            wait_until(let_in, "the charge comes back")

    def test_stopping_waits_for_a_slow_close(self):
        tmad = self.start("--drain-deadline-ms=20000")
        with paused(tmad):
            self.slow_half_a_message(tmad, 2)
        tmad.process.send_signal(signal.SIGTERM)
        self.assertEqual(tmad.process.wait(scaled(20)), 0)
        self.assertNotIn("close", tmad.log())

    def test_stopping_does_not_wait_for_ever(self):
        tmad = self.start("--drain-deadline-ms=100")
        with paused(tmad):
            self.slow_half_a_message(tmad, 100)
        tmad.process.send_signal(signal.SIGTERM)
        self.assertEqual(tmad.process.wait(scaled(5)), 0)
        self.assertIn("still being closed", tmad.log())

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be two users")
    def test_another_user_maps_much(self):
        """Another uid's large regions are not all made before a polite one's small one is."""
        tmad = self.start()
        os.chmod(tmad.directory, 0o755)
        os.chmod(tmad.path, 0o666)
        n, size = 24, 128 << 20
        with tmad.rpc() as polite, Memory(4096) as memory:
            with as_user(65534, mapping_much, tmad.path, n, size):
                memory.register(polite)
                self.assertLess(polite.call("stats")["mapped_bytes"], n * size / 2)
            wait_until(lambda: polite.call("stats")["regions"] == 1, "the other user's are gone")

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
            with as_user(65534, flooding, tmad.path, 100, side // 4):
                flooded = requests_a_second(polite, transpose)
                self.assertIs(polite.call("ping"), True)
        print(f"# {alone:.0f} requests/s alone, {flooded:.0f} with the flood: {flooded / alone:.2f}", flush=True)
        self.assertGreater(flooded, alone / 20)  # it was 1 in 100 before uids shared


def big_transpose(region, side):
    """Returns a transpose of uint8 [side, side] within a region of twice its size."""
    return {"dst": tensor(region, [side] * 2), "src": tensor(region, [side] * 2, offset=side * side), "perm": [1, 0]}


def requests_a_second(rpc, params, seconds=2):
    start, n = time.monotonic(), 0
    while time.monotonic() < start + seconds:
        rpc.call("transpose", params)
        n += 1
    return n / (time.monotonic() - start)


@contextlib.contextmanager
def as_user(uid, work, *args):
    """Runs work(*args, tell) in a process of another user, which has written a byte to tell and goes on."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            work(*args, tell)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(tell)
    try:
        with os.fdopen(told, "rb") as pipe:
            assert pipe.read(1) == b"x", "the other user's process did not start"
        yield
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "the other user's process ended"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def mapping_much(path, n, size, tell):
    """Requests n regions at once, and waits once that has been read."""
    with Rpc(path) as rpc:
        rpc.send(pack_request(1, "region_create", {"size": size}) * n + pack_request(2, "ping"))
        while rpc.receive()[1] != 2:
            pass
        os.write(tell, b"x")
        signal.pause()


def flooding(path, connections, side, tell):
    """Keeps more requests on every connection than are answered."""
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

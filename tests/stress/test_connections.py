# SPDX-License-Identifier: Apache-2.0
"""Connections that come and go leave nothing behind, and the service survives a lack of descriptors and reaching its
limits."""
import contextlib
import os
import resource
import socket
import struct
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import NATIVE, Rpc, RpcError, Tmad, pack_request, scaled, share, tmactl, wait_until

PING = pack_request(1, "ping")
MOST_KIB = 4096  # KiB that memory may have grown by since the first few thousand connections


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Connections(unittest.TestCase):
    def come_and_go(self, path, n):
        """Most connections send nothing; of ten, one leaves within a message, one before its answer, one after shutting
        down a direction."""
        for i in range(n):
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.connect(path)
            if i % 10 == 0:
                client.send(PING[:5])
            elif i % 10 == 1:
                client.send(PING)
            elif i % 10 == 2:
                client.shutdown(socket.SHUT_WR)
            client.close()

    def gone(self, asks):
        wait_until(lambda: asks.call("stats")["connections"] == 1, "they are gone")

    def test_connects_and_closes(self):
        n = share(10**6)
        with Tmad() as tmad, tmad.rpc() as asks:
            together = [tmad.rpc() for _ in range(1000)]  # so many may be open at once
            for rpc in together:
                rpc.close()
            self.come_and_go(tmad.path, 3000)
            self.gone(asks)
            fds, before = tmad.fds(), tmad.status("VmRSS")
            start = time.monotonic()
            self.come_and_go(tmad.path, n)
            seconds = time.monotonic() - start
            self.gone(asks)
            wait_until(lambda: tmad.fds() <= fds, "no descriptor more")
            more = tmad.status("VmRSS") - before
            print(f"# {n} connects in {seconds:.1f} s, no descriptor left over, VmRSS {more:+} KiB", flush=True)
            if NATIVE:
                self.assertLess(more, MOST_KIB)

    def test_no_descriptor_is_left(self):
        """Accepting stops and is retried: the loop does not spin, existing clients are served, and so are later
        ones."""
        limit, n = 64, 300
        tmad = Tmad(start=False)
        tmad.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
        with tmad, tmad.rpc() as inside:
            clients = []
            for _ in range(n):
                client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                client.connect(tmad.path)
                clients.append(client)
            wait_until(lambda: tmad.fds() >= limit - 1, "it is full")
            before, start = cpu_seconds(tmad.pid), time.monotonic()
            for _ in range(10):
                self.assertIs(inside.call("ping"), True)
                time.sleep(0.1)
            cpu = (cpu_seconds(tmad.pid) - before) / (time.monotonic() - start)
            print(f"# {n} clients, {limit} descriptors: {cpu:.3f} of a CPU", flush=True)
            self.assertLess(cpu, 0.2)
            self.assertIn("trying again", tmad.log())
            self.assertLess(tmad.log().count("\n"), 100)
            for client in clients:
                client.close()

            def served():
                try:
                    with Rpc(tmad.path) as rpc:
                        return rpc.call("ping")
                except ConnectionError:  # refused while earlier ones are still being closed
                    return False
            wait_until(served, "a client that comes later is served")

    def test_limit_of_a_user(self):
        """Beyond the limit a connection's first request is refused, and nothing is charged."""
        with Tmad("--connections-per-uid=8") as tmad:
            for _ in range(3):
                wait_until(lambda: self.alone(tmad), "nobody else")
                time.sleep(scaled(0.05))
                clients = [tmad.rpc() for _ in range(8)]
                for client in clients:
                    self.assertIs(client.call("ping"), True)
                with tmad.rpc() as refused:
                    self.refused(refused, "connections_per_uid: this uid's limit on connections is 8")
                for client in clients:
                    client.close()

                def let_in():
                    with contextlib.suppress(RpcError), tmad.rpc() as rpc:
                        return rpc.call("ping")
                wait_until(let_in, "the charges come back")

    def refused(self, rpc, words):
        """Its first request is refused, whatever it is, and the connection ends."""
        with self.assertRaises(RpcError) as caught:
            rpc.call("info")
        self.assertEqual((caught.exception.name, caught.exception.details["ends"]), ("QUOTA", True))
        self.assertIn(words, caught.exception.message)
        self.assertTrue(rpc.ended())

    def test_who_is_refused_reads_why(self):
        for limit, named in (("connections-per-uid", "connections_per_uid: this uid's limit on connections is 1"),
                             ("connections", "connections: the limit on connections for all uids together is 1")):
            with self.subTest(limit=limit), Tmad(f"--{limit}=1") as tmad, self.let_in(tmad) as one:
                with tmad.rpc() as refused:  # by then the service waits for its request
                    time.sleep(0.05)
                    self.refused(refused, named)
                with tmad.rpc() as refused:
                    for byte in pack_request(1 << 31, "info"):
                        with contextlib.suppress(BrokenPipeError):
                            refused.send(bytes([byte]))
                        time.sleep(0.002)
                    self.assertEqual(refused.receive()[1:3:2], [1 << 31])
                done = tmactl("ping", socket_path=tmad.path)
                self.assertEqual(done.returncode, 1)
                self.assertIn(named, done.stderr)
                self.assertIs(one.call("ping"), True)

    def test_who_is_refused_and_asks_nothing(self):
        """A refused connection that sends nothing is closed after a second; if there are many, the oldest are closed,
        and existing clients are served."""
        n = 200
        with Tmad("--connections-per-uid=1") as tmad:
            with self.let_in(tmad) as rpc:
                fds = tmad.fds()
                silent = [tmad.rpc() for _ in range(n)]
                wait_until(lambda: rpc.call("stats")["connections_refused"] >= n, "they are refused")
                wait_until(lambda: tmad.fds() <= fds + 16, "the oldest have made room")
                for each in silent:
                    self.assertTrue(each.ended())
                    each.close()
                wait_until(lambda: tmad.fds() <= fds, "no descriptor more")

    @staticmethod
    def let_in(tmad):
        """Returns a connection that is served, once earlier ones are gone."""
        def try_one():
            rpc = tmad.rpc()
            try:
                rpc.call("ping")
                return rpc
            except RpcError:
                rpc.close()
                return None
        return wait_until(try_one, "it is let in")

    @staticmethod
    def alone(tmad):
        """Returns whether nobody else is connected. Recently closed connections may still be charged, so that nobody is
        let in."""
        with contextlib.suppress(RpcError), tmad.rpc() as rpc:
            return rpc.call("stats")["connections"] == 1
        return False

    # ---- Messages that do not come whole ---------------------------------------------------------------
    @staticmethod
    def half_a_message(tmad, size):
        """Returns a connection that has sent so many bytes of a str of 65000."""
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.connect(tmad.path)
        with contextlib.suppress(ConnectionError):
            client.sendall(b"\x94\x00\x01\xda" + struct.pack(">H", 65000) + bytes(size - 6))
        return client

    def test_parts_of_messages_are_charged(self):
        with Tmad("--input-bytes-per-uid=1000000") as tmad, tmad.rpc() as rpc:
            clients = [self.half_a_message(tmad, 60000) for _ in range(16)]
            wait_until(lambda: rpc.call("stats")["input_bytes"] == 16 * 60000, "they are charged")
            late = self.half_a_message(tmad, 60000)
            late.settimeout(scaled(10))
            with contextlib.suppress(ConnectionResetError):  # it may be closed with unread bytes of the message
                self.assertEqual(late.recv(1), b"")
            self.assertIn("ended: input_bytes_per_uid: this uid's limit on bytes of requests not yet handled is 1000000;", tmad.log())
            self.assertIs(rpc.call("ping"), True)
            for client in (*clients, late):
                client.close()
            wait_until(lambda: rpc.call("stats")["input_bytes"] == 0, "the charges come back")

    @unittest.skipUnless(NATIVE, "a process's memory is not its own here")
    def test_memory_of_parts_goes_back(self):
        """The memory is returned soon."""
        n, size = max(share(2040), 600), 30000
        with Tmad("--frame-deadline-ms=60000", "--connections-per-uid=4096") as tmad, tmad.rpc() as rpc:
            clients = [self.half_a_message(tmad, 10) for _ in range(n)]
            wait_until(lambda: rpc.call("stats").get("input_bytes", 0) == 10 * n, "they are there")
            before = tmad.status("VmRSS")
            for client in clients:
                client.sendall(bytes(size - 10))
            wait_until(lambda: rpc.call("stats").get("input_bytes", 0) == n * size, "and what they send")
            during = tmad.status("VmRSS")
            keeps = [tmad.rpc() for _ in range(20)]  # their memory lies behind it
            for each in keeps:
                each.call("ping")
            for client in clients:
                client.close()
            times, end = [], time.monotonic() + scaled(10)
            while tmad.status("VmRSS") > before and time.monotonic() < end:
                for _ in range(100):
                    start = time.perf_counter()
                    rpc.call("ping")
                    times.append(time.perf_counter() - start)
            after, times = tmad.status("VmRSS"), sorted(times)
            for each in keeps:
                each.close()
            print(f"# {n} connections with {size} bytes of a message: VmRSS {before} KiB before they sent that, {during} then, "
                  f"{after} after them; a ping meanwhile: p99 {times[len(times) * 99 // 100] * 1e3:.2f} ms, most "
                  f"{times[-1] * 1e3:.2f} ms", flush=True)
            self.assertLess(during - before, 3 * n * size >> 11)
            self.assertLessEqual(after, before)

    def test_who_leaves_replies_unread(self):
        """This is an ordinary disconnect, and no error of the service."""
        with Tmad("--log-level=debug") as tmad, tmad.rpc() as rpc:
            for _ in range(5):
                with tmad.rpc() as other:
                    other.request("info")
                    wait_until(lambda: other.socket.recv(1, socket.MSG_PEEK), "its reply is there")
            self.gone(rpc)
            self.assertEqual(tmad.log().count("ended: disconnected, with replies unread"), 5, tmad.log())
            self.assertNotIn("bad file descriptor", tmad.log())
            self.assertEqual(rpc.call("stats")["sessions_ended"], 0)

    def test_idle_ones_end(self):
        """idle_deadline_ms: who asks nothing ends; who waits for what it asked does not, nor does anybody by default."""
        with Tmad("--idle-deadline-ms=200") as tmad:
            with tmad.rpc() as idle, tmad.rpc() as busy:
                end = time.monotonic() + scaled(0.6)
                while time.monotonic() < end:
                    self.assertIs(busy.call("ping"), True)
                    time.sleep(0.02)
                self.assertTrue(idle.ended())
                self.assertEqual(busy.call("info")["limits"]["idle_deadline_ms"], 200)
            self.assertIn("idle_deadline_ms", tmad.log())


if __name__ == "__main__":
    tap.main()

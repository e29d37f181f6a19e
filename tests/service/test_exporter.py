# SPDX-License-Identifier: Apache-2.0
"""The socket of metrics: where it may be, how long it lives, and that nobody who can reach it hurts the service."""
import contextlib
import http.client
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from scrape import Connection, Metrics, connect, get, scrape
from tmad import FAULTY, NATIVE, TMACTL, TMAD, Memory, Rpc, Tmad, scaled, tensor, wait_until

FATAL_BYTES = 6666  # of faulty_tmad
PEERS = 32
STARTS_FAULTY = unittest.skipIf(os.environ.get("EMULATOR"), "no emulator starts this tmad")


def address_of(tmad):
    """Returns the address of a tmad that was given a port of the kernel's choice."""
    return re.search(r"metrics on http://(\S+)", tmad.log()).group(1)


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
        return True
    except OSError:
        return False


class Pages(unittest.TestCase):
    def check(self, address):
        about = get(address, "/")
        self.assertEqual((about.status, about.text), (200, "tmad: see /metrics\n"))
        self.assertEqual(get(address).status, 200)
        self.assertEqual(get(address, "/metrics?name=x").status, 200)
        for path in ("/metrics/", "/metric", "/favicon.ico", "//metrics", "/../metrics", "/%2e%2e/etc/passwd"):
            self.assertEqual(get(address, path).status, 404, path)
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "get", "NONSENSE"):
            refused = get(address, method=method)
            self.assertEqual((refused.status, refused.getheader("Allow")), (405, "GET, HEAD"), method)
        for path, status in (("/", 200), ("/metrics", 200), ("/nowhere", 404)):
            head = get(address, path, "HEAD")
            self.assertEqual((head.status, head.text), (status, ""))

    def test_on_a_unix_socket(self):
        with tempfile.TemporaryDirectory() as directory, Tmad(f"--metrics=unix:{directory}/m"):
            self.check(f"unix:{directory}/m")

    def test_on_an_abstract_socket(self):
        with tempfile.TemporaryDirectory() as directory:
            address = f"unix:@tmad-metrics-{os.getpid()}"
            tmad = Tmad(f"--metrics={address}", start=False)
            tmad.start(cwd=directory)
            with tmad:
                self.check(address)
                self.assertEqual(os.listdir(directory), [])

    def test_on_a_port(self):
        for where in ("127.0.0.1:0", "localhost:0", "127.0.0.77:0"):
            with Tmad(f"--metrics={where}") as tmad:
                self.assertTrue(address_of(tmad).startswith("127.0.0."), where)
                self.check(address_of(tmad))

    @unittest.skipUnless(has_ipv6(), "no IPv6")
    def test_on_a_port_of_ipv6(self):
        with Tmad("--metrics=[::1]:0") as tmad:
            self.check(address_of(tmad))

    def test_a_connection_is_kept(self):
        with Tmad("--metrics=127.0.0.1:0") as tmad, contextlib.closing(Connection(address_of(tmad))) as connection:
            for n in range(5):
                with tmad.rpc() as rpc:
                    rpc.call("stats")
                connection.request("GET", "/metrics")
                text = connection.getresponse().read().decode()
                if n == 0:
                    sock = connection.sock
                self.assertIs(connection.sock, sock)
                self.assertEqual(Metrics(text)["tmad_requests_total", "method=stats"], n + 1)


class Addresses(unittest.TestCase):
    refused = ("0.0.0.0:9464", "9464", ":9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1",
               "127.0.0.1:+1", "127.0.0.1: 1", "127.0.0.1:1x", "128.0.0.1:1", "192.168.0.1:9464", "[::]:9464", "::1:9464",
               "[::1]", "[::ffff:127.0.0.1]:1", "example.org:80", "localhost", "unix:", "unix:@", "unix:" + "x" * 108, "/run/m",
               "127.1:80", "http://127.0.0.1:80", "127.0.0.1:99999999999999999999", "x" * 300 + ":1")

    def test_refused_on_the_command_line(self):
        for address in self.refused:
            done = subprocess.run([TMAD, "--config=", f"--metrics={address}"], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
                                  timeout=scaled(20), check=False)
            self.assertEqual(done.returncode, 2, (address, done.stdout))
            port = address.rpartition(":")[2]
            words = f"port {port} is not between 1 and 65535" if port.isdigit() and int(port) > 65535 else "it takes unix:PATH"
            self.assertIn(f": {words}", done.stdout)

    def test_refused_in_a_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write("[tmad]\n\nmetrics = 0.0.0.0:9464\n")
            file.flush()
            done = subprocess.run([TMAD, f"--config={file.name}", "--check-config"], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
                                  timeout=scaled(20), check=False)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(f"{file.name}:3: ", done.stdout)
            self.assertIn("only this machine reaches", done.stdout)


class Files(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = os.path.join(directory.name, "m")
        self.address = f"unix:{self.path}"

    def fails(self, *words):
        with tempfile.TemporaryDirectory() as directory:
            done = subprocess.run([TMAD, "--config=", "--engine=cpu", f"--socket={directory}/s", f"--metrics={self.address}"],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  encoding="utf-8", timeout=scaled(30), check=False)
            self.assertEqual(done.returncode, 1, done.stdout)
            for word in words:
                self.assertIn(word, done.stdout)
            self.assertFalse(os.path.exists(f"{directory}/s"), "the clients' socket is left behind")

    def test_its_own(self):
        with Tmad(f"--metrics={self.address}"):
            self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o660)
            self.assertEqual(get(self.address).status, 200)
        self.assertFalse(os.path.exists(self.path))

    def test_a_stale_one_makes_way(self):
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(self.path)
        with Tmad(f"--metrics={self.address}"):
            self.assertEqual(get(self.address).status, 200)

    def test_one_in_use_stays(self):
        with Tmad(f"--metrics={self.address}"):
            self.fails("another server listens there")
            self.assertEqual(get(self.address).status, 200)

    def test_a_file_stays(self):
        with open(self.path, "w", encoding="ascii") as file:
            file.write("mine")
        self.fails("a file that is not a socket")
        with open(self.path, encoding="ascii") as file:
            self.assertEqual(file.read(), "mine")

    def test_a_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            self.address = f"127.0.0.1:{taken.getsockname()[1]}"
            self.fails("another server listens there")


class Life(unittest.TestCase):
    def test_off_unless_asked_for(self):
        with Tmad() as tmad:
            self.assertNotIn("metrics on", tmad.log())

    def test_without_a_client_it_sleeps(self):
        def wakes():
            with open(f"/proc/{tmad.pid}/status", encoding="ascii") as status:
                return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status.read(), re.M).group(1))

        def slept_for(seconds):
            before = wakes()
            time.sleep(seconds)
            return wakes() - before <= 1

        with Tmad("--metrics=127.0.0.1:0") as tmad:
            self.assertEqual(get(address_of(tmad)).status, 200)
            wait_until(lambda: slept_for(1), "it sleeps for a second")

    def test_it_ends_when_the_service_is_asked_to_stop(self):
        with Tmad("--metrics=127.0.0.1:0", "--drain-deadline-ms=20000") as tmad, tmad.rpc() as rpc, \
                Memory(4096) as memory:
            address, region = address_of(tmad), memory.register(rpc)
            kept = connect(address)
            rpc.request("copy", {"dst": tensor(region, [8], offset=64), "src": tensor(region, [8], offset=128),
                                 "wait": {"region": region, "offset": 0, "value": 1}})
            wait_until(lambda: scrape(address)["tmad_jobs"] == 1, "something is under way")
            os.kill(tmad.pid, signal.SIGTERM)
            self.assertEqual(kept.recv(1), b"")
            with self.assertRaises(ConnectionRefusedError):
                connect(address)
            kept.close()
            memory[0:8] = (1).to_bytes(8, "little")

    def passed(self, directory, program, engine):
        """Starts it with two sockets of a service manager."""
        clients, metrics = socket.socket(socket.AF_UNIX), socket.socket()
        clients.bind(os.path.join(directory, "s"))
        metrics.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{metrics.getsockname()[1]}"
        for sock in (clients, metrics):
            sock.listen(16)
        with open(os.path.join(directory, "log"), "wb") as log:
            daemon = subprocess.Popen(
                ["bash", "-c", f'exec 203<&{clients.fileno()} 204<&{metrics.fileno()}; exec 3<&203 4<&204 203<&- 204<&-; '
                 f'LISTEN_FDS=2 LISTEN_FDNAMES=tmad.socket:metrics LISTEN_PID=$$ exec "$0" --config= --engine {engine}',
                 program], pass_fds=(clients.fileno(), metrics.fileno()), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        clients.close()
        metrics.close()
        return daemon, address

    @STARTS_FAULTY
    def test_a_socket_of_a_service_manager(self):
        with tempfile.TemporaryDirectory() as directory:
            daemon, address = self.passed(directory, FAULTY, "cuda")
            try:
                with Rpc(os.path.join(directory, "s")) as rpc:
                    rpc.call("ping")
                self.assertEqual(scrape(address)["tmad_recoveries_total"], 0)
                lose(os.path.join(directory, "s"))
                self.assertEqual(scrape(address)["tmad_recoveries_total"], 1)
            finally:
                daemon.send_signal(signal.SIGTERM)
                self.assertEqual(daemon.wait(scaled(20)), 0)

    @STARTS_FAULTY
    def test_it_outlives_the_device(self):
        for where in ("127.0.0.1:0", "unix:{}/m", f"unix:@tmad-metrics-{os.getpid()}"):
            with tempfile.TemporaryDirectory() as directory, \
                    Tmad("--metrics=" + where.format(directory), engine="cuda", program=FAULTY) as tmad:
                address = where.format(directory) if "unix" in where else address_of(tmad)
                self.assertEqual(scrape(address)["tmad_recoveries_total"], 0)
                fds = tmad.fds()
                for n in (1, 2):
                    lose(tmad.path)
                    metrics = scrape(address)  # the socket is the same, and was never closed
                    self.assertEqual(metrics["tmad_recoveries_total"], n)
                    self.assertEqual(list(metrics.of("tmad_engine_up").values()), [1])
                wait_until(lambda: tmad.fds() <= fds, "no more descriptors than in the first life")

    @STARTS_FAULTY
    def test_a_silent_engine_is_seen(self):
        with tempfile.TemporaryDirectory() as directory:
            silent = os.path.join(directory, "silent")
            with Tmad(f"--metrics=unix:{directory}/m", engine="cuda", program=FAULTY,
                      env={"FAULTY_SILENT": silent}) as tmad, tmad.rpc() as rpc:
                def is_up(expected):
                    up, = scrape(f"unix:{directory}/m").of("tmad_engine_up").values()
                    return (up, rpc.call("stats")["engine_up"]) == (int(expected), expected)

                self.assertTrue(is_up(True))
                with open(silent, "w", encoding="ascii"):
                    pass
                wait_until(lambda: is_up(False), "it is seen to be silent")
                self.assertIn("no sign of life", tmad.log())
                os.unlink(silent)
                wait_until(lambda: is_up(True), "it is seen to be back")

    @STARTS_FAULTY
    def test_a_silent_engine_is_seen_without_metrics(self):
        with tempfile.TemporaryDirectory() as directory:
            silent = os.path.join(directory, "silent")
            with Tmad(engine="cuda", program=FAULTY, env={"FAULTY_SILENT": silent}) as tmad, tmad.rpc() as rpc:
                self.assertIs(rpc.call("stats")["engine_up"], True)
                with open(silent, "w", encoding="ascii"):
                    pass
                wait_until(lambda: not rpc.call("stats")["engine_up"], "it is seen to be silent")
                printed = subprocess.run([TMACTL, "--socket", tmad.path, "stats"], stdin=subprocess.DEVNULL,
                                         capture_output=True, encoding="utf-8", check=True, timeout=scaled(10)).stdout
                self.assertIn("the engine gives no sign of life", printed)


def lose(path):
    """Loses the device, and waits until it is back."""
    with Rpc(path) as rpc, Memory(65536) as memory:
        region = memory.register(rpc)
        rpc.request("copy", {"dst": tensor(region, [FATAL_BYTES]), "src": tensor(region, [FATAL_BYTES], offset=32768)})
        while rpc.receive() is not None:
            continue
    with Rpc(path) as rpc:
        rpc.call("ping")


class Hostile(unittest.TestCase):
    """Whatever comes over its socket, clients are served, metrics can be had, and no descriptor stays."""

    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.tmad = stack.enter_context(Tmad("--metrics=127.0.0.1:0"))
        self.address = address_of(self.tmad)
        self.rpc = stack.enter_context(self.tmad.rpc())
        self.rpc.call("ping")
        get(self.address)
        self.fds = wait_until(self.settled, "descriptors are settled")
        self.sockets = []
        self.addCleanup(self.close_all)

    def settled(self):
        before = self.tmad.fds()
        time.sleep(0.1)
        return self.tmad.fds() == before and before

    def close_all(self):
        for sock in self.sockets:
            sock.close()
        self.sockets = []

    def open(self, data=b""):
        sock = connect(self.address, scaled(30))
        self.sockets.append(sock)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(data)
        return sock

    def serves(self):
        for _ in range(20):
            self.assertIs(self.rpc.call("ping"), True)
        self.assertGreater(scrape(self.address)["tmad_requests_total", "method=ping"], 0)

    def tearDown(self):
        self.close_all()
        self.serves()
        wait_until(lambda: self.tmad.fds() <= self.fds, "the daemon's descriptors are back where they were")

    @staticmethod
    def answer(sock):
        """Returns everything that comes until the connection ends."""
        data = b""
        with contextlib.suppress(ConnectionError):
            while piece := sock.recv(65536):
                data += piece
        return data

    def test_many_connections(self):
        for _ in range(300):
            self.open()
        self.serves()
        self.assertLessEqual(self.tmad.fds(), self.fds + PEERS)

    def test_the_slowest_makes_room(self):
        first = self.open(b"GET /metrics HTTP/1.1\r\n")
        self.serves()
        for _ in range(PEERS):
            self.open(b"GET /metrics HTTP/1.1\r\n")
        self.assertEqual(first.recv(1), b"")

    def test_half_a_request_has_its_time(self):
        """However slowly it goes on: a byte now and then does not start the time anew."""
        slow = self.open(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: ")
        silent, begun = self.open(), time.monotonic()
        ended = set()
        while len(ended) < 2:
            self.assertLess(time.monotonic() - begun, scaled(40), "it is not ended")
            self.assertIs(self.rpc.call("ping"), True)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                slow.send(b"x")
            for sock in (slow, silent):
                sock.settimeout(0.2)
                with contextlib.suppress(TimeoutError):
                    try:
                        if sock.recv(65536) == b"":
                            ended.add(sock)
                    except ConnectionError:
                        ended.add(sock)
        self.assertGreater(time.monotonic() - begun, 3)

    def test_answers_that_nobody_reads(self):
        for _ in range(PEERS):
            self.open(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 500)
        self.serves()
        self.assertLess(self.tmad.status("VmRSS"), 200 * 1024)

    def test_huge_heads(self):
        for head in (b"GET /" + b"x" * 10**6 + b" HTTP/1.1\r\n\r\n",
                     b"GET /metrics HTTP/1.1\r\n" + b"X-%d: y\r\n" * 10**5 + b"\r\n",
                     b"GET /metrics HTTP/1.1\r\nX: " + b"y" * 10**6 + b"\r\n\r\n",
                     b"GET /metrics HTTP/1.1\r\nAccept: " + b"application/openmetrics-text," * 10**4 + b"\r\n\r\n"):
            data = self.answer(self.open(head))
            self.assertNotIn(b" 200 ", data[:64])
        self.serves()

    def test_bodies(self):
        for head in (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n",
                     b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n",
                     b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n",
                     b"GET /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n"):
            self.answer(self.open(head + b"b" * 10**6))
        self.serves()

    def test_what_is_no_http(self):
        for data in (b"\x00" * 5000, b"\xff" * 5000, b"\r\n" * 5000, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                     b"\x16\x03\x01\x02\x00\x01\x00" * 99, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x94\x00\x01\xa4ping\x90",
                     b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
                     b"GET /%00%ff%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                     b"GET /metrics HTTP/1.1\r\n\x00: \x00\r\n\r\n"):
            with contextlib.suppress(OSError):
                self.open(data).shutdown(socket.SHUT_WR)
            self.serves()
        for sock in self.sockets:
            self.answer(sock)

    def test_gone_in_the_middle(self):
        for n in range(300):
            self.open(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"[:n % 40])
            self.sockets.pop().close()
        self.serves()

    def test_a_flood_leaves_the_loop_to_clients(self):
        """Pings get answers while as many as may be scrape without a pause."""
        flood = subprocess.Popen([sys.executable, "-c", FLOOD, *self.address.rsplit(":", 1), str(PEERS)],
                                 stdin=subprocess.DEVNULL)
        try:
            end, pings = time.monotonic() + 2, 0
            while time.monotonic() < end:
                self.assertIs(self.rpc.call("ping"), True)
                pings += 1
            print(f"# {pings // 2} pings a second beside a flood of scrapes", flush=True)
        finally:
            flood.kill()
            flood.wait()
        self.assertGreater(pings, 100 if NATIVE else 10)


class Slow(unittest.TestCase):
    """Many who send a request, or read an answer, as slowly as can be, and come again as soon as they are gone: who asks
    and reads gets its page."""

    SLOW = 200 if NATIVE else 40
    SCRAPES = 20
    TRIES = 4  # the rest of the machine may stand in the way of one

    def a_page_for_256_users(self, tmad):
        if os.geteuid() != 0 or not NATIVE:
            return
        os.chmod(tmad.directory, 0o755)
        os.chmod(tmad.path, 0o666)
        for uid in range(80000, 80256):
            child = os.fork()
            if not child:
                with contextlib.suppress(BaseException):
                    os.setuid(uid)
                    with socket.socket(socket.AF_UNIX) as sock:
                        sock.connect(tmad.path)
                        sock.sendall(b"\x94\x00\x01\xa4ping\x90")
                        sock.recv(100)
                os._exit(0)
            os.waitpid(child, 0)

    def scrape_beside(self, address, tmad, size):
        """Returns how many of SCRAPES scrapes got their page."""
        took, done, pings = [], 0, []
        with tmad.rpc() as rpc:
            for _ in range(self.SCRAPES):
                start = time.monotonic()
                with contextlib.suppress(OSError, http.client.HTTPException):
                    done += len(get(address).text) >= size * 0.9
                took.append(time.monotonic() - start)
                start = time.monotonic()
                self.assertIs(rpc.call("ping"), True)
                pings.append(time.monotonic() - start)
        took.sort()
        print(f"# {done} of {self.SCRAPES} scrapes of {size >> 10} KiB beside {self.SLOW} slow peers: {took[len(took) // 2]:.2f} s, "
              f"at most {took[-1]:.2f} s; pings at most {max(pings) * 1e3:.1f} ms", flush=True)
        return done

    def check(self, address, tmad):
        self.a_page_for_256_users(tmad)
        address = address or address_of(tmad)
        size = len(get(address).text)
        slow = subprocess.Popen([sys.executable, "-c", SLOWLY, address, str(self.SLOW)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE)
        try:
            self.assertEqual(slow.stdout.readline(), b"all are there\n")
            for _ in range(self.TRIES):
                done = self.scrape_beside(address, tmad, size)
                if done >= self.SCRAPES - 1:
                    break
        finally:
            slow.kill()
            slow.communicate()
        self.assertGreaterEqual(done, self.SCRAPES - 1)
        wait_until(lambda: get(address).status == 200, "it goes on")

    def test_on_a_port(self):
        with Tmad("--metrics=127.0.0.1:0") as tmad:
            self.check(None, tmad)

    def test_on_a_unix_socket(self):
        with tempfile.TemporaryDirectory() as directory, Tmad(f"--metrics=unix:{directory}/m") as tmad:
            self.check(f"unix:{directory}/m", tmad)


# Every other one is slow to ask, the rest are slow to read.
SLOWLY = r"""
import asyncio, socket, sys

async def open_one():
    if sys.argv[1].startswith("unix:"):
        return await asyncio.open_unix_connection(sys.argv[1][5:], limit=1024)
    host, port = sys.argv[1].rsplit(":", 1)
    return await asyncio.open_connection(host, int(port), limit=1024)

async def ask(reader, writer):
    writer.write(b"GET /metrics HTTP/1.1\r\n")
    while not reader.at_eof():
        writer.write(b"X")
        await writer.drain()
        with_end = asyncio.wait_for(reader.read(1), 0.1)
        try:
            if not await with_end:
                return
        except asyncio.TimeoutError:
            pass

async def read(reader, writer):
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    while await reader.read(1024):
        await asyncio.sleep(0.1)

async def again(kind):
    global there
    counted = False
    while True:
        try:
            reader, writer = await open_one()
            there += not counted
            counted = True
            await kind(reader, writer)
        except OSError:
            await asyncio.sleep(0.01)
        finally:
            writer.close()

async def run():
    tasks = [asyncio.create_task(again((ask, read)[i % 2])) for i in range(int(sys.argv[2]))]
    while there < len(tasks):
        await asyncio.sleep(0.01)
    print("all are there", flush=True)
    await asyncio.gather(*tasks)

there = 0
asyncio.run(run())
"""

FLOOD = r"""
import socket, sys, threading
def flood():
    sock = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    threading.Thread(target=lambda: [None for _ in iter(lambda: sock.recv(1 << 16), b"")], daemon=True).start()
    while True:
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 10)
for _ in range(int(sys.argv[3])):
    threading.Thread(target=flood).start()
"""


if __name__ == "__main__":
    tap.main()

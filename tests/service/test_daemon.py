# SPDX-License-Identifier: Apache-2.0
"""tmad as a process: how it starts, stops, idles, and what it does with clients that misbehave or die."""
import os
import re
import resource
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import (ENGINE, NATIVE, TMAD, TSAN, Memory, Rpc, RpcError, Tmad, own_environment, pack_request, scaled, tensor, text_of, threads,
                  tmactl, wait_until, without_valgrind)

BIG = 32 << 20


def run_tmad(*args, **options):
    """Runs a tmad that is expected to end by itself."""
    done = subprocess.run([TMAD, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          encoding="utf-8", timeout=scaled(20), check=False, **options)
    done.stderr = without_valgrind(done.stderr)
    return done


def copy_params(dst, src, size):
    return {"dst": tensor(dst, [size]), "src": tensor(src, [size])}


class DaemonCase(unittest.TestCase):
    def start(self, *args, **kwargs):
        tmad = Tmad(*args, **kwargs)
        self.addCleanup(tmad.stop)
        return tmad

    def scratch(self):
        directory = tempfile.mkdtemp(prefix="tmad-daemon-")
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        return directory


class Starting(DaemonCase):
    def test_bad_usage(self):
        for args, words in ((["--engine", "steam"], ["--engine", "steam", "cuda"]), (["--threads", "-1"], ["--threads"]),
                            (["--nothing"], ["--nothing"]), (["--regions-per-uid", "many"], ["many"]),
                            (["extra"], ["extra"]), (["--socket"], ["--socket"])):
            with self.subTest(args=args):
                done = run_tmad(*args)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                for word in words:
                    self.assertIn(word, done.stderr)

    @unittest.skipUnless(NATIVE, "an emulator has its own way with names")
    def test_the_process_of_an_engine_by_hand(self):
        done = subprocess.run(["tmad-engine", "cpu"], executable=TMAD, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=scaled(20), check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"it is started by tmad", done.stderr)

    def test_help_and_version(self):
        for option, word in (("--help", "--regions-per-uid"), ("--version", "tmad")):
            done = run_tmad(option)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn(word, done.stdout)

    def test_one_line_when_ready(self):
        tmad = self.start()
        lines = [line for line in without_valgrind(tmad.log()).splitlines() if "no userfaultfd" not in line]
        self.assertEqual(len(lines), 1, tmad.log())
        self.assertIn(tmad.path, tmad.log())
        self.assertIn(f"engine {ENGINE}", tmad.log())

    @unittest.skipIf(os.environ.get("EMULATOR"), "an emulator needs them itself")
    def test_descriptors_closed_by_the_caller(self):
        """None of them may become a file or a socket of tmad, which libuv would refuse to close."""
        for closed in ((0,), (1,), (2,), (0, 1), (0, 1, 2)):
            with self.subTest(closed=closed):
                tmad = self.start(start=False)
                tmad.start(preexec_fn=lambda fds=closed: [os.close(fd) for fd in fds])
                self.assertEqual([os.readlink(f"/proc/{tmad.pid}/fd/{fd}") for fd in closed],
                                 ["/dev/null"] * len(closed))
                tmad.stop()  # exits with 0

    def test_no_place_for_the_socket(self):
        file = os.path.join(self.scratch(), "file")
        with open(file, "w", encoding="ascii") as f:
            f.write("keep me")
        for path in (file, "/nowhere/at/all", "/" + "x" * 200):
            with self.subTest(path=path):
                done = run_tmad("--engine", "cpu", "--socket", path)
                self.assertIn(done.returncode, (1, 2))
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        with open(file, encoding="ascii") as f:
            self.assertEqual(f.read(), "keep me")

    def test_a_path_that_others_have(self):
        """If the default path cannot be created, the error names one that can."""
        directory = self.scratch()
        runtime = os.path.join(directory, "runtime")
        os.mkdir(runtime)
        rows = ({"TMAD_SOCKET": "/nowhere/at/all"}, {"TMAD_SOCKET": "", "XDG_RUNTIME_DIR": "/nowhere"},
                {"TMAD_SOCKET": "/nowhere/at/all", "XDG_RUNTIME_DIR": runtime})
        for env in rows:
            with self.subTest(env=env):
                done = run_tmad("--engine=cpu", "--config=", env=dict(own_environment(), **{"XDG_RUNTIME_DIR": "", **env}))
                own = f"{runtime}/tmad.sock" if env.get("XDG_RUNTIME_DIR") == runtime else f"/tmp/tmad-{os.getuid()}.sock"
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"choose a path that this user can create: --socket={own}\n", done.stderr)

    def test_a_stale_socket_is_replaced(self):
        directory = self.scratch()
        stale = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stale.bind(os.path.join(directory, "s"))
        stale.close()
        tmad = self.start(directory=directory)
        with tmad.rpc() as rpc:
            self.assertIs(rpc.call("ping"), True)

    def test_an_abstract_socket(self):
        directory = self.scratch()
        path = f"@tmad-test-{os.getpid()}"
        tmad = self.start(start=False)
        tmad.path = path
        tmad.command[tmad.command.index("--socket") + 1] = path
        tmad.start(cwd=directory)
        self.assertEqual(os.listdir(directory), [])
        self.assertIn(f"{path}: an abstract socket has no permissions: every user in this network namespace may connect",
                      tmad.log())
        self.assertIn(f"ready on {path}", tmad.log())
        ping = tmactl("ping", socket_path=path, cwd=directory)
        self.assertIn(f"{path} answered", ping.stdout, ping.stderr)
        with Rpc(path) as rpc:
            self.assertEqual({session["uid"] for session in rpc.call("session_list")}, {os.getuid()})
        done = run_tmad("--engine=cpu", "--config=", "--socket", path)
        self.assertEqual((done.returncode, f"{path}: another server listens there" in done.stderr), (1, True), done.stderr)
        tmad.stop()
        refused = tmactl("ping", socket_path=path, cwd=directory)
        self.assertEqual((refused.returncode, f"no tmad at {path} (Connection refused)" in refused.stderr), (1, True),
                         refused.stderr)

    def test_settings_that_an_abstract_socket_does_not_have(self):
        for option, code, words in (("--socket-mode=0600", 1, "--socket-mode=0600: an abstract socket has neither group nor"),
                                    ("--socket-group=0", 1, "--socket-group=0: an abstract socket has neither group nor"),
                                    ("--socket=@", 2, "--socket=@: the name of an abstract socket is missing after @")):
            with self.subTest(option=option):
                done = run_tmad("--engine=cpu", "--config=", f"--socket=@tmad-test-{os.getpid()}", option)
                self.assertEqual((done.returncode, words in done.stderr), (code, True), done.stderr)

    def test_a_socket_in_use_is_left_alone(self):
        tmad = self.start()
        done = run_tmad("--engine", "cpu", "--socket", tmad.path)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
        self.assertIn(tmad.path, done.stderr)
        with tmad.rpc() as rpc:
            self.assertIs(rpc.call("ping"), True)

    def test_socket_passed_by_the_service_manager(self):
        path = os.path.join(self.scratch(), "passed")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(path)
            listener.listen(16)
            early = Rpc(path)  # waits in the queue until somebody accepts
            msgid = early.request("ping")
            read_end, write_end = os.pipe()
            # The shell becomes tmad, so that LISTEN_PID is tmad's pid.
            daemon = subprocess.Popen(
                ["sh", "-c", f'exec 3<&{listener.fileno()}; LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" --engine cpu', TMAD],
                pass_fds=(listener.fileno(),), stderr=write_end)
            os.close(write_end)
        with early, open(read_end, encoding="utf-8") as log:
            self.assertIs(early.reply(msgid), True)
            daemon.send_signal(signal.SIGTERM)
            self.assertEqual(daemon.wait(scaled(10)), 0, log.read())
        self.assertTrue(os.path.exists(path), "the socket is the service manager's")

    def test_notifies(self):
        path = os.path.join(self.scratch(), "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(path)
            notify.settimeout(scaled(10))
            tmad = self.start(env={"NOTIFY_SOCKET": path})
            self.assertIn(b"READY=1", notify.recv(4096).split(b"\n"))
            tmad.stop()
            notify.settimeout(1)
            received = []
            while b"STOPPING=1" not in received:
                received += notify.recv(4096).split(b"\n")

    def test_no_gpu_is_said(self):
        done = run_tmad("--engine", "cuda", "--socket", os.path.join(self.scratch(), "s"))
        if done.returncode == 0:
            self.skipTest("there is a GPU")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
        self.assertIn("cuda", done.stderr.lower())


class Stopping(DaemonCase):
    def test_drains(self):
        tmad = self.start("--threads", "1")
        with tmad.rpc() as rpc, Memory(BIG) as a, Memory(BIG, data=b"\x42" * BIG) as b:
            params = copy_params(a.register(rpc), b.register(rpc), BIG)
            msgids = [rpc.request("copy", params) for _ in range(20)]
            first = rpc.receive()
            with tmad.rpc() as other:  # what it has not read yet is not under way
                wait_until(lambda: other.call("stats")["requests_by_method"].get("copy") == 20,
                           "all requests are read")
            os.kill(tmad.pid, signal.SIGTERM)
            replies = [first] + [rpc.receive() for _ in range(19)]
            self.assertNotIn(None, replies, "every request under way is answered")
            self.assertEqual({reply[1] for reply in replies}, set(msgids))
            self.assertEqual([reply[2] for reply in replies], [None] * 20)
            self.assertTrue(rpc.ended())
            self.assertEqual(a[:4096], b"\x42" * 4096)
        self.assertEqual(tmad.process.wait(scaled(10)), 0)
        self.assertFalse(os.path.exists(tmad.path), "the socket file is gone")

    def test_asked_again_and_again(self):
        """However often and whenever it is asked to stop, it stops in order."""
        for _ in range(5):
            tmad = Tmad()
            with tmad.rpc() as rpc, Memory(BIG) as src, Memory(BIG) as dst:
                a, b = src.register(rpc), dst.register(rpc)
                for _ in range(20):
                    rpc.request("copy", copy_params(b, a, BIG))
                while tmad.process.poll() is None:
                    tmad.process.send_signal(signal.SIGTERM)
                    time.sleep(0.0005)
            tmad.stop()

    def test_ends_in_time_with_idle_clients(self):
        tmad = self.start()
        clients = [tmad.rpc() for _ in range(50)]
        start = time.monotonic()
        tmad.stop()
        self.assertLess(time.monotonic() - start, scaled(2))
        for client in clients:
            self.assertTrue(client.ended())
            client.close()

    def test_a_client_that_does_not_read_cannot_hold_it(self):
        tmad = self.start("--drain-deadline-ms", "300")
        with tmad.rpc() as rpc:
            rpc.send(b"".join(pack_request(i, "info") for i in range(500)))
            start = time.monotonic()
            tmad.stop()
            self.assertLess(time.monotonic() - start, scaled(3))


class Clients(DaemonCase):
    @staticmethod
    def levels(rpc):
        stats = rpc.call("stats")
        return stats["connections"], stats["regions"], stats["jobs"]

    def test_killed_in_the_middle_of_a_copy(self):
        self.kill_clients(self.start(), 200)

    def test_killed_with_more_requests_than_it_may_have_jobs(self):
        """Its further requests wait unread; the service has to notice its death nevertheless."""
        self.kill_clients(self.start("--jobs-per-uid", "8"), 5000)

    def kill_clients(self, tmad, n_requests):
        with tmad.rpc() as watcher:
            wait_until(lambda: self.levels(watcher) == (1, 0, 0), "only this connection is left")
            fds = tmad.fds()
            for _ in range(3):
                child = os.fork()
                if child == 0:
                    try:
                        self.ask_for_much(tmad, n_requests)
                    finally:
                        os._exit(1)
                wait_until(lambda: watcher.call("stats")["jobs"] > 3, "the client's copies run")
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                wait_until(lambda: self.levels(watcher) == (1, 0, 0), "all that was its own is gone", seconds=1)
            self.assertEqual(tmad.mappings_of_memfds(), 0)
            wait_until(lambda: tmad.fds() == fds, "its fds are closed", seconds=1)

    @staticmethod
    def ask_for_much(tmad, n_requests):
        rpc = tmad.rpc()
        a, b = Memory(BIG), Memory(BIG)
        params = copy_params(a.register(rpc), b.register(rpc), BIG)
        for _ in range(n_requests):
            rpc.request("copy", params)
        time.sleep(60)

    def test_closed_with_a_region_being_mapped(self):
        tmad = self.start()
        for _ in range(50):
            with tmad.rpc() as rpc, Memory(1 << 20) as memory:
                rpc.request("region_register", {"kind": "memfd", "size": 1 << 20}, [memory.fd])
        with tmad.rpc() as rpc:
            wait_until(lambda: rpc.call("stats")["regions"] == 0, "no region is left")

    def test_half_closed_clients_get_their_replies(self):
        tmad = self.start()
        with tmad.rpc() as rpc:
            rpc.send(b"".join(pack_request(i, "ping") for i in range(100)))
            rpc.socket.shutdown(socket.SHUT_WR)
            self.assertEqual([rpc.receive()[1] for _ in range(100)], list(range(100)))
            self.assertTrue(rpc.ended())

    def test_slow_frame_is_ended(self):
        tmad = self.start("--frame-deadline-ms", "1000")
        with tmad.rpc() as good, tmad.rpc() as slow:
            message = pack_request(1, "ping")
            start = time.monotonic()
            slow.send(message[:3])
            while time.monotonic() - start < 0.5:
                self.assertIs(good.call("ping"), True)
            slow.send(message[3:4])  # another byte does not extend the deadline
            self.assertTrue(slow.ended())
            self.assertTrue(0.9 < time.monotonic() - start < scaled(4))
            time.sleep(1.2)
            self.assertIs(good.call("ping"), True, "a connection without a started message may idle")

    def test_frame_deadline_by_default(self):
        with self.start().rpc() as rpc:
            self.assertEqual(rpc.call("info")["limits"]["frame_deadline_ms"], 5000)

    def test_one_who_never_reads(self):
        tmad = self.start("--reply-deadline-ms", "500")
        with tmad.rpc() as good, tmad.rpc() as deaf:
            deaf.socket.setblocking(False)
            data, sent = pack_request(1, "info") * 2000, 0
            deadline = time.monotonic() + scaled(10)
            while time.monotonic() < deadline:
                try:
                    sent += deaf.socket.send(data[sent % len(data):])
                except BlockingIOError:
                    time.sleep(0.01)
                except (BrokenPipeError, ConnectionResetError):
                    break
                self.assertIs(good.call("ping"), True)
            else:
                self.fail("the session is still there")
            self.assertLess(tmad.status("VmRSS"), 64 * 1024 if NATIVE else 400 * 1024)

    def test_a_thousand_connections(self):
        """Sends 64 requests on each of 1,000 connections, four times over; memory must not grow."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < 4096:
            self.skipTest(f"at most {hard} open files are allowed here")
        tmad = self.start()
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        rss = []
        for _ in range(4):
            self.one_round(tmad, 1000, 64)
            with tmad.rpc() as rpc:
                wait_until(lambda: self.levels(rpc) == (1, 0, 0), "connections and regions are gone")
            rss.append(tmad.status("VmRSS"))
        print(f"# VmRSS after each round: {rss} KiB", flush=True)
        if NATIVE:  # otherwise the allocator keeps freed memory
            least = min(after - before for before, after in zip(rss, rss[1:]))
            self.assertLess(least, 1024, "KiB more after each round")  # a leak shows in each round

    def one_round(self, tmad, n_connections, in_flight):
        n = 4096
        clients, selector = [], selectors.DefaultSelector()
        with Memory(n) as memory:
            memory[:] = os.urandom(n)
            for i in range(n_connections):
                client = tmad.rpc()
                clients.append(client)
                client.request("region_register", {"kind": "memfd", "size": n}, [memory.fd])
                client.left = in_flight
            for client in clients:
                region = client.reply(1)["region"]
                made = client.call("region_create", {"size": n, "kind": "memfd"})["region"]
                params = {"dst": tensor(made, [32, 32], "float32"), "src": tensor(region, [32, 32], "float32"),
                          "perm": [1, 0]}
                client.send(b"".join(pack_request(100 + i, "transpose", params) for i in range(in_flight)))
                selector.register(client.socket, selectors.EVENT_READ, client)
            busy = len(clients)
            while busy:
                for key, _ in selector.select(scaled(30)) or self.fail("no reply comes any more"):
                    client = key.data
                    reply = client.receive()
                    while reply is not None:
                        self.assertIsNone(reply[2])
                        client.left -= 1
                        reply = next(iter(client._unpacker), None)
                    if client.left == 0:
                        selector.unregister(client.socket)
                        busy -= 1
            expected = bytes(memory[:])
            rows = [expected[i:i + 4] for i in range(0, n, 4)]
            transposed = b"".join(rows[r * 32 + c] for c in range(32) for r in range(32))
            self.assertEqual(os.pread(clients[-1].fds[0], n, 0), transposed)
        for client in clients:
            client.close()
        selector.close()


class Limits(DaemonCase):
    def test_connections(self):
        for limit in ("connections", "connections_per_uid"):
            with self.subTest(limit=limit):
                tmad = self.start("--" + limit.replace("_", "-"), "3")
                clients = [wait_until(lambda: self.next_client(tmad), "three are served") for _ in range(3)]
                with tmad.rpc() as refused:
                    self.assertFalse(self.answers(refused))
                stats = clients[0].call("stats")
                self.assertGreaterEqual(stats["connections_refused"], 1)
                self.assertIn(limit, tmad.log())
                for client in clients:
                    client.close()
                with wait_until(lambda: self.next_client(tmad), "there is room again") as client:
                    self.assertIs(client.call("ping"), True)

    @staticmethod
    def answers(client):
        try:
            return client.call("ping") is True
        except (ConnectionResetError, BrokenPipeError):
            return False
        except RpcError as error:
            assert error.name == "QUOTA", error
            return False

    def next_client(self, tmad):
        client = tmad.rpc()
        if self.answers(client):
            return client
        client.close()
        return None

    def refused(self, rpc, words, method, params, fds=()):
        with self.assertRaises(RpcError) as caught:
            rpc.call(method, params, fds)
        self.assertEqual(caught.exception.name, "QUOTA", caught.exception.message)
        for word in words:
            self.assertIn(word, caught.exception.message)

    def test_regions(self):
        tmad = self.start("--regions-per-uid", "2")
        with tmad.rpc() as rpc, tmad.rpc() as other, Memory(4096) as memory:
            first = memory.register(rpc)
            memory.register(other)
            for _ in range(100):
                self.refused(rpc, ["regions_per_uid", "2"], "region_register", {"kind": "memfd", "size": 4096},
                             [memory.fd])
            self.refused(rpc, ["regions_per_uid", "2"], "region_create", {"size": 4096})
            self.assertEqual(len(rpc.call("region_list")), 1)
            rpc.call("region_release", {"region": first})
            wait_until(lambda: not rpc.call("region_list"), "the region is gone")
            memory.register(rpc)

    def test_mapped_bytes(self):
        tmad = self.start("--mapped-bytes-per-uid", "1000000")
        with tmad.rpc() as rpc:
            self.refused(rpc, ["mapped_bytes_per_uid", "1000000"], "region_create", {"size": 1000001})
            self.refused(rpc, ["mapped_bytes_per_uid"], "region_create", {"size": 2**63})
            region = rpc.call("region_create", {"size": 1000000})["region"]
            self.refused(rpc, ["mapped_bytes_per_uid"], "region_create", {"size": 1})
            rpc.call("region_release", {"region": region})

    def test_jobs_wait_instead_of_failing(self):
        tmad = self.start("--jobs-per-uid", "4")
        with tmad.rpc() as rpc, tmad.rpc() as other:
            a, b = (rpc.call("region_create", {"size": 65536})["region"] for _ in range(2))
            rpc.send(b"".join(pack_request(100 + i, "copy", copy_params(a, b, 65536)) for i in range(500)))
            self.assertIs(other.call("ping"), True)
            self.assertEqual({rpc.receive()[2] for _ in range(500)}, {None})

    def test_limits_are_in_info(self):
        tmad = self.start("--regions-per-uid", "77")
        with tmad.rpc() as rpc:
            limits = rpc.call("info")["limits"]
        self.assertEqual(limits["regions_per_uid"], 77)
        options = re.findall(r"--([a-z-]+)=N  ", run_tmad("--help").stdout)
        self.assertLessEqual({name.replace("-", "_") for name in options if name != "threads"}, set(limits))


@unittest.skipIf(TSAN, "ThreadSanitizer's own thread wakes up ten times a second")
class Idle(DaemonCase):
    def setUp(self):
        self.tmad = self.start()
        self.clients = [self.tmad.rpc() for _ in range(20)]
        for client in self.clients:
            self.addCleanup(client.close)
            for _ in range(10):
                client.call("ping")
        time.sleep(0.2)

    def ticks(self):
        """Returns utime and stime of the process, over all threads."""
        with open(f"/proc/{self.tmad.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    def switches(self):
        return sum(int(line.split()[1]) for thread in threads(self.tmad.pid)
                   for line in text_of(f"/proc/{self.tmad.pid}/task/{thread}/status").splitlines() if "ctxt_switches" in line)

    def test_takes_no_cpu_time(self):
        ticks, switches = self.ticks(), self.switches()
        time.sleep(3)
        self.assertLessEqual(self.ticks() - ticks, 0)
        self.assertLessEqual(self.switches() - switches, 3)

    def test_calls_nothing(self):
        if not shutil.which("strace"):
            self.skipTest("strace is not installed")
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as summary:
            strace = subprocess.Popen(["strace", "-f", "-c", "-o", summary.name, "-p", str(self.tmad.pid)],
                                      stderr=subprocess.PIPE, encoding="utf-8")
            time.sleep(3)
            if strace.poll() is not None:
                self.skipTest("strace may not attach: " + strace.stderr.read().strip())
            strace.send_signal(signal.SIGINT)
            strace.communicate(timeout=10)
            text = summary.read()
        # strace reports the wait of each thread once, when it detaches.
        calls = [int(line.split()[3]) for line in text.splitlines() if re.match(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+\d+", line)
                 and not line.endswith("total")]
        threads = len(os.listdir(f"/proc/{self.tmad.pid}/task"))
        self.assertLessEqual(sum(calls), 2 * threads + 2, text)


if __name__ == "__main__":
    tap.main()

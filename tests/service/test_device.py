# SPDX-License-Identifier: Apache-2.0
"""What the service does about its device: which engine, device memory, and a device that is lost.

The device is tests/support/faulty.c: an engine of the tests that calls itself cuda.
"""
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import FAULTY, Memory, Rpc, RpcError, Tmad, pack_request, scaled, tensor, tmactl, wait_until

FATAL = 6666  # bytes; a copy of so many loses the device
FAILING = 5555  # bytes; a copy of so many fails
UUID = "GPU-00000000-0000-0000-0000-00000000000f"


class DeviceCase(unittest.TestCase):
    def start(self, *args, engine="cuda", **kwargs):
        tmad = Tmad(*args, engine=engine, program=FAULTY, **kwargs)
        self.addCleanup(tmad.stop)
        return tmad

    def refused(self, rpc, name, method, params, words=(), fds=()):
        with self.assertRaises(RpcError) as caught:
            rpc.call(method, params, fds)
        self.assertEqual(caught.exception.name, name, caught.exception.message)
        for word in words:
            self.assertIn(word, caught.exception.message)


def run(program, *args, **options):
    return subprocess.run([program, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          encoding="utf-8", timeout=scaled(20), check=False, **options)


def without_faults(**env):
    return {**os.environ, **env}


class Choice(DeviceCase):
    """Which engine, and what is said of it."""

    def test_auto_takes_the_device(self):
        tmad = self.start(engine="auto")
        with tmad.rpc() as rpc:
            info = rpc.call("info")
        self.assertEqual((info["engine"], info["device"]), ("cuda", "faulty"))
        self.assertNotIn("note", info)
        self.assertEqual(tmad.log().count("\n"), 1, tmad.log())

    def test_auto_without_a_device_says_why(self):
        why = "libcuda.so.1: cannot open shared object file"
        tmad = self.start(engine="auto", env={"FAULTY_OPEN": why})
        with tmad.rpc() as rpc:
            info = rpc.call("info")
        self.assertEqual((info["engine"], info["note"]), ("cpu", why))
        self.assertIn(f"tmad: engine cpu: {why}\n", tmad.log())
        done = tmactl("info", socket_path=tmad.path)
        self.assertRegex(done.stdout, f"(?m)^why +{re.escape(why)}$")

    def test_the_cpu_when_it_is_asked_for(self):
        tmad = self.start(engine="cpu", env={"FAULTY_OPEN": "never asked"})
        with tmad.rpc() as rpc:
            info = rpc.call("info")
        self.assertEqual(info["engine"], "cpu")
        self.assertNotIn("note", info)

    def test_cuda_without_a_device(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "s")
            done = run(FAULTY, "--engine=cuda", "--socket", path, env=without_faults(FAULTY_OPEN="no driver"))
            self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", "tmad: --engine=cuda: no driver\n"))
            self.assertFalse(os.path.exists(path))

    def test_device_goes_with_cuda(self):
        for engine in ("auto", "cpu"):
            with self.subTest(engine=engine):
                done = run(FAULTY, f"--engine={engine}", "--device=0")
                self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
                self.assertIn(f"--device=0: only the cuda engine takes a device, and --engine={engine}", done.stderr)
        self.start("--device=0")
        done = run(FAULTY, "--engine=cuda", "--device=7")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
        self.assertIn("--device=7", done.stderr)


class Memories(DeviceCase):
    """Regions of device memory, in and out."""

    def setUp(self):
        self.tmad = self.start()
        self.rpc = self.tmad.rpc()
        self.addCleanup(self.rpc.close)

    def register(self, kind, memory, **fields):
        handle = f"/proc/{os.getpid()}/fd/{memory.fd}".encode().ljust(64, b"\0")
        params = {"kind": kind, "size": memory.size, **fields}
        if kind == "cuda_ipc":
            return self.rpc.call("region_register", {**params, "handle": handle})["region"]
        return self.rpc.call("region_register", params, [memory.fd])["region"]

    def test_registered_memory_of_every_kind(self):
        for kind in ("memfd", "cuda_fd", "cuda_ipc"):
            for device in ({}, {"device": UUID}, {"device": UUID[4:].upper()}):
                with self.subTest(kind=kind, device=device), Memory(64, data=b"from here") as src, Memory(64) as dst:
                    a = self.register(kind, src, writable=True, **device)
                    b = self.register("memfd", dst)
                    self.rpc.call("copy", {"dst": tensor(b, [9]), "src": tensor(a, [9])})
                    self.assertEqual(dst[:9], b"from here")
                    kinds = {entry["region"]: entry["kind"] for entry in self.rpc.call("region_list")}
                    self.assertEqual(kinds[a], kind)

    def test_another_device(self):
        with Memory(64) as memory:
            other = UUID[:-1] + "0"
            for kind, extra, fds in (("cuda_fd", {}, [memory.fd]), ("cuda_ipc", {"handle": bytes(64)}, [])):
                for device in (other, "", "GPU-", "0"):
                    with self.subTest(kind=kind, device=device):
                        self.refused(self.rpc, "INVALID_ARGUMENT", "region_register",
                                     {"kind": kind, "size": 64, "device": device, **extra},
                                     [device, UUID[:-1]], fds)
            self.register("memfd", memory, device=other)  # host memory is on no device

    def test_handles_have_64_bytes(self):
        for n in (0, 1, 63, 65, 1000):
            with self.subTest(n=n):
                self.refused(self.rpc, "INVALID_ARGUMENT", "region_register",
                             {"kind": "cuda_ipc", "size": 64, "handle": bytes(n)}, ["64 bytes", str(n)])
        self.refused(self.rpc, "INVALID_ARGUMENT", "region_register", {"kind": "cuda_ipc", "size": 64}, ["got 0"])

    def test_an_allocation_is_its_descriptor(self):
        self.refused(self.rpc, "INVALID_ARGUMENT", "region_register", {"kind": "cuda_fd", "size": 64}, ["descriptor"])

    def test_created_memory_of_every_kind(self):
        for kind in (None, "cuda_fd", "cuda_ipc", "memfd"):
            with self.subTest(kind=kind):
                made = self.rpc.call("region_create", {"size": 100, **({"kind": kind} if kind else {})})
                self.assertEqual((made["kind"], made["size"]), (kind or "cuda_fd", 100))
                self.assertEqual("handle" in made, kind == "cuda_ipc")
                if kind == "cuda_ipc":
                    self.assertEqual((len(made["handle"]), self.rpc.fds), (64, []))
                    fd = os.open(made["handle"].rstrip(b"\0"), os.O_RDWR)
                else:
                    fd = self.rpc.fds.pop()
                os.pwrite(fd, b"made", 0)
                os.close(fd)
                with Memory(4) as dst:
                    self.rpc.call("copy", {"dst": tensor(self.register("memfd", dst), [4]),
                                           "src": tensor(made["region"], [4])})
                    self.assertEqual(dst[:], b"made")

    def test_charges(self):
        before = self.rpc.call("stats")["mapped_bytes"]
        for kind in ("cuda_fd", "cuda_ipc", "memfd"):
            region = self.rpc.call("region_create", {"size": 1000, "kind": kind})["region"]
            self.assertEqual(self.rpc.call("stats")["mapped_bytes"], before + 1000)
            self.rpc.call("region_release", {"region": region})
            self.assertEqual(self.rpc.call("stats")["mapped_bytes"], before)


class Failing(DeviceCase):
    """Copies that fail, and the service goes on."""

    def setUp(self):
        self.tmad = self.start()
        self.rpc = self.tmad.rpc()
        self.addCleanup(self.rpc.close)
        self.dst, self.src = (self.rpc.call("region_create", {"size": 1 << 16, "kind": "memfd"})["region"]
                              for _ in range(2))

    def copy(self, n, at=0):
        return {"dst": tensor(self.dst, [n], offset=at), "src": tensor(self.src, [n], offset=at)}

    def check(self, done):
        self.assertEqual(done["statuses"], [0, -13, -4, 0])
        self.assertEqual([(error["item"], error["name"]) for error in done["errors"]], [(1, "DEVICE"), (2, "NOT_FOUND")])
        self.assertEqual(done["bytes"], 2 * (64 + 32))

    def test_one_transform(self):
        self.refused(self.rpc, "DEVICE", "copy", self.copy(FAILING))
        plan = self.rpc.call("plan_prepare", {part: {"dtype": "uint8", "shape": [FAILING]} for part in ("dst", "src")})
        self.refused(self.rpc, "DEVICE", "plan_run", {**plan, "dst": [self.dst, 0], "src": [self.src, 0]})
        self.rpc.call("copy", self.copy(64))

    def test_items_of_a_batch(self):
        bad = {"plan": 99, "dst": [self.dst, 0], "src": [self.src, 0]}
        items = [self.copy(64), self.copy(FAILING, 64), bad, self.copy(32, 8192)]
        before = self.rpc.call("stats")["errors"]
        self.check(self.rpc.call("submit", {"items": items}))
        after = self.rpc.call("stats")["errors"]
        for name in ("DEVICE", "NOT_FOUND"):
            self.assertEqual(after[name] - before.get(name, 0), 1)

    def test_items_of_a_batch_that_would_be_silent(self):
        bad = {"plan": 99, "dst": [self.dst, 0], "src": [self.src, 0]}
        items = [self.copy(64), self.copy(FAILING, 64), bad, self.copy(32, 8192)]
        signal = {"signal": {"region": self.dst, "offset": 32768, "value": 1}, "reply": "signal"}
        self.check(self.rpc.call("submit", {"items": items, **signal}))
        self.check(self.rpc.call("submit", {"items": items, **signal}))
        self.rpc.request("submit", {"items": items[:1], **signal})  # and this one is
        self.assertIs(self.rpc.call("ping"), True)

    def test_a_batch_with_the_device(self):
        for items in ([self.copy(64), self.copy(FATAL, 64)], [self.copy(FATAL)]):
            with self.tmad.rpc() as rpc:
                self.dst, self.src = (rpc.call("region_create", {"size": 1 << 16, "kind": "memfd"})["region"]
                                      for _ in range(2))
                self.refused(rpc, "DEVICE_LOST", "submit", {"items": items})
                self.assertTrue(rpc.ended())


class Lost(DeviceCase):
    """A device that is lost: what clients hear, and how the service comes back."""

    @staticmethod
    def regions(rpc):
        """Two to copy between."""
        return [rpc.call("region_create", {"size": 1 << 20, "kind": "memfd"})["region"] for _ in range(2)]

    def lose(self, rpc, regions=None):
        """Returns once the connection has ended."""
        dst, src = regions or self.regions(rpc)
        self.refused(rpc, "DEVICE_LOST", "copy", {"dst": tensor(dst, [FATAL]), "src": tensor(src, [FATAL])})
        self.assertTrue(rpc.ended())

    def answers_again(self, tmad):
        with tmad.rpc() as rpc:  # it waits in the socket's queue
            self.assertIs(rpc.call("ping"), True)
            return rpc.call("info")["boot_id"], rpc.call("stats")["recoveries"]

    def test_comes_back(self):
        tmad = self.start()
        pid, inode = tmad.pid, os.stat(tmad.path).st_ino
        with tmad.rpc() as rpc:
            boot_id = rpc.call("info")["boot_id"]
            self.assertEqual(rpc.call("stats")["recoveries"], 0)
            self.lose(rpc)
        for n in (1, 2, 3):
            again, recoveries = self.answers_again(tmad)
            self.assertEqual(recoveries, n)
            self.assertNotEqual(again, boot_id)
            boot_id = again
            self.assertEqual((tmad.pid, os.stat(tmad.path).st_ino), (pid, inode))
            if n < 3:
                with tmad.rpc() as rpc:
                    self.lose(rpc)
        self.assertIsNone(tmad.process.poll())
        lines = re.findall("(?m)^tmad: engine cuda is lost: a copy of 6666 bytes is fatal to it", tmad.log())
        self.assertEqual(len(lines), 3)
        with open(f"/proc/{pid}/comm", encoding="ascii") as comm:
            self.assertEqual(comm.read(), "tmad\n")
        tmad.stop()
        self.assertFalse(os.path.exists(tmad.path), "the path was still its own")

    def test_everything_pending_is_answered(self):
        tmad = self.start("--jobs-per-uid", "8")
        with tmad.rpc() as rpc, tmad.rpc() as other, tmad.rpc() as idle:
            mine = self.regions(rpc)
            self.regions(other)
            self.assertIs(idle.call("ping"), True)
            copies = [pack_request(100 + i, "copy", {"dst": tensor(mine[0], [n]), "src": tensor(mine[1], [n])})
                      for i, n in enumerate([4096, FATAL] + [4096] * 100)]
            rpc.send(b"".join(copies))
            replies = [rpc.receive() for _ in copies]
            self.assertEqual({reply[1] for reply in replies}, set(range(100, 202)), "each is answered, once")
            errors = {reply[1]: reply[2] and reply[2][2]["name"] for reply in replies}
            self.assertIsNone(errors.pop(100))
            self.assertEqual(set(errors.values()), {"DEVICE_LOST"})
            for ended in (rpc, other, idle):
                self.assertTrue(ended.ended())
            self.assertEqual(self.answers_again(tmad)[1], 1)

    def test_clients_that_connect_meanwhile_wait(self):
        tmad = self.start()
        with tmad.rpc() as deaf, tmad.rpc() as rpc:
            self.fill(deaf)  # it holds the service up for a moment
            regions = self.regions(rpc)
            rpc.request("copy", {"dst": tensor(regions[0], [FATAL]), "src": tensor(regions[1], [FATAL])})
            self.assertEqual(rpc.receive()[2][2]["name"], "DEVICE_LOST")
            waiting = [tmad.rpc() for _ in range(5)]
            for client in waiting:
                client.request("ping")
            for client in waiting:
                self.assertIs(client.receive()[3], True)
                client.close()
        self.assertIn("1000 ms", tmad.log())

    @staticmethod
    def fill(rpc):
        """Asks for more than its socket holds, and reads nothing."""
        rpc.send(b"".join(pack_request(i, "info") for i in range(1000)))

    def test_a_socket_passed_by_the_service_manager(self):
        with tempfile.TemporaryDirectory() as directory:
            path, notify_path = os.path.join(directory, "passed"), os.path.join(directory, "notify")
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, \
                    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
                listener.bind(path)
                listener.listen(16)
                notify.bind(notify_path)
                notify.settimeout(scaled(10))
                with open(os.path.join(directory, "log"), "wb") as log:
                    daemon = subprocess.Popen(
                        ["sh", "-c",
                         f'exec 3<&{listener.fileno()}; LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" --engine cuda', FAULTY],
                        pass_fds=(listener.fileno(),), stderr=log, env=without_faults(NOTIFY_SOCKET=notify_path))
                listener.close()
                try:
                    for n in range(3):
                        words = notify.recv(4096)
                        self.assertIn(b"READY=1", words, n)
                        self.assertIn(b"STATUS=Serving on", words)
                        with Rpc(path) as rpc:
                            self.assertEqual(rpc.call("stats")["recoveries"], n)
                            environment = self.environment(daemon.pid)
                            if n < 2:
                                self.lose(rpc)
                                self.assertIn(b"is fatal to it", notify.recv(4096))
                    self.assertEqual(environment.get(b"LISTEN_PID"), str(daemon.pid).encode())
                finally:
                    daemon.send_signal(signal.SIGTERM)
                    code = daemon.wait(scaled(10))
            self.assertEqual(code, 0)
            self.assertTrue(os.path.exists(path), "the socket is the service manager's")

    @staticmethod
    def environment(pid):
        """What the process was started with."""
        with open(f"/proc/{pid}/environ", "rb") as environ:
            return dict(entry.split(b"=", 1) for entry in environ.read().split(b"\0") if entry)

    def test_nothing_is_left_open(self):
        tmad = self.start()
        with tmad.rpc() as rpc:
            rpc.call("ping")
        fds = wait_until(tmad.fds, "a number")
        for _ in range(3):
            with tmad.rpc() as rpc:
                with Memory(64) as memory:
                    memory.register(rpc)
                self.lose(rpc)
            self.answers_again(tmad)
        wait_until(lambda: tmad.fds() <= fds, "fds are back where they were")

    def test_signals_are_as_they_were(self):
        tmad = self.start()
        lines = self.signals(tmad)
        with tmad.rpc() as rpc:
            self.lose(rpc)
        self.answers_again(tmad)
        self.assertEqual(self.signals(tmad), lines)

    @staticmethod
    def signals(tmad):
        with open(f"/proc/{tmad.pid}/status", encoding="ascii") as status:
            return [line for line in status if re.match("Sig(Blk|Ign|Cgt)", line)]

    @staticmethod
    def rpc_as(tmad, uid):
        """A connection of another user's."""
        os.chmod(tmad.directory, 0o755)
        os.chmod(tmad.path, 0o666)
        os.seteuid(uid)
        try:
            return tmad.rpc()
        finally:
            os.seteuid(0)

    def lose_often(self, tmad):
        """By several users, because one alone would be refused."""
        for i in range(5):
            with self.rpc_as(tmad, i % 2) as rpc:
                self.lose(rpc)
        self.assertEqual(self.answers_again(tmad)[1], 5)
        with self.rpc_as(tmad, 2) as rpc:
            self.lose(rpc)
        return tmad.process.wait(scaled(10))

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be two users")
    def test_who_loses_it_again_and_again_is_refused(self):
        tmad = self.start()
        for _ in range(3):
            with self.rpc_as(tmad, 1) as rpc:
                self.lose(rpc)
        with self.rpc_as(tmad, 1) as rpc, self.rpc_as(tmad, 2) as other, Memory(64) as memory:
            self.refused(rpc, "BUSY", "region_create", {"size": 1 << 20}, ["uid 1", "served again in"])
            self.refused(rpc, "BUSY", "copy", {"dst": tensor(1, [1]), "src": tensor(1, [1])}, ["uid 1"])
            self.refused(rpc, "BUSY", "region_register", {"kind": "memfd", "size": 64}, ["uid 1"], [memory.fd])
            self.assertIs(rpc.call("ping"), True)
            dst, src = self.regions(other)
            other.call("copy", {"dst": tensor(dst, [9]), "src": tensor(src, [9])})
            self.assertEqual(other.call("stats")["recoveries"], 3)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be several users")
    def test_too_often_is_an_end(self):
        tmad = self.start()
        self.assertEqual(self.lose_often(tmad), 1)
        self.assertIn("more than 5 times within 60 s", tmad.log())
        self.assertFalse(os.path.exists(tmad.path))
        tmad.process = None

    def test_a_device_that_does_not_come_back(self):
        tmad = self.start(env={"FAULTY_OPENS": "1"})
        with tmad.rpc() as rpc:
            self.lose(rpc)
        self.assertEqual(tmad.process.wait(scaled(10)), 1)
        self.assertIn("tmad: --engine=cuda: the device does not come back\n", tmad.log())
        self.assertFalse(os.path.exists(tmad.path))
        tmad.process = None

    def test_auto_goes_on_without_it(self):
        tmad = self.start(engine="auto", env={"FAULTY_OPENS": "1"})
        with tmad.rpc() as rpc:
            self.lose(rpc)
        with tmad.rpc() as rpc:
            info = rpc.call("info")
        self.assertEqual((info["engine"], info["note"]), ("cpu", "the device does not come back"))

    def test_asked_to_stop_meanwhile(self):
        tmad = self.start()
        with tmad.rpc() as deaf, tmad.rpc() as rpc:
            self.fill(deaf)
            self.lose(rpc)
            os.kill(tmad.pid, signal.SIGTERM)
            self.assertEqual(tmad.process.wait(scaled(10)), 0)
        self.assertFalse(os.path.exists(tmad.path))

    def test_asked_to_stop_at_any_time(self):
        """However it falls, it stops in order."""
        for i in range(20):
            with Tmad(engine="cuda", program=FAULTY) as tmad, tmad.rpc() as rpc:
                regions = self.regions(rpc)
                rpc.request("copy", {"dst": tensor(regions[0], [FATAL]), "src": tensor(regions[1], [FATAL])})
                time.sleep(i * 0.0005)
                os.kill(tmad.pid, signal.SIGTERM)
                self.assertEqual(tmad.process.wait(scaled(10)), 0, tmad.log())

    def test_a_variable_that_is_not_its_own(self):
        for text in ("", "1 3 1 0 0 0 0 0", "nonsense", "-1"):
            with self.subTest(text=text):
                tmad = self.start(env={"TMAD_RECOVERY": text})
                self.assertEqual(self.answers_again(tmad)[1], 0)


if __name__ == "__main__":
    tap.main()

# SPDX-License-Identifier: Apache-2.0
"""Memory that stalls: while a client punches a hole in its file, a fault on a missing page sleeps in the kernel for as
long as the client likes. What a user's memory stalls are threads that belong to that user; others notice nothing."""
import contextlib
import ctypes
import fcntl
import glob
import os
import re
import signal
import sys
import threading
import time
import types
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from test_ring import ENTRIES, RING, Ring
from tmad import NATIVE, SANITIZED, Memory, Rpc, RpcError, Tmad, scaled, stopped, tensor, wait_until

ATTACKER, VICTIM = 65532, 65533
MIB = 1 << 20
FILE, REGION = 128 * MIB, MIB
HOGS = 6
LONG = 256 * MIB, 24  # a file and hogs, for some seconds
TRIES = 8
OWN = {"own-cpu", "own-wait", "ring-relay", "chore"}  # threads that belong to a user
libc = ctypes.CDLL(None, use_errno=True)
KEEP_SIZE_AND_PUNCH = 3


def requests(region, other):
    """Returns, by name, requests by which the service touches the region: as tensors, words, lists and operands."""
    here, there = tensor(other, [64]), tensor(other, [64], offset=4096)
    return {
        "source": ("copy", {"dst": here, "src": tensor(region, [64])}),
        "large source": ("copy", {"dst": tensor(other, [REGION]), "src": tensor(region, [REGION])}),
        "destination": ("copy", {"dst": tensor(region, [64]), "src": here}),
        "signal": ("copy", {"dst": here, "src": there, "signal": {"region": region, "offset": 0, "value": 1}}),
        "wait": ("copy", {"dst": here, "src": there,
                          "wait": {"region": region, "offset": 8, "value": 0, "deadline_ms": 100}}),
        "list": ("gather", {"dst": tensor(other, [64]), "src": tensor(other, [64], offset=65536), "count": 8,
                            "index_dtype": "int32", "index_at": [region, 0], "limit": 16}),
        "scale": ("copy", {"dst": tensor(other, [16], dtype="float32"), "cast": "saturate",
                           "src": tensor(other, [16], dtype="float32", offset=4096),
                           "scale": tensor(region, [1], dtype="float32")}),
        "ring": ("ring_open", {"at": [region, 0], "entries": ENTRIES}),
    }


def become(uid):
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def punch(memory):
    """Punches a hole for as long as the thread needs, which hardly runs beside the others."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    libc.fallocate(memory.fd, KEEP_SIZE_AND_PUNCH, ctypes.c_long(0), ctypes.c_long(memory.size))


def attack(path, name, size, hogs):
    """Has the service touch the region while a hole is punched around it, for as long as that takes."""
    become(ATTACKER)
    with Rpc(path, timeout=600) as rpc, Memory(size, seals=0) as memory, Memory(2 * REGION) as other:
        region, second = memory.register(rpc, size=REGION), other.register(rpc)
        method, params = requests(region, second)[name]
        rpc.call(method, params)

        def touch():
            if name == "ring":
                rpc.send(RING)
            else:
                rpc.call(method, params)

        for _ in range(hogs):
            if os.fork() == 0:
                os.nice(10)
                while os.getppid() != 1:
                    pass
                os._exit(0)
        puncher = threading.Thread(target=punch, args=(memory,), daemon=True)
        puncher.start()
        with contextlib.suppress(RpcError, BrokenPipeError):  # fails with DEVICE, or ends the connection of a ring
            while puncher.is_alive():
                touch()
                time.sleep(0.005)


@contextlib.contextmanager
def attacker(path, name, size=FILE, hogs=HOGS):
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        try:
            attack(path, name, size, hogs)
        finally:
            os._exit(0)
    with contextlib.suppress(PermissionError):
        os.setpgid(child, child)
    try:
        yield child
    finally:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


def ended(child):
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def sleepers(pid):
    """Returns the threads of the process and of its child processes that wait for a hole to be punched: their names by
    id."""
    found = {}
    for status in glob.glob(f"/proc/{pid}/task/*/status") + glob.glob("/proc/[0-9]*/status"):
        with contextlib.suppress(OSError):
            with open(status, encoding="utf-8") as file:
                text = file.read()
            is_part = f"/proc/{pid}/" in status or re.search(rf"^PPid:\t{pid}$", text, re.MULTILINE)
            if not is_part or not re.search(r"^State:\tD", text, re.MULTILINE):
                continue
            with open(status.replace("/status", "/wchan"), encoding="utf-8") as file:
                if "shmem_fa" in file.read():
                    found[status.split("/")[-2]] = re.search(r"^Name:\t(.*)$", text, re.MULTILINE)[1]
    return found


@contextlib.contextmanager
def ring_of(rpc):
    memories = []

    def memory(size):
        memories.append(Memory(size))
        return memories[-1]

    ring = Ring(types.SimpleNamespace(rpc=rpc, memory=memory))
    try:
        yield ring
    finally:
        ring.close()
        memories[0].close()


def victim(path):
    """Sends another user's requests, which may be answered or not."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            become(VICTIM)
            with Rpc(path, timeout=600) as rpc, Memory(2 * REGION) as memory, ring_of(rpc) as ring:
                region = memory.register(rpc)
                page = {"dtype": "uint8", "shape": [4096]}
                plan = rpc.call("plan_prepare", {"dst": page, "src": page})["plan"]
                for i in range(5):
                    rpc.call("ping")
                    ring.push(plan, region, 0, region, REGION, i)
                    ring.ring()
                    assert ring.pop()[:2] == (i, 0)
                    rpc.call("copy", {"dst": tensor(region, [REGION]), "src": tensor(region, [REGION], offset=REGION)})
                    with Memory(65536) as more:
                        rpc.call("region_release", {"region": more.register(rpc)})
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Case(unittest.TestCase):
    def start(self, *args):
        tmad = Tmad("--socket-mode=0666", *args)
        self.addCleanup(tmad.stop)
        os.chmod(os.path.dirname(tmad.path), 0o755)
        return tmad


@unittest.skipIf(SANITIZED, "threads apart are ordinary threads under sanitizers, which are too slow for this")
class Punched(Case):
    def stalled(self, tmad, name, act):
        """Calls act() while a thread sleeps, and checks afterwards that it slept all the time."""
        for _ in range(TRIES):
            with attacker(tmad.path, name) as child:
                found = {}
                while not found and not ended(child):
                    found = sleepers(tmad.pid)
                    time.sleep(0.002)
                self.assertLessEqual(set(found.values()), OWN, "a thread that is everybody's sleeps")
                if not found:
                    continue
                result = act()
                if set(found) & set(sleepers(tmad.pid)):
                    return result
        self.skipTest("no hole was punched slowly enough")
        return None

    def test_others_are_served(self):
        tmad = self.start()
        for name in requests(0, 0):
            with self.subTest(name=name):
                self.assertEqual(self.stalled(tmad, name, lambda: victim(tmad.path)), 0)

    def test_a_stop_does_not_wait(self):
        tmad = self.start("--drain-deadline-ms=200")
        self.stalled(tmad, "source", lambda: os.kill(tmad.pid, signal.SIGTERM))
        wait_until(lambda: "some work did not end" in tmad.log() or "stopped" in tmad.log(), "the end")

    def test_who_it_is_is_said(self):
        """The log and stats name the user, once it has taken long enough."""
        tmad = self.start()
        with tmad.rpc() as rpc:
            for _ in range(3):
                with attacker(tmad.path, "source", *LONG) as child:
                    wait_until(lambda: ended(child) or rpc.call("stats")["stalled_users"], "a stall", 120)
                wait_until(lambda: rpc.call("stats")["stalled_users"] == 0, "the end of it", 120)
                if f"uid {ATTACKER}: its threads do not return" in tmad.log():
                    return
        self.skipTest("no hole was punched slowly enough")


@unittest.skipUnless(NATIVE, "a relay is a thread apart only natively")
class Relay(Case):
    def test_one_that_does_not_come_back(self):
        """Nobody else waits for the thread, and the log and stats name the user to whom it belongs."""
        tmad = self.start("--trust-own-uid=off")
        with tmad.rpc() as rpc, tmad.rpc() as other, ring_of(rpc):
            [relay] = wait_until(lambda: tmad.children("ring-relay"), "the relay")
            with stopped(relay):
                rpc.send(RING)
                wait_until(lambda: other.call("stats")["stalled_users"] == 1, "it is noticed")
                wait_until(lambda: f"uid {os.geteuid()}: its threads do not return" in tmad.log(), "who it is")
                self.assertEqual(victim(tmad.path), 0)
            wait_until(lambda: other.call("stats")["stalled_users"] == 0, "the end of it")
            wait_until(lambda: f"uid {os.geteuid()}: its threads have returned" in tmad.log(), "the end of it in the log")

    def test_a_stop_does_not_wait(self):
        tmad = self.start("--trust-own-uid=off", "--drain-deadline-ms=1")
        with tmad.rpc() as rpc, ring_of(rpc):
            [relay] = wait_until(lambda: tmad.children("ring-relay"), "the relay")
            with stopped(relay):
                os.kill(tmad.pid, signal.SIGTERM)
                self.assertEqual(tmad.process.wait(scaled(20)), 0)
        self.assertIn("it has not ended: 0 transforms, 0 mappings, 1 ring under way", tmad.log())


class Scout(unittest.TestCase):
    """The service maps no file of an untrusted user before the scout has mapped it."""

    def register(self, trust):
        """Registers a file while the scout does not answer."""
        with Tmad("--trust-own-uid=" + trust) as tmad, tmad.rpc() as rpc, Memory(4096) as memory:
            [scout] = wait_until(lambda: tmad.children("tmad-scout"), "the scout")
            with stopped(scout):
                memory.register(rpc)

    def test_untrusted_users_wait_for_it(self):
        with self.assertRaises(RpcError) as caught:
            self.register("off")
        self.assertEqual(caught.exception.name, "BUSY")

    def test_trusted_users_do_not(self):
        self.register("on")


class Seals(unittest.TestCase):
    """Any thread may touch sealed memory; the list of threads shows whether that is used."""

    def threads(self, tmad):
        names = set()
        for status in glob.glob(f"/proc/{tmad.pid}/task/*/comm") + glob.glob("/proc/[0-9]*/status"):
            with contextlib.suppress(OSError):
                with open(status, encoding="utf-8") as file:
                    text = file.read()
                if status.endswith("comm"):
                    names.add(text.strip())
                elif re.search(rf"^PPid:\t{tmad.pid}$", text, re.MULTILINE):
                    names.add(re.search(r"^Name:\t(.*)$", text, re.MULTILINE)[1])
        return names

    def run_as_user(self, tmad, seals):
        """Copies as another user. Returns whether threads of that user were needed."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                become(ATTACKER)
                with Rpc(tmad.path) as rpc, Memory(8192, seals=0) as memory:
                    region = memory.register(rpc)
                    if seals:
                        fcntl.fcntl(memory.fd, fcntl.F_ADD_SEALS, seals)
                    memory[:4096] = bytes(range(256)) * 16
                    rpc.call("copy", {"dst": tensor(region, [4096], offset=4096), "src": tensor(region, [4096])})
                    os.write(write, b"x" if memory[4096:] == memory[:4096] else b"-")
                    signal.pause()
            finally:
                os._exit(1)
        try:
            os.close(write)
            self.assertEqual(os.read(read, 1), b"x")
            return "own-cpu" in self.threads(tmad)
        finally:
            os.close(read)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def test_sealed_while_it_is_a_region(self):
        with Tmad("--socket-mode=0666") as tmad:
            os.chmod(os.path.dirname(tmad.path), 0o755)
            shrink, grow, future_write = 2, 4, 16
            self.assertTrue(self.run_as_user(tmad, 0))
            self.assertTrue(self.run_as_user(tmad, future_write))  # the file can still be truncated
            self.assertTrue(self.run_as_user(tmad, shrink))
            wait_until(lambda: "own-cpu" not in self.threads(tmad), "the end of the user's threads")
            self.assertFalse(self.run_as_user(tmad, shrink | grow | future_write))


if __name__ == "__main__":
    tap.main()

# SPDX-License-Identifier: Apache-2.0
"""Runs a real tmad on a temporary socket, and provides the ways in which tests talk to it.

The environment that `make check` sets says where the built programs are; without it, build/ is assumed. Every daemon
started here is stopped by its pid, has to exit with 0, and must not have printed a sanitizer's report."""
import array
import contextlib
import fcntl
import glob
import mmap
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

import msgpack

SOURCE = os.environ.get("TEST_SRCDIR") or os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
BUILD = os.environ.get("TEST_BUILDDIR") or os.path.join(SOURCE, "build")
TMAD = os.environ.get("TEST_TMAD") or os.path.join(BUILD, "tmad")
TMACTL = os.environ.get("TEST_TMACTL") or os.path.join(BUILD, "tmactl")
FAULTY = os.path.join(BUILD, "faulty_tmad")  # its cuda engine is tests/support/faulty.c's
ISA_TMAD = os.path.join(BUILD, "isa_tmad")  # uses the instruction set TEST_ISA (tests/support/isa_tmad.c)
SANITIZED = (os.environ.get("TEST_SANITIZED") or "no") != "no"
TSAN = "thread" in (os.environ.get("TEST_SANITIZED") or "")  # ThreadSanitizer has a thread of its own in each program
NATIVE = not SANITIZED and not os.environ.get("EMULATOR")  # the memory and time of a process can be judged
ENGINE = os.environ.get("TEST_ENGINE") or "cpu"  # of every daemon for which the test names no other
GPU = bool(os.environ.get("TEST_GPU"))  # the cuda engine runs on this machine's GPU, not on the stand-in driver
SOFTGPU = os.path.join(BUILD, "tests/softgpu/lib")  # directory of the stand-in driver
SOFTGPU_MEMORY = "/memfd:softgpu"  # name of its memory among files; the driver itself reports leaks of it at the end

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_REPORT = re.compile(r"(ERROR: \w+Sanitizer|WARNING: \w+Sanitizer|runtime error:|SUMMARY: \w+Sanitizer)")
# valgrind's final list contains descriptors that were opened by whoever the following lines name.
_LEFT_OPEN = re.compile(r"^==\d+== Open (?:file descriptor|AF_UNIX socket|AF_INET6? socket) \d+:.*\n(?!==\d+==    <inherited)",
                        re.MULTILINE)


def by_engine(**values):
    """Returns the entry of a table, indexed by engine name, for the engine that the tests run on."""
    return values[ENGINE]


def share(full):
    """Returns the number of repetitions for a test whose full number is given: the share TEST_SHARE of it, at least
    one."""
    return max(1, round(full * float(os.environ.get("TEST_SHARE") or 0.1)))


def scaled(seconds):
    """Returns a deadline in seconds, lengthened where a sanitizer or an emulator slows everything down."""
    return seconds if NATIVE else seconds * 5


def own_uid(i=0):
    """Returns one of four uids that no concurrent test uses, because the kernel limits what all processes of a user
    hold."""
    return 200000 + os.getpid() % 100000 * 4 + i


def has_memory(size):
    """Returns whether the machine can provide that many bytes."""
    with open("/proc/meminfo", encoding="ascii") as meminfo:
        return next(int(line.split()[1]) for line in meminfo if line.startswith("MemAvailable:")) << 10 >= size


def without_valgrind(text):
    """Returns a program's own output, without valgrind's warnings of system calls that it does not know."""
    return re.sub(r"^--\d+--.*\n", "", text, flags=re.MULTILINE)


def own_environment():
    """Returns the environment for a built program: without the sanitizer runtime that python3 preloads in
    tests/python/."""
    env = dict(os.environ)
    if env.pop("TEST_PRELOAD", None):  # a python3 of it that calls this has nothing to take away
        del env["LD_PRELOAD"]
        env["ASAN_OPTIONS"] = env["TEST_ASAN_OPTIONS"]
    return env


def _link(path):
    try:
        return os.readlink(path)
    except FileNotFoundError:  # closed meanwhile
        return ""


def wait_until(condition, what, seconds=20):
    """Returns condition()'s first true value, or fails after the given time, scaled. The default suits waits without a
    limit of their own: a deadline that is met costs nothing."""
    deadline = time.monotonic() + scaled(seconds)
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {scaled(seconds)} s: {what}"
        time.sleep(0.005)


# ---- Processes ----------------------------------------------------------------------------------------
# Threads and processes come and go while they are listed: one that has ended since has no text.
def text_of(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def threads(pid):
    """Returns the names of the process's threads, by their ids in ascending order."""
    names = {int(path.split("/")[4]): text_of(path).strip() for path in glob.glob(f"/proc/{pid}/task/*/comm")}
    return dict(sorted(names.items()))


def children(pid):
    """Returns the ids of the process's children, whichever thread started them."""
    return [int(child) for path in glob.glob(f"/proc/{pid}/task/*/children") for child in text_of(path).split()]


def command_of(pid):
    return text_of(f"/proc/{pid}/comm").strip()


def arguments_of(pid):
    return text_of(f"/proc/{pid}/cmdline").split("\0")[:-1]


def engines(pid):
    """Returns the ids of the processes in which the service runs the engines of its devices."""
    return [child for child in children(pid) if arguments_of(child)[:1] == ["tmad-engine"]]


@contextlib.contextmanager
def stopped(pid):
    """Keeps an idle process from running, as a page fault that does not return would. It has to be asleep before, so
    that it holds no lock that others need."""
    def state():
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0]

    wait_until(lambda: state() == "S", "it sleeps")
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: state() == "T", "it stops")
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):  # it ended with the daemon
            os.kill(pid, signal.SIGCONT)


class Tmad:
    """A daemon of the test. Arguments go to its command line; leaving `with` stops it."""

    def __init__(self, *args, env=None, engine=ENGINE, start=True, directory=None, program=TMAD):
        self.directory = directory or tempfile.mkdtemp(prefix="tmad-test-")
        self._own_directory = directory is None
        self.path = os.path.join(self.directory, "s")
        # Uids that tests invent are users of their own, whatever this machine's /etc/subuid says about them.
        self.command = [program, "--config=", "--subuid-file=", "--engine", engine, "--socket", self.path, *args]
        self.env = dict(own_environment(), **(env or {}))
        self.live_path = None  # where the stand-in driver lists the objects that it still has at the end
        if engine == "cuda" and program == TMAD and not GPU:
            self.live_path = os.path.join(self.directory, "live")
            self.env.update(LD_LIBRARY_PATH=SOFTGPU, SOFTGPU_LIVE=self.live_path)
        self.process = None
        if start:
            self.start()

    def start(self, **options):
        self.log_path = os.path.join(self.directory, "log")
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=self.env, **options)
        try:
            wait_until(self._answers, "tmad answers on its socket")
        except AssertionError:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"tmad did not start: {self.log()}") from None

    def _answers(self):
        assert self.process.poll() is None, f"tmad ended with {self.process.returncode}: {self.log()}"
        listener = self.process.pid
        try:
            with Rpc(self.path) as rpc:
                credentials = rpc.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                listener = struct.unpack("3i", credentials)[0]
                return rpc.call("ping")
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except ConnectionError:
            if listener == self.process.pid:
                raise
            return False  # the socket of a killed daemon that is still exiting

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def rpc(self):
        return Rpc(self.path)

    def fds(self):
        """Returns the number of open descriptors, without the stand-in driver's memory."""
        return sum(not _link(f"/proc/{self.pid}/fd/{fd}").startswith(SOFTGPU_MEMORY)
                   for fd in os.listdir(f"/proc/{self.pid}/fd"))

    def mappings_of_memfds(self):
        """Returns the number of mappings of regions' memory. The stand-in driver's own memory, and memory shared with
        engine processes, are not counted."""
        with open(f"/proc/{self.pid}/maps", encoding="ascii", errors="replace") as maps:
            return sum(("/memfd:" in line or " /dev/shm/" in line) and SOFTGPU_MEMORY not in line
                       and "/memfd:engine " not in line for line in maps)

    def status(self, key):
        """Returns a number of /proc/PID/status, such as VmRSS in KiB."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(key + ":"))

    def children(self, name):
        """Returns the ids of the child processes of that name: those that share its memory as separate threads, and the
        scout."""
        return [child for child in children(self.pid) if command_of(child) == name]

    def stop(self, ended_after=None):
        """Sends SIGTERM and checks that the exit status is 0 and the log is clean. If the daemon may have failed by
        itself, checks that it did so after this line and did not become ready again."""
        if self.process is None:
            self._clean()
            return
        process, self.process = self.process, None
        try:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(scaled(20))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise AssertionError(f"tmad did not end after SIGTERM: {self.log()}") from None
            log = self.log()
            _, lost, after = log.rpartition(ended_after) if ended_after else ("", "", "")
            may_fail = lost != "" and "tmad: ready" not in after
            assert code == 0 or (code == 1 and may_fail), f"tmad ended with {code}: {log}"
            assert not _REPORT.search(log), log
            assert not _LEFT_OPEN.search(log), log
            if self.live_path:
                with open(self.live_path, encoding="ascii") as live:
                    assert (left := live.read()) == "", f"still there at the end:\n{left}"
        finally:
            self._clean()

    def kill(self):
        """Sends SIGKILL, for tests of a daemon that dies."""
        process, self.process = self.process, None
        process.kill()
        process.wait()

    def _clean(self):
        if self._own_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.stop()
        self._clean()


class FailingTmad(Tmad):
    """A daemon in which something is made to fail. Its first clients may meet the failure."""

    def _answers(self):
        try:
            return super()._answers()
        except (ConnectionError, RpcError):
            return False


def tmactl(*args, socket_path=None, timeout=120, **options):
    """Runs tmactl to its end and returns a CompletedProcess with text. No sanitizer may have reported anything."""
    command = [TMACTL]
    if socket_path is not None:
        command += ["--socket", socket_path]
    options.setdefault("stdin", subprocess.DEVNULL)
    options.setdefault("env", own_environment())
    done = subprocess.run(command + [str(arg) for arg in args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          encoding="utf-8", timeout=scaled(timeout), check=False, **options)
    assert not _REPORT.search(done.stderr), done.stderr
    return done


# ---- The protocol, by hand ----------------------------------------------------------------------------
class RpcError(Exception):
    """An error reply."""

    def __init__(self, error):
        super().__init__(error)
        self.code, self.message, self.details = error
        self.name = self.details["name"]


class Rpc:
    """A MessagePack-RPC connection that can also send what a well-behaved client would not."""

    def __init__(self, path, timeout=30):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(scaled(timeout))
        self.socket.connect("\0" + path[1:] if path.startswith("@") else path)
        self.msgid = 0
        self.fds = []  # received and not yet taken
        self._unpacker = msgpack.Unpacker(raw=False, strict_map_key=False)

    def close(self):
        for fd in self.fds:
            os.close(fd)
        self.fds = []
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()

    def send(self, data, fds=()):
        """Sends bytes as they are; the descriptors accompany the first byte."""
        if fds:
            sent = socket.send_fds(self.socket, [data], list(fds))
            data = data[sent:]
        if data:
            self.socket.sendall(data)

    def request(self, method, params=None, fds=()):
        """Sends a request without waiting; returns its msgid."""
        self.msgid += 1
        self.send(pack_request(self.msgid, method, params), fds)
        return self.msgid

    def receive(self):
        """Returns the next message; None if the daemon has closed the connection."""
        while True:
            for message in self._unpacker:
                return message
            try:
                data, ancillary, _, _ = self.socket.recvmsg(65536, socket.CMSG_SPACE(64 * 4))
            except (ConnectionResetError, BrokenPipeError):
                return None
            for level, kind, payload in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    fds = array.array("i")
                    fds.frombytes(payload[:len(payload) - len(payload) % fds.itemsize])
                    self.fds += fds
            if not data:
                return None
            self._unpacker.feed(data)

    def reply(self, msgid):
        """Returns the result of msgid, which has to be the next message; raises RpcError for an error reply."""
        message = self.receive()
        if message is None:
            raise ConnectionResetError("the daemon ended the connection")
        kind, got, error, result = message
        assert (kind, got) == (1, msgid), message
        if error is not None:
            assert result is None, message
            raise RpcError(error)
        return result

    def call(self, method, params=None, fds=()):
        return self.reply(self.request(method, params, fds))

    def ended(self):
        """Returns whether the daemon closes the connection without another message."""
        return self.receive() is None


def pack_request(msgid, method, params=None):
    return msgpack.packb([0, msgid, method, [] if params is None else [params]], use_bin_type=True)


# ---- Memory -------------------------------------------------------------------------------------------
class Memory:
    """A memfd, sealed as a region requires, mapped here, and without holes unless holes are asked for."""

    def __init__(self, size, seals=SEALS, data=None, fill=True):
        self.fd = os.memfd_create("test", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        self.size = size
        if size:
            os.ftruncate(self.fd, size)
            if fill:
                os.posix_fallocate(self.fd, 0, size)
        if seals:
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
        self.map = mmap.mmap(self.fd, size) if size else None
        if data is not None:
            self.map[:len(data)] = bytes(data)

    def register(self, rpc, **fields):
        """Registers it as a region; returns the region's id."""
        params = {"kind": "memfd", "size": self.size, **fields}
        return rpc.call("region_register", params, [self.fd])["region"]

    def __getitem__(self, key):
        return self.map[key]

    def __setitem__(self, key, value):
        self.map[key] = value

    def close(self):
        if self.map is not None:
            self.map.close()
        os.close(self.fd)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()


def tensor(region, shape, dtype="uint8", **fields):
    """Returns a tensor as requests describe it."""
    return {"region": region, "dtype": dtype, "shape": list(shape), **fields}

# SPDX-License-Identifier: Apache-2.0
"""A service manager for one tmad, as far as tmad can tell: it passes sockets (LISTEN_FDS), is notified (NOTIFY_SOCKET),
and has a watchdog (WATCHDOG_USEC)."""
import ctypes
import fcntl
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from tmad import TMAD, scaled, threads, wait_until

# The shell becomes tmad, so that the pid in its variables is its own.
_BECOME = """
import ast, os, sys
high, own = ast.literal_eval(sys.argv[1]), ast.literal_eval(sys.argv[2])
for i, fd in enumerate(high):
    os.dup2(fd, 3 + i)
    os.close(fd)
for name in own:
    os.environ[name] = str(os.getpid())
os.execv(sys.argv[3], sys.argv[3:])
"""

_PTRACE_DETACH, _PTRACE_SEIZE, _PTRACE_INTERRUPT = 17, 0x4206, 0x4207


def listening(path):
    """Returns a listening Unix stream socket."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(64)
    return listener


class Manager:
    """sockets are (name, socket) pairs to pass; if a name is None, LISTEN_FDNAMES is not set. environment is added to
    tmad's; LISTEN_PID and WATCHDOG_PID are its own pid unless given."""

    def __init__(self, *args, sockets=(), watchdog_usec=None, program=TMAD, engine="cpu", under=(), stderr=None,
                 **environment):
        self.directory = tempfile.mkdtemp(prefix="tmad-manager-")
        self.sockets = list(sockets)
        self.command = [program, "--subuid-file=", "--engine", engine, *args]
        self.under = list(under)
        self.stderr = stderr
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(os.path.join(self.directory, "notify"))
        self.log_path = os.path.join(self.directory, "log")
        self.environment = {"NOTIFY_SOCKET": os.path.join(self.directory, "notify"), **environment}
        if watchdog_usec:
            self.environment["WATCHDOG_USEC"] = str(watchdog_usec)
        self.process = None

    def start(self):
        """Starts tmad without waiting for anything."""
        high = [fcntl.fcntl(sock, fcntl.F_DUPFD, 50) for _, sock in self.sockets]
        own = ["WATCHDOG_PID"] + (["LISTEN_PID"] if self.sockets else [])
        if self.sockets:
            self.environment.setdefault("LISTEN_FDS", str(len(self.sockets)))
            if all(name is not None for name, _ in self.sockets):
                self.environment.setdefault("LISTEN_FDNAMES", ":".join(name for name, _ in self.sockets))
        own = [name for name in own if name not in self.environment]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [*self.under, sys.executable, "-c", _BECOME, repr(high), repr(own), *self.command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=self.stderr or log,
                env=dict(os.environ, **self.environment), pass_fds=high)
        for fd in high:
            os.close(fd)

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    # ---- What it is told --------------------------------------------------------------------------------
    def told(self, seconds):
        """Returns the next message within the time as a dictionary; None if there was none."""
        if not select.select([self.notify], [], [], seconds)[0]:
            return None
        lines = self.notify.recv(4096).decode("utf-8").split("\n")
        return dict(line.split("=", 1) for line in lines if line)

    def wait_told(self, what, value=None):
        """Waits for the first message that has the variable, with the given value if there is one."""
        deadline = time.monotonic() + scaled(20)
        while True:
            assert (left := deadline - time.monotonic()) > 0, f"{what}={value} was not told: {self.log()}"
            has_ended = self.process.poll() is not None
            message = self.told(min(left, 0.5))
            assert message or not has_ended, f"it ended with {self.process.returncode}: {self.log()}"
            if message and what in message and (value is None or value in message[what]):
                return message

    def forget(self):
        """Drops the messages received so far."""
        while self.told(0):
            pass

    def is_fed(self, seconds):
        """Returns whether the watchdog is fed within the time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if (self.told(left) or {}).get("WATCHDOG") == "1":
                return True
        return False

    # ---- Threads ------------------------------------------------------------------------------------------
    def thread(self, name):
        """Returns the id of the first thread of that name; "" selects the main thread."""
        def find():
            return next((thread for thread, its_name in threads(self.pid).items() if name in ("", its_name)), None)
        return wait_until(find, f"a thread {name}")

    # ---- The end --------------------------------------------------------------------------------------------
    def wait(self):
        return self.process.wait(scaled(20))

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Sends SIGTERM. Returns the exit status."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            return self.wait()
        return self.process.returncode if self.process else 0

    def close(self):
        if self.process and self.process.poll() is None:
            self.kill()
        self.notify.close()
        for _, sock in self.sockets:
            sock.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Stopped:
    """Stops one thread of a child, and no other, while the context lasts."""

    def __init__(self, tid):
        self.tid = tid
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]

    def _ptrace(self, request):
        if self.libc.ptrace(request, self.tid, None, None) < 0:
            raise OSError(ctypes.get_errno(), "ptrace: " + os.strerror(ctypes.get_errno()))

    def __enter__(self):
        self._ptrace(_PTRACE_SEIZE)
        self._ptrace(_PTRACE_INTERRUPT)
        os.waitpid(self.tid, 0x40000000)  # __WALL
        return self

    def __exit__(self, kind, value, trace):
        try:
            self._ptrace(_PTRACE_DETACH)
        except ProcessLookupError:  # killed meanwhile
            pass

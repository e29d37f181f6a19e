# SPDX-License-Identifier: Apache-2.0
"""Makes cgroups of version 2 below the one that the test runs in, and processes in them."""
import contextlib
import json
import os
import signal
import socket
import struct
import time
import unittest

from tmad import Rpc, RpcError

SO_PEERPIDFD = 77


def _own():
    """Returns the directory of this process's cgroup, and its path as the kernel writes it."""
    with open("/proc/self/cgroup", encoding="ascii", errors="replace") as lines:
        path = next((line.rstrip("\n")[3:] for line in lines if line.startswith("0::")), None)
    with open("/proc/self/mountinfo", encoding="ascii", errors="replace") as mounts:
        for line in mounts:
            mount, _, kind = line.partition(" - ")
            part, at = mount.split()[3:5]
            if path is not None and kind.split()[0] == "cgroup2" and path.startswith(part):
                return os.path.join(at, path[len(part.rstrip("/")):].lstrip("/")).rstrip("/"), path.rstrip("/")
    raise unittest.SkipTest("no cgroups of version 2 here")


def skip_unless_peers_have_cgroups():
    """Skips the test unless the kernel tells which process connected, and this process is root and may make cgroups and
    be several users."""
    if os.geteuid() != 0:
        raise unittest.SkipTest("needs root")
    one, other = socket.socketpair()
    with one, other:
        try:
            pidfd, = struct.unpack("i", one.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD, 4))
        except OSError as why:
            raise unittest.SkipTest(f"SO_PEERPIDFD: {why.strerror}") from None
        os.close(pidfd)


class Cgroup:
    """A cgroup below parent, or below the test's own. `close` removes it; its descendants have to be closed first."""

    def __init__(self, name, parent=None):
        above, path = (parent.directory, parent.path) if parent else _own()
        self.directory, self.path = os.path.join(above, name), f"{path}/{name}"
        self.fd = None
        try:
            os.mkdir(name, dir_fd=parent.fd) if parent else os.mkdir(self.directory)
        except OSError as why:
            raise unittest.SkipTest(f"no cgroup can be made in {above}: {why.strerror}") from None
        self._above = os.dup(parent.fd) if parent else os.open(above, os.O_PATH | os.O_DIRECTORY)
        self.fd = os.open(name, os.O_PATH | os.O_DIRECTORY, dir_fd=self._above)
        self._name = name

    def enter(self):
        """Moves a child into the cgroup."""
        with open(os.open("cgroup.procs", os.O_WRONLY, dir_fd=self.fd), "w", encoding="ascii") as file:
            file.write(str(os.getpid()))

    def close(self):
        os.close(self.fd)
        deadline = time.monotonic() + 10
        while True:
            try:
                os.rmdir(self._name, dir_fd=self._above)
                break
            except OSError:  # a process that has just ended may still be in it
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        os.close(self._above)


class Peer:
    """A process of a user in a cgroup, with a connection that lasts until `close`. .answer is the result of the call,
    or the error's name and message."""

    def __init__(self, path, cgroup, uid, method="ping", params=None, fds=()):
        reader, writer = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            with contextlib.suppress(BaseException):
                cgroup.enter()
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
                rpc = Rpc(path)
                try:
                    answer = rpc.call(method, params, fds)
                except RpcError as error:
                    answer = [error.name, error.message]
                os.write(writer, json.dumps(answer).encode())
                os.close(writer)
                signal.pause()
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as answer:
            self.answer = json.loads(answer.read() or "null")

    def close(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.pid = 0

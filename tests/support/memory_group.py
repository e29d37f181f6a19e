# SPDX-License-Identifier: Apache-2.0
"""A memory cgroup with a limit, of version 1 or 2, below the one that the test runs in."""
import os
import time
import unittest


def _mounts():
    with open("/proc/self/mountinfo", encoding="ascii", errors="replace") as mounts:
        for line in mounts:
            mount, _, kind = line.partition(" - ")
            yield mount.split()[3], mount.split()[4], kind.split()[0], kind.split()[-1].split(",")


def _own():
    """Returns the directory of this process's memory cgroup, and the version."""
    with open("/proc/self/cgroup", encoding="ascii", errors="replace") as lines:
        groups = [line.rstrip("\n").split(":", 2) for line in lines]
    for version, kind in ((1, "cgroup"), (2, "cgroup2")):
        path = next((path for _, names, path in groups
                     if (names == "" if version == 2 else "memory" in names.split(","))), None)
        for part, mount, mounted, options in _mounts():
            if path is None or mounted != kind or (version == 1 and "memory" not in options):
                continue
            if part != "/":
                path = path[len(part):] if path.startswith(part) else ""
            return os.path.join(mount, path.lstrip("/")).rstrip("/"), version
    raise unittest.SkipTest("no cgroups of memory here")


class MemoryGroup:
    """Leaving `with` removes the cgroup. Skips the test where none can be made."""

    def __init__(self, limit):
        parent, self.version = _own()
        self.path = os.path.join(parent, f"tmad-test-{os.getpid()}-{time.monotonic_ns()}")
        limit_file, self._usage = (("memory.limit_in_bytes", "memory.usage_in_bytes") if self.version == 1
                                   else ("memory.max", "memory.current"))
        try:
            os.mkdir(self.path)
        except OSError as why:
            raise unittest.SkipTest(f"no cgroup can be made in {parent}: {why.strerror}") from None
        try:
            self._write(limit_file, limit)
        except OSError as why:
            os.rmdir(self.path)
            raise unittest.SkipTest(f"the cgroup takes no limit of memory: {why.strerror}") from None
        try:
            self._write("memory.swap.max" if self.version == 2 else "memory.swappiness", 0)
        except OSError:
            pass

    def _write(self, name, value):
        with open(os.path.join(self.path, name), "w", encoding="ascii") as file:
            file.write(str(value))

    def enter(self):
        """Moves a child into the cgroup before it executes another program."""
        self._write("cgroup.procs", os.getpid())

    def usage(self):
        """Returns the bytes charged to the cgroup, including those of processes that have ended."""
        with open(os.path.join(self.path, self._usage), encoding="ascii") as file:
            return int(file.read())

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        deadline = time.monotonic() + 10
        while True:
            try:
                os.rmdir(self.path)
                return
            except OSError:  # a process that has just ended may still be in it
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

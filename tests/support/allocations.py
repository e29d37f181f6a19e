# SPDX-License-Identifier: Apache-2.0
"""Counts the allocations of a program that a test starts, by the library built from allocations.c."""
import mmap
import os
import struct
import tempfile

from tmad import BUILD, SANITIZED

LIBRARY = os.path.join(BUILD, "tests/support/.libs/liballocations.so")
AVAILABLE = os.path.exists(LIBRARY) and not SANITIZED  # a sanitizer has its own allocator
BYTES = struct.calcsize("3Q")


class Counter:
    """The counts of a program that is started with `env` in its environment."""

    def __init__(self):
        self.file = tempfile.NamedTemporaryFile(prefix="allocations-")
        self.file.truncate(BYTES)
        self.map = mmap.mmap(self.file.fileno(), BYTES)
        self.env = {"LD_PRELOAD": LIBRARY, "ALLOCATIONS": self.file.name}

    def counts(self):
        """Returns the numbers of allocations and of frees so far."""
        return struct.unpack("3Q", self.map[:])[:2]

    def bytes(self):
        """Returns the bytes that are currently allocated."""
        return struct.unpack("3Q", self.map[:])[2]

    def close(self):
        self.map.close()
        self.file.close()

# SPDX-License-Identifier: Apache-2.0
"""`tmactl copy` observes --memory, whatever the file's size and shape.

The data under way lies in regions, so the service is told to map at most --memory for a user: a copy that holds more of
its file at once is refused. The peak resident memory of both programs has to agree with that."""
import os
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import ENGINE, NATIVE, TMACTL, Tmad

MIB = 1 << 20
PROGRAM = 12 * MIB  # resident besides the regions: the programs, their libraries and stacks
# Natively, each row reads or writes about 128 MiB; where memory cannot be judged, a quarter of that.
LESS = 1 if NATIVE else 4
SIDE = 8192 if NATIVE else 4096
# Name, shape, type, order, flags.
ROWS = (
    ("transpose", (SIDE, SIDE // 2), "f4", "C", ["--permute", "1,0"]),
    ("transpose of Fortran order", (SIDE, SIDE // 2), "f4", "F", ["--permute", "1,0"]),
    ("unchanged", (SIDE, SIDE // 2), "f4", "C", []),
    ("Fortran order", (SIDE, SIDE // 2), "f4", "F", []),
    ("three rows", (3, 11 * MIB // LESS), "f4", "C", ["--permute", "1,0", "--priority", "background", "--host-threads", "1"]),
    ("three columns", (11 * MIB // LESS, 3), "f4", "C", ["--permute", "1,0"]),
    ("rows of one byte and a border", (32 * MIB // LESS, 1), "u1", "C", ["--pad", "0:0,1:2"]),
    ("one dimension", (128 * MIB // LESS,), "u1", "C", ["--pad", "1:-1"]),
    ("one column of many", (64 * MIB // 1024 // LESS, 2048), "u1", "C", ["--pad", "0:0,-1000:-1047"]),
    ("six dimensions backwards", (22, 23, 24 // LESS, 21, 11, 12), "f4", "C", ["--permute", "5,4,3,2,1,0"]),
    ("blocks of 48 columns, the last of 16", (SIDE, SIDE // 2), "f4", "C", ["--split", "1:48", "--permute", "1,0,2"]),
    ("a border around nothing much", (2, 3), "f4", "C", [f"--pad={SIDE // 2}:{SIDE // 2},0:{SIDE // 2}"]),
    ("a mirror of five", (5,), "u1", "C", [f"--pad=7:{128 * MIB // LESS}", "--mode", "reflect"]),
    ("a mirror of many", (3 * MIB // LESS + 1,), "u1", "C", [f"--pad=7:{128 * MIB // LESS}", "--mode", "symmetric"]),
    ("one element again and again", (1, 1), "f8", "C", [f"--pad=0:{SIDE},0:{SIDE // 4}", "--mode", "edge"]),
)


def make_file(path, shape, dtype, order):
    """Makes a file of zeros, as a hole."""
    with open(path, "wb") as file:
        header = {"descr": np.dtype(dtype).str, "fortran_order": order == "F", "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize)


def most_resident(pid):
    """Returns the peak resident bytes since the program began; 0 if it has ended. (A child's ru_maxrss begins with its
    parent's.)"""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            return next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:")), 0)
    except (FileNotFoundError, ProcessLookupError):
        return 0


def run(command):
    """Returns exit status, messages, and peak resident bytes."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        resident = 0
        while process.poll() is None:
            resident = max(resident, most_resident(process.pid))
            time.sleep(0.001)
        said.seek(0)
        return process.returncode, said.read().decode(), resident


class Memory(unittest.TestCase):
    def copy(self, row, memory, flags=()):
        """Copies by a service that maps at most memory for the copy."""
        name, shape, dtype, order, args = row
        with tempfile.TemporaryDirectory(prefix="tmad-copy-") as directory:
            src, dst = (os.path.join(directory, file) for file in ("in.npy", "out.npy"))
            make_file(src, shape, dtype, order)
            with Tmad(f"--mapped-bytes-per-uid={memory}") as tmad:
                status, said, resident = run([TMACTL, "--socket", tmad.path, "copy", "-q", src, dst, *args, *flags])
                self.assertEqual((status, said), (0, ""), name)
                expected = np.load(src, mmap_mode="r")
                result = np.load(dst, mmap_mode="r")
                self.assertEqual(result.dtype, expected.dtype, name)
                self.assertGreater(max(result.nbytes, expected.nbytes), 2 * memory, f"{name}: a file too small")
                if NATIVE:
                    self.assertLess(resident, memory + PROGRAM, f"{name}: tmactl")
                    if ENGINE == "cpu":
                        self.assertLess(most_resident(tmad.pid), memory + PROGRAM, f"{name}: tmad")

    def test_memory_is_bounded(self):
        for row in ROWS:
            with self.subTest(row[0]):
                self.copy(row, 6 * MIB, ["--memory", "6M"])

    def test_the_least_memory(self):
        self.copy(ROWS[0], MIB, ["--memory", "1M"])

    def test_the_usual_memory(self):
        self.copy(("transpose", (8192, 10240), "f8", "C", ["--permute", "1,0"]), 256 * MIB)

    def test_more_is_refused(self):
        """The tests above rely on this: the service holds a copy to its limit."""
        with tempfile.TemporaryDirectory(prefix="tmad-copy-") as directory, \
                Tmad(f"--mapped-bytes-per-uid={6 * MIB}") as tmad:
            src, dst = (os.path.join(directory, file) for file in ("in.npy", "out.npy"))
            make_file(src, (SIDE, SIDE // 2), "f4", "C")
            status, said, _ = run([TMACTL, "--socket", tmad.path, "copy", src, dst, "--permute", "1,0"])
            self.assertEqual(status, 1, said)
            self.assertIn("mapped_bytes_per_uid", said)


if __name__ == "__main__":
    tap.main()

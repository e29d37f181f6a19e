# SPDX-License-Identifier: Apache-2.0
"""tmactl copy through pipes: the output is what NumPy computes, nothing else is written there, and exit codes are
right."""
import fcntl
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from cases import KEEP, TmactlCase
from terminal import Terminal, plain
from tmad import NATIVE, TMACTL, Tmad, scaled, wait_until

MIB = 1 << 20
N = 1 if NATIVE else 4  # divisor of the amounts of data


def npy(array, version=None):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version)
    return file.getvalue()


def numbers(shape, dtype="<u4", order="C"):
    count = int(np.prod(shape))
    return (np.arange(count, dtype="u4") * np.uint32(2654435761)).astype(dtype).reshape(shape, order=order)


def mirrored(n, before, after):
    """Returns the indexes of mode reflect. (NumPy 1.24's own pad is wrong if a source is mirrored many times.)"""
    return n - 1 - np.abs(np.arange(-before, n + after) % (2 * (n - 1)) - (n - 1))


class Case(TmactlCase):
    def command(self, *args, socket_path=None):
        return [TMACTL, "--socket", socket_path or self.tmad.path, "copy", *map(str, args)]

    def copy(self, data, *args, code=0, env=None, **options):
        """Returns the output and the messages."""
        done = subprocess.run(self.command(*args, **options), input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=scaled(60), check=False, env={**os.environ, **(env or {})})
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout, done.stderr.decode()

    def refuses(self, words, data, *args, code=1, **options):
        """Checks that there is no output, that one line is printed, and that an existing file is unchanged."""
        self.file("out.npy", KEEP)
        before = sorted(os.listdir(self.directory))
        out, said = self.copy(data, *args, code=code, **options)
        self.assertEqual(out, b"")
        self.assertEqual(said.count("\n"), 1, said)
        for word in words:
            self.assertIn(word, said)
        self.assertEqual(sorted(os.listdir(self.directory)), before)
        with open(self.dst, "rb") as file:
            self.assertEqual(file.read(), KEEP)

    def is_array(self, data, expected):
        file = io.BytesIO(data)
        array = np.load(file)
        self.assertEqual((array.dtype, array.shape), (expected.dtype, expected.shape))
        self.assertTrue(np.array_equal(array, expected))
        self.assertEqual(file.read(), b"", "nothing after it")


class Pipes(Case):
    def test_what_comes_out(self):
        images = (16, 96 // N, 112, 32)
        rows = (
            ("one", (), "<f8", "C", [], lambda a: a), ("empty", (0, 3), "<f4", "C", ["--permute", "1,0"], lambda a: a.T),
            ("small", (3, 4, 5), "<i2", "C", ["--permute", "2,0,1"], lambda a: a.transpose(2, 0, 1)),
            ("unchanged", (MIB * 4 // N,), "<u4", "C", [], lambda a: a),
            ("Fortran order", (2048 // N, 2048), "<u4", "F", [], lambda a: a),
            ("Fortran order, transposed", (2048 // N, 2048), "<u4", "F", ["--permute", "1,0"], lambda a: a.T),
            ("images", images, "<u4", "C", ["--permute", "0,3,1,2"], lambda a: a.transpose(0, 3, 1, 2)),
            ("all over", images, "<u4", "C", ["--permute", "3,1,0,2"], lambda a: a.transpose(3, 1, 0, 2)),
            ("cropped", (5 * MIB // N,), "u1", "C", ["--pad=-1000:-70000"], lambda a: a[1000:-70000]),
            ("bordered", (3000 // N, 999), "<f4", "C", ["--pad", "1:2,3:4", "--value", "7"],
             lambda a: np.pad(a, ((1, 2), (3, 4)), constant_values=7)),
            ("edges", (3000 // N, 999), "<f4", "C", ["--pad", "1:2,3:4", "--mode", "edge"],
             lambda a: np.pad(a, ((1, 2), (3, 4)), "edge")),
            ("mirrored", (300000 // N,), "u1", "C", ["--pad", "9:700000", "--mode", "reflect"],
             lambda a: a[mirrored(len(a), 9, 700000)]),
        )
        for name, shape, dtype, order, args, expected in rows:
            array = numbers(shape, dtype, order)
            for memory in ("1M", "4M", "256M"):
                with self.subTest(name=name, memory=memory):
                    out, said = self.copy(npy(array), "-", "-", *args, "--memory", memory)
                    self.is_array(out, expected(array))
                    self.assertRegex(said, r"^standard input -> standard output  .*\n$")

    def test_versions(self):
        array = numbers((30, 40))
        for version in ((1, 0), (2, 0), (3, 0)):
            with self.subTest(version=version):
                out, _ = self.copy(npy(array, version), "-", "-", "--permute", "1,0")
                self.is_array(out, array.T)

    def test_either_side(self):
        array = numbers((300, 40))
        path = self.file("in.npy", npy(array))
        out, said = self.copy(None, path, "-", "--permute", "1,0")
        self.is_array(out, array.T)
        self.assertIn("in.npy -> standard output", said)
        out, said = self.copy(npy(array), "-", self.dst, "--permute", "1,0")
        self.assertTrue(out.decode().startswith("standard input -> "), "the array is elsewhere")
        self.assertEqual(said, "")
        self.assertTrue(np.array_equal(np.load(self.dst), array.T))
        self.assertFalse(os.path.exists(os.path.join(os.getcwd(), "-")))

    def test_what_is_said_is_said_elsewhere(self):
        data = npy(numbers((30, 40)))
        self.assertEqual(json.loads(self.copy(data, "-", "-", "--json")[1])["dst_shape"], [30, 40])
        self.assertEqual(self.copy(data, "-", "-", "-q")[1], "")

    def test_by_name(self):
        array = numbers((300, 400 // N))
        fifos = self.file("in"), self.file("out")
        for fifo in fifos:
            os.mkfifo(fifo)
        with subprocess.Popen(self.command(*fifos, "--permute", "1,0", "-q"), stderr=subprocess.PIPE) as copy:
            with subprocess.Popen(["cat", fifos[1]], stdout=subprocess.PIPE) as cat:
                with open(fifos[0], "wb") as file:
                    file.write(npy(array))
                self.is_array(cat.communicate(timeout=scaled(20))[0], array.T)
            self.assertEqual((copy.wait(scaled(20)), copy.stderr.read()), (0, b""))
        out, _ = self.copy(npy(array), "/dev/stdin", "/dev/stdout", "--permute", "1,0")
        self.is_array(out, array.T)
        self.copy(npy(array), "-", "/dev/null")

    @unittest.skipUnless(shutil.which("bash"), "no bash here")
    def test_process_substitution(self):
        array = numbers((300, 400 // N))
        path = self.file("in.npy", npy(array))
        script = 'tmactl=$1 in=$2 out=$3; shift 3; "$tmactl" "$@" copy -q <(cat "$in") >(cat >"$out.part"; mv "$out.part" "$out")'
        done = subprocess.run(["bash", "-c", script, "bash", TMACTL, path, self.dst, "--socket", self.tmad.path],
                              stderr=subprocess.PIPE, timeout=scaled(20), check=False)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        wait_until(lambda: os.path.exists(self.dst), "cat has written it")
        self.assertTrue(np.array_equal(np.load(self.dst), array))

    def test_files_as_standard_input_and_output(self):
        """Files are read and written from their current position, where the next command continues."""
        arrays = numbers((30, 40)), numbers((7, 9), "<i2")
        path = self.file("in", b"".join(map(npy, arrays)))
        with open(path, "rb") as source, open(self.file("out", b"first"), "r+b") as target:
            target.seek(5)
            for array in arrays:
                done = subprocess.run(self.command("-", "-", "-q", "--permute", "1,0"), stdin=source, stdout=target,
                                      timeout=scaled(20), check=False)
                self.assertEqual(done.returncode, 0)
            target.seek(0)
            self.assertEqual(target.read(), b"first" + b"".join(npy(np.ascontiguousarray(array.T)) for array in arrays))

    def test_what_follows_in_a_pipe_is_left_there(self):
        arrays = numbers((30, 40)), numbers((7, 9), "<i2")
        reader, writer = os.pipe()
        os.write(writer, b"".join(map(npy, arrays)))
        os.close(writer)
        with os.fdopen(reader, "rb") as source:
            for array in arrays:
                done = subprocess.run(self.command("-", "-", "-q"), stdin=source, stdout=subprocess.PIPE, timeout=scaled(20),
                                      check=False)
                self.is_array(done.stdout, array)


class Memory(Case):
    """Temporary data is kept in memory if that suffices, otherwise in $TMPDIR, and nowhere if the order needs none."""
    nowhere = {"TMPDIR": "/nonexistent"}

    def test_in_order_nothing_is_kept(self):
        images = numbers((64 // N, 64, 64, 16))
        for args, expected in (([], images), (["--permute", "0,3,1,2"], images.transpose(0, 3, 1, 2)),
                               (["--pad=-1:0,0:0,0:0,0:0"], images[1:])):
            with self.subTest(args=args):
                out, _ = self.copy(npy(images), "-", "-", *args, "--memory", "1.5M", env=self.nowhere)
                self.is_array(out, expected)

    def test_in_memory(self):
        matrix = numbers((1024, 512))
        out, _ = self.copy(npy(matrix), "-", "-", "--permute", "1,0", "--memory", "16M", env=self.nowhere)
        self.is_array(out, matrix.T)

    def test_in_a_file(self):
        matrix = numbers((4096 // N, 1024))
        place = self.file("tmp")
        os.mkdir(place)
        out, _ = self.copy(npy(matrix), "-", "-", "--permute", "1,0", "--memory", "2M", env={"TMPDIR": place})
        self.is_array(out, matrix.T)
        self.assertEqual(os.listdir(place), [])
        self.refuses(["standard input", "/nonexistent", "No such file"], npy(matrix), "-", self.dst, "--permute", "1,0", "--memory",
                     "2M", env=self.nowhere)

    @unittest.skipIf(not NATIVE, "too much for a sanitizer or an emulator")
    def test_an_output_in_a_file(self):
        """Rows that exceed the memory, whose elements lie far apart."""
        matrix = numbers((33000, 256), "<c16")
        place, path = self.file("tmp"), self.file("in.npy", npy(matrix))
        os.mkdir(place)
        out, _ = self.copy(None, path, "-", "--permute", "1,0", "--memory", "1M", env={"TMPDIR": place})
        self.is_array(out, matrix.T)
        self.assertEqual(os.listdir(place), [])
        self.refuses(["standard output", "/nonexistent", "No such file"], None, path, "-", "--permute", "1,0", "--memory", "1M",
                     env=self.nowhere)

    def test_the_service_is_held_to_it(self):
        matrix = numbers((4096 // N, 2048))
        with Tmad(f"--mapped-bytes-per-uid={2 * MIB}") as tmad:
            for args, expected in (([], matrix), (["--permute", "1,0"], matrix.T)):
                out, _ = self.copy(npy(matrix), "-", "-", *args, "--memory", "2M", socket_path=tmad.path)
                self.is_array(out, expected)


class Ends(Case):
    def test_cut_short(self):
        data = npy(numbers((1000, 1000)))
        for cut in (0, 3, 7, 9, 40, 128, len(data) // 2, len(data) - 1):
            for args in ([], ["--permute", "1,0"], ["--pad=0:-999,0:0"]):
                with self.subTest(cut=cut, args=args):
                    self.refuses(["standard input: truncated: it ends at byte " + str(cut)], data[:cut], "-", self.dst, *args)

    def test_cut_short_into_a_pipe(self):
        """Output for what was read before the end may already be written."""
        data = npy(numbers((4000, 1000)))
        out, said = self.copy(data[:-1], "-", "-", "--memory", "1M", code=1)
        self.assertTrue(data.startswith(out))
        self.assertIn(f"truncated: it ends at byte {len(data) - 1}", said)

    def test_no_array(self):
        self.refuses(["standard input: not an .npy file"], b"hello, this is a text\n" * 9, "-", self.dst)
        self.refuses(["standard input: not an .npy file (an .npz archive"], b"PK\x03\x04" * 9, "-", "-")
        self.refuses(["standard input: .npy version 9.0"], b"\x93NUMPY\x09\x00" * 9, "-", "-")

    def test_nothing_is_sent_before_it_can_be(self):
        data = npy(numbers((30, 40)))
        self.refuses(["--permute 1,1"], data, "-", "-", "--permute", "1,1", code=2)
        out, said = self.copy(data, "-", "-", code=1, socket_path=self.file("nobody"))
        self.assertEqual((out, "no tmad at" in said), (b"", True))

    def test_nobody_reads_on(self):
        path = self.file("in.npy", npy(numbers((2000, 1000))))
        for args in ([], ["--permute", "1,0"]):
            for wanted in (0, 100):
                with self.subTest(args=args, wanted=wanted), subprocess.Popen(
                        self.command(path, "-", *args), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as copy:
                    self.assertEqual(len(copy.stdout.read(wanted)), wanted)
                    copy.stdout.close()
                    self.assertEqual(copy.wait(scaled(20)), 1)
                    self.assertEqual(copy.stderr.read(), b"tmactl: standard output: the reader has closed it (Broken pipe)\n")

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full here")
    def test_full(self):
        self.refuses(["/dev/full: cannot be written (No space left on device)"], npy(numbers((30, 40))), "-", "/dev/full")

    def test_terminals(self):
        path = self.file("in.npy", npy(numbers((30, 40))))
        for args, word in (((path, "-"), "standard output: is a terminal"), (("-", self.dst), "standard input: is a terminal")):
            terminal = Terminal(self.command(*args))
            self.addCleanup(terminal.__exit__, None, None, None)
            self.assertEqual(terminal.end(), 1)
            self.assertIn(word, plain(terminal.output))
            self.assertNotIn("NUMPY", terminal.output)
        self.assertFalse(os.path.exists(self.dst))

    def test_signals(self):
        """A signal arrives while tmactl waits for its input to begin or go on, for a reader, or for the other side of a
        FIFO."""
        data = npy(numbers((2000, 1000)))
        path, fifo = self.file("in.npy", data), self.file("fifo")
        os.mkfifo(fifo)
        rows = (("-", self.dst, b""), ("-", self.dst, data[:50]), ("-", "-", data[:50000]), (path, "-", b""),
                (fifo, self.dst, b""), (path, fifo, b""))
        for src, dst, some in rows:
            with self.subTest(src=src, dst=dst, some=len(some)):
                before = sorted(os.listdir(self.directory))
                with subprocess.Popen(self.command(src, dst), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as copy:
                    fcntl.fcntl(copy.stdin, fcntl.F_SETPIPE_SZ, MIB)
                    copy.stdin.write(some)
                    copy.stdin.flush()
                    time.sleep(0.3)
                    self.assertIsNone(copy.poll())
                    copy.send_signal(signal.SIGTERM)
                    self.assertEqual(copy.wait(scaled(10)), -signal.SIGTERM)
                self.assertEqual(sorted(os.listdir(self.directory)), before)

    def test_a_slow_writer_and_a_slow_reader(self):
        array = numbers((700, 1000))
        data = npy(array)
        with subprocess.Popen(self.command("-", "-", "-q", "--permute", "1,0"), stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as copy:
            def write():
                for at in range(0, len(data), 99991):
                    copy.stdin.write(data[at:at + 99991])
                    copy.stdin.flush()
                    time.sleep(0.005)
                copy.stdin.close()
            writer = threading.Thread(target=write)
            writer.start()
            out = b""
            while part := copy.stdout.read(77777):
                out += part
                time.sleep(0.005)
            writer.join()
        self.is_array(out, array.T)


if __name__ == "__main__":
    tap.main()

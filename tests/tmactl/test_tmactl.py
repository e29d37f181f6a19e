# SPDX-License-Identifier: Apache-2.0
"""tmactl on bad input and bad days: the exit code, one line that names the thing, and nothing harmed."""
import grp
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from cases import KEEP, TmactlCase
from liar import Liar
from tmad import ENGINE, TMACTL, TMAD, Tmad, own_environment, scaled, tmactl, wait_until



def npy(header, data=b"", version=(1, 0)):
    """Returns a .npy file with any header."""
    text = header.encode() if isinstance(header, str) else header
    form = "<H" if version == (1, 0) else "<I"
    return b"\x93NUMPY" + bytes(version) + struct.pack(form, len(text)) + text + data


class Case(TmactlCase):
    def setUp(self):
        super().setUp()
        self.src = self.file("in.npy")
        self.nobody = self.file("nobody")  # a socket path where nothing listens
        np.save(self.src, np.arange(64, dtype="<f4").reshape(4, 4, 4))

    def run_tmactl(self, *args, **options):
        options.setdefault("socket_path", self.tmad.path)
        return tmactl(*args, **options)

    def fails(self, code, words, *args, lines=1, **options):
        """Checks that the command fails with the code and one line, and leaves the directory as it was."""
        self.file("out.npy", KEEP)
        before = sorted(os.listdir(self.directory))
        done = self.run_tmactl(*args, **options)
        self.was_refused(done.returncode, done.stdout, done.stderr, code, words, lines)
        self.assertEqual(sorted(os.listdir(self.directory)), before, "no file more, none less")
        with open(self.dst, "rb") as file:
            self.assertEqual(file.read(), KEEP, "the destination is as it was")

    def was_refused(self, returncode, stdout, stderr, code, words, lines=1):
        self.assertEqual((returncode, stdout), (code, ""), stderr)
        self.assertEqual(stderr.count("\n"), lines, stderr)
        self.assertTrue(stderr.startswith("tmactl: "), stderr)
        for word in words:
            self.assertIn(word, stderr)


class Usage(Case):
    def test_bad_usage(self):
        s, d = self.src, self.dst
        rows = (
            ([], ["command"]), (["frobnicate"], ["frobnicate"]), (["--nothing"], ["--nothing"]),
            (["copy"], ["copy"]), (["copy", s], ["copy"]), (["copy", s, d, "third"], ["copy", "two"]),
            (["copy", "--colour", "red", s, d], ["--colour"]),
            (["copy", s, d, "--permute"], ["--permute"]),
            (["copy", s, d, "--permute", "0,x,1"], ["--permute", "0,x,1"]),
            (["copy", s, d, "--permute", ""], ["--permute"]),
            (["copy", s, d, "--permute", "0,1,99999999999999999999"], ["--permute"]),
            (["copy", s, d, "--permute", "0,2,2"], ["--permute", "0,2,2", "2"]),
            (["copy", s, d, "--permute", "0,-1,2"], ["--permute", "2 appears twice"]),
            (["copy", s, d, "--permute", "0,-4,1"], ["--permute", "no dimension -4"]),
            (["copy", s, d, "--pad", "1"], ["--pad", "1"]), (["copy", s, d, "--pad", "1:2:3"], ["--pad"]),
            (["copy", s, d, "--pad", "1:x"], ["--pad", "1:x"]),
            (["copy", s, d, "--mode", "mirror"], ["--mode", "mirror", "reflect"]),
            (["copy", s, d, "--value", "seven"], ["--value", "seven"]),
            (["copy", s, d, "--memory", "lots"], ["--memory", "lots"]),
            (["copy", s, d, "--value", "3"], ["--value 3: nothing is padded"]),
            (["copy", s, d, "--mode", "reflect"], ["--mode reflect: nothing is padded"]),
            (["copy", s, d, "--mode", "reflect", "--value", "3", "--pad", "1:1,1:1,1:1"], ["--value 3", "reflect"]),
            (["explain", s, "--mode", "reflect"], ["--mode reflect: nothing is padded"]),
            (["bench", "--kind", "transform", "--shape", "4", "--value", "3"], ["--value 3: nothing is padded"]),
            (["bench", "--src-device", "0"], ["--src-device belongs to --kind copy, transpose and transform, not to ping"]),
            (["explain", "--dtype", "float7", "--shape", "1,2"], ["float7"]),
            (["explain", "--dtype", "float32", "--shape", "1,y"], ["--shape", "1,y"]),
            (["explain", "--dtype", "float32"], ["--shape"]), (["ping", "extra"], ["extra"]),
        )
        for args, words in rows:
            with self.subTest(args=args[:1] + args[3:]):
                self.fails(2, words, *args)

    def test_the_nearest_is_suggested(self):
        rows = (
            (["copy", "--permtue", "1,0"], "unknown option --permtue; did you mean --permute?"),
            (["copy", "--permtue=1,0"], "unknown option --permtue; did you mean --permute?"),
            (["bench", "--connection_s", "2"], "unknown option --connection_s; did you mean --connections?"),
            (["--sokcet", "s", "ping"], "unknown option --sokcet; did you mean --socket?"),
            (["stats", "--jsno"], "unknown option --jsno; did you mean --json?"),
            (["copy", "--nothing-like-it"], "unknown option --nothing-like-it; tmactl help copy lists the options"),
            (["copy", "-x"], "unknown option -x; tmactl help copy lists the options"),
            (["top", "-xn", "1"], "unknown option -x; tmactl help top lists the options"),
            (["--nothing-like-it"], "unknown option --nothing-like-it; tmactl help lists the options"),
            (["stats", "--json=1"], "--json takes no value"),
            (["cpoy"], "unknown command cpoy; did you mean copy?"), (["stat"], "unknown command stat; did you mean stats?"),
            (["help", "tensor"], "unknown command tensor; tmactl help lists the commands"),
            (["frobnicate"], "unknown command frobnicate; tmactl help lists the commands"),
        )
        for args, line in rows:
            with self.subTest(args=args):
                done = self.run_tmactl(*args, socket_path=None)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (2, "", f"tmactl: {line}\n"))

    def test_short_forms(self):
        array = np.load(self.src)
        rows = ((["--permute", "-1,0,1"], array.transpose(2, 0, 1)), (["--permute", "0, -1, 1"], array.transpose(0, 2, 1)),
                (["--pad", "1 : 0, 0:0 ,-1:0", "--value", "3", "--memory", "1.5M"],
                 np.pad(array[:, :, 1:], ((1, 0), (0, 0), (0, 0)), constant_values=3)))
        for args, expected in rows:
            with self.subTest(args=args):
                done = self.run_tmactl("copy", self.src, self.dst, *args)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertTrue(np.array_equal(np.load(self.dst), expected))
        plans = [json.loads(self.run_tmactl("explain", "--json", "--dtype", dtype, "--shape", shape, "--permute", permute).stdout)
                 for dtype, shape, permute in (("float32", "64,32", "1,0"), ("<f4", "64, 32", "-1,-2"))]
        self.assertEqual(plans[0], plans[1])

    def test_does_not_fit_the_file(self):
        s, d = self.src, self.dst
        rows = (
            (["--permute", "1,0"], ["--permute", "1,0", "3"]), (["--permute", "0,1,3"], ["--permute", "3"]),
            (["--pad", "1:1"], ["--pad", "1 dimension, but the file has 3"]), (["--pad", "0:0,-2:-2,0:0"], ["--pad", "4"]),
            (["--pad", "0:0,0:-9,0:0"], ["--pad", "-9"]),
            (["--pad", "0:0,0:0,0:9223372036854775807"], []),
            (["--pad", "0:0,0:0,4611686018427387904:4611686018427387904"], []),
        )
        for args, words in rows:
            with self.subTest(args=args):
                self.file("out.npy", KEEP)
                done = self.run_tmactl("copy", s, d, *args)
                self.assertIn(done.returncode, (1, 2), done.stderr)
                self.fails(done.returncode, words, "copy", s, d, *args)

    def test_values_that_do_not_fit_the_type(self):
        np.save(self.src, np.zeros(4, "<i1"))
        for value in ("300", "0.5", "-129", "nan"):
            with self.subTest(value=value):
                self.file("out.npy", KEEP)
                done = self.run_tmactl("copy", self.src, self.dst, "--pad", "1:0", "--value", value)
                self.assertIn(done.returncode, (1, 2), done.stderr)
                self.fails(done.returncode, ["value"], "copy", self.src, self.dst, "--pad", "1:0", "--value", value)

    def test_help_and_version(self):
        for args, word in ((["--help"], "copy"), (["copy", "--help"], "--permute"), (["--version"], "0.")):
            with self.subTest(args=args):
                done = self.run_tmactl(*args, socket_path=None)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn(word, done.stdout)


class Files(Case):
    def test_files_that_are_none_or_wrong(self):
        good = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }\n", bytes(16))
        object_array = self.file("object.npy")
        np.save(object_array, np.array([{}, 1], dtype=object), allow_pickle=True)
        header = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n"
        rows = (
            ("empty", b"", []), ("text", b"hello, this is a text\n" * 9, ["npy"]), ("magic only", good[:6], []),
            ("version 9", b"\x93NUMPY\x09\x00" + good[8:], ["9"]), ("header cut", good[:30], []),
            ("header length huge", b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + good[10:], []),
            ("data cut", good[:-1], ["16", "15"]), ("no data", good[:-16], ["16"]),
            ("no shape", npy("{'descr': '<f4', 'fortran_order': False}\n", bytes(16)), ["shape"]),
            ("no dictionary", npy("[1, 2, 3]\n", bytes(16)), []),
            ("shape negative", npy(header % ("<f4", "(-4,)"), bytes(16)), ["-4"]),
            ("shape overflows", npy(header % ("<f4", "(4611686018427387904, 4611686018427387904)"), bytes(16)), []),
            ("size overflows", npy(header % ("<f4", "(9223372036854775807,)"), bytes(16)), []),
            ("dim past 64 bits", npy(header % ("<f4", "(99999999999999999999999,)"), bytes(16)), []),
            ("rank 33", npy(header % ("<f4", "(" + "1," * 33 + ")"), bytes(4)), ["33", "32"]),
            ("shape of texts", npy(header % ("<f4", "('4',)"), bytes(16)), ["shape"]),
            ("unknown type", npy(header % ("<q7", "(4,)"), bytes(99)), ["<q7"]),
            ("never closed", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4,", bytes(16)), []),
            ("nested deep", npy("{'descr': " + "[" * 5000 + "\n", bytes(16)), []),
        )
        for what, data, words in rows:
            with self.subTest(what=what):
                self.fails(1, ["bad.npy", *words], "copy", self.file("bad.npy", data), self.dst)
        self.fails(1, ["object.npy", "object"], "copy", object_array, self.dst)

    def test_paths(self):
        missing, nowhere = self.file("missing.npy"), os.path.join(self.directory, "nowhere", "out.npy")
        self.fails(1, ["missing.npy", "No such file"], "copy", missing, self.dst)
        self.fails(1, [self.directory, "directory"], "copy", self.directory, self.dst)
        self.fails(1, ["nowhere", "No such file"], "copy", self.src, nowhere)
        self.fails(1, [self.directory], "copy", self.src, self.directory)
        self.fails(1, ["a terminal"], "copy", "/dev/ptmx", self.dst, timeout=10)

    def test_no_clobber(self):
        self.fails(1, [self.dst, "already exists, and --no-clobber protects it"], "copy", "--no-clobber", self.src, self.dst)
        os.unlink(self.dst)
        done = self.run_tmactl("copy", "--no-clobber", self.src, self.dst)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(np.array_equal(np.load(self.dst), np.load(self.src)))

    @unittest.skipIf(os.geteuid() != 0, "only root gives files away")
    def test_a_file_of_somebody_elses_stays_theirs(self):
        self.file("out.npy", KEEP)
        os.chown(self.dst, 12345, 23456)
        os.chmod(self.dst, 0o640)
        done = self.run_tmactl("copy", self.src, self.dst)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        after = os.stat(self.dst)
        self.assertEqual((after.st_uid, after.st_gid, after.st_mode & 0o7777), (12345, 23456, 0o640))

    def test_onto_itself(self):
        """Source and destination may be one file, which is replaced when everything is done."""
        array = np.load(self.src)
        done = self.run_tmactl("copy", self.src, self.src, "--permute", "2,1,0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(np.array_equal(np.load(self.src), array.T))

    def test_a_destination_keeps_its_mode_or_gets_the_usual_one(self):
        self.assertEqual(self.run_tmactl("copy", self.src, self.dst).returncode, 0)
        umask = os.umask(0)
        os.umask(umask)
        self.assertEqual(os.stat(self.dst).st_mode & 0o777, 0o666 & ~umask)

    def test_read_only_directory(self):
        script = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
        self.in_namespace(script, self.directory)
        self.file("out.npy", KEEP)
        done = self.in_namespace(script, self.directory, TMACTL, "--socket", self.tmad.path, "copy", self.src, self.dst)
        self.was_refused(done.returncode, done.stdout, done.stderr, 1, ["Read-only file system"])

    def test_full_disk(self):
        script = 'mount -t tmpfs -o size=256k none "$1" && cd "$1" && shift && echo keep >out.npy && "$@"; ' \
                 'code=$?; echo "$(ls) $(cat out.npy)"; exit $code'
        big = self.file("big.npy")
        np.save(big, np.zeros(1 << 18, "<f4"))
        place = os.path.join(self.directory, "small")
        os.mkdir(place)
        self.in_namespace(script, place, "true")
        done = self.in_namespace(script, place, TMACTL, "--socket", self.nobody, "copy", big, "out.npy")
        self.assertEqual(done.stdout, "out.npy keep\n", "the old file, and nothing else")
        self.was_refused(done.returncode, "", done.stderr, 1, ["out.npy: no space: it needs 10", "No space left", "free"])

    def test_a_disk_that_cannot_reserve(self):
        """ext2 has no fallocate, so its free space counts."""
        image, place, big = self.file("image", b""), os.path.join(self.directory, "small"), self.file("big.npy")
        if not shutil.which("mkfs.ext2"):
            self.skipTest("mkfs.ext2 is not installed")
        os.mkdir(place)
        os.truncate(image, 8 << 20)
        subprocess.run(["mkfs.ext2", "-q", "-F", image], check=True, timeout=scaled(60))
        script = f'mount -o loop "{image}" "$1" && cd "$1" && shift && "$@"'
        self.in_namespace(script, place, "true")
        np.save(big, np.zeros(3 << 20, "<f4"))
        done = self.in_namespace(script, place, TMACTL, "--socket", self.nobody, "copy", big, "out.npy")
        self.was_refused(done.returncode, done.stdout, done.stderr, 1, ["out.npy: no space: it needs 12583040 bytes", "free"])
        np.save(big, np.zeros(1 << 20, "<f4"))
        done = self.in_namespace(script, place, TMACTL, "-q", "--socket", self.tmad.path, "copy", big, "out.npy")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def in_namespace(self, script, *args):
        """Runs with mounts of its own; skips the test where the sandbox does not allow that."""
        unshare = ["unshare", "-m"] + ([] if os.geteuid() == 0 else ["-r"])
        done = subprocess.run([*unshare, "sh", "-c", script, "sh", *args], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
                              timeout=scaled(60), check=False) if shutil.which("unshare") else None
        if len(args) <= 2 and (done is None or done.stderr):
            self.skipTest("no mounts here: " + (done.stderr.strip() if done else "unshare is not installed"))
        return done

    def test_file_size_limit(self):
        """The limit is noticed before the service is asked, whatever the array is written to."""
        np.save(self.src, np.zeros((512, 512), "<f4"))

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        most = 786432
        words = ["it needs 1048704 bytes (File too large: ulimit -f allows 786432 bytes; raise it)"]
        self.fails(1, ["out.npy: too large: ", *words], "copy", self.src, self.dst, preexec_fn=limit, restore_signals=False,
                   socket_path=self.nobody)
        with open(self.file("plain.npy"), "wb") as file:
            done = subprocess.run([TMACTL, "--socket", self.nobody, "copy", self.src, "-"], stdout=file, stderr=subprocess.PIPE,
                                  encoding="utf-8", preexec_fn=limit, restore_signals=False, timeout=scaled(30), check=False)
        self.was_refused(done.returncode, "", done.stderr, 1, ["standard output: too large: ", *words])
        np.save(self.src, np.zeros((1024, 1024), "<f4"))
        with open(self.src, "rb") as file:  # buffered, because the order is another
            source = subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE)
            done = subprocess.run([TMACTL, "--socket", self.nobody, "copy", "-", "-", "--permute", "1,0", "--memory", "1M"],
                                  stdin=source.stdout, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
                                  preexec_fn=limit, restore_signals=False, timeout=scaled(30), check=False)
            source.stdout.close()
            source.wait()
        self.was_refused(done.returncode, done.stdout, done.stderr, 1, ["too large to buffer it in a file of ", "ulimit -f"])


class BadDays(Case):
    def big(self):
        """Makes a file whose copy takes long enough to be interrupted; it consists of holes."""
        path = self.file("big.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (16384, 8192), }\n"))
        os.truncate(path, os.stat(path).st_size + 16384 * 8192 * 4)
        return path

    def start_copy(self, tmad, hold):
        """Starts a copy; with hold, its daemon is stopped meanwhile."""
        self.file("out.npy", KEEP)
        src = self.big()
        self.names = sorted(os.listdir(self.directory))
        copy = subprocess.Popen([TMACTL, "--socket", tmad.path, "copy", src, self.dst, "--permute", "1,0",
                                 "--memory", "2000000", "--timeout", "2000"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, encoding="utf-8")
        self.addCleanup(copy.kill)
        with tmad.rpc() as rpc:
            wait_until(lambda: sum(rpc.call("stats")["bytes"].values()) > 4 << 20, "some of it is moved")
        if hold:
            os.kill(tmad.pid, signal.SIGSTOP)
            time.sleep(0.1)
        self.assertIsNone(copy.poll(), "the copy is under way")
        return copy

    def is_as_before(self):
        self.assertEqual(sorted(os.listdir(self.directory)), self.names, "no temporary file is left")
        with open(self.dst, "rb") as file:
            self.assertEqual(file.read(), KEEP)

    def test_no_daemon(self):
        path = self.file("nobody")
        for command in (["ping"], ["info"], ["stats"], ["regions"], ["copy", self.src, self.dst]):
            with self.subTest(command=command[0]):
                self.fails(1, [path, "No such file", "tmad"], *command, socket_path=path, lines=2)
        environment = {name: value for name, value in os.environ.items() if name != "TMAD_SOCKET"}
        self.fails(1, [path], "ping", socket_path=None, env={**environment, "TMAD_SOCKET": path}, lines=2)

    def test_the_daemon_is_killed(self):
        tmad = Tmad()
        self.addCleanup(tmad.stop)
        copy = self.start_copy(tmad, hold=True)
        tmad.kill()
        out, err = copy.communicate(timeout=scaled(20))
        self.was_refused(copy.returncode, out, err, 1, [tmad.path, "it did not come back within 2 s"])
        self.is_as_before()

    def test_interrupted(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            for hold in (False, True):
                with self.subTest(signal=number.name, hold=hold), Tmad() as tmad:
                    copy = self.start_copy(tmad, hold)
                    copy.send_signal(number)
                    try:
                        out, _ = copy.communicate(timeout=scaled(5))
                    finally:
                        os.kill(tmad.pid, signal.SIGCONT)
                    self.assertEqual((copy.returncode, out), (-number, ""), "it dies of the signal, for the shell")
                    self.is_as_before()

    def test_no_progress_when_piped(self):
        done = self.run_tmactl("copy", self.big(), self.dst, "--permute", "1,0")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.count("\n"), 1, done.stdout)
        self.assertNotIn("\r", done.stdout)


class Trust(Case):
    @unittest.skipIf(os.geteuid() != 0, "only root can start a server of another user")
    def test_a_server_of_another_user(self):
        """A server of another user would get a handle to memory, so it gets nothing unless it is named explicitly."""
        os.chmod(self.directory, 0o777)
        path = self.file("s")
        with subprocess.Popen([TMAD, "--engine", "cpu", "--socket", path], user=65534, stderr=subprocess.PIPE) as tmad:
            try:
                while (line := tmad.stderr.readline()).startswith(b"--"):  # valgrind's
                    pass
                self.assertIn(b"ready", line)
                done = self.run_tmactl("ping", socket_path=path)
                self.was_refused(done.returncode, done.stdout, done.stderr, 1, ["65534", "--server-user"], 1)
                for name in ("65534", "nobody"):
                    done = self.run_tmactl("--server-user", name, "ping", socket_path=path)
                    self.assertEqual((done.returncode, done.stderr), (0, ""), name)
                for name in ("no such user", "-1", ""):
                    done = self.run_tmactl("--server-user", name, "ping", socket_path=path)
                    self.was_refused(done.returncode, done.stdout, done.stderr, 2, ["--server-user"], 1)
            finally:
                tmad.terminate()

    def test_a_service_that_is_not_there(self):
        """The suggested path is one that the user can create."""
        directory = tempfile.mkdtemp(prefix="tmad-tmactl-")
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        possible = os.path.join(directory, "s")
        elsewhere = f"/tmp/tmad-{os.getuid()}.sock"
        rows = ((possible, "", possible), ("s", "", "s"), (f"@tmad-test-{os.getpid()}", "", f"@tmad-test-{os.getpid()}"),
                ("/nowhere/s", "", elsewhere), ("/nowhere/s", "/nowhere", elsewhere),
                ("/nowhere/s", directory, f"{directory}/tmad.sock"))
        for path, runtime, own in rows:
            with self.subTest(path=path, runtime=runtime):
                done = self.run_tmactl("ping", socket_path=path, cwd=directory,
                                       env=dict(own_environment(), XDG_RUNTIME_DIR=runtime))
                words = [f"no tmad at {path} (", f"or: tmad --engine=cpu --socket {own}\n"]
                if own != path:
                    words.append(f"and use that: tmactl --socket {own}, or: export TMAD_SOCKET={own}\n")
                self.was_refused(done.returncode, done.stdout, done.stderr, 1, words, 2 + (own != path))

    @unittest.skipIf(os.path.exists("/run/tmad/tmad.sock"), "the machine has a service")
    def test_without_a_service(self):
        """tmactl moves and explains files itself, unless a service was named; commands about a service fail."""
        directory = tempfile.mkdtemp(prefix="tmad-tmactl-")
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        array = np.arange(12, dtype="u4").reshape(3, 4)
        np.save(os.path.join(directory, "a.npy"), array)
        env = dict(own_environment(), XDG_RUNTIME_DIR=directory)
        env.pop("TMAD_SOCKET", None)

        def run(*args, **more):
            return tmactl(*args, cwd=directory, env=dict(env, **more))

        done = run("copy", "a.npy", "b.npy", "--permute", "1,0")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(np.array_equal(np.load(os.path.join(directory, "b.npy")), array.T))
        done = run("copy", "-v", "a.npy", "c.npy", "--dtype", "float16", "--scale", "1/4")
        self.assertEqual((done.returncode, done.stderr.count("\n"), "this process does the work" in done.stderr),
                         (0, 1, True), done.stderr)
        self.assertTrue(np.array_equal(np.load(os.path.join(directory, "c.npy")), (array / 4).astype("f2")))
        done = run("explain", "--dtype", "float32", "--shape", "512,512", "--permute", "1,0")
        self.assertEqual((done.returncode, "engine cpu" in done.stdout), (0, True))
        done = run("bench", "--kind", "transpose", "--requests", "100")
        self.assertEqual((done.returncode, "errors    none" in done.stdout), (0, True), done.stdout + done.stderr)
        for args in (["ping"], ["copy", "a.npy", "d.npy", "--socket", "nowhere"]):
            self.assertEqual(run(*args).returncode, 1, args)
        self.assertEqual(run("copy", "a.npy", "d.npy", TMAD_SOCKET="nowhere").returncode, 1)
        self.assertFalse(os.path.exists(os.path.join(directory, "d.npy")))

    @unittest.skipIf(os.geteuid() != 0, "only root can run tmactl as another user")
    def test_what_an_ordinary_user_is_told(self):
        directory = tempfile.mkdtemp(prefix="tmad-tmactl-")
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        os.chmod(directory, 0o755)
        done = self.run_tmactl("ping", socket_path=f"{directory}/s", user=65534, group=65534, extra_groups=[],
                               env=dict(own_environment(), XDG_RUNTIME_DIR=directory))
        self.was_refused(done.returncode, done.stdout, done.stderr, 1, ["tmad --engine=cpu --socket /tmp/tmad-65534.sock\n"], 3)

    @unittest.skipIf(os.geteuid() != 0, "only root can run tmactl as another user")
    def test_who_is_not_of_the_group(self):
        os.chmod(os.path.dirname(self.tmad.path), 0o755)
        os.chmod(self.tmad.path, 0o660)
        os.chown(self.tmad.path, 0, grp.getgrnam("daemon").gr_gid)
        done = self.run_tmactl("ping", user=65534, group=65534, extra_groups=[])
        self.was_refused(done.returncode, done.stdout, done.stderr, 1,
                         [self.tmad.path, "Permission denied", "members of group daemon may connect: usermod -aG daemon"], 2)
        done = self.run_tmactl("ping", user=65534, group=65534, extra_groups=[grp.getgrnam("daemon").gr_gid])
        self.assertNotIn("members of group", done.stderr)

    @unittest.skipIf(os.geteuid() != 0, "only root can run tmactl as another user")
    def test_nobody_is_told_to_join_a_group_of_administrators(self):
        os.chmod(os.path.dirname(self.tmad.path), 0o755)
        os.chmod(self.tmad.path, 0o660)
        for group in ("root", "disk", "sudo", "shadow"):
            with self.subTest(group=group):
                os.chown(self.tmad.path, 0, grp.getgrnam(group).gr_gid)
                done = self.run_tmactl("ping", user=65534, group=65534, extra_groups=[])
                self.was_refused(done.returncode, done.stdout, done.stderr, 1,
                                 [self.tmad.path, f"its group, {group}, is for administrators", "SocketGroup="], 2)
                self.assertNotIn("usermod", done.stderr)


EVIL = "\x1b[2J\x9b\x07\r\x7f"


def lie(method, params):
    """Has a service answer with text that would control the user's terminal."""
    if method == "session_list":
        last = params and params[0].get("after")
        return [] if last else [{"session": 1, "uid": 0, "pid": 1, "regions": 1, "latency": []}]
    if method == "region_list":
        return [{"region": 1, "size": 1, "kind": EVIL, "state": EVIL}]
    return {"version": EVIL, "protocol": 1, "boot_id": EVIL, "note": EVIL, "device": EVIL, "engine": EVIL,
            "limits": {EVIL: 1}, "methods": [EVIL], "dtypes": [EVIL], "requests_by_method": {EVIL: 1},
            "errors": {EVIL: 1}, "bytes": {EVIL: 1}, "family": EVIL, "swizzle": EVIL, "shape": EVIL,
            "dst_strides": [EVIL], "src_strides": {EVIL: EVIL}, "rules": [{"family": EVIL, "rule": EVIL}]}


class Terminal(Case):
    """No text that others choose moves a cursor."""

    def is_harmless(self, text):
        for character in set(EVIL) - set("[2J"):
            self.assertNotIn(character, text)

    def test_a_hostile_service(self):
        with Liar(self.file("lies"), lie) as liar:
            for args in (["info"], ["stats"], ["regions"], ["top", "--once"], ["explain", "--shape=4", "--dtype=uint8"]):
                done = self.run_tmactl(*args, socket_path=liar.path)
                self.assertEqual((done.returncode, done.stderr), (0, ""), args)
                self.assertIn("x1b", done.stdout, args)
                self.is_harmless(done.stdout)

    def test_a_hostile_name_of_a_file(self):
        done = self.run_tmactl("copy", self.file(EVIL), self.dst)
        self.was_refused(done.returncode, done.stdout, done.stderr, 1, ["?[2J?"])
        self.is_harmless(done.stderr)


class Commands(Case):
    def output(self, *args):
        done = self.run_tmactl(*args)
        self.assertEqual((done.returncode, done.stderr), (0, ""), args)
        return done.stdout

    def test_copy_says_what_it_did(self):
        text = self.output("copy", self.src, self.dst, "--permute", "2,1,0")
        for word in ("in.npy", "out.npy", "tile_transpose"):
            self.assertIn(word, text)

    def test_flags_before_or_after(self):
        self.output("copy", "--permute=2,1,0", self.src, self.dst)
        self.output("copy", self.src, "--permute", "2,1,0", self.dst)

    def test_plain_outputs(self):
        for command, words in ((["ping"], []), (["info"], [ENGINE, "regions_per_uid"]), (["stats"], ["requests", "tensor maps"]),
                               (["explain", "--dtype", "float32", "--shape", "640,480", "--permute", "1,0"],
                                ["tile_transpose"])):
            with self.subTest(command=command[0]):
                text = self.output(*command)
                self.assertTrue(text.endswith("\n"))
                for word in words:
                    self.assertIn(word, text)
        self.output("regions")

    def test_stats_in_words(self):
        text = self.output("stats")
        self.assertRegex(text, r"(?m)^service +up .*, 1 open connection \(")
        self.assertRegex(text, r"(?m)^memory +0 regions of 0 B, 0 plans prepared, 0 tables prepared$")
        self.assertRegex(text, r"(?m)^queue +0 transforms, 0 connections waiting, 0 users stalled, 0 descriptors received, ")
        ones = {"connections": 1, "recoveries": 1, "regions": 1, "plans": 1, "tables": 1, "jobs": 1, "waiting": 1,
                "pending_fds": 1}
        with Liar(self.file("lies"), lambda *_: ones) as liar:
            text = self.run_tmactl("stats", socket_path=liar.path).stdout
        for words in (", 1 open connection (", ", 1 recovery of the device", " 1 region of ", ", 1 plan prepared", ", 1 table prepared",
                      " 1 transform,", ", 1 connection waiting", ", 1 descriptor received"):
            self.assertIn(words, text)
        text = self.output("stats")
        self.assertRegex(text, r"(?m)^requests +[\d ]+, [\d ]+(\.\d)? a second since the start$")

    def test_json(self):
        info = json.loads(self.output("info", "--json"))
        self.assertEqual(info["engine"], ENGINE)
        self.assertEqual(json.loads(self.output("stats", "--json"))["connections"], 1)
        self.assertEqual(json.loads(self.output("regions", "--json")), [])
        plan = json.loads(self.output("explain", "--json", "--dtype", "float16", "--shape", "8191,8193", "--permute",
                                      "1,0"))
        self.assertEqual((plan["engine"], plan["bytes"]), (ENGINE, 2 * 8191 * 8193 * 2))
        done = json.loads(self.output("copy", "--json", self.src, self.dst, "--permute", "2,1,0"))
        self.assertEqual(done["path"], "tile_transpose")


if __name__ == "__main__":
    tap.main()
